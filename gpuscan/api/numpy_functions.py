"""Compute NumPy's functions on `gpuscan.Array`, where scans, sorts, maps and views can do so on the device."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from gpuscan.api.array import Array, SomeArray, answer_protocols, as_some_array, new_array
from gpuscan.api.array_indices import find_true_indices, take_along_axis, take_at
from gpuscan.api.array_methods import Axes, Kind
from gpuscan.api.counting import bincount, histogram, searchsorted
from gpuscan.api.cumulative_sums import cumulative_prod, cumulative_sum
from gpuscan.api.launches import launchable
from gpuscan.api.map import is_number
from gpuscan.api.map import map as map_arrays
from gpuscan.api.outputs import Casting, check_casting, in_out
from gpuscan.api.reduce import reduce
from gpuscan.api.repetitions import repeat
from gpuscan.api.selecting import QuantileMethod, median, quantile
from gpuscan.api.sort import argsort, sort
from gpuscan.api.ufuncs import NO_OPTIONS, apply_ufunc, find_target, not_on_device, operand_type, select_by_held
from gpuscan.api.unique import find_unique, unique_all, unique_counts, unique_inverse, unique_values
from gpuscan.device.strides import broadcast_strides
from gpuscan.errors import OperatorError
from gpuscan.operators.operator import operator
from gpuscan.operators.parameter_array import ParameterArray, as_parameter_array, broadcast_array
from gpuscan.operators.parameters import as_parameter, reveal
from gpuscan.operators.traced_array import name_of_function
from gpuscan.problem.arguments import check_choice, resolve_axes, resolve_axis, tuple_of_integers
from gpuscan.problem.broadcasting import broadcast_shapes
from gpuscan.sizes import Size

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gpuscan.api.annotations import Value

# A function that computes on the device what a function of NumPy computes. It takes the same arguments.
Form = Callable[..., object]
F = TypeVar("F", bound=Form)
_FORMS: dict[Callable[..., object], Form] = {}
# For each function of one array, the name of its parameter. The array has to be on a device.
_ARRAYS: dict[Callable[..., object], str] = {}


def apply_function(function: Form, args: Sequence[object], options: Mapping[str, object] = NO_OPTIONS) -> object:
    """Return the result of a NumPy function for arrays on a device; `Array.__array_function__` calls this.

    Raises:
        TypeError: it is not computed on a device, or not with these options; the message names ``.numpy()``.
    """
    form = _FORMS.get(function)
    if form is None:
        raise not_on_device(name_of_function(function))
    if function in _ARRAYS:
        array = args[0] if args else options.get(_ARRAYS[function])
        if not isinstance(array, Array):
            raise not_on_device(f"{name_of_function(function)} of {type(array).__name__}")
    try:
        return form(*args, **options)
    except OperatorError as error:
        raise not_on_device(name_of_function(function), str(error).partition("\n")[0]) from error
    except TypeError as error:
        try:
            inspect.signature(form).bind(*args, **options)
        except TypeError as wrong:
            raise not_on_device(name_of_function(function), str(wrong)) from error
        raise


def _form_of(*functions: Callable[..., object]) -> Callable[[F], F]:
    """Add the decorated function to the forms of NumPy's functions.

    If its first parameter has the annotation ``Array``, `apply_function` takes only an array on a device there.
    """

    def add_form(form: F) -> F:
        _FORMS.update(dict.fromkeys(functions, form))
        first = next(iter(inspect.signature(form).parameters.values()))
        if first.annotation == "Array":
            _ARRAYS.update(dict.fromkeys(functions, first.name))
        return form

    return add_form


def _with_axis(array: Array, axis: int | None, single: bool = False) -> tuple[Array, int]:
    """Return an array and the number of its axis; for None, its elements in C order and their axis.

    Args:
        axis: an argument of a NumPy function.
        single: True for functions that take a single number for an axis of one element.
    """
    if axis is None or (single and not array.ndim and axis in (0, -1)):
        return (array if len(array._shape) == 1 else array.reshape(-1)), 0
    return array, resolve_axis(axis, array.shape)


# ----- Scans, reductions and sorts


def _running(ufunc: np.ufunc) -> Form:
    def form(a: Array, axis: int | None = None, dtype: object = None, out: object = None) -> object:
        array, axis = _with_axis(a, axis, single=True)
        return apply_ufunc(ufunc, "accumulate", (array,), {"axis": axis, "dtype": dtype, "out": out})

    return form


_form_of(np.cumsum)(_running(np.add))
_form_of(np.cumprod)(_running(np.multiply))
for _name, _cumulative in (("cumulative_sum", cumulative_sum), ("cumulative_prod", cumulative_prod)):
    if hasattr(np, _name):  # NumPy 2.1
        _form_of(getattr(np, _name))(_cumulative)


def _total(ufunc: np.ufunc) -> Form:
    def form(a: object, axis: object = None, dtype: object = None, out: object = None, **options: object) -> object:
        given = {name: value for name, value in options.items() if value is not np._NoValue}
        return apply_ufunc(ufunc, "reduce", (a,), {"axis": axis, "dtype": dtype, "out": out, **given})

    return form


_form_of(np.sum)(_total(np.add))
_form_of(np.prod)(_total(np.multiply))


def _extreme(ufunc: np.ufunc) -> Form:
    def form(a: object, axis: object = None, out: object = None, **options: object) -> object:
        return _total(ufunc)(a, axis, None, out, **options)

    return form


_form_of(np.max, np.amax)(_extreme(np.maximum))
_form_of(np.min, np.amin)(_extreme(np.minimum))
_form_of(np.any)(_extreme(np.logical_or))
_form_of(np.all)(_extreme(np.logical_and))


@_form_of(np.mean)
def _mean(a: Array, axis: Axes = None, dtype: Kind = None, out: Array | None = None, keepdims: bool = False) -> Array:
    result_dtype = a.dtype if dtype is None else np.dtype(dtype)
    if result_dtype.kind in "biu":
        raise not_on_device(f"np.mean of {result_dtype}", "the mean of integers is float64; pass dtype=np.float32")
    # Halves are summed as float32, as in NumPy.
    wide = np.dtype(np.float32) if result_dtype.itemsize == 2 else result_dtype
    count = as_parameter(prod(a.shape[number] for number in resolve_axes(axis, a.shape)))
    mean: Array = reduce(
        a, axis=axis, dtype=wide, after=lambda total: (total / count).astype(result_dtype), keepdims=keepdims
    )
    return in_out(mean, out, "unsafe")


def _spread_of(name: str) -> Form:
    """Return the form of np.var or np.std."""

    def form(
        a: Array,
        axis: Axes = None,
        dtype: Kind = None,
        out: Array | None = None,
        ddof: float = 0,
        keepdims: bool = False,
        *,
        mean: Any = np._NoValue,
        correction: Any = np._NoValue,
    ) -> Array:
        own_dtype = a.dtype if dtype is None else np.dtype(dtype)
        if own_dtype.kind in "biu":
            raise not_on_device(f"{name} of {own_dtype}", f"{name} of integers is float64; pass dtype=np.float32")
        if (own_dtype.kind == "c") != (a.dtype.kind == "c"):
            raise not_on_device(f"{name}(dtype={own_dtype}) of {a.dtype}", "complex numbers stay complex there")
        own = resolve_axes(axis, a.shape)
        given = ddof if correction is np._NoValue else correction
        freedom = as_parameter(max(prod(a.shape[number] for number in own) - given, 0))
        wide = np.dtype(np.float32) if own_dtype.itemsize == 2 else own_dtype
        is_root = name == "np.std"

        def finish(squares: Value) -> object:
            spread = np.sqrt(squares / freedom) if is_root else squares / freedom
            return spread.astype(own_dtype) if own_dtype.kind == "f" else spread

        def square(pair: Sequence[Value]) -> Any:
            distance = pair[0].astype(wide) - pair[1]
            return (distance * np.conj(distance)).real

        if mean is np._NoValue:
            middle = np.broadcast_to(_mean(a, axis, wide, keepdims=True), a.shape)
            spread: Array = reduce((a, middle), axis=axis, keepdims=keepdims, before=square, after=finish)
        else:
            squares = map_arrays(lambda x, m: square((x, m)), a, mean)
            spread = reduce(squares, axis=axis, keepdims=keepdims, after=finish)
        return in_out(spread, out, "same_kind" if is_root else "unsafe")

    return form


_form_of(np.var)(_spread_of("np.var"))
_form_of(np.std)(_spread_of("np.std"))


def _sorting(function: Callable[..., Array]) -> Form:
    def form(a: Array, axis: int | None = -1, kind: Any = None, *, stable: bool | None = None) -> Array:
        np.sort([], kind=kind, stable=stable)  # NumPy checks these. Every sort is stable.
        # NumPy ranks a single number, and refuses to sort it.
        array, axis = _with_axis(a, axis, single=function is argsort)
        return function(array, axis=axis)

    return form


_form_of(np.sort)(_sorting(sort))
_form_of(np.argsort)(_sorting(argsort))


# ----- Counts, ranks and selections


@_form_of(np.unique)
def _unique(
    ar: Array,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,  # noqa: A002
) -> object:
    del sorted  # They are in order in any case.
    if axis is not None and (ar.ndim != 1 or axis not in (0, -1)):
        raise not_on_device(f"np.unique(axis={axis}) of an array of shape {ar.shape}")
    unique = find_unique(ar, indices=return_index, inverse=return_inverse, equal_nan=equal_nan)
    parts = (unique.indices, unique.inverse_indices, unique.counts)
    requested = (return_index, return_inverse, return_counts)
    results = (unique.values, *(part for part, wanted in zip(parts, requested, strict=True) if wanted))
    return results if len(results) > 1 else results[0]


for _name, _found in (
    ("unique_values", unique_values),
    ("unique_counts", unique_counts),
    ("unique_inverse", unique_inverse),
    ("unique_all", unique_all),
):
    if hasattr(np, _name):  # NumPy 2.0
        _form_of(getattr(np, _name))(_found)

_form_of(np.repeat)(
    lambda a, repeats, axis=None: repeat(a if axis is None or np.ndim(a) else a.reshape(1), repeats, axis=axis)
)
_form_of(np.searchsorted)(lambda a, v, side="left", sorter=None: searchsorted(a, v, side=side, sorter=sorter))
_form_of(np.bincount)(lambda x, /, weights=None, minlength=0: bincount(x, weights, minlength))


@_form_of(np.histogram)
def _histogram(
    a: Any,
    bins: int | str | ArrayLike = 10,
    range: tuple[float, float] | None = None,  # noqa: A002
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> object:
    if density:
        raise not_on_device(
            "np.histogram(density=True)", "divide the counts by their sum and by the widths of the bins"
        )
    return histogram(a, bins, range, weights)


@_form_of(np.partition)
def _partition(a: Array, kth: object, axis: int | None = -1, kind: str = "introselect", order: object = None) -> Array:
    if kind != "introselect" or order is not None:
        raise not_on_device(f"np.partition(kind={kind!r}, order={order!r})")
    array, axis = _with_axis(a, axis)
    for position in tuple_of_integers("kth", kth if np.iterable(kth) else (kth,)):
        if array.size and not -array.shape[axis] <= position < array.shape[axis]:
            raise ValueError(
                f"kth={position} was passed for an axis of length {array.shape[axis]}; pass one of its indices"
            )
    return sort(array, axis=axis)


@_form_of(np.quantile)
def _quantile(
    a: Array,
    q: ArrayLike,
    axis: Axes = None,
    out: object = None,
    overwrite_input: bool = False,
    method: QuantileMethod = "linear",
    keepdims: bool = False,
) -> object:
    del overwrite_input
    quantiles = quantile(a, q, axis=axis, method=method, keepdims=keepdims)
    return in_out(quantiles, out, "same_kind")


@_form_of(np.median)
def _median(
    a: Array, axis: Axes = None, out: object = None, overwrite_input: bool = False, keepdims: bool = False
) -> object:
    del overwrite_input
    return in_out(median(a, axis=axis, keepdims=keepdims), out, "unsafe")


@_form_of(np.diff)
def _diff(a: Array, n: int = 1, axis: int = -1, prepend: object = np._NoValue, append: object = np._NoValue) -> object:
    n = index(n)
    if n < 0:
        raise ValueError(f"n={n} was passed, but it is how often differences are taken; pass 0 or more")
    if n == 0:
        return a
    if not a.ndim:
        raise ValueError(
            "the differences of an array of shape () were asked for, but a single number has none. Pass an array of "
            "one axis or more"
        )
    resolved_axis = resolve_axis(reveal(axis), a.shape)
    ends = []
    for given in (prepend, a, append):
        if given is np._NoValue:
            continue
        unknown = as_parameter_array(given)
        part: Any = as_some_array(given) if unknown is None else unknown
        if not part.ndim:
            part = broadcast_array(part, (*a.shape[:resolved_axis], 1, *a.shape[resolved_axis + 1 :]))
        ends.append(part)
    differences = _concatenate(ends, resolved_axis) if len(ends) > 1 else a
    before = (slice(None),) * resolved_axis
    # Nothing is left after as many differences as there are elements.
    for _ in range(min(n, differences.shape[resolved_axis])):
        later, earlier = differences[(*before, slice(1, None))], differences[(*before, slice(None, -1))]
        differences = later != earlier if differences.dtype == np.bool_ else later - earlier
    return differences


@_form_of(np.nonzero)
def _nonzero(a: Array) -> tuple[Array, ...]:
    if not a.ndim:
        raise ValueError("np.nonzero of an array of shape () was asked for, which has no axis. Pass a[np.newaxis]")
    return find_true_indices(a if a.dtype == np.bool_ else a != 0)


def _first_extreme(name: str, comes_first: Callable[[Value, Value], Value]) -> Form:
    """Return the form of a function that returns the index of the first greatest or least element, or of a NaN."""

    def earlier(left: tuple[Value, Value], right: tuple[Value, Value]) -> object:
        value, index = left
        other, other_index = right
        changes = comes_first(other, value) | ((other != other) & (value == value))
        return np.where(changes, other, value), np.where(changes, other_index, index)

    chosen = operator(earlier, name=name)

    def form(a: Array, axis: int | None = None, out: object = None, *, keepdims: object = np._NoValue) -> object:
        if not a.ndim and axis in (0, -1):
            axis = None  # as in NumPy, which takes a single number for an axis of one
        flat = a.reshape(-1) if axis is None else a
        resolved_axis = 0 if axis is None else resolve_axis(axis, a.shape)
        if not flat.shape[resolved_axis]:
            raise ValueError(f"{name} of an array of shape {a.shape} was asked for, but the axis has no elements")
        flat = flat.astype(np.uint8) if flat.dtype == np.bool_ else flat
        _, indices = reduce(flat, chosen, axis=resolved_axis, before=_with_index)
        indices = indices.astype(np.uint32)
        if keepdims is not np._NoValue and keepdims:
            shape = [1 if axis is None or i == resolved_axis else n for i, n in enumerate(a.shape)]
            indices = indices.reshape(tuple(shape))
        return in_out(indices, out)

    return form


def _with_index(value: object, index: object) -> object:
    return value, index


_form_of(np.argmax)(_first_extreme("np.argmax", lambda a, b: a > b))
_form_of(np.argmin)(_first_extreme("np.argmin", lambda a, b: a < b))


# ----- Functions of every element


@_form_of(np.where)
def _where(condition: object, x: object = None, y: object = None, /) -> object:
    if x is None or y is None:
        raise not_on_device("np.where(condition)", "the number of its results is known only on the device")
    return map_arrays(lambda c, x, y: np.where(c, x, y), condition, x, y)


@_form_of(np.clip)
def _clip(
    a: object,
    a_min: object = None,
    a_max: object = None,
    out: Array | None = None,
    *,
    min: object = None,  # noqa: A002
    max: object = None,  # noqa: A002
) -> object:
    a_min, a_max = (min if a_min is None else a_min), (max if a_max is None else a_max)
    bounds = [bound for bound in (a_min, a_max) if bound is not None]
    has_bounds = a_min is not None, a_max is not None  # the function is kept, so it must not refer to the arrays

    def clip_value(value: Any, *given: Any) -> object:
        rest = iter(given)
        low, high = (next(rest) if has_bound else None for has_bound in has_bounds)
        return np.clip(value, low, high)

    return map_arrays(clip_value, a, *bounds, out=out)


@_form_of(np.array_equal)
def _array_equal(a1: SomeArray, a2: SomeArray, equal_nan: bool = False) -> object:
    if np.shape(a1) != np.shape(a2):
        return False
    same = map_arrays(lambda a, b: (a == b) | ((a != a) & (b != b) if equal_nan else False), a1, a2)
    return apply_ufunc(np.logical_and, "reduce", (same,), {"axis": None})


@_form_of(np.isclose)
def _isclose(a: object, b: object, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> object:
    def close(a: Any, b: Any) -> Any:
        return np.isclose(a, b, rtol, atol, equal_nan)

    return map_arrays(close, a, b)


@_form_of(np.allclose)
def _allclose(a: object, b: object, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> object:
    return apply_ufunc(np.logical_and, "reduce", (_isclose(a, b, rtol, atol, equal_nan),), {"axis": None})


# ----- Views and shapes


_form_of(np.shape)(lambda a: a.shape)
_form_of(np.ndim)(lambda a: a.ndim)
_form_of(np.ravel)(lambda a: a.ravel())
_form_of(np.transpose)(lambda a, axes=None: a.transpose(axes))
_form_of(np.swapaxes)(lambda a, axis1, axis2: a.swapaxes(axis1, axis2))
_form_of(np.reshape)(lambda a, /, shape: a.reshape(shape))
_form_of(np.copy)(lambda a: a.copy())
_form_of(np.round, np.around)(lambda a, decimals=0, out=None: map_arrays(lambda v: np.round(v, decimals), a, out=out))


@_form_of(np.squeeze)
def _squeeze(a: Array, axis: Axes = None) -> Array:
    chosen = set(resolve_axes(axis if a.ndim or axis not in (0, -1) else None, a.shape))
    if axis is not None and any(a.shape[number] != 1 for number in chosen):
        raise ValueError(f"axis={axis} of an array of shape {a.shape} was to be removed; pass axes of length 1")
    return a[tuple(0 if i in chosen and n == 1 else slice(None) for i, n in enumerate(a.shape))]


@_form_of(np.moveaxis)
def _moveaxis(a: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...]) -> Array:
    # The lengths of this empty array are the numbers of its axes.
    numbered = np.empty(tuple(range(a.ndim)))
    return a.transpose(np.moveaxis(numbered, source, destination).shape)


@_form_of(np.empty_like)
def _empty_like(prototype: Array, dtype: object = None) -> Array:
    return new_array(prototype.device, None, prototype.shape, prototype.dtype if dtype is None else dtype)


@_form_of(np.full_like)
def _full_like(a: Array, fill_value: object, dtype: object = None) -> Array:
    result = _empty_like(a, dtype)
    result[...] = fill_value
    return result


_form_of(np.zeros_like)(lambda a, dtype=None: _full_like(a, 0, dtype))
_form_of(np.ones_like)(lambda a, dtype=None: _full_like(a, 1, dtype))


@_form_of(np.concatenate)
def _concatenate(
    arrays: Iterable[object],
    /,
    axis: int | None = 0,
    out: Array | None = None,
    *,
    dtype: Kind = None,
    casting: Casting = "same_kind",
) -> Array:
    if out is not None and dtype is not None:
        raise TypeError(f"out and dtype={dtype} were both passed, but out has a dtype of its own. Pass one of them")
    parts: list[Any] = [part if isinstance(part, ParameterArray) else as_some_array(part) for part in arrays]
    if axis is None:
        parts, axis = [part.reshape(-1) for part in parts], 0
    first = next(part for part in (*parts, out) if isinstance(part, Array))
    axis = resolve_axis(axis, parts[0].shape)
    # An array with another number of axes is left as it is, and has another shape than the others.
    others = [
        (*part.shape[:axis], *part.shape[axis + 1 :]) if part.ndim == parts[0].ndim else (part.shape,) for part in parts
    ]
    if any(part != others[0] for part in others):
        shown = ", ".join(str(part.shape) for part in parts)
        raise ValueError(
            f"arrays of the shapes {shown} were to be joined along axis {axis}, but only their lengths along that axis "
            "may differ. Pass arrays that agree along the other axes"
        )
    length = sum(part.shape[axis] for part in parts)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    common = np.result_type(*(part.dtype for part in parts))
    result_dtype = out.dtype if out is not None else common if dtype is None else np.dtype(dtype)
    for part in parts:
        check_casting(part.dtype, result_dtype, casting)
    # A new array also with `out`, which a part that cannot be copied would leave half written.
    result, end = new_array(first.device, None, shape, result_dtype), 0
    for part in parts:
        start, end = end, end + part.shape[axis]
        result[(slice(None),) * axis + (slice(start, end),)] = part
    return in_out(result, out)


@_form_of(np.stack)
def _stack(arrays: Sequence[object], axis: int = 0, out: Array | None = None, *, dtype: Kind = None) -> Array:
    parts = [as_some_array(part) for part in arrays]
    if any(part.shape != parts[0].shape for part in parts):
        shown = ", ".join(str(part.shape) for part in parts)
        raise ValueError(f"arrays of the shapes {shown} were to be stacked; pass arrays of one shape")
    axis = resolve_axis(axis, (1, *parts[0].shape))
    return _concatenate([part[(slice(None),) * axis + (None,)] for part in parts], axis, out, dtype=dtype)


@_form_of(np.vstack)
def _vstack(tup: Sequence[object], *, dtype: Kind = None) -> Array:
    parts = [part if part.ndim > 1 else part.reshape(1, -1) for part in map(as_some_array, tup)]
    return _concatenate(parts, 0, dtype=dtype)


@_form_of(np.hstack)
def _hstack(tup: Sequence[object], *, dtype: Kind = None) -> Array:
    parts = [part if part.ndim else part.reshape(1) for part in map(as_some_array, tup)]
    return _concatenate(parts, min(parts[0].ndim - 1, 1), dtype=dtype)


_form_of(np.append)(lambda arr, values, axis=None: _concatenate([arr, values], axis))


@_form_of(np.copyto)
def _copyto(dst: Array, src: ArrayLike, casting: Casting = "same_kind", where: object = True) -> None:
    kind = operand_type(src if is_number(src) else as_some_array(src))
    # Python's numbers take the dtype of the array, if it has numbers of their kind.
    check_casting(np.result_type(dst.dtype, kind(0)) if isinstance(kind, type) else kind, dst.dtype, casting)
    if where is True:
        dst[...] = src
        return
    value = new_array(dst.device, None, () if is_number(src) else np.shape(src), dst.dtype)
    value[...] = src
    map_arrays(lambda mask, new, old: np.where(mask, new, old), where, value, dst, out=dst)


@_form_of(np.size)
def _size(a: Array, axis: Axes = None) -> int:
    return prod(a.shape[number] for number in resolve_axes(axis, a.shape))


@_form_of(np.flip)
def _flip(m: Array, axis: Axes = None) -> Array:
    turned = set(resolve_axes(axis, m.shape))
    return m[tuple(slice(None, None, -1 if i in turned else 1) for i in range(m.ndim))]


_form_of(np.flipud)(lambda m: _flip(m, 0))
_form_of(np.fliplr)(lambda m: _flip(m, 1))


@_form_of(np.expand_dims)
def _expand_dims(a: Array, axis: object) -> Array:
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shape = (1,) * (a.ndim + len(axes))
    new = resolve_axes(axes, shape)
    return a[tuple(None if i in new else slice(None) for i in range(len(shape)))]


@_form_of(np.broadcast_to)
def _broadcast_to(array: Array, shape: int | tuple[int, ...]) -> Array:
    wanted = tuple_of_integers("shape", shape if np.iterable(shape) else (shape,))
    if any(length < 0 for length in wanted) or broadcast_shapes(array.shape, wanted) != wanted:
        raise ValueError(f"an array of shape {array.shape} was to be broadcast to {wanted}; pass a shape that it fits")
    return array._view_at(wanted, broadcast_strides(array.shape, array.strides, wanted))


# ----- Elements at indices


_form_of(np.real)(lambda val: val.real)
_form_of(np.imag)(lambda val: val.imag)


@_form_of(np.take)
def _take(a: Array, indices: object, axis: int | None = None, out: object = None, mode: str = "raise") -> Array:
    check_choice("mode", mode, ("raise", "wrap", "clip"))
    array, axis = _with_axis(a, axis, single=True)
    if type(indices) in (int, Size) and mode == "raise":
        return in_out(array[(*[slice(None)] * axis, indices)].copy(), out)
    given = as_some_array(indices)
    if not given.size and not isinstance(given, Array):
        given = given.astype(np.intp)
    if given.dtype.kind not in "iu":
        raise TypeError(f"indices of dtype {given.dtype} were passed to np.take; pass integers, or index by a mask")
    if mode != "raise" and given.size and (length := array.shape[axis]):
        wide = given.astype(np.int64)
        given = wide % length if mode == "wrap" else np.clip(wide, 0, length - 1)
    return in_out(take_at(array, given, axis), out)


@_form_of(np.take_along_axis)
def _take_along_axis(arr: Array, indices: object, axis: int | None = -1) -> Array:
    array, axis = _with_axis(arr, axis)
    return take_along_axis(array, indices, axis)


@_form_of(np.roll)
def _roll(a: Array, shift: int | tuple[int, ...], axis: Axes = None) -> Array:
    if axis is None:
        return _roll(a.reshape(-1), shift, 0).reshape(a.shape)
    moves = [0] * a.ndim
    steps, axes = (tuple(given) if np.iterable(given) else (given,) for given in (shift, axis))
    (count,) = np.broadcast_shapes((len(steps),), (len(axes),))
    steps, axes = (given * count if len(given) == 1 else given for given in (steps, axes))
    for step, moved_axis in zip(steps, axes, strict=True):
        moves[resolve_axis(moved_axis, a.shape)] += step if type(step) is Size else int(step)
    result = new_array(a.device, None, a.shape, a.dtype)
    # Along each axis, the begin of the array goes after its end.
    cuts = [(step % max(n, 1), n) for step, n in zip(moves, a.shape, strict=True)]
    pairs_by_axis = [
        [(np.s_[cut:], np.s_[: n - cut]), *([(np.s_[:cut], np.s_[n - cut :])] if cut else [])] for cut, n in cuts
    ]
    for pairs in product(*pairs_by_axis):
        result[tuple(target for target, _ in pairs)] = a[tuple(source for _, source in pairs)]
    return result


@_form_of(np.tile)
def _tile(A: Array, reps: object) -> Array:  # noqa: N803 (NumPy's name)
    counts = tuple_of_integers("reps", reps if np.iterable(reps) else (reps,))
    axes = max(len(counts), A.ndim)
    counts, shape = (1,) * (axes - len(counts)) + counts, (1,) * (axes - A.ndim) + A.shape
    pairs = tuple(length for pair in zip(counts, shape, strict=True) for length in pair)
    apart = A.reshape(tuple(length for n in shape for length in (1, n)))
    lengths = tuple(count * n for count, n in zip(counts, shape, strict=True))
    return _broadcast_to(apart, pairs).copy().reshape(lengths)


# Functions that look at arrays of NumPy on the CPU, and then call a function that launches a program.
_OF_CHECKED = frozenset({np.take, np.take_along_axis, np.repeat})
_OPERANDS = frozenset({"args", "options"})
_launch: Callable[..., object] = launchable(apply_function)
_with_arrays = launchable(apply_function, operands=_OPERANDS, data=_OPERANDS)
_with_integers = launchable(apply_function, operands=_OPERANDS, data=_OPERANDS, integers=_OPERANDS)
# How functions of numbers, arrays and positions are launched. What waits for the device, or needs none, is no program.
_LAUNCHES: dict[object, Callable[..., object]] = {
    np.histogram: launchable(apply_function, operands=_OPERANDS),
    **dict.fromkeys((np.isclose, np.concatenate, np.stack, np.vstack, np.hstack, np.append), _with_arrays),
    **dict.fromkeys((np.array_equal, np.allclose), lambda *call: bool(_with_arrays(*call))),
    **dict.fromkeys((np.sum, np.prod, np.max, np.min, np.copyto, np.full_like), _with_integers),
    **dict.fromkeys((np.where, np.clip, np.diff), _with_integers),
    **dict.fromkeys((np.searchsorted, np.bincount, np.quantile), apply_function),
    **dict.fromkeys((np.shape, np.ndim, np.size), apply_function),
    **dict.fromkeys((np.roll, np.tile, np.partition, np.repeat, np.take), launchable(apply_function, counts=_OPERANDS)),
}


def _answer(function: Callable[..., object], args: Sequence[object], options: Mapping[str, object]) -> object:
    if function in _OF_CHECKED and not {np.ndarray, list}.isdisjoint(map(type, args)):
        return apply_function(function, args, options)
    if function is np.where and (selected := select_by_held(args)) is not None:
        return selected
    launch = _LAUNCHES.get(function, _launch)
    if launch is _with_arrays or launch is _with_integers:
        at, name = find_target(_FORMS[function])
        if isinstance(args[at] if at < len(args) else options.get(name), np.ndarray):
            return apply_function(function, args, options)  # It refuses the array. A program would write a copy.
    return launch(function, args, options) if options else launch(function, args)


answer_protocols(function=_answer)
