"""Labels and keys of all kinds, and missing labels: as pandas' groupby, from NumPy and on devices."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpuscan as gs
from gpuscan.problem.labels import number_labels
from tests.oracle import assert_same

KINDS = ("objects", "series", "list", "text", "categorical", "category series", "dates", "floats", "nullable", "tuples")


def labels_of_kind(kind: str, codes: np.ndarray[Any, Any]) -> Any:
    """Return labels of this kind, one for each code. A label with code -1 is missing."""
    names = np.array([f"shop {code * 7 % 5}-{code}" for code in range(codes.max() + 1)])
    named: Any = np.where(codes < 0, None, names[codes])
    numbers = pd.Series(np.where(codes < 0, np.nan, codes * 1.5))
    if kind == "tuples":
        made = np.empty(len(codes), object)
        made[:] = [None if code < 0 else ("shop", int(code)) for code in codes]
        return made
    return {
        "objects": named,
        "series": pd.Series(named),
        "list": named.tolist(),
        "text": names[codes],
        "categorical": pd.Categorical(named, categories=names),
        "category series": pd.Series(named).astype("category"),
        "dates": np.datetime64("2026-01-01")
        + np.where(codes < 0, np.timedelta64("NaT", "D"), codes.astype("timedelta64[D]")),
        "floats": numbers.to_numpy(),
        "nullable": pd.Series(np.where(codes < 0, 0, codes), dtype="Int64").mask(codes < 0),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_of_every_kind(device: gs.Device, kind: str) -> None:
    """Compare sums by group with pandas', in scans and reductions, where elements are in NumPy and on a device."""
    rng = np.random.default_rng(0)
    for length, reach in ((1, 1), (700, 5), (3000, 900)):
        codes = rng.integers(0 if kind == "text" else -1, reach, length)
        labels = labels_of_kind(kind, np.maximum(codes, 0) if length == 1 else codes)
        codes = np.maximum(codes, 0) if length == 1 else codes
        x = rng.integers(0, 50, length).astype(np.float32)
        groups = pd.Series(x).groupby(np.where(codes < 0, np.nan, codes))
        for given in (x, device.asarray(x)):
            assert_same(gs.scan(given, groups=labels, device=device), groups.cumsum().to_numpy())
        assert_same(gs.scan(x, groups=labels, device="numpy"), groups.cumsum().to_numpy())
        if kind in ("categorical", "nullable"):
            count = reach if kind == "categorical" else codes.max() + 1
            sums = groups.sum().reindex(range(count), fill_value=0)
        elif kind == "category series":
            sums = pd.Series(x).groupby(labels, observed=False).sum()
        else:
            sums = groups.sum().reindex(pd.unique(codes[codes >= 0]))
        for where in (device, "numpy"):
            assert_same(gs.reduce(x, groups=labels, device=where), sums.to_numpy())
        assert_same(gs.reduce(device.asarray(x), groups=labels), sums.to_numpy())


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("reach", [3, 100])
def test_missing_labels(device: gs.Device, dtype: str, reach: int) -> None:
    """Assert the one rule for -1, from NumPy, on a device, and in plans: NaN in scans, and ignored in reductions."""
    rng = np.random.default_rng(reach)
    for length in (20, 5000):
        labels = rng.integers(-1, reach, length).astype(dtype)
        labels[:2] = -1, reach - 1
        x = rng.integers(0, 50, length).astype(np.float32)
        groups = pd.Series(x).groupby(np.where(labels < 0, np.nan, labels))
        scanned = groups.cumsum().to_numpy()
        sums = groups.sum().reindex(range(reach), fill_value=0).to_numpy()
        there, labels_there = device.asarray(x), device.asarray(labels)
        out = device.empty(2 * length, np.float32)[::2]
        assert gs.scan(there, groups=labels_there, out=out) is out
        plans = [device.plan(length, np.float32, groups=each) for each in (labels, labels_there)]
        for found in (
            *(gs.scan(x, groups=labels, device=where) for where in (device, "numpy")),
            gs.scan(x, groups=labels_there),
            gs.scan(there, groups=labels),
            gs.scan(there, groups=labels_there),
            out,
            *(plan(array) for plan in plans for array in (x, there)),
        ):
            assert_same(found, scanned)
        for given, groups_given in ((x, labels), (there, labels), (there, labels_there), (x, labels_there)):
            assert_same(gs.reduce(given, groups=groups_given), sums)
            wanted = np.array([*sums, 0, 0], np.float32)
            assert_same(gs.reduce(given, groups=groups_given, num_groups=reach + 2), wanted)
            target = np.empty(reach, np.float32) if given is x else device.empty(reach, np.float32)
            assert gs.reduce(given, groups=groups_given, out=target) is target
            assert_same(target, sums)
        # An operator without an identity: no group may be empty, but that of missing labels may.
        first = np.array([x[labels == label][0] if (labels == label).any() else 0 for label in range(reach)])
        if length > 20:
            for given, groups_given, where in ((x, labels, "numpy"), (x, labels, device), (there, labels_there, None)):
                assert_same(gs.reduce(given, lambda l, r: l, groups=groups_given, device=where), first)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
@pytest.mark.parametrize("length", [300, 5000])
def test_missing_labels_in_repeated_calls(device: gs.Device, dtype: str, length: int) -> None:
    """Report missing labels that results cannot show, also where calls of the kind had none."""
    x = device.asarray(np.arange(length, dtype=np.int32))
    labels = (np.arange(length) % 7).astype(dtype)
    wrong = labels.copy()
    wrong[5] = -1
    for given in (labels, labels, wrong, labels, wrong):
        if given is labels:
            sums = pd.Series(x.numpy()).groupby(given).cumsum().to_numpy()
            assert_same(gs.scan(x, groups=device.asarray(given)), sums)
        else:
            with pytest.raises(ValueError, match="missing labels"):
                gs.scan(x, groups=device.asarray(given)).numpy()


def test_missing_labels_in_order(device: gs.Device) -> None:
    """Assert the rule for labels that need no sort, for reversed and exclusive scans, and for all labels missing."""
    labels = np.repeat([-1, 0, 1, 4], [3, 4, 5, 2])
    x = np.arange(14, dtype=np.float32)
    for options in ({}, {"reverse": True}, {"exclusive": True, "initial": 2.0}):
        kept = gs.scan(x[3:], groups=labels[3:], device="numpy", **options)
        for where in (device, "numpy"):
            assert_same(gs.scan(x, groups=labels, device=where, **options), np.float32([np.nan] * 3 + kept.tolist()))
    plan = device.plan(14, np.float32, groups=labels)
    assert_same(plan(x), gs.scan(x, groups=labels, device="numpy"))
    with pytest.raises(gs.GpuscanError, match="some are missing"):
        plan.record(device.wgpu_device.create_command_encoder(), device.asarray(x), device.empty(14, np.float32))
    for given, none in ((x, np.full(14, -1)), (device.asarray(x), device.asarray(np.full(14, -1)))):
        assert np.isnan(np.asarray(gs.scan(given, groups=none))).all()
        assert gs.reduce(given, groups=none).shape == (0,)
        assert_same(gs.reduce(given, groups=none, num_groups=2), np.zeros(2, np.float32))


def test_missing_labels_of_rows(device: gs.Device) -> None:
    """Assert the rule for labels by element and along inner axes, and for elements of several numbers."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 9, (6, 40, 3)).astype(np.float32)
    full = rng.integers(-1, 3, (6, 40, 3))
    full[:, :4] = np.array([0, 1, 2, 1])[:, None]
    full[2] = np.abs(full[2])
    for labels, axis in ((full, 1), (np.array([1, -1, 0, 1, -1, 2]), 0)):
        expected = gs.scan(x, axis=axis, groups=labels, device="numpy")
        wide = labels if labels.ndim == 3 else np.broadcast_to(labels[:, None, None], x.shape)
        assert np.array_equal(np.isnan(expected), wide == -1)
        there, labels_there = device.asarray(x), device.asarray(labels)
        assert_same(gs.scan(x, axis=axis, groups=labels, device=device), expected)
        assert_same(gs.scan(there, axis=axis, groups=labels_there), expected)
        for op in ("add", lambda l, r: l):
            sums = gs.reduce(x, op, axis=axis, groups=labels, device="numpy")
            assert_same(gs.reduce(x, op, axis=axis, groups=labels, device=device), sums)
            assert_same(gs.reduce(there, op, axis=axis, groups=labels_there), sums)
    vectors = gs.operator(lambda l, r: l + r, element_axes=1)
    rows = np.array([0, -1, 0, -1, 1, 0])
    expected = gs.scan(x[..., 0].copy(), vectors, groups=rows, device="numpy")
    assert_same(gs.scan(device.asarray(x[..., 0]), vectors, groups=device.asarray(rows)), expected)
    assert np.isnan(expected[rows < 0]).all()


def test_missing_labels_of_integers(device: gs.Device) -> None:
    """Assert that scans raise if their dtype has no NaN: for labels on a device, at the next read at the latest."""
    x = np.arange(6, dtype=np.int32)
    labels = np.array([0, 1, -1, 0, 1, 1])
    message = "groups with missing labels .* of dtype int32 cannot be NaN"
    for groups in (labels, labels.astype(np.int8), ["a", None, "a", "b", "b", "b"]):
        for where in (device, "numpy"):
            with pytest.raises(ValueError, match=message):
                gs.scan(x, groups=groups, device=where)
    for dtype in ("int8", "int32", "int64"):
        with pytest.raises(ValueError, match=message):
            gs.scan(device.asarray(x), groups=device.asarray(labels.astype(dtype))).numpy()
        found = gs.scan(device.asarray(x), groups=device.asarray(abs(labels).astype(dtype)))
        assert_same(found, np.array([0, 1, 3, 3, 7, 12], np.int32))
    for given in (labels, device.asarray(labels)):
        with pytest.raises(ValueError, match=message):
            device.plan(6, np.int32, groups=given)
        assert_same(
            device.plan(6, np.int32, groups=given, after=lambda v: v.astype(np.float32))(x)[2], np.float32(np.nan)
        )
    wanted = np.array([0, 1, np.nan, 3, 5, 10], np.float32)
    assert_same(gs.scan(x, groups=labels, dtype=np.float32, device=device), wanted)


def test_keys_of_every_kind(device: gs.Device) -> None:
    """Assert that scans restart where strings, objects, dates and categoricals change."""
    x = np.arange(7, dtype=np.float32)
    text = ["a", "a", "b", "b", "b", "a", "c"]
    expected = gs.scan(x, keys=[0, 0, 1, 1, 1, 2, 3], device="numpy")
    for keys in (
        text,
        np.array(text),
        np.array(text, object),
        pd.Series(text),
        pd.Categorical(text),
        pd.Series(text, dtype="category"),
        pd.Series([pd.NA if key == "a" else key for key in text], dtype="string"),
        np.array([np.datetime64("2026-01-01") + np.timedelta64(ord(key), "D") for key in text]),
        [None if key == "b" else key for key in text],
    ):
        for where in (device, "numpy"):
            assert_same(gs.scan(x, keys=keys, device=where), expected)
        assert_same(gs.scan(device.asarray(x), keys=keys), expected)


@pytest.mark.parametrize("has_pandas", [True, False])
def test_numbers_of_labels(monkeypatch: pytest.MonkeyPatch, has_pandas: bool) -> None:
    """Assert that labels are numbered in the order of their first appearance, with pandas and without it."""
    if not has_pandas:
        monkeypatch.setitem(sys.modules, "pandas", None)
    nat = np.datetime64("NaT", "s")
    for values, expected in (
        (np.array(["b", "a", "b", "c"]), [0, 1, 0, 2]),
        (np.array([b"b", b"a", b"b"]), [0, 1, 0]),
        (np.array(["nan", None, np.nan, 3, "nan", (1, 2)], object), [0, -1, -1, 1, 0, 2]),
        (np.array([2.5, np.nan, -1, 2.5], np.float16), [0, -1, 1, 0]),
        (np.array([2.5, np.nan, 0.0, -0.0]), [0, -1, 1, 1]),
        (np.array([1j, 2, 1j], np.complex64), [0, 1, 0]),
        (np.array([np.datetime64(5, "s"), nat, np.datetime64(1, "s")]), [0, -1, 1]),
        (np.array([(2, "x"), (1, "y"), (2, "x")], [("a", "i4"), ("b", "U1")]), [0, 1, 0]),
        (np.array([["b", "a"], ["a", "c"]]), [[0, 1], [1, 2]]),
        (np.array([], object), []),
    ):
        found = number_labels(values)
        assert found.dtype == np.int64
        assert found.tolist() == expected


def test_too_few_groups(device: gs.Device) -> None:
    """Name the caller's label that has no place in the result."""
    text = ["tea", "milk", None, "salt"]
    labels: Any
    for labels, shown in (
        (text, "'salt', which has the number 2,"),
        (np.array([["tea", "milk"], ["tea", "salt"]]), "'salt', which has the number 2,"),
        (pd.Categorical(text, ["milk", "tea", "salt"]), "'salt', which has the number 2,"),
        (np.array([4, 5, 5, 6], np.float32), r"6\.0, which has the number 2,"),
        (pd.Series([0, None, 2, 1], dtype="Int64"), "2"),
        (np.array([0, 2, 2, 1], np.uint8), "2"),
    ):
        x = np.ones(np.shape(labels), np.float32)
        for given, where in ((x, "numpy"), (x, device), (device.asarray(x), device)):
            with pytest.raises(ValueError, match=f"the label {shown} were passed with num_groups=2.*num_groups=3 or"):
                gs.reduce(given, axis=tuple(range(x.ndim)), groups=labels, num_groups=2, device=where)
