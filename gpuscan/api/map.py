"""`gpuscan.map`: a function of every element of some arrays, as one kernel."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device, as_some_array
from gpuscan.api.call_device import find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.numpy_calls import is_list_of_numbers
from gpuscan.api.outputs import check_out
from gpuscan.array_types import AnyArray
from gpuscan.elements import Element, element_of, tuple_of
from gpuscan.engine.elementwise import map_elements
from gpuscan.errors import OperatorError
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.parameters import NUMBERS, Parameter, reveal
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import Leaf, as_numpy_arrays, native, structure_and_leaves
from gpuscan.problem.broadcasting import broadcast_shapes
from gpuscan.problem.problem import Problem
from gpuscan.reference.scan import map_arrays

if TYPE_CHECKING:
    from gpuscan.api.annotations import C, MapOptions, Mapped, P, Plain, Q, Several, Value

# The most bytes of NumPy arrays, inputs and results together, that are on a device at a time. Not tuned.
_PIECE_BYTES = 256 << 20


@overload
def map(function: Callable[[Value], Several], x: object, /, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(function: Callable[[P], Several], x: object, /, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(function: Callable[[Value, Value], Several], x: object, y: object, /, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(function: Callable[[P, Q], Several], x: object, y: object, /, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(function: Mapped, x: Array, y: Array | Plain = ..., /, **options: Unpack[MapOptions]) -> Array: ...
@overload
def map(function: Mapped, x: Plain, y: Array, /, **options: Unpack[MapOptions]) -> Array: ...
@overload
def map(function: Mapped, x: Plain, y: Plain = ..., /, **options: Unpack[MapOptions]) -> AnyArray: ...
@overload
def map(function: Mapped, *arrays: object, out: C, device: Device | str | int | None = ...) -> C: ...
@overload
def map(function: Mapped, x: Several, /, *arrays: object, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(function: Mapped, x: object, y: Several, /, *arrays: object, **options: Unpack[MapOptions]) -> Any: ...
@overload
def map(
    function: Mapped, x: object, y: object, z: object, /, *arrays: object, **options: Unpack[MapOptions]
) -> Any: ...
def map(
    function: Callable[..., object], *arrays: object, out: object = None, device: Device | str | int | None = None
) -> object:
    """Apply a function to each element of some arrays, in one kernel: ``y[i] = function(a[i], b[i], …)``.

    Args:
        function: a function of NumPy code, with one parameter for each array. It is traced like the `before` of
            `gpuscan.scan`. It may return a tuple or a dict of values.
        arrays: what `np.asarray` takes, or any `gpuscan.Array`, of any strides; or bundles of these, which the function
            receives as bundles. Shapes broadcast as in NumPy. Python numbers take the dtype of the array that they are
            combined with: ``a * 2`` has the dtype of ``a``.
        out: the array to write the result to; for a function that returns a tuple or dict, a tuple or dict of arrays.
            It may be one of the inputs.
        device: as in `gpuscan.scan`.

    Returns:
        An array of the broadcast shape; for a function that returns a tuple or dict, a tuple or dict of such arrays.
        The dtypes are NumPy's for the function's operations. It is a `gpuscan.Array` if any input is one, else a NumPy
        array.

    Raises:
        ValueError: the shapes do not broadcast, or `out` has another shape or structure.
        TypeError: `function` cannot be called, there is no array, or `out` has another dtype.
        OperatorError: the function cannot be traced.
        UnsupportedDtypeError: the adapter cannot hold a dtype.
        GpuscanError: there are more arrays than the device can bind in one shader.

    NumPy makes a pass over memory for each operation. Here all operations take one pass.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([[1.0, 4.0], [9.0, 16.0]], np.float32)
        >>> gs.map(lambda a, b: np.sqrt(a) + b, x, np.array([10, 20], np.int8))
        array([[11., 22.],
               [13., 24.]], dtype=float32)
        >>> small, large = gs.map(lambda a: (np.minimum(a, 5), a > 5), x)
        >>> large
        array([[False, False],
               [ True,  True]])
    """
    if not callable(function):
        raise TypeError(f"function={function!r} was passed to gpuscan.map; pass a function of one parameter an array")
    kinds = [type(array) for array in arrays]
    if list in kinds:
        arrays = tuple([np.asarray(array) if is_list_of_numbers(array) else array for array in arrays])
    if not NUMBERS.isdisjoint(kinds):
        function, arrays = _with_numbers(function, arrays)
    return _map(function, *arrays, out=out, device=device)


def _with_numbers(
    function: Callable[..., object], arguments: Sequence[object]
) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Return a function that closes over the numbers among its arguments, and the other arguments."""
    numbers = tuple([argument if type(argument) in NUMBERS else None for argument in arguments])

    @functools.wraps(function)
    def of_arrays(*arrays: object) -> object:
        following = iter(arrays)
        return function(*[next(following) if number is None else number for number in numbers])

    return of_arrays, tuple([argument for argument in arguments if type(argument) not in NUMBERS])


@takes_numpy("arrays")
@launchable_with(data=["arrays"])
def _map(
    function: Callable[..., object], *arrays: object, out: object = None, device: Device | str | int | None = None
) -> object:
    """Return the result of `map`."""
    leaves: list[SomeArray] = []
    parts: list[object] = []
    for array in arrays:
        if is_number(array):
            parts.append(array)
            continue
        structure, given = structure_and_leaves(array)
        parts.append((len(leaves), structure))
        leaves += [native(as_some_array(leaf)) for leaf in given]
    if not leaves:
        raise TypeError("gpuscan.map was called without an array; pass one array or more after the function")
    shape = common_shape([leaf.shape for leaf in leaves])
    call_device = find_call_device(leaves, device)

    @functools.wraps(function)
    def of_all(numbers: Sequence[object]) -> object:
        return function(
            *(
                part[1].unflatten(numbers[part[0] : part[0] + part[1].leaf_count]) if isinstance(part, tuple) else part
                for part in parts
            )
        )

    element, name = numbers_of(leaves), "the function of gpuscan.map"
    try:
        traced_function = trace_function(of_all, element, name)
    except OperatorError:
        # A number may be right where a parameter is not.
        if Parameter not in [type(part) for part in parts]:
            raise
        parts[:] = [reveal(part) for part in parts]
        traced_function = trace_function(of_all, element, name)
    return map_leaves(traced_function, leaves, shape, call_device, out)


def is_number(value: object) -> bool:
    """Return True for a Python or NumPy number, which is a constant of the function and not an array."""
    return isinstance(value, (bool, int, float, complex, np.generic, Parameter))


def numbers_of(leaves: Sequence[SomeArray]) -> Element:
    """Return the element with one number of each array, as a tuple."""
    return element_of([leaf.dtype for leaf in leaves], tuple_of(len(leaves)))


def common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape that all shapes broadcast to.

    Raises:
        ValueError: there is none.
    """
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        shown = ", ".join(str(shape) for shape in shapes)
        raise ValueError(
            f"arrays of the shapes {shown} were passed, which do not broadcast to one shape. Pass arrays with lengths "
            "that agree, counted from the last axis, or are 1"
        ) from None


def map_leaves(
    function: Map, leaves: Sequence[SomeArray], shape: tuple[int, ...], device: Device | None, out: object
) -> object:
    """Return the result of a traced function of a tuple of numbers, in the form in which the function returns it."""
    on_device = any(isinstance(leaf, Array) for leaf in leaves)
    outputs = check_out(_stand_in(function, leaves, shape), out, device if on_device else None)
    results = map_fields(function, leaves, shape, device, outputs)
    if out is not None:
        return out
    # NumPy's functions give numbers, not arrays of shape ().
    parts = [part if isinstance(part, Array) or part.shape else part[()] for part in results]
    return function.element.structure.build_bundle(parts)


def map_fields(
    function: Map,
    leaves: Sequence[SomeArray],
    shape: tuple[int, ...],
    device: Device | None,
    outputs: Sequence[SomeArray] | None = None,
) -> Sequence[SomeArray]:
    """Return the result of a traced function of a tuple of numbers: one array for each field.

    Args:
        leaves: an array for each number.
        shape: the shape that the arrays broadcast to.
        device: the device to run on; None for NumPy.
        outputs: the arrays of `out`, checked; new ones without.
    """
    if any(isinstance(leaf, Array) for leaf in leaves):
        assert device is not None
        sources = [device.asarray(leaf) for leaf in leaves]
        targets = None if outputs is None else arrays_on_device(outputs)
        computed = map_elements(device._context, sources, function, shape, targets)
        return targets or [Array._of(device, array) for array in computed]
    given = as_numpy_arrays(leaves)
    results = _empty(function, shape) if outputs is None else as_numpy_arrays(outputs)
    if device is None:
        for target, values in zip(results, map_arrays(function, given, shape), strict=True):
            target[...] = values
    else:
        _map_host(device, function, given, shape, results)
    return results


def _stand_in(function: Map, leaves: Sequence[Leaf], shape: tuple[int, ...]) -> Problem:
    """Return a problem with the results of the map, for the checks of `out`."""
    element = function.element
    return Problem(resolve("add"), tuple(leaves), function.source, element, element, shape, 0)


def _empty(function: Map, shape: tuple[int, ...]) -> list[AnyArray]:
    return [np.empty((*shape, *field.shape), field.scalar.dtype) for field in function.element.fields]


def _map_host(
    device: Device, function: Map, leaves: Sequence[AnyArray], shape: tuple[int, ...], results: Sequence[AnyArray]
) -> None:
    """Write the results for NumPy arrays, piece by piece along the longest axis. Inputs may be outputs, too."""
    if not results[0].size:
        return
    if any(np.may_share_memory(leaf, result) for leaf in leaves for result in results):
        leaves = [leaf.copy() for leaf in leaves]
    axis = shape.index(max(shape)) if shape else 0
    total = sum(array.nbytes for array in (*leaves, *results))
    length = shape[axis] if shape else 1
    piece_bytes = min(_PIECE_BYTES, device._context.pool.largest)
    step = max(1, min(length, length * piece_bytes // max(1, total)))
    for start in range(0, length, step):
        piece = slice(start, start + step)
        sources = [device.asarray(_part(leaf, shape, axis, piece)) for leaf in leaves]
        targets = [result[(slice(None),) * axis + (piece,)] if shape else result for result in results]
        lead = targets[0].shape[: len(shape)]
        contents = [array._read() for array in map_elements(device._context, sources, function, lead)]
        for target, content in zip(targets, contents, strict=True):
            target[...] = content
    device._context.check()


def _part(leaf: AnyArray, shape: tuple[int, ...], axis: int, piece: slice) -> AnyArray:
    """Return a piece along an axis of the common shape; all of the array if it has length 1 there, or no such axis."""
    own = axis - (len(shape) - leaf.ndim)
    if not 0 <= own < leaf.ndim or leaf.shape[own] == 1:
        return leaf
    return leaf[(slice(None),) * own + (piece,)]
