"""The NumPy path: `accumulate` against the definition of a scan, and the stages against each other."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.errors import OperatorError
from gpuscan.operators.trace import trace_operator
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.reference import scan as reference
from gpuscan.reference.stages import Joiner, kogge_stone, last, left_to_right, reduce, scan_tile, scan_totals
from tests.harness.scans import make_problem
from tests.oracle import AFFINE, MATRICES, NO_IDENTITY, assert_same, one_by_one, words

SHAPES = [
    TileShape(32, 0, 1, 1),
    TileShape(8, 0, 1, 3),
    TileShape(64, 8, 2, 3),
    TileShape(32, 4, 4, 4),
    TileShape(8, 8, 3, 2),
    TileShape(16, 4, 1, 8),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 3, 31, 64, 97, 1000, 5000])
def test_stages_scan_in_order(shape: TileShape, length: int) -> None:
    """Run every option, in one piece and in pieces, with an operator that neither commutes nor divides."""
    x = words(np.random.default_rng(length), 2, length)
    for exclusive, reverse, initial in itertools.product((False, True), (False, True), (None, (3, 7))):
        problem = make_problem(x, AFFINE, exclusive=exclusive, reverse=reverse, initial=initial)
        begin = initial or ((1, 0) if exclusive else None)
        wanted = one_by_one(AFFINE.function, x, exclusive=exclusive, reverse=reverse, initial=begin)
        for piece_bytes in (1, 1 << 24):
            got = reference.accumulate_stages(problem, shape, piece_bytes)
            for result, field in zip(got, wanted, strict=True):
                assert_same(result[0], field, (exclusive, reverse, initial, piece_bytes))


@pytest.mark.parametrize("name", NO_IDENTITY)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_are_scanned_each_for_itself(name: str, axis: int) -> None:
    op, fields = NO_IDENTITY[name]
    rng = np.random.default_rng(1)
    x = words(rng, fields, (5, 7, 61))
    initial = words(rng, fields, tuple(n for i, n in enumerate((5, 7, 61)) if i != axis))
    for exclusive, reverse, begin in [(False, False, None), (False, True, initial), (True, True, initial)]:
        problem = make_problem(x, op, axis=axis, exclusive=exclusive, reverse=reverse, initial=begin)
        wanted = one_by_one(op.function, x, axis=axis, exclusive=exclusive, reverse=reverse, initial=begin)
        for results in (reference.accumulate(problem), reference.accumulate_stages(problem, TileShape(8, 0, 1, 2), 1)):
            for result, field in zip(results, wanted, strict=True):
                assert_same(problem.from_rows(result), field, (exclusive, reverse))


@pytest.mark.parametrize("length", [1, 2, 100, 20_000, 300_000])
def test_any_length_in_the_default_shape(length: int) -> None:
    x = words(np.random.default_rng(length), 4, length)
    got = reference.accumulate(make_problem(x, MATRICES))
    a, b, c, d = (field.astype(object) for field in x)
    matrices = np.array([[a, b], [c, d]]).transpose(2, 0, 1)
    product = matrices[0]
    for matrix in matrices[1 : min(length, 500)]:
        product = product @ matrix % 2**32
    at = min(length, 500) - 1
    assert [int(field[0, at]) for field in got] == list(product.ravel())
    # Beyond, each result follows from the one before it.
    combine: Any = MATRICES.function
    before, item = tuple(field[0, :-1] for field in got), tuple(field[1:] for field in x)
    for result, field in zip(got, combine(before, item), strict=True):
        assert_same(result[0, 1:], field)


def test_16_bit_floats_are_rounded_once() -> None:
    x = np.full(4096, np.float16(0.001))
    (got,) = reference.accumulate(make_problem(x, "add"))
    assert_same(got[0], np.add.accumulate(x.astype(np.float32)).astype(np.float16))
    assert got[0, -1] == np.float16(np.float32(np.float16(0.001)) * 4096)  # in float16 the sum stops growing at 4


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_a_carry_makes_pieces_one(tiles: int, cut: int, seed: int) -> None:
    """Assert that P(block) ⊕ K(tile) of pieces of whole blocks, with a carry, is that of all tiles at once."""
    block = 8
    cut = min(cut * block, tiles)
    totals = tuple(np.random.default_rng(seed).integers(0, 2**32, (2, tiles), dtype=np.uint32))
    join = Joiner(AFFINE, make_problem((totals[0], totals[1]), AFFINE).element)
    whole, folded = scan_totals(join, block, totals)
    head, carry = scan_totals(join, block, tuple(a[:cut] for a in totals))
    for a, b in zip(head, whole, strict=True):
        assert_same(a[1:], b[1:cut])  # nothing comes before tile 0
    if cut < tiles:
        tail, end = scan_totals(join, block, tuple(a[cut:] for a in totals), last(carry))
        for a, b in zip((*tail, *last(end)), (*(w[cut:] for w in whole), *last(folded)), strict=True):
            assert_same(a, b)


@given(st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_kogge_stone_is_a_scan(length: int, seed: int) -> None:
    items = tuple(np.random.default_rng(seed).integers(0, 2**32, (2, length), dtype=np.uint32))
    join = Joiner(AFFINE, make_problem(items, AFFINE).element)
    for tree, serial in zip(kogge_stone(join, items), left_to_right(join, items), strict=True):
        assert_same(tree, serial)


def test_an_aggregate_is_its_tiles_last_inclusive_result() -> None:
    """Assert that a tile has the same bits reduced or scanned, as fallback needs it."""
    x = np.random.default_rng(4).standard_normal(32 * 8).astype(np.float32)
    shape = TileShape(32, 4, 2, 4)
    problem = make_problem(x)
    sums = scan_tile(Joiner(problem.operator, problem.element), shape, (x,))
    (one,) = reference.accumulate_stages(problem, shape)
    assert_same(reduce(sums)[0], one[0, -1:])


def test_float_sums_are_as_exact_as_a_tree() -> None:
    x = np.random.default_rng(5).random(1 << 20, np.float32)
    exact = np.cumsum(x.astype(np.float64))
    (got,) = reference.accumulate_stages(make_problem(x), TileShape(64, 8, 2, 4))
    np.testing.assert_allclose(got[0], exact, rtol=2e-6)


# ----- What cannot be


def failing(op: Any, x: Any = None) -> str:
    x = np.ones(100, np.float32) if x is None else x
    with pytest.raises(OperatorError) as raised:
        reference.accumulate(make_problem(x, op))
    return str(raised.value)


def test_results_with_other_fields_are_refused() -> None:
    x = (np.ones(100, np.float32), np.ones(100, np.float32))
    message = failing(lambda l, r: (l[0] + r[0],), x)
    assert "returns 1 fields" in message


@pytest.mark.parametrize(
    "op",
    [
        lambda l, r: l[0] + r,
        lambda l, r: l + r[::-1],
        lambda l, r: l + r.sum(),
        lambda l, r: np.maximum(l, np.max(r)),
        lambda l, r: np.cumsum(l) + r,
        lambda l, r: l + len(r),
        lambda l, r: np.concatenate([l, r]),
        lambda l, r: np.array([a + b for a, b in zip(l, r, strict=True)]),
    ],
)
def test_what_means_another_thing_for_an_array_is_refused_as_on_a_gpu(op: Any) -> None:
    x = np.ones(100, np.float32)
    message = failing(op, x)
    with pytest.raises(OperatorError) as traced:
        trace_operator(op, make_problem(x, op).element, "the operator")
    assert message == str(traced.value)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_bits_of_16_bit_floats_are_refused_as_on_a_gpu(dtype: Any) -> None:
    """Assert that they are refused: NumPy has them in float32, where a view of 16 bits fails."""
    x = np.ones(3, dtype)
    views: list[dict[str, Any]] = [{"before": lambda v: v.view(np.uint16)}, {"after": lambda v: v.view(np.uint16)}]
    for maps in views:
        with pytest.raises(OperatorError, match=r"write \.astype\(np\.float32\)\.view\(np\.uint32\)"):
            gs.scan(x, "maximum", device="numpy", **maps)
    with pytest.raises(OperatorError, match=r"write \.astype\(np\.float32\)\.view\(np\.uint32\)"):
        gs.scan(x, lambda l, r: np.where(l.view(np.uint16) > 0, l, r), device="numpy")
    bits = gs.scan(x, "maximum", device="numpy", after=lambda v: v.astype(np.float32).view(np.uint32))
    np.testing.assert_array_equal(bits, np.ones(3, np.float32).view(np.uint32))


@pytest.mark.parametrize("shape", [(3, 1), (1,), (1, 3), (2, 1, 3)])
def test_strides_are_never_negative(shape: tuple[int, ...]) -> None:
    """Reverse an axis of one element without a trace: torch refuses negative strides."""
    for axis in range(len(shape)):
        result = gs.scan(np.ones(shape, np.float32), axis=axis, reverse=True, device="numpy")
        assert min(result.strides) > 0
