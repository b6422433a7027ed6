"""Look-ups in NumPy arrays that a step of a loop closes over, as transition tables of automata are.

NumPy asks a traced index for a Python number, which it has not. So the function is traced again with arrays of a class
that answers such look-ups with choices. A table that is linear in the bits of its index, as that of a CRC is, is
computed from the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from types import CellType, FunctionType
from typing import Any

import numpy as np

from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.loops.intervals import intervals_of
from gpuscan.operators.source_location import operator_error
from gpuscan.operators.traced_array import Traced, constant, find_scalar

# The most entries that an index chooses from.
_MAX_ENTRIES = 1024


class Table(np.ndarray[Any, Any]):
    """A NumPy array that traced values may index."""

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(part, Traced) for part in parts):
            return super().__getitem__(index)
        if any(not isinstance(part, (int, np.integer)) and not _is_index(part) for part in parts):
            raise operator_error("a look-up takes an integer for each axis; write table[i, j] with single integers")
        if len(parts) > self.ndim:
            raise operator_error(f"a look-up with {len(parts)} integers was asked for in a table of {self.ndim} axes")
        return _look_up(np.asarray(self), parts)


def _is_index(part: object) -> bool:
    return isinstance(part, Traced) and not part.shape and part.scalar.kind in ("signed", "unsigned")


def _look_up(table: np.ndarray[Any, Any], parts: tuple[Any, ...]) -> Any:
    index, rest = parts[0], parts[1:]
    if not isinstance(index, Traced):
        return _look_up(table[index], rest) if rest else table[index]
    if table.shape[0] > _MAX_ENTRIES or not table.size:
        raise operator_error(f"a look-up in {table.shape[0]} entries was asked for; at most {_MAX_ENTRIES} are traced")
    low = _least(index)
    if low is None or low < 0:
        index = np.where(index < 0, index + table.shape[0], index)
    elif not rest and table.ndim == 1 and _is_linear(table):
        return _sum_bits(table, index)
    entries = [_look_up(entry, rest) if rest else _constant(index, entry) for entry in table]
    found = entries[-1]
    for place in reversed(range(len(entries) - 1)):
        found = np.where(index == place, entries[place], found)
    return found


def _least(index: Traced) -> int | None:
    (node,) = index.nodes.ravel()
    return 0 if index.scalar.kind == "unsigned" else intervals_of(reachable([node]))[node.index][0]


def _constant(index: Traced, entry: Any) -> Traced:
    return constant(index.graph, entry, find_scalar(np.asarray(entry).dtype))


def _is_linear(table: np.ndarray[Any, Any]) -> bool:
    """Return True if ``table[i ^ j] == table[i] ^ table[j] ^ table[0]`` for all i and j."""
    size = len(table)
    if table.dtype.kind not in "ui" or size < 16 or size & (size - 1):
        return False
    columns = [table[1 << bit] ^ table[0] for bit in range(size.bit_length() - 1)]
    places = np.arange(size)
    return bool(np.all(reduce(np.bitwise_xor, _by_bits(columns, places), np.full_like(table, table[0])) == table))


def _by_bits(columns: list[Any], places: np.ndarray[Any, Any]) -> list[Any]:
    return [np.where(places >> bit & 1, column, 0) for bit, column in enumerate(columns)]


def _sum_bits(table: np.ndarray[Any, Any], index: Traced) -> Any:
    """Return the entry of a table that is linear in the bits of the index."""
    found: Any = _constant(index, table[0])
    for bit in range(len(table).bit_length() - 1):
        is_set = (index >> bit) & 1
        found = found ^ np.where(is_set, _constant(index, table[1 << bit] ^ table[0]), table.dtype.type(0))
    return found


def with_tables(function: Callable[..., object]) -> Callable[..., object] | None:
    """Return a function with tables in the place of the arrays that it closes over; None if it closes over none."""
    found = 0

    def replace(value: Any) -> Any:
        nonlocal found
        if type(value) is np.ndarray and value.dtype.kind in "buif":
            found += 1
            return value.view(Table)
        return again(value) if type(value) is FunctionType and value.__closure__ else value

    def again(given: FunctionType) -> FunctionType:
        names = given.__code__.co_names
        known = {name: replace(given.__globals__[name]) for name in names if name in given.__globals__}
        cells = tuple(CellType(replace(cell.cell_contents)) for cell in given.__closure__ or ())
        defaults = None if given.__defaults__ is None else tuple(map(replace, given.__defaults__))
        made = FunctionType(given.__code__, {**given.__globals__, **known}, given.__name__, defaults, cells)
        made.__kwdefaults__ = given.__kwdefaults__ and {key: replace(v) for key, v in given.__kwdefaults__.items()}
        made.__qualname__ = given.__qualname__
        return made

    if type(function) is not FunctionType:
        return None
    made = again(function)
    return made if found else None
