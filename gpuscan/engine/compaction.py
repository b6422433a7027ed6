"""Pick entries by a mask on a device: a scan of the mask, fused with the scatter of what it picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from typing import Any

import numpy as np

from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty, uploaded
from gpuscan.device.guards import guarded
from gpuscan.elements import Structure, element_of
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import contiguous, copy_elements, duplicate, view_of
from gpuscan.engine.executor import Executor
from gpuscan.engine.record import record_stage
from gpuscan.errors import GpuscanError
from gpuscan.operators.named_operators import resolve
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.problem.problem import Problem

# The sizes of entries, in bytes, that are moved while the mask is scanned: those that scan/compact.wgsl can load and
# store. Other entries are gathered by their indices.
_MOVED_BYTES = (1, 2, 4, 8, 16)
# The 32-bit words of all entries that are moved together, at most. Workgroup memory has room for no more: see
# MOVING_WORDS in planning/tiles.py.
_MAX_MOVED_WORDS = 4
# Invocations in a workgroup of arrays/gather.wgsl: the most that every WebGPU adapter has.
_GATHER_WORKGROUP = 256


@dataclass(frozen=True)
class Compacted:
    """The entries of some arrays that a mask picks.

    Attributes:
        rooms: for each array, memory that begins with the `count` picked entries.
        count: the number of picked entries, as one 32-bit word on the device.
        known: the same number on the CPU, if it had to be read.
    """

    rooms: Sequence[DeviceArray]
    count: DeviceArray
    known: int | None = None


def compact_on_device(executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray) -> Compacted:
    """Return the entries of each array that the mask picks.

    The call waits for the GPU only if the arrays exceed a binding, because the place of a part's results depends on the
    counts of the parts before.

    Raises:
        GpuscanError: one entry alone exceeds a binding.
    """
    context, length = executor.context, mask.shape[0]
    leaves, mask = [contiguous(leaf) for leaf in leaves], contiguous(mask)
    most = max_entries(context, leaves)
    if length <= most:
        return _compact_part(executor, leaves, mask)
    with guarded(context), context.lock:
        rooms = [empty(context, leaf.shape, leaf.dtype) for leaf in leaves]
        picked = 0
        for start in range(0, length, most):
            stop = min(start + most, length)
            parts = [_entries(leaf, start, stop) for leaf in leaves]
            found = _compact_part(executor, parts, _entries(mask, start, stop))
            count = int(found.count.read()[0])
            for part, room in zip(found.rooms, rooms, strict=True):
                content = _entries(part, 0, count)
                copy_elements(view_of(content, (count,), entry_bytes(room)), room, offset=picked * entry_bytes(room))
            picked += count
        return Compacted(rooms, uploaded(context, np.array([picked], np.uint32)), picked)


def max_entries(context: DeviceContext, leaves: Sequence[Any]) -> int:
    """Return how many entries can be picked from at a time.

    Raises:
        GpuscanError: one entry alone exceeds a binding.
    """
    widest = max(4, *(entry_bytes(leaf) for leaf in leaves))
    limit = context.binding_limit
    if widest > limit and len(leaves[0]):
        raise GpuscanError(
            f"entries of {widest} bytes were passed, but {context.capabilities.summary} binds at most {limit} bytes. "
            "Pick with NumPy: x[mask], or GPUSCAN_ADAPTER=numpy in the environment"
        )
    # Parts begin at a multiple of 256 bytes, where a shader can bind them, for entries of any size.
    most = max(1, limit // widest)
    return most if most < 256 else most // 256 * 256


def entry_bytes(leaf: Any) -> int:
    """Return the bytes of one entry of the first axis."""
    return int(prod(leaf.shape[1:]) * leaf.dtype.itemsize)


def _entries(array: DeviceArray, start: int, stop: int) -> DeviceArray:
    """Return the entries from `start` to `stop` as a view."""
    return array.viewed((stop - start, *array.shape[1:]), offset=start * entry_bytes(array))


def _compact_part(executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray) -> Compacted:
    context = executor.context
    count = uploaded(context, np.zeros(1, np.uint32))
    moved = [leaf for leaf in leaves if mask.shape[0] and entry_bytes(leaf)]
    if not moved:
        # Entries without bytes: only their number counts.
        known = int(np.count_nonzero(mask.read()))
        return Compacted(list(leaves), uploaded(context, np.array([known], np.uint32)), known)
    rooms = iter(_rooms_of(executor, moved, mask, count))
    return Compacted([next(rooms) if entry_bytes(leaf) else leaf for leaf in leaves], count)


def _rooms_of(
    executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray, count: DeviceArray
) -> list[DeviceArray]:
    """Return memory as long as the arrays, with the picked entries, and write their number to `count`."""
    context = executor.context
    sizes = [entry_bytes(leaf) for leaf in leaves]
    bound = 2 * len(leaves) + 4 <= context.capabilities.limits[STORAGE_LIMIT]
    few = sum(-(-size // 4) for size in sizes) <= _MAX_MOVED_WORDS
    if bound and few and all(size in _MOVED_BYTES for size in sizes):
        return _scattered(executor, [_as_words(leaf) for leaf in leaves], mask, count)
    indices = uploaded(context, np.arange(mask.shape[0], dtype=np.uint32))
    (picked,) = _scattered(executor, [_as_words(indices)], mask, count)
    return [gathered(context, leaf, picked, count) for leaf in leaves]


def _as_words(leaf: DeviceArray) -> DeviceArray:
    """Return the array as unsigned words, or as parts of words: (n, numbers of an entry)."""
    size = gcd(4, entry_bytes(leaf))
    return leaf.viewed((leaf.shape[0], entry_bytes(leaf) // size), f"u{size}")


def _scattered(
    executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray, count: DeviceArray
) -> list[DeviceArray]:
    """Scan the mask, store each picked entry at the place that its sum gives, and write their number to `count`."""
    flags = mask.viewed(mask.shape, np.uint8)
    shapes = [leaf.shape[1:] for leaf in leaves]
    numbers = Structure("tuple", tuple(range(len(leaves) + 1)), (Structure(),) * (len(leaves) + 1))
    moved = Structure("tuple", numbers.keys[:-1], numbers.children[:-1])
    problem = Problem(
        operator=resolve("add"),
        leaves=(flags, *leaves),  # type: ignore[arg-type]
        source=element_of([flags.dtype, *(leaf.dtype for leaf in leaves)], numbers, [(), *shapes]),
        element=element_of([np.dtype(np.uint32)]),
        destination=element_of([leaf.dtype for leaf in leaves], moved, shapes),
        shape=mask.shape,
        axis=0,
        compacts=True,
    )
    return scan_device(executor, problem, count=count)


def gathered(context: DeviceContext, leaf: DeviceArray, indices: DeviceArray, count: DeviceArray) -> DeviceArray:
    """Return the entries with these indices, one after the other."""
    unit = gcd(4, entry_bytes(leaf))
    words = -(-leaf.nbytes // 4)
    call = context.uniform(np.array([entry_bytes(leaf) // unit, words, 0, 0], np.uint32).tobytes())
    with guarded(context), context.lock:
        room = empty(context, leaf.shape, leaf.dtype)
        source = leaf if leaf.is_bindable else duplicate(leaf)
        bound = [call, *(array.binding() for array in (source, indices, count, room))]
        encoder = context.queue.encoder()
        workgroups = -(-words // _GATHER_WORKGROUP)
        values = {"workgroup_size": _GATHER_WORKGROUP, "unit": unit}
        record_stage(context, encoder, "arrays/gather.wgsl", bound, workgroups, leaf.shape[0], **values)
        context.queue.submit(encoder)
    return room
