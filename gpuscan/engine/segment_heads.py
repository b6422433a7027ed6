"""Compute the heads of segments on a device, as one bit for each element, which the scan's kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, is_number, uploaded
from gpuscan.device.transfer import padded
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import duplicate
from gpuscan.engine.record import record_stage
from gpuscan.problem.arguments import OnDevice

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.problem.segments import Heads

# Invocations in a workgroup of the marking shaders: the most that every WebGPU adapter has.
WORKGROUP_SIZE = 256
# Keys that one invocation of arrays/mark_keys.wgsl compares.
_KEYS_PER_INVOCATION = 4


def segment_heads(context: DeviceContext, heads: Heads) -> DeviceArray:
    """Return the heads as 32-bit words on the device. The first element's bit is the lowest bit of the first word.

    The bits are computed on the device. NumPy offsets or keys that exceed a binding, and NumPy keys of dtypes that
    shaders do not know, are turned into bits on the CPU.
    """
    by_keys = heads.offsets is None
    given = heads.keys if by_keys else heads.offsets.astype(np.uint32)
    words = -(-heads.length // 32)
    if not isinstance(given, OnDevice) and (
        (by_keys and not is_number(given.dtype)) or max(given.nbytes, 4 * words) > context.binding_limit
    ):
        return uploaded(context, heads.words(0, heads.length))
    source = given if isinstance(given, DeviceArray) else uploaded(context, given)
    if not source.is_bindable:
        source = duplicate(source)
    marks = empty(context, words, np.uint32)
    count = words if by_keys else len(given) - 1
    row = context.uniform(np.array([heads.length, count, heads.reverse, 0], np.uint32).tobytes())
    bound = [row, source.binding(), marks.binding()]
    kind = {"scalar": scalar_of(source.dtype)} if by_keys else {}
    name = "arrays/mark_keys.wgsl" if by_keys else "arrays/mark_segments.wgsl"
    invocations = -(-heads.length // _KEYS_PER_INVOCATION) if by_keys else count
    workgroups = max(1, -(-invocations // WORKGROUP_SIZE))
    with context.lock:
        encoder = context.queue.encoder()
        if not by_keys:
            encoder.clear_buffer(marks.buffer, 0, padded(marks.nbytes))
        record_stage(context, encoder, name, bound, workgroups, heads.length, workgroup_size=WORKGROUP_SIZE, **kind)
        context.queue.submit(encoder)
    return marks
