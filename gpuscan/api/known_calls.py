"""Answer calls that came before: on the same arrays of a device, a scan or reduction is only submitted again.

What such a call has to check was checked the first time. A kind of call is known by its arguments without the arrays,
Python functions by their code and what they read, and `gpuscan.engine.prepared_run` keeps the runs by their buffers.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gpuscan.api.array import Array
from gpuscan.device.guards import guarded
from gpuscan.elements import LEAF, tuple_of
from gpuscan.engine.prepared_run import run_key
from gpuscan.operators.function_keys import function_key
from gpuscan.problem.cache import operator_key
from gpuscan.problem.problem import Problem
from gpuscan.recent_values import RecentValues

# How many kinds of calls are known.
_MAX_CALLS = 512

_known: RecentValues[tuple[Any, ...], KnownCall] = RecentValues(_MAX_CALLS)
_lock = threading.Lock()


class ResultKind(NamedTuple):
    """What one array of a result is like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int


@dataclass(frozen=True)
class KnownCall:
    """A kind of call on one array, or on a tuple of arrays, that gives one array or a tuple of arrays.

    Attributes:
        problem: the problem, without arrays.
        results: the arrays of the result.
        gives_tuple: True if the result is a tuple.
    """

    problem: Problem
    results: tuple[ResultKind, ...]
    gives_tuple: bool

    def run_again(self, x: Any, out: Any, strategy: str) -> Any:
        """Submit the run of an earlier call over these arrays; None if there was none, or it is not valid any more.

        Args:
            x: the input, of the shapes and dtypes of the earlier call's.
            out: where to write; None for new arrays.
            strategy: as in `gpuscan.scan`.
        """
        given = x if type(x) is tuple else (x,)
        device = given[0].device
        results: list[Array] = []
        if out is not None:
            if self.gives_tuple != (type(out) is tuple):
                return None
            results = list(out) if self.gives_tuple else [out]
            if len(results) != len(self.results) or not all(
                type(each) is Array and each.device is device and each.shape == kind.shape and each.dtype == kind.dtype
                for each, kind in zip(results, self.results, strict=True)
            ):
                return None
        context = device._context
        with guarded(context), context.lock:
            if out is None:
                for kind in self.results:
                    owner = context.allocate(kind.nbytes)
                    results.append(Array(device, owner.buffer, kind.shape, kind.dtype, 0, owner))
            key = run_key(self.problem, strategy, (*given, *results))
            if key is None or not device._executor.run_again(key):
                return None
        if out is not None:
            return out
        return tuple(results) if self.gives_tuple else results[0]


def call_key(
    name: str, x: Any, op: Any, *settings: Any, before: Any = None, after: Any = None, initial: Any = None
) -> tuple[Any, ...] | None:
    """Return a key that is equal for calls of one kind.

    It is None if the input is not one array on a device, or a tuple of such arrays, or if a function may compute
    something else than at an earlier call.

    Args:
        name: the function's.
        x: the input.
        op: the operator, as it was passed.
        settings: the other arguments but `out`. No array may be among them.
        before, after: functions of elements, or None.
        initial: numbers, or None.
    """
    kinds: tuple[Any, ...]
    if type(x) is Array:
        kinds = (x.dtype, x.shape)
    elif type(x) is tuple and x and all(type(each) is Array and each.device is x[0].device for each in x):
        kinds = tuple((each.dtype, each.shape) for each in x)
    else:
        return None
    if (operator := operator_key(op)) is None:
        return None
    # 1.0 and True are equal to 1, but they are no axes.
    key = (name, operator, kinds, *settings, *map(type, settings))
    for argument, value in (("before", before), ("after", after), ("initial", initial)):
        if value is not None:
            if (value_key := function_key(value)) is None:
                return None
            key += (argument, value_key)
    return key


def repeat_call(key: tuple[Any, ...], x: Any, out: Any, strategy: str = "auto") -> Any:
    """Submit the run of an earlier call of this kind over the same arrays; None as `KnownCall.run_again`."""
    try:
        known = _known.get(key)
    except TypeError:  # an argument cannot be hashed
        return None
    return None if known is None else known.run_again(x, out, strategy)


def remember_call(key: tuple[Any, ...], problem: Problem, shape: tuple[int, ...]) -> None:
    """Keep a kind of call that gave a result of this shape, without the axes of the element."""
    found = known_call(problem, shape)
    if found is not None:
        with _lock, suppress(TypeError):  # an argument cannot be hashed
            _known.keep(key, found)


def known_call(problem: Problem, shape: tuple[int, ...]) -> KnownCall | None:
    """Return the kind of call that a problem is; None if its runs are not kept, or if it gives other bundles."""
    structure = problem.destination.structure
    if problem.kind is None or problem.empty or structure not in (LEAF, tuple_of(len(structure.children))):
        return None
    results = []
    for field in problem.destination.fields:
        whole, dtype = (*shape, *field.shape), field.scalar.dtype
        results.append(ResultKind(whole, dtype, prod(whole) * dtype.itemsize))
    return KnownCall(problem.with_leaves(()), tuple(results), structure != LEAF)
