"""The stages of sorts leave the same words as their twins on NumPy; sorts by small tiles are right in every shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import scalar_of
from gpuscan.engine.sorting import partition_indices, sort_device
from gpuscan.planning import key_heuristics
from gpuscan.planning.sort_plan import TileSort, plan_row_sort, plan_sort
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.reference.sort import orders
from tests.api.test_sort import assert_sorted, keys_of, order_of
from tests.harness.sorts import run_stage, sort_in_tiles
from tests.twins import sorts as twins

RADIX_BITS = 8
# Rows, their lengths, and tiles that neither divide them nor are divided by a workgroup.
SHAPES = [(1, 700, 512), (3, 130, 100), (2, 1000, 256)]


def ways(device: gs.Device) -> list[bool]:
    """Return whether tiles are ranked by subgroups: both ways where the adapter has them."""
    return [False, True] if device.capabilities.subgroup_sizes else [False]


def tile_values(device: gs.Device, keys: np.ndarray[Any, Any], by_subgroups: bool) -> dict[str, Any]:
    """Return the variables of the templates that sort tiles."""
    return {
        "scalar": scalar_of(keys.dtype),
        "unit": 4,
        "descending": False,
        "digits": 4,
        "radix_bits": RADIX_BITS,
        "workgroup_size": 64 if by_subgroups else 16,
        "groups": 64 // min(device.capabilities.subgroup_sizes) if by_subgroups else 16,
        "subgroups": by_subgroups,
        "enable_subgroups": by_subgroups and device.capabilities.enable_subgroups,
    }


def tile_call(rows: int, length: int, tile: int, step: int) -> list[int]:
    """Return the parameters of a stage that sorts tiles."""
    per_row = -(-length // tile)
    return [rows * length, length, tile, per_row, rows * per_row, step, 1, 1]


def test_steps(device: gs.Device) -> None:
    """Assert that the bits in which keys differ, and the steps chosen by them, are the twins'."""
    rng = np.random.default_rng(0)
    for masks in ([0], [0xFF], [0xFF00, 0x3], [0xF0000000, 0xFF00], [0xFFFFFFFF]):
        rows = (rng.integers(0, 2**32, (3, 500)) & np.bitwise_or.reduce(masks)).astype(np.uint32) ^ np.uint32(77)
        values: dict[str, Any] = {
            "scalar": scalar_of(rows.dtype),
            "unit": 4,
            "descending": False,
            "workgroup_size": 64,
            "keys_per_invocation": 4,
        }
        rows = np.sort(rows) if len(masks) == 2 else rows
        bits, falls = twins.differences(rows)
        (found,) = run_stage(device, "differences", [1500, 500], [rows], [3], -(-1500 // 256), **values)
        assert found.tolist() == [bits, 0, int(falls)]
        values = {"digits": 4, "radix_bits": RADIX_BITS, "workgroup_size": 64}
        (steps,) = run_stage(device, "plan_steps", None, [found], [4 * 6], 1, **values)
        expected = twins.plan_steps(bits, falls, 4, RADIX_BITS)
        got = [(digit, int(s[1]), int(s[2])) for digit, s in enumerate(steps.reshape(4, 6)) if s[0]]
        assert got == expected
        assert [bool(s[3]) for s in steps.reshape(4, 6) if s[0]] == [source == 0 for _, source, _ in expected]
        assert [int(s[4]) for s in steps.reshape(4, 6) if s[0]] == [0] * (len(expected) - 1) + [1]
        assert {int(s[5]) for s in steps.reshape(4, 6) if s[0]} == {0xFF if falls else 0}


@pytest.mark.parametrize(("rows", "length", "tile"), SHAPES)
def test_one_step(device: gs.Device, rows: int, length: int, tile: int) -> None:
    """Assert that the counts of a digit, and the places of the elements, are the twins', by every way of ranking."""
    keys = keys_of(np.float32, (rows, length))
    order = orders(keys)
    for digit in (0, 3):
        # The first step of a plan reads the input and writes the temporary array; the last one writes the result.
        steps = np.zeros((4, 6), np.uint32)
        steps[digit] = (1, 0, 1, 1, 1, 0xFF)
        counts = twins.count_digits(order, digit, RADIX_BITS, tile)
        offsets = (np.cumsum(counts) - counts.reshape(-1)).astype(np.uint32)
        expected = twins.scatter_digits(order, digit, RADIX_BITS, offsets.reshape(counts.shape), tile)
        call, other = tile_call(rows, length, tile, digit), np.zeros(rows * length, np.uint32)
        for by_subgroups in ways(device):
            values = tile_values(device, keys, by_subgroups)
            inputs = [steps, keys.view(np.uint32), other, other]
            (found,) = run_stage(device, "count_digits", call, inputs, [counts.size], call[4], copies=2, **values)
            np.testing.assert_array_equal(found, counts.reshape(-1))
            sizes = [rows * length] * 4
            moved, _, places, _ = run_stage(
                device,
                "scatter_digits",
                call,
                [steps, keys.view(np.uint32), offsets],
                sizes,
                call[4],
                order=[1, 2, "out", "out", 3, "out", "out"],
                with_keys=True,
                payload="index",
                kernel=None,
                keeps_destinations=False,
                items=-(-tile // values["workgroup_size"]),
                batches=1 + digit % 2,
                **values,
            )
            np.testing.assert_array_equal(moved[expected], keys.view(np.uint32))
            columns = np.broadcast_to(np.arange(length), (rows, length))
            np.testing.assert_array_equal(places[expected], columns)


def test_turns(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that sorts are right in the workgroups of GPUs, with batches that do not store equally much of a tile."""
    heuristics = replace(
        key_heuristics.SORTS_GPU, workgroup_with_payload=256, items_with_payload=7, batches_with_payload=4, min_tiles=1
    )
    monkeypatch.setattr(key_heuristics, "SORTS_CPU", heuristics)
    keys = keys_of(np.float32, (2, 4001))
    found, places = sort_in_tiles(device, keys, False)
    assert_sorted(found, keys)
    np.testing.assert_array_equal(places, order_of(keys))


def test_exchange_rows(device: gs.Device) -> None:
    """Assert that rows of every length are sorted by the twin's exchanges, several in a workgroup."""
    for rows, length, log_items in ((1, 1, 1), (5, 3, 2), (40, 17, 3), (2, 128, 2), (3, 100, 3)):
        keys = keys_of(np.float32, (rows, length))
        levels = max(1, (length - 1).bit_length())
        found, places = run_stage(
            device,
            "exchange_rows",
            [length, 1, rows, levels],
            [keys.view(np.uint32)],
            [rows * length] * 2,
            -(-rows // (128 >> levels)),
            scalar=scalar_of(keys.dtype),
            descending=False,
            log_capacity=7,
            log_items=log_items,
            levels=0,
            exchanges=(),
            unit=4,
            edges=False,
            columns=False,
            with_keys=True,
            payload="index",
        )
        expected = twins.exchange_rows(orders(keys))
        np.testing.assert_array_equal(places.reshape(keys.shape), expected)
        np.testing.assert_array_equal(expected, order_of(keys))
        assert_sorted(found.view(np.float32).reshape(keys.shape), keys)


@pytest.mark.parametrize(
    ("dtype", "log_items"), [(np.uint8, 4), (np.int16, 3), (np.int32, 4), (np.float32, 3), (np.int64, 2)]
)
def test_short_rows(device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: Any, log_items: int) -> None:
    """Assert that rows and columns are right around every size of a workgroup's parts, in parts as large as on GPUs."""
    small = replace(key_heuristics.SORTS_CPU, log_row_items=log_items, log_row_capacity=7, max_row_length=256)
    monkeypatch.setattr(key_heuristics, "SORTS_CPU", small)
    for length in (2, 15, 16, 17, 63, 65, 127, 129, 256, 257):
        for shape, axis in (((35, length), 1), ((3, length, 7), 1)):
            keys = keys_of(dtype, shape, length)
            for given in (keys, np.abs(np.nan_to_num(keys)) + 1) if dtype == np.float32 else (keys,):
                found = gs.sort(device.asarray(given), axis=axis)
                assert_sorted(found, given, axis)
    places = gs.argsort(device.asarray(keys), axis=axis, descending=True)
    np.testing.assert_array_equal(np.asarray(places), order_of(keys, axis, descending=True))


def test_exchanges_without_a_loop(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that shaders without a loop over the exchanges sort rows and columns."""
    small = replace(key_heuristics.SORTS_CPU, log_row_items=2, log_row_capacity=6, unrolls_rows=True)
    monkeypatch.setattr(key_heuristics, "SORTS_CPU", small)
    for dtype, shape, axis in ((np.uint32, (7, 60), 1), (np.float32, (31, 5), 0), (np.int8, (9, 33), 1)):
        keys = keys_of(dtype, shape)
        assert_sorted(gs.sort(device.asarray(keys), axis=axis), keys, axis)


def test_repeat_keys(device: gs.Device) -> None:
    """Assert that counted keys are written as the twin writes them, in rows that do not end with a word."""
    for rows, length in ((1, 300), (5, 263)):
        keys = keys_of(np.uint8, (rows, length)) // 3
        bases = twins.scan_histograms(twins.histogram(orders(keys), 1, RADIX_BITS), length)
        plan = np.concatenate([np.zeros(6, np.uint32), bases.reshape(-1)])
        (found,) = run_stage(
            device,
            "repeat_keys",
            tile_call(rows, length, length, 0),
            [plan],
            [-(-rows * length // 4)],
            -(-rows * length // 256),
            scalar=scalar_of(keys.dtype),
            descending=False,
            digits=1,
            radix_bits=RADIX_BITS,
            workgroup_size=32,
            words=2,
        )
        expected = twins.repeat_keys(bases[:, 0], length)
        np.testing.assert_array_equal(found.view(np.uint8)[: rows * length].reshape(keys.shape), expected)
        np.testing.assert_array_equal(expected, np.sort(keys, axis=1))


def test_counted_keys(device: gs.Device) -> None:
    """Assert that long rows of bytes are sorted both ways, also if all keys are equal."""
    for dtype, shape, axis in ((np.int8, (3, 4099), 1), (np.uint8, (20_001,), 0), (np.uint8, (4999, 3), 0)):
        keys = keys_of(dtype, shape)
        for given in (keys, np.full_like(keys, 7)):
            for descending in (False, True):
                found = gs.sort(device.asarray(given), axis=axis, descending=descending)
                assert_sorted(found, given, axis, descending)


@pytest.mark.parametrize("dtype", [np.int8, np.float64], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
def test_tiles(device: gs.Device, dtype: Any, descending: bool) -> None:
    """Assert that sorts by small tiles are right, by every way of ranking, for one row and for several."""
    for shape, tile in (((3001,), 256), ((3, 520), 256), ((5, 40), 256)):
        keys = keys_of(dtype, shape)
        for by_subgroups in ways(device):
            found, places = sort_in_tiles(device, keys, descending, tile_size=tile, subgroups=by_subgroups)
            assert_sorted(found, keys, descending=descending)
            np.testing.assert_array_equal(places, order_of(keys, descending=descending))


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64], ids=str)
def test_words_that_move_along(device: gs.Device, dtype: Any) -> None:
    """Assert that one or two words move along with each key, by every way of ranking and in short rows."""
    rng = np.random.default_rng(7)
    for length, tile in ((700, None), (3001, 256)):
        keys = rng.integers(0, 2**14, length).astype(np.uint32)
        words = rng.integers(0, np.iinfo(dtype).max, length, dtype=dtype)
        there, moved = device.asarray(keys), device.asarray(words)
        for by_subgroups in ways(device):
            found = sort_device(device._executor, there, 0, words=moved, tile_size=tile, subgroups=by_subgroups)
            np.testing.assert_array_equal(found.keys._read(), np.sort(keys))
            np.testing.assert_array_equal(found.payload._read(), words[np.argsort(keys, kind="stable")])
            if tile is None or dtype != np.uint32 or device.capabilities.limits[STORAGE_LIMIT] < 9:
                continue
            for radix in (keys, keys & 0xFF):  # an even and an odd number of steps
                some = device.asarray(radix)
                options: dict[str, Any] = {"tile_size": tile, "subgroups": by_subgroups}
                found = sort_device(device._executor, some, 0, words=moved, with_indices=True, **options)
                assert found.words is not None
                order = np.argsort(radix, kind="stable")
                np.testing.assert_array_equal(found.payload._read(), order)
                np.testing.assert_array_equal(found.words._read(), words[order])


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64], ids=str)
def test_partitioned_places(device: gs.Device, dtype: Any) -> None:
    """Assert that places come together by one digit of theirs alone, with their words."""
    rng = np.random.default_rng(8)
    places = rng.permutation(200_000).astype(np.uint32)
    words = rng.integers(0, np.iinfo(dtype).max, places.size, dtype=dtype)
    found = partition_indices(device._executor, device.asarray(places), device.asarray(words))
    order = np.argsort(places >> 16, kind="stable")
    np.testing.assert_array_equal(found.keys._read(), places[order])
    np.testing.assert_array_equal(found.payload._read(), words[order])


def test_subgroups_of_any_size(device: gs.Device) -> None:
    """Assert that there are counters for as many subgroups as a vendor's compilers can make, on GPUs of any vendor."""
    for vendor, seen, fewest in (("NVIDIA", 32, 32), ("Intel", 32, 8), ("AMD", 64, 32), ("Other", 128, 4)):
        as_if = replace(
            device.capabilities, vendor=vendor, adapter_type="DiscreteGPU", subgroup_sizes=(seen,), subgroup_size=seen
        )
        plan = plan_sort(scalar_of(np.dtype("uint64")), 1, 10**6, as_if)
        assert isinstance(plan, TileSort)
        assert plan.groups * fewest >= plan.workgroup


def test_plans(device: gs.Device) -> None:
    """Assert that plans fit the device, and that short rows share workgroups."""
    limits = device.capabilities.limits
    for name in ("bool", "int8", "float32", "uint64"):
        scalar = scalar_of(np.dtype(name))
        longest = key_heuristics.sort_heuristics_for(device.capabilities.adapter_type).max_row_length // scalar.words
        for rows, length in ((1, 1), (10_000, 10), (1, 2048), (1, 3000), (7, 10**6), (1, 2**28)):
            short = plan_row_sort(scalar, rows, length, device.capabilities)
            assert short is None or length <= longest
            assert short is not None or length > 1000
            if short is not None:
                assert length <= 1 << short.levels
                assert short.rows * short.workgroups >= rows
                assert short.workgroup <= limits["max-compute-invocations-per-workgroup"]
                assert 4 << short.log_capacity <= limits["max-compute-workgroup-storage-size"]
            plan = plan_sort(scalar, rows, length, device.capabilities)
            assert plan.workgroup <= limits["max-compute-invocations-per-workgroup"]
            assert plan.tiles == rows * plan.tiles_per_row
            assert plan.tiles_per_row * plan.tile_size >= length
            assert plan.digits * plan.radix_bits >= (1 if name == "bool" else scalar.bits)
            # llvmpipe ends the loops of an invocation after 65,535 iterations.
            assert plan.tile_size // plan.workgroup < 16_384
    assert plan_sort(scalar_of(np.dtype("bool")), 1, 10**6, device.capabilities).digits == 1
