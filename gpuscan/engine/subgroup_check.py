"""Whether a shader's subgroups have the size that it was built for.

A compiler may give each shader a size of its own (Intel's picks 8, 16 or 32), which shows only where the shader runs.
It is a property of the compiled kernel: once a report has shown it as planned, it stays so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.submission import submit
from gpuscan.device.transfer import padded
from gpuscan.engine.attempts import note_size, unfit
from gpuscan.engine.record import read_report, record

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.elements import Field
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.plan import ScanPlan

# Whose shaders all get the one size that there is: 32 lanes. A software adapter's lanes are its CPU's.
ONE_SIZE = frozenset({"NVIDIA", "Apple"})


def sizes_vary(capabilities: Capabilities) -> bool:
    """Whether a shader may get another subgroup size than the probe's did."""
    return capabilities.adapter_type != "CPU" and capabilities.vendor not in ONE_SIZE


def unproven(device: Device, plan: ScanPlan) -> bool:
    """Whether no run has shown yet that the plan's subgroups have its size."""
    return any(stage.kernel.subgroups and stage.kernel not in device.proven for stage in plan.stages)


def proves(device: Device, plan: ScanPlan) -> bool:
    """Whether subgroups have the plan's size; where no run has shown it yet, one of a single tile does."""
    if unfit(device, plan):
        return False
    if not unproven(device, plan):
        return True
    kernel, elements = plan.stages[-1].kernel, plan.tile.tile_size
    workgroups = 1 + plan.workgroups_without_tile
    stages = tuple(replace(stage, grid=(min(workgroups, stage.grid[0]), 1, 1)) for stage in plan.stages)
    single = replace(plan, length=min(plan.length, elements), tiles=1, stages=stages)
    held = []

    def room(nbytes: int) -> Binding:
        held.append(device.allocate(padded(nbytes, ALIGNMENT)))
        return Binding(held[-1].buffer, 0, padded(nbytes, ALIGNMENT))

    def arrays(fields: tuple[Field, ...]) -> list[Binding]:
        return [room(elements * field.storage_bytes) for field in fields]

    sources = arrays(kernel.spec.source.fields)
    destinations = sources if kernel.access.in_place else arrays(kernel.spec.destination.fields)
    words = 4 * kernel.item_words
    rest = room(elements * words), room(words), room(words)  # seeds, and carries in and out
    encoder = device.wgpu_device.create_command_encoder()
    run = record(device, single, encoder, sources, destinations, *rest, beside={"heads": room(elements)})
    submit(device.wgpu_device, encoder.finish())
    differed = run.width_differed(read_report(device, run.state))
    note_size(device, plan, differed=differed)
    return not differed
