"""Transpositions on the device: of columns that share words, and of the CPU's arrays in another memory order."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.engine import device_arrays as deferred
from gpuscan.engine import transpose as transposing
from tests.oracle import AFFINE, assert_same, one_by_one, strategies_in_turn, ufunc_scan

DTYPES = ["uint8", "int16", "bool", "float16"]


@pytest.fixture(autouse=True)
def no_detour(monkeypatch: pytest.MonkeyPatch) -> None:
    """No array of a device goes by way of the CPU."""
    monkeypatch.setattr(deferred, "problem_on_cpu", None)


@pytest.mark.parametrize(("number", "dtype"), list(enumerate(DTYPES)))
def test_every_strategy(device: Device, number: int, dtype: str) -> None:
    op = "logical_xor" if dtype == "bool" else "add"
    shapes = [((40, 3), 0), ((5, 300, 7), 1), ((3, 4, 5, 1, 3), 1), ((1, 9), 0), ((1000, 1, 5), 0)]
    for turn, (shape, axis) in enumerate(shapes, number):
        x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        for strategy in strategies_in_turn(device, turn):
            got = gs.scan(device.asarray(x), op, axis=axis, strategy=strategy)
            assert_same(got.numpy(), ufunc_scan(op, x, axis=axis), (shape, strategy))


@settings(max_examples=25)
@given(
    shape=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    axis=st.integers(0, 2),
    reverse=st.booleans(),
    exclusive=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape_and_options(
    device: Device, shape: list[int], axis: int, reverse: bool, exclusive: bool, seed: int
) -> None:
    """Against the definition; a row's own `initial` follows it through the transposition."""
    axis = min(axis, len(shape) - 2)
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, shape, dtype=np.uint8)
    initial = rng.integers(0, 256, [n for i, n in enumerate(shape) if i != axis], dtype=np.uint8)
    asked: dict[str, Any] = {"axis": axis, "reverse": reverse, "exclusive": exclusive}
    (wanted,) = one_by_one(lambda l, r: (l[0] + r[0],), (x,), initial=(initial,), **asked)
    assert_same(gs.scan(device.asarray(x), initial=initial, **asked).numpy(), wanted)


def test_bundles_of_several_widths(device: Device) -> None:
    rng = np.random.default_rng(1)
    x = (rng.integers(0, 2**32, (50, 5), dtype=np.uint32), rng.integers(0, 2**16, (50, 5), dtype=np.uint16))
    wanted = one_by_one(AFFINE.function, (x[0], x[1].astype(np.uint32)), axis=0)  # type: ignore[arg-type]
    got = gs.scan(tuple(map(device.asarray, x)), AFFINE, axis=0, before=lambda v: (v[0], v[1].astype(np.uint32)))
    for field, exact in zip(got, wanted, strict=True):
        assert_same(field.numpy(), exact)


def test_views_and_in_place(device: Device) -> None:
    """Results that end within a word keep what lies beside them."""
    x = np.random.default_rng(2).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    whole = device.asarray(x)
    out = whole[3:5]
    assert gs.scan(whole[3:5], axis=0, out=out) is out
    wanted = x.copy()
    wanted[3:5] = np.cumsum(x[3:5], axis=0, dtype=np.uint8)
    assert_same(whole.numpy(), wanted)


def as_it_is(array: np.ndarray[Any, Any], dtype: Any = None) -> np.ndarray[Any, Any]:
    """What must not be copied."""
    assert array.flags.c_contiguous
    assert dtype in (None, array.dtype)
    return array


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "float16", "uint32", "int64"])
def test_arrays_of_the_cpu_in_any_memory_order(
    device: Device, monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...], dtype: str
) -> None:
    """Uploaded as they lie and turned there, as on a GPU of its own memory; no copy in C order is made before."""
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, adapter_type="DiscreteGPU"))
    monkeypatch.setattr(transposing, "LEAST_BYTES", 1)
    x = np.random.default_rng(3).integers(0, 9, (4, 6, 20)).astype(dtype).transpose(order)
    assert transposing.turns_on(device, x) == (order != (0, 1, 2))
    assert_same(transposing.place(device, x).numpy(), np.ascontiguousarray(x))
    with monkeypatch.context() as patched:
        patched.setattr(np, "ascontiguousarray", as_it_is)
        for axis in range(3):
            if x.shape[axis + 1 :] and np.prod(x.shape[axis + 1 :]) * x.itemsize % 4:
                continue  # columns that share words
            got = gs.scan(x, axis=axis, device=device, strategy="three_dispatch")
            assert_same(got, ufunc_scan("add", np.array(x, order="C"), axis=axis), axis)


def test_what_is_not_turned(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays, those with gaps or read backwards, and all of adapters that share the CPU's memory."""
    x = np.zeros((1 << 10, 1 << 10), np.float32)
    for kind in ("CPU", "IntegratedGPU"):
        monkeypatch.setattr(device, "capabilities", replace(device.capabilities, adapter_type=kind))
        assert not transposing.turns_on(device, x.T)
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, adapter_type="DiscreteGPU"))
    assert transposing.turns_on(device, x.T)
    for other in (x, x[:5].T, x.T[::2], x.T[::-1], np.broadcast_to(x[0], x.shape).T):
        assert not transposing.turns_on(device, other)
