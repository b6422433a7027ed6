"""Upload what cuts arrays on a device, if it is in NumPy: labels, keys and offsets. Then calls launch programs.

What a call says about wrong cuts at once, it still says at once: such cuts stay in NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.api.array import Array, new_array
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.array_types import AnyArray
from gpuscan.engine.group_results import narrow_labels
from gpuscan.engine.group_tables import CountedLabels
from gpuscan.problem.groups import in_order, missing_labels, number_labels
from gpuscan.problem.labels import MISSING

# Longer keys stay in NumPy, which makes a bit of each. Not tuned.
_MAX_KEY_BYTES = 1 << 20


def upload_scan_cuts(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `gpuscan.scan` with what cuts the array on its device; None if it is not in NumPy."""
    device = _device_of(given)
    cuts = [name for name in ("segments", "keys", "groups") if given.get(name) is not None]
    if device is None or len(cuts) != 1:
        return None
    (name,) = cuts
    cut = _in_numpy(given[name])
    uploaded: object = None
    if cut is None:
        return None
    if name == "segments":
        uploaded = _upload_offsets(device, cut, given)
    elif name == "keys" and cut.dtype.kind in "iub" and cut.dtype.isnative and cut.nbytes <= _MAX_KEY_BYTES:
        uploaded = new_array(device, cut)
    elif name == "groups" and cut.dtype.kind in "iub" and cut.shape in (given["x"].shape, (len(cut),)):
        axis = given.get("axis") if cut.ndim > 1 else 0
        if isinstance(axis, int) and -cut.ndim <= axis < cut.ndim:
            uploaded = _upload_labels(device, cut, axis)
    return None if uploaded is None else given | {name: uploaded}


def upload_reduction_cuts(given: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `gpuscan.reduce` with what cuts the array on its device; None if it is not in NumPy."""
    device, groups, count = _device_of(given), _in_numpy(given.get("groups")), given.get("num_groups")
    segments = _in_numpy(given.get("segments"))
    if device is not None and given.get("groups") is None and count is None and segments is not None:
        # The error for an empty segment without a result is raised at once.
        full = given.get("op", "add") == "add" or (segments.ndim == 1 and (segments[1:] != segments[:-1]).all())
        uploaded = _upload_offsets(device, segments, given) if full else None
        return None if uploaded is None else given | {"segments": uploaded}
    if device is None or groups is None or groups.dtype.kind not in "iub" or given.get("segments") is not None:
        return None
    least, largest = int(groups.min()), int(groups.max())
    count = largest + 1 if count is None else count
    if type(count) is not int or least < MISSING or not largest < count < 1 << 31 or not count:
        return None
    return given | {"groups": new_array(device, narrow_labels(groups, count)), "num_groups": count}


def _in_numpy(cut: object) -> AnyArray | None:
    """Return labels, keys or offsets in NumPy; None if they are elsewhere, or if there are none."""
    if type(cut) is list or type(cut) is tuple:
        try:
            cut = np.asarray(cut)
        except ValueError:
            return None  # lists of different lengths, for which the function raises the error
    return cut if type(cut) is np.ndarray and cut.ndim and cut.size else None


def _device_of(given: dict[str, Any]) -> OpenedDevice | None:
    x = given.get("x")
    return x.device if isinstance(x, Array) and given.get("device") is None else None


def _upload_labels(device: OpenedDevice, labels: AnyArray, axis: int) -> CountedLabels | None:
    """Return the labels of a scan on the device; None if some are missing, or if they are far from each other."""
    if missing_labels(labels) is not None:
        return None
    numbers = number_labels(labels)
    largest = int(numbers.max())
    if numbers.dtype.itemsize == 8 or largest >= 1 << 31:
        return None
    narrow = new_array(device, numbers.astype(np.min_scalar_type(largest)))
    return CountedLabels(narrow, largest + 1, in_order(numbers, axis))


def _upload_offsets(device: OpenedDevice, offsets: AnyArray, given: dict[str, Any]) -> Array | None:
    """Return the offsets of segments on the device; None if they are wrong, or if a row may have 2^32 elements."""
    shape, axis = given["x"].shape, given.get("axis")
    axis = 0 if axis is None and len(shape) == 1 else axis
    if type(axis) is not int or not -len(shape) <= axis < len(shape) or not 0 < shape[axis] < 1 << 32:
        return None
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) < 2:
        return None
    right = offsets[0] == 0 and offsets[-1] == shape[axis] and (offsets[1:] >= offsets[:-1]).all()
    return new_array(device, offsets.astype(np.uint32)) if right else None
