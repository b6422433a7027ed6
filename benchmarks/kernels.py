"""GPU time of every strategy beside a copy of the same bytes, device-resident, median of timestamps.

Run:  python benchmarks/kernels.py [--dtype uint32] [--sizes 16,20,22,25,28] [--tile 256,32,12,4 …] [--device SUBSTRING]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import wgpu

import gpuscan as gs
from gpuscan.execution import Binding, record
from gpuscan.kernels import TileShape
from gpuscan.planning import ScanPlan, plan_scan
from gpuscan.problem import pose
from gpuscan.runner import work_of

COPY = """
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> destination: array<vec4<u32>>;
const STEPS = 8u;
@compute @workgroup_size(256)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let first = (workgroup.x + workgroup.y * grid.x) * 256u * STEPS + (invocation / 32u) * 32u * STEPS + invocation % 32u;
    let a = source[first]; let b = source[first + 32u]; let c = source[first + 64u]; let d = source[first + 96u];
    let e = source[first + 128u]; let f = source[first + 160u]; let g = source[first + 192u]; let h = source[first + 224u];
    let end = arrayLength(&source);
    if (first + 224u < end) {
        destination[first] = a; destination[first + 32u] = b; destination[first + 64u] = c;
        destination[first + 96u] = d; destination[first + 128u] = e; destination[first + 160u] = f;
        destination[first + 192u] = g; destination[first + 224u] = h;
    }
}
"""
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


@dataclass(frozen=True)
class Timer:
    """Times what is recorded between two timestamps."""

    device: gs.Device

    def microseconds(
        self, recording: Callable[[wgpu.GPUCommandEncoder, dict[str, object]], object], repeats: int = 20
    ) -> float:
        """The median GPU time over `repeats` runs, after 0.3 s of warming up."""
        device = self.device.wgpu_device
        queries = device.create_query_set(type="timestamp", count=2 * repeats)
        results = device.create_buffer(
            size=16 * repeats, usage=wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        )
        end = time.perf_counter() + 0.3
        while True:
            encoder = device.create_command_encoder()
            for i in range(repeats):
                writes = {
                    "query_set": queries,
                    "beginning_of_pass_write_index": 2 * i,
                    "end_of_pass_write_index": 2 * i + 1,
                }
                recording(encoder, writes)
            encoder.resolve_query_set(queries, 0, 2 * repeats, results, 0)
            device.queue.submit([encoder.finish()])
            ticks = np.frombuffer(device.queue.read_buffer(results), np.uint64).reshape(-1, 2)
            if time.perf_counter() > end:
                break
        return statistics.median(float(b - a) / 1000 for a, b in ticks)


def copy_recording(device: wgpu.GPUDevice, source: wgpu.GPUBuffer, destination: wgpu.GPUBuffer, nbytes: int):
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": device.create_shader_module(code=COPY), "entry_point": "main"}
    )
    group = device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[
            {"binding": i, "resource": {"buffer": b, "size": nbytes}} for i, b in enumerate((source, destination))
        ],
    )
    workgroups = -(-nbytes // (256 * 16 * 8))
    rows = -(-workgroups // 65535)

    def recording(encoder: wgpu.GPUCommandEncoder, writes: dict[str, object]) -> None:
        compute = encoder.begin_compute_pass(timestamp_writes=writes)
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(-(-workgroups // rows), rows)
        compute.end()

    return recording


def plan_recording(device: gs.Device, plan: ScanPlan, source: wgpu.GPUBuffer, destination: wgpu.GPUBuffer, nbytes: int):
    def recording(encoder: wgpu.GPUCommandEncoder, writes: dict[str, object]) -> None:
        record(
            device, plan, encoder, [Binding(source, 0, nbytes)], [Binding(destination, 0, nbytes)], timestamps=writes
        )

    return recording


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="uint32")
    parser.add_argument("--op", default="add")
    parser.add_argument("--sizes", default="16,20,22,25,28")
    parser.add_argument("--tile", action="append", default=[])
    parser.add_argument("--strategies", default="lookback,fallback,three_dispatch")
    parser.add_argument("--device")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    print(device, device.capabilities.driver)
    timer = Timer(device)
    tiles = [TileShape(*map(int, text.split(","))) for text in arguments.tile] or [None]
    strategies = arguments.strategies.split(",")
    rng = np.random.default_rng(0)
    dtype = np.dtype(arguments.dtype)
    for exponent in map(int, arguments.sizes.split(",")):
        length = 1 << exponent
        nbytes = length * dtype.itemsize
        values = rng.integers(0, 100, min(length, 1 << 24)).astype(dtype)
        values = np.tile(values, length // len(values))
        source = device.wgpu_device.create_buffer(size=nbytes, usage=STORAGE)
        destination = device.wgpu_device.create_buffer(size=nbytes, usage=STORAGE)
        for start in range(0, nbytes, 1 << 26):
            device.wgpu_device.queue.write_buffer(source, start, values.view(np.uint8)[start : start + (1 << 26)])
            device.wgpu_device.queue.submit([])
        problem = pose(
            values,
            arguments.op,
            axis=0,
            exclusive=False,
            reverse=False,
            initial=None,
            dtype=None,
            before=None,
            after=None,
        )
        work = work_of(device, problem)
        copy = timer.microseconds(copy_recording(device.wgpu_device, source, destination, nbytes))
        print(f"2^{exponent} {dtype} copy {copy:.1f} us {2 * nbytes / copy / 1e3:.0f} GB/s", flush=True)
        expected = np.cumsum(values, dtype=dtype) if arguments.op == "add" and dtype.kind in "ui" else None
        for strategy in strategies:
            for tile in tiles:
                plan = plan_scan(work, device.capabilities, strategy, "benchmark", tile=tile)
                taken = timer.microseconds(plan_recording(device, plan, source, destination, nbytes))
                right = "unchecked"
                if expected is not None:
                    got = np.frombuffer(
                        device.wgpu_device.queue.read_buffer(
                            destination, nbytes - (1 << 18) if nbytes > 1 << 18 else 0
                        ),
                        dtype,
                    )
                    right = "right" if np.array_equal(got, expected[-len(got) :]) else "WRONG"
                shape = plan.tile
                print(
                    f"    {strategy:15} {shape.workgroup_size}x{shape.steps}x{shape.chunk}/{shape.subgroup_size}"
                    f" {taken:9.1f} us {2 * nbytes / taken / 1e3:6.0f} GB/s  {copy / taken:.3f} of the copy  {right}",
                    flush=True,
                )
        source.destroy()
        destination.destroy()


if __name__ == "__main__":
    main()
