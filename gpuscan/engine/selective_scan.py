"""Run mamba's selective scan and its gradient on a device. The states stay in registers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from gpuscan.array_types import AnyArray
from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.steps import Copy, Dispatch, Step
from gpuscan.device.transfer import round_up, upload
from gpuscan.engine.plan_steps import WORKGROUP_SIZE, are_owned, stage_dispatch, uniform_of
from gpuscan.planning.heuristics import ARRAYS

Array = AnyArray
# Bindings begin at multiples of 256 bytes, which are this many numbers.
_ALIGNED_NUMBERS = 64


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
    context = u._context
    batches, groups, channels, _, length = u.shape
    state_count, rows = decays.shape[3], batches * groups * channels
    y = empty(context, u.shape, u.dtype)
    last = empty(context, (batches, groups, channels, state_count, 1), u.dtype)
    chunk = _chunk_length(context, rows * -(-min(state_count, ARRAYS.selective_states) // 4), length)
    chunks = -(-length // chunk)
    # One number each for a scan in one chunk, which has no use for them.
    chunk_ends = empty(context, (chunks, rows, state_count) if chunks > 1 else (1,), u.dtype)
    sums = empty(context, (chunks, rows) if chunks > 1 else (1,), u.dtype)
    sources = [u, dt, decays, inward]
    stages = [("totals", [*sources, chunk_ends, sums])] if chunks > 1 else []
    stages += [("outputs", [*sources, outward, y, last, *([chunk_ends] if chunks > 1 else [])])]
    call = _Call(u.shape, decays.shape, inward.shape, outward.shape, chunk)
    with context.errors, context.lock:
        steps: list[Step] = []
        for purpose, bound in stages:
            steps += call.steps("scan", bound, purpose=purpose, later_chunks=chunks > 1)
            if purpose == "totals":
                steps.append(_carries_stage(sums, decays, chunk_ends))
        _submit(context, steps, [*sources, outward])
    return y, last


@dataclass(frozen=True)
class GradientSources:
    """What the gradient of a scan is computed from, on a device. Several arrays are parts of one, to bind fewer.

    Attributes:
        inputs: u, dt and the gradient of y. Each begins `series` numbers after the one before.
        ends: A, and the gradient of the last states.
        inward: B.
        outward: C.
        series: see `inputs`.
        shape: the shape of u.
        decays: the shape of A.
    """

    inputs: DeviceArray
    ends: DeviceArray
    inward: DeviceArray
    outward: DeviceArray
    series: int
    shape: tuple[int, ...]
    decays: tuple[int, ...]


def gradient_sources(
    context: DeviceContext,
    u: Array | DeviceArray,
    dt: Array | DeviceArray,
    decays: Array | DeviceArray,
    inward: Array | DeviceArray,
    outward: Array | DeviceArray,
    grad_y: Array | DeviceArray,
    grad_last: Array | DeviceArray,
) -> GradientSources:
    """Upload what `selective_gradients` takes, or copy it if it is on the device.

    Args:
        u, dt, decays, inward, outward: arrays as `selective_scan` takes them, of NumPy or in C order on the device.
        grad_y, grad_last: the gradients with respect to its results.
    """
    series = round_up(u.size, _ALIGNED_NUMBERS)
    inputs = empty(context, 3 * series, u.dtype)
    ends = empty(context, decays.size + grad_last.size, u.dtype)
    with context.errors:
        for array, at, into in (
            (u, 0, inputs), (dt, series, inputs), (grad_y, 2 * series, inputs),
            (decays, 0, ends), (grad_last, decays.size, ends),
        ):  # fmt: skip
            if isinstance(array, DeviceArray):
                copy = Copy(array.buffer, array.offset, into.buffer, into.offset + 4 * at, array.nbytes)
                with context.lock:
                    context.submit([copy], array.nbytes, deferrable=are_owned(array))
            else:
                upload(context.queue, array, into.buffer, 4 * at, context.pool)
    of_input, of_output = (
        weights if isinstance(weights, DeviceArray) else upload_array(context, weights) for weights in (inward, outward)
    )
    return GradientSources(inputs, ends, of_input, of_output, series, u.shape, decays.shape)


def selective_gradients(sources: GradientSources) -> list[DeviceArray]:
    """Submit the gradient of the scan with respect to u, dt, A, B and C, and return it.

    The gradients of u and dt have the shapes of u and dt. The gradients of A, B and C have one more axis in front.
    Summed along it, a gradient is (batch, group, channel, state, 1), or (batch, group, 1, state, time) for weights that
    depend on time. It has all batches, even if the weights have only one.
    """
    context, dtype, series = sources.inputs._context, sources.inputs.dtype, sources.series
    inputs, ends, inward, outward = sources.inputs, sources.ends, sources.inward, sources.outward
    batches, groups, channels, _, length = sources.shape
    state_count, rows = sources.decays[3], batches * groups * channels
    tile = _gradient_tile(context, channels)
    checkpoints = empty(context, (-(-length // tile.interval), state_count, rows), dtype)
    results = empty(context, 2 * series, dtype)
    varies = [weights.shape[-1] > 1 for weights in (inward, outward)]
    by_row = (1, batches, groups, channels, state_count, 1)
    strips = tile.strips(sum(varies))
    by_time = (-(-channels // tile.channels) * strips, batches, groups, 1, state_count, length)
    row_sums = empty(context, (3 - sum(varies), prod(by_row)), dtype)
    strip_sums = empty(context, (sum(varies), prod(by_time)), dtype)
    decays_size = prod(sources.decays)
    call = _Call(sources.shape, sources.decays, inward.shape, outward.shape, length, series, decays_size)
    parts = [inputs._view_as(sources.shape, offset=4 * at) for at in (0, series)]
    first = [*parts, ends._view_as(sources.decays), inward, checkpoints]
    second = [inputs, ends, inward, outward, checkpoints, results, row_sums, *([strip_sums] if any(varies) else [])]
    with context.errors, context.lock:
        steps = call.steps("scan", first, purpose="checkpoints", later_chunks=False, interval=tile.interval)
        steps += call.steps(
            "gradient",
            second,
            channels=tile.channels,
            times=tile.times,
            interval=tile.interval,
            sum_steps=tile.sum_steps,
            strips=strips,
        )
        _submit(context, steps, second)
    gradients = [results._view_as(sources.shape, offset=4 * at) for at in (0, series)]
    next_sums = {True: 0, False: 0}
    for varying in (False, *varies):
        sums, shape = (strip_sums, by_time) if varying else (row_sums, by_row)
        gradients.append(sums._view_as(shape, offset=4 * next_sums[varying] * prod(shape)))
        next_sums[varying] += 1
    return gradients


def can_differentiate(context: DeviceContext, rows: int, channels: int, state_count: int, length: int) -> bool:
    """Return True if `selective_gradients` takes a group of channels, and has rows enough to be fast.

    It walks along the time in one chunk, so the rows have to fill the device.
    """
    states = rows * min(state_count, ARRAYS.selective_states)
    if context.capabilities.adapter_type != "CPU" and states < ARRAYS.min_selective_gradient_states:
        return False
    tile = _gradient_tile(context, channels)
    # Sums over the channels take eight at a time, and those over the states four.
    strips = tile.strips(2)
    rounds = -(-8 * tile.sum_steps * strips // tile.channels) * tile.interval // tile.sum_steps
    sums = rounds * (tile.channels // strips // 8) + tile.interval * ARRAYS.selective_states // 4
    loops = -(-length // tile.times) + -(-length // tile.interval) * (1 + sums)
    return (
        length <= ARRAYS.max_selective_gradient_length
        and 4 * gradient_numbers(context, channels, state_count, length) <= context.binding_limit
        and loops <= (context.capabilities.loop_iterations or loops)
    )


def gradient_numbers(context: DeviceContext, channels: int, state_count: int, length: int) -> int:
    """Return the numbers of the largest array on the device for the gradient of one group of channels."""
    tile = _gradient_tile(context, channels)
    strips, checkpoints = -(-channels // tile.channels) * tile.strips(2), -(-length // tile.interval) * channels
    return max(3 * channels * length, checkpoints * state_count, 2 * strips * state_count * length)


@dataclass(frozen=True)
class _Call:
    """What the stages of one scan have in common.

    Attributes:
        shape: the shape of the input.
        decays, inward, outward: the shapes of A, B and C.
        chunk: the steps of a chunk.
        series, ends: where arrays are parts of one; see shaders/shared/selective_position.wgsl.
    """

    shape: tuple[int, ...]
    decays: tuple[int, ...]
    inward: tuple[int, ...]
    outward: tuple[int, ...]
    chunk: int
    series: int = 0
    ends: int = 0

    def steps(self, stage: str, arrays: list[DeviceArray], channels: int = 0, **given: object) -> list[Step]:
        """Return the dispatches of a stage, for some states after the other.

        Args:
            stage: ``"scan"`` or ``"gradient"``.
            arrays: what it binds after the call.
            channels: the channels of a workgroup; with 0, it has `selective_invocations` invocations.
            given: further variables of its template. The shapes give the rest.
        """
        batches, groups, group_channels, _, length = self.shape
        state_count, chunks = self.decays[3], -(-length // self.chunk)
        values: dict[str, Any] = {"times": ARRAYS.selective_times} | given
        values |= {"inward_varies": self.inward[-1] > 1, "outward_varies": self.outward[-1] > 1}
        strides = [_strides(self.decays)[0], *_strides(self.inward), *_strides(self.outward)]
        numbers = [batches, groups, group_channels, length, self.chunk, chunks, state_count]
        context = arrays[0]._context
        steps: list[Step] = []
        for first in range(0, state_count, ARRAYS.selective_states):
            quads = -(-min(ARRAYS.selective_states, state_count - first) // 4)
            # An invocation takes four states of a channel, and the number of invocations is a power of two.
            states = 4 * (1 << (quads - 1).bit_length())
            of_workgroup = channels or _power_of_two(4 * ARRAYS.selective_invocations // states, group_channels)
            workgroups = -(-group_channels // of_workgroup) * groups * batches * chunks
            call = uniform_of(context, [*numbers, first, *strides, self.series, self.ends])
            bound = [call, *(array._binding() for array in arrays)]
            adds = first > 0 and values.get("purpose", "outputs") == "outputs"
            options = values | {"states": states, "channels": of_workgroup, "adds": adds}
            template = f"arrays/selective_{stage}.wgsl"
            steps.append(stage_dispatch(context, template, bound, workgroups, prod(self.shape), **options))
        return steps


def _submit(context: DeviceContext, steps: list[Step], arrays: list[DeviceArray]) -> None:
    context.submit(steps, sum(array.nbytes for array in arrays), deferrable=are_owned(*arrays))


def _carries_stage(steps: DeviceArray, decays: DeviceArray, ends: DeviceArray) -> Dispatch:
    """Return the stage that replaces the states at the ends of chunks by those before them.

    Args:
        steps: the sum of dt over each chunk, (chunk, row).
        decays: A, with the state as its last axis of more than one number; rows beyond use the same decays again.
        ends: the states after each chunk that begins at 0, (chunk, row, state).
    """
    chunks, rows, state_count = ends.shape
    count, context = rows * state_count, ends._context
    call = uniform_of(context, [rows, decays.size // state_count, state_count, chunks])
    bound = [call, *(array._binding() for array in (steps, decays, ends))]
    workgroups, values = -(-count // WORKGROUP_SIZE), {"workgroup_size": WORKGROUP_SIZE}
    return stage_dispatch(context, "arrays/selective_carries.wgsl", bound, workgroups, count, **values)


def _power_of_two(most: int, channels: int) -> int:
    """Return `most`, which is a power of two, or a smaller one, of at least 8, that is enough for few channels."""
    return min(most, max(8, 1 << (channels - 1).bit_length()))


@dataclass(frozen=True)
class _GradientTile:
    """How a workgroup computes the gradient.

    Attributes:
        channels: its channels.
        times: the steps that are loaded together.
        interval: the steps from one checkpoint of the states to the next. An invocation holds the states of all.
        sum_steps: how many steps are summed over the channels at a time.
    """

    channels: int
    times: int
    interval: int
    sum_steps: int

    def strips(self, varying: int) -> int:
        """Return the number of strips of channels, each with its own sum, so that all invocations have a sum.

        Args:
            varying: how many of the weights B and C depend on time.
        """
        wanted = self.channels // (4 * self.sum_steps * max(varying, 1))
        return max(min(wanted, self.channels // ARRAYS.min_summed_channels), 1)

    @property
    def nbytes(self) -> int:
        """The bytes of workgroup memory."""
        states, columns = ARRAYS.selective_states, self.channels + 1
        by_channel = 2 * self.sum_steps * states * columns
        by_state = states // 4 * 2 * self.channels * (self.interval + 1)
        return 4 * (3 * self.channels * (self.times + 1) + 2 * self.times * states + max(by_channel, by_state))


def _gradient_tile(context: DeviceContext, channels: int) -> _GradientTile:
    """Return the first of `selective_gradient_tiles` that fits in workgroup memory, or the last one."""
    max_bytes = context.capabilities.limits["max-compute-workgroup-storage-size"]
    for most, *steps in ARRAYS.selective_gradient_tiles:
        tile = _GradientTile(_power_of_two(most, channels), *steps)
        if tile.nbytes <= max_bytes:
            break
    return tile


def _chunk_length(context: DeviceContext, invocations: int, length: int) -> int:
    """Return the steps that an invocation takes: fewer if one chunk has too few invocations to fill the device."""
    wanted = 1 if context.capabilities.adapter_type == "CPU" else -(-ARRAYS.min_selective_invocations // invocations)
    chunks = max(min(wanted, length // ARRAYS.min_selective_chunk), 1)
    unit = ARRAYS.selective_times
    return min(-(-length // (chunks * unit)) * unit, ARRAYS.max_selective_chunk)


def _strides(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the numbers from one batch, group and channel to the next; 0 along axes of length 1."""
    batch, group, channel = (prod(shape[axis + 1 :]) if shape[axis] > 1 else 0 for axis in range(3))
    return batch, group, channel
