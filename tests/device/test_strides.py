"""Shapes, strides and offsets of views, compared with NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscan.device import strides as layout


def address(x: np.ndarray[Any, Any]) -> int:
    return int(x.__array_interface__["data"][0])


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Return a view of an array with a few axes, as slices, new axes and transposes make them."""
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    x = np.arange(int(np.prod(shape)), dtype=draw(st.sampled_from(["u1", "i2", "f4", "c8"]))).reshape(shape)
    x = x.transpose(draw(st.permutations(range(x.ndim))))
    return take_view(x, draw(indices(x.shape)))


def take_view(x: np.ndarray[Any, Any], index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return a view by an index. An ellipsis keeps NumPy from returning a number."""
    view: np.ndarray[Any, Any] = x[index if Ellipsis in index else (*index, ...)]
    return view


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return an index that fits the shape, with or without an ellipsis in its place."""
    left = draw(st.integers(0, len(shape)))
    right = draw(st.none() | st.integers(left, len(shape)))
    parts = [draw(index_of(length)) for length in shape[:left]]
    if right is not None:
        parts += [Ellipsis, *(draw(index_of(length)) for length in shape[right:])]
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    return tuple(parts)


def index_of(length: int) -> st.SearchStrategy[Any]:
    """Return the indices of one axis."""
    bounds = st.none() | st.integers(-length - 2, length + 2)
    slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, 3, -1, -2, -7]))
    return slices | st.integers(-length, length - 1) if length else slices


def same_layout(x: np.ndarray[Any, Any], shape: Any, strides: Any) -> bool:
    """Return True if the axes that are longer than 1 have the same strides."""
    pairs = zip(x.shape, x.strides, strides, strict=True)
    return x.shape == tuple(shape) and (x.size == 0 or all(a == b for n, a, b in pairs if n > 1))


@given(st.data())
def test_indices(data: st.DataObject) -> None:
    x = data.draw(views())
    index = data.draw(indices(x.shape))
    wanted = take_view(x, index)
    shape, strides, offset = layout.index_layout(x.shape, x.strides, index)
    assert same_layout(wanted, shape, strides)
    assert wanted.size == 0 or offset == address(wanted) - address(x)


@given(st.data())
def test_reshapes(data: st.DataObject) -> None:
    """Assert that there is a view exactly where NumPy gives one."""
    x = data.draw(views())
    lengths: list[int] = []
    rest = x.size
    while rest > 1:
        lengths.append(data.draw(st.sampled_from([n for n in range(2, rest + 1) if rest % n == 0])))
        rest //= lengths[-1]
    for _ in range(data.draw(st.integers(0, 2))):
        lengths.insert(data.draw(st.integers(0, len(lengths))), 1)
    wanted = tuple(lengths) if x.size else (0, 3)
    strides = layout.reshape_strides(x.shape, x.strides, wanted)
    try:
        view = x.reshape(wanted, copy=False)
    except ValueError:
        assert strides is None
        return
    assert strides is not None
    assert same_layout(view, wanted, strides)


@given(views())
def test_order_and_reach(x: np.ndarray[Any, Any]) -> None:
    assert layout.is_c_order(x.shape, x.strides, x.itemsize) == x.flags.c_contiguous
    low, high = layout.reach(x.shape, x.strides, x.itemsize)
    bounds = np.lib.array_utils.byte_bounds(x)
    assert x.size == 0 or (address(x) + low, address(x) + high) == bounds
    axes = layout.join_axes(x.shape, x.strides)
    assert int(np.prod([n for n, _ in axes])) == x.size


@given(st.data())
def test_shared_bytes(data: st.DataObject) -> None:
    """Assert that views that share an element are found, and that the columns of a table share none."""
    x = np.zeros((4, 6), np.int16)
    a, b = (take_view(x, data.draw(indices(x.shape))) for _ in "ab")
    mine, theirs = ((v.shape, v.strides, address(v) - address(x), 2) for v in (a, b))
    assert layout.may_share_bytes(mine, theirs) or not np.shares_memory(a, b)
    table = x.strides
    assert not layout.may_share_bytes(((4,), table[:1], 0, 2), ((4,), table[:1], 2, 2))
    assert not layout.may_share_bytes(((4, 3), table, 0, 2), ((4, 3), table, 6, 2))
    assert layout.may_share_bytes(((4, 4), table, 0, 2), ((4, 3), table, 6, 2))


@pytest.mark.parametrize("index", [[1, 2], np.array([0]), True, 1.5, "gain", (slice(None), [0])])
def test_other_indices_are_refused(index: Any) -> None:
    with pytest.raises(IndexError, match="indices are integers, slices"):
        layout.index_layout((3, 4), (16, 4), index)


def test_impossible_requests_are_refused() -> None:
    for index, match in (
        ((0, 0, 0), "3 indices .* 2 axes"),
        ((..., 0, ...), "2 ellipses"),
        (3, "the first axis has 3 entries; pass one from -3 to 2"),
        ((0, -5), "axis 1 has 4 entries"),
    ):
        with pytest.raises(IndexError, match=match):
            layout.index_layout((3, 4), (16, 4), index)
    with pytest.raises(IndexError, match="0 entries; pass a slice"):
        layout.index_layout((0,), (4,), 0)
    assert layout.resolve_shape((3, 4), (-1, 6)) == (2, 6)
    for wanted in ((5, -1), (7,), (-1, 0)):
        with pytest.raises(ValueError, match="pass lengths with the product 12"):
            layout.resolve_shape((3, 4), wanted)
    for wanted in ((-1, -1), (-2, 6)):
        with pytest.raises(ValueError, match="at most one -1"):
            layout.resolve_shape((3, 4), wanted)
    for axes in ((0,), (0, 0), (0, 2)):
        with pytest.raises(ValueError, match="pass each axis of 2 once: 0 to 1"):
            layout.permutation(2, axes)
