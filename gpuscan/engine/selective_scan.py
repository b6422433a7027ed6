"""Run mamba's selective scan on arrays on a device. Its states stay in registers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.engine.record import record_stage
from gpuscan.planning.array_heuristics import ARRAYS

# Invocations in a workgroup of the stage that combines chunks: the most that every WebGPU adapter has.
_WORKGROUP_SIZE = 256


def selective_scan(
    u: DeviceArray, dt: DeviceArray, decays: DeviceArray, inward: DeviceArray, outward: DeviceArray
) -> tuple[DeviceArray, DeviceArray]:
    """Submit the scan, and return y in the shape of `u`, and the states after the last step.

    ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]`` and ``y[t] = sum over states of C[t] h[t]``, from states of 0 on.

    Args:
        u: the input, of float32, which is not empty: (batch, group, channel, 1, time).
        dt: the step sizes, in that shape.
        decays: A: (batch or 1, group, channel, state, 1).
        inward: B: (batch or 1, group or 1, channel or 1, state, time or 1). It may not depend on both channel and time.
        outward: C, in one of these shapes.

    Returns:
        y, and the states (batch, group, channel, state, 1).
    """
    context = u.context
    batches, groups, channels, _, length = u.shape
    state_count, rows = decays.shape[3], batches * groups * channels
    y = empty(context, u.shape, u.dtype)
    last = empty(context, (batches, groups, channels, state_count, 1), u.dtype)
    width = _channels_of_workgroup(channels)
    chunk = _chunk_length(context, rows, length)
    chunks = -(-length // chunk)
    # One number each for a scan in one chunk, which has no use for them.
    chunk_ends = empty(context, (chunks, rows, state_count) if chunks > 1 else (1,), u.dtype)
    sums = empty(context, (chunks, rows) if chunks > 1 else (1,), u.dtype)
    weights = [number for each in (inward, outward) for number in _strides(each)]
    values: dict[str, Any] = {
        "channels": width,
        "times": ARRAYS.selective_times,
        "later_chunks": chunks > 1,
        "inward_varies": inward.shape[-1] > 1,
        "outward_varies": outward.shape[-1] > 1,
    }
    numbers = [batches, groups, channels, length, chunk, chunks, state_count]
    workgroups = -(-channels // width) * groups * batches * chunks

    def submit(totals: bool) -> None:
        for first in range(0, state_count, ARRAYS.selective_states):
            states = -(-min(ARRAYS.selective_states, state_count - first) // 4) * 4
            call = np.array([*numbers, first, _batch_stride(decays), *weights, 0], np.uint32).tobytes()
            sources = [context.uniform(call), *(each.binding() for each in (u, dt, decays, inward))]
            if totals:
                bound = [*sources, chunk_ends.binding(), sums.binding()]
            else:
                bound = [*sources, outward.binding(), y.binding(), last.binding()]
                bound += [chunk_ends.binding()] if chunks > 1 else []
            options = values | {"states": states, "totals": totals, "adds": first > 0}
            record_stage(context, encoder, "arrays/selective_scan.wgsl", bound, workgroups, u.size, **options)

    with guarded(context), context.lock:
        encoder = context.queue.encoder()
        if chunks > 1:
            submit(totals=True)
            _record_carries(encoder, sums, decays, chunk_ends)
        submit(totals=False)
        context.queue.submit(encoder)
    return y, last


def combine_chunks(steps: DeviceArray, decays: DeviceArray, ends: DeviceArray) -> None:
    """Submit the stage that replaces the states at the ends of chunks by those before them.

    Args:
        steps: the sum of dt over each chunk, (chunk, row).
        decays: A, with the state as its last axis of more than one number; rows beyond use the same decays again.
        ends: the states after each chunk that begins at 0, (chunk, row, state).
    """
    context = ends.context
    with guarded(context), context.lock:
        encoder = context.queue.encoder()
        _record_carries(encoder, steps, decays, ends)
        context.queue.submit(encoder)


def _record_carries(encoder: Any, steps: DeviceArray, decays: DeviceArray, ends: DeviceArray) -> None:
    chunks, rows, state_count = ends.shape
    count, context = rows * state_count, ends.context
    call = np.array([rows, decays.size // state_count, state_count, chunks], np.uint32).tobytes()
    bound = [context.uniform(call), *(array.binding() for array in (steps, decays, ends))]
    workgroups = -(-count // _WORKGROUP_SIZE)
    record_stage(
        context, encoder, "arrays/selective_carries.wgsl", bound, workgroups, count, workgroup_size=_WORKGROUP_SIZE
    )


def _channels_of_workgroup(channels: int) -> int:
    """Return a power of two: the most that a workgroup has, or fewer for few channels."""
    return min(ARRAYS.selective_channels, max(8, 1 << (channels - 1).bit_length()))


def _chunk_length(context: DeviceContext, rows: int, length: int) -> int:
    """Return the steps that an invocation takes: fewer if there are too few rows to fill the device."""
    wanted = 1 if context.capabilities.adapter_type == "CPU" else -(-ARRAYS.selective_rows // rows)
    chunks = max(min(wanted, length // ARRAYS.min_selective_chunk), 1)
    unit = ARRAYS.selective_times
    return min(-(-length // (chunks * unit)) * unit, ARRAYS.max_selective_chunk)


def _strides(weights: DeviceArray) -> tuple[int, int, int]:
    """Return the numbers from one batch, group and channel to the next; 0 along axes of length 1."""
    sizes = [prod(weights.shape[axis + 1 :]) for axis in range(3)]
    batch, group, channel = (size if weights.shape[axis] > 1 else 0 for axis, size in enumerate(sizes))
    return batch, group, channel


def _batch_stride(decays: DeviceArray) -> int:
    return prod(decays.shape[1:]) if decays.shape[0] > 1 else 0
