"""Copies of views: of elements of any width, in any order of the axes, from any byte and to any byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.engine.element_copy import StridedView, copy_view
from tests.harness.builds import copy_any_size_by_tiles
from tests.harness.devices import as_gpu, as_gpu_of_programs, poison
from tests.oracle import Array, assert_same, limit_examples, numbers, some

DTYPES = ("uint8", "int16", "float32", "int64")
# Lengths around whole words, and around the extents of tiles.
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 31, 33, 65, 130)
STEPS = (slice(None), slice(None, None, -1), slice(1, None), slice(None, None, 2), slice(-2, None, -3))


@pytest.fixture(scope="module", params=[False, True], ids=["in order", "by tiles"])
def copier(request: pytest.FixtureRequest, device: gs.Device) -> Iterator[gs.Device]:
    """Return a device that copies in the order of the results, and then one that copies by tiles where it can."""
    if not request.param:
        yield device
        return
    with pytest.MonkeyPatch.context() as patch:
        copy_any_size_by_tiles(patch)
        yield as_gpu(device)


def check_copies(device: gs.Device, x: Array, rotation: Any) -> None:
    """Compare copies of a view with NumPy's: to a new array, to odd places of one, and to another view."""
    view, wanted = rotation(device.asarray(x)), rotation(x)
    poison(device, wanted.nbytes)
    assert_same(view.copy().numpy(), wanted)
    for start in (1, 2):
        line = numbers(str(x.dtype), (wanted.size + 5,), 1)
        target = device.asarray(line)
        target[start : start + wanted.size].reshape(wanted.shape)[...] = view
        line[start : start + wanted.size] = wanted.ravel()
        assert_same(target.numpy(), line, start)
    around = numbers(str(x.dtype), tuple(n + 2 for n in wanted.shape), 2)
    target = device.asarray(around)
    inside = tuple(slice(1, -1) for _ in wanted.shape)
    target[inside] = view
    around[inside] = wanted
    assert_same(target.numpy(), around)
    target.T[inside] = view.T
    assert_same(target.numpy(), around)


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_around_word_boundaries(copier: gs.Device, dtype: str) -> None:
    pairs = [(rows, columns) for rows in LENGTHS for columns in LENGTHS]
    for rows, columns in some(copier, pairs[:: 1 + len(pairs) // 24]):
        x = numbers(dtype, (rows, columns))
        check_copies(copier, x, lambda a: a.T)
        check_copies(copier, x, lambda a: a[:, 1:] if a.shape[1] > 1 else a)


@limit_examples(40)
@given(
    dtype=st.sampled_from(DTYPES),
    axes=st.lists(st.tuples(st.sampled_from(LENGTHS), st.sampled_from(STEPS)), min_size=2, max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_any_order_of_axes(copier: gs.Device, dtype: str, axes: list[tuple[int, slice]], order: Any) -> None:
    """Copy views of 2 to 5 axes, some of them reversed, with steps, and from the second element on."""
    shape = [length for length, _ in axes]
    while np.prod(shape) > 20_000:
        shape[int(np.argmax(shape))] //= 2
    places = order.sample(range(len(shape)), len(shape))
    steps = tuple(step for _, step in axes)
    check_copies(copier, numbers(dtype, tuple(shape)), lambda a: a.transpose(places)[steps])


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_of_all_kinds_of_tiles(copier: gs.Device, dtype: str) -> None:
    """Copy where one side, or both sides, of a tile are short, and where the last axis stays the last."""
    cases = (
        ((300, 5), (1, 0)),
        ((5, 300), (1, 0)),
        ((3, 200, 4), (2, 1, 0)),
        ((46, 19, 37), (2, 1, 0)),
        ((40, 30, 3), (1, 0, 2)),
        ((40, 30, 100), (1, 0, 2)),
        ((6, 7, 8, 9), (0, 2, 1, 3)),
        ((3, 4, 5, 6, 7), (4, 2, 0, 3, 1)),
    )
    for shape, axes in some(copier, cases):
        check_copies(copier, numbers(dtype, shape), lambda a, axes=axes: a.transpose(axes))


@pytest.mark.parametrize("dtype", DTYPES)
def test_programs_of_sizes_whose_tiles_have_layers(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Assert that a program with tiles along two axes is not launched for sizes that need tiles along three."""
    copy_any_size_by_tiles(monkeypatch)
    device = as_gpu_of_programs(device)
    for shape in ((70, 3, 80), (90, 3, 70), (34, 50, 4), (40, 30, 5), (80, 4, 90), (41, 40, 4)):
        x = numbers(dtype, shape)
        assert_same(device.asarray(x).transpose(2, 1, 0).copy().numpy(), x.transpose(2, 1, 0), shape)


def test_broadcast_views(copier: gs.Device) -> None:
    rotation: Any
    for dtype in DTYPES:
        x = numbers(dtype, (5, 3))
        for rotation in (
            lambda a: np.broadcast_to(a[:, None], (5, 7, 3)).transpose(2, 1, 0),
            lambda a: np.broadcast_to(a[:, :, None], (5, 3, 70)),
            lambda a: np.broadcast_to(a[None], (70, 5, 3)).T,
        ):
            assert_same(rotation(copier.asarray(x)).copy().numpy(), rotation(x), dtype)


def test_windows(copier: gs.Device) -> None:
    """Copy a view of rows that overlap: each begins one element after the row before."""
    x = numbers("float32", (40,))
    windows = StridedView(copier.asarray(x), 0, (8, 32), (4, 4), 4)
    copied = copy_view(windows, (8, 32), x.dtype)
    assert_same(copied._read(), np.lib.stride_tricks.sliding_window_view(x, 32)[:8])


@pytest.mark.parametrize("dtype", ["uint8", "float16"])
def test_scans_down_columns_that_share_words(copier: gs.Device, dtype: str) -> None:
    """Assert that columns, reversed ones too, are brought to rows and back."""
    x = np.random.default_rng(0).integers(0, 2, (40, 67, 33)).astype(dtype)
    for reverse in (False, True):
        for axis, exclusive, initial in ((0, False, None), (1, True, None), (1, False, 3)):
            asked: dict[str, Any] = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "initial": initial}
            got = gs.scan(copier.asarray(x), strategy="three_dispatch", **asked)
            assert_same(got.numpy(), gs.scan(x, device="numpy", **asked), (reverse, axis))
    copier.memory_cleanup()  # drops the programs, which keep the initial values
