"""``reproducible="everywhere"`` for chunks, carries and initial values on a device, for shards and recorded plans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.tile_shapes import SPAN
from tests.api.test_everywhere import (
    CALLS,
    CUTS,
    EVERYWHERE,
    LENGTH,
    OFFSETS,
    SPANS,
    digest,
    load_digests,
    normal,
    product_and_sum,
    scan_of_spans,
    special,
    tiny,
)
from tests.harness.devices import as_gpu
from tests.harness.scans import scan_chunks_with
from tests.oracle import Array


@pytest.fixture
def pair(device: gs.Device) -> list[gs.Device]:
    """Return two devices on one adapter, which stand in for two GPUs."""
    return [device, gs.Device(device)]


# ----- Chunks on a device


def assert_chunks(device: gs.Device, x: Any, op: Any = "add", *, cuts: Any, **options: Any) -> None:
    """Assert that chunks on the device, between these places, give the bits that NumPy gives the whole array."""
    bundle = isinstance(x, tuple)
    leaves = x if bundle else (x,)
    pieces = list(zip(*(np.split(leaf, cuts) for leaf in leaves), strict=True))
    # All chunks are read into the same arrays, which is allowed because the stream copies them.
    buffers = [device.empty(len(leaf), leaf.dtype) for leaf in leaves]

    def chunks() -> Any:
        for piece in pieces:
            parts = [buffer[: len(part)] for buffer, part in zip(buffers, piece, strict=True)]
            for part, content in zip(parts, piece, strict=True):
                part[...] = content
            yield tuple(parts) if bundle else parts[0]

    whole = dict(options)
    if "keys" in options:
        options["keys"] = np.split(options["keys"], cuts)
    found = list(gs.scan_chunks(chunks(), op, **options, **EVERYWHERE))
    wanted = gs.scan(x, op, device="numpy", **whole, **EVERYWHERE)
    for number, result in enumerate(wanted if bundle else (wanted,)):
        own = [part[number] if bundle else part for part in found]
        assert all(isinstance(part, gs.Array) and part.device is device for part in own)
        assert [len(part) for part in own] == [len(piece[0]) for piece in pieces]
        assert np.concatenate([part.numpy() for part in own]).tobytes() == result.tobytes()


def add_all(left: Any, right: Any) -> Any:
    return tuple(a + b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("x", "op", "options"),
    [
        (tiny(1), "add", {}),
        (tiny(1), "add", {"exclusive": True, "initial": np.float32(1e-40)}),
        (special(2), "multiply", {"segments": OFFSETS}),
        (special(2), "maximum", {"keys": np.arange(LENGTH) // 61, "exclusive": True}),
        (special(2).clip(-9, 9).astype(np.float16), "add", {"segments": OFFSETS}),
        (100 * normal(0), "add", {"compensated": True}),
        ((normal(12), special(13), normal(14)), product_and_sum, {"before": lambda v: (v[0], -v[1], v[2])}),
        # More arrays than a shader binds.
        (tuple(normal(seed, 300) for seed in range(9)), add_all, {}),
    ],
    ids=["sum", "initial", "segments", "keys", "float16", "compensated", "bundle", "packed"],
)
def test_chunks_on_a_device(device: gs.Device, x: Any, op: Any, options: dict[str, Any]) -> None:
    assert_chunks(device, x, op, cuts=[0, 1, 34, 34, 257], **options)


def test_chunks_with_an_initial_value_on_the_device(device: gs.Device) -> None:
    x, initial = normal(0), device.asarray(np.float32(0.1))
    found = gs.scan_chunks(map(device.asarray, np.split(x, [9, 700])), initial=initial, **EVERYWHERE)
    first = next(found)
    initial[...] = 7
    parts = [np.asarray(part) for part in (first, *found)]
    wanted = gs.scan(x, initial=np.float32(0.1), device="numpy", **EVERYWHERE)
    assert np.concatenate(parts).tobytes() == wanted.tobytes()


def test_chunks_of_several_spans_on_a_device(device: gs.Device) -> None:
    """Assert that a piece takes its elements from several chunks, and a chunk its results from several pieces."""
    parts = np.split(normal(1, SPANS), CUTS)
    found = scan_chunks_with(device, map(device.asarray, parts), piece_bytes=4 * SPAN, on_device=True, **EVERYWHERE)
    results = [result._read() for result in found]
    assert [len(result) for result in results] == [len(part) for part in parts]
    assert np.concatenate(results).tobytes() == scan_of_spans().tobytes()


def test_results_of_chunks_come_with_each_span(device: gs.Device) -> None:
    """Assert that results do not wait for more than a span, and one element that shows that it is not the last one."""
    taken = []

    def chunks() -> Iterator[gs.Array]:
        for number in range(8):
            taken.append(number)
            yield device.asarray(np.ones(SPAN // 2, np.float32))

    found = gs.scan_chunks(chunks(), **EVERYWHERE)
    for number in range(3):
        assert float(next(found).numpy()[-1]) == (number + 1) * SPAN // 2
    assert len(taken) <= 5


def test_chunks_of_both_kinds(device: gs.Device) -> None:
    """Assert that chunks of NumPy are uploaded if the first chunk is on a device, and that views are taken."""
    x = normal(0, 30)
    first, last = device.asarray(x[9::-1]), device.asarray(x.reshape(15, 2))[5:, 1]
    found = list(gs.scan_chunks([first, x[10:20], last], **EVERYWHERE))
    assert all(isinstance(part, gs.Array) for part in found)
    wanted = gs.scan(np.concatenate([x[9::-1], x[10:20], x[11::2]]), device="numpy", **EVERYWHERE)
    assert b"".join(part.numpy().tobytes() for part in found) == wanted.tobytes()


def test_chunks_that_do_not_fit_on_a_device(pair: list[gs.Device]) -> None:
    x = normal(0, 9)
    device, other = pair
    for second, error in ((other.asarray(x), ValueError), (device.asarray(x.astype(np.float16)), TypeError)):
        found = gs.scan_chunks([device.asarray(x), second], **EVERYWHERE)
        assert next(found).numpy().tobytes() == gs.scan(x, device="numpy", **EVERYWHERE).tobytes()
        with pytest.raises(error):
            next(found)


# ----- Arrays in shards

OF_SHARDS = [
    "add float32, exclusive, reversed, segments",
    "add float32, keys, initial",
    "add float32, compensated",
    "add float32, axis 1, exclusive, total",
    "add float16",
    "multiply complex64, segments",
    "a function of a bundle",
    "reduce float32, axis 1",
    "reduce float32, segments",
]


@pytest.mark.parametrize("name", OF_SHARDS)
def test_digests_of_shards(pair: list[gs.Device], name: str) -> None:
    def divide(x: Array) -> gs.ShardedArray:
        return gs.ShardedArray.from_numpy(x, pair)

    assert digest(CALLS[name](None, divide)) == load_digests()[name]


@pytest.mark.parametrize("divided", [0, 1, 2])
def test_axes_of_shards(pair: list[gs.Device], divided: int) -> None:
    """Assert where the results are: divided as the input is, or NumPy's where the divided axis is gone."""
    x = special(3, 5, 33, 4)
    sharded = gs.ShardedArray.from_numpy(x, pair, axis=divided)
    keys = gs.ShardedArray.from_numpy(np.broadcast_to(np.arange(33)[:, np.newaxis] // 7, x.shape), pair, axis=divided)
    for axis in range(3):
        kinds: list[dict[str, Any]] = [{"return_total": True}, {"return_total": True, "exclusive": True}]
        for options in [*kinds, {"reverse": True, "initial": 2}]:
            found = gs.scan(sharded, axis=axis, **options, **EVERYWHERE)
            assert digest(found) == digest(gs.scan(x, axis=axis, device="numpy", **options, **EVERYWHERE))
            scanned, *total = found if isinstance(found, tuple) else (found,)
            assert [shard.shape for shard in scanned.shards] == [shard.shape for shard in sharded.shards]
            assert all(isinstance(part, gs.ShardedArray) == (axis != divided) for part in total)
        for reduced, more in ((axis, {}), (axis, {"segments": [0, 2, x.shape[axis]]}), ((0, axis), {"initial": 1})):
            if reduced == (0, 0):
                continue
            found = gs.reduce(sharded, axis=reduced, **more, **EVERYWHERE)
            assert digest(found) == digest(gs.reduce(x, axis=reduced, device="numpy", **more, **EVERYWHERE))
            assert isinstance(found, gs.ShardedArray) == (divided not in np.ravel(reduced))
    if divided != 1:
        found = gs.scan(sharded, axis=1, keys=keys, **EVERYWHERE)
        assert digest(found) == digest(gs.scan(x, axis=1, keys=keys.numpy(), device="numpy", **EVERYWHERE))


def test_results_of_shards_in_place(pair: list[gs.Device]) -> None:
    x = special(2)
    wanted, total = gs.scan(x, device="numpy", return_total=True, **EVERYWHERE)
    sharded, out = (gs.ShardedArray.from_numpy(x, pair) for _ in range(2))
    for target in (out, sharded):
        found = gs.scan(sharded, out=target, return_total=True, **EVERYWHERE)
        assert found[0] is target
        assert digest(found) == digest((wanted, total))
    result = np.empty((), np.float32)
    assert gs.reduce(out, "maximum", out=result, **EVERYWHERE) is result
    assert digest(result) == digest(gs.reduce(wanted, "maximum", device="numpy", **EVERYWHERE))


def test_integers_in_shards_stay_on_their_devices(pair: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that named operators of integers, which have one set of bits already, take the plain scan."""
    x = np.arange(LENGTH, dtype=np.int32)
    sharded = gs.ShardedArray.from_numpy(x, pair)
    monkeypatch.delattr(gs.ShardedArray, "numpy")
    found, total = gs.scan(sharded, **EVERYWHERE), gs.reduce(sharded, **EVERYWHERE)
    parts = [shard.numpy() for shard in found.shards]
    assert np.array_equal(np.concatenate(parts), np.cumsum(x, dtype=np.int32))
    assert total == x.sum(dtype=np.int32)


# ----- Recorded plans


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [0, 1])
def test_recorded_plans_along_inner_axes(device: gs.Device, axis: int, dtype: type[np.generic]) -> None:
    """Record a plan that brings rows together: between buffers, and in place. No other byte is written."""
    x = special(3, 3, 37, 5).clip(-9, 9).astype(dtype)
    others = np.delete(x.shape, axis)
    kinds: list[dict[str, Any]] = [{"exclusive": True, "initial": normal(4, *others).astype(dtype)}]
    for options in [*kinds, {"reverse": True}, {"segments": [0, 1, 1, x.shape[axis]]}]:
        if options == {"reverse": True} and dtype == np.float16:
            continue  # refused, since the array ends within a word
        wanted = gs.scan(x, axis=axis, device="numpy", **options, **EVERYWHERE)
        plan = device.plan(x.shape, dtype, axis=axis, **options, **EVERYWHERE)
        source, result = device.asarray(x), device.asarray(np.full(x.size + 256, 7, dtype))
        target = result[128 : 128 + x.size].reshape(x.shape)
        encoder = device.wgpu_device.create_command_encoder()
        plan.record(encoder, source, target)
        plan.record(encoder, source, source)
        assert source.numpy().tobytes() == x.tobytes()  # nothing is submitted yet
        device.wgpu_device.queue.submit([encoder.finish()])
        assert source.numpy().tobytes() == target.numpy().tobytes() == wanted.tobytes()
        around = np.delete(result.numpy(), slice(128, 128 + x.size))
        assert np.array_equal(around, np.full(256, 7, dtype))


def test_recorded_bundles_along_inner_axes(device: gs.Device) -> None:
    """Record a scan of a bundle, in which each array is copied separately."""
    pair = normal(1, 40, 3), special(2, 40, 3)
    bundle = np.dtype([("a", np.float32), ("b", np.float32)])
    plan = device.plan((40, 3), bundle, lambda l, r: {"a": l["a"] * r["a"], "b": l["b"] + r["b"]}, axis=0, **EVERYWHERE)
    arrays, results = [device.asarray(part) for part in pair], [device.empty((40, 3), np.float32) for _ in range(2)]
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, arrays, results)
    device.wgpu_device.queue.submit([encoder.finish()])
    for result, part, op in zip(results, pair, ("multiply", "add"), strict=True):
        assert result.numpy().tobytes() == gs.scan(part, op, axis=0, device="numpy", **EVERYWHERE).tobytes()


# ----- Loops


def decay(h: Any, v: Any) -> Any:
    return v[0] * h + v[1], np.exp(-h)


def clamp_sum(h: Any, v: Any) -> Any:
    return np.clip(h + v[1], -3, v[0] + 3)


def count_to_five(s: Any, v: Any) -> Any:
    return np.where(v[1] > 0, (s + 1) % 5, s)


@pytest.mark.parametrize(
    ("step", "inits"),
    [
        (decay, [normal(7, 3), np.array([np.nan, -0.0, 1e-40], np.float32), np.float32(0.3)]),
        (clamp_sum, [normal(7, 3), np.float32(-1e-42)]),
        (count_to_five, [np.array([3, 0, 4], np.int32), np.int32(2)]),
    ],
)
def test_first_carries_on_a_device(device: gs.Device, step: Any, inits: list[Any]) -> None:
    xs = np.random.default_rng(1).uniform(0.1, 1, (700, 3)).astype(np.float32), special(2, 700, 3).clip(-9, 9)
    on_device = tuple(map(device.asarray, xs))
    for init in inits:
        for reverse in (False, True):
            wanted = gs.loop(step, init, xs, reverse=reverse, device="numpy", **EVERYWHERE)
            found = gs.loop(step, device.asarray(init), on_device, reverse=reverse, **EVERYWHERE)
            assert digest(tuple(found)) == digest(tuple(wanted))


def fuse_and_cancel(h: Any, v: Any) -> Any:
    """Combine by steps that compilers fuse or cancel, and that give NaN of several signs."""
    number = h * v[0] + v[1]
    return number - (number - h), (number * h - h * number, np.exp(number), np.signbit(number - number))


def narrow_carries(h: Any, v: Any) -> Any:
    first = (h[0] * 0.75 + v[1]).astype(np.float16)
    return (first, h[1] ^ (v[1] > 1), (h[2] // 2 + first.astype(np.int32)).astype(np.int8)), h[0]


def complex_carry(h: Any, v: Any) -> Any:
    return h * np.complex64(0.6 + 0.8j) * v[0] + v[1]


@pytest.mark.parametrize("length", [0, 1, 300])
@pytest.mark.parametrize(
    ("step", "init"),
    [
        (fuse_and_cancel, np.array([np.nan, -0.0, 1e-40], np.float32)),
        (narrow_carries, (np.float16(0.3), np.bool_(True), np.int8(5))),
        (complex_carry, np.complex64(1 - 2j)),
    ],
)
def test_loops_step_by_step(device: gs.Device, step: Any, init: Any, length: int) -> None:
    rng = np.random.default_rng(length)
    xs = rng.uniform(-1, 1, (length, 3)).astype(np.float32), special(2, length, 3).clip(-9, 9)
    xs[1][1::2] *= np.float32(1e-40)
    for where in (device, as_gpu(device)):
        for reverse in (False, True):
            options: dict[str, Any] = {"reverse": reverse, "method": "sequential", **EVERYWHERE}
            wanted = flatten(gs.loop(step, init, xs, device="numpy", **options))
            assert digest(flatten(gs.loop(step, init, xs, device=where, **options))) == digest(wanted)
            assert digest(flatten(gs.loop(step, init, tuple(map(where.asarray, xs)), **options))) == digest(wanted)


def flatten(found: Any) -> tuple[Any, ...]:
    """Return the arrays of nested tuples."""
    return sum(map(flatten, found), ()) if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize(
    "step",
    [lambda h, v: h // 2 + v, lambda h, v: (h + v) // 7, lambda h, v: np.where(v > 3, 0, h + v) // 3],
    ids=["halves", "carry", "reset"],
)
@pytest.mark.parametrize("method", ["auto", "sequential"])
def test_loops_of_rounded_integers(device: gs.Device, step: Any, method: Any) -> None:
    x = np.random.default_rng(4).integers(-1000, 1000, 700).astype(np.int32)
    h, wanted = 5, []
    for number in x.tolist():
        h = int(step(h, number))
        wanted.append(h)
    for where in (device, "numpy"):
        assert gs.loop(step, 5, x, method=method, device=where, **EVERYWHERE).ys.tolist() == wanted


def test_what_loops_refuse(device: gs.Device) -> None:
    x = normal(0, 30)
    for where in (device, "numpy"):
        options: dict[str, Any] = {"device": where, **EVERYWHERE}
        with pytest.raises(gs.OperatorError, match=r'method="newton".*rounding errors.*"sequential"'):
            gs.loop(lambda h, v: h + v, 0.0, x, method="newton", **options)
        for method in ("auto", "sequential"):
            with pytest.raises(gs.OperatorError, match="for a loop of the step, which computes remainder of float32"):
                gs.loop(lambda h, v: (h + v) % 3, 0.0, x, method=method, **options)
        turn = lambda h, v: (h + v) - np.floor(h + v)  # noqa: E731
        with pytest.raises(gs.OperatorError, match=r'associative form computes fmod of float32.*method="sequential"'):
            gs.loop(turn, 0.0, x, **options)
        assert np.all(gs.loop(turn, 0.0, x, method="sequential", **options).ys >= 0)
