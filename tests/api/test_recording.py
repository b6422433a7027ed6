"""Plans that are recorded into a caller's encoder, on the caller's buffers."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.planning.strategies import Strategy
from tests.harness.scans import tile_of
from tests.oracle import assert_same, numbers, several, strategies_on, ufunc_scan

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST


# The value of the bytes that no plan may write.
MARK = 0xA5


EXAMPLE = Path(__file__).parents[2] / "examples" / "inside_an_encoder.py"


def whole_words(x: np.ndarray[Any, Any]) -> bytes:
    return x.tobytes() + b"\0" * (-x.nbytes % 4)


class Desk:
    """Buffers on a device, as a caller has them."""

    def __init__(self, device: gs.Device) -> None:
        self.device, self.gpu = device, device.wgpu_device

    def holding(self, x: np.ndarray[Any, Any], before: int = 0) -> wgpu.GPUBuffer:
        return self.gpu.create_buffer_with_data(data=b"\0" * before + whole_words(x), usage=USAGE)

    def make_marked_buffer(self, nbytes: int) -> wgpu.GPUBuffer:
        return self.gpu.create_buffer_with_data(data=bytes([MARK]) * nbytes, usage=USAGE)

    def run(self, *records: Any) -> None:
        encoder = self.gpu.create_command_encoder()
        for plan, *places, options in records:
            plan.record(encoder, *places, **options)
        self.gpu.queue.submit([encoder.finish()])

    def read(self, buffer: wgpu.GPUBuffer) -> np.ndarray[Any, Any]:
        return np.frombuffer(self.gpu.queue.read_buffer(buffer), np.uint8)


@pytest.fixture
def desk(device: gs.Device) -> Desk:
    """Return buffers of a caller, on every adapter in turn."""
    return Desk(device)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("n", [1, 5, 1500])
def test_record_writes_the_result_and_nothing_else(desk: Desk, dtype: str, n: int) -> None:
    """Record at the smallest offset, into buffers that end with the array's last word."""
    length = several(desk.device, n) + 1 if n == 1500 else n
    x = numbers(dtype, length)
    offset = desk.device.capabilities.limits["min-storage-buffer-offset-alignment"]
    source, after = desk.holding(x, before=offset), 12
    strategies: list[Strategy] = ["auto"]
    if n == 1500 and "fallback" in strategies_on(desk.device):
        strategies.append("fallback")
    for strategy in strategies:
        target = desk.make_marked_buffer(offset + x.nbytes + -x.nbytes % 4 + after)
        plan = desk.device.plan(length, dtype, strategy=strategy)
        desk.run((plan, (source, offset), (target, offset), {}))
        got = desk.read(target)
        assert_same(got[offset : offset + x.nbytes].view(dtype), ufunc_scan("add", x))
        assert (got[:offset] == MARK).all()
        assert (got[offset + x.nbytes :] == MARK).all()
    exact = desk.make_marked_buffer(x.nbytes + -x.nbytes % 4)
    desk.run((plan, (source, offset), exact, {}))
    assert_same(desk.read(exact)[: x.nbytes].view(dtype), ufunc_scan("add", x))
    desk.device.synchronize()


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int64"])
def test_the_length_comes_from_the_gpu(desk: Desk, dtype: str) -> None:
    """Pass 0, 1, a tile's edge, all, and more than the plan has. Nothing after it is written."""
    most = several(desk.device, 9000)
    x = numbers(dtype, most)
    source, plan = desk.holding(x), desk.device.plan(most, dtype)
    tile = tile_of(plan).tile_size
    for length in (0, 1, tile - 1, tile, tile + 1, most - 1, most, most + 5):
        count = desk.holding(np.array([77, length], np.uint32))
        target = desk.make_marked_buffer(x.nbytes)
        desk.run((plan, source, target, {"length": (count, 4)}))
        n = min(length, most)
        got = desk.read(target)
        assert_same(got[: n * x.itemsize].view(dtype), ufunc_scan("add", x[:n]), length)
        assert (got[n * x.itemsize :] == MARK).all(), length


def test_reversed_with_a_length_from_the_gpu(desk: Desk) -> None:
    x = numbers("int32", 3000)
    plan = desk.device.plan(3000, np.int32, reverse=True)
    for length in (1, 1234, 3000):
        target = desk.make_marked_buffer(x.nbytes)
        count = desk.device.asarray(np.array([length], np.uint32))
        desk.run((plan, desk.holding(x), target, {"length": count}))
        assert_same(desk.read(target)[: 4 * length].view(np.int32), ufunc_scan("add", x[:length][::-1])[::-1])


def test_several_plans_in_one_encoder(desk: Desk) -> None:
    """Assert that each plan sees the results of the one before, in place and in another part of the buffer."""
    x = numbers("uint32", 2048)
    a, b = desk.device.plan(2048, np.uint32), desk.device.plan(2048, np.uint32, "maximum", reverse=True)
    first, second = desk.holding(x), desk.make_marked_buffer(4 * x.nbytes)
    step = x.nbytes  # a multiple of every alignment
    desk.run(
        (a, first, second, {}),
        (a, second, (second, step), {}),
        (b, (second, step), (second, 3 * step), {}),
        (a, first, first, {}),
    )
    twice = ufunc_scan("add", ufunc_scan("add", x))
    parts = desk.read(second).view(np.uint32).reshape(4, -1)
    assert_same(parts[0], ufunc_scan("add", x))
    assert_same(parts[1], twice)
    assert_same(parts[3], ufunc_scan("maximum", twice[::-1])[::-1])
    assert_same(desk.read(first).view(np.uint32), ufunc_scan("add", x))


def test_what_was_recorded_outlives_plan_and_arrays(desk: Desk) -> None:
    """Assert that seeds, segment bits and the caller's arrays stay alive until the commands have run."""
    device, n = desk.device, 1000
    x = np.arange(n, dtype=np.int32)
    keys = x // 7
    encoder = desk.gpu.create_command_encoder()
    results = []
    for options in ({"initial": 5}, {"keys": keys, "initial": 3}, {"segments": [0, 10, n], "exclusive": True}):
        result = device.empty(n, np.int32)
        device.plan(n, np.int32, **options).record(encoder, device.asarray(x), result)
        results.append((result, options))
    gc.collect()
    decoys = [device.asarray(np.full(words, 99, np.int32)) for words in (1, 4, 32, 100, n, n)]
    device.memory_cleanup()
    desk.gpu.queue.submit([encoder.finish()])
    for result, options in results:
        assert_same(result.numpy(), gs.scan(x, device="numpy", **options), options)
    del decoys


@pytest.mark.parametrize(
    ("error", "match", "places"),
    [
        (ValueError, "STORAGE", lambda d, s: (s, d.gpu.create_buffer(size=4000, usage=wgpu.BufferUsage.COPY_DST))),
        (ValueError, "STORAGE", lambda d, s: (s, s, d.gpu.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_DST))),
        (ValueError, "src was passed at byte -256", lambda d, s: ((s, -256), s)),
        (ValueError, "byte -4", lambda d, s: (s, s, (s, -4))),
        (ValueError, "another device", lambda d, s: (s, gs.Device(d.device).asarray(np.zeros(1000, np.int32)))),
        (TypeError, "offset in bytes", lambda d, s: ((s, 0.5), s)),
        (TypeError, "src was ndarray", lambda d, s: (np.zeros(1000, np.int32), s)),
        (TypeError, "dst was NoneType", lambda d, s: (s, None)),
        (TypeError, "length was int", lambda d, s: (s, s, 5)),
        (TypeError, "dtype float32", lambda d, s: (d.device.empty(1000, np.float32), s)),
    ],
)
def test_what_is_refused_leaves_the_encoder_in_order(desk: Desk, error: Any, match: str, places: Any) -> None:
    x = np.arange(1000, dtype=np.int32)
    plan, source, result = desk.device.plan(1000, np.int32), desk.holding(x), desk.make_marked_buffer(4000)
    encoder = desk.gpu.create_command_encoder()
    src, dst, *length = places(desk, source)
    with pytest.raises(error, match=match):
        plan.record(encoder, src, dst, **({"length": length[0]} if length else {}))
    plan.record(encoder, source, result)
    desk.gpu.queue.submit([encoder.finish()])
    assert_same(desk.read(result).view(np.int32), x.cumsum(dtype=np.int32))


def test_encoders_of_others_are_refused(desk: Desk) -> None:
    plan, buffer = desk.device.plan(4, np.int32), desk.make_marked_buffer(16)
    with pytest.raises(TypeError, match="encoder was NoneType"):
        plan.record(None, buffer, buffer)
    with pytest.raises(ValueError, match="another device"):
        plan.record(gs.Device(desk.device).wgpu_device.create_command_encoder(), buffer, buffer)


def test_encoders_that_cannot_be_recorded_into(desk: Desk) -> None:
    """Assert that the error is not about a lost device, and that the plan can be recorded again."""
    x = np.arange(4, dtype=np.int32)
    source, target, length = desk.holding(x), desk.make_marked_buffer(16), desk.holding(np.array([4], np.uint32))
    for dtype, options in ((np.int32, {}), (np.int32, {"length": length}), (np.uint8, {})):
        plan = desk.device.plan(4, dtype)
        finished, busy = desk.gpu.create_command_encoder(), desk.gpu.create_command_encoder()
        finished.finish()
        with pytest.raises(ValueError, match="encoder is finished; record between passes"):
            plan.record(finished, source, target, **options)
        opened = busy.begin_compute_pass()
        if wgpu.version_info < (0, 32):
            plan.record(busy, source, target, **options)
            opened.end()
            with pytest.raises(wgpu.GPUValidationError, match="Encoder is locked"):
                busy.finish()
            continue
        with pytest.raises(ValueError, match="encoder has an open pass"):
            plan.record(busy, source, target, **options)
        opened.end()
    desk.run((desk.device.plan(4, np.int32), source, target, {}))
    assert_same(desk.read(target).view(np.int32), x.cumsum(dtype=np.int32))


def test_fields_go_by_their_keys(desk: Desk) -> None:
    """Assert that a dict gives fields by key, in any order, and that lists and tuples give them by position."""
    dtype = np.dtype([("a", np.float32), ("b", np.float32)])
    plan = desk.device.plan(4, dtype, lambda l, r: {"a": l["a"] + r["a"], "b": l["b"] * r["b"]})
    a, b = desk.holding(np.arange(4, dtype=np.float32)), desk.holding(np.full(4, 2, np.float32))
    for src in ({"a": a, "b": b}, {"b": b, "a": (a, 0)}, [a, b], (a, b)):
        for swapped in (False, True):
            sums, products = desk.make_marked_buffer(16), desk.make_marked_buffer(16)
            dst = {"b": products, "a": sums} if swapped else {"a": sums, "b": products}
            desk.run((plan, src, dst, {}))
            assert_same(desk.read(sums).view(np.float32), np.array([0, 1, 3, 6], np.float32))
            assert_same(desk.read(products).view(np.float32), np.array([2, 4, 8, 16], np.float32))


def test_fields_that_the_plan_does_not_have(desk: Desk) -> None:
    dtype = np.dtype([("a", np.float32), ("b", np.float32)])
    plan = desk.device.plan(4, dtype, lambda l, r: (l["a"] + r["a"], l["b"] + r["b"]))
    one, other = desk.make_marked_buffer(16), desk.make_marked_buffer(16)
    encoder, right = desk.gpu.create_command_encoder(), (one, other)
    cases: list[tuple[Any, Any, str]] = [
        ({"q": one, "z": other}, ValueError, "has the keys 'q', 'z'; .* 'a', 'b'"),
        ({"a": one}, ValueError, "has the keys 'a'; .* 'a', 'b'"),
        ({"a": one, "b": other, "c": one}, ValueError, ".*'c'; .* 'a', 'b'"),
        ((one,), ValueError, "has 1 buffers; .* 'a', 'b'"),
        (one, TypeError, "was GPUBuffer; .* 'a', 'b'"),
        (desk.device.empty((2, 4), np.float32), TypeError, "was Array; .* 'a', 'b'"),
    ]
    for wrong, error, message in cases:
        with pytest.raises(error, match=f"src {message}"):
            plan.record(encoder, wrong, right)
        with pytest.raises(error, match=f"dst {message}"):
            plan.record(encoder, right, wrong)
    single = desk.device.plan(4, [("a", np.float32)], lambda l, r: (l["a"] + r["a"],))
    for src in ({"a": one}, [one], (one,), one, (one, 0)):
        single.record(encoder, src, other)
    with pytest.raises(ValueError, match="src has the keys 'q'"):
        single.record(encoder, {"q": one}, other)
    with pytest.raises(TypeError, match="src was dict"):
        desk.device.plan(4, np.float32).record(encoder, {"a": one}, other)


def test_fields_of_a_result_lie_apart(desk: Desk) -> None:
    plan = desk.device.plan(4, [("a", np.int32), ("b", np.int32)], lambda l, r: (l["a"] + r["a"], l["b"] + r["b"]))
    source, one = desk.make_marked_buffer(16), desk.make_marked_buffer(16)
    with pytest.raises(ValueError, match="two fields of dst overlap"):
        plan.record(desk.gpu.create_command_encoder(), (source, source), (one, one))


def test_record_refuses_what_it_cannot_do(desk: Desk) -> None:
    device, x = desk.device, numbers("uint32", 1000)
    plan, source, target = device.plan(1000, np.uint32), desk.holding(x), desk.make_marked_buffer(4000)
    encoder = desk.gpu.create_command_encoder()
    least = device.capabilities.limits["min-storage-buffer-offset-alignment"]
    for places, options, message in (
        (((source, 4), target), {}, f"multiples of {least}"),
        ((source, (target, least)), {}, "dst needs 4000 bytes"),
        (((target, 0), (target, least)), {}, "dst needs 4000 bytes"),
        ((source, target), {"length": (source, 2)}, "32-bit word"),
        ((source, target), {"length": (source, 4000)}, "32-bit word"),
    ):
        with pytest.raises(ValueError, match=message):
            plan.record(encoder, *places, **options)
    wide = desk.make_marked_buffer(4000 + least)
    with pytest.raises(ValueError, match="overlaps"):
        plan.record(encoder, wide, (wide, least))
    for count in (np.float32, np.int64, np.uint8):
        with pytest.raises(TypeError, match=f"{np.dtype(count)} was passed"):
            plan.record(encoder, source, target, length=device.asarray(np.ones(4, count)))
    with pytest.raises(ValueError, match="several rows"):
        device.plan((10, 100), np.uint32, axis=1).record(encoder, source, target, length=source)
    narrow = device.empty((100, 10), np.uint8)
    with pytest.raises(ValueError, match="share 32-bit words"):
        device.plan((100, 10), np.uint8, axis=0).record(encoder, narrow, narrow)
    with pytest.raises(ValueError, match="end inside a 32-bit word"):
        device.plan(999, np.uint8, reverse=True).record(encoder, source, target)
    if "fallback" in strategies_on(device):
        with pytest.raises(gs.StrategyError, match="overwritten"):
            device.plan(1000, np.uint32, strategy="fallback").record(encoder, source, source)


def test_arrays_that_are_too_short(desk: Desk) -> None:
    """Assert that nothing after an array's end is read or written, in buffers of any size."""
    device, n = desk.device, 1000
    plan, whole = device.plan(n, np.float32), device.asarray(np.ones(n, np.float32))
    large = device.asarray(np.full(2 * n, 5, np.float32))
    encoder = desk.gpu.create_command_encoder()
    length = device.asarray(np.array([10, 10], np.uint32))
    for options in ({}, {"length": length}):
        with pytest.raises(ValueError, match=r"dst is an array of 40 bytes; .* needs 4000"):
            plan.record(encoder, whole, large[:10], **options)
        with pytest.raises(ValueError, match=r"src is an array of 3996 bytes; .* needs 4000"):
            plan.record(encoder, large[: n - 1], whole, **options)
    with pytest.raises(ValueError, match=r"length= .* 0 bytes"):
        plan.record(encoder, whole, large, length=length[:0])
    plan.record(encoder, whole, large)  # a longer one is written as far as the plan goes
    desk.gpu.queue.submit([encoder.finish()])
    assert_same(large.numpy(), np.append(np.arange(1, n + 1), np.full(n, 5)).astype(np.float32))
    vectors = device.plan(5, [("v", np.float32, (2,))], lambda l, r: (l["v"] + r["v"],))
    with pytest.raises(ValueError, match=r"src is an array of 32 bytes; .* needs 40"):
        vectors.record(desk.gpu.create_command_encoder(), large[:8].reshape(4, 2), large)


def test_the_example(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "100000 points sorted" in capsys.readouterr().out
