"""Bind arrays to kernels by their names, and dispatch them: the stages of tables of groups and of segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.steps import Binding, Clear, Dispatch
from gpuscan.device.transfer import round_up
from gpuscan.engine.device_seeds import bind_seeds
from gpuscan.engine.plan_steps import max_workgroups
from gpuscan.planning.plan import grid_of

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.kernel import Kernel
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem


def bind_arrays(
    context: DeviceContext,
    problem: Problem,
    spec: ScanSpec,
    leaves: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
) -> tuple[dict[str, Binding], list[DeviceArray]]:
    """Return what kernels bind by name, and the arrays that were made for it, to be kept until all is submitted.

    Args:
        problem: the problem, with the initial values.
        spec: its specification, with the captured constants.
        leaves: the arrays to read.
        results: the arrays to write.
    """
    bound = {f"source{i}": leaf._binding() for i, leaf in enumerate(leaves)}
    bound |= {f"destination{i}": result._binding() for i, result in enumerate(results)}
    kept = []
    seeds = bind_seeds(problem, spec, context) if spec.seeded else None
    if seeds is not None:
        kept.append(seeds if isinstance(seeds, DeviceArray) else upload_array(context, seeds))
        bound["seeds"] = kept[-1]._binding()
    if spec.captured:
        bound["captured"] = context.uniform(spec.captured)
    return bound, kept


def clear_shared(kernel: Kernel, results: Sequence[DeviceArray]) -> list[Clear]:
    """Return the clears of the results that a kernel adds parts of words to."""
    return [
        Clear(result.buffer, result.offset, round_up(result.nbytes, ALIGNMENT))
        for array, result in zip(kernel.destinations, results, strict=True)
        if array.atomic
    ]


def dispatch_kernel(
    context: DeviceContext,
    kernel: Kernel,
    params: Binding,
    bound: Mapping[str, Binding],
    workgroups: int,
    elements: int,
) -> Dispatch:
    """Return the dispatch of a kernel with its parameters and with arrays by their names.

    Args:
        params: its parameters.
        bound: what `bind_arrays` returns, and other buffers by their names.
        workgroups: the number of workgroups; the grid may have a few more.
        elements: the number of elements that it works on, for profiles.
    """
    pipeline, layout = context.pipeline(kernel)
    entries = [(0, params), *((array.binding, bound[array.name]) for array in kernel.bindings)]
    entries += [*((binding, bound[role]) for binding, role in kernel.uniforms), *context.switch_entries]
    return Dispatch(kernel.stage, pipeline, layout, entries, grid_of(workgroups, max_workgroups(context)), elements, 0)
