"""The kernel that copies a buffer. Its speed is the ceiling for every scan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscan import Device
from gpuscan.planning.plan import grid_of
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu

# Invocations of a workgroup, or the most that the adapter allows.
WORKGROUP_SIZE = 256

# Neighbouring vectors that are copied together: one a lane.
LANES = 32

# Vectors that one invocation copies.
STEPS = 8

# Bytes of a vector of four words.
VECTOR_BYTES = 16


def copy_recording(device: Device, source: wgpu.GPUBuffer, destination: wgpu.GPUBuffer, vectors: int) -> Any:
    """Return a function that records the copy of a number of vectors into an encoder: a dispatch for each binding."""
    limits = device.capabilities.limits
    workgroup = min(WORKGROUP_SIZE, limits["max-compute-invocations-per-workgroup"])
    code = render("arrays/copy.wgsl", workgroup_size=workgroup, lanes=LANES, steps=STEPS)
    gpu = device.wgpu_device
    pipeline = gpu.create_compute_pipeline(
        layout="auto", compute={"module": gpu.create_shader_module(code=code), "entry_point": "main"}
    )
    alignment = limits["min-storage-buffer-offset-alignment"]
    most = limits["max-storage-buffer-binding-size"] // alignment * alignment

    def part(start: int) -> tuple[wgpu.GPUBindGroup, tuple[int, int, int]]:
        size = min(most, vectors * VECTOR_BYTES - start)
        group = gpu.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": i, "resource": {"buffer": buffer, "offset": start, "size": size}}
                for i, buffer in enumerate((source, destination))
            ],
        )
        workgroups = -(-size // (VECTOR_BYTES * workgroup * STEPS))
        return group, grid_of(workgroups, limits["max-compute-workgroups-per-dimension"])

    parts = [part(start) for start in range(0, vectors * VECTOR_BYTES, most)]

    def recording(encoder: wgpu.GPUCommandEncoder, writes: dict[str, Any] | None) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=writes)
        compute.set_pipeline(pipeline)
        for group, grid in parts:
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*grid)
        compute.end()

    return recording
