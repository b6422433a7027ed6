"""Scan logarithms of sums by pairs (Milakov & Gimelshein 2018; Blanchard, Higham & Higham 2021).

``logaddexp`` takes a logarithm in each step. Instead, the pair (m, s) stands for ``m + log(s)``: m is the largest
number so far, and s is the sum of ``exp(number - m)``, at least 1. A step takes one exponential, which is at most 1,
and the logarithm is taken once, where a result is stored. The kernels do not know about it: the pairs are a bundle,
which maps on load and store make and take apart. A result of one number alone is that number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from math import log, sqrt

import numpy as np

from gpuscan.elements import Element
from gpuscan.operators.approximations import fit, polynomial, power_of_two
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import Map, trace_function
from gpuscan.operators.traced_array import Number
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.indexed_maps import compose_maps, with_index
from gpuscan.problem.problem import Problem

# The dtypes that are combined as float32. Numbers of 64 bits keep the operator.
_COMBINED_AS_FLOAT32 = frozenset({"float32", "float16", "bfloat16"})
# 2^-125 is no part of a sum that is at least 1. The bits of a greater number, infinity or NaN are greater.
_FAR_BITS = np.float32(125).view(np.uint32)
_ROOT_HALF_BITS = np.float32(sqrt(0.5)).view(np.int32)


class LogSums:
    """The logarithms of one base as pairs.

    Args:
        operator: the operator of numbers.
        log_two: the logarithm of 2.

    Attributes:
        pairs: the operator of pairs.
    """

    def __init__(self, operator: Operator, log_two: float) -> None:
        self._log_two = log_two
        self._log1p = fit(lambda x: np.log1p(x) / x * (log_two / log(2)), sqrt(0.5) - 1, sqrt(2) - 1, 9)
        self.pairs = Operator(f"{operator.name} of pairs", self.add, identity=(-np.inf, 0))

    @staticmethod
    def load(x: Number) -> tuple[Number, Number]:
        """Return the pair of one number. NaN is kept in the sum, because maxima may lose it."""
        value = x.astype(np.float32)
        return value, np.where(np.isnan(value), np.float32(np.nan), np.float32(1))

    def add(self, left: Sequence[Number], right: Sequence[Number]) -> tuple[Number, Number]:
        """Return the sum of two pairs: the larger m, and the sum of both sums as multiples of its exponential.

        Two equal infinities have a difference of NaN, and then the result is the infinity, whatever the sum is. If the
        left m is NaN, as an initial value may be, so is the result's.
        """
        difference = left[0] - right[0]
        second = difference <= np.float32(0)
        largest = np.where(second, right[0], left[0])
        larger, other = np.where(second, right[1], left[1]), np.where(second, left[1], right[1])
        distance = np.abs(difference) * np.float32(1 / self._log_two)
        near = np.minimum(distance.view(np.uint32), _FAR_BITS).view(np.float32)
        return largest, larger + other * power_of_two(-near)

    def store(self, pair: Sequence[Number]) -> Number:
        """Return the number that a pair stands for."""
        largest, total = pair
        number = np.where(total == np.float32(1), largest, largest + self._logarithm(total))
        return np.where(np.isnan(total), np.float32(np.nan), number)

    def _logarithm(self, x: Number) -> Number:
        """Return the logarithm of x, which is at least 1 and at most 2^32."""
        bits = x.view(np.int32) - _ROOT_HALF_BITS
        exponent = (bits >> np.int32(23)).astype(np.float32)
        rest = ((bits & np.int32(0x7FFFFF)) + _ROOT_HALF_BITS).view(np.float32) - np.float32(1)
        # Of the logarithm of 2, the first part has so few bits that the product is exact.
        head = round(self._log_two * 2**12) / 2**12
        return exponent * np.float32(head) + (
            rest * polynomial(self._log1p, rest) + exponent * np.float32(self._log_two - head)
        )


# The operators that are scanned by pairs, and the logarithms of 2 in their bases.
_LOG_TWO = {"logaddexp": log(2), "logaddexp2": 1.0}


@cache
def _log_sums(name: str) -> LogSums:
    return LogSums(BUILTINS[name], _LOG_TWO[name])


def as_log_sums(problem: Problem) -> Problem:
    """Return the same scan over pairs if it adds logarithms in float32; any other as it is.

    The bits of the results are the device's own, so a scan that must have the same bits everywhere stays as it is.
    """
    name = problem.operator.name
    if name not in _LOG_TWO or problem.operator is not BUILTINS[name] or problem.everywhere:
        return problem
    (field,) = problem.element.fields
    narrow = field.scalar.name != "float32"
    if field.scalar.name not in _COMBINED_AS_FLOAT32 or field.shape or (narrow and problem.after is not None):
        return problem
    sums = _log_sums(name)
    argument = with_index(problem.source, problem.row_length) if problem.indexed else problem.source
    before, after = _maps(sums, argument, problem.element, problem.before, problem.after)
    seeds = problem.seeds
    if seeds is not None:
        (seed,) = seeds
        if isinstance(seed, OnDevice):
            # One value for all rows, because the number of rows may be a size.
            seeds = (seed, np.ones(1, np.float32))
        else:
            seeds = (seed.astype(np.float32), np.broadcast_to(np.float32(1), seed.shape))
    whole = replace(problem, operator=sums.pairs, element=before.element, before=before, after=after, seeds=seeds)
    return whole.as_rewrite_of(problem, "log sums")


@lru_cache(maxsize=256)
def _maps(
    sums: LogSums,
    argument: Element,
    element: Element,
    before: Callable[..., object] | None,
    after: Callable[..., object] | None,
) -> tuple[Map, Map]:
    """Return the maps on load and on store of a scan over pairs.

    Args:
        sums: the operator.
        argument: what `before` takes.
        element: the element of the scan over numbers.
        before, after: the maps of that scan.
    """
    load = sums.load if before is None else compose_maps(before, sums.load)
    on_load = trace_function(load, argument, "before")

    def store(pair: Sequence[Number]) -> object:
        number = sums.store(pair)
        return number.astype(element.fields[0].scalar.dtype) if after is None else after(number)

    return on_load, trace_function(store, on_load.element, "after")
