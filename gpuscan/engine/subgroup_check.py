"""Check whether a shader's subgroups have the size that it was built for.

A compiler may choose a size for each shader (Intel's picks 8, 16 or 32), which shows only where the shader runs. The
size belongs to the compiled kernel: once a report has shown it, it stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.reports import Outcome, read_report
from gpuscan.device.steps import Binding
from gpuscan.engine.array_views import PARAMETERS
from gpuscan.engine.plan_steps import Buffers, steps_of_plan

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Field
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.plan import ScanPlan

# The vendors of GPUs that have only one subgroup size, 32 lanes.
_VENDORS_OF_ONE_SIZE = frozenset({"NVIDIA", "Apple"})


def sizes_vary(capabilities: Capabilities) -> bool:
    """Return True if a shader may get another subgroup size than the probe's shader did.

    The subgroups of a software adapter have as many lanes as the CPU's vectors, so their size does not vary.
    """
    return capabilities.adapter_type != "CPU" and capabilities.vendor not in _VENDORS_OF_ONE_SIZE


def check_subgroup_size(context: DeviceContext, plan: ScanPlan) -> bool:
    """Return True if the plan's subgroups have the planned size. If no run has shown it yet, run one tile to see."""
    if context.run_log.has_wrong_subgroup_size(plan):
        return False
    if context.run_log.is_verified(plan):
        return True
    kernel, elements = plan.stages[-1].kernel, plan.tile.tile_size
    workgroups = 1 + plan.workgroups_without_tile
    stages = tuple(replace(stage, grid=(min(workgroups, stage.grid[0]), 1, 1)) for stage in plan.stages)
    single = replace(plan, length=min(plan.length, elements), tiles=1, stages=stages)
    kept_alive: list[DeviceArray] = []

    def make_binding(nbytes: int) -> Binding:
        kept_alive.append(empty(context, (nbytes,), np.uint8))
        return kept_alive[-1]._binding()

    def arrays(fields: tuple[Field, ...]) -> list[Binding]:
        return [make_binding(elements * field.storage_bytes) for field in fields]

    sources = arrays(kernel.spec.source.fields)
    destinations = sources if kernel.access.in_place else arrays(kernel.spec.destination.fields)
    words = 4 * kernel.item_words
    captured = context.uniform(kernel.spec.captured) if kernel.spec.captured_functions else None
    views = context.uniform(bytes(PARAMETERS.size * len(kernel.access.views))) if kernel.access.views else None
    buffers = Buffers(
        sources,
        destinations,
        seeds=make_binding(elements * words),
        carry_in=make_binding(words),
        carry_out=make_binding(words),
        heads=make_binding(elements * (kernel.spec.key.bits if kernel.spec.key else 8) // 8),
        captured=captured,
        views=views,
    )
    with context.pause_recording():
        run, steps = steps_of_plan(context, single, buffers)
        context.submit(steps, 0, deferrable=True)
        outcome = run.outcome(read_report(context, run.state))
    mismatched = outcome is Outcome.WRONG_SUBGROUP_SIZE
    context.run_log.note(plan, Outcome.WRONG_SUBGROUP_SIZE if mismatched else Outcome.DONE)
    return not mismatched
