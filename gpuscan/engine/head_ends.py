"""Find the segment heads at the ends of a row: those between which a part of a scan meets its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import stretch_of
from gpuscan.engine.segment_heads import segment_heads
from gpuscan.operators.operator import operator
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.problem import make_problem

if TYPE_CHECKING:
    from gpuscan.device.device_array import DeviceArray
    from gpuscan.engine.executor import Executor
    from gpuscan.problem.problem import Problem
    from gpuscan.problem.segments import Heads

# The index of a word without heads, where the first one is looked for.
_NOWHERE = np.int32(2**31 - 1)


@dataclass(frozen=True)
class HeadEnds:
    """Two heads of a row, in the order of the scan. The first head is always at 0.

    Attributes:
        second: the place of the second head; the row's length if there is none.
        last: the place of the last head, which may be the first one.
    """

    second: int
    last: int


def head_ends(executor: Executor, problem: Problem) -> HeadEnds:
    """Return the heads at the ends of a problem's rows, which are cut alike."""
    heads, length = problem.heads, problem.row_length
    if heads is None:
        return HeadEnds(length, 0)
    if heads.offsets is not None:
        places = heads.places
    elif isinstance(heads.keys, OnDevice):
        return _ends_on_device(executor, heads)
    else:
        places = np.flatnonzero(heads.flags(0, length))
    return HeadEnds(int(places[1]) if len(places) > 1 else length, int(places[-1]))


@operator(name="first and last")
def _first_and_last(left: Any, right: Any) -> Any:
    return np.minimum(left[0], right[0]), np.maximum(left[1], right[1])


def _words_with_heads(word: Any, index: Any) -> Any:
    """Return the index of a word as the first and as the last one with heads, if it has any but the row's first."""
    others = np.where(index == 0, word & np.uint32(0xFFFFFFFE), word) != np.uint32(0)
    return np.where(others, index, _NOWHERE), np.where(others, index, np.int32(-1))


def _ends_on_device(executor: Executor, heads: Heads) -> HeadEnds:
    """Look for the words of the segment bits that have heads, and read only these."""
    bits = segment_heads(executor.context, heads, in_columns=True)
    problem = make_problem(bits, _first_and_last, before=_words_with_heads)
    found = scan_device(executor, replace(problem, keep_last_only=True))
    first, last = (int(each.read()[0]) for each in found)
    executor.context.check()
    if last < 0:
        return HeadEnds(heads.row_length, 0)
    second = min(bit for bit in _heads_in(bits, first) if bit)
    return HeadEnds(second, max(_heads_in(bits, last)))


def _heads_in(bits: DeviceArray, word: int) -> list[int]:
    """Return the places of the heads that a word has the bits of."""
    (value,) = stretch_of(bits, 0, word, word + 1).read()
    return [32 * word + bit for bit in range(32) if int(value) >> bit & 1]
