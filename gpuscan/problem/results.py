"""Take bundles and structured arrays apart, and put results together in the same structure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import LEAF, Structure


def holds_arrays(x: Sequence[object]) -> bool:
    """Return True if a list is a bundle. A list of numbers, or of lists of numbers, is one array.

    Example:
        >>> import numpy as np
        >>> holds_arrays([[1, 2], [3, 4]]), holds_arrays([np.arange(2), [np.arange(2)]])
        (False, True)
    """
    return any(
        isinstance(part, dict)
        or getattr(part, "ndim", 0) > 0
        or (isinstance(part, (tuple, list)) and part is not x and holds_arrays(part))
        for part in x
    )


def parts_of(x: object) -> list[object] | None:
    """Return the values inside a bundle; None for an array."""
    if isinstance(x, dict):
        return list(x.values())
    return list(x) if isinstance(x, tuple) or (isinstance(x, list) and holds_arrays(x)) else None


def own_axes(x: object) -> list[int]:
    """Return, for each leaf of a bundle, depth first, how many trailing axes are part of a structured dtype.

    Example:
        >>> import numpy as np
        >>> own_axes((np.zeros(3, [("gain", np.float32, (2, 2)), ("shift", np.float32, 2)]), np.zeros(3)))
        [2, 1, 0]
    """
    parts = parts_of(x)
    if parts is not None:
        return [axes for part in parts for axes in own_axes(part)]
    dtype = getattr(x, "dtype", None)
    return _axes_of(dtype if isinstance(dtype, np.dtype) else np.asarray(x).dtype)


def _axes_of(dtype: AnyDType) -> list[int]:
    base, shape = dtype.subdtype or (dtype, ())
    inner = [0] if base.names is None else [axes for name in base.names for axes in _axes_of(base[name])]
    return [len(shape) + axes for axes in inner]


def over_arrays(function: Callable[..., object], x: object) -> object:
    """Return the same bundle with a function applied to each array. Structured arrays are not taken apart.

    Example:
        >>> over_arrays(lambda array: array + 1, {"a": 1, "b": (2, 3)})
        {'a': 2, 'b': (3, 4)}
    """
    parts = parts_of(x)
    if parts is None:
        return function(x)
    parts = [over_arrays(function, part) for part in parts]
    if isinstance(x, dict):
        return dict(zip(x, parts, strict=True))
    return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts) if isinstance(x, tuple) else parts


def assemble_arrays(
    structure: Structure, leaves: Sequence[Any], like: object = None, axes: int | None = None
) -> object:
    """Return the arrays nested as the structure says, with a structured array for each structured dtype.

    A structured array without axes becomes a NumPy scalar.

    Args:
        structure: how the arrays nest.
        leaves: an array for each leaf, depth first.
        like: a structured array that gives one of the same fields its memory layout, or a bundle that nests such
            arrays in the same way.
        axes: the number of leading axes that all leaves of a structured array share (default: the axes of the first
            leaf that are not a part of the dtype of `like`).
    """
    if structure.container == "leaf":
        return leaves[0]
    if structure.container == "structured" and axes is None:
        axes = leaves[0].ndim - own_axes(like)[0]
    parts: list[Any] = []
    start = 0
    for number, (key, child) in enumerate(zip(structure.keys, structure.children, strict=True)):
        if child.container == "leaf":
            parts.append(leaves[start])
            start += 1
            continue
        inside = like.get(key) if isinstance(like, dict) else like[number] if isinstance(like, (tuple, list)) else None
        parts.append(assemble_arrays(child, leaves[start : start + child.leaf_count], inside, axes))
        start += child.leaf_count
    if structure.container != "structured":
        return replace(structure, children=(LEAF,) * len(parts)).build_bundle(parts)
    types = [(name, part.dtype, part.shape[axes:]) for name, part in zip(structure.keys, parts, strict=True)]
    structured = np.empty(parts[0].shape[:axes], with_layout_of(np.dtype(types), like))
    for name, part in zip(structure.keys, parts, strict=True):
        structured[name] = part
    return structured if structured.ndim else structured[()]


def copy_to_outputs(results: list[AnyArray], outputs: list[AnyArray] | None) -> list[AnyArray]:
    """Write NumPy results to the caller's arrays, if there are any, and return the arrays that have the results."""
    if outputs is None:
        return results
    for output, result in zip(outputs, results, strict=True):
        output[...] = result
    return outputs


def with_layout_of(packed: AnyDType, like: object) -> AnyDType:
    """Return the dtype of `like`, which may be aligned, if it has the same fields as `packed`; else `packed`."""
    # This module takes a while to import.
    from numpy.lib.recfunctions import repack_fields

    dtype = getattr(like, "dtype", packed)
    return dtype if dtype.names and repack_fields(dtype, recurse=True) == packed else packed
