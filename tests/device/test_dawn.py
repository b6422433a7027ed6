"""The second WebGPU implementation: every shader passes its compiler (Tint), and scans on it are right.

Tint holds shaders to WGSL more strictly than naga does: barriers and subgroup operations in uniform control flow,
parentheses between unlike operators, constants that overflow. A shader that it refuses does not run in Chrome.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device.backends import BACKEND_VARIABLE, _load, error_type, webgpu
from gpuscan.elements import scalar_of
from gpuscan.engine.selective_scan import gradient_sources, selective_gradients, selective_scan
from gpuscan.planning.group_plan import plan_groups
from gpuscan.planning.sort_plan import TileSort, plan_sort
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.reference.selective_stages import selective_gradient
from gpuscan.templates import render
from gpuscan.tools.matrix.conformance import check, suite
from tests.api import test_array_indices, test_everywhere, test_linear_attention
from tests.api.test_sort import assert_sorted, keys_of, order_of
from tests.api.test_threads import at_once, work, work_on_device
from tests.conftest import MIN_ADAPTERS
from tests.engine.test_selective_scan import assert_scans, scan_of
from tests.harness.scans import make_problem, scan_with
from tests.harness.sorts import sort_in_tiles, use_little_workgroup_memory
from tests.harness.stages import shaders_of
from tests.harness.tint import TintCheck
from tests.oracle import AFFINE, LATER, assert_same, strategies_in_turn, strategies_on

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
# Functions of the quick suite that are tested as parts of others: sorts by `test_sorts`, and logaddexp2 as logaddexp.
LEFT_OUT = ("sort", "argsort", "unique_inverse", "median", "logaddexp2")


def dawn_adapter(patch: pytest.MonkeyPatch) -> Any:
    """Choose Dawn as the WebGPU implementation, and return the best adapter that it finds here."""
    patch.setenv(BACKEND_VARIABLE, "dawn")
    patch.setenv("XDG_RUNTIME_DIR", "/")  # keeps a Wayland loader from complaining
    adapters = webgpu().gpu.enumerate_adapters_sync()
    if not adapters and MIN_ADAPTERS == "0":
        pytest.skip("no adapter on this machine")
    assert adapters, "Dawn finds no adapter here"
    return adapters[0]


@pytest.fixture(scope="module")
def dawn() -> gs.Device:
    """Return a device of Dawn's, on SwiftShader if there is no GPU."""
    with pytest.MonkeyPatch.context() as patch:
        return gs.Device(dawn_adapter(patch))


def test_a_given_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a device of the caller's is taken if threads may share it."""
    adapter = dawn_adapter(monkeypatch)
    with pytest.raises(ValueError, match=r"request_device_sync.*implicit-device-synchronization"):
        gs.Device(adapter.request_device_sync())
    gpu = dawn_adapter(monkeypatch).request_device_sync(required_features=["implicit-device-synchronization"])
    device = gs.Device(gpu)
    assert device.wgpu_device is gpu
    assert gs.Device(gpu) is device
    x = np.arange(100_000, dtype=np.uint32)
    assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))
    assert_same(gs.scan(device.asarray(x)).numpy(), np.cumsum(x, dtype=np.uint32))


@pytest.mark.parametrize("name", ["add float32 with subnormals", "a function of a bundle"])
def test_the_same_bits_everywhere(dawn: gs.Device, name: str) -> None:
    """Assert that Dawn gives the bits that wgpu-native and NumPy give."""
    digest = test_everywhere.digest(test_everywhere.CALLS[name](dawn, test_everywhere.as_they_are))
    assert digest == test_everywhere.load_digests()[name]


def compile_shaders(dawn: gs.Device, x: Any, op: Any, tile: TileShape, form: dict[str, Any]) -> None:
    """Compile every shader of a scan, and fail if Tint refuses one."""
    for label, text in shaders_of(make_problem(x, op, axis=0), dawn.capabilities, tile, form):
        try:
            dawn.wgpu_device.create_shader_module(code=text)
        except error_type(dawn.wgpu_device) as error:
            pytest.fail(f"{label}: {str(error)[:2000]}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(form) or "plain")
def test_tint_takes_every_form_of_every_stage(dawn: gs.Device, shape: TileShape, form: dict[str, Any]) -> None:
    for x, op in ((np.ones(8, np.uint32), "add"), ((np.ones(8, np.uint32), np.ones(8, np.uint8)), LATER)):
        compile_shaders(dawn, x, op, shape, form)


@pytest.mark.parametrize("strategy", ["lookback", "fallback"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint64], ids=lambda dtype: np.dtype(dtype).name)
def test_tint_takes_sorts_in_single_passes(dawn: gs.Device, dtype: Any, strategy: str) -> None:
    """Assert that the compiler takes the shaders that software adapters and GPUs run."""
    for kind, by_subgroups in (("CPU", False), ("DiscreteGPU", False), ("DiscreteGPU", True)):
        capabilities = replace(dawn.capabilities, adapter_type=kind)
        plan = plan_sort(scalar_of(np.dtype(dtype)), 1, 10**7, capabilities, strategy=strategy, subgroups=by_subgroups)
        assert isinstance(plan, TileSort)
        assert plan.strategy == strategy
        values: dict[str, Any] = {"scalar": scalar_of(np.dtype(dtype)), "unit": 4, "descending": False}
        values |= {"digits": plan.digits, "radix_bits": plan.radix_bits, "workgroup_size": plan.workgroup}
        tiles: dict[str, Any] = {"groups": plan.groups, "subgroups": by_subgroups, "enable_subgroups": by_subgroups}
        tiles |= {
            "items": plan.items,
            "batches": plan.batches,
            "kernel": plan.kernel,
            "with_keys": True,
            "payload": "words",
            "keeps_destinations": False,
        }
        for stage, more in (
            ("histogram", {"tiles_per_workgroup": plan.tiles_per_workgroup, "copies": plan.copies}),
            ("scan_histograms", {}),
            ("scatter_digits", tiles),
        ):
            dawn.wgpu_device.create_shader_module(code=render(f"sort/{stage}.wgsl", **values, **more))


def test_tint_takes_groups(dawn: gs.Device) -> None:
    """Assert that the compiler takes the shaders of groups that GPUs run."""
    capabilities = replace(dawn.capabilities, adapter_type="DiscreteGPU")
    forms: list[tuple[Any, str | gs.Operator, dict[str, Any]]] = [
        (np.ones(1 << 16, np.float32), "add", {}),
        (np.ones(1 << 16, np.float32), "maximum", {"reduces": True}),
        (np.ones(1 << 16, np.int32), "minimum", {"reduces": True}),
        (np.ones(1 << 16, np.int32), "bitwise_and", {"reduces": True, "label_parts": 2}),
        (np.ones(1 << 16, np.int32), "bitwise_and", {"reduces": True, "label_parts": 0}),
        ((np.ones(1 << 16, np.float32),) * 2, AFFINE, {}),
    ]
    for x, op, options in forms:
        spec = scan_spec(make_problem(x, op, axis=0, initial=AFFINE.identity if op is AFFINE else 0), capabilities)
        table = plan_groups(spec, scalar_of(np.dtype(np.int64)), 50, capabilities, subgroups=True, **options)
        assert table is not None
        for kernel in table.kernels:
            dawn.wgpu_device.create_shader_module(code=render_kernel(kernel))


def test_tint_refuses_a_barrier_that_not_all_reach(dawn: gs.Device) -> None:
    """Assert that the compiler of these tests is as strict as they need it to be."""
    text = """
        @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
            if (i < 3u) { workgroupBarrier(); }
        }"""
    with pytest.raises(error_type(dawn.wgpu_device), match="uniform"):
        dawn.wgpu_device.create_shader_module(code=text)


def test_the_check_of_all_shaders_tells_what_tint_refuses() -> None:
    """Assert that the check reports a refused text, and skips only texts with types that Tint does not have."""
    check = TintCheck()
    check.note("chained shifts", "fn f(a: u32) -> u32 { return a << 1u << 2u; }")
    check.note("a shift of a shift", "fn f(a: u32) -> u32 { return (a << 1u) << 2u; }")
    check.note("subgroups", "fn f(a: u32) -> u32 { return subgroupAdd(a); }")
    check.note("64 bits", "fn f(a: u32) -> u32 { return u32(u64(a) << 1u << 2u); }")
    (refused,) = check.find_refusals()
    assert refused.startswith("chained shifts: ")
    assert check.find_refusals() == []


def test_the_check_of_all_shaders_sees_them(tint: TintCheck, own_device: gs.Device) -> None:
    text = "fn only_here(a: u32) -> u32 { return a; }"
    own_device.wgpu_device.create_shader_module(label="seen", code=text)
    assert text in tint.noted


def test_the_quick_suite_passes(dawn: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as many cases of the quick suite as have every strategy, element, operator, layout and size."""
    use_little_workgroup_memory(monkeypatch)
    found = [case for case in suite(quick=True) if case.strategy in ("auto", *strategies_on(dawn))]
    cases: list[Any] = []
    seen: set[Any] = set()
    for case in sorted(found, key=lambda case: case.strategy == "auto"):
        features = set(case.features().items())
        if not case.operator.startswith(LEFT_OUT) and not features <= seen:
            cases.append(case)
            seen |= features
    outcomes = [check(dawn, case) for case in cases]
    assert [str(outcome) for outcome in outcomes if outcome.status == "failed"] == []
    assert {outcome.case.element for outcome in outcomes if outcome.status == "refused"} == {"float64"}
    assert sum(outcome.status == "passed" for outcome in outcomes) > 40


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda dtype: np.dtype(dtype).name)
def test_sorts(dawn: gs.Device, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that rows in one workgroup and in tiles are sorted, ranked by subgroups and by single invocations."""
    use_little_workgroup_memory(monkeypatch)
    for length, options in ((100, {}), (3000, {}), (3000, {"tile_size": 512, "subgroups": True})):
        keys = keys_of(dtype, (length,))
        found, places = sort_in_tiles(dawn, keys, False, **options)
        assert_sorted(found, keys)
        np.testing.assert_array_equal(places, order_of(keys))


@pytest.mark.parametrize("length", [50, 5000])
def test_reductions_of_columns(dawn: gs.Device, length: int) -> None:
    x = np.arange(length * 4, dtype=np.int32).reshape(length, 4)
    assert_same(gs.reduce(x, axis=0, device=dawn), x.sum(axis=0, dtype=np.int32))
    assert_same(gs.reduce(dawn.asarray(x), axis=0), x.sum(axis=0, dtype=np.int32))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "complex64"])
def test_keys_on_the_device(dawn: gs.Device, dtype: str) -> None:
    keys = (np.arange(900) // 7 % 2).astype(dtype)
    x = np.ones(900, np.int32)
    assert_same(gs.scan(dawn.asarray(x), keys=dawn.asarray(keys)).numpy(), np.arange(900, dtype=np.int32) % 7 + 1)


def test_segments_of_rows_on_the_device(dawn: gs.Device) -> None:
    """Assert that heads of one row are repeated for all rows, which end within words."""
    x = np.random.default_rng(2).integers(0, 9, (5, 77)).astype(np.int32)
    offsets = np.array([0, 3, 40, 41, 77])
    wanted = np.concatenate([np.cumsum(part, axis=1) for part in np.split(x, offsets[1:-1], axis=1)], axis=1)
    keys = np.repeat(np.arange(4), np.diff(offsets)).astype(np.int32)
    a = dawn.asarray(x)
    for cut in ({"segments": offsets}, {"segments": dawn.asarray(offsets)}, {"keys": dawn.asarray(keys)}):
        assert_same(gs.scan(a, axis=1, **cut).numpy(), wanted.astype(np.int32))


@pytest.mark.parametrize("dtype", ["bool", "uint16", "float32", "int64"])
def test_indices_on_the_device(dawn: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """Take and put elements of every width at indices and masks."""
    use_little_workgroup_memory(monkeypatch)
    test_array_indices.test_elements_at_indices_are_numpys(dawn, dtype)
    test_array_indices.test_writes_through_views(dawn, dtype)


def test_equal_indices_on_the_device(dawn: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    use_little_workgroup_memory(monkeypatch)
    test_array_indices.test_the_last_of_equal_indices_counts(dawn)


def test_labels_that_are_missing(dawn: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a scan of integers raises at the next read, and scans by the labels if all are there."""
    use_little_workgroup_memory(monkeypatch)
    x, labels = dawn.asarray(np.arange(6, dtype=np.int32)), np.array([0, 1, -1, 0, 1, 1])
    with pytest.raises(ValueError, match="missing labels"):
        gs.scan(x, groups=dawn.asarray(labels)).numpy()
    assert_same(gs.scan(x, groups=dawn.asarray(abs(labels))), np.array([0, 1, 3, 3, 7, 12], np.int32))


def test_selective_scans(dawn: gs.Device) -> None:
    """Run a scan and its gradient."""
    arrays = scan_of(1, 2, 5, 300, "vf")
    y, last = selective_scan(*(dawn.asarray(array) for array in arrays))
    assert_scans((y._read(), last._read()), arrays)
    given: Any = (*arrays, y._read(), last._read())
    found = selective_gradients(gradient_sources(dawn._context, *given))
    wanted = selective_gradient(*given)
    for one, other in zip(found[:2], wanted, strict=False):
        np.testing.assert_allclose(one._read(), other, rtol=0, atol=1e-4 * np.abs(other).max())


def test_linear_attention_in_chunks(dawn: gs.Device) -> None:
    test_linear_attention.test_stages(dawn, "delta")


def test_both_implementations_give_the_same_bits(dawn: gs.Device, device: gs.Device) -> None:
    x = np.random.default_rng(0).standard_normal(10_007).astype(np.float32)
    shape = TileShape(32, 0, 1, 4)
    problem = make_problem(x)
    (got,), (wanted,) = (scan_with(each, problem, "three_dispatch", tile=shape) for each in (dawn, device))
    assert_same(got, wanted)


def test_what_differs(dawn: gs.Device) -> None:
    capabilities = dawn.capabilities
    assert capabilities.implementation.startswith("Dawn")
    assert not capabilities.native_int64
    assert not capabilities.float64
    assert capabilities.timestamp_period == 1.0
    assert capabilities.enable_subgroups == bool(capabilities.subgroup_sizes)


def test_an_operator_that_does_not_compile_is_our_error(dawn: gs.Device) -> None:
    op = gs.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return nothing; }", name="broken")
    with pytest.raises(gs.OperatorError, match="broken"):
        gs.scan(np.ones(8, np.float32), op, device=dawn)


def test_loops_of_an_operator_are_counted(dawn: gs.Device) -> None:
    """Assert that Tint accepts the counting, and sees no barrier that only some invocations reach."""
    text = "fn combine(a: Element, b: Element) -> Element {{ var p = vec2u(a, b); while ({}) {{ {} }} return p.x; }}"
    x = np.arange(1, 3000, dtype=np.uint32) * np.uint32(6)
    gcd = gs.wgsl_operator(text.format("p.y != 0u", "p = vec2u(p.y, p.x % p.y);"))
    endless = gs.wgsl_operator(text.format("p.x < 0xffffffffu", "p.x = p.x | 1u;"))
    for strategy in strategies_in_turn(dawn, 0):
        assert_same(gs.scan(x, gcd, device=dawn, strategy=strategy), np.gcd.accumulate(x))
        with pytest.raises(gs.OperatorError, match="did not end"):
            gs.scan(x, endless, device=dawn, strategy=strategy)


def test_a_device_destroyed_while_buffers_are_being_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    own = gs.Device(dawn_adapter(monkeypatch))
    # More than a fast GPU has done before it is destroyed.
    results = gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range(2000)), device=own)
    next(results)
    own.wgpu_device.destroy()
    with pytest.raises(gs.DeviceLostError):
        deque(results, maxlen=0)


def test_a_lost_device_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the work in progress on a lost device can be garbage-collected."""
    for length in (100, 100_000):
        own, x = gs.Device(dawn_adapter(monkeypatch)), np.ones(length, np.float32)
        gs.scan(x, device=own)
        own.wgpu_device.destroy()
        with pytest.raises(gs.DeviceLostError):
            gs.scan(x, device=own)
        gc.collect()


def test_threads_on_one_device(dawn: gs.Device) -> None:
    """Assert that threads can share a device of Dawn's, which needs a feature for it."""
    at_once(dawn, work)
    at_once(dawn, work_on_device)


def test_an_adapter_is_opened_again(dawn: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that several devices open on an adapter of Dawn's, which gives a single device each time."""
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/")
    x = np.ones(5, np.int32)
    for again in (gs.Device(dawn), gs.Device(dawn)):
        assert again.capabilities.summary == dawn.capabilities.summary
        assert_same(gs.scan(x, device=again), np.arange(1, 6, dtype=np.int32))


def test_compensated_sums(dawn: gs.Device) -> None:
    x = np.random.default_rng(1).integers(2**22, 2**23, 3000).astype(np.float32)
    wanted = np.cumsum(x, dtype=np.float64).astype(np.float32)
    assert_same(gs.scan(x, compensated=True, device=dawn), wanted)


# ----- $GPUSCAN_BACKEND


@pytest.mark.parametrize(("name", "package"), [("", "wgpu"), ("wgpu", "wgpu"), ("dawn", "wgpudawn")])
def test_the_variable_chooses(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, name)
    assert webgpu().__name__ == package


def test_an_unknown_implementation_names_the_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BACKEND_VARIABLE, "metal")
    with pytest.raises(gs.AdapterNotFoundError, match=r"'metal'.*wgpu, dawn"):
        webgpu()


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wgpudawn", None)
    _load.cache_clear()
    monkeypatch.setenv(BACKEND_VARIABLE, "dawn")
    with pytest.raises(gs.AdapterNotFoundError, match="pip install wgpudawn"):
        webgpu()
