"""CPU twins of the stages of groups by a table, each of the name of its template under ``shaders/groups/``.

Rows are cut into spans. A table has a carry for each span and each label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.reference.stages import Items, Joiner
from tests.oracle import Array


@dataclass(frozen=True)
class Table:
    """The carries of all spans.

    Attributes:
        has_carry: True where there is a carry: (rows, spans, labels).
        carries: one array (rows, spans, labels, *element shape) for each field; junk where there is none.
    """

    has_carry: Array
    carries: Items

    def join_table(self, join: Joiner, others: Table) -> Table:
        """Return this table's carries, joined with the carries of a table that comes after it."""
        both = join.pick(self.has_carry, join(self.carries, others.carries), others.carries)
        return Table(self.has_carry | others.has_carry, join.pick(others.has_carry, both, self.carries))

    def span(self, index: int) -> Table:
        """Return the carries of one span of each row: (rows, labels)."""
        return Table(self.has_carry[:, index], tuple(carries[:, index] for carries in self.carries))


def combine_groups(join: Joiner, items: Items, labels: Array, groups: int, span: int) -> Table:
    """Return for each span and label the combination of its elements.

    Args:
        join: the operator.
        items: one array (rows, row length, *element shape) for each field, in the order of the scan.
        labels: the labels (rows, row length), in the same order.
        groups: the number of labels.
        span: the elements of a span.
    """
    rows, length = labels.shape
    shape = rows, -(-length // span), groups
    table = Table(np.zeros(shape, bool), tuple(np.zeros((*shape, *array.shape[2:]), array.dtype) for array in items))
    _walk(join, items, labels, span, table)
    return table


def scan_carries(join: Joiner, table: Table, seeds: Items | None = None) -> Table:
    """Return for each span and label the combination of what is before the span, from the rows' seeds on."""
    before = [_start(table, seeds)]
    for index in range(table.has_carry.shape[1]):
        before.append(before[-1].join_table(join, table.span(index)))
    parts = before[:-1]
    has_carry = np.stack([part.has_carry for part in parts], 1)
    return Table(
        has_carry, tuple(np.stack(arrays, 1) for arrays in zip(*(part.carries for part in parts), strict=True))
    )


def reduce_carries(join: Joiner, table: Table, seeds: Items | None = None) -> Table:
    """Return the combination of all elements of each label: (rows, labels)."""
    whole = _start(table, seeds)
    for index in range(table.has_carry.shape[1]):
        whole = whole.join_table(join, table.span(index))
    return whole


def scan_groups(
    join: Joiner, items: Items, labels: Array, span: int, table: Table, starts: Items | None = None
) -> Items:
    """Return the combination of each element with the earlier ones of its label, or with `starts` of those alone.

    Args:
        join: the operator.
        items: one array (rows, row length, *element shape) for each field, in the order of the scan.
        labels: the labels (rows, row length), in the same order.
        span: the elements of a span.
        table: what is before each span.
        starts: for an exclusive scan, the results (rows, *element shape) of first elements; None for an inclusive one.
    """
    own = Table(table.has_carry.copy(), tuple(carries.copy() for carries in table.carries))
    results = tuple(np.empty_like(array) for array in items)
    _walk(join, items, labels, span, own, results, starts)
    return results


def _start(table: Table, seeds: Items | None) -> Table:
    """Return the carries (rows, labels) before the first span."""
    has_carry = np.full_like(table.has_carry[:, 0], seeds is not None)
    carries = [np.zeros_like(array[:, 0]) for array in table.carries]
    for carry, seed in zip(carries, seeds or (), strict=seeds is not None):
        carry[:] = seed[:, None]
    return Table(has_carry, tuple(carries))


def _walk(
    join: Joiner,
    items: Items,
    labels: Array,
    span: int,
    table: Table,
    results: Items | None = None,
    starts: Items | None = None,
) -> None:
    """Join each element of every span to the carry of its label, in order, and store the results."""
    rows, length = labels.shape
    for offset in range(min(span, length)):
        at = np.arange(offset, length, span)
        row, number = np.ogrid[:rows, : len(at)]
        index = row, number, labels[:, at]
        has_carry, carries = table.has_carry[index], tuple(array[index] for array in table.carries)
        own = tuple(array[:, at] for array in items)
        joined = join.pick(has_carry, join(carries, own), own)
        table.has_carry[index] = True
        for array, values in zip(table.carries, joined, strict=True):
            array[index] = values
        if results is not None:
            first = None if starts is None else tuple(array[:, None] for array in starts)
            stored = joined if first is None else join.pick(has_carry, carries, first)
            for result, values in zip(results, stored, strict=True):
                result[:, at] = values
