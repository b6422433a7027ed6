"""Treat structured arrays as bundles: count the axes of their fields, and put results together again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.elements import LEAF, Structure


def own_axes(x: Any) -> list[int]:
    """Return, for each leaf of a bundle, depth first, how many trailing axes are part of a structured dtype.

    Example:
        >>> import numpy as np
        >>> own_axes((np.zeros(3, [("gain", np.float32, (2, 2)), ("shift", np.float32, 2)]), np.zeros(3)))
        [2, 1, 0]
    """
    if isinstance(x, (tuple, dict)):
        return [axes for part in (x.values() if isinstance(x, dict) else x) for axes in own_axes(part)]
    dtype = getattr(x, "dtype", None)
    return _axes_of(dtype if isinstance(dtype, np.dtype) else np.asarray(x).dtype)


def _axes_of(dtype: np.dtype[Any]) -> list[int]:
    base, shape = dtype.subdtype or (dtype, ())
    inner = [0] if base.names is None else [axes for name in base.names for axes in _axes_of(base[name])]
    return [len(shape) + axes for axes in inner]


def over_arrays(function: Callable[[Any], Any], x: Any) -> Any:
    """Return the same bundle with a function applied to each array. Structured arrays are not taken apart.

    Example:
        >>> over_arrays(lambda array: array + 1, {"a": 1, "b": (2, 3)})
        {'a': 2, 'b': (3, 4)}
    """
    if isinstance(x, dict):
        return {key: over_arrays(function, part) for key, part in x.items()}
    if isinstance(x, tuple):
        parts = [over_arrays(function, part) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else tuple(parts)
    return function(x)


def assembled(structure: Structure, leaves: Sequence[Any], axes: int, like: Any = None) -> Any:
    """Return the arrays nested as the structure says, with a structured array for each record.

    A record without axes becomes a NumPy scalar.

    Args:
        structure: how the arrays nest.
        leaves: an array for each leaf, depth first.
        axes: the leading axes of all leaves. The axes after them belong to the element.
        like: a structured array that gives a record of the same fields its memory layout, or a bundle that nests such
            arrays in the same way.
    """
    if structure.kind == "leaf":
        return leaves[0]
    parts, start = [], 0
    for place, (key, child) in enumerate(zip(structure.keys, structure.children, strict=True)):
        inside = like.get(key) if isinstance(like, dict) else like[place] if isinstance(like, tuple) else None
        parts.append(assembled(child, leaves[start : start + child.leaf_count], axes, inside))
        start += child.leaf_count
    if structure.kind != "record":
        return replace(structure, children=(LEAF,) * len(parts)).unflatten(parts)
    types = [(name, part.dtype, part.shape[axes:]) for name, part in zip(structure.keys, parts, strict=True)]
    record = np.empty(parts[0].shape[:axes], laid_out(np.dtype(types), like))
    for name, part in zip(structure.keys, parts, strict=True):
        record[name] = part
    return record if record.ndim else record[()]


def laid_out(packed: np.dtype[Any], like: Any) -> np.dtype[Any]:
    """Return the dtype of `like`, which may be aligned, if it has the same fields as `packed`; else `packed`."""
    # This module takes a while to import.
    from numpy.lib.recfunctions import repack_fields

    dtype = getattr(like, "dtype", packed)
    return dtype if dtype.names and repack_fields(dtype, recurse=True) == packed else packed
