"""Reversed scans of several rows have the bits of flipped scans of the flipped rows, floats included."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
import wgpu
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.devices import as_gpu, device_as_if, poison
from tests.harness.scans import make_problem, record_and_submit, scan_with, tile_of, traits_of
from tests.harness.stages import twin_of
from tests.oracle import (
    AFFINE,
    IN_TURN,
    Array,
    assert_same,
    maps_of_vectors,
    one_by_one,
    one_of,
    small_tiles,
    some,
    strategies_in_turn,
    strategies_on,
    tile_in_turn,
    words,
)

LENGTHS = [1, 3, 16, 63, 100, 1031]
DTYPES = ["float32", "float16", "int8", "uint16", "int64", "complex64"]


def flip_rows(value: Any) -> Any:
    """Return the rows in reverse order of elements, for each array of a bundle."""
    if isinstance(value, tuple):
        return tuple(map(flip_rows, value))
    return np.flip(np.asarray(value), 1)


def floats(dtype: str, rows: int, length: int) -> Array:
    return (np.random.default_rng(length).standard_normal((rows, length)) * 5).astype(dtype)


def gates(l: Any, r: Any) -> Any:
    return l[0] * r[0], r[0] * l[1] + r[1]


def assert_flipped(got: Any, wanted: Any, note: Any = "") -> None:
    """Require that `got` has the bits of `wanted` in reverse."""
    pairs = zip(got, flip_rows(wanted), strict=True) if isinstance(got, tuple) else [(got, flip_rows(wanted))]
    for one, other in pairs:
        assert_same(np.asarray(one), np.ascontiguousarray(other), note)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_share_tiles(device: gs.Device, dtype: str) -> None:
    """Scan rows of whole chunks and others, shorter than a chunk and longer than a tile."""
    every = 1 if dtype == "float32" and not IN_TURN else 2
    for rotation, length in some(device, list(enumerate(LENGTHS))[DTYPES.index(dtype) % every :: every]):
        x = floats(dtype, 3 + 1500 // length, length)
        options: dict[str, Any] = {"axis": 1, "exclusive": rotation % 2 == 1}
        if rotation % 3 == 0:
            options["initial"] = np.arange(len(x)).astype(dtype)
        tile = tile_in_turn(device, rotation)
        for strategy in strategies_in_turn(device, rotation + len(dtype)):
            backwards = make_problem(x, reverse=True, **options)
            poison(device, x.nbytes)
            (got,) = scan_with(device, backwards, strategy, tile=tile)
            if dtype == "complex64":  # NumPy rounds complex products in another way
                (wanted,) = scan_with(device, make_problem(flip_rows(x), **options), strategy, tile=tile)
                assert_flipped(got, wanted, (length, tile, strategy))
            else:
                (twin,) = twin_of(backwards, tile)
                assert_same(got, np.ascontiguousarray(twin), (length, tile, strategy))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_narrow_rows_that_are_joined_once(device: gs.Device, dtype: str) -> None:
    """Assert that every strategy has the bits of NumPy's twin in the tile of a GPU, with several rows in a chunk."""
    size = device.capabilities.subgroup_size
    if not size:
        return  # such a device has no such shape
    tile = TileShape(max(32, 2 * size), size, 2, 16 if dtype == "uint8" else 8, single_lead=True)
    for rotation, length in chain(*one_of(device, [[(0, 7), (1, 16)], [(2, 63), (3, 1031)]], len(dtype))):
        x = floats(dtype, 2 + 6 * tile.tile_size // length, length)
        options: dict[str, Any] = {"axis": 1, "exclusive": rotation % 2 == 1}
        if rotation % 3 == 0:
            options["initial"] = np.arange(len(x)).astype(dtype)
        forwards, backwards = make_problem(flip_rows(x), **options), make_problem(x, reverse=True, **options)
        (wanted,) = twin_of(forwards, tile)
        for strategy in strategies_in_turn(device, rotation):
            poison(device, x.nbytes)
            (got,) = scan_with(device, forwards, strategy, tile=tile)
            assert_same(got, np.ascontiguousarray(wanted), (length, strategy))
        (got,) = scan_with(device, backwards, strategy, tile=tile)
        assert_flipped(got, wanted, length)


def test_against_the_fold_one_by_one(device: gs.Device) -> None:
    """Scan a bundle with an operator that does not commute, and an initial value for each row."""
    for rotation, length in some(device, enumerate(LENGTHS[1:])):
        rows = 2 + 1000 // length
        x = words(np.random.default_rng(rotation), 2, (rows, length))
        seeds = words(np.random.default_rng(99), 2, rows)
        options: dict[str, Any] = {"axis": 1, "reverse": True, "exclusive": rotation % 2 == 0, "initial": seeds}
        wanted = one_by_one(gates, x, **options)
        tile = tile_in_turn(device, rotation)
        results = scan_with(device, make_problem(x, AFFINE, **options), strategies_on(device)[0], tile=tile)
        for got, field in zip(results, wanted, strict=True):
            assert_same(got, field, (length, tile))


# Nearly every example is a new shader, so there are few.
@settings(max_examples=3)
@given(data=st.data())
def test_any_rows_in_the_planned_shape(device: gs.Device, data: st.DataObject) -> None:
    """Scan NumPy arrays and device arrays with the planner's tiles."""
    rows, length = data.draw(st.integers(2, 300)), data.draw(st.integers(1, 300))
    dtype = data.draw(st.sampled_from(DTYPES))
    x = floats(dtype, rows, length)
    options: dict[str, Any] = {"axis": 1, "exclusive": data.draw(st.booleans())}
    options["strategy"] = data.draw(st.sampled_from(["auto", *strategies_on(device)]))
    wanted = gs.scan(flip_rows(x), device=device, **options)
    assert_flipped(gs.scan(x, reverse=True, device=device, **options), wanted)
    assert_flipped(gs.scan(device.asarray(x), reverse=True, **options).numpy(), wanted)


def test_bundles_in_the_planned_shape(device: gs.Device) -> None:
    for length in some(device, (63, 64, 300)):
        pair = (floats("float32", 50, length), floats("float32", 50, length) + 1)
        wanted = gs.scan(flip_rows(pair), gates, axis=1, device=device)
        assert_flipped(gs.scan(pair, gates, axis=1, reverse=True, device=device), wanted, length)


def test_on_the_cpu() -> None:
    for length in LENGTHS:
        x = floats("float32", 3 + 1500 // length, length)
        pair = (x, floats("float32", *x.shape) + 1)
        for operand, op in ((x, "add"), (pair, gates)):
            wanted = gs.scan(flip_rows(operand), op, axis=1, device="numpy")
            assert_flipped(gs.scan(operand, op, axis=1, reverse=True, device="numpy"), wanted, length)


@pytest.mark.parametrize("length", [37, 64, 500])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_piece_by_piece(device: gs.Device, dtype: str, length: int) -> None:
    """Scan in pieces of whole rows and in others, and into arrays of any memory order."""
    x = floats(dtype, 1 + 60_000 // length, length)
    initial = np.arange(len(x)).astype(dtype)
    for strategy in strategies_in_turn(device, length):
        tile = small_tiles(device)[-1]
        forwards = make_problem(flip_rows(x), axis=1, initial=initial)
        (wanted,) = scan_with(device, forwards, strategy, tile=tile)
        backwards = make_problem(x, axis=1, reverse=True, initial=initial)
        (got,) = scan_with(device, backwards, strategy, tile=tile, piece_bytes=1 << 15)
        assert_flipped(got, wanted, strategy)
        out = np.zeros(x.shape[::-1], x.dtype).T
        scan_with(device, backwards, strategy, tile=tile, piece_bytes=1 << 15, out=[out])
        assert_flipped(out, wanted, strategy)


@pytest.mark.parametrize("shape", [(2003, 7), (3, 501, 9)])
def test_columns_that_share_words_piece_by_piece(device: gs.Device, shape: tuple[int, ...]) -> None:
    """Scan columns that share 32-bit words, in pieces that end within rows."""
    x = np.random.default_rng(0).integers(0, 200, shape).astype(np.uint8)
    axis = x.ndim - 2
    problem = make_problem(x, axis=axis, reverse=True)
    wanted = np.flip(np.add.accumulate(np.flip(x, axis), axis=axis, dtype=np.uint8), axis)
    for strategy in strategies_in_turn(device, axis):
        (got,) = scan_with(device, problem, strategy, tile=small_tiles(device)[-1], piece_bytes=1 << 11)
        assert_same(got, wanted, strategy)


@pytest.mark.parametrize("length", [64, 1 << 10, 37])
def test_larger_than_a_binding(device: gs.Device, adapter: wgpu.GPUAdapter, length: int) -> None:
    """Scan device arrays on a device that binds less than half of them. Pieces are whole rows of whole words."""
    x = floats("float32", (3 << 18) // length + 1, length)
    initial = np.arange(len(x), dtype=np.float32)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    got = gs.scan(small.asarray(x), axis=1, reverse=True, initial=initial).numpy()
    wanted = gs.scan(flip_rows(x), axis=1, initial=initial, device=device)
    np.testing.assert_allclose(got, flip_rows(wanted), rtol=1e-3, atol=1e-2)
    if length != 37:
        assert_flipped(got, gs.scan(flip_rows(x), axis=1, initial=initial, device=small))


@pytest.mark.parametrize("length", [48, 63])
@pytest.mark.parametrize("dtype", ["float32", "int16", "float16"])
def test_recorded_and_in_place(device: gs.Device, dtype: str, length: int) -> None:
    """Assert that a recorded plan refuses in-place rows that share words, and that a call copies them."""
    x = floats(dtype, 40, length)
    wanted = gs.scan(flip_rows(x), axis=1, device=device)
    plan = device.plan(x.shape, x.dtype, "add", axis=1, reverse=True)

    record = partial(record_and_submit, device.wgpu_device, plan)
    poison(device, x.nbytes)
    assert_flipped(record(device.asarray(x), device.empty(x.shape, x.dtype)).numpy(), wanted)
    array = device.asarray(x)
    shares = traits_of(plan)["scan"].shares_words
    # Rows of integers are reversed together, and only their ends could share words.
    assert shares == (dtype == "float16" and length % tile_of(plan).chunk > 0)
    if shares:
        with pytest.raises(ValueError, match="another dst"):
            record(array, array)
        assert_same(array.numpy(), x)
    else:
        assert_flipped(record(array, array).numpy(), wanted)
    array = device.asarray(x)
    assert gs.scan(array, axis=1, reverse=True, out=array) is array
    assert_flipped(array.numpy(), wanted)


@pytest.mark.parametrize("length", [33, 48, 300])
def test_elements_of_a_neighbour(device: gs.Device, length: int) -> None:
    """Assert that the gradient of a recurrence takes the neighbours' gates and states, in either direction."""
    given = [floats("float32", 50, length) / 5 + shift for shift in (0, 1, 2)]
    start = np.arange(50, dtype=np.float32)
    forwards = gs.linear_recurrence_vjp(*(device.asarray(flip_rows(x)) for x in given), initial=start)
    backwards = gs.linear_recurrence_vjp(*map(device.asarray, given), initial=start, reverse=True)
    assert_flipped(backwards[:2], forwards[:2])
    assert_same(np.asarray(backwards[2]), np.asarray(forwards[2]))


def test_elements_of_several_accesses(device: gs.Device) -> None:
    """Scan elements that pass through workgroup memory in forward scans."""
    rows = np.random.default_rng(0).integers(0, 2**32, (21, 101, 5), dtype=np.uint32)
    op = gs.operator(maps_of_vectors, name="maps of vectors", element_axes=1)
    tile = replace(small_tiles(device)[-1], chunk=1)
    for strategy in strategies_in_turn(device, 0):
        (wanted,) = scan_with(device, make_problem(flip_rows(rows), op, axis=1), strategy, tile=tile)
        (got,) = scan_with(device, make_problem(rows, op, axis=1, reverse=True), strategy, tile=tile)
        assert_flipped(got, wanted, strategy)


def test_a_row_alone_in_a_tile_of_rows(device: gs.Device) -> None:
    """Scan a single row with a tile that ends with rows."""
    x = floats("float32", 1, 4096)
    tile = TileShape(32, 0, 1, 4, per_row=True)
    for strategy in strategies_on(device):
        (wanted,) = scan_with(device, make_problem(flip_rows(x), axis=1), strategy, tile=tile)
        (got,) = scan_with(device, make_problem(x, axis=1, reverse=True), strategy, tile=tile)
        assert_flipped(got, wanted, strategy)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_rows_that_are_reversed_together(device: gs.Device, dtype: str) -> None:
    """Assert that rows that begin within vectors are read backwards as one row, if no order of integers changes a bit.

    Initial values, exclusive scans, host arrays in pieces and arrays beyond a binding give what reversed rows give.
    """
    rng = np.random.default_rng(9)
    gpu = as_gpu(device)
    most = 1 << (16 if device.capabilities.adapter_type == "CPU" else 20)
    small = device_as_if(device, limits={**device.capabilities.limits, "max-storage-buffer-binding-size": most})
    for rows, length in ((1, 33), (70, 1), (41, 23), (7, 4099), (300, 67)):
        x = rng.integers(-9, 9, (rows, length)).astype(dtype)
        initial = rng.integers(-9, 9, rows).astype(dtype)
        for options in ({}, {"exclusive": True}, {"initial": initial}, {"initial": initial, "exclusive": True}):
            wanted = flip_rows(gs.scan(flip_rows(x), axis=1, device="numpy", **options))
            for each in one_of(device, (device, gpu, small), rows):
                found = gs.scan(each.asarray(x), axis=1, reverse=True, **options).numpy()
                np.testing.assert_array_equal(found, wanted, f"{rows, length} {options} {each}")
            np.testing.assert_array_equal(gs.scan(x, axis=1, reverse=True, device=device, **options), wanted)
