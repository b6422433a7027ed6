"""`gpuscan.scan` on every adapter against its definition, under every strategy that is safe there."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.harness.devices import device_as_if, poison, pool_of
from tests.harness.scans import make_problem, scan_with
from tests.harness.stages import twin_of
from tests.oracle import (
    AFFINE,
    MATRICES,
    NO_IDENTITY,
    Array,
    assert_same,
    assert_scans,
    boundaries,
    half_of,
    limit_examples,
    one_by_one,
    pick_strategies,
    small_tiles,
    some,
    strategies_in_turn,
    strategies_on,
    tile_in_turn,
    ufunc_scan,
    words,
)
from tests.strategies import SPECIAL_FLOATS, numbers, scans

ORDERED = ["add", "multiply", "minimum", "maximum"]
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
PAIRS = [*itertools.product(["uint32", "int32"], ORDERED + BITS), *itertools.product(["float32"], ORDERED)]
# The values of exclusive, reverse, and whether there is an initial.
OPTIONS = [*itertools.product((False, True), (False, True), (False, True))]


def test_lengths_about_every_edge(device: gs.Device) -> None:
    """Assert exact sums, on poisoned outputs, around the edges of tiles, blocks and chunks."""
    x = np.random.default_rng(0).integers(0, 2**32, 200_000, dtype=np.uint32)
    for strategy, tile in half_of(device, itertools.product(strategies_on(device), small_tiles(device))):
        for length in [*boundaries(tile), len(x)]:
            poison(device, 4 * length)
            (got,) = scan_with(device, make_problem(x[:length]), strategy, tile=tile)
            assert_same(got, ufunc_scan("add", x[:length]), (strategy, tile, length))


def test_poisoned_buffers_are_those_that_runs_take(device: gs.Device) -> None:
    """Poison would prove nothing if runs took other buffers."""
    x = np.arange(5000, dtype=np.uint32)
    scan_with(device, make_problem(x))
    poison(device, x.nbytes)
    reserved = pool_of(device).usage().bytes_reserved
    scan_with(device, make_problem(x))
    assert pool_of(device).usage().bytes_reserved == reserved


@pytest.mark.parametrize(("number", "dtype", "name"), [(i, *pair) for i, pair in enumerate(PAIRS)])
def test_built_in_operators(device: gs.Device, number: int, dtype: str, name: str) -> None:
    """Name operators by string and by ufunc. Float results have the bits of the twin on NumPy."""
    x = numbers(np.random.default_rng(1), dtype, 1000)
    if dtype == "float32":
        x = np.random.default_rng(1).uniform(0.5, 1.5, 1000).astype(np.float32)
    tile = small_tiles(device)[-1]
    (wanted,) = twin_of(make_problem(x, name), tile)
    for strategy in strategies_in_turn(device, number):
        (got,) = scan_with(device, make_problem(x, getattr(np, name)), strategy, tile=tile)
        assert_same(got, wanted, strategy)
    np.testing.assert_allclose(wanted, ufunc_scan(name, x), rtol=1e-4 if dtype == "float32" else 0)


@pytest.mark.parametrize(("exclusive", "reverse", "initial"), OPTIONS)
@pytest.mark.parametrize("rows", [False, True])
def test_options(device: gs.Device, rows: bool, exclusive: bool, reverse: bool, initial: bool) -> None:
    """Scan one row and many, of odd lengths, with every combination of options.

    Of rows, the single passes take the combinations in turn.
    """
    shape = (37, 211) if rows else 7919
    x = words(np.random.default_rng(2), 2, shape)
    seeds = words(np.random.default_rng(3), 2, 37 if rows else ()) if initial else None
    begin = seeds if initial else (1, 0) if exclusive else None
    axis = 1 if rows else 0
    wanted = one_by_one(AFFINE.function, x, axis=axis, exclusive=exclusive, reverse=reverse, initial=begin)
    problem = make_problem(x, AFFINE, axis=axis, exclusive=exclusive, reverse=reverse, initial=seeds)
    tile = small_tiles(device)[-1]
    strategies = strategies_in_turn(device, exclusive + reverse + initial)
    for strategy in strategies if rows else ["three_dispatch"]:  # every strategy loads and stores in the same way
        got = scan_with(device, problem, strategy, tile=tile)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, (strategy, tile))


@pytest.mark.parametrize(("number", "name"), list(enumerate(NO_IDENTITY)))
def test_operators_without_identity(device: gs.Device, number: int, name: str) -> None:
    """Scan with exact operators that do not commute, so that any wrong order of combination shows."""
    op, fields = NO_IDENTITY[name]
    x = words(np.random.default_rng(4), fields, 20_000)
    wanted = twin_of(make_problem(x, op.function))
    tile = tile_in_turn(device, number)
    for strategy in strategies_in_turn(device, number // 2):
        got = scan_with(device, make_problem(x, op.function), strategy, tile=tile)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, (strategy, tile))


def test_many_short_rows_and_few_long_ones(device: gs.Device) -> None:
    """Scan rows with heads anywhere in chunks and tiles, also rows of one element."""
    for rotation, shape in some(device, enumerate([(3000, 1), (1000, 7), (333, 31), (33, 257), (3, 5000), (1, 9000)])):
        x = words(np.random.default_rng(5), 2, shape)
        problem = make_problem(x, AFFINE, axis=1)
        wanted = one_by_one(AFFINE.function, x, axis=1)
        for strategy in pick_strategies(device, rotation):
            got = scan_with(device, problem, strategy, tile=small_tiles(device)[0])
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, (strategy, shape))


def test_few_columns(device: gs.Device) -> None:
    """Scan with workgroups of a few invocations, and chains of tiles down one or two columns."""
    for rotation, shape in some(device, enumerate([(1, 2), (2, 2), (40, 3), (257, 3), (3000, 2), (3, 50, 4)])):
        x = np.random.default_rng(7).integers(0, 2**32, shape, dtype=np.uint32)
        wanted = ufunc_scan("add", x, axis=len(shape) - 2)
        for strategy in pick_strategies(device, rotation):
            assert_same(gs.scan(x, axis=-2, device=device, strategy=strategy), wanted, (shape, strategy))


@pytest.mark.parametrize("log", [17, 22])
def test_large_arrays_in_the_planned_shape(device: gs.Device, log: int) -> None:
    length = 2**log + 13
    x = np.random.default_rng(6).integers(0, 2**32, length, dtype=np.uint32)
    wanted = ufunc_scan("add", x)
    for strategy in pick_strategies(device, log):
        assert_same(gs.scan(x, device=device, strategy=strategy), wanted, strategy)


@limit_examples(50)
@given(asked=scans(), data=st.data())
def test_any_array_and_any_options(
    device: gs.Device, asked: tuple[Array, str, int, dict[str, Any]], data: st.DataObject
) -> None:
    """Scan shapes of 1 to 5 axes in any memory order, by every strategy, through the public function."""
    assert_scans(*asked, device, data.draw(st.sampled_from(["auto", *strategies_on(device)])))


@pytest.mark.parametrize("name", ["minimum", "maximum", "add"])
@pytest.mark.parametrize("special", SPECIAL_FLOATS, ids=str)
def test_nan_infinity_and_signed_zero(device: gs.Device, name: str, special: np.float32) -> None:
    """Assert that results are NumPy's wherever such numbers are, NaN included."""
    x = np.random.default_rng(8).integers(-4, 5, (48, 64)).astype(np.float32)
    for row in range(48):
        x[row, row] = special
    wanted = ufunc_scan(name, x, axis=1)
    got = gs.scan(x, name, axis=1, device=device)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema_of_special_floats(device: gs.Device, name: str) -> None:
    """Assert that integers in the order of the floats, which are combined, give the floats' extrema."""
    rng = np.random.default_rng(9)
    x = rng.choice(np.array([*SPECIAL_FLOATS, -np.nan, -0.0, -3, 2], np.float32), (2, 50, 12))
    x[0, :, :4] = -np.abs(rng.random((50, 4), np.float32))
    ufunc: np.ufunc = getattr(np, name)
    greatest = name in ("maximum", "fmax")
    for axis in (1, 2):
        wanted = ufunc.accumulate(x, axis=axis)
        got = gs.scan(x, name, axis=axis, device=device)
        np.testing.assert_array_equal(got, wanted)
        # Zeros by their signs, and what is no zero out of the way.
        zeros = np.where(x == 0, np.where(np.signbit(x), -1, 1), -2 if greatest else 2)
        of_zeros = (np.maximum if greatest else np.minimum).accumulate(zeros, axis=axis)
        np.testing.assert_array_equal(np.signbit(got[wanted == 0]), of_zeros[wanted == 0] == -1)
    for first in (-np.inf, np.inf, np.nan, np.float32(-2.5)):
        for axis in (1, 2):
            seeded = ufunc(np.float32(first), ufunc.accumulate(x, axis=axis))
            np.testing.assert_array_equal(gs.scan(x, name, axis=axis, initial=first, device=device), seeded)


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema_of_nothing_are_identities(device: gs.Device, name: str) -> None:
    """Assert that exclusive scans begin with the identity, and that groups and segments without elements give it."""
    identity = {"maximum": -np.inf, "minimum": np.inf}.get(name, np.nan)
    x = np.random.default_rng(2).standard_normal(700).astype(np.float32)
    ufunc: np.ufunc = getattr(np, name)
    got = gs.scan(device.asarray(x), name, exclusive=True).numpy()
    np.testing.assert_array_equal(got, np.append(np.float32(identity), ufunc.accumulate(x)[:-1]))
    labels = np.arange(700, dtype=np.int32) % 5 * 2
    wanted = np.full(12, identity, np.float32)
    wanted[:10:2] = [ufunc.reduce(x[i::5]) for i in range(5)]
    found = gs.reduce(device.asarray(x), name, groups=device.asarray(labels), num_groups=12)
    np.testing.assert_array_equal(found.numpy(), wanted)
    cut = gs.reduce(device.asarray(x), name, segments=np.array([0, 0, 300, 700]))
    np.testing.assert_array_equal(cut.numpy(), [np.float32(identity), ufunc.reduce(x[:300]), ufunc.reduce(x[300:])])


# ----- Where the result goes


def test_out_of_any_memory_order(device: gs.Device) -> None:
    x = np.random.default_rng(9).integers(0, 2**32, (60, 70), dtype=np.uint32)
    wanted = ufunc_scan("add", x, axis=0)
    strided = np.zeros((120, 210), np.uint32)
    for out in (np.empty_like(x), np.empty(x.shape, np.uint32, order="F"), strided[::2, ::3], strided[1::2, ::-3]):
        assert gs.scan(x, axis=0, out=out, device=device) is out
        assert_same(out, wanted)
    assert not strided[:, 1::3].any()  # the elements between them are unchanged


def test_out_over_the_input_in_another_order(device: gs.Device) -> None:
    """Assert that the results of early pieces do not overwrite the input of later ones."""
    base = np.arange(1_800_000, dtype=np.int32) % 7
    x, wanted = base.copy(), ufunc_scan("add", base)
    assert_same(gs.scan(x, out=x[::-1], device=device), wanted)
    x = np.concatenate([base, base[:900_000]])
    assert_same(gs.scan(x[:1_800_000], out=x[900_000:], device=device), wanted)
    x = base.reshape(1500, 1200)[:1200].copy()
    wanted = ufunc_scan("add", x, axis=1)
    assert_same(gs.scan(x, axis=1, out=x.T, device=device), wanted)
    keys = base.copy()
    gs.scan(base, keys=keys, out=keys, device=device)
    assert_same(keys, base)  # neighbouring keys differ
    x = np.concatenate([base // 3 * 3, base[:900_000]])
    wanted = gs.scan(base, keys=x[:1_800_000].copy(), device="numpy")
    assert_same(gs.scan(base, keys=x[:1_800_000], out=x[900_000:], device=device), wanted)


def test_out_of_a_bundle(device: gs.Device) -> None:
    x = words(np.random.default_rng(12), 4, 700)
    out = tuple(np.zeros(700, np.uint32) for _ in x)
    assert gs.scan(x, MATRICES, out=out, device=device) is out
    for result, field in zip(out, one_by_one(MATRICES.function, x), strict=True):
        assert_same(result, field)


def test_dtype_is_what_is_combined_in(device: gs.Device) -> None:
    x = np.array([2**31, 2**31, 5], np.uint32)
    assert_same(gs.scan(x, dtype=np.float32, device=device), np.array([2**31, 2**32, 2**32], np.float32))
    assert_same(
        gs.scan(np.array([True, True, False, True]), dtype=np.int32, device=device), np.array([1, 2, 2, 3], np.int32)
    )


# ----- What an adapter refuses


def test_a_strategy_of_the_environment_is_said_to_come_from_there(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.arange(1000, dtype=np.uint32)
    less = device_as_if(device, unsafe=False, progress_earlier=False)
    for name, said in (("quick", "Pass auto"), ("lookback", "Unset GPUSCAN_STRATEGY")):
        monkeypatch.setenv("GPUSCAN_STRATEGY", name)
        with pytest.raises(gs.StrategyError, match=rf"'{name}' \(from GPUSCAN_STRATEGY\) was asked for.*{said}"):
            gs.scan(x, device=less)


def test_an_unsafe_strategy_is_refused_unless_the_device_allows_it(device: gs.Device) -> None:
    x = np.arange(1000, dtype=np.uint32)
    less = device_as_if(device, unsafe=False, progress_earlier=False)
    with pytest.raises(gs.StrategyError, match=r"'lookback' was asked for.*no progress.*auto.*unsafe=True"):
        gs.scan(x, device=less, strategy="lookback")
    assert_same(gs.scan(x, device=less), ufunc_scan("add", x))
    if "lookback" in strategies_on(device):
        allowed = device_as_if(device, unsafe=True, progress_earlier=False)
        assert_same(gs.scan(x, device=allowed, strategy="lookback"), ufunc_scan("add", x))


def test_float64_where_there_is_none_names_what_to_pass(device: gs.Device) -> None:
    less = device_as_if(device, float64=False)
    with pytest.raises(gs.UnsupportedDtypeError, match=r"float64.*dtype=np\.float32.*device=\"numpy\""):
        gs.scan(np.ones(5), device=less)
    assert_same(gs.scan(np.ones(5), dtype=np.float32, device=less), np.arange(1, 6, dtype=np.float32))


def test_the_device_goes_on_after_an_error(device: gs.Device) -> None:
    x = np.arange(1000, dtype=np.uint32)
    before = x.copy()
    for bad in ({"op": lambda l, r: l if l > r else r}, {"op": "nothing"}, {"axis": 3}, {"out": np.zeros(3)}):
        with pytest.raises((ValueError, TypeError)):
            gs.scan(x, device=device, **bad)
    np.testing.assert_array_equal(x, before)
    assert_same(gs.scan(x, device=device), ufunc_scan("add", x))
    assert device.memory_usage().bytes_in_use == 0


@pytest.mark.parametrize("shape", [(100,), (10, 40)])
def test_out_of_another_byte_order(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Pass an `out` of another byte order, which may be the input, and holds columns."""
    x = np.arange(np.prod(shape), dtype=">i4").reshape(shape)
    wanted = x.cumsum(0)
    for where in ("numpy", device):
        swapped = x.copy()
        assert gs.scan(swapped, axis=0, out=swapped, device=where) is swapped
        assert swapped.dtype == ">i4"
        np.testing.assert_array_equal(swapped, wanted)


def test_matrices_without_entries(device: gs.Device) -> None:
    """Assert that products of empty matrices are empty, as NumPy's are."""
    x = np.ones((3, 0, 0), np.float32)
    for where in ("numpy", device):
        assert gs.scan(x, "matmul", axis=0, device=where).shape == (3, 0, 0)
        assert gs.reduce(x, "matmul", axis=0, device=where).shape == (0, 0)
    assert gs.reduce(device.asarray(x), "matmul", axis=0).shape == (0, 0)


@pytest.mark.parametrize("op", [lambda l, r: next(iter(l)) + r, lambda l, r: r + len(range(l))])
def test_loops_over_what_only_the_gpu_knows(device: gs.Device, op: Any) -> None:
    with pytest.raises(gs.OperatorError, match=r"write np\.select|np\.where\(condition, a, b\)"):
        gs.scan(np.arange(5), op, device=device)


def test_a_ufunc_with_an_identity_of_the_users(device: gs.Device) -> None:
    x = np.array([4, 6, 10], np.int32)
    multiples = gs.operator(np.lcm, identity=1, name="multiples")
    assert (multiples.name, gs.operator(np.add).name) == ("multiples", "add")
    for where in (device, "numpy"):
        assert gs.scan(x, multiples, exclusive=True, device=where).tolist() == [1, 4, 12]
        assert gs.scan(x, gs.operator(np.add, identity=0), exclusive=True, device=where).tolist() == [0, 4, 10]
