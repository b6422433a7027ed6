"""Scan small NumPy arrays as arrays on the device: one upload, one submission and one wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscan.array_types import AnyArray
from gpuscan.device.context import strategy_key
from gpuscan.device.device_array import upload_array
from gpuscan.device.transfer import bytes_of
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.launch import launch
from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    from gpuscan.device.device_array import DeviceArray
    from gpuscan.engine.executor import Executor
    from gpuscan.operators.parameters import Parameters
    from gpuscan.problem.problem import Problem


def scan_small(executor: Executor, problem: Problem, strategy: str, results: Sequence[AnyArray]) -> bool:
    """Scan small arrays in C order: one upload, one submission and one wait.

    Args:
        executor: the executor of the device.
        problem: the scan, of a kind.
        strategy: as in `gpuscan.scan`.
        results: the arrays to write.

    Returns:
        True if the results are written; False if the arrays need more than one copy, or if the run timed out. The
        caller then scans in the long way.
    """
    if not _is_simple(problem, results):
        return False
    context = executor.context
    with context.lock:
        # Reports of earlier calls are read first, so that a failure below is this call's own.
        context.check()
        leaves = [upload_array(context, leaf) for leaf in problem.numpy_leaves]
        key = ("NumPy", problem.kind, problem.keep_last_only, *strategy_key(strategy))

        def compute(parameters: Parameters | None, given: Sequence[object]) -> tuple[list[DeviceArray], None]:
            del parameters
            return scan_device(executor, problem.with_leaves(tuple(given)), strategy), None

        # The key has the shapes of the arrays.
        scanned = launch(context, key, (), leaves, compute)
        try:
            contents = context.read_and_check(*((each.buffer, each.offset, each.nbytes) for each in scanned))
        except ProgressTimeoutError:
            return False
    for result, content in zip(results, contents, strict=True):
        bytes_of(result)[:] = content
    return True


def _is_simple(problem: Problem, results: Sequence[AnyArray]) -> bool:
    """Return True if uploads of the arrays, a scan on the device and copies of the results are all that is needed."""
    fields = problem.source.fields
    if any(leaf.dtype != f.scalar.dtype for leaf, f in zip(problem.leaves, fields, strict=True)):
        return False
    if not all(result.flags.c_contiguous and result.dtype.isnative for result in results):
        return False
    largest = max(each.nbytes for each in (*problem.leaves, *results))
    return largest <= TRANSFERS.single_write_bytes
