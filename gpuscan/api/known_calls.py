"""Answer calls that came before: on the same arrays of a device, a scan or reduction is only submitted again.

What such a call has to check was checked the first time. A kind of call is known by its arguments without the arrays,
and `gpuscan.engine.prepared_run` keeps the runs by their buffers.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.device.guards import guarded
from gpuscan.engine.device_arrays import run_key
from gpuscan.problem.problem import Problem
from gpuscan.recent_values import RecentValues

# How many kinds of calls are known.
_MAX_CALLS = 512

_known: RecentValues[tuple[Any, ...], KnownCall] = RecentValues(_MAX_CALLS)
_lock = threading.Lock()


@dataclass(frozen=True)
class KnownCall:
    """A kind of call on one array that gives one array.

    Attributes:
        problem: the problem, without arrays.
        shape, dtype, nbytes: those of the result.
    """

    problem: Problem
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    def again(self, x: Array, out: Any, strategy: str) -> Array | None:
        """Submit the run of an earlier call over these arrays; None if there was none, or it is not valid any more.

        Args:
            x: the input, of the shape and dtype of the earlier call's.
            out: where to write; None for a new array.
            strategy: as in `gpuscan.scan`.
        """
        device = x.device
        if out is not None and (
            type(out) is not Array or out.device is not device or out.shape != self.shape or out.dtype != self.dtype
        ):
            return None
        context = device._context
        with guarded(context), context.lock:
            result = out
            if result is None:
                owner = context.allocate(self.nbytes)
                result = Array(device, owner.buffer, self.shape, self.dtype, 0, owner)
            key = run_key(self.problem, strategy, (x, result))
            return result if key is not None and device._executor.run_again(key) else None


def call_of(name: str, x: Any, op: Any, *settings: Any) -> tuple[Any, ...] | None:
    """Return what tells a call from others of another kind; None if the input is not one array on a device.

    Args:
        name: the function's.
        x: the input.
        op: the operator, as it was passed.
        settings: the other arguments but `out`. No array and no function of elements may be among them.
    """
    if type(x) is not Array:
        return None
    # 1.0 and True are equal to 1, but they are no axes.
    return (name, op, x.dtype, x.shape, *settings, *map(type, settings))


def repeated(call: tuple[Any, ...], x: Array, out: Any, strategy: str = "auto") -> Array | None:
    """Submit the run of an earlier call of this kind over the same arrays; None as `KnownCall.again` says."""
    try:
        known = _known.get(call)
    except TypeError:  # an argument cannot be hashed
        return None
    return None if known is None else known.again(x, out, strategy)


def learn(call: tuple[Any, ...], problem: Problem, shape: tuple[int, ...]) -> None:
    """Keep a kind of call that gave a result of this shape, without the axes of the element."""
    found = described_call(problem, shape)
    if found is not None:
        with _lock, suppress(TypeError):  # an argument cannot be hashed
            _known.keep(call, found)


def described_call(problem: Problem, shape: tuple[int, ...]) -> KnownCall | None:
    """Return the kind of call that a problem is; None if its runs are not kept, or if it has several arrays."""
    source, fields = problem.source, problem.destination.fields
    if problem.kind is None or problem.empty or len(source.fields) != 1 or problem.destination.structure.kind != "leaf":
        return None
    shape, dtype = (*shape, *fields[0].shape), fields[0].scalar.dtype
    return KnownCall(problem.with_leaves(()), shape, dtype, prod(shape) * dtype.itemsize)
