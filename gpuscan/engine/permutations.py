"""Move entries of arrays on a device to other places: gather and scatter by indices on the device."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from gpuscan.device.device_array import DeviceArray, empty, upload_words
from gpuscan.engine.compaction import entry_bytes, gather_entries, indices_of_rows
from gpuscan.engine.element_copy import bindable
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.errors import DeviceMemoryError

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext


# The most invocations of arrays/scatter.wgsl. Not measured: it is the number of arrays/gather.wgsl.
_MAX_SCATTER_INVOCATIONS = 1 << 19


class Permutation:
    """A reordering of entries on a device.

    Args:
        indices: (n,) of uint32: the old index of each entry. Every number below n is there once.
    """

    def __init__(self, context: DeviceContext, indices: DeviceArray) -> None:
        self._context, self.indices = context, indices
        self._count = upload_words(context, [indices.size])

    @classmethod
    def of_rows(cls, context: DeviceContext, old_indices: DeviceArray, rows: int, length: int) -> Permutation:
        """Return the reordering of an array of contiguous rows, given the old indices of each row's entries.

        Args:
            old_indices: uint32 of shape (rows, length), or (length,) if they are the same in all rows.
            length: the entries in a row.
        """
        if rows == 1:
            return cls(context, old_indices)
        return cls(context, indices_of_rows(context, old_indices, rows, length))

    def apply(self, leaf: DeviceArray) -> DeviceArray:
        """Return the entries of an array (n, …) in the new order.

        Raises:
            DeviceMemoryError: the array exceeds a binding.
        """
        if not leaf.nbytes:
            return leaf
        self._check(leaf)
        return gather_entries(self._context, leaf, self.indices, self._count)

    def undo(self, leaf: DeviceArray, out: DeviceArray | None = None) -> DeviceArray:
        """Return the entries of an array (n, …) from the new order back in the old one.

        Args:
            out: the array to write, if entries are whole words; a new one without.

        Raises:
            DeviceMemoryError: the array exceeds a binding.
        """
        if not leaf.nbytes:
            return leaf
        self._check(leaf)
        if entry_bytes(leaf) % 4:
            return gather_entries(self._context, leaf, self._inverse, self._count)
        with self._context.errors, self._context.lock:
            return self._scatter_rows(bindable(leaf), entry_bytes(leaf) // 4, out)

    @cached_property
    def _inverse(self) -> DeviceArray:
        """The new index of each entry."""
        with self._context.errors, self._context.lock:
            return self._scatter_rows(None, 1)

    def _scatter_rows(self, leaf: DeviceArray | None, row_words: int, out: DeviceArray | None = None) -> DeviceArray:
        """Return the rows of an array at their old indices; without an array, the numbers of the rows."""
        context = self._context
        source = self.indices if leaf is None else leaf
        result = empty(context, source.shape, source.dtype) if out is None else out
        words = source.nbytes // 4
        bound = [self.indices._binding(), result._binding(), *([] if leaf is None else [leaf._binding()])]
        what = "numbers" if leaf is None else "rows"
        numbers, deferrable = [row_words, words], are_owned(self.indices, leaf)
        invocations = min(words, _MAX_SCATTER_INVOCATIONS)
        submit_stage(
            context, "arrays/scatter.wgsl", numbers, bound, invocations, source.shape[0], deferrable, what=what
        )
        return result

    def _check(self, leaf: DeviceArray) -> None:
        limit = self._context.binding_limit
        if leaf.nbytes > limit:
            raise DeviceMemoryError(
                f"an array of {leaf.nbytes} bytes was to be reordered on {self._context.capabilities.summary}, which "
                f"binds at most {limit}. Reorder it on the CPU: array.numpy()[order]"
            )
