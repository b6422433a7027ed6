"""Reductions down columns, in the tiles of GPUs and of CPU adapters, for every length and dtype."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import ColumnTile, RowTile
from tests.harness.devices import as_gpu
from tests.harness.scans import make_problem
from tests.laws import dtype_of
from tests.oracle import AFFINE, Array, assert_same, half_of, one_by_one, one_of, some, words

DTYPES = ("uint8", "int16", "float16", "bool", "int32", "float32", "int64")
# The first number that is not 0. It is associative, and only the order of the elements gives it.
NOT_ZERO = gs.operator(lambda l, r: np.where(l != 0, l, r), name="not_zero")

# Arrays (outer, length, inner) of few and of many columns, in one tile and in several.
COLUMNS = [(1, 7, 5), (3, 50, 7), (1, 2000, 5), (5, 700, 9), (40, 30, 3), (1, 5000, 33), (2, 2500, 6), (2, 1, 5)]


def sparse(dtype: str, shape: tuple[int, ...]) -> Array:
    """Draw numbers, most of them 0."""
    rng = np.random.default_rng(len(shape) + shape[-1])
    x = rng.integers(1, 120, shape) * (rng.random(shape) < 0.02)
    return x.astype(dtype_of(dtype))


def first_not_zero(x: Array, axis: int) -> Array:
    """Return the first number along the axis that is not 0, else 0."""
    places = np.argmax(x != 0, axis=axis, keepdims=True)
    return np.take_along_axis(x, places, axis).squeeze(axis)


def cases(device: gs.Device, shapes: Sequence[tuple[int, ...]]) -> list[tuple[gs.Device, str, tuple[int, ...]]]:
    """Return each shape with a dtype, on the device as it is and as a GPU."""
    pairs = [(DTYPES[rotation % len(DTYPES)], shape) for rotation, shape in enumerate(shapes)]
    return [(each, dtype, shape) for dtype, shape in half_of(device, pairs) for each in (as_gpu(device), device)]


def test_every_element_is_combined_once_and_in_order(device: gs.Device) -> None:
    for where, dtype, shape in cases(device, COLUMNS):
        x = sparse(dtype, shape)
        assert_same(gs.reduce(x, NOT_ZERO, axis=1, device=where), first_not_zero(x, 1), (dtype, shape))
        ones = (x == 0) if dtype == "bool" else x
        wanted = np.maximum.reduce(ones, axis=1)
        assert_same(gs.reduce(where.asarray(ones), "maximum", axis=1).numpy(), wanted, (dtype, shape))


def test_bundles_down_columns(device: gs.Device) -> None:
    rng = np.random.default_rng(4)
    for shape in some(device, COLUMNS):
        x = words(rng, 2, shape)
        wanted = [field[:, -1] for field in one_by_one(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), x, axis=1)]
        for where in (as_gpu(device), device):
            for got, field in zip(gs.reduce(x, AFFINE, axis=1, device=where), wanted, strict=True):
                assert_same(got, field, shape)


def check_options(where: gs.Device, shape: tuple[int, ...], cuts: Iterable[Any]) -> None:
    """Reduce an array of bytes along its second axis with an initial value and maps, into an array, and its views."""
    x = (np.arange(np.prod(shape)) % 101).astype(np.uint8).reshape(shape)
    there, first = where.asarray(x), x[:, 0]
    initial = (np.arange(first.size) % 7 * 40).astype(np.uint8).reshape(first.shape)
    assert_same(gs.reduce(there, "maximum", axis=1, initial=initial).numpy(), np.maximum(x.max(1), initial), shape)
    got = gs.reduce(there, axis=1, dtype=np.int32, before=lambda v: v + 1, after=lambda v: v * 2)
    assert_same(got.numpy(), (2 * (x.astype(np.int32) + 1).sum(1)).astype(np.int32), shape)
    for cut in cuts:
        assert_same(gs.reduce(there[cut], "maximum", axis=1).numpy(), x[cut].max(1), (shape, cut))
    out = where.asarray(np.full_like(first, 200))
    gs.reduce(there, "minimum", axis=1, out=out)
    assert_same(out.numpy(), x.min(1), shape)


def test_options(device: gs.Device) -> None:
    """Reduce with an initial value and maps, views, and into an array on the device."""
    where = as_gpu(device)
    for rotation, shape in half_of(device, enumerate([(3, 41, 7), (1, 3001, 5)])):
        check_options(where, shape, one_of(device, (np.s_[:, 3:], np.s_[:, :-2], np.s_[..., 1:]), rotation))
    where.memory_cleanup()  # drops the programs, which keep the initial values


def test_gpus_take_these_tiles(device: gs.Device) -> None:
    """Assert that no tile waits for another."""
    where = as_gpu(device).capabilities
    for dtype, shape in ((d, s) for d in ("uint8", "float32") for s in COLUMNS):
        spec = scan_spec(make_problem(np.zeros(shape, dtype), axis=1).as_reduction(), where)
        for stage in plan_scan(spec, where, "lookback", "").stages:
            assert not stage.kernel.posts, shape
            assert isinstance(stage.kernel.tile, (ColumnTile, RowTile)), shape


def test_many_columns_take_one_dispatch(device: gs.Device) -> None:
    where = as_gpu(device).capabilities
    for shape, stages in (((600, 9000), 1), ((600, 4000), 2), ((20_000, 9000), 2)):
        x = np.broadcast_to(np.int32(0), shape)
        spec = scan_spec(make_problem(x, axis=0).as_reduction(), where)
        assert len(plan_scan(spec, where, "lookback", "").stages) == stages, shape
