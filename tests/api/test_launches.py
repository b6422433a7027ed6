"""Calls that come again: every kind costs little, waits for nothing, and computes from the arrays that it gets now."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.key_heuristics import group_heuristics_for
from tests.harness.builds import assert_launches, assert_no_waits, count_waits, keep_no_programs
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, READ, Counted, assign, count_stages, results_of
from tests.harness.devices import count_programs, distrust, poison, timeouts_apart
from tests.oracle import LATER, Array, affine, assert_same

N = 1024
# For calls that a type checker refuses.
UNTYPED: Any = gs
# NumPy's types do not know that ufuncs write to arrays on devices.
ADD: Any = np.add


def affine_fields(left: Any, right: Any) -> Any:
    """Compose two affine maps that are dicts."""
    return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}


class Arguments:
    """Arrays of all kinds on a device, with other contents for each seed."""

    def __init__(self, device: gs.Device, seed: int, shape: tuple[int, int] = (32, 32)) -> None:
        rng, put, n = np.random.default_rng(seed), device.asarray, shape[0] * shape[1]
        self.device = device
        self.i, self.j = (put(rng.integers(-99, 99, n).astype(np.int32)) for _ in range(2))
        self.u = put(rng.integers(0, 255, n).astype(np.uint8))
        self.f, self.g = (put(rng.integers(-8, 8, n).astype(np.float32)) for _ in range(2))
        self.h = put(rng.integers(0, 2, n).astype(np.float16))
        self.rows, self.others = self.i.reshape(shape), self.j.reshape(shape)
        self.signs = put(rng.choice([-1, 1], shape).astype(np.float32))
        self.steps = put(rng.integers(-3, 3, shape).astype(np.float32))
        self.mask = put(rng.random(n) < 0.5)
        self.labels = put(rng.integers(0, 10, n).astype(np.uint8))
        self.keys = put(np.sort(rng.integers(0, 10, n)).astype(np.int32))
        self.offsets = put(np.array([0, *np.sort(rng.integers(0, n, 3)), n], np.int32))
        self.out = device.empty((n,), np.int32)
        # Of a state space: 32 channels with 4 states each.
        self.channels = self.f.reshape((1, 32, n // 32))
        self.weights, self.rates = (put(rng.random((32, 4)).astype(np.float32)) for _ in range(2))


# Each kind of call, and the same of NumPy arrays where NumPy has it.
KINDS: dict[str, Callable[[Arguments], Any]] = {
    "scan": lambda a: gs.scan(a.i),
    "scan into out": lambda a: gs.scan(a.i, out=a.out),
    "scan of bytes": lambda a: gs.scan(a.u),
    "scan of rows": lambda a: gs.scan(a.rows, axis=1),
    "scan of columns": lambda a: gs.scan(a.rows, axis=0),
    "scan of a transposed view": lambda a: gs.scan(a.rows.T, axis=1),
    "scan of a slice": lambda a: gs.scan(a.i[3:]),
    "scan of a reversed view": lambda a: gs.scan(a.i[::-1]),
    "scan from the end": lambda a: gs.scan(a.i, reverse=True),
    "exclusive scan": lambda a: gs.scan(a.i, exclusive=True, initial=5),
    "scan with a map": lambda a: gs.scan(a.i, before=lambda v: v * 2, after=lambda v: v + 1),
    "scan of a tuple": lambda a: gs.scan((a.signs, a.steps), affine, axis=1),
    "scan of a list": lambda a: gs.scan([a.signs, a.steps], affine, axis=1),
    "scan of a dict": lambda a: gs.scan({"a": a.signs, "b": a.steps}, affine_fields, axis=1),
    "logarithms of sums with an initial value": lambda a: gs.scan(a.steps, "logaddexp", axis=1, initial=2.0),
    "logarithms of sums with initial values": lambda a: gs.scan(a.steps, "logaddexp", axis=1, initial=a.steps[:, 0]),
    "exclusive logarithms of sums": lambda a: gs.scan(a.steps, "logaddexp", axis=1, exclusive=True),
    "scan with a total": lambda a: gs.scan(a.i, return_total=True),
    "scan on a named device": lambda a: gs.scan(a.i, device=a.device),
    "compensated scan": lambda a: gs.scan(a.f, compensated=True),
    "segments": lambda a: gs.scan(a.i, segments=a.offsets),
    "keys": lambda a: gs.scan(a.i, keys=a.keys),
    "groups": lambda a: gs.scan(a.i, groups=a.labels),
    "groups of signed labels": lambda a: gs.scan(a.i, groups=a.keys),
    "cumulative_sum": lambda a: gs.cumulative_sum(a.i),
    "cumulative_prod": lambda a: gs.cumulative_prod(a.signs, axis=1),
    "reduce": lambda a: gs.reduce(a.i),
    "reduce rows": lambda a: gs.reduce(a.rows, axis=1),
    "reduce columns": lambda a: gs.reduce(a.rows, axis=(0,)),
    "reduce float16": lambda a: gs.reduce(a.h),
    "reduce segments": lambda a: gs.reduce(a.i, segments=a.offsets),
    "reduce groups": lambda a: gs.reduce(a.i, groups=a.keys, num_groups=10),
    "reduce groups by a sort": lambda a: gs.reduce(a.f, groups=a.keys, num_groups=50_000),
    "reduce groups without an identity": lambda a: gs.reduce((a.i, a.j), LATER, groups=a.keys, num_groups=10),
    "reduce groups of bytes": lambda a: gs.reduce(a.f, groups=a.labels, num_groups=12),
    "linear_recurrence": lambda a: gs.linear_recurrence(a.signs, a.steps, axis=1),
    "linear_recurrence_vjp": lambda a: gs.linear_recurrence_vjp(a.signs, a.steps, a.signs, axis=1),
    "scan_vjp": lambda a: gs.scan_vjp(a.steps, a.steps, a.signs, "add", axis=1),
    "scan_vjp of a function": lambda a: gs.scan_vjp(
        (a.signs, a.steps), (a.signs, a.steps), (a.steps, a.signs), affine, axis=1
    ),
    "selective_scan": lambda a: gs.selective_scan(a.channels, a.channels, a.rates, a.weights, a.weights),
    "selective_scan_vjp": lambda a: gs.selective_scan_vjp(
        a.channels, a.channels, a.rates, a.weights, a.weights, grad_y=a.channels
    ),
    "loop": lambda a: gs.loop(lambda h, x: 0.5 * h + x, 0.0, a.f),
    "sequential loop": lambda a: gs.loop(lambda h, x: np.cos(h) + x, 0.0, a.f, method="sequential"),
    "rows from a number": lambda a: gs.scan(a.rows, axis=1, initial=5),
    "exclusive scan of rows": lambda a: gs.scan(a.rows, axis=1, exclusive=True),
    "rows from numbers": lambda a: gs.scan(a.rows, axis=1, initial=a.others[:, 0]),
    "tuples from a number": lambda a: gs.scan((a.signs, a.steps), affine, axis=1, initial=(1.0, a.steps[:, 3])),
    "reduce rows from a number": lambda a: gs.reduce(a.rows, axis=1, initial=3),
    "recurrences from a number": lambda a: gs.linear_recurrence(a.signs, a.steps, axis=1, initial=2.0),
    "gradients from a number": lambda a: gs.linear_recurrence_vjp(a.signs, a.steps, a.signs, axis=1, initial=2.0),
    "loop of rows": lambda a: gs.loop(lambda h, x: 0.5 * h + x, 0.0, a.steps, axis=1)[:2],
    "loop of rows that stays in bounds": lambda a: gs.loop(lambda h, x: np.clip(h + x, -5, 5), 1.0, a.steps, axis=1)[
        :2
    ],
    "loop of rows from numbers": lambda a: gs.loop(lambda h, x: h + x, a.steps[:, 1], a.steps, axis=1)[:2],
    "loop of rows of two numbers": lambda a: gs.loop(
        lambda h, x: (h[0] + x, 0.5 * h[1] + h[0]), (0.0, 1.0), a.steps, axis=1
    )[:2],
    "loop of rows of two states": lambda a: gs.loop(
        lambda h, x: np.where(h == 0, np.where(x > 5, 1, 0), np.where(x < -5, 0, h)), 0, a.steps, axis=1
    )[:2],
    "filter of rows": lambda a: gs.signal.lfilter(np.ones(3), [1.0], a.steps),
    "gradients of segments": lambda a: gs.scan_vjp(a.f, a.g, a.f, segments=[0, 5, a.f.size]),
    "gradients of a loop": lambda a: gs.loop_vjp(
        lambda h, x: (0.5 * h + x, h), np.float32(1), a.steps, a.signs, axis=1
    ),
    "attention": lambda a: gs.gated_linear_attention(
        *(3 * (a.steps.reshape((1, -1, 2, 4)),)), (a.f * 0).reshape((1, -1, 2))[:, : a.f.size // 8]
    ),
    "attention of several sequences": lambda a: gs.gated_linear_attention(
        *(3 * (a.steps.reshape((-1, 8, 2, 4)),)), (a.f * 0)[: a.f.size // 4].reshape((-1, 8, 2))
    ),
    "compact": lambda a: gs.compact(a.i, a.mask),
    "compact by a function": lambda a: gs.compact(a.i, lambda v: v > 5),
    "sort": lambda a: gs.sort(a.i),
    "argsort": lambda a: gs.argsort(a.i),
    "sort columns": lambda a: gs.sort(a.rows, axis=0),
    "sort_by_key": lambda a: gs.sort_by_key(a.i, a.j),
    "sort segments": lambda a: gs.sort(a.i, segments=a.offsets),
    "unique_values": lambda a: gs.unique_values(a.i),
    "unique_counts": lambda a: gs.unique_counts(a.f),
    "unique_inverse": lambda a: gs.unique_inverse(a.u),
    "unique_all": lambda a: gs.unique_all(a.h),
    "run_length_encode": lambda a: gs.run_length_encode(a.keys),
    "partition_by": lambda a: gs.partition_by(a.i, a.mask),
    "repeat": lambda a: gs.repeat(a.i, 3),
    "searchsorted": lambda a: gs.searchsorted(a.keys, a.i),
    "histogram": lambda a: gs.histogram(a.f, 10, (-8, 8)),
    "weighted histogram": lambda a: gs.histogram(a.f, 10, (-8, 8), weights=a.i),
    "bincount of bytes": lambda a: gs.bincount(a.u, minlength=5),
    "top_k": lambda a: gs.top_k(a.i, 5),
    "top_k of rows": lambda a: gs.top_k(a.rows, 3, largest=False),
    "quantile": lambda a: gs.quantile(a.f, 0.3),
    "median of rows": lambda a: gs.median(a.rows.astype(np.float32), axis=1),
    "unique": lambda a: np.unique(a.f),
    "diff": lambda a: np.diff(a.i),
    "argmax": lambda a: np.argmax(a.f),
    "nonzero": lambda a: np.nonzero(a.i),
    "map": lambda a: gs.map(lambda v, w: v * v + w, a.i, a.j),
    "map of two results": lambda a: gs.map(lambda v, w: (v + w, v - w), a.i, a.j),
    "operators": lambda a: a.i + a.j,
    "operator with a number": lambda a: a.i * 3,
    "ufunc": lambda a: np.negative(a.i),
    "ufunc into out": lambda a: ADD(a.i, a.j, out=a.out),
    "where": lambda a: np.where(a.mask, a.i, a.j),
    "sum": lambda a: a.i.sum(),
    "max of rows": lambda a: a.rows.max(axis=1),
    "mean": lambda a: a.f.mean(),
    "cumsum": lambda a: np.cumsum(a.rows, axis=1),
    "astype": lambda a: a.i.astype(np.float32),
    "copy": lambda a: a.i.copy(),
    "copy of a transposed view": lambda a: a.rows.T.copy(),
    "concatenate": lambda a: np.concatenate([a.i, a.j]),
    "stack": lambda a: np.stack([a.i, a.j]),
    "take": lambda a: np.take(a.i, a.labels),
    "index": lambda a: a.i[a.labels],
    "std": lambda a: a.f.std(),
    "roll": lambda a: np.roll(a.i, 3),
    "roll rows": lambda a: np.roll(a.rows, 3, axis=1),
    "tile": lambda a: np.tile(a.i, 3),
    "partition": lambda a: np.partition(a.i, 5),
    "clip": lambda a: np.clip(a.i, -5, 5),
    "choice of an integer": lambda a: np.where(a.mask, a.i, 7),
    "difference of slices": lambda a: a.i[1:] - a.i[:-1],
    "sum of a row and a column": lambda a: a.rows + a.rows[:, 0][:, None],
    "map with an integer": lambda a: gs.map(lambda v, k=7: np.where(v > k, v, k), a.i),
    "sums of nothing": lambda a: a.rows[:, :0].sum(axis=1),
    "groups of nothing": lambda a: gs.reduce(a.rows[:, :0], axis=1, groups=a.labels[:0], num_groups=3),
    "nothing into out": lambda a: gs.reduce(a.rows[:, :0], "maximum", axis=1, initial=3, out=a.out[: len(a.rows)]),
    "a number at rows of a mask": lambda a: assign(a.rows.copy(), a.mask[: len(a.rows)], 7),
    "segments of a range": lambda a: gs.scan(a.i, segments=range(0, a.i.size + 1, 64)),
    "elements of a range": lambda a: a.i[range(3, 90, 2)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_repeated_call(device: gs.Device, kind: str) -> None:
    """Assert that a launch gives the long way's results for other arrays, waits for nothing, and takes few calls."""
    call = KINDS[kind]
    first = Arguments(device, 0)
    for _ in range(3):  # the first launch of a kernel may wait, to see how large its subgroups are
        call(first)
    wanted = []
    for seed in range(3):
        device.memory_cleanup()  # drops the programs
        wanted.append(results_of(call(Arguments(device, seed))))
    for _ in range(2):
        call(first)
    device.synchronize()
    for seed in range(3):
        arguments = Arguments(device, seed)
        poison(device, 4 * N, N, 2 * N, 4 * 32, 4)
        with assert_launches(device):
            result = call(arguments)
        for array, expected in zip(results_of(result), wanted[seed], strict=True):
            assert_same(array, expected, (kind, seed))
    stages, results = count_stages(device, call, first), len(results_of(result))
    call(first)
    # Now and then a launch writes the parameters of many later ones.
    calls = min(Counted().of(partial(call, first)) for _ in range(3))
    assert calls <= FIRST + EACH_STAGE * (stages - 1) + EACH_RESULT * (results - 1), calls


# What reads results, and the same of NumPy arrays.
READS: dict[str, Callable[[Any], Any]] = {
    "array": lambda a: np.asarray(a.i),
    "part of an array": lambda a: np.asarray(a.i[3:9]),
    "transposed view": lambda a: np.asarray(a.rows.T),
    "every other number": lambda a: np.asarray(a.i[::-2]),
    "picked numbers": lambda a: np.asarray(a.i[a.mask]),
    "places of numbers": lambda a: np.asarray(np.nonzero(a.i)[0]),
    "unique numbers": lambda a: np.asarray(np.unique(a.i)),
    "sum": lambda a: int(a.i.sum()),
    "one number": lambda a: int(a.i[5]),
    "truth": lambda a: bool((a.i > 98).any()),
    "equal arrays": lambda a: np.array_equal(a.i, a.j),
    "close arrays": lambda a: np.allclose(a.f, a.f, atol=1e-3),
}


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("kind", READS)
def test_a_read(device: gs.Device, kind: str) -> None:
    """Assert that a call that reads its result waits once, takes few calls, and has NumPy's result."""
    call, arguments = READS[kind], Arguments(device, 1)
    wanted = call(SimpleNamespace(**{
        name: value.numpy() for name, value in vars(arguments).items() if isinstance(value, gs.Array)
    }))  # fmt: skip
    for _ in range(4):
        assert_same(np.asarray(call(arguments)).astype(np.asarray(wanted).dtype), np.asarray(wanted))
    with count_waits(device) as waits:
        call(arguments)
        assert len(waits) == 1
    calls = min(Counted().of(partial(call, arguments)) for _ in range(3))
    assert calls <= FIRST + READ + EACH_STAGE * (count_stages(device, call, arguments) - 1), calls


def test_scans_of_groups(device: gs.Device) -> None:
    """Assert that scans of long arrays launch one program for any number of labels, which the GPU counts."""
    length = group_heuristics_for(device.capabilities.adapter_type).min_counted_elements
    length = length if length < 1 << 16 else 1 << 16
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 9, length).astype(np.int32)
    a, out = device.asarray(x), device.empty((length,), np.int32)
    for reach in (5, 5, 5, 3, 5, 40_000, 40_000, 3):
        labels = rng.integers(0, reach, length).astype(np.int32)
        labels[:2] = reach - 1
        there = device.asarray(labels)
        cases: list[dict[str, Any]] = [{}, {"out": out}, {"exclusive": True, "after": lambda v: v * 2}]
        for options in cases:
            known = {name: value for name, value in options.items() if name != "out"}
            got = gs.scan(a, groups=there, **options)
            assert (got is out) == ("out" in options)
            assert_same(got.numpy(), gs.scan(x, groups=labels, device="numpy", **known), (reach, *options))
    calls = Counted().of(lambda: gs.scan(a, groups=there))
    assert calls <= 800, calls


@pytest.mark.parametrize("function", [np.multiply, np.add, np.copysign])
def test_numbers_are_told_apart(device: gs.Device, function: Any) -> None:
    """Assert that equal numbers of other types, or of other bits, are other calls."""
    x = np.array([-2.0, -0.0, 0.0, 3.0], np.float32)
    a = device.asarray(x)
    if function is np.copysign:
        numbers: list[Any] = [0.0, -0.0, 1.0, np.float32(-0.0)]
    else:
        numbers = [1, True, 1.0, np.float32(1), 0.0, -0.0, 0, False, np.int8(1), np.float16(1)]
    for number in 2 * numbers:
        wanted, got = function(x, number), function(a, number)
        assert got.dtype == wanted.dtype, number
        assert got.numpy().tobytes() == wanted.tobytes(), (number, got.numpy(), wanted)


def test_arrays_that_share_a_buffer(device: gs.Device) -> None:
    """Assert that calls with overlapping arrays do not share a program with calls without overlaps."""
    x = np.random.default_rng(0).integers(-9, 9, 600).astype(np.int32)
    for _ in range(3):
        a, b = device.asarray(x), device.asarray(x)
        assert_same((a[:300] + b[:300]).numpy(), x[:300] + x[:300])
        assert_same((a[:300] + a[:300]).numpy(), x[:300] + x[:300])
        assert_same((a[:300] + a[300:]).numpy(), x[:300] + x[300:])
        gs.scan(a[:300], out=b[300:])
        assert_same(b.numpy(), np.concatenate([x[:300], np.cumsum(x[:300], dtype=np.int32)]))
        gs.scan(a[:300], out=a[:300])
        gs.scan(a[100:400], out=a[200:500])
        wanted = np.concatenate([np.cumsum(x[:300], dtype=np.int32), x[300:]])
        wanted[200:500] = np.cumsum(wanted[100:400], dtype=np.int32)
        assert_same(a.numpy(), wanted)
        ADD(b[:-1], b[1:], out=b[1:])


def test_equal_functions_share_a_program(device: gs.Device) -> None:
    """Assert that an equal function makes no other call."""
    a = device.asarray(np.arange(100, dtype=np.int32))

    def make_doubling() -> Callable[[Any], Any]:
        return lambda v: v * 2

    for _ in range(3):
        gs.scan(a, before=make_doubling())
    before = count_programs(device)
    gs.scan(a, before=make_doubling())
    assert count_programs(device) == before


# Calls that mean the same, of a row, of a matrix, and of an array for the result.
SPELLINGS: dict[str, list[Callable[[gs.Array, gs.Array, gs.Array], Any]]] = {
    "operator": [
        lambda a, m, o: gs.scan(a),
        lambda a, m, o: gs.scan(a, "add"),
        lambda a, m, o: gs.scan(a, op="add"),
        lambda a, m, o: gs.scan(x=a, op=np.add),
        lambda a, m, o: gs.scan(op=np.add, x=a, axis=None, exclusive=False, initial=None, strategy="auto"),
        lambda a, m, o: UNTYPED.scan(a, exclusive=0, reverse=np.False_),
    ],
    "another operator": [
        lambda a, m, o: gs.scan(a, "maximum", out=o),
        lambda a, m, o: gs.scan(a, np.maximum, out=o),
        lambda a, m, o: gs.scan(out=o, op="maximum", x=a),
    ],
    "flags": [
        lambda a, m, o: gs.scan(a, exclusive=True),
        lambda a, m, o: UNTYPED.scan(a, exclusive=np.True_),
        lambda a, m, o: UNTYPED.scan(a, exclusive=1, axis=0),
    ],
    "axis of a row": [
        lambda a, m, o: gs.reduce(a),
        lambda a, m, o: gs.reduce(a, axis=0),
        lambda a, m, o: gs.reduce(a, axis=-1),
        lambda a, m, o: gs.reduce(a, axis=(0,)),
        lambda a, m, o: UNTYPED.reduce(a, axis=np.int64(0)),
    ],
    "axis of a matrix": [
        lambda a, m, o: gs.reduce(m, axis=1),
        lambda a, m, o: gs.reduce(m, axis=-1),
        lambda a, m, o: gs.reduce(m, "add", axis=(1,)),
        lambda a, m, o: UNTYPED.reduce(m, axis=np.int8(-1)),
    ],
    "last axis": [
        lambda a, m, o: gs.sort(m),
        lambda a, m, o: gs.sort(m, axis=-1),
        lambda a, m, o: gs.sort(m, axis=1),
        lambda a, m, o: UNTYPED.sort(x=m, axis=np.int32(1), descending=False),
    ],
    "number of groups": [
        lambda a, m, o: gs.reduce(a, groups=a, num_groups=100),
        lambda a, m, o: gs.reduce(a, groups=a, num_groups=np.int64(100)),
    ],
    "two arrays": [
        lambda a, m, o: gs.linear_recurrence(m, m),
        lambda a, m, o: gs.linear_recurrence(m, b=m),
        lambda a, m, o: gs.linear_recurrence(b=m, a=m, axis=1),
    ],
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_equal_calls_share_a_program(device: gs.Device, kind: str) -> None:
    """Assert that calls that mean the same launch one program, however they are written."""
    x = np.arange(100, dtype=np.int32)
    a, m, o = (device.asarray(array) for array in (x, x.astype(np.float32).reshape(10, 10) % 3, x))
    first, *others = SPELLINGS[kind]
    for _ in range(3):  # the first launch of a kernel may wait, to see how large its subgroups are
        wanted = results_of(first(a, m, o))
    before = count_programs(device)
    for call in others:
        for array, expected in zip(results_of(call(a, m, o)), wanted, strict=True):
            assert_same(array, expected)
    assert count_programs(device) == before > 0


def test_calls_that_mean_something_else(device: gs.Device) -> None:
    """Assert that arguments that are refused are refused also if similar ones are not."""
    m = device.asarray(np.ones((4, 4, 4), np.float32))
    a = device.asarray(np.ones(4, np.float32))
    for _ in range(3):
        gs.scan(a, axis=0)
        gs.scan(m, lambda l, r: l @ r, axis=-1)  # along the only axis that is no part of a matrix
        gs.sort(m, axis=-1)
    for wrong in (
        lambda: UNTYPED.scan(a, axis=(0,)),
        lambda: UNTYPED.scan(a, axis=0.0),
        lambda: gs.scan(a, axis=False),
        lambda: gs.scan(a, axis=-2),
        lambda: gs.scan(m, lambda l, r: l @ r, axis=2),
        lambda: UNTYPED.sort(m, axis=-1.0),
        lambda: UNTYPED.scan(a, exclusive=2),
        lambda: UNTYPED.scan(a, "add", op="add"),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_functions_are_known_by_what_they_read(device: gs.Device) -> None:
    """Assert that a function that reads something else now is another call."""
    x = np.arange(1, 50, dtype=np.int32)
    a, holder = device.asarray(x), [1]
    factor = 1

    def scale_value(v: Any) -> Any:
        return v * factor

    for factor in (1, 2, 3, 2, 1):
        holder[0] = factor
        assert_same(gs.map(scale_value, a).numpy(), x * factor)
        assert_same(gs.map(lambda v: v * holder[0], a).numpy(), x * factor)
        assert_same(gs.scan(a, before=scale_value).numpy(), np.cumsum(x * factor, dtype=np.int32))


def test_results_live_apart(device: gs.Device) -> None:
    """Assert that a result that is kept is not overwritten by later calls, and that memory goes back."""
    x = np.arange(500, dtype=np.int32)
    a = device.asarray(x)
    kept = [gs.scan(a + number) for number in range(40)]
    for number, result in enumerate(kept):
        assert_same(result.numpy(), np.cumsum(x + number, dtype=np.int32))
    used = device.memory_usage().bytes_in_use
    del kept, result
    gc.collect()
    assert device.memory_usage().bytes_in_use < used


def test_programs_follow_the_device(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that distrust, the environment and a clean-up make calls plan again."""
    device = own_device
    x = np.arange(5000, dtype=np.uint32)
    a = device.asarray(x)

    def right() -> None:
        for _ in range(3):
            assert_same(gs.scan(a).numpy(), np.cumsum(x, dtype=np.uint32))

    right()
    assert count_programs(device) > 0
    with timeouts_apart(device):
        distrust(device, "lookback")
        assert count_programs(device) == 0
        right()
    before = count_programs(device)
    monkeypatch.setenv("GPUSCAN_STRATEGY", "three_dispatch")
    right()
    assert count_programs(device) > before
    device.memory_cleanup()
    assert count_programs(device) == 0
    assert device.memory_usage().bytes_in_use == a.buffer.size
    right()


def test_offsets_are_checked_at_each_launch(device: gs.Device) -> None:
    """Assert that wrong offsets on the device are reported after launches, too, and that right ones are not."""
    a = device.asarray(np.ones(100, np.int32))
    right, wrong = (device.asarray(np.array(offsets, np.int32)) for offsets in ([0, 10, 100], [0, 120, 100]))
    for _ in range(4):
        gs.scan(a, segments=right)
    device.synchronize()
    for _ in range(2):
        gs.scan(a, segments=wrong)
        gs.scan(a, segments=right)
        with pytest.raises(ValueError, match="segments"):
            device.synchronize()
        assert int(gs.scan(a, segments=right).numpy()[-1]) == 90


def test_a_failing_call_is_not_kept(device: gs.Device) -> None:
    """Assert that a call that raises raises again, and leaves the device usable."""
    a, b = device.asarray(np.ones(10, np.int32)), device.asarray(np.ones(11, np.int32))
    for _ in range(3):
        with pytest.raises(ValueError, match="broadcast"):
            a + b
        with pytest.raises(ValueError, match="axis"):
            gs.scan(a.reshape(5, 2))
        with pytest.raises(gs.OperatorError):
            gs.scan(a, before=lambda v: v if v > 0 else -v)
        assert_same(gs.scan(a).numpy(), np.arange(1, 11, dtype=np.int32))


# Calls of an array on a device and one of NumPy.
BESIDE_NUMPY: dict[str, Callable[[Any, Any], Any]] = {
    "operator": lambda a, x: a + x,
    "from the left": lambda a, x: x - a,
    "ufunc": np.maximum,
    "map": lambda a, x: gs.map(lambda v, w: v * 2 + w, a, x),
    "bundle": lambda a, x: gs.reduce({"a": a, "b": x}, lambda l, r: {"a": l["a"] + r["a"], "b": l["b"] + r["b"]})["b"],
}


@pytest.mark.parametrize("kind", BESIDE_NUMPY)
@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float16, np.float32])
def test_arrays_of_numpy(device: gs.Device, kind: str, dtype: Any) -> None:
    """Assert that other arrays of NumPy are other inputs of one program, and that their contents count."""
    call, rng = BESIDE_NUMPY[kind], np.random.default_rng(0)
    n = 2 * N
    x = rng.integers(-9, 9, n).astype(np.int32 if np.dtype(dtype).kind == "i" else np.float32)
    a = device.asarray(x)
    arrays = [rng.integers(-9, 9, 2 * n).astype(dtype)[::step][:n] for step in (1, 2, -1) for _ in range(20)]
    for array in arrays[:-6]:
        call(a, array)
    for array in arrays[-6:]:
        wanted = np.asarray(x * 2 + array if kind == "map" else call(x, array))
        with assert_launches(device):
            found = call(a, array)
        assert_same(found.numpy(), wanted.astype(found.dtype), kind)
    # The upload of an array takes as many calls as a launch.
    calls = min(Counted().of(partial(call, a, array)) for array in arrays[:3])
    assert calls <= 3 * FIRST, calls
    with pytest.raises(ValueError, match="broadcast"):
        call(a, arrays[0][:-1])


@pytest.mark.parametrize("count", [600])
@pytest.mark.parametrize("kind", ["read", "number", "array", "array on the device"])
def test_indices_of_numpy(device: gs.Device, kind: str, count: int) -> None:
    """Assert that other indices and values of NumPy are other inputs of one program, and are checked at each call."""
    rng = np.random.default_rng(0)
    x = rng.integers(-99, 99, (N, 2)).astype(np.int32)
    a = device.asarray(x)

    def call(index: Array, value: Any) -> Any:
        if kind == "read":
            return a[index]
        a[index] = device.asarray(value) if kind == "array on the device" else value
        return a

    def check(index: Array) -> None:
        value: Any = 7 if kind == "number" else rng.integers(-99, 99, (count, 2)).astype(np.int32)
        if kind != "read":
            x[index] = value
        found = call(index, value)
        assert_same(found.numpy(), x[index] if kind == "read" else x, kind)

    indices = [rng.integers(-N, N, count).astype(dtype) for dtype in (np.int64, np.int16) for _ in range(12)]
    for index in indices:
        check(index)
    known = count_programs(device)
    for index in indices[::-8]:
        with assert_no_waits(device):
            call(index, 5 if kind != "array" else np.full((count, 2), 5.0))
        if kind != "read":
            x[index] = 5
        check(index)
    assert count_programs(device) <= known + 2  # of another number, and of another shape of values
    value: Any = 7 if kind != "array" else np.ones((count, 2))
    calls = min(Counted().of(partial(call, index, value)) for index in indices[:3])
    assert calls <= 5 * FIRST, calls
    if kind != "read":
        for index in indices[:3]:
            x[index] = value
    with pytest.raises(IndexError):
        call(indices[0] + N, value)
    if kind == "array":
        for wrong in (np.ones(3), np.full((count, 2), None), np.ones((2, count, 2))):
            with pytest.raises((ValueError, TypeError)):
                call(indices[0], wrong)
    check(indices[0])


# Calls that wait for the GPU, with the programs that they launch and the reads that they wait for.
WAITING: dict[str, tuple[Callable[[Arguments], Any], int, int]] = {
    "reduce groups": (lambda a: gs.reduce(a.i, groups=a.labels), 3, 1),
    "bincount": (lambda a: gs.bincount(a.keys), 1, 1),
    "weighted bincount": (lambda a: gs.bincount(a.keys, weights=a.f), 3, 2),
    "histogram": (lambda a: gs.histogram(a.f), 4, 3),
    "assigned to a mask": (lambda a: assign(a.j.copy(), a.mask, a.i[a.mask]), 4, 2),
    "allclose": (lambda a: np.allclose(a.f, a.g), 2, 1),
    "array_equal": (lambda a: np.array_equal(a.f, a.f), 3, 1),
    "item": (lambda a: a.i.sum().item(), 1, 1),
    "repeat by an array": (lambda a: gs.repeat(a.i, a.labels), 2, 1),
    "Newton's method": (lambda a: gs.loop(lambda h, x: 0.1 * np.sin(h) + x, 0.0, a.f, method="newton")[:2], 6, 5),
}


@pytest.mark.parametrize("kind", WAITING)
def test_calls_that_wait(device: gs.Device, kind: str) -> None:
    """Assert that calls that no program can do launch the programs of the functions that they call."""
    call, programs, reads = WAITING[kind]
    for seed in range(6):
        arguments = Arguments(device, seed % 3)
        found = results_of(call(arguments))
        if seed < 3:
            device.memory_cleanup()  # drops the programs
        for array, wanted in zip(results_of(call(arguments)), found, strict=True):
            assert_same(array, wanted, kind)
    calls = min(Counted().of(partial(call, arguments)) for _ in range(3))
    # The call itself looks for a program, too. A read takes as many calls as two programs.
    assert calls <= FIRST * (1 + programs + 2 * reads), calls


def test_calls_are_recorded_again(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a kind of calls gets its program although its first calls did what no program can do."""
    a = own_device.asarray(np.ones(100, np.float32))

    def double() -> None:
        assert_same(gs.map(lambda v: v * 2, a).numpy(), np.full(100, 2, np.float32))

    with monkeypatch.context() as patched:
        keep_no_programs(patched)
        for _ in range(5):
            double()
    assert count_programs(own_device) == 0
    for _ in range(64):
        double()
    assert count_programs(own_device) == 1
