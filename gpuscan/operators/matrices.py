"""Factor small matrices and solve their systems, number by number.

A number is a traced value, an array of the scanned axes, or a constant. Matrices are lists of rows, and every function
is a composition of operations on numbers, so that a gradient follows from the expression graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuscan.operators.components import OTHER, Numbers, is_other, make_number_array, select
from gpuscan.operators.traced_array import Number

Rows = list[list[Any]]


def factor_lu(rows: Rows, size: int) -> list[Any]:
    """Bring rows into the form of LAPACK's LU factors in place, and return the row that each one was swapped with.

    The columns after the first `size` columns are right-hand sides. They become the triangular system's.
    """
    swaps = []
    for column in range(min(size, len(rows))):
        pivot, largest = np.int32(column), np.abs(rows[column][column])
        for below in range(column + 1, len(rows)):
            number = np.abs(rows[below][column])
            larger = number > largest
            pivot, largest = select(larger, np.int32(below), pivot), select(larger, number, largest)
        swap_rows(rows, column, pivot)
        swaps.append(pivot)
        for below in range(column + 1, len(rows)):
            factor = rows[below][column] / rows[column][column]
            rest = zip(rows[below][column + 1 :], rows[column][column + 1 :], strict=True)
            rows[below][column:] = [factor, *(number - factor * above for number, above in rest)]
    return swaps


def swap_rows(rows: Rows, row: int, number: object) -> None:
    """Swap a row in place with the one after it that has the number `number`, if there is one."""
    for below in range(row + 1, len(rows)):
        here = number == below
        pairs = list(zip(rows[row], rows[below], strict=True))
        rows[row] = [select(here, other, top) for top, other in pairs]
        rows[below] = [select(here, top, other) for top, other in pairs]


def solve_triangular(a: Rows, b: Rows, *, lower: bool, unit: bool = False) -> Rows:
    """Return x of ``a x = b`` for a triangular matrix; with `unit`, its diagonal counts as ones."""
    size = len(a)
    solved: Rows = [[]] * size
    for row in range(size) if lower else reversed(range(size)):
        before = range(row) if lower else range(row + 1, size)
        numbers = list(b[row])
        for column in before:
            numbers = [x - a[row][column] * y for x, y in zip(numbers, solved[column], strict=True)]
        solved[row] = numbers if unit else [x / a[row][row] for x in numbers]
    return solved


def solve_system(a: Rows, b: Rows) -> Rows:
    """Return x of ``a x = b``. A singular matrix gives infinities or NaN."""
    size = len(a)
    rows = [left + right for left, right in zip(a, b, strict=True)]
    factor_lu(rows, size)
    return solve_triangular([row[:size] for row in rows], [row[size:] for row in rows], lower=False)


def factor_cholesky(a: Rows) -> Rows:
    """Return the lower triangular L of ``a = L L*``, from the lower triangle of a."""
    size = len(a)
    factor: Rows = [[np.zeros_like(number) for number in row] for row in a]
    for row in range(size):
        for column in range(row + 1):
            rest = a[row][column]
            for k in range(column):
                rest = rest - factor[row][k] * np.conj(factor[column][k])
            factor[row][column] = np.sqrt(rest) if row == column else rest / factor[column][column]
    return factor


def determinant(a: Rows) -> Number:
    """Return the determinant of a square matrix."""
    rows = [list(row) for row in a]
    result = sign_of_swaps(factor_lu(rows, len(rows)), np.ones_like(rows[0][0]))
    for index, row in enumerate(rows):
        result = result * row[index]
    return result


def sign_of_swaps(swaps: Sequence[object], one: Number) -> Number:
    """Return the sign of the permutation that swaps make: `one` or its negative."""
    sign = one
    for row, other in enumerate(swaps):
        sign = select(other == row, sign, -sign)
    return sign


def unit_matrix(like: Rows) -> Rows:
    """Return the unit matrix of the size and type of a square matrix."""
    one, zero = np.ones_like(like[0][0]), np.zeros_like(like[0][0])
    return [[one if i == j else zero for j in range(len(like))] for i in range(len(like))]


def transpose_rows(a: Rows) -> Rows:
    """Return the rows of the transpose."""
    return [list(column) for column in zip(*a, strict=True)]


# ----- Arrays with matrices in their last two axes


def over_matrices(function: Callable[..., Sequence[object]], *arrays: Numbers) -> list[Numbers]:
    """Return what a function of matrices gives for each place of the axes before them.

    Args:
        function: takes rows of each array, and returns nested lists of numbers, or numbers.
        arrays: the arrays. Their axes before the last two are broadcast.
    """
    batch = np.broadcast_shapes(*(array.shape[:-2] for array in arrays))
    whole = [np.broadcast_to(array, (*batch, *array.shape[-2:])) for array in arrays]
    results_of_matrices: list[list[Numbers]] = []
    for at in np.ndindex(batch):
        parts = [array[at] for array in whole]
        unknown = any(is_other(number) for part in parts for number in part.flat)
        if unknown:
            # The results have the shapes that other matrices give.
            parts = [make_number_array(list(np.eye(*part.shape, dtype=np.float32).flat), part.shape) for part in parts]
        results = [_array(result) for result in function(*([list(row) for row in part] for part in parts))]
        results_of_matrices.append([np.full(result.shape, OTHER, object) for result in results] if unknown else results)
    return [
        make_number_array([number for result in parts for number in result.flat], (*batch, *parts[0].shape))
        for parts in zip(*results_of_matrices, strict=True)
    ]


def _array(numbers: object) -> Numbers:
    """Return nested lists of numbers as an array."""
    if not isinstance(numbers, list):
        return make_number_array([numbers], ())
    parts = [_array(row) for row in numbers]
    return make_number_array([number for part in parts for number in part.flat], (len(parts), *parts[0].shape))
