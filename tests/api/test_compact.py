"""`gpuscan.compact` on every adapter gives what NumPy's indexing by a mask does."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import wgpu
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.elements import SCALARS
from tests.harness.builds import count_reads
from tests.harness.devices import poison
from tests.harness.scans import record_and_submit
from tests.oracle import Array, assert_same, limit_examples, ufunc_scan


@pytest.fixture
def on(adapter: wgpu.GPUAdapter, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return the default device of the process on every adapter: `gs.compact` takes no device."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", adapter.summary)
    return gs.default_device()


@pytest.fixture
def small(adapter: wgpu.GPUAdapter) -> gs.Device:
    """Return a device that binds 1 MiB at most."""
    return gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})


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
def test_every_dtype(on: gs.Device, dtype: str) -> None:
    """Assert that every bit is kept, also of NaNs and infinities, at every place in a 32-bit word."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    for length in (1, 31, 33, 1000, 4099):
        x = entries(kind, length)
        for density in (0.0, 0.3, 1.0):
            mask = np.random.default_rng(1).random(length) < density
            poison(on, x.nbytes)
            same_bits(gs.compact(x, mask), x[mask], (length, density))


@limit_examples(40)
@given(
    dtype=st.sampled_from(["uint8", "int16", "float32", "uint64"]),
    length=st.sampled_from([0, 1, 2, 63, 64, 65, 777, 5003]),
    trailing=st.sampled_from([(), (1,), (2,), (3,), (4,), (2, 2), (5,), (7, 3), (0,)]),
    density=st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]),
    form=st.sampled_from(["C", "F", "strided", "backwards"]),
    seed=st.integers(0, 1000),
)
def test_any_array(
    device: gs.Device, dtype: str, length: int, trailing: tuple[int, ...], density: float, form: str, seed: int
) -> None:
    """Compact entries of any size, from arrays of any memory order; from NumPy and from the device."""
    x = entries(dtype, (2 * length, *trailing), seed)
    x = x[::2] if form == "strided" else x[:length][::-1] if form == "backwards" else np.array(x[:length], order=form)  # type: ignore[call-overload]
    mask = np.random.default_rng(seed).random(length) < density
    wanted = x[mask]
    same_bits(gs.compact(x, device.asarray(mask)), wanted)
    got = gs.compact(device.asarray(x), mask)
    assert isinstance(got, gs.Array)
    same_bits(got, wanted)
    same_bits(got[: len(wanted) // 2], wanted[: len(wanted) // 2])


def test_the_length_stays_on_the_device(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the length is read only when a caller asks for it, and that a plan can take it from the device."""
    x = np.random.default_rng(2).integers(0, 2**32, 10_000, dtype=np.uint32)
    mask = x % 3 == 0
    reads = count_reads(monkeypatch)
    a, m = device.asarray(x), device.asarray(mask)
    gs.compact(a, m)  # the first run of a kernel is waited for where its subgroups are not known
    reads.clear()
    picked = gs.compact(a, m)
    plan = device.plan(len(x), np.uint32)
    sums = device.asarray(np.zeros(len(x), np.uint32))
    record_and_submit(device.wgpu_device, plan, picked, sums, length=picked.count)
    assert reads == []
    wanted = x[mask]
    assert picked.shape == wanted.shape
    assert reads == [4]
    assert_same(sums[: len(wanted)], ufunc_scan("add", wanted))
    assert_same(gs.scan(picked), ufunc_scan("add", wanted))


def test_bundles(on: gs.Device) -> None:
    """Compact every array of a tuple, of a structured array, and of a dict of more arrays than a shader binds."""
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


def test_entries_without_bytes(on: gs.Device) -> None:
    """Compact entries without bytes, alone and in a bundle with others."""
    mask = np.array([False, True, True])
    x = {"none": np.zeros((3, 0), np.float32), "some": np.array([10, 20, 30], np.int32)}
    for bundle in (x, {name: on.asarray(leaf) for name, leaf in x.items()}):
        got = gs.compact(bundle, mask)
        assert got["none"].shape == (2, 0)
        same_bits(got["some"], x["some"][mask])
    assert gs.compact(x["none"], mask).shape == (2, 0)


@pytest.mark.parametrize("shape", [(600_001,), (130_001, 5)])
def test_arrays_larger_than_a_binding(
    small: gs.Device, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = entries("uint16", shape)
    mask = np.random.default_rng(4).random(len(x)) < 0.5
    same_bits(gs.compact(x, small.asarray(mask)), x[mask])
    got = gs.compact(small.asarray(x), mask)
    assert isinstance(got, gs.Array)
    # The counts of the parts were read, so the length is known.
    reads = count_reads(monkeypatch)
    assert len(got) == mask.sum()
    assert reads == []
    same_bits(got, x[mask])


@pytest.mark.parametrize("width", [7_000, 20_000, 1 << 18])
def test_wide_entries(small: gs.Device, width: int) -> None:
    """Compact wide entries: a binding holds fewer than 32 of them, down to one."""
    x = entries("float32", (40, width))
    mask = np.arange(40) % 3 == 0
    same_bits(gs.compact(x, small.asarray(mask)), x[mask])
    same_bits(gs.compact(small.asarray(x), mask), x[mask])


def test_entries_wider_than_a_binding(small: gs.Device) -> None:
    x, mask = np.ones((2, (1 << 18) + 1), np.float32), np.ones(2, bool)
    for array, chosen in ((x, small.asarray(mask)), (small.asarray(x), mask)):
        with pytest.raises(gs.GpuscanError, match="entries of 1048580 bytes were passed"):
            gs.compact(array, chosen)


def test_without_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    x = np.arange(10)
    same_bits(gs.compact(x, x % 2 == 0), x[x % 2 == 0])


@pytest.mark.parametrize("where", ["adapter", "numpy"])
def test_dtypes_that_no_gpu_has(on: gs.Device, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Assert that they are refused with and without an adapter, also if there is nothing to move."""
    if where == "numpy":
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    for x in (np.array(["a"]), np.zeros(0, "S3")):
        with pytest.raises(gs.UnsupportedDtypeError, match="cannot be an element"):
            gs.compact(x, np.ones(len(x), bool))
    with pytest.raises(gs.UnsupportedDtypeError, match="cannot be an element"):
        gs.compact(np.ones(3, np.complex128), lambda v: v.real > 0)
    with pytest.raises(gs.UnsupportedDtypeError, match=r"x\.view\(np\.int64\)"):
        gs.compact(np.ones(3, "M8[D]"), lambda v: v > 0)


@pytest.mark.parametrize("where", ["adapter", "numpy"])
def test_entries_that_are_only_moved(on: gs.Device, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Assert that dates, durations and complex128 are picked as NumPy does, and moved along with keys."""
    if where == "numpy":
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    numbers = np.arange(-7, 5)
    days = numbers.astype("M8[D]")
    days[3] = "NaT"
    record = np.zeros(12, [("when", "M8[us]"), ("size", "f4")])
    record["when"], record["size"] = days, numbers
    mask, keys = numbers % 3 == 0, numbers[::-1].astype(np.int16)
    many = (
        *(days, days[::-1], days.astype(">M8[ns]"), numbers.astype("m8[s]").reshape(12, 1), numbers * (1 + 2j)),
        *((numbers * 1j).reshape(6, 2).repeat(2, 0).astype(">c16"), np.zeros((12, 0), np.complex128)),
    )
    for x in many:
        wanted = x[mask].astype(x.dtype.newbyteorder("="))
        found = gs.compact(x, mask)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
        out = np.zeros((9, *x.shape[1:]), wanted.dtype)
        assert gs.compact(x, mask, out=out).base is out
        np.testing.assert_array_equal(out[: len(wanted)], wanted)
        moved = gs.sort_by_key(keys, x)[1]
        np.testing.assert_array_equal(moved, x[::-1])
    np.testing.assert_array_equal(gs.compact(record, mask), record[mask])
    assert gs.compact(days[:0], mask[:0]).dtype == days.dtype
    with pytest.raises(TypeError, match="out of dtype int64"):
        gs.compact(days, mask, out=np.zeros(12, np.int64))


def test_errors(on: gs.Device) -> None:
    x = np.arange(10)
    with pytest.raises(ValueError, match=r"mask of shape \(9,\) was passed for an array of shape \(10,\)"):
        gs.compact(x, np.ones(9, bool))
    with pytest.raises(ValueError, match=r"mask of shape \(2, 5\).*shape \(10,\)"):
        gs.compact(x, np.ones((2, 5), bool))
    with pytest.raises(TypeError, match=r"mask of dtype int64.*mask != 0"):
        gs.compact(x, x)
    with pytest.raises(ValueError, match="no first axis"):
        gs.compact(np.float32(3), np.ones(1, bool))
    assert on.memory_usage().bytes_in_use == 0


# ----- Functions of an entry, and places of the caller's


def above_one(v: Any) -> Any:
    """Return True for numbers above one. Drivers differ about NaN and numbers that they may flush to zero."""
    number = (v.imag if v.dtype.name == "complex64" else v).astype(np.float32)
    return np.where(np.isfinite(number), number, np.float32(0)) > 1


@pytest.mark.parametrize("dtype", SCALARS)
def test_a_function_of_an_entry(on: gs.Device, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pick entries of every dtype by their value, in NumPy and on the device, with every bit kept."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    if dtype == "float64" and not on.capabilities.float64:
        with pytest.raises(gs.GpuscanError, match="64-bit"):
            gs.compact(np.ones(9), above_one)
        return
    for length in (33, 4099):
        x = entries(kind, length)
        with np.errstate(all="ignore"):
            wanted = x[np.asarray(above_one(x))]
        poison(on, x.nbytes)
        same_bits(gs.compact(x, above_one), wanted, length)
        same_bits(gs.compact(on.asarray(x), above_one), wanted, length)
        with monkeypatch.context() as patched:
            patched.setenv("GPUSCAN_ADAPTER", "numpy")
            same_bits(gs.compact(x, above_one), wanted, length)


def test_functions_of_bundles_and_vectors(on: gs.Device, small: gs.Device) -> None:
    rng = np.random.default_rng(5)
    x: dict[str, Array] = {
        "key": rng.integers(0, 9, 3001).astype(np.uint8),
        "place": rng.normal(size=(3001, 3)).astype(np.float32),
    }
    chosen = (x["key"] > 4) & (x["place"][:, 1] > 0)

    def picks(v: Any) -> Any:
        return (v["key"] > 4) & (v["place"][..., 1] > 0)

    for bundle in (x, {name: on.asarray(leaf) for name, leaf in x.items()}):
        got = gs.compact(bundle, picks)
        for name in x:
            same_bits(got[name], x[name][chosen], name)
    pairs = x["place"][:, :2].astype(np.float16)
    same_bits(gs.compact(pairs, lambda v: np.any(v > 1, axis=-1)), pairs[(pairs > 1).any(axis=-1)])
    record = np.zeros(50, [("a", np.int16), ("b", np.float32, 2)])
    record["a"] = np.arange(50)
    same_bits(gs.compact(record, lambda v: v["a"] % 3 == 1), record[record["a"] % 3 == 1])
    assert gs.compact(x["key"][:0], lambda v: v > 1).shape == (0,)
    same_bits(gs.compact(x["key"], lambda v: np.isfinite(v)), x["key"])
    long = entries("uint32", 600_001)
    same_bits(gs.compact(small.asarray(long), lambda v: v % 3 == 0), long[long % 3 == 0])


def test_into_a_place(on: gs.Device, small: gs.Device) -> None:
    """Write to arrays of the caller's that are as long as the result, as the input, or longer."""
    for dtype, trailing in (("uint8", ()), ("int32", (2,)), ("float32", (3,))):
        x = entries(dtype, (1001, *trailing))
        mask = np.random.default_rng(6).random(1001) < 0.4
        wanted = x[mask]
        for length in (len(wanted), 1001, 1100):
            full = np.zeros((length, *trailing), dtype)
            got = gs.compact(x, mask, out=full)
            assert (got is full) == (length == len(wanted))
            same_bits(got, wanted, (dtype, length))
            same_bits(full[len(wanted) :], np.zeros((length - len(wanted), *trailing), dtype))
            place = on.asarray(full * 0)
            picked = gs.compact(on.asarray(x), mask, out=place)
            assert (picked is place) == (length == len(wanted))
            same_bits(picked, wanted, (dtype, length))
            same_bits(place[: len(wanted)], wanted, (dtype, length))
        strided = on.asarray(np.zeros((1001, *trailing, 2), dtype))[..., 1]
        same_bits(gs.compact(on.asarray(x), mask, out=strided), wanted, dtype)
        same_bits(strided[: len(wanted)], wanted, dtype)
        into_itself = on.asarray(x)
        same_bits(gs.compact(into_itself, mask, out=into_itself), wanted)
    long = entries("uint16", 600_001)
    itself = small.asarray(long)
    same_bits(gs.compact(itself, small.asarray(long > 999), out=itself), long[long > 999])
    both = {"a": np.arange(6), "b": np.arange(6) * 1.5}
    out = {"a": np.empty(3, np.int64), "b": np.empty(9)}
    found = gs.compact(both, np.arange(6) % 2 == 0, out=out)
    same_bits(out["a"], np.array([0, 2, 4]))
    same_bits(found["b"], np.array([0, 3.0, 6.0]))


def test_what_is_no_mask_or_place(device: gs.Device) -> None:
    x, out = np.arange(6, dtype=np.int32), np.full(2, 9, np.int32)
    for array, place in ((x, out), (device.asarray(x), device.asarray(out))):
        for mask, options, error, text in (
            (lambda v: v + 1, {}, TypeError, "gives int32 for an entry, but it must give one bool"),
            (lambda v: (v > 1, v > 2), {}, TypeError, "gives bool, bool for an entry"),
            (lambda v: v > 1 and v < 5, {}, gs.OperatorError, "truth of a value"),
            (x > 2, {"out": place}, ValueError, r"out of shape \(2,\) was passed, but the mask picks 3 entries"),
            (lambda v: v > 2, {"out": place}, ValueError, "the mask picks 3 entries"),
            (x > 2, {"out": (place,)}, ValueError, "its structure is not the input's"),
            (x > 4, {"out": place.astype(np.float32)}, TypeError, "out of dtype float32"),
            (x > 4, {"out": place.reshape(2, 1)}, ValueError, r"for a result of shape \(2,\)"),
        ):
            with pytest.raises(error, match=text):
                gs.compact(array, mask, **options)
        same_bits(place, np.full(2, 9, np.int32))
    with pytest.raises(ValueError, match="entries without numbers"):
        gs.compact(np.zeros((3, 0)), lambda v: np.any(v, axis=-1))
    with pytest.raises(ValueError, match="of 3 and 4 entries"):
        gs.compact((x[:3], x[:4]), lambda v: v[0] > 0)
