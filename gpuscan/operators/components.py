"""Functions of whole arrays as functions of their numbers: what operators written for other frameworks become.

A framework's graph works on arrays. Here each of its arrays is an object array of *numbers*. A number is a traced
value, a NumPy array of the scanned axes, or a constant. So slices, transposes and the like are NumPy's own, and
arithmetic is done number by number. Numbers of other rows than the one in question are `OTHER`. A result without
`OTHER` shows that the function keeps rows apart.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.operators.expression_graph import numpy_function
from gpuscan.operators.traced_array import Number, Traced, elementwise
from gpuscan.operators.traced_ufuncs import build

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.object_]]


class _Other:
    """A number of a row that is not computed."""

    def __repr__(self) -> str:
        return "OTHER"


OTHER = _Other()


def is_other(number: object) -> bool:
    """Return True if the number is not computed."""
    return number is OTHER


def make_number_array(numbers: Sequence[object], shape: tuple[int, ...]) -> Numbers:
    """Return an array of these numbers. `np.array` would take apart a number that is itself an array."""
    flat = np.empty(len(numbers), object)
    for index, number in enumerate(numbers):
        flat[index] = number
    return flat.reshape(shape)


def numbers_of(value: Number, shape: tuple[int, ...]) -> Numbers:
    """Return the numbers along the last axes of a traced value or an array, which have this shape."""
    return make_number_array([value[(..., *at)] for at in np.ndindex(shape)] if shape else [value], shape)


def constants_of(values: object) -> Numbers:
    """Return the numbers of an array of constants. 16-bit floats become float32, in which they are combined."""
    array = np.asarray(values)
    if is_narrow(array.dtype):
        array = array.astype(np.float32)
    return make_number_array(list(array.reshape(-1)), array.shape)


def is_narrow(dtype: AnyDType) -> bool:
    """Return True for a 16-bit float."""
    return dtype.itemsize == 2 and dtype.kind not in "iu"


def array_of(numbers: Numbers, like: object, dtype: AnyDType) -> Number:
    """Return a traced value or an array that has these numbers along its last axes.

    Args:
        like: a number of the argument; constants become arrays of its shape.
        dtype: the dtype of constants.
    """
    if numbers.ndim:
        parts = [numbers[i, ...] for i in range(len(numbers))]
        return np.stack([array_of(part, like, dtype) for part in parts], axis=-numbers.ndim)
    number = numbers[()]
    if isinstance(number, Traced) or np.ndim(number):
        return number
    return np.full_like(like, number, dtype=dtype)


def apply(function: Callable[..., object], *arrays: object) -> Numbers:
    """Return a function of numbers for each place of arrays, which are broadcast; single numbers are, too."""
    whole = np.broadcast_arrays(
        *(argument if isinstance(argument, np.ndarray) else make_number_array([argument], ()) for argument in arrays)
    )
    shape = whole[0].shape
    results = []
    for at in np.ndindex(shape):
        numbers = [array[at] for array in whole]
        results.append(OTHER if any(is_other(number) for number in numbers) else function(*numbers))
    return make_number_array(results, shape)


def fold_axes(function: Callable[..., object], array: Numbers, axes: Sequence[int]) -> Numbers:
    """Return the combination along axes, from the first to the last."""
    axes = sorted(axis % array.ndim for axis in axes)
    kept = [axis for axis in range(array.ndim) if axis not in axes]
    lines = array.transpose(*kept, *axes).reshape(*(array.shape[axis] for axis in kept), -1)
    return functools.reduce(functools.partial(apply, function), [lines[..., i] for i in range(lines.shape[-1])])


def contract_axes(
    left: Numbers, right: Numbers, sums: tuple[Sequence[int], Sequence[int]], batch: tuple[Sequence[int], Sequence[int]]
) -> Numbers:
    """Return the products of two arrays, summed along axes.

    The axes of the result are the batch axes, then the remaining axes of `left`, then the remaining axes of `right`.

    Args:
        left, right: the arrays.
        sums: the axes of each to sum along.
        batch: the axes of each that go together.
    """
    sides = []
    for array, summed, paired in zip((left, right), sums, batch, strict=True):
        own = [axis for axis in range(array.ndim) if axis not in (*summed, *paired)]
        sides.append(([array.shape[axis] for axis in own], array.transpose(*paired, *own, *summed), len(summed)))
    (left_own, a, count), (right_own, b, _) = sides
    lead = list(a.shape[: len(batch[0])])
    a = a.reshape(*lead, *left_own, *[1] * len(right_own), *a.shape[a.ndim - count :])
    b = b.reshape(*lead, *[1] * len(left_own), *right_own, *b.shape[b.ndim - count :])
    products = apply(np.multiply, a, b)
    return fold_axes(np.add, products, range(products.ndim - count, products.ndim)) if count else products


# ----- Functions of numbers that NumPy spells differently


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """Return `if_true` where the condition holds."""
    if isinstance(condition, (bool, np.bool_)):
        return if_true if condition else if_false
    return np.where(condition, if_true, if_false)


def logistic(x: Number) -> Number:
    """Return ``1 / (1 + exp(-x))``."""
    return 1 / (1 + np.exp(-x))


def erf(x: object) -> Any:
    """Return the error function, for which NumPy has no name."""
    if not isinstance(x, Traced):
        return numpy_function("erf")(x)
    return elementwise(x.graph, lambda node: build(x.graph, "erf", (node,), x.scalar), [x.nodes], x.scalar)


def convert_number(x: Number, dtype: AnyDType) -> Number:
    """Return the number in another dtype; for a 16-bit float in float32, in which such floats are combined."""
    dtype = np.dtype(np.float32) if is_narrow(dtype) else dtype
    return x.astype(dtype)


def of_numpy(names: str) -> dict[str, Callable[..., object]]:
    """Return the functions of NumPy with these names, by their names."""
    return {name: getattr(np, name) for name in names.split()}


# Functions of numbers that JAX and PyTorch give the same names.
COMMON: dict[str, Callable[..., object]] = {
    **of_numpy("sign abs square sqrt exp exp2 log log1p expm1 sin cos tan tanh sinh cosh floor ceil real imag conj"),
    "mul": np.multiply,
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": erf,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
