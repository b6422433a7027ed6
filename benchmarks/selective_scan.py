"""Time of mamba's selective scan and its gradient, compared with mamba's reference in PyTorch on the same machine.

Run:  python benchmarks/selective_scan.py [--shape 8x2048x4096] [--states 16] [--torch-device cuda] [--json FILE]

The shape is (batch, channels, length). The first line is GPU time of arrays on the device; the gradient includes the
scan that gives it the states. Then tensors are on the CPU for gpuscan, so its time includes their way to the GPU and
back. The reference, `selective_scan_ref` of mamba's repository written again, makes one step after the other and
keeps all states. With --reference-steps N it makes N steps only, and its time is multiplied.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import gpuscan as gs
import gpuscan.torch
from figures import FigureList, option_parser
from gpuscan.engine.selective_scan import gradient_sources, selective_gradients, selective_scan
from gpuscan.tools.bench.timing import GpuTimer

WARM_SECONDS = 0.5


def selective_scan_ref(u: Any, delta: Any, decays: Any, inward: Any, outward: Any) -> Any:
    """Return the outputs, one step after the other."""
    delta = torch.nn.functional.softplus(delta)
    gates = torch.exp(torch.einsum("bdl,dn->bdln", delta, decays))
    inputs = torch.einsum("bdl,bnl,bdl->bdln", delta, inward, u)
    h = torch.zeros_like(gates[:, :, 0])
    outputs = []
    for t in range(u.shape[2]):
        h = gates[:, :, t] * h + inputs[:, :, t]
        outputs.append(torch.einsum("bdn,bn->bd", h, outward[:, :, t]))
    return torch.stack(outputs, 2)


def ours(*tensors: Any) -> Any:
    return gpuscan.torch.selective_scan(*tensors, delta_softplus=True)


def seconds(function: Callable[..., Any], tensors: list[Any], repeats: int) -> tuple[float, float]:
    """Return the least time of a forward and of a backward pass."""

    def now() -> float:
        if tensors[0].is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    times = []
    for _ in range(repeats + 1):
        start = now()
        y = function(*tensors)
        middle = now()
        torch.autograd.grad(y.sum(), tensors)
        times.append((middle - start, now() - middle))
    forward, backward = zip(*times[1:], strict=True)
    return min(forward), min(backward)


def gpu_times(device: gs.Device, batch: int, channels: int, length: int, states: int) -> tuple[float, float]:
    """Return the GPU time of the scan and of its gradient."""
    rng = np.random.default_rng(0)

    def some(*shape: int) -> Any:
        return rng.random(shape, dtype=np.float32)

    shape, of_time = (batch, 1, channels, 1, length), (batch, 1, 1, states, length)
    arrays = [some(*shape), some(*shape), -some(1, 1, channels, states, 1), some(*of_time), some(*of_time)]
    on_device = [device.asarray(array) for array in arrays]
    timer = GpuTimer(device, WARM_SECONDS)
    forward = timer.time_call(lambda: selective_scan(*on_device))
    sources = gradient_sources(device._context, *arrays, some(*shape), some(batch, 1, channels, states, 1))

    def gradient() -> None:
        for strips in selective_gradients(sources)[2:]:
            gs.reduce(gs.Array._of(device, strips), axis=0)

    return forward, timer.time_call(gradient)


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--shape", default="8x2048x4096")
    parser.add_argument("--states", type=int, default=16)
    parser.add_argument("--torch-device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--reference-steps", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    batch, channels, length = map(int, arguments.shape.split("x"))
    torch.manual_seed(0)

    def inputs(length: int, device: str) -> list[Any]:
        shapes = (batch, channels, length), (batch, channels, length), (batch, arguments.states, length)
        u, delta, inward = (torch.randn(shape) for shape in shapes)
        decays, outward = -torch.rand(channels, arguments.states), torch.randn(shapes[2])
        return [tensor.to(device).requires_grad_() for tensor in (u, delta, decays, inward, outward)]

    small = inputs(min(length, 64), "cpu")
    torch.testing.assert_close(ours(*small), selective_scan_ref(*small), rtol=1e-3, atol=1e-3)
    gpu = gs.Device(arguments.device)
    figures = FigureList(gpu)

    def keep(case: str, forward: float, backward: float) -> None:
        figures.add(case, "scan", forward)
        figures.add(case, "gradient", backward)

    keep("arrays on the GPU", *gpu_times(gpu, batch, channels, length, arguments.states))
    keep("PyTorch's tensors on the CPU", *seconds(ours, inputs(length, "cpu"), arguments.repeats))
    steps = arguments.reference_steps or length
    device = arguments.torch_device
    times = seconds(selective_scan_ref, inputs(steps, device), arguments.repeats)
    keep(f"mamba's reference, PyTorch on {device}", *(elapsed * length / steps for elapsed in times))
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
