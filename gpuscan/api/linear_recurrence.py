"""Linear recurrences and their gradient, by scans of affine maps."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.call_device import Devices, find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.outputs import execute, is_on_device
from gpuscan.api.reduce import reduce
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import upload_number
from gpuscan.device.strides import broadcast_strides
from gpuscan.elements import compute_dtype, dtype_from, element_of, tuple_of
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.operators.adjoint import LAST
from gpuscan.operators.operator import operator
from gpuscan.operators.parameter_array import ParameterArray, cast_parameter, is_float_parameter, is_number_parameter
from gpuscan.operators.parameters import reveal
from gpuscan.problem.arguments import Leaf, as_flag, as_input_array, initial_rows, native, resolve_axis
from gpuscan.problem.broadcasting import find_repeated_axes
from gpuscan.problem.fixed_bits import EVERYWHERE, is_everywhere
from gpuscan.problem.problem import Problem
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    from gpuscan.api.annotations import DTypeOf, Mapped, Of, RecurrenceGradientOptions, RecurrenceOptions, S, T, Value


@operator(identity=(1, 0), name="affine")
def affine(left: tuple[Value, Value], right: tuple[Value, Value]) -> tuple[Value | np.generic, Value | np.generic]:
    """Return the composition of two maps ``x -> a x + b``: first `left`, then `right`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


@operator(name="affine with a state")
def _affine_beside(left: tuple[Value, Value, Value], right: tuple[Value, Value, Value]) -> tuple[Value, ...]:
    """Return the composition of two maps, and the state that belongs to the second map."""
    return *affine(left[:2], right[:2]), right[2]


def _second(value: tuple[Value, Value]) -> Value:
    return value[1]


def _wide_gradients(value: tuple[Value, Value, Value]) -> tuple[Value, Value]:
    """Return the same as `_gradients`, with the gradient of the gate in float32."""
    return value[1].astype(np.float32) * value[2].astype(np.float32), value[1]


def _gradients(value: tuple[Value, Value, Value]) -> tuple[Value, Value]:
    """Return the gradients of gate and input from (product of gates, gradient, neighbouring state)."""
    return value[1] * value[2], value[1]


@overload
def linear_recurrence(
    a: ArrayLike, b: Array, *, dtype: DTypeLike | None = ..., **options: Unpack[RecurrenceOptions]
) -> Array: ...
@overload
def linear_recurrence(
    a: Array, b: ArrayLike, *, dtype: DTypeLike | None = ..., **options: Unpack[RecurrenceOptions]
) -> Array: ...
@overload
def linear_recurrence(
    a: Of[S] | float, b: Of[S], *, dtype: None = ..., **options: Unpack[RecurrenceOptions]
) -> NDArray[S]: ...
@overload
def linear_recurrence(
    a: ArrayLike, b: ArrayLike, *, dtype: DTypeOf[T], **options: Unpack[RecurrenceOptions]
) -> NDArray[T]: ...
@overload
def linear_recurrence(
    a: ArrayLike, b: ArrayLike, *, dtype: DTypeLike | None = ..., **options: Unpack[RecurrenceOptions]
) -> AnyArray: ...
@takes_numpy("a", "b")
@launchable_with("a", "initial", data=["a", "b", "initial"], integers=["initial"])
def linear_recurrence(
    a: object,
    b: object,
    *,
    axis: int = -1,
    initial: object = None,
    reverse: bool = False,
    dtype: object = None,
    device: Devices = None,
    reproducible: str | None = None,
) -> object:
    """Return the states of a linear recurrence: ``h[t] = a[t] * h[t-1] + b[t]``, with ``h[-1] = initial`` or 0.

    Args:
        a: the gates: an array that broadcasts to the shape of `b`, or a number.
        b: the inputs: an array of any shape.
        axis: the axis of the steps t.
        initial: the state before the first one, broadcast over the other axes.
        reverse: True to run from the end: ``h[t] = a[t] * h[t+1] + b[t]``.
        dtype: the dtype of the computation and of the result (default: that of `a` and `b`, or complex64 if only one of
            them is complex). float16 and bfloat16 are combined in float32 and rounded when they are stored.
        device, reproducible: as in `gpuscan.scan`.

    Returns:
        The states: an array of the shape of `b`.

    Raises:
        ValueError: `a` does not broadcast to the shape of `b`, or the axis is out of range.
        TypeError: the dtypes of `a` and `b` differ, and no `dtype` is passed. One of them may be complex.
        GpuscanError: as `gpuscan.scan` does.

    One scan composes the affine maps ``h -> a[t] * h + b[t]`` (Blelloch, "Prefix Sums and Their Applications", 1990,
    section 1.4). It also multiplies the gates. If such a product overflows, states may be NaN (``inf * 0``) although
    the recurrence itself is finite.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.linear_recurrence(np.full(4, 0.5, np.float32), np.ones(4, np.float32))
        array([1.   , 1.5  , 1.75 , 1.875], dtype=float32)
        >>> gs.linear_recurrence(0.5, np.ones((2, 3), np.float32), initial=[0, 8])
        array([[1.  , 1.5 , 1.75],
               [5.  , 3.5 , 2.75]], dtype=float32)
    """
    b = _array(b)
    a = _gate(a, b)
    number = a if is_float_parameter(a) else None
    a = _array_like(a if number is None else number.present, b)
    result_dtype = _common_dtype(a, b) if dtype is None else dtype_from(dtype)
    options: dict[str, Any] = {"axis": axis, "reverse": reverse, "after": _second, "device": device}
    options["reproducible"] = reproducible
    if initial is not None:
        options["initial"] = (np.ones((), result_dtype), initial)
    given = a.dtype
    a = a if given == result_dtype else a.astype(result_dtype)
    if not isinstance(a, Array) and a.size == 1 and a.ndim <= b.ndim and result_dtype in (np.float32, np.float16):
        gate = a.reshape(())[()] if number is None else cast_parameter(number, given, result_dtype)

        def with_gate(value: Value) -> object:
            value = value.astype(result_dtype)
            return np.full_like(value, gate), value

        return scan(b, affine, before=with_gate, **options)
    reveal(number)
    return scan(
        (broadcast_to("a", a, "b", b), b), affine, dtype=None if b.dtype == result_dtype else result_dtype, **options
    )


@overload
def linear_recurrence_vjp(
    a: ArrayLike, h: Array, grad_h: ArrayLike, *, initial: None = ..., **options: Unpack[RecurrenceGradientOptions]
) -> tuple[Array, Array, None]: ...
@overload
def linear_recurrence_vjp(
    a: ArrayLike, h: Array, grad_h: ArrayLike, *, initial: ArrayLike, **options: Unpack[RecurrenceGradientOptions]
) -> tuple[Array, Array, Array]: ...
@overload
def linear_recurrence_vjp(
    a: ArrayLike, h: Of[S], grad_h: ArrayLike, *, initial: None = ..., **options: Unpack[RecurrenceGradientOptions]
) -> tuple[AnyArray, NDArray[S], None]: ...
@overload
def linear_recurrence_vjp(
    a: ArrayLike, h: Of[S], grad_h: ArrayLike, *, initial: ArrayLike, **options: Unpack[RecurrenceGradientOptions]
) -> tuple[AnyArray, NDArray[S], AnyArray]: ...
@overload
def linear_recurrence_vjp(
    a: ArrayLike,
    h: ArrayLike,
    grad_h: ArrayLike,
    *,
    initial: ArrayLike | None = ...,
    **options: Unpack[RecurrenceGradientOptions],
) -> tuple[Any, Any, Any]: ...
def linear_recurrence_vjp(
    a: object,
    h: object,
    grad_h: object,
    *,
    axis: int = -1,
    initial: object = None,
    reverse: bool = False,
    reproducible: str | None = None,
) -> tuple[object, object, object]:
    """Return the gradients of a loss with respect to the arguments of `linear_recurrence`.

    The recurrence ``G[t] = grad_h[t] + a[t+1] * G[t+1]`` runs from the end. Then ``grad_b = G``,
    ``grad_a[t] = G[t] * h[t-1]`` and ``grad_initial = a[0] * G[0]``. One reversed scan computes the first two. The
    gradient of a complex number ``a + bi`` is ``dL/da - i dL/db`` for the loss L, as in JAX. `gpuscan.scan_vjp` takes
    and returns the conjugates.

    Args:
        a, axis, initial, reverse: as they were passed to `gpuscan.linear_recurrence`.
        h: the states that `gpuscan.linear_recurrence` returned.
        grad_h: the gradient of the loss with respect to the states, in the shape of `h`.
        reproducible: as in `gpuscan.scan`.

    Returns:
        ``(grad_a, grad_b, grad_initial)``, on the device if `h` is there. grad_a has the shape of `a`, and grad_initial
        has the shape of `initial`. Both are summed over the axes to which `a` and `initial` were broadcast. The
        gradient of real gates of complex states is real. grad_initial is None without `initial`.

    Raises:
        ValueError: the shapes do not fit, or the axis is out of range.
        TypeError: the dtypes differ, except for real gates of complex states.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> a, b = np.full(3, 0.5, np.float32), np.ones(3, np.float32)
        >>> h = gs.linear_recurrence(a, b)
        >>> grad_a, grad_b, _ = gs.linear_recurrence_vjp(a, h, np.ones(3, np.float32))
        >>> grad_b
        array([1.75, 1.5 , 1.  ], dtype=float32)
        >>> grad_a
        array([0. , 1.5, 1.5], dtype=float32)
    """
    return gradients(a, h, grad_h, axis=axis, initial=initial, reverse=reverse, reproducible=reproducible)


@takes_numpy("a", "h", "grad_h")
@launchable_with("a", "initial", data=["a", "grad_h"], integers=["initial"])
def gradients(
    a: object,
    h: object,
    grad_h: object,
    *,
    axis: int = -1,
    initial: Any = None,
    reverse: bool = False,
    reproducible: str | None = None,
    device: Device | str | int | None = None,
) -> tuple[SomeArray, SomeArray, SomeArray | None]:
    """Return what `linear_recurrence_vjp` returns, computed on a device of choice."""
    reverse = as_flag("reverse", reverse)
    states, grads = _array(h), _array(grad_h)
    if is_float_parameter(a) and isinstance(states, Array):
        state_dtype = _array_like(a.present, states).dtype
        gates: SomeArray = Array._of(states.device, upload_number(states._context, a, state_dtype))
    elif isinstance(a, ParameterArray) and isinstance(states, Array):
        gates = new_array(states.device, a)
    else:
        gates = _array_like(reveal(a), states)
    if states.shape != grads.shape:
        raise ValueError(
            f"h of shape {states.shape} and grad_h of shape {grads.shape} were passed; pass arrays of one shape"
        )
    dtype, shape = states.dtype, states.shape
    real = dtype == np.complex64 and gates.dtype.name in _PARTS
    whole = broadcast_to("a", gates.astype(dtype) if real else gates, "h", states)
    if len({whole.dtype, dtype, grads.dtype}) > 1:
        raise TypeError(
            f"a of dtype {whole.dtype}, h of dtype {dtype} and grad_h of dtype {grads.dtype} were passed, but all must "
            "agree. Convert them to one dtype with .astype"
        )
    axis = resolve_axis(axis, shape)
    others = tuple(size for i, size in enumerate(shape) if i != axis)
    leaves = (whole, grads, states)
    seeds = None
    if initial is not None:
        stays = all(isinstance(leaf, Array) for leaf in leaves)
        seeds = initial_rows(initial, element_of([dtype]), others, stays_on_device=stays, keeps_parameters=stays)
    scalar = element_of([dtype]).fields[0].scalar
    # Gradients that are summed afterwards are rounded only once, after the sum.
    summed = gates.shape != shape or real
    of_gates = compute_dtype(scalar) if summed else dtype
    problem = Problem(
        operator=affine,
        leaves=leaves,
        source=element_of([dtype] * 3, tuple_of(3)),
        element=element_of([dtype] * 2, tuple_of(2)),
        destination=element_of([of_gates, dtype], tuple_of(2)),
        shape=shape,
        axis=axis,
        reverse=not reverse,
        seeds=seeds,
        after=_wide_gradients if of_gates != dtype else _gradients,
        field_offsets=(-1, 0, 1),
    )
    call_device = find_call_device(problem.arrays, device)
    grad_a: SomeArray
    grad_b: SomeArray
    if is_everywhere(reproducible) and problem.size:
        grad_a, grad_b = _gradients_everywhere(problem, call_device)
    elif is_on_device(problem) or (call_device is not None and problem.size):
        grad_a, grad_b = execute(seeds_by_rows(problem), call_device, "auto", None)
    else:
        grad_a, grad_b = _gradients_on_cpu(problem)
    where = call_device if is_on_device(problem) else "numpy"
    if summed:
        part = np.real if real else None
        grad_a = gradient_of_broadcast(grad_a, gates.shape, gates.dtype, where, part, reproducible)
    if initial is None:
        return grad_a, grad_b, None
    # The gradient of the first state passes through the first gate.
    initial_shape = () if is_number_parameter(initial) else np.shape(initial)
    if shape[axis]:
        at = (slice(None),) * axis + (-1 if reverse else 0,)
        pair = (whole[at], grad_b[at])
        first: SomeArray = gradient_of_broadcast(pair, initial_shape, dtype, where, _product, reproducible)
    else:
        first = np.zeros(initial_shape, dtype)
        first = call_device.asarray(first) if call_device is not None and is_on_device(problem) else first
    return grad_a, grad_b, first


def _gradients_on_cpu(problem: Problem) -> list[AnyArray]:
    results = [np.empty(problem.shape, field.scalar.dtype) for field in problem.destination.fields]
    if problem.size == 0:
        return results
    wide = compute_dtype(problem.source.fields[0].scalar)
    a, grad_h, h = (leaf.astype(wide, copy=False) for leaf in problem.numpy_leaves)
    shape, axis, reverse, seeds = problem.shape, problem.axis, problem.reverse, problem.numpy_seeds
    start = 0 if seeds is None else seeds[0].reshape(shape[:axis] + shape[axis + 1 :])
    # The gradient runs against the order of the recurrence.
    gates = reference.shift(a, 0, axis, reverse=reverse)
    states = reference.shift(h, start, axis, reverse=not reverse)
    grad_b = linear_recurrence(gates, grad_h, axis=axis, reverse=reverse, device="numpy")
    with np.errstate(all="ignore"):
        results[0][...], results[1][...] = grad_b * states, grad_b
    return results


def _gradients_everywhere(problem: Problem, device: Device | None) -> tuple[SomeArray, SomeArray]:
    """Return the gradients with the same bits on every device: neighbours are brought together first."""
    a, grad_h, h = problem.leaves
    shape, axis, reverse = problem.shape, problem.axis, problem.reverse
    gates = shift_elements(a, None, shape, axis, reverse=reverse, device=device)
    states = shift_elements(h, problem.seeds, shape, axis, reverse=not reverse, device=device)
    assert problem.after is not None
    grad_a, grad_b = scan(
        (gates, as_some_array(grad_h), states),
        _affine_beside,
        axis=problem.axis,
        reverse=problem.reverse,
        after=problem.after,
        device=device or "numpy",
        reproducible=EVERYWHERE,
    )
    return grad_a, grad_b


def shift_elements(
    array: Leaf,
    seeds: tuple[Leaf, ...] | None,
    shape: tuple[int, ...],
    axis: int,
    *,
    reverse: bool,
    device: Device | None,
) -> SomeArray:
    """Return for each element the one before it in this order; before the first one of a row its seed, or zero."""
    element = element_of([array.dtype])
    rows = prod(size for i, size in enumerate(shape) if i != axis)
    seeds = (np.zeros(rows, array.dtype),) if seeds is None else seeds
    whole = Problem(
        operator=LAST,
        leaves=(array,),
        source=element,
        element=element,
        destination=element,
        shape=shape,
        axis=axis,
        exclusive=True,
        reverse=reverse,
        seeds=seeds,
    )
    (shifted,) = execute(seeds_by_rows(whole), device, "auto", None)
    return shifted


def _product(value: tuple[Value, Value]) -> Value:
    return value[0] * value[1]


def gradient_of_broadcast(
    x: SomeArray | tuple[SomeArray, ...],
    shape: tuple[int, ...],
    dtype: AnyDType,
    where: Devices,
    part: Mapped | None,
    reproducible: str | None = None,
) -> Array | AnyArray:
    """Return the gradient of an array of this shape that was broadcast: the sum of the gradients of its copies.

    Args:
        x: the gradient of the copies, or arrays that give it.
        shape: the shape of the array that was broadcast.
        dtype: the dtype of the result. The sum is not rounded before.
        where: the device to sum on.
        part: a function that gives the gradient of the copies from an element of `x`; None if that is `x`.
        reproducible: as in `gpuscan.scan`.
    """
    axes = find_repeated_axes(shape, (x[0] if isinstance(x, tuple) else x).shape)
    wide = compute_dtype(element_of([dtype]).fields[0].scalar)

    def load(value: object) -> object:
        if isinstance(value, tuple):
            value = tuple(factor.astype(wide) for factor in value)
        return value if part is None else part(value)

    def store(value: Value) -> object:
        return value.astype(dtype)

    total = reduce(x, axis=axes, before=load, after=store, keepdims=True, device=where, reproducible=reproducible)
    return total.reshape(shape) if isinstance(total, Array) else np.asarray(total).reshape(shape)


# ----- The arrays of a recurrence

# Real numbers that a complex64 number has two of, or holds.
_PARTS = ("float32", "float16", "bfloat16")


def _common_dtype(a: SomeArray, b: SomeArray) -> AnyDType:
    """Return the dtype that two arrays are combined in.

    Raises:
        TypeError: the dtypes differ, and not by one being complex64 and the other real.
    """
    dtypes: set[AnyDType] = {a.dtype, b.dtype}
    if len(dtypes) == 1:
        return dtypes.pop()
    if np.dtype(np.complex64) in dtypes and any(dtype.name in _PARTS for dtype in dtypes):
        return np.dtype(np.complex64)
    raise TypeError(
        f"a of dtype {a.dtype} and b of dtype {b.dtype} were passed, but both must agree. Pass dtype=... to combine in "
        "one"
    )


def broadcast_to(one: str, x: SomeArray, other: str, y: SomeArray) -> SomeArray:
    """Return a view of the array `x` in the shape of `y`, on the device that `y` is on.

    Raises:
        ValueError: it does not broadcast to that shape.
    """
    if x.shape == y.shape:
        return x
    lead = len(y.shape) - len(x.shape)
    if lead < 0 or any(n not in (1, size) for n, size in zip(x.shape, y.shape[lead:], strict=True)):
        raise ValueError(
            f"{one} of shape {x.shape} and {other} of shape {y.shape} were passed; pass {one} in the shape of {other}, "
            "or in one that broadcasts to it"
        )
    if isinstance(y, Array) and not isinstance(x, Array):
        x = new_array(y.device, x)
    if not isinstance(x, Array):
        return np.broadcast_to(x, y.shape)
    return x._view_at(y.shape, broadcast_strides(x.shape, x.strides, y.shape))


def _array(x: object) -> SomeArray:
    """Return an array in native byte order."""
    return x if isinstance(x, Array) else native(as_input_array(x))


def _gate(a: object, b: SomeArray) -> object:
    """Return a gate of the call's parameters as one number, or on the device of `b`. Return other gates as they are."""
    if not isinstance(a, ParameterArray):
        return a
    if a.size == 1 and a.ndim <= b.ndim:
        return a.number()
    return new_array(b.device, a) if isinstance(b, Array) else np.asarray(a)


def _array_like(x: object, other: SomeArray) -> SomeArray:
    """Return an array; a Python number becomes one of the dtype that NumPy's promotion with `other` gives."""
    if isinstance(x, (int, float, complex)) and not isinstance(x, (bool, np.generic)):
        bfloat = other.dtype.name == "bfloat16" and not isinstance(x, complex)
        return np.asarray(x, other.dtype if bfloat else np.result_type(x, other.dtype))
    return _array(x)
