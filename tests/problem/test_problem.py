"""Requests in one form: shapes, axes, seeds, bundles, and rows."""

from __future__ import annotations

import re
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from gpuscan.elements import LEAF
from gpuscan.problem.arguments import resolve_axis, structure_and_leaves
from tests.harness.scans import make_problem
from tests.oracle import AFFINE, Array, assert_same
from tests.strategies import arrays

Pair = namedtuple("Pair", "gain shift")


# ----- Rows


@given(st.data())
def test_rows_and_back(data: st.DataObject) -> None:
    """Assert that rows are contiguous, whatever the memory order, and that the way back gives a view."""
    x: Array = data.draw(arrays("int32"))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    problem = make_problem(x, axis=axis)
    rows = problem.by_rows(np.asarray(problem.leaves[0]))
    assert rows.flags.c_contiguous
    assert rows.shape == (problem.rows, problem.row_length)
    assert problem.size == x.size
    np.testing.assert_array_equal(problem.from_rows(rows), x)
    others = [n for i, n in enumerate(x.shape) if i != axis % x.ndim]
    for row, index in enumerate(np.ndindex(*others)):
        np.testing.assert_array_equal(rows[row], np.moveaxis(x, axis, -1)[index])


def test_trailing_axes_stay_with_the_element() -> None:
    x = np.arange(5 * 7 * 9, dtype=np.float32).reshape(5, 7, 3, 3)
    problem = make_problem(x, "matmul", axis=0)
    assert (problem.shape, problem.rows, problem.row_length) == ((5, 7), 7, 5)
    assert problem.element.fields[0].shape == (3, 3)
    rows = problem.by_rows(x)
    assert rows.shape == (7, 5, 3, 3)
    np.testing.assert_array_equal(rows[2, 4], x[4, 2])
    np.testing.assert_array_equal(problem.from_rows(rows), x)


def test_negative_axes_do_not_count_the_elements_own() -> None:
    x = np.zeros((5, 7, 3, 3), np.float32)
    assert make_problem(x, "matmul", axis=-1).axis == 1
    with pytest.raises(np.exceptions.AxisError):
        make_problem(x, "matmul", axis=2)


def test_other_byte_orders_become_native() -> None:
    x = np.arange(4, dtype=">i4")
    (leaf,) = make_problem(x).leaves
    assert_same(leaf, np.arange(4, dtype=np.int32))


# ----- Bundles


def test_bundles_are_taken_apart_in_order() -> None:
    a, b, c = np.zeros(3, np.int32), np.ones(3, np.float32), np.zeros(3, bool)
    record = np.zeros(3, [("x", np.int8), ("y", np.float32)])
    cases: list[tuple[Any, str, list[Any]]] = [
        (a, "leaf", [a]),
        ([1, 2], "leaf", [np.array([1, 2])]),
        ((a, b), "tuple", [a, b]),
        (Pair(b, a), "named", [b, a]),
        ({"v": a, "ok": c}, "dict", [a, c]),
        (record, "structured", [record["x"], record["y"]]),
        ((a, {"p": b, "q": (c, a)}), "tuple", [a, b, c, a]),
    ]
    for value, kind, leaves in cases:
        structure, found = structure_and_leaves(value)
        assert structure.container == kind
        for leaf, wanted in zip(found, leaves, strict=True):
            assert_same(leaf, wanted)
    assert structure_and_leaves(a)[0] is LEAF
    nested, _ = structure_and_leaves((a, {"p": b, "q": (c, a)}))
    assert list(nested.paths()) == [(0,), (1, "p"), (1, "q", 0), (1, "q", 1)]


def test_bundles_come_together_again() -> None:
    for value in ((1, 2), Pair(1, 2), {"a": 1, "b": (2, {"c": 3})}, ((1,), (2, (3, 4))), [1, [2, (3,)]]):
        structure, _ = structure_and_leaves(_arrays(value))
        for again in (structure.build_bundle(structure.flatten(value)), structure.unflatten(structure.flatten(value))):
            assert again == value
        assert type(structure.build_bundle(structure.flatten(value))) is type(value)


def _arrays(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _arrays(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        parts = [_arrays(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return np.full(3, value, np.int32)


# ----- Axis


def test_the_elements_own_axes_are_named_where_they_are_not_counted() -> None:
    x = np.ones((3, 4, 2, 2), np.float32)
    with pytest.raises(np.exceptions.AxisError, match=r"axis=-3 .* shape \(3, 4\) and 2 axes of the element.*0, 1, "):
        make_problem(x, "matmul", axis=-3)
    with pytest.raises(ValueError, match=r"shape \(3, 4\) and 2 axes of the element .*one of 0, 1, "):
        make_problem(x, "matmul")
    with pytest.raises(ValueError, match=r"shape \(3, 3\).*2 trailing axes"):
        make_problem(np.zeros((3, 3), np.float32), "matmul")


@pytest.mark.parametrize("axis", [True, 1.0, "0", (0,)])
def test_an_axis_is_an_integer(axis: Any) -> None:
    with pytest.raises(TypeError, match=rf"axis={re.escape(repr(axis))} .*an axis is an integer; pass one of 0, 1"):
        resolve_axis(axis, (2, 3))


# ----- Seeds


def test_initial_is_broadcast_over_the_rows() -> None:
    x = np.zeros((2, 5, 3), np.float32)
    for initial, wanted in [
        (4, [4] * 6),
        ([1, 2, 3], [1, 2, 3, 1, 2, 3]),
        ([[1], [2]], [1, 1, 1, 2, 2, 2]),
        (np.arange(6).reshape(2, 3), range(6)),
    ]:
        (seeds,) = make_problem(x, axis=1, initial=initial).seeds or ()
        assert_same(seeds, np.array(list(wanted), np.float32))


def test_initial_of_a_bundle_and_of_elements_with_axes() -> None:
    x = (np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32))
    seeds = make_problem(x, lambda l, r: (l[0] + r[0], l[1] + r[1]), axis=1, initial=(7, [0.5, 1.5])).seeds
    assert_same(seeds[0], np.array([7, 7], np.int32))  # type: ignore[index]
    assert_same(seeds[1], np.array([0.5, 1.5], np.float32))  # type: ignore[index]
    (matrices,) = make_problem(np.zeros((4, 3, 2, 2), np.float32), "matmul", axis=0, initial=np.eye(2)).seeds or ()
    assert_same(matrices, np.broadcast_to(np.eye(2, dtype=np.float32), (3, 2, 2)))


@pytest.mark.parametrize(
    ("initial", "dtype"),
    [
        (1.5, np.int32),
        (1j, np.float32),
        (np.float64(2.0), np.int64),
        (300, np.int8),
        (-1, np.uint32),
        (2**40, np.int32),
    ],
)
def test_initial_that_the_dtype_cannot_hold(initial: Any, dtype: Any) -> None:
    with pytest.raises(TypeError, match=rf"initial .*{np.dtype(dtype)}.*cannot hold it"):
        make_problem(np.zeros(3, dtype), initial=initial)


@pytest.mark.parametrize("initial", [3, (1,), (1, 2, 3)])
def test_initial_with_other_fields_than_the_bundle(initial: Any) -> None:
    with pytest.raises(ValueError, match=r"initial.*2 fields"):
        make_problem((np.zeros(3, np.int32), np.zeros(3, np.int32)), AFFINE, initial=initial)


def test_python_numbers_are_initial_values_of_every_dtype_that_holds_them() -> None:
    for number, dtype in [
        (1j, np.complex64),
        (np.complex128(1j), np.complex64),
        (np.array(1j, ">c16"), np.complex64),
        (1.5, np.complex64),
        (2, np.float16),
        (True, np.int8),
        (2**63, np.uint64),
    ]:
        (seeds,) = make_problem(np.zeros(3, dtype), initial=number).seeds or ()
        assert_same(seeds, np.array([number], dtype))


@pytest.mark.parametrize("initial", [2**64, -(2**63) - 1, "1", None.__class__])
def test_what_is_no_number_of_the_element_is_no_initial_value(initial: Any) -> None:
    with pytest.raises(TypeError, match=r"initial .* cannot hold it"):
        make_problem(np.zeros(3, np.uint64), initial=initial)


@pytest.mark.parametrize("name", ["before", "after"])
def test_maps_are_functions(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}=3 was passed, but {name} must be a function of one element"):
        make_problem(np.zeros(3, np.uint64), **{name: 3})


@pytest.mark.parametrize("where", ["device", "numpy"])
def test_axes_of_the_element_are_inferred(device: gs.Device, where: str) -> None:
    """Assert that operators that take matrices or vectors alone get them from one array, and others get numbers."""
    run = device if where == "device" else where
    m = np.random.default_rng(0).normal(0, 0.6, (2, 6, 3, 3)).astype(np.float32)
    products = np.stack([[np.linalg.multi_dot([*row[: i + 1], np.eye(3)]) for i in range(6)] for row in m])
    found = gs.scan(m[0], lambda l, r: l @ r, device=run)
    np.testing.assert_allclose(found, products[0], rtol=1e-4, atol=1e-5)
    found = gs.scan(m, lambda l, r: np.matmul(l, r), axis=1, device=run)
    np.testing.assert_allclose(found, products, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(gs.reduce(m[1], lambda l, r: l @ r, device=run), products[1, -1], rtol=1e-4, atol=1e-5)
    if where == "device":
        found = gs.scan(device.asarray(m[0]), lambda l, r: l @ r).numpy()
        np.testing.assert_allclose(found, products[0], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            device.plan((6, 3, 3), np.float32, lambda l, r: l @ r)(m[0]), products[0], rtol=1e-4, atol=1e-5
        )
    later = gs.scan(m[0, :, 0], lambda l, r: np.where((l[..., 0] < r[..., 0])[..., None], r, l), device=run)
    wanted = m[0, :, 0][np.maximum.accumulate([np.argmax(m[0, : i + 1, 0, 0]) for i in range(6)])]
    assert later.shape == wanted.shape
    np.testing.assert_array_equal(gs.scan(m[0], lambda l, r: l + r, axis=2, device=run).shape, m[0].shape)
    with pytest.raises(ValueError, match="without axis="):
        gs.scan(m[0], lambda l, r: l + r, device=run)
    with pytest.raises(ValueError, match=r"shape \(2, 6\) and 2 axes of the element was passed without axis="):
        gs.scan(m, lambda l, r: l @ r, device=run)
    for x in (m[0, :, 0], m[0, :, 0, 0]):
        with pytest.raises(gs.OperatorError, match=r"gs\.operator\(function, element_axes=2\)"):
            gs.scan(x, lambda l, r: l @ r, device=run)
    with pytest.raises(gs.OperatorError, match="the inner sizes differ"):
        gs.scan(m[0, :, :, :2], lambda l, r: l @ r, device=run)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda l, r: np.sort(l[..., :, :, None] + r[..., None, :, :], axis=-2), "^np.sort is not traced"),
        (lambda l, r: l / np.max(r, axis=-1), r"^np.divide of element shapes \(2,\) and \(\)"),
        (lambda l, r: np.cumsum(l.mT @ r, axis=-1), "^np.cumsum is not traced"),
        (lambda l, r: np.einsum("...ij,...jk->...ik", l, r).fft(), "^the function reads .fft"),
        (lambda l, r: l @ r[..., :, :, :, None], "^the operator raised IndexError .* is 2-dimensional"),
    ],
)
def test_the_error_is_one_for_elements_that_have_the_axes_of_the_function(function: Any, fault: str) -> None:
    """Assert that an error about the function itself is raised, rather than one about numbers that have no axes."""
    with pytest.raises(gs.OperatorError, match=fault):
        make_problem(np.ones((5, 2, 2), np.float32), function, axis=0)


def test_functions_of_whole_arrays_are_refused() -> None:
    """Assert that the error for `np.argmax` and similar operators says what to write, and that this works."""
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)
    for op, name in (
        (np.sum, "add"),
        (np.cumprod, "multiply"),
        (max, "maximum"),
        (np.min, "minimum"),
        (any, "logical_or"),
    ):
        with pytest.raises(gs.OperatorError, match=f"function of a whole array.* pass '{name}'"):
            gs.scan(x, op, device="numpy")
    for function, sign in ((np.argmax, ">"), (np.argmin, "<")):
        for spelling in (function, function.__name__):
            with pytest.raises(gs.OperatorError, match=r"examples/argmax_so_far\.py") as caught:
                gs.scan(x, spelling, device="numpy")
        text = str(caught.value)
        assert f"r.value {sign} l.value" in text
        names = {"gs": gs, "np": np, "x": x}
        exec(text[text.index("better = ") : text.index(". examples")], names)
        found = eval(text[text.index("gs.scan(") : text.index(" with better")], names)
        assert found["place"].tolist() == [function(x[: i + 1]) for i in range(len(x))]
    message = r"one np\.where for each field"
    with pytest.raises(gs.OperatorError, match=message):
        gs.scan((x, x), lambda l, r: np.where(True, l, r), device="numpy")
    for fields in ((x, x), {"a": x, "b": x}):
        first = next(iter(fields)) if isinstance(fields, dict) else 0
        with pytest.raises(gs.OperatorError, match=message):
            gs.scan(fields, lambda l, r, first=first: np.where(l[first] > r[first], l, r), device="numpy")
