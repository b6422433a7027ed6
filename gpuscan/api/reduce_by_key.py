"""`gpuscan.reduce_by_key`: one result for each run of equal keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.api.array import Array, Picked
from gpuscan.api.groups import one_of
from gpuscan.api.home import Devices, team_or_home
from gpuscan.api.launches import launchable
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import in_form_of, is_on_device
from gpuscan.device.device_array import uploaded
from gpuscan.engine.compaction import gathered
from gpuscan.engine.element_copy import contiguous
from gpuscan.engine.runs import Runs, reduce_runs
from gpuscan.problem.arguments import as_leaf
from gpuscan.problem.cache import cached_problem
from gpuscan.problem.problem import Problem
from gpuscan.reference import scan as reference


@launchable
def reduce_by_key(keys: Any, x: Any, op: Any = "add", *, device: Devices = None) -> Any:
    """Return the key and the combination of each run of equal keys.

    Run r is the longest stretch of neighbours from ``s[r]`` to ``s[r+1]`` that have one key, and
    ``result[r] = op(…op(x[s[r]], x[s[r]+1])…, x[s[r+1]-1])``. Equal keys that are not neighbours make several runs, so
    sort them first to get one result for each key. The elements are read once.

    Args:
        keys: (n,): a NumPy array of any dtype, or a `gpuscan.Array`. Keys are compared as NumPy compares them, so each
            NaN is a run of its own.
        x: (n,): an array, or a bundle of them, as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        The first key of each run, and an array like `x`, or a bundle like it, with one result for each run. The keys
        are a `gpuscan.Array` if `keys` is one, and the results if `x` is one. The number of runs then stays on the
        device until ``.shape`` is asked for; ``.count`` is that number as an array of one word.

    Raises:
        ValueError: `keys` or `x` has several axes, or their lengths differ.
        TypeError: the operator does not take the dtype.
        GpuscanError: the results exceed what the device binds; and as `gpuscan.scan` does.

    Runs are found and combined by a segmented scan (Blelloch 1990) that stores the last result of each.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> keys, sums = gs.reduce_by_key(np.array([7, 7, 2, 2, 2, 7]), np.array([3, 1, 4, 1, 5, 9], np.int32))
        >>> keys
        array([7, 2, 7])
        >>> sums
        array([ 4, 10,  9], dtype=int32)
    """
    keys = as_leaf(keys)
    if keys.ndim != 1:
        raise ValueError(
            f"keys of shape {keys.shape} were passed, but runs are stretches of one row. Pass keys of one axis"
        )
    problem = cached_problem(x, op, axis=0, exclusive=False, reverse=False, keys=keys)
    if len(problem.shape) != 1:
        raise ValueError(
            f"an array of shape {problem.shape} was passed, but runs are stretches of one row. Pass an array of one "
            "axis, or scan with keys= and pick the last of each run"
        )
    home = one_of(team_or_home(problem.arrays, device))
    if home is None or problem.empty:
        starts, results = reference.reduce_runs(problem)
        there = home is not None and is_on_device(problem)
        placed: list[Any] = list(results)
        if there and home is not None:
            placed = [Array.of(home, uploaded(home._context, result)) for result in results]
        found = keys[:0] if isinstance(keys, Array) else keys[starts]
        return found, in_form_of(problem, x, placed)
    runs = reduce_runs(home._executor, problem)
    return _keys_of(home, runs, keys), in_form_of(problem, x, _results_of(home, problem, runs))


def _keys_of(home: OpenedDevice, runs: Runs, keys: Any) -> Any:
    """Return the first key of each run, where the keys are."""
    count = Array.of(home, runs.count)
    if not isinstance(keys, Array):
        found: np.ndarray[Any, Any] = keys[runs.starts.viewed((int(count.numpy()[0]),)).read()]
        return found
    first = gathered(home._context, contiguous(keys), runs.starts, runs.count)
    return Picked(Array.of(home, first), keys.dtype, (), count)


def _results_of(home: OpenedDevice, problem: Problem, runs: Runs) -> list[Any]:
    """Return the results of the runs: on the device if the elements were there."""
    count = Array.of(home, runs.count)
    fields = problem.destination.fields
    if is_on_device(problem):
        pairs = zip(runs.results, fields, strict=True)
        return [Picked(Array.of(home, result), f.scalar.dtype, f.shape, count) for result, f in pairs]
    length = int(count.numpy()[0])
    home._context.check()
    return [result.viewed((length, *f.shape)).read() for result, f in zip(runs.results, fields, strict=True)]
