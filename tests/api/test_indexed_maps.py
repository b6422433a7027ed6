"""A `before` function of two parameters gets the index of each element along the axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from tests.harness.scans import make_problem, scan_with
from tests.oracle import Array, assert_same, small_tiles, strategies_in_turn

LAYOUTS = [((5000,), 0), ((5, 37), 1), ((3, 1200), 1), ((200, 8), 0), ((2, 90, 3), 1)]


def weigh_by_index(v: Any, i: Any) -> Any:
    return v * (i + 1).astype(np.uint32)


def by_hand(x: Array, axis: int) -> Array:
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    return x * np.arange(1, x.shape[axis] + 1, dtype=np.uint32).reshape(shape)


@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
def test_every_layout(device: gs.Device, shape: tuple[int, ...], axis: int) -> None:
    """Count along rows and columns, from their beginning also if the scan is reversed, with cuts and without."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32)
    for reverse, cut in ((False, False), (True, True)):
        options: dict[str, Any] = {"axis": axis, "reverse": reverse}
        if cut:
            options["keys"] = rng.random(shape) < 0.1
        wanted = gs.scan(by_hand(x, axis), device="numpy", **options)
        assert_same(gs.scan(x, before=weigh_by_index, device="numpy", **options), wanted)
        assert_same(gs.scan(x, before=weigh_by_index, device=device, **options), wanted)
        assert_same(gs.scan(device.asarray(x), before=weigh_by_index, **options), wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("layout", ["one row", "rows", "columns"])
def test_in_pieces(device: gs.Device, layout: str, reverse: bool) -> None:
    """Count on from piece to piece, under several strategies; rows may be read backwards by the CPU."""
    shape, axis = {"one row": ((40_000,), 0), "rows": ((41, 999), 1), "columns": ((300, 6), 0)}[layout]
    tile: TileShape | ColumnTile = ColumnTile(2, 4, 2, 1) if layout == "columns" else small_tiles(device)[-1]
    x = np.random.default_rng(1).integers(0, 2**32, shape, dtype=np.uint32)
    problem = make_problem(x, axis=axis, reverse=reverse, before=weigh_by_index)
    wanted = gs.scan(by_hand(x, axis), axis=axis, reverse=reverse, device="numpy")
    strategy = strategies_in_turn(device, reverse)[0]
    (got,) = scan_with(device, problem, strategy, tile=tile, piece_bytes=None if layout == "columns" else 1 << 16)
    assert_same(got, wanted)


def test_larger_than_a_binding(adapter: wgpu.GPUAdapter) -> None:
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    x = np.random.default_rng(2).integers(0, 2**32, (900, 400), dtype=np.uint32)
    assert_same(
        gs.scan(small.asarray(x), axis=0, before=weigh_by_index), gs.scan(by_hand(x, 0), axis=0, device="numpy")
    )
    assert_same(
        gs.reduce(small.asarray(x), axis=1, before=weigh_by_index), gs.reduce(by_hand(x, 1), axis=1, device="numpy")
    )


def _later_maximum(left: Any, right: Any) -> Any:
    better = right[0] > left[0]
    return np.where(better, right[0], left[0]), np.where(better, right[1], left[1])


def test_the_place_of_the_maximum_so_far(device: gs.Device) -> None:
    """Compute argmax without a second array, in a scan, a plan and a reduction."""
    x = np.random.default_rng(3).normal(size=(4, 700)).astype(np.float32)
    options: dict[str, Any] = {"axis": 1, "before": lambda v, i: (v, i)}
    wanted = np.stack([np.argmax(x[:, : n + 1], axis=1) for n in range(700)], axis=1).astype(np.int32)
    for call_device in (device, "numpy"):
        _, places = gs.scan(x, _later_maximum, device=call_device, **options)
        assert_same(places, wanted)
        _, places = gs.reduce(x, _later_maximum, device=call_device, **options)
        assert_same(places, wanted[:, -1])
    _, places = device.plan(x.shape, x.dtype, _later_maximum, **options)(x)
    assert_same(places, wanted)


def test_with_other_options(device: gs.Device) -> None:
    """Convert afterwards, compensate, pack many fields, and take elements of a bundle."""
    x = np.arange(100, dtype=np.float32)
    places = np.arange(100, dtype=np.int64)
    got = gs.scan(x, dtype=np.int64, before=lambda v, i: i, device=device)
    assert_same(got, np.cumsum(places))
    got = gs.scan(x, before=lambda v, i: v * i.astype(np.float32), compensated=True, device=device)
    np.testing.assert_array_equal(got, np.cumsum(places * places).astype(np.float32))
    many = tuple(x.astype(np.uint32) + n for n in range(6))
    sums = gs.operator(lambda l, r: tuple(a + b for a, b in zip(l, r, strict=True)), name="sums of six")
    got = gs.scan(many, sums, before=lambda v, i: tuple(a * i.astype(np.uint32) for a in v), device=device)
    for number, field in enumerate(got):
        assert_same(field, np.cumsum((places + number) * places).astype(np.uint32))


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=3), reverse=st.booleans(), data=st.data())
def test_on_numpy(shape: list[int], reverse: bool, data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    x = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape)
    options: dict[str, Any] = {"axis": axis, "reverse": reverse, "device": "numpy"}
    assert_same(gs.scan(x, before=weigh_by_index, **options), gs.scan(by_hand(x, axis), **options))


def test_functions_of_one_parameter_stay_so() -> None:
    """Count required parameters only, and take ufuncs and callables without a signature as functions of one."""
    x = np.arange(4, dtype=np.float32)
    for before in (lambda v, scale=2: v * scale, np.sqrt, lambda *v: v[0]):
        assert gs.scan(x, before=before, device="numpy").shape == (4,)
    with pytest.raises(TypeError, match="but chunks have no axis to count along"):
        list(gs.scan_chunks([x], before=lambda v, i: v, device="numpy"))


def test_of_elements_that_groups_move(device: gs.Device) -> None:
    x = np.random.default_rng(4).integers(0, 2**32, (3, 50), dtype=np.uint32)
    labels = np.random.default_rng(5).integers(0, 4, 50)
    options: dict[str, Any] = {"axis": 1, "groups": labels}
    wanted = gs.scan(by_hand(x, 1), device="numpy", **options), gs.reduce(by_hand(x, 1), device="numpy", **options)
    for call_device in (device, "numpy"):
        assert_same(gs.scan(x, before=weigh_by_index, device=call_device, **options), wanted[0])
        assert_same(gs.reduce(x, before=weigh_by_index, device=call_device, **options), wanted[1])
    assert_same(gs.scan(device.asarray(x), before=weigh_by_index, **options), wanted[0])
    assert_same(gs.reduce(device.asarray(x), before=weigh_by_index, **options), wanted[1])
