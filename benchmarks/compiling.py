"""The time that shaders take to compile, from WGSL to pipeline: a line for each operator and element.

Run:  python benchmarks/compiling.py [--strategies lookahead,lookback] [--log 24] [--device SUBSTRING] [--json FILE]

The driver's cache on disk is switched off where that is possible (NVIDIA, Mesa). Work that a driver defers to the first
dispatch is not counted, and llvmpipe defers nearly all. Strategies that the probe found unsafe are compiled too.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

os.environ |= {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}

import gpuscan as gs
from elements import add_fields, affine
from figures import FigureList, option_parser
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.engine.preparation import check_elements
from gpuscan.problem.compensated_sum import add_pairs
from gpuscan.problem.problem import make_problem
from recorded import plan_of_problem


def cases(n: int) -> list[tuple[str, Any, Any, int]]:
    """Return the name, the array of about `n` zeros, the operator and the axis of each case."""

    def zeros(*shape: int, dtype: Any = np.float32) -> Any:
        return np.broadcast_to(np.zeros((), dtype), shape)

    single = [(np.uint32, "add"), (np.float32, "add"), (np.float32, "maximum"), (np.float32, "logaddexp")]
    single += [(np.uint8, "add"), (np.int8, "add"), (np.int8, "maximum"), (np.bool_, "logical_xor")]
    single += [(np.float16, "add"), (np.int64, "add"), (np.uint64, "multiply"), (np.float64, "multiply")]
    single += [(np.complex64, "multiply")]
    cases_to_compile = [(f"{np.dtype(dtype)} {op}", zeros(n, dtype=dtype), op, 0) for dtype, op in single]
    cases_to_compile += [(f"{k} float32 add", (zeros(n // k),) * k, add_fields, 0) for k in (2, 4)]
    cases_to_compile += [
        ("linear recurrence", (zeros(n // 2),) * 2, affine, 0),
        ("compensated", (zeros(n),) * 2, add_pairs, 0),
    ]
    cases_to_compile += [(f"{k}x{k} float32 matmul", zeros(n // k**2, k, k), "matmul", 0) for k in (2, 3, 4, 8)]
    rows = [(np.uint8, "add"), (np.float32, "add"), (np.float32, "logaddexp")]
    cases_to_compile += [
        (f"rows of 100 {np.dtype(dtype)} {op}", zeros(n // 100, 100, dtype=dtype), op, 1) for dtype, op in rows
    ]
    return cases_to_compile


def seconds(device: gs.Device, text: str) -> float:
    gpu = device.wgpu_device
    begin = time.perf_counter()
    module = gpu.create_shader_module(code=text)
    gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    return time.perf_counter() - begin


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--strategies", default="lookahead,lookback,fallback,three_dispatch")
    parser.add_argument("--log", type=int, default=24, help="words in an array, a power of two")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device, unsafe=True)
    figures = FigureList(device)
    strategies = arguments.strategies.split(",")
    for name, array, op, axis in cases(1 << arguments.log):
        try:
            problem = make_problem(array, op, axis=axis)
            check_elements(device._context, problem)
        except gs.GpuscanError as error:  # no 64-bit floats
            print(f"{name:28} {error}")
            continue
        for strategy in strategies:
            plan = plan_of_problem(device, problem, strategy)
            total = sum(seconds(device, render_kernel(stage.kernel)) for stage in plan.stages)
            figures.add(name, strategy, total)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
