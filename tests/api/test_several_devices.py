"""Calls that several devices share. Two devices on one adapter stand in for two GPUs."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device import disk_cache, tile_cache
from gpuscan.engine import executor_group
from gpuscan.engine.executor_group import relative_speeds
from gpuscan.planning.partition import (
    cut_by_speed,
    cut_into_shards,
    cut_scan_axis,
    cut_segments_by_speed,
    next_devices,
    round_robin_chunks,
)
from gpuscan.planning.transfer_heuristics import DEVICE_GROUPS
from tests.harness.device_groups import cut_finely, set_speeds
from tests.harness.devices import device_as_if, mark_lost, pool_of
from tests.oracle import assert_same

RNG = np.random.default_rng(29)
X = RNG.integers(-9, 9, 5000).astype(np.int32)
OFFSETS = np.array([0, 3, 3, 600, 601, 3900, 5000])
KEYS = np.repeat(np.arange(5), 1000)


@cache
def both_on(adapter: wgpu.GPUAdapter) -> list[gs.Device]:
    return [gs.Device(adapter), gs.Device(adapter)]


@pytest.fixture
def pair(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> list[gs.Device]:
    """Return two devices on one adapter, and let round-robin chunks be short."""
    cut_finely(monkeypatch)
    # If a thread of these tests collected a device of an earlier test, OpenGL would end the process.
    gc.collect()
    return both_on(adapter)


def check(x: Any, op: Any, pair: list[gs.Device], **options: Any) -> None:
    """Assert that two devices give the bits of one, and write them to `out`."""
    wanted = gs.scan(x, op, device="numpy", **options)
    found = gs.scan(x, op, device=pair, **options)
    for part, whole in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
        assert_same(part, whole)


def device_threads() -> list[str]:
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("gpuscan-device-group", "gpuscan-shard"))
    ]


# ----- Results


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("start", [{}, {"initial": 7}, {"exclusive": True, "initial": 7}])
def test_one_row(pair: list[gs.Device], reverse: bool, start: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan one row, whole and cut into segments that begin anywhere in a chunk; on equal and unequal devices."""
    set_speeds(monkeypatch, *((3, 1) if reverse else (1, 1)))
    for cuts in ({}, {"segments": OFFSETS}, {"keys": KEYS}):
        check(X, "add", pair, reverse=reverse, **start, **cuts)


def other_elements(pair: list[gs.Device], tmp_path: Path) -> None:
    """Scan matrices, narrow numbers and bundles with maps, forwards and backwards."""
    matrices = RNG.integers(-2, 3, (1500, 2, 2)).astype(np.int32)
    check(matrices, "matmul", pair, reverse=True)
    check(X.astype(np.int8), "add", pair, exclusive=True)
    gates = RNG.integers(-2, 3, 3000).astype(np.int32)
    check((gates, X[:3000]), lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), pair, initial=(1, 4), after=lambda v: v[1])
    out = np.full_like(X, 77)
    assert gs.scan(X, "maximum", out=out, device=pair) is out
    assert_same(out, np.maximum.accumulate(X))
    gs.scan(out, out=out, device=pair)
    assert_same(out, np.cumsum(np.maximum.accumulate(X), dtype=np.int32))


def other_axes(pair: list[gs.Device], tmp_path: Path) -> None:
    """Divide rows where there are many, and the axis of the scan where there are few."""
    rows = RNG.integers(0, 9, 2).astype(np.int32)
    check(X.reshape(100, 50), "add", pair, axis=1, segments=[0, 10, 50])
    check(X.reshape(2500, 2), "add", pair, axis=0, initial=rows)
    check(X.reshape(2, 2500), "add", pair, axis=1, initial=rows, keys=np.arange(2500) // 7)
    # The index along the axis counts in the whole array, also where rows are divided.
    indexed: dict[str, Any] = {"before": lambda v, i: v + i.astype(np.int32)}
    check(X, "add", pair, **indexed)
    check(X.reshape(100, 50), "add", pair, axis=1, **indexed)
    # Groups of rows: the same labels for all rows, and labels for each row. One device scans all rows if they are few.
    some = X.reshape(100, 50).astype(np.int32)
    for labels in (RNG.integers(0, 5, 50), RNG.integers(0, 5, (100, 50))):
        check(some, "add", pair, axis=1, groups=labels)
        wanted = gs.reduce(some, axis=1, groups=labels, num_groups=6, device="numpy")
        assert_same(gs.reduce(some, axis=1, groups=labels, num_groups=6, device=pair), wanted)
    # Keys that cut every row in its own way.
    check(X.reshape(2500, 2), "add", pair, axis=0, keys=RNG.integers(0, 2, (2500, 2)))
    check(X.reshape(50, 100), "add", pair, axis=0, keys=RNG.integers(0, 2, (50, 100)))


def other_calls(pair: list[gs.Device], tmp_path: Path) -> None:
    table = X.reshape(2500, 2)
    for axis in (None, 0, 1):
        assert_same(gs.reduce(table, axis=axis, device=pair), table.sum(axis, dtype=np.int32))
    first = gs.reduce(X, lambda l, r: l, initial=3, after=lambda v: v * 2, device=pair)
    assert_same(first, np.int32(6))
    assert_same(gs.compact(table, table[:, 0] > 2, device=pair), table[table[:, 0] > 2])
    assert_same(gs.compact(X, lambda v: v > 2, device=pair), X[X > 2])
    assert_same(gs.compact(table[:0], np.zeros(0, bool), device=pair), table[:0])
    assert_same(gs.compact(X[:0], lambda v: v > 2, device=pair), X[:0])
    assert_same(gs.cumulative_sum(X, dtype=np.int32, device=pair), np.cumsum(X, dtype=np.int32))
    for x, axis, offsets in (
        (X, 0, OFFSETS),
        (X[:4999], 0, [0, 0, 4999, 4999]),
        (table, 0, [0, 5, 1300, 1300, 2500]),
        (X.reshape(100, 50), 1, [0, 7, 7, 50]),
    ):
        rows = np.arange(x.size // x.shape[axis], dtype=np.int32)
        options: dict[str, Any] = {"axis": axis, "segments": offsets, "initial": rows if x.ndim > 1 else 1}
        assert_same(gs.reduce(x, device=pair, **options), gs.reduce(x, device="numpy", **options))
    gates = RNG.integers(-1, 2, X.shape).astype(np.int32)
    assert_same(gs.linear_recurrence(gates, X, device=pair), gs.linear_recurrence(gates, X, device="numpy"))
    np.save(tmp_path / "x.npy", X)
    assert_same(gs.scan(np.load(tmp_path / "x.npy", mmap_mode="r"), device=pair), np.cumsum(X, dtype=np.int32))
    # A caller may fill one array again and again.
    one = np.empty(700, np.int32)

    def chunks() -> Any:
        for start in range(0, 4900, 700):
            one[:] = X[start : start + 700]
            yield one
        yield X[:0]
        yield X[4900:]

    found = list(gs.scan_chunks(chunks(), exclusive=True, device=pair))
    assert [len(part) for part in found] == [700] * 7 + [0, 100]
    assert_same(np.concatenate(found), gs.scan(X, exclusive=True, device="numpy"))
    assert not device_threads()


def floats(pair: list[gs.Device], tmp_path: Path) -> None:
    """Give the same bits each time."""
    x = RNG.random(5000).astype(np.float32)
    found = [gs.scan(x, device=pair) for _ in range(3)]
    assert_same(found[1], found[0])
    assert_same(found[2], found[0])
    np.testing.assert_allclose(found[0], np.cumsum(x, dtype=np.float64), rtol=1e-6)
    half = gs.scan(x.astype(np.float16), device=pair)
    np.testing.assert_allclose(half.astype(float), np.cumsum(x.astype(np.float16), dtype=np.float64), rtol=1e-3)


@pytest.mark.parametrize("case", [other_elements, other_axes, other_calls, floats])
def test_what_else_there_is(pair: list[gs.Device], case: Any, tmp_path: Path) -> None:
    case(pair, tmp_path)


# ----- Shares


def test_round_robin_chunks_and_shares_follow_the_speeds() -> None:
    taken = list(islice(next_devices([3, 1]), 8))
    assert (taken.count(0), taken.count(1), taken[:4]) == (6, 2, taken[4:])
    found = list(round_robin_chunks(100, 30, next_devices([1, 1])))
    assert [(s.device, s.start, s.stop, s.last) for s in found] == [
        (0, 0, 30, False),
        (1, 30, 60, False),
        (0, 60, 90, False),
        (1, 90, 100, True),
    ]
    assert [(s.start, s.stop) for s in cut_by_speed(10, [3, 1, 1])] == [(0, 6), (6, 8), (8, 10)]
    assert [s.device for s in cut_by_speed(1, [1, 1])] == [1]


def test_arrays_on_devices_are_cut_by_the_roles_of_devices() -> None:
    """Give the first device two stretches of a long row; all devices then need equal time for each step."""
    found = cut_into_shards(100 << 20, [1, 1])
    assert [(s.device, (s.stop - s.start) >> 20) for s in found] == [(0, 20), (1, 40), (0, 40)]
    speeds = [4, 1, 2]
    parts = cut_scan_axis(3300, speeds)
    times = [(s.stop - s.start) / speeds[s.device] for s in parts]
    assert [s.device for s in parts] == [0, 1, 2, 0]
    assert np.allclose([2 * times[0], *times[1:]], times[1], rtol=0.01)
    assert [s.last for s in parts] == [False] * 3 + [True]
    cuts = [cut_segments_by_speed(np.array(o), [1, 1]) for o in ([0, 0, 6, 6, 7, 9, 12, 12], [0, 12], [0, 0, 11])]
    assert [[(s.device, s.start, s.stop) for s in each] for each in cuts] == [
        [(0, 0, 2), (1, 2, 7)],
        [(0, 0, 1)],
        [(0, 0, 1), (1, 1, 2)],
    ]
    # One device, and a shorter axis, have one stretch on each device.
    for length, speeds in ((100 << 20, [1]), (1 << 20, [1, 1])):
        assert [s.device for s in cut_into_shards(length, speeds)] == list(range(len(speeds)))


def test_unequal_devices_are_measured_once(device: gs.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure devices of several kinds, keep their speeds on disk, and take equal ones for equal."""
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(executor_group, "DEVICE_GROUPS", replace(DEVICE_GROUPS, speed_sample_bytes=1 << 12))
    other = device_as_if(device, name="another")
    executors = [device._executor, other._executor]
    assert relative_speeds([executors[0]] * 3) == [1, 1, 1]
    found = relative_speeds(executors)
    assert min(found) == 1
    assert relative_speeds(executors) == found


@pytest.mark.parametrize("kept", ["Infinity", "NaN", "5e-324", "1e308", "-1.0", "0.0"])
def test_a_damaged_speed_is_measured_again(
    device: gs.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setattr(executor_group, "DEVICE_GROUPS", replace(DEVICE_GROUPS, speed_sample_bytes=1 << 12))
    pair = [device_as_if(device), device_as_if(device, name="another")]
    path = disk_cache.write(executor_group.SPEEDS_FOLDER, tile_cache.key_of(pair[1].capabilities), 1.5)
    assert path is not None
    path.write_text(path.read_text().replace("1.5", kept))
    assert min(relative_speeds([each._executor for each in pair])) == 1
    measured = disk_cache.read(executor_group.SPEEDS_FOLDER, tile_cache.key_of(pair[1].capabilities))
    assert 1e3 < measured < 1e15


# ----- Failures


def lost(pair: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the device, leave no thread behind, and work again without it."""
    mark_lost(pair[1], True)
    try:
        x = X.copy()
        for call in (
            lambda: gs.scan(x, device=pair),
            lambda: gs.scan(x.reshape(100, 50), axis=1, device=pair),
            lambda: gs.reduce(x, device=pair),
            lambda: list(gs.scan_chunks([x, x], device=pair)),
        ):
            with pytest.raises(gs.DeviceLostError) as caught:
                call()
            assert pair[1].capabilities.summary in str(caught.value)
            assert not device_threads()
        assert_same(x, X)
    finally:
        mark_lost(pair[1], False)
    check(X, "add", pair)


def without_memory(pair: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise wgpu.GPUOutOfMemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(pool_of(pair[1]), "lend", refuse)
        with pytest.raises(gs.DeviceMemoryError, match="ran out of memory") as caught:
            gs.scan(X, device=pair)
    assert "device 1 of the list" in caught.value.__notes__[0]
    assert not device_threads()
    check(X, "add", pair)


def chunks_that_end_with_an_error(pair: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the results of the chunks before an error, and end all threads where a caller stops reading."""

    def chunks() -> Any:
        yield X
        yield X
        raise KeyError("no more")

    found = gs.scan_chunks(chunks(), device=pair)
    assert_same(next(found), np.cumsum(X, dtype=np.int32))
    assert_same(next(found)[-1], 2 * X.sum(dtype=np.int32))
    with pytest.raises(KeyError, match="no more"):
        next(found)
    stopped: Any = gs.scan_chunks((X for _ in range(50)), device=pair)
    next(stopped)
    stopped.close()
    assert not device_threads()


def wrong_lists(pair: list[gs.Device], monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any
    for given, error, message in (
        ([], ValueError, "names no device"),
        ([pair[0], pair[0]], ValueError, "names gpuscan.Device.* twice"),
        ([pair[0], "numpy"], ValueError, "'numpy' is none"),
        ([pair[0], 99], gs.AdapterNotFoundError, "no adapter has the number 99"),
        ([pair[0], 1.5], TypeError, "neither a gpuscan.Device nor a string nor a number"),
    ):
        with pytest.raises(error, match=message):
            gs.scan(X, device=given)
    with pytest.raises(ValueError, match=r"but it is on one device\. Leave device= out"):
        gs.scan(pair[0].asarray(X), device=pair)
    given = "blelloch"
    with pytest.raises(gs.StrategyError):
        gs.scan(X, device=pair, strategy=given)
    array = pair[0].asarray(X)
    assert gs.scan(array, device=[pair[0]]).device is pair[0]
    assert_same(gs.scan(X[:0], device=pair), X[:0])
    assert_same(gs.scan(X[:5], device=(pair[0],)), np.cumsum(X[:5], dtype=np.int32))


@pytest.mark.parametrize("case", [lost, without_memory, chunks_that_end_with_an_error, wrong_lists])
def test_failures(pair: list[gs.Device], case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    case(pair, monkeypatch)
