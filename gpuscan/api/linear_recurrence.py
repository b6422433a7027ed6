"""Linear recurrences and their gradient, by scans of affine maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.home import Devices, home_of
from gpuscan.api.outputs import execute, is_on_device
from gpuscan.api.scan import scan
from gpuscan.device.guards import guarded
from gpuscan.elements import LEAF, Structure, compute_dtype, dtype_from, element_of
from gpuscan.engine.element_copy import contiguous
from gpuscan.operators.operator import operator
from gpuscan.problem.arguments import as_array, as_flag, as_scalars, resolve_axis
from gpuscan.problem.problem import Problem

PAIR = Structure("tuple", (0, 1), (LEAF, LEAF))
TRIPLE = Structure("tuple", (0, 1, 2), (LEAF, LEAF, LEAF))


@operator(identity=(1, 0), name="affine")
def affine(left: Any, right: Any) -> Any:
    """Return the composition of two maps ``x -> a x + b``: first `left`, then `right`."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def _second(value: Any) -> Any:
    return value[1]


def _gradients(value: Any) -> Any:
    """Return the gradients of gate and input from (product of gates, gradient, neighbouring state)."""
    return value[1] * value[2], value[1]


def linear_recurrence(
    a: Any,
    b: Any,
    *,
    axis: int = -1,
    initial: Any = None,
    reverse: bool = False,
    dtype: Any = None,
    device: Devices = None,
) -> Any:
    """Return the states of a linear recurrence: ``h[t] = a[t] * h[t-1] + b[t]``, with ``h[-1] = initial`` or 0.

    Args:
        a: the gates.
        b: the inputs, in the shape of the gates.
        axis: the axis that t counts along.
        initial: the state before the first one, broadcast over the other axes.
        reverse: True to run from the end: ``h[t] = a[t] * h[t+1] + b[t]``.
        dtype: the dtype of the computation and of the result (default: that of `a` and `b`). float16 and bfloat16 are
            combined in float32 and rounded when they are stored.
        device: as in `gpuscan.scan`.

    Returns:
        The states: an array of the shape of `b`.

    Raises:
        ValueError: the shapes differ, or the axis is out of range.
        TypeError: the dtypes differ and no `dtype` is passed.

    This is a scan of affine maps under composition (Blelloch 1990, section 1.4), in one pass over `a` and `b`. The
    products of the gates are formed as well: if one overflows, states may be NaN (``inf * 0``) though the recurrence
    itself is finite.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> gs.linear_recurrence(np.full(4, 0.5, np.float32), np.ones(4, np.float32))
        array([1.   , 1.5  , 1.75 , 1.875], dtype=float32)
    """
    a, b = _arrays("a", a, "b", b)
    if dtype is None and a.dtype != b.dtype:
        raise TypeError(
            f"a of dtype {a.dtype} and b of dtype {b.dtype} were passed, but both must agree. Pass dtype=... to "
            "combine in one"
        )
    if initial is not None:
        initial = (np.ones((), a.dtype if dtype is None else dtype_from(dtype)), initial)
    return scan((a, b), affine, axis=axis, initial=initial, reverse=reverse, dtype=dtype, after=_second, device=device)


def linear_recurrence_vjp(
    a: Any, h: Any, grad_h: Any, *, axis: int = -1, initial: Any = None, reverse: bool = False
) -> tuple[Any, Any, Any]:
    """Return the gradient of a function of a linear recurrence's states.

    With ``G[t] = grad_h[t] + a[t+1] * G[t+1]``, which is a recurrence from the end: ``grad_b = G``,
    ``grad_a[t] = G[t] * h[t-1]`` and ``grad_initial = a[0] * G[0]``. One scan in the other direction computes the
    first two; it reads three arrays and writes two.

    Args:
        a: the gates.
        h: the states that `linear_recurrence` gave.
        grad_h: the gradient with respect to the states.
        axis: the axis that t counts along.
        initial: the state before the first, as it was passed to `linear_recurrence`.
        reverse: as it was passed to `linear_recurrence`.

    Returns:
        ``(grad_a, grad_b, grad_initial)``. The last one is None without `initial`. Otherwise it has the shape of
        `initial`, and is summed over the axes to which that was broadcast.

    Raises:
        ValueError: the shapes differ, or the axis is out of range.
        TypeError: the dtypes differ.

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
    return gradients(a, h, grad_h, axis=axis, initial=initial, reverse=reverse)


def gradients(
    a: Any,
    h: Any,
    grad_h: Any,
    *,
    axis: int,
    initial: Any,
    reverse: bool,
    device: Device | str | int | None = None,
) -> tuple[Any, Any, Any]:
    """Return what `linear_recurrence_vjp` returns, computed on a device of choice."""
    reverse = as_flag("reverse", reverse)
    a, h = _arrays("a", a, "h", h)
    a, grad_h = _arrays("a", a, "grad_h", grad_h)
    if len({a.dtype, h.dtype, grad_h.dtype}) > 1:
        raise TypeError(
            f"a of dtype {a.dtype}, h of dtype {h.dtype} and grad_h of dtype {grad_h.dtype} were passed, but all must "
            "agree. Convert them to one dtype with .astype"
        )
    axis = resolve_axis(axis, a.shape)
    others = tuple(size for i, size in enumerate(a.shape) if i != axis)
    start = None
    if initial is not None:
        scalar = element_of([a.dtype]).fields[0].scalar
        given = as_scalars(np.asarray(initial), scalar, "initial")
        try:
            start = np.ascontiguousarray(np.broadcast_to(given, others))
        except ValueError:
            raise ValueError(
                f"initial of shape {given.shape} was passed, which does not broadcast to {others}, the arrays' shape "
                "without the axis. Pass one value, or one for each row"
            ) from None
    leaves = (a, grad_h, h)
    problem = Problem(
        operator=affine,
        leaves=leaves,
        source=element_of([a.dtype] * 3, TRIPLE),
        element=element_of([a.dtype] * 2, PAIR),
        destination=element_of([a.dtype] * 2, PAIR),
        shape=a.shape,
        axis=axis,
        reverse=not reverse,
        seeds=None if start is None else (start.reshape(-1),),
        after=_gradients,
        field_offsets=(-1, 0, 1),
    )
    home = home_of(leaves, device)
    if is_on_device(problem) or (home is not None and problem.size):
        grad_a, grad_b = execute(problem, home, "auto", None)
    else:
        grad_a, grad_b = _gradients_on_cpu(problem, start)
    if start is None:
        return grad_a, grad_b, None
    scalar = problem.source.fields[0].scalar
    with np.errstate(all="ignore"):
        grads = _gradient_of_start(a, grad_b, axis, reverse, compute_dtype(scalar))
        return grad_a, grad_b, summed_to(grads, np.shape(initial)).astype(scalar.dtype, copy=False)


def _gradients_on_cpu(problem: Problem, start: np.ndarray[Any, Any] | None) -> list[np.ndarray[Any, Any]]:
    results = [np.empty(problem.shape, field.scalar.dtype) for field in problem.destination.fields]
    if problem.size == 0:
        return results
    wide = compute_dtype(problem.source.fields[0].scalar)
    a, grad_h, h = (leaf.astype(wide, copy=False) for leaf in problem.leaves)
    # The step to the next gate in the order of the recurrence. The gradient runs the other way.
    axis, step = problem.axis, 1 if problem.reverse else -1
    here, neighbour = _overlap(problem, step)
    gates = np.zeros_like(a)
    gates[here] = a[neighbour]
    grad_b = linear_recurrence(gates, grad_h, axis=axis, reverse=problem.reverse, device="numpy")
    states = np.zeros_like(h)
    states[neighbour] = h[here]
    if start is not None:
        first = [slice(None)] * h.ndim
        first[axis] = slice(0, 1) if step > 0 else slice(-1, None)
        states[tuple(first)] = np.expand_dims(start, axis)
    with np.errstate(all="ignore"):
        results[0][...], results[1][...] = grad_b * states, grad_b
    return results


def _overlap(problem: Problem, step: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return the index of the elements with a neighbour `step` further along the axis, and that of the neighbours."""
    here, there = [slice(None)] * len(problem.shape), [slice(None)] * len(problem.shape)
    here[problem.axis], there[problem.axis] = (slice(0, -1), slice(1, None))[::step]
    return tuple(here), tuple(there)


def _gradient_of_start(a: Any, grad_b: Any, axis: int, reverse: bool, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return ``a[0] * grad_b[0]``, or the same at the end of a reversed recurrence; zero without any state."""
    if a.shape[axis] == 0:
        return np.zeros([n for i, n in enumerate(a.shape) if i != axis], dtype)
    place = -1 if reverse else 0
    gate, gradient = (_entries(array, place, axis).astype(dtype) for array in (a, grad_b))
    return np.asarray(gate * gradient)


def _entries(array: Any, place: int, axis: int) -> np.ndarray[Any, Any]:
    """Return the entries at one place of an axis; only they are read from a device."""
    if not isinstance(array, Array):
        return np.asarray(np.take(array, place, axis))
    with guarded(array.context):
        return contiguous(array[(slice(None),) * axis + (place,)]).read()


def summed_to(gradient: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return the gradient of an array of this shape that was broadcast."""
    lead = gradient.ndim - len(shape)
    axes = [i for i in range(gradient.ndim) if i < lead or shape[i - lead] == 1 != gradient.shape[i]]
    summed: np.ndarray[Any, Any] = gradient.sum(axis=tuple(axes), keepdims=True, dtype=gradient.dtype)
    return summed.reshape(shape)


def _arrays(one: str, x: Any, other: str, y: Any) -> tuple[Any, Any]:
    """Return both as arrays of one shape, in native byte order.

    Raises:
        ValueError: the shapes differ.
    """
    x, y = (value if isinstance(value, Array) else native(as_array(value)) for value in (x, y))
    if x.shape != y.shape:
        raise ValueError(
            f"{one} of shape {x.shape} and {other} of shape {y.shape} were passed; pass arrays of one shape"
        )
    return x, y


def native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array in native byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
