"""Scans by operations of PyTorch, for derivatives that are no scan of gpuscan's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253

Tensors = Sequence[Tensor]
# A function that takes the tensors of the left elements, and then the tensors of the right elements.
Combine = Callable[..., Tensors]


def scan_tensors(combine: Combine, tensors: Tensors, axis: int) -> list[Tensor]:
    """Return the scan of tensors, by a scan of the combinations of adjacent pairs (Blelloch 1990).

    The recursion is about log2(length) deep.
    """
    length = tensors[0].shape[axis]
    if length < 2:
        return list(tensors)
    half = length // 2
    even, odd = ([_every_second(x, axis, start) for x in tensors] for start in (0, 1))
    pairs = scan_tensors(combine, list(combine(*(x.narrow(axis, 0, half) for x in even), *odd)), axis)
    if length == 2:
        return [torch.cat(pair, axis) for pair in zip(even, pairs, strict=True)]
    count = length - half - 1
    others = combine(*(x.narrow(axis, 0, count) for x in pairs), *(x.narrow(axis, 1, count) for x in even))
    results = []
    for first, rest, pair in zip(even, others, pairs, strict=True):
        between = torch.cat([first.narrow(axis, 0, 1), rest], axis)
        joined = torch.stack([between.narrow(axis, 0, half), pair], axis + 1).flatten(axis, axis + 1)
        results.append(torch.cat([joined, between.narrow(axis, half, length - 2 * half)], axis))
    return results


def _every_second(x: Tensor, axis: int, start: int) -> Tensor:
    return x[(*[slice(None)] * axis, slice(start, None, 2))]


def scan_with_options(
    combine: Combine,
    tensors: Tensors,
    axis: int,
    *,
    rank: int,
    reverse: bool,
    starts: Tensors | None,
    labels: Tensor | None,
    identity: Tensors | None,
) -> list[Tensor]:
    """Return the scan of tensors with the options of `gpuscan.scan`.

    Args:
        combine: the operator.
        tensors: the tensors, which have the axes of the elements after the others.
        axis: the scanned axis, 0 or more.
        rank: the number of axes in front of the element's axes.
        reverse: True to scan from the end.
        starts: the values of `initial`, or None.
        labels: a tensor of `rank` axes. The scan restarts where it changes along the scanned axis. Its other axes may
            have length 1. None if the scan never restarts.
        identity: for an exclusive scan without `initial` the operator's identity; with it anything but None. None for
            an inclusive scan.
    """
    if reverse:
        flipped = [x.flip(axis) for x in tensors]
        changes = None if labels is None else labels.flip(axis)
        backwards = scan_with_options(
            combine, flipped, axis, rank=rank, reverse=False, starts=starts, labels=changes, identity=identity
        )
        return [y.flip(axis) for y in backwards]
    heads = _heads(labels, tensors[0], axis, rank)

    def pick_tensors(flags: Tensor, yes: Tensors, no: Tensors) -> list[Tensor]:
        pairs = zip(yes, no, strict=True)
        return [torch.where(flags[(..., *[None] * (n.ndim - rank))], y, n) for y, n in pairs]

    first = None
    if starts is not None:
        first = [start.unsqueeze(axis) for start in _align_starts(starts, tensors)]
        tensors = pick_tensors(
            heads, combine(*(x.expand_as(y) for x, y in zip(first, tensors, strict=True)), *tensors), tensors
        )
    count = len(tensors)

    def restarting(*items: Tensor) -> list[Tensor]:
        left, right = items[: count + 1], items[count + 1 :]
        return [left[0] | right[0], *pick_tensors(right[0], right[1:], combine(*left[1:], *right[1:]))]

    results = (
        scan_tensors(combine, tensors, axis)
        if labels is None
        else scan_tensors(restarting, [heads, *tensors], axis)[1:]
    )
    if identity is None:
        return results
    before = [torch.cat([y.narrow(axis, 0, 1), y.narrow(axis, 0, y.shape[axis] - 1)], axis) for y in results]
    begin = identity if first is None else first
    return pick_tensors(heads, [x.expand_as(y) for x, y in zip(begin, before, strict=True)], before)


def _heads(labels: Tensor | None, like: Tensor, axis: int, rank: int) -> Tensor:
    """Return True for each element that begins a row or has another label than the element before it.

    The result has `rank` axes.
    """
    shape = [n if i == axis else 1 for i, n in enumerate(like.shape[:rank])]
    index = torch.arange(shape[axis], device=like.device).reshape(shape)
    if labels is None:
        return index == 0
    same = labels.roll(1, axis) == labels
    return ((index == 0) | ~same).broadcast_to(torch.broadcast_shapes(same.shape, tuple(shape)))


def _align_starts(starts: Tensors, tensors: Tensors) -> list[Tensor]:
    """Return the values of `initial` with all axes but the scanned one. Missing axes are added, with length 1."""
    pairs = zip(starts, tensors, strict=True)
    return [start[(None,) * (x.ndim - 1 - start.ndim)] for start, x in pairs]
