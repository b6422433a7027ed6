"""Offsets on a device cut like NumPy's, are checked there, and tell with the result if they are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.array import Array as DeviceArray
from gpuscan.engine.executor import Executor
from gpuscan.planning.strategies import may_time_out
from gpuscan.problem.segments import check_offsets
from tests.harness.calls import Counted
from tests.oracle import Array, assert_same, draw_offsets

DTYPES = ["int8", "uint16", "int32", "uint32", "int64"]
LENGTH = 100


@pytest.fixture
def no_copies_of_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call read an array of the caller's back."""

    def refuse(self: object, *_: object, **__: object) -> None:
        raise AssertionError("an array was read from the device")

    monkeypatch.setattr(DeviceArray, "__array__", refuse)


def offsets_of(dtype: str) -> Array:
    """Return offsets of segments, some of them empty."""
    return draw_offsets(np.random.default_rng(1), 100, 13).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("no_copies_of_arrays")
def test_offsets_of_every_dtype(device: gs.Device, dtype: str) -> None:
    """Scan and reduce arrays here and there by offsets that stay where they are."""
    offsets = offsets_of(dtype)
    x, there = np.random.default_rng(0).integers(0, 2**32, (2, 100), dtype=np.uint32), device.asarray(offsets)
    wanted = gs.scan(x, axis=1, segments=offsets, reverse=True, device="numpy")
    assert_same(gs.scan(device.asarray(x), axis=1, segments=there, reverse=True).numpy(), wanted)
    assert_same(gs.scan(x, axis=1, segments=there, reverse=True), wanted)
    sums = gs.reduce(x[0], segments=offsets, device="numpy")
    assert_same(gs.reduce(device.asarray(x[0]), segments=there).numpy(), sums)
    assert_same(gs.reduce(x[0], segments=there), sums)


def test_offsets_in_views(device: gs.Device) -> None:
    """Assert that offsets may be views that no shader can bind, and that plans keep a copy."""
    offsets = offsets_of("int32")
    x = device.asarray(np.arange(100, dtype=np.uint32))
    wanted = gs.scan(x.numpy(), segments=offsets, device="numpy")
    padded = device.asarray(np.concatenate([[7], offsets]).astype(np.int32))
    twice = device.asarray(np.repeat(offsets, 2))
    for there in (padded[1:], twice[::2]):
        assert_same(gs.scan(x, segments=there).numpy(), wanted)
    plan = device.plan(100, np.uint32, segments=padded[1:])
    gs.scan(padded, out=padded)
    assert_same(plan(x).numpy(), wanted)
    assert_same(plan(x.numpy()), wanted)


WRONG: list[tuple[list[int], str]] = [
    ([0, 9, 5, LENGTH], "they decrease, or exceed 100, at index 2 of 3"),
    ([0, 5, LENGTH + 1], "they decrease, or exceed 100, at index 2 of 2"),
    ([0, -3, LENGTH], "they decrease, or exceed 100, at index 1 of 2"),
    ([0, 2**32 + 5, LENGTH], "they decrease, or exceed 100, at index 1 of 2"),
    ([1, 7, LENGTH], "segments from 1 to 100 were passed"),
    ([0, 7, LENGTH - 1], "segments from 0 to 99 were passed"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG)
def test_wrong_offsets(device: gs.Device, wrong: list[int], message: str) -> None:
    """Assert that wrong offsets raise with the result, once, and change nothing but `out`."""
    x = np.ones(LENGTH, np.uint32)
    there, segments = device.asarray(x), device.asarray(np.array(wrong))
    with pytest.raises(ValueError, match="segments"):
        check_offsets(np.array(wrong), LENGTH)
    for call, array in ((gs.scan, x), (gs.scan, there), (gs.reduce, there)):
        with pytest.raises(ValueError, match=message):
            np.asarray(call(array, segments=segments))

    def scan_and_wait() -> None:
        gs.scan(there, segments=segments, out=device.empty(LENGTH, np.uint32))
        device.synchronize()

    with pytest.raises(ValueError, match=message):
        scan_and_wait()
    device.synchronize()
    assert_same(there.numpy(), x)
    assert_same(segments.numpy(), np.array(wrong))


def test_offsets_that_cannot_be_right(device: gs.Device) -> None:
    """Assert that what shape, dtype and device tell raises at once."""
    x = device.asarray(np.ones(4, np.uint32))
    with pytest.raises(TypeError, match="segments of dtype float32"):
        gs.scan(x, segments=device.asarray(np.array([0, 4], np.float32)))
    with pytest.raises(ValueError, match=r"segments of shape \(1, 2\)"):
        gs.scan(x, segments=device.asarray(np.array([[0, 4]])))
    with pytest.raises(ValueError, match="together with NumPy"):
        gs.scan(x.numpy(), segments=device.asarray(np.array([0, 4])), device="numpy")


def test_an_empty_segment_without_a_result(device: gs.Device) -> None:
    first = gs.operator(lambda l, r: l)
    x, segments = device.asarray(np.arange(4, dtype=np.int32)), device.asarray(np.array([0, 2, 2, 4]))
    with pytest.raises(ValueError, match="segment 1 is empty and the operator"):
        gs.reduce(x, first, segments=segments).numpy()
    assert_same(gs.reduce(x, first, segments=segments, initial=9).numpy(), np.array([9, 9, 9], np.int32))


@pytest.mark.parametrize("place", ["NumPy", "device"])
def test_calls_that_come_again(device: gs.Device, place: str) -> None:
    """Assert that calls over the same buffers, which are only submitted again, read their present contents."""
    rng = np.random.default_rng(5)
    given = rng.integers(0, 2**32, 3000, dtype=np.uint32)
    x = device.asarray(given)
    kinds: list[dict[str, Any]] = [
        {"exclusive": True},
        {"reverse": True},
        {"op": lambda left, right: left ^ right, "initial": 3},
    ]
    for _ in range(4):
        cuts = draw_offsets(rng, 3000, 401)
        there = cuts if place == "NumPy" else device.asarray(cuts.astype(np.int32))
        for options in kinds:
            assert_same(
                gs.scan(x, segments=there, **options).numpy(), gs.scan(given, segments=cuts, device="numpy", **options)
            )
        assert_same(gs.reduce(x, segments=there).numpy(), gs.reduce(given, segments=cuts, device="numpy"))
        labels = np.repeat(np.arange(401), np.diff(cuts)).astype(np.uint16)
        keys = device.asarray(labels)
        assert_same(gs.scan(x, keys=keys).numpy(), gs.scan(given, segments=cuts, device="numpy"))
        starts = np.flatnonzero(np.diff(labels, prepend=-1))
        found, sums = gs.reduce_by_key(keys, x)
        assert_same(found.numpy(), labels[starts])
        assert_same(sums.numpy(), np.add.reduceat(given, starts, dtype=np.uint32))


def test_wrong_offsets_between_right_ones(device: gs.Device) -> None:
    """Assert that calls over the same buffers tell of the wrong offsets of one of them, and only once."""
    x, segments = device.asarray(np.ones(LENGTH, np.uint32)), device.asarray(np.array([0, 30, LENGTH], np.int32))
    right, wrong = (device.asarray(np.array([0, second, LENGTH], np.int32)) for second in (50, -7))

    def reduce_by(offsets: DeviceArray) -> DeviceArray:
        gs.map(lambda place: place, offsets, out=segments)
        return gs.reduce(x, segments=segments)

    for _ in range(3):
        assert_same(reduce_by(right).numpy(), np.array([50, 50], np.uint32))
    for _ in range(2):
        reduce_by(wrong)
        reduce_by(right)
        with pytest.raises(ValueError, match="they decrease, or exceed 100, at index 1 of 2"):
            device.synchronize()
        assert_same(reduce_by(right).numpy(), np.array([50, 50], np.uint32))


def test_wrong_offsets_of_numpy(device: gs.Device) -> None:
    """Assert that the call itself raises, whether or not it came before, and leaves `out` as it was."""
    x, out = device.asarray(np.ones(LENGTH, np.uint32)), device.asarray(np.full(3, 7, np.uint32))
    first = gs.operator(lambda l, r: l, name="first")
    for _ in range(3):
        assert_same(gs.reduce(x, segments=[0, 5, 9, LENGTH], out=out).numpy(), np.array([5, 4, 91], np.uint32))
        for op, cuts, message in (
            ("add", [0, 9, 5, LENGTH], "segments decrease from 9 at index 1"),
            (first, [0, 9, 9, LENGTH], "segment 1 is empty"),
        ):
            for target in (None, out):
                with pytest.raises(ValueError, match=message):
                    gs.reduce(x, op, segments=np.array(cuts), out=target)
        assert_same(out.numpy(), np.array([5, 4, 91], np.uint32))


@pytest.mark.parametrize("place", ["NumPy", "device"])
def test_calls_that_came_before_are_not_planned(device: gs.Device, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Assert that a reduction by offsets on the device is launched again, with what is now in the buffers."""
    x, out = device.asarray(np.ones(3000, np.uint32)), device.empty(400, np.uint32)
    rng = np.random.default_rng(6)
    there = device.empty(401, np.int32)

    def reduce_by(cuts: Array) -> None:
        if place == "device":
            there[:] = cuts
        gs.reduce(x, segments=cuts if place == "NumPy" else there, out=out)
        assert_same(out.numpy(), np.diff(cuts).astype(np.uint32))

    for number in range(5):
        reduce_by(draw_offsets(rng, 3000, 400).astype(np.int32))
        # Where a wait may time out, each call reads its report.
        strategy = device._context.strategy()[0]
        if (
            place == "device"
            and number == 2
            and (strategy == "three_dispatch" or not may_time_out(strategy, device.capabilities))
        ):
            monkeypatch.setattr(Executor, "run", lambda *_: pytest.fail("the call was planned again"))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0,)])
def test_wrong_offsets_of_no_elements(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Assert that offsets are checked where there is nothing to scan, and that a scan itself raises."""
    length = shape[-1]
    first = gs.operator(lambda l, r: l, name="first")

    def sort_and_wait(x: Any, axis: int, segments: DeviceArray) -> None:
        gs.sort(x, axis=axis, segments=segments)
        device.synchronize()

    for x in (np.zeros(shape, np.int32), device.asarray(np.zeros(shape, np.int32))):
        for cuts in ([0, length + 3], [1, length], [0, 4, length]):
            there = device.asarray(np.array(cuts))
            for call in (gs.scan, gs.reduce, sort_and_wait):
                with pytest.raises(ValueError, match="segments "):
                    call(x, axis=-1, segments=there)
        right = device.asarray(np.array([0, length, length]))
        assert gs.scan(x, axis=-1, segments=right).shape == shape
        assert gs.reduce(x, axis=-1, segments=right).shape == (*shape[:-1], 2)
        with pytest.raises(ValueError, match=r"segment \d is empty and the operator 'first' has no identity"):
            gs.reduce(x, first, axis=-1, segments=right)
    device.synchronize()


def test_offsets_that_nobody_has_read_yet_cost_nothing(device: gs.Device) -> None:
    """Assert that a call of another length takes about as many Python calls, whether many calls before are unread."""
    x, counts = device.asarray(np.ones(2000, np.float32)), []
    for length in range(1100, 1200):
        offsets = device.asarray(np.array([0, 10, length], np.uint32))
        counts.append(Counted().of(lambda n=length, cut=offsets: gs.scan(x[:n], segments=cut)))  # type: ignore[misc]
    # Some calls also submit what was deferred. Each of 80 unread offsets would take a Python call more.
    assert min(counts[-10:]) < min(counts[10:20]) + 40
