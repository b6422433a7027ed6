"""Take the results of reductions: one for each row, or one for each segment, in the shape that the caller gets.

Segments by offsets in contiguous rows are reduced in three stages on a GPU. Other segments are reduced by the kernels
of scans, which first store the results of the segments that have elements, without gaps, since their items count heads.
Segments without elements get their results afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, empty, upload_array, upload_rows
from gpuscan.device.steps import Clear, Step
from gpuscan.device.transfer import round_up
from gpuscan.elements import scalar_of, words_of
from gpuscan.engine.element_copy import (
    StridedView,
    bindable,
    contiguous,
    copy_elements,
    duplicate,
    targets_for,
    view_of,
    write_to_outputs,
)
from gpuscan.engine.endpoints import DeviceSink
from gpuscan.engine.kernel_steps import bind_arrays, clear_shared, dispatch_kernel
from gpuscan.engine.plan_steps import are_owned, new_validation_flag, submit_stage, uniform_of
from gpuscan.errors import GpuscanError
from gpuscan.operators.parameter_array import HostArray, combine_arrays
from gpuscan.planning.segment_plan import plan_segments
from gpuscan.planning.spec import scan_spec
from gpuscan.problem.segments import Offsets, offsets_error
from gpuscan.sizes import gcd

if TYPE_CHECKING:
    from gpuscan.array_types import AnyArray
    from gpuscan.device.context import DeviceContext
    from gpuscan.device.steps import Binding
    from gpuscan.elements import Field
    from gpuscan.engine.array_views import ArrayView
    from gpuscan.planning.partition import Part
    from gpuscan.planning.segment_plan import SegmentPlan
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem
    from gpuscan.problem.segments import Heads


def device_sinks(
    context: DeviceContext,
    problem: Problem,
    spec: ScanSpec,
    results: Sequence[DeviceArray],
    ranks: Callable[[Heads], DeviceArray],
    views: Sequence[ArrayView | None] = (),
) -> list[DeviceSink]:
    """Return the sinks that write a scan's results to arrays on the device.

    Args:
        results: the arrays, of the problem's `results_shape`.
        ranks: computes the ranks of segments.
        views: for each array, its view if it is one that the kernel writes where it is.
    """
    fields = problem.destination.fields
    views = views or [None] * len(results)
    if not spec.reduces_segments:
        return [
            DeviceSink(result, f, spec.inner, per_row=problem.keep_last_only, view=view)
            for result, f, view in zip(results, fields, views, strict=True)
        ]
    assert problem.heads is not None
    segments = Segments(context, problem.heads, problem.heads.rows // spec.inner, spec.inner, ranks)
    fills = problem.fill or [None] * len(fields)
    return [SegmentSink(result, f, segments, fill) for result, f, fill in zip(results, fields, fills, strict=True)]


class Segments:
    """What the sinks of a segmented reduction share.

    Args:
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
            fill = np.broadcast_to(fill, (segments.outer * segments.inner, *self._field.shape))
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
    filling = (
        upload_array(context, np.zeros(1, np.uint32))
        if fill is None
        else upload_rows(context, fill, outer * nbytes // (fill.nbytes // len(fill)))
    )
    numbers = [words, units, segments, outer, nbytes // unit, segments if ranked is None else ranked]
    arrays = (source, ranks, filling, result)
    bound, deferrable = [array._binding() for array in arrays], are_owned(*arrays)
    values = {"unit": unit, "in_columns": in_columns, "ranks_of_all_rows": ranks_of_all_rows}
    submit_stage(context, "arrays/spread_segments.wgsl", numbers, bound, words, result.size, deferrable, **values)


def check_binding(context: DeviceContext, nbytes: int, segments: int) -> None:
    """Raise GpuscanError if the results of this many segments exceed a binding."""
    if round_up(nbytes, 16) > context.binding_limit:
        raise GpuscanError(
            f"a reduction of {segments} segments was asked for, but its results take {nbytes} bytes, and "
            f"{context.capabilities.summary} binds at most {context.binding_limit}. Reduce some segments at a time, or "
            'pass device="numpy"'
        )


# ----- Reductions of segments by offsets in three stages: tiles by themselves, then what crosses their ends


def fold_segments(
    context: DeviceContext,
    problem: Problem,
    leaves: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
) -> bool:
    """Submit the reduction of segments that offsets cut; return False if it cannot be done in this way.

    Args:
        problem: the reduction.
        results: the arrays to write.
    """
    heads = problem.heads
    if heads is None or not isinstance(heads.cut, Offsets) or not problem.keep_last_only:
        return False
    if problem.inner > 1 or problem.everywhere or problem.lists_key_runs:
        return False
    cut = heads.cut
    if any(array.nbytes > context.binding_limit - ALIGNMENT for array in (*leaves, *results, cut.array)):
        return False
    whole = replace(problem, shape=(problem.rows, problem.row_length), axis=1, heads=None)
    spec = scan_spec(whole, context.capabilities, captures=True)
    on_device = isinstance(cut.array, DeviceArray)
    checked = on_device and cut.unchecked
    plan = plan_segments(
        spec,
        heads.segments,
        scalar_of(cut.array.dtype if on_device else np.dtype(np.uint32)),
        context.capabilities,
        checked=checked,
        needs_full=checked and bool(cut.needs_full),
        fills=problem.fill is not None,
    )
    if plan is None or 4 * plan.memory_words > context.binding_limit:
        return False
    if on_device:
        cut.array._check("STORAGE")
    else:
        heads.check()
        cut = Offsets(upload_array(context, heads.cut.array, np.uint32))
    written = {id(result.buffer) for result in results}
    sources = [duplicate(array) if id(array.buffer) in written else bindable(contiguous(array)) for array in leaves]
    offsets = cut.array
    offsets = duplicate(offsets) if id(offsets.buffer) in written else bindable(contiguous(offsets))
    direct = (array._is_writable_in_vectors and array._can_be("COPY_DST") for array in results)
    targets = targets_for(results, direct)
    _submit(context, whole, spec, plan, replace(cut, array=offsets), (sources, targets), heads)
    write_to_outputs(targets, results)
    return True


def _submit(
    context: DeviceContext,
    problem: Problem,
    spec: ScanSpec,
    plan: SegmentPlan,
    cut: Offsets,
    arrays: tuple[Sequence[DeviceArray], Sequence[DeviceArray]],
    heads: Heads,
) -> None:
    """Submit the stages. What is wrong with unchecked offsets is read with the reports."""
    leaves, results = arrays
    memory = empty(context, (plan.memory_words,), np.uint32)
    marks = empty(context, (plan.head_words,), np.uint32)
    bound, kept = bind_arrays(context, problem, spec, leaves, results)
    bound |= {"memory": memory._binding(), "heads": marks._binding(), "offsets": cut.array._binding()}
    if problem.fill is not None:
        kept.append(upload_rows(context, _fill_words(spec, problem.fill), problem.rows))
        bound["fills"] = kept[-1]._binding()
    if cut.unchecked:
        arguments = heads.row_length, heads.segments, cut.needs_full
        bound["validation_flag"] = new_validation_flag(context, 4, offsets_error, arguments)._binding()
    numbers = [plan.length, heads.row_length, 0, 0, heads.segments, plan.segments, plan.tiles, plan.searches]
    params = uniform_of(context, numbers)
    steps: list[Step] = [Clear(marks.buffer, marks.offset, round_up(marks.nbytes))]
    steps += clear_shared(plan.fold, results)
    steps += [dispatch_kernel(context, kernel, params, bound, count, spec.length) for kernel, count in plan.stages]
    read = (*leaves, *results, cut.array)
    context.submit(steps, sum(array.nbytes for array in read), deferrable=are_owned(*read))


def _fill_words(spec: ScanSpec, fill: Sequence[HostArray]) -> HostArray:
    """Return the words of the results of empty segments. Shaders may take floats for integers of the same bits."""
    element = spec.destination

    def words(*fill: AnyArray) -> list[AnyArray]:
        same = [np.ascontiguousarray(value).view(f.scalar.dtype) for value, f in zip(fill, element.fields, strict=True)]
        return [words_of(element, same)]

    found: HostArray = combine_arrays(words, fill)[0]
    return found
