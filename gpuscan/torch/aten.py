"""The operations of ATen that an operator may consist of, on arrays of numbers (`gpuscan.operators.components`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpuscan.operators.components import Numbers, apply, constants_of, contracted, converted, folded, logistic, select
from gpuscan.operators.matrices import (
    Rows,
    determinant,
    factor_cholesky,
    factor_lu,
    over_matrices,
    sign_of_swaps,
    solve_system,
    solve_triangular,
    unit_matrix,
)

# Operations that work number by number, and the function of numbers that does the same.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "mul": np.multiply,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "pow": lambda x, y: x**y,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "logaddexp": np.logaddexp,
    "sigmoid": logistic,
    "relu": lambda x: np.maximum(x, 0),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "hypot": np.hypot,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": np.invert,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "where": select,
    "conj": np.conj,
    "_conj": np.conj,
    "_conj_physical": np.conj,
    "real": np.real,
    "imag": np.imag,
    **dict.fromkeys(("clone", "alias", "detach", "lift_fresh_copy", "contiguous", "resolve_conj"), lambda x, **_: x),
}
# Operations that combine numbers along axes.
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "prod": np.multiply,
    "amax": np.maximum,
    "amin": np.minimum,
    "any": np.logical_or,
    "all": np.logical_and,
}


def fold(function: Callable[[Any, Any], Any], x: Numbers, dim: Any = None, keepdim: bool = False, **_: Any) -> Numbers:
    axes = range(x.ndim) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    if not x.ndim:
        return x
    found = folded(function, x, axes)
    return np.expand_dims(found, tuple(axis % x.ndim for axis in axes)) if keepdim else found


def mean(x: Numbers, dim: Any = None, keepdim: bool = False, **_: Any) -> Numbers:
    total = fold(np.add, x, dim, keepdim)
    count = x.size // max(1, total.size)
    return apply(lambda number: number / count, total)


def add(x: Any, y: Any, *, alpha: Any = 1) -> Numbers:
    return apply(lambda one, other: one + (other if alpha == 1 else other * alpha), x, y)


def subtract(x: Any, y: Any, *, alpha: Any = 1) -> Numbers:
    return apply(lambda one, other: one - (other if alpha == 1 else other * alpha), x, y)


def divide(x: Any, y: Any, *, rounding_mode: Any = None) -> Numbers:
    functions: dict[Any, Callable[..., Any]] = {
        None: np.divide,
        "floor": np.floor_divide,
        "trunc": lambda x, y: np.trunc(x / y),
    }
    return apply(functions[rounding_mode], x, y)


def clamp(x: Numbers, low: Any = None, high: Any = None) -> Numbers:
    if low is not None:
        x = apply(np.maximum, x, low)
    return x if high is None else apply(np.minimum, x, high)


def sliced(x: Numbers, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Numbers:
    return x[(*[slice(None)] * (dim % x.ndim), slice(start, end, step))]


def squeeze(x: Numbers, dim: Any = None) -> Numbers:
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    axes = {axis % x.ndim for axis in axes}
    return x.reshape([length for axis, length in enumerate(x.shape) if axis not in axes or length != 1])


def expand(x: Numbers, sizes: Sequence[int], **_: Any) -> Numbers:
    lead = len(sizes) - x.ndim
    shape = [x.shape[i - lead] if size == -1 else size for i, size in enumerate(sizes)]
    return np.broadcast_to(x, tuple(shape))


def split(x: Numbers, sizes: Any, dim: int = 0) -> list[Numbers]:
    length = x.shape[dim]
    each = list(range(sizes, length, sizes)) if isinstance(sizes, int) else np.cumsum(sizes)[:-1].tolist()
    return np.split(x, each, dim)


def matrix_product(x: Numbers, y: Numbers) -> Numbers:
    return contracted(x, y, ([1], [0]), ([], []))


# ----- Small matrices. Where torch also returns pivots and whether it failed, these return the same.


def lu_and_info(x: Numbers) -> list[Numbers]:
    """Return the factors, the pivots, which count from 1, and that nothing failed."""

    def factor(rows: Rows) -> tuple[Rows, list[Any]]:
        swaps = factor_lu(rows, len(rows[0]))
        return rows, [place + 1 for place in swaps]

    return [*over_matrices(factor, x), success(x)]


def success(x: Numbers) -> Numbers:
    return constants_of(np.zeros(x.shape[:-2], np.int32))


def turned(x: Numbers, conjugate: bool = False) -> Numbers:
    x = np.swapaxes(x, -1, -2)
    return apply(np.conj, x) if conjugate else x


def solve(a: Numbers, b: Numbers, *, left: bool = True, check_errors: bool = False) -> list[Numbers]:
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    one, other = (a, b[..., None] if is_vector else b) if left else (turned(a), turned(b))
    (x,) = over_matrices(lambda a, b: [solve_system(a, b)], one, other)
    x = x if left else turned(x)
    return [x[..., 0] if is_vector else x, *lu_and_info(a)]


def inverse(x: Numbers, *, check_errors: bool = False) -> list[Numbers]:
    return [*over_matrices(lambda rows: [solve_system(rows, unit_matrix(rows))], x), success(x)]


def det(x: Numbers) -> list[Numbers]:
    return [*over_matrices(lambda rows: [determinant(rows)], x), *lu_and_info(x)[:2]]


def slogdet(x: Numbers) -> list[Numbers]:
    def compute(rows: Rows) -> tuple[Any, Any]:
        sign = sign_of_swaps(factor_lu(rows, len(rows)), np.ones_like(rows[0][0]))
        logarithm = np.zeros_like(np.abs(sign))
        for place, row in enumerate(rows):
            size = np.abs(row[place])
            sign, logarithm = sign * (row[place] / size), logarithm + np.log(size)
        return sign, logarithm

    return [*over_matrices(compute, x), *lu_and_info(x)[:2]]


def cholesky(x: Numbers, *, upper: bool = False, check_errors: bool = False) -> list[Numbers]:
    (factor,) = over_matrices(lambda rows: [factor_cholesky(rows)], turned(x, True) if upper else x)
    return [turned(factor, True) if upper else factor, success(x)]


def triangular_solve(a: Numbers, b: Numbers, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Numbers:
    one, other, lower = (a, b, not upper) if left else (turned(a), turned(b), upper)
    (x,) = over_matrices(lambda a, b: [solve_triangular(a, b, lower=lower, unit=unitriangular)], one, other)
    return x if left else turned(x)


def cholesky_solve(b: Numbers, factor: Numbers, upper: bool = False) -> Numbers:
    lower = turned(factor, True) if upper else factor
    return triangular_solve(turned(lower, True), triangular_solve(lower, b, upper=False), upper=True)


def cholesky_inverse(factor: Numbers, upper: bool = False) -> Numbers:
    (unit,) = over_matrices(lambda rows: [unit_matrix(rows)], factor)
    return cholesky_solve(unit, factor, upper)


# Operations with parameters.
OTHERS: dict[str, Callable[..., Any]] = {
    "add": add,
    "sub": subtract,
    "rsub": lambda x, y, alpha=1: subtract(y, x, alpha=alpha),
    "div": divide,
    "clamp": clamp,
    "clamp_min": lambda x, low: clamp(x, low),
    "clamp_max": lambda x, high: clamp(x, None, high),
    "mean": mean,
    "mm": matrix_product,
    "bmm": lambda x, y: contracted(x, y, ([2], [1]), ([0], [0])),
    "mv": matrix_product,
    "dot": lambda x, y: contracted(x, y, ([0], [0]), ([], [])),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), lambda x, sizes: x.reshape(sizes)),
    "expand": expand,
    "permute": lambda x, dims: x.transpose(dims),
    "transpose": lambda x, one, other: np.swapaxes(x, one, other),
    "t": lambda x: x.T,
    "unsqueeze": lambda x, dim: np.expand_dims(x, dim),
    # torch itself uses the second one, on a tensor that it has just made.
    **dict.fromkeys(("squeeze", "squeeze_"), squeeze),
    "slice": sliced,
    "select": lambda x, dim, index: x[(*[slice(None)] * (dim % x.ndim), index, ...)],
    "cat": lambda arrays, dim=0: np.concatenate(arrays, dim),
    "stack": lambda arrays, dim=0: np.stack(arrays, dim),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    **dict.fromkeys(("split", "split_with_sizes"), split),
    "unbind": lambda x, dim=0: [np.squeeze(part, dim) for part in np.split(x, x.shape[dim], dim)],
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal(offset, dim1, dim2),
    **{name: partial(fold, function) for name, function in FOLDS.items()},
    "_linalg_solve_ex": solve,
    "linalg_inv_ex": inverse,
    "_linalg_det": det,
    "_linalg_slogdet": slogdet,
    "linalg_lu_factor_ex": lambda x, pivot=True, check_errors=False: lu_and_info(x),
    "linalg_cholesky_ex": cholesky,
    "linalg_solve_triangular": triangular_solve,
    "cholesky_solve": cholesky_solve,
    "cholesky_inverse": cholesky_inverse,
    "_linalg_check_errors": lambda *_, **__: None,
}


def to_dtype(x: Numbers, dtype: np.dtype[Any]) -> Numbers:
    return apply(partial(converted, dtype=dtype), x)


# Operations on constants alone are computed by torch; these make constants, or arrays like another one.
FULL = {"full_like": None, "ones_like": 1, "zeros_like": 0}
NAMES = sorted({*ELEMENTWISE, *OTHERS, *FULL})
