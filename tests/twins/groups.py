"""CPU twins of the stages of groups by a table, each of the name of its template under ``shaders/groups/``.

Rows are cut into stretches. A table has a carry for each stretch and each label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.reference.stages import Items, Joiner

Array = AnyArray


@dataclass(frozen=True)
class Table:
    """The carries of all stretches.

    Attributes:
        known: True where there is a carry: (rows, stretches, labels).
        carries: one array (rows, stretches, labels, *element shape) for each field; junk where there is none.
    """

    known: Array
    carries: Items

    def join_table(self, join: Joiner, others: Table) -> Table:
        """Return this table's carries, joined with the carries of a table that comes after it."""
        both = join.pick(self.known, join(self.carries, others.carries), others.carries)
        return Table(self.known | others.known, join.pick(others.known, both, self.carries))

    def stretch(self, index: int) -> Table:
        """Return the carries of one stretch of each row: (rows, labels)."""
        return Table(self.known[:, index], tuple(carries[:, index] for carries in self.carries))


def combine_groups(join: Joiner, items: Items, labels: Array, groups: int, stretch: int) -> Table:
    """Return for each stretch and label the combination of its elements.

    Args:
        join: the operator.
        items: one array (rows, row length, *element shape) for each field, in the order of the scan.
        labels: the labels (rows, row length), in the same order.
        groups: the number of labels.
        stretch: the elements of a stretch.
    """
    rows, length = labels.shape
    shape = rows, -(-length // stretch), groups
    table = Table(np.zeros(shape, bool), tuple(np.zeros((*shape, *each.shape[2:]), each.dtype) for each in items))
    _walk(join, items, labels, stretch, table)
    return table


def scan_carries(join: Joiner, table: Table, seeds: Items | None = None) -> Table:
    """Return for each stretch and label the combination of what is before the stretch, from the rows' seeds on."""
    before = [_start(table, seeds)]
    for index in range(table.known.shape[1]):
        before.append(before[-1].join_table(join, table.stretch(index)))
    parts = before[:-1]
    known = np.stack([part.known for part in parts], 1)
    return Table(known, tuple(np.stack(each, 1) for each in zip(*(part.carries for part in parts), strict=True)))


def reduce_carries(join: Joiner, table: Table, seeds: Items | None = None) -> Table:
    """Return the combination of all elements of each label: (rows, labels)."""
    whole = _start(table, seeds)
    for index in range(table.known.shape[1]):
        whole = whole.join_table(join, table.stretch(index))
    return whole


def scan_groups(
    join: Joiner, items: Items, labels: Array, stretch: int, table: Table, starts: Items | None = None
) -> Items:
    """Return the combination of each element with the earlier ones of its label, or with `starts` of those alone.

    Args:
        join: the operator.
        items: one array (rows, row length, *element shape) for each field, in the order of the scan.
        labels: the labels (rows, row length), in the same order.
        stretch: the elements of a stretch.
        table: what is before each stretch.
        starts: for an exclusive scan, the results (rows, *element shape) of first elements; None for an inclusive one.
    """
    own = Table(table.known.copy(), tuple(carries.copy() for carries in table.carries))
    results = tuple(np.empty_like(each) for each in items)
    _walk(join, items, labels, stretch, own, results, starts)
    return results


def _start(table: Table, seeds: Items | None) -> Table:
    """Return the carries (rows, labels) before the first stretch."""
    known = np.full_like(table.known[:, 0], seeds is not None)
    carries = [np.zeros_like(each[:, 0]) for each in table.carries]
    for carry, seed in zip(carries, seeds or (), strict=seeds is not None):
        carry[:] = seed[:, None]
    return Table(known, tuple(carries))


def _walk(
    join: Joiner,
    items: Items,
    labels: Array,
    stretch: int,
    table: Table,
    results: Items | None = None,
    starts: Items | None = None,
) -> None:
    """Join each element of every stretch to the carry of its label, in order, and store the results."""
    rows, length = labels.shape
    for offset in range(min(stretch, length)):
        at = np.arange(offset, length, stretch)
        row, number = np.ogrid[:rows, : len(at)]
        place = row, number, labels[:, at]
        known, carries = table.known[place], tuple(each[place] for each in table.carries)
        own = tuple(each[:, at] for each in items)
        joined = join.pick(known, join(carries, own), own)
        table.known[place] = True
        for each, values in zip(table.carries, joined, strict=True):
            each[place] = values
        if results is not None:
            first = None if starts is None else tuple(each[:, None] for each in starts)
            stored = joined if first is None else join.pick(known, carries, first)
            for result, values in zip(results, stored, strict=True):
                result[:, at] = values
