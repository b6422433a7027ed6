"""Reversed scans of several rows: to the bit what scans of the rows turned round give, turned round, floats too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import device_arrays as deferred
from gpuscan.engine import host_arrays as runner
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.reference import scan as reference
from tests.oracle import (
    AFFINE,
    Array,
    assert_same,
    maps_of_vectors,
    one_by_one,
    poison,
    posed,
    small_tiles,
    strategies_in_turn,
    strategies_on,
    tile_in_turn,
    words,
)

LENGTHS = [1, 3, 16, 63, 100, 1031]
DTYPES = ["float32", "float16", "int8", "uint16", "int64", "complex64"]


def turned(value: Any) -> Any:
    """The rows turned round, of each array of a bundle."""
    if isinstance(value, tuple):
        return tuple(map(turned, value))
    return np.flip(np.asarray(value), 1)


def floats(dtype: str, rows: int, length: int) -> Array:
    return (np.random.default_rng(length).standard_normal((rows, length)) * 5).astype(dtype)


def gates(l: Any, r: Any) -> Any:
    return l[0] * r[0], r[0] * l[1] + r[1]


def assert_turned(got: Any, wanted: Any, note: Any = "") -> None:
    """That these are the bits of the wanted, turned round."""
    pairs = zip(got, turned(wanted), strict=True) if isinstance(got, tuple) else [(got, turned(wanted))]
    for one, other in pairs:
        assert_same(np.asarray(one), np.ascontiguousarray(other), note)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_share_tiles(device: Device, dtype: str) -> None:
    """Rows of whole chunks and not, shorter than a chunk and longer than a tile, by every path and tile in turn."""
    every = 1 if dtype == "float32" else 2
    for turn, length in list(enumerate(LENGTHS))[DTYPES.index(dtype) % every :: every]:
        x = floats(dtype, 3 + 1500 // length, length)
        options: dict[str, Any] = {"axis": 1, "exclusive": turn % 2 == 1}
        if turn % 3 == 0:
            options["initial"] = np.arange(len(x)).astype(dtype)
        tile = tile_in_turn(device, turn)
        for strategy in strategies_in_turn(device, turn + len(dtype)):
            forwards, backwards = posed(turned(x), **options), posed(x, reverse=True, **options)
            poison(device, x.nbytes)
            (wanted,) = runner.run(device, forwards, strategy, tile=tile)
            (got,) = runner.run(device, backwards, strategy, tile=tile)
            assert_turned(got, wanted, (length, tile, strategy))
            (twin,) = reference.accumulate_stages(backwards, tile)
            if dtype != "complex64":  # whose product NumPy rounds otherwise
                assert_same(got, np.ascontiguousarray(twin), (length, tile, strategy))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_narrow_rows_that_are_joined_once(device: Device, dtype: str) -> None:
    """In the shape that a GPU takes, whose chunks hold several rows: every strategy has the CPU twin's bits."""
    size = device.capabilities.subgroup_size
    if not size:
        return  # such a device has no such shape
    tile = TileShape(max(32, 2 * size), size, 2, 16 if dtype == "uint8" else 8, single_lead=True)
    for turn, length in enumerate([7, 16, 63, 1031]):
        x = floats(dtype, 2 + 6 * tile.tile_size // length, length)
        options: dict[str, Any] = {"axis": 1, "exclusive": turn % 2 == 1}
        if turn % 3 == 0:
            options["initial"] = np.arange(len(x)).astype(dtype)
        forwards, backwards = posed(turned(x), **options), posed(x, reverse=True, **options)
        (wanted,) = reference.accumulate_stages(forwards, tile)
        for strategy in strategies_on(device):
            poison(device, x.nbytes)
            (got,) = runner.run(device, forwards, strategy, tile=tile)
            assert_same(got, np.ascontiguousarray(wanted), (length, strategy))
        (got,) = runner.run(device, backwards, strategy, tile=tile)
        assert_turned(got, wanted, length)


def test_against_the_fold_one_by_one(device: Device) -> None:
    """A bundle, an operator that does not commute, seeds of rows: in the places where they belong."""
    for turn, length in enumerate(LENGTHS[1:]):
        rows = 2 + 1000 // length
        x = words(np.random.default_rng(turn), 2, (rows, length))
        seeds = words(np.random.default_rng(99), 2, rows)
        options: dict[str, Any] = {"axis": 1, "reverse": True, "exclusive": turn % 2 == 0, "initial": seeds}
        wanted = one_by_one(gates, x, **options)
        tile = tile_in_turn(device, turn)
        results = runner.run(device, posed(x, AFFINE, **options), strategies_on(device)[0], tile=tile)
        for got, field in zip(results, wanted, strict=True):
            assert_same(got, field, (length, tile))


@settings(max_examples=5)
@given(data=st.data())
def test_any_rows_in_the_planned_shape(device: Device, data: st.DataObject) -> None:
    """NumPy arrays and arrays on the device, by the tiles that the planner takes."""
    rows, length = data.draw(st.integers(2, 300)), data.draw(st.integers(1, 300))
    dtype = data.draw(st.sampled_from(DTYPES))
    x = floats(dtype, rows, length)
    options: dict[str, Any] = {"axis": 1, "exclusive": data.draw(st.booleans())}
    options["strategy"] = data.draw(st.sampled_from(["auto", *strategies_on(device)]))
    wanted = gs.scan(turned(x), device=device, **options)
    assert_turned(gs.scan(x, reverse=True, device=device, **options), wanted)
    assert_turned(gs.scan(device.asarray(x), reverse=True, **options).numpy(), wanted)


def test_bundles_in_the_planned_shape(device: Device) -> None:
    for length in (63, 64, 300):
        pair = (floats("float32", 50, length), floats("float32", 50, length) + 1)
        wanted = gs.scan(turned(pair), gates, axis=1, device=device)
        assert_turned(gs.scan(pair, gates, axis=1, reverse=True, device=device), wanted, length)


def test_on_the_cpu() -> None:
    for length in LENGTHS:
        x = floats("float32", 3 + 1500 // length, length)
        pair = (x, floats("float32", *x.shape) + 1)
        for operand, op in ((x, "add"), (pair, gates)):
            wanted = gs.scan(turned(operand), op, axis=1, device="numpy")
            assert_turned(gs.scan(operand, op, axis=1, reverse=True, device="numpy"), wanted, length)


@pytest.mark.parametrize("length", [37, 64, 500])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_piece_by_piece(device: Device, dtype: str, length: int) -> None:
    """Pieces of whole rows are turned by the GPU, others by the CPU; into arrays of any order too."""
    x = floats(dtype, 1 + 60_000 // length, length)
    initial = np.arange(len(x)).astype(dtype)
    for strategy in strategies_in_turn(device, length):
        tile = small_tiles(device)[-1]
        forwards = posed(turned(x), axis=1, initial=initial)
        (wanted,) = runner.run(device, forwards, strategy, tile=tile)
        backwards = posed(x, axis=1, reverse=True, initial=initial)
        (got,) = runner.run(device, backwards, strategy, tile=tile, piece_bytes=1 << 15)
        assert_turned(got, wanted, strategy)
        out = np.zeros(x.shape[::-1], x.dtype).T
        runner.run(device, backwards, strategy, tile=tile, piece_bytes=1 << 15, outputs=[out])
        assert_turned(out, wanted, strategy)


@pytest.mark.parametrize("shape", [(2003, 7), (3, 501, 9)])
def test_columns_that_share_words_piece_by_piece(device: Device, shape: tuple[int, ...]) -> None:
    """Rows are brought together first, and pieces are no whole ones."""
    x = np.random.default_rng(0).integers(0, 200, shape).astype(np.uint8)
    axis = x.ndim - 2
    problem = posed(x, axis=axis, reverse=True)
    wanted = np.flip(np.add.accumulate(np.flip(x, axis), axis=axis, dtype=np.uint8), axis)
    for strategy in strategies_in_turn(device, axis):
        (got,) = runner.run(device, problem, strategy, tile=small_tiles(device)[-1], piece_bytes=1 << 11)
        assert_same(problem.from_rows(got), wanted, strategy)


@pytest.mark.parametrize("length", [64, 1 << 10, 37])
def test_larger_than_a_binding(device: Device, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    """Arrays on a device, as if it bound 128 KiB: pieces are whole rows, or go by way of the CPU."""
    x = floats("float32", (1 << 17) // length + 1, length)
    initial = np.arange(len(x), dtype=np.float32)
    tile = small_tiles(device)[0]
    (wanted,) = runner.run(device, posed(turned(x), axis=1, initial=initial), tile=tile)
    limits = dict(device.capabilities.limits) | {"max-storage-buffer-binding-size": 1 << 17}
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, limits=limits))
    for module in ("deferred", "streaming", "attempts"):
        monkeypatch.setattr(f"gpuscan.{module}.best_tile", lambda *_: tile, raising=False)
    monkeypatch.setattr(device, "plans_kept", type(device.plans_kept)())
    went: list[Any] = []
    record: Callable[..., Any] = deferred.record_pieces
    monkeypatch.setattr(deferred, "record_pieces", lambda *given: went.append(given) or record(*given))
    got = gs.scan(device.asarray(x), axis=1, reverse=True, initial=initial).numpy()
    if length == 37:
        assert not went
        np.testing.assert_allclose(got, turned(wanted), rtol=1e-3, atol=1e-2)
    else:
        assert went
        assert_turned(got, wanted)


@pytest.mark.parametrize("length", [48, 63])
@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_recorded_and_in_place(device: Device, dtype: str, length: int) -> None:
    """Rows of 16-bit numbers that share words are refused in place by a recorded plan, and copied by a call."""
    x = floats(dtype, 40, length)
    wanted = gs.scan(turned(x), axis=1, device=device)
    plan = device.plan(x.shape, x.dtype, "add", axis=1, reverse=True)

    def recorded(source: gs.Array, target: gs.Array) -> gs.Array:
        encoder = device.wgpu_device.create_command_encoder()
        plan.record(encoder, source, target)
        device.wgpu_device.queue.submit([encoder.finish()])
        return target

    poison(device, x.nbytes)
    assert_turned(recorded(device.asarray(x), device.empty(x.shape, x.dtype)).numpy(), wanted)
    array = device.asarray(x)
    shares = any(stage.kernel.cleared for stage in plan._plan.stages[-1:])
    assert shares == (dtype == "int16" and length % plan._plan.tile.chunk > 0)
    if shares:
        with pytest.raises(ValueError, match="another dst"):
            recorded(array, array)
        assert_same(array.numpy(), x)
    else:
        assert_turned(recorded(array, array).numpy(), wanted)
    array = device.asarray(x)
    assert gs.scan(array, axis=1, reverse=True, out=array) is array
    assert_turned(array.numpy(), wanted)


@pytest.mark.parametrize("length", [33, 48, 300])
def test_elements_of_a_neighbour(device: Device, length: int) -> None:
    """The gradient of a recurrence takes the gate before and the state after, in rows of either direction."""
    given = [floats("float32", 50, length) / 5 + shift for shift in (0, 1, 2)]
    start = np.arange(50, dtype=np.float32)
    forwards = gs.linear_recurrence_vjp(*(device.asarray(turned(x)) for x in given), initial=start)
    backwards = gs.linear_recurrence_vjp(*map(device.asarray, given), initial=start, reverse=True)
    assert_turned(backwards[:2], forwards[:2])
    assert_same(np.asarray(backwards[2]), np.asarray(forwards[2]))


def test_elements_of_several_accesses(device: Device) -> None:
    """What goes through workgroup memory where rows are read forwards."""
    rows = np.random.default_rng(0).integers(0, 2**32, (21, 101, 5), dtype=np.uint32)
    op = gs.operator(maps_of_vectors, name="maps of vectors", element_axes=1)
    tile = replace(small_tiles(device)[-1], chunk=1)
    for strategy in strategies_in_turn(device, 0):
        (wanted,) = runner.run(device, posed(turned(rows), op, axis=1), strategy, tile=tile)
        (got,) = runner.run(device, posed(rows, op, axis=1, reverse=True), strategy, tile=tile)
        assert_turned(got, wanted, strategy)


def test_a_row_alone_in_a_tile_of_rows(device: Device) -> None:
    """A tile that ends with rows, of one row."""
    x = floats("float32", 1, 4096)
    tile = TileShape(32, 0, 1, 4, per_row=True)
    for strategy in strategies_on(device):
        (wanted,) = runner.run(device, posed(turned(x), axis=1), strategy, tile=tile)
        (got,) = runner.run(device, posed(x, axis=1, reverse=True), strategy, tile=tile)
        assert_turned(got, wanted, strategy)
