"""A user's program, with the type that a checker has to find for each result. Nothing runs it."""

from __future__ import annotations

from typing import Any, NamedTuple, assert_type

import numpy as np
from numpy.typing import NDArray

import gpuscan as gs
from gpuscan import signal

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class Sample(NamedTuple):
    """A bundle."""

    time: Floats
    place: Floats


def scans(x: Floats, a: gs.Array, unknown: NDArray[Any], sample: Sample, sharded: gs.ShardedArray) -> None:
    """Scan arrays and bundles: the result has the type of the input."""
    assert_type(gs.scan(x), Floats)
    assert_type(gs.scan(x, "maximum", exclusive=True, initial=0, strategy="lookback", device="numpy"), Floats)
    assert_type(gs.scan(x, groups=[0, 1, 0], device=gs.devices()), Floats)
    assert_type(gs.scan(unknown), NDArray[Any])
    assert_type(gs.scan([1, 2, 3]), NDArray[Any])
    assert_type(gs.scan(a, lambda l, r: np.maximum(l, r)), gs.Array)
    assert_type(gs.scan(sharded), gs.ShardedArray)
    assert_type(gs.scan((x, a)), tuple[Floats, gs.Array])
    assert_type(gs.scan([x, [x, x]]), list[Floats | list[Floats]])
    assert_type(gs.scan({"x": x}), dict[str, Floats])
    fields = {"x": x, "flags": unknown > 0}  # for mypy a dict of objects
    gs.scan(fields, lambda l, r: r, out={name: np.empty_like(x) for name in fields})
    gs.scan([x, unknown > 0], lambda l, r: r)
    assert_type(gs.scan(sample), Sample)
    assert_type(gs.scan(x, dtype=np.float64), NDArray[np.float64])
    assert_type(gs.scan(x, dtype=np.dtype(np.float64)), NDArray[np.float64])
    assert_type(gs.scan(x, dtype="f8"), NDArray[Any])
    assert_type(gs.scan(a, dtype="f4"), gs.Array)
    assert_type(gs.scan(x, out=a), gs.Array)
    assert_type(gs.scan(a, return_total=True), tuple[gs.Array, gs.Array])
    assert_type(gs.scan(x, return_total=True)[0], Floats)
    for part in gs.scan_chunks([x, x]):
        assert_type(part, Floats)
    for wide in gs.scan_chunks([x, x], dtype=np.float64):
        assert_type(wide, NDArray[np.float64])


def reductions(x: Floats, a: gs.Array) -> None:
    """Reduce arrays. Whether axes are left, NumPy's types do not know, so such results may be anything."""
    assert_type(gs.reduce(x), np.float32)
    assert_type(gs.reduce(x, dtype=np.float64), np.float64)
    assert_type(gs.reduce(a), gs.Array)
    assert_type(gs.reduce(a, axis=0, keepdims=True), gs.Array)
    assert_type(gs.reduce(x, axis=0), Floats | Any)
    assert_type(gs.reduce(x, segments=[0, 2, 3]), Floats | Any)
    assert_type(gs.reduce(x, groups=x, num_groups=np.int64(3)), Floats | Any)
    assert_type(gs.reduce_by_key(x, a), tuple[Floats, gs.Array])


def orders(x: Floats, n: Indices, a: gs.Array) -> None:
    """Sort, count and select."""
    assert_type(gs.sort(x, descending=True), Floats)
    assert_type(gs.sort(a), gs.Array)
    assert_type(gs.sort(x, segments=a), gs.Array)
    assert_type(gs.argsort(x), Indices)
    assert_type(gs.argsort(a), gs.Array)
    assert_type(gs.sort_by_key(n, x), tuple[Indices, Floats])
    assert_type(gs.sort_by_key(n, a), tuple[gs.Array, gs.Array])
    assert_type(gs.sort_by_key(n, [x, n]), tuple[Any, Any])
    assert_type(gs.top_k(x, 2), tuple[Floats, Indices])
    assert_type(gs.compact(x, x > 0), Floats)
    assert_type(gs.compact(a, lambda v: v > 0), gs.Array)
    assert_type(gs.compact(a, a > 0).count, gs.Array)
    assert_type(gs.compact((x, n), n > 0), tuple[Floats, Indices])
    assert_type(gs.partition_by(x, n > 0), tuple[Floats, Floats])
    assert_type(gs.unique_values(x), Floats)
    assert_type(gs.unique_counts(x).values, Floats)
    assert_type(gs.unique_counts(x).counts, Indices)
    assert_type(gs.unique_all(a).indices, gs.Array)
    assert_type(gs.unique_inverse(x).inverse_indices, Indices)
    assert_type(gs.run_length_encode(x).counts, Indices)
    assert_type(gs.bincount(n), Indices)
    assert_type(gs.bincount(n, minlength=n.max() + 1), Indices)
    assert_type(gs.bincount(n, weights=[0.5, 1.0]), NDArray[np.float64])
    assert_type(gs.histogram(x, range=(0, 1)), tuple[Indices, NDArray[Any]])
    assert_type(gs.searchsorted(x, x, side="right"), Indices)
    assert_type(gs.searchsorted(x, a), gs.Array)
    assert_type(gs.repeat(x, 2), Floats)
    assert_type(gs.quantile(a, 0.5, method="lower"), gs.Array)
    assert_type(gs.quantile(x, [0.25, 0.75]), NDArray[Any])
    assert_type(gs.median(a), gs.Array)


def halve_value(value: float) -> float:
    """Return half of a number: a function for one element, which also is one for arrays."""
    return value / 2


def maps(x: Floats, a: gs.Array) -> None:
    """Map arrays: a function gives one array, unless it returns a tuple."""
    assert_type(gs.map(lambda v: 2 * v + 1, x), NDArray[Any])
    assert_type(gs.map(lambda v: 2 * v + 1, a), gs.Array)
    assert_type(gs.map(lambda v: np.where(v > 0, v, 0), a), gs.Array)
    assert_type(gs.map(lambda v, w: v * w, x, a), gs.Array)
    assert_type(gs.map(lambda v, w: v * w, a, 2), gs.Array)
    assert_type(gs.map(halve_value, a), gs.Array)
    assert_type(gs.map(lambda v: v + 1, a, out=x), Floats)


def recurrences(x: Floats, n: NDArray[np.int8], u: NDArray[np.uint8], a: gs.Array) -> None:
    """Sums, recurrences and gradients."""
    assert_type(gs.cumulative_sum(x), Floats)
    assert_type(gs.cumulative_sum(n), Indices)
    assert_type(gs.cumulative_sum(x > 0), Indices)
    assert_type(gs.cumulative_sum(u), NDArray[np.uint64])
    assert_type(gs.cumulative_prod(a, include_initial=True), gs.Array)
    assert_type(gs.linear_recurrence(x, x), Floats)
    assert_type(gs.linear_recurrence(0.5, x), Floats)
    assert_type(gs.linear_recurrence(0.5, a), gs.Array)
    assert_type(gs.linear_recurrence(x, a), gs.Array)
    assert_type(gs.linear_recurrence_vjp(a, a, a), tuple[gs.Array, gs.Array, None])
    assert_type(gs.linear_recurrence_vjp(x, x, x)[1], Floats)
    assert_type(gs.scan_vjp(x, x, x, "multiply"), Floats)
    assert_type(gs.scan_vjp(a, a, a), gs.Array)
    assert_type(gs.loop_vjp(lambda h, v: 0.5 * h + v, 0.0, x, x)[1], Floats)
    assert_type(gs.loop(lambda h, v: 0.5 * h + v, 0.0, x, method="newton").iterations, int | None)


def filters(x: Floats, a: gs.Array) -> None:
    """Filters: the result is where the signal is; a filter that begins in a state returns a pair."""
    assert_type(signal.lfilter([1.0], [1.0, -0.5], x), NDArray[Any])
    assert_type(signal.lfilter([1.0], [1.0, -0.5], a), gs.Array)
    assert_type(signal.lfilter([1.0], [1.0, -0.5], a, zi=[0.5]), tuple[gs.Array, gs.Array])
    assert_type(signal.lfilter([1.0], [1.0, -0.5], x, 0, x), tuple[NDArray[Any], NDArray[Any]])
    assert_type(signal.sosfilt([[1, 0, 0, 1, 0, 0]], a), gs.Array)
    assert_type(signal.sosfilt([[1, 0, 0, 1, 0, 0]], [1.0, 2.0], zi=[[0.0, 0.0]]), tuple[NDArray[Any], NDArray[Any]])
    assert_type(signal.filtfilt([1.0], [1.0], a, padtype=None), gs.Array)
    assert_type(signal.sosfiltfilt([[1, 0, 0, 1, 0, 0]], x), NDArray[Any])
    assert_type(signal.ewm_mean(a, alpha=0.5), gs.Array)
    assert_type(signal.ewm_var(x, span=3, bias=True), NDArray[Any])


def arrays(x: Floats) -> None:
    """Arrays on a device: operators and methods give such arrays again."""
    device = gs.default_device()
    a = device.asarray(x)
    assert_type(a, gs.Array)
    assert_type(device.empty((2, 3), np.float32), gs.Array)
    assert_type(device.empty(np.prod(x.shape), np.float32), gs.Array)
    assert_type(a + 1, gs.Array)
    assert_type(2 * a, gs.Array)
    assert_type(-a / x, gs.Array)
    assert_type(a < 1, gs.Array)
    assert_type(a == 1, gs.Array)
    assert_type(divmod(a, 2), tuple[gs.Array, gs.Array])
    a += 1
    assert_type(a, gs.Array)
    assert_type(a[1:, ::2], gs.Array)
    assert_type(a.sum(axis=0), gs.Array)
    assert_type(a.T.reshape(2, -1).astype(np.float16), gs.Array)
    assert_type(a.numpy(), NDArray[Any])
    plan = device.plan(4, np.float32, "maximum", strategy="three_dispatch")
    assert_type(plan(a, out=x), Floats)
