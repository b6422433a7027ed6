"""Run a CPU twin of each GPU stage, under the stage's name: the same tree of combination on whole NumPy arrays.

An array has an axis for each level of the shader: (chunk, lane, step, subgroup, tile). The first axis is the one to
scan. Its last item is the total, which has the next level as its first axis. Float results are equal to the GPU's bit
for bit, so that a wrong stage is found by comparing buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.elements import Element, Field, compute_dtype
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import TooManyOperationsError
from gpuscan.operators.operator import Operator
from gpuscan.operators.source_location import quote_definition, quote_traceback
from gpuscan.operators.trace import trace_operator
from gpuscan.planning.tile_shapes import TileShape

# One array for each field, in compute form, then the head flags if the scan restarts anywhere.
Items = tuple[Array, ...]


# ----- Items


def first(items: Items, count: int) -> Items:
    """Return the first `count` items along the first axis; a negative count leaves out items at the end."""
    return tuple(array[:count] for array in items)


def rest(items: Items, start: int) -> Items:
    """Return the items from `start` on along the first axis."""
    return tuple(array[start:] for array in items)


def last(items: Items) -> Items:
    """Return the last item along the first axis."""
    return tuple(array[-1] for array in items)


def up(items: Items) -> Items:
    """Return each item's predecessor along the first axis. The first item stays in place, and is never used."""
    return stack([first(items, 1), first(items, -1)])


def stack(parts: Sequence[Items]) -> Items:
    """Concatenate the parts along the first axis."""
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def pad_items(items: Items, unit: int) -> Items:
    """Pad the items to a multiple of `unit` with copies of the last one. The caller drops their results."""
    missing = -len(items[0]) % unit
    copies = tuple(np.broadcast_to(array[-1:], (missing, *array.shape[1:])) for array in items)
    return stack([items, copies]) if missing else items


# ----- Operator


@dataclass(frozen=True)
class Joiner:
    """`combine`, `join` and `pick` of the shaders, on arrays of items. The leading axes of the arrays broadcast.

    Attributes:
        operator: the operator.
        element: the element type that it combines.
        segmented: True if items end in a head flag.
    """

    operator: Operator
    element: Element
    segmented: bool = False

    def __call__(self, a: Items, b: Items) -> Items:
        """Return a ⊕ b, or b where `b` has a head."""
        if not self.segmented:
            return self.combine(a, b)
        joined = (*self.combine(a[:-1], b[:-1]), a[-1] | b[-1])
        return self.pick(b[-1], b, joined)

    def pick(self, condition: Array, yes: Items, no: Items) -> Items:
        """Return `yes` where the condition holds, else `no`."""
        shapes = [field.shape for field in self.element.fields] + [()] * self.segmented
        wide = [condition.reshape(condition.shape + (1,) * len(shape)) for shape in shapes]
        return tuple(np.where(c, y, n) for c, y, n in zip(wide, yes, no, strict=True))

    def combine(self, a: Items, b: Items) -> Items:
        """Return the result of the operator's function, called once with all left and all right operands.

        Raises:
            OperatorError: the operator has no Python function; or the function raises, does not return elements, or
                cannot be traced, so that on arrays it may not do what it does on single elements.
        """
        operator, element = self.operator, self.element
        if operator.function is None:
            raise OperatorError(
                f"{operator.described} was asked for on NumPy, but it is WGSL alone. Give it as a Python "
                "function, or run it on a GPU"
            )
        if operator.kinds is None:
            _check_elementwise(operator, element)
        shapes = [field.shape for field in element.fields]
        axes = [array.shape[: array.ndim - len(s)] for array, s in zip((*a, *b), shapes * 2, strict=True)]
        lanes = np.broadcast_shapes(*axes)
        left, right = (
            element.structure.unflatten([np.broadcast_to(x, lanes + s) for x, s in zip(items, shapes, strict=True)])
            for items in (a, b)
        )
        try:
            value = operator.function(left, right)
        except OperatorError:
            raise
        except Exception as error:
            source_line = quote_traceback(error.__traceback__) or quote_definition(operator.function)
            raise OperatorError(f"{operator.name} raised {type(error).__name__}: {error}{source_line}") from error
        try:
            leaves = element.structure.flatten(value)
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise OperatorError(
                f"{operator.described} gives {type(value).__name__}, which is no element of "
                f"{len(shapes)} fields: {error}. Return one value for each field"
            ) from error
        return tuple(self._field(leaf, field, lanes) for leaf, field in zip(leaves, element.fields, strict=True))

    def _field(self, leaf: object, field: Field, lanes: tuple[int, ...]) -> Array:
        """Return one field of the operator's result, in compute form."""
        array = np.asarray(leaf)
        wanted = compute_dtype(field.scalar)
        plain = isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic)
        # Constants such as np.eye(2) are float64. The function was traced, so it makes float64 of nothing else.
        plain = plain or (array.dtype == np.float64 and wanted == np.float32)
        if not plain and array.dtype not in (wanted, field.scalar.dtype):
            raise OperatorError(
                f"{self.operator.described} gives {array.dtype} in field {field.name}, but its elements are "
                f"{field.scalar.name}. Write .astype(np.{field.scalar.name}) on it"
            )
        try:
            return np.broadcast_to(array.astype(wanted, copy=False), lanes + field.shape)
        except ValueError:
            raise OperatorError(
                f"{self.operator.described} gives shape {array.shape} in field {field.name} for operands of "
                f"shape {lanes + field.shape}; both must be one"
            ) from None


@lru_cache(maxsize=256)
def _check_elementwise(operator: Operator, element: Element) -> None:
    """Raise for code that does something else on arrays than on each element, such as ``l[0]`` or ``r.sum()``."""
    assert operator.function is not None
    with suppress(TooManyOperationsError):  # This is a limit of GPU compilers, which NumPy does not have.
        trace_operator(operator.function, element, operator.name)


def left_to_right(join: Joiner, items: Items, carry: Items | None = None) -> Items:
    """Return the inclusive scan along the first axis, one item after the other, with `carry` before the first."""
    sums: list[Items] = []
    for position in range(len(items[0])):
        item = tuple(array[position] for array in items)
        carry = item if carry is None else join(carry, item)
        sums.append(carry)
    return tuple(np.stack(arrays) for arrays in zip(*sums, strict=True))


def kogge_stone(join: Joiner, items: Items) -> Items:
    """Return the inclusive scan along the first axis, in a tree of logarithmic depth (Kogge & Stone 1973)."""
    distance = 1
    while distance < len(items[0]):
        items = stack([first(items, distance), join(first(items, -distance), rest(items, distance))])
        distance *= 2
    return items


# ----- Stages


@dataclass(frozen=True)
class TileSums:
    """The inclusive scans inside every tile, each level over the totals of the level before.

    Attributes:
        shape: the tile's shape.
        length: the number of items that were loaded. The rest of the last tile is padding.
        local: the scan of each invocation's chunk (chunk, lane, step, subgroup, tile).
        lanes: the scan over a subgroup's lanes (lane, step, subgroup, tile).
        carries: the scan over an invocation's steps (step, subgroup, tile).
        subgroups: the scan over the workgroup's subgroups (subgroup, tile). The last one is the tile's aggregate.
    """

    shape: TileShape
    length: int
    local: Items
    lanes: Items
    carries: Items
    subgroups: Items


def scan_tile(join: Joiner, shape: TileShape, loaded: Items) -> TileSums:
    """Return the scans inside every tile. Without subgroups, every invocation is a subgroup of its own."""
    width = max(1, shape.subgroup_size)
    bands = shape.workgroup_size // width * shape.bands
    axes = (-1, bands, shape.band_steps, width, shape.chunk)
    chunks = tuple(
        array.reshape(*axes, *array.shape[1:]).transpose(4, 3, 2, 1, 0, *range(5, 4 + array.ndim))
        for array in pad_items(loaded, shape.tile_size)
    )
    local = left_to_right(join, chunks)
    lanes = kogge_stone(join, last(local))
    carries = left_to_right(join, last(lanes))
    subgroups = kogge_stone(join, last(carries))
    return TileSums(shape, len(loaded[0]), local, lanes, carries, subgroups)


def reduce(sums: TileSums) -> Items:
    """Return the aggregate of each tile. If the last tile has padding, its aggregate is not used."""
    return last(sums.subgroups)


def scan_block(join: Joiner, block: int, totals: Items) -> Items:
    """Scan over the tiles of each block, K (lane, block), in a Kogge-Stone tree. The last one is the block's total."""
    return kogge_stone(join, tuple(a.reshape(-1, block, *a.shape[1:]).swapaxes(0, 1) for a in pad_items(totals, block)))


def scan_totals(join: Joiner, block: int, totals: Items, carry: Items | None = None) -> tuple[Items, Items]:
    """Return the tiles' prefixes, P(block) ⊕ K(tile), given their aggregates.

    Args:
        join: the operator on items.
        block: the number of tiles in a block.
        totals: the aggregate of each tile.
        carry: the combination of all elements before the first tile, or None.

    Returns:
        The prefix of each tile, and P(block + 1) for each block: the totals of all blocks up to this one, folded left
        to right. Without a carry, the prefix of the first tile is not used.
    """
    sums = scan_block(join, block, totals)
    folded = left_to_right(join, last(sums), carry)
    start = first(totals, 1) if carry is None else tuple(array[np.newaxis] for array in carry)
    before = stack([start, first(folded, -1)])  # P(block)
    lane, group = np.ogrid[:block, : len(before[0])]
    has_prefix = group > 0 if carry is None else group >= 0
    exclusive = up(sums)
    prefixes = join.pick(lane > 0, join.pick(has_prefix, join(before, exclusive), exclusive), before)
    return first(tuple(a.swapaxes(0, 1).reshape(-1, *a.shape[2:]) for a in prefixes), len(totals[0])), folded


def scan(join: Joiner, sums: TileSums, prefixes: Items, *, carried: bool = False, exclusive: bool = False) -> Items:
    """Return the result of every element, from the scans inside its tile and the tile's prefix.

    Args:
        join: the operator on items.
        sums: the scans inside the tiles.
        prefixes: the prefix of each tile.
        carried: True if a carry comes before the first tile.
        exclusive: True to leave each element out of its own result. The caller replaces a row's first result by the
            seed.
    """
    lane, step, subgroup, tile = np.ogrid[tuple(slice(n) for n in sums.lanes[0].shape[:4])]

    # From chunk to subgroup: lanes before this one, in this step and all steps before.
    lanes_before, steps_before = up(sums.lanes), up(sums.carries)
    lead = join.pick(lane > 0, join(steps_before, lanes_before), steps_before)
    lead = join.pick(step > 0, lead, lanes_before)
    led = (lane > 0) | (step > 0)
    if sums.shape.chunk == 1:  # A lane has one element, so the scan over the lanes has the elements' results.
        in_steps = join.pick(step > 0, join(steps_before, sums.lanes), sums.lanes)
        chunk = tuple(array[np.newaxis] for array in in_steps)
    else:
        chunk = join.pick(led, join(lead, sums.local), sums.local)

    # From subgroup to array: the tile's prefix and the subgroups before this one.
    has_prefix = np.full(tile.shape, True) if carried else tile > 0
    subgroups_before = up(sums.subgroups)
    outer = join.pick(subgroup > 0, join(prefixes, subgroups_before), prefixes)
    outer = join.pick(has_prefix, outer, subgroups_before)
    has_prefix = has_prefix | (subgroup > 0)
    if sums.shape.single_lead:  # Everything before a chunk is combined into `outer`.
        chunk, outer = sums.local, join.pick(led, join.pick(has_prefix, join(outer, lead), lead), outer)
        has_prefix, led = has_prefix | led, np.full(led.shape, False)
    if exclusive:
        shifted = first(chunk, -1)
        inner = join.pick(led, lead, tuple(array[0] for array in sums.local))
        chunk = stack([tuple(array[np.newaxis] for array in inner), shifted])
    results = join.pick(has_prefix, join(outer, chunk), chunk)
    if exclusive:
        begin = join.pick(led, tuple(array[0] for array in results), outer)
        results = stack([tuple(array[np.newaxis] for array in begin), rest(results, 1)])
    flat = tuple(a.transpose(4, 3, 2, 1, 0, *range(5, a.ndim)).reshape(-1, *a.shape[5:]) for a in results)
    return first(flat, sums.length)


# ----- Filters


def convolve(samples: Array, axis: int, taps: Array, first: Array) -> Array:
    """Return ``y[t] = first[t] + taps[0] x[t] + taps[1] x[t-1] + …`` along an axis, as arrays/convolve.wgsl does."""
    x = np.moveaxis(samples, axis, 0)
    added = np.moveaxis(first, axis, 0)[: len(x)]
    result = np.zeros_like(x)
    result[: len(added)] = added
    for i, tap in enumerate(taps[: len(x)]):
        result[i:] += tap * x[: len(x) - i]
    return np.ascontiguousarray(np.moveaxis(result, 0, axis))
