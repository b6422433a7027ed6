"""Plans that are called on arrays, and what a device remembers of recorded ones."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device import context as context_module
from tests.harness.builds import count_waits, withhold_posts
from tests.harness.calls import EACH_STAGE, FIRST, Counted
from tests.harness.devices import (
    MAX_ENCODED_RUNS,
    MAX_ENCODED_STATES,
    auto_strategy,
    count_encoded_runs,
    count_encoded_states,
    count_timeouts,
    device_as_if,
    distrust,
)
from tests.harness.scans import record_and_submit
from tests.oracle import assert_same, numbers, several


def test_a_plan_keeps_up_with_what_the_device_has_learnt(own_device: gs.Device) -> None:
    """Assert that a plan stops using a strategy that timed out, and relying on workgroups that start in order."""
    device = device_as_if(own_device, vendor="NVIDIA", adapter_type="DiscreteGPU", starts_in_order=True)
    x = device.asarray(np.ones(100_000, np.uint32))
    plan = device.plan(x.shape, x.dtype, strategy="fallback")
    assert "atomicAdd" not in plan.wgsl["scan"]
    np.testing.assert_array_equal(plan(x).numpy(), np.arange(1, 100_001))
    distrust(device, "lookahead")
    np.testing.assert_array_equal(plan(x).numpy(), np.arange(1, 100_001))
    assert "atomicAdd(&state.ticket" in plan.wgsl["scan"]
    device = device_as_if(device, distrusted=())
    x = device.asarray(np.ones(100_000, np.uint32))
    automatic = device.plan(x.shape, x.dtype)
    distrust(device, automatic.strategy)
    np.testing.assert_array_equal(automatic(x).numpy(), np.arange(1, 100_001))
    assert automatic.strategy == auto_strategy(device)


def test_a_plan_runs_on_arrays_of_both_kinds(device: gs.Device) -> None:
    x = numbers("int32", 5000).reshape(5, 1000)
    for options in ({}, {"exclusive": True, "initial": np.arange(5, dtype=np.int32)}, {"reverse": True}):
        plan = device.plan(x.shape, np.int32, axis=1, **options)
        wanted = gs.scan(x, axis=1, device=device, **options)
        assert_same(plan(x), wanted)
        on_device = device.asarray(x)
        got = plan(on_device)
        assert isinstance(got, gs.Array)
        assert_same(got, wanted)
        assert plan(on_device, out=on_device) is on_device
        assert_same(on_device, wanted)
    with pytest.raises(ValueError, match=r"plan for shape \(5, 1000\)"):
        plan(x[:3])
    with pytest.raises(TypeError, match="plan for dtype int32"):
        plan(x.astype(np.float32))


def test_repeated_calls_of_numpy(device: gs.Device) -> None:
    """Assert that small arrays of NumPy are uploaded to the plan's device, launch a program, and are read at once."""
    n, some = 500, device.asarray(np.zeros(500, np.float32))
    plan = device.plan(n, np.float32, exclusive=True, initial=2.0)
    out = np.empty(n, np.float32)
    calls: list[int] = []
    for number in range(8):
        x = np.random.default_rng(number).integers(-9, 9, n).astype(np.float32)
        wanted = gs.scan(x, exclusive=True, initial=2.0, device="numpy")
        with count_waits(device) as waits:
            found: list[Any] = []
            calls.append(Counted().of(lambda x=x, into=found: into.append(plan(x))))  # type: ignore[misc]
            assert len(waits) == 1 or number < 3
        assert_same(found[0], wanted)
        assert plan(x, out) is out
        assert_same(out, wanted)
        assert_same(plan(x, out=x), wanted)
    wait = min(Counted().of(some.numpy) for _ in range(3))
    assert min(calls) <= FIRST + wait + EACH_STAGE * 2, calls
    for wrong in (np.zeros(n - 1, np.float32), np.zeros(n, np.int32), np.zeros((n, 1), np.float32)):
        with pytest.raises((ValueError, TypeError), match="plan for"):
            plan(wrong)
    assert_same(plan(wanted[::-1]), gs.scan(wanted[::-1], exclusive=True, initial=2.0, device="numpy"))


def test_plans_that_come_again(device: gs.Device) -> None:
    """Assert that an equal plan is made by few calls, and that few calls record it."""
    x, out = device.asarray(np.ones((32, 32), np.float32)), device.empty((32, 32), np.float32)
    made: list[int] = []
    recorded: list[int] = []
    for _ in range(4):
        plans: list[Any] = []
        made.append(Counted().of(lambda into=plans: into.append(device.plan((32, 32), np.float32, "maximum", axis=1))))  # type: ignore[misc]
        encoder = device.wgpu_device.create_command_encoder()
        recorded.append(Counted().of(lambda plan=plans[0], to=encoder: plan.record(to, x, out)))  # type: ignore[misc]
        device.wgpu_device.queue.submit([encoder.finish()])
        np.testing.assert_array_equal(out.numpy(), x.numpy())
    assert min(made) <= 120, made
    assert min(recorded) <= 160, recorded


def test_a_recorded_run_that_timed_out_is_reported(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a timeout is reported once, and that the list of recorded runs does not grow."""
    device, n = own_device, 200_000
    a = device.asarray(np.ones(n, np.uint32))
    withhold_posts(monkeypatch)
    plan = device.plan(n, np.uint32, strategy="lookback")
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, a, device.empty(n, np.uint32))
    a.numpy()
    device.synchronize()
    device.wgpu_device.queue.submit([encoder.finish()])
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        device.synchronize()
    device.synchronize()
    encoder = device.wgpu_device.create_command_encoder()
    for _ in range(MAX_ENCODED_RUNS + 1):
        plan.record(encoder, a, device.empty(n, np.uint32))
    assert count_encoded_runs(device) == MAX_ENCODED_RUNS


def test_a_recorded_run_that_timed_out_is_reported_before_others(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that a timed-out run is reported together with one that has an endless operator."""
    device, n = own_device, several(own_device, 25_000)
    text = "fn combine(a: Element, b: Element) -> Element { var x = a; while (x != 9u) { x |= 1u << 31u; } return x; }"
    withhold_posts(monkeypatch)
    plans = [device.plan(n, np.uint32, op, strategy="lookback") for op in (gs.wgsl_operator(text), "add")]
    for plan in plans:
        record_and_submit(device.wgpu_device, plan, device.asarray(np.ones(n, np.uint32)), device.empty(n, np.uint32))
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again") as told:
        device.synchronize()
    assert isinstance(told.value.__cause__, gs.OperatorError)
    assert count_timeouts(device) == {"lookback": 1}
    device.synchronize()


def test_what_recorded_runs_hold_does_not_grow(own_device: gs.Device) -> None:
    device, n = own_device, 200_000
    a, b = device.asarray(np.ones(n, np.uint32)), device.empty(n, np.uint32)
    plan = device.plan(n, np.uint32, strategy="lookback")
    for _ in range(MAX_ENCODED_STATES + 3):
        plan.record(device.wgpu_device.create_command_encoder(), a, b)
        device.memory_cleanup()
    assert count_encoded_states(device) == MAX_ENCODED_STATES


def test_a_plan_for_elements_without_numbers(device: gs.Device) -> None:
    with pytest.raises(gs.GpuscanError, match="no numbers"):
        device.plan((3, 0, 0), np.float32, "matmul", axis=0)


def test_what_was_recorded_is_counted_until_it_goes(own_device: gs.Device) -> None:
    device, n = own_device, 1000
    encoder = device.wgpu_device.create_command_encoder()
    a, b = device.asarray(np.ones(n, np.int32)), device.empty(n, np.int32)
    device.plan(n, np.int32).record(encoder, a, b)
    assert device.memory_usage().allocations == 2
    device.wgpu_device.queue.submit([encoder.finish()])
    assert_same(b.numpy(), np.arange(1, n + 1, dtype=np.int32))
    del a, b
    gc.collect()
    device.memory_cleanup()
    assert device.memory_usage() == gs.MemoryUsage(0, 0, 0)


def test_a_plan_is_not_changed_with_the_callers_arrays(device: gs.Device) -> None:
    ones = np.ones((3, 4), np.int32)
    keys, segments, initial = np.array([0, 0, 1, 1]), np.array([0, 2, 4]), np.array([10, 20, 30], np.int32)
    plans = [
        device.plan(4, np.int32, keys=keys),
        device.plan(4, np.int32, segments=segments),
        device.plan((3, 4), np.int32, axis=1, initial=initial),
    ]
    for option in (keys, segments, initial):
        option[:] = 0
    begun = np.cumsum([[11, 1, 1, 1], [21, 1, 1, 1], [31, 1, 1, 1]], axis=1, dtype=np.int32)
    for plan, wanted in zip(plans, ([1, 2, 1, 2], [1, 2, 1, 2], begun), strict=True):
        x = ones if plan.shape == (3, 4) else ones[0]
        assert_same(plan(x), np.asarray(wanted, np.int32))
        assert_same(plan(device.asarray(x)).numpy(), np.asarray(wanted, np.int32))


def test_shapes_and_byte_orders_that_numpy_takes(device: gs.Device) -> None:
    plan = device.plan(np.int64(3), "<i4")
    assert_same(plan(np.ones(3, ">i4")), np.arange(1, 4, dtype=np.int32))
    assert_same(device.plan([3], ">i4")(np.ones(3, "<i4")), np.arange(1, 4, dtype=np.int32))
    wrong: Any = 3.0
    with pytest.raises(TypeError):
        device.plan(wrong, np.int32)


def test_a_long_compilation_is_logged(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Say what took long, and only then."""
    own_device.plan(100, np.float32, lambda l, r: l + r + 1)
    assert caplog.messages == []
    monkeypatch.setattr(context_module, "SLOW_COMPILE_SECONDS", 0.0)
    own_device.plan(100, np.float32, lambda l, r: l + r - 2)
    assert [record.name for record in caplog.records] == ["gpuscan"] * len(caplog.records)
    assert "to compile the shader 'scan'" in caplog.text
    assert "elements of 4 bytes" in caplog.text


def test_a_plan_of_structured_elements_says_how_to_pass_a_bundle(own_device: gs.Device) -> None:
    """Pass one array for each field, as for `gpuscan.scan`: structured arrays are NumPy's only."""
    numbers = np.ones(4, np.float32)
    pairs = np.dtype([("a", np.float32), ("b", np.float32)])
    plan = own_device.plan(4, pairs, lambda left, right: {"a": left["a"] * right["a"], "b": left["b"] + right["b"]})
    on_device = own_device.asarray(numbers)
    for bundle in ({"a": numbers, "b": numbers}, (numbers, numbers), [on_device, on_device]):
        with pytest.raises(TypeError, match=r"of arrays was passed to a plan.*structured array.*gpuscan\.scan"):
            plan(bundle)
