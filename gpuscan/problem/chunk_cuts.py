"""Say where a row restarts that comes in chunks: by offsets into the whole row, or by keys that come in chunks, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import OnDevice, as_array, check_one_cut
from gpuscan.problem.segments import Flags, ascending_offsets


def chunk_cuts(segments: object, keys: object) -> ChunkCuts | None:
    """Check `segments` or `keys` of `gpuscan.scan_chunks`; return None if neither is passed.

    Raises:
        ValueError: both are passed; or the offsets do not begin with 0, or decrease.
        TypeError: the offsets are not integers, or `keys` is one array.
    """
    check_one_cut(segments=segments, keys=keys)
    if segments is not None:
        return _CutsByOffsets(segments)
    return None if keys is None else _CutsByKeys(keys)


class _CutsByOffsets:
    """The heads of segments by offsets into the whole row."""

    def __init__(self, segments: object) -> None:
        self._offsets = ascending_offsets(segments)
        if self._offsets[0] != 0:
            raise ValueError(
                f"segments from {self._offsets[0]} on were passed for chunks; offsets count from the first element of "
                "the first chunk, so the first offset must be 0"
            )
        self._start = 0

    def marks(self, number: int, count: int) -> Flags:
        """Return a bool for each of `count` elements of a chunk, counted from 1: True if a segment begins there."""
        start, stop, end = self._start, self._start + count, int(self._offsets[-1])
        if stop > end:
            raise ValueError(
                f"chunk {number} ends after {stop} elements, but segments up to {end} were passed; the last offset "
                "must be the number of elements of all chunks"
            )
        self._start = stop
        # Ends of another dtype would have NumPy convert all offsets.
        first, last = np.searchsorted(self._offsets, np.array((start, stop), self._offsets.dtype))
        flags = np.zeros(count, bool)
        flags[self._offsets[first:last] - start] = True
        return flags

    def finish(self, chunks: int) -> None:
        """Raise ValueError if the chunks have ended, but the segments have not."""
        if self._start != self._offsets[-1]:
            raise ValueError(
                f"segments up to {self._offsets[-1]} were passed, but the {chunks} chunks have {self._start} elements; "
                "the last offset must be the number of elements of all chunks"
            )


# What stands for the keys of the next chunk where there are no more. The caller may pass None for some by mistake.
_NONE_LEFT = object()


class _CutsByKeys:
    """The heads of runs of equal keys. A run goes on from chunk to chunk."""

    def __init__(self, keys: Any) -> None:
        if isinstance(keys, (np.ndarray, OnDevice)) and len(keys.shape) < 2:
            raise TypeError(
                f"keys of shape {keys.shape} were passed for chunks, but keys must be an iterable of arrays, one for "
                "each chunk. Pass [keys] for one chunk, or np.split(keys, ends) with the ends of the chunks"
            )
        try:
            self._keys: Iterator[object] = iter(keys)
        except TypeError:
            raise TypeError(
                f"keys={abbreviate(keys)} was passed for chunks, but keys must be an iterable of arrays, one for each "
                "chunk"
            ) from None
        self._kind: AnyDType | None = None
        self._last: AnyArray | None = None

    def marks(self, number: int, count: int) -> Flags:
        given = next(self._keys, _NONE_LEFT)
        if given is _NONE_LEFT:
            raise ValueError(
                f"keys for {number - 1} chunks were passed, but there is a chunk {number}; pass an array of keys for "
                "each chunk"
            )
        keys = as_array(given)
        if keys.shape != (count,):
            raise ValueError(
                f"keys of shape {keys.shape} were passed for chunk {number}, which has {count} elements; pass one key "
                "for each element"
            )
        self._kind = self._kind or keys.dtype
        if keys.dtype.kind != self._kind.kind:
            raise TypeError(
                f"keys of dtype {keys.dtype} were passed for chunk {number}, and of {self._kind} for the first; "
                "convert all keys to one dtype"
            )
        flags = np.ones(count, bool)
        if count:
            flags[1:] = keys[1:] != keys[:-1]
            if self._last is not None:
                flags[:1] = keys[:1] != self._last
            # A copy: the caller may fill the array with the next keys.
            self._last = keys[-1:].copy()
        return flags

    def finish(self, chunks: int) -> None:
        if next(self._keys, _NONE_LEFT) is not _NONE_LEFT:
            raise ValueError(
                f"keys for more than {chunks} chunks were passed, but there are only {chunks}; pass an array of keys "
                "for each chunk"
            )


ChunkCuts: TypeAlias = _CutsByOffsets | _CutsByKeys
