"""Scan on NumPy with the bits that reproducible="everywhere" promises: in the canonical order, by fixed steps.

The canonical order is defined in docs/numerics.md. `scan_halves` is the twin of what the kernels do in a tile and with
the totals of the tiles of a span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.operators.evaluation import compute_fields
from gpuscan.operators.expression_graph import Node, numpy_function
from gpuscan.operators.trace import Map, trace_map, trace_operator
from gpuscan.operators.wgsl_arithmetic import CHOICES, ELEMENTARY, ROUNDS_TO_ODD
from gpuscan.planning.tile_shapes import SPAN
from gpuscan.reference.elementary import elementary
from gpuscan.reference.stages import Items, Joiner, first, last, pad_items, stack

# The bits of the only NaN.
NAN = np.uint32(0x7FC00000).view(np.float32)

# Operations on float32 that NumPy rounds correctly, subnormals included.
_ROUNDED = frozenset({"add", "subtract", "multiply", "divide", "sqrt"})


# ----- The canonical order


def scan_halves(join: Joiner, items: Items) -> Items:
    """Return the inclusive scan along the first axis, of a power of two items.

    It is the scan of the left half, then the total of that half joined with the scan of the right half. The total of
    a half is the last item of its scan.
    """
    count, half = len(items[0]), 1
    while half < count:
        pairs = tuple(array.reshape(-1, 2, half, *array.shape[1:]) for array in items)
        left = tuple(array[:, 0] for array in pairs)
        joined = join(tuple(array[:, -1:] for array in left), tuple(array[:, 1] for array in pairs))
        both = zip(left, joined, strict=True)
        items = tuple(np.stack(arrays, axis=1).reshape(-1, *arrays[0].shape[2:]) for arrays in both)
        half *= 2
    return items


def scan_span(join: Joiner, items: Items, fold: Items | None) -> Items:
    """Return the results of a span, or of the beginning of one.

    Args:
        join: the operator.
        items: up to `SPAN` items.
        fold: the last result before them, as arrays of length 1; None at the beginning.
    """
    count = len(items[0])
    sums = scan_halves(join, pad_items(items, 1 << max(0, count - 1).bit_length()))
    sums = tuple(array[:count] for array in sums)
    return sums if fold is None else join(fold, sums)


def scan_everywhere(
    join: Joiner, load: Callable[[int, int], Items], length: int
) -> Iterable[tuple[int, Items, Items | None]]:
    """Yield the results of each span: its first index, the results, and the last result before it."""
    fold: Items | None = None
    for start in range(0, length, SPAN):
        results = scan_span(join, load(start, min(start + SPAN, length)), fold)
        yield start, results, fold
        fold = tuple(array[np.newaxis] for array in last(results))


def shift_results(results: Items, fold: Items | None) -> Items:
    """Return exclusive results from inclusive ones; the first of all is any, since a head stands there."""
    return stack([first(results, 1) if fold is None else fold, first(results, -1)])


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
    traced = trace_map(function.function, function.source, "the map")
    return compute_fields(traced.fields, [function.source], traced.element, [value], compute_fixed_node)


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
        return complex_of(real, imag)
    if dtype == np.complex64 and name in ("add", "subtract", "negative"):
        parts = ([part(arg) for arg in args] for part in (np.real, np.imag))
        return complex_of(*(compute_fixed_operation(name, *component) for component in parts))
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


def complex_of(real: Array, imag: Array) -> Array:
    """Return complex numbers of these parts, with their bits unchanged."""
    number = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), np.complex64)
    number.real, number.imag = real, imag
    return number
