"""The CPU twin of each GPU stage, under the stage's name: the same tree of combination on whole NumPy arrays.

Where a shader has lanes, an array here has an axis, and the first axis is the one that is scanned:
(chunk, lane, step, subgroup, tile). The last item along it is the total, whose first axis is then the next one.
Float results are equal to the GPU's bit for bit, so that a wrong stage is found by comparing buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpuscan.elements import Element, Field, compute_dtype
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import TooManyOperationsError
from gpuscan.operators.operator import Operator
from gpuscan.operators.source_location import defined_at, raised_at
from gpuscan.operators.tracing import trace_operator
from gpuscan.planning.tile_shapes import TileShape

Array = np.ndarray[Any, Any]
Items = tuple[Array, ...]  # one array for each field, in compute form; then the head flags, where there are rows


# ----- Items


def first(items: Items, count: int) -> Items:
    """The first `count` items along the first axis; counted from the end where negative."""
    return tuple(array[:count] for array in items)


def rest(items: Items, start: int) -> Items:
    """The items from `start` on along the first axis."""
    return tuple(array[start:] for array in items)


def last(items: Items) -> Items:
    """The last item along the first axis."""
    return tuple(array[-1] for array in items)


def up(items: Items) -> Items:
    """Each item's predecessor along the first axis; the first one keeps its own, which no one reads."""
    return stack([first(items, 1), first(items, -1)])


def stack(parts: Sequence[Items]) -> Items:
    """The parts one after the other along the first axis."""
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def padded(items: Items, unit: int) -> Items:
    """The items, and as many copies of the last one as make whole units; what they lead to is cut off again."""
    missing = -len(items[0]) % unit
    copies = tuple(np.broadcast_to(array[-1:], (missing, *array.shape[1:])) for array in items)
    return stack([items, copies]) if missing else items


# ----- Operator


@dataclass(frozen=True)
class Joiner:
    """`combine`, `join` and `pick` of the shaders, on arrays of items whose leading axes broadcast.

    Attributes:
        operator: what combines.
        element: what is combined.
        segmented: items end in a head flag.
    """

    operator: Operator
    element: Element
    segmented: bool = False

    def __call__(self, a: Items, b: Items) -> Items:
        """a ⊕ b; where `b` has a head, it cuts `a` off."""
        if not self.segmented:
            return self.combine(a, b)
        joined = (*self.combine(a[:-1], b[:-1]), a[-1] | b[-1])
        return self.pick(b[-1], b, joined)

    def pick(self, condition: Array, yes: Items, no: Items) -> Items:
        """`yes` where the condition holds, else `no`."""
        shapes = [field.shape for field in self.element.fields] + [()] * self.segmented
        wide = [condition.reshape(condition.shape + (1,) * len(shape)) for shape in shapes]
        return tuple(np.where(c, y, n) for c, y, n in zip(wide, yes, no, strict=True))

    def combine(self, a: Items, b: Items) -> Items:
        """The operator's function, called once with all the left and all the right operands.

        Raises:
            OperatorError: it has no Python function, raises, gives something else than elements, or cannot be traced:
                what it does with an array would not be what it does with each element.
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
            place = raised_at(error.__traceback__) or defined_at(operator.function)
            raise OperatorError(f"{operator.name} raised {type(error).__name__}: {error}{place}") from error
        try:
            leaves = element.structure.flatten(value)
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise OperatorError(
                f"{operator.described} gives {type(value).__name__}, which is no element of "
                f"{len(shapes)} fields: {error}. Return one value for each field"
            ) from error
        return tuple(self._field(leaf, field, lanes) for leaf, field in zip(leaves, element.fields, strict=True))

    def _field(self, leaf: Any, field: Field, lanes: tuple[int, ...]) -> Array:
        """One field of what the operator gave, in compute form."""
        array = np.asarray(leaf)
        wanted = compute_dtype(field.scalar)
        plain = isinstance(leaf, (int, float, complex)) and not isinstance(leaf, np.generic)
        if not plain and array.dtype not in (wanted, field.scalar.dtype):
            raise OperatorError(
                f"{self.operator.described} gives {array.dtype} in field {field.name}, whose elements are "
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
    """Refuse, as a GPU does, code that means another thing for arrays than for each element: ``l[0]``, ``r.sum()``."""
    assert operator.function is not None
    with suppress(TooManyOperationsError):  # a limit of GPU compilers
        trace_operator(operator.function, element, operator.name)


def left_to_right(join: Joiner, items: Items, carry: Items | None = None) -> Items:
    """Inclusive scan along the first axis, one after the other, with `carry` before the first."""
    sums: list[Items] = []
    for position in range(len(items[0])):
        item = tuple(array[position] for array in items)
        carry = item if carry is None else join(carry, item)
        sums.append(carry)
    return tuple(np.stack(arrays) for arrays in zip(*sums, strict=True))


def kogge_stone(join: Joiner, items: Items) -> Items:
    """Inclusive scan along the first axis in a tree of logarithmic depth (Kogge & Stone 1973)."""
    distance = 1
    while distance < len(items[0]):
        items = stack([first(items, distance), join(first(items, -distance), rest(items, distance))])
        distance *= 2
    return items


# ----- Stages


@dataclass(frozen=True)
class TileSums:
    """The inclusive scans inside every tile, each level over the totals of the one before.

    Attributes:
        shape: the tile's shape.
        length: items that were loaded; what lies past them in the last tile is padding.
        local: each invocation's chunk (chunk, lane, step, subgroup, tile).
        lanes: over a subgroup's lanes (lane, step, subgroup, tile).
        carries: over an invocation's steps (step, subgroup, tile).
        subgroups: over the workgroup's subgroups (subgroup, tile); the last one is the tile's aggregate.
    """

    shape: TileShape
    length: int
    local: Items
    lanes: Items
    carries: Items
    subgroups: Items


def scan_tile(join: Joiner, shape: TileShape, loaded: Items) -> TileSums:
    """The scans inside every tile of the items. Without subgroups, every invocation is a subgroup of its own."""
    width = max(1, shape.subgroup_size)
    axes = (-1, shape.workgroup_size // width, shape.steps, width, shape.chunk)
    shared = tuple(
        array.reshape(*axes, *array.shape[1:]).transpose(4, 3, 2, 1, 0, *range(5, 4 + array.ndim))
        for array in padded(loaded, shape.tile_size)
    )
    local = scan_chunk(join, shared)
    lanes = scan_lanes(join, last(local))
    carries = left_to_right(join, last(lanes))
    subgroups = scan_subgroups(join, last(carries))
    return TileSums(shape, len(loaded[0]), local, lanes, carries, subgroups)


def scan_chunk(join: Joiner, chunk: Items) -> Items:
    """Over the neighbouring elements that one invocation takes: left to right."""
    return left_to_right(join, chunk)


def scan_lanes(join: Joiner, totals: Items) -> Items:
    """Over the lanes of a subgroup: a Kogge-Stone tree."""
    return kogge_stone(join, totals)


def scan_subgroups(join: Joiner, totals: Items) -> Items:
    """Over the subgroups of a workgroup: a Kogge-Stone tree."""
    return kogge_stone(join, totals)


def reduce(sums: TileSums) -> Items:
    """The aggregate of each tile; that of a last tile with padding is of no use to anyone."""
    return last(sums.subgroups)


def scan_block(join: Joiner, block: int, totals: Items) -> Items:
    """Over the tiles of each block, K (lane, block): a Kogge-Stone tree. The last one is the block's total."""
    return kogge_stone(join, tuple(a.reshape(-1, block, *a.shape[1:]).swapaxes(0, 1) for a in padded(totals, block)))


def scan_totals(join: Joiner, block: int, totals: Items, carry: Items | None = None) -> tuple[Items, Items]:
    """From the tiles' aggregates to their prefixes, P(block) ⊕ K(tile).

    Args:
        join: the operator on items.
        block: tiles whose aggregates are scanned together.
        totals: the aggregate of each tile.
        carry: what comes before the first tile, if anything does.

    Returns:
        The prefix of each tile (the first one's is of no use to anyone unless a carry comes in), and P(block + 1) for
        each block: the totals of all blocks up to this one, folded left to right.
    """
    sums = scan_block(join, block, totals)
    folded = left_to_right(join, last(sums), carry)
    start = first(totals, 1) if carry is None else tuple(array[np.newaxis] for array in carry)
    before = stack([start, first(folded, -1)])  # P(block)
    lane, group = np.ogrid[:block, : len(before[0])]
    known = group > 0 if carry is None else group >= 0
    exclusive = up(sums)
    prefixes = join.pick(lane > 0, join.pick(known, join(before, exclusive), exclusive), before)
    return first(tuple(a.swapaxes(0, 1).reshape(-1, *a.shape[2:]) for a in prefixes), len(totals[0])), folded


def scan(join: Joiner, sums: TileSums, prefixes: Items, *, carried: bool = False, exclusive: bool = False) -> Items:
    """Every element once, from the scans inside its tile and the tile's prefix.

    Args:
        join: the operator on items.
        sums: the scans inside the tiles.
        prefixes: the prefix of each tile.
        carried: something comes before the first tile.
        exclusive: leave each element out of its own result; a row's first result is then for the seed to replace.
    """
    lane, step, subgroup, tile = np.ogrid[tuple(slice(n) for n in sums.lanes[0].shape[:4])]

    # From chunk to subgroup: lanes before this one, in this step and all steps before.
    lanes_before, steps_before = up(sums.lanes), up(sums.carries)
    lead = join.pick(lane > 0, join(steps_before, lanes_before), steps_before)
    lead = join.pick(step > 0, lead, lanes_before)
    led = (lane > 0) | (step > 0)
    if sums.shape.chunk == 1:  # an element's own scan is that over the lanes
        in_steps = join.pick(step > 0, join(steps_before, sums.lanes), sums.lanes)
        chunk = tuple(array[np.newaxis] for array in in_steps)
    else:
        chunk = join.pick(led, join(lead, sums.local), sums.local)

    # From subgroup to array: the tile's prefix and the subgroups before this one.
    known = np.full(tile.shape, True) if carried else tile > 0
    subgroups_before = up(sums.subgroups)
    outer = join.pick(subgroup > 0, join(prefixes, subgroups_before), prefixes)
    outer = join.pick(known, outer, subgroups_before)
    known = known | (subgroup > 0)
    if sums.shape.single_lead:  # all that comes before a chunk is outer, nothing is between
        chunk, outer = sums.local, join.pick(led, join.pick(known, join(outer, lead), lead), outer)
        known, led = known | led, np.full(led.shape, False)
    if exclusive:
        shifted = first(chunk, -1)
        inner = join.pick(led, lead, tuple(array[0] for array in sums.local))
        chunk = stack([tuple(array[np.newaxis] for array in inner), shifted])
    results = join.pick(known, join(outer, chunk), chunk)
    if exclusive:
        begin = join.pick(led, tuple(array[0] for array in results), outer)
        results = stack([tuple(array[np.newaxis] for array in begin), rest(results, 1)])
    flat = tuple(a.transpose(4, 3, 2, 1, 0, *range(5, a.ndim)).reshape(-1, *a.shape[5:]) for a in results)
    return first(flat, sums.length)
