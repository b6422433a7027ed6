"""Find arrays in their buffers, so that kernels read and write views where they are, without a copy."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscan.device.steps import Binding
from gpuscan.device.strides import join_axes
from gpuscan.device.transfer import round_up
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.sizes import apply, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuscan.device.context import DeviceContext
    from gpuscan.device.device_array import DeviceArray
    from gpuscan.elements import Field

# The parameters of a view. See shaders/shared/views.wgsl.
PARAMETERS = struct.Struct("<4I")


@dataclass(frozen=True)
class ArrayView:
    """An array in its buffer, as a kernel finds it.

    Units are 32-bit words, or for packed numbers, those numbers.

    Attributes:
        addressing: as in `gpuscan.planning.kernel_parts.Placement.views`; not ``""``.
        binding: the part of the buffer that the shader binds. It begins where a shader can bind it, before the array.
        first: units from there to the array's first number.
        row: units of a row.
        gap: units from the end of a row to the begin of the next one, below zero for rows in reverse. Of rows that are
            repeated: units from one of them to the next one.
        repeats: units of a row and all its repetitions, or 0.
    """

    addressing: str
    binding: Binding
    first: int
    row: int
    gap: int
    repeats: int = 0


def view_of_array(array: DeviceArray, field: Field) -> ArrayView | None:
    """Return the view of an array that no shader binds as it is; None if a copy of it is better, or needed.

    Kernels take rows that are apart, or elements, if a row is at least a part of the distance between rows. They read
    the array twice under three_dispatch, with all that is between its rows, where a copy reads that once. They also
    take rows, or single elements, that are repeated, as `np.broadcast_to` repeats them along one axis.
    """
    scalar = field.scalar
    unit = scalar.dtype.itemsize if scalar.packed else 4
    if array.offset % unit or not array.nbytes:
        return None
    itemsize = array.dtype.itemsize
    axes = [] if array.is_contiguous else join_axes(array.shape, array.strides)
    if axes and axes[-1][1] != itemsize:
        axes.append((1, itemsize))
    times = axes.pop(1)[0] if len(axes) == 3 and axes[1][1] == 0 else 1
    if len(axes) > 2:
        return None
    row = axes[-1][0] * itemsize if axes else array.nbytes
    pitch = axes[0][1] if len(axes) == 2 else row
    context = array._context
    low, high = array._extent
    base = low // context.offset_alignment * context.offset_alignment
    size = round_up(high - base)
    if (
        pitch % unit
        or abs(pitch) > ARRAYS.max_pitch * row * times
        or size > context.binding_limit
        or base + size > array._buffer_bytes
    ):
        return None
    addressing, gap = "offset" if len(axes) < 2 else "rows", pitch - row
    if times > 1:
        addressing, gap = "repeated_elements" if row == itemsize == unit else "repeated_rows", pitch
    elif len(axes) == 2 and pitch == 0 and row == itemsize == unit:
        addressing = "one_element"
    return ArrayView(
        addressing,
        Binding(array.buffer, base, size),
        (array.offset - base) // unit,
        row // unit,
        gap // unit,
        times * row // unit if times > 1 else 0,
    )


def bind_views(context: DeviceContext, views: Sequence[ArrayView | None]) -> Binding | None:
    """Return a uniform buffer of what a kernel knows of its sources and destinations; None if none is a view."""
    if not any(views):
        return None
    words = [
        apply(PARAMETERS.pack, view.first, view.row, view.gap % 2**32, view.repeats) if view else bytes(PARAMETERS.size)
        for view in views
    ]
    return context.uniform(join(*words))
