"""Scans down few and long columns: neighbouring elements are combined as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.planning.heuristics import heuristics_for
from tests.harness.scans import record_and_submit

# Rows of the arrays: just enough to be combined as vectors.
ROWS = heuristics_for("CPU").min_vector_rows


def numbers(*shape: int, dtype: Any = np.int32) -> Any:
    return np.random.default_rng(sum(shape)).integers(0, 7, shape).astype(dtype)


def same(found: Any, wanted: Any) -> None:
    """Assert that results on a device equal NumPy's results."""
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_long_and_narrow_arrays(device: gs.Device) -> None:
    """Compare scans and reductions down few columns with NumPy's, on arrays of every kind of place."""
    x = numbers(ROWS + 5, 3)
    there, wanted = device.asarray(x), np.cumsum(x, axis=0, dtype=np.int32)
    for _ in range(2):  # the second call submits the first one's run
        same(gs.scan(there, axis=0), wanted)
    same(gs.reduce(there, axis=0), wanted[-1])
    wide = device.asarray(np.repeat(x, 2, axis=0))
    same(gs.scan(wide[::2], axis=0, out=wide[1::2]), wanted)
    same(wide[::2], x)
    same(gs.scan(there, axis=0, out=there, strategy="three_dispatch"), wanted)
    small = numbers(ROWS + 1, 3, dtype=np.uint8)
    np.testing.assert_array_equal(
        gs.scan(small, axis=0, reverse=True, exclusive=True, device=device),
        gs.scan(small, axis=0, reverse=True, exclusive=True, device="numpy"),
    )


@pytest.mark.parametrize("cut", ["segments", "keys"])
def test_narrow_arrays_that_are_cut(device: gs.Device, cut: str) -> None:
    """Compare scans of two narrow arrays, and reductions of their segments, with NumPy's results."""
    x = numbers(2, ROWS, 3)
    places = np.array([0, 0, 17, 4000, ROWS])
    given: dict[str, Any] = {cut: places if cut == "segments" else np.repeat(np.arange(4), np.diff(places))}
    initial = numbers(2, 3)
    for options in ({}, {"initial": initial}, {"exclusive": True, "reverse": True}):
        found = gs.scan(device.asarray(x), axis=1, **given, **options)
        same(found, gs.scan(x, axis=1, **given, **options, device="numpy"))
    if cut == "segments":
        same(gs.reduce(device.asarray(x), axis=1, **given), gs.reduce(x, axis=1, **given, device="numpy"))


def test_functions_of_narrow_arrays(device: gs.Device) -> None:
    """Assert that functions take one number of a vector at a time, and not the vector."""
    x = numbers(ROWS, 2)

    def affine(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    def make_pair(value: Any) -> Any:
        return value - 3, np.stack([value, -value], axis=-1).max(axis=-1) + 2

    options: dict[str, Any] = {"axis": 0, "before": make_pair, "after": lambda pair: pair[1] + 1}
    same(
        gs.scan(device.asarray(x), affine, **options), gs.scan(x[:, :, None], affine, **options, device="numpy")[..., 0]
    )


def test_gradients_down_narrow_arrays(device: gs.Device) -> None:
    """Compare recurrences down two columns, and their gradients, with the recurrence of each column by itself."""
    a, b = (numbers(ROWS, 2, dtype=np.float32) / 8 for _ in range(2))
    there = [device.asarray(each) for each in (a, b)]
    states = gs.linear_recurrence(*there, axis=0)
    found = [states, *gs.linear_recurrence_vjp(there[0], states, there[1], axis=0)[:2]]
    columns = []
    for column in range(2):
        own = [device.asarray(np.ascontiguousarray(each[:, column])) for each in (a, b)]
        state = gs.linear_recurrence(*own)
        columns.append([state, *gs.linear_recurrence_vjp(own[0], state, own[1])[:2]])
    for whole, *each in zip(found, *columns, strict=True):
        np.testing.assert_allclose(whole.numpy(), np.stack([one.numpy() for one in each], axis=-1), rtol=1e-4)


def test_recorded_plan_of_a_narrow_array(device: gs.Device) -> None:
    """Assert that a recorded plan binds the initial values of each column."""
    x, first = numbers(ROWS, 3), np.array([5, 6, 7], np.int32)
    source, target = device.asarray(x), device.asarray(np.full_like(x, -1))
    plan = device.plan(x.shape, np.int32, axis=0, exclusive=True, initial=first)
    record_and_submit(device.wgpu_device, plan, source, target)
    same(target, gs.scan(x, axis=0, exclusive=True, initial=first, device="numpy"))
    same(plan(source), target.numpy())
