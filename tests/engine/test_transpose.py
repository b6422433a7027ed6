"""Transpositions on the device, for columns that share 32-bit words and for NumPy arrays of any memory order."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.harness.builds import (
    copy_any_size_by_tiles,
    count_reads,
    is_transposed_on,
    transpose_any_size,
    upload_in_order,
)
from tests.harness.devices import as_gpu, device_as_if
from tests.oracle import AFFINE, assert_same, limit_examples, one_by_one, some, strategies_in_turn, ufunc_scan

DTYPES = ["uint8", "int16", "bool", "float16"]


def scan_there(monkeypatch: pytest.MonkeyPatch, x: Any, op: Any = "add", **options: Any) -> Any:
    """Scan device arrays, and require that no element is copied to the CPU on the way."""
    with monkeypatch.context() as patched:
        reads = count_reads(patched)
        result = gs.scan(x, op, **options)
        assert reads == []
    return result


@pytest.mark.parametrize(("number", "dtype"), list(enumerate(DTYPES)))
def test_every_strategy(device: gs.Device, monkeypatch: pytest.MonkeyPatch, number: int, dtype: str) -> None:
    op = "logical_xor" if dtype == "bool" else "add"
    shapes = [((40, 3), 0), ((5, 300, 7), 1), ((3, 4, 5, 1, 3), 1), ((1, 9), 0), ((1000, 1, 5), 0)]
    for rotation, (shape, axis) in some(device, enumerate(shapes, number)):
        x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        for strategy in strategies_in_turn(device, rotation):
            got = scan_there(monkeypatch, device.asarray(x), op, axis=axis, strategy=strategy)
            assert_same(got.numpy(), ufunc_scan(op, x, axis=axis), (shape, strategy))


@limit_examples(25)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    axis=st.integers(0, 2),
    reverse=st.booleans(),
    exclusive=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_and_options(
    device: gs.Device, shape: list[int], axis: int, reverse: bool, exclusive: bool, seed: int
) -> None:
    """Assert that each row's `initial` follows it through the transposition."""
    axis = min(axis, len(shape) - 2)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, shape, dtype=np.uint8)
    initial = rng.integers(0, 256, [n for i, n in enumerate(shape) if i != axis], dtype=np.uint8)
    asked: dict[str, Any] = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
    (wanted,) = one_by_one(lambda l, r: (l[0] + r[0],), (x,), initial=(initial,), **asked)
    assert_same(gs.scan(device.asarray(x), initial=initial, **asked).numpy(), wanted)


def test_bundles_of_several_widths(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x = (rng.integers(0, 2**32, (50, 5), dtype=np.uint32), rng.integers(0, 2**16, (50, 5), dtype=np.uint16))
    wanted = one_by_one(AFFINE.function, (x[0], x[1].astype(np.uint32)), axis=0)
    maps = {"before": lambda v: (v[0], v[1].astype(np.uint32))}
    got = scan_there(monkeypatch, tuple(map(device.asarray, x)), AFFINE, axis=0, **maps)
    for field, exact in zip(got, wanted, strict=True):
        assert_same(field.numpy(), exact)


def test_views_and_in_place(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that results that begin or end within a 32-bit word leave the rest of the word unchanged."""
    x = np.random.default_rng(2).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    for start, stop, axis in ((3, 5, 0), (0, 5, 0), (4, 9, 0), (4, 7, 1), (1, 2, 2), (0, 9, 1)):
        whole = device.asarray(x)
        out = whole[start:stop]
        assert scan_there(monkeypatch, out, axis=axis, out=out) is out
        wanted = x.copy()
        wanted[start:stop] = np.cumsum(x[start:stop], axis=axis, dtype=np.uint8)
        assert_same(whole.numpy(), wanted, (start, stop, axis))


def refuse_copies(array: np.ndarray[Any, Any], dtype: Any = None) -> np.ndarray[Any, Any]:
    """Stand in for `np.ascontiguousarray`, and fail if that would copy."""
    assert array.flags.c_contiguous
    assert dtype in (None, array.dtype)
    return array


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "uint32", "int64"])
def test_arrays_of_the_cpu_in_any_memory_order(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], dtype: str
) -> None:
    """Assert that a GPU with memory of its own brings the array into C order, and the CPU makes no copy before."""
    gpu = as_gpu(device)
    transpose_any_size(monkeypatch)
    copy_any_size_by_tiles(monkeypatch)
    x = np.random.default_rng(3).integers(0, 9, (4, 6, 20)).astype(dtype).transpose(order)
    assert is_transposed_on(gpu, x) == (order != (0, 1, 2))
    assert_same(upload_in_order(gpu, x).numpy(), np.ascontiguousarray(x))
    with monkeypatch.context() as patched:
        patched.setattr(np, "ascontiguousarray", refuse_copies)
        for axis in range(3):
            if x.shape[axis + 1 :] and np.prod(x.shape[axis + 1 :]) * x.itemsize % 4:
                continue  # columns that share words
            got = gs.scan(x, axis=axis, device=gpu, strategy="three_dispatch")
            assert_same(got, ufunc_scan("add", np.array(x, order="C"), axis=axis), axis)


def test_arrays_that_the_cpu_brings_into_order(device: gs.Device) -> None:
    """Scan small arrays, arrays with gaps or read backwards, and any on adapters that share the CPU's memory."""
    x = np.zeros((1 << 10, 1 << 10), np.float32)
    for kind in ("CPU", "IntegratedGPU"):
        assert not is_transposed_on(device_as_if(device, adapter_type=kind), x.T)
    gpu = as_gpu(device)
    assert is_transposed_on(gpu, x.T)
    for other in (x, x[:5].T, x.T[::2], x.T[::-1], np.broadcast_to(x[0], x.shape).T):
        assert not is_transposed_on(gpu, other)
