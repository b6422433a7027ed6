"""Structured arrays as bundles: axes that a field's dtype brings along, and results put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.elements import LEAF, Structure


def own_axes(x: Any) -> list[int]:
    """For each leaf of a bundle, depth first, the trailing axes that are part of a structured dtype.

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


def assembled(structure: Structure, leaves: Sequence[Any], axes: int, like: Any = None) -> Any:
    """The arrays as the structure nests them, structured ones where it has records; without axes, NumPy's elements.

    Args:
        structure: how they nest.
        leaves: an array for each leaf, depth first.
        axes: leading axes of all leaves; what follows belongs to the element.
        like: what a structured array of the same fields is to have the memory layout of: that, or what it lies in.
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
    """The dtype of `like`, which may be aligned, where its fields are those of the packed one."""
    from numpy.lib.recfunctions import repack_fields  # which takes a while to import

    dtype = getattr(like, "dtype", packed)
    return dtype if dtype.names and repack_fields(dtype, recurse=True) == packed else packed
