"""Arrays in shards on several devices. Devices on one adapter stand in for several GPUs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.device_groups import cut_in_order
from tests.harness.devices import mark_lost, pool_of
from tests.oracle import affine, assert_same

RNG = np.random.default_rng(29)
X = RNG.integers(-9, 9, (40, 7)).astype(np.int32)


@cache
def three_on(adapter: wgpu.GPUAdapter) -> list[gs.Device]:
    return [gs.Device(adapter) for _ in range(3)]


@pytest.fixture
def three(adapter: wgpu.GPUAdapter) -> list[gs.Device]:
    """Return three devices on one adapter."""
    return three_on(adapter)


@pytest.mark.parametrize(("sharded", "axis"), [(0, 0), (0, 1), (1, 0)])
def test_scans_and_reductions(three: list[gs.Device], sharded: int, axis: int) -> None:
    """Scan and reduce along the divided axis and along the other one."""
    x = gs.ShardedArray.from_numpy(X, three[:2], axis=sharded)
    assert (x.shape, x.dtype, x.nbytes, len(x.shards)) == (X.shape, X.dtype, X.nbytes, 2)
    assert_same(np.asarray(x), X)
    rows = RNG.integers(-9, 9, np.delete(X.shape, axis)).astype(np.int32)
    kinds: list[dict[str, Any]] = [{}, {"initial": rows, "exclusive": True, "reverse": True}]
    for options in [*kinds, {"dtype": np.int64, "initial": 4}]:
        found = gs.scan(x, axis=axis, **options)
        assert isinstance(found, gs.ShardedArray)
        assert [shard.device for shard in found.shards] == three[:2]
        assert_same(found.numpy(), gs.scan(X, axis=axis, device="numpy", **options))
    for options in ({"keepdims": True}, {"initial": rows, "after": lambda v: v * 2}):
        found = x.reduce(axis=axis, **options)
        assert isinstance(found, gs.ShardedArray) == (axis != sharded)
        assert_same(np.asarray(found), gs.reduce(X, axis=axis, device="numpy", **options))


def last_odd(left: Any, right: Any) -> Any:
    """Return the last odd number: this does not commute."""
    return np.where(right % 2 == 1, right, left)


@pytest.mark.parametrize(("sharded", "reverse"), [(0, False), (0, True), (1, True)])
def test_segments_and_keys(
    three: list[gs.Device], sharded: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut the rows anywhere, in the middle of shards and between them; the totals are not cut."""
    if not sharded:
        cut_in_order(monkeypatch)
    x = gs.ShardedArray.from_numpy(X, three[:2], axis=sharded)
    keys = np.repeat(np.array([3, 1, 2], np.int16), [4, 31, 5])
    own = RNG.integers(0, 2, X.shape).astype(np.int16) if sharded else keys
    offsets = ([0, 3, 3, 38, 40], [0, 5, 8, 24, 40], [0, 40])
    cuts: list[Any] = [*({"segments": each} for each in offsets), {"keys": keys}]
    cuts.append({"keys": gs.ShardedArray.from_numpy(own, three[:2], axis=sharded)})
    options: dict[str, Any] = {"reverse": True, "exclusive": True, "initial": X[5]} if reverse else {}
    for cut in cuts:
        found = gs.scan(x, last_odd, axis=0, return_total=True, **options, **cut)
        wanted = {"keys": own} if isinstance(cut.get("keys"), gs.ShardedArray) else cut
        whole = gs.scan(X, last_odd, axis=0, return_total=True, device="numpy", **options, **wanted)
        for part, result in zip(found, whole, strict=True):
            assert_same(np.asarray(part), result)
    for cut in cuts[:3] if sharded == reverse else ():
        options = {"axis": 0, "initial": X[7], "after": lambda v: v * 2}
        reduced = gs.reduce(x, last_odd, **cut, **options)
        assert isinstance(reduced, gs.ShardedArray) == bool(sharded)
        assert_same(np.asarray(reduced), gs.reduce(X, last_odd, device="numpy", **cut, **options))


def results_in_place(three: list[gs.Device]) -> None:
    """Write to arrays that are divided like the input, and over the input."""
    x = gs.ShardedArray.from_numpy(X, three[:2])
    out = gs.ShardedArray.from_numpy(np.full_like(X, 77), three[:2])
    offsets = [0, 3, 38, 40]
    assert gs.scan(x, axis=0, out=out, segments=offsets) is out
    assert_same(out.numpy(), gs.scan(X, axis=0, segments=offsets, device="numpy"))
    found, total = gs.scan(x, axis=0, out=x, segments=offsets, reverse=True, return_total=True)
    assert found is x
    assert_same(x.numpy(), gs.scan(X, axis=0, segments=offsets, reverse=True, device="numpy"))
    assert_same(total, X.sum(0, dtype=np.int32))
    # One device alone refuses this. It must not be refused after another device has overwritten its shard.
    x = gs.ShardedArray.from_numpy(X, three)
    assert gs.scan(x, axis=0, out=x, strategy="fallback") is x
    assert_same(x.numpy(), np.cumsum(X, axis=0, dtype=np.int32))
    # Reductions, along the divided axis to NumPy's arrays, and along another one to sharded arrays.
    x = gs.ShardedArray.from_numpy(X, three)
    totals = np.empty((1, 7), np.int32)
    assert gs.reduce(x, axis=0, keepdims=True, out=totals) is totals
    assert_same(totals, X.sum(0, dtype=np.int32, keepdims=True))
    totals = np.empty((), np.int32)
    assert_same(gs.reduce(x, "maximum", out=totals), np.array(X.max()))
    assert_same(gs.reduce(x, keepdims=True, axis=(0, 1), initial=4), X.sum(keepdims=True, dtype=np.int32) + 4)
    rows = {key: gs.ShardedArray.from_numpy(np.full((40, 1), 77, np.int32), three) for key in "ba"}
    pair = {"a": x, "b": gs.ShardedArray.from_numpy(X * 2, three)}
    added = lambda l, r: {"a": l["a"] + r["a"], "b": l["b"] + r["b"]}  # noqa: E731
    assert gs.reduce(pair, added, axis=1, keepdims=True, out=rows) is rows
    assert_same(rows["b"].numpy(), 2 * X.sum(1, dtype=np.int32, keepdims=True))
    segments = gs.ShardedArray.from_numpy(np.empty((40, 2), np.int32), three)
    gs.reduce(x, axis=1, segments=[0, 3, 7], keepdims=True, out=segments)
    assert_same(segments.numpy(), gs.reduce(X, axis=1, segments=[0, 3, 7], device="numpy"))
    wrong: Any
    for wrong, error, message in (
        (totals, ValueError, "that is divided between devices"),
        (segments, ValueError, r"a result of shape \(40,\)"),
        (gs.ShardedArray.from_numpy(np.zeros(40, np.uint32), three), TypeError, "out of dtype uint32 was passed"),
    ):
        with pytest.raises(error, match=message):
            gs.reduce(x, axis=1, out=wrong)
    with pytest.raises(ValueError, match="its structure is another one"):
        gs.reduce((x, x), affine, axis=1, out=[x])
    with pytest.raises(ValueError, match="share memory"):
        gs.reduce((pair["a"], pair["b"]), affine, axis=0, out=(sums := np.empty(7, np.int32), sums))


def totals_and_types(three: list[gs.Device]) -> None:
    """Return totals as numbers and arrays, sums of float32 that are rounded once, and lists for lists."""
    flat = X.ravel()[:60]
    for reverse in (False, True):
        found, total = gs.scan(gs.ShardedArray.from_numpy(flat, three), reverse=reverse, return_total=True)
        assert_same(found.numpy(), gs.scan(flat, reverse=reverse, device="numpy"))
        assert_same(total, flat.sum(dtype=np.int32))
    floats = RNG.random(60).astype(np.float32)
    sums = gs.scan(gs.ShardedArray.from_numpy(floats, three), compensated=True)
    assert_same(sums.numpy(), np.cumsum(floats, dtype=np.float64).astype(np.float32))
    for places in ([True, True, False, False] * 15, [False] * 60):
        keys = np.where(places, np.float32(np.nan), np.float32(1))
        cut = gs.scan(
            gs.ShardedArray.from_numpy(flat, three), keys=gs.ShardedArray.from_numpy(keys, three), reverse=True
        )
        assert_same(cut.numpy(), gs.scan(flat, keys=keys, reverse=True, device="numpy"))


def operators_that_do_not_commute(three: list[gs.Device]) -> None:
    matrices = RNG.integers(-2, 3, (30, 2, 2)).astype(np.int32)
    sharded = gs.ShardedArray.from_numpy(matrices, three)
    assert_same(sharded.scan("matmul", reverse=True).numpy(), gs.scan(matrices, "matmul", reverse=True, device="numpy"))
    assert_same(gs.reduce(sharded, "matmul"), gs.reduce(matrices, "matmul", device="numpy"))
    gates, inputs = RNG.integers(-2, 3, (2, 60)).astype(np.int32)
    pair = tuple(gs.ShardedArray.from_numpy(part, three) for part in (gates, inputs))
    for part, whole in zip(gs.scan(pair, affine), gs.scan((gates, inputs), affine, device="numpy"), strict=True):
        assert_same(part.numpy(), whole)
    assert gs.reduce(pair, affine, initial=(1, 2)) == gs.reduce((gates, inputs), affine, initial=(1, 2), device="numpy")
    # All elements, in C order, of an array that is divided along its last axis.
    table = gs.ShardedArray.from_numpy(X, three, axis=1)
    assert int(gs.reduce(table)) == X.sum()
    assert int(gs.reduce(table, lambda l, r: l, initial=5)) == 5
    last = gs.reduce(table, lambda l, r: r)
    assert int(last) == X[-1, -1]


def short_arrays(three: list[gs.Device]) -> None:
    """Leave devices out where there are fewer elements than devices, or none."""
    one = gs.ShardedArray.from_numpy(np.array([5, 6], np.int32), three)
    assert_same(gs.scan(one).numpy(), np.array([5, 11], np.int32))
    none = gs.ShardedArray.from_numpy(np.zeros(0, np.int32), three)
    assert gs.scan(none).shape == (0,)
    assert int(gs.reduce(none)) == 0


def what_is_refused(three: list[gs.Device]) -> None:
    x = gs.ShardedArray.from_numpy(X, three)
    other = gs.ShardedArray.from_numpy(X, three[:2])
    across = gs.ShardedArray.from_numpy(X, three, axis=1)
    vectors = gs.operator(lambda l, r: l + r, element_axes=1)
    for call, error, message in (
        (lambda: gs.reduce(x, axis=0, out=x), TypeError, "pass a NumPy array"),
        (lambda: gs.scan(x, axis=0, groups=[0] * 40), TypeError, "groups= was passed with a gpuscan.ShardedArray"),
        (lambda: gs.scan(x, axis=0, segments=[0, 3]), ValueError, "segments from 0 to 3"),
        (lambda: gs.scan(x, axis=0, keys=X), ValueError, r"Pass keys of shape \(40,\)"),
        (lambda: gs.scan(x, axis=0, keys=x), ValueError, r"Pass keys of shape \(40,\)"),
        (lambda: gs.scan(x, axis=0, keys=other), ValueError, "divided in another way"),
        (lambda: gs.scan(x, axis=0, keys=three[0].asarray(X)), TypeError, "Pass NumPy keys, or a gpuscan.ShardedArray"),
        (lambda: gs.scan(x, axis=0, out=X), TypeError, "out of type ndarray was passed"),
        (lambda: gs.scan(x, axis=0, out=other), ValueError, "with the same parts"),
        (lambda: gs.scan(x, axis=0, dtype=np.int64, out=x), TypeError, "out of dtype int32 was passed"),
        (lambda: gs.reduce(x, segments=[0, 40]), ValueError, "pass one axis"),
        (lambda: gs.reduce(x, lambda l, r: l, axis=0, segments=[0, 40, 40]), ValueError, "segment 1 is empty"),
        (lambda: gs.scan(x, axis=0, device=three), TypeError, "device= was passed"),
        (lambda: gs.scan([x, X], affine, axis=0), TypeError, "its arrays must be together"),
        (lambda: gs.scan((x, other), affine, axis=0), ValueError, "sharded in different ways"),
        (lambda: gs.scan(across, vectors), ValueError, "that axis belongs to the element"),
        (lambda: gs.scan(x, axis=0, before=lambda v, i: v), TypeError, "do not know where they begin"),
        (lambda: gs.ShardedArray.from_numpy(X, []), ValueError, "names no device"),
        (lambda: gs.ShardedArray.from_numpy(X, [three[0], three[0]]), ValueError, r"^devices=\[.*twice"),
        (lambda: gs.ShardedArray.from_numpy(X, three, axis=2), ValueError, "axis=2 was passed"),
        (lambda: gs.sort(x), TypeError, r"only gpuscan.scan and gpuscan.reduce take one.*Pass x.numpy\(\)"),
        (lambda: gs.map(np.sqrt, x), TypeError, "a ShardedArray was passed"),
        (lambda: pickle.dumps(x), TypeError, r"Pickle or copy array.numpy\(\)"),
    ):
        with pytest.raises(error, match=message):
            call()


def failures(three: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Name a device that is lost or out of memory, now or in the middle, and leave no thread behind."""
    cut_in_order(monkeypatch)
    flat = X.ravel()[:70]
    x = gs.ShardedArray.from_numpy(flat, three)
    calls = (
        lambda: gs.scan(x),
        lambda: gs.scan(x, reverse=True),
        lambda: gs.scan(x, segments=[0, 5, 70]),
        lambda: gs.reduce(x, axis=0, segments=[0, 5, 70]),
        lambda: gs.ShardedArray.from_numpy(flat, three),
    )

    def check(number: int, error: type[Exception], calls: Any) -> None:
        for call in calls:
            with pytest.raises(error) as caught:
                call()
            assert f"device {number} of the list" in caught.value.__notes__[0]
            assert not [each for each in threading.enumerate() if each.name.startswith("gpuscan-shard")]

    for number in (0, 1):
        mark_lost(three[number], True)
        try:
            check(number, gs.DeviceLostError, calls)
        finally:
            mark_lost(three[number], False)
        pool, taken = pool_of(three[number]), count()
        take = pool._take

        def take_once(kind: Any, take: Any = take, taken: Any = taken) -> Any:
            if next(taken) % 2:
                raise wgpu.GPUOutOfMemoryError("no room")
            return take(kind)

        with monkeypatch.context() as patched:
            patched.setattr(pool, "_take", take_once)
            check(number, gs.DeviceMemoryError, calls[:2])
    assert_same(gs.scan(x).numpy(), np.cumsum(flat, dtype=np.int32))


def dicts(three: list[gs.Device]) -> None:
    """Pass bundles as plain dicts and lists, and get plain dicts and lists."""
    x = gs.ShardedArray.from_numpy(X, three)

    def add(left: Any, right: Any) -> Any:
        return {"a": left["a"] + right["a"]}

    def add_lists(left: Any, right: Any) -> Any:
        return [left[0] + right[0]]

    for bundle, op in (({"a": x}, add), ([x], add_lists)):
        for call in (gs.scan, gs.reduce):
            assert [type(call(bundle, op, axis=axis)) for axis in (0, 1)] == [type(bundle)] * 2


def two_shards_on_one_device(three: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the first device two stretches, which it scans without reducing them where it can."""
    cut_in_order(monkeypatch)
    flat = X.ravel()[:70]
    x = gs.ShardedArray.from_numpy(flat, three)
    assert [shard.shape[0] for shard in x.shards] == [10, 20, 20, 20]
    assert [shard.device for shard in x.shards] == [*three, three[0]]
    assert x.devices == tuple(three)
    for options in ({}, {"exclusive": True, "initial": 3}, {"after": lambda v: -v}, {"reverse": True}):
        assert_same(gs.scan(x, **options).numpy(), gs.scan(flat, device="numpy", **options))
    gs.scan(x, out=x, reverse=True)
    assert_same(x.numpy(), gs.scan(flat, device="numpy", reverse=True))


CASES = [
    operators_that_do_not_commute,
    dicts,
    short_arrays,
    what_is_refused,
    failures,
    results_in_place,
    totals_and_types,
    two_shards_on_one_device,
]


@pytest.mark.parametrize("case", CASES)
def test_what_else_there_is(three: list[gs.Device], case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case(three, monkeypatch) if case in (two_shards_on_one_device, failures) else case(three)


def test_functions_of_numpy_are_refused(three: list[gs.Device]) -> None:
    """Assert that no function of NumPy copies all shards to the CPU without a word."""
    x: Any = gs.ShardedArray.from_numpy(X, three[:2])
    calls: list[Callable[[], Any]] = [lambda: np.add(x, 1), lambda: np.sum(x), lambda: np.add.accumulate(x)]
    # Python alone would say that an array is equal to nothing but itself.
    for call in (*calls, lambda: np.float32(2) * x, lambda: x + 1, lambda: x == 1, lambda: x != x):
        with pytest.raises(
            TypeError, match=r"^np\.[a-z_]+ was called on a gpuscan\.ShardedArray.*pass array\.numpy\(\)"
        ):
            call()
    assert_same(np.asarray(x), X)
