"""Pick entries by a mask on a device: a scan of the mask, fused with the scatter of what it picks.

The mask is an array of bools, or a function of an entry that is fused into the scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

import numpy as np

from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import bindable, contiguous, copy_elements, duplicate, view_of
from gpuscan.engine.executor import Executor
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.errors import GpuscanError
from gpuscan.operators.operator import operator
from gpuscan.operators.trace import Map
from gpuscan.planning.kernel import OTHERS_AT
from gpuscan.problem.arguments import Leaf
from gpuscan.problem.compaction import compaction_problem, words_of_entry
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.problem.problem import Problem, make_problem

# Entries of these sizes, in bytes, are moved while the mask is scanned, because scan/compact.wgsl can load and store
# them. Other entries are gathered by their indices.
_MOVED_BYTES = (1, 2, 4, 8, 16)
# The 32-bit words of all entries that are moved together, at most. Workgroup memory has room for no more: see
# MOVING_WORDS in planning/tiles.py.
_MAX_MOVED_WORDS = 4
# The most invocations of arrays/gather.wgsl. lavapipe takes 30 ms for 2^22 of them that find nothing to gather.
_MAX_GATHER_INVOCATIONS = 1 << 19
# The operator of segments that give each element their first one, and of rows of one element, which combine nothing.
KEEP_LEFT = operator(lambda left, right: left, name="keep left")


@dataclass(frozen=True)
class Compacted:
    """The entries of some arrays that a mask picks.

    Attributes:
        entries: for each array, memory that begins with the `count` picked entries.
        count: the number of picked entries, as one 32-bit word on the device.
        known: the same number on the CPU, if it had to be read.
    """

    entries: Sequence[DeviceArray]
    count: DeviceArray
    known: int | None = None

    def read_count(self, most: int) -> int:
        """Return the number of picked entries, which is at most `most`, once the GPU is done.

        A run that timed out leaves any number, so the caller checks the reports before it uses the entries.
        """
        return min(int(self.count._read()[0]), most)


def compact_on_device(
    executor: Executor,
    leaves: Sequence[DeviceArray],
    mask: DeviceArray | Map,
    out: Sequence[DeviceArray] | None = None,
) -> Compacted:
    """Return the entries of each array that the mask picks.

    Args:
        leaves: the arrays, of one length.
        mask: a bool for each entry, or a function that gives one of an entry.
        out: arrays to write, as long as the arrays; new ones without.

    The call waits for the GPU only if the arrays exceed a binding, because the place of a part's results depends on the
    counts of the parts before.

    Raises:
        GpuscanError: one entry alone exceeds a binding.
    """
    context, length = executor.context, leaves[0].shape[0]
    leaves = [contiguous(leaf) for leaf in leaves]
    mask = mask if isinstance(mask, Map) else contiguous(mask)
    most = max_entries(context, leaves)
    if length <= most:
        return _compact_part(executor, leaves, mask, out)
    with context.errors, context.lock:
        if out is None:
            out = [empty(context, leaf.shape, leaf.dtype) for leaf in leaves]
        else:
            taken = {id(result.buffer) for result in out}
            leaves = [duplicate(leaf) if id(leaf.buffer) in taken else leaf for leaf in leaves]
        kept_count = 0
        for start in range(0, length, most):
            stop = min(start + most, length)
            parts = [_entries(leaf, start, stop) for leaf in leaves]
            part_mask = mask if isinstance(mask, Map) else _entries(mask, start, stop)
            compacted = _compact_part(executor, parts, part_mask)
            count = compacted.read_count(stop - start)
            for entries, result in zip(compacted.entries, out, strict=True):
                nbytes = entry_bytes(result)
                copy_elements(
                    view_of(_entries(entries, 0, count), (count,), nbytes), result, offset=kept_count * nbytes
                )
            kept_count += count
        return Compacted(out, upload_array(context, np.array([kept_count], np.uint32)), kept_count)


@dataclass(frozen=True)
class Partitioned:
    """The entries of some arrays that a mask picks, and the others.

    Attributes:
        entries, others: for each array, memory that begins with the picked entries, and with the others.
        count, others_count: their numbers, as one 32-bit word each on the device.
    """

    entries: Sequence[DeviceArray]
    others: Sequence[DeviceArray]
    count: DeviceArray
    others_count: DeviceArray


def partition_on_device(executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray) -> Partitioned:
    """Return the entries of each array that a mask picks, and the others. Nothing waits for their numbers.

    Args:
        leaves: the arrays, of one length.
        mask: a bool for each entry.

    Raises:
        GpuscanError: an array exceeds what a shader binds.
    """
    context, length = executor.context, leaves[0].shape[0]
    leaves, mask = [contiguous(leaf) for leaf in leaves], contiguous(mask)
    if length > max_entries(context, leaves):
        raise GpuscanError(
            f"{length} entries were to be partitioned, but {context.capabilities.summary} binds at most "
            f"{context.binding_limit} bytes. Partition a part of them at a time, or pick both parts by gpuscan.compact"
        )
    if not length:
        none = upload_array(context, np.zeros(1, np.uint32))
        return Partitioned(leaves, leaves, none, none)
    counts = empty(context, (OTHERS_AT + 1,), np.uint32)
    kept_count, others = counts._view_as((1,)), counts._view_as((1,), offset=4 * OTHERS_AT)
    moved = [leaf for leaf in leaves if entry_bytes(leaf)]
    if moved and _are_moved(context, moved, 3 * len(moved) + 4):
        halves = _partition_arrays(executor, moved, mask, counts)
        sides = halves[: len(moved)], halves[len(moved) :]
    else:
        indices = _partition_arrays(executor, [all_indices(context, length)], mask, counts)
        numbers = zip(indices, (kept_count, others), strict=True)
        sides = tuple([gather_entries(context, leaf, index, count) for leaf in moved] for index, count in numbers)  # type: ignore[assignment]
    rest = [iter(side) for side in sides]
    entries, left = ([next(side) if entry_bytes(leaf) else leaf for leaf in leaves] for side in rest)
    return Partitioned(entries, left, kept_count, others)


def _partition_arrays(
    executor: Executor, leaves: Sequence[DeviceArray], mask: DeviceArray, counts: DeviceArray
) -> list[DeviceArray]:
    """Return the picked entries of each array, and then the remaining entries of each array.

    Each result has as many places as its array; the entries fill the first of them.
    """
    words = [_as_words(leaf) for leaf in leaves]
    problem = compaction_problem(words, mask._view_as(mask.shape, np.uint8), partitions=True)
    scanned = scan_device(executor, problem, count=counts)
    return [array._view_as(leaf.shape, leaf.dtype) for array, leaf in zip(scanned, (*leaves, *leaves), strict=True)]


def max_entries(context: DeviceContext, leaves: Sequence[Leaf]) -> int:
    """Return how many entries can be picked from at a time.

    Raises:
        GpuscanError: one entry alone exceeds a binding.
    """
    widest = max(4, *(entry_bytes(leaf) for leaf in leaves))
    limit = context.binding_limit
    if widest > limit and leaves[0].shape[0]:
        raise GpuscanError(
            f"entries of {widest} bytes were passed, but {context.capabilities.summary} binds at most {limit} bytes. "
            "Pick with NumPy: x[mask], or GPUSCAN_ADAPTER=numpy in the environment"
        )
    # Parts begin at a multiple of 256 bytes, where a shader can bind them, for entries of any size.
    most = max(1, limit // widest)
    return most if most < 256 else most // 256 * 256


def entry_bytes(leaf: Leaf) -> int:
    """Return the bytes of one entry of the first axis."""
    return int(prod(leaf.shape[1:]) * leaf.dtype.itemsize)


def _entries(array: DeviceArray, start: int, stop: int) -> DeviceArray:
    """Return the entries from `start` to `stop` as a view."""
    return array._view_as((stop - start, *array.shape[1:]), offset=start * entry_bytes(array))


def _compact_part(
    executor: Executor,
    leaves: Sequence[DeviceArray],
    mask: DeviceArray | Map,
    out: Sequence[DeviceArray] | None = None,
) -> Compacted:
    context = executor.context
    moved = [leaf for leaf in leaves if leaf.shape[0] and entry_bytes(leaf)]
    if not moved:
        # Entries without bytes: only their number counts.
        return Compacted(list(leaves), _count_entries(executor, mask))
    count = empty(context, (1,), np.uint32)
    if out is not None:
        out = [result for result, leaf in zip(out, leaves, strict=True) if entry_bytes(leaf)]
    entries = iter(_pick_entries(executor, moved, mask, count, out))
    return Compacted([next(entries) if entry_bytes(leaf) else leaf for leaf in leaves], count)


def _count_entries(executor: Executor, mask: DeviceArray | Map) -> DeviceArray:
    """Return how many entries the mask picks, as one word on the device."""
    if isinstance(mask, Map) or not mask.size:
        return upload_array(executor.context, np.zeros(1, np.uint32))
    problem = make_problem(mask._view_as(mask.shape, np.uint8), "add", dtype=np.uint32)
    (count,) = scan_device(executor, replace(problem, keep_last_only=True))
    return count


def _pick_entries(
    executor: Executor,
    leaves: Sequence[DeviceArray],
    mask: DeviceArray | Map,
    count: DeviceArray,
    out: Sequence[DeviceArray] | None,
) -> list[DeviceArray]:
    """Return memory as long as the arrays, with the picked entries, and write their number to `count`."""
    context, length = executor.context, leaves[0].shape[0]
    if _are_moved(context, leaves, 2 * len(leaves) + 4):
        return _scatter_entries(executor, leaves, mask, count, out)
    if isinstance(mask, Map):
        mask = _evaluate_predicate(executor, leaves, mask)
    (indices,) = _scatter_entries(executor, [all_indices(context, length)], mask, count, None)
    results = [None] * len(leaves) if out is None else out
    return [gather_entries(context, leaf, indices, count, result) for leaf, result in zip(leaves, results, strict=True)]


def _are_moved(context: DeviceContext, leaves: Sequence[DeviceArray], bindings: int) -> bool:
    """Return True if the entries are moved while the mask is scanned, by a kernel with this many bindings."""
    sizes = [entry_bytes(leaf) for leaf in leaves]
    few = sum(-(-size // 4) for size in sizes) <= _MAX_MOVED_WORDS
    return (
        few and all(size in _MOVED_BYTES for size in sizes) and bindings <= context.capabilities.limits[STORAGE_LIMIT]
    )


def _evaluate_predicate(executor: Executor, leaves: Sequence[DeviceArray], predicate: Map) -> DeviceArray:
    """Return the predicate's bool for each entry: rows of one element, mapped as they are loaded."""
    shape = (leaves[0].shape[0], 1)
    problem = Problem(
        operator=KEEP_LEFT,
        leaves=tuple(leaves),
        source=predicate.source,
        element=predicate.element,
        destination=predicate.element,
        shape=shape,
        axis=1,
        before=predicate,
    )
    (mask,) = scan_device(executor, problem)
    return mask._view_as(shape[:1])


def _as_words(leaf: DeviceArray) -> DeviceArray:
    """Return the array as unsigned words, or as parts of words: (n, numbers of an entry)."""
    dtype, count = words_of_entry(entry_bytes(leaf))
    return leaf._view_as((leaf.shape[0], count), dtype)


def _scatter_entries(
    executor: Executor,
    leaves: Sequence[DeviceArray],
    mask: DeviceArray | Map,
    count: DeviceArray,
    out: Sequence[DeviceArray] | None,
) -> list[DeviceArray]:
    """Scan the mask, store each picked entry at the place that its sum gives, and write their number to `count`."""
    flags = mask if isinstance(mask, Map) else mask._view_as(mask.shape, np.uint8)
    problem = compaction_problem([_as_words(leaf) for leaf in leaves], flags)
    words = None if out is None else [_as_words(result) for result in out]
    return scan_device(executor, problem, out=words, count=count)


def gather_entries(
    context: DeviceContext,
    leaf: DeviceArray,
    indices: DeviceArray,
    count: DeviceArray,
    out: DeviceArray | None = None,
) -> DeviceArray:
    """Gather the entries with these indices into `out`, or into new memory as large as the array, and return it."""
    unit = gcd(4, entry_bytes(leaf))
    like = leaf if out is None else out
    words = -(-like.nbytes // 4)
    with context.errors, context.lock:
        direct = out is not None and out._is_writable_in_vectors and out.buffer is not leaf.buffer
        target = out if out is not None and direct else empty(context, like.shape, like.dtype)
        numbers = [entry_bytes(leaf) // unit, words]
        arrays = (bindable(leaf), indices, count, target)
        bound, deferrable = [array._binding() for array in arrays], are_owned(*arrays)
        invocations = min(words, _MAX_GATHER_INVOCATIONS)
        submit_stage(context, "arrays/gather.wgsl", numbers, bound, invocations, like.shape[0], deferrable, unit=unit)
        if out is not None and not direct:
            copy_elements(view_of(target, target.shape, target.dtype.itemsize), out)
    return target if out is None else out


def indices_of_rows(context: DeviceContext, indices_in_rows: DeviceArray, rows: int, length: int) -> DeviceArray:
    """Return the indices of entries in an array of contiguous rows, given their indices within the rows.

    Args:
        indices_in_rows: uint32 of shape (rows, length), or (length,) if they are the same in all rows.
        length: the entries in a row.
    """
    size = rows * length
    with context.errors, context.lock:
        indices = empty(context, (size,), np.uint32)
        numbers, bound = [size, length, indices_in_rows.size], [indices_in_rows._binding(), indices._binding()]
        submit_stage(context, "arrays/row_indices.wgsl", numbers, bound, size, size, are_owned(indices_in_rows))
    return indices


def all_indices(context: DeviceContext, length: int) -> DeviceArray:
    """Return the numbers from 0 to `length` - 1: the indices of rows of one entry, which is at place 0."""
    return indices_of_rows(context, upload_array(context, np.zeros(1, np.uint32)), length, 1)
