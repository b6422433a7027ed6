"""Lengths, offsets and strides of a call as unknowns: a call of another length needs no other plan.

While a call is recorded, its arrays have a `Size` in the place of each length, offset and stride. Arithmetic on sizes
is noted in a `SizeTrace`. A comparison gives what it gives for the call's own sizes, and the trace keeps it as a guard:
other sizes take the same path through gpuscan's code if all guards have the same outcomes for them. `formula_of` writes
the function that checks the guards and computes the numbers of a program for other sizes.

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
        known: the index of each value that was computed, by the function and the indices of its operands. A constant
            has None, its type and itself.
    """

    def __init__(self, values: Sequence[int]) -> None:
        self.values: list[object] = list(values)
        self.steps: list[tuple[Callable[..., object], tuple[int, ...]] | None] = [None] * len(values)
        self.guards: dict[int, object] = {}
        self.count = len(values)
        self.known: dict[tuple[object, ...], int] = {}

    def sizes(self) -> list[int]:
        """Return the sizes of the call, as unknowns."""
        return [self.unknown(index) for index in range(self.count)]

    def unknown(self, index: int) -> Any:
        """Return a value as an unknown."""
        # Most of a recording are such objects, so that a call of their own for each is worth avoiding.
        size = object.__new__(Size)
        size.trace, size.index, size.value = self, index, self.values[index]
        return size

    def note(self, function: Callable[..., object], operands: Sequence[object]) -> int:
        """Note a function of sizes and constants, and return the index of its value.

        An error of the function is raised. It depends on the values of the operands.
        """
        key: list[object] = [function]
        for operand in operands:
            if type(operand) is Size and operand.trace is self:
                key.append(operand.index)
                continue
            number = operand if type(operand) in _NUMBERS else concrete(operand)
            constant = None, type(number), number
            index = self.known.get(constant)
            key.append(self.compute(constant) if index is None else index)
        index = self.known.get(tuple(key))
        return self.compute(tuple(key)) if index is None else index

    def compute(self, key: tuple[Any, ...]) -> int:
        """Note a value that is not known yet, by its key, and return its index."""
        step, (function, *operands) = None, key
        if function is None:
            value = operands[1]
        else:
            step = function, tuple(operands)
            try:
                value = function(*map(self.values.__getitem__, operands))
            except Exception:
                for index in operands:
                    self.guard(index)
                raise
        index = self.known[key] = len(self.values)
        self.values.append(value)
        self.steps.append(step)
        return index

    def guard(self, index: int) -> object:
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


def _binary(function: Callable[..., T], *, swapped: bool = False, compares: bool = False) -> Callable[..., Any]:
    """Return a method of `Size` that notes a function of it and of another number. Arrays and others get the number.

    Args:
        function: the function.
        swapped: True if the other number is the first operand.
        compares: True if the outcome is a guard.
    """

    def method(self: Size, other: Any) -> object:
        trace, other_type = self.trace, type(other)
        if other_type in _NUMBERS:
            constant = None, other_type, other
            index = trace.known.get(constant)
            if index is None:
                index = trace.compute(constant)
        elif other_type is not Size:
            number = reveal(self)
            return function(other, number) if swapped else function(number, other)
        elif other.trace is trace:
            index = other.index
        else:
            return function(self, other.value)
        key = (function, index, self.index) if swapped else (function, self.index, index)
        index = trace.known.get(key)
        if index is None:
            index = trace.compute(key)
        if compares:
            return trace.guards.setdefault(index, trace.values[index])
        return trace.unknown(index)

    return method


def _unary(function: Callable[..., object]) -> Callable[..., object]:
    """Return a method of `Size` that notes a function of it."""

    def method(self: Size) -> object:
        trace = self.trace
        index = trace.known.get((function, self.index))
        return trace.unknown(trace.compute((function, self.index)) if index is None else index)

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
    index: int
    trace: SizeTrace
    value: Any

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The type that the number has, for `isinstance`."""
        return type(self.value)

    __add__, __radd__ = _binary(operator.add), _binary(operator.add, swapped=True)
    __sub__, __rsub__ = _binary(operator.sub), _binary(operator.sub, swapped=True)
    __mul__, __rmul__ = _binary(operator.mul), _binary(operator.mul, swapped=True)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _binary(operator.truediv, swapped=True)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _binary(operator.floordiv, swapped=True)
    __mod__, __rmod__ = _binary(operator.mod), _binary(operator.mod, swapped=True)
    __and__, __rand__ = _binary(operator.and_), _binary(operator.and_, swapped=True)
    __or__, __ror__ = _binary(operator.or_), _binary(operator.or_, swapped=True)
    __lshift__, __rlshift__ = _binary(operator.lshift), _binary(operator.lshift, swapped=True)
    __rshift__, __rrshift__ = _binary(operator.rshift), _binary(operator.rshift, swapped=True)
    __pow__, __rpow__ = _binary(operator.pow), _binary(operator.pow, swapped=True)
    __lt__, __le__ = _binary(operator.lt, compares=True), _binary(operator.le, compares=True)
    __gt__, __ge__ = _binary(operator.gt, compares=True), _binary(operator.ge, compares=True)
    __eq__, __ne__ = _binary(operator.eq, compares=True), _binary(operator.ne, compares=True)
    __neg__, __abs__ = _unary(operator.neg), _unary(operator.abs)
    __ceil__, __floor__ = _unary(math.ceil), _unary(math.floor)
    bit_length = _unary(int.bit_length)
    __index__, __int__, __float__ = _question(operator.index), _question(int), _question(float)
    __hash__, __repr__, __str__, __format__ = _question(hash), _question(repr), _question(str), _question(format)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return np.array(reveal(self), dtype)

    def __array_ufunc__(self, ufunc: object, method: str, *inputs: object, **options: object) -> object:
        return getattr(ufunc, method)(*map(reveal, inputs), **options)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __divmod__(self, other: object) -> tuple[object, object]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[object, object]:
        return other // self, other % self


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


def formula_of(trace: SizeTrace, result: tuple[object, ...]) -> Callable[..., Any]:
    """Return a function that gives what a trace has led to, for other sizes.

    It takes the sizes of a call, and returns None if a guard has another outcome for them.

    Args:
        trace: the trace.
        result: a nest of tuples with sizes.
    """
    return _Writer(trace).function(result)


class _Writer:
    """Writes the function that `formula_of` returns."""

    def __init__(self, trace: SizeTrace) -> None:
        self._trace = trace
        # What the function reads, by its name.
        self._read: dict[str, Any] = {"new": tuple.__new__}
        # How each value is written. Constants are written where they are used.
        self._names: list[str | None] = [
            None if step is None and index >= trace.count else f"v{index}" for index, step in enumerate(trace.steps)
        ]
        self._wanted: set[int] = set()

    def function(self, result: tuple[object, ...]) -> Callable[..., object]:
        """Return the function of the sizes of a call."""
        value = self._nest(result) or self._constant(result)
        names = ", ".join([f"v{index}" for index in range(self._trace.count)])
        body = "\n  ".join([*self._steps(), f"return {value}"])
        # Where a step has no value, the code itself raises the error.
        text = f"def compute({names}):\n try:\n  {body}\n except (ArithmeticError, ValueError): return"
        exec(text, self._read)
        # A function that its own namespace referred to would be a cycle, which keeps memory of the device.
        function: Callable[..., object] = self._read.pop("compute")
        return function

    def _constant(self, value: object) -> str:
        if type(value) is int and value >= 0:
            return repr(value)
        name = f"c{len(self._read)}"
        self._read[name] = value
        return name

    def _name(self, index: int) -> str:
        """Return how a value is written."""
        name = self._names[index]
        if name is None:
            name = self._names[index] = self._constant(self._trace.values[index])
        return name

    def _nest(self, value: tuple[object, ...]) -> str | None:
        """Return the text of a nest of tuples; None if there are no sizes in it."""
        texts: list[str | None] = []
        for item in value:
            text = None
            if type(item) is Size:
                self._wanted.add(item.index)
                text = self._name(item.index)
            elif isinstance(item, tuple) and item:
                text = self._nest(item)
            texts.append(text)
        if not any(texts):
            return None
        written = ""
        for text, item in zip(texts, value, strict=True):
            if text is None:
                text = repr(item) if type(item) is int and item >= 0 else f"c{len(self._read)}"
                if text[0] == "c":
                    self._read[text] = item
            written += f"{text}, "
        value_type = type(value)
        return f"({written})" if value_type is tuple else f"new({self._constant(value_type)}, ({written}))"

    def _steps(self) -> list[str]:
        """Return the lines that check the guards and compute the values."""
        steps, guards, names = self._trace.steps, self._trace.guards, self._names
        operands, needed = set(self._wanted), {*guards, *self._wanted}
        for index in range(len(steps) - 1, -1, -1):
            step = steps[index]
            if index in needed and step is not None:
                needed.update(step[1])
                operands.update(step[1])
        lines = []
        for index in sorted(needed):
            step = steps[index]
            text = names[index]
            if step is not None:
                function, given = step
                values = []
                for operand in given:
                    values.append(names[operand] or self._name(operand))
                form = _WRITTEN.get(function)
                text = f"{self._constant(function)}({', '.join(values)})" if form is None else form.format(*values)
                if index in operands:
                    lines.append(f"v{index} = {text}")
                    text = f"v{index}"
            if index in guards:
                outcome = guards[index]
                guard = text if outcome is False else f"({text}) != {self._constant(outcome)}"
                lines.append(f"if {guard}: return")
        return lines
