"""Structured arrays: nested ones, fields with axes of their own, through every function that takes bundles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import Array

MAP = np.dtype([("gain", np.int16, (2, 2)), ("shift", np.int64, 2)])
NESTED = np.dtype([("moments", [("count", np.uint8), ("total", np.int64)]), ("valid", bool)])


def compose_maps(left: Any, right: Any) -> dict[str, Any]:
    """Return the composition of two maps ``x -> A x + b``: first the left one, then the right one."""
    gain = right["gain"].astype(np.int64)
    moved = (gain @ left["shift"][..., None])[..., 0]
    return {"gain": right["gain"] @ left["gain"], "shift": moved + right["shift"]}


def pool_moments(left: Any, right: Any) -> dict[str, Any]:
    """Return sums of nested fields, and True if all operands are valid."""
    sums = {name: left["moments"][name] + right["moments"][name] for name in ("count", "total")}
    return {"moments": sums, "valid": left["valid"] & right["valid"]}


def maps(*shape: int) -> Array:
    rng = np.random.default_rng(0)
    x = np.zeros(shape, MAP)
    turns = [[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[0, 1], [1, 0]], [[-1, 0], [0, 1]]]  # which never grow
    x["gain"] = np.array(turns)[rng.integers(0, 4, shape)]
    x["shift"] = rng.integers(-(2**40), 2**40, (*shape, 2))
    return x


def moments(*shape: int) -> Array:
    rng = np.random.default_rng(1)
    x = np.zeros(shape, NESTED)
    x["moments"]["count"] = rng.integers(0, 256, shape)
    x["moments"]["total"] = rng.integers(-(2**60), 2**60, shape)
    x["valid"] = rng.random(shape) < 0.999
    return x


def scan_by_definition(function: Any, x: Array, axis: int = 0) -> Array:
    """Scan a structured array by the definition."""
    y = np.moveaxis(x.copy(), axis, 0)
    for i in range(1, len(y)):
        put(y[i : i + 1], function(y[i - 1 : i], y[i : i + 1]))
    return np.moveaxis(y, 0, axis)


def put(target: Array, value: Any) -> None:
    """Write a nested dict of arrays to a structured array."""
    for name, part in value.items():
        if isinstance(part, dict):
            put(target[name], part)
        else:
            target[name] = part


CASES = [(compose_maps, maps), (pool_moments, moments)]


@pytest.fixture(params=["device", "numpy"])
def where(request: pytest.FixtureRequest, device: gs.Device) -> Any:
    """Return a device on each adapter, then NumPy."""
    return device if request.param == "device" else "numpy"


@pytest.mark.parametrize(("function", "make"), CASES)
def test_scans(where: Any, function: Any, make: Any) -> None:
    """Scan a row, rows and columns, into a new array and into `out`. The dtype stays the dtype of the input."""
    x = make(500)
    got = gs.scan(x, function, device=where)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, scan_by_definition(function, x))
    out = np.zeros_like(x)
    assert gs.scan(x, function, out=out, device=where) is out
    np.testing.assert_array_equal(out, got)
    x = make(6, 35)
    for axis in (0, 1):
        np.testing.assert_array_equal(
            gs.scan(x, function, axis=axis, device=where), scan_by_definition(function, x, axis)
        )


@pytest.mark.parametrize(("function", "make"), CASES)
def test_reductions_and_chunks(where: Any, function: Any, make: Any) -> None:
    """Reduce the whole array and rows, and scan chunks."""
    x = make(6, 35)
    whole, rows = scan_by_definition(function, x.reshape(-1))[-1], scan_by_definition(function, x, 1)[:, -1]
    assert gs.reduce(x, function, device=where) == whole
    np.testing.assert_array_equal(gs.reduce(x, function, axis=1, device=where), rows)
    chunks = list(gs.scan_chunks([x[0], x[1, :3], x[1, 3:]], function, device=where))
    assert [chunk.dtype for chunk in chunks] == [x.dtype] * 3
    np.testing.assert_array_equal(np.concatenate(chunks), scan_by_definition(function, x[:2].reshape(-1)))


def test_aligned_fields_stay_aligned(where: Any) -> None:
    """Assert that scans, reductions, chunks and compactions keep an aligned dtype, also inside a tuple."""
    dtype = np.dtype([("n", np.int8), ("x", np.float32)], align=True)
    x = np.zeros(300, dtype)
    x["n"], x["x"] = 1, 2

    def sums(left: Any, right: Any) -> Any:
        return {"n": left["n"] + right["n"], "x": left["x"] + right["x"]}

    def both(left: Any, right: Any) -> Any:
        return left[0] + right[0], sums(left[1], right[1])

    wanted = scan_by_definition(sums, x)
    found = [gs.scan(x, sums, device=where), np.concatenate(list(gs.scan_chunks([x], sums, device=where)))]
    found.append(gs.scan((x["n"], x), both, device=where)[1])
    for got in found:
        assert got.dtype == dtype
        np.testing.assert_array_equal(got, wanted)
    assert gs.reduce(x, sums, device=where).dtype == dtype
    assert gs.compact(x, np.arange(300) < 5).dtype == dtype
    swapped = gs.scan(x, sums, after=lambda v: {"x": v["n"], "n": v["x"]}, device=where)
    assert [swapped[name].dtype for name in ("x", "n")] == [np.int8, np.float32]


def test_a_tuple_of_structured_arrays(where: Any) -> None:
    """Assert that the result is a tuple of structured arrays."""
    x = (maps(80), np.arange(80, dtype=np.uint8))

    def both(left: Any, right: Any) -> Any:
        return compose_maps(left[0], right[0]), left[1] + right[1]

    got = gs.scan(x, both, device=where)
    np.testing.assert_array_equal(got[0], scan_by_definition(compose_maps, x[0]))
    np.testing.assert_array_equal(got[1], np.cumsum(x[1], dtype=np.uint8))


def test_reductions_of_all_elements(where: Any) -> None:
    """Reduce structured arrays alone and in bundles; the result is an element, and fields also have positions."""
    x, codes = maps(6, 35), np.arange(210, dtype=np.uint8).reshape(6, 35)
    wanted = scan_by_definition(compose_maps, x.reshape(-1))[-1]

    def both(left: Any, right: Any) -> Any:
        return compose_maps(left[0], right[0]), left[1] + right[1]

    def combine_fields(left: Any, right: Any) -> Any:
        return {"map": compose_maps(left["map"], right["map"]), "code": left["code"] + right["code"]}

    pair = gs.reduce((x, codes), both, device=where)
    fields = gs.reduce({"map": x, "code": codes}, combine_fields, device=where)
    for record, code in (pair, (fields["map"], fields["code"])):
        assert isinstance(record, np.void)
        assert record == wanted
        assert code == np.sum(codes, dtype=np.uint8)
    sums = gs.reduce(PAIRS.reshape(1, 3), lambda l, r: (l[0] + r[0], l[1] * r[1]), device=where)
    assert isinstance(sums, np.void)
    assert sums.tolist() == (9, 48.0)
    nested = gs.reduce(moments(6, 35), pool_moments, device=where)
    assert nested == scan_by_definition(pool_moments, moments(6, 35).reshape(-1))[-1]


def test_vectors_of_records(where: Any) -> None:
    """Assert that an operator's axes may come before the axes of the fields."""
    x = np.zeros((4, 5, 2), PAIRS.dtype)
    x["count"], x["scale"] = np.arange(40).reshape(x.shape), 1

    def sums(left: Any, right: Any) -> Any:
        return {"count": left["count"] + right["count"], "scale": left["scale"] * right["scale"]}

    result = gs.reduce(x, gs.operator(sums, element_axes=1), device=where)
    assert result["count"].tolist() == x["count"].sum(axis=(0, 1)).tolist()


def test_initial_and_wrong_out(where: Any) -> None:
    x = maps(50)
    unit = {"gain": np.eye(2, dtype=np.int16), "shift": np.zeros(2, np.int64)}
    got = gs.scan(x, compose_maps, exclusive=True, initial=unit, device=where)
    np.testing.assert_array_equal(got[1:], scan_by_definition(compose_maps, x)[:-1])
    assert got[0] == np.array([(unit["gain"], unit["shift"])], MAP)[0]
    with pytest.raises(TypeError, match="was passed for a structured result; pass a structured array with the fields"):
        gs.scan(x, compose_maps, out=np.zeros(50, NESTED), device=where)


PAIRS = np.array([(1, 2.0), (3, 4.0), (5, 6.0)], [("count", np.int32), ("scale", np.float32)])


@pytest.mark.parametrize(
    "function",
    [
        lambda l, r: (l["count"] + r["count"], l["scale"] * r["scale"]),
        lambda l, r: (l[0] + r[0], l[1] * r[1]),
        lambda l, r: {"count": l[0] + r[0], "scale": l["scale"] * r[-1]},
    ],
)
def test_fields_by_name_and_by_position(where: Any, function: Any) -> None:
    """Assert that fields have names and positions, and that a tuple stands for an element."""
    assert gs.scan(PAIRS, function, device=where).tolist() == [(1, 2.0), (4, 8.0), (9, 48.0)]
    assert gs.scan(PAIRS, function, initial=(10, 0.5), device=where).tolist() == [(11, 1.0), (14, 4.0), (19, 24.0)]
    op = gs.operator(function, identity=(0, 1.0))
    assert gs.scan(PAIRS, op, exclusive=True, device=where).tolist() == [(0, 1.0), (1, 2.0), (4, 8.0)]


def test_a_field_that_is_not_there(where: Any) -> None:
    with pytest.raises(gs.OperatorError, match="there are the fields count, scale"):
        gs.scan(PAIRS, lambda l, r: (l["size"] + r[0], l[1]), device=where)
