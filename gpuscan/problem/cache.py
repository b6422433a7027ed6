"""Keep problems that have no data of their own, so that the next call of a kind need not check everything again."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.recent_values import RecentValues

# How many kinds of problems are kept.
_MAX_PROBLEMS = 512

_problems: RecentValues[tuple[Any, ...], Problem] = RecentValues(_MAX_PROBLEMS)
_lock = threading.Lock()


def cached_problem(x: Any, op: Any, **options: Any) -> Problem:
    """Return what `make_problem` returns, from an earlier call of the same kind if there was one.

    Problems are kept for one array in native byte order and a named operator, with at most a number as the initial
    value. Python functions are not kept, since what they close over may change from call to call; nor are problems with
    arrays of their own, such as keys.
    """
    key = _key(x, op, options)
    if key is None:
        return make_problem(x, op, **options)
    try:
        with _lock:
            known = _problems.find(key)
    except TypeError:
        # An option cannot be hashed.
        return make_problem(x, op, **options)
    if known is not None:
        return known.with_leaves((x,))
    problem = make_problem(x, op, **options)
    if len(problem.leaves) == 1 and problem.leaves[0] is x:
        with _lock:
            _problems.keep(key, problem.kept())
    return problem


def _key(x: Any, op: Any, options: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return a key that identifies the kind of problem; None if the problem cannot be kept."""
    if type(x) is not np.ndarray and not isinstance(x, OnDevice):
        return None
    if not isinstance(op, (str, np.ufunc, Operator)):
        return None
    plain = {"axis", "exclusive", "reverse", "dtype", "initial", "seeds_on_device"}
    if any(value is not None and name not in plain for name, value in options.items()):
        return None
    axis, exclusive, reverse = (options.get(name) for name in ("axis", "exclusive", "reverse"))
    # 1.0 and True are equal to 1, but they are no axes; 1 is equal to True.
    if (axis is not None and type(axis) is not int) or type(exclusive) is not bool or type(reverse) is not bool:
        return None
    initial = options.get("initial")
    if initial is not None and not isinstance(initial, (int, float, complex, np.generic)):
        return None
    # Numbers of several types are equal: 1, 1.0 and np.int8(1).
    return op, x.dtype, x.shape, axis, exclusive, reverse, options.get("dtype"), type(initial), initial
