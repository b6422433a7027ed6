"""Columns and initial values larger than a binding, on devices with small bindings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from tests.harness.devices import as_gpu
from tests.oracle import assert_same, ufunc_scan


@pytest.fixture
def small(adapter: wgpu.GPUAdapter) -> gs.Device:
    return gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})


def test_the_smallest_bindings(adapter: wgpu.GPUAdapter) -> None:
    """Assert that an array that does not fit even in pieces raises an error, and a smaller one is scanned."""
    own = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 4096})
    x = np.arange(5000, dtype=np.int32)
    for array in (x, own.asarray(x)):
        with pytest.raises(gs.GpuscanError, match="Scan on NumPy"):
            gs.scan(array, device=own)
    assert_same(gs.scan(x[:500], device=own), ufunc_scan("add", x[:500]))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("columns", "dtype"), [(4, "int8"), (8, "int8"), (12, "int8"), (4, "int16"), (6, "int16")])
def test_long_columns_that_share_words(small: gs.Device, columns: int, dtype: str, reverse: bool) -> None:
    """Scan columns that a binding holds one, two or three of: less than whole words, or exactly whole words."""
    length = (1 << 20) // np.dtype(dtype).itemsize // (3 if columns < 12 else 5)
    x = np.random.default_rng(columns).integers(-9, 9, (length, columns)).astype(dtype)
    wanted = ufunc_scan("add", x[::-1])[::-1] if reverse else ufunc_scan("add", x)
    assert_same(gs.scan(x, axis=0, reverse=reverse, device=small), wanted)
    assert_same(gs.scan(small.asarray(x), axis=0, reverse=reverse).numpy(), wanted)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((70_000, 128), "int8"), ((250_000, 36), "uint8"), ((9_001, 64), "float16")]
)
def test_columns_whose_tiles_leave_more_than_a_binding(small: gs.Device, shape: tuple[int, int], dtype: str) -> None:
    """Assert that narrow slabs take narrow tiles of the same height, so that floats have the bits of the whole."""
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    if dtype == "float16":
        x /= np.float16(7)
        wanted = gs.scan(x, axis=0, device=gs.Device(small))
    else:
        wanted = ufunc_scan("add", x)
    assert_same(gs.scan(x, axis=0, device=small), wanted)


def test_the_gradient_down_long_columns(small: gs.Device) -> None:
    rng = np.random.default_rng(0)
    a, h, grad = ((rng.random((200_000, 4)) / 2).astype(np.float16) for _ in range(3))
    wanted = gs.linear_recurrence_vjp(a, h, grad, axis=0)
    got = gs.linear_recurrence_vjp(*map(small.asarray, (a, h, grad)), axis=0)
    for one, other in zip(got[:2], wanted[:2], strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{"initial": 1}, {"exclusive": True}, {"initial": 1, "reverse": True}])
def test_initial_values_larger_than_a_binding(small: gs.Device, options: dict[str, Any]) -> None:
    """Assert that the device remains usable after the error."""
    x = np.zeros((300_000, 2), np.uint8)
    for array in (x, small.asarray(x)):
        with pytest.raises(gs.GpuscanError, match="Scan fewer rows at a time"):
            gs.scan(array, axis=1, device=small, **options)
    plan = small.plan(x.shape, x.dtype, axis=1, **options)
    with pytest.raises(gs.GpuscanError, match="Scan fewer rows at a time"):
        plan(small.asarray(x))
    assert_same(gs.scan(x + 1, axis=1, device=small)[:, 1], np.full(len(x), 2, np.uint8))


@pytest.mark.parametrize(("length", "columns"), [(127, 2100), (16_000, 33)])
def test_several_arrays_of_wide_and_narrow_slabs(small: gs.Device, length: int, columns: int) -> None:
    """Assert that the buffers of the narrow last slab of one array are not used for the wide ones of the next."""
    x = np.random.default_rng(0).integers(-9, 9, (5, length, columns)).astype(np.int32)
    assert_same(gs.scan(x, axis=1, device=small), x.cumsum(axis=1, dtype=np.int32))
    assert_same(gs.reduce(x, "maximum", axis=1, device=small), x.max(axis=1))


def test_slabs_of_wide_chunks(small: gs.Device) -> None:
    """Assert that slabs are whole chunks where invocations take many neighbouring columns, as they do on GPUs."""
    gpu = as_gpu(small)
    x = np.random.default_rng(0).integers(0, 255, (3, 16 * 66_000)).astype(np.uint8)
    for array in (x, gpu.asarray(x)):
        assert_same(np.asarray(gs.reduce(array, "maximum", axis=0, device=gpu)), x.max(axis=0))
