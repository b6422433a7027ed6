"""`gpuscan.compact` on every adapter beside NumPy's own indexing by a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.api import compact as compaction
from gpuscan.api.device import Device
from gpuscan.elements import SCALARS
from tests.oracle import assert_same, poison, ufunc_scan

if TYPE_CHECKING:
    import wgpu


@pytest.fixture
def on(device: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The device that calls without arrays on one take."""
    monkeypatch.setattr("gpuscan.api.compact.resolve_device", lambda _: device)
    return device


def entries(dtype: Any, shape: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    bits = np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)
    return (bits & 1 if dtype == "bool" else bits).view(dtype).reshape(shape)


def same_bits(got: Any, wanted: np.ndarray[Any, Any], note: Any = "") -> None:
    got = np.asarray(got)
    assert got.dtype == wanted.dtype, note
    assert got.shape == wanted.shape, note
    assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(wanted).tobytes(), note


@pytest.mark.parametrize("dtype", SCALARS)
def test_every_dtype(on: Device, dtype: str) -> None:
    """Every bit is kept, those of NaNs and infinities too, wherever an entry lies in its word."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    for length in (1, 31, 33, 1000, 4099):
        x = entries(kind, length)
        for density in (0.0, 0.3, 1.0):
            mask = np.random.default_rng(1).random(length) < density
            poison(on, x.nbytes)
            same_bits(gs.compact(x, mask), x[mask], (length, density))


@settings(max_examples=40)
@given(
    dtype=st.sampled_from(["uint8", "int16", "float32", "uint64"]),
    length=st.sampled_from([0, 1, 2, 63, 64, 65, 777, 5003]),
    trailing=st.sampled_from([(), (1,), (2,), (3,), (4,), (2, 2), (5,), (7, 3), (0,)]),
    density=st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
    form=st.sampled_from(["C", "F", "strided", "backwards"]),
    seed=st.integers(0, 1000),
)
def test_any_array(
    device: Device, dtype: str, length: int, trailing: tuple[int, ...], density: float, form: str, seed: int
) -> None:
    """Entries of any size, from arrays of any memory order; from NumPy and from the device."""
    x = entries(dtype, (2 * length, *trailing), seed)
    x = x[::2] if form == "strided" else x[:length][::-1] if form == "backwards" else np.array(x[:length], order=form)  # type: ignore[call-overload]
    mask = np.random.default_rng(seed).random(length) < density
    wanted = x[mask]
    same_bits(gs.compact(x, device.asarray(mask)), wanted)
    got = gs.compact(device.asarray(x), mask)
    assert isinstance(got, gs.Array)
    same_bits(got, wanted)
    same_bits(got[: len(wanted) // 2], wanted[: len(wanted) // 2])


def test_the_length_stays_on_the_device(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read before it is asked for, and plans take it from there."""
    x = np.random.default_rng(2).integers(0, 2**32, 10_000, dtype=np.uint32)
    mask = x % 3 == 0
    reads: list[int] = []
    read_into = gs.Array._read_into
    monkeypatch.setattr(gs.Array, "_read_into", lambda self, out: (reads.append(out.nbytes), read_into(self, out))[1])
    a, m = device.asarray(x), device.asarray(mask)
    gs.compact(a, m)  # the first run of a kernel is waited for where its subgroups are not known
    reads.clear()
    picked = gs.compact(a, m)
    plan = device.plan(len(x), np.uint32)
    sums = device.asarray(np.zeros(len(x), np.uint32))
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, picked, sums, length=picked.count)
    device.wgpu_device.queue.submit([encoder.finish()])
    assert reads == []
    wanted = x[mask]
    assert picked.shape == wanted.shape
    assert reads == [4]
    assert_same(sums[: len(wanted)], ufunc_scan("add", wanted))
    assert_same(gs.scan(picked), ufunc_scan("add", wanted))


def test_bundles(on: Device) -> None:
    """Each array is picked from alike: as tuples, structured arrays, and more arrays than are bound at once."""
    mask = np.random.default_rng(3).random(3001) < 0.4
    x = tuple(
        entries(dtype, (3001, *trailing)) for dtype, trailing in (("uint8", ()), ("float64", ()), ("int32", (3,)))
    )
    got = gs.compact(x, mask)
    assert isinstance(got, tuple)
    for result, field in zip(got, x, strict=True):
        same_bits(result, field[mask])
    many = {f"field {i}": entries("uint32", 3001, i) for i in range(40)}
    for name, result in gs.compact(many, mask).items():
        same_bits(result, many[name][mask])
    record = np.zeros(3001, [("a", np.int16), ("b", np.float32, 2)])
    record["a"], record["b"] = np.arange(3001), np.arange(6002).reshape(3001, 2)
    same_bits(gs.compact(record, mask), record[mask])


def test_entries_without_bytes(on: Device) -> None:
    """Alone, and beside others in a bundle."""
    mask = np.array([False, True, True])
    x = {"none": np.zeros((3, 0), np.float32), "some": np.array([10, 20, 30], np.int32)}
    for bundle in (x, {name: on.asarray(leaf) for name, leaf in x.items()}):
        got = gs.compact(bundle, mask)
        assert got["none"].shape == (2, 0)
        same_bits(got["some"], x["some"][mask])
    assert gs.compact(x["none"], mask).shape == (2, 0)


def test_in_parts(on: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays larger than a binding are picked from part by part."""
    monkeypatch.setattr(compaction, "most_entries", lambda *_: 1024)
    for trailing in ((), (5,)):
        x = entries("uint16", (10_001, *trailing))
        mask = np.random.default_rng(4).random(10_001) < 0.5
        same_bits(gs.compact(x, mask), x[mask])
        got = gs.compact(on.asarray(x), on.asarray(mask))
        assert isinstance(got, gs.Array)
        same_bits(got, x[mask])


@pytest.mark.parametrize("width", [7_000, 20_000, 1 << 18])
def test_wide_entries(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    """Of which fewer than 32 fit a binding, and as few as one."""
    small = Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    monkeypatch.setattr("gpuscan.api.compact.resolve_device", lambda _: small)
    x = entries("float32", (40, width))
    mask = np.arange(40) % 3 == 0
    same_bits(gs.compact(x, mask), x[mask])
    same_bits(gs.compact(small.asarray(x), mask), x[mask])


def test_entries_wider_than_a_binding(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    monkeypatch.setattr("gpuscan.api.compact.resolve_device", lambda _: small)
    x = np.ones((2, (1 << 18) + 1), np.float32)
    for array in (x, small.asarray(x)):
        with pytest.raises(gs.GpuscanError, match="entries of 1048580 bytes were passed"):
            gs.compact(array, np.ones(2, bool))


def test_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    x = np.arange(10)
    same_bits(gs.compact(x, x % 2 == 0), x[x % 2 == 0])


def test_errors(on: Device) -> None:
    x = np.arange(10)
    with pytest.raises(ValueError, match=r"mask of shape \(9,\) was passed for an array of shape \(10,\)"):
        gs.compact(x, np.ones(9, bool))
    with pytest.raises(ValueError, match=r"mask of shape \(2, 5\).*shape \(10,\)"):
        gs.compact(x, np.ones((2, 5), bool))
    with pytest.raises(TypeError, match=r"mask of dtype int64.*mask != 0"):
        gs.compact(x, x)
    with pytest.raises(ValueError, match="no first axis"):
        gs.compact(np.float32(3), np.ones(1, bool))
    assert on.pool.usage().bytes_in_use == 0
