"""Compute shapes and strides of views, as NumPy defines them. Nothing here touches memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import tuple_of_integers
from gpuscan.sizes import Size, gcd, slice_span

Axes = tuple[int, ...]


def c_strides(shape: Sequence[int], itemsize: int) -> Axes:
    """Return the strides of an array in C order, in bytes.

    Example:
        >>> c_strides((2, 3), 4)
        (12, 4)
    """
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def is_c_order(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return True if the elements are neighbours in C order. The strides of axes of length 1 do not matter."""
    if 0 in shape:
        return True
    step = itemsize
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def join_axes(shape: Sequence[int], *strides: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the axes as (length, stride, …), joined if they are neighbours under all strides; none of length 1.

    Example:
        >>> join_axes((2, 1, 3, 4), (48, 48, 16, 4))
        [(24, 4)]
        >>> join_axes((3, 4), (4, 12))
        [(3, 4), (4, 12)]
    """
    axes: list[tuple[int, ...]] = []
    for length, *steps in zip(reversed(shape), *(reversed(steps_of_array) for steps_of_array in strides), strict=True):
        if length == 1:
            continue
        if axes and all(step == axes[-1][0] * inner for step, inner in zip(steps, axes[-1][1:], strict=True)):
            axes[-1] = (axes[-1][0] * length, *axes[-1][1:])
        else:
            axes.append((length, *steps))
    return axes[::-1]


def reach(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> tuple[int, int]:
    """Return the first byte of an array and the end of its last one, counted from its first element."""
    if 0 in shape:
        return 0, 0
    ways = [(length - 1) * stride for length, stride in zip(shape, strides, strict=True)]
    return sum(min(0, way) for way in ways), sum(max(0, way) for way in ways) + itemsize


def overlaps_itself(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return True if two elements share bytes, for the strides that NumPy makes: sorted, each spans those below it.

    Example:
        >>> overlaps_itself((4, 3), (0, 4), 4), overlaps_itself((4, 3), (-24, 4), 4)
        (True, False)
    """
    if 0 in shape:
        return False
    span = itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < span:
            return True
        span += stride * (length - 1)
    return False


# ----- Indices


def index_layout(shape: Axes, strides: Axes, index: object) -> tuple[Axes, Axes, int]:
    """Return the shape, the strides and the offset in bytes of a view by basic indexing.

    Example:
        >>> index_layout((4, 6), (24, 4), (slice(None, None, -2), None, 5))
        ((2, 1), (-48, 0), 92)

    Raises:
        IndexError: the index is not a basic one, there are too many indices, or there is no such entry.
    """
    lengths: list[int] = []
    steps: list[int] = []
    offset, axis = 0, 0
    for part in _full_index(index, len(shape)):
        if part is None:
            lengths.append(1)
            steps.append(0)
            continue
        length, stride = shape[axis], strides[axis]
        if isinstance(part, slice):
            start, step, count = slice_span(part, length)
            lengths.append(count)
            steps.append(stride * step)
            offset += start * stride if count else 0
        else:
            entry = part if type(part) is Size else operator.index(part)
            if not -length <= entry < length:
                axis_name = "the first axis" if axis == 0 else f"axis {axis}"
                raise IndexError(
                    f"index {entry} was asked for, but {axis_name} has {length} entries; pass one from {-length} to "
                    f"{length - 1}"
                    if length
                    else f"index {entry} was asked for, but {axis_name} has 0 entries; pass a slice"
                )
            offset += entry % length * stride
        axis += 1
    return tuple(lengths), tuple(steps), 0 if 0 in lengths else offset


def _full_index(index: object, ndim: int) -> list[Any]:
    """Return the parts of an index with a slice for each axis that it leaves out.

    Raises:
        IndexError: as `index_layout`.
    """
    parts = list(index) if isinstance(index, tuple) else [index]
    count = 0
    gaps = []
    for position, part in enumerate(parts):
        if part is Ellipsis:
            gaps.append(position)
            continue
        if part is None:
            continue
        count += 1
        if type(part) not in (slice, int) and not _is_integer(part):
            raise IndexError(
                f"index {abbreviate(part)} was asked for, but indices are integers, slices, ..., None, and arrays of "
                "integers or bools. Convert other numbers with int"
            )
    if len(gaps) > 1:
        raise IndexError(f"an index with {len(gaps)} ellipses (...) was asked for; pass one at most")
    if count > ndim:
        raise IndexError(f"{count} indices were asked for, but the array has {ndim} axes; pass at most one for each")
    gap = gaps[0] if gaps else len(parts)
    return [*parts[:gap], *[slice(None)] * (ndim - count), *parts[gap + 1 :]]


def _is_integer(part: object) -> bool:
    """Return True for an integer, or for an array without axes, which holds one integer."""
    return hasattr(part, "__index__") and not isinstance(part, (bool, type)) and getattr(part, "shape", ()) == ()


# ----- Shapes


def resolve_shape(shape: Axes, wanted: Sequence[object]) -> Axes:
    """Return the shape that a caller asked for, with -1 replaced by the length that is left.

    Raises:
        ValueError: it has another number of elements.
        TypeError: a length is not an integer.
    """
    lengths = tuple_of_integers("shape", wanted)
    size, free = prod(shape), lengths.count(-1)
    for length in lengths:  # `min` would compare sizes with each other
        if free > 1 or length < -1:
            raise ValueError(f"shape {lengths} was asked for; pass lengths of 0 or more, and at most one -1")
    if free:
        free_axis, fixed_size = lengths.index(-1), -prod(lengths)
        if fixed_size and size % fixed_size == 0:
            lengths = (*lengths[:free_axis], size // fixed_size, *lengths[free_axis + 1 :])
    if prod(lengths) != size:
        raise ValueError(
            f"shape {tuple(wanted)} was asked for an array of shape {shape}, but they have different numbers of "
            f"elements; pass lengths with the product {size}"
        )
    return lengths


def reshape_strides(shape: Axes, strides: Axes, wanted: Axes) -> Axes | None:
    """Return the strides of the same elements in another shape of the same size; None if no view has it.

    Example:
        >>> reshape_strides((2, 6), (24, 4), (2, 2, 3))
        (24, 12, 4)
        >>> reshape_strides((6, 2), (4, 24), (12,)) is None
        True
    """
    if 0 in shape:
        return c_strides(wanted, 1)
    steps: list[int] = []
    lengths = iter(wanted)
    for count, stride in join_axes(shape, strides):
        group: list[int] = []
        while prod(group) < count:
            group.append(next(lengths))
        if prod(group) != count:
            return None
        steps += c_strides(group, stride)
    # Only axes of length 1 are left.
    return (*steps, *[0 for _ in lengths])


def broadcast_strides(shape: Axes, strides: Axes, whole: Axes) -> Axes:
    """Return the strides of an array as a view of a shape that it broadcasts to: 0 along the new axes.

    Example:
        >>> broadcast_strides((3, 1), (4, 4), (2, 3, 5))
        (0, 4, 0)
    """
    lead = (0,) * (len(whole) - len(shape))
    return (*lead, *(0 if length == 1 else stride for length, stride in zip(shape, strides, strict=True)))


def permutation(ndim: int, axes: Iterable[object] | None) -> Axes:
    """Return the order of axes that a caller asked for, counted from 0; all reversed for None.

    Raises:
        ValueError: an axis is missing or there is none of that number.
        TypeError: an axis is not an integer.
    """
    if axes is None:
        return tuple(range(ndim))[::-1]
    given = tuple_of_integers("axes", axes)
    order = tuple(axis + ndim if axis < 0 else axis for axis in given)
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes {tuple(given)} were asked for; pass each axis of {ndim} once: 0 to {ndim - 1}")
    return order


def may_share_bytes(a: tuple[Axes, Axes, int, int], b: tuple[Axes, Axes, int, int]) -> bool:
    """Return False if two arrays of one buffer have no byte in common; True as well where that is too hard to tell.

    Args:
        a, b: shape, strides, the byte where the first element begins, and bytes of an element.
    """
    (low, block, steps), (other_low, other_block, other_steps) = _blocks(*a), _blocks(*b)
    a_end, b_end = low + _span(block, steps), other_low + _span(other_block, other_steps)
    if not block or not other_block or low >= b_end or other_low >= a_end:
        return False
    # Blocks recur every `period` bytes, in the one array here and in the other one there.
    period = gcd(*(step for _, step in steps), *(step for _, step in other_steps))
    distance = (other_low - low) % period if period else 0
    return not period or distance < block or period - distance < other_block


def _blocks(shape: Axes, strides: Axes, offset: int, itemsize: int) -> tuple[int, int, list[tuple[int, int]]]:
    """Return the first byte of an array, the bytes of its blocks of neighbours, and the axes that repeat these."""
    if 0 in shape:
        return offset, 0, []
    axes = join_axes(shape, [abs(step) for step in strides])
    block = itemsize
    if axes and axes[-1][1] == itemsize:
        block *= axes.pop()[0]
    return offset + reach(shape, strides, itemsize)[0], block, [(axis[0], axis[1]) for axis in axes]


def _span(block: int, steps: list[tuple[int, int]]) -> int:
    return sum((length - 1) * step for length, step in steps) + block
