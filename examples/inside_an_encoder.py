"""Record a gpuscan plan between two shaders of your own, in one command encoder.

The program sorts points into the cells of a grid, as a particle simulation does in every step. It counts the points of
each cell, scans the counts to learn where each cell begins, and scatters the points. Nothing is read back in between,
and everything is submitted at once.

Run it: python examples/inside_an_encoder.py
"""

from __future__ import annotations

import numpy as np
import wgpu

import gpuscan as gs

POINTS, CELLS = 100_000, 4096

SHADERS = """
@group(0) @binding(0) var<storage, read_write> cells: array<u32>;  // the cell of each point
@group(0) @binding(1) var<storage, read_write> counters: array<atomic<u32>>;  // the number of points in each cell
@group(0) @binding(2) var<storage, read_write> begins: array<u32>;  // the place of each cell's first point in `sorted`
@group(0) @binding(3) var<storage, read_write> sorted: array<u32>;  // the numbers of the points, cell by cell

@compute @workgroup_size(64)
fn count(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&cells)) {
        atomicAdd(&counters[cells[id.x]], 1u);
    }
}

@compute @workgroup_size(64)
fn scatter(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&cells)) {
        let cell = cells[id.x];
        sorted[begins[cell] + atomicSub(&counters[cell], 1u) - 1u] = id.x;
    }
}
"""


def main() -> None:
    """Sort the points, and check that every cell's points stand together."""
    device = gs.default_device()
    gpu: wgpu.GPUDevice = device.wgpu_device
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    cells = np.random.default_rng(0).integers(0, CELLS, POINTS, dtype=np.uint32)
    buffers = [
        gpu.create_buffer_with_data(data=cells, usage=usage),
        *(gpu.create_buffer(size=4 * count, usage=usage) for count in (CELLS, CELLS, POINTS)),
    ]
    _, counters, begins, result = buffers

    module = gpu.create_shader_module(code=SHADERS)
    compute = wgpu.ShaderStage.COMPUTE
    entries = [{"binding": i, "visibility": compute, "buffer": {"type": "storage"}} for i in range(4)]
    layout = gpu.create_bind_group_layout(entries=entries)
    group = gpu.create_bind_group(
        layout=layout, entries=[{"binding": i, "resource": {"buffer": b}} for i, b in enumerate(buffers)]
    )
    pipelines = {
        name: gpu.create_compute_pipeline(
            layout=gpu.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={"module": module, "entry_point": name},
        )
        for name in ("count", "scatter")
    }
    plan = device.plan(CELLS, np.uint32, exclusive=True)

    encoder = gpu.create_command_encoder()

    def record(name: str) -> None:
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(pipelines[name])
        compute_pass.set_bind_group(0, group)
        compute_pass.dispatch_workgroups(-(-POINTS // 64))
        compute_pass.end()

    record("count")
    plan.record(encoder, counters, begins)
    record("scatter")
    gpu.queue.submit([encoder.finish()])

    order = np.frombuffer(gpu.queue.read_buffer(result), np.uint32)
    assert np.array_equal(np.sort(order), np.arange(POINTS)), "every point is in the result once"
    assert np.array_equal(cells[order], np.sort(cells)), "the points of a cell stand together"
    print(f"{POINTS} points sorted into {CELLS} cells by one submission on {device.capabilities.summary}")


if __name__ == "__main__":
    main()
