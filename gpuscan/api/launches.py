"""Launch the programs of earlier calls: a call has a key, and under its key the device keeps a program.

`launchable` wraps a public function. The first call with a key runs the function, and records what it submits. Later
calls with the key launch the recorded program over their own arrays, and do not run the function.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from types import EllipsisType, FunctionType, MethodType, NoneType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.engine.device_seeds import MAX_PARAMETER_BYTES
from gpuscan.engine.kept_programs import launch_or_record
from gpuscan.operators.function_keys import NumpyFunction, function_key, is_plain, with_parameters
from gpuscan.operators.named_operators import NAMES_OF_UFUNCS
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.operators.parameters import (
    FLOATS,
    GREATEST_INTEGER,
    INTEGERS,
    LEAST_INTEGER,
    Expression,
    Parameter,
    Parameters,
    is_replaced,
)
from gpuscan.planning.strategies import STRATEGY_KEY, environment
from gpuscan.sizes import Size

F = TypeVar("F", bound=Callable[..., object])

# The most bytes of an array of NumPy with contents that are a part of the key.
_MAX_ARRAY_BYTES = 1024
# The dtypes of arrays of NumPy that every device takes without a conversion.
_NARROW = frozenset(
    {np.dtype(code) for code in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "c8")}
)
# The dtypes that devices with 64-bit floats take without a conversion.
_WIDE = _NARROW | {np.dtype(np.float64)}
# The most values of a tuple or list that is a part of a key. The key takes two Python calls for each array of them, and
# a call without a program fifty.
_MAX_LENGTH = 512
# The most parts of bundles that are searched for arrays of NumPy.
_MAX_LEAVES = 1024
# If two values of one of these types are equal, they mean the same to every function. The type is a part of the key,
# since True is equal to 1.
_PLAIN = frozenset({NoneType, bool, int, str, range, EllipsisType, NumpyFunction, np.ufunc})
# The types of arguments that can hold several arrays.
_BUNDLES = (tuple, list, dict)
# The types of arguments in which `replace_leaves` finds others.
_NESTED = (*_BUNDLES, slice)
# The types of arguments that `upload` may take as arrays of NumPy.
_IN_NUMPY = frozenset({np.ndarray, list, tuple, range})
# The types of functions that may have floats of their own.
_FUNCTIONS = (FunctionType, functools.partial, MethodType)


class Numbered:
    """Base of objects that are identified in keys by a number. No two objects of the process have the same number."""

    _numbers = itertools.count()

    @functools.cached_property
    def _serial(self) -> int:
        """A serial number in this process, for the keys of calls. It is not a number in `gpuscan.devices()`."""
        return next(Numbered._numbers)


class _NoKeyError(Exception):
    """A call has an argument that may change without notice."""


# ----- Keys


class CallKey:
    """Makes the key of a call, argument by argument, and collects what is not a part of the key.

    Attributes:
        arrays: the arrays on a device among the arguments, in depth-first order.
        sizes: for each array the lengths, the offset, the bytes of its memory, and the strides if there are any.
        floats: the floats that the functions among the arguments close over, and the floats among the operands.
        functions: the keys of the arguments that have such floats, without the floats.
        parameter_starts: for each of these arguments, by its name or number, the index of its first float.
        operand: True while the key of an operand is made.
        array_operands: True if operands can be short arrays of NumPy, which are parameters of the program like floats.
        integers: True while integers of the operand are parameters as well.
        counts: True while integers of the argument are sizes.
        lengths: the lengths of the arrays of NumPy among the operands. They follow the sizes of the arrays.
        integer_sizes: the integers of arguments that are sizes. They come last.
        has_operands: True if a float is an operand.
    """

    __slots__ = (
        "array_operands",
        "arrays",
        "counts",
        "floats",
        "functions",
        "has_operands",
        "integer_sizes",
        "integers",
        "lengths",
        "operand",
        "parameter_starts",
        "sizes",
    )

    def __init__(self, array_operands: bool) -> None:
        self.operand = self.has_operands = self.integers = self.counts = False
        self.array_operands = array_operands
        self.arrays: list[DeviceArray] = []
        self.sizes: list[int] = []
        self.integer_sizes: list[int] = []
        self.lengths: list[int] = []
        self.floats: list[object] = []
        self.functions: list[Hashable] = []
        self.parameter_starts: dict[int | str, int] = {}

    def of_argument(self, value: Any, name: int | str, operand: bool, integers: bool, counts: bool) -> Hashable:
        """Return the part of the key for an argument. The floats that a function closes over are parameters instead.

        Args:
            value: the argument, which is no array on a device.
            name: the name of the argument, or its number within ``*arrays``.
            operand: True to make parameters of the floats of the argument as well.
            integers: True to make parameters of its integers.
            counts: True to make sizes of its integers.

        Raises:
            _NoKeyError: the argument may change without notice.
        """
        first = len(self.floats)
        if callable(value) and _is_function(value):
            part = function_key(value, floats=self.floats)
        elif isinstance(value, Operator):
            part = self._of_operator(value, self.floats)
        else:
            self.operand, self.integers, self.counts = operand, integers, counts
            is_tuple = type(value) is tuple and len(value) <= _MAX_LENGTH
            part = (tuple, *self._of_parts(value)) if is_tuple else self.of(value)
            self.operand = self.integers = self.counts = False
        if part is None:
            raise _NoKeyError
        if len(self.floats) > first:
            self.parameter_starts[name] = first
            self.functions.append(part)
        return part

    def of_axis(self, axis: object, default: object, *, takes_axes: bool, only_scan_axes: bool) -> Hashable | None:
        """Return the part of the key for an axis; None if it means the same as the default.

        Args:
            axis: the argument.
            takes_axes: True if the function also takes a tuple of axes.
            only_scan_axes: True if no axes of the arrays can belong to an element.

        Raises:
            _NoKeyError: as `of`.
        """
        if takes_axes and type(axis) is tuple and len(axis) == 1:
            (axis,) = axis
        if type(axis) is not int:
            return self.of(axis)
        counts = {len(array._shape) for array in self.arrays}
        if counts == {1} and -1 <= axis <= 0:
            return None
        if only_scan_axes and len(counts) == 1:
            (count,) = counts
            axis += count if -count <= axis < 0 else 0
            default = count - 1 if default == -1 else default
        return None if axis == default else (int, axis)

    def of(self, value: Any) -> Hashable:
        """Return the part of the key for an argument, which is equal for arguments that mean the same.

        Raises:
            _NoKeyError: the argument may change without notice.
        """
        value_type = type(value)
        if self.integers and value_type in INTEGERS and is_replaced(value):
            self.floats.append(value)
            self.has_operands = True
            return Parameter, value_type
        if value_type in _PLAIN:
            if self.counts and value_type is int:
                self.integer_sizes.append(value)
                return Size
            return value_type, value
        if isinstance(value, DeviceArray):
            return self.of_array(value)
        if value_type is tuple or value_type is list:
            if len(value) > _MAX_LENGTH:
                raise _NoKeyError
            return value_type, *self._of_parts(value)
        if value_type is dict:
            return dict, tuple(value), *self._of_parts(value.values())
        if self.operand and (
            value_type in FLOATS or (self.array_operands and value_type is np.ndarray and _is_number(value))
        ):
            self.floats.append(value)
            self.has_operands = True
            if value_type is not np.ndarray:
                return Parameter, value_type
            self.lengths += value.shape
            return Parameter, value.dtype, value.ndim
        if isinstance(value, np.generic):
            return value_type, value.dtype, value.tobytes()
        if value_type is float or value_type is complex:
            # 0.0 is equal to -0.0, and NaN to nothing.
            return value_type, repr(value)
        if isinstance(value, np.dtype):
            return np.dtype, value
        if value_type is slice:
            return slice, self.of(value.start), self.of(value.stop), self.of(value.step)
        if isinstance(value, Operator):
            return self._of_operator(value)
        if isinstance(value, type):
            return value_type, value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return value_type, *self._of_parts(value)
        if value_type is np.ndarray and value.nbytes <= _MAX_ARRAY_BYTES and not value.dtype.hasobject:
            return np.ndarray, value.dtype, value.shape, value.tobytes()
        if isinstance(value, Numbered):
            return value_type, value._serial
        part = function_key(value) if callable(value) else None
        if part is None:
            raise _NoKeyError
        return part

    def _of_operator(self, operator: Operator, floats: list[object] | None = None) -> Hashable:
        # Named operators never change; what others close over may. Operators of equal functions are equal.
        function = operator.function
        own = None if operator.kinds is not None or function is None else function_key(function, floats=floats)
        if own is None and function is not None:
            return operator
        source = operator.wgsl, operator.helpers
        return Operator, operator.name, own, *source, operator.element_axes, self.of(operator.identity)

    def _of_parts(self, parts: Iterable[Any]) -> list[Hashable]:
        """Return the parts of the key for the parts of a bundle. Most bundles hold numbers, which need no calls."""
        known: list[Hashable] = []
        takes_floats, takes_integers = self.operand, self.integers
        takes_plain = not (takes_integers or self.counts)
        for part in parts:
            part_type = type(part)
            if takes_plain and part_type in _PLAIN:
                known.append((part_type, part))
            elif (takes_floats and part_type in FLOATS) or (
                takes_integers and part_type is int and LEAST_INTEGER <= part <= GREATEST_INTEGER
            ):
                self.floats.append(part)
                self.has_operands = True
                known.append((Parameter, part_type))
            elif isinstance(part, DeviceArray):
                known.append(self.of_array(part))
            elif part_type is tuple and len(part) <= _MAX_LENGTH:
                known.append((tuple, *self._of_parts(part)))
            else:
                known.append(self.of(part))
        return known

    def of_array(self, array: DeviceArray) -> Hashable:
        """Return the part of the key for an array on a device.

        Raises:
            _NoKeyError: as `of`.
        """
        if array._owner is None:
            # A caller's buffer is checked at each use.
            raise _NoKeyError
        buffer = array.buffer
        # The index of the first array in the same buffer. It is a part of the key, since a result may overwrite what is
        # read, depending on which arrays share memory.
        first_in_buffer = len(self.arrays)
        for index, other in enumerate(self.arrays):
            if other.buffer is buffer:
                first_in_buffer = index
                break
        self.arrays.append(array)
        # `_with_sizes` in `gpuscan.engine.kept_programs` reads the sizes in this order.
        shape, strides, sizes = array._shape, array._strides, self.sizes
        sizes += shape
        sizes += array.offset, array._owner.nbytes
        if strides is not None:
            sizes += strides
        return first_in_buffer, array._dtype, len(shape), strides is None


# ----- Calls


# Arguments by their names.
Arguments: TypeAlias = dict[str, Any]
# Returns the arguments, in the same order, with arrays of NumPy uploaded; None if there are none to upload.
Upload: TypeAlias = Callable[[Arguments], Arguments | None]
# The names and values of arguments. Arguments that were passed by position come first. Arguments within ``*arrays``
# have numbers instead of names.
Given: TypeAlias = list[tuple[Any, Any]]


def launchable(
    function: F,
    operands: Container[int | str] = (),
    data: frozenset[str] = frozenset(),
    upload: Upload | None = None,
    *,
    array_operands: bool = False,
    integers: frozenset[str] = frozenset(),
    counts: Container[int | str] = (),
    gives_masks: bool = False,
) -> F:
    """Let a function launch the program of an earlier call with the same key, if there was one.

    Args:
        operands: the names of the parameters that take numbers to compute from. Calls with other floats for these
            launch the same program.
        array_operands: True if these parameters take arrays of numbers as well. Short ones are parameters of the
            program as floats are.
        integers: the names of the parameters with integers that are parameters of the program, too.
        counts: the names of the parameters with integers that say how many or where, as the lengths of arrays do. They
            are sizes of the program.
        data: the names of the parameters that take arrays of NumPy and arrays on a device, with the same results. If
            an argument is on a device, arrays of NumPy are uploaded there, and the call launches a program over them.
            In a bundle that holds arrays on a device, the others are uploaded for all parameters but `out`.
        upload: uploads the other arguments in NumPy that have to be checked or converted before.
        gives_masks: True if a result of bools may be a mask for `np.where`, so that the run that computes it is held.
    """
    parameters = inspect.signature(function).parameters
    defaults = {
        name: parameter.default for name, parameter in parameters.items() if parameter.default is not parameter.empty
    }
    flags = {name for name, default in defaults.items() if type(default) is bool}
    types = {name: str(parameter.annotation).removesuffix(" | None") for name, parameter in parameters.items()}
    indices = {name for name, annotation in types.items() if annotation in ("int", "SupportsIndex")} | {"axis"}
    order = {name: position for position, name in enumerate(parameters)}
    by_position = [name for name, parameter in parameters.items() if parameter.kind < parameter.VAR_POSITIONAL]
    takes_axes = "tuple" in types.get("axis", "")
    has_operator = "op" in parameters
    name = f"{function.__module__}.{function.__qualname__}"

    def plain(option: int | str, value: object) -> object:
        """Return the Python number that means the same as a number of NumPy; any other argument unchanged."""
        if option in flags and isinstance(value, (int, np.bool_)) and value in (0, 1):
            return bool(value)
        return int(value) if option in indices and isinstance(value, np.integer) else value

    @functools.wraps(function)
    def call(*arguments: object, **options: object) -> object:
        # An argument has the same name, whether it is passed by position or by keyword. Arguments in ``*arrays`` have
        # numbers instead.
        given: Given = list(zip(itertools.chain(by_position, itertools.count()), arguments, strict=False))
        if options:
            if not options.keys().isdisjoint(by_position[: len(arguments)]):
                return function(*arguments, **options)  # which raises the error for an argument that is passed twice
            named = options
            if len(options) > 1 and options.keys() <= order.keys():
                named = sorted(options, key=order.__getitem__)  # type: ignore[assignment]
            given += zip(named, map(options.__getitem__, named), strict=True)
        moved: Given | None = None
        # Too many arguments have no names, and the function raises the error for them.
        if upload is not None and len(arguments) <= len(by_position):
            for _, value in given:
                if type(value) in _IN_NUMPY:
                    uploaded = upload(dict(given))
                    moved = None if uploaded is None else list(uploaded.items())
                    break
        if data:
            moved = _upload_data(moved or given, data, operands if array_operands else ()) or moved
        if moved is not None:
            count, given = len(arguments), moved
            arguments, options = tuple(dict(given).values())[:count], dict(given[count:])
        # Arguments that mean the same as the default are not a part of the key.
        call_key = CallKey(array_operands)
        key: list[Hashable] = [name]
        whole: tuple[Hashable, ...] = ()
        try:
            for option, value in given:
                default = defaults.get(option, call)
                if value is default:
                    continue
                if type(value) is np.ufunc:
                    value = NAMES_OF_UFUNCS.get(value, value)
                elif isinstance(value, np.generic) or (option in flags and type(value) is not bool):
                    value = plain(option, value)
                value_type = type(value)
                if option == "axis" and (value_type is not int or value < 1 or default == -1):
                    only_scan_axes = not has_operator or isinstance(dict(given).get("op", ""), (str, np.ufunc))
                    part = call_key.of_axis(value, default, takes_axes=takes_axes, only_scan_axes=only_scan_axes)
                    key += () if part is None else (option, part)
                elif isinstance(value, DeviceArray):
                    key += option, call_key.of_array(value)
                elif value_type is not type(default) or value != default:
                    part = (
                        call_key.of_argument(value, option, option in operands, option in integers, option in counts)
                        if value_type not in _PLAIN or option in integers or option in counts
                        else (value_type, value)
                    )
                    key += option, part
            key.append(environment.get(STRATEGY_KEY))
            whole = tuple(key)
            hash(whole)
        except (_NoKeyError, TypeError, RecursionError):  # TypeError: a part of the key cannot be hashed
            whole = ()
        arrays = call_key.arrays
        if not whole or not arrays:
            return function(*arguments, **options)
        context = arrays[0]._context
        for other in arrays:
            if other._context is not context:
                return function(*arguments, **options)

        def compute(
            parameters: Parameters | None, others: Sequence[object], further_sizes: Iterator[Any]
        ) -> tuple[object, object]:
            if parameters is None and others is arrays:
                return function(*arguments, **options), options.get("out")
            call_arguments: dict[int | str, Any] = dict(given)
            if others is arrays:
                further_sizes = iter(call_key.lengths)
            if parameters is not None:
                for option, first in call_key.parameter_starts.items():
                    value = call_arguments[option]
                    if callable(value) and _is_function(value):
                        call_arguments[option] = with_parameters(value, parameters, first)
                    elif isinstance(value, Operator):
                        assert value.function is not None
                        of_parameters = with_parameters(value.function, parameters, first)
                        call_arguments[option] = replace(value, function=of_parameters)
                    else:
                        is_operand: Callable[[object], bool] = _is_number if array_operands else _is_float
                        numbers = (_parameter_of(leaf, further_sizes) for leaf in parameters.leaves[first:])
                        if option in integers:
                            is_operand = _or_integer(is_operand)
                        call_arguments[option] = replace_leaves(value, is_operand, numbers)
            if others is not arrays:
                following = iter(others)
                call_arguments = {
                    option: replace_leaves(value, is_array, following) for option, value in call_arguments.items()
                }
                for option, value in call_arguments.items() if call_key.integer_sizes else ():
                    if option in counts:
                        call_arguments[option] = replace_leaves(value, _is_integer, further_sizes)
            values = list(call_arguments.values())
            rest: dict[Any, Any] = dict(list(call_arguments.items())[len(arguments) :])
            return function(*values[: len(arguments)], **rest), rest.get("out")

        # Decisions that depend on floats are remembered for each of the user's functions. If some floats are operands,
        # they are remembered for each key.
        functions = (whole, *call_key.lengths) if call_key.has_operands else tuple(call_key.functions)
        sizes = (*call_key.sizes, *call_key.lengths, *call_key.integer_sizes)
        held = arguments if gives_masks else None
        out = options.get("out")
        return launch_or_record(context, whole, sizes, arrays, compute, out, call_key.floats, functions, held)

    return call  # type: ignore[return-value]


def launchable_with(
    *operands: str,
    data: Iterable[str] = (),
    upload: Upload | None = None,
    integers: Iterable[str] = (),
    counts: Iterable[str] = (),
) -> Callable[[F], F]:
    """Return the decorator `launchable` for functions with these operands, which are numbers or arrays of numbers."""
    return functools.partial(
        launchable,
        operands=frozenset(operands),
        data=frozenset(data),
        upload=upload,
        array_operands=True,
        integers=frozenset(integers),
        counts=frozenset(counts),
    )


def _upload_data(given: Given, data: Container[object], short: Container[object]) -> Given | None:
    """Return arguments with arrays of NumPy uploaded to the device of the others; None if there are none to upload.

    Args:
        given: the arguments by their names, or by their numbers within ``*arrays``.
        data: the names of the arguments with arrays to upload, as in `launchable`.
        short: the names of the arguments with short arrays that are parameters.
    """
    # All parts of bundles, also the bundles in them. Parts that are too long have no key.
    leaves: list[object] = list(map(itemgetter(1), given))
    for value in leaves:
        if isinstance(value, _BUNDLES) and len(value) <= _MAX_LENGTH:
            leaves += value.values() if isinstance(value, dict) else value
            if len(leaves) > _MAX_LEAVES:
                return None  # a bundle may be a part of itself
    if np.ndarray not in map(type, leaves):
        return None
    for on_device in leaves:
        if isinstance(on_device, DeviceArray):
            break
    else:
        return None
    device = dict(given).get("device")
    if device is not None and device is not getattr(on_device, "device", None):
        return None
    return [
        (option, _upload_leaves(value, on_device, option in short))
        if isinstance(value, (np.ndarray, *_BUNDLES))
        and (type(option) is int or option in data or (option != "out" and _is_mixed(value)))
        else (option, value)
        for option, value in given
    ]


def _is_mixed(value: object) -> bool:
    """Return True for a bundle with an array on a device. Its other arrays are uploaded, as its results are there."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, _BUNDLES) else ():
        if isinstance(part, DeviceArray):
            return True
    return False


def dtypes_to_upload(context: DeviceContext) -> Container[AnyDType]:
    """Return the dtypes of arrays of NumPy that a device takes without a conversion."""
    return _WIDE if context.capabilities.float64 else _NARROW


def _upload_leaves(value: Any, on_device: DeviceArray, stay_short: bool) -> object:
    """Return an argument with its arrays of NumPy uploaded to the device of another array.

    Args:
        value: the argument.
        stay_short: True to leave short arrays in NumPy.
    """
    value_type = type(value)
    if value_type is np.ndarray:
        if value.dtype not in dtypes_to_upload(on_device._context) or not value.size:
            return value
        if stay_short and value.nbytes <= MAX_PARAMETER_BYTES:
            return value
        made = upload_array(on_device._context, value)
        assert made._owner is not None
        return on_device._made(made._owner, made._shape, made._dtype, 0, None)
    if value_type is tuple or value_type is list:
        return value_type([_upload_leaves(part, on_device, stay_short) for part in value])
    if value_type is dict:
        return {name: _upload_leaves(part, on_device, stay_short) for name, part in value.items()}
    return value


def _is_function(value: object) -> bool:
    """Return True for what is called like a function and may have floats of its own, also for the user's objects."""
    return isinstance(value, _FUNCTIONS) or (not isinstance(value, (Operator, Numbered)) and is_plain(value))


def _is_number(value: object) -> bool:
    """Return True for a float, or for a short array of numbers."""
    if type(value) is not np.ndarray:
        return type(value) in FLOATS
    return value.dtype.kind in "biufc" and 0 < value.nbytes <= MAX_PARAMETER_BYTES


def _is_integer(value: object) -> bool:
    return type(value) is int


def _is_float(value: object) -> bool:
    return type(value) in FLOATS


def _or_integer(is_operand: Callable[[object], bool]) -> Callable[[object], bool]:
    """Return a predicate that also holds for integers."""
    return lambda value: (type(value) in INTEGERS and is_replaced(value)) or is_operand(value)


def _parameter_of(leaf: object, lengths: Iterator[int]) -> object:
    """Return the parameter that replaces a number of the call; the number itself if it is left as it is.

    The shape of an array is the next of `lengths`.
    """
    if type(leaf) is not Expression:
        return leaf
    value: object = leaf.value
    if type(value) is not np.ndarray:
        return Parameter(leaf)
    return ParameterArray(leaf, tuple(itertools.islice(lengths, value.ndim)))


def is_array(value: object) -> bool:
    """Return True for an array on a device."""
    return isinstance(value, DeviceArray)


def replace_leaves(value: Any, condition: Callable[[object], bool], others: Iterator[object]) -> object:
    """Return an argument or a result in which the leaves that meet a condition are replaced by the next of `others`.

    The leaves are taken depth first, as `CallKey` takes them.
    """
    value_type = type(value)
    if condition(value):
        return next(others)
    if value_type is tuple or value_type is list or value_type is dict:
        parts: list[object] = []
        for part in value.values() if value_type is dict else value:
            if isinstance(part, _NESTED):
                part = replace_leaves(part, condition, others)
            elif condition(part):
                part = next(others)
            parts.append(part)
        return dict(zip(value, parts, strict=True)) if value_type is dict else value_type(parts)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return value_type._make([replace_leaves(part, condition, others) for part in value])
    if value_type is slice:
        return slice(*(replace_leaves(part, condition, others) for part in (value.start, value.stop, value.step)))
    return value
