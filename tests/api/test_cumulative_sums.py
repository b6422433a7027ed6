"""`cumulative_sum` and `cumulative_prod` follow the Python array API standard and give NumPy's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.oracle import assert_same, limit_examples
from tests.strategies import arrays

PROMOTED = {
    "int8": "int64",
    "int16": "int64",
    "int32": "int64",
    "int64": "int64",
    "uint8": "uint64",
    "uint32": "uint64",
    "uint64": "uint64",
    "float32": "float32",
    "bool": "int64",
}


@pytest.fixture
def on(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return the default device of the process, on every adapter in turn."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    return gs.default_device()


@limit_examples(40)
@given(data=st.data(), dtype=st.sampled_from([*PROMOTED]), include=st.booleans())
def test_any_array(device: gs.Device, data: st.DataObject, dtype: str, include: bool) -> None:
    x = data.draw(arrays(dtype))
    axis: int | None = data.draw(st.integers(-x.ndim, x.ndim - 1))
    if x.ndim == 1:
        axis = data.draw(st.sampled_from([None, axis]))
    native = x.astype(x.dtype.newbyteorder("="))
    for function, ufunc, start in ((gs.cumulative_sum, np.add, 0), (gs.cumulative_prod, np.multiply, 1)):
        if function is gs.cumulative_prod and dtype == "float32":
            native = np.sign(native)
        along = 0 if axis is None else axis
        wanted = ufunc.accumulate(native, axis=along, dtype=PROMOTED[dtype])
        if include:
            shape = [1 if i == along % x.ndim else n for i, n in enumerate(x.shape)]
            wanted = np.concatenate([np.full(shape, start, wanted.dtype), wanted], axis=along)
        got = function(device.asarray(native), axis=axis, include_initial=include)
        assert isinstance(got, gs.Array)
        assert_same(got, wanted)


def test_numpy_arrays(on: gs.Device) -> None:
    x = np.arange(1, 13, dtype=np.int16).reshape(3, 4)
    assert_same(gs.cumulative_sum(x, axis=0), np.cumsum(x, axis=0, dtype=np.int64))
    assert_same(gs.cumulative_prod(x, axis=1, dtype=np.float32), np.cumprod(x, axis=1, dtype=np.float32))
    assert_same(gs.cumulative_sum(x[0], include_initial=True), np.array([0, 1, 3, 6, 10], np.int64))
    assert_same(gs.cumulative_sum(x[:, :0], axis=1, include_initial=True), np.zeros((3, 1), np.int64))
    assert_same(gs.cumulative_sum([1.5, 2.5], dtype="float32"), np.array([1.5, 4], np.float32))
    assert on.memory_usage().bytes_in_use == 0


@pytest.mark.parametrize("include", [False, True])
def test_results_are_native(on: gs.Device, include: bool) -> None:
    """Assert that the result is in native byte order, whatever the byte order of `x` or of `dtype`."""
    x = np.arange(3)
    for got in (
        gs.cumulative_sum(x, dtype=">i4", include_initial=include),
        gs.cumulative_sum(on.asarray(x), dtype=">i4", include_initial=include).numpy(),
        gs.cumulative_sum(x.astype(">i4"), dtype="int32", include_initial=include),
    ):
        assert got.dtype.isnative
        assert_same(got, np.array([0, 0, 1, 3][not include :], np.int32))


@pytest.mark.parametrize("include", [False, True])
def test_into_an_array_of_the_caller(device: gs.Device, include: bool) -> None:
    x = np.arange(1, 25, dtype=np.int16).reshape(2, 3, 4)
    for axis in range(3):
        shape = tuple(n + (include and i == axis) for i, n in enumerate(x.shape))
        wanted = gs.cumulative_sum(x, axis=axis, include_initial=include, device="numpy")
        for where in (device, "numpy"):
            out = np.full(shape[::-1], -7, np.int64).T
            assert gs.cumulative_sum(x, axis=axis, include_initial=include, out=out, device=where) is out
            assert_same(out, wanted)
        place = device.asarray(np.full(shape[::-1], -7, np.int64)).T
        assert gs.cumulative_sum(device.asarray(x), axis=axis, include_initial=include, out=place) is place
        assert_same(place, wanted)
    row = np.arange(6, dtype=np.int64)
    into = row if not include else np.append(row, 0)
    source = into[:6]
    wanted = gs.cumulative_prod(row + 1, include_initial=include, device="numpy")
    source += 1
    assert_same(gs.cumulative_prod(source, include_initial=include, out=into, device=device), wanted)


@pytest.mark.parametrize("include", [False, True])
def test_places_that_do_not_fit(device: gs.Device, include: bool) -> None:
    x, out = np.ones(4, np.int32), np.full(4 + include, 9, np.int64)
    for source, place, error, text in (
        (x, np.zeros(9, np.int64), ValueError, rf"shape \(9,\) was passed for a result of shape \({4 + include},\)"),
        (x, out.astype(np.int32), TypeError, "out of dtype int32 was passed for a result of dtype int64"),
        (x, device.asarray(out), TypeError, "pass a NumPy array"),
        (device.asarray(x), out, TypeError, "pass a gpuscan.Array"),
    ):
        with pytest.raises(error, match=text):
            gs.cumulative_sum(source, include_initial=include, out=place)
    with pytest.raises(gs.AdapterNotFoundError):
        gs.cumulative_sum(x, include_initial=include, out=out, device="no such adapter")
    assert_same(out, np.full(4 + include, 9, np.int64))


ERRORS: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "no axis": (np.ones((2, 2)), {}, ValueError, "without axis="),
    "axis": (np.ones(2), {"axis": 1}, ValueError, r"axis=1 was passed for an array of shape \(2,\)"),
    "0-d": (np.ones(()), {}, ValueError, r"shape \(\) was passed, which has no axis"),
    "text": (np.array(["a"]), {}, TypeError, "cannot be an element"),
}


@pytest.mark.parametrize(("x", "options", "error", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(on: gs.Device, x: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    for function in (gs.cumulative_sum, gs.cumulative_prod):
        with pytest.raises(error, match=message):
            function(x, **options)
