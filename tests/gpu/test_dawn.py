"""The second WebGPU implementation: every shader passes its compiler (Tint), and scans on it are right.

Tint holds shaders to WGSL more strictly than naga does: barriers and subgroup operations in uniform control flow,
parentheses between unlike operators, constants that overflow. A shader that it refuses does not run in Chrome.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpuscan.backends import BACKEND_VARIABLE, error_type, has_immediates, webgpu
from gpuscan.capabilities import Capabilities
from gpuscan.device import Device
from gpuscan.errors import AdapterNotFoundError, OperatorError
from gpuscan.kernels import Kernel, TileShape
from gpuscan.operators import combine_code, resolve, wgsl_operator
from gpuscan.planning import Work, plan_scan
from gpuscan.problem import Problem
from gpuscan.runner import run
from gpuscan.strategies import IMPLEMENTED
from gpuscan.templates import render_kernel
from tests.oracle import AFFINE, LATER, MATRICES, NO_IDENTITY, assert_same, one_by_one, posed, small_tiles, words
from tests.oracle import Array as Leaf

SHAPES = [
    TileShape(64, 0, 1, 4),  # no subgroups
    TileShape(64, 4, 2, 4),  # more subgroups than lanes in one
    TileShape(64, 8, 1, 8),  # a block of tiles is wider than a subgroup
    TileShape(256, 32, 12, 4),
    TileShape(128, 64, 2, 4),
    TileShape(32, 32, 4, 4),  # one subgroup
]
FORMS: list[dict[str, Any]] = [
    {},
    {"exclusive": True},
    {"reverse": True},
    {"rows": 3},
    {"rows": 3, "exclusive": True, "initial": True, "reverse": True},
    {"initial": True, "carried": True},
]


@pytest.fixture(scope="module")
def dawn() -> Device:
    """Dawn on the best adapter that it finds here, SwiftShader where there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(BACKEND_VARIABLE, "dawn")
        patch.setenv("XDG_RUNTIME_DIR", "/")  # keeps a Wayland loader from complaining
        adapters = webgpu().gpu.enumerate_adapters_sync()
    assert adapters, "Dawn finds no adapter here"
    return Device(adapters[0])


def elements() -> Iterator[tuple[Any, Any]]:
    """An input of a few elements, and an operator for it."""
    for name in ("bool", "int8", "uint16", "int32", "uint32", "float16", "float32", "int64", "uint64"):
        yield np.ones(8, name), "maximum" if name != "bool" else "logical_xor"
    for name in ("multiply", "bitwise_xor", "minimum"):
        yield np.ones(8, np.int64), name
    yield np.ones(8, np.float32), "logaddexp"
    yield np.ones(8, np.complex64), "multiply"
    yield np.ones((8, 3, 3), np.float32), "matmul"
    yield (np.ones(8, np.float32), np.ones(8, np.float32)), AFFINE
    yield (np.ones(8, np.uint16), np.ones(8, np.int64)), LATER
    yield tuple(np.ones((4, 8), np.uint32)), MATRICES


def kernels(dawn: Device, problem: Problem, shape: TileShape, form: dict[str, Any]) -> Iterator[Kernel]:
    """The shaders of a problem under every strategy, for GPUs and for CPUs, with immediates and with a uniform buffer."""
    work = Work(
        source=problem.source,
        element=problem.element,
        destination=problem.element,
        operator_name=problem.operator.name,
        combine=combine_code(problem.operator, problem.element, native_int64=False),
        **({"rows": 1, "row_length": 5000} | form),
    )
    for strategy in IMPLEMENTED:
        if strategy == "lookahead" and not shape.subgroup_size:
            continue
        for kind, immediates in (("CPU", True), ("DiscreteGPU", False)):
            capabilities: Capabilities = replace(dawn.capabilities, adapter_type=kind, immediates=immediates)
            plan = plan_scan(work, capabilities, strategy, "", tile=shape)
            yield from (stage.kernel for stage in plan.stages)


def compile_shader(device: Device, kernel: Kernel) -> None:
    """Tint's verdict on a shader; a pipeline is only made where the adapter has subgroups of the shader's size."""
    text = render_kernel(kernel)
    try:
        device.wgpu_device.create_shader_module(code=text)
    except error_type(device.wgpu_device) as error:
        pytest.fail(f"{kernel.stage}, {kernel.strategy}, {kernel.tile}: {str(error)[:2000]}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form) or "plain")
def test_tint_takes_every_form_of_every_stage(dawn: Device, shape: TileShape, form: dict[str, Any]) -> None:
    for x, op in ((np.ones(8, np.uint32), "add"), ((np.ones(8, np.uint32), np.ones(8, np.uint8)), LATER)):
        if form.get("exclusive") and op is LATER:
            form = form | {"initial": True}
        for kernel in kernels(dawn, posed(x, op), shape, form):
            compile_shader(dawn, kernel)


@pytest.mark.parametrize(("x", "op"), [pytest.param(x, op) for x, op in elements()])
def test_tint_takes_every_element(dawn: Device, x: Any, op: Any) -> None:
    for kernel in kernels(dawn, posed(x, op, axis=0), TileShape(64, 4, 2, 4), {"rows": 3, "initial": True}):
        compile_shader(dawn, kernel)
