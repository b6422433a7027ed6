"""Reductions of segments in three stages give what NumPy gives, wherever segments begin and end in tiles."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.engine import device_arrays
from gpuscan.engine.segment_results import fold_segments
from gpuscan.planning import segment_plan
from gpuscan.planning.key_heuristics import SEGMENTS
from tests.harness.devices import device_as_if
from tests.oracle import AFFINE, Array, assert_same, draw_offsets, one_by_one, words

# Elements of a tile of single words, and the elements of one that each invocation combines.
TILE, OWN = 128, 4


@pytest.fixture(params=["few lanes", "subgroups", "as on GPUs"])
def gpu(device: gs.Device, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[gs.Device]:
    """Return a device that reduces segments in three stages, in small tiles or in tiles of a GPU."""
    size = device.capabilities.subgroup_size
    folded: list[bool] = []
    if request.param == "subgroups" and (not size or size > 32):
        pytest.skip("the adapter has no subgroups that fit")
    if request.param != "as on GPUs":
        small = replace(
            SEGMENTS,
            lanes=TILE // OWN,
            own_words=OWN,
            tile_words=TILE,
            joined_tiles=8,
            few_parts=3,
            segments_each=2,
            results_at_once=2,
        )
        monkeypatch.setattr(segment_plan, "SEGMENTS", small)
    if request.param == "subgroups":
        monkeypatch.setattr(segment_plan, "fewest_lanes", lambda capabilities: capabilities.subgroup_size)

    def spy(*arguments: Any) -> bool:
        folded.append(fold_segments(*arguments))
        return folded[-1]

    monkeypatch.setattr(device_arrays, "fold_segments", spy)
    sizes = (size,) if size else ()
    yield device_as_if(device, adapter_type="DiscreteGPU", vendor="NVIDIA", subgroup_sizes=sizes)
    assert folded
    assert all(folded)


def sums(x: Array, offsets: Array, begin: Any = 0) -> Array:
    """Return the sums of the segments."""
    return np.array([x[a:b].sum(dtype=x.dtype) + begin for a, b in itertools.pairwise(offsets)], x.dtype)


LENGTHS = [1, 3, OWN, OWN + 1, TILE - 1, TILE, TILE + 1, 2 * TILE, 5 * TILE + 7, 60 * TILE + 1]


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
def test_lengths_and_cuts(gpu: gs.Device, dtype: str) -> None:
    """Reduce few long segments, each element by itself, many empty segments, and all between."""
    rng = np.random.default_rng(3)
    for length in LENGTHS:
        x = rng.integers(0, 90, length).astype(dtype)
        there = gpu.asarray(x)
        ends = np.array([0, 0, length, length, length])
        tiles = np.unique(np.concatenate([np.arange(0, length, TILE), [max(0, length - 1), length]]))
        crowd = np.sort(np.concatenate([[0], np.full(3 * TILE, length // 2), [length]]))
        given = [ends, tiles, crowd, np.arange(length + 1)]
        given += [draw_offsets(rng, length, count) for count in (1, 2, 9, length + 1, 3 * length)]
        for offsets in given:
            got = gs.reduce(there, segments=gpu.asarray(offsets.astype(np.int32)))
            assert_same(got, sums(x, offsets), (length, len(offsets)))


@pytest.mark.parametrize("kind", ["bundle", "rows", "initial", "mapped", "views"])
def test_elements(gpu: gs.Device, kind: str) -> None:
    """Assert results of operators that do not commute, of several rows, of initial values and maps, and of views."""
    rng = np.random.default_rng(4)
    length, rows = 9 * TILE + 5, 3
    offsets = draw_offsets(rng, length, 70).astype(np.int32)
    there = gpu.asarray(offsets)
    if kind == "bundle":
        bundle = words(rng, 2, (length,))
        got = gs.reduce(tuple(map(gpu.asarray, bundle)), AFFINE, segments=there)
        for number, (a, b) in enumerate(itertools.pairwise(offsets)):
            part = tuple(each[a:b] for each in bundle)
            total = [each[-1] for each in one_by_one(AFFINE.function, part)] if a < b else [1, 0]
            for result, value in zip(got, total, strict=True):
                assert int(result.numpy()[number]) == int(value)
        return
    x = rng.integers(-99, 99, (rows, length)).astype(np.int16)
    if kind == "rows":
        assert_same(gs.reduce(gpu.asarray(x), axis=1, segments=there), np.stack([sums(row, offsets) for row in x]))
        maxima = gs.reduce(gpu.asarray(x.astype(np.float32)), "maximum", axis=1, segments=there)
        assert_same(maxima, gs.reduce(x.astype(np.float32), "maximum", axis=1, segments=offsets, device="numpy"))
    elif kind == "initial":
        begin = np.array([5, -7, 100], np.int16)
        wanted = np.stack([sums(row, offsets, value) for row, value in zip(x, begin, strict=True)])
        assert_same(gs.reduce(gpu.asarray(x), axis=1, segments=there, initial=begin), wanted)
    elif kind == "mapped":
        options: dict[str, Any] = {"axis": 1, "before": lambda v, i: v.astype(np.int32) * i, "after": lambda v: v + 1}
        wanted = gs.reduce(x, segments=offsets, device="numpy", **options)
        assert_same(gs.reduce(gpu.asarray(x), segments=there, **options), wanted)
    else:
        padded = gpu.asarray(np.concatenate([[9], offsets]).astype(np.int32))
        out = gpu.asarray(np.zeros((2, len(offsets) - 1), np.int16))
        gs.reduce(gpu.asarray(x)[1, ::-1], segments=padded[1:], out=out[1])
        assert_same(out, np.stack([np.zeros(len(offsets) - 1, np.int16), sums(x[1, ::-1], offsets)]))


def test_same_bits(gpu: gs.Device) -> None:
    """Assert that sums of floats have the same bits at each call, for offsets in NumPy and on the device."""
    rng = np.random.default_rng(5)
    x = gpu.asarray(rng.standard_normal(40 * TILE).astype(np.float32))
    offsets = draw_offsets(rng, 40 * TILE, 11, full=True).astype(np.int32)
    first = gs.reduce(x, segments=gpu.asarray(offsets)).numpy()
    np.testing.assert_allclose(first, np.add.reduceat(x.numpy().astype(np.float64), offsets[:-1]), atol=1e-3)
    for given in (offsets, offsets.astype(np.uint64), gpu.asarray(offsets.astype(np.int64))):
        assert_same(gs.reduce(x, segments=given), first)


@pytest.mark.parametrize(
    "wrong", [[0, 9, 5, 700], [0, 5, 701], [0, -3, 700], [1, 7, 700], [0, 7, 699], [0] + [9, 5] * 900]
)
def test_wrong_offsets(gpu: gs.Device, wrong: list[int]) -> None:
    """Assert that wrong offsets raise with the result, and only once."""
    x = gpu.asarray(np.ones(700, np.uint32))
    with pytest.raises(ValueError, match="segments"):
        gs.reduce(x, segments=gpu.asarray(np.array(wrong))).numpy()
    gpu.synchronize()


def test_empty_segment_without_result(gpu: gs.Device) -> None:
    first = gs.operator(lambda l, r: l)
    x, segments = gpu.asarray(np.arange(4, dtype=np.int32)), gpu.asarray(np.array([0, 2, 2, 4]))
    with pytest.raises(ValueError, match="segment 1 is empty and the operator"):
        gs.reduce(x, first, segments=segments).numpy()
    assert_same(gs.reduce(x, first, segments=segments, initial=9), np.array([9, 9, 9], np.int32))
