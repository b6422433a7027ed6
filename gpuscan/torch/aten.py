"""The operations of ATen that an operator may consist of, on arrays of numbers (`gpuscan.operators.components`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpuscan.operators.components import Numbers, apply, contracted, converted, folded, logistic, select

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
    "squeeze": squeeze,
    "slice": sliced,
    "select": lambda x, dim, index: x[(*[slice(None)] * (dim % x.ndim), index, ...)],
    "cat": lambda arrays, dim=0: np.concatenate(arrays, dim),
    "stack": lambda arrays, dim=0: np.stack(arrays, dim),
    "flip": lambda x, dims: np.flip(x, tuple(dims)),
    **dict.fromkeys(("split", "split_with_sizes"), split),
    "unbind": lambda x, dim=0: [np.squeeze(part, dim) for part in np.split(x, x.shape[dim], dim)],
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: x.diagonal(offset, dim1, dim2),
    **{name: partial(fold, function) for name, function in FOLDS.items()},
}


def to_dtype(x: Numbers, dtype: np.dtype[Any]) -> Numbers:
    return apply(partial(converted, dtype=dtype), x)


# Operations on constants alone are computed by torch; these make constants, or arrays like another one.
FULL = {"full_like": None, "ones_like": 1, "zeros_like": 0}
NAMES = sorted({*ELEMENTWISE, *OTHERS, *FULL})
