"""No compiler changes a bit of the elementary functions by fusing a product with a sum.

The functions are computed on NumPy as by a compiler that rounds ``a * b + c`` once. For the same bits, either the
product is exact, or it is hidden from the compiler before it is added.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuscan.operators.wgsl_arithmetic import ELEMENTARY
from gpuscan.reference import elementary as twin
from tests.operators.test_elementary import arguments_of
from tests.oracle import Array, assert_same

COUNT = 20_000


class Fusible(np.ndarray):
    """An array of float32 that knows, of products, what they were before they were rounded."""

    product: Array | None = None
    # The operand of a sum of two products that is fused.
    fuses_left = True

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(each) for each in inputs]
        found = getattr(ufunc, method)(*plain, **options)
        if np.asarray(found).dtype != np.float32:
            return found
        found = fusible(found)
        if ufunc is np.multiply:
            found.product = plain[0].astype(np.longdouble) * plain[1].astype(np.longdouble)
        elif ufunc in (np.add, np.subtract):
            left, right = (getattr(each, "product", None) for each in inputs)
            if left is not None and (right is None or Fusible.fuses_left):
                found = fusible(ufunc(left, plain[1]))
            elif right is not None:
                found = fusible(ufunc(plain[0], right))
        return found


def fusible(x: object) -> Any:
    return np.asarray(x, np.float32).view(Fusible)


def in_float32(function: Any) -> Any:
    """Return the function with results that are fusible if they are float32."""

    def wrapper(*args: Any) -> Any:
        found = function(*args)
        is_float = not isinstance(found, twin.Vector) and np.asarray(found).dtype == np.float32
        return fusible(found) if is_float else found

    return wrapper


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("name", ELEMENTARY)
def test_fusing_changes_no_bit(name: str, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = arguments_of(name, COUNT)
    wanted = twin.elementary(name, *arguments)
    names = {key: in_float32(value) if callable(value) else value for key, value in twin._NAMES.items()}
    names["Vector"] = twin.Vector
    monkeypatch.setattr(twin, "_NAMES", names)
    monkeypatch.setattr(Fusible, "fuses_left", left)
    twin._python_function.cache_clear()
    try:
        function = twin._python_function(f"f32_{name}")
        with np.errstate(all="ignore"):
            found = np.asarray(function(*map(fusible, arguments)), np.float32)
    finally:
        twin._python_function.cache_clear()
    nan = np.isnan(wanted)
    assert_same(np.isnan(found), nan)
    assert_same(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))


def test_fusing_is_seen() -> None:
    """Make sure that a product that is not exact is fused."""
    a = fusible(np.full(1, 1 + 2**-20))
    assert np.asarray(a * a - fusible(1 + 2**-19))[0] == np.float32(2.0**-40)
    assert np.asarray(a * a)[0] - np.float32(1 + 2**-19) == 0
