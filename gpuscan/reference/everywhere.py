"""Scan on NumPy with the bits that reproducible="everywhere" promises: in the canonical order, by fixed steps.

The canonical order is defined in docs/numerics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.operators.evaluation import compute_fields, join_parts
from gpuscan.operators.expression_graph import Node, numpy_function
from gpuscan.operators.trace import Map, trace_function, trace_operator
from gpuscan.operators.wgsl_arithmetic import CHOICES, ELEMENTARY, ROUNDS_TO_ODD
from gpuscan.planning.tile_shapes import CANONICAL_CHUNK, CANONICAL_GROUP, SPAN
from gpuscan.reference.elementary import elementary
from gpuscan.reference.stages import Items, Joiner, first, pad_items, rest, stack

# The bits of the only NaN.
NAN = np.uint32(0x7FC00000).view(np.float32)

# Operations on float32 that NumPy rounds correctly, subnormals included.
_ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "sqrt"})


# ----- The canonical order


def scan_span(join: Joiner, items: Items, fold: Items | None) -> tuple[Items, Items, Items]:
    """Return the inclusive and the exclusive results of a span, or of the beginning of one, and the next span's fold.

    Args:
        join: the operator.
        items: up to `SPAN` items.
        fold: the totals of all spans before, folded, as arrays of length 1; None at the beginning. Then the first
            exclusive result is any.
    """
    count, unit = len(items[0]), CANONICAL_CHUNK * CANONICAL_GROUP
    groups = 1 << max(0, -(-count // unit) - 1).bit_length()
    shape = groups, CANONICAL_GROUP, CANONICAL_CHUNK
    padded = tuple(array.reshape(*shape, *array.shape[1:]) for array in pad_items(items, groups * unit))
    columns = [tuple(array[:, :, position] for array in padded) for position in range(CANONICAL_CHUNK)]
    scanned = list(accumulate(columns, join))
    # What is before each chunk in its group, and before each group. The first chunk of a group has only the latter.
    in_groups, totals = lead_halves(join, scanned[-1], None)
    start = None if fold is None else tuple(array[np.newaxis] for array in fold)
    before, total = lead_halves(join, tuple(array.swapaxes(0, 1) for array in totals), start)
    before = tuple(array.swapaxes(0, 1) for array in before)
    leads = _with_first(before, join(before, in_groups))
    if fold is None:
        leads = stack([first(in_groups, 1), rest(leads, 1)])
    leads, *own = map(_as_one_group, (leads, *scanned))
    results = [join(leads, row) for row in own]
    if fold is None:  # there is nothing before the first chunk
        results = [_with_first(row, result) for row, result in zip(own, results, strict=True)]
    inclusive, exclusive = (
        tuple(np.stack(arrays, axis=2).reshape(-1, *arrays[0].shape[2:])[:count] for arrays in zip(*rows, strict=True))
        for rows in (results, [leads, *results[:-1]])
    )
    span = tuple(array[0] for array in total)
    return inclusive, exclusive, span if fold is None else join(fold, span)


def lead_halves(join: Joiner, totals: Items, lead: Items | None) -> tuple[Items, Items]:
    """Return what is before each of several parts, along the second axis, and the total of all.

    It is `lead`, joined with halves of the parts before, the largest half first.

    Args:
        join: the operator.
        totals: of the parts, a power of two.
        lead: what is before the first part; None if there is nothing. Then the first result is any.
    """
    levels = [totals]
    while levels[-1][0].shape[1] > 1:
        levels.append(join(*(tuple(array[:, side::2] for array in levels[-1]) for side in (0, 1))))
    total = levels.pop()
    leads = total if lead is None else lead
    for level in reversed(levels):
        halves = tuple(array[:, 0::2] for array in level)
        joined = join(leads, halves)
        if lead is None:
            joined = _with_first(halves, joined)
        pairs = (np.stack(arrays, axis=2) for arrays in zip(leads, joined, strict=True))
        leads = tuple(array.reshape(len(array), -1, *array.shape[3:]) for array in pairs)
    return leads, total


def _as_one_group(items: Items) -> Items:
    """Return the items of several groups as the items of a single one."""
    return tuple(array.reshape(1, -1, *array.shape[2:]) for array in items)


def _with_first(items: Items, others: Items) -> Items:
    """Return the other items, but along the second axis the first ones of `items`."""
    return tuple(
        np.concatenate((array[:, :1], other[:, 1:]), axis=1) for array, other in zip(items, others, strict=True)
    )


def scan_everywhere(
    join: Joiner, load: Callable[[int, int], Items], length: int, *, exclusive: bool
) -> Iterable[tuple[int, Items]]:
    """Yield the results of each span: its first index, and the results."""
    fold: Items | None = None
    for start in range(0, length, SPAN):
        inclusive, before, fold = scan_span(join, load(start, min(start + SPAN, length)), fold)
        yield start, before if exclusive else inclusive


# ----- Fixed steps


@dataclass(frozen=True)
class FixedJoiner(Joiner):
    """The operator on arrays of items, operation by operation, each with the bits that it has on every device."""

    def combine(self, a: Items, b: Items) -> Items:
        """Return the result of the operator."""
        assert self.operator.function is not None
        traced = trace_operator(self.operator.function, self.element, self.operator.name)
        axes = [
            array.shape[: array.ndim - len(field.shape)]
            for items in (a, b)
            for array, field in zip(items, self.element.fields, strict=True)
        ]
        lanes = np.broadcast_shapes(*axes)
        sides = [
            [np.broadcast_to(x, lanes + f.shape) for x, f in zip(items, self.element.fields, strict=True)]
            for items in (a, b)
        ]
        return tuple(compute_fields(traced.fields, [self.element] * 2, self.element, sides, compute_fixed_node))


def compute_fixed_map(function: Map, value: Sequence[Array]) -> list[Array]:
    """Return the fields of a map's result, with fixed bits."""
    traced = trace_function(function.function, function.source, "the map")
    return compute_fields(traced.result.fields, [function.source], traced.element, [value], compute_fixed_node)


def compute_fixed_node(node: Node, *args: Array) -> Any:
    """Return the result of a node, with the bits that it has on every device."""
    if node.op in ROUNDS_TO_ODD and node.scalar.bits == 16:
        return elementary(node.op, *args, odd=True)
    return compute_fixed_operation(node.op, *args)


def compute_fixed_operation(name: str, *args: Array) -> Any:
    """Return the result of an operation, named after NumPy's ufunc, with the bits that it has on every device."""
    dtype = np.asarray(args[0]).dtype
    if dtype == np.complex64 and name == "multiply":
        (a, b), (c, d) = ((np.real(arg), np.imag(arg)) for arg in args)
        real = compute_fixed_operation(
            "subtract", compute_fixed_operation("multiply", a, c), compute_fixed_operation("multiply", b, d)
        )
        imag = compute_fixed_operation(
            "add", compute_fixed_operation("multiply", a, d), compute_fixed_operation("multiply", b, c)
        )
        return join_parts(real, imag)
    if dtype == np.complex64 and name in ("add", "subtract", "negative"):
        parts = ([part(arg) for arg in args] for part in (np.real, np.imag))
        return join_parts(*(compute_fixed_operation(name, *component) for component in parts))
    if dtype != np.float32:
        return numpy_function(name)(*args)
    if name in _ROUNDED:
        computed = numpy_function(name)(*args)
        return np.where(np.isnan(computed), NAN, computed)
    if name in CHOICES or name in ELEMENTARY:
        return elementary(name, *np.broadcast_arrays(*args))
    if name in ("negative", "absolute"):
        bits = np.asarray(args[0]).view(np.uint32)
        sign = np.uint32(0x80000000)
        return (bits ^ sign if name == "negative" else bits & ~sign).view(np.float32)
    return numpy_function(name)(*args)
