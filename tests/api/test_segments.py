"""Scans that restart at offsets or where keys change give what a scan of each segment gives, exactly."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.harness.scans import make_problem, scan_with
from tests.harness.stages import twin_of
from tests.oracle import (
    AFFINE,
    LATER,
    MATRICES,
    Array,
    assert_same,
    draw_offsets,
    half_of,
    limit_examples,
    one_by_one,
    small_tiles,
    strategies_in_turn,
    strategies_on,
    words,
)
from tests.strategies import numbers


def each_for_itself(function: Any, x: tuple[Array, ...], offsets: Array, **options: Any) -> list[Array]:
    parts = [
        one_by_one(function, tuple(field[a:b] for field in x), **options)
        for a, b in itertools.pairwise(offsets)
        if a < b
    ]
    return [np.concatenate(fields) for fields in zip(*parts, strict=True)]


def keys_of(offsets: Array, dtype: Any = np.int32) -> Array:
    return (np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) % 128).astype(dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_short_segments_and_long_ones(device: gs.Device, exclusive: bool, reverse: bool) -> None:
    """Return an operator that does not commute, with the value that each segment begins with."""
    rng, tile = np.random.default_rng(0), small_tiles(device)[-1]
    x = words(rng, 2, 9001)
    options: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse, "initial": (3, 7)}
    for offsets in (draw_offsets(rng, 9001, 400), np.array([0, 0, 9001, 9001]), np.array([0, 1, 4000, 8999, 9001])):
        wanted = each_for_itself(AFFINE.function, x, offsets, **options)
        for strategy in strategies_in_turn(device, exclusive + reverse):
            got = scan_with(device, make_problem(x, AFFINE, segments=offsets, **options), strategy, tile=tile)
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, (strategy, tile))


@pytest.mark.parametrize("exclusive", [False, True])
def test_operators_without_identity(device: gs.Device, exclusive: bool) -> None:
    rng = np.random.default_rng(1)
    offsets = draw_offsets(rng, 5000, 90)
    for op, fields in ((MATRICES, 4), (LATER, 2)):
        x = words(rng, fields, 5000)
        initial = tuple(range(3, 3 + fields)) if exclusive else None
        wanted = each_for_itself(op.function, x, offsets, exclusive=exclusive, initial=initial)
        got = gs.scan(x, op, segments=offsets, exclusive=exclusive, initial=initial, device=device)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, op)


@limit_examples(25)
@given(data=st.data(), dtype=st.sampled_from(["uint8", "int16", "int32", "uint64"]))
def test_any_segments(device: gs.Device, data: st.DataObject, dtype: str) -> None:
    """Cut by offsets and by keys, from NumPy and device arrays."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    length = data.draw(st.sampled_from([0, 1, 2, 31, 32, 33, 63, 65, 255, 257, 1000, 4099]))
    offsets = draw_offsets(rng, length, data.draw(st.sampled_from([1, 2, 5, 40, 300])))
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    x = numbers(rng, dtype, length)
    asked: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
    wanted = np.empty_like(x)
    for a, b in itertools.pairwise(offsets):
        row = np.cumsum(x[a:b][::-1] if reverse else x[a:b], dtype=x.dtype)
        row = np.concatenate([np.zeros(1, x.dtype), row])[: b - a] if exclusive else row
        wanted[a:b] = row[::-1] if reverse else row
    places: list[dict[str, Any]] = [{"segments": offsets}, {"keys": keys_of(offsets)}]
    for given_, on_device in itertools.product(places, (False, True)):
        got = gs.scan(device.asarray(x) if on_device else x, device=device, **given_, **asked)
        assert_same(got, wanted, (given_, on_device))


KEYS: dict[str, Any] = {
    "bool": np.array([0, 0, 1, 1, 1, 0, 1] * 30, bool),
    "bool of any bytes": np.array([0, 0, 1, 2, 255, 0, 128] * 30, np.uint8).view(bool),
    "int8": np.repeat(np.arange(-30, 30, dtype=np.int8), 3),
    "uint16": np.repeat(np.array([0, 65535, 1, 256], np.uint16), 50),
    "int64": np.repeat(np.array([1, 2**32 + 1, 2**40, 2**40 + 1], np.int64), 41),
    "float16": np.array([0.0, -0.0, np.nan, np.nan, 1, 1, np.inf, np.inf, -np.inf] * 20, np.float16),
    "bfloat16": np.array([0.0, -0.0, np.nan, np.nan, 1, 1, np.inf, np.inf] * 20, ml_dtypes.bfloat16),
    "float32": np.array([0.0, -0.0, np.nan, np.nan, 1, 1, np.inf, np.inf, -np.inf] * 20, np.float32),
    "float64": np.array([0.0, -0.0, np.nan, np.nan, 1, 1 + 2**-52, np.inf, np.inf] * 20, np.float64),
    "complex64": np.array([0.0, -0.0, np.nan, 1j, 1j, 1 + 1j, 1 + 1j, 1] * 20, np.complex64),
    "text": np.repeat(np.array(["a", "ab", "b"]), 33),
    "records": np.repeat(np.array([(1, 2.0), (1, 3.0), (2, 3.0)], [("a", np.int32), ("b", np.float32)]), 33),
    "big-endian": np.repeat(np.arange(40, dtype=">i4"), 4),
    "every other": np.repeat(np.arange(40, dtype=np.int32), 8)[::2],
    "backwards": np.repeat(np.arange(40, dtype=np.int32), 4)[::-1],
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_any_dtype(device: gs.Device, name: str, reverse: bool) -> None:
    """Assert that keys differ as NumPy's do: NaN from NaN, but 0.0 not from -0.0; also on the device."""
    keys = KEYS[name]
    x = np.arange(1, len(keys) + 1, dtype=np.uint32)
    heads = np.concatenate([[True], keys[1:] != keys[:-1]])
    offsets = np.append(np.flatnonzero(heads), len(keys))
    (wanted,) = each_for_itself(lambda l, r: (l[0] + r[0],), (x,), offsets, reverse=reverse)
    assert_same(gs.scan(x, keys=keys, reverse=reverse, device=device), wanted)
    assert_same(gs.scan(device.asarray(x), keys=keys, reverse=reverse), wanted)
    if name not in ("text", "records"):
        on_device = device.asarray(keys)
        assert_same(gs.scan(device.asarray(x), keys=on_device, reverse=reverse), wanted)
        assert_same(gs.scan(x, keys=on_device, reverse=reverse, device=device), wanted)


def test_in_pieces(device: gs.Device) -> None:
    """Assert that pieces have the bits of the whole."""
    rng = np.random.default_rng(4)
    length = 300_001
    offsets = draw_offsets(rng, length, 999)
    x = rng.normal(size=length).astype(np.float32)
    whole = gs.scan(x, segments=offsets, device=device)
    for a, b in itertools.pairwise(offsets):
        np.testing.assert_allclose(whole[a:b], np.cumsum(x[a:b], dtype=np.float64), rtol=1e-3, atol=1e-3)
    for strategy in half_of(device, strategies_on(device)):
        (got,) = scan_with(device, make_problem(x, segments=offsets), strategy, piece_bytes=1 << 18)
        assert_same(got, whole, strategy)


def test_structured_bundles_and_maps(device: gs.Device) -> None:
    rng = np.random.default_rng(5)
    x = rng.integers(0, 100, 2000, dtype=np.int16)
    offsets = draw_offsets(rng, 2000, 70)
    got = gs.scan(
        x,
        lambda l, r: (l[0] + r[0], l[1] + r[1]),
        segments=offsets,
        before=lambda v: (v.astype(np.float32), np.where(v > 50, 1, 0).astype(np.int32)),
        after=lambda p: p[0] * 2 + p[1].astype(np.float32),
        device=device,
    )
    for a, b in itertools.pairwise(offsets):
        wanted = np.cumsum(x[a:b], dtype=np.float32) * 2 + np.cumsum(x[a:b] > 50)
        assert_same(got[a:b], wanted.astype(np.float32))


def test_out_is_the_input(device: gs.Device) -> None:
    x = np.ones(5000, np.uint32)
    a = device.asarray(x)
    assert gs.scan(a, segments=[0, 3000, 5000], out=a) is a
    assert_same(a, np.concatenate([np.arange(1, 3001), np.arange(1, 2001)]).astype(np.uint32))


@pytest.mark.parametrize("exclusive", [False, True])
def test_elements_that_are_joined_once(device: gs.Device, exclusive: bool) -> None:
    """Scan in the tiles that GPUs take for segments of integers, and to the bits of the twin."""
    rng, tile = np.random.default_rng(8), small_tiles(device)[-1]
    if tile.subgroup_size:
        # The heads of ten chunks of four take two words.
        tile = replace(tile, steps=10 if exclusive else tile.steps, single_lead=True)
    x, offsets = (rng.integers(-99, 99, 2003) / 7).astype(np.float32), draw_offsets(rng, 2003, 60)
    problem = make_problem(x, segments=offsets, exclusive=exclusive)
    (wanted,) = twin_of(problem, tile)
    (got,) = scan_with(device, problem, strategies_in_turn(device, exclusive)[0], tile=tile)
    assert_same(got, wanted)


def test_counts_of_heads(device: gs.Device) -> None:
    """Reduce segments in tiles with subgroups, where items count heads."""
    rng = np.random.default_rng(9)
    x, offsets = rng.integers(0, 99, 2003, dtype=np.uint32), np.r_[0, np.sort(rng.permutation(2002)[:700] + 1), 2003]
    problem = replace(make_problem(x, segments=offsets), keep_last_only=True)
    (got,) = scan_with(device, problem, strategies_in_turn(device, 1)[0], tile=small_tiles(device)[-1])
    assert_same(got, np.add.reduceat(x, offsets[:-1], dtype=np.uint32))


@pytest.mark.parametrize("dtype", ["int64", "uint32", "int8"])
def test_offsets_of_numpy_that_fall(device: gs.Device, dtype: str) -> None:
    """Raise for wrong offsets even if the device scans while they are checked, and write nothing to `out`."""
    a = device.asarray(np.ones(100, np.int32))
    out = device.asarray(np.full(100, 7, np.int32))
    for wrong in ([0, 90, 40, 100], [0, 99, 3, 2, 100]):
        for target in (None, out):
            with pytest.raises(ValueError, match=rf"segments decrease from {wrong[1]} at index 1 to {wrong[2]}"):
                gs.scan(a, segments=np.array(wrong, dtype), out=target)
    with pytest.raises(ValueError, match="segments from 0 to 90 were passed for 100 elements"):
        gs.scan(a, segments=np.array([0, 90], dtype))
    assert_same(out, np.full(100, 7, np.int32))
    assert_same(gs.scan(a, segments=np.array([0, 30, 100], dtype)), np.r_[1:31, 1:71].astype(np.int32))


def test_many_offsets_of_numpy(device: gs.Device) -> None:
    """Upload offsets through staging buffers, where they become narrower."""
    offsets = np.sort(np.random.default_rng(5).integers(0, 400_001, 300_000))
    offsets[0], offsets[-1] = 0, 400_000
    places = np.arange(400_000)
    wanted = places - offsets[np.searchsorted(offsets, places, "right") - 1] + 1
    a = device.asarray(np.ones(400_000, np.int32))
    assert_same(gs.scan(a, segments=offsets), wanted.astype(np.int32))
    offsets[250_000] = offsets[249_999] - 1
    with pytest.raises(ValueError, match=r"segments decrease from .* at index 249999"):
        gs.scan(a, segments=offsets)
