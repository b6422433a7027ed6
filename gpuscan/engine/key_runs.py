"""Reduce runs of equal keys on a device, or list them with their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.executor import Executor
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.errors import GpuscanError
from gpuscan.planning.kernel import KEY_RUNS_AT
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.problem.compaction import key_runs_problem, words_of_entry
from gpuscan.problem.problem import Problem

# The fewest elements of a tile that lists runs: a workgroup of 16 invocations with chunks of 16.
_MIN_TILE = 256


@dataclass(frozen=True)
class KeyRuns:
    """The reductions of runs.

    Attributes:
        results: for each field, memory that begins with the results of the `count` runs.
        starts: memory that begins with the index of each run's first element.
        count: the number of runs, as one 32-bit word on the device.
    """

    results: Sequence[DeviceArray]
    starts: DeviceArray
    count: DeviceArray


def reduce_key_runs(executor: Executor, problem: Problem) -> KeyRuns:
    """Return the reduction of each run of equal keys. Nothing waits for the number of runs.

    Args:
        problem: a scan of one row with keys. Its NumPy arrays are uploaded.

    Raises:
        GpuscanError: the results exceed a binding. There may be as many results as elements.
    """
    context, length = executor.context, problem.size
    widest = max(4, *(field.storage_bytes for field in problem.destination.fields))
    _check_results(context, length, widest, 4 * KEY_RUNS_AT)
    with context.errors:
        counts = empty(context, (KEY_RUNS_AT + length,), np.uint32)
        results = scan_device(executor, problem.as_reduction(lists_key_runs=True), count=counts)
    return KeyRuns(results, counts._view_as((length,), offset=4 * KEY_RUNS_AT), counts._view_as((1,)))


def _check_results(context: DeviceContext, length: int, widest: int, more: int = 0) -> None:
    """Check that as many results as keys fit a binding.

    Args:
        length: the number of keys.
        widest: the bytes of the widest result of a run.
        more: further bytes in the same buffer.

    Raises:
        GpuscanError: they do not.
    """
    if length >= LENGTH_LIMIT or length * widest + more > context.binding_limit:
        raise GpuscanError(
            f"a reduction by {length} keys was asked for, but {context.capabilities.summary} binds at most "
            f"{context.binding_limit} bytes of results. Reduce a part of the keys at a time, or compute on NumPy: "
            'device="numpy"'
        )


def run_lengths(
    executor: Executor, keys: DeviceArray, values: DeviceArray | None = None
) -> tuple[DeviceArray, DeviceArray, DeviceArray]:
    """Return the runs of equal keys: a compaction of the keys that differ from the key before them.

    Args:
        keys: (n,): one key or more, contiguous. Keys are compared as NumPy compares them, so each NaN is a run.
        values: (n,): what to return the first of for each run (default: the keys).

    Returns:
        Memory that begins with the first key of each run, memory that begins with the length of each run, as uint32,
        and the number of runs, as one 32-bit word on the device.

    Raises:
        GpuscanError: the results exceed a binding.
    """
    context, length = executor.context, keys.size
    values = keys if values is None else values
    _check_results(context, length, max(4, values.dtype.itemsize))
    most_tiles = -(-length // _MIN_TILE)
    with context.errors, context.lock:
        counts = empty(context, (KEY_RUNS_AT + 2 * most_tiles,), np.uint32)
        dtype, words = words_of_entry(values.dtype.itemsize)
        problem = key_runs_problem(values._view_as((length, words), dtype), keys)
        first, lengths = scan_device(executor, problem, count=counts)
        bound, deferrable = [counts._binding(), lengths._binding()], are_owned(counts, lengths)
        submit_stage(context, "arrays/join_runs.wgsl", [KEY_RUNS_AT], bound, most_tiles, length, deferrable)
    return first._view_as((length,), values.dtype), lengths, counts._view_as((1,))
