"""Cut rows into segments, by offsets or by keys, and give each element a bit that is set at the heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.problem.arguments import OnDevice, as_array, check_one_cut
from gpuscan.problem.labels import keys_of

Flags = AnyArray

# Offsets that are compared and copied at a time: they stay in a CPU's caches.
_CHECKED_TOGETHER = 1 << 16


@dataclass(frozen=True)
class Offsets:
    """Segments of every row, by their first indices.

    Attributes:
        array: the first index of each segment along the axis, then the axis's length. A device checks its own array
            when it turns the offsets into bits.
        unchecked: True if it is not known if the offsets fall anywhere. Until `Heads.check` is called for an array of
            NumPy, only shaders may read it, which skip wrong segments.
        needs_full: the operator of a reduction in which no segment may be empty, for messages; a device checks that
            together with the offsets. "" if segments may be empty.
    """

    array: Any
    unchecked: bool = False
    needs_full: str = ""


@dataclass(frozen=True)
class Keys:
    """Segments that are runs of equal keys.

    Attributes:
        array: a key for each element (*shape), or for each index along the axis (row_length,).
    """

    array: Any


@dataclass(frozen=True)
class Marks:
    """Segments of the only row, which is a part of a longer one, so that its first element need not be a head.

    Attributes:
        array: a bool for each element, in the order of the scan: True if it is a head. On a device, the words of
            `as_words` instead.
    """

    array: Any


# What cuts rows into segments.
Cut = Offsets | Keys | Marks


class RowsAlongAxis:
    """Count the rows of an array of a shape along one of its axes.

    Attributes:
        shape: the array's shape, without the axes that belong to the element.
        axis: the axis that the rows go along.
    """

    shape: tuple[int, ...]
    axis: int

    @cached_property
    def row_length(self) -> int:
        """The number of elements in a row."""
        return self.shape[self.axis]

    @cached_property
    def rows(self) -> int:
        """The number of rows."""
        return prod(n for i, n in enumerate(self.shape) if i != self.axis)

    @cached_property
    def size(self) -> int:
        """The number of elements in all rows together."""
        return self.rows * self.row_length

    @cached_property
    def inner(self) -> int:
        """The number of rows with interleaved elements: the product of the axes after the scanned one."""
        return prod(self.shape[self.axis + 1 :])


@dataclass(frozen=True)
class Heads(RowsAlongAxis):
    """The heads of the segments of an array's rows. The first element of a row is a head, except among `Marks`.

    Attributes:
        shape: the array's shape, without the axes that belong to the element.
        axis: the axis along which rows are cut.
        reverse: True if the scan starts at the rows' ends. Then the last element of a segment is its head.
        cut: what cuts the rows.
    """

    shape: tuple[int, ...]
    axis: int
    reverse: bool
    cut: Cut

    def check(self) -> None:
        """Raise ValueError if offsets are wrong that neither a shader nor an earlier check has compared."""
        if not isinstance(self.cut, Offsets) or not self.cut.unchecked:
            return
        if not self.on_device:
            _check_order(self.cut.array)
        elif not self.size:
            check_offsets(np.asarray(self.cut.array), self.row_length)

    @cached_property
    def cuts_rows_alike(self) -> bool:
        """True if all rows have their heads at the same places."""
        return self.rows == 1 or not isinstance(self.cut, Keys) or self.cut.array.shape != self.shape

    @property
    def segments(self) -> int:
        """The number of segments in a row; by keys, the most that there may be."""
        return self.cut.array.shape[0] - 1 if isinstance(self.cut, Offsets) else self.row_length

    @property
    def on_device(self) -> bool:
        """True if the offsets or the keys are on a device."""
        return isinstance(self.cut.array, OnDevice)

    @cached_property
    def all_full(self) -> bool:
        """True if every segment has elements. With keys, all have. For offsets on a device, this is False."""
        if not isinstance(self.cut, Offsets):
            return True
        return not self.on_device and bool((self.cut.array[:-1] < self.cut.array[1:]).all())

    @cached_property
    def head_indices(self) -> AnyArray:
        """The ascending indices of a row's heads, for segments by offsets, in the order of the scan."""
        starts, stops = self.cut.array[:-1], self.cut.array[1:]
        full = starts < stops
        head_indices: AnyArray = self.row_length - stops[full][::-1] if self.reverse else starts[full]
        return head_indices

    # ----- Heads of all rows, one row after the other, in the order of the scan

    def flags(self, start: int, count: int) -> Flags:
        """Return a bool for each of `count` elements from `start` on: True if it is a head.

        The elements are counted along the rows, one row after the other. If the scan is reversed they are counted from
        the end of the last row.
        """
        length = self.row_length
        if self.rows == 1:
            return self._in_row(start, count)
        stop = start + count
        first, last = -(-start // length), stop // length
        if last < first:
            return self._in_row(start % length, count, start // length)
        begin = self._in_row(start % length, first * length - start, start // length)
        end = self._in_row(0, stop - last * length, last)
        return np.concatenate([begin, self._in_rows(first, last).reshape(-1), end])

    def words(self, start: int, count: int) -> AnyArray:
        """Return these flags as 32-bit words, with the first element in the lowest bit."""
        return as_words(self.flags(start, count))

    def _in_row(self, start: int, count: int, row: int = 0) -> Flags:
        """Return the flags of a part of one row."""
        if isinstance(self.cut, Marks):
            marks: Flags = self.cut.array[start : start + count]
            return marks
        flags = np.zeros(count, bool)
        if not count:
            return flags
        if isinstance(self.cut, Offsets):
            # Ends of another dtype would have NumPy convert all places.
            ends = np.array((start, start + count), self.head_indices.dtype)
            first, last = np.searchsorted(self.head_indices, ends)
            flags[self.head_indices[first:last] - start] = True
            return flags
        keys = self._key_rows(row, row + 1)[0]
        before = max(start, 1)
        span = keys[before - 1 : start + count]
        flags[before - start :] = span[1:] != span[:-1]
        flags[: before - start] = True
        return flags

    def _in_rows(self, first: int, last: int) -> Flags:
        """Return the flags of whole rows."""
        if self.cuts_rows_alike:
            return np.broadcast_to(self._row, (last - first, self.row_length))
        flags = np.ones((last - first, self.row_length), bool)
        if last > first:
            keys = self._key_rows(first, last)
            flags[:, 1:] = keys[:, 1:] != keys[:, :-1]
        return flags

    @cached_property
    def _row(self) -> Flags:
        """The flags of each row, if all rows are cut at the same places."""
        return self._in_row(0, self.row_length)

    def _key_rows(self, first: int, last: int) -> AnyArray:
        """Return the keys of some rows in the order of the scan: (rows, row_length)."""
        if self.cuts_rows_alike:
            only = np.asarray(self.cut.array).reshape(1, -1)
            return only[:, ::-1] if self.reverse else only
        moved: AnyArray = np.moveaxis(np.asarray(self.cut.array), self.axis, -1)
        moved = np.flip(moved) if self.reverse else moved
        if moved.ndim == 2:
            return moved[first:last]
        if last == first + 1:
            row: AnyArray = moved[np.unravel_index(first, moved.shape[:-1])]
            return row[np.newaxis]  # a view, since a row may be long
        return moved[np.unravel_index(np.arange(first, last), moved.shape[:-1])]

    # ----- Heads of columns, in the order of memory

    @cached_property
    def row_words(self) -> AnyArray:
        """The flags of every row as 32-bit words, in the order of the scan, if all rows are cut at the same places."""
        return as_words(self._row)

    def column_words(self, outer: slice | None, columns: slice | None) -> AnyArray:
        """Return the flags of some outer arrays and columns, in the order of memory, as 32-bit words.

        Args:
            outer: which of the arrays (row_length, inner); None for all.
            columns: which of their columns; None for all.
        """
        everything = slice(None)
        keys = self._key_matrices[outer or everything, :, columns or everything]
        flags = np.ones(keys.shape, bool)
        inner = flags[:, :-1] if self.reverse else flags[:, 1:]
        inner[...] = keys[:, 1:] != keys[:, :-1]
        return as_words(flags.reshape(-1))

    @cached_property
    def _key_matrices(self) -> AnyArray:
        """The keys as (outer, row_length, inner)."""
        return np.asarray(self.cut.array).reshape(-1, self.row_length, self.inner)


def as_words(flags: Flags) -> AnyArray:
    """Return flags as 32-bit words, with the first flag in the lowest bit of the first word."""
    words = np.zeros(-(-len(flags) // 32), "<u4")
    words.view(np.uint8)[: -(-len(flags) // 8)] = np.packbits(flags, bitorder="little")
    return words.astype(np.uint32, copy=False)


def heads_of(
    segments: object, keys: object, shape: tuple[int, ...], axis: int, reverse: bool, *, checks_later: bool = False
) -> Heads | None:
    """Check `segments` or `keys`, and return the heads; None if neither is passed.

    Args:
        segments, keys: what the caller passed.
        shape, axis, reverse: of the scan.
        checks_later: True if the caller calls `Heads.check` while a device already uses the offsets.

    Raises:
        ValueError: both are passed; the offsets do not begin with 0, do not end with the axis's length, or decrease; or
            there is not one key for each element, nor one for each place along the axis.
        TypeError: the offsets are not integers.
    """
    check_one_cut(segments=segments, keys=keys)
    if isinstance(segments, OnDevice):
        _check_shape(segments, shape[axis])
        if segments.shape[0] == 1 and shape[axis]:
            raise ValueError(
                f"one offset was passed as segments of {shape[axis]} elements; pass at least two, the first 0 and the "
                f"last {shape[axis]}"
            )
        return Heads(shape, axis, reverse, Offsets(segments, unchecked=True))
    if segments is not None:
        given = _integers(segments, shape[axis])
        if not (checks_later and 0 not in shape and given.dtype.itemsize >= 4 and given.dtype.isnative):
            return Heads(shape, axis, reverse, Offsets(check_offsets(given, shape[axis])))
        _check_ends(given, shape[axis])
        return Heads(shape, axis, reverse, Offsets(given, unchecked=True))
    if keys is None:
        return None
    keys = keys_of(keys)
    if keys.shape not in (shape, shape[axis : axis + 1]):
        choices = f"{shape[axis : axis + 1]}, the same keys for every row, or {shape}, one for each element"
        raise ValueError(
            f"keys of shape {keys.shape} were passed for an array of shape {shape}; pass "
            + ("one key for each element" if len(shape) == 1 else f"keys of shape {choices}")
        )
    return Heads(shape, axis, reverse, Keys(keys))


def check_offsets(segments: object, length: int) -> AnyArray:
    """Return the offsets as integers of 32 bits, or of 64 where a row is longer, once they are checked.

    Raises:
        ValueError, TypeError: as `heads_of`.
    """
    given = _integers(segments, length)
    wanted = np.dtype(np.uint32 if length < 2**32 else np.int64)
    same = given.dtype.isnative and given.dtype.itemsize == wanted.itemsize
    offsets = given.view(wanted) if same else np.empty(given.shape, wanted)
    _check_order(given, None if same else offsets)
    _check_ends(given, length)
    return offsets


def _integers(segments: object, length: int) -> AnyArray:
    """Return the offsets as an array, once it is checked that they are a row of integers."""
    given = as_array(segments)
    _check_shape(given, length)
    return given


def _check_ends(offsets: AnyArray, length: int) -> None:
    if offsets[0] != 0 or offsets[-1] != length:
        raise ValueError(
            f"segments from {offsets[0]} to {offsets[-1]} were passed for {length} elements; the first offset must be "
            f"0 and the last {length}"
        )


def ascending_offsets(segments: object) -> AnyArray:
    """Return the offsets of chunks as an array of integers, once it is checked that they never fall.

    Raises:
        ValueError, TypeError: as `heads_of`.
    """
    given = as_array(segments)
    _check_shape(given, "the chunks")
    _check_order(given)
    return given


def _check_order(offsets: AnyArray, into: AnyArray | None = None) -> None:
    """Raise ValueError if offsets decrease; in the same pass over them, copy them to `into`."""
    for start in range(0, len(offsets), _CHECKED_TOGETHER):
        span = offsets[start : start + _CHECKED_TOGETHER + 1]
        falls = span[1:] < span[:-1]
        if falls.any():
            at = start + int(falls.argmax())
            raise ValueError(
                f"segments decrease from {offsets[at]} at index {at} to {offsets[at + 1]} at index {at + 1}; pass "
                "offsets that never decrease (equal ones are empty segments)"
            )
        if into is not None:
            np.copyto(into[start : start + _CHECKED_TOGETHER], span[:_CHECKED_TOGETHER], casting="unsafe")


def _check_shape(offsets: AnyArray | OnDevice, elements: int | str) -> None:
    """Raise an error unless the offsets are a row of integers. `elements` says what they cut, for messages."""
    if len(offsets.shape) != 1 or not offsets.shape[0]:
        ends = ""
        if isinstance(elements, int):
            elements, ends = f"{elements} elements", f", the first 0 and the last {elements}"
        raise ValueError(
            f"segments of shape {offsets.shape} were passed for {elements}; pass a 1-D array of offsets{ends}"
        )
    if offsets.dtype.kind not in "iu":
        raise TypeError(
            f"segments of dtype {offsets.dtype} were passed; offsets are integers, so convert them, for example with "
            ".astype(np.int64)"
        )


def empty_segment_error(segment: int, described: str) -> ValueError:
    """Return the error for a reduction in which a segment is empty and has no result."""
    return ValueError(
        f"a reduction of segments was asked for, but segment {segment} is empty and {described} has no identity. Pass "
        "initial=..., or give the operator an identity: gpuscan.operator(function, identity=...)"
    )


def offsets_error(length: int, segments: int, needs_full: str, words: Sequence[int]) -> ValueError | None:
    """Return the error for offsets that a device has checked; None if they are right.

    Args:
        length: the number of elements that are cut.
        segments: the number of segments.
        needs_full: as in `Offsets`.
        words: the validation flag of shaders/arrays/mark_segments.wgsl.
    """
    fall, first, beyond, empty = words
    if fall:
        at = 2**32 - 1 - fall + 1
        return ValueError(
            f"segments on a device were passed for {length} elements, but they decrease, or exceed {length}, at index "
            f"{at} of {segments}; pass offsets that never decrease (equal ones are empty segments) and end with "
            f"{length}. segments[{at - 1}:{at + 1}].numpy() shows the wrong offset"
        )
    if first or beyond:
        last = beyond - 1 if beyond else length
        return ValueError(
            f"segments from {first} to {last} were passed for {length} elements; the first offset must be 0 and the "
            f"last {length}"
        )
    return empty_segment_error(2**32 - 1 - empty, needs_full) if empty else None
