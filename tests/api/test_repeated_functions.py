"""Calls that come again with Python functions give what the functions compute now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import wait_for_reports
from tests.oracle import assert_same, strategies_on

N = 3001
X = np.random.default_rng(0).integers(-8, 8, N).astype(np.int32)
Y = np.random.default_rng(1).integers(-8, 8, N).astype(np.int32)


def scale_by(factor: Any) -> Callable[[Any], Any]:
    """Return a map that closes over a factor."""
    return lambda x: x * factor


def add_term(term: Any) -> Callable[[Any], Any]:
    """Return a map that closes over a term."""
    return lambda x: x + term


def pairwise(l: Any, r: Any) -> Any:
    """Add first values, and take the larger of second values."""
    return l[0] + r[0], np.maximum(l[1], r[1])


def test_what_closures_hold(device: gs.Device) -> None:
    """Assert right results as what a map closes over changes and changes back, with arrays of NumPy and of a device."""
    on_device = device.asarray(X)
    holder: list[Any] = [2]
    settings: dict[str, Any] = {"factor": 2}
    for x in (X, on_device):
        for factor in (2, 3, 2, 2, np.int32(3), 5, 2):
            holder[0] = settings["factor"] = factor
            plus = add_term(factor)
            wanted = np.cumsum(X * np.int32(factor), dtype=np.int32)
            maps = (
                scale_by(factor),
                lambda v, f=factor: v * f,
                lambda v: v * holder[0],
                lambda v: v * settings["factor"],
            )
            for before in maps:
                for _ in range(3):
                    assert_same(
                        np.asarray(gs.scan(x, before=before, device=None if x is on_device else device)), wanted
                    )
            assert int(gs.reduce(on_device, before=maps[0], after=plus)) == wanted[-1] + factor


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


def test_recurrences(device: gs.Device) -> None:
    """Assert that recurrences that come again see other gates, views and constants."""
    gates, inputs = np.where(X % 2 == 0, 1, 0).astype(np.float32), Y.astype(np.float32)
    a, b = device.asarray(gates), device.asarray(inputs)

    def states(gates: Any, inputs: Any) -> Any:
        found, state = [], np.float32(0)
        for gate, value in zip(np.broadcast_to(gates, inputs.shape), inputs, strict=True):
            state = np.float32(gate) * state + value
            found.append(state)
        return np.array(found, np.float32)

    for start in (0, 64, 0):
        for _ in range(2):
            assert_same(gs.linear_recurrence(a[start:], b[start:]).numpy(), states(gates[start:], inputs[start:]))
    for gate in (0.0, 1.0, 0.0, 1.0):
        assert_same(gs.linear_recurrence(gate, b).numpy(), states(gate, inputs))


def test_initial_values(device: gs.Device) -> None:
    """Assert that calls that come again see other initial values, of one number and of several."""
    x, y = device.asarray(X), device.asarray(Y)
    holder = np.zeros(2, np.int32)
    for initial in (1, 2, 1, np.int32(2), True, 1):
        for exclusive in (False, True):
            wanted = np.cumsum(X, dtype=np.int32) + np.int32(initial) - (X if exclusive else 0)
            assert_same(gs.scan(x, initial=initial, exclusive=exclusive).numpy(), wanted)
        assert gs.reduce(x, initial=initial).numpy()[()] == X.sum() + int(initial)
        holder[:] = initial
        sums, largest = gs.scan((x, y), pairwise, initial=(initial, holder[1]))
        assert_same(sums.numpy(), np.cumsum(X, dtype=np.int32) + np.int32(initial))
        assert_same(largest.numpy(), np.maximum(np.maximum.accumulate(Y), np.int32(initial)))
        rows = gs.scan(x.reshape(1, N), axis=0, initial=np.full(1, initial, np.int32))
        assert_same(rows.numpy()[0], X + np.int32(initial))


def test_compensated_sums_and_cuts(device: gs.Device) -> None:
    """Assert that compensated sums and cut scans come again with other arrays, offsets and keys."""
    big = np.where(np.arange(N) % 7 == 0, 2.0**25, 1.0).astype(np.float32)
    exact = np.cumsum(big.astype(np.float64)).astype(np.float32)
    a, x = device.asarray(big), device.asarray(X)
    for _ in range(3):
        assert_same(gs.scan(a, compensated=True).numpy(), exact)
        assert not np.array_equal(gs.scan(a).numpy(), exact)
    for at in (5, 100, 5, 7):
        keys = (np.arange(N) >= at).astype(np.int32)
        wanted = np.concatenate([np.cumsum(X[:at]), np.cumsum(X[at:])]).astype(np.int32)
        on_device = device.asarray(keys)
        for cut in ({"segments": [0, at, N]}, {"segments": np.array([0, at, N])}, {"keys": keys}, {"keys": on_device}):
            assert_same(gs.scan(x, **cut).numpy(), wanted)
        assert_same(gs.scan(x, keys=on_device, out=on_device).numpy(), wanted)
        with pytest.raises(ValueError, match="segments"):
            gs.scan(x, segments=[0, at + 1, at, N])


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
