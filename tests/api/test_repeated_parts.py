"""Calls that come again, of chunks and of shards: each launches a program, with the results of the long way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.builds import assert_launches
from tests.harness.calls import EACH_RESULT, EACH_STAGE, FIRST, Counted, count_stages
from tests.harness.devices import count_programs
from tests.oracle import affine, assert_same

RNG = np.random.default_rng(31)
# Python calls of a repeated stream that its programs do not make. They check the first chunk.
ONCE = 100


# Options of streams of integers, of small floats, and of pairs of floats.
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("i", {}),
    "from a number": ("i", {"initial": 3, "op": "maximum"}),
    "exclusive": ("i", {"exclusive": True, "initial": 2}),
    "float16": ("h", {}),
    "compensated": ("f", {"compensated": True}),
    "maps": ("i", {"before": lambda v: v * 2, "after": lambda v: v + 1, "exclusive": True}),
    "a tuple": ("pair", {"op": affine}),
    "a dict": ("dict", {"op": lambda l, r: {"a": l["a"] + r["a"], "b": np.maximum(l["b"], r["b"])}}),
}


def draw_row(kind: str, count: int) -> Any:
    """Return a row of small integers, so that their sums are exact in every dtype."""
    if kind == "pair":
        return RNG.choice([-1, 1], count).astype(np.float32), draw_row("f", count)
    if kind == "dict":
        return {"a": draw_row("i", count), "b": draw_row("f", count)}
    return RNG.integers(-2, 3, count).astype({"i": np.int32, "h": np.float16, "f": np.float32}[kind])


def over(function: Callable[..., Any], *bundles: Any) -> Any:
    """Return the bundle of a function of the arrays of some bundles."""
    if isinstance(bundles[0], dict):
        return {name: over(function, *[bundle[name] for bundle in bundles]) for name in bundles[0]}
    if isinstance(bundles[0], tuple):
        return tuple(over(function, *parts) for parts in zip(*bundles, strict=True))
    return function(*bundles)


def cut_row(row: Any, ends: Sequence[int]) -> list[Any]:
    """Return the parts of a row that end at some indices."""
    return [
        over(lambda leaf, low=low, high=high: leaf[low:high], row) for low, high in zip([0, *ends], ends, strict=False)
    ]


def check_stream(found: Sequence[Any], row: Any, ends: Sequence[int], options: dict[str, Any]) -> None:
    """Assert that a stream has the results of its whole row."""
    wanted = cut_row(gs.scan(row, device="numpy", **options), ends)
    for part, expected in zip(found, wanted, strict=True):
        over(lambda a, b: assert_same(np.asarray(a), b), part, expected)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("cut", ["", "keys", "segments"])
def test_chunks_on_a_device(device: gs.Device, kind: str, cut: str) -> None:
    """Assert that chunks of known lengths launch programs, wait for nothing and take few calls."""
    form, options = STREAMS[kind]
    for number, ends in enumerate(
        [(300, 600, 900), (300, 600, 900), (300, 600, 900), (300, 600, 900), (200, 777, 777, 1000)]
    ):
        row = draw_row(form, ends[-1])
        chunks = [over(device.asarray, part) for part in cut_row(row, ends)]
        keys = np.cumsum(RNG.random(ends[-1]) < 0.01)
        offsets = [0, *np.flatnonzero(keys[1:] != keys[:-1]) + 1, ends[-1]]
        cuts: dict[str, Any] = {"keys": keys} if cut == "keys" else {"segments": offsets} if cut else {}
        given = {"keys": cut_row(keys, ends)} if cut == "keys" else cuts
        call = partial(lambda x, more: list(gs.scan_chunks(x, **more)), chunks, options | given)
        check_stream(call(), row, ends, options | cuts)
        if number == 3:
            device.synchronize()
            with assert_launches(device):
                found = call()
            check_stream(found, row, ends, options | cuts)
            # Each chunk has results, and the carry after it; the cuts of each are uploaded.
            fields = 1 if form in ("i", "h", "f") else 2
            results = 3 * (fields + max(fields, 1 + ("compensated" in options)))
            most = ONCE + 3 * FIRST * (1 + bool(cut))
            most += EACH_STAGE * (count_stages(device, call) - 3) + EACH_RESULT * (results - 3)
            calls = min(Counted().of(call) for _ in range(3))
            assert calls <= most, (calls, most)


def test_initial_values_that_change(device: gs.Device) -> None:
    """Assert that all segments of a stream begin with the value that the first chunk began with."""
    row, keys = draw_row("i", 90), np.arange(90) // 20
    for initial in (np.array(5, np.int32), device.asarray(np.array(7, np.int32))):
        options: dict[str, Any] = {"initial": initial}
        number = int(initial)
        chunks = (device.asarray(part) for part in np.split(row, 3))
        stream = gs.scan_chunks(chunks, keys=np.split(keys, 3), **options)
        found = [next(stream)]
        initial[...] = 100
        found += stream
        check_stream(found, row, (30, 60, 90), {"keys": keys, "initial": np.int32(number)})


def test_chunks_of_numpy(device: gs.Device) -> None:
    """Assert that short streams of NumPy arrays are planned once."""
    row = draw_row("i", 1000)
    call = partial(lambda parts: list(gs.scan_chunks(parts, device=device)), np.split(row, 4))
    for _ in range(3):
        check_stream(call(), row, (250, 500, 750, 1000), {})
    calls = min(Counted().of(call) for _ in range(3))
    assert calls <= 500, calls


# ----- Arrays in shards

X = RNG.integers(-9, 9, (48, 16)).astype(np.int32)
# Python calls of a repeated call of an array in shards, for its checks, for the checks of initial values, for each
# thread of several devices, and for each read of a carry.
SHARDED, INITIAL, EACH_THREAD, EACH_READ = 100, 50, 90, 120
# Kinds of calls with the numbers of programs and of reads for each shard, along the divided axis and along another one.
OF_SHARDS: dict[str, tuple[Callable[..., Any], tuple[int, int], tuple[int, int]]] = {
    "scan": (lambda x, axis, number: gs.scan(x, axis=axis), (2, 1), (1, 0)),
    "scan backwards": (lambda x, axis, number: gs.scan(x, "maximum", axis=axis, reverse=True), (2, 1), (1, 0)),
    "scan from a number": (lambda x, axis, number: gs.scan(x, axis=axis, initial=number), (2, 1), (1, 0)),
    "exclusive": (lambda x, axis, number: gs.scan(x, axis=axis, initial=number, exclusive=True), (2, 1), (1, 0)),
    "scan from rows": (lambda x, axis, number: gs.scan(x, axis=axis, initial=X.sum(axis) + number), (2, 1), (1, 0)),
    "reduce": (lambda x, axis, number: gs.reduce(x, axis=axis), (1, 1), (1, 0)),
    "reduce from a number": (lambda x, axis, number: gs.reduce(x, axis=axis, initial=number), (1, 1), (1, 0)),
    "maps": (
        lambda x, axis, number: gs.reduce(x, axis=axis, before=lambda v: v * 2, after=lambda v: v + 1),
        (1, 1),
        (1, 0),
    ),
}


@pytest.mark.parametrize("kind", OF_SHARDS)
def test_shards(device: gs.Device, adapter: wgpu.GPUAdapter, kind: str) -> None:
    """Assert that calls of arrays in shards launch programs for other contents and numbers, and take few calls."""
    call, programs, reads = OF_SHARDS[kind]
    devices = [device, second_on(adapter)]
    for count in (1, 2):
        for axis in (0, 1):
            for number in range(4):
                x = RNG.integers(-9, 9, X.shape).astype(np.int32)
                sharded = gs.ShardedArray.from_numpy(x, devices[:count])
                found = call(sharded, axis, number)
                wanted = call(x, axis, number)
                assert_same(np.asarray(found), np.asarray(wanted), (kind, count, axis))
                assert isinstance(found, gs.ShardedArray) == (found.ndim > 1 or axis == 1)
            known = count_programs(device)
            calls = min(Counted().of(partial(call, sharded, axis, n)) for n in (7, 8, 9))
            assert count_programs(device) == known > 0
            most = (
                SHARDED
                + INITIAL * ("from" in kind or kind == "exclusive")
                + count * (FIRST * programs[axis] + EACH_READ * reads[axis])
            )
            most += EACH_THREAD * count if count > 1 else 0
            assert calls <= most, (count, axis, calls, most)


@cache
def second_on(adapter: wgpu.GPUAdapter) -> gs.Device:
    return gs.Device(adapter)


def test_shards_that_are_views(device: gs.Device) -> None:
    """Assert that shards at other places of their memory, and over other results, are other calls."""
    whole = device.asarray(X)
    for begin in (0, 8, 0, 8, 16, 0):
        part = gs.ShardedArray((whole[begin : begin + 32],), 0)
        assert_same(gs.scan(part, axis=1).numpy(), np.cumsum(X[begin : begin + 32], axis=1, dtype=np.int32))
        assert_same(gs.reduce(part, axis=0), X[begin : begin + 32].sum(0, dtype=np.int32))
    for _ in range(3):
        x, out = (gs.ShardedArray.from_numpy(X, [device]) for _ in range(2))
        assert gs.scan(x, axis=0, out=out) is out
        assert gs.scan(x, axis=0, out=x) is x
        for array in (x, out):
            assert_same(array.numpy(), np.cumsum(X, axis=0, dtype=np.int32))


def test_errors_name_the_whole_array(device: gs.Device, adapter: wgpu.GPUAdapter) -> None:
    """Assert that errors name the shape of the array that the caller passed, and no shape of a shard."""
    x = gs.ShardedArray.from_numpy(X, [device, second_on(adapter)])
    shape = r"array of shape \(48, 16\)"
    refused: list[Callable[[], object]] = [
        lambda: gs.scan(x),
        lambda: gs.scan(x, axis=2),
        lambda: gs.scan(x, "matmul", axis=2),
        lambda: gs.reduce(x, axis=2),
        lambda: gs.scan(x, compensated=True, dtype=np.float32),
        lambda: bool(x),
    ]
    for call in refused:
        with pytest.raises(
            (ValueError, IndexError), match=shape.removeprefix("array ") if call is refused[-1] else shape
        ):
            call()
    for number in (0, 3):
        assert bool(gs.ShardedArray.from_numpy(np.array([number]), [device])) == bool(number)
