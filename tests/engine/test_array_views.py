"""Views that kernels read and write where they are: slices at any offset, and rows that are apart.

Everything around a view that is written has to stay as it was. Arrays are compared with NumPy's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import count_copies
from tests.harness.devices import count_plans_and_pipelines
from tests.harness.scans import make_problem, scan_on_device_with
from tests.oracle import Array, assert_same, numbers, small_tiles, strategies_in_turn, tile_in_turn, ufunc_scan

# Packed numbers, words, and numbers of two words.
DTYPES = ("uint16", "int32", "complex64")


# ----- Kernels of every form

# The slice, the axis of the scan, and whether it goes backwards.
CASES: tuple[tuple[Any, int, bool], ...] = (
    (np.s_[3:], 0, False),
    (np.s_[5:-2], 0, True),
    (np.s_[::2], 0, False),
    (np.s_[1:4, 5:-6], 1, False),
    (np.s_[:, 3:], 1, True),
    (np.s_[1:4, 3:-1], 0, False),
    (np.s_[::-1, 2:], 1, False),
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_tiles_of_gpus(device: gs.Device, dtype: str) -> None:
    """Scan in tiles of several steps, with and without subgroups, where words go through workgroup memory."""
    # Each dtype takes every third case.
    for number, (index, axis, reverse) in list(enumerate(CASES))[DTYPES.index(dtype) :: 3]:
        shape = (5, 700) if isinstance(index, tuple) else (3500,)
        x, wanted = numbers(dtype, shape), np.full(shape, 77, dtype)
        a, target = device.asarray(x), device.asarray(wanted)
        # Both arrays are views, or only the input is, or only the result.
        view = a[index].copy() if number % 3 == 2 else a[index]
        out = target[index].copy() if number % 3 == 1 else target[index]
        result = exclusive(x[index], axis, reverse)
        problem = make_problem(view, axis=axis, reverse=reverse, exclusive=True, initial=3)
        tile = tile_in_turn(device, number) if axis == len(shape) - 1 else None
        scan_on_device_with(device, problem, strategies_in_turn(device, number)[0], tile=tile, out=[out])
        assert_same(out, result, (index, axis, reverse))
        if number % 3 != 1:
            wanted[index] = result
        assert_same(target, wanted, (index, axis, reverse))
        assert_same(a, x)


@pytest.mark.parametrize("views", ["both", "input", "result"])
def test_matrices(device: gs.Device, views: str) -> None:
    """Scan 3x3 matrices in views and in whole arrays. They go through workgroup memory word by word."""
    x = np.random.default_rng(0).integers(0, 3, (203, 3, 3)).astype(np.uint32)
    a, target = device.asarray(x), device.asarray(np.full_like(x, 77))
    view, out = a[3:].copy() if views == "result" else a[3:], target[2:-1]
    out = out.copy() if views == "input" else out
    tile = replace(small_tiles(device)[-1], chunk=1)
    scan_on_device_with(device, make_problem(view, "matmul", axis=0), "three_dispatch", tile=tile, out=[out])
    wanted = list(itertools.accumulate(x[3:], np.matmul))
    assert_same(out, np.array(wanted))
    assert (target.numpy()[[0, 1, -1]] == 77).all()
    assert_same(a, x)


def exclusive(x: Array, axis: int, reverse: bool) -> Array:
    """Return the sums of the elements before each one, from 3 on."""
    x = np.flip(x, axis) if reverse else x
    sums = np.roll(ufunc_scan("add", x, axis=axis), 1, axis)
    np.moveaxis(sums, axis, 0)[0] = 0
    result: Array = (sums + 3).astype(x.dtype)
    return np.flip(result, axis) if reverse else result


# ----- Repeated rows and elements

# The shape of an array that is broadcast, what it is broadcast to, and the axis of the scan.
REPEATED = (
    ((40, 1), (40, 70), 1),
    ((40, 1), (40, 70), 0),
    ((1, 70), (40, 70), 1),
    ((1, 1), (40, 70), 1),
    ((7, 1, 20), (7, 33, 20), 1),
    ((7, 1, 20), (7, 33, 20), 2),
    ((1, 33, 1), (7, 33, 20), 1),  # neighbours and rows are repeated, so it is copied
)


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_rows_and_elements(device: gs.Device, dtype: str) -> None:
    """Scan what `np.broadcast_to` repeats, where it is, by itself and as a field of a bundle."""
    for own, shape, axis in REPEATED:
        x, y = numbers(dtype, own), numbers(dtype, shape)
        a, repeated = device.asarray(x), np.broadcast_to(x, shape)
        view = np.broadcast_to(a, shape)
        with device.profile() as profile:
            result = gs.scan(view, axis=axis, reverse=True)
            device.synchronize()
        copies = {span.stage for span in profile.spans} & {"copy_elements", "copy_tiles"}
        assert not copies or (axis == 1 and own == (1, 33, 1)), (own, axis, copies)
        assert_same(result, np.flip(ufunc_scan("add", np.flip(repeated, axis), axis=axis), axis), (own, axis))
        sums = gs.reduce((device.asarray(y), view), add_pairs, axis=axis)
        for part, wanted in zip(sums, (y, repeated), strict=True):
            assert_same(part, wanted.sum(axis, dtype=dtype), (own, axis))
        assert_same(a, x)


def add_pairs(left: Any, right: Any) -> Any:
    """Add two bundles of two numbers."""
    return left[0] + right[0], left[1] + right[1]


# ----- Any slice


def slices(length: int) -> st.SearchStrategy[slice]:
    """Return slices of at least one element of an axis, mostly of steps that leave elements close together."""
    starts, counts = st.integers(0, length - 1), st.integers(1, length)
    forwards = st.builds(lambda start, count, step: slice(start, start + count * step, step), starts, counts, STEPS)
    return forwards | st.just(slice(None, None, -1))


STEPS = st.sampled_from((1, 1, 1, 2, 3))


@pytest.mark.parametrize("dtype", ["uint8", "int32", "complex64"])
@hypothesis.settings(max_examples=25)
@hypothesis.given(
    index=st.tuples(slices(6), slices(30)),
    to=st.tuples(slices(6), slices(30)),
    axis=st.sampled_from((None, 0, 1)),
    in_place=st.booleans(),
)
def test_any_slice(device: gs.Device, dtype: str, index: Any, to: Any, axis: int | None, in_place: bool) -> None:
    """Scan any slice into any other one, or into itself; nothing else may change."""
    x = numbers(dtype, (6, 30) if axis is not None else 180)
    if axis is None:
        index, to, axis = index[1], to[1], 0
    a, target, wanted = device.asarray(x), device.asarray(x), x.copy()
    common: tuple[slice, ...] = ()
    if in_place:
        a, to = target, index
    else:
        lengths = zip(x[index].shape, x[to].shape, strict=True)
        common = tuple(slice(min(pair)) for pair in lengths)
    wanted[to][common] = ufunc_scan("add", x[index][common], axis)
    gs.scan(a[index][common], axis=axis, out=target[to][common])
    assert_same(target, wanted)


# ----- No copies, and no compilation

CALLS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, f: gs.scan(a[:, 3:], axis=1),
    lambda a, f: gs.scan(a[:, 3:], axis=0),
    lambda a, f: gs.scan(f[::2]),
    lambda a, f: gs.reduce(f[5:]),
    lambda a, f: gs.compact(f[5:], lambda x: x != 3),
    lambda a, f: gs.linear_recurrence(f[5:], f[:-5]),
    lambda a, f: gs.map(lambda x, y: x + y, f[5:], f[:-5]),
)


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_views_are_read_where_they_are(device: gs.Device, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Compare calls on slices with calls on copies of them: the same bits, and no elements are copied."""
    call = CALLS[number]
    a = device.asarray((numbers("float32", (40, 60)) / 7).astype(np.float32))
    with monkeypatch.context() as patched:
        copies = count_copies(patched)
        got = call(a, a.reshape(-1))
    assert copies == []
    assert_same(got, call(Copies(a), Copies(a.reshape(-1))))


class Copies:
    """An array with copies in place of views."""

    def __init__(self, array: gs.Array) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> gs.Array:
        return self.array[index].copy()


def test_another_slice_compiles_nothing(device: gs.Device) -> None:
    a = device.asarray(numbers("int32", (20, 100)))

    def calls(start: int) -> None:
        gs.scan(a.reshape(-1)[start : start + 1000])
        gs.scan(a[:, start : start + 80], axis=1, out=a[:, start : start + 80])
        gs.reduce(a.reshape(-1)[start : start + 1000])

    calls(1)
    compiled = count_plans_and_pipelines(device)[1]
    for start in (3, 6, 11):
        calls(start)
    assert count_plans_and_pipelines(device)[1] == compiled


def test_the_input_stays_where_two_results_are_in_one_buffer(device: gs.Device) -> None:
    """Write two results to neighbouring parts of one buffer. Bindings from aligned bytes on would overlap."""
    x = numbers("int32", (2, 50))
    a, target = device.asarray(x), device.asarray(np.full(110, 7, np.int32))
    gs.scan((a[0], a[1]), lambda l, r: (l[0] + r[0], np.maximum(l[1], r[1])), out=(target[3:53], target[53:103]))
    sums, largest = ufunc_scan("add", x[0]), ufunc_scan("maximum", x[1])
    assert_same(target, np.concatenate([np.full(3, 7), sums, largest, np.full(7, 7)]).astype(np.int32))
