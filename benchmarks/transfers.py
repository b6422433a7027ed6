"""Time from NumPy to NumPy, and the cost of a call: gpuscan and the other libraries that are installed, in one process.

Run:  python benchmarks/transfers.py [--mib 512] [--device SUBSTRING] [--json FILE]

It measures:

- a float32 sum of a large array into ``out=``: the bus decides;
- a warm scan of 1,024 elements, and the same work in bare wgpu-py: write, dispatch, copy, map, read;
- a call of a plan on an array of the device, and bare wgpu-py that records and submits the same dispatches.
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import wgpu

import gpuscan as gs
from figures import FigureList, option_parser

# Elements of the small array.
SMALL = 1024

# The number of timed calls, for large and for small arrays.
ROUNDS = 7
SMALL_ROUNDS = 300

# Calls of a plan between two waits.
BATCH = 200

SHADER = """
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> destination: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    destination[id.x] = source[id.x];
}
"""


def median_seconds(call: Callable[[], Any], rounds: int) -> float:
    """Return the median time of a call, after two calls to warm up."""
    call(), call()
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


# ----- Large arrays


def peers(x: np.ndarray[Any, Any], out: np.ndarray[Any, Any]) -> dict[str, Callable[[], Any]]:
    """Return the same job for each library that is installed and finds a GPU."""
    calls: dict[str, Callable[[], Any]] = {"np.cumsum": lambda: np.cumsum(x, dtype=np.float32, out=out)}
    try:
        cupy = importlib.import_module("cupy")
        cupy.cuda.runtime.getDeviceCount()
        calls["CuPy"] = lambda: cupy.cumsum(cupy.asarray(x)).get(out=out)
    except Exception:  # not installed, or no GPU for it
        pass
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            target = torch.from_numpy(out)
            calls["torch"] = lambda: target.copy_(torch.from_numpy(x).cuda().cumsum(0))
    except ImportError:
        pass
    return calls


def large(device: gs.Device, mib: int) -> dict[str, float]:
    """Return the seconds of a sum, by library."""
    x = np.random.default_rng(0).integers(0, 2, mib << 18).astype(np.float32)  # sums are exact up to 2^24
    out = np.empty_like(x)
    times = {}
    for name, call in {"gpuscan": lambda: gs.scan(x, out=out, device=device), **peers(x, out)}.items():
        out[:] = 0  # touched
        times[name] = median_seconds(call, ROUNDS)
        if name == "gpuscan":
            check = 1 << 20
            assert np.array_equal(out[:check], np.cumsum(x[:check], dtype=np.float32))
    return times


# ----- Small arrays and plans


def bare_dispatch(device: gs.Device) -> tuple[Any, Any, Any, Any]:
    """Return a pipeline, its bind group, and its two buffers of `SMALL` words."""
    gpu, usage = device.wgpu_device, wgpu.BufferUsage
    source = gpu.create_buffer(size=4 * SMALL, usage=usage.STORAGE | usage.COPY_DST)
    destination = gpu.create_buffer(size=4 * SMALL, usage=usage.STORAGE | usage.COPY_SRC)
    module = gpu.create_shader_module(code=SHADER)
    pipeline = gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    group = gpu.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[
            {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
            for i, b in enumerate((source, destination))
        ],
    )
    return pipeline, group, source, destination


def small(device: gs.Device) -> tuple[float, float]:
    """Seconds of a warm scan of `SMALL` elements, and of the bare work."""
    gpu, usage = device.wgpu_device, wgpu.BufferUsage
    x = np.arange(SMALL, dtype=np.float32)
    pipeline, group, source, destination = bare_dispatch(device)
    staging = gpu.create_buffer(size=4 * SMALL, usage=usage.MAP_READ | usage.COPY_DST)

    def bare() -> np.ndarray[Any, Any]:
        gpu.queue.write_buffer(source, 0, x)
        encoder = gpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, group)
        compute.dispatch_workgroups(SMALL // 64)
        compute.end()
        encoder.copy_buffer_to_buffer(destination, 0, staging, 0, 4 * SMALL)
        gpu.queue.submit([encoder.finish()])
        staging.map_sync(wgpu.MapMode.READ)
        result = np.frombuffer(staging.read_mapped(copy=False), np.float32).copy()
        staging.unmap()
        return result

    assert np.array_equal(bare(), x)
    rounds = [
        (median_seconds(lambda: gs.scan(x, device=device), SMALL_ROUNDS), median_seconds(bare, SMALL_ROUNDS))
        for _ in range(3)
    ]
    return min(ours for ours, _ in rounds), min(theirs for _, theirs in rounds)


def plan_call(device: gs.Device) -> tuple[float, float]:
    """Seconds of a plan's call on an array of the device, and of recording and submitting as many bare dispatches."""
    gpu = device.wgpu_device
    plan = device.plan(SMALL, np.float32)
    array = device.asarray(np.ones(SMALL, np.float32))
    pipeline, group, _, _ = bare_dispatch(device)
    stages = len(plan.wgsl)

    def bare() -> None:
        encoder = gpu.create_command_encoder()
        compute = encoder.begin_compute_pass()
        for _ in range(stages):
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(1)
        compute.end()
        gpu.queue.submit([encoder.finish()])

    def batch_of(call: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            for _ in range(BATCH):
                call()
            seconds.append((time.perf_counter() - begin) / BATCH)
            device.synchronize()
        return min(seconds)

    return batch_of(lambda: plan(array)), batch_of(bare)


def main() -> None:
    """Measure and print."""
    parser = option_parser(__doc__)
    parser.add_argument("--mib", type=int, default=512, help="size of the large array (512)")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    figures = FigureList(device)
    for name, seconds in large(device, arguments.mib).items():
        figures.add(f"{arguments.mib} MiB of float32, NumPy to NumPy", name, seconds)
    for case, times in ((f"{SMALL} elements, NumPy to NumPy", small(device)), ("a call of a plan", plan_call(device))):
        for column, seconds in zip(("gpuscan", "bare wgpu-py"), times, strict=True):
            figures.add(case, column, seconds)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
