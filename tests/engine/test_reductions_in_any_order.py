"""Reductions of operators that give the same bits in any order: their tiles are combined lane by lane, not scanned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.elements import LEAF, Structure, element_of
from gpuscan.operators.code import combine_code
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.planning.tile_shapes import RowTile
from tests.harness.devices import as_gpu
from tests.harness.scans import make_problem, scan_with
from tests.laws import dtype_of
from tests.oracle import (
    Array,
    assert_same,
    boundaries,
    half_of,
    one_of,
    pick_strategies,
    safe_strategies,
    small_tiles,
    some,
)

INTEGERS = ("int8", "uint16", "int32", "uint64", "int64")
FLOATS = ("float16", "bfloat16", "float32")
CHOICES = ("minimum", "maximum", "fmin", "fmax")
DTYPES = {
    **dict.fromkeys(CHOICES, ("bool", *INTEGERS, *FLOATS)),
    **dict.fromkeys(["add", "multiply", "gcd"], INTEGERS),
    **dict.fromkeys(["bitwise_and", "bitwise_or", "bitwise_xor"], ("bool", *INTEGERS)),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor"], ("bool",)),
}


def order_free(op: Any, *dtypes: str) -> bool:
    operator = op if isinstance(op, gs.Operator) else BUILTINS[op]
    structure = Structure("tuple", (0, 1), (LEAF, LEAF)) if len(dtypes) == 2 else LEAF
    element = element_of([dtype_of(dtype) for dtype in dtypes], structure)
    return combine_code(operator, element, native_int64=False).order_free


def last(device: gs.Device, x: Any, op: Any, strategy: str, **options: Any) -> Array:
    """Return the reduction of each row, run by one strategy and with a given tile."""
    given = {name: options.pop(name) for name in ("tile", "piece_bytes", "one_workgroup_folds") if name in options}
    problem = replace(make_problem(x, op, **options), keep_last_only=True)
    return np.asarray(scan_with(device, problem, strategy, **given)[0])


def draw_numbers(dtype: str, shape: Any) -> Array:
    """Draw odd numbers, so that products keep a trace of every factor."""
    rng = np.random.default_rng(11)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in FLOATS:
        return rng.normal(size=shape).astype(dtype_of(dtype))
    limits = np.iinfo(dtype)
    return (rng.integers(limits.min, limits.max, shape, dtype=dtype) // 3 * 3) | np.dtype(dtype).type(1)


def test_which_operators_are() -> None:
    for name in BUILTINS:
        for dtype in [*INTEGERS, *FLOATS, "bool"]:
            if dtype in DTYPES.get(name, ()):
                assert order_free(name, dtype), (name, dtype)
            elif name in ("add", "multiply", "logaddexp", "hypot") and dtype in FLOATS:
                assert not order_free(name, dtype), (name, dtype)
    assert order_free(gs.operator(lambda l, r: (r[0] + l[0], np.maximum(l[1], r[1]))), "int32", "float32")
    for function in (
        lambda l, r: (l[0] + r[1], l[1] + r[0]),
        lambda l, r: (l[0], l[1] + r[1]),
        lambda l, r: (l[0] - r[0], l[1] + r[1]),
        lambda l, r: (l[0] + l[0], l[1] + r[1]),
        lambda l, r: (abs(l[0] + r[0]), l[1] + r[1]),
    ):
        assert not order_free(gs.operator(function), "int32", "int32")


@pytest.mark.parametrize("name", DTYPES)
def test_every_operator_and_dtype(device: gs.Device, name: str) -> None:
    """Reduce one row of some tiles, rows with tiles of their own, and rows that share tiles."""
    ufunc: np.ufunc = getattr(np, name)
    for rotation, dtype in some(device, enumerate(DTYPES[name])):
        for shape in one_of(device, ((5_003,), (3, 1024), (7, 33)), rotation + len(name)):
            x = draw_numbers(dtype, shape)
            wanted = ufunc.reduce(x, axis=-1, dtype=x.dtype)
            assert_same(gs.reduce(x, name, axis=-1, device=device), wanted, (dtype, shape))


@pytest.mark.parametrize("op", ["add", "maximum"])
def test_sizes_around_tiles(device: gs.Device, op: str) -> None:
    """Assert that nothing past the end is combined, in any part of a tile."""
    x = draw_numbers("int32", 3 * 2**13)
    if op == "maximum":
        x = -(abs(x >> 1) | 1)  # zeros past the end would be the greatest
    ufunc: np.ufunc = getattr(np, op)
    for rotation, tile in enumerate(small_tiles(device)):
        lengths = [n for n in boundaries(tile) if n <= x.size]
        for strategy in pick_strategies(device, rotation):
            for length in some(device, lengths):
                got = last(device, x[:length], op, strategy, tile=tile)
                assert_same(got[0], ufunc.reduce(x[:length], dtype=x.dtype), (tile, strategy, length))


def test_options(device: gs.Device) -> None:
    """Reduce in pieces, with an initial value, with a fold by one workgroup, and reversed rows."""
    x = draw_numbers("int32", 30_001)
    total = np.add.reduce(x, dtype=x.dtype)
    for rotation, tile in half_of(device, enumerate(small_tiles(device))):
        for strategy in pick_strategies(device, rotation):
            for given in ({"piece_bytes": 1 << 14}, {"one_workgroup_folds": True}, {"reverse": True}):
                assert_same(last(device, x, "add", strategy, tile=tile, **given)[0], total, (strategy, given))
            assert_same(last(device, x, "add", strategy, tile=tile, initial=np.int32(77))[0], total + np.int32(77))
    rows = draw_numbers("uint16", (5, 4096))
    for reverse in (False, True):
        got = last(device, rows, "maximum", "auto", axis=1, reverse=reverse, initial=np.uint16(9))
        assert_same(got.ravel(), np.maximum.reduce(rows, axis=1))


@pytest.mark.parametrize("name", CHOICES)
def test_special_floats_at_every_place(device: gs.Device, name: str) -> None:
    """Assert that NaN propagates or gives way, and -0.0 is below +0.0, wherever in a tile they are."""
    greatest, skips_nan = name in ("maximum", "fmax"), name in ("fmin", "fmax")
    size = 256
    for special, others in ((np.nan, 1.0), (-np.nan, -1.0), (-0.0, 0.0), (0.0, -0.0), (1.0, np.nan), (np.inf, -np.inf)):
        x = np.full((size, size), others, np.float32)
        np.fill_diagonal(x, special)
        if np.isnan([special, others]).any():
            number = others if np.isnan(special) else special
            wanted = number if skips_nan else np.nan
        else:
            ordered = sorted((special, others), key=lambda v: (v, not np.signbit(v)))
            wanted = ordered[1 if greatest else 0]
        assert_same(gs.reduce(x, name, axis=1, device=device), np.full(size, wanted, np.float32), (special, others))
        for tile in small_tiles(device):
            for place in (0, 1, 31, 32, 127, 128, 200, 254):
                got = last(device, x[place, : size - 1], name, "auto", tile=tile)
                assert_same(got[0], np.float32(wanted), (special, others, tile, place))


@pytest.mark.parametrize("name", CHOICES)
def test_special_floats_of_16_bits(device: gs.Device, name: str) -> None:
    """Assert the same of all pairs of special numbers, along and across rows. Of zeros, -0.0 is the smaller."""
    skips_nan, greatest = name in ("fmax", "fmin"), name in ("fmax", "maximum")
    special = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.5, -1.5, 6e-8]
    pairs = [(a, b) for a in special for b in special]
    for dtype in ("float16", "bfloat16"):
        x = np.array(pairs, np.float32).astype(dtype_of(dtype))
        wanted = []
        for pair in x.astype(np.float32):
            numbers = [v for v in pair if not np.isnan(v)]
            is_nan = len(numbers) < (1 if skips_nan else 2)
            ordered = sorted(numbers, key=lambda v: (v, not np.signbit(v)))
            wanted.append(np.nan if is_nan else ordered[-1 if greatest else 0])
        for axis, given in ((1, x), (0, x.T)):
            got = gs.reduce(given, name, axis=axis, device=device).astype(np.float32)
            assert_same(got, np.array(wanted, np.float32), (dtype, axis))


def test_other_operators_keep_their_order(device: gs.Device) -> None:
    """Assert that a sum of floats is the last element of the scan, bit for bit."""
    x = np.random.default_rng(3).normal(size=20_001).astype(np.float32)
    for rotation, tile in enumerate(small_tiles(device)):
        for strategy in pick_strategies(device, rotation):
            scanned = scan_with(device, make_problem(x), strategy, tile=tile)[0]
            assert_same(last(device, x, "add", strategy, tile=tile)[0], scanned[-1], (tile, strategy))


def test_floats_have_the_same_bits_under_every_strategy(device: gs.Device) -> None:
    """Assert that the last part of a row combines the others as a dispatch of its own does."""
    tile = RowTile(32, 32, 2, 4, 512)
    for parts in (2, 31, 32, 33, 79):
        x = draw_numbers("float32", (3, 512 * parts - 1))
        wanted = last(device, x, "add", "three_dispatch", axis=1, tile=tile)
        for strategy in safe_strategies(device):
            assert_same(last(device, x, "add", strategy, axis=1, tile=tile), wanted, (strategy, parts))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_long_rows_of_floats(device: gs.Device, dtype: str) -> None:
    """Assert that arrays on the device, views and NumPy arrays longer than a piece give the same bits."""
    gpu = as_gpu(device)
    length = (13 << 20) // np.dtype(dtype).itemsize + 3
    for rows in one_of(device, ([], [2]), len(dtype)):
        x = draw_numbers(dtype, (*rows, length))
        got = gs.reduce(gpu.asarray(x), axis=-1).numpy()
        exact = x.sum(axis=-1, dtype=np.float64)
        np.testing.assert_allclose(got, exact, rtol=2e-3 if dtype == "float16" else 1e-6, atol=0.01)
        wide = np.concatenate([x[..., :3], x], axis=-1)
        assert_same(gs.reduce(gpu.asarray(wide)[..., 3:], axis=-1).numpy(), got)
        assert_same(gs.reduce(x, axis=-1, device=gpu), got)
        assert_same(last(gpu, x, "add", "auto", axis=len(rows), piece_bytes=1 << 20).reshape(got.shape), got)


@pytest.mark.parametrize("length", [10_001, 10_002])
def test_rows_that_begin_within_chunks(adapter: wgpu.GPUAdapter, length: int) -> None:
    """Assert that slabs of rows have the bits of the whole array, on the device and from NumPy."""
    whole = as_gpu(gs.Device(adapter))
    x = draw_numbers("float32", (350, length))
    wanted = gs.reduce(whole.asarray(x), axis=1).numpy()
    np.testing.assert_allclose(wanted, x.sum(axis=1, dtype=np.float64), rtol=1e-4, atol=1e-3)
    for rows in (0, 1, 3, 7):
        got = last(whole, x, "add", "auto", axis=1, piece_bytes=max(1, 4 * rows * length))
        assert_same(got, wanted, rows)
    small = as_gpu(gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 4 << 20}))
    assert_same(gs.reduce(small.asarray(x), axis=1).numpy(), wanted)
    assert_same(gs.reduce(x, axis=1, device=small), wanted)
    for rows in (1, 3):
        assert_same(last(small, x, "add", "auto", axis=1, piece_bytes=4 * rows * length), wanted, rows)


def test_rows_that_are_longer_than_a_binding(adapter: wgpu.GPUAdapter) -> None:
    """Assert that such rows are reduced piece by piece, in the order of the scan, however many there are."""
    small = as_gpu(gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 8 << 20}))
    x = draw_numbers("float32", (2, (9 << 20) // 4))
    got = gs.reduce(x, axis=1, device=small)
    assert_same(got, np.stack([gs.reduce(row, device=small) for row in x]))
    np.testing.assert_allclose(got, x.sum(axis=1, dtype=np.float64), rtol=1e-4, atol=0.01)
