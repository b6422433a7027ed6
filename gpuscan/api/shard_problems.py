"""Make the problems of shards: a call of sharded arrays becomes a scan of each shard, with its own segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.call_device import Distributed
from gpuscan.array_types import AnyArray
from gpuscan.engine.shards import Shard
from gpuscan.problem.arguments import as_flag, initial_rows
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.compensated_sum import as_pairs
from gpuscan.problem.problem import Problem, ProblemOptions
from gpuscan.problem.problem_parts import slice_heads, slice_problem
from gpuscan.problem.results import over_arrays
from gpuscan.problem.segments import Heads, Keys, Offsets, heads_of

T = TypeVar("T")


def without_elements(x: object) -> object:
    """Return a bundle with the shape and the dtype of each sharded array instead of the array."""
    return x.whole if isinstance(x, Distributed) else over_arrays(lambda leaf: leaf.whole, x)


def are_divided_alike(one: Distributed, other: Distributed) -> bool:
    """Return True if two arrays are divided along the same axis, into shards of equal length on the same devices."""
    if one.axis != other.axis or len(one.shards) != len(other.shards):
        return False
    pairs = zip(one.shards, other.shards, strict=True)
    return all(a.device is b.device and a.shape[one.axis] == b.shape[one.axis] for a, b in pairs)


def make_shard_problems(
    x: object, op: object, leaves: Sequence[Distributed], options: ProblemOptions, pairs: bool = False
) -> list[Problem]:
    """Return the call as a problem for each shard, with the initial values of its rows.

    Args:
        x, op: as in `gpuscan.scan`.
        leaves: the sharded arrays, depth first.
        options: the options of `make_problem`, without segments and keys.
        pairs: True for a compensated sum.

    Raises:
        TypeError: `before` takes an index.
        ValueError: the arrays are divided along an axis of the element; or as `make_problem`.
    """
    first = leaves[0]
    initial, exclusive = options.get("initial"), options.get("exclusive", False)
    plain = options.copy()
    plain.pop("initial", None)
    if initial is not None:
        # The initial values are cut for each shard below. An exclusive scan with initial values needs no identity.
        plain["exclusive"] = False
    whole_x, operator, own = without_elements(x), op, plain
    if pairs:
        whole_x, operator, own = as_pairs(whole_x, op, plain)
    whole = find_or_make_problem(whole_x, operator, **own)
    if whole.indexed:
        raise TypeError(
            "before= was passed as a function of an element and its index with a gpuscan.ShardedArray, but shards do "
            "not know where they begin. Pass a function of one element, and the indices as one more array of a bundle"
        )
    if first.axis >= len(whole.shape):
        raise ValueError(
            f"a gpuscan.ShardedArray that is divided along axis {first.axis} was passed, but that axis belongs to the "
            "element. Divide it along another axis"
        )
    problems = []
    for number, (begin, end) in enumerate(edges_of(first)):
        own_leaves = tuple([leaf.shards[number] for leaf in leaves])
        problems.append(_cut_kind(whole, first.axis, begin, end).with_leaves(own_leaves))
    if initial is None:
        return problems
    axis, value = whole.axis, (initial, np.float32(0)) if pairs else initial
    exclusive = as_flag("exclusive", exclusive)
    others = tuple([n for i, n in enumerate(whole.shape) if i != axis])
    seeds = initial_rows(value, whole.element, others)
    # The initial values themselves are not a part of the key of the problem: they are parameters of its programs.
    how = "exclusive" if exclusive else "initial"
    for number, (begin, end) in enumerate(edges_of(first)):
        problem, own_seeds = problems[number], seeds
        if axis != first.axis:
            rows = (*(slice(None),) * (first.axis - (first.axis > axis)), slice(begin, end))
            fields = whole.element.fields
            wide = [np.asarray(seed).reshape((*others, *f.shape))[rows] for seed, f in zip(seeds, fields, strict=True)]
            own_seeds = tuple(part.reshape(-1, *f.shape) for part, f in zip(wide, fields, strict=True))
        started = problem.with_same_keys(seeds=own_seeds, initial=True, exclusive=exclusive)
        problems[number] = started.as_rewrite_of(problem, how)
    return problems


def _cut_kind(whole: Problem, axis: int, begin: int, end: int) -> Problem:
    """Return the problem between two indices of an axis, without elements.

    Problems that are cut from equal problems at the same indices have the same key.
    """
    if end - begin == whole.shape[axis]:
        return whole
    return slice_problem(whole.with_leaves(()), axis, begin, end).as_rewrite_of(whole, f"{begin}:{end} of axis {axis}")


def whole_shape(problem: Problem, first: Distributed) -> tuple[int, ...]:
    """Return the shape of the whole array, without the axes of the element."""
    return first.shape[: len(problem.shape)]


def edges_of(first: Distributed) -> list[tuple[int, int]]:
    """Return where each shard begins and ends along the divided axis."""
    edges, begin = [], 0
    for shard in first.shards:
        edges.append((begin, begin + shard.shape[first.axis]))
        begin = edges[-1][1]
    return edges


def shards_of(problems: Sequence[Problem], first: Distributed, continues: Sequence[bool]) -> list[Shard]:
    """Return the shards of these problems. `continues` says which go on with the segment of the shard before."""
    numbers = {id(device): number for number, device in enumerate(first.devices)}
    parts = zip(first.shards, problems, continues, strict=True)
    return [Shard(shard.device._executor, numbers[id(shard.device)], p, goes_on) for shard, p, goes_on in parts]


def in_order(parts: list[T], reverse: bool) -> list[T]:
    """Return parts of an array in the order of the scan; or bring parts in that order back into the array's order."""
    return parts[::-1] if reverse else parts


# ----- Segments


def cut_shards(problems: Sequence[Problem], first: Distributed, segments: object, keys: object) -> list[Shard]:
    """Return the shards of a scan, each with its own segments.

    Raises:
        ValueError, TypeError: as `heads_of`; or the keys are on other devices than the elements, or cut each row of the
            divided axis in its own way.
    """
    problem = problems[0]
    if segments is None and keys is None:
        opening = len(problems) - 1 if problem.reverse else 0
        return shards_of(problems, first, [problem.axis == first.axis and n != opening for n in range(len(problems))])
    shape, axis, reverse = whole_shape(problem, first), problem.axis, problem.reverse
    divided = axis == first.axis
    edges = edges_of(first)
    # For each shard, in the order of the array: True if the segment of the element before its first one goes on.
    joints = [divided and begin > 0 for begin, _ in edges]
    if isinstance(keys, Distributed):
        parts = _key_shards(keys, shape, first, axis)
        heads = [Heads(p.shape, axis, reverse, Keys(part)) for p, part in zip(problems, parts, strict=True)]
        if divided:
            _check_alike(keys, shape, axis)
            # Keys of shards that are divided along their axis have this axis alone.
            ends = [(before[-1:].numpy(), after[:1].numpy()) for before, after in pairwise(parts)]
            joints = [False, *(bool((last == first).all()) for last, first in ends)]
    else:
        if isinstance(keys, Array):
            raise TypeError(
                f"keys on {keys.device!r} were passed with a gpuscan.ShardedArray, which is on {len(first.devices)} "
                "devices. Pass NumPy keys, or a gpuscan.ShardedArray of keys that is divided alike"
            )
        whole = heads_of(segments, keys, shape, axis, reverse)
        heads = [slice_heads(whole, first.axis, low, high) for low, high in edges]  # type: ignore[misc]
        if whole is not None and divided:
            if isinstance(whole.cut, Keys):
                _check_alike(whole.cut.array, shape, axis)
            for number, (begin, _) in enumerate(edges[1:], 1):
                joints[number] = not _begins(whole, begin)
    # A reversed scan comes to a shard from the next shard in the array, and the joint of the two is at the next shard.
    continues = [*joints[1:], False] if reverse else joints
    cut = [replace(p, heads=h) if h is not None else p for p, h in zip(problems, heads, strict=True)]
    return shards_of(cut, first, continues)


def _begins(heads: Heads, index: int) -> bool:
    """Return True if a segment begins at an index of the axis."""
    array = heads.cut.array
    return index in array if isinstance(heads.cut, Offsets) else bool(array[index] != array[index - 1])


def _check_alike(keys: AnyArray | Distributed, shape: tuple[int, ...], axis: int) -> None:
    """Raise ValueError if keys cut each row of the divided axis in its own way."""
    if keys.shape != shape[axis : axis + 1]:
        raise ValueError(
            f"keys of shape {keys.shape} were passed with a gpuscan.ShardedArray that is divided along the axis of the "
            f"scan, but then all rows have the same keys. Pass keys of shape {shape[axis : axis + 1]}, or divide the "
            "array along another axis"
        )


def _key_shards(keys: Distributed, shape: tuple[int, ...], first: Distributed, axis: int) -> tuple[Array, ...]:
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
    alike = keys.shape == shape and are_divided_alike(keys, first)
    if not alike and axis == first.axis and keys.shape == row:
        alike = lengths == [(s.device, s.shape[first.axis]) for s in first.shards]
    if not alike:
        raise ValueError(
            "keys were passed as a gpuscan.ShardedArray that is divided in another way than the elements. Make it by "
            "gpuscan.ShardedArray.from_numpy with the same devices and axis, or pass NumPy keys"
        )
    return keys.shards
