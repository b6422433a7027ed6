"""Heads of segments from offsets and keys, and the errors of wrong ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.problem.segments import Heads, Keys, heads_of
from tests.oracle import heads_along

X = np.arange(10, dtype=np.int32)
BAD = {
    "falling": ({"segments": [0, 5, 3, 10]}, ValueError, r"decrease from 5 at index 1 to 3 at index 2"),
    "late begin": (
        {"segments": [1, 10]},
        ValueError,
        r"from 1 to 10 were passed for 10 elements.*first offset must be 0",
    ),
    "overrun": ({"segments": [0, 11]}, ValueError, r"from 0 to 11 were passed for 10 elements.*last 10"),
    "short": ({"segments": [0, 9]}, ValueError, r"from 0 to 9 were passed for 10 elements"),
    "empty": ({"segments": []}, ValueError, r"shape \(0,\) were passed for 10 elements"),
    "table": ({"segments": [[0, 10]]}, ValueError, r"shape \(1, 2\) were passed for 10 elements"),
    "floats": ({"segments": [0.0, 10.0]}, TypeError, r"dtype float64 were passed; offsets are integers"),
    "keys too few": (
        {"keys": np.zeros(9)},
        ValueError,
        r"keys of shape \(9,\) were passed for an array of shape \(10,\)",
    ),
    "keys of axes": ({"keys": np.zeros((2, 5))}, ValueError, r"keys of shape \(2, 5\).*shape \(10,\)"),
    "both": ({"keys": X, "segments": [0, 10]}, ValueError, r"segments= and keys= were both passed; pass the one"),
}


@pytest.mark.parametrize(("options", "error", "message"), BAD.values(), ids=BAD.keys())
def test_errors(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        gs.scan(X, device="numpy", **options)


def test_keys_of_rows() -> None:
    """Assert that the message names both shapes that keys may have, and that offsets go along the axis."""
    with pytest.raises(ValueError, match=r"keys of shape \(2,\).*pass keys of shape \(5,\), the same .* or \(2, 5\)"):
        gs.scan(X.reshape(2, 5), axis=1, keys=X[:2], device="numpy")
    with pytest.raises(ValueError, match=r"from 0 to 10 were passed for 5 elements"):
        gs.scan(X.reshape(2, 5), axis=1, segments=[0, 10], device="numpy")


@given(data=st.data(), length=st.integers(1, 200), reverse=st.booleans())
def test_flags_of_any_range(data: st.DataObject, length: int, reverse: bool) -> None:
    """Assert that offsets and keys give the same heads, for the whole and for stretches, as bits and flags."""
    cuts = data.draw(st.lists(st.integers(0, length), max_size=30))
    offsets = np.array([0, *sorted(cuts), length])
    keys = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    wanted = np.zeros(length, bool)
    bounds = sorted(set(offsets.tolist()))
    for start, stop in itertools.pairwise(bounds):
        wanted[length - stop if reverse else start] = True
    start = data.draw(st.integers(0, length - 1))
    count = data.draw(st.integers(1, length - start))
    for heads in (heads_of(offsets, None, (length,), 0, reverse), heads_of(None, keys, (length,), 0, reverse)):
        assert heads is not None
        np.testing.assert_array_equal(heads.flags(0, length), wanted)
        np.testing.assert_array_equal(heads.flags(start, count), wanted[start : start + count])
        words = heads.words(start, count)
        assert words.dtype == np.uint32
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")[:count]
        np.testing.assert_array_equal(bits, wanted[start : start + count])


def test_keys_differ_as_numpy_has_it() -> None:
    """Assert that a NaN differs from itself, that both zeros are equal, and that text is compared as text."""
    floats = np.array([0.0, -0.0, np.nan, np.nan, 1.0, 1.0])
    np.testing.assert_array_equal(
        Heads((6,), 0, False, Keys(floats)).flags(0, 6), [True, False, True, True, True, False]
    )
    text = np.array(["a", "a", "b", "a"])
    np.testing.assert_array_equal(gs.scan(np.ones(4, np.int32), keys=text, device="numpy"), [1, 2, 1, 1])


@given(data=st.data(), reverse=st.booleans())
def test_flags_of_any_range_of_rows(data: st.DataObject, reverse: bool) -> None:
    """Assert that a stretch of rows has the flags that it has in the whole, for keys of a row and of each element."""
    shape = tuple(data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=4)))
    axis = data.draw(st.integers(0, len(shape) - 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    size = int(np.prod(shape))
    for keys in (rng.integers(0, 2, shape[axis]), rng.integers(0, 2, shape)):
        heads = heads_of(None, keys, shape, axis, reverse)
        assert heads is not None
        forwards = heads_along(axis, shape, keys=keys)
        moved = np.moveaxis(forwards, axis, -1).reshape(-1, shape[axis]).copy()
        moved[:, 0] = True
        wanted = (np.roll(moved, -1, axis=1)[::-1, ::-1] if reverse else moved).reshape(-1)
        np.testing.assert_array_equal(heads.flags(0, size), wanted)
        start = data.draw(st.integers(0, size - 1))
        count = data.draw(st.integers(1, size - start))
        np.testing.assert_array_equal(heads.flags(start, count), wanted[start : start + count])
