"""Lengths, offsets and strides of a call as unknowns: a call of another length needs no other plan.

While a call is recorded, its arrays have a `Size` in the place of each length, offset and stride. Arithmetic on sizes
is noted in a `SizeTrace`. A comparison gives what it gives for the call's own sizes, and the trace keeps it as a guard:
other sizes take the same path through gpuscan's code if all guards have the same outcomes for them. A `SizeFormula`
checks the guards and computes the numbers of a program again for other sizes.

A size is no int, so that nothing reads its value unnoticed. What needs the number itself, such as a hash, `range` or
NumPy, gets it by `__index__`, and the trace keeps the number as a guard.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from gpuscan.array_types import AnyArray

# What a function of numbers returns. To a type checker, a size that stands for it is the same.
T = TypeVar("T")

# Operands of a size that arithmetic is noted for.
_NUMBERS = frozenset({int, float, bool})


class SizeTrace:
    """What is computed of the sizes of a call.

    Args:
        values: the sizes of the call.

    Attributes:
        values: the values of this call; first the sizes.
        steps: for each value the function and the indices of its operands; None for a size and for a constant.
        guards: by their indices, the values that other calls have to have as well.
        count: the number of sizes.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.values: list[object] = list(values)
        self.steps: list[tuple[Callable[..., object], tuple[int, ...]] | None] = [None] * len(values)
        self.guards: dict[int, object] = {}
        self.count = len(values)
        self._known: dict[object, int] = {}

    def sizes(self) -> list[int]:
        """Return the sizes of the call, as unknowns."""
        return [self.unknown(index) for index in range(self.count)]

    def unknown(self, index: int) -> Any:
        """Return a value as an unknown."""
        return Size(self, index, self.values[index])

    def constant(self, value: object) -> int:
        """Return the index of a value that does not depend on the sizes."""
        return self._place((None, type(value), value), None, value)

    def note(self, function: Callable[..., object], operands: Sequence[object]) -> int:
        """Note a function of sizes and constants, and return the index of its value.

        An error of the function is raised. It depends on the values of the operands.
        """
        indices = []
        for operand in operands:
            if type(operand) is Size and operand.trace is self:
                indices.append(operand.index)
            else:
                indices.append(self.constant(concrete(operand)))
        key = (function, *indices)
        kept = self._known.get(key)
        if kept is not None:
            return kept
        try:
            value = function(*map(self.values.__getitem__, indices))
        except Exception:
            for index in indices:
                self.guard(index)
            raise
        return self._place(key, (function, tuple(indices)), value)

    def _place(self, key: object, step: tuple[Callable[..., object], tuple[int, ...]] | None, value: object) -> int:
        index = self._known.get(key)
        if index is None:
            index = self._known[key] = len(self.values)
            self.values.append(value)
            self.steps.append(step)
        return index

    def guard(self, index: int) -> Any:
        """Return a value, which other calls have to have as well."""
        value = self.values[index]
        if index < self.count or self.steps[index] is not None:
            self.guards.setdefault(index, value)
        return value


def apply(function: Callable[..., T], *operands: object) -> T:
    """Return a function of numbers; a `Size` if one of them is. The function depends on its arguments alone."""
    for operand in operands:
        if type(operand) is Size:
            trace: SizeTrace = operand.trace
            unknown: T = trace.unknown(trace.note(function, operands))
            return unknown
    return function(*operands)


def concrete(value: Any) -> Any:
    """Return a value, or the tuples and lists of a value, with the numbers of this call in the place of sizes.

    Nothing that later calls do may depend on them.
    """
    value_type = type(value)
    if value_type is Size:
        return value.value
    if value_type is tuple or value_type is list:
        return value_type(map(concrete, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return value._make(map(concrete, value))  # type: ignore[attr-defined]
    return value


def has_size(values: Iterable[object]) -> bool:
    """Return True if one of the values is a size that is unknown."""
    return Size in map(type, values)


def join(*parts: object) -> bytes:
    """Join bytes to one value, also if sizes are packed in them."""
    return apply(join_bytes, *parts)


def join_bytes(*parts: bytes) -> bytes:
    """Join bytes to one value."""
    return b"".join(parts)


def gcd(*numbers: object) -> int:
    """Return the greatest common divisor, also of sizes."""
    return apply(math.gcd, *numbers)


def reveal(value: object) -> Any:
    """Return a number as it is; of a size, the number of this call, which later calls have to have as well."""
    return value.trace.guard(value.index) if type(value) is Size else value


def spans(length: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the begin and the length of each part of up to `most` elements."""
    if 0 < length <= most:
        yield 0, length
        return
    for start in range(0, length, most):
        yield start, min(most, length - start)


def slice_span(part: slice, length: int) -> tuple[int, int, int]:
    """Return the first index of a slice of an axis, the step, and how many indices there are.

    Example:
        >>> slice_span(slice(None, None, -2), 6)
        (5, -2, 3)
    """
    if Size not in map(type, (length, part.start, part.stop, part.step)):
        start, stop, step = part.indices(length)
        return start, step, len(range(start, stop, step))
    step = 1 if part.step is None else reveal(part.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    # What bounds are cut to.
    low, high = (0, length) if step > 0 else (-1, length - 1)

    def clamp_index(given: int | None, default: int) -> int:
        if given is None:
            return default
        return max(given + length, low) if given < 0 else min(given, high)

    start = clamp_index(part.start, low if step > 0 else high)
    stop = clamp_index(part.stop, high if step > 0 else low)
    return start, step, max(0, -((start - stop) // step))


# ----- Sizes


def _operation(function: Callable[..., T], *, swapped: bool = False) -> Callable[..., T]:
    """Return a method of `Size` that notes a function of it and of another number. Arrays and others get the number."""

    def method(self: Size, other: object) -> T:
        if type(other) is not Size and type(other) not in _NUMBERS:
            number = reveal(self)
            return function(other, number) if swapped else function(number, other)
        return apply(function, other, self) if swapped else apply(function, self, other)

    return method


def _comparison(function: Callable[..., T]) -> Callable[..., T]:
    """Return a method of `Size` that compares it with another number. The outcome is a guard."""

    def method(self: Size, other: object) -> T:
        if type(other) is not Size and type(other) not in _NUMBERS:
            return function(reveal(self), other)
        trace = self.trace
        outcome: T = trace.guard(trace.note(function, (self, other)))
        return outcome

    return method


def _question(function: Callable[..., T]) -> Callable[..., T]:
    """Return a method of `Size` that needs its number, which becomes a guard."""

    def method(self: Size, *arguments: object) -> T:
        return function(self.trace.guard(self.index), *arguments)

    return method


class Size:
    """A length, an offset or a stride of a call that is being recorded, or what is computed of them.

    Attributes:
        trace: the trace of the call.
        index: the index of the value in the trace.
        value: the value in this call, for what later calls do not depend on.
    """

    __slots__ = ("index", "trace", "value")

    def __init__(self, trace: SizeTrace, index: int, value: object) -> None:
        self.trace, self.index, self.value = trace, index, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The type that the number has, for `isinstance`."""
        return type(self.value)

    __add__, __radd__ = _operation(operator.add), _operation(operator.add, swapped=True)
    __sub__, __rsub__ = _operation(operator.sub), _operation(operator.sub, swapped=True)
    __mul__, __rmul__ = _operation(operator.mul), _operation(operator.mul, swapped=True)
    __truediv__, __rtruediv__ = _operation(operator.truediv), _operation(operator.truediv, swapped=True)
    __floordiv__, __rfloordiv__ = _operation(operator.floordiv), _operation(operator.floordiv, swapped=True)
    __mod__, __rmod__ = _operation(operator.mod), _operation(operator.mod, swapped=True)
    __and__, __rand__ = _operation(operator.and_), _operation(operator.and_, swapped=True)
    __or__, __ror__ = _operation(operator.or_), _operation(operator.or_, swapped=True)
    __lshift__, __rlshift__ = _operation(operator.lshift), _operation(operator.lshift, swapped=True)
    __rshift__, __rrshift__ = _operation(operator.rshift), _operation(operator.rshift, swapped=True)
    __pow__, __rpow__ = _operation(operator.pow), _operation(operator.pow, swapped=True)
    __lt__, __le__, __gt__, __ge__ = map(_comparison, (operator.lt, operator.le, operator.gt, operator.ge))
    __eq__, __ne__ = map(_comparison, (operator.eq, operator.ne))
    __index__, __int__, __float__ = _question(operator.index), _question(int), _question(float)
    __hash__, __repr__, __str__, __format__ = _question(hash), _question(repr), _question(str), _question(format)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(reveal(self), dtype)

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: object, **options: object) -> object:
        return getattr(ufunc, method)(*map(reveal, inputs), **options)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __neg__(self) -> object:
        return apply(operator.neg, self)

    def __abs__(self) -> object:
        return apply(operator.abs, self)

    def __ceil__(self) -> int:
        rounded: int = apply(math.ceil, self)
        return rounded

    def __floor__(self) -> int:
        rounded: int = apply(math.floor, self)
        return rounded

    def __divmod__(self, other: object) -> tuple[object, object]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[object, object]:
        return other // self, other % self

    def bit_length(self) -> int:
        """Return how many bits the number takes."""
        return apply(int.bit_length, self)


# ----- The same computation for other sizes

# How Python writes the functions that are noted most. A function that is called takes several times as long.
_WRITTEN: dict[object, str] = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.neg: "-{}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
}


class SizeFormula:
    """A function of Python that gives what a trace has led to, for other sizes.

    Args:
        result: a nest of tuples with sizes.
    """

    def __init__(self, trace: SizeTrace, result: tuple[object, ...]) -> None:
        self._compute = _Writer(trace).function(result)

    def __call__(self, sizes: Sequence[int]) -> Any:
        """Return the result for other sizes; None if a guard has another outcome for them."""
        try:
            return self._compute(*sizes)
        except (ArithmeticError, ValueError):
            return None


class _Writer:
    """Writes the function of a `SizeFormula`."""

    def __init__(self, trace: SizeTrace) -> None:
        self._trace = trace
        # What the function reads, by its name.
        self._known: dict[str, Any] = {"new": tuple.__new__}
        self._wanted: set[int] = set()

    def function(self, result: tuple[object, ...]) -> Callable[..., Any]:
        """Return the function of the sizes of a call."""
        value = self._nest(result) or self._constant(result)
        names = ", ".join(f"v{index}" for index in range(self._trace.count))
        lines = [f"def compute({names}):", *self._steps(), f"return {value}"]
        exec("\n    ".join(lines), self._known)
        # A function that its own namespace referred to would be a cycle, which keeps memory of the device.
        function: Callable[..., object] = self._known.pop("compute")
        return function

    def _constant(self, value: object) -> str:
        if type(value) is int and value >= 0:
            return repr(value)
        name = f"c{len(self._known)}"
        self._known[name] = value
        return name

    def _value(self, index: int) -> str:
        is_constant = index >= self._trace.count and self._trace.steps[index] is None
        return self._constant(self._trace.values[index]) if is_constant else f"v{index}"

    def _nest(self, value: object) -> str | None:
        """Return the text of a nest of tuples; None if there are no sizes in it."""
        if type(value) is Size:
            self._wanted.add(value.index)
            return self._value(value.index)
        if not isinstance(value, tuple):
            return None
        parts = [self._nest(item) for item in value]
        if not any(parts):
            return None
        written = "".join(f"{part or self._constant(item)}, " for part, item in zip(parts, value, strict=True))
        value_type = type(value)
        return f"({written})" if value_type is tuple else f"new({self._constant(value_type)}, ({written}))"

    def _steps(self) -> Iterator[str]:
        """Yield the lines that check the guards and compute the values."""
        steps, guards = self._trace.steps, self._trace.guards
        operands, needed = set(self._wanted), {*guards, *self._wanted}
        for index in range(len(steps) - 1, -1, -1):
            step = steps[index]
            if index in needed and step is not None:
                needed.update(step[1])
                operands.update(step[1])
        for index in sorted(needed):
            step = steps[index]
            text = self._value(index)
            if step is not None:
                function, given = step
                values = [self._value(operand) for operand in given]
                text = f"{self._constant(function)}({', '.join(values)})"
                if function in _WRITTEN:
                    text = _WRITTEN[function].format(*values)
                if index in operands:
                    yield f"v{index} = {text}"
                    text = f"v{index}"
            if index in guards:
                outcome = guards[index]
                yield f"if {text}: return" if outcome is False else f"if ({text}) != {self._constant(outcome)}: return"
