"""Sizes that are unknown: a formula gives for other sizes what the code itself gives, or says that it cannot."""

from __future__ import annotations

import math
import operator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscan.sizes import SizeTrace, apply, concrete, formula_of, gcd, has_size, reveal, slice_span, spans

_NUMBERS = st.integers(0, 40)


def trace_function(function: Any, sizes: tuple[int, ...]) -> Any:
    """Return the formula of a function that was computed for these sizes."""
    trace = SizeTrace(sizes)
    return formula_of(trace, (function(*trace.sizes()),))


def branching(a: Any, b: Any) -> Any:
    """Compute with sizes as plans do: by rounded quotients, comparisons and searches."""
    tile = next(size for size in (32, 16, 8, 4, 1) if size <= a + 1)
    tiles = -(-(a * b) // tile)
    if tiles > 12 or b in (3, 7):
        return tiles + 1, a % tile, max(a, b)
    return (tiles << 1, abs(a - b), gcd(4, a, b * 4), min(a, b) if a else -b)


@given(_NUMBERS, _NUMBERS, _NUMBERS, _NUMBERS)
def test_a_formula(a: int, b: int, other: int, another: int) -> None:
    """Assert that a formula computes the function's result for other sizes too, or refuses them."""
    formula = trace_function(branching, (a, b))
    assert formula(a, b) == (branching(a, b),)
    found = formula(other, another)
    assert found in (None, (branching(other, another),))


def test_formulas_are_shared() -> None:
    """Assert that one formula serves all sizes that take the same way."""
    formula = trace_function(branching, (33, 2))
    served = [a for a in range(31, 200) if formula(a, 2) is not None]
    assert served == list(range(31, 193))


@pytest.mark.parametrize(
    "read",
    [int, hash, repr, range, np.zeros, list.__mul__, np.array, "{}".format, np.int64(3).__add__, np.arange(3).__mul__],
)
def test_what_reads_a_size_fixes_it(read: Any) -> None:
    """Assert that nothing reads a size unnoticed."""
    trace = SizeTrace((5,))
    (size,) = trace.sizes()
    found = read([0], size) if read is list.__mul__ else read(size)
    assert not has_size((found,))
    assert getattr(found, "dtype", np.dtype(int)).kind != "O"
    formula = formula_of(trace, ((size * 2),))
    assert formula(5) == (10,)
    assert formula(6) is None


def test_a_size_is_no_number() -> None:
    """Assert how sizes behave where Python asks for numbers."""
    trace = SizeTrace((5, 8))
    sizes: Any = trace.sizes()
    a, b = sizes
    assert isinstance(sizes[0], int)
    assert type(a) is not int
    assert has_size((a,))
    assert not has_size((5,))
    assert concrete((a, [b, (a,)], "x")) == (5, [8, (5,)], "x")
    assert divmod(b, 3) == (2, 2)
    assert divmod(17, a) == (3, 2)
    product: Any = math.prod(sizes)
    assert product.value == 40
    assert math.ceil(b / a).value == 2
    assert reveal(a + b) == 13
    assert apply(operator.index, 7) == 7
    assert a != "x"
    assert a in (1, 5)


def test_errors_of_other_sizes() -> None:
    """Assert that sizes for which a function raises an error have no value, so that the code itself raises it."""
    formula = trace_function(lambda a, b: a // b, (6, 2))
    assert formula(7, 3) == (2,)
    assert formula(7, 0) is None
    with pytest.raises(ZeroDivisionError):
        trace_function(lambda a, b: a // b, (6, 0))


@pytest.mark.parametrize("step", [None, 1, 2, -1, -3])
def test_slices(step: int | None) -> None:
    """Assert that slices of an axis of unknown length are Python's."""
    for start, stop, length in product((None, 0, 3, -2, 9, -9), (None, 0, 4, -1, 9, -9), (0, 1, 5)):
        part = slice(start, stop, step)
        found = slice_span(part, SizeTrace((length,)).sizes()[0])
        wanted = range(*part.indices(length))
        assert found[2] == len(wanted)
        if wanted:
            assert found[:2] == (wanted[0], wanted.step)


def test_spans() -> None:
    """Assert that lengths are cut in parts, and that one part needs no length."""
    assert list(spans(10, 4)) == [(0, 4), (4, 4), (8, 2)]
    assert list(spans(0, 4)) == []
    trace = SizeTrace((10,))
    ((start, count),) = spans(trace.sizes()[0], 16)
    assert start == 0
    formula = formula_of(trace, (count,))
    assert formula(16) == (16,)
    assert formula(17) is None
