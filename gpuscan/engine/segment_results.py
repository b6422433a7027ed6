"""Take the results of reductions: one for each row, or one for each segment, in the shape that the caller gets.

A segmented reduction first stores the results of the segments that have elements, without gaps, since its items count
heads. Segments without elements get their results afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.transfer import round_up
from gpuscan.engine.element_copy import StridedView, copy_elements, view_of
from gpuscan.engine.places import DeviceSink
from gpuscan.engine.record import are_owned, submit_stage
from gpuscan.errors import GpuscanError

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.device.steps import Binding
    from gpuscan.elements import Field
    from gpuscan.engine.array_places import ArrayPlace
    from gpuscan.planning.partition import Part
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem
    from gpuscan.problem.segments import Heads


def device_sinks(
    context: DeviceContext,
    problem: Problem,
    spec: ScanSpec,
    results: Sequence[DeviceArray],
    ranks: Callable[[Heads], DeviceArray],
    places: Sequence[ArrayPlace | None] = (),
) -> list[DeviceSink]:
    """Return the sinks that write a scan's results to arrays on the device.

    Args:
        context: the device.
        problem: the scan.
        spec: the scan of the problem.
        results: the arrays, of the problem's `results_shape`.
        ranks: computes the ranks of segments.
        places: for each array, its place if it is a view that the kernel writes where it is.
    """
    fields = problem.destination.fields
    places = places or [None] * len(results)
    if not spec.reduces_segments:
        return [
            DeviceSink(result, f, spec.inner, per_row=problem.keep_last_only, place=place)
            for result, f, place in zip(results, fields, places, strict=True)
        ]
    assert problem.heads is not None
    segments = Segments(context, problem.heads, problem.heads.rows // spec.inner, spec.inner, ranks)
    fills = problem.fill or [None] * len(fields)
    return [SegmentSink(result, f, segments, fill) for result, f, fill in zip(results, fields, fills, strict=True)]


class Segments:
    """What the sinks of a segmented reduction share.

    Args:
        context: the device.
        heads: the segments.
        outer: arrays (row_length, inner) that are scanned down their columns, or the number of rows.
        inner: rows that are interleaved in memory; 1 if rows are contiguous.
        ranks: computes the ranks of the segments.

    Raises:
        GpuscanError: a table with a word for each segment exceeds a binding.
    """

    def __init__(
        self, context: DeviceContext, heads: Heads, outer: int, inner: int, ranks: Callable[[Heads], DeviceArray]
    ) -> None:
        self.context, self.heads, self.outer, self.inner, self._ranks = context, heads, outer, inner, ranks
        self.count = heads.segments
        check_binding(context, 4 * (self.count + 1), self.count)

    @property
    def in_order(self) -> bool:
        """True if the kernels' results are already in the order of the caller's."""
        return self.heads.all_full and (self.inner == 1 or self.outer == 1)

    @cached_property
    def ranks(self) -> DeviceArray:
        """For each segment, how many of the segments up to and with it have elements; computed when first asked for."""
        return self._ranks(self.heads)


class SegmentSink(DeviceSink):
    """An array on the device with one result for each segment: (outer, segments, inner).

    Args:
        array: the array, in C order.
        field: the field of its elements.
        segments: the segments.
        fill: the result of an empty segment of each row; None if there is no empty one.

    Raises:
        GpuscanError: the array exceeds a binding.
    """

    def __init__(
        self, array: DeviceArray, field: Field, segments: Segments, fill: np.ndarray[tuple[int, ...], np.dtype] | None
    ) -> None:
        super().__init__(array, field, segments.inner)
        check_binding(array._context, array.nbytes, segments.count)
        self._segments, self._fill = segments, fill
        self._pieces: DeviceArray | None = None

    def binding(self, part: Part) -> tuple[Binding, DeviceArray | None]:
        """Return what the shader binds, and the temporary array that `finish` takes results from, if there is one."""
        if not part.is_slab and self._segments.in_order and self._can_be_bound:
            return self.array._binding(), None
        if part.is_slab:
            temporary = self._new_temporary(part.spec.rows)
        else:
            # All pieces store into the same array.
            temporary = self._pieces = self._pieces or self._new_temporary(self._segments.outer * self._segments.inner)
        return temporary._binding(), temporary

    @property
    def _can_be_bound(self) -> bool:
        return self.array._is_writable_in_vectors and self.array._can_be("COPY_DST")

    def _new_temporary(self, rows: int) -> DeviceArray:
        shape = (max(1, rows * self._segments.count), *self._field.shape)
        return empty(self.array._context, shape, self._field.scalar.dtype)

    def finish(self, part: Part, temporary: DeviceArray) -> None:
        """Submit the move of the results from `temporary` to the caller's array, after the last piece or a slab."""
        segments = self._segments
        if not (part.last or part.is_slab) or not self.array.nbytes:
            return
        if segments.in_order and not part.is_slab:
            copy_elements(view_of(temporary, (self.array.size,), temporary.dtype.itemsize), self.array)
            return
        whole = not part.is_slab and self._can_be_bound
        view = self._view(part)
        spread = self.array if whole else self._new_temporary(view.shape[0] * view.shape[2])
        self._spread(part, temporary, spread, view.shape[0], view.shape[2])
        if not whole:
            super().finish(part, spread)

    def _view(self, part: Part) -> StridedView:
        segments, size = self._segments, self._field.storage_bytes
        if not part.is_slab:
            return view_of(self.array, (segments.outer, segments.count, segments.inner), size)
        assert part.outer is not None
        assert part.columns is not None
        shape = (part.outer.stop - part.outer.start, segments.count, part.columns.stop - part.columns.start)
        step = segments.inner * size
        first = part.outer.start * segments.count * step + part.columns.start * size
        return StridedView(self.array, first, shape, (segments.count * step, step, size), size)

    def _spread(self, part: Part, temporary: DeviceArray, result: DeviceArray, outer: int, columns: int) -> None:
        segments, fill = self._segments, self._fill
        if fill is not None and part.is_slab:
            fill = fill.reshape(segments.outer, segments.inner, *self._field.shape)[part.outer, part.columns]
        shape = outer, segments.count, columns * self._field.storage_bytes
        spread_segments(temporary, segments.ranks, fill, result, shape, in_columns=segments.inner > 1)


def spread_segments(
    source: DeviceArray,
    ranks: DeviceArray,
    fill: np.ndarray[tuple[int, ...], np.dtype] | None,
    result: DeviceArray,
    shape: tuple[int, int, int],
    *,
    in_columns: bool = False,
    ranks_of_all_rows: bool = False,
    ranked: int | None = None,
) -> None:
    """Submit the move of the results of segments with elements to their places, and the fill of the others.

    Args:
        source: the results of the segments with elements, without gaps; for columns, (segments, columns).
        ranks: for each segment, how many of the segments up to and with it have elements.
        fill: the result of an empty segment of each row; None if there is no empty one.
        result: the array that takes a result for each segment.
        shape: the rows, or arrays of columns; the segments in each; and the bytes of neighbouring results of one.
        in_columns: True for columns.
        ranks_of_all_rows: True if `ranks` has a rank in all rows together for each segment of each row.
        ranked: the segments of a row in `ranks`, if there are more of them than in the result.
    """
    context, (outer, segments, nbytes) = source._context, shape
    unit = gcd(4, nbytes)
    units = outer * segments * nbytes // unit
    words = -(-units * unit // 4)
    filling = upload_array(context, np.zeros(1, np.uint32) if fill is None else fill)
    numbers = [words, units, segments, outer, nbytes // unit, segments if ranked is None else ranked]
    arrays = (source, ranks, filling, result)
    bound, held = [array._binding() for array in arrays], are_owned(*arrays)
    values = {"unit": unit, "in_columns": in_columns, "ranks_of_all_rows": ranks_of_all_rows}
    submit_stage(context, "arrays/spread_segments.wgsl", numbers, bound, words, result.size, held, **values)


def check_binding(context: DeviceContext, nbytes: int, segments: int) -> None:
    """Raise GpuscanError if the results of this many segments exceed a binding."""
    if round_up(nbytes, 16) > context.binding_limit:
        raise GpuscanError(
            f"a reduction of {segments} segments was asked for, but its results take {nbytes} bytes, and "
            f"{context.capabilities.summary} binds at most {context.binding_limit}. Reduce some segments at a time, or "
            'pass device="numpy"'
        )
