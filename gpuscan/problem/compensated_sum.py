"""Sum float32 together with the rounding errors: scans of pairs (Dekker 1971, Knuth 1969).

A number becomes the pair (number, 0). Pairs are added as unevaluated sums of two floats, and a result is rounded once.
The kernels do not know about it: the pairs are a bundle, which maps on load and store make and take apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gpuscan.elements import dtype_from
from gpuscan.errors import OperatorError
from gpuscan.operators.named_operators import BUILTINS, resolve
from gpuscan.operators.operator import Operator, operator
from gpuscan.operators.traced_array import Number
from gpuscan.problem.arguments import structure_and_leaves, with_dtype
from gpuscan.problem.fixed_bits import is_everywhere
from gpuscan.problem.indexed_maps import compose_maps
from gpuscan.problem.problem import ProblemOptions

Map = Callable[..., object]
FLOAT32 = np.dtype(np.float32)


# Shaders read this number from a buffer, so that no compiler knows that it is 1.
_ONE = np.float32(1)


def as_rounded(x: Number) -> Number:
    """Return x, so that a compiler cannot see that it is unchanged.

    NVIDIA's compiler would otherwise simplify (a + b) - a to b.
    """
    return x * _ONE


def as_it_is(x: Number) -> Number:
    return x


Rounded = Callable[[Number], Number]


def two_sum(a: Number, b: Number, rounded: Rounded = as_rounded) -> tuple[Number, Number]:
    """Return the rounded sum and its rounding error; together they are exactly ``a + b`` (Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    rounded_total = rounded(total)
    of_b = rounded(rounded_total - a)
    of_a = rounded(rounded_total - of_b)
    return total, rounded(a - of_a) + rounded(b - of_b)


def quick_two_sum(a: Number, b: Number, rounded: Rounded) -> tuple[Number, Number]:
    """Return the rounded sum and its rounding error, if a is 0 or |a| >= |b| (Dekker 1971)."""
    total = a + b
    return total, b - rounded(rounded(total) - a)


def _add(left: Sequence[Number], right: Sequence[Number], rounded: Rounded) -> tuple[Number, Number]:
    high, error = two_sum(left[0], right[0], rounded)
    total, error = quick_two_sum(high, error + (left[1] + right[1]), rounded)
    finite = np.isfinite(high)
    return np.where(finite, total, high), np.where(finite, error, np.float32(0))


@operator(identity=(0, 0), name="compensated add")
def add_pairs(left: Sequence[Number], right: Sequence[Number]) -> tuple[Number, Number]:
    """Return the sum of two pairs (high, low), which stand for high + low.

    The error is at most 2^-46 of the larger operand. The low part of infinity and NaN is 0.
    """
    return _add(left, right, as_rounded)


@operator(identity=(0, 0), name="compensated add")
def add_pairs_everywhere(left: Sequence[Number], right: Sequence[Number]) -> tuple[Number, Number]:
    """Return the same for ``reproducible="everywhere"``, where kernels hide each step from the compiler anyway."""
    return _add(left, right, as_it_is)


def _refuse(refused: str, instead: str = "dtype=np.float32") -> OperatorError:
    """Return the error for a scan that is not a sum of float32."""
    return OperatorError(
        f"compensated=True was passed for {refused}; it is for sums of float32. Pass {instead}, or compensated=False"
    )


def make_pair_map(before: Map | None) -> Map:
    """Return a map that applies `before` and makes a pair of its result."""

    def load(value: Number) -> tuple[Number, Number]:
        if getattr(value, "dtype", None) != FLOAT32:
            raise _refuse(f"elements of {getattr(value, 'dtype', 'several fields')}")
        return value, np.zeros_like(value)

    return load if before is None else compose_maps(before, load)


def make_sum_map(after: Map | None) -> Map:
    """Return a map that adds the numbers of a pair and applies `after` to the sum."""

    def store(value: Sequence[Number]) -> object:
        total = value[0] + value[1]
        return total if after is None else after(total)

    return store


def as_pairs(x: object, op: object, options: ProblemOptions) -> tuple[object, Operator, ProblemOptions]:
    """Return the input, operator and options of a scan of pairs that computes the same sums.

    Raises:
        OperatorError: the scan is not a sum of float32.
    """
    if resolve(op) is not BUILTINS["add"]:
        raise _refuse(f"the operator {resolve(op).name!r}", 'the operator "add"')
    dtype, before, initial = options.get("dtype"), options.get("before"), options.get("initial")
    if dtype is not None:
        if (requested := dtype_from(dtype)) != FLOAT32:
            raise _refuse(f"dtype={requested}")
        structure, leaves = structure_and_leaves(x)
        leaves, before = with_dtype(leaves, structure, FLOAT32, before)
        x = structure.unflatten(leaves)
    seed = None if initial is None else (initial, np.float32(0))
    pairs: ProblemOptions = {
        "dtype": None,
        "before": make_pair_map(before),
        "after": make_sum_map(options.get("after")),
        "initial": seed,
    }
    return x, add_pairs_everywhere if is_everywhere(options.get("reproducible")) else add_pairs, options | pairs
