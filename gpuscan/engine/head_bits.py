"""Give each part of a scan the bits that say where rows and segments begin, or the keys that its kernels compare.

A kernel of a single pass reads keys itself if there is one for each element. Otherwise it reads bits, in an order of
`gpuscan.engine.segment_heads`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, upload_array
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import round_up
from gpuscan.elements import element_of, scalar_of
from gpuscan.engine.element_copy import copy_view
from gpuscan.engine.endpoints import part_of
from gpuscan.engine.segment_heads import contiguous_heads, segment_heads
from gpuscan.problem.segments import Keys, Offsets

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.part_buffers import PartBuffers
    from gpuscan.planning.partition import Part
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem
    from gpuscan.problem.segments import Heads


class HeadBits(ABC):
    """The place that the bits of a part come from."""

    # The caller's array on the device that the bits are made of; None without.
    array: DeviceArray | None = None

    def upload_bytes(self, part: Part) -> int:
        """Return the bytes that are uploaded for a part; 0 if the bits are on the device."""
        del part
        return 0

    @abstractmethod
    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Return what the shader binds. Stages that make it are submitted before the run.

        Args:
            buffers: its buffers, if there are arrays of the CPU's.
            kept: takes what has to stay alive until the run is submitted.
        """


@dataclass(frozen=True)
class UploadedHeads(HeadBits):
    """Bits that the CPU makes and uploads for each part.

    Attributes:
        heads: the heads.
        in_columns: True if the parts are scanned down their columns.
    """

    heads: Heads
    in_columns: bool

    def upload_bytes(self, part: Part) -> int:
        """Return the bytes of the part's bits."""
        alike = self.in_columns and self.heads.cuts_rows_alike
        return round_up(-(-(self.heads.row_length if alike else part.length + 1) // 8))

    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Upload the part's bits."""
        del kept
        assert buffers is not None
        if not self.in_columns:
            # A reduction also reads the bit after a piece that another piece follows.
            return buffers.write_heads(self.heads.words(part.start, part.length if part.last else part.length + 1))
        if self.heads.cuts_rows_alike:
            return buffers.write_heads(self.heads.row_words)
        return buffers.write_heads(self.heads.column_words(part.outer, part.columns))


class MarkedHeads(HeadBits):
    """Bits that the device makes: once for the whole array, or for each slab of columns that have keys of their own.

    Args:
        in_columns: True if the parts are scanned down their columns.
        bits: the bits of the whole array, if they are there already.
    """

    def __init__(self, context: DeviceContext, heads: Heads, in_columns: bool, bits: DeviceArray | None = None) -> None:
        heads = contiguous_heads(heads)
        self._context, self._heads, self._in_columns, self.bits = context, heads, in_columns, bits
        self.array = heads.cut.array if isinstance(heads.cut.array, DeviceArray) else None

    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Return the part's bits, which are made now if they are not there yet."""
        del buffers
        if self._in_columns and part.is_slab and not self._heads.cuts_rows_alike:
            bits = self._slab_bits(part)
            kept.append(bits)
            return bits._binding()
        if self.bits is None:
            self.bits = segment_heads(self._context, self._heads, in_columns=self._in_columns)
        if self._in_columns:
            return self.bits._binding()
        # A reduction also reads the bit after a piece that another piece follows.
        count = part.length if part.last else part.length + 1
        return Binding(self.bits.buffer, self.bits.offset + part.start // 8, round_up(-(-count // 8), 4))

    def _slab_bits(self, part: Part) -> DeviceArray:
        heads, keys = self._heads, self._heads.cut.array
        if not isinstance(keys, DeviceArray):
            return upload_array(self._context, heads.column_words(part.outer, part.columns))
        (number,) = element_of([keys.dtype]).fields
        view = part_of(keys, part, number, heads.inner)
        slab = replace(heads, shape=view.shape, axis=1, cut=Keys(copy_view(view, view.shape, keys.dtype)))
        return segment_heads(self._context, slab, in_columns=True)


class ComparedKeys(HeadBits):
    """Keys that the kernels of a scan in one part compare themselves; see `ShaderSpec.key`."""

    def __init__(self, keys: DeviceArray) -> None:
        self.array = keys

    def binding(self, part: Part, buffers: PartBuffers | None, kept: list[object]) -> Binding:
        """Return the keys."""
        del part, buffers, kept
        assert self.array is not None
        return self.array._binding()


def with_keys(spec: ScanSpec, heads: Heads | None, strategy: str, results: Sequence[DeviceArray]) -> ScanSpec:
    """Return the scan with keys that its kernels compare, or unchanged if the keys should become segment bits.

    Keys must become bits if kernels cannot bind them as an array, or if the kernels may overwrite them. Bits are faster
    if a kernel would read the keys twice, or if all rows have the same keys.

    Args:
        spec: the scan of the whole array.
        heads: where it restarts.
        strategy: how tiles learn their prefixes.
        results: the arrays that the kernels write.
    """
    if strategy == "three_dispatch" or heads is None or not can_compare(heads, spec.inner, results):
        return spec
    return replace(spec, key=scalar_of(heads.cut.array.dtype))


def can_compare(heads: Heads, inner: int, results: Sequence[DeviceArray]) -> bool:
    """Return True if a kernel of a single pass can compare the keys itself.

    If the columns of the scan were moved to rows, the keys are still in columns, so the kernel cannot compare them.

    Args:
        heads: where the scan restarts.
        inner: how many rows of the scan have interleaved elements.
        results: the arrays that the kernel writes.
    """
    keys = heads.cut.array
    if heads.inner != inner:
        return False
    if not (isinstance(heads.cut, Keys) and isinstance(keys, DeviceArray)) or keys.shape != heads.shape:
        return False
    bound = keys._is_bindable and round_up(keys.nbytes, ALIGNMENT) <= keys._context.binding_limit
    return bound and not any(result.buffer is keys.buffer for result in results)


def with_offsets_on_device(context: DeviceContext, problem: Problem) -> Problem:
    """Return the problem with its NumPy offsets uploaded. Everything that depends on them is computed on the device.

    The offsets of a kept problem are not uploaded, since their segment bits are constants of programs. Neither are
    offsets of rows that are so long that their bits exceed a binding.
    """
    heads = problem.heads
    if heads is None or problem.keeps_heads or not isinstance(heads.cut, Offsets) or heads.on_device:
        return problem
    if -(-heads.row_length // 8) > context.binding_limit:
        return problem
    offsets = upload_array(context, heads.cut.array, np.uint32)
    return problem.with_same_keys(heads=replace(heads, cut=replace(heads.cut, array=offsets, unchecked=False)))
