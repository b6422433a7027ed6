"""Wide elements, long arrays: matrices, vectors of every width, operators that do not commute on 10^7 elements."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.operators.operator import Operator
from gpuscan.planning.strategies import choose_strategy
from gpuscan.planning.tile_shapes import TileShape
from tests import fakes
from tests.harness.scans import make_problem, plan_with, scan_with
from tests.laws import matrices
from tests.oracle import (
    MATRICES,
    Array,
    assert_same,
    half_of,
    maps_of_vectors,
    one_by_one,
    pick_strategies,
    shares_cases,
    strategies_on,
    vectors,
    words,
)

Bundle = tuple[Array, ...]

NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
# Elements of a long array. Software adapters that share cases take a quarter: several pieces of thousands of tiles.
LONG = 10**7
# One element for each invocation: software adapters take seconds to compile wide elements.
SMALL = TileShape(32, 0, 1, 1)
# Elements of three blocks of such tiles, and a few more.
BLOCKS = 3 * 32 * 32 + 5

# ----- Long arrays


def in_blocks(function: Callable[[Any, Any], Any] | None, x: Bundle) -> Bundle:
    """Scan a row by calls on whole columns: scan blocks side by side, then their totals, then join the two."""
    assert function is not None
    length = len(x[0])
    height = 1 << (length.bit_length() // 2)
    if height < 2:
        return x
    width = -(-length // height)
    columns = [np.zeros(width * height, field.dtype) for field in x]  # the elements past the end are not used
    for column, field in zip(columns, x, strict=True):
        column[:length] = field
    blocks = tuple(column.reshape(width, height).T.copy() for column in columns)
    for row in range(1, height):
        joined = function(tuple(b[row - 1] for b in blocks), tuple(b[row] for b in blocks))
        for block, values in zip(blocks, joined, strict=True):
            block[row] = values
    before = in_blocks(function, tuple(b[-1] for b in blocks))
    rest = function(tuple(b[:-1] for b in before), tuple(b[:, 1:] for b in blocks))
    for block, values in zip(blocks, rest, strict=True):
        block[:, 1:] = values
    return tuple(block.T.reshape(-1)[:length] for block in blocks)


@pytest.mark.parametrize("length", [1, 2, 3, 100, 4097])
def test_the_oracle_in_blocks_is_the_definition(length: int) -> None:
    x = words(np.random.default_rng(0), 4, length)
    for result, field in zip(in_blocks(MATRICES.function, x), one_by_one(MATRICES.function, x), strict=True):
        assert_same(result, field)


def test_an_operator_that_does_not_commute_on_a_long_array(device: gs.Device) -> None:
    """Multiply up to 10^7 matrices modulo 2^32 under every safe strategy: any wrong order shows.

    10^7 take 5 to 8 s an adapter on one core, so software adapters take turns.
    """
    x = words(np.random.default_rng(1), 4, LONG // 10 if shares_cases(device) else LONG)
    wanted = in_blocks(MATRICES.function, x)
    for strategy in pick_strategies(device, 0):
        for result, field in zip(gs.scan(x, MATRICES, device=device, strategy=strategy), wanted, strict=True):
            np.testing.assert_array_equal(result, field, err_msg=strategy)


# ----- Matrices


def shares_compiler(device: gs.Device) -> bool:
    """Return True for llvmpipe's OpenGL, which has the compiler of lavapipe."""
    return "llvmpipe" in device.capabilities.summary and device.capabilities.backend == "OpenGL"


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_matmul(device: gs.Device, k: int) -> None:
    """Multiply k x k matrices modulo 2^32 under every safe strategy: elements of up to 64 bytes.

    llvmpipe compiles a single pass for k = 4 in 7 s. So for k > 2, only one of its two backends compiles single passes.
    By default `lookback` is skipped, because the longer shader of `fallback` contains all of it.
    """
    x = np.random.default_rng(2).integers(0, 2**32, (BLOCKS, k, k), dtype=np.uint32)
    (wanted,) = in_matrices(k, x)
    strategies = strategies_on(device)
    if k > 2 and shares_compiler(device):
        strategies = ["three_dispatch"]
    elif k > 2 and not NIGHTLY:
        strategies = [name for name in strategies if name != "lookback"]
    for strategy in strategies:
        (got,) = scan_with(device, make_problem(x, "matmul"), strategy, tile=SMALL)
        assert_same(got, wanted, strategy)
    assert_same(gs.scan(x, "matmul", device="numpy"), wanted)


def in_matrices(k: int, x: Array) -> Bundle:
    """Return the products from left to right."""
    product = matrices("uint32", k).combine
    results = [x[0]]
    for matrix in x[1:]:
        results.append(product((results[-1],), (matrix,))[0])
    return (np.stack(results),)


def test_matrices_beyond_64_bytes(device: gs.Device) -> None:
    """Multiply 5 x 5 matrices, 100 bytes, in the planned shape; exclusive from the identity."""
    x = np.random.default_rng(3).integers(0, 2**32, (777, 5, 5), dtype=np.uint32)
    (wanted,) = in_matrices(5, x)
    got = gs.scan(x, "matmul", exclusive=True, device=device)
    assert_same(got[1:], wanted[:-1])
    assert_same(got[0], np.eye(5, dtype=np.uint32))


# ----- Vectors


def of_vectors(width: int, identity: bool) -> Operator:
    start = np.arange(width) == 0 if identity else None
    return gs.operator(maps_of_vectors, identity=start, name="maps", element_axes=1)


def scan_one_by_one(x: Array, **options: Any) -> Array:
    return one_by_one(lambda l, r: (maps_of_vectors(l[0], r[0]),), (x,), **options)[0]


def test_vectors_of_every_width(device: gs.Device) -> None:
    """Scan widths of 1 to 17, each by one strategy and one set of options, in turn."""
    for width in (1, 8, 17) if shares_compiler(device) else half_of(device, range(1, 18)):
        strategies = strategies_on(device) if width <= 5 else ["three_dispatch"]  # the others take long to compile
        strategy = strategies[width % len(strategies)]
        exclusive, reverse, identity = width % 2 == 0, width % 3 == 0, width % 4 < 2
        x = vectors(width, "uint32", 1500 if width <= 5 or width in (8, 16, 17) else 32)  # or a tile
        seed = x[7] if exclusive and not identity else None
        begin = seed if seed is not None else (np.arange(width) == 0) if exclusive else None
        wanted = scan_one_by_one(x, exclusive=exclusive, reverse=reverse, initial=None if begin is None else (begin,))
        problem = make_problem(
            x, of_vectors(width, identity), axis=0, exclusive=exclusive, reverse=reverse, initial=seed
        )
        (got,) = scan_with(device, problem, strategy, tile=SMALL)
        assert_same(got, wanted, (width, strategy))


@pytest.mark.parametrize("dtype", ["int8", "uint16"])
@pytest.mark.parametrize("width", [3, 5])
def test_vectors_of_packed_numbers(device: gs.Device, dtype: str, width: int) -> None:
    """Scan elements of an odd number of bytes, which begin anywhere in a word, also reversed."""
    x = vectors(width, dtype, 1001)
    op = of_vectors(width, True)
    assert_same(gs.scan(x, op, device=device), scan_one_by_one(x))
    wanted = scan_one_by_one(x, reverse=True, exclusive=True, initial=(np.arange(width) == 0,))
    assert_same(gs.scan(x, op, reverse=True, exclusive=True, device=device), wanted)


def test_vectors_in_rows_and_columns(device: gs.Device) -> None:
    """Assert that axes before the element's own are scanned as any others."""
    x = vectors(3, "uint32", 5 * 40 * 6).reshape(5, 40, 6, 3)
    for axis in (0, 1, 2, -1):
        wanted = scan_one_by_one(x, axis=axis % 3)
        assert_same(gs.scan(x, of_vectors(3, False), axis=axis, device=device), wanted, axis)
        assert_same(gs.scan(x, of_vectors(3, False), axis=axis, device="numpy"), wanted, axis)


# ----- What fits


@pytest.mark.parametrize("strategy", ["lookback", "fallback"])
def test_elements_of_any_width_are_planned_in_a_single_pass(strategy: str) -> None:
    """Assert that a GPU's plan by a single-pass strategy is one dispatch, for elements of any width."""
    limits = dict(fakes.capabilities().limits) | {
        "max-compute-workgroup-size-x": 1024,
        "max-compute-workgroup-storage-size": 16384,
        "max-compute-workgroups-per-dimension": 65535,
    }
    gpu = fakes.capabilities(limits=limits, distrusted=("lookahead", *(["lookback"] if strategy == "fallback" else [])))
    choice = choose_strategy(gpu)
    assert choice.strategy == strategy
    device: Any = type("Fake", (), {"capabilities": gpu})
    for width in (1, 2, 15, 16, 17, 32, 64):
        problem = make_problem(np.zeros((2**20, width), np.uint32), of_vectors(width, False), axis=0)
        plan = plan_with(device, problem, choice.strategy, reason=choice.reason)
        assert [stage.name for stage in plan.stages] == ["scan"], width
        assert (plan.strategy, plan.reason) == (strategy, choice.reason)


def test_elements_wider_than_workgroup_memory(device: gs.Device) -> None:
    """Assert that the error comes before the operator is traced, and that its advice works."""
    width = device.capabilities.limits["max-compute-workgroup-storage-size"] // 4 // 2
    x = np.ones((40, width), np.uint32)
    calls = []

    @gs.operator(element_axes=1)
    def op(left: Array, right: Array) -> Array:
        calls.append(left)
        return left + right

    for strategy in strategies_on(device):
        with pytest.raises(gs.UnsupportedDtypeError, match=rf"{4 * width} bytes.*workgroup memory.*device=\"numpy\""):
            gs.scan(x, op, axis=0, device=device, strategy=strategy)
    with pytest.raises(gs.UnsupportedDtypeError, match="workgroup memory"):
        device.plan(x.shape, x.dtype, op, axis=0)
    assert not calls
    assert_same(gs.scan(x, op, axis=0, device="numpy"), np.cumsum(x, axis=0, dtype=np.uint32))
