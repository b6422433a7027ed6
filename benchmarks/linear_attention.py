"""Times of the gated delta rule, gated linear attention and their gradients, compared with PyTorch and Triton.

Run:  python benchmarks/linear_attention.py [--shape 4x8192x16] [--keys 128] [--values 128] [--torch-device cuda]

The shape is (batch, time, heads). The first line of each form is the GPU time with arrays on the device; the gradient
computes the states again. The second line has gpuscan's tensors on the CPU, so its time includes the transfers to the
GPU and back. The loop runs step by step in PyTorch. With --loop-steps N it runs only N steps, and its time is scaled up
to the whole length. With --compile, `torch.compile` compiles these steps. Triton's kernels come from
flash-linear-attention. They are timed if it is installed and the tensors are on a GPU that Triton knows.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import gpuscan as gs
import gpuscan.torch
from figures import FigureList, option_parser
from gpuscan.tools.bench.timing import GpuTimer
from selective_scan import seconds

WARM_SECONDS = 0.5
# Decays of heads, decays of keys, and the delta rule.
FORMS = ("heads", "keys", "delta")
# The functions of flash-linear-attention.
KERNELS = {
    "heads": ("simple_gla", "chunk_simple_gla"),
    "keys": ("gla", "chunk_gla"),
    "delta": ("gated_delta_rule", "chunk_gated_delta_rule"),
}


def loop(q: Any, k: Any, v: Any, g: Any, beta: Any = None) -> Any:
    """Return the outputs, one step after the other."""
    gates = (g if g.ndim == k.ndim else g[..., None]).exp()
    state = torch.zeros(*k.shape[:1], k.shape[2], k.shape[3], v.shape[3], device=k.device)
    outputs = []
    for t in range(k.shape[1]):
        state = state * gates[:, t, :, :, None]
        value = v[:, t]
        if beta is not None:
            value = beta[:, t, :, None] * (value - torch.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + k[:, t, :, :, None] * value[:, :, None]
        outputs.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    return torch.stack(outputs, 1) * k.shape[3] ** -0.5


def ours(*tensors: Any) -> Any:
    if len(tensors) == 5:
        return gpuscan.torch.gated_delta_rule(*tensors)
    return gpuscan.torch.gated_linear_attention(*tensors)


def triton_kernels(form: str) -> Callable[..., Any] | None:
    """Return flash-linear-attention's function; None if it is not installed."""
    if importlib.util.find_spec("fla") is None or importlib.util.find_spec("triton") is None:
        return None
    module, name = KERNELS[form]
    function = getattr(importlib.import_module(f"fla.ops.{module}"), name)
    return lambda *tensors: function(**dict(zip(("q", "k", "v", "g", "beta"), tensors, strict=False)))[0]


def gpu_times(device: gs.Device, tensors: list[Any]) -> tuple[float, float]:
    """Return the GPU time of the outputs and of the gradient, of arrays on the device."""
    arrays = [device.asarray(tensor.detach().numpy()) for tensor in tensors]
    ones = device.asarray(np.ones(tensors[2].shape, np.float32))
    timer = GpuTimer(device, WARM_SECONDS)
    if len(arrays) == 5:
        forward = timer.time_call(lambda: gs.gated_delta_rule(*arrays))
        return forward, timer.time_call(lambda: gs.gated_delta_rule_vjp(*arrays, ones))
    forward = timer.time_call(lambda: gs.gated_linear_attention(*arrays))
    return forward, timer.time_call(lambda: gs.gated_linear_attention_vjp(*arrays, ones))


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--shape", default="4x8192x16")
    parser.add_argument("--keys", type=int, default=128)
    parser.add_argument("--values", type=int, default=128)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--torch-device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--loop-steps", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    batch, length, heads = map(int, arguments.shape.split("x"))
    torch.manual_seed(0)
    gpu = gs.Device(arguments.device)
    figures = FigureList(gpu)

    def inputs(form: str, length: int, device: str) -> list[Any]:
        steps = batch, length, heads
        q, k = (torch.nn.functional.normalize(torch.randn(*steps, arguments.keys), dim=-1) for _ in range(2))
        v = torch.randn(*steps, arguments.values)
        g = -0.1 * torch.rand(*steps, arguments.keys) if form == "keys" else -0.1 * torch.rand(steps)
        tensors = [q, k, v, g, *([torch.rand(steps)] if form == "delta" else [])]
        return [tensor.to(device).requires_grad_() for tensor in tensors]

    def report(name: str, times: tuple[float, float], share: float = 1.0) -> None:
        for column, elapsed in zip(("outputs", "gradient"), times, strict=True):
            figures.add(name, column, elapsed * share)

    for form in arguments.forms:
        small = inputs(form, min(length, 64), "cpu")
        torch.testing.assert_close(ours(*small), loop(*small), rtol=1e-3, atol=1e-3)
        report(f"{form}, gpuscan, arrays on the GPU", gpu_times(gpu, inputs(form, length, "cpu")))
        report(f"{form}, gpuscan, tensors on the CPU", seconds(ours, inputs(form, length, "cpu"), arguments.repeats))
        steps, device = arguments.loop_steps or length, arguments.torch_device
        tensors = inputs(form, steps, device)
        report(f"{form}, a loop, torch on {device}", seconds(loop, tensors, arguments.repeats), length / steps)
        if arguments.compile:
            compiled = torch.compile(loop)
            times = seconds(compiled, tensors, arguments.repeats)
            report(f"{form}, compiled loop on {device}", times, length / steps)
        kernels = triton_kernels(form) if device.startswith("cuda") else None
        if kernels is not None:
            times = seconds(kernels, inputs(form, length, device), arguments.repeats)
            report(f"{form}, Triton (fla) on {device}", times)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
