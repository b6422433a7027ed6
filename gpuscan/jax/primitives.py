"""The primitives of JAX that an operator may consist of, on arrays of numbers (`gpuscan.operators.components`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpuscan.operators.components import Numbers, apply, constants_of, contracted, converted, logistic, select

# Primitives that work number by number, and the function of numbers that does the same.
ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.fmod,
    "pow": np.power,
    "square": np.square,
    "sqrt": np.sqrt,
    "cbrt": np.cbrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "logistic": logistic,
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
    "floor": np.floor,
    "ceil": np.ceil,
    "is_finite": np.isfinite,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "complex": lambda real, imag: real + 1j * imag,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
}
# Primitives that combine numbers along axes.
FOLDS: dict[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": np.add,
    "reduce_prod": np.multiply,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
    "reduce_and": np.bitwise_and,
    "reduce_or": np.bitwise_or,
    "reduce_xor": np.bitwise_xor,
}
# Primitives that contain the primitives of a function.
CALLS = frozenset("jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr".split())
CALLS |= {"remat", "remat2", "checkpoint"}


def div(x: Numbers, y: Numbers, *, dtype: np.dtype[Any]) -> Numbers:
    if dtype.kind in "iu":
        raise NotImplementedError("div of integers")
    return apply(np.divide, x, y)


def shift_right(x: Numbers, y: Numbers, *, dtype: np.dtype[Any], kind: str) -> Numbers:
    if dtype.kind != kind:
        raise NotImplementedError(f"that shift of {dtype}")
    return apply(np.right_shift, x, y)


# Primitives that depend on the dtype of the result.
TYPED: dict[str, Callable[..., Numbers]] = {
    "div": div,
    "shift_right_arithmetic": partial(shift_right, kind="i"),
    "shift_right_logical": partial(shift_right, kind="u"),
}


def select_n(which: Numbers, *cases: Numbers) -> Numbers:
    if len(cases) != 2:
        raise NotImplementedError(f"select_n of {len(cases)} cases")
    return apply(select, which, cases[1], cases[0])


def rounded(x: Numbers, *, rounding_method: Any) -> Numbers:
    if int(rounding_method) != 1:
        raise NotImplementedError("round away from zero")
    return apply(np.rint, x)


def broadcast_in_dim(x: Numbers, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any) -> Numbers:
    own = [1] * len(shape)
    for axis, place in enumerate(broadcast_dimensions):
        own[place] = x.shape[axis]
    return np.broadcast_to(x.reshape(own), tuple(shape))


def sliced(x: Numbers, *, start_indices: Any, limit_indices: Any, strides: Any) -> Numbers:
    strides = strides or [None] * x.ndim
    return x[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, strides, strict=True))]


def dot_general(x: Numbers, y: Numbers, *, dimension_numbers: Any, **_: Any) -> Numbers:
    sums, batch = dimension_numbers
    return contracted(x, y, sums, batch)


def iota(*, dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> Numbers:
    along = np.arange(shape[dimension], dtype=dtype)
    others = [axis for axis in range(len(shape)) if axis != dimension]
    return constants_of(np.broadcast_to(np.expand_dims(along, others), tuple(shape)))


def reshape(x: Numbers, *, new_sizes: Sequence[int], dimensions: Any, **_: Any) -> Numbers:
    if dimensions is not None:
        raise NotImplementedError("reshape in another order")
    return x.reshape(tuple(new_sizes))


# Primitives with parameters.
OTHERS: dict[str, Callable[..., Any]] = {
    "integer_pow": lambda x, *, y: apply(lambda number: number**y, x),
    "select_n": select_n,
    "round": rounded,
    "broadcast_in_dim": broadcast_in_dim,
    "slice": sliced,
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1].tolist(), axis),
    "dot_general": dot_general,
    "iota": iota,
    "reshape": reshape,
    "convert_element_type": lambda x, *, new_dtype, **_: apply(partial(converted, dtype=np.dtype(new_dtype)), x),
    "squeeze": lambda x, *, dimensions: x.reshape([n for i, n in enumerate(x.shape) if i not in dimensions]),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose([int(axis) for axis in permutation]),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *arrays, dimension: np.concatenate(arrays, dimension),
    "stack": lambda *arrays, axis: np.stack(arrays, axis),
}
NAMES = sorted((*ELEMENTWISE, *FOLDS, *TYPED, *OTHERS))
