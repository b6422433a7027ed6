"""The second WebGPU implementation: every shader passes its compiler (Tint), and scans on it are right.

Tint holds shaders to WGSL more strictly than naga does: barriers and subgroup operations in uniform control flow,
parentheses between unlike operators, constants that overflow. A shader that it refuses does not run in Chrome.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.api.scan import scan
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device.backends import BACKEND_VARIABLE, _load, error_type, webgpu
from gpuscan.engine.host_arrays import run
from gpuscan.errors import AdapterNotFoundError, OperatorError
from gpuscan.operators.operator import combine_code, wgsl_operator
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from gpuscan.templates import render
from gpuscan.tools.matrix.conformance import check, suite
from tests.gpu.test_threads import at_once, work, work_on_device
from tests.oracle import AFFINE, LATER, MATRICES, assert_same, posed

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
    {"rows": 10, "row_length": 500, "inner": 5, "exclusive": True, "initial": True},
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
    """The shaders of a problem by every strategy, as for GPUs and for CPUs."""
    work = ScanSpec(
        source=problem.source,
        element=problem.element,
        destination=problem.element,
        operator_name=problem.operator.name,
        combine=combine_code(problem.operator, problem.element, native_int64=False),
        **({"rows": 1, "row_length": 5000} | form),
    )
    for strategy in STRATEGIES:
        for kind in ("CPU", "DiscreteGPU"):
            capabilities = replace(dawn.capabilities, adapter_type=kind)
            plan = plan_scan(work, capabilities, strategy, "", tile=shape)
            yield from (stage.kernel for stage in plan.stages)


def compile_shader(device: Device, kernel: Kernel) -> None:
    """Fails where Tint refuses the shader."""
    try:
        device.wgpu_device.create_shader_module(code=render_kernel(kernel))
    except error_type(device.wgpu_device) as error:
        pytest.fail(f"{kernel.stage}, {kernel.strategy}, {kernel.tile}: {str(error)[:2000]}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form) or "plain")
def test_tint_takes_every_form_of_every_stage(dawn: Device, shape: TileShape, form: dict[str, Any]) -> None:
    for x, op in ((np.ones(8, np.uint32), "add"), ((np.ones(8, np.uint32), np.ones(8, np.uint8)), LATER)):
        for kernel in kernels(dawn, posed(x, op), shape, form):
            compile_shader(dawn, kernel)


@pytest.mark.parametrize(("x", "op"), [pytest.param(x, op) for x, op in elements()])
@pytest.mark.parametrize("form", [{"rows": 3, "initial": True}, {"reverse": True}], ids=lambda form: "-".join(form))
def test_tint_takes_every_element(dawn: Device, x: Any, op: Any, form: dict[str, Any]) -> None:
    for kernel in kernels(dawn, posed(x, op, axis=0), TileShape(64, 4, 2, 4), form):
        compile_shader(dawn, kernel)


@pytest.mark.parametrize("stage", ["chain", "halves", "later", "order", "spin", "subgroups"])
def test_tint_takes_the_probe(dawn: Device, stage: str) -> None:
    assert dawn.capabilities.spins_per_second > 0  # the device was opened through it
    values = {"workgroups": 64, "workgroup_size": 64, "extra_polls": 2, "rounds": 2, "polls": 2}
    text = render(f"probe/{stage}.wgsl", enable_subgroups=stage == "subgroups", **values)
    dawn.wgpu_device.create_shader_module(code=text)


def test_tint_refuses_a_barrier_that_not_all_reach(dawn: Device) -> None:
    """The compiler of these tests is as strict as they need it to be."""
    text = """
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            if (i < 3u) { workgroupBarrier(); }
        }"""
    with pytest.raises(error_type(dawn.wgpu_device), match="uniform"):
        dawn.wgpu_device.create_shader_module(code=text)


def test_the_quick_suite_passes(dawn: Device) -> None:
    outcomes = [check(dawn, case) for case in suite(quick=True)]
    assert [str(outcome) for outcome in outcomes if outcome.verdict == "failed"] == []
    refused = {outcome.case.element for outcome in outcomes if outcome.verdict == "refused"}
    safe = all(unsafe_reason(name, dawn.capabilities) is None for name in STRATEGIES)
    assert refused == {"float64"} or not safe
    assert sum(outcome.verdict == "passed" for outcome in outcomes) > 50


@pytest.mark.parametrize("length", [50, 5000])
def test_reductions_of_columns(dawn: Device, length: int) -> None:
    x = np.arange(length * 4, dtype=np.int32).reshape(length, 4)
    assert_same(gs.reduce(x, axis=0, device=dawn), x.sum(axis=0, dtype=np.int32))
    assert_same(gs.reduce(dawn.asarray(x), axis=0), x.sum(axis=0, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64"])
def test_keys_on_the_device(dawn: Device, dtype: str) -> None:
    keys = (np.arange(900) // 7 % 2).astype(dtype)
    x = np.ones(900, np.int32)
    assert_same(gs.scan(dawn.asarray(x), keys=dawn.asarray(keys)).numpy(), np.arange(900, dtype=np.int32) % 7 + 1)


def test_both_implementations_give_the_same_bits(dawn: Device, device: Device) -> None:
    x = np.random.default_rng(0).standard_normal(10_007).astype(np.float32)
    shape = TileShape(32, 0, 1, 4)
    problem = posed(x)
    assert_same(
        run(dawn, problem, "three_dispatch", tile=shape)[0], run(device, problem, "three_dispatch", tile=shape)[0]
    )


def test_what_differs(dawn: Device) -> None:
    capabilities = dawn.capabilities
    assert capabilities.implementation.startswith("Dawn")
    assert not capabilities.native_int64
    assert not capabilities.float64
    assert capabilities.timestamp_period == 1.0
    assert capabilities.enable_subgroups == bool(capabilities.subgroup_sizes)


def test_an_operator_that_does_not_compile_is_our_error(dawn: Device) -> None:
    op = wgsl_operator("fn combine(a: Element, b: Element) -> Element { return nothing; }", name="broken")
    with pytest.raises(OperatorError, match="broken"):
        run(dawn, posed(np.ones(8, np.float32), op))


def test_loops_of_an_operator_are_counted(dawn: Device) -> None:
    """Tint takes the counting as well, and analyses no barrier as reached by some only."""
    text = "fn combine(a: Element, b: Element) -> Element {{ var p = vec2u(a, b); while ({}) {{ {} }} return p.x; }}"
    x = np.arange(1, 3000, dtype=np.uint32) * np.uint32(6)
    gcd = wgsl_operator(text.format("p.y != 0u", "p = vec2u(p.y, p.x % p.y);"))
    endless = wgsl_operator(text.format("p.x < 0xffffffffu", "p.x = p.x | 1u;"))
    for strategy in (name for name in STRATEGIES if unsafe_reason(name, dawn.capabilities) is None):
        assert_same(run(dawn, posed(x, gcd), strategy)[0][0], np.gcd.accumulate(x))
        with pytest.raises(OperatorError, match="did not end"):
            run(dawn, posed(x, endless), strategy)


def test_a_device_destroyed_while_buffers_are_being_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    own = Device(webgpu().gpu.enumerate_adapters_sync()[0])  # one that no device was made of yet
    results = gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range(90)), device=own)
    next(results)
    own.wgpu_device.destroy()
    with pytest.raises(gs.DeviceLostError):
        list(results)


def test_a_lost_device_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was under way when it was found lost can be collected."""
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    for length in (100, 100_000):
        own, x = Device(webgpu().gpu.enumerate_adapters_sync()[0]), np.ones(length, np.float32)
        gs.scan(x, device=own)
        own.wgpu_device.destroy()
        with pytest.raises(gs.DeviceLostError):
            gs.scan(x, device=own)
        gc.collect()


def test_threads_on_one_device(dawn: Device) -> None:
    """Dawn's devices are not for several threads but by a feature of theirs."""
    at_once(dawn, work)
    at_once(dawn, work_on_device)


def test_an_adapter_is_opened_again(dawn: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of Dawn's gives a single device; it is looked up again for the next."""
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    x = np.ones(5, np.int32)
    for again in (Device(dawn), Device(dawn)):
        assert again.capabilities.summary == dawn.capabilities.summary
        assert_same(gs.scan(x, device=again), np.arange(1, 6, dtype=np.int32))


def test_compensated_sums(dawn: Device) -> None:
    x = np.random.default_rng(1).integers(2**22, 2**23, 3000).astype(np.float32)
    wanted = np.cumsum(x, dtype=np.float64).astype(np.float32)
    assert_same(scan(x, compensated=True, device=dawn), wanted)


# ----- $GPUSCAN_BACKEND


@pytest.mark.parametrize(("name", "package"), [("", "wgpu"), ("wgpu", "wgpu"), ("dawn", "wgpudawn")])
def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, name)
    assert webgpu().__name__ == package


def test_an_unknown_implementation_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, "metal")
    with pytest.raises(AdapterNotFoundError, match=r"'metal'.*wgpu, dawn"):
        webgpu()


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpudawn", None)
    _load.cache_clear()
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    with pytest.raises(AdapterNotFoundError, match="pip install wgpudawn"):
        webgpu()
