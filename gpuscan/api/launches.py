"""Launch calls that came before: a call is a key, and under its key the device keeps a program.

`launchable` wraps a public function. The first call of a kind runs the function, and what it submits is recorded. Later
calls of the kind launch the program that was recorded, over their own arrays, and run none of the function.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Hashable
from types import EllipsisType, FunctionType, NoneType
from typing import Any, TypeVar

import numpy as np

from gpuscan.device.context import strategy_key
from gpuscan.device.device_array import DeviceArray
from gpuscan.engine.launch import launch
from gpuscan.operators.function_keys import function_key, with_parameters
from gpuscan.operators.named_operators import name_of_ufunc
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameters import Parameters

F = TypeVar("F", bound=Callable[..., Any])

# Arrays of NumPy up to this many bytes are a part of the key, by their contents.
_MAX_ARRAY_BYTES = 1024
# The type of the functions of NumPy that arrays answer.
_NumpyFunction = type(np.concatenate)
# Tuples and lists of up to this many values are.
_MAX_LENGTH = 128
# Values of these types are equal only if they are the same for every function. The type is a part of the key, since
# True and 1.0 are equal to 1.
_PLAIN = frozenset({NoneType, bool, int, str, EllipsisType})


class Numbered:
    """Base of objects that keys know by a number, which no other object of the process has."""

    _numbers = itertools.count()

    @functools.cached_property
    def number(self) -> int:
        """The number."""
        return next(Numbered._numbers)


class _NoKeyError(Exception):
    """A call has an argument that may change without notice."""


# ----- Keys


class CallKey:
    """The key of a call, while it is made.

    Attributes:
        arrays: the arrays on a device among the arguments, depth first.
        floats: the floats that the functions among the arguments close over.
        functions: the keys of these functions.
        places: the argument that each of them is, by its index or its name, and the index of its first float.
    """

    __slots__ = ("arrays", "floats", "functions", "places")

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.floats: list[float] = []
        self.functions: list[Hashable] = []
        self.places: dict[int | str, int] = {}

    def of_argument(self, value: Any, place: int | str) -> Hashable:
        """Return what `of` returns; of a function without the floats that it closes over.

        Args:
            value: the argument.
            place: its index among the arguments, or its name.

        Raises:
            _NoKeyError: the argument may change without notice.
        """
        if type(value) is not FunctionType:
            return self.of(value)
        first = len(self.floats)
        found = function_key(value, floats=self.floats)
        if found is None:
            raise _NoKeyError
        if len(self.floats) > first:
            self.places[place] = first
            self.functions.append(found)
        return found

    def of(self, value: Any) -> Hashable:
        """Return what takes the place of an argument in the key: equal for arguments that mean the same.

        Raises:
            _NoKeyError: the argument may change without notice.
        """
        kind = type(value)
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, DeviceArray):
            return self._of_array(value)
        if kind is tuple or kind is list:
            if len(value) > _MAX_LENGTH:
                raise _NoKeyError
            return kind, *map(self.of, value)
        if kind is dict:
            return dict, tuple(value), *map(self.of, value.values())
        if isinstance(value, np.generic):
            return kind, value.dtype, value.tobytes()
        if kind is float or kind is complex:
            # 0.0 is equal to -0.0, and NaN to nothing.
            return kind, repr(value)
        if isinstance(value, np.dtype):
            return np.dtype, value
        if kind is slice:
            return slice, self.of(value.start), self.of(value.stop), self.of(value.step)
        if isinstance(value, Operator):
            # Named operators never change; what others close over may.
            return value, function_key(value.function) if value.kinds is None and value.function else None
        if kind is np.ufunc:
            name = name_of_ufunc(value)
            return (np.ufunc, value) if name is None else (str, name)
        if kind is _NumpyFunction or isinstance(value, type):
            return kind, value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind, *map(self.of, value)
        if kind is np.ndarray and value.nbytes <= _MAX_ARRAY_BYTES and not value.dtype.hasobject:
            return np.ndarray, value.dtype, value.shape, value.tobytes()
        if isinstance(value, Numbered):
            return kind, value.number
        found = function_key(value) if callable(value) else None
        if found is None:
            raise _NoKeyError
        return found

    def _of_array(self, array: Any) -> Hashable:
        if array.owner is None:
            # A caller's buffer is checked at each use.
            raise _NoKeyError
        buffer = array.buffer
        # The first of the arrays in the same buffer: whether results overwrite what is read depends on it.
        place = len(self.arrays)
        for index, other in enumerate(self.arrays):
            if other.buffer is buffer:
                place = index
                break
        self.arrays.append(array)
        return place, array._dtype, array._shape, array.offset, array._strides, array.owner.nbytes


# ----- Calls


def launchable(function: F) -> F:
    """Let a function launch the program of an earlier call of the same kind, if there was one."""
    parameters = inspect.signature(function).parameters
    defaults = {name: each.default for name, each in parameters.items() if each.default is not each.empty}
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        making = CallKey()
        key: list[Hashable] = [name]
        whole: tuple[Hashable, ...] = ()
        try:
            for place, argument in enumerate(arguments):
                kind = type(argument)
                key.append((kind, argument) if kind in _PLAIN else making.of_argument(argument, place))
            for option in sorted(options) if len(options) > 1 else options:
                value = options[option]
                default = defaults.get(option, call)
                # A default that is written out means the same.
                kind = type(value)
                if value is not default and (kind is not type(default) or value != default):
                    key += option, (kind, value) if kind in _PLAIN else making.of_argument(value, option)
            key.append(strategy_key("auto"))
            whole = tuple(key)
            hash(whole)
        except (_NoKeyError, TypeError, RecursionError):  # or a part cannot be hashed, or arguments nest too deep
            whole = ()
        arrays = making.arrays
        if not whole or not arrays:
            return function(*arguments, **options)
        context = arrays[0].context
        for other in arrays:
            if other.context is not context:
                return function(*arguments, **options)

        def compute(parameters: Parameters | None) -> Any:
            if parameters is None:
                return function(*arguments, **options)
            given: dict[Any, Any] = dict(enumerate(arguments)) | options
            for place, first in making.places.items():
                given[place] = with_parameters(given[place], parameters, first)
            replaced = [given.pop(place) for place in range(len(arguments))]
            return function(*replaced, **given)

        functions = tuple(making.functions)
        return launch(context, whole, arrays, compute, options.get("out"), making.floats, functions)

    return call  # type: ignore[return-value]
