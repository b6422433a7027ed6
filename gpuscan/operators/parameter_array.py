"""Arrays of NumPy that the parameters of a call give, such as an initial value that is a float."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import prod
from types import EllipsisType, NoneType
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.operators.computation import QUIET
from gpuscan.operators.parameters import (
    FLOATS,
    INTEGERS,
    PYTHON_NUMBERS,
    Expression,
    Parameter,
    T,
    derive,
    has_own_form,
    reveal,
)

# False for NumPy 1, which promotes numbers by their values as well. So it reads the numbers.
_BY_DTYPE = np.lib.NumpyVersion(np.__version__) >= "2.0.0"


class ParameterArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of NumPy that is computed from the parameters of a call.

    Only what is written here leaves the parameters unknown. Everything else reads the array, which reveals it.

    Args:
        expression: gives the array.
        shape: the shape, if calls with arrays of other shapes launch the same program: lengths that are sizes.

    Attributes:
        shape, dtype, ndim, size, nbytes: as NumPy defines them.
    """

    def __init__(self, expression: Expression, shape: tuple[int, ...] | None = None) -> None:
        self._expression = expression
        array: AnyArray = expression.value  # type: ignore[assignment]
        self.shape: tuple[int, ...] = array.shape if shape is None else shape
        self.dtype, self.ndim, self.size = array.dtype, array.ndim, prod(self.shape)
        self.nbytes = self.size * array.itemsize

    @property
    def expression(self) -> Expression:
        """What gives the array, for functions that depend on its shape: sizes in it are revealed."""
        for length in self.shape:
            reveal(length)
        return self._expression

    def astype(self, dtype: AnyDType, copy: bool = True) -> HostArray:
        """Return the array in another dtype."""
        return self if dtype == self.dtype else self.derive_each(_as_dtype, np.dtype(dtype))

    def reshape(self, *shape: int) -> HostArray:
        """Return the array in another shape. One length may be -1."""
        return self.derive(_reshape, shape)

    def broadcast_to(self, shape: tuple[int, ...]) -> HostArray:
        """Return the array, broadcast to a shape."""
        return self if shape == self.shape else self.derive(_broadcast_to, shape)

    def __getitem__(self, index: Any) -> Any:
        if not {int, slice, EllipsisType, NoneType}.issuperset(map(type, index if type(index) is tuple else (index,))):
            return np.asarray(self)[index]
        if type(index) is not int:
            return self.derive(operator.getitem, index)
        reveal(self.shape[0])
        return self._derive_in(self.shape[1:], operator.getitem, index)

    def numbers(self) -> AnyArray:
        """Return an array of objects, with the expression of each number."""
        whole = np.empty(self.shape, object)
        for index in np.ndindex(self.shape):
            whole[index] = derive(operator.getitem, self.expression, index)
        return whole

    def derive(self, function: Callable[..., AnyArray], *constants: object) -> HostArray:
        """Return the array that a function of this one and of constants returns.

        The function depends on its arguments alone. The shape and dtype of its result do not depend on the numbers.
        """
        return _array_of(derive(function, self.expression, *constants))

    def derive_each(self, function: Callable[..., AnyArray], *constants: object) -> HostArray:
        """Return what `derive` returns for a function that keeps the shape of its array. The shape may be of sizes."""
        return self._derive_in(self.shape, function, *constants)

    def _derive_in(self, shape: tuple[int, ...], function: Callable[..., AnyArray], *constants: object) -> HostArray:
        derived = derive(function, self._expression, *constants)
        return ParameterArray(derived, shape) if isinstance(derived, Expression) else self.derive(function, *constants)

    def number(self) -> object:
        """Return the number of an array of one number."""
        return _parameter_of(derive(_number, self.expression))

    def __int__(self) -> int:
        """Return the integer of an array of one number. It becomes a part of the key of the program."""
        integer: int = reveal(derive(int, self.expression))
        return integer

    @property
    def content(self) -> bytes | Expression:
        """The bytes of the array, filled up with zeros to whole words."""
        content = derive(_bytes_of, self._expression)
        return content if isinstance(content, Expression) else derive(_bytes_of, self.expression)

    def __array__(self, dtype: AnyDType | None = None, copy: bool | None = None) -> AnyArray:
        # The parameters themselves are revealed. The function that gives the array may be another object at each call.
        _reveal_leaves(self.expression)
        return np.array(self.expression.value, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        if any(has_own_form(operand) for operand in inputs if not isinstance(operand, ParameterArray)):
            return NotImplemented
        if _BY_DTYPE and method == "__call__" and not options and ufunc.nout == 1 and all(map(_is_operand, inputs)):
            return compute_array(
                ufunc, *[each.expression if isinstance(each, ParameterArray) else each for each in inputs]
            )
        arguments = [np.asarray(argument) if isinstance(argument, ParameterArray) else argument for argument in inputs]
        return getattr(ufunc, method)(*arguments, **options)

    # ----- Python reads the array.

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __complex__(self) -> complex:
        return complex(np.asarray(self))

    def __index__(self) -> int:
        return operator.index(np.asarray(self))

    def __len__(self) -> int:
        return len(np.asarray(self)) if not self.shape else self.shape[0]

    def __iter__(self) -> Iterator[HostArray]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, number: object) -> bool:
        return number in np.asarray(self)

    def __repr__(self) -> str:
        return repr(np.asarray(self))

    def __format__(self, form: str) -> str:
        return format(np.asarray(self), form)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols ask whether there is such a thing
        return getattr(np.asarray(self), name)


# An array that is not on a device.
HostArray: TypeAlias = AnyArray | ParameterArray


def integer_in(number: Parameter, dtype: AnyDType) -> bytes | Expression:
    """Return the bytes of an integer in a dtype of integers, filled up with zeros to a whole word.

    Raises:
        OverflowError: it does not fit.
    """
    return derive(_bytes_in, number._expression, dtype)


def check_init(number: int | Parameter, dtype: AnyDType) -> Any:
    """Return an integer, which a dtype of integers has to hold. A parameter raises the error in later calls as well.

    Raises:
        TypeError: the dtype cannot hold it.
    """
    if isinstance(number, Parameter):
        return _parameter_of(derive(check_init, number._expression, dtype))
    least, greatest = _limits_of(dtype)
    if not least <= number <= greatest:
        raise TypeError(
            f"init has {number} for a carry of dtype {dtype}, which cannot hold it. Pass an init that fits, or one of "
            "a wider dtype, such as np.int64(...)"
        )
    return number


@lru_cache(maxsize=16)
def _limits_of(dtype: AnyDType) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return limits.min, limits.max


def check_exponent(number: int | Parameter) -> None:
    """Raise ValueError, as NumPy does, for a negative power of integers. Later calls with one raise it as well."""
    reveal(derive(_check_exponent, number._expression if isinstance(number, Parameter) else number))


def _check_exponent(number: int) -> bool:
    if number < 0:
        raise ValueError(
            f"np.power of integers by {number} was asked for, and integers have no negative powers. Convert them to "
            "floats: a.astype(np.float32) ** exponent"
        )
    return True


def as_float(number: Parameter) -> Parameter:
    """Return an integer as a float.

    Raises:
        OverflowError: it would be rounded.
    """
    expression = derive(_as_float, number._expression)
    assert isinstance(expression, Expression)
    return Parameter(expression)


def as_half(number: object) -> object:
    """Convert a number of Python to float16, as NumPy does for arrays of float16. Return other values unchanged."""
    if type(number) is int or type(number) is float:
        return _as_half(number)
    if type(number) is Parameter and number.number_type is float:
        return _parameter_of(derive(_as_half, number._expression))
    return number


def _as_half(number: float) -> np.float16:
    with np.errstate(over="ignore"):
        return np.float16(number)


def _bytes_in(number: int, dtype: AnyDType) -> bytes:
    return number.to_bytes(dtype.itemsize, sys.byteorder, signed=dtype.kind == "i").ljust(4, b"\0")


def _as_float(number: int) -> float:
    if abs(number) > 1 << 53:
        raise OverflowError
    return float(number)


def broadcast_array(array: HostArray, shape: tuple[int, ...]) -> HostArray:
    """Return an array of NumPy or of parameters, broadcast to a shape."""
    return array.broadcast_to(shape) if isinstance(array, ParameterArray) else np.broadcast_to(array, shape)


def arrays_hold(predicate: Callable[..., object], *arrays: HostArray) -> bool:
    """Return what a predicate of all numbers of some arrays says. Of parameters, nothing else is revealed.

    The predicate takes arrays of any shapes.
    """
    unknown = [array._expression for array in arrays if isinstance(array, ParameterArray)]
    if len(unknown) < len(arrays):
        return bool(predicate(*map(np.asarray, arrays)))
    return reveal(derive(_truth(predicate), *unknown)) is True


def extremes_of(array: HostArray) -> tuple[Any, Any]:
    """Return the least and the greatest number of an array that is not empty. Parameters stay unknown."""
    if not isinstance(array, ParameterArray):
        return array.min(), array.max()
    least, greatest = [_parameter_of(derive(function, array._expression)) for function in (_least, _greatest)]
    return least, greatest


def fill_array(number: Parameter, shape: tuple[int, ...], *dtypes: AnyDType) -> HostArray:
    """Return an array with the same parameter in all places.

    Args:
        shape: the array's shape.
        dtypes: the dtypes that the number is cast to, in this order.
    """
    return _array_of(derive(_fill, number._expression, shape, dtypes))


def combine_arrays(function: Callable[..., Sequence[AnyArray]], arrays: Sequence[object]) -> list[Any]:
    """Return the arrays that a function of arrays returns. Parameters among these stay unknown.

    Args:
        function: depends on its arguments alone. It may be another object at each call, but then `arrays_hold` may not
            be asked about its results: each object would become a part of the key.
        arrays: arrays of NumPy, and of parameters.
    """
    unknown = [array.expression for array in arrays if isinstance(array, ParameterArray)]
    if not unknown:
        return list(function(*arrays))

    def of_unknown(*values: AnyArray) -> Sequence[AnyArray]:
        following = iter(values)
        return function(*[next(following) if isinstance(array, ParameterArray) else array for array in arrays])

    return _split(derive(function if len(unknown) == len(arrays) else of_unknown, *unknown))


def compute_array(function: Callable[..., AnyArray], *operands: object) -> HostArray:
    """Return the array that a function of numbers and constants returns. Parameters among these stay unknown.

    Args:
        function: the same object at each call. It depends on its arguments alone. The shape and dtype of its result do
            not depend on the numbers.
        operands: numbers, parameters and constants with a text of their own.
    """
    given = [operand._expression if is_number_parameter(operand) else operand for operand in operands]
    return _array_of(derive(function, *given))


def compute_arrays(
    function: Callable[..., Sequence[AnyArray]], array: HostArray, *constants: object
) -> list[HostArray]:
    """Return the arrays that a function of an array and of constants returns, as `compute_array` does.

    The first of them has the shape of the array, and the shapes of the others do not depend on it.
    """
    if not isinstance(array, ParameterArray):
        return list(function(array, *constants))
    first, *others = _split(derive(function, array._expression, *constants))
    if isinstance(first, ParameterArray):
        return [ParameterArray(first.expression, array.shape), *others]
    return _split(derive(function, array.expression, *constants))


def _split(expression: Sequence[AnyArray] | Expression) -> list[HostArray]:
    """Return the arrays of several that a function returned."""
    if not isinstance(expression, Expression):
        return list(expression)
    results: Any = expression.value
    return [_array_of(derive(operator.getitem, expression, index)) for index in range(len(results))]


def as_parameter_array(value: object) -> ParameterArray | None:
    """Return a number, an array, or a list or tuple of numbers with parameters among them as an array; else None."""
    if isinstance(value, ParameterArray):
        return value
    if is_number_parameter(value):
        array = compute_array(np.asarray, value)
    elif (type(value) is list or type(value) is tuple) and any(map(is_number_parameter, value)):
        array = compute_array(_join_numbers, *value)
    else:
        return None
    return array if isinstance(array, ParameterArray) else None


def words_of_array(numbers: HostArray) -> Sequence[int | Expression]:
    """Return the bits of numbers of 32 bits as integers, or as expressions of the parameters."""
    if isinstance(numbers, ParameterArray):
        return [derive(_word, numbers.expression, index) for index in range(numbers.size)]
    words: list[int] = numbers.view(np.uint32).tolist()
    return words


def is_float_parameter(value: object) -> TypeGuard[Parameter]:
    """Return True for a parameter in the place of a float of Python or NumPy."""
    return type(value) is Parameter and value.number_type in FLOATS


def is_number_parameter(value: object) -> TypeGuard[Parameter]:
    """Return True for a parameter in the place of a float or an integer of Python or NumPy."""
    return is_float_parameter(value) or (type(value) is Parameter and value.number_type in INTEGERS)


def cast_parameter(number: Parameter, *dtypes: AnyDType) -> object:
    """Return a parameter cast to some dtypes, in this order, as a number of NumPy."""
    return _parameter_of(derive(_cast, number._expression, dtypes))


def _reveal_leaves(expression: Expression) -> None:
    """Reveal the parameters that an expression is computed from."""
    if expression.function is None:
        expression.reveal()
    for operand in expression.operands:
        if isinstance(operand, Expression):
            _reveal_leaves(operand)


def _is_operand(value: object) -> bool:
    """Return True for what arithmetic with an array of parameters is recorded for."""
    return (
        isinstance(value, (ParameterArray, np.generic)) or type(value) in PYTHON_NUMBERS or is_number_parameter(value)
    )


def _parameter_of(value: T | Expression) -> T | Parameter:
    return Parameter(value) if isinstance(value, Expression) else value


def _array_of(value: AnyArray | Expression) -> HostArray:
    # What takes too many operations is revealed already, and is a constant.
    return ParameterArray(value) if isinstance(value, Expression) else value


def _cast(number: object, dtypes: tuple[AnyDType, ...]) -> object:
    array = np.asarray(number)
    for dtype in dtypes:
        array = array.astype(dtype)
    return array[()]


def _fill(number: object, shape: tuple[int, ...], dtypes: tuple[AnyDType, ...]) -> AnyArray:
    cast = np.asarray(number)
    for dtype in dtypes:
        cast = cast.astype(dtype)
    array: AnyArray = np.empty(shape, cast.dtype)
    array[...] = cast
    return array


def _as_dtype(array: AnyArray, dtype: AnyDType) -> AnyArray:
    return array.astype(dtype)


def _broadcast_to(array: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    whole = np.empty(shape, array.dtype)
    whole[...] = array
    return whole


def _reshape(array: AnyArray, shape: tuple[int, ...]) -> AnyArray:
    return array.reshape(shape)


def _number(array: AnyArray) -> object:
    return array.reshape(())[()]


def _least(array: AnyArray) -> object:
    return array.min()


def _greatest(array: AnyArray) -> object:
    return array.max()


def _word(array: AnyArray, index: int) -> int:
    return int(array.view(np.uint32)[index])


def _join_numbers(*numbers: object) -> AnyArray:
    return np.array(numbers)


@lru_cache(maxsize=64)
def _truth(predicate: Callable[..., object]) -> Callable[..., bool]:
    """Return the predicate with results that are Python's."""
    return lambda *arrays: bool(predicate(*arrays))


def _bytes_of(array: AnyArray) -> bytes:
    content = array.tobytes()
    return content + bytes(-len(content) % 4)


QUIET.update((_as_float, _bytes_in, _check_exponent))
