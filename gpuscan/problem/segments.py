"""Cut a row into segments, by offsets or by keys, and give each element a bit that is set at the heads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpuscan.problem.arguments import OnDevice, as_array


@dataclass(frozen=True)
class Heads:
    """The heads of a row's segments, in the order of the scan. The first element is always a head.

    Attributes:
        length: the number of elements in the row.
        reverse: True if the scan starts at the row's end. Then the last element of a segment is its head.
        offsets: the first element of each segment, then the row's length; None with keys.
        keys: a key for each element. A segment is a run of equal keys. None with offsets.
    """

    length: int
    reverse: bool
    offsets: Any = None
    keys: Any = None

    @cached_property
    def places(self) -> np.ndarray[Any, Any]:
        """The ascending indices of the heads, for segments by offsets."""
        starts, stops = self.offsets[:-1], self.offsets[1:]
        full = starts < stops
        places: np.ndarray[Any, Any] = self.length - stops[full][::-1] if self.reverse else starts[full]
        return places

    def flags(self, start: int, count: int) -> np.ndarray[Any, Any]:
        """Return a bool for each of `count` elements from `start` on: True if it is a head."""
        flags = np.zeros(count, bool)
        if self.offsets is not None:
            first, last = np.searchsorted(self.places, (start, start + count))
            flags[self.places[first:last] - start] = True
            return flags
        keys = np.asarray(self.keys)
        keys = keys[::-1] if self.reverse else keys
        before = max(start, 1)
        stretch = keys[before - 1 : start + count]
        flags[before - start :] = stretch[1:] != stretch[:-1]
        flags[: before - start] = True
        return flags

    def words(self, start: int, count: int) -> np.ndarray[Any, Any]:
        """Return the flags of these elements as 32-bit words, with the first element in the lowest bit."""
        bits = np.packbits(self.flags(start, count), bitorder="little")
        return np.pad(bits, (0, -len(bits) % 4)).view("<u4").astype(np.uint32, copy=False)


def heads_of(segments: Any, keys: Any, shape: tuple[int, ...], reverse: bool) -> Heads | None:
    """Check `segments` or `keys`, and return the heads; None if neither is passed.

    Raises:
        ValueError: both are passed, or the array has several axes; the offsets do not begin with 0, do not end with
            the row's length, or decrease; or there is not one key for each element.
        TypeError: the offsets are not integers.
    """
    if segments is None and keys is None:
        return None
    if segments is not None and keys is not None:
        raise ValueError("segments= and keys= were both passed; pass the one that says where the scan restarts")
    name = "keys" if segments is None else "segments"
    if len(shape) != 1:
        raise ValueError(
            f"{name}= was passed with an array of shape {shape}; it cuts one row. Rows of equal length need none: "
            "pass axis=..., or x.reshape(-1) to cut all elements as one row"
        )
    (length,) = shape
    if segments is None:
        keys = keys if isinstance(keys, OnDevice) else as_array(keys)
        if keys.shape != shape:
            raise ValueError(
                f"keys of shape {keys.shape} were passed for an array of shape {shape}; pass one key for each element"
            )
        return Heads(length, reverse, keys=keys)
    return Heads(length, reverse, offsets=checked_offsets(segments, length))


def checked_offsets(segments: Any, length: int) -> np.ndarray[Any, Any]:
    """Return the offsets as 64-bit integers, once they are checked.

    Raises:
        ValueError, TypeError: as `heads_of`.
    """
    given = as_array(segments)
    if given.ndim != 1 or not len(given):
        raise ValueError(
            f"segments of shape {given.shape} were passed for {length} elements; pass a 1-D array of offsets, the "
            f"first 0 and the last {length}"
        )
    if given.dtype.kind not in "iu":
        raise TypeError(f"segments of dtype {given.dtype} were passed; offsets are integers")
    if not (given[:-1] <= given[1:]).all():
        at = int(np.argmin(given[:-1] <= given[1:]))
        raise ValueError(
            f"segments fall from {given[at]} at index {at} to {given[at + 1]} at index {at + 1}; offsets never fall "
            "(equal ones are empty segments)"
        )
    if given[0] != 0 or given[-1] != length:
        raise ValueError(
            f"segments from {given[0]} to {given[-1]} were passed for {length} elements; the first offset must be 0 "
            f"and the last {length}"
        )
    return given.astype(np.int64, copy=False)
