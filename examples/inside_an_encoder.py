"""A wgpu program of its own runs a shader, a gpuscan plan, and another shader, in one command encoder.

It sorts points into the cells of a grid, as a particle simulation does in every step: count the points of each cell,
scan the counts for where each cell begins, scatter the points. Nothing is read back in between, and nothing is
submitted before the end.

Run it: python examples/inside_an_encoder.py
"""

from __future__ import annotations

import numpy as np
import wgpu

import gpuscan as gs

POINTS, CELLS = 100_000, 4096

SHADERS = """
@group(0) @binding(0) var<storage, read_write> cells: array<u32>;  // of each point
@group(0) @binding(1) var<storage, read_write> counters: array<atomic<u32>>;  // of each cell: its points
@group(0) @binding(2) var<storage, read_write> begins: array<u32>;  // of each cell
@group(0) @binding(3) var<storage, read_write> sorted: array<u32>;  // points, cell by cell

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
    """Sort, and check that every cell's points stand together."""
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

    def run(name: str) -> None:
        with_group = encoder.begin_compute_pass()
        with_group.set_pipeline(pipelines[name])
        with_group.set_bind_group(0, group)
        with_group.dispatch_workgroups(-(-POINTS // 64))
        with_group.end()

    run("count")
    plan.record(encoder, counters, begins)
    run("scatter")
    gpu.queue.submit([encoder.finish()])

    order = np.frombuffer(gpu.queue.read_buffer(result), np.uint32)
    assert np.array_equal(np.sort(order), np.arange(POINTS)), "every point stands somewhere, once"
    assert np.array_equal(cells[order], np.sort(cells)), "the points of a cell stand together"
    print(f"{POINTS} points sorted into {CELLS} cells by one submission on {device.capabilities.summary}")


if __name__ == "__main__":
    main()
