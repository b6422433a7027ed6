"""The WGSL of named operators, as text that a reader can judge.

If the text is meant to change, ``python -m tests.codegen.test_golden`` writes the files again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuscan.elements import LEAF, Element, Structure, element_of
from gpuscan.operators.code import combine_code
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator, operator
from gpuscan.templates import render

FOLDER = Path(__file__).parent / "golden"

AFFINE = operator(
    lambda l, r: {"gain": l["gain"] * r["gain"], "shift": r["gain"] * l["shift"] + r["shift"]}, name="affine"
)


def of(dtype: Any, shape: tuple[int, ...] = ()) -> Element:
    return element_of([np.dtype(dtype)], shapes=[shape])


CASES: dict[str, tuple[Operator, Element]] = {
    "add_int32": (resolve("add"), of(np.int32)),
    "multiply_int8": (resolve("multiply"), of(np.int8)),
    "maximum_int64_as_two_words": (resolve("maximum"), of(np.int64)),
    "minimum_float32": (resolve("minimum"), of(np.float32)),
    "logaddexp_float32": (resolve("logaddexp"), of(np.float32)),
    "matmul_float32_2x2": (resolve("matmul"), of(np.float32, (2, 2))),
    "affine_of_the_user": (
        AFFINE,
        element_of([np.dtype(np.float32)] * 2, Structure("dict", ("gain", "shift"), (LEAF, LEAF))),
    ),
}


def wgsl(name: str) -> str:
    """Return the functions that a shader has for the operator."""
    code = combine_code(*CASES[name], native_int64=False)
    arithmetic = render("shared/arithmetic.wgsl", helpers=code.helpers, native_int64=False).strip()
    return f"{arithmetic}\n\n{code.source}\n".lstrip()


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str) -> None:
    assert wgsl(name) == (FOLDER / f"{name}.wgsl").read_text()


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(CASES)


def test_arithmetic_has_no_short_circuits() -> None:
    """SwiftShader's compile time is exponential in them (docs/decisions/217-faults-of-compilers.md)."""
    folder = Path(__file__).parents[2] / "shaders" / "shared"
    lines = [line for path in sorted(folder.glob("arithmetic*.wgsl")) for line in path.read_text().splitlines()]
    assert [line for line in lines if re.search(r"&&|\|\|", line.partition("//")[0])] == []


if __name__ == "__main__":
    for each in CASES:
        (FOLDER / f"{each}.wgsl").write_text(wgsl(each))
