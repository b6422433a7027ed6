"""Text of arrays on a device: it has NumPy's numbers, reads few of them, and raises no error, even after failures."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from tests.harness.builds import count_reads
from tests.oracle import assert_same


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", ml_dtypes.bfloat16, "float32", "int64", "complex64"])
def test_text_is_numpys(device: gs.Device, dtype: Any) -> None:
    """Compare `str` with NumPy's, and what `repr` adds to it, for arrays and views of several axes."""
    x = np.random.default_rng(0).normal(0, 30, (3, 4, 5)).astype(dtype)
    a = device.asarray(x)
    for index in (np.s_[:], np.s_[::-1, 1::2], np.s_[0, 0, 0], np.s_[:0], np.s_[..., None]):
        assert str(a[index]) == f"{a[index]}" == str(x[index])
        text = repr(a[index])
        numbers = np.array2string(x[index], separator=", ", prefix="gpuscan.Array(")
        assert text.startswith(f"gpuscan.Array({numbers}, ")
        assert text.endswith(f", dtype={x.dtype}, device={device.capabilities.summary!r})")
        assert ("shape=" in text) == (not x[index].size)
    html = a._repr_html_()
    assert "(3, 4, 5)" in html
    assert f"<pre>{x}</pre>" in html


def test_long_arrays_are_cut_as_numpy_cuts_them(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that only the numbers that are shown are read, under NumPy's own settings."""
    x = np.random.default_rng(0).normal(size=(300, 5, 40)).astype(np.float32)
    a = device.asarray(x)
    for view, own in ((a, x), (a.T, x.T), (a.reshape(-1), x.reshape(-1)), (a[:, 0, 0], x[:, 0, 0])):
        reads = count_reads(monkeypatch)
        text = str(view)
        assert sum(reads) <= max(7 * 5 * 7, own.size if own.size <= 1000 else 0) * 4
        monkeypatch.undo()
        assert text == str(own)
    assert "shape=(300, 5, 40)" in repr(a)
    with np.printoptions(threshold=10, edgeitems=2, precision=3):
        assert str(a) == str(x)


def test_picked_arrays(device: gs.Device) -> None:
    """Assert that an array shows all its elements, although only the device knows how many there are."""
    x = np.arange(50, dtype=np.int32)
    assert str(gs.compact(device.asarray(x), x % 3 == 0)) == str(x[::3])
    assert "[ 0,  3,  6," in repr(device.asarray(x)[device.asarray(x % 3 == 0)])
    asked = gs.compact(device.asarray(x), x > 40)
    assert len(asked) == 9
    assert str(asked) == str(x[41:])


def test_failures_are_left_to_the_next_read(device: gs.Device) -> None:
    """Assert that text of an array does not take the error that the caller's next read is to raise."""
    a = device.asarray(np.arange(4, dtype=np.float32))
    taken = a[device.asarray(np.array([1, 9]))]
    assert str(taken) == "[1. 0.]"
    assert "[1., 0.]" in repr(taken)
    with pytest.raises(IndexError, match="index 9"):
        taken.numpy()
    assert_same(a, np.arange(4, dtype=np.float32))


def test_text_never_raises(own_device: gs.Device) -> None:
    """Show arrays of a device that was lost, and one over a buffer that was destroyed."""
    a = own_device.asarray(np.arange(4, dtype=np.float32))
    picked = gs.compact(a, a > 1)
    buffer = own_device.wgpu_device.create_buffer(size=64, usage=0x80 | 0x4)
    foreign = gs.Array.from_buffer(own_device, buffer, (4, 4), np.float32)
    buffer.destroy()
    for text in (repr(foreign), str(foreign), foreign._repr_html_()):
        assert "not readable: ValueError" in text.replace("&lt;", "<")
    assert "shape=(4, 4)" in repr(foreign)
    own_device.wgpu_device.destroy()
    for array in (a, picked):
        for text in (repr(array), str(array), array._repr_html_()):
            assert "not readable: DeviceLostError" in text.replace("&lt;", "<")


def test_messages_name_arrays(device: gs.Device) -> None:
    """Assert that errors describe arrays, and neither read them nor cut their text in the middle."""
    a = device.asarray(np.arange(4, dtype=np.float32))
    described = "<gpuscan.Array of shape (4,) and dtype float32>"
    wrong: Any = a
    calls: tuple[Any, ...] = (
        lambda: gs.scan(a, axis=wrong),
        lambda: gs.reduce(a, groups=np.zeros(4, int), num_groups=wrong),
        lambda: gs.scan(a, exclusive=wrong),
        lambda: device.empty((wrong, 2), np.float32),
        lambda: gs.scan(a, lambda left, right: (left, a)),
    )
    for call in calls:
        with pytest.raises((TypeError, ValueError)) as caught:
            call()
        assert described in str(caught.value) or "gpuscan.Array" not in str(caught.value)
        assert "..." not in str(caught.value).partition("pass")[0]
