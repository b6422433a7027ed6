"""`gpuscan.reduce` on every adapter against NumPy's reductions and a fold by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import wgpu
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.operators.named_operators import BUILTINS
from tests.harness.builds import count_shader_modules
from tests.harness.devices import count_plans_and_pipelines, small_binding
from tests.laws import dtype_of
from tests.oracle import AFFINE, LATER, MATRICES, assert_same, limit_examples, one_by_one, several, some, words
from tests.strategies import arrays, numbers


@limit_examples(40)
@given(data=st.data(), dtype=st.sampled_from(["uint8", "int16", "int32", "uint64", "float32"]))
def test_any_array(device: gs.Device, data: st.DataObject, dtype: str) -> None:
    """Reduce any shape, memory order and axis, all elements as well; from NumPy and from the device."""
    x = data.draw(arrays(dtype))
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    begin = data.draw(st.sampled_from([None, 3]))
    native = x.astype(x.dtype.newbyteorder("="))
    wanted = np.add.reduce(native, axis=axis, dtype=native.dtype, initial=0 if begin is None else begin)
    got = gs.reduce(x, axis=axis, initial=begin, device=device)
    assert_same(got, wanted)
    assert type(got) is type(wanted)
    on_device = gs.reduce(device.asarray(native), axis=axis, initial=begin)
    assert isinstance(on_device, gs.Array)
    assert_same(on_device, wanted)


@pytest.mark.parametrize(
    ("number", "shape"), list(enumerate([(20_011,), (300, 67), (3, 5000), (5, 300, 4), (70_000, 1), (1, 257, 33)]))
)
def test_operators_that_do_not_commute(device: gs.Device, number: int, shape: tuple[int, ...]) -> None:
    """Assert that a reduction is the last element of the scan, along rows and columns, for many operators."""
    for axis in {0, len(shape) - 1, len(shape) // 2}:
        if shape[axis] > 10_000:
            continue
        op, fields = ((MATRICES, 4), (AFFINE, 2), (LATER, 2))[(number + axis) % 3]
        x = words(np.random.default_rng(0), fields, shape)
        wanted = [np.take(field, -1, axis) for field in one_by_one(op.function, x, axis=axis)]
        got = gs.reduce(x, op, axis=axis, device=device)
        assert isinstance(got, tuple)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, (op, axis))
    x = words(np.random.default_rng(0), 2, shape)
    whole = gs.reduce(x, LATER, device=device)
    for result, field in zip(whole, one_by_one(LATER.function, tuple(f.reshape(-1) for f in x)), strict=True):
        assert result == field[-1]


def test_it_is_the_last_of_the_scan(device: gs.Device) -> None:
    """Assert equal bits, of floats too, of one row and of rows.

    Without ``reproducible=`` a GPU reduces floats in tiles of their own, and rows in any order. Software adapters take
    the tiles of the scan.
    """
    x = np.random.default_rng(1).normal(size=200_003).astype(np.float32)
    numbers = (x * 1e9).astype(np.int32)
    options: list[Any] = [{"reproducible": "everywhere"}]
    if device.capabilities.adapter_type == "CPU":
        options.append({})
    for terms, option in [(numbers, {}), *((x, option) for option in options)]:
        scanned = gs.scan(terms, device=device, **option)
        assert gs.reduce(terms, device=device, **option) == scanned[-1], option
        rows = terms[:200_000].reshape(100, 2000)
        wanted = gs.scan(rows, axis=1, device=device, **option)[:, -1]
        assert_same(gs.reduce(rows, axis=1, device=device, **option), wanted, option)


@pytest.fixture
def small(adapter: wgpu.GPUAdapter) -> gs.Device:
    """Return a device that binds 1 MiB at most."""
    return gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 20})


def test_arrays_larger_than_a_binding(small: gs.Device) -> None:
    x = words(np.random.default_rng(2), 2, 600_001)
    wanted = [field[-1] for field in gs.scan(x, AFFINE, device="numpy")]
    assert [int(v) for v in gs.reduce(x, AFFINE, device=small)] == [int(v) for v in wanted]
    on_device = gs.reduce(tuple(small.asarray(field) for field in x), AFFINE)
    assert [int(v.numpy()) for v in on_device] == [int(v) for v in wanted]
    table = numbers(np.random.default_rng(3), "uint32", (10_000, 60))
    for axis in (0, 1):
        assert_same(gs.reduce(table, axis=axis, device=small), np.add.reduce(table, axis, np.uint32))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_are_rounded_once(adapter: wgpu.GPUAdapter, dtype: str) -> None:
    """Assert that they are not rounded between two parts."""
    limit = small_binding(adapter)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    x = np.full(3 * limit // 2, 4, dtype_of(dtype))  # half of them add up to more than float16 holds
    x[len(x) // 2 :] = -4
    x[-1] = -3
    for array in (x, small.asarray(x)):
        assert np.asarray(gs.reduce(array, device=small if array is x else None)) == 1
    ones = np.ones((15 << 12, 12), dtype_of(dtype))  # both types hold 61,440
    assert_same(gs.reduce(ones, axis=0, device=small), np.full(12, 15 << 12, dtype_of(dtype)))
    assert_same(gs.reduce(ones.T, axis=1, device=small), np.full(12, 15 << 12, dtype_of(dtype)))


@pytest.mark.parametrize("name", ["minimum", "maximum", "multiply", "bitwise_xor", "logical_or", "logaddexp"])
def test_built_in_operators(device: gs.Device, name: str) -> None:
    rng = np.random.default_rng(4)
    shape = several(device, 7), 101
    x: Any = rng.integers(0, 100, shape).astype(np.float32 if name == "logaddexp" else np.int32)
    if name == "logical_or":
        x = rng.random(shape) < 0.01
    ufunc: np.ufunc = getattr(np, name)
    wanted = ufunc.reduce(x, axis=1, dtype=x.dtype)
    np.testing.assert_allclose(gs.reduce(x, name, axis=1, device=device), wanted, rtol=1e-5)


def test_nothing_to_reduce(device: gs.Device) -> None:
    """Assert that an empty row gives the identity or `initial`, else an error that says what to pass."""
    empty = np.zeros((3, 0), np.int32)
    for where in (device, "numpy"):
        assert_same(gs.reduce(empty, axis=1, device=where), np.zeros(3, np.int32))
        assert_same(gs.reduce(empty, "minimum", axis=1, device=where), np.full(3, 2**31 - 1, np.int32))
        assert_same(gs.reduce(empty, axis=0, device=where), np.zeros(0, np.int32))
        assert_same(gs.reduce(empty, axis=1, initial=[1, 2, 3], device=where), np.array([1, 2, 3], np.int32))
        with pytest.raises(ValueError, match=r"no elements.*'later' has no identity\. Pass initial="):
            gs.reduce((empty, empty), LATER, axis=1, device=where)


def test_dtype_and_errors(device: gs.Device) -> None:
    x = np.full(1000, 200, np.uint8)
    assert gs.reduce(x, device=device) == np.uint8(200_000 % 256)
    got = gs.reduce(x, dtype=np.uint32, device=device)
    assert got == 200_000
    assert got.dtype == np.uint32
    with pytest.raises(ValueError, match="axis=2 was passed"):
        gs.reduce(x.reshape(10, 100), axis=2, device=device)
    with pytest.raises(TypeError, match="bool"):
        gs.reduce(np.ones(3, bool), device=device)


@pytest.mark.parametrize("where", ["the adapter", "numpy"])
@pytest.mark.parametrize("initial", [None, np.float32(-0.0)])
def test_sums_of_negative_zeros(device: gs.Device, where: str, initial: np.float32 | None) -> None:
    """Keep the sign, with an initial value and without."""
    x = np.full((3, 2), -0.0, np.float32)
    for axis, shape in ((None, ()), (0, (2,)), (1, (3,))):
        got = gs.reduce(x, axis=axis, initial=initial, device="numpy" if where == "numpy" else device)
        assert_same(np.asarray(got), np.full(shape, -0.0, np.float32))


@pytest.mark.parametrize("name", BUILTINS)
def test_numpy_reduces_with_every_operator(name: str) -> None:
    kinds = BUILTINS[name].kinds
    assert kinds is not None
    dtype: Any = np.float32 if "float" in kinds else np.int32 if "signed" in kinds else np.bool_
    x = np.ones((3, 4, 4) if name == "matmul" else 3, dtype)
    last = gs.scan(x, name, axis=0, device="numpy")[-1]
    assert_same(np.asarray(gs.reduce(x, name, axis=0, device="numpy")), np.asarray(last))


# ----- Several axes, maps, `keepdims` and `out`


@limit_examples(40)
@given(data=st.data())
def test_several_axes(device: gs.Device, data: st.DataObject) -> None:
    """Reduce any set of axes, in whatever order it is named, into an array of the caller's too."""
    x = data.draw(arrays("int32")).astype(np.int32)
    named = data.draw(st.lists(st.sampled_from(range(x.ndim)), unique=True))
    axes = tuple(axis - data.draw(st.sampled_from([0, x.ndim])) for axis in named)
    keep = data.draw(st.booleans())
    wanted = np.sum(x, axis=axes, dtype=x.dtype, keepdims=keep)
    for given_x, where in ((x, device), (x, "numpy"), (device.asarray(x), None)):
        assert_same(gs.reduce(given_x, axis=axes, keepdims=keep, device=where), wanted, (axes, where))
        full = np.full(wanted.shape, 77, x.dtype)
        out = full if where is not None else device.asarray(full.T).T
        assert gs.reduce(given_x, axis=axes, keepdims=keep, out=out, device=where) is out
        assert_same(out, wanted, (axes, where))


def test_several_axes_are_combined_in_c_order(device: gs.Device) -> None:
    x = words(np.random.default_rng(5), 2, (6, 60, 5, 7))
    for axes in some(device, ((3, 0, 1), (2, 1), ())):
        kept = tuple(i for i in range(4) if i not in axes)
        shape = [x[0].shape[i] for i in kept]
        rows = tuple(np.transpose(f, (*kept, *sorted(axes))).reshape(*shape, -1) for f in x)
        initial = np.uint32(3), np.arange(int(np.prod(shape)), dtype=np.uint32).reshape(shape)
        wanted = [f[..., -1] for f in one_by_one(AFFINE.function, rows, axis=len(shape), initial=initial)]
        for bundle, where in ((x, device), (tuple(map(device.asarray, x)), None), (x, "numpy")):
            got = gs.reduce(bundle, AFFINE, axis=axes, initial=initial, device=where)
            for result, field in zip(got, wanted, strict=True):
                assert_same(np.asarray(result), field, (axes, where))


def test_maps_into_any_place(device: gs.Device) -> None:
    """Assert that `before` and `after` are fused, may change the type and the fields, and see every element."""
    x = np.random.default_rng(7).integers(-20, 20, (300, 67)).astype(np.int8)

    def square(v: Any) -> Any:
        return v.astype(np.int32) * v.astype(np.int32)

    def moments(v: Any) -> Any:
        return {"count": np.ones_like(v, np.int32), "sum": v.astype(np.int32)}

    def total(l: Any, r: Any) -> Any:
        return {name: l[name] + r[name] for name in ("count", "sum")}

    def halves(v: Any) -> Any:
        return v["sum"].astype(np.float32) / 2, v["count"]

    wide = x.astype(np.int32)
    for axis in some(device, (0, None, 1)):
        squares = np.add.reduce(wide * wide, axis=axis, dtype=np.int32)
        sums = np.add.reduce(wide, axis=axis, dtype=np.int32)
        count = np.full(sums.shape, x.size // sums.size, np.int32)
        for given_x, where in ((x, device), (device.asarray(x), None), (x, "numpy")):
            assert_same(gs.reduce(given_x, axis=axis, before=square, device=where), squares)
            half, found = gs.reduce(given_x, total, axis=axis, before=moments, after=halves, device=where)
            assert_same(np.asarray(half), (sums / 2).astype(np.float32))
            assert_same(np.asarray(found), count)
    for where in (device, "numpy"):
        nothing = gs.reduce(x[:0], axis=0, before=square, after=lambda v: v + 5, device=where)
        assert_same(nothing, np.full(67, 5, np.int32))


def test_what_out_is_refused_or_kept(device: gs.Device) -> None:
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    out = np.full(4, 9, np.int32)
    for wrong, error, text in (
        (np.zeros(3, np.int32), ValueError, r"out of shape \(3,\) was passed for a result of shape \(4,\)"),
        (np.zeros(4, np.float32), TypeError, "out of dtype float32"),
        (device.asarray(out), TypeError, "pass a NumPy array"),
    ):
        with pytest.raises(error, match=text):
            gs.reduce(x, axis=0, out=wrong, device=device)
    with pytest.raises(TypeError, match=r"pass a gpuscan\.Array"):
        gs.reduce(device.asarray(x), axis=0, out=out)
    bad: Any
    for bad, error, text in (
        ((0, 0), ValueError, "names an axis twice"),
        ((0, -2), ValueError, "names an axis twice"),
        ((0, 2), ValueError, "axis=2 was passed"),
        ([0], TypeError, "an axis is an integer"),
        ((True,), TypeError, "an axis is an integer"),
    ):
        with pytest.raises(error, match=text):
            gs.reduce(x, axis=bad, out=out, device=device)
    bad = "yes"
    with pytest.raises(TypeError, match="pass keepdims=True"):
        gs.reduce(x, keepdims=bad, device=device)
    assert_same(out, np.full(4, 9, np.int32))
    into_itself = device.asarray(x)
    gs.reduce(into_itself, axis=0, out=into_itself[1])
    assert_same(into_itself, np.array([x[0], x.sum(0), x[2]], np.int32))
    record = np.zeros(5, [("value", np.uint32), ("valid", np.uint32)])
    record["value"] = np.arange(5)
    place = np.zeros((), record.dtype)
    gs.reduce(record, lambda l, r: {"value": l["value"] + r["value"], "valid": r["valid"]}, out=place, device=device)
    assert place["value"] == 10


def test_stages_that_scans_and_reductions_share_are_compiled_once(
    own_device: gs.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that kernels of the same text are compiled once."""
    texts = count_shader_modules(own_device, monkeypatch)
    monkeypatch.setenv("GPUSCAN_STRATEGY", "three_dispatch")
    op, x = gs.operator(lambda l, r: l * r + 3 * (l + r) + 6), np.arange(70_000, dtype=np.uint32)
    _, kernels = count_plans_and_pipelines(own_device)
    total = gs.reduce(x, op, device=own_device)
    assert_same(gs.scan(x, op, device=own_device)[-1:], np.array([total]))
    assert len(texts) == len(set(texts)) < count_plans_and_pipelines(own_device)[1] - kernels


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16", "int32"])
@pytest.mark.parametrize("inner", [2, 12, 13, 96, 1024])
def test_results_of_neighbouring_columns(device: gs.Device, dtype: str, inner: int) -> None:
    """Assert that results that are stored in whole words are right, and that the bytes around them stay."""
    for outer, rows in ((1, 2), (3, 5), (2, 40)):
        x = np.random.default_rng(rows).integers(0, 3, (outer, rows, inner)).astype(dtype)
        wanted = np.add.reduce(x, 1, dtype=x.dtype)
        assert_same(gs.reduce(device.asarray(x), axis=1), wanted)
        for begin in (0, 1, 4, 16):
            around = np.full(begin + wanted.size + 7, 77, dtype)
            on_device = device.asarray(around)
            out = on_device[begin : begin + wanted.size].reshape(wanted.shape)
            gs.reduce(device.asarray(x), axis=1, out=out)
            around[begin : begin + wanted.size] = wanted.reshape(-1)
            assert_same(on_device, around, (outer, rows, begin))
