"""Recognise arrays in memory-mapped files, which may be larger than memory, and release their pages."""

from __future__ import annotations

import mmap

import numpy as np

from gpuscan.array_types import AnyArray


def is_mapped_file(array: AnyArray) -> bool:
    """Return True if the array is in a memory-mapped file."""
    base: object = array
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    return base is not None


def release_pages(array: AnyArray) -> None:
    """Release the pages of a memory-mapped file; the system reads them again when they are needed."""
    mapping = find_shared_map(array)
    if mapping is not None:
        mapping.madvise(mmap.MADV_DONTNEED)


def find_shared_map(array: object) -> mmap.mmap | None:
    """Return the mapping behind a `np.memmap` that shares its pages with the file, or None.

    Changes to the pages of a private mapping exist only in memory, so they must not be released. A plain `mmap.mmap`
    does not say if it is private.
    """
    is_shared = False
    while array is not None:
        if isinstance(array, np.memmap):
            is_shared = array.mode != "c"
        if isinstance(array, mmap.mmap):
            return array if is_shared and hasattr(array, "madvise") else None
        array = getattr(array, "base", None)
    return None
