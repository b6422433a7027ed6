"""Describe what is submitted: dispatches, clears and copies over parts of buffers, and dispatches over slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import wgpu


class Binding(NamedTuple):
    """A part of a buffer, as a shader sees it.

    Attributes:
        buffer, offset, size: the part, in bytes.
    """

    buffer: wgpu.GPUBuffer
    offset: int = 0
    size: int | None = None

    def overlaps(self, other: Binding) -> bool:
        """Return True if both are of one buffer and share bytes. A part without a size ends with its buffer."""
        ends = [part.buffer.size if part.size is None else part.offset + part.size for part in (self, other)]
        return self.buffer is other.buffer and self.offset < ends[1] and other.offset < ends[0]

    def resource(self) -> dict[str, object]:
        """Return the part as WebGPU's `GPUBufferBinding`."""
        entry: dict[str, object] = {"buffer": self.buffer, "offset": self.offset}
        if self.size is not None:
            entry["size"] = self.size
        return entry


# A grid of workgroups: their number along each side, or the place in a buffer that holds these numbers.
Grid = tuple[int, int, int] | Binding


class Dispatch(NamedTuple):
    """One dispatch of a shader.

    Attributes:
        name: the stage's name, for profiles.
        pipeline, layout: the compiled shader, and the layout of its bindings.
        bound: the number of each binding, and the part of a buffer that it binds.
        grid: the grid of workgroups.
        elements: the number of elements that the stage works on, for profiles.
        offset: the dynamic offset of the parameters; None if the layout has none.
        strategy: the strategy of the plan that the stage belongs to, for profiles.
        keep: False if no later dispatch can bind the same buffers.
    """

    name: str
    pipeline: wgpu.GPUComputePipeline
    layout: wgpu.GPUBindGroupLayout
    bound: Sequence[tuple[int, Binding]]
    grid: Grid
    elements: int
    offset: int | None = None
    strategy: str = ""
    keep: bool = True


class Clear(NamedTuple):
    """Set bytes of a buffer to zero."""

    buffer: wgpu.GPUBuffer
    offset: int
    size: int


class Copy(NamedTuple):
    """Copy bytes from one buffer to another."""

    source: wgpu.GPUBuffer
    source_offset: int
    destination: wgpu.GPUBuffer
    destination_offset: int
    size: int


Step = Dispatch | Clear | Copy


# ----- Slots of programs


class SlotBinding(NamedTuple):
    """A part of the buffer in a slot."""

    slot: int
    offset: int
    size: int | None


class SlotDispatch(NamedTuple):
    """A `Dispatch` over slots.

    Attributes:
        dispatch: the dispatch, without its bindings and its dynamic offset.
        numbers, bindings: the number of each binding, and the part of a slot that it binds.
        slots: the slots of the bindings.
        indirect: True if the grid is in a buffer: the dispatch's grid is a `SlotBinding` then.
        key: the key of its bind groups, without the ids of their buffers.
        run: the index of the run that the parameters belong to; None if they are constants.
        offset: the dynamic offset, from the first parameters of the run if there is one; None without.
    """

    dispatch: Dispatch
    numbers: tuple[int, ...]
    bindings: tuple[SlotBinding, ...]
    slots: tuple[int, ...]
    indirect: bool
    key: tuple[object, ...]
    run: int | None
    offset: int | None


class SlotClear(NamedTuple):
    """A `Clear` of a part of a slot."""

    slot: int
    offset: int
    size: int


class SlotCopy(NamedTuple):
    """A `Copy` from a part of a slot to another slot."""

    source: int
    source_offset: int
    destination: int
    destination_offset: int
    size: int
