"""Each stage's shader beside its CPU twin: what they leave in the tile state and the results, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu

from gpuscan.api.device import Device
from gpuscan.device.bind_groups import Binding
from gpuscan.elements import words_of
from gpuscan.engine.host_arrays import work_of
from gpuscan.engine.record import Run, record
from gpuscan.planning.kernel import STATE_HEADER_WORDS, Kernel
from gpuscan.planning.plan import ScanPlan, plan_scan
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
from tests.oracle import AFFINE, Array, assert_same, posed, strategies_on, tile_in_turn, words

USAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC


def shapes(device: Device) -> list[TileShape]:
    """Every number of steps, chunks of every access width, subgroup totals that fit a subgroup and that do not.

    And elements that are joined once, with all that comes before their chunk.
    """
    size = device.capabilities.subgroup_size
    shapes = [TileShape(32, 0, 1, 1), TileShape(64, 0, 1, 8)]
    if size:
        workgroups = (max(32, size), min(size * size, 64), 128)
        shapes += [TileShape(w, size, s, c) for w, s, c in zip(workgroups, (1, 3, 2), (4, 1, 8), strict=True)]
        shapes += [TileShape(max(32, size), size, 4, 4), TileShape(max(64, 2 * size), size, 2, 2, single_lead=True)]
    return shapes


def problems(tiles: int, tile: TileShape) -> dict[str, Problem]:
    """Float sums and a bundle, plain and with every option; the last tile is not full, nor the last block."""
    length = (tiles * tile.tile_size - tile.tile_size // 3 - 1) // 3 * 3
    rng = np.random.default_rng(tiles)
    x = rng.standard_normal(length).astype(np.float32)
    initial = rng.standard_normal(3).astype(np.float32)
    return {
        "plain": posed(x),
        "options": posed(x.reshape(3, -1), axis=1, exclusive=True, reverse=True, initial=initial),
        "bundle": posed(words(rng, 2, (5, length // 5)), AFFINE, axis=1, reverse=True),
    }


def run_stages(device: Device, problem: Problem, plan: ScanPlan) -> tuple[Run, Array, list[Array]]:
    """The run, the words of the tile state, and the results of a plan's stages, on buffers made for them alone."""
    data = device.wgpu_device.create_buffer_with_data
    sources = []
    for leaf in problem.leaves:
        content = problem.by_rows(leaf).tobytes()
        sources.append(Binding(data(data=content + b"\xa5" * (-len(content) % 16), usage=USAGE)))
    results = [data(data=b"\xa5" * source.buffer.size, usage=USAGE) for source in sources]
    seeds = None
    if problem.seeds is not None:
        seeds = Binding(data(data=words_of(problem.element, problem.seeds), usage=USAGE))
    encoder = device.wgpu_device.create_command_encoder()
    run = record(device, plan, encoder, sources, [Binding(buffer) for buffer in results], seeds)
    device.wgpu_device.queue.submit([encoder.finish()])
    state = np.frombuffer(device.wgpu_device.queue.read_buffer(run.state), np.uint32)
    fields = zip(results, problem.element.fields, strict=True)
    arrays = [np.frombuffer(device.wgpu_device.queue.read_buffer(b), f.scalar.dtype)[: problem.size] for b, f in fields]
    return run, state[STATE_HEADER_WORDS:], [a.reshape(problem.rows, problem.row_length) for a in arrays]


def twin(problem: Problem, tile: TileShape) -> tuple[Joiner, TileSums]:
    """The scans inside the tiles, on NumPy."""
    join = Joiner(problem.operator, problem.element, problem.rows > 1)
    flat = [reference.flattened(problem, problem.by_rows(leaf)) for leaf in problem.leaves]
    return join, scan_tile(join, tile, reference.load(problem, flat))


def item_words(problem: Problem, items: Items) -> Array:
    """The words in which items travel: the element's, then the head flag."""
    fields = words_of(problem.element, items[: len(problem.element.fields)])
    return np.column_stack([fields, *items[len(problem.element.fields) :]]).astype(np.uint32)


def planned(
    device: Device, problem: Problem, strategy: str, tile: TileShape, many: bool | None = None, **changes: Any
) -> ScanPlan:
    """The plan, as if the adapter had other capabilities."""
    capabilities = replace(device.capabilities, **changes)
    return plan_scan(work_of(device, problem), capabilities, strategy, "asked", tile=tile, one_workgroup_folds=many)


def each(device: Device, tiles: int) -> list[Any]:
    """Every shape with every problem that it can be asked for."""
    return [(t, note, p) for t in shapes(device) for note, p in problems(tiles, t).items()]


def test_reduce(device: Device) -> None:
    """reduce.wgsl leaves the aggregate of every full tile."""
    for tile, note, problem in each(device, 40):
        plan = planned(device, problem, "three_dispatch", tile)
        _, state, _ = run_stages(device, problem, replace(plan, stages=plan.stages[:1]))
        _, sums = twin(problem, tile)
        wanted = item_words(problem, reduce(sums))
        got = state[: wanted.size].reshape(wanted.shape)
        assert_same(got[:-1], wanted[:-1], (tile, note))


def test_scan_totals(device: Device) -> None:
    """scan_totals.wgsl turns them into P(block) ⊕ K(tile)."""
    for tile, note, problem in each(device, 70):
        plan = planned(device, problem, "three_dispatch", tile)
        _, state, _ = run_stages(device, problem, replace(plan, stages=plan.stages[:2]))
        join, sums = twin(problem, tile)
        prefixes, _ = scan_totals(join, tile.block, reduce(sums))
        wanted = item_words(problem, prefixes)
        got = state[: wanted.size].reshape(wanted.shape)
        assert_same(got[1:], wanted[1:], (tile, note))


def test_scan(device: Device) -> None:
    """scan.wgsl, given the prefixes, stores every element once."""
    for tile, note, problem in each(device, 40):
        plan = planned(device, problem, "three_dispatch", tile)
        _, _, results = run_stages(device, problem, plan)
        join, sums = twin(problem, tile)
        prefixes, _ = scan_totals(join, tile.block, reduce(sums))
        items = scan(join, sums, prefixes, exclusive=problem.exclusive)
        stored = reference.store(problem, items)
        for got, field in zip(results, stored, strict=True):
            assert_same(reference.flattened(problem, got), field, (tile, note))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("strategy", ["lookback", "fallback"])
def test_posts(device: Device, strategy: str, many: bool) -> None:
    """Tiles post their aggregates, and a total and a prefix for each block or, by a fold, the prefix of each tile.

    As halves of words and as long words, by turns: each problem and each shape has either.
    """
    if strategy not in strategies_on(device):
        assert not device.capabilities.progress_earlier
        return
    turn = many + (strategy == "fallback")
    tile = tile_in_turn(device, turn)
    for number, (note, problem) in enumerate(problems(70, tile).items(), turn):
        long = device.capabilities.int64_atomics and number % 2 == 0
        plan = planned(device, problem, strategy, tile, many, int64_atomics=long)
        run, state, results = run_stages(device, problem, plan)
        join, sums = twin(problem, tile)
        aggregates = reduce(sums)
        prefixes, folded = scan_totals(join, tile.block, aggregates)
        tiles, whole = run.plan.tiles, run.plan.tiles // tile.block
        behind = -(-tiles // tile.block) * tile.block  # where the posts begin that come after the aggregates
        posted = [(first(aggregates, -1), slice(tiles - 1))]  # the last tile is not full
        if many and problem.rows == 1:  # what comes after a tile is the next one's; a head ends the wait for it
            posted.append((rest(prefixes, 1), slice(behind, behind + tiles - 1)))
        elif not many:
            totals = last(scan_block(join, tile.block, aggregates))
            before = behind + -(-behind // tile.block**2) * tile.block
            posted.append((first(totals, whole), slice(behind, behind + whole)))
            posted.append((first(folded, whole), slice(before + 1, before + 1 + whole)))  # nothing before block 0

        epochs, payloads = posts(state, item_words(problem, aggregates).shape[1], plan.stages[0].kernel)
        for items, at in posted:
            np.testing.assert_array_equal(epochs[at], run.epoch)  # each word has the epoch, or was not posted
            assert_same(payloads[at], item_words(problem, items), (tile, note, long))

        stored = reference.store(problem, scan(join, sums, prefixes, exclusive=problem.exclusive))
        for got, field in zip(results, stored, strict=True):
            assert_same(reference.flattened(problem, got), field, (tile, note))


def posts(state: Array, width: int, kernel: Kernel) -> tuple[Array, Array]:
    """Epochs and payloads of every post, in the order in which they lie.

    Posts lie by the stride, each word of all of them side by side.
    """
    words = state.view(np.uint64) if kernel.long_posts else state
    size = kernel.post_words * kernel.post_stride
    posted = words[: len(words) // size * size].reshape(-1, width, kernel.post_words // width, kernel.post_stride)
    posted = np.moveaxis(posted, 3, 1).reshape(-1, width, kernel.post_words // width)
    if kernel.long_posts:
        return posted >> 32, posted[..., 0].astype(np.uint32)
    return posted >> 16, (posted[..., 0] & 0xFFFF) | (posted[..., 1] << 16)
