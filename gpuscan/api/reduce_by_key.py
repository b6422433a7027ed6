"""`gpuscan.reduce_by_key`: one result for each run of equal keys."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.call_device import Devices, find_first_device, takes_numpy
from gpuscan.api.launches import launchable
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import in_form_of, is_on_device
from gpuscan.api.scan import scan
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import upload_array
from gpuscan.engine.compaction import KEEP_LEFT, gather_entries
from gpuscan.engine.element_copy import contiguous
from gpuscan.engine.key_runs import KeyRuns, reduce_key_runs
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.labels import keys_of
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import holds_arrays, over_arrays
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gpuscan.api.annotations import B, C, Operation


@overload
def reduce_by_key(keys: B, x: C, op: Operation = ..., *, device: Devices = ...) -> tuple[B, C]: ...
@overload
def reduce_by_key(keys: object, x: C, op: Operation = ..., *, device: Devices = ...) -> tuple[Any, C]: ...
@overload
def reduce_by_key(
    keys: object, x: ArrayLike, op: Operation = ..., *, device: Devices = ...
) -> tuple[Any, AnyArray]: ...
@takes_numpy("keys", "x", each_like=("keys", "x"))
@launchable
def reduce_by_key(keys: object, x: object, op: object = "add", *, device: Devices = None) -> object:
    """Return the key and the combination of each run of equal keys.

    A run is a maximal sequence of adjacent elements with equal keys. If run r has the indices ``s[r]`` to
    ``s[r+1] - 1``, then ``result[r] = op(…op(x[s[r]], x[s[r]+1])…, x[s[r+1]-1])``. Equal keys that are not adjacent
    make several runs, so sort by key first to get one result for each key (`gpuscan.sort_by_key`).

    Args:
        keys: an array of shape (n,): a NumPy array of any dtype, structured ones included, a Series or a categorical,
            or a `gpuscan.Array`; or a bundle of them. A run of a bundle ends where any of its arrays changes. Keys are
            compared as NumPy compares them, so each NaN is a run of its own.
        x: an array of shape (n,), or a bundle of them, as in `gpuscan.scan`.
        op: as in `gpuscan.scan`.
        device: as in `gpuscan.scan`. Of several devices the first one is used.

    Returns:
        A pair ``(keys, results)``: the first key of each run, in an array or a bundle like `keys`, and one result for
        each run, in an array or a bundle like `x`. On a device, the call does not wait for the number of runs: reading
        ``.shape`` of a result waits for it, and ``.count`` is that number as an array of shape (1,) on the device.

    Raises:
        ValueError: `keys` or `x` has several axes, or their lengths differ.
        TypeError: the operator does not take the dtype.
        GpuscanError: the results are larger than one buffer binding of the device; or as `gpuscan.scan` raises it.

    The algorithm is a segmented scan (Blelloch, "Prefix Sums and Their Applications", 1990), which stores the last
    result of each run.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> keys, sums = gs.reduce_by_key(np.array([7, 7, 2, 2, 2, 7]), np.array([3, 1, 4, 1, 5, 9], np.int32))
        >>> keys
        array([7, 2, 7])
        >>> sums
        array([ 4, 10,  9], dtype=int32)
        >>> x, y = np.array([1, 1, 2, 2]), np.array(["a", "b", "b", "b"])
        >>> gs.reduce_by_key((x, y), np.array([3, 1, 4, 1]))
        ((array([1, 1, 2]), array(['a', 'b', 'b'], dtype='<U1')), array([3, 1, 5]))
    """
    is_bundle = isinstance(keys, dict) or (isinstance(keys, (tuple, list)) and holds_arrays(keys))
    parts: list[SomeArray] = []
    if is_bundle:
        over_arrays(lambda part: parts.append(as_some_array(part)), keys)
    else:
        parts.append(as_some_array(keys))
    if not parts:
        raise ValueError("a bundle without arrays was passed as keys; pass an array, or a bundle of one array or more")
    for part in parts:
        if part.ndim != 1 or part.shape != parts[0].shape:
            shown = (
                part.shape if len(parts) == 1 else " and ".join(str(key_array.shape) for key_array in (parts[0], part))
            )
            raise ValueError(
                f"keys of shape {shown} were passed, but keys must have one axis. Pass an array of shape (n,), or a "
                "bundle of such arrays of one length"
            )
    compared = _run_starts(parts) if is_bundle else keys_of(keys)
    problem = find_or_make_problem(x, op, axis=0, exclusive=False, reverse=False, keys=compared)
    if len(problem.shape) != 1:
        raise ValueError(
            f"an array of shape {problem.shape} was passed, but reduce_by_key takes arrays of one axis. Pass an array "
            "of shape (n,), or scan with keys= and take the last result of each run"
        )
    call_device = find_first_device((*problem.arrays, *parts), device)
    if call_device is None or problem.empty:
        starts, results = reference.reduce_key_runs(problem)
        on_device = call_device is not None and is_on_device(problem)
        outputs: Sequence[SomeArray] = results
        if on_device and call_device is not None:
            outputs = [Array._of(call_device, upload_array(call_device._context, result)) for result in results]
        firsts_of_parts = [part[:0] if isinstance(part, Array) else part[starts] for part in parts]
    else:
        runs = reduce_key_runs(call_device._executor, problem)
        firsts_of_parts = [_keys_of(call_device, runs, part) for part in parts]
        outputs = _results_of(call_device, problem, runs)
    firsts = iter(firsts_of_parts)
    return over_arrays(lambda _: next(firsts), keys) if is_bundle else firsts_of_parts[0], in_form_of(
        problem, x, outputs
    )


def _run_starts(parts: Sequence[SomeArray]) -> SomeArray:
    """Return for each element where its run begins, which is where one of several arrays of keys changed last."""
    starts: list[SomeArray] = []
    for part in parts:
        indices = np.arange(len(part), dtype=np.uint32)
        if isinstance(part, Array):
            starts.append(scan(new_array(part.device, indices), KEEP_LEFT, keys=part))
        else:
            compared = keys_of(part)
            changes = np.append(True, compared[1:] != compared[:-1])[: len(part)]
            starts.append(np.maximum.accumulate(np.where(changes, indices, 0).astype(np.uint32)))
    return functools.reduce(np.maximum, starts)


def _keys_of(device: OpenedDevice, runs: KeyRuns, keys: SomeArray) -> AnyArray | UnknownLengthArray:
    """Return the first key of each run, where the keys are."""
    count = Array._of(device, runs.count)
    if not isinstance(keys, Array):
        return keys[runs.starts._view_as((int(count.numpy()[0]),))._read()]
    first = gather_entries(device._context, contiguous(keys), runs.starts, runs.count)
    return UnknownLengthArray(Array._of(device, first), keys.dtype, (), count)


def _results_of(device: OpenedDevice, problem: Problem, runs: KeyRuns) -> list[UnknownLengthArray] | list[AnyArray]:
    """Return the results of the runs: on the device if the elements were there."""
    count = Array._of(device, runs.count)
    fields = problem.destination.fields
    if is_on_device(problem):
        pairs = zip(runs.results, fields, strict=True)
        return [UnknownLengthArray(Array._of(device, result), f.scalar.dtype, f.shape, count) for result, f in pairs]
    length = int(count.numpy()[0])
    device._context.check()
    return [result._view_as((length, *f.shape))._read() for result, f in zip(runs.results, fields, strict=True)]
