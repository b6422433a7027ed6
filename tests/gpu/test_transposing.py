"""Columns of 8- and 16-bit numbers that share words: arrays on the device are scanned there, whatever their width."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan import deferred
from gpuscan.device import Device
from tests.oracle import AFFINE, assert_same, one_by_one, strategies_on, ufunc_scan

DTYPES = ["uint8", "int16", "bool", "float16"]


@pytest.fixture(autouse=True)
def no_detour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing goes by way of the CPU."""
    monkeypatch.setattr(deferred, "problem_on_cpu", None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_strategy(device: Device, dtype: str) -> None:
    op = "logical_xor" if dtype == "bool" else "add"
    for shape, axis in [((40, 3), 0), ((5, 300, 7), 1), ((3, 4, 5, 1, 3), 1), ((1, 9), 0), ((1000, 1, 5), 0)]:
        x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
        for strategy in strategies_on(device):
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
