"""Scans by logaddexp carry the largest number and a sum. Their errors are some units of float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.problem.log_sums import as_log_sums
from tests.harness.scans import make_problem, scan_with
from tests.laws import dtype_of
from tests.oracle import Array, assert_same, half_of, small_tiles, strategies_on

OPERATORS = (np.logaddexp, np.logaddexp2)
# In units of float32 of a result, or of 1 if that is larger.
MOST_UNITS = 3.0

NUMBERS = {
    "normal": lambda rng, n: 3 * rng.standard_normal(n),
    "of all sizes": lambda rng, n: rng.standard_normal(n) * 2.0 ** rng.integers(-30, 30, n),
    "slowly rising": lambda rng, n: np.arange(n) * 1e-6,
    "slowly falling": lambda rng, n: np.arange(n) * -1e-6,
    "equal": lambda rng, n: np.full(n, -0.1),
    "far below": lambda rng, n: np.where(rng.random(n) < 0.9, -np.inf, -1e30 * rng.random(n)),
}


def exact(op: np.ufunc, x: Array, axis: int = 0) -> Array:
    """Return the results in extended precision."""
    with np.errstate(invalid="ignore"):
        return np.asarray(op.accumulate(x.astype(np.longdouble), axis=axis))


def assert_close(got: object, wanted: Array, note: object = None) -> None:
    """Assert that results are within some units of the exact ones, and equal if these are infinite or NaN."""
    result = np.asarray(got)
    finite = np.isfinite(wanted)
    assert_same(result[~finite], wanted[~finite].astype(result.dtype), note)
    unit = np.spacing(np.maximum(1, np.abs(wanted[finite])).astype(np.float32))
    error = np.abs(result[finite].astype(np.longdouble) - wanted[finite]) / unit
    assert np.all(error <= MOST_UNITS), (note, float(np.max(error)))


@pytest.mark.parametrize("kind", NUMBERS)
def test_results_are_those_of_longer_floats(device: gs.Device, kind: str) -> None:
    """Assert it of every strategy, with small tiles and the planner's."""
    x = NUMBERS[kind](np.random.default_rng(0), 20_001).astype(np.float32)
    for op in OPERATORS:
        wanted = exact(op, x)
        assert_close(gs.scan(x, op, device=device), wanted, op)
        for rotation, tile in enumerate(small_tiles(device)):
            for strategy in half_of(device, strategies_on(device), rotation):
                (result,) = scan_with(device, as_log_sums(make_problem(x, op)), strategy, tile=tile)
                assert_close(result, wanted, (op, strategy, tile))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_axis_and_option(device: gs.Device, axis: int) -> None:
    """Assert results of rows and columns, in both directions, with initial values, seeds and totals."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 301, 7)).astype(np.float32)
    initial = np.take(x, 0, axis)
    for op in OPERATORS:
        whole = exact(op, x, axis)
        assert_close(gs.scan(x, op, axis=axis, device=device), whole)
        backwards = np.flip(exact(op, np.flip(x, axis), axis), axis)
        assert_close(gs.scan(x, op, axis=axis, reverse=True, device=device), backwards)
        seeded = exact(op, np.concatenate([initial.reshape(np.take(x, [0], axis).shape), x], axis), axis)
        after_first, before_last = (np.take(seeded, range(k, k + x.shape[axis]), axis) for k in (1, 0))
        assert_close(gs.scan(x, op, axis=axis, initial=initial, device=device), after_first)
        assert_close(gs.scan(x, op, axis=axis, initial=initial, exclusive=True, device=device), before_last)
        result, total = gs.scan(x, op, axis=axis, return_total=True, device=device)
        assert_close(result, whole)
        assert_close(total, np.take(whole, -1, axis))
        assert_close(gs.reduce(x, op, axis=axis, device=device), np.take(whole, -1, axis))


def test_one_number_is_itself(device: gs.Device) -> None:
    """Assert that a result of one number, and others that are the logarithm of 0, has the bits of that number."""
    x = np.array([-0.0, 1e-30, -1e-45, 0.3, -3e38, 3e38, np.inf, -np.inf, np.nan], np.float32)
    rows = np.full((len(x), 40), -np.inf, np.float32)
    rows[:, 3] = x
    result = gs.scan(rows, "logaddexp", axis=1, device=device)
    assert_same(result[:, 3:], np.broadcast_to(x[:, None], (len(x), 37)))
    assert np.all(result[:, :3] == -np.inf)


def test_special_numbers(device: gs.Device) -> None:
    """Assert that NaN and infinities give what NumPy gives, wherever they are, also in initial values."""
    special = [np.nan, np.inf, -np.inf, 0.0, -2.0]
    pairs = np.array([(a, b) for a in special for b in special], np.float32)
    for op in OPERATORS:
        wanted = exact(op, pairs, 1)
        assert_close(gs.scan(pairs, op, axis=1, device=device), wanted)
        second = gs.scan(pairs[:, 1:], op, axis=1, initial=pairs[:, 0], device=device)
        assert_close(second, wanted[:, 1:])
        there = device.asarray(pairs)
        assert_close(gs.scan(there[:, 1:], op, axis=1, initial=there[:, 0]).numpy(), wanted[:, 1:])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits(device: gs.Device, dtype: str) -> None:
    """Assert that narrow floats are combined as float32, and rounded once."""
    x = device.asarray(np.random.default_rng(2).standard_normal(3001).astype(np.float32)).astype(dtype_of(dtype))
    wanted = exact(np.logaddexp, x.numpy().astype(np.float32))
    result = gs.scan(x, "logaddexp")
    assert result.dtype == x.dtype
    half_unit = 2.0**-11 if dtype == "float16" else 2.0**-8
    assert np.all(np.abs(result.numpy().astype(np.float64) - wanted) <= 1.01 * half_unit * np.maximum(1, abs(wanted)))


def test_maps_segments_and_pieces(device: gs.Device) -> None:
    """Assert that maps, segments, streams and recorded lengths give what whole arrays give."""
    x = np.random.default_rng(3).standard_normal(9001).astype(np.float32)
    offsets = np.array([0, 5, 5, 3000, 9001])
    there = device.asarray(x)
    for factor, more in ((np.float32(0.5), np.float32(1)), (np.float32(0.25), np.float32(2))):
        # Values that the functions close over are read at each call.
        maps: dict[str, Any] = {"before": lambda v, by=factor: v * by, "after": lambda v, by=more: v + by}
        closed: dict[str, Any] = {"before": lambda v: v * factor, "after": lambda v: v + more}  # noqa: B023
        wanted = exact(np.logaddexp, x * factor) + more
        for given, options in ((x, maps), (there, maps), (x, closed), (there, closed)):
            call_device = None if given is there else device
            assert_close(gs.scan(given, "logaddexp", device=call_device, **options), wanted)
    cut = np.concatenate([exact(np.logaddexp, part) for part in np.split(x, offsets[1:-1]) if part.size])
    assert_close(gs.scan(x, "logaddexp", segments=offsets, device=device), cut)
    totals = gs.reduce(x, "logaddexp", segments=offsets, device=device)
    assert_close(totals, np.array([*cut[[4]], -np.inf, *cut[[2999, 9000]]]))
    chunks = gs.scan_chunks(np.array_split(x, 7), "logaddexp", device=device)
    assert_close(np.concatenate(list(chunks)), exact(np.logaddexp, x))
    labels = np.random.default_rng(4).integers(0, 9, x.size).astype(np.int32)
    grouped = np.empty(x.size, np.longdouble)
    for label in range(9):
        grouped[labels == label] = exact(np.logaddexp, x[labels == label])
    assert_close(gs.scan(x, "logaddexp", groups=labels, device=device), grouped)
    plan = device.plan(x.shape, np.float32, "logaddexp")
    assert_same(plan(device.asarray(x)).numpy(), gs.scan(x, "logaddexp", device=device))


def test_the_order_of_everywhere_is_kept(device: gs.Device) -> None:
    """Assert that `reproducible="everywhere"` still combines numbers, with the bits that NumPy has."""
    x = np.random.default_rng(5).standard_normal(2001).astype(np.float32)
    found = [gs.scan(x, "logaddexp", reproducible="everywhere", device=d) for d in (device, "numpy")]
    assert_same(*found)
