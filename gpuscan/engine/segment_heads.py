"""Marks on a device where segments begin: a bit for each element, which scans of arrays there read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.device.submission import submit
from gpuscan.device.transfer import padded
from gpuscan.elements import scalar_of
from gpuscan.engine.record import record_beside
from gpuscan.errors import UnsupportedDtypeError

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.problem.segments import Heads

WORKGROUP_SIZE = 256
KEYS = 4  # that one invocation of mark_keys compares


def mark(device: Device, heads: Heads) -> Array:
    """The heads as 32-bit words on the device, the first element's in the lowest bit.

    Made there from the offsets or keys; on the CPU where those are larger than a binding, or keys are no numbers.
    """
    if heads.keys is not None and not is_number(heads.keys.dtype):
        return device.asarray(heads.words(0, heads.length))
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    words = -(-heads.length // 32)
    given = heads.keys if heads.offsets is None else heads.offsets.astype(np.uint32)
    if max(given.nbytes, 4 * words) > limit:
        return device.asarray(heads.words(0, heads.length))
    from gpuscan.engine.device_arrays import bindable, parts

    source = bindable(device.asarray(given))
    marks = device.empty(words, np.uint32)
    by_keys = heads.offsets is None
    count = words if by_keys else len(given) - 1
    row = device.uniform(np.array([heads.length, count, heads.reverse, 0], np.uint32).tobytes())
    bound = [row, *parts([source, marks])]
    encoder = device.wgpu_device.create_command_encoder()
    kind = {"scalar": scalar_of(source.dtype)} if by_keys else {}
    if not by_keys:
        encoder.clear_buffer(marks.buffer, 0, padded(marks.nbytes))
    name = "arrays/mark_keys.wgsl" if by_keys else "arrays/mark_segments.wgsl"
    invocations = -(-heads.length // KEYS) if by_keys else count
    workgroups = max(1, -(-invocations // WORKGROUP_SIZE))
    record_beside(device, encoder, name, bound, workgroups, heads.length, workgroup_size=WORKGROUP_SIZE, **kind)
    submit(device.wgpu_device, encoder.finish())
    return marks


def is_number(dtype: np.dtype[Any]) -> bool:
    """Whether shaders know the dtype."""
    try:
        scalar_of(dtype)
    except UnsupportedDtypeError:
        return False
    return True
