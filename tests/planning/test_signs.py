"""Narrow integers are taken for unsigned ones exactly where their signs make no difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuscan.elements import Element
from gpuscan.operators.code import Code, combine_code, map_code
from gpuscan.planning.spec import ScanSpec, without_signs
from gpuscan.problem.problem import make_problem


def work(x: Any, op: Any, **options: Any) -> tuple[ScanSpec, ScanSpec]:
    """Return the specification, and the one that its shaders see."""
    problem = make_problem(x, op, **options)

    def combine(element: Element) -> Code:
        return combine_code(problem.operator, element, native_int64=True)

    after = problem.after and map_code(problem.after, problem.element, "after", True, result_type="Result")
    asked = ScanSpec(
        source=problem.source,
        element=problem.element,
        destination=problem.destination,
        operator_name=problem.operator.name,
        combine=combine(problem.element),
        after=after,
        rows=1,
        row_length=8,
    )
    return asked, without_signs(asked, combine)


def names(element: Element) -> list[str]:
    return [field.scalar.name for field in element.fields]


@pytest.mark.parametrize("op", ["add", "multiply", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_low_bits_have_no_sign(dtype: str, op: str) -> None:
    _, seen = work(np.ones(8, dtype), op)
    assert names(seen.source) == names(seen.element) == names(seen.destination) == [f"u{dtype}"]
    _, unsigned = work(np.ones(8, f"u{dtype}"), op)
    assert seen == unsigned, "they share their shaders"


def test_bundles() -> None:
    bundle = np.ones(8, np.int8), np.ones(8, np.uint16)
    _, seen = work(bundle, lambda a, b: (a[0] * b[0], a[1] + b[1]))
    assert names(seen.element) == ["uint8", "uint16"]


@pytest.mark.parametrize(
    ("x", "op", "options"),
    [
        (np.ones(8, np.int8), "maximum", {}),
        (np.ones(8, np.int32), "add", {}),
        (np.ones(8, np.int8), "add", {"dtype": np.int32}),
        (np.ones(8, np.int8), "add", {"dtype": np.int16}),
        (np.ones(8, np.int8), "add", {"after": lambda v: v.astype(np.float32)}),
        (np.ones(8, np.int8), lambda a, b: a + b + 1, {}),
        (np.ones(8, np.int8), lambda a, b: a + b - np.int8(-3), {}),
        (np.ones(8, np.int8), lambda a, b: a * b // 2, {}),
    ],
    ids=[
        "order",
        "words",
        "widened",
        "widened in storage",
        "mapped",
        "a constant",
        "a constant below zero",
        "division",
    ],
)
def test_signs_that_matter_stay(x: Any, op: Any, options: Any) -> None:
    asked, seen = work(x, op, **options)
    assert seen == asked
