"""The totals of a scan: the reduction along its axis, which the scan returns on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device
from gpuscan.api.outputs import in_form_of
from gpuscan.api.reduce import reduce
from gpuscan.api.team import Team
from gpuscan.problem.arguments import as_array
from gpuscan.problem.indexed_maps import IndexedMap, as_map
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import over_arrays

# The options of a scan that its reduction has as well.
_SHARED = ("initial", "dtype", "before", "after")


def last_results_are_totals(problem: Problem) -> bool:
    """Return True if the last result of each row is the row's total, so that the scan has computed it."""
    return problem.row_length > 0 and not problem.exclusive and problem.heads is None


def last_results(problem: Problem, x: Any, results: Sequence[Any]) -> Any:
    """Return the last result of each row in the order of the scan, in the form of the input."""
    place = (slice(None),) * problem.axis + (0 if problem.reverse else -1,)
    lasts = [result[place] for result in results]
    # A view would keep the whole result in memory, and would change with it.
    return in_form_of(problem, x, [part.copy() if isinstance(part, (Array, np.ndarray)) else part for part in lasts])


def reduced(problem: Problem, x: Any, op: Any, options: dict[str, Any], home: Device | Team | None) -> Any:
    """Return the reduction of each row in the order of the scan: a pass of its own over the elements."""
    shared = {name: options[name] for name in _SHARED}
    if problem.reverse:
        x = over_arrays(_flipped(problem.axis), x)
        shared["before"] = _from_the_end(as_map(options["before"]), problem.row_length)
    devices: Any = list(home.devices) if isinstance(home, Team) else home or "numpy"
    return reduce(x, op, axis=problem.axis, device=devices, **shared)


def _from_the_end(before: Any, length: int) -> Any:
    """Return the map on load for flipped rows, in which an element still has the index that it has in the input."""
    if not isinstance(before, IndexedMap):
        return before
    return IndexedMap(lambda pair: before((pair[0], length - 1 - pair[1])))


def _flipped(axis: int) -> Callable[[Any], Any]:
    def flip(array: Any) -> Any:
        array = array if isinstance(array, Array) else as_array(array)
        return array[(slice(None),) * axis + (slice(None, None, -1),)]

    return flip
