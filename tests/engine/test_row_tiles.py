"""Reductions of rows, and of few columns, by operators that commute, for every length and place of a row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import LEAF, Structure, element_of
from gpuscan.operators.code import combine_code
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import RowTile
from tests.engine.test_reduction_tiles import check_options
from tests.harness.devices import as_gpu
from tests.harness.scans import make_problem, scan_with
from tests.oracle import Array, assert_same, half_of, one_of, pick_strategies, strategies_on

# The kinds of numbers, each with the elements of a chunk.
CHUNKS = [("uint8", 4), ("int16", 8), ("float16", 2), ("bool", 16), ("int32", 1), ("float32", 4), ("int64", 1)]


def draw(dtype: str, shape: tuple[int, ...]) -> Array:
    """Draw numbers below zero, where zeros past the end would be the greatest; of unsigned ones, few that are not 0."""
    rng = np.random.default_rng(math.prod(shape))
    if dtype in ("bool", "uint8"):
        return (rng.integers(1, 200, shape) * (rng.random(shape) < 0.03)).astype(dtype)
    return -rng.integers(1, 100, shape).astype(dtype)


def check(device: gs.Device, x: Array, tile: RowTile, strategy: str = "auto") -> None:
    """Assert that maxima and sums along axis 1 are NumPy's."""
    for op, ufunc in (("maximum", np.maximum), ("add", np.add))[: 2 if x.dtype.kind in "iu" else 1]:
        problem = make_problem(x, op, axis=1).as_reduction()
        got = np.asarray(scan_with(device, problem, strategy, tile=tile)[0])
        assert_same(got.ravel(), ufunc.reduce(x, axis=1, dtype=x.dtype).ravel(), (tile, x.shape, strategy))


def test_which_operators_commute() -> None:
    def code(op: Any, *dtypes: str) -> Any:
        structure = Structure("tuple", (0, 1), (LEAF, LEAF)) if len(dtypes) == 2 else LEAF
        operator = op if isinstance(op, gs.Operator) else BUILTINS[op]
        return combine_code(operator, element_of([np.dtype(dtype) for dtype in dtypes], structure), native_int64=False)

    for op, dtype in (("add", "float32"), ("multiply", "float16"), ("add", "complex64"), ("gcd", "int8")):
        assert code(op, dtype).commutes, (op, dtype)
    for op, dtype in (("multiply", "complex64"), ("logaddexp", "float32")):
        assert not code(op, dtype).commutes, (op, dtype)
    assert code(gs.operator(lambda l, r: (r[0] + l[0], l[1] * r[1])), "float32", "float32").commutes
    assert not code(gs.operator(lambda l, r: (l[0], l[1] + r[1])), "float32", "float32").commutes


def test_rows_around_every_boundary(device: gs.Device) -> None:
    """Reduce rows that end before, at and after each chunk, lane, batch and part, and begin anywhere in a word."""
    for rotation, (dtype, chunk) in enumerate(half_of(device, CHUNKS)):
        shapes = ((32, 8, 2, 1 << 20), (32, 32, 3, 200 * chunk), (16, 1, 4, 1 << 20), (64, 64, 1, 96 * chunk))
        for size, lanes, loads, part in one_of(device, shapes, rotation):
            tile = RowTile(size, lanes, loads, chunk, part)
            edges = {1, 2, chunk, lanes * chunk, 2 * loads * lanes * chunk, part if part < 1 << 20 else 7 * chunk}
            for length in sorted({edge + by for edge in edges for by in (-1, 0, 1, 5)} - {-1, 0}):
                for strategy in pick_strategies(device, rotation + length):
                    check(device, draw(dtype, (5, length)), tile, strategy)


def test_columns_around_every_boundary(device: gs.Device) -> None:
    for rotation, (dtype, chunk) in enumerate(half_of(device, CHUNKS)):
        for loads, lines in one_of(device, ((1, 40), (3, 150)), rotation):
            for inner in (2, 3, 7, 12, 32):
                unit = math.lcm(inner, chunk)
                tile = RowTile(32, 32, loads, chunk, -(-lines * inner // unit) * unit, columns=True)
                for length in (1, 2, 5, lines - 1, lines, lines + 1, 3 * lines + 2):
                    check(device, draw(dtype, (3, length, inner)), tile)


def test_options(device: gs.Device) -> None:
    """Reduce with an initial value and maps, views, bundles, and into an array on the device."""
    where = as_gpu(device)
    check_options(where, (500, 1501), (np.s_[:, 3:], np.s_[1:, :-2], np.s_[:, 1:1000]))
    both = gs.operator(lambda l, r: (l[0] + r[0], np.maximum(l[1], r[1])), name="both")
    x = (np.arange(500 * 1501) % 101).astype(np.uint8).reshape(500, 1501)
    wide = x.astype(np.int32) - 200
    sums, greatest = gs.reduce((where.asarray(x), where.asarray(wide)), both, axis=1)
    assert_same(sums.numpy(), x.sum(1, dtype=np.uint8))
    assert_same(greatest.numpy(), wide.max(1))
    where.memory_cleanup()  # drops the programs, which keep the initial values


def test_sums_of_floats_have_the_same_bits(device: gs.Device) -> None:
    """Assert that arrays on the device and arrays in several pieces have the same bits, and are close to the sum."""
    where = as_gpu(device)
    x = np.random.default_rng(7).normal(size=(301, 1003)).astype(np.float32)
    whole = gs.reduce(where.asarray(x), axis=1).numpy()
    np.testing.assert_allclose(whole, x.sum(1, dtype=np.float64), atol=1e-4)
    in_pieces = scan_with(where, make_problem(x, axis=1).as_reduction(), "auto", piece_bytes=1 << 16)[0]
    assert_same(np.asarray(in_pieces).ravel(), whole)
    zeros = np.full((3, 1003), -0.0, np.float32)
    assert np.signbit(gs.reduce(where.asarray(zeros), axis=1).numpy()).all()


def test_gpus_take_these_tiles(device: gs.Device) -> None:
    """Assert which reductions take them, in how many dispatches."""
    where = as_gpu(device).capabilities
    cases: list[tuple[tuple[int, ...], int, str, str, int]] = [
        ((300, 3001), 1, "uint8", "add", 1),
        ((3, 3001), 1, "uint8", "add", 0),
        ((5, 300_001), 1, "float32", "add", 1),
        ((300_001,), 0, "float32", "add", 0),
        ((30_000_001,), 0, "uint8", "add", 1),
        ((300, 1001), 1, "float32", "logaddexp", 0),
        ((300_001, 10), 0, "uint8", "maximum", 2),
        ((300_001, 8), 0, "uint8", "maximum", 0),
        ((300_001, 10), 0, "float32", "add", 0),
    ]
    for shape, axis, dtype, op, dispatches in cases:
        x = np.broadcast_to(np.zeros((), dtype), shape)
        spec = scan_spec(make_problem(x, op, axis=axis).as_reduction(), where)
        plan = plan_scan(spec, where, "lookback", "")
        assert isinstance(plan.tile, RowTile) == (dispatches > 0), (shape, dtype, op)
        assert len(plan.stages) == dispatches or not dispatches, (shape, dtype, op)


def test_a_post_that_does_not_come(own_device: gs.Device) -> None:
    """Assert that the last part of a row gives up its wait, and says so."""
    device = own_device  # otherwise the unread error of this test would be raised in another one
    if "lookback" not in strategies_on(device):
        return
    problem = make_problem(np.ones((2, 4000), np.int32), axis=1).as_reduction()
    tile = RowTile(32, 32, 2, 1, 500)
    with pytest.raises(gs.ProgressTimeoutError):
        scan_with(device, problem, "lookback", tile=tile, withheld=5)
