"""Write results of calls on sharded arrays to the arrays that a caller passes as `out`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product
from typing import Any

import numpy as np

from gpuscan.api.outputs import check_place, check_separate
from gpuscan.api.sharded_array import ShardedArray, divided_alike
from gpuscan.api.sharded_problems import whole_shape
from gpuscan.device.context import strategy_asked_for
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import fields_of
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import parts_of


def checked_out(problem: Problem, out: Any, first: ShardedArray) -> list[ShardedArray] | None:
    """Return the arrays of `out`, depth first; None without.

    Raises:
        TypeError: one is no sharded array, or has another dtype.
        ValueError: one has another shape or is divided in another way, or two share memory.
    """
    if out is None:
        return None
    arrays: list[Any] = fields_of(out, problem.destination, "out")
    for array, field in zip(arrays, problem.destination.fields, strict=True):
        if not isinstance(array, ShardedArray):
            raise TypeError(
                f"out of type {type(array).__name__} was passed, but the input is a gpuscan.ShardedArray; pass one "
                "that is divided as the input is"
            )
        shape = (*whole_shape(problem, first), *field.shape)
        if array.shape != shape or not divided_alike(array, first):
            raise ValueError(
                f"out={array!r} was passed for a result of shape {shape} that is divided as {first!r} is; pass an out "
                "of that shape with the same parts"
            )
        for shard in array.shards:
            check_place(shard, shard.shape, field.scalar.dtype, shard.device)
    for number in range(len(first.shards)):
        check_separate([array.shards[number] for array in arrays])
    return arrays


def may_refuse(strategy: str) -> bool:
    """Return True if a device may refuse to scan in place by the strategy, or time out."""
    return strategy_asked_for(strategy) not in ("auto", "three_dispatch")


def overlap(arrays: Sequence[ShardedArray], others: Sequence[ShardedArray]) -> bool:
    """Return True if two arrays of equal parts share memory."""
    shards = [zip(a.shards, b.shards, strict=True) for a, b in product(arrays, others)]
    return any(one.shares_memory(other) for one, other in chain.from_iterable(shards))


def with_axes(part: Any, axes: tuple[int, ...], divided: int) -> Any:
    """Return a result of a reduction with its axes again, with length 1; `divided` is the axis of the input's parts."""
    if isinstance(part, ShardedArray):
        return ShardedArray(tuple(np.expand_dims(shard, axes) for shard in part.shards), divided)  # type: ignore[misc]
    return np.expand_dims(part, axes)


def write_results(result: Any, out: Any) -> None:
    """Write results that have arrays of their own to the arrays of `out`, which are checked first.

    Raises:
        TypeError: an array has another kind or dtype than its result.
        ValueError: the arrays nest in another way, one has another shape or is divided in another way, or two share
            memory.
    """
    pairs = list(_pairs(result, out))
    shards: list[tuple[Any, Any]] = []
    for part, target in pairs:
        if not isinstance(part, ShardedArray):
            check_place(target, np.shape(part), part.dtype, None)
            shards.append((part, target))
            continue
        if not isinstance(target, ShardedArray) or target.shape != part.shape or not divided_alike(target, part):
            raise ValueError(
                f"out={abbreviate(target)} was passed for a result of shape {part.shape} that is divided between "
                "devices as the input is; pass a gpuscan.ShardedArray of that shape with the same parts"
            )
        for own, place in zip(part.shards, target.shards, strict=True):
            check_place(place, own.shape, own.dtype, own.device)
            shards.append((own, place))
    check_separate([target for _, target in shards])
    for part, target in shards:
        target[...] = part


def _pairs(result: Any, out: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each array of a bundle of results with the one of `out` that it is written to."""
    parts, targets = parts_of(result), parts_of(out)
    if parts is None:
        yield result, out
        return
    if isinstance(result, dict) and isinstance(out, dict) and result.keys() == out.keys():
        targets = [out[key] for key in result]
    elif isinstance(result, dict) or isinstance(out, dict):
        targets = None
    if targets is None or len(targets) != len(parts):
        raise ValueError(
            f"out {abbreviate(out)} was passed for a result of {len(parts)} arrays, but it does not nest as they do; "
            "pass one array for each, nested as the input is"
        )
    for part, target in zip(parts, targets, strict=True):
        yield from _pairs(part, target)
