"""Results that go to a part of an array on a device: what is before and after that part keeps its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs

# Elements before the result. Bindings begin at multiples of 16 or more bytes.
LEADS = (0, 1, 3, 8)


def check_surroundings(device: gs.Device, wanted: Any, call: Callable[..., object]) -> None:
    """Assert that a call fills a part of an array with the result, and changes no other number."""
    for lead in LEADS:
        around = np.full(lead + wanted.size + 9, 3, wanted.dtype)
        whole = device.asarray(around)
        call(out=whole[lead : lead + wanted.size].reshape(wanted.shape))
        around[lead : lead + wanted.size] = wanted.reshape(-1)
        np.testing.assert_array_equal(whole.numpy(), around)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "int32"])
@pytest.mark.parametrize("shape", [(4, 5), (6, 7), (2, 5, 3), (5, 64)], ids=str)
def test_scans(device: gs.Device, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    there = device.asarray(x)
    for axis in range(len(shape)):
        for result in ("uint8", "float32", "int64"):
            options: dict[str, Any] = {"axis": axis, "dtype": result}
            wanted = gs.scan(x, **options, device="numpy")
            check_surroundings(device, wanted, partial(gs.scan, there, **options))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "float16", "float32", "int64"])
@pytest.mark.parametrize("shape", [(3, 2), (40, 3), (7, 64), (2, 3, 5)], ids=str)
def test_reductions(device: gs.Device, dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    there = device.asarray(x)
    for axis in (*range(len(shape)), None):
        wanted = np.asarray(np.max(x, axis))
        check_surroundings(device, wanted, partial(gs.reduce, there, "maximum", axis=axis))


def test_sums_that_begin_with_zero(device: gs.Device) -> None:
    x = np.ones((4, 5), bool)
    found = gs.cumulative_sum(device.asarray(x), axis=0, include_initial=True)
    np.testing.assert_array_equal(found.numpy(), np.cumulative_sum(x, axis=0, include_initial=True))


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "float16", "complex64"])
@pytest.mark.parametrize("function", [np.sum, np.mean, np.var, np.std, np.median, partial(np.quantile, q=[0.25, 0.5])])
def test_results_are_converted_to_out_as_numpy_converts_them(
    device: gs.Device, function: Callable[..., Any], dtype: str
) -> None:
    x = np.array([[1.5, 2.25, 3], [4, 5, 6]], np.float32)
    out = np.zeros((2, 3) if isinstance(function, partial) else 3, dtype)
    found = device.asarray(out)
    try:
        function(x, axis=0, out=out)
    except TypeError:
        with pytest.raises(TypeError, match="Pass an out of the result's dtype"):
            function(device.asarray(x), axis=0, out=found)
    else:
        assert function(device.asarray(x), axis=0, out=found) is found
        np.testing.assert_array_equal(found.numpy(), out)
