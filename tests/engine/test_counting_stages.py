"""Each stage that counts, searches or selects leaves what its twin on NumPy does, on every adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import scalar_of
from tests.api.test_sort import keys_of
from tests.harness.sorts import run_stage
from tests.oracle import Array
from tests.twins import counting as twin

# Unequal numbers of invocations, tiles and elements.
WORKGROUP = 8


def labels_of(dtype: Any) -> list[Array]:
    """Return labels from 0 to 99, others with a few below 0, equal ones, and sorted ones with long runs."""
    rng = np.random.default_rng(20)
    labels = rng.integers(0, 100, 613), rng.integers(-3, 75, 613), np.full(613, 34), np.full(613, 99)
    return [each.astype(dtype) for each in (*labels, np.full(613, 7), np.sort(rng.zipf(1.5, 613) % 90))]


def count(values: Array, bins: int, validation_flag: Array) -> Array:
    """Return the counts, and assert that the flag has the largest label and tells whether one is negative."""
    counts, found = twin.count(values, bins)
    assert validation_flag[1] == found[1]
    assert found[1] or validation_flag[0] == found[0]
    return counts


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64])
@pytest.mark.parametrize(("bins", "copies", "slots"), [(20, 3, 64), (500, 1, 0)])
def test_count(device: gs.Device, dtype: Any, bins: int, copies: int, slots: int) -> None:
    """Assert that labels are counted, wherever their counters are, and that the largest and the sign are found."""
    for values in labels_of(dtype):
        per_vector = 16 // values.itemsize
        vectors = -(-values.size // per_vector)
        share = 11
        counts, validation_flag = run_stage(
            device,
            "counting/count",
            [values.size, bins, share, bins, 0],
            [np.pad(values, (0, -values.size % per_vector), constant_values=1)],
            [np.zeros(bins, np.uint32), np.zeros(2, np.uint32)],
            -(-vectors // share),
            order=[1, "out", "out"],
            scalar=scalar_of(values.dtype),
            workgroup_size=WORKGROUP,
            copies=copies,
            slots=slots,
            edged=False,
            cached=0,
            uniform=False,
        )
        np.testing.assert_array_equal(counts, count(values, bins, validation_flag))


@pytest.mark.parametrize(("dtype", "vectors"), [(np.uint8, 1), (np.int16, 2), (np.int64, 3)])
def test_count_by_parts(device: gs.Device, dtype: Any, vectors: int) -> None:
    """Assert that tiles are divided among parts of the bins, and that the parts are counted."""
    bins, part_bins, copies = 75, 16, 4
    parts = -(-bins // part_bins)
    for values in labels_of(dtype):
        per_vector = 16 // values.itemsize
        tile = WORKGROUP * vectors * per_vector
        tiles = -(-values.size // tile)
        places, validation_flag, ranges, totals = run_stage(
            device,
            "counting/divide_bins",
            [values.size, bins, 0, bins, 0],
            [np.pad(values, (0, -values.size % per_vector), constant_values=1)],
            [tiles * tile // 2, np.zeros(2, np.uint32), tiles * parts, np.zeros(parts, np.uint32)],
            tiles + 1,
            order=[1, "out", "out", "out", "out"],
            scalar=scalar_of(values.dtype),
            workgroup_size=WORKGROUP,
            edged=False,
            cached=0,
            uniform=False,
            vectors=vectors,
            parts=parts,
            part_bins=part_bins,
            copies=copies,
        )
        counted = count(values, bins, validation_flag)
        wanted = twin.divide_bins(values, bins, part_bins, tile)
        np.testing.assert_array_equal(twin.count_parts(wanted, bins, part_bins), counted)
        halves = places.view(np.uint16).reshape(tiles, tile)
        bounds = ranges.reshape(tiles, parts)
        for number, part in np.ndindex(bounds.shape):
            begin, end = bounds[number, part] & 0xFFFF, bounds[number, part] >> 16
            np.testing.assert_array_equal(np.sort(halves[number, begin:end]), wanted[number][part])
        np.testing.assert_array_equal(totals, [sum(len(each[part]) for each in wanted) for part in range(parts)])
        for lanes, workgroups in ((4, 2 * parts), (WORKGROUP, 3 * parts)):
            unit = -(-values.size // (workgroups - parts))
            (counts,) = run_stage(
                device,
                "counting/count_parts",
                [tiles, bins, unit],
                [places, ranges, totals],
                [np.zeros(bins, np.uint32)],
                workgroups,
                workgroup_size=WORKGROUP,
                lanes=lanes,
                at_once=3,
                parts=parts,
                part_bins=part_bins,
                tile=tile,
            )
            np.testing.assert_array_equal(counts, counted)


@pytest.mark.parametrize("cached", [0, 40])
@pytest.mark.parametrize("uniform", [False, True])
def test_count_by_edges(device: gs.Device, cached: int, uniform: bool) -> None:
    """Assert that numbers are counted by their bins, also where the first guess of the bin is far off."""
    rng = np.random.default_rng(1)
    values = np.append(rng.normal(0, 3, 701), [np.nan, np.inf, -np.inf, 2.0]).astype(np.float32)
    bins = 30
    edges = np.linspace(-4, 5, bins + 1).astype(np.float32)
    values[:31] = edges
    scale = bins / 9 * (1.5 if cached else 1.0)
    margin = 1.0 if cached else 1e-4
    per_vector, share = 4, 20
    (counts,) = run_stage(
        device,
        "counting/count",
        [values.size, bins, share, bins, *np.array([scale, margin], np.float32).view(np.uint32).tolist()],
        [np.pad(values, (0, -values.size % per_vector)), edges],
        [np.zeros(bins, np.uint32)],
        -(-values.size // (per_vector * share)),
        order=[1, "out", 2],
        scalar=scalar_of(values.dtype),
        workgroup_size=WORKGROUP,
        copies=2,
        slots=64,
        edged=True,
        cached=cached,
        uniform=uniform,
    )
    np.testing.assert_array_equal(counts, twin.count(values, bins, edges)[0])


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.uint64])
def test_search(device: gs.Device, dtype: Any, right: bool) -> None:
    """Assert that keys find their places among any number of sorted ones."""
    for length in (1, 5, 16, 17, 100):
        ordered = np.sort(keys_of(dtype, (length,), length))
        searched = np.append(keys_of(dtype, (90,), 7), ordered[:7])
        (places,) = run_stage(
            device,
            "counting/search",
            [searched.size, length],
            [ordered, searched],
            [searched.size],
            -(-searched.size // (WORKGROUP * 3)),
            order=[1, "out", 2],
            scalar=scalar_of(ordered.dtype),
            workgroup_size=WORKGROUP,
            items=3,
            top=16,
            right=right,
            counted=False,
            own=False,
        )
        np.testing.assert_array_equal(places, twin.search(ordered, searched, right=right))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.int32, np.float64])
def test_select(device: gs.Device, dtype: Any, descending: bool) -> None:
    """Assert that each tile of a round keeps its first keys, whatever it drops because of others."""
    items, rows, length = 4, 3, 100
    tile = WORKGROUP * items
    keys = keys_of(dtype, (rows, length), 3)
    keys[1] = keys[1, 0]
    scalar = scalar_of(keys.dtype)
    shape: dict[str, Any] = {
        "scalar": scalar,
        "descending": descending,
        "workgroup_size": WORKGROUP,
        "items": items,
        "bounded": False,
    }
    for kept in (1, 7, 30):
        tiles = -(-length // tile)
        (places,) = run_stage(
            device,
            "counting/select",
            [rows, length, tiles, kept, length, 1],
            [np.pad(keys.reshape(-1), (0, -keys.size % 8))],
            [rows * tiles * kept],
            rows * tiles,
            first=True,
            final=False,
            **shape,
        )
        everything = np.broadcast_to(np.arange(length), (rows, length))
        wanted = twin.select(keys, everything, kept, tile, descending=descending)
        np.testing.assert_array_equal(places.reshape(wanted.shape), wanted)
        if kept * tiles > tile:
            continue
        candidates = wanted.reshape(rows, -1)
        found, selected = run_stage(
            device,
            "counting/select",
            [rows, candidates.shape[1], 1, kept, length, 1],
            [np.pad(keys.reshape(-1), (0, -keys.size % 8)), candidates],
            [rows * kept, rows * kept * scalar.words],
            rows,
            order=[1, "out", 2, "out"],
            first=False,
            final=True,
            **shape,
        )
        last = twin.select(keys, candidates, kept, tile, descending=descending)[:, 0]
        np.testing.assert_array_equal(found.reshape(rows, kept), last)
        words = np.take_along_axis(keys, last.astype(np.int64), 1).reshape(-1)
        own = words.view(f"u{min(words.itemsize, 4)}").astype(np.uint32)
        np.testing.assert_array_equal(selected, own)
