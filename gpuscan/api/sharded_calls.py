"""Scan and reduce arrays that are divided between several devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import gpuscan
from gpuscan.api.array import Array
from gpuscan.api.reduced_axes import ReducedAxes, reduced_axes
from gpuscan.api.reductions import of_segments
from gpuscan.api.sharded_array import ShardedArray, shard_of, sharded_leaves
from gpuscan.api.sharded_outputs import checked_out, may_refuse, overlap, with_axes, write_results
from gpuscan.api.sharded_problems import cut_shards, edges_of, in_order, sharded_problems, shards_of, whole_shape
from gpuscan.engine.shards import Shard, reduce_segments, reduce_shards, scan_apart, scan_shards
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.strategies import check_strategy
from gpuscan.problem.arguments import as_array, as_flag, check_one_cut
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import cut_heads
from gpuscan.problem.results import assembled, over_arrays
from gpuscan.problem.segments import heads_of

# The options of a scan that its reduction has as well.
_OF_REDUCTIONS = ("axis", "reverse", "initial", "dtype", "before", "after")


def scan_sharded(
    x: Any,
    op: Any,
    options: dict[str, Any],
    *,
    out: Any,
    compensated: Any,
    return_total: Any,
    strategy: str,
    refused: dict[str, Any],
) -> Any:
    """Return the scan of a bundle of sharded arrays, divided as they are.

    Args:
        x, op, out, compensated, return_total, strategy: as in `gpuscan.scan`.
        options: the other options of `gpuscan.scan`.
        refused: options that sharded arrays do not take.

    Raises:
        TypeError: an option was passed that sharded arrays do not take.
        ValueError, GpuscanError: as `gpuscan.scan`.
    """
    _refuse(refused)
    check_strategy(strategy)
    check_one_cut(segments=options["segments"], keys=options["keys"])
    # Shards are on several devices, so all of them get offsets from the CPU.
    segments = None if options["segments"] is None else as_array(options["segments"])
    pairs, with_total = as_flag("compensated", compensated), as_flag("return_total", return_total)
    (first, *_) = sharded_leaves(x)
    uncut = {name: value for name, value in options.items() if name not in ("segments", "keys")}
    problems = sharded_problems(x, op, first, uncut, pairs)
    shards = cut_shards(problems, first, segments, options["keys"])
    outputs = checked_out(problems[0], out, first)
    # An error on one device must not leave the input half overwritten by the others.
    apart = outputs is not None and may_refuse(strategy) and overlap(sharded_leaves(x), outputs)
    if outputs is not None and not apart:
        targets = [[each.shards[number] for each in outputs] for number in range(len(shards))]
        shards = [replace(shard, out=target) for shard, target in zip(shards, targets, strict=True)]
    problem = shards[0].problem
    in_results = not problem.exclusive and problem.heads is None and 0 not in first.shape
    total = None
    if with_total and not in_results:
        # Before the results are written, perhaps over the input.
        total = _total(x, op, first, {name: options[name] for name in _OF_REDUCTIONS}, pairs)
    if problem.axis == first.axis and 0 not in first.shape:
        found = in_order(scan_shards(in_order(shards, problem.reverse), strategy), problem.reverse)
    else:
        found = scan_apart(shards, strategy)
    results = _sharded(found, first, first.axis)
    if outputs is not None and apart:
        write_results(tuple(results), tuple(outputs))
    result = problem.destination.structure.nested(results) if out is None else out
    if not with_total:
        return result
    return result, _last_results(problem, results if outputs is None else outputs) if in_results else total


def reduce_sharded(
    x: Any, op: Any, axis: Any, options: dict[str, Any], *, keepdims: Any, out: Any, refused: dict[str, Any]
) -> Any:
    """Return the reduction of a bundle of sharded arrays.

    Along the divided axis the result is NumPy's; along another one it is sharded.

    Args:
        x, op, axis, keepdims, out: as in `gpuscan.reduce`.
        options: `initial`, `dtype`, `before`, `after` and `segments` of `gpuscan.reduce`.
        refused: options that sharded arrays do not take.

    Raises:
        TypeError: an option was passed that sharded arrays do not take.
        ValueError, GpuscanError: as `gpuscan.reduce`.
    """
    _refuse(refused)
    keepdims = as_flag("keepdims", keepdims)
    axes = reduced_axes(shard_of(x, 0), resolve(op), axis)
    result = _reduction(x, op, axes, options)
    if keepdims and options["segments"] is None:
        (first, *_) = sharded_leaves(x)
        result = over_arrays(lambda part: with_axes(part, axes.axes, first.axis), result)
    if out is None:
        return result
    write_results(result, out)
    return out


def _reduction(x: Any, op: Any, axes: ReducedAxes, options: dict[str, Any]) -> Any:
    """Return the reduction of a bundle of sharded arrays without the axes."""
    (first, *_) = sharded_leaves(x)
    if 0 in first.shape:
        # Without elements, nothing is gained by computing on the devices.
        return gpuscan.reduce(over_arrays(ShardedArray.numpy, x), op, axis=axes.axes, **options)
    segments = None if options["segments"] is None else as_array(options["segments"])
    if not axes.axes or (len(axes.axes) > 1 and segments is not None):
        what = "segments= was" if axes.axes else "axis=() was"
        raise ValueError(
            f"{what} passed with a gpuscan.ShardedArray of shape {first.shape} and axis={axes.axes}; pass one axis"
            + ("" if axes.axes else " or several, or none for all")
        )
    if len(axes.axes) > 1:
        # The last axis first: this combines the elements in C order.
        inner = {"initial": None, "after": None}
        last = _reduction(x, op, replace(axes, axes=axes.axes[-1:]), options | inner)
        outer = {"initial": options["initial"], "after": options["after"]}
        return gpuscan.reduce(last, op, axis=axes.axes[:-1], **outer)
    plain = {name: value for name, value in options.items() if name != "segments"}
    problems = sharded_problems(x, op, first, plain | {"axis": axes.axis})
    if segments is None:
        return _reduced(problems, first)
    shards = cut_shards(problems, first, segments, None)
    if axes.axis != first.axis:
        shards = [replace(shard, problem=of_segments(shard.problem)) for shard in shards]
        return _nested(shards, _sharded(scan_apart(shards, "auto"), first, first.axis))
    return _reduced_segments(problems, first, segments)


def _refuse(options: dict[str, Any]) -> None:
    """Raise TypeError for an option that sharded arrays do not take."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise TypeError(
                f"{name}= was passed with a gpuscan.ShardedArray, which does not take it. Leave it out, or pass NumPy "
                "arrays and device=[...]"
            )


# ----- Results


def _sharded(found: Sequence[Sequence[Any]], first: ShardedArray, axis: int) -> list[ShardedArray]:
    """Return the arrays that each shard's results, one for each field, are the shards of."""
    devices = [shard.device for shard in first.shards]
    return [
        ShardedArray(tuple(Array.of(d, r[place]) for d, r in zip(devices, found, strict=True)), axis)
        for place in range(len(found[0]))
    ]


def _nested(shards: Sequence[Shard], arrays: Sequence[Any]) -> Any:
    return shards[0].problem.destination.structure.nested(arrays)


def _last_results(problem: Problem, results: Sequence[ShardedArray]) -> Any:
    """Return the last result of each row in the order of the scan: NumPy's along the divided axis, else sharded."""
    structure, axis = problem.destination.structure, problem.axis
    place = (slice(None),) * axis + (0 if problem.reverse else -1,)
    if results[0].axis == axis:
        last = 0 if problem.reverse else -1
        found = [result.shards[last][place].copy().numpy()[()] for result in results]
        return assembled(structure, found, axes=len(problem.shape) - 1)
    first = results[0]
    lasts = [[result.shards[number][place].copy() for result in results] for number in range(len(first.shards))]
    return structure.nested(_sharded(lasts, first, first.axis - (first.axis > axis)))


def _total(x: Any, op: Any, first: ShardedArray, options: dict[str, Any], pairs: bool) -> Any:
    """Return the reduction of each row in the order of the scan: a pass of its own over the elements."""
    if 0 in first.shape:
        shared = {name: value for name, value in options.items() if name != "reverse"}
        return gpuscan.reduce(over_arrays(ShardedArray.numpy, x), op, **shared)
    return _reduced(sharded_problems(x, op, first, options, pairs), first)


def _reduced(problems: Sequence[Problem], first: ShardedArray) -> Any:
    """Return the reduction of each row: NumPy's along the divided axis, else sharded."""
    problem = problems[0]
    divided = problem.axis == first.axis
    shards = shards_of([replace(p, keep_last_only=True) for p in problems], first, [False] * len(problems))
    structure, fields = problem.destination.structure, problem.destination.fields
    shape = tuple(n for i, n in enumerate(whole_shape(problem, first)) if i != problem.axis)
    if divided:
        found = reduce_shards(in_order(shards, problem.reverse))
        shaped = [part.reshape((*shape, *f.shape))[()] for part, f in zip(found, fields, strict=True)]
        return assembled(structure, shaped, axes=len(shape))
    parts = scan_apart(shards, "auto")
    viewed = []
    for each, part in zip(problems, parts, strict=True):
        lead = tuple(n for i, n in enumerate(each.shape) if i != each.axis)
        viewed.append([array.viewed((*lead, *f.shape)) for array, f in zip(part, fields, strict=True)])
    return structure.nested(_sharded(viewed, first, first.axis - (first.axis > problem.axis)))


def _reduced_segments(problems: Sequence[Problem], first: ShardedArray, segments: Any) -> Any:
    """Return the reduction of segments along the divided axis, as NumPy arrays.

    Raises:
        ValueError: a segment is empty, and there is neither `initial` nor an identity; or as `heads_of`.
    """
    shape, axis = whole_shape(problems[0], first), problems[0].axis
    heads = heads_of(segments, None, shape, axis, False)
    whole = of_segments(replace(problems[0], shape=shape, heads=heads))
    assert heads is not None
    offsets, fields = heads.offsets, whole.destination.fields
    results = [np.empty((*whole.results_shape, *f.shape), f.scalar.dtype) for f in fields]
    full = np.flatnonzero(offsets[:-1] < offsets[1:])
    empty = np.flatnonzero(offsets[:-1] == offsets[1:])
    others = [n for i, n in enumerate(shape) if i != axis]
    for result, fill, f in zip(results, whole.fill or (), fields, strict=whole.fill is not None):
        np.moveaxis(result, axis, 0)[empty] = fill.reshape((*others, *f.shape))
    heads = replace(heads, offsets=np.unique(offsets))
    own = [
        replace(problem, heads=cut_heads(heads, axis, low, high), keep_last_only=True)
        for problem, (low, high) in zip(problems, edges_of(first), strict=True)
    ]
    shards = shards_of(own, first, [begin not in offsets for begin, _ in edges_of(first)])
    places = [full[(offsets[full] < high) & (offsets[full + 1] > low)] for low, high in edges_of(first)]
    reduce_segments(shards, results, places)
    return assembled(whole.destination.structure, results, axes=len(shape))
