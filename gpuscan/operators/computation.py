"""Compute expressions again for other numbers, without a trace."""

from __future__ import annotations

import copy
import math
import operator
import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from gpuscan.operators.parameters import BytesIn, Expression, OfBytes, bits_of, is_between, is_defined
from gpuscan.sizes import join_bytes

# The value of an expression that is not defined for some floats.
FAILED = object()
_bits = struct.Struct("=d").pack
# Numbers and arrays of NumPy.
_IN_NUMPY = (np.generic, np.ndarray)
# Functions of Python's numbers that compute nothing with NumPy.
QUIET: set[Callable[..., object]] = {is_defined, is_between, join_bytes}
# Types of values that Python computes without NumPy, and so without warnings.
_PYTHON_TYPES = frozenset({bool, int, float, bytes})


def _is_quiet(expression: Expression) -> bool:
    """Return True if NumPy never warns while a step is computed."""
    function, operands = expression.function, expression.operands
    if type(function) is BytesIn and type(operands[0]) is Expression and function.dtype == operands[0].value.__class__:
        return True  # not converted
    # A size has the class of its number.
    if not {operand.value.__class__ for operand in operands if type(operand) is Expression} <= _PYTHON_TYPES:
        return False
    is_of_python = isinstance(function, (type(operator.add), operator.methodcaller))
    return is_of_python or function in QUIET or getattr(function, "pack", None) is not None


class Computation:
    """Computes expressions for other floats, without a trace.

    Args:
        expressions: the expressions, of floats of one kind of call.

    Attributes:
        values: a function that returns the values of the expressions for the floats of a call; `FAILED` for each that
            is not defined for these floats.
        constants: what else it computes from. Sizes among these need their numbers, as `with_constants` takes them.
    """

    def __init__(self, expressions: Iterable[Expression]) -> None:
        given = list(expressions)
        count = len(given[0].parameters.floats) if given else 0
        constants: list[object] = []
        # What each step computes one more value from: the index of a float or of a step, or ~ the index of a constant.
        steps: list[tuple[Callable[..., object], list[int]]] = []
        step_numbers: dict[Hashable, int] = {}
        self.values: Callable[[Sequence[object]], list[object]] = self._compute
        # For functions that take long: the bits of the last numbers, the results, and the values of all steps.
        self._last: tuple[list[object], list[object], list[object]] = [], [], []

        def index_of(operand: object) -> int:
            if type(operand) is not Expression:
                constants.append(operand)
                return ~(len(constants) - 1)
            if type(operand.structure) is int:
                return operand.structure
            if operand.function is None:
                return index_of(operand.value)
            if operand.structure not in step_numbers:
                operands = list(map(index_of, operand.operands))
                steps.append((operand.function, operands))
                if not _is_quiet(operand) and self.values != self._compute_again:
                    is_long = isinstance(operand.function, FunctionType)
                    self.values = self._compute_again if is_long else self._compute_quietly
                step_numbers[operand.structure] = count + len(steps) - 1
            return step_numbers[operand.structure]

        def index(number: int) -> int:
            """Return an index among the constants, the floats and the steps."""
            return ~number if number < 0 else len(constants) + number

        results = [index_of(item) for item in given]
        self.constants = tuple(constants)
        self._steps: list[tuple[Any, tuple[int, ...]]] = [
            (function, tuple(map(index, given))) for function, given in steps
        ]
        self._results = [index(item) for item in results]

    def with_constants(self, constants: tuple[object, ...]) -> Computation:
        """Return the same computation with other constants."""
        if constants is self.constants:
            return self
        other = copy.copy(self)
        other.constants, other._last = constants, ([], [], [])
        other.values = getattr(other, self.values.__name__)
        return other

    def _compute_quietly(self, floats: Sequence[object]) -> list[object]:
        """Return the values without NumPy's warnings. Entering and leaving this state takes three Python calls."""
        with np.errstate(all="ignore"):
            return self._compute(floats)

    def _compute_again(self, floats: Sequence[object]) -> list[object]:
        """Return the values, computed only from the numbers that are not the last ones."""
        # As `bits_of` does, without its calls: filters have ten numbers for each section.
        bits: list[object] = [
            (value.shape, value.tobytes())
            if isinstance(value, _IN_NUMPY)
            else _bits(value)
            if type(value) is float
            else bits_of(value)
            for value in floats
        ]
        last_bits, results, values = self._last
        if bits == last_bits:
            return results
        # The caller may write to its arrays later.
        kept = [np.array(value) if isinstance(value, np.ndarray) else value for value in floats]
        for index, known in enumerate(values[len(self.constants) :][: len(last_bits)]):
            if bits[index] == last_bits[index]:
                kept[index] = known
        fresh: list[object] = []
        with np.errstate(all="ignore"):
            results = self._compute(kept, values, fresh)
        self._last = bits, results, fresh
        return results

    def _compute(
        self, floats: Sequence[object], last: Sequence[object] = (), fresh: list[object] | None = None
    ) -> list[object]:
        """Return the values.

        Args:
            floats: the numbers.
            last: the constants, the numbers and the values of all steps of an earlier computation. A step of the same
                objects as there is not computed again.
            fresh: takes the same of this computation.
        """
        values: list[Any] = [*self.constants, *floats]
        value_of, last_of = values.__getitem__, last.__getitem__ if last else None
        failed = False
        as_array, read = np.asarray, np.frombuffer
        for function, operands in self._steps:
            if last_of is not None and all(map(operator.is_, map(value_of, operands), map(last_of, operands))):
                values.append(last_of(len(values)))
                failed = failed or values[-1] is FAILED
                continue
            if failed and any(value_of(operand) is FAILED for operand in operands):
                values.append(FAILED)
                continue
            try:
                # Most steps are these functions. A call of such a function takes a few times as long.
                function_type = type(function)
                if function_type is BytesIn:
                    value = values[operands[0]]
                    if function.pack is None or type(value) is not float:
                        value = as_array(value)
                        if value.dtype.hasobject:
                            raise OverflowError  # as `BytesIn` does
                        value = value.astype(function.dtype).tobytes()
                    else:
                        try:
                            value = function.pack(value)
                        except OverflowError:
                            value = function.pack(math.copysign(math.inf, value))
                elif function is join_bytes:
                    value = b"".join(map(value_of, operands))
                elif function_type is OfBytes and len(operands) == 1:
                    value = function.function(read(values[operands[0]], function.sources[0])[0])
                elif function_type is OfBytes and len(operands) == 2:
                    one, two = function.sources
                    value = function.function(read(values[operands[0]], one)[0], read(values[operands[1]], two)[0])
                else:
                    value = function(*map(value_of, operands))
                values.append(value)
            except Exception:
                failed = True
                values.append(FAILED)
        if fresh is not None:
            fresh += values
        return list(map(value_of, self._results))
