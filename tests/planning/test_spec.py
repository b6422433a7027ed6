"""Scan specs: built from problems, and equal where their shaders and plans are, so that they are keys of caches."""

from __future__ import annotations

import numpy as np
import pytest

from gpuscan.planning import spec as spec_module
from gpuscan.planning.plan import plan_scan
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.problem.column_vectors import as_vectors
from gpuscan.problem.problem import make_problem
from tests.fakes import gpu, spec


def test_equal_problems_have_equal_specs() -> None:
    """Assert that equal specifications find the same entries of a cache."""
    first, second = (scan_spec(make_problem(np.zeros(100, np.float32), "add", initial=1.0), gpu()) for _ in range(2))
    assert first == second
    assert first is not second
    assert {first: "kept"}[second] == "kept"


def test_arrays_of_different_lengths_share_kernels() -> None:
    """Assert that they share pipelines: a kernel holds no number of rows or elements."""
    kernels = [plan_scan(spec(row_length=n), gpu(), "lookback", "").stages[0].kernel for n in (1 << 24, (1 << 24) + 8)]
    assert kernels[0] == kernels[1]
    assert not isinstance(kernels[0].spec, ScanSpec)


def test_rows_carry_head_flags() -> None:
    assert not spec(rows=1).segmented
    assert spec(rows=3).segmented
    assert not spec(rows=3, inner=3).segmented, "neighbours in memory belong to different rows"
    assert spec(has_segment_bits=True).segmented
    assert spec(rows=3).item_words == spec().item_words + 1


def test_the_neighbour_field_follows_the_element() -> None:
    asked = spec("float32", "float32", "int8", field_offsets=(-1, 0, 1))
    assert asked.neighbour_field == asked.source.fields[2]
    assert [field.scalar.name for field in asked.with_neighbour.fields[-2:]] == ["int8", "int8"]
    assert [asked.offset_of(i) for i in range(3)] == [-1, 0, 1]
    assert spec().neighbour_field is None


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
@pytest.mark.parametrize("bits", [32, 64])
def test_extrema_are_those_of_integers(name: str, bits: int) -> None:
    """Assert that floats are combined in the order of their bits, but not after a map."""
    x = np.zeros((4, 8, 16), f"float{bits}")
    for options in ({"axis": 1}, {"axis": 2}, {"axis": 1, "initial": 0.0}):
        seen = scan_spec(make_problem(x, name, **options), gpu())
        assert [field.scalar.name for field in seen.element.fields] == [f"int{bits}"], options
        assert None not in (seen.before, seen.after)
        assert seen.maps_seeds == seen.seeded == ("initial" in options)
    floats = scan_spec(make_problem(x, name, axis=1, after=lambda v: -v), gpu())
    assert [field.scalar.name for field in floats.element.fields] == [f"float{bits}"]
    assert scan_spec(make_problem(x, "add", axis=1), gpu()).before is None


@pytest.mark.parametrize(("dtype", "integer"), [(np.float16, "int32"), (np.float32, "int32"), (np.float64, "int64")])
def test_extrema_of_columns_as_vectors_are_those_of_integers(dtype: type, integer: str) -> None:
    problem = as_vectors(make_problem(np.zeros((64, 4), dtype), "maximum", axis=0))
    (field,) = scan_spec(problem, gpu()).element.fields
    assert (field.scalar.name, field.shape) == (integer, (4,))


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_need_no_code_of_extrema(monkeypatch: pytest.MonkeyPatch, dtype: type) -> None:
    """Assert that the first sum of a process does not render the functions that extrema of floats call."""
    monkeypatch.setattr(spec_module, "_extrema", pytest.fail)
    assert scan_spec(make_problem(np.zeros(9, dtype), "add"), gpu()).combine.helpers == ()


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema_of_16_bits_are_those_of_integers(name: str) -> None:
    """Assert that extrema with initial values are not, because seeds have another form."""
    x = np.zeros((4, 8, 16), np.float16)
    scan, seeded = make_problem(x, name, axis=1), make_problem(x, name, axis=1, initial=np.float16(0))
    for problem in (scan, scan.as_reduction()):
        spec = scan_spec(problem, gpu())
        names = [each.fields[0].scalar.name for each in (spec.source, spec.element, spec.destination)]
        assert names == ["int16", "int32", "int16"]
    for problem in (seeded, seeded.as_reduction()):
        assert scan_spec(problem, gpu()).element.fields[0].scalar.name == "float16"
