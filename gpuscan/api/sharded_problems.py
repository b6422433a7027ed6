"""Bring a call on sharded arrays into normal form: a problem for each shard, and where segments go on between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.sharded_array import ShardedArray, divided_alike, shard_of
from gpuscan.engine.shards import Shard
from gpuscan.problem.arguments import as_flag, initial_rows
from gpuscan.problem.cache import cached_problem
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.problem import Problem
from gpuscan.problem.problem_parts import cut_heads
from gpuscan.problem.segments import Heads, heads_of


def sharded_problems(
    x: Any, op: Any, first: ShardedArray, options: dict[str, Any], pairs: bool = False
) -> list[Problem]:
    """Return the call as a problem for each shard, with the initial values of its rows.

    Args:
        x, op: as in `gpuscan.scan`.
        first: one of the arrays.
        options: those of `make_problem` without cuts.
        pairs: True for a compensated sum.

    Raises:
        TypeError: `before` takes an index.
        ValueError: the arrays are divided along an axis of the element; or as `make_problem`.
    """
    initial, exclusive = options.get("initial"), options.get("exclusive", False)
    plain = {name: value for name, value in options.items() if name != "initial"}
    if initial is not None:
        # The initial values are cut afterwards, and stand for the identity.
        plain["exclusive"] = False
    found = []
    for number in range(len(first.shards)):
        part, operator, own = shard_of(x, number), op, plain
        if pairs:
            part, operator, own = as_pairs(part, op, plain)
        found.append(cached_problem(part, operator, **own))
    if found[0].indexed:
        raise TypeError(
            "before= was passed as a function of an element and its index with a gpuscan.ShardedArray, but shards do "
            "not know where they begin. Pass a function of one element, and the indices as one more array of a bundle"
        )
    if first.axis >= len(found[0].shape):
        raise ValueError(
            f"a gpuscan.ShardedArray that is divided along axis {first.axis} was passed, but that axis belongs to the "
            "element. Divide it along another axis"
        )
    if initial is None:
        return found
    started = []
    axis, value = found[0].axis, (initial, np.float32(0)) if pairs else initial
    others = [n for i, n in enumerate(whole_shape(found[0], first)) if i != axis]
    for problem, (begin, end) in zip(found, edges_of(first), strict=True):
        seeds = initial_rows(value, problem.element, tuple(others))
        if axis != first.axis:
            rows = (*(slice(None),) * (first.axis - (first.axis > axis)), slice(begin, end))
            fields = problem.element.fields
            wide = [seed.reshape((*others, *f.shape))[rows] for seed, f in zip(seeds, fields, strict=True)]
            seeds = tuple(each.reshape(-1, *f.shape) for each, f in zip(wide, fields, strict=True))
        started.append(replace(problem, seeds=seeds, initial=True, exclusive=as_flag("exclusive", exclusive)))
    return started


def whole_shape(problem: Problem, first: ShardedArray) -> tuple[int, ...]:
    """Return the shape of the whole array, without the axes of the element."""
    return first.shape[: len(problem.shape)]


def edges_of(first: ShardedArray) -> list[tuple[int, int]]:
    """Return where each shard begins and ends along the divided axis."""
    found, begin = [], 0
    for shard in first.shards:
        found.append((begin, begin + shard.shape[first.axis]))
        begin = found[-1][1]
    return found


def shards_of(problems: Sequence[Problem], first: ShardedArray, continues: Sequence[bool]) -> list[Shard]:
    numbers = {id(device): number for number, device in enumerate(first.devices)}
    parts = zip(first.shards, problems, continues, strict=True)
    return [Shard(shard.device._executor, numbers[id(shard.device)], p, goes_on) for shard, p, goes_on in parts]


def in_order(parts: list[Any], reverse: bool) -> list[Any]:
    """Return the parts of an array in the order of the scan, or those in the order of the scan as in the array."""
    return parts[::-1] if reverse else parts


# ----- Segments


def cut_shards(problems: Sequence[Problem], first: ShardedArray, segments: Any, keys: Any) -> list[Shard]:
    """Return the shards of a scan, each with its own segments.

    Raises:
        ValueError, TypeError: as `heads_of`; or the keys are on other devices than the elements, or cut each row of the
            divided axis in its own way.
    """
    problem = problems[0]
    shape, axis, reverse = whole_shape(problem, first), problem.axis, problem.reverse
    divided = axis == first.axis
    edges = edges_of(first)
    # Where each shard begins, in the array: True if the segment of the element before goes on.
    joints = [divided and begin > 0 for begin, _ in edges]
    if isinstance(keys, ShardedArray):
        parts = _key_shards(keys, shape, first, axis)
        heads = [Heads(p.shape, axis, reverse, keys=part) for p, part in zip(problems, parts, strict=True)]
        if divided:
            _check_alike(keys, shape, axis)
            joints = [False, *(_ends_alike(before, after, axis) for before, after in pairwise(parts))]
    else:
        if isinstance(keys, Array):
            raise TypeError(
                f"keys on {keys.device!r} were passed with a gpuscan.ShardedArray, which is on {len(first.devices)} "
                "devices. Pass NumPy keys, or a gpuscan.ShardedArray of keys that is divided alike"
            )
        whole = heads_of(segments, keys, shape, axis, reverse)
        heads = [cut_heads(whole, first.axis, low, high) for low, high in edges]  # type: ignore[misc]
        if whole is not None and divided:
            if whole.keys is not None:
                _check_alike(whole.keys, shape, axis)
            for number, (begin, _) in enumerate(edges[1:], 1):
                joints[number] = not _begins(whole, begin)
    # A reversed scan comes to the end of a shard first.
    continues = [*joints[1:], False] if reverse else joints
    cut = [replace(p, heads=h) if h is not None else p for p, h in zip(problems, heads, strict=True)]
    return shards_of(cut, first, continues)


def _begins(heads: Heads, place: int) -> bool:
    """Return True if a segment begins at a place of the axis, counted in the array."""
    if heads.offsets is not None:
        return place in heads.offsets
    return bool(heads.keys[place] != heads.keys[place - 1])


def _check_alike(keys: Any, shape: tuple[int, ...], axis: int) -> None:
    """Raise ValueError if keys cut each row of the divided axis in its own way."""
    if keys.shape != shape[axis : axis + 1]:
        raise ValueError(
            f"keys of shape {keys.shape} were passed with a gpuscan.ShardedArray that is divided along the axis of the "
            f"scan, but then all rows are cut alike. Pass keys of shape {shape[axis : axis + 1]}, or divide the array "
            "along another axis"
        )


def _key_shards(keys: ShardedArray, shape: tuple[int, ...], first: ShardedArray, axis: int) -> tuple[Array, ...]:
    """Return the keys of each shard.

    Raises:
        ValueError: they have another shape, or are divided in another way.
    """
    row = shape[axis : axis + 1]
    if keys.shape not in (shape, row):
        raise ValueError(
            f"keys of shape {keys.shape} were passed for an array of shape {shape}; pass keys of shape {row}, the same "
            f"for every row, or {shape}, one for each element"
        )
    lengths = [(s.device, s.shape[keys.axis]) for s in keys.shards]
    alike = keys.shape == shape and divided_alike(keys, first)
    if not alike and axis == first.axis and keys.shape == row:
        alike = lengths == [(s.device, s.shape[first.axis]) for s in first.shards]
    if not alike:
        raise ValueError(
            "keys were passed as a gpuscan.ShardedArray that is divided in another way than the elements. Make it by "
            "gpuscan.ShardedArray.from_numpy with the same devices and axis, or pass NumPy keys"
        )
    return keys.shards


def _ends_alike(before: Array, after: Array, axis: int) -> bool:
    """Return True if the last key of a shard equals the first one of the next shard."""
    place = (slice(None),) * (axis if before.ndim > 1 else 0)
    last, begin = before[(*place, slice(-1, None))].numpy(), after[(*place, slice(0, 1))].numpy()
    return bool((last == begin).all())
