"""The traced forms of NumPy's array functions. They are the functions that are not ufuncs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Scalar, compute_dtype, scalar_of
from gpuscan.operators.expression_graph import BOOL, Graph, Node
from gpuscan.operators.parameters import Parameter
from gpuscan.operators.source_location import missing_axis_error, operator_error
from gpuscan.operators.traced_array import (
    ARRAY_FUNCTIONS,
    ElementShape,
    Number,
    Traced,
    broadcast_check,
    call_ufunc,
    check_float64,
    common_dtype,
    constant,
    dtype_or_type,
    elementwise,
    entries_along,
    find_scalar,
    is_python_integer,
    join_numbers,
    no_entries_error,
    operand,
    weak_dtype,
)

Form = TypeVar("Form", bound=Callable[..., object])


def register_form(*functions: object) -> Callable[[Form], Form]:
    """Register the traced form of NumPy functions."""

    def register(form: Form) -> Form:
        ARRAY_FUNCTIONS.update(dict.fromkeys(functions, form))
        return form

    return register


def common_nodes(name: str, values: Sequence[object], *, aligned: bool = True) -> tuple[list[AnyArray], Graph, Scalar]:
    """Return the nodes of values in their common type, the graph, and the type.

    Args:
        name: the function, as messages name it.
        aligned: True if their axes must fit each other. In operators they must anyway.
    """
    values = [join_numbers(value) for value in values]
    traced = [value for value in values if isinstance(value, Traced)]
    if not traced:
        raise operator_error(f"{name} has no traced value among its arrays; write a constant as np.full_like(x, 1)")
    if aligned or not traced[0].graph.whole:
        broadcast_check(name, traced)
    dtypes = [dtype_or_type(value, traced) for value in values]
    dtype = common_dtype(dtypes)
    check_float64(name, dtypes, [dtype], traced)
    scalar = find_scalar(dtype)
    return [operand(traced[0].graph, value, scalar) for value in values], traced[0].graph, scalar


# ---- choice


@register_form(np.where)
def where(condition: object, x: Any = None, y: Any = None, /) -> Traced:
    if x is None or y is None:
        raise operator_error("np.where(condition) alone lists indices, which are known only on the GPU; pass a and b")
    if any(isinstance(value, (tuple, list, dict)) for value in (condition, x, y)):
        raise operator_error(
            "np.where takes numbers, and a tuple or dict of them was passed; write one np.where for each field, "
            "such as (np.where(c, l[0], r[0]), np.where(c, l[1], r[1]))"
        )
    values = [value for value in (condition, x, y) if isinstance(value, Traced)]
    broadcast_check("np.where", values)
    graph = values[0].graph
    narrow = weak_dtype([dtype_or_type(join_numbers(value), values) for value in (x, y)], values)
    if narrow is not None:
        scalar = find_scalar(narrow)
        sides = [operand(graph, join_numbers(value), scalar) for value in (x, y)]
        chosen = elementwise(graph, graph.select, [operand(graph, condition, BOOL), *sides], scalar)
        return Traced(graph, chosen.nodes, scalar, weak=True)
    if not isinstance(x, Traced) and not isinstance(y, Traced):
        dtype = np.result_type(x, y)
        check_float64("np.where", [np.asarray(x).dtype, np.asarray(y).dtype], [dtype], values)
        x = constant(graph, x, find_scalar(dtype))
    (if_true, if_false), _, scalar = common_nodes("np.where", [x, y])
    return elementwise(graph, graph.select, [operand(graph, condition, BOOL), if_true, if_false], scalar)


@register_form(np.select)
def select(conditions: Sequence[object], choices: Sequence[object], default: object = 0) -> object:
    values = [join_numbers(value) for value in (*choices, default)]
    traced = [value for value in values if isinstance(value, Traced)]
    if traced and weak_dtype([dtype_or_type(value, traced) for value in values], traced) is None:
        # As in NumPy, all choices get one type, so that numbers of Python take the type of the others.
        nodes, graph, scalar = common_nodes("np.select", values)
        values = [Traced(graph, array, scalar) for array in nodes]
    *choices, result = values
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = where(condition, choice, result)
    return result


@register_form(np.choose)
def choose(a: object, choices: Sequence[object]) -> object:
    result = choices[-1]
    for position in reversed(range(len(choices) - 1)):
        result = where(a == position, choices[position], result)
    return result


@register_form(np.heaviside)
def heaviside(x1: Any, x2: Any) -> object:
    # Integers become floats, as in np.copysign.
    like = np.copysign(x1, x2)
    x1 = x1 if isinstance(x1, Traced) else full_like(like, x1)
    step = np.where(x1 > 0, full_like(like, 1), full_like(like, 0))
    step = np.where(np.isnan(x1), x1, step)
    return np.where(x1 == 0, x2, step)


@register_form(np.clip)
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> object:  # noqa: A002
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if isinstance(x, Traced) and x.scalar.is_integer:
        # As in NumPy, a Python number that excludes no number of the type is not a bound.
        limits = np.iinfo(x.dtype)
        low = None if is_python_integer(low) and low <= limits.min else low
        high = None if is_python_integer(high) and high >= limits.max else high
    if low is None and high is None:
        return np.positive(x)
    if low is not None and high is not None:
        x = _as_wide_as_bounds(x, low, high)
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _as_wide_as_bounds(x: object, low: object, high: object) -> object:
    """Return a number in the type that NumPy clips it in: one type for the number and both bounds.

    The lower bound is applied first. A Python integer would convert a bool to int64 before a bound of type
    int8 is seen.
    """
    if not isinstance(x, Traced) or x.weak or x.scalar.kind not in ("bool", "signed", "unsigned"):
        return x
    values = [join_numbers(value) for value in (x, low, high)]
    traced = [value for value in values if isinstance(value, Traced)]
    dtypes = [dtype_or_type(value, traced) for value in values]
    if all(isinstance(operand_type, type) for operand_type in dtypes[1:]):
        return x
    dtype = common_dtype(dtypes)
    check_float64("np.clip", dtypes, [dtype], traced)
    return x.astype(dtype)


@register_form(np.nan_to_num)
def nan_to_num(
    x: Traced, copy: bool = True, nan: object = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Traced:
    if not copy:
        raise operator_error("np.nan_to_num(x, copy=False) changes its argument; leave copy out")
    if x.scalar.kind != "float":
        return x.astype(x.dtype)
    limits = np.finfo(compute_dtype(x.scalar))
    high, low = (limits.max if posinf is None else posinf), (limits.min if neginf is None else neginf)
    infinite = where(np.signbit(x), full_like(x, float(low)), full_like(x, float(high)))
    return where(np.isnan(x), full_like(x, nan), where(np.isinf(x), infinite, x))


@register_form(np.isclose)
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> object:
    a, b = _as_float32_if_narrow(a), _as_float32_if_narrow(b)
    # Of a parameter of the call, only arithmetic with traced numbers is recorded.
    numbers = np.zeros_like(a) + b if type(b) is Parameter else b
    close = (np.isfinite(numbers) & ~np.isnan(a) & (_distance(a, b) <= atol + rtol * abs(b))) | (a == b)
    return close | (np.isnan(a) & np.isnan(numbers)) if equal_nan else close


def _distance(a: Any, b: Any) -> object:
    """Return the absolute difference, which of integers is unsigned, since it may be too large for a signed one."""
    if not isinstance(difference := a - b, Traced) or not difference.scalar.is_integer:
        return abs(difference)
    return (np.maximum(a, b) - np.minimum(a, b)).astype(f"u{difference.scalar.bits // 8}")


def _as_float32_if_narrow(x: Any) -> object:
    """Return bools and integers of up to 16 bits, which float32 holds, in float32: NumPy compares them as floats."""
    is_narrow = isinstance(x, Traced) and (x.scalar.kind == "bool" or x.scalar.is_integer)
    return x.astype(np.float32) if is_narrow and x.scalar.bits <= 16 else x


@register_form(np.round)
def round_(a: Traced, decimals: int = 0) -> Number:
    if not isinstance(decimals, int):
        raise operator_error(f"np.round takes a plain number of decimals; got {decimals!r}")
    if decimals == 0 or a.scalar.kind not in ("float", "complex"):
        if decimals and a.scalar.kind == "bool":
            raise operator_error(f"np.round of bool to decimals={decimals} has no result; write .astype(np.float32)")
        if decimals < 0:
            raise operator_error(f"np.round of {a.dtype} to decimals={decimals} is not traced; divide and multiply")
        return np.rint(a) if a.scalar.kind in ("float", "complex", "bool") else a.astype(a.dtype)
    scale = full_like(a, 10.0 ** abs(decimals))
    return np.rint(a * scale) / scale if decimals > 0 else np.rint(a / scale) * scale


# ---- arrays like another


@register_form(np.full_like)
def full_like(a: Traced, fill_value: object, dtype: object = None) -> Traced:
    like = a if dtype is None else a.astype(dtype)
    scalar = like.scalar if dtype is None else scalar_of(compute_dtype(like.scalar))  # a 16-bit dtype asks for rounding
    value = fill_value if isinstance(fill_value, Traced) else constant(a.graph, fill_value, scalar)
    nodes = np.broadcast_to(value.astype(like.dtype).nodes, like.shape).copy()
    return Traced(a.graph, nodes, like.scalar)


@register_form(np.zeros_like, np.empty_like)
def zeros_like(a: Traced, dtype: object = None) -> Traced:
    return full_like(a, 0, dtype)


@register_form(np.ones_like)
def ones_like(a: Traced, dtype: object = None) -> Traced:
    return full_like(a, 1, dtype)


@register_form(np.copy)
def copy(a: Traced) -> Traced:
    return Traced(a.graph, a.nodes.copy(), a.scalar)


# ---- parts of numbers


@register_form(np.real)
def real(val: Traced) -> Traced:
    return val.real


@register_form(np.imag)
def imag(val: Traced) -> Traced:
    return val.imag


# ---- axes of the element


def _axis(name: str, x: Traced, axis: object, *, new: bool = False) -> int:
    """Return a trailing axis, which must be counted from the end: on arrays the scanned axes come first."""
    count = len(x.shape) + new
    if x.graph.whole and isinstance(axis, int) and 0 <= axis < count:
        return axis
    if not isinstance(axis, int) or axis >= 0:
        raise operator_error(f"{name} takes an axis of the element, counted from the end (axis=-1); got axis={axis!r}")
    if axis < -count:
        what = f"an element of shape {x.shape}" if x.shape else "one number"
        raise missing_axis_error(
            f"{name} was called with axis={axis} for {what}, which has no such axis; pass an axis that it has, or an "
            "array with one more axis after the scanned one"
        )
    return axis


@register_form(np.stack)
def stack(arrays: Sequence[object], axis: int = 0) -> Traced:
    nodes, graph, scalar = common_nodes("np.stack", arrays)
    first = next(value for value in arrays if isinstance(value, Traced))
    full = [np.broadcast_to(array, first.shape) for array in nodes]
    return Traced(graph, np.stack(full, axis=_axis("np.stack", first, axis, new=True)), scalar)


@register_form(np.concatenate)
def concatenate(arrays: Sequence[object], axis: int = 0) -> Traced:
    nodes, graph, scalar = common_nodes("np.concatenate", arrays, aligned=False)
    first = next(value for value in arrays if isinstance(value, Traced))
    return Traced(graph, np.concatenate(nodes, axis=_axis("np.concatenate", first, axis)), scalar)


@register_form(np.swapaxes)
def swapaxes(a: Traced, axis1: int, axis2: int) -> Traced:
    axes = (_axis("np.swapaxes", a, axis) for axis in (axis1, axis2))
    return Traced(a.graph, np.swapaxes(a.nodes, *axes), a.scalar)


@register_form(np.expand_dims)
def expand_dims(a: Traced, axis: object) -> Traced:
    nodes = np.expand_dims(a.nodes, _axis("np.expand_dims", a, axis, new=True))
    return Traced(a.graph, nodes, a.scalar)


@register_form(np.squeeze)
def squeeze(a: Traced, axis: object = None) -> Traced:
    axis = _axis("np.squeeze", a, axis)
    if a.shape[axis] != 1:
        raise operator_error(f"np.squeeze of axis {axis}: it has {a.shape[axis]} entries; pass an axis of one entry")
    return Traced(a.graph, np.asarray(np.squeeze(a.nodes, axis), dtype=object), a.scalar)


@register_form(np.transpose)
def transpose(a: object, axes: Sequence[int] | None = None) -> Traced:
    if isinstance(a, Traced) and a.graph.whole:
        a.note_transposed()
        return Traced(a.graph, np.transpose(a.nodes, axes), a.scalar)
    raise operator_error(
        "np.transpose names every axis of an array, and an operator knows only those of its element; write "
        "np.swapaxes(x, -1, -2), or x.mT for a matrix"
    )


def _element_shape(name: str, x: Traced, shape: Any) -> tuple[int, ...]:
    """Return a shape that the user made of the shape of a traced value: on arrays it begins with the scanned axes."""
    if isinstance(shape, ElementShape) or x.graph.whole:
        return tuple(shape) if isinstance(shape, tuple) else (shape,)
    raise operator_error(
        f"{name} to {shape!r} names every axis of an array, and an operator knows only those of its element; begin "
        "with a shape that it has: x.shape[:-1] + (2, 2), or the shape of another value"
    )


@register_form(np.reshape)
def reshape(a: Traced, shape: object = None, *more: object) -> Traced:
    wanted = _element_shape("np.reshape", a, (shape, *more) if more else shape)
    a.note_number()
    try:
        return Traced(a.graph, a.nodes.reshape(wanted), a.scalar)
    except ValueError as error:
        raise operator_error(f"np.reshape of an element of shape {a.shape}: {error}") from None


@register_form(np.broadcast_to)
def broadcast_to(array: Traced, shape: object) -> Traced:
    wanted = _element_shape("np.broadcast_to", array, shape)
    if len(wanted) != len(array.shape):
        raise operator_error(
            f"np.broadcast_to of element shapes {array.shape} and {tuple(wanted)}: on arrays these axes would not line "
            "up; write x[..., None] to give a number an axis"
        )
    try:
        return Traced(array.graph, np.broadcast_to(array.nodes, wanted).copy(), array.scalar)
    except ValueError as error:
        raise operator_error(f"np.broadcast_to: {error}") from None


@register_form(np.flip)
def flip(m: Traced, axis: object = None) -> Traced:
    if axis is not None or not m.graph.whole:
        axis = _axis("np.flip", m, axis)
    m.note_number()
    return Traced(m.graph, np.asarray(np.flip(m.nodes, axis), object), m.scalar)


@register_form(np.roll)
def roll(a: Traced, shift: int, axis: object = None) -> Traced:
    if axis is not None or not a.graph.whole:
        axis = _axis("np.roll", a, axis)
    a.note_number()
    return Traced(a.graph, np.roll(a.nodes, shift, axis), a.scalar)


# ---- functions of all axes, which only a step of a loop knows


def _whole(name: str, advice: str, *values: object) -> list[Any]:
    """Return the values of a function of all axes of arrays."""
    arrays = [join_numbers(value) for value in values]
    if not next(value for value in arrays if isinstance(value, Traced)).graph.whole:
        raise operator_error(f"{name} of whole arrays would combine elements with each other; write {advice}")
    return arrays


@register_form(np.append)
def append(arr: object, values: object, axis: int | None = None) -> Traced:
    parts = _whole("np.append", "np.concatenate([a, b], axis=-1)", arr, values)
    if axis is None:
        parts = [part.reshape(-1) if isinstance(part, Traced) else np.ravel(part) for part in parts]
    return concatenate(parts, 0 if axis is None else axis)


@register_form(np.hstack)
def hstack(tup: Sequence[object]) -> Traced:
    parts = _whole("np.hstack", "np.concatenate([a, b], axis=-1)", *tup)
    parts = [part if np.ndim(part) else np.ravel(part) for part in parts]
    return concatenate(parts, min(1, np.ndim(parts[0]) - 1))


@register_form(np.ravel)
def ravel(a: object) -> Traced:
    (array,) = _whole("np.ravel", "x.reshape(...)", a)
    array.note_number()
    return Traced(array.graph, array.nodes.reshape(-1), array.scalar)


@register_form(np.shape)
def shape_of(a: object) -> tuple[int, ...]:
    return tuple(_whole("np.shape", "x.shape", a)[0].shape)


@register_form(np.ndim)
def ndim_of(a: object) -> int:
    return len(shape_of(a))


@register_form(np.diag)
def diag(v: object, k: int = 0) -> Traced:
    (array,) = _whole("np.diag", "x[..., i, i] for each entry", v)
    if len(array.shape) == 2:
        return Traced(array.graph, np.diagonal(array.nodes, k).copy(), array.scalar)
    nodes = np.diag(array.nodes, k)
    zero = array.graph.constant(0, array.scalar)
    kept = np.diag(np.ones(array.shape, bool), k)
    return Traced(array.graph, np.where(kept, nodes, np.array(zero, object)), array.scalar)


@register_form(np.take_along_axis)
def take_along_axis(arr: Traced, indices: object, axis: int = -1) -> Traced:
    """Choose each entry by a chain of selects, for the registers of an invocation cannot be indexed."""
    axis = _axis("np.take_along_axis", arr, axis)
    if not isinstance(indices, Traced):
        return Traced(arr.graph, np.take_along_axis(arr.nodes, np.asarray(indices), axis), arr.scalar)
    broadcast_check("np.take_along_axis", [arr, indices])
    wrapped = where(indices < 0, indices + arr.shape[axis], indices) if indices.scalar.kind == "signed" else indices
    _, (result, *others) = _entries("np.take_along_axis", arr, axis)
    for i, entry in enumerate(others, 1):
        result = where(wrapped == i, entry, result)
    return result


def _entries(name: str, a: Traced, axis: object, identity: object = None) -> tuple[int, list[Traced]]:
    """Return the axis of a reduction, and its entries as arrays of length 1. For None, all axes are joined into one.

    An axis without entries gets the identity as its only entry. There is an error if there is no identity.
    """
    if axis is None and a.graph.whole:
        a.note_number()
        a, axis = Traced(a.graph, a.nodes.reshape(-1), a.scalar), 0
    axis = _axis(name, a, axis)
    if a.shape[axis] == 0:
        if identity is None:
            raise no_entries_error(name, a.shape, axis)
        shape = [*a.shape]
        shape[axis] = 1
        return axis, [full_like(Traced(a.graph, np.empty(shape, object), a.scalar), identity)]
    return axis, [Traced(a.graph, np.take(a.nodes, [i], axis), a.scalar) for i in range(a.shape[axis])]


def _reduction(name: str, ufunc: np.ufunc, widens: bool = False) -> Callable[..., Traced]:
    """Return a reduction along a trailing axis, from left to right. Sums of integers are 64-bit, as NumPy's are."""

    def reduce(a: Traced, axis: object = None, dtype: object = None, *, keepdims: bool = False) -> Traced:
        if dtype is None and widens and a.scalar.kind in ("bool", "signed", "unsigned"):
            dtype = np.uint64 if a.scalar.kind == "unsigned" else np.int64
        axis, lines = _entries(name, a if dtype is None else a.astype(dtype), axis, ufunc.identity)
        total = functools.reduce(lambda left, right: call_ufunc(ufunc, (left, right))[0], lines)
        return total if keepdims else Traced(a.graph, np.asarray(np.squeeze(total.nodes, axis), object), total.scalar)

    return reduce


def _position(name: str, comparison: np.ufunc) -> Callable[..., Traced]:
    """Return the function that gives the index of the first entry that no other one exceeds. NaN exceeds numbers."""

    def find(a: Traced, axis: object = None, *, keepdims: bool = False) -> Traced:
        axis, lines = _entries(name, a, axis)
        best, position = lines[0], full_like(lines[0], 0, dtype=np.int64)
        for index, line in enumerate(lines[1:], 1):
            exceeds = comparison(line, best)
            if a.scalar.kind == "float":
                exceeds = exceeds | (np.isnan(line) & ~np.isnan(best))
            best, position = where(exceeds, line, best), where(exceeds, np.int64(index), position)
        nodes = position.nodes if keepdims else np.squeeze(position.nodes, axis)
        return Traced(a.graph, np.asarray(nodes, object), position.scalar)

    return find


register_form(np.argmax)(_position("np.argmax", np.greater))
register_form(np.argmin)(_position("np.argmin", np.less))


@register_form(np.mean)
def mean(a: Traced, axis: object = None, *, keepdims: bool = False) -> Number:
    if a.scalar.kind not in ("float", "complex"):
        raise operator_error(f"np.mean of {a.dtype} is float64 in NumPy; write .astype(np.float32) first")
    total = _reduction("np.mean", np.add)(a, axis, keepdims=keepdims)
    return total / full_like(total, a.size if axis is None else a.shape[axis])


register_form(np.sum)(_reduction("np.sum", np.add, widens=True))
register_form(np.prod)(_reduction("np.prod", np.multiply, widens=True))
register_form(np.min)(_reduction("np.min", np.minimum))
register_form(np.max)(_reduction("np.max", np.maximum))


@register_form(np.any)
def any_(a: Traced, axis: object = None, *, keepdims: bool = False) -> Traced:
    return _reduction("np.any", np.logical_or)(a.astype(bool), axis, keepdims=keepdims)


@register_form(np.all)
def all_(a: Traced, axis: object = None, *, keepdims: bool = False) -> Traced:
    return _reduction("np.all", np.logical_and)(a.astype(bool), axis, keepdims=keepdims)


@register_form(np.trace)
def trace(a: Traced, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Traced:
    if (axis1, axis2) != (-2, -1):
        raise operator_error("np.trace takes the first axes of an array; write np.trace(x, axis1=-2, axis2=-1)")
    diagonal = np.diagonal(a.nodes, offset, axis1, axis2)
    return _reduction("np.trace", np.add, widens=True)(Traced(a.graph, diagonal, a.scalar), -1)


def _is_constant(x: object) -> bool:
    """Return True for an array that does not depend on the arguments of the function."""
    return not isinstance(x, Traced) or all(node.is_constant for node in x.nodes.flat)


@register_form(np.matmul)
def matmul(x1: Any, x2: Any) -> Traced:
    """Return the product of two matrices. Every entry is summed from left to right."""
    x1, x2 = join_numbers(x1), join_numbers(x2)
    sizes = [len(np.shape(x) if not isinstance(x, Traced) else x.shape) for x in (x1, x2)]
    graph = next(x for x in (x1, x2) if isinstance(x, Traced)).graph
    if graph.whole and 1 in sizes:
        if sizes == [1, 1] and not any(map(_is_constant, (x1, x2))):
            graph.meets_vectors = True
        # A vector on the left is a row, one on the right a column.
        left = x1[None, :] if sizes[0] == 1 else x1
        right = x2[:, None] if sizes[1] == 1 else x2
        product = matmul(left, right)
        kept = product[0] if sizes[0] == 1 else product
        return kept[..., 0] if sizes[1] == 1 else kept
    if sizes != [2, 2]:
        raise (missing_axis_error if min(sizes) < 2 else operator_error)(
            "np.matmul multiplies the last two axes of both sides: each must be a matrix of the element "
            "(gs.operator(function, element_axes=2)); write np.matmul(m, v[..., None])[..., 0] for a vector"
        )
    (left, right), graph, scalar = common_nodes("np.matmul", [x1, x2], aligned=False)
    if left.shape[1] != right.shape[0]:
        raise operator_error(
            f"np.matmul of shapes {left.shape} and {right.shape}: the inner sizes differ; pass matrices that fit, or "
            "transpose one by .mT"
        )

    def times(a: Node, b: Node) -> Traced:
        pair = [Traced(graph, np.asarray(node, dtype=object), scalar) for node in (a, b)]
        return call_ufunc(np.multiply, pair)[0]

    entries = np.empty((left.shape[0], right.shape[1]), dtype=object)
    for i, j in np.ndindex(entries.shape):
        products = [times(left[i, k], right[k, j]) for k in range(left.shape[1])] or [constant(graph, 0, scalar)]
        entries[i, j] = functools.reduce(lambda a, b: call_ufunc(np.add, (a, b))[0], products).nodes[()]
    return Traced(graph, entries, scalar)


_PRODUCTS = "np.vecdot(a, b) or np.sum(a * b, axis=-1) for vectors, a @ b for matrices"


@register_form(np.dot)
def dot(a: Any, b: Any) -> Traced:
    """Return what np.dot gives for numbers, vectors and matrices."""
    a, b = _whole("np.dot", _PRODUCTS, a, b)
    if 0 not in (np.ndim(a), np.ndim(b)):
        return matmul(a, b)
    product: Traced = a * b
    product.graph.contracts_numbers = True
    return product


@register_form(np.inner)
def inner(a: object, b: Any) -> Traced:
    a, b = _whole("np.inner", _PRODUCTS, a, b)
    return dot(a, b.T if np.ndim(b) > 1 else b)


@register_form(np.outer)
def outer(a: object, b: object) -> object:
    """Return the products of all pairs of two arrays' entries."""
    a, b = (np.ravel(array) for array in _whole("np.outer", "a[..., :, None] * b[..., None, :]", a, b))
    return a[:, None] * b[None, :]


def vecdot(x1: Number, x2: Number) -> Traced:
    """Return the sum of conj(x1) * x2 along the last axis, from left to right."""
    return _reduction("np.vecdot", np.add)(np.conj(x1) * x2, -1)


def matvec(x1: Number, x2: Number) -> Traced:
    """Return the product of a matrix and a vector of the element."""
    return matmul(x1, x2[..., None])[..., 0]


@register_form(np.angle)
def angle(z: Traced, deg: bool = False) -> Number:
    radians = np.arctan2(z.imag, z.real)
    return np.degrees(radians) if deg else radians


def unstack(x: Traced, /, *, axis: int = 0) -> tuple[Traced, ...]:
    """Return the entries along an axis of the element."""
    return tuple(entries_along(x, _axis("np.unstack", x, axis)))


# NumPy has np.vecdot from 2.0 on, np.unstack from 2.1 on, and np.matvec from 2.2 on.
ARRAY_FUNCTIONS.update(
    {getattr(np, form.__name__): form for form in (vecdot, unstack, matvec) if hasattr(np, form.__name__)}
)
_TRANSPOSES = [
    module.matrix_transpose for module in (np, np.linalg) if hasattr(module, "matrix_transpose")
]  # from 2.0 on
ARRAY_FUNCTIONS.update(dict.fromkeys(_TRANSPOSES, lambda x: x.mT))
