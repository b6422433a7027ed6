"""Reduce runs of equal keys on a device: a segmented reduction that also lists where the runs begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.executor import Executor
from gpuscan.errors import GpuscanError
from gpuscan.planning.kernel import RUNS_AT
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.problem import Problem


@dataclass(frozen=True)
class Runs:
    """The reductions of runs.

    Attributes:
        results: for each field, memory that begins with the results of the `count` runs.
        starts: memory that begins with the index of each run's first element.
        count: the number of runs, as one 32-bit word on the device.
    """

    results: Sequence[DeviceArray]
    starts: DeviceArray
    count: DeviceArray


def reduce_runs(executor: Executor, problem: Problem) -> Runs:
    """Return the reduction of each run of equal keys. Nothing waits for the number of runs.

    Args:
        executor: the executor of the device.
        problem: a scan of one row with keys. Its NumPy arrays are uploaded.

    Raises:
        GpuscanError: the results exceed a binding. There may be as many results as elements.
    """
    context, length = executor.context, problem.size
    widest = max(4, *(field.storage_bytes for field in problem.destination.fields))
    if length >= LENGTH_LIMIT or length * widest + 4 * RUNS_AT > context.binding_limit:
        raise GpuscanError(
            f"a reduction by {length} keys was asked for, but {context.capabilities.summary} binds at most "
            f"{context.binding_limit} bytes of results. Reduce a part of the keys at a time, or compute on NumPy: "
            'device="numpy"'
        )
    with guarded(context):
        counts = empty(context, (RUNS_AT + length,), np.uint32)
        results = scan_device(executor, problem.as_reduction(lists_runs=True), count=counts)
    return Runs(results, counts._view_as((length,), offset=4 * RUNS_AT), counts._view_as((1,)))


def _one(value: object) -> object:
    """Return what an element adds to the length of its run."""
    return np.ones_like(value, np.uint32)


def run_lengths(executor: Executor, keys: DeviceArray) -> Runs:
    """Return the length of each run of equal keys, as uint32, and where it starts.

    Args:
        executor: the executor of the device.
        keys: (n,): one key or more, contiguous. Keys are compared as NumPy compares them, so each NaN is a run.

    Raises:
        GpuscanError: the results exceed a binding.
    """
    # The elements themselves are not read, so words of any contents will do.
    counted = keys._view_as((keys.size,), f"u{min(keys.dtype.itemsize, 4)}")
    return reduce_runs(executor, find_or_make_problem(counted, "add", axis=0, before=_one, keys=keys))
