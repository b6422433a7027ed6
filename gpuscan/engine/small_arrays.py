"""Scan small NumPy arrays again by the plan of an earlier call: one upload, one submission and one wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.context import strategy_key
from gpuscan.device.device_array import uploaded
from gpuscan.device.reports import REPORT_BYTES, Outcome
from gpuscan.device.transfer import bytes_of, padded, read_later, upload
from gpuscan.engine.preparation import seed_words
from gpuscan.engine.prepared_run import PreparedRun
from gpuscan.engine.record import Buffers
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    import wgpu

    from gpuscan.engine.executor import Executor
    from gpuscan.engine.job import Layout
    from gpuscan.planning.plan import ScanPlan
    from gpuscan.problem.problem import Problem


def scan_again(
    executor: Executor, problem: Problem, strategy: str, layout: Layout, results: Sequence[np.ndarray[Any, Any]]
) -> bool:
    """Scan small arrays in C order by the plan of an earlier call.

    Args:
        executor: the executor of the device.
        problem: the scan; calls of its kind share the layout.
        strategy: as in `gpuscan.scan`.
        layout: the layout, of one part.
        results: the arrays to write.

    Returns:
        True if the results are written; False if there is no such plan, if the arrays need more than one copy, or if
        the run failed. The caller then scans in the long way, which also reacts to the failure.
    """
    plan = layout.plans.get(layout.parts[0].start)
    if plan is None or not _is_simple(executor, problem, layout, plan, results):
        return False
    context = executor.context
    flags = context.usage
    storage = flags.STORAGE | flags.COPY_DST | flags.COPY_SRC
    sizes = [each.nbytes for each in (*problem.leaves, *results)]
    kinds = [(storage, context.pool.size_of(padded(size, ALIGNMENT))) for size in sizes]
    buffers = context.pool.take_all(kinds)
    clean = False
    try:
        with context.lock:
            for leaf, buffer in zip(problem.leaves, buffers, strict=False):
                upload(context.queue, leaf, buffer)
            run = _prepared(executor, problem, strategy, layout, plan, buffers, sizes).begin()
            ends = zip(buffers[len(problem.leaves) :], results, strict=True)
            wanted = [(run.state, 0, REPORT_BYTES), *((buffer, 0, each.nbytes) for buffer, each in ends)]
            # No other run comes between, since its report could overwrite this one.
            read = read_later(context.queue, context.pool, wanted)
        report, *found = read()
        clean = True
    finally:
        context.pool.give_all(buffers, kinds, clean=clean)
    if run.outcome(report.view(np.uint32).tolist()) is not Outcome.DONE:
        return False
    for result, content in zip(results, found, strict=True):
        bytes_of(result)[:] = content
    return True


def _is_simple(
    executor: Executor,
    problem: Problem,
    layout: Layout,
    plan: ScanPlan,
    results: Sequence[np.ndarray[Any, Any]],
) -> bool:
    """Return True if uploads of the arrays, a run of the plan and copies of the results are all that is needed."""
    context, spec = executor.context, layout.spec
    if problem.heads is not None or spec.captured_functions or spec.inner != problem.inner or any(spec.field_offsets):
        return False
    if problem.compacts or problem.indexed:
        return False
    fields = problem.source.fields
    if any(leaf.dtype != f.scalar.dtype for leaf, f in zip(problem.leaves, fields, strict=True)):
        return False
    if not all(result.flags.c_contiguous and result.dtype.isnative for result in results):
        return False
    largest = max(each.nbytes for each in (*problem.leaves, *results))
    if largest > TRANSFERS.single_write_bytes or plan.stages[-1].kernel.cleared or context.profiles.active:
        return False
    return context.runs.is_verified(plan) and not context.runs.has_wrong_subgroup_size(plan)


def _prepared(
    executor: Executor,
    problem: Problem,
    strategy: str,
    layout: Layout,
    plan: ScanPlan,
    buffers: Sequence[wgpu.GPUBuffer],
    sizes: Sequence[int],
) -> PreparedRun:
    """Return the run over these buffers, from an earlier call if it had the same ones of the pool."""
    key = (problem.kind, problem.keep_last_only, *strategy_key(strategy), id(plan), *map(id, buffers))
    found = executor.prepared(key)
    if found is None:
        context, spec = executor.context, layout.spec
        words = seed_words(problem, spec, context)
        seeds = None
        if words is not None:
            name = "seeds of columns" if spec.inner > 1 else "seeds"
            seeds = executor.kept_arrays.get(problem.kind, name, lambda: uploaded(context, words))
        bound = [Binding(each, 0, padded(size, ALIGNMENT)) for each, size in zip(buffers, sizes, strict=True)]
        count = len(problem.leaves)
        parts = Buffers(bound[:count], bound[count:], None if seeds is None else seeds.binding())
        found = executor.keep_run(key, PreparedRun(context, plan, parts, (seeds,)))
    return found
