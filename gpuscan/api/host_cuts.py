"""Upload what cuts arrays on a device, if it is in NumPy: labels, keys and offsets. Then calls launch programs.

What a call says about wrong cuts at once, it still says at once: such cuts stay in NumPy.
"""

from __future__ import annotations

import numpy as np

from gpuscan.api.array import Array, new_array
from gpuscan.api.launches import Arguments
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.array_types import AnyArray
from gpuscan.engine.group_results import narrow_labels
from gpuscan.engine.group_tables import CountedLabels
from gpuscan.problem.groups import in_order, missing_labels, number_labels
from gpuscan.problem.labels import MISSING, category_count, labels_of

# Longer keys stay in NumPy, which makes a bit of each. Not tuned.
_MAX_KEY_BYTES = 1 << 20


def upload_scan_cuts(given: Arguments) -> Arguments | None:
    """Return the arguments of `gpuscan.scan` with what cuts the array on its device; None if it is not in NumPy."""
    array = _array_of(given)
    cuts = [name for name in ("segments", "keys", "groups") if given.get(name) is not None]
    if array is None or len(cuts) != 1:
        return None
    (name,) = cuts
    cut = _labels_in_numpy(given[name]) if name == "groups" else _in_numpy(given[name])
    uploaded: object = None
    if cut is None:
        return None
    if name == "segments":
        uploaded = _upload_offsets(array, cut, given.get("axis"))
    elif name == "keys" and cut.dtype.kind in "iub" and cut.dtype.isnative and cut.nbytes <= _MAX_KEY_BYTES:
        uploaded = new_array(array.device, cut)
    elif name == "groups" and cut.shape in (array._shape, (len(cut),)):
        axis = given.get("axis") if cut.ndim > 1 else 0
        if isinstance(axis, int) and -cut.ndim <= axis < cut.ndim:
            uploaded = _upload_labels(array.device, cut, axis)
    return None if uploaded is None else given | {name: uploaded}


def upload_sort_cuts(given: Arguments) -> Arguments | None:
    """Return the arguments of `gpuscan.sort` with the offsets on the device of the array; None if they stay."""
    array, segments = _array_of(given), _in_numpy(given.get("segments"))
    if array is None or segments is None:
        return None
    uploaded = _upload_offsets(array, segments, given.get("axis", -1))
    return None if uploaded is None else given | {"segments": uploaded}


def upload_reduction_cuts(given: Arguments) -> Arguments | None:
    """Return the arguments of `gpuscan.reduce` with what cuts the array on its device; None if it is not in NumPy."""
    array, groups, count = _array_of(given), _labels_in_numpy(given.get("groups")), given.get("num_groups")
    segments = _in_numpy(given.get("segments"))
    if array is not None and given.get("groups") is None and count is None and segments is not None:
        # The error for an empty segment without a result is raised at once.
        full = given.get("op", "add") == "add" or (segments.ndim == 1 and (segments[1:] != segments[:-1]).all())
        uploaded = _upload_offsets(array, segments, given.get("axis")) if full else None
        return None if uploaded is None else given | {"segments": uploaded}
    if array is None or groups is None or given.get("segments") is not None:
        return None
    if count is None and type(given["groups"]) is not np.ndarray:
        count = category_count(given["groups"])
    least, largest = int(np.minimum.reduce(groups, None)), int(np.maximum.reduce(groups, None))
    count = largest + 1 if count is None else count
    if type(count) is not int or least < MISSING or not largest < count < 1 << 31 or not count:
        return None
    return given | {"groups": new_array(array.device, narrow_labels(groups, count)), "num_groups": count}


def _in_numpy(cut: object) -> AnyArray | None:
    """Return labels, keys or offsets in NumPy; None if they are elsewhere, or if there are none."""
    if isinstance(cut, (list, tuple, range)):
        try:
            cut = np.asarray(cut)
        except ValueError:
            return None  # lists of different lengths, for which the function raises the error
    return cut if type(cut) is np.ndarray and cut.ndim and cut.size else None


def _labels_in_numpy(groups: object) -> AnyArray | None:
    """Return labels as integers or bools in NumPy, as `_in_numpy` does. Other labels are numbered."""
    labels = _in_numpy(groups)
    if groups is not None and not isinstance(groups, Array) and (labels is None or labels.dtype.kind not in "iub"):
        try:
            labels = _in_numpy(labels_of(groups))
        except (TypeError, ValueError):
            return None  # the function raises the error
    return labels


def _array_of(given: Arguments) -> Array | None:
    """Return the array of a call, or one of its arrays, if all have one shape and are on the device of the call."""
    x = given.get("x")
    arrays = [x] if isinstance(x, Array) else list(x.values() if type(x) is dict else x if type(x) is tuple else ())
    for array in arrays:
        if not isinstance(array, Array) or array._shape != arrays[0]._shape:
            return None
    return arrays[0] if arrays and given.get("device") in (None, arrays[0].device) else None


def _upload_labels(device: OpenedDevice, labels: AnyArray, axis: int) -> CountedLabels | None:
    """Return the labels of a scan on the device; None if some are missing, or if they are far from each other."""
    # Ufuncs take no Python calls, unlike the methods of arrays.
    least, largest = bounds = int(np.minimum.reduce(labels, None)), int(np.maximum.reduce(labels, None))
    if largest - least >= 1 << 31 or (least <= MISSING <= largest and missing_labels(labels) is not None):
        return None
    if labels.dtype == np.bool_:
        numbers = labels.view(np.uint8)
    else:
        numbers, largest = number_labels(labels, bounds), largest - least
    return CountedLabels(new_array(device, numbers), largest + 1, in_order(numbers, axis))


def _upload_offsets(array: Array, offsets: AnyArray, axis: object) -> Array | None:
    """Return the offsets of segments on the device; None if they are wrong, or if a row may have 2^32 elements."""
    shape = array._shape
    axis = 0 if axis is None and len(shape) == 1 else axis
    if type(axis) is not int or not -len(shape) <= axis < len(shape) or not 0 < shape[axis] < 1 << 32:
        return None
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        return None
    ascending = np.logical_and.reduce(offsets[1:] >= offsets[:-1])
    right = offsets[0] == 0 and offsets[-1] == shape[axis] and ascending
    return new_array(array.device, offsets.astype(np.uint32)) if right else None
