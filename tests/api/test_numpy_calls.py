"""Repeated calls of NumPy's arrays alone: each launches one program over other arrays, and waits once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import signal
from tests.harness.builds import count_waits, withhold_posts
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, Counted, count_stages, results_of
from tests.harness.devices import count_encoded_runs, count_programs, forget_plans
from tests.oracle import Array, affine, assert_same

N = 1024
# For calls that a type checker refuses.
UNTYPED: Any = gs


class Pair(NamedTuple):
    """A step of an affine recurrence."""

    a: Any
    b: Any


def make_records(rng: np.random.Generator) -> Array:
    """Return a structured array of affine maps."""
    records = np.zeros(N, [("b", np.float32), ("a", np.int32)])
    records["a"], records["b"] = rng.choice([-1, 1], N), rng.integers(-9, 9, N)
    return records


# What makes an argument: each time another one. The numbers are small integers, so that sums are exact in any order.
MAKERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "f": lambda rng: rng.integers(-9, 9, N).astype(np.float32),
    "i": lambda rng: rng.integers(-99, 99, N).astype(np.int32),
    "bytes": lambda rng: rng.integers(0, 255, N).astype(np.uint8),
    "halves": lambda rng: rng.integers(0, 2, N).astype(np.float16),
    "long": lambda rng: rng.integers(-(1 << 40), 1 << 40, N),
    "bools": lambda rng: rng.random(N) < 0.5,
    "strided": lambda rng: rng.integers(-9, 9, 2 * N).astype(np.float32)[::-2],
    "rows": lambda rng: rng.integers(-9, 9, (32, 32)).astype(np.float32),
    "fortran": lambda rng: np.asfortranarray(rng.integers(-9, 9, (32, 32)).astype(np.float32)),
    "row": lambda rng: rng.integers(-9, 9, 32).astype(np.float32),
    "wide": lambda rng: rng.integers(-9, 9, (4, 500)).astype(np.float32),
    "long_row": lambda rng: rng.integers(-9, 9, 500).astype(np.float32),
    "signs": lambda rng: rng.choice([-1, 1], N).astype(np.float32),
    "list": lambda rng: rng.integers(-9, 9, 50).tolist(),
    "records": lambda rng: make_records(rng),
    "float": lambda rng: float(rng.integers(-50, 50)) / 4,
    "keys": lambda rng: np.sort(rng.integers(0, 9, N)).astype(np.int32),
    "labels": lambda rng: rng.permutation(N) % 9,
    "offsets": lambda rng: np.array([0, *np.sort(rng.choice(np.arange(1, N), 5, replace=False)), N]),
    "counts": lambda rng: rng.permutation(N) % 3,
    "channels": lambda rng: rng.integers(-2, 2, (1, 8, 16)).astype(np.float32),
    "heads": lambda rng: rng.integers(-2, 2, (1, 16, 2, 4)).astype(np.float32),
    "decays": lambda rng: np.log(rng.choice([0.5, 1.0], (1, 16, 2))).astype(np.float32),
    "rates": lambda rng: -rng.integers(1, 3, (8, 4)).astype(np.float32),
    "weights": lambda rng: rng.integers(-2, 2, (8, 4)).astype(np.float32),
}

# Each call, and the values that it takes.
Call: TypeAlias = tuple[Callable[..., Any], str]
CALLS: dict[str, Call] = {
    "scan": (gs.scan, "f"),
    "scan of bytes": (gs.scan, "bytes"),
    "scan of float16": (gs.scan, "halves"),
    "scan of int64": (gs.scan, "long"),
    "scan of bools": (lambda x: gs.scan(x, "logical_xor"), "bools"),
    "scan of a strided array": (gs.scan, "strided"),
    "scan of rows": (lambda x: gs.scan(x, axis=1), "rows"),
    "scan of columns": (lambda x: gs.scan(x, axis=0), "rows"),
    "scan in Fortran order": (lambda x: gs.scan(x, axis=1), "fortran"),
    "scan of a list": (gs.scan, "list"),
    "scan of a tuple": (lambda x, y: gs.scan((x, y), affine), "signs f"),
    "scan of a named tuple": (lambda x, y: gs.scan(Pair(x, y), lambda l, r: Pair(*affine(l, r))), "signs f"),
    "scan of records": (lambda r: gs.scan(r, lambda l, r: {"a": r["a"], "b": l["b"] + r["b"]}), "records"),
    "scan of a dict": (lambda x, y: gs.scan({"a": x, "b": y}, lambda l, r: {"a": r["a"], "b": l["b"] + r["b"]}), "i f"),
    "scan into out": (lambda x: gs.scan(x, out=np.empty_like(x)), "f"),
    "scan with a total": (lambda x: gs.scan(x, return_total=True), "i"),
    "scan from a number": (lambda x, k: gs.scan(x, exclusive=True, initial=k), "f float"),
    "scan from a row": (lambda x, k: gs.scan(x, axis=1, initial=k), "rows row"),
    "scan with a map": (lambda x, k: gs.scan(x, before=lambda v: v * k), "f float"),
    "scan of segments": (lambda x, o: gs.scan(x, segments=o), "f offsets"),
    "scan of keys": (lambda x, k: gs.scan(x, keys=k), "f keys"),
    "scan of groups": (lambda x, g: gs.scan(x, groups=g), "i labels"),
    "cumulative_sum": (gs.cumulative_sum, "i"),
    "cumulative_prod": (gs.cumulative_prod, "signs"),
    "reduce": (gs.reduce, "f"),
    "reduce rows": (lambda x: gs.reduce(x, "maximum", axis=1), "rows"),
    "reduce groups": (lambda x, g: gs.reduce(x, groups=g), "i labels"),
    "reduce segments": (lambda x, o: gs.reduce(x, segments=o), "i offsets"),
    "map": (lambda x, y: gs.map(lambda v, w: v * w + 1, x, y), "f signs"),
    "map of two results": (lambda x, y: gs.map(lambda v, w: (v + w, v > w), x, y), "f signs"),
    "map of a row": (lambda x, y: gs.map(lambda v, w: v - w, x, y), "rows row"),
    "map of a list": (lambda x: gs.map(lambda v: v + 1, x), "list"),
    "map with a number": (lambda x, k: gs.map(lambda v, w: v * w, x, k), "f float"),
    "loop": (lambda x: gs.loop(lambda h, v: np.clip(h + v, -20, 20), 0.0, x)[:2], "f"),
    "loop from a number": (lambda x, k: gs.loop(lambda h, v: np.maximum(h, v), k, x)[:2], "f float"),
    "loop from a row": (lambda x, k: gs.loop(lambda h, v: (h + v, h), k, x)[:2], "rows row"),
    "loop from a long row": (lambda x, k: gs.loop(lambda h, v: h + v, k, x)[:2], "wide long_row"),
    "loop of integers": (lambda x: gs.loop(lambda h, v: h ^ v, np.int32(0), x)[:2], "i"),
    "sequential loop": (lambda x: gs.loop(lambda h, v: abs(h - v), 0.0, x, method="sequential")[:2], "f"),
    "loop_vjp": (lambda x, g: gs.loop_vjp(lambda h, v: (h + v, h), np.float32(0), x, g), "f f"),
    "linear_recurrence": (gs.linear_recurrence, "signs f"),
    "linear_recurrence_vjp": (gs.linear_recurrence_vjp, "signs f f"),
    "scan_vjp": (lambda x, g: gs.scan_vjp(x, np.cumsum(x), g), "f f"),
    "gated_linear_attention": (
        lambda q, k, v, g, s: gs.gated_linear_attention(q, k, v, g, scale=s),
        "heads heads heads decays float",
    ),
    "selective_scan": (
        lambda u, a, b, c: gs.selective_scan(u, np.full_like(u, np.log(2) / 2), a, b, c),
        "channels rates weights weights",
    ),
    "sort": (lambda x: gs.sort(x, descending=True), "i"),
    "sort rows": (lambda x: gs.sort(x, axis=0), "rows"),
    "argsort": (gs.argsort, "f"),
    "sort_by_key": (gs.sort_by_key, "i f"),
    "compact": (gs.compact, "f bools"),
    "compact by a function": (lambda x: gs.compact(x, lambda v: v > 0), "f"),
    "partition_by": (gs.partition_by, "i bools"),
    "unique_values": (gs.unique_values, "f"),
    "unique_counts": (gs.unique_counts, "i"),
    "unique_inverse": (gs.unique_inverse, "bytes"),
    "unique_all": (gs.unique_all, "rows"),
    "run_length_encode": (gs.run_length_encode, "keys"),
    "reduce_by_key": (gs.reduce_by_key, "keys f"),
    "top_k": (lambda x: gs.top_k(x, 5), "i"),
    "quantile": (lambda x: gs.quantile(x, 0.3), "f"),
    "median of rows": (lambda x: gs.median(x, axis=1), "rows"),
    "searchsorted": (gs.searchsorted, "keys i"),
    "histogram": (lambda x: gs.histogram(x, 7, (-5, 6)), "f"),
    "histogram of bytes": (lambda x: gs.histogram(x, np.arange(0, 200, 25)), "bytes"),
    "repeat": (lambda x: gs.repeat(x, 3), "f"),
    "repeat counts": (gs.repeat, "f counts"),
    "lfilter": (lambda x: signal.lfilter([0.5], [1, -0.5], x), "f"),
    "lfilter from states": (lambda x, k: signal.lfilter([0.5], [1, -0.5], x, zi=[k]), "f float"),
    "sosfilt": (lambda x: signal.sosfilt([[0.5, 0, 0, 1, -0.5, 0.25]], x), "f"),
    "ewm_mean": (lambda x: signal.ewm_mean(x, span=3), "f"),
    "ewm_var": (lambda x: signal.ewm_var(x, alpha=0.5), "f"),
}
# Calls with results that are rounded in another way on NumPy.
ROUNDED = {
    "gated_linear_attention",
    "selective_scan",
    "lfilter",
    "lfilter from states",
    "sosfilt",
    "ewm_mean",
    "ewm_var",
}
# Calls of functions that close over the float.
CLOSED_OVER = {"scan with a map", "map with a number"}
# Calls with a result of a length that only the device knows, which is one more result.
PICKED = {"compact", "compact by a function", "run_length_encode", "reduce_by_key", "partition_by"}
# Python calls of computations on the host: filters compute coefficients, quantiles are between two elements, values are
# converted to the dtype of the keys, structured arrays are put together from their fields, and loops search for numbers
# that may be infinite.
ON_THE_HOST = {
    "lfilter": 80, "lfilter from states": 360, "sosfilt": 80, "quantile": 40, "median of rows": 40, "searchsorted": 20,
    "scan of records": 100, "histogram": 60, "histogram of bytes": 60
}  # fmt: skip
SEARCH = 60
# Python calls of a float that a function closes over.
NEW_FLOAT = 30


@pytest.fixture
def default(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return the device on which calls without `device` run."""
    monkeypatch.setattr("gpuscan.api.device.default_device", lambda: device)
    return device


def on_numpy(call: Callable[..., Any], *values: Any) -> list[Array]:
    """Return the results of a call that runs on NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUSCAN_ADAPTER", "numpy")
        return results_of(call(*values))


@pytest.mark.parametrize("name", CALLS)
def test_repeated_calls(default: gs.Device, name: str) -> None:
    """Assert that other arrays need no other program and one wait, have NumPy's results, and take few Python calls."""
    call, kinds = CALLS[name]
    device, rng = default, np.random.default_rng(3)

    def make() -> list[Any]:
        return [MAKERS[kind](rng) for kind in kinds.split()]

    # The first calls compile, find out how large subgroups are, and bind buffers.
    for _ in range(8):
        call(*make())
    known, calls = count_programs(device), []
    for _ in range(4):
        values = make()
        wanted = on_numpy(call, *values)
        given = [np.copy(value) for value in values]
        found: list[Any] = []
        with count_waits(device) as waits:
            calls.append(Counted().of(lambda into=found, given=values: into.append(call(*given))))  # type: ignore[misc]
            assert len(waits) == 1
        for value, before in zip(values, given, strict=True):
            assert_same(value, before)
            if isinstance(value, np.ndarray):
                value[...] = 0  # later changes are none of the results
        for got, expected in zip(results_of(found[0]), wanted, strict=True):
            if name in ROUNDED:
                assert got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
            else:
                assert_same(got, expected, name)
    assert count_programs(device) == known
    values = make()
    # To write a value takes as much as a stage, and so does a read.
    stages, results = count_stages(device, call, *values) + len(values) + 1, len(wanted)
    results *= 2 if name in PICKED or name.startswith("unique") else 1
    # A read waits. A wait makes many calls of the package wgpu, and more of them if the GPU takes longer.
    some = device.asarray(np.zeros(N, np.float32))
    wait = min(Counted().of(some.numpy) for _ in range(3))
    most = FIRST + wait + EACH_STAGE * (stages - 1) + EACH_RESULT * (results - 1)
    most += SEARCH if "loop" in name else NEW_FLOAT if name in CLOSED_OVER else ON_THE_HOST.get(name, 0)
    assert min(calls) <= most, (calls, stages)


def test_errors(default: gs.Device) -> None:
    """Assert that calls that are refused are refused also if similar ones have launched a program."""
    x, rows = np.ones(64, np.float32), np.ones((8, 8), np.float32)
    for _ in range(3):
        gs.scan(x), gs.reduce(rows, axis=1), gs.map(lambda v, w: v + w, x, x), gs.loop(lambda h, v: h + v, 0.0, x)
        for error, call in (
            (ValueError, lambda: gs.scan(rows)),
            (ValueError, lambda: gs.scan(x, axis=3)),
            (TypeError, lambda: UNTYPED.scan(x, "add", op="add")),
            (TypeError, lambda: UNTYPED.scan(x, nothing=1)),
            (TypeError, lambda: UNTYPED.sort_by_key(x, x, device=default)),
            (TypeError, lambda: UNTYPED.repeat(x, 2, out=np.empty(128, np.float32))),
            (ValueError, lambda: gs.scan(x, out=np.empty(63, np.float32))),
            (TypeError, lambda: gs.scan(x, out=np.empty(64, np.float64))),
            (ValueError, lambda: gs.scan(x, segments=[0, 65])),
            (ValueError, lambda: gs.map(lambda v, w: v + w, x, x[:9])),
            (gs.OperatorError, lambda: gs.map(lambda v: v if v > 0 else -v, x)),
            (gs.LoopError, lambda: gs.loop(lambda h, v: np.cos(h) + v, 0.0, x)),
            (ValueError, lambda: gs.reduce_by_key(x[:9], x)),
            (ValueError, lambda: gs.repeat(x, np.full(64, -1))),
            (gs.AdapterNotFoundError, lambda: gs.scan(x, device="no such adapter")),
        ):
            with pytest.raises(error):
                call()
    assert_same(gs.scan(x, device=default), np.arange(1, 65, dtype=np.float32))


def test_arguments_of_other_kinds(default: gs.Device) -> None:
    """Assert that lists, nested bundles, other byte orders and long arrays have the results of NumPy's arrays."""
    x = np.arange(12, dtype=np.int32)
    deep: Any = x
    for _ in range(20):
        deep = (deep,)
    for _ in range(3):
        assert_same(gs.scan([[1, 2], [3, 4]], axis=1), np.array([[1, 3], [3, 7]]))
        assert_same(gs.scan([np.array(1), np.array(2)]), np.array([1, 3]))
        first, second = UNTYPED.scan([x, list(range(12))], lambda l, r: [l[0] + r[0], l[1] + r[1]])
        assert_same(first, np.cumsum(x, dtype=np.int32))
        assert_same(second, np.cumsum(np.arange(12)))
        nested = gs.scan({"a": (x, x[::-1])}, lambda l, r: {"a": (l["a"][0] + r["a"][0], r["a"][1])})
        assert_same(nested["a"][0], np.cumsum(x, dtype=np.int32))
        assert_same(nested["a"][1], x[::-1])
        assert_same(gs.scan(x.astype(">i4")), np.cumsum(x, dtype=np.int32))
        assert_same(gs.map(lambda v, w: v * w, x, 3), x * 3)
        assert_same(gs.reduce(x[:1]), np.int32(0))
        assert_same(results_of(gs.scan(deep, lambda l, r: r))[0], x)
    long = np.ones(1 << 19, np.float32)
    assert_same(gs.reduce(long), np.float32(1 << 19))
    assert_same(gs.reduce(long[: 1 << 18]), np.float32(1 << 18))


def test_out(default: gs.Device) -> None:
    """Assert that results are written to `out`, whatever its memory order, and that it may be the input."""
    x = np.arange(64, dtype=np.int32)
    wanted = np.cumsum(x, dtype=np.int32)
    for _ in range(3):
        for out in (np.empty(64, np.int32), np.empty(128, np.int32)[::2], x.copy()):
            assert gs.scan(out if out[0] == 0 and out[-1] == 63 else x, out=out) is out
            assert_same(np.ascontiguousarray(out), wanted)
        total = np.empty((), np.int32)
        assert gs.reduce(x, out=total) is total
        assert total == wanted[-1]
        both = np.empty(64, np.int32), np.empty(64, np.int32)
        assert gs.map(lambda v: (v, -v), x, out=both) is both
        assert_same(both[1], -x)


def test_keys_of_numpy_beside_an_array_on_a_device(default: gs.Device) -> None:
    """Assert that each result is where its argument is, by one program and one wait."""
    rng = np.random.default_rng(0)
    for _ in range(6):
        keys, x = MAKERS["keys"](rng), MAKERS["f"](rng)
        known = count_programs(default)
        with count_waits(default) as waits:
            first, sums = gs.reduce_by_key(keys, default.asarray(x))
            assert len(waits) <= 1
        assert isinstance(first, np.ndarray)
        assert isinstance(sums, gs.Array)
        wanted = gs.reduce_by_key(keys, x, device="numpy")
        assert_same(first, wanted[0])
        assert_same(sums.numpy(), wanted[1])
        on_device, beside = gs.reduce_by_key(default.asarray(keys), x)
        assert isinstance(on_device, gs.Array)
        assert_same(beside, wanted[1])
    assert count_programs(default) == known


def test_calls_beside_recorded_runs(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a call waits once where a plan was recorded before, and raises the error of the recorded run."""
    device, n = own_device, 200_000
    source, target, x = device.asarray(np.ones(n, np.uint32)), device.empty(n, np.uint32), np.ones(N, np.float32)

    def record() -> Any:
        encoder = device.wgpu_device.create_command_encoder()
        device.plan(n, np.uint32, strategy="lookback").record(encoder, source, target)
        return encoder.finish()

    def count() -> int:
        with count_waits(device) as waits:
            assert_same(gs.scan(x, device=device), np.cumsum(x))
        return len(waits)

    for _ in range(6):
        gs.scan(x, device=device)
    device.wgpu_device.queue.submit([record()])
    assert count_encoded_runs(device)
    assert [count() for _ in range(4)] == [1, 1, 1, 1]
    with monkeypatch.context() as patched:
        withhold_posts(patched)
        forget_plans(device)
        device.wgpu_device.queue.submit([record()])
    with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
        gs.scan(x, device=device)
    assert count() == 1


def test_extreme_numbers_in_loops(default: gs.Device) -> None:
    """Assert that a loop that was launched for plain numbers is checked for extreme ones."""
    x = np.ones(100, np.float32)
    extreme = x.copy()
    extreme[3], extreme[50] = np.inf, -np.inf

    def step(h: Any, v: Any) -> Any:
        return np.where(v > 0, 0.5 * h + v, v)

    for _ in range(4):
        for values in (x, extreme):
            got, wanted = gs.loop(step, 0.0, values), gs.loop(step, 0.0, values, device="numpy")
            np.testing.assert_allclose(got.ys, wanted.ys, rtol=1e-6)
            assert str(got.form) == str(wanted.form)
