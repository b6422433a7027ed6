"""The tasks of a graph: what is done with the blocks of one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import gpuscan
from gpuscan.array_types import AnyArray
from gpuscan.elements import Structure

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gpuscan.api.annotations import Mapped, Operation

# An array for each array of a bundle.
Leaves = tuple[AnyArray, ...]


@dataclass(frozen=True)
class Work:
    """What the tasks of one call do, and all that they have to know.

    Attributes:
        structure: the way in which the user nests the arrays.
        op, axis, exclusive, reverse, dtype, before, after: as in `scan`.
        ndim: the number of axes that the arrays share.
        elements: how the elements nest that are combined.
        results: how the results nest.
        initial: the initial value that all rows share, or None.
        reproducible: as in `scan`.
    """

    structure: Structure
    op: Operation
    axis: int
    ndim: int
    elements: Structure
    results: Structure
    exclusive: bool = False
    reverse: bool = False
    dtype: DTypeLike | None = None
    before: Mapped | None = None
    after: Mapped | None = None
    initial: object = None
    reproducible: str | None = None

    def scan_leaves(self, leaves: Sequence[AnyArray], prefix: Leaves | None = None) -> Leaves:
        """Return the scan of a block, one array for each array of the results."""
        initial = self.initial if prefix is None else self.elements.build_bundle(prefix)
        # The overloads of `scan` ask whether there are maps, which a type checker does not know here.
        options: dict[str, Any] = {"before": self.before, "after": self.after, "dtype": self.dtype}
        options |= {"exclusive": self.exclusive, "reverse": self.reverse, "reproducible": self.reproducible}
        scanned = gpuscan.scan(self.structure.build_bundle(leaves), self.op, axis=self.axis, initial=initial, **options)
        return tuple(self.results.flatten(scanned))

    def reduce_block(
        self, leaves: Sequence[AnyArray], dtype: DTypeLike | None = None, initial: object = None
    ) -> Leaves:
        """Return the reduction of arrays along the axis, without `after`."""
        totals = gpuscan.reduce(
            self.structure.build_bundle(leaves),
            self.op,
            axis=self.axis,
            before=self.before,
            dtype=dtype,
            initial=initial,
            reproducible=self.reproducible,
        )
        return tuple(self.elements.flatten(totals))

    @property
    def of_elements(self) -> Work:
        """The same scan of what `before` returned."""
        return replace(self, structure=self.elements, results=self.elements, before=None, after=None, dtype=None)

    def total(self, *leaves: AnyArray) -> AnyArray:
        """Return the total of a block in a box, with the axis: of length 0 if the block has no elements."""
        if leaves[0].shape[self.axis] == 0:
            return box_value(leaves, self.ndim)
        return box_value(tuple(np.expand_dims(total, self.axis) for total in self._totals(leaves)), self.ndim)

    def _totals(self, leaves: Sequence[AnyArray], initial: object = None) -> Leaves:
        """Return the combination of a block's elements, in the direction of the scan."""
        if self.reverse:
            leaves = tuple(np.flip(leaf, self.axis) for leaf in leaves)
        return self.reduce_block(leaves, self.dtype, initial)

    def prefixes(self, totals: AnyArray, *seeds: AnyArray) -> AnyArray:
        """Return the prefix of each block of a row of blocks: None if nothing comes before it.

        Args:
            totals: the totals in boxes of all blocks but the last one; one box of None if there is one block only.
            seeds: an initial value for each row; none if they share one.
        """
        parts = [part for part in totals.ravel() if part is not None]
        parts = parts[::-1] if self.reverse else parts
        first = seeds or None
        prefixes: list[Leaves | None] = [first]
        if full := [part for part in parts if part[0].shape[self.axis]]:
            sums = replace(self.of_elements, exclusive=False, reverse=False).scan_leaves(
                _join_parts(full, self.axis), first
            )
        done = 0
        for part in parts:
            done += part[0].shape[self.axis]
            prefixes.append(tuple(np.take(running_sum, done - 1, self.axis) for running_sum in sums) if done else first)
        shape = tuple(len(prefixes) if i == self.axis else 1 for i in range(self.ndim))
        boxes = np.empty(len(prefixes), object)
        boxes[:] = prefixes[::-1] if self.reverse else prefixes
        return boxes.reshape(shape)

    def block(self, prefixes: AnyArray, *leaves: AnyArray) -> AnyArray:
        """Return the scan of a block in a box."""
        return box_value(self.scan_leaves(leaves, prefixes.item()), self.ndim)

    def step(self, carry: Sequence[AnyArray], *leaves: AnyArray) -> tuple[Leaves, Leaves]:
        """Return the scan of a block, and the carry for the next one.

        Args:
            carry: the carry from the block before; without one, an initial value for each row, or nothing.
            leaves: the block's arrays.
        """
        results = self.scan_leaves(leaves, tuple(carry) or None)
        if leaves[0].shape[self.axis] == 0:
            return results, tuple(carry)
        if self.after is not None:
            initial = self.elements.build_bundle(tuple(carry)) if carry else self.initial
            return results, tuple(map(np.asarray, self._totals(leaves, initial)))
        last = 0 if self.reverse else -1
        after = tuple(np.take(result, last, self.axis) for result in results)
        if self.exclusive:
            ends = [np.take(leaf, [last], self.axis) for leaf in leaves]
            after = tuple(np.take(end, 0, self.axis) for end in replace(self, exclusive=False).scan_leaves(ends, after))
        return results, after

    def row_results(self, totals: AnyArray) -> AnyArray:
        """Return the combination of the totals of a row of blocks, in a box."""
        return box_value(
            tuple(map(np.asarray, self.reduce_block(_join_parts(list(totals.flat), self.axis)))), self.ndim - 1
        )


def _join_parts(parts: Sequence[Leaves], axis: int) -> list[AnyArray]:
    return [np.concatenate(pieces, axis) for pieces in zip(*parts, strict=True)]


def box_value(value: object, ndim: int) -> AnyArray:
    """Return an array of one object."""
    box = np.empty((1,) * ndim, object)
    box[(0,) * ndim] = value
    return box


def unbox_leaf(number: int, boxes: AnyArray) -> AnyArray:
    leaves: Leaves = boxes.item()
    return leaves[number]


def result_of(number: int, step: tuple[Leaves, Leaves]) -> AnyArray:
    return step[0][number]
