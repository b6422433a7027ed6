"""The traced forms of NumPy's functions of small matrices: systems of equations, inverses, factors, einsum.

Each is a composition of the operations on numbers, so that a gradient follows from the expression graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from gpuscan.operators.matrices import (
    Rows,
    determinant,
    factor_cholesky,
    solve_system,
    transpose_rows,
    unit_matrix,
)
from gpuscan.operators.source_location import missing_axis_error, operator_error
from gpuscan.operators.traced_array import Number, Traced, constant
from gpuscan.operators.traced_functions import common_nodes, register_form


def _matrices(name: str, *values: object) -> list[Traced]:
    """Return matrices of the element in their common type, which must be a float or complex one of NumPy's linalg."""
    nodes, graph, scalar = common_nodes(name, values)
    if scalar.name not in ("float32", "float64", "complex64"):
        raise operator_error(f"{name} of {scalar.name} is another type in NumPy; write .astype(np.float32) first")
    matrices = [Traced(graph, matrix, scalar) for matrix in nodes]
    if any(len(matrix.shape) != 2 for matrix in matrices) or matrices[0].shape[0] != matrices[0].shape[1]:
        shown = " and ".join(str(matrix.shape) for matrix in matrices)
        fewer = any(len(matrix.shape) < 2 for matrix in matrices)
        raise (missing_axis_error if fewer else operator_error)(
            f"{name} of elements of shape {shown}: each side must be a matrix of the element "
            "(gs.operator(function, element_axes=2)), the first one square; write v[..., None] for a vector, and "
            "[..., 0] on the result"
        )
    if matrices[-1].shape[0] != matrices[0].shape[0] or not matrices[0].shape[0]:
        raise operator_error(f"{name} of shapes {matrices[0].shape} and {matrices[-1].shape}: the sizes do not fit")
    return matrices


def _rows(matrix: Traced) -> Rows:
    return [[matrix[..., i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]


def _matrix(rows: Rows) -> Traced:
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)  # type: ignore[return-value]


@register_form(np.linalg.solve)
def solve(a: object, b: object) -> Traced:
    """Return the solution of a linear system. A singular matrix gives infinities or NaN, where NumPy raises."""
    a, b = _matrices("np.linalg.solve", a, b)
    return _matrix(solve_system(_rows(a), _rows(b)))


@register_form(np.linalg.inv)
def inv(a: object) -> Traced:
    (a,) = _matrices("np.linalg.inv", a)
    rows = _rows(a)
    return _matrix(solve_system(rows, unit_matrix(rows)))


@register_form(np.linalg.det)
def det(a: object) -> Number:
    (a,) = _matrices("np.linalg.det", a)
    return determinant(_rows(a))


@register_form(np.linalg.cholesky)
def cholesky(a: Number, *, upper: bool = False) -> Traced:
    """Return the Cholesky factor. A matrix that is not positive definite gives NaN, where NumPy raises."""
    (a,) = _matrices("np.linalg.cholesky", a)
    rows = _rows(a)
    if upper:
        # NumPy reads the upper triangle then.
        rows = factor_cholesky([[np.conj(number) for number in row] for row in transpose_rows(rows)])
        return _matrix([[np.conj(number) for number in row] for row in transpose_rows(rows)])
    return _matrix(factor_cholesky(rows))


@register_form(np.linalg.norm)
def norm(x: Traced, ord: object = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    if ord not in (None, 2):
        raise operator_error(f"np.linalg.norm with ord={ord!r} is not traced, but the Euclidean norm is: leave ord out")
    size = np.abs(x)
    return np.sqrt(np.sum(size * size, axis=axis, keepdims=keepdims))


@register_form(np.cross)
def cross(a: object, b: object) -> Number:
    nodes, graph, scalar = common_nodes("np.cross", [a, b])
    left, right = (Traced(graph, vector, scalar) for vector in nodes)
    if left.shape[-1:] != (3,) or right.shape[-1:] != (3,):
        raise operator_error(f"np.cross of elements of shape {left.shape} and {right.shape}; pass vectors of 3 numbers")
    (ax, ay, az), (bx, by, bz) = ([vector[..., i] for i in range(3)] for vector in (left, right))
    return np.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], axis=-1)


# ----- Sums of products


@register_form(np.einsum)
def einsum(subscripts: object, *operands: object) -> Traced:
    """Return sums of products by Einstein's convention; each sum is formed from left to right."""
    given, graph, scalar = common_nodes("np.einsum", operands, aligned=False)
    arrays = [Traced(graph, array_nodes, scalar) for array_nodes in given]
    terms, result = _parse_subscripts(subscripts, operands)
    sizes: dict[str, int] = {}
    for term, array in zip(terms, arrays, strict=True):
        if len(term) != len(array.shape):
            raise (missing_axis_error if len(term) > len(array.shape) else operator_error)(
                f"np.einsum({subscripts!r}): an operand of element shape {array.shape} has {len(array.shape)} axes, "
                f"its subscripts {term!r} name {len(term)}; write one letter for each axis of the element, after ..."
            )
        for letter, length in zip(term, array.shape, strict=True):
            if sizes.setdefault(letter, length) != length:
                raise operator_error(
                    f"np.einsum({subscripts!r}): {letter!r} has lengths {sizes[letter]} and {length}; use one letter "
                    "for axes of one length"
                )
    summed = [letter for letter in sizes if letter not in result]
    entries = np.empty([sizes[letter] for letter in result], dtype=object)
    for at in np.ndindex(entries.shape):
        total = None
        for others in product(*(range(sizes[letter]) for letter in summed)):
            index_of = dict(zip((*result, *summed), (*at, *others), strict=True))
            factor: Any = None
            for term, array in zip(terms, arrays, strict=True):
                number = array[(..., *(index_of[letter] for letter in term))]
                factor = number if factor is None else factor * number
            total = factor if total is None else total + factor
        entries[at] = (constant(graph, 0, scalar) if total is None else total).nodes[()]
    return Traced(graph, entries, scalar)


def _parse_subscripts(subscripts: object, operands: Sequence[object]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result, without the ellipsis that stands for the scanned axes."""
    if not isinstance(subscripts, str):
        raise operator_error("np.einsum is traced with subscripts as text, such as '...ij,...jk->...ik'")
    left, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if any(isinstance(operand, Traced) and operand.graph.whole for operand in operands):
        # A step of a loop knows all axes.
        terms = [term if term.startswith("...") else f"...{term}" for term in terms]
        result = f"...{result.removeprefix('...')}" if arrow else result
    if len(terms) != len(operands):
        raise operator_error(f"np.einsum({subscripts!r}) names {len(terms)} operands; {len(operands)} were passed")
    if not arrow:
        letters = "".join(terms).replace(".", "")
        result = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    plain = [term for term, operand in zip(terms, operands, strict=True) if isinstance(operand, Traced)]
    if not all(term.startswith("...") for term in (*plain, result)):
        raise operator_error(
            f"np.einsum({subscripts!r}) names every axis of an array, and an operator knows only those of its element; "
            "begin the subscripts of each operand and of the result with '...'"
        )
    parts = [term.removeprefix("...") for term in (*terms, result)]
    if not all(term.isalpha() or not term for term in parts) or not set(parts[-1]) <= set("".join(parts[:-1])):
        raise operator_error(f"np.einsum({subscripts!r}) is not traced; write it as '...ij,...jk->...ik'")
    if len(set(parts[-1])) < len(parts[-1]):
        raise operator_error(f"np.einsum({subscripts!r}) names an axis of the result twice")
    return parts[:-1], parts[-1]
