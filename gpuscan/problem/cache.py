"""Keep problems that have no data of their own, so that later calls with the key need not check everything again."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping
from typing import Unpack

import numpy as np

from gpuscan.operators.function_keys import function_key
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.problem import Problem, ProblemOptions, make_problem
from gpuscan.recent_values import RecentValues
from gpuscan.sizes import has_size

# The options that a kept problem may have.
_PLAIN = frozenset(
    {"axis", "exclusive", "reverse", "dtype", "initial", "before", "after", "seeds_on_device", "reproducible"}
)

# How many problems are kept.
_MAX_PROBLEMS = 512

_problems: RecentValues[tuple[object, ...], Problem] = RecentValues(_MAX_PROBLEMS)
_lock = threading.Lock()


def find_or_make_problem(x: object, op: object, **options: Unpack[ProblemOptions]) -> Problem:
    """Return what `make_problem` returns, from an earlier call with the same key if there was one.

    Problems are kept for one array or a tuple of arrays, in native byte order, with initial values of few numbers.
    Python functions are known by their code and by what they read; see `function_key`. Problems with others are not
    kept, since what these read may change from call to call. Of a scan with segments or keys, all but these is kept.
    """
    segments, keys = options.get("segments"), options.get("keys")
    if (segments is None) != (keys is None):
        later = options.pop("checks_later", False)
        options["segments"] = options["keys"] = None
        return find_or_make_problem(x, op, **options).cut(segments, keys, checks_later=later)
    key = _key(x, op, options)
    if key is None:
        return make_problem(x, op, **options)
    try:
        with _lock:
            earlier = _problems.find(key)
    except TypeError:
        # An option cannot be hashed.
        return make_problem(x, op, **options)
    given = x if type(x) is tuple else (x,)
    if earlier is not None:
        return earlier.for_call(given, op, options.get("dtype"), options.get("before"), options.get("after"))
    problem = make_problem(x, op, **options)
    if len(problem.leaves) == len(given) and all(a is b for a, b in zip(problem.leaves, given, strict=True)):
        with _lock:
            cached = _problems.keep(key, problem.drop_arrays())
        return cached.with_leaves(problem.leaves)
    return problem


def _key(x: object, op: object, options: Mapping[str, object]) -> tuple[Hashable, ...] | None:
    """Return the key under which a problem is kept; None if the problem cannot be kept."""
    arrays = x if type(x) is tuple else (x,)
    for array in arrays:
        if type(array) is not np.ndarray and (not isinstance(array, OnDevice) or has_size(array.shape)):
            return None
    for name, value in options.items():
        if value is not None and name not in _PLAIN:
            return None
    axis, exclusive, reverse = options.get("axis"), options.get("exclusive"), options.get("reverse")
    # 1.0 and True are equal to 1, but they are no axes; 1 is equal to True.
    if (axis is not None and type(axis) is not int) or type(exclusive) is not bool or type(reverse) is not bool:
        return None
    functions = [op if isinstance(op, (str, np.ufunc, Operator)) else function_key(op)]
    # Initial values are numbers, short arrays, and tuples of those.
    for name in ("before", "after", "initial"):
        value = options.get(name)
        functions.append(None if value is None else function_key(value))
        if value is not None and functions[-1] is None:
            return None
    if functions[0] is None:
        return None
    # Arrays on a device are not checked for the same things as NumPy's, and their initial values may stay there.
    array_types = [(array.dtype, array.shape, isinstance(array, OnDevice)) for array in arrays]
    reproducible = options.get("reproducible")
    return *functions, arrays is x, *array_types, axis, exclusive, reverse, options.get("dtype"), reproducible
