"""Scans of groups if only the GPU knows how many labels there are: by a table or by a sort, and nothing waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.engine import group_scans
from gpuscan.planning import key_heuristics
from gpuscan.problem.problem import make_problem
from tests.harness.builds import assert_no_waits, wait_for_reports
from tests.harness.devices import as_gpu, device_as_if
from tests.oracle import AFFINE, Array, one_of, words

# A sum of two fields, with an identity.
PAIRS = gs.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), identity=(0, 0), name="pairs")


@pytest.fixture(params=["sorted tiles", "buckets", "invocations"])
def counting(device: gs.Device, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> gs.Device:
    """Return a device that lets the GPU count the labels of short arrays, by each way of combining sections."""
    few = {
        "min_counted_elements": 1,
        "uncounted_sections": 4,
        "min_sections": 2,
        "min_section_length": 16,
        "tile_items": 2,
        "least_sections": 3,
    }
    few["max_tabled_labels"] = 1 if request.param == "buckets" else 1 << 20
    for name in ("GROUPS_GPU", "GROUPS_CPU"):
        monkeypatch.setattr(key_heuristics, name, replace(getattr(key_heuristics, name), **few))
    if request.param == "invocations":
        return device_as_if(device)
    if not device.capabilities.subgroup_size:
        pytest.skip("workgroups sort tiles by subgroups, which the adapter lacks")
    return as_gpu(device)


def assert_scanned(device: gs.Device, x: Any, labels: Array, op: Any = "add", **options: Any) -> None:
    """Assert that a scan on the device gives NumPy's results."""
    there = tuple(map(device.asarray, x)) if isinstance(x, tuple) else device.asarray(x)
    got = gs.scan(there, op, groups=device.asarray(labels), **options)
    expected = gs.scan(x, op, groups=labels, device="numpy", **options)
    if not isinstance(x, tuple):
        got, expected = (got,), (expected,)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(one), other)


def is_uncounted(device: gs.Device, x: Array, labels: Array, op: Any = "add") -> bool:
    """Return True if the GPU decides how the groups are scanned."""
    problem = make_problem(device.asarray(x), op)
    return group_scans._plan_labels(device._executor, problem, device.asarray(labels)) is not None


def choose(device: gs.Device, x: Array, labels: Array) -> str:
    """Return what the GPU chose: a table of all labels, a table by buckets, or a sort."""
    a, g = device.asarray(x), device.asarray(labels)
    chosen = []
    found = group_scans._run_stages

    def run_stages(*given: Any) -> Any:
        chosen.append(found(*given))
        return chosen[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(group_scans, "_run_stages", run_stages)
        device._context.programs.clear()
        gs.scan(a, groups=g)
    is_scanned, is_whole = chosen[0]._read()[[192, 256]]
    return "sort" if not is_scanned else "table" if is_whole else "buckets"


@pytest.mark.parametrize("length", [1, 511, 512, 513, 1300], ids=str)
def test_lengths(counting: gs.Device, length: int) -> None:
    """Assert results for lengths around tiles and sections, for labels below and beyond each digit."""
    rng = np.random.default_rng(length)
    x = rng.integers(-99, 99, length).astype(np.int32)
    for reach in (1, 2, 33, 300, 70_000):
        assert_scanned(counting, x, rng.integers(0, reach, length).astype(np.int32))
    # Labels of 64 bits take other shaders. Their length is the one that each adapter has if adapters share cases.
    assert_scanned(counting, x, np.full(length, reach, np.int64 if length == 1300 else np.int32))


@pytest.mark.parametrize(
    ("dtype", "op", "options"),
    [
        (np.int8, "maximum", {"exclusive": True}),
        (np.uint16, "add", {"initial": 3}),
        (np.float32, "add", {"reverse": True}),
        (np.int64, "minimum", {}),
        (np.float64, "add", {"exclusive": True}),
        (np.bool_, "logical_and", {}),
    ],
    ids=str,
)
def test_elements(counting: gs.Device, dtype: Any, op: str, options: dict[str, Any]) -> None:
    """Assert results of every width, with options."""
    if dtype == np.float64 and not counting.capabilities.float64:
        return
    rng = np.random.default_rng(2)
    x = rng.integers(0, 9, 1100).astype(dtype)
    labels = rng.integers(0, 40, 1100).astype(np.uint32)
    assert is_uncounted(counting, x, labels, op)
    assert_scanned(counting, x, labels, op, **options)


def test_choices(counting: gs.Device) -> None:
    """Assert that few labels take a table, and many or negative ones a sort."""
    rng = np.random.default_rng(3)
    x = rng.integers(-9, 9, 1100).astype(np.int32)
    few = rng.integers(0, 20, 1100).astype(np.int64)
    few[0] = 19
    partitions = key_heuristics.GROUPS_GPU.max_tabled_labels == 1
    assert choose(counting, x, few) == ("buckets" if partitions else "table")
    for label in (2**23, 2**40, -5):
        labels = few.copy()
        labels[700] = label
        assert choose(counting, x, labels) == "sort"
        assert_scanned(counting, x, labels)
    # Labels of 16 bits are not partitioned.
    assert choose(counting, x, few.astype(np.uint16)) == "table"


def test_skewed_labels(counting: gs.Device) -> None:
    """Assert results if some buckets are empty or small, and others longer than a section."""
    rng = np.random.default_rng(7)
    length, reach = 3000, 700
    x = rng.integers(-9, 9, length).astype(np.int64)
    some = rng.random(length)
    for labels in (reach * some**6, np.where(some < 0.5, 3, reach), np.where(some < 0.01, reach * some * 90, 600)):
        assert_scanned(counting, x, labels.astype(np.uint64), exclusive=True, initial=5)


def test_missing_labels(counting: gs.Device) -> None:
    """Assert NaN for missing labels, and an error where results cannot be NaN."""
    rng = np.random.default_rng(4)
    for dtype in (np.int16, np.int64):
        labels = rng.integers(-1, 20, 700).astype(dtype)
        assert_scanned(counting, rng.random(700).astype(np.float32).round(1), labels, "maximum")
        gs.scan(counting.asarray(np.ones(700, np.int32)), groups=counting.asarray(np.maximum(labels, 0)))
        counting.synchronize()
        gs.scan(counting.asarray(np.ones(700, np.int32)), groups=counting.asarray(labels))
        with pytest.raises(ValueError, match="missing"):
            counting.synchronize()


def test_bundles_and_axes(counting: gs.Device, device: gs.Device) -> None:
    """Assert results of bundles, of operators that do not commute, of maps, along each axis, and with `out`."""
    rng = np.random.default_rng(5)
    pair = words(rng, 2, 900)
    labels = rng.integers(0, 9, 900).astype(np.int32)
    assert_scanned(counting, pair, labels, PAIRS)
    assert_scanned(counting, pair, labels, AFFINE, exclusive=True, reverse=True)
    x = rng.integers(-9, 9, 900).astype(np.int16)
    assert_scanned(counting, x, labels, before=lambda v: v + 1, after=lambda v: v * 2)
    rows = rng.integers(-9, 9, (20, 45)).astype(np.int32)
    rotation = int(key_heuristics.GROUPS_GPU.max_tabled_labels == 1)  # buckets take another axis than the other ways
    for axis in one_of(device, (0, 1), rotation):
        assert_scanned(counting, rows, labels[: rows.shape[axis]], axis=axis)
        assert_scanned(counting, rows, labels.reshape(rows.shape), axis=axis, exclusive=True)
    a = counting.asarray(rows[0].copy())
    gs.scan(a, groups=counting.asarray(labels[:45]), out=a)
    np.testing.assert_array_equal(a.numpy(), gs.scan(rows[0], groups=labels[:45], device="numpy"))


def test_nothing_waits(counting: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that calls with other numbers of labels launch one program, and do not wait."""
    rng = np.random.default_rng(6)
    x = rng.integers(-9, 9, 1500).astype(np.int32)
    a = counting.asarray(x)
    given = [rng.integers(0, reach, 1500).astype(np.int32) for reach in (3, 40, 100_000)]
    there = [counting.asarray(labels) for labels in given]
    wait_for_reports(monkeypatch, False)
    for _ in range(3):
        gs.scan(a, groups=there[0])
    programs = len(counting._context.programs)
    with assert_no_waits(counting):
        results = [gs.scan(a, groups=labels) for labels in there]
    assert len(counting._context.programs) == programs > 0
    for result, labels in zip(results, given, strict=True):
        np.testing.assert_array_equal(result.numpy(), gs.scan(x, groups=labels, device="numpy"))
