"""Each stage's shader and its twin on NumPy leave the same bits in the tile state and in the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import words_of
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.problem import Problem
from gpuscan.reference import scan as reference
from gpuscan.reference.stages import (
    Items,
    Joiner,
    TileSums,
    first,
    last,
    reduce,
    rest,
    scan,
    scan_block,
    scan_tile,
    scan_totals,
)
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem
from tests.harness.stages import run_stages
from tests.oracle import AFFINE, Array, assert_same, half_of, strategies_on, tile_in_turn, words


def shapes(device: gs.Device) -> list[TileShape]:
    """Return tiles of every number of steps, access width, and number of subgroups.

    In the last one, the elements of a chunk are joined once with everything before the chunk.
    """
    size = device.capabilities.subgroup_size
    shapes = [TileShape(32, 0, 1, 1), TileShape(64, 0, 1, 8)]
    if size:
        workgroups = (max(32, size), min(size * size, 64), 128)
        shapes += [TileShape(w, size, s, c) for w, s, c in zip(workgroups, (1, 3, 2), (4, 1, 8), strict=True)]
        shapes += [TileShape(max(32, size), size, 4, 4), TileShape(max(64, 2 * size), size, 2, 2, single_lead=True)]
    return shapes


def problems(tiles: int, tile: TileShape) -> dict[str, Problem]:
    """Return float sums and a bundle, plain and with every option; the last tile and the last block are not full."""
    length = (tiles * tile.tile_size - tile.tile_size // 3 - 1) // 3 * 3
    rng = np.random.default_rng(tiles)
    x = rng.standard_normal(length).astype(np.float32)
    initial = rng.standard_normal(3).astype(np.float32)
    return {
        "plain": make_problem(x),
        "options": make_problem(x.reshape(3, -1), axis=1, exclusive=True, reverse=True, initial=initial),
        "bundle": make_problem(words(rng, 2, (5, length // 5)), AFFINE, axis=1, reverse=True),
    }


def twin(problem: Problem, tile: TileShape) -> tuple[Joiner, TileSums]:
    """Return the scans inside the tiles, on NumPy, and the operator that joins them."""
    join = Joiner(problem.operator, problem.element, problem.rows > 1)
    flat = [reference.flatten_rows(problem, problem.by_rows(leaf)) for leaf in problem.numpy_leaves]
    return join, scan_tile(join, tile, reference.load(problem, flat))


def item_words(problem: Problem, items: Items) -> Array:
    """Return the words of items: first the words of the element, then the head flag."""
    fields = words_of(problem.element, items[: len(problem.element.fields)])
    return np.column_stack([fields, *items[len(problem.element.fields) :]]).astype(np.uint32)


def each(device: gs.Device, tiles: int, rotation: int) -> list[Any]:
    """Return every tile with every problem, or a part of the pairs if adapters share cases."""
    return half_of(device, [(t, note, p) for t in shapes(device) for note, p in problems(tiles, t).items()], rotation)


def test_reduce(device: gs.Device) -> None:
    """Assert that reduce.wgsl writes the aggregate of every full tile."""
    for tile, note, problem in each(device, 40, 0):
        state = run_stages(device, problem, "three_dispatch", tile, stages=1).state
        _, sums = twin(problem, tile)
        wanted = item_words(problem, reduce(sums))
        got = state[: wanted.size].reshape(wanted.shape)
        assert_same(got[:-1], wanted[:-1], (tile, note))


def test_scan_totals(device: gs.Device) -> None:
    """Assert that scan_totals.wgsl turns aggregates into P(block) ⊕ K(tile)."""
    for tile, note, problem in each(device, 70, 1):
        state = run_stages(device, problem, "three_dispatch", tile, stages=2).state
        join, sums = twin(problem, tile)
        prefixes, _ = scan_totals(join, tile.block, reduce(sums))
        wanted = item_words(problem, prefixes)
        got = state[: wanted.size].reshape(wanted.shape)
        assert_same(got[1:], wanted[1:], (tile, note))


def test_scan(device: gs.Device) -> None:
    """Assert that scan.wgsl, given the prefixes, stores every element once."""
    for tile, note, problem in each(device, 40, 0):
        results = run_stages(device, problem, "three_dispatch", tile).results
        join, sums = twin(problem, tile)
        prefixes, _ = scan_totals(join, tile.block, reduce(sums))
        items = scan(join, sums, prefixes, exclusive=problem.exclusive)
        stored = reference.store(problem, items)
        for got, field in zip(results, stored, strict=True):
            assert_same(reference.flatten_rows(problem, got), field, (tile, note))


@pytest.mark.parametrize("folds", [False, True])
@pytest.mark.parametrize("strategy", ["lookback", "fallback"])
def test_posts(device: gs.Device, strategy: str, folds: bool) -> None:
    """Assert that tiles post their aggregates, and a total and prefix of each block, or of each tile by a fold.

    Posts are halves of words for every second problem, and 64-bit words for the others.
    """
    if strategy not in strategies_on(device):
        assert not device.capabilities.progress_earlier
        return
    rotation = folds + (strategy == "fallback")
    tile = tile_in_turn(device, rotation)
    for number, (note, problem) in enumerate(problems(70, tile).items(), rotation):
        long = device.capabilities.int64_atomics and number % 2 == 0
        other = device_as_if(device, int64_atomics=long)
        run = run_stages(other, problem, strategy, tile, one_workgroup_folds=folds)
        join, sums = twin(problem, tile)
        aggregates = reduce(sums)
        prefixes, folded = scan_totals(join, tile.block, aggregates)
        tiles, whole = run.plan.tiles, run.plan.tiles // tile.block
        behind = -(-tiles // tile.block) * tile.block  # the posts after the aggregates begin here
        posted = [(first(aggregates, -1), slice(tiles - 1))]  # the last tile is not full
        if folds and problem.rows == 1:  # the prefix after a tile is the next tile's; a head ends the wait
            posted.append((rest(prefixes, 1), slice(behind, behind + tiles - 1)))
        elif not folds:
            totals = last(scan_block(join, tile.block, aggregates))
            before = behind + -(-behind // tile.block**2) * tile.block
            posted.append((first(totals, whole), slice(behind, behind + whole)))
            posted.append((first(folded, whole), slice(before + 1, before + 1 + whole)))  # nothing before block 0

        epochs, payloads = run.posts(item_words(problem, aggregates).shape[1])
        for items, at in posted:
            np.testing.assert_array_equal(epochs[at], run.epoch)  # each word has the epoch, or was not posted
            got = payloads[at].copy()
            if problem.rows > 1:
                # A head flag is set if it is not 0. A total behind a head joins whatever bits the flags of tiles before
                # it have while these are late.
                got[:, -1] = got[:, -1] != 0
            assert_same(got, item_words(problem, items), (tile, note, long))

        stored = reference.store(problem, scan(join, sums, prefixes, exclusive=problem.exclusive))
        for got, field in zip(run.results, stored, strict=True):
            assert_same(reference.flatten_rows(problem, got), field, (tile, note))
