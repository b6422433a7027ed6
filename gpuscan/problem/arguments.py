"""Check the arguments of a scan and bring them into one form: bundles, dtypes, axes, initial values."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from io import IOBase
from math import prod
from numbers import Number
from os import PathLike
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import LEAF, Element, Scalar, Structure, container_of, nest_children, scalar_of
from gpuscan.errors import UnsupportedDtypeError, abbreviate
from gpuscan.operators.parameter_array import (
    ParameterArray,
    as_parameter_array,
    broadcast_array,
    fill_array,
    is_float_parameter,
)
from gpuscan.operators.trace import structure_of
from gpuscan.problem.indexed_maps import compose_maps
from gpuscan.problem.results import holds_arrays
from gpuscan.sizes import Size, has_size

# The most levels of a bundle. Deeper ones would exceed Python's recursion limit in some places.
_MAX_DEPTH = 100


class OnDevice:
    """Base class of arrays in the memory of a GPU; see `gpuscan.device.device_array`."""

    shape: tuple[int, ...]
    dtype: AnyDType
    nbytes: int

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the array."""
        return prod(self.shape)

    def __getitem__(self, index: object) -> OnDevice:
        """Return a view by basic indexing."""
        raise NotImplementedError


# An array of a bundle: in NumPy, or on a device.
Leaf: TypeAlias = AnyArray | OnDevice
D = TypeVar("D", bound=OnDevice)
# Types of Python's own that NumPy makes arrays of.
_BUILTIN = frozenset({bool, int, float, complex, tuple, list})
# The types of the integers that most shapes have.
_INTEGERS = frozenset({int, Size})


def as_integer(value: Any) -> int | None:
    """Return an integer; None for anything else, also for bools and for arrays with axes.

    Example:
        >>> as_integer(np.int8(3)), as_integer(True), as_integer(3.0), as_integer(np.arange(2))
        (3, None, None, None)
    """
    if type(value) in (int, Size):
        integer: int = value
        return integer
    if not isinstance(value, bool):
        with suppress(TypeError):
            return operator.index(value)
    return None


def together(given: tuple[object, ...]) -> tuple[object, ...]:
    """Return what a caller passed one by one, or together in one sequence or array.

    Example:
        >>> together((2, 3)), together(([2, 3],)), together((2,))
        ((2, 3), (2, 3), (2,))
    """
    if len(given) == 1:
        (only,) = given
        if isinstance(only, (tuple, list)) or (isinstance(only, np.ndarray) and only.ndim):
            return tuple(only)
    return given


def tuple_of_integers(name: str, values: Iterable[object]) -> tuple[int, ...]:
    """Return the integers that a caller passed for an argument of this name.

    Raises:
        TypeError: one is not an integer.
    """
    given = tuple(values)
    if _INTEGERS.issuperset(map(type, given)):
        return given  # type: ignore[return-value]
    integers = tuple(integer for integer in map(as_integer, given) if integer is not None)
    if len(integers) != len(given):
        shown = given if len(given) > 1 else given[0]
        raise TypeError(
            f"{name}={abbreviate(shown)} was passed, but it must be integers. Pass an integer, or a tuple of integers"
        )
    return integers


def as_flag(name: str, value: object) -> bool:
    """Return what a caller passed for an option that is on or off.

    Raises:
        TypeError: the value is neither True nor False.
    """
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(
        f"{name}={abbreviate(value)} was passed, which is neither on nor off; pass {name}=True or {name}=False"
    )


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise ValueError unless what a caller passed for an argument is one of some strings."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={abbreviate(value)} was passed; pass one of {', '.join(map(repr, choices))}")


def check_one_cut(**cuts: object) -> None:
    """Raise ValueError if several of the arguments that cut rows are passed: segments, keys, groups."""
    names = [f"{name}=" for name, value in cuts.items() if value is not None]
    if len(names) > 1:
        raise ValueError(
            f"{', '.join(names[:-1])} and {names[-1]} were {'both' if len(names) == 2 else 'all'} passed; pass the "
            "one that says where rows are cut"
        )


# ----- Bundles


def structure_and_leaves(x: object, *, only_moved: bool = False) -> tuple[Structure, list[Leaf]]:
    """Return how the user's value nests its arrays, and the arrays, depth first.

    Args:
        x: an array or a bundle of arrays.
        only_moved: True to accept NumPy arrays of dates, durations and complex128 as well; see `as_bits`.

    Raises:
        TypeError: a value is a masked array, or not an array.
        ValueError: a bundle is empty, or nests too deeply.
        UnsupportedDtypeError: no element has an array's dtype.
    """
    return _flatten_bundle(x, 0, only_moved)


def _flatten_bundle(x: object, depth: int, only_moved: bool) -> tuple[Structure, list[Leaf]]:
    if isinstance(x, OnDevice):
        return LEAF, [x]
    if depth > _MAX_DEPTH:
        raise ValueError(
            f"a bundle nested more than {_MAX_DEPTH} levels deep was passed; pass a bundle of arrays in fewer levels"
        )
    is_bundle = isinstance(x, (tuple, dict)) or (isinstance(x, list) and holds_arrays(x))
    outer = container_of(x) if is_bundle else None
    if outer is None:
        array = as_input_array(x)
        names = array.dtype.names
        if not names:
            # complex128 is the dtype of no element, but dtype= may convert it.
            if array.dtype.newbyteorder("=") != np.complex128 and not (only_moved and array.dtype.kind in "mM"):
                scalar_of(array.dtype)
            return LEAF, [array]
        outer = Structure("structured", names), [array[name] for name in names]
    container, parts = outer
    if not parts:
        raise ValueError("a bundle of no arrays was passed; pass a bundle of one array or more, all of one shape")
    return nest_children(container, [_flatten_bundle(part, depth + 1, only_moved) for part in parts])


@overload
def as_bits(array: AnyArray) -> AnyArray: ...
@overload
def as_bits(array: D) -> D: ...
def as_bits(array: Leaf) -> Leaf:
    """Return an array as numbers with the same bits, if it holds dates, durations or complex128, else as it is.

    A complex number becomes two integers, along a new last axis.
    """
    if isinstance(array, OnDevice) or not array.shape:
        return array
    if array.dtype.kind in "mM":
        return native(array).view(np.int64)
    if array.dtype.newbyteorder("=") == np.complex128:
        return np.ascontiguousarray(native(array))[..., None].view(np.uint64)
    return array


@overload
def from_bits(array: AnyArray, dtype: AnyDType) -> AnyArray: ...
@overload
def from_bits(array: D, dtype: AnyDType) -> D: ...
def from_bits(array: Leaf, dtype: AnyDType) -> Leaf:
    """Return numbers that `as_bits` made of an array of this dtype, or moved ones of them, as such an array again."""
    if isinstance(array, OnDevice):
        return array
    wanted = dtype.newbyteorder("=")
    if wanted == np.complex128:
        return np.ascontiguousarray(array).view(wanted)[..., 0]
    return array.view(wanted) if dtype.kind in "mM" else array


def as_array(x: object) -> AnyArray:
    """Return what `np.asarray` makes of a value, unless that would lose something.

    Raises:
        TypeError: the value is a masked array, and its mask would be lost; it stays on several devices; or it is an
            array of dask or xarray.
        ValueError: its lists have different lengths.
    """
    if type(x) is np.ndarray:
        return x
    if type(x) not in _BUILTIN:
        _check_class(x)
    return _in_numpy(x)


def _in_numpy(x: object) -> AnyArray:
    """Return what `np.asarray` makes of a value. Lists of different lengths raise a ValueError that says so."""
    try:
        return np.asarray(x)
    except ValueError:
        if not isinstance(x, (list, tuple)):
            raise
        raise ValueError(
            f"{abbreviate(x)} was passed, but its lists differ in length or depth, so they are no array. Pass lists "
            "that are equally long, or for a scan one list of all numbers and where each row begins as segments="
        ) from None


def as_input_array(x: object) -> AnyArray:
    """Return what `as_array` makes of an input, unless NumPy takes it for a single object.

    Raises:
        TypeError: as `as_array`; or the value is neither an array nor a number, such as None, a set, a generator or the
            name of a file; or it is a tensor that requires a gradient, which would be lost.
    """
    if type(x) is np.ndarray:
        return x
    if type(x) not in _BUILTIN:
        _check_class(x)
        _check_is_array(x)
    array = _in_numpy(x)
    if array.dtype == object and array.ndim == 0 and not isinstance(x, (np.ndarray, Number)):
        raise TypeError(
            f"{abbreviate(x)} was passed, which NumPy takes for a single object. Pass an array or a list of numbers, "
            "such as list(x) of a set or a generator"
        )
    return array


def _check_is_array(x: Any) -> None:
    """Raise TypeError for a file, a mapping, and an array that PyTorch or JAX traces or differentiates.

    For text it is an UnsupportedDtypeError, as for arrays of text.
    """
    if isinstance(x, (str, PathLike, IOBase)):
        error = UnsupportedDtypeError if isinstance(x, str) else TypeError
        raise error(
            f"{abbreviate(x)} was passed, which is no array of numbers. To read a file, pass np.load(path, "
            'mmap_mode="r") for a .npy file, or np.memmap(path, dtype, mode="r") for a file of bare numbers'
        )
    if isinstance(x, bytes):
        raise UnsupportedDtypeError("bytes were passed, which are no array of numbers. Pass np.frombuffer(x, np.uint8)")
    if isinstance(x, dict):
        raise TypeError("a dict of arrays was passed where one array is taken. Pass one of its arrays, x[name]")
    if isinstance(x, Mapping):
        raise TypeError(
            f"a mapping of type {type(x).__name__} was passed. Pass dict(x) for a bundle of all its arrays, or one of "
            "its arrays, x[name]"
        )
    if hasattr(type(x), "requires_grad") and x.requires_grad:
        raise TypeError(
            "a tensor that requires a gradient was passed, and the gradient would be lost. Pass it to the function of "
            "the same name in gpuscan.torch, or pass x.detach()"
        )
    if any(base.__name__ == "Tracer" and base.__module__.startswith("jax") for base in type(x).__mro__):
        raise TypeError(
            "an array that JAX is tracing was passed, as in jax.jit, and has no numbers yet. Call the functions of "
            "gpuscan.jax there"
        )


def _check_class(x: object) -> None:
    """Raise TypeError, as `as_array` does, for an array of a class from which NumPy would take more, or less."""
    check_library(x)
    if getattr(type(x), "is_sharded", False):
        raise TypeError(
            "a ShardedArray was passed, but only gpuscan.scan and gpuscan.reduce take one, as the array to scan or "
            "reduce. Pass x.numpy(), a copy in NumPy"
        )
    if is_masked(x):
        raise TypeError(
            "a masked array was passed, but gpuscan has no masks. Pass x.filled(value) with a value that does not "
            "change the result, such as the operator's identity, and mask the result again"
        )


# What to do with the arrays of libraries that NumPy would take more from than the numbers.
_ADVICE = {
    "dask": (
        "which NumPy would compute as a whole. Pass it to gpuscan.dask.scan or gpuscan.dask.reduce, which are lazy, or "
        "pass x.compute()"
    ),
    "xarray": (
        "and the result would lose its dimensions and coordinates. Let xarray.apply_ufunc call the function, as in "
        'xarray.apply_ufunc(gpuscan.scan, x, kwargs={"axis": -1}, input_core_dims=[["time"]], '
        'output_core_dims=[["time"]]), with gpuscan.dask.scan and dask="allowed" for chunked data; or pass x.values'
    ),
}


def check_library(x: object, libraries: Iterable[str] = tuple(_ADVICE)) -> None:
    """Raise TypeError for an array of a library that keeps more than numbers.

    Args:
        x: any value. It tells its library by its type, so that no library is imported.
        libraries: the libraries to refuse.
    """
    for library in libraries:
        if library in sys.modules and any(base.__module__.split(".")[0] == library for base in type(x).__mro__):
            raise TypeError(f"an array of {library}, {type(x).__name__}, was passed, {_ADVICE[library]}")


def is_masked(x: object) -> bool:
    """Return True for a masked array. `numpy.ma`, which takes long to import, is there if there is one."""
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(x, masked.MaskedArray)


def as_numpy_arrays(leaves: Sequence[Leaf]) -> list[AnyArray]:
    """Return the arrays, which are all NumPy's."""
    arrays = [leaf for leaf in leaves if not isinstance(leaf, OnDevice)]
    assert len(arrays) == len(leaves), "an array of a scan in NumPy is on a device"
    return arrays


@overload
def native(array: AnyArray) -> AnyArray: ...
@overload
def native(array: D) -> D: ...
def native(array: Leaf) -> Leaf:
    """Return the array in native byte order, which arrays on a device have."""
    return array if isinstance(array, OnDevice) or array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


# ----- Axes


def resolve_axis(axis: int | None, shape: tuple[int, ...], own: int = 0) -> int:
    """Return the axis counted from 0.

    Args:
        axis: what the caller passed; for 1-D arrays it may be None.
        shape: the array's shape, without the axes of the element.
        own: how many axes belong to the element; they are not counted.

    Raises:
        ValueError: the axis is missing or out of range.
        TypeError: the axis is not an integer.
    """
    if not shape:
        raise np.exceptions.AxisError(
            "an array of shape () was passed, which has no axis. Pass x[np.newaxis] for an array of its one element"
        )
    choices = ", ".join(map(str, range(len(shape))))
    element = f" and {own} axes of the element" if own else ""
    if axis is None:
        if len(shape) == 1:
            return 0
        raise ValueError(
            f"an array of shape {shape}{element} was passed without axis=, but it has several axes. Pass one of "
            f"{choices}, or a negative axis counted from the end of these, or x.reshape(-1) to scan all elements as "
            "one row"
        )
    if (index := as_integer(axis)) is None:
        raise TypeError(f"axis={abbreviate(axis)} was passed, but an axis is an integer; pass one of {choices}")
    if not -len(shape) <= index < len(shape):
        negative = ", ".join(map(str, range(-len(shape), 0)))
        advice = f"Pass one of {choices}, or counted from the end {negative}"
        raise np.exceptions.AxisError(
            f"axis={index} was passed for an array of shape {shape}{element}, which has no such axis. "
            + (advice if len(shape) > 1 else "Pass 0 or -1, or leave axis out")
        )
    return index % len(shape)


def resolve_axes(axis: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes that an argument names, each counted from 0: one, several in a tuple, or all for None.

    Raises:
        ValueError: an axis is out of range, or named twice.
        TypeError: an axis is not an integer.
    """
    if axis is None:
        return tuple(range(len(shape)))
    given = axis if isinstance(axis, tuple) else (axis,)
    axes = tuple([resolve_axis(number, shape) for number in given])
    if len(set(axes)) < len(axes):
        raise ValueError(f"axis={axis!r} was passed, which names an axis twice. Pass each axis once")
    return axes


# ----- Dtypes


def with_dtype(
    leaves: list[Leaf], structure: Structure, dtype: AnyDType, before: Callable[..., object] | None
) -> tuple[list[Leaf], Callable[..., object] | None]:
    """Return the arrays and the map on load that combine in `dtype`.

    Narrow numbers, and arrays on a device, are converted by the kernel; others before the upload.
    """
    scalar = scalar_of(dtype)
    if before is not None:
        return leaves, cast_after(before, dtype)
    if all(leaf.dtype == dtype for leaf in leaves):
        return leaves, None
    narrower = all(leaf.dtype.itemsize * 8 < scalar.bits and leaf.dtype.isnative for leaf in leaves)
    on_device = any(isinstance(leaf, OnDevice) for leaf in leaves)
    if structure.container == "leaf" and (narrower or on_device):
        return leaves, lambda value: value.astype(dtype)
    if on_device:
        return leaves, cast_after(lambda value: value, dtype)
    return [leaf.astype(dtype, copy=False) for leaf in as_numpy_arrays(leaves)], None


def cast_after(before: Callable[..., object], dtype: AnyDType) -> Callable[..., object]:
    """Return `before` followed by a conversion of all its results to `dtype`."""

    def cast(value: object) -> object:
        structure, leaves = structure_of(value)
        return structure.unflatten([leaf.astype(dtype) if hasattr(leaf, "astype") else leaf for leaf in leaves])

    return compose_maps(before, cast)


# The order of the kinds of numbers. A number fits a kind of the same rank or a higher one.
_RANKS = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


def as_scalars(given: AnyArray, scalar: Scalar, what: str) -> AnyArray:
    """Return `given` in the dtype of `scalar`, which must hold its kind and, of integers, its values.

    Raises:
        TypeError: the kind or a value would be lost.
    """
    cast = None
    if given.dtype.kind in "OSU":
        # Python integers beyond 64 bits, or text.
        raise TypeError(
            f"{what} {given.tolist()!r} was passed for elements of dtype {scalar.dtype}, which cannot hold it. Pass "
            "numbers that fit the element's dtype"
        )
    if given.dtype.newbyteorder("=") == np.complex128:
        # NumPy's dtype of Python's complex numbers.
        given = given.astype(np.complex64)
    if _RANKS[scalar_of(given.dtype).kind] <= _RANKS[scalar.kind]:
        cast = given.astype(scalar.dtype)
        if scalar.is_integer and not np.array_equal(cast, given):
            cast = None
    if cast is None:
        raise TypeError(
            f"{what} {np.array2string(given, threshold=4)} of dtype {given.dtype} was passed for elements of dtype "
            f"{scalar.dtype}, which cannot hold it. Pass values that fit the element's dtype, or dtype=..."
        )
    return cast


# ----- Initial values


def initial_rows(
    initial: object,
    element: Element,
    rows_shape: tuple[int, ...],
    *,
    stays_on_device: bool = False,
    keeps_parameters: bool = False,
) -> tuple[Leaf, ...]:
    """Return `initial` for each field and row: (rows, *element shape), in the element's dtypes.

    With `stays_on_device`, arrays on a device are returned as they are, in a shape that broadcasts to (*rows_shape,
    *element shape). Integers that may not fit the element's dtype are read all the same. If the number of rows is a
    size, other values have such a shape as well. With `keeps_parameters`, parameters of the call stay parameters, as a
    `ParameterArray`.
    """
    values = fields_of(initial, element, "initial")
    rows = prod(rows_shape)
    by_rows = not stays_on_device or not has_size((rows,))
    seeds: list[Any] = []
    cast: Any
    for value, f in zip(values, element.fields, strict=True):
        if keeps_parameters and is_float_parameter(value):
            number = as_array(value.present)
            cast = as_scalars(number, f.scalar, "initial")
            seeds.append(fill_array(value, (rows, *f.shape) if by_rows else f.shape, number.dtype, cast.dtype))
            continue
        on_device = stays_on_device and isinstance(value, OnDevice) and _is_held(value.dtype, f.scalar)
        unknown = as_parameter_array(value) if keeps_parameters else None
        if on_device:
            cast = value
        elif unknown is not None:
            cast = unknown.derive_each(as_scalars, f.scalar, "initial")
        else:
            cast = as_scalars(as_array(value), f.scalar, "initial")
        if not rows_shape and cast.shape == (1, *f.shape):
            # One value for the one row of a 1-D scan.
            cast = cast[0]
        shape = (*rows_shape, *f.shape)
        if not _broadcasts(cast.shape, shape):
            raise ValueError(
                f"initial of shape {cast.shape} was passed, which does not broadcast to {shape}, the array's shape "
                "without the scanned axis. Pass one value, or one for each row"
            )
        if not on_device:
            cast = broadcast_array(cast, shape).reshape(rows, *f.shape) if by_rows else cast
            cast = cast if isinstance(cast, ParameterArray) else np.ascontiguousarray(cast)
        seeds.append(cast)
    return tuple(seeds)


def _broadcasts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return True if an array of a shape broadcasts to another shape."""
    lead = len(wanted) - len(shape)
    return lead >= 0 and all(n in (1, size) for n, size in zip(shape, wanted[lead:], strict=True))


def _is_held(dtype: AnyDType, scalar: Scalar) -> bool:
    """Return True if numbers of `scalar` hold every value of the dtype, as far as `as_scalars` asks them to."""
    if scalar.is_integer:
        return np.can_cast(dtype, scalar.dtype, "safe")
    return _RANKS[scalar_of(dtype).kind] <= _RANKS[scalar.kind]


def fields_of(value: object, element: Element, what: str) -> list[Any]:
    """Return the fields of a value that nests as the element does.

    Raises:
        ValueError: the value has other fields.
    """
    try:
        return element.structure.flatten(value)
    except (TypeError, ValueError, KeyError, IndexError):
        raise ValueError(
            f"{what} {abbreviate(value)} was passed for elements of {len(element.fields)} fields, but its structure is "
            "another one; pass one value for each field, in the structure of the input"
        ) from None


def elements_of(value: object, dtype: AnyDType) -> AnyArray:
    """Return a number or an array as elements of a dtype. Python numbers and lists have to fit it; arrays are cast.

    Raises:
        ValueError, TypeError, OverflowError: the dtype cannot hold the value.
    """
    given = as_array(value)
    is_plain = isinstance(value, (bool, int, float, complex, list, tuple)) and not isinstance(value, np.generic)
    try:
        return np.array(value, dtype) if is_plain else given.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(
            f"{abbreviate(value)} was assigned to elements of {dtype}, which cannot hold it: {error}. "
            f"Pass numbers, or an array of a dtype that NumPy casts to {dtype}"
        ) from None
