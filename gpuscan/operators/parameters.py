"""Floats that the user's functions close over, as parameters of a call: another float needs no other program.

A function is traced with a `Parameter` in the place of each float. Arithmetic on parameters is recorded as an
`Expression`. `gpuscan.operators.computation` does the same Python and NumPy operations again for other floats, so the
constants have the bits that a new trace would give them. Some values decide how a function is traced, such as the
outcome of a comparison, or the exponent of a power. They are revealed, and become a part of the key of the program.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.recent_values import RecentValues
from gpuscan.sizes import Size, apply, join_bytes
from gpuscan.sizes import reveal as reveal_size

# What a function of numbers returns.
T = TypeVar("T")

# Python numbers that arithmetic with a parameter is recorded for. Other operands say themselves what they do.
PYTHON_NUMBERS = frozenset({bool, int, float, complex})
# The types of the floats and complex numbers that are parameters. NumPy's keep their dtype.
FLOATS = frozenset({float, complex, np.float16, np.float32, np.float64, np.complex64})
# The types of the integers that are parameters once they have changed.
INTEGERS = frozenset({int, *(np.dtype(f"{kind}{size}").type for kind in "iu" for size in (1, 2, 4, 8))})
# The types of all these numbers.
NUMBERS = FLOATS | INTEGERS
# NumPy's of these types, which make a number of another one.
NUMPY_TYPES = NUMBERS - {int, float, complex}
# Python's integers in this range can be parameters. NumPy converts them without an array of objects.
LEAST_INTEGER, GREATEST_INTEGER = -(1 << 63), (1 << 63) - 1
# In these types, equal values have equal bits. In floats they may not: 0.0 equals -0.0.
_EXACT = INTEGERS | {bool, bytes}
# Operations that raise errors for some numbers.
_FALLIBLE = frozenset(
    {operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.lshift, operator.rshift}
)
# The most operations of an expression: the time to compare two of them grows with it.
_MAX_SIZE = 1024
# The greatest depth of an expression. Python compares nested expressions by recursion, which has a limit.
_MAX_DEPTH = 256
# How many sets of parameters are kept for later calls.
_MAX_SETS = 512


# ----- Expressions


class Expression:
    """A value that a function of the floats of a call has.

    Expressions are equal if they compute the same from the same floats.

    Attributes:
        parameters: the floats.
        function: computes the value from the operands; None for one of the floats, and for a size.
        operands: expressions and constants.
        value: the value for the floats that the call has.
        structure: what is computed from which floats; the index of the float for one of them. A size has `Size` and its
            index.
        size: the number of operations.
        depth: the number of operations on the longest path from the result to a float.
    """

    __slots__ = ("_hash", "depth", "function", "operands", "parameters", "size", "structure", "value")

    def __init__(
        self,
        parameters: Parameters,
        function: Callable[..., object] | None,
        operands: tuple[object, ...],
        value: object,
        structure: Hashable,
    ) -> None:
        self.parameters, self.function, self.operands = parameters, function, operands
        self.value, self.structure = value, structure
        inner = [operand for operand in operands if type(operand) is Expression]
        self.size: int = 1 + sum([operand.size for operand in inner])
        self.depth: int = 1 + max([operand.depth for operand in inner], default=0)
        self._hash = hash((id(parameters), structure))

    def __eq__(self, other: object) -> bool:
        if type(other) is not Expression:
            return False
        return self.parameters is other.parameters and self.structure == other.structure

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"Expression({self.structure!r}, value={self.value!r})"

    @property
    def is_revealed(self) -> bool:
        """True if all programs of the call depend on the value."""
        return self.structure in self.parameters.revealed

    def beside(self, number: object) -> object:
        """Return a size as an expression of the same call, to compute bytes of both; any other value as it is."""
        if type(number) is not Size:
            return number
        return Expression(self.parameters, None, (), number, (Size, number.index))

    def reveal(self) -> Any:
        """Return the value, on which the program depends from now on."""
        if type(self.value) is Size:
            return reveal_size(self.value)
        value_type = type(self.value)
        shown = self
        if value_type not in _EXACT:
            # `derive` cannot be called here: it reveals an expression that is full, which would come here again.
            function = bits_of if value_type in FLOATS or value_type is np.ndarray else repr
            shown = Expression(self.parameters, function, (self,), function(self.value), (function, self.structure))
        self.parameters.revealed.setdefault(shown.structure, shown)
        return self.value


def derive(function: Callable[..., T], *operands: object) -> T | Expression:
    """Return the expression of a function of expressions and constants; its result if the operands are constants.

    The function depends on its arguments alone. An error of it is raised, and depends on the values of the operands.
    """
    expressions = [operand for operand in operands if type(operand) is Expression]
    values = [operand.value if type(operand) is Expression else operand for operand in operands]
    if not expressions:
        return function(*values)
    parameters = expressions[0].parameters
    try:
        value = apply(function, *values)
    except Exception:
        for operand in expressions:
            operand.reveal()
        raise
    is_full = sum([operand.size for operand in expressions]) >= _MAX_SIZE
    is_full = is_full or max([operand.depth for operand in expressions]) >= _MAX_DEPTH
    if is_full or any(operand.parameters is not parameters for operand in expressions):
        for operand in expressions:
            operand.reveal()
        return value
    described = (
        operand.structure if type(operand) is Expression else (type(operand), repr(operand)) for operand in operands
    )
    expression = Expression(parameters, function, operands, value, (function, *described))
    if function in _FALLIBLE:
        # A call with floats for which it raises an error raises it, too, even if nothing uses the value.
        reveal(derive(is_defined, expression))
    return expression


def is_defined(value: object) -> bool:
    """Return True: where the value is not defined, this is not called."""
    return True


def is_between(number: int, least: int, most: int) -> bool:
    """Return True if a number is in a range."""
    return least <= number <= most


def present(value: object) -> Any:
    """Return the value of a parameter or an expression for the floats that the call has; any other value as it is."""
    if type(value) is Parameter:
        value = value._expression
    return value.value if type(value) is Expression else value


def reveal(value: object) -> Any:
    """Reveal the value of a parameter, an expression or a size; return any other value as it is."""
    if type(value) is Size:
        return reveal_size(value)
    if type(value) is Parameter:
        value = value._expression
    return value.reveal() if type(value) is Expression else value


def concatenate(parts: Sequence[bytes | Expression]) -> bytes | Expression:
    """Join bytes to one value."""
    if len(parts) == 1:
        return parts[0]
    return derive(operator.add if len(parts) == 2 else join_bytes, *parts)


_bits, _float32_bits = struct.Struct("=d").pack, struct.Struct("=f").pack


def bits_of(value: Any) -> bytes:
    """Return bytes that tell numbers of a known type apart, or arrays of a known shape and dtype."""
    if type(value) is float:
        return _bits(value)
    if type(value) is complex:
        return _bits(value.real) + _bits(value.imag)
    return repr(value).encode() if type(value) is int else value.tobytes()


# ----- Sets of parameters


def is_replaced(value: object) -> bool:
    """Return True for a number of a function that can be a parameter."""
    if type(value) is int:
        return LEAST_INTEGER <= value <= GREATEST_INTEGER
    return type(value) in NUMBERS


class Parameters:
    """The numbers of a call that are not a part of its key: floats, integers, and short arrays.

    Args:
        floats: their values, in the order in which `gpuscan.operators.function_keys` finds them.
        integers: False to leave integers and arrays of closures as they are. Later calls of the same program have to
            have the same.

    Attributes:
        floats: as above.
        revealed: the expressions with values that programs of the call depend on, by their structure. It only grows.
        leaves: for each number its expression, or the number itself if it is left as it is.
    """

    def __init__(self, floats: Sequence[object], integers: bool = True) -> None:
        # The caller may write to its arrays later.
        self.floats = tuple([np.array(value) if isinstance(value, np.ndarray) else value for value in floats])
        self.revealed: dict[Hashable, Expression] = {}
        self.leaves: list[Any] = [
            Expression(self, None, (), value, index) if integers or type(given) not in ONCE_CHANGED else value
            for index, (value, given) in enumerate(zip(self.floats, floats, strict=True))
        ]

    def reveal_all(self) -> None:
        """Make programs of the call depend on all the numbers."""
        for leaf in self.leaves:
            reveal(leaf)


class ClosedArray(np.ndarray[tuple[int, ...], AnyDType]):
    """A short array of NumPy that a function closes over. It is a parameter once it has changed, as an integer is."""


# The types of the numbers that are parameters only once they have changed.
ONCE_CHANGED = INTEGERS | {ClosedArray}

_sets: RecentValues[Hashable, Parameters] = RecentValues(_MAX_SETS)
_lock = threading.Lock()


def parameters_of(functions: Hashable, floats: Sequence[object], integers: bool = True) -> Parameters:
    """Return the parameters of a call. Calls of the same functions and floats share them, with what is revealed.

    Args:
        functions: the keys of the functions, without the floats.
        floats, integers: as in `Parameters`.
    """
    key = functions, integers, *map(bits_of, floats)
    with _lock:
        return _sets.find(key) or _sets.keep(key, Parameters(floats, integers))


# ----- Functions


class _Mode(threading.local):
    """What calls of a `Switch` do on this thread.

    Attributes:
        traced: while functions are traced with parameters, the parameters of each one that was called; else None.
        checks: True while a function is traced without them, to be compared.
    """

    traced: set[Parameters] | None = None
    checks = False


_mode = _Mode()


class Switch:
    """A user's function that can be traced with parameters. Everywhere else it is the function itself.

    Args:
        with_parameters: the same function with parameters in the place of floats.
    """

    __slots__ = ("__name__", "__qualname__", "__weakref__", "__wrapped__", "parameters", "with_parameters")

    def __init__(
        self, function: Callable[..., object], with_parameters: Callable[..., object], parameters: Parameters
    ) -> None:
        self.__wrapped__, self.with_parameters, self.parameters = function, with_parameters, parameters
        if hasattr(function, "__qualname__"):  # a `functools.partial` has no name
            self.__name__, self.__qualname__ = function.__name__, function.__qualname__

    def __call__(self, *arguments: object, **options: object) -> object:
        if _mode.traced is not None:
            _mode.traced.add(self.parameters)
            return self.with_parameters(*arguments, **options)
        if not _mode.checks:
            self.parameters.reveal_all()
        return self.__wrapped__(*arguments, **options)


@contextmanager
def trace_with_parameters() -> Iterator[set[Parameters]]:
    """Call functions with their parameters in the ``with``, and add the parameters of each function to the set."""
    before = _mode.traced
    traced: set[Parameters] = set()
    _mode.traced = traced
    try:
        yield traced
    finally:
        _mode.traced = before


@contextmanager
def trace_with_floats() -> Iterator[None]:
    """Call functions with their floats in the ``with``, to compare the graphs."""
    before = _mode.traced, _mode.checks
    _mode.traced, _mode.checks = None, True
    try:
        yield
    finally:
        _mode.traced, _mode.checks = before


# ----- Parameters


def _operation(function: Callable[..., object], *, swapped: bool = False) -> Callable[..., Any]:
    """Return a method of `Parameter` that records a function of it and of a Python number."""

    def method(self: Parameter, other: object) -> object:
        if type(other) is not Parameter and type(other) not in PYTHON_NUMBERS:
            return NotImplemented
        return _record(function, other, self) if swapped else _record(function, self, other)

    return method


def _question(function: Callable[..., T]) -> Callable[..., T]:
    """Return a method of `Parameter` that reveals what a function gives for it."""

    def method(self: Parameter, *arguments: object) -> T:
        answer: T = reveal(derive(function, self._expression, *arguments))
        return answer

    return method


def _record(function: Callable[..., T], *operands: object) -> T | Parameter:
    result = derive(function, *(operand._expression if type(operand) is Parameter else operand for operand in operands))
    return Parameter(result) if isinstance(result, Expression) else result


class Parameter:
    """A float of a function, while the function is traced, or what Python computes of such floats.

    It is no float, so that nothing reads its value unnoticed.
    """

    __slots__ = ("_expression",)

    def __init__(self, expression: Expression) -> None:
        self._expression = expression

    @property
    def number_type(self) -> type:
        """The type of the value, which no value of a float changes."""
        number_type: type = self._expression.value.__class__  # also of a size
        return number_type

    @property
    def present(self) -> Any:
        """The value, for what does not depend on it later."""
        return self._expression.value

    __add__, __radd__ = _operation(operator.add), _operation(operator.add, swapped=True)
    __sub__, __rsub__ = _operation(operator.sub), _operation(operator.sub, swapped=True)
    __mul__, __rmul__ = _operation(operator.mul), _operation(operator.mul, swapped=True)
    __and__, __rand__ = _operation(operator.and_), _operation(operator.and_, swapped=True)
    __or__, __ror__ = _operation(operator.or_), _operation(operator.or_, swapped=True)
    __xor__, __rxor__ = _operation(operator.xor), _operation(operator.xor, swapped=True)
    __lshift__, __rlshift__ = _operation(operator.lshift), _operation(operator.lshift, swapped=True)
    __rshift__, __rrshift__ = _operation(operator.rshift), _operation(operator.rshift, swapped=True)
    __truediv__, __rtruediv__ = _operation(operator.truediv), _operation(operator.truediv, swapped=True)
    __floordiv__, __rfloordiv__ = _operation(operator.floordiv), _operation(operator.floordiv, swapped=True)
    __mod__, __rmod__ = _operation(operator.mod), _operation(operator.mod, swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_operation, (operator.lt, operator.le, operator.gt, operator.ge))
    __eq__, __ne__ = map(_operation, (operator.eq, operator.ne))
    __bool__, __int__, __complex__ = _question(bool), _question(int), _question(complex)
    __float__, __index__ = _question(float), _question(operator.index)
    __trunc__, __floor__, __ceil__ = _question(math.trunc), _question(math.floor), _question(math.ceil)
    __hash__ = _question(hash)
    __repr__, __str__, __format__ = _question(repr), _question(str), _question(format)

    def __pow__(self, other: object, modulus: object = None) -> object:
        if modulus is None and type(other) is int:
            return _record(operator.pow, self, other)
        if type(other) is not Parameter and type(other) not in PYTHON_NUMBERS:
            return NotImplemented
        # Whether the result is a float or complex depends on the values.
        return pow(reveal(self), reveal(other), modulus)

    def __rpow__(self, other: complex) -> object:
        return pow(other, reveal(self)) if type(other) in PYTHON_NUMBERS else NotImplemented

    def __neg__(self) -> object:
        return _record(operator.neg, self)

    def __pos__(self) -> object:
        return _record(operator.pos, self)

    def __abs__(self) -> object:
        return _record(operator.abs, self)

    def __invert__(self) -> object:
        return _record(operator.invert, self)

    def __divmod__(self, other: object) -> tuple[object, object]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[object, object]:
        return other // self, other % self

    def __round__(self, digits: object = None) -> object:
        return reveal(derive(round, self._expression)) if digits is None else _record(round, self, digits)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols ask whether there is such a thing
        return getattr(reveal(self), name)

    # ----- NumPy reads the value, unless another operand is traced.

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(reveal(self), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> object:
        if any(has_own_form(operand) for operand in inputs):
            return NotImplemented
        if method == "__call__" and not options and {Parameter, *PYTHON_NUMBERS}.issuperset(map(type, inputs)):
            result = _record(ufunc, *inputs)
            if type(result) is Parameter and result.number_type in FLOATS:
                return result
        return getattr(ufunc, method)(*map(reveal, inputs), **options)

    def __array_function__(
        self, function: Callable[..., object], types: Iterable[type], args: object, options: object
    ) -> object:
        if any(argument_type is not Parameter and argument_type is not np.ndarray for argument_type in types):
            return NotImplemented
        return function(*_reveal_all(args), **_reveal_all(options))


def has_own_form(value: object) -> bool:
    """Return True for an operand of a ufunc that says itself what the ufunc does."""
    return hasattr(value, "__array_ufunc__") and not isinstance(value, (Parameter, np.ndarray, np.generic))


def _reveal_all(value: Any) -> Any:
    """Return a bundle with the values of parameters in their place."""
    if type(value) in (tuple, list):
        return type(value)(map(_reveal_all, value))
    if type(value) is dict:
        return dict(zip(value, map(_reveal_all, value.values()), strict=True))
    return reveal(value)


class RecordedMath:
    """The module `math` for functions with parameters: what it computes of these is recorded."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(math, name)
        return record_calls_of(value) if callable(value) else value


def record_calls_of(function: Callable[..., T]) -> Callable[..., T | Parameter]:
    """Return a function of numbers that records what it computes of parameters."""

    def call(*arguments: object) -> T | Parameter:
        kinds = set(map(type, arguments))
        if Parameter not in kinds or not kinds <= PYTHON_NUMBERS | {Parameter}:
            return function(*arguments)
        result = _record(function, *arguments)
        if type(result) is Parameter:
            reveal(derive(is_defined, result._expression))  # as `derive` does for other functions that raise errors
        return result

    return call


class RecordedNumpy:
    """The module `numpy` for functions with parameters: what its types of numbers make of parameters is recorded."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(np, name)
        return RecordedType(value) if isinstance(value, type) and value in NUMPY_TYPES else value


class RecordedType:
    """A type of numbers for functions with parameters: it makes a parameter of one. NumPy takes it as a dtype."""

    def __init__(self, number_type: type) -> None:
        self._type, self.dtype = number_type, np.dtype(number_type)
        self._made = record_calls_of(number_type)

    def __call__(self, *arguments: object) -> object:
        return self._made(*arguments)

    def __eq__(self, other: object) -> bool:
        return bool(self._type == (other._type if type(other) is RecordedType else other))

    def __hash__(self) -> int:
        return hash(self._type)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._type, name)


def as_parameter(number: T) -> T | Parameter:
    """Return a size of a call that is being recorded as a float parameter; return any other number as it is.

    Other calls of the recorded program may have other sizes.
    """
    return Parameter(Parameters([apply(float, number)]).leaves[0]) if type(number) is Size else number


def spelling(number: object) -> Hashable:
    """Return a key that differs between numbers of a type: how a number is written, or what a parameter computes."""
    return number._expression if type(number) is Parameter else repr(number)


# ----- Constants of graphs, as bytes


class BytesIn:
    """A function that gives the bytes of a number in a type.

    Attributes:
        pack: the same function of a float of Python, which raises OverflowError for an infinite result; None for some
            dtypes. NumPy would warn of such a result.
    """

    __slots__ = ("dtype", "pack")

    def __init__(self, dtype: AnyDType) -> None:
        self.dtype = dtype
        self.pack = {np.dtype(np.float32): _float32_bits, np.dtype(np.float64): _bits}.get(dtype)

    def __call__(self, number: object) -> bytes:
        array = np.asarray(number)
        if array.dtype.hasobject:
            raise OverflowError  # an integer of more than 64 bits
        return array.astype(self.dtype).tobytes()


class OfBytes:
    """A function of numbers as one of their bytes.

    Args:
        function: the function of NumPy numbers.
        sources: the types of its arguments.
    """

    __slots__ = ("function", "sources")

    def __init__(self, function: Callable[..., object], sources: tuple[AnyDType, ...]) -> None:
        self.function, self.sources = function, sources

    def __call__(self, *numbers: bytes) -> object:
        return self.function(
            *(np.frombuffer(number, dtype)[0] for number, dtype in zip(numbers, self.sources, strict=True))
        )


# Expressions of the same function are equal if they have the same object.
bytes_in = functools.lru_cache(maxsize=64)(BytesIn)


@functools.lru_cache(maxsize=16)
def integer_bytes_in(dtype: AnyDType) -> Callable[[int], bytes]:
    """Return a function that gives the bytes of a Python integer in a type, and raises OverflowError if it has none."""
    return operator.methodcaller("to_bytes", dtype.itemsize, sys.byteorder, signed=dtype.kind == "i")


of_bytes = functools.lru_cache(maxsize=512)(OfBytes)
