"""Calls that come again with Python functions give what the functions compute now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import wait_for_reports
from tests.harness.calls import EACH_STAGE, FIRST, READ, Counted
from tests.harness.devices import count_programs
from tests.oracle import assert_same, strategies_on

N = 3001
X = np.random.default_rng(0).integers(-8, 8, N).astype(np.int32)
Y = np.random.default_rng(1).integers(-8, 8, N).astype(np.int32)


def pairwise(l: Any, r: Any) -> Any:
    """Add first values, and take the larger of second values."""
    return l[0] + r[0], np.maximum(l[1], r[1])


@pytest.mark.parametrize("where", ["numpy", "gpu"])
def test_cell_of_an_earlier_call(device: gs.Device, where: str) -> None:
    """Assert that a function of an earlier call is not called, since its variables may have changed."""

    def make() -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any], Callable[[int], None]]:
        factor = 2

        def assign(value: int) -> None:
            nonlocal factor
            factor = value

        return lambda x: x * factor, lambda l, r: l + r + (factor - factor), assign

    call_device: Any = "numpy" if where == "numpy" else device
    wanted = np.cumsum(X * np.int32(2), dtype=np.int32)
    for _ in range(3):
        before, op, assign = make()
        assert_same(gs.scan(X, op, before=before, after=before, device=call_device), wanted * 2)
        assign(7)


def test_operators_that_are_made_again(device: gs.Device) -> None:
    """Assert that equal operators share a program, and that others have results of their own."""
    x = device.asarray(X)

    def scan_with(step: int, identity: object, axes: int) -> Any:
        op = gs.operator(lambda l, r: l + r + step, identity=identity, element_axes=axes)
        return gs.scan(x.reshape(-1, 1) if axes else x, op, axis=0, exclusive=True).numpy().reshape(-1)

    def scan_in_wgsl(text: str, helpers: str) -> Any:
        source = f"fn combine(a: Element, b: Element) -> Element {{ return {text}; }}"
        return gs.scan(x, gs.wgsl_operator(source, identity=0, helpers=helpers)).numpy()

    sums = np.cumsum(X, dtype=np.int32)[:-1]
    for _ in range(4):
        for step, identity, axes in ((0, 0, 0), (1, -1, 0), (0, np.int32(5), 0), (1, 0, 1), (0, np.array([7]), 1)):
            wanted = np.concatenate([np.reshape(identity, 1), sums + step * np.arange(N - 1)])
            assert_same(scan_with(step, identity, axes), wanted.astype(np.int32))
    known = count_programs(device)
    scan_with(1, -1, 0)
    assert count_programs(device) == known
    for _ in range(3):
        assert_same(scan_in_wgsl("f(a + b)", "fn f(x: i32) -> i32 { return x; }"), np.cumsum(X, dtype=np.int32))
        found = scan_in_wgsl("f(a, b)", "fn f(x: i32, y: i32) -> i32 { return max(x, y); }")
        assert_same(found, np.maximum.accumulate(X))
    # The text is checked once.
    call = partial(scan_in_wgsl, "f(a + b)", "fn f(x: i32) -> i32 { return x; }")
    assert Counted().of(call) <= FIRST + EACH_STAGE * 2 + READ


def test_functions_that_count(device: gs.Device) -> None:
    """Assert right results of calls that come again in new buffers, and of a function that counts its calls."""
    x, y, calls = device.asarray(X), device.asarray(Y), [0]
    sums, largest = np.cumsum(X, dtype=np.int32), np.maximum.accumulate(Y)
    kept = []
    for _ in range(4):
        kept.append(gs.scan((x, y), pairwise))
        kept.append(gs.scan((x, y), lambda l, r: (l[0] + r[0], np.maximum(l[1], r[1]))))
    for one, other in kept:
        assert_same(one.numpy(), sums)
        assert_same(other.numpy(), largest)

    def count_call(v: Any) -> Any:
        calls[0] += 1
        return v

    for _ in range(3):
        assert_same(gs.scan(x, before=count_call).numpy(), sums)
    # It reads a list, so it is traced at each call.
    assert calls[0] >= 6


def test_out_of_a_tuple(device: gs.Device) -> None:
    """Assert that a call that comes again checks its `out`, and writes where it says."""
    x, y = device.asarray(X), device.asarray(Y)
    a, b, c = (device.empty(N, np.int32) for _ in range(3))
    sums, largest = np.cumsum(X, dtype=np.int32), np.maximum.accumulate(Y)
    for out in ((a, b), (b, c), (a, b), (c, a)):
        for array in out:
            array[:] = -1
        assert gs.scan((x, y), pairwise, out=out) is out
        assert_same(out[0].numpy(), sums)
        assert_same(out[1].numpy(), largest)
    assert_same(gs.scan((x, y), pairwise, out=[a, c])[1].numpy(), largest)
    for wrong in ((a,), a, (a, a), (a, device.empty(N, np.uint32)), (a, device.empty(N - 1, np.int32)), (a, Y)):
        with pytest.raises((TypeError, ValueError)):
            gs.scan((x, y), pairwise, out=wrong)


def test_keys_of_a_kept_run(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a scan by keys that is only submitted again reads what its own keys hold now."""
    strategies = [name for name in strategies_on(device) if name != "three_dispatch"]
    wait_for_reports(monkeypatch, wait=False)
    x, out = device.asarray(X), device.empty(N, np.int32)
    for strategy in strategies[:2]:
        starts = [5, 100, 700]
        arrays = [device.asarray((np.arange(N) >= at).astype(np.int32)) for at in starts]
        for number in (0, 1, 0, 0, 2, 1, 0):
            at, keys = starts[number], arrays[number]
            wanted = np.concatenate([np.cumsum(X[:at]), np.cumsum(X[at:])]).astype(np.int32)
            assert_same(gs.scan(x, keys=keys, out=out, strategy=strategy).numpy(), wanted)
        arrays[0][:] = 1
        assert_same(gs.scan(x, keys=arrays[0], out=out, strategy=strategy).numpy(), np.cumsum(X, dtype=np.int32))
