"""Calls with short arrays of NumPy of new shapes: they launch the programs of calls with other shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import signal
from tests.harness.calls import (
    EACH_RESULT,
    EACH_STAGE,
    FIRST,
    NEW_EACH_RESULT,
    NEW_EACH_STAGE,
    NEW_FIRST,
    Counted,
    results_of,
)
from tests.oracle import affine, assert_same


def whole(number: int, *shape: int) -> Any:
    """Return small integers as float32, so that sums are exact in any order."""
    return np.random.default_rng(number).integers(-4, 5, shape).astype(np.float32)


LABELS = np.arange(16, dtype=np.int32) % 4
# Calls with rows and with as many values, and with the device "numpy" if the rows are NumPy's.
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan": lambda x, v, on: gs.scan(x, axis=1, initial=v, **on),
    "scan of doubles": lambda x, v, on: gs.scan(x, axis=1, initial=v.astype(np.float64), **on),
    "scan of integers": lambda x, v, on: gs.scan(x.astype(np.int32), axis=1, initial=v.astype(np.int64), **on),
    "exclusive scan": lambda x, v, on: gs.scan(x, "maximum", axis=1, exclusive=True, initial=v, **on),
    "backward scan": lambda x, v, on: gs.scan(x, axis=1, reverse=True, initial=v, **on),
    "scan with a column": lambda x, v, on: gs.scan(x, axis=0, initial=v[:1], **on),
    "pairs": lambda x, v, on: gs.scan((x, x), affine, axis=1, initial=(v, -v), **on),
    "reduce": lambda x, v, on: gs.reduce(x, axis=1, initial=v, **on),
    "reduce float16": lambda x, v, on: gs.reduce(x.astype(np.float16), axis=1, initial=v.astype(np.float16), **on),
    "gates": lambda x, v, on: gs.linear_recurrence(np.sign(v)[:, None], x, axis=1, initial=v, **on),
    "loop": lambda x, v, on: gs.loop(lambda h, x: x - h, v, x, axis=1, **on)[:2],
    "loop of a maximum": lambda x, v, on: gs.loop(lambda h, x: np.maximum(h, x), np.abs(v), x, axis=1, **on)[:2],
    "loop step by step": lambda x, v, on: gs.loop(lambda h, x: x - h, v, x, axis=1, method="sequential", **on)[:2],
    "loop of vectors": lambda x, v, on: gs.loop(lambda h, x: x + h[::-1], np.stack([v, -v], 1), x, axis=1, **on)[:2],
    "sum with a column": lambda x, v, on: x + v[:, None],
    "where": lambda x, v, on: np.where(x > 0, v[:, None], x),
    "clip": lambda x, v, on: np.clip(x, -np.abs(v)[:, None] - 1, 2),
    "assigned": lambda x, v, on: assign(x, v),
    "quantiles": lambda x, v, on: gs.quantile(x, np.sort(np.abs(v)) / 8, **on),
    "histogram of edges": lambda x, v, on: gs.histogram(x, np.unique(v), **on)[0],
    "histogram of more edges": lambda x, v, on: gs.histogram(x, np.linspace(-5, v[-1], 2 * len(v)), **on),
    "histogram of bins": lambda x, v, on: gs.histogram(x, 3 * len(v), (-5, 5), **on),
    "groups down columns": lambda x, v, on: gs.reduce(x.T, axis=0, groups=LABELS, num_groups=7, **on),
    "maxima of groups down columns": lambda x, v, on: gs.reduce(x.T, "maximum", axis=0, groups=LABELS, **on),
    "many groups down columns": lambda x, v, on: gs.reduce(x.T, axis=0, groups=77 * LABELS, num_groups=999, **on),
    "segments down columns": lambda x, v, on: gs.reduce(x.T.copy(), axis=0, segments=[0, 4, 4, 16], **on),
    "pairs of segments down columns": lambda x, v, on: gs.reduce(
        (x.T.copy(), x.T.copy()), affine, axis=0, segments=[0, 4, 16], **on
    ),
    "segments along rows": lambda x, v, on: gs.reduce(x, axis=1, segments=[0, 4, 4, 16], **on),
    "weighted histogram": lambda x, v, on: gs.histogram(x, np.linspace(-3, 9, len(v)), weights=x, **on)[0],
    "filter": lambda x, v, on: filter_rows(x, v),
    "convolution": lambda x, v, on: convolve(x[:3], v),
    "taken": lambda x, v, on: np.take(x, np.abs(v).astype(np.int32), axis=1),
}


def assign(x: Any, v: Any) -> Any:
    """Return the rows after values were assigned to a column of them."""
    out = x.copy()
    out[:, 3] = v
    return out


def filter_rows(x: Any, v: Any) -> Any:
    """Return what a filter with a state for each row makes of the rows, and the last states."""
    if isinstance(x, gs.Array):
        return signal.lfilter([1.0, 2.0], [1.0, -1.0], x, axis=1, zi=v[:, None])
    y, state = np.zeros_like(x), v
    for t in range(x.shape[1]):
        y[:, t] = x[:, t] + state
        state = 2 * x[:, t] + y[:, t]
    return y, state[:, None]


def convolve(x: Any, v: Any) -> Any:
    """Return the convolution of the rows with the values."""
    if isinstance(x, gs.Array):
        return signal.lfilter(v, [1.0], x, axis=1)
    return np.stack([np.convolve(row, v)[: len(row)] for row in x])


# These need a program for each number of values.
BY_SHAPE = {"loop of vectors", "weighted histogram"}


# Calls with as many values as rows, or about so.
LONG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "scan": CALLS["scan of integers"],
    "reduce": lambda x, v, on: gs.reduce(x, axis=1, initial=v.astype(np.float64), **on),
    "recurrence": lambda x, v, on: gs.linear_recurrence(np.sign(x), x, axis=1, initial=v.astype(np.float64), **on),
    "loop": CALLS["loop"],
    "loop of integers": lambda x, v, on: gs.loop(
        lambda h, x: (h + x) % 7, np.abs(v).astype(np.int64), np.abs(x).astype(np.int32), axis=1, **on
    )[:2],
    "quantiles": CALLS["quantiles"],
    "histogram of edges": lambda x, v, on: gs.histogram(x, np.sort(v), **on)[0],
}


def count_calls(call: Callable[[Any, Any, Any], Any], x: Any, a: Any, shapes: list[int], name: str) -> tuple[Any, int]:
    """Compare a call with NumPy's for values of each shape; return what each call cost, and how many results it has."""
    counts = []
    for number, rows in enumerate(shapes):
        values = whole(number, rows)
        values[0], values[-1] = -4, 4
        results: list[Any] = []
        counts.append(Counted().of(lambda: results.append(call(a[:rows], values, {}))))  # noqa: B023
        wanted = results_of(call(x[:rows], values, {"device": "numpy"}))
        for got, expected in zip(results_of(results[0]), wanted, strict=True):
            assert_same(got, expected.astype(got.dtype), (name, rows))
    return counts, len(wanted)


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("name", LONG)
def test_values_for_many_rows(device: gs.Device, name: str) -> None:
    """Assert that hundreds of values are parameters of a program as few values are."""
    call, x = LONG[name], whole(0, 900, 16)
    a = device.asarray(x)
    counts, results = count_calls(call, x, a, [900, 900, 900, 900, 900, 600, 900, 900], name)
    with device.profile() as profile:
        call(a, whole(0, 900), {})
    # To write values takes as much as a stage. NumPy computes what quantiles and edges mean.
    stages, more = len(profile.spans) + 1, 120 if name in ("quantiles", "histogram of edges") else 0
    assert min(counts[-2:]) <= FIRST + EACH_STAGE * stages + EACH_RESULT * (results - 1) + more, counts


@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("name", CALLS)
def test_new_shapes(device: gs.Device, name: str) -> None:
    """Assert that values of each shape give their own results, and that soon none needs another program."""
    call, x = CALLS[name], whole(0, 64, 16)
    a = device.asarray(x)
    counts, results = count_calls(call, x, a, [*range(3, 9), 5, 4, 5, 33, 12, 3, 47, 61, 7, *range(20, 30)], name)
    with device.profile() as profile:
        call(a[:31], whole(1, 31), {})
    most = NEW_FIRST + NEW_EACH_STAGE * len(profile.spans) + NEW_EACH_RESULT * (results - 1)
    assert name in BY_SHAPE or sorted(counts[-10:])[5] <= most, counts


def test_equal_bytes_of_several_shapes(device: gs.Device) -> None:
    """Assert that values of equal bytes mean what their shape says, also if programs for both shapes are known."""
    x, values = whole(0, 6, 6, 5), whole(1, 12)
    a = device.asarray(x)
    for _ in range(3):
        for rows, columns in ((2, 6), (6, 2), (3, 4), (4, 3)):
            part, initial = x[:rows, :columns], values.reshape(rows, columns)
            for op in ("add", "maximum"):
                got = gs.scan(a[:rows, :columns], op, axis=2, initial=initial).numpy()
                assert_same(got, gs.scan(part, op, axis=2, initial=initial, device="numpy"))
            gates = np.sign(initial)[..., None]
            got = gs.linear_recurrence(gates, a[:rows, :columns], axis=2).numpy()
            assert_same(got, gs.linear_recurrence(gates, part, axis=2, device="numpy"))
            got = gs.loop(lambda h, x: np.minimum(h - 1, x), initial, a[:rows, :columns], axis=2)[0].numpy()
            assert_same(got, gs.loop(lambda h, x: np.minimum(h - 1, x), initial, part, axis=2, device="numpy")[0])


def test_one_program_for_many_shapes(own_device: gs.Device) -> None:
    """Assert that new shapes fill neither the cache of programs nor the memory of the device."""
    a = own_device.asarray(whole(0, 128, 16))

    def scan_all() -> int:
        for rows in range(3, 120):
            gs.scan(a[:rows], axis=1, initial=whole(rows, rows))
        own_device.synchronize()
        return own_device.memory_usage().bytes_reserved

    scan_all()
    assert scan_all() == scan_all()


def test_long_lists(device: gs.Device) -> None:
    """Assert that calls with hundreds of arrays and numbers launch programs, and see the numbers and arrays of now."""
    x = whole(0, 200, 16)
    a, counts = device.asarray(x), []
    pieces = [(x[row], a[row]) for row in range(200)]
    for number in range(6):
        values = whole(number, 200)
        rows = np.random.default_rng(number).permutation(200)
        numbers, arrays = values.tolist(), [pieces[row][1] for row in rows]
        results: list[Any] = []

        def compute() -> None:
            results.append(gs.scan(a, axis=1, initial=numbers))  # noqa: B023
            results.append(np.concatenate(arrays))  # noqa: B023

        counts.append(Counted().of(compute))
        assert_same(results[0].numpy(), gs.scan(x, axis=1, initial=values, device="numpy"))
        assert_same(results[1].numpy(), x[rows].reshape(-1))
    assert min(counts) <= 2 * FIRST + 3 * len(pieces) + EACH_STAGE, counts
