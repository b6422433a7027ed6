"""Copy elements from one place of a device to another: strided views, transposes, and bytes off any alignment.

Nothing here goes through the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding, Copy
from gpuscan.device.strides import c_strides, is_c_order, join_axes, reach
from gpuscan.device.transfer import round_up
from gpuscan.engine.plan_steps import are_owned, stage_dispatch, submit_stage, submit_together
from gpuscan.errors import GpuscanError
from gpuscan.planning.copy_tiles import (
    TILE_BYTES,
    TILE_INVOCATIONS,
    axes_of_tiles,
    count_tiles,
    has_layers,
    takes_tiles,
    words_of_tiles,
)
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.sizes import apply, gcd, reveal

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext

# Words that an invocation of the copy takes, so that several loads are under way.
WORDS = 4
# Steps that an invocation takes at once in the loop that reads a tile, for units of 1, 2, 4 and 8 bytes. A step has 8,
# 4, 1 and 1 loads. H100, (5793, 5793) float32 transposed: 149 us with 4 steps, 137 with 8.
TILE_STEPS = {1: 1, 2: 2, 4: 8, 8: 4}
# Bytes of neighbours from which on the words of most subgroups have only units that are neighbours. H200, 2^25 float16:
# rows of 29 of 30 take 62 us unit by unit, and 96 where whole words are tried first; a copy from the second element on
# takes 52 and 56 us, in uint8 49 and 33.
_MIN_WHOLE_BYTES = 512
# The kernel counts units in 32 bits.
_MAX_UNITS = 2**32 - 1


@dataclass(frozen=True)
class StridedView:
    """Elements of an array on a device, at any strides.

    Attributes:
        array: the array that they are in; its shape does not matter.
        first: bytes from the array's begin to the view's first element.
        shape: the view's axes.
        strides: bytes from one element to the next along each axis.
        element_bytes: bytes of one element.
    """

    array: DeviceArray
    first: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.element_bytes

    @property
    def start(self) -> int:
        """The byte of the buffer where the first element begins."""
        return self.array.offset + self.first

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte of the buffer that belongs to the view, and the end of its last one."""
        low, high = reach(self.shape, self.strides, self.element_bytes)
        return self.start + low, self.start + high

    @property
    def is_contiguous(self) -> bool:
        """Return True if the elements are neighbours in C order."""
        return is_c_order(self.shape, self.strides, self.element_bytes)

    def rows(self, start: int, stop: int) -> StridedView:
        """Return the part of the view from `start` to `stop` along its first axis."""
        shape = (stop - start, *self.shape[1:])
        return StridedView(self.array, self.first + start * self.strides[0], shape, self.strides, self.element_bytes)


def view_of(array: DeviceArray, shape: Sequence[int], element_bytes: int) -> StridedView:
    """Return the whole array, in C order, as a view (*shape) of elements of this many bytes."""
    array._check_contiguous()
    return StridedView(array, 0, tuple(shape), c_strides(shape, element_bytes), element_bytes)


def transpose_view(array: DeviceArray, rows: int, columns: int, element_bytes: int) -> StridedView:
    """Return an array (outer, rows, columns) of elements as a view (outer, columns, rows)."""
    view = view_of(array, (array.nbytes // (rows * columns * element_bytes), rows, columns), element_bytes)
    (outer, *_), (outer_step, row_step, step) = view.shape, view.strides
    return StridedView(array, 0, (outer, columns, rows), (outer_step, step, row_step), element_bytes)


def flip_view(view: StridedView, axis: int) -> StridedView:
    """Return the same elements in reverse order along an axis, which has one element or more."""
    stride = view.strides[axis]
    strides = (*view.strides[:axis], -stride, *view.strides[axis + 1 :])
    return replace(view, first=view.first + (view.shape[axis] - 1) * stride, strides=strides)


def copy_view(view: StridedView, shape: tuple[int, ...], dtype: object) -> DeviceArray:
    """Return the view's elements as a new array of this shape and dtype."""
    context = view.array._context
    result = empty(context, shape, dtype)
    with context.errors:
        copy_elements(view, result)
    return result


def elements_of(array: DeviceArray) -> StridedView:
    """Return the numbers of an array, at its own strides."""
    return StridedView(array, 0, array.shape, array.strides, array.dtype.itemsize)


def slice_axis(array: DeviceArray, axis: int, low: int, high: int) -> DeviceArray:
    """Return the view of an array between two indices of an axis."""
    shape = array.shape
    part = (*shape[:axis], high - low, *shape[axis + 1 :])
    if axis == 0 and array._strides is None and array._owner is not None:
        start = array.offset + low * prod(shape[1:]) * array._dtype.itemsize
        return array._made(array._owner, part, array._dtype, start, None)
    strides = array.strides
    return array._view_at(part, strides, low * strides[axis])


def duplicate(array: DeviceArray) -> DeviceArray:
    """Return a copy of an array that shaders can bind."""
    return copy_view(elements_of(array), array.shape, array.dtype)


def bindable(array: DeviceArray) -> DeviceArray:
    """Return the array itself, which is in C order, if shaders can bind it where it is, else a copy."""
    return array if array._is_bindable else duplicate(array)


def transpose_elements(array: DeviceArray, rows: int, columns: int, element_bytes: int) -> DeviceArray:
    """Return an array (outer, rows, columns) of elements in the order (outer, columns, rows), under the same shape.

    It is a copy, or the array itself if nothing moves.
    """
    if 1 in (rows, columns):
        return array
    return copy_view(transpose_view(array, rows, columns, element_bytes), array.shape, array.dtype)


def contiguous(array: DeviceArray) -> DeviceArray:
    """Return the array itself if its elements are neighbours in C order, else a copy in which they are."""
    return array if array.is_contiguous else duplicate(array)


def write_elements(source: DeviceArray, result: DeviceArray) -> None:
    """Submit a copy of the elements of one array to another of the same shape and dtype, each at its own strides."""
    if source.buffer is result.buffer:
        source = duplicate(source)
    if result.is_contiguous:
        copy_elements(elements_of(source), result)
        return
    with result._context.lock:
        source._check("STORAGE")
        result._check("STORAGE")
        size, axes = result.dtype.itemsize, join_axes(result.shape, result.strides)
        if size < 4 and len(axes) == 2 and axes[0][1] > 0 and axes[1][1] == size:
            # Rows of neighbours are written in whole words.
            copy_elements(elements_of(source), result, run=axes[1][0] * size, pitch=axes[0][1])
            return
        scatter(elements_of(source), elements_of(result))


def write_to_outputs(results: Sequence[DeviceArray], out: Sequence[DeviceArray] | None) -> list[DeviceArray]:
    """Copy each result to its array of `out`, of any strides, and return these arrays; without `out`, the results.

    A result that is its array of `out` stays as it is. All arrays are written or, if a copy fails, none.
    """
    if out is None:
        return list(results)
    pairs = []
    for result, target in zip(results, out, strict=True):
        if target is not result:
            target._check("STORAGE")
            pairs.append((duplicate(result) if result.buffer is target.buffer else result, target))
    if pairs:
        context = pairs[0][0]._context
        with context.errors, context.lock, submit_together(context):
            for result, target in pairs:
                write_elements(result, target)
    return list(out)


def targets_for(out: Sequence[DeviceArray], direct: Iterable[bool]) -> list[DeviceArray]:
    """Return the arrays that kernels write: the arrays of `out` if each of them is direct, else only new arrays.

    If a kernel wrote one array of `out` and the copy to another one failed, the first could not be restored.
    """
    return list(out) if all(direct) else [empty(array._context, array.shape, array.dtype) for array in out]


def copy_elements(
    view: StridedView, result: DeviceArray, *, offset: int = 0, run: int | None = None, pitch: int | None = None
) -> None:
    """Submit a copy of the view's elements, in C order, to a result in another buffer.

    Args:
        view: the elements.
        result: the array to write to. Bytes that the elements do not cover stay unchanged.
        offset: bytes from the result's begin to the first element.
        run, pitch: bytes of a row, and bytes from one row's begin to the next; without them, all elements are
            neighbours.
    """
    if not view.nbytes:
        return
    context = result._context
    run = view.nbytes if run is None else run
    pitch = run if pitch is None else pitch
    start = result.offset + offset
    with context.lock:
        by_driver = run == pitch and view.is_contiguous and not (view.start | start | view.nbytes) % 4
        by_driver = by_driver and view.array._can_be("COPY_SRC") and result._can_be("COPY_DST")
        if by_driver and not _is_for_kernel(context, view.nbytes):
            view.array._check()
            result._check()
            step = Copy(view.array.buffer, view.start, result.buffer, start, view.nbytes)
            context.submit([step], view.nbytes, deferrable=are_owned(view.array, result))
            return
        view.array._check("STORAGE")
        result._check("STORAGE")
        _copy_by_kernel(view, result, start, run, pitch)


def _is_for_kernel(context: DeviceContext, nbytes: int) -> bool:
    """Return True if a kernel copies this many bytes faster than the driver does."""
    least = heuristics_for(context.capabilities.adapter_type).min_kernel_copy_bytes
    return least is not None and least <= nbytes <= context.binding_limit


def _copy_by_kernel(view: StridedView, result: DeviceArray, start: int, run: int, pitch: int) -> None:
    context = result._context
    axes = join_axes(view.shape, view.strides)
    low, high = view.extent
    rows = view.nbytes // run
    end = start + (rows - 1) * pitch + run
    contiguous = run == pitch or run == view.nbytes
    rows_apart = () if contiguous else (run, pitch)
    size, axes = _join_neighbours(axes, view.element_bytes)
    unit = reveal(gcd(4, size, view.start, start, *rows_apart, *(stride for _, stride in axes)))
    source, source_base = bind_range(context, view.array, low, high)
    destination, base = bind_range(context, result, start, end)
    limit = context.binding_limit
    if max(source.size or 0, destination.size or 0) > limit or view.nbytes // unit > _MAX_UNITS:
        _copy_in_halves(view, result, start, run, pitch)
        return
    if contiguous:
        strides = c_strides(view.shape, view.element_bytes)
        target = StridedView(result, start - result.offset, view.shape, strides, view.element_bytes)
        if _copy_by_tiles(view, target, (source, destination), (source_base, base)):
            return
        run = view.nbytes
    sizes = [(length, stride // unit) for length, stride in axes]
    if size > unit or not sizes:
        sizes.append((size // unit, 1))
    first_word = (start - base) // 4
    words = round_up(end - base) // 4 - first_word
    numbers = [
        (view.start - source_base) // unit,
        (start - base) // unit,
        view.nbytes // unit,
        run // unit,
        pitch // unit,
        first_word,
        words,
        0,  # unused
        *(number for axis in sizes for number in axis),
    ]
    run_length, step = sizes[-1]
    whole = unit < 4 and abs(step) == 1 and run_length * unit >= _MIN_WHOLE_BYTES
    values = {"words": WORDS, "unit": unit, "rank": len(sizes), "contiguous": contiguous, "whole": whole}
    elements, invocations = view.nbytes // view.element_bytes, -(-words // WORDS)
    bound, deferrable = [source, destination], are_owned(view.array, result)
    submit_stage(context, "arrays/copy_elements.wgsl", numbers, bound, invocations, elements, deferrable, **values)


def _join_neighbours(axes: list[tuple[int, ...]], size: int) -> tuple[int, list[tuple[int, ...]]]:
    """Return the bytes that are neighbours under all strides, and the axes along which such runs of bytes are apart.

    Args:
        axes: what `join_axes` returns.
        size: bytes of an element.
    """
    if axes and all(step == size for step in axes[-1][1:]):
        return axes[-1][0] * size, axes[:-1]
    return size, axes


def _copy_by_tiles(
    source: StridedView, target: StridedView, bound: tuple[Binding, Binding], bases: tuple[int, int]
) -> bool:
    """Submit a copy by tiles in workgroup memory; return False without one if a plain copy is as fast.

    Args:
        source, target: the views.
        bound, bases: their bindings, and the bytes of the buffers where these begin.
    """
    context = source.array._context
    least = heuristics_for(context.capabilities.adapter_type).min_tiled_copy_bytes
    if least is None or source.nbytes < least:
        return False
    axes = join_axes(source.shape, source.strides, target.strides)
    first, target_first = (view.start - base for view, base in zip((source, target), bases, strict=True))
    size, axes = _join_neighbours(axes, source.element_bytes)
    unit = reveal(gcd(8, size, first, target_first, *(step for _, *steps in axes for step in steps)))
    numbers = [number for length, *steps in axes for number in (length, *(step // unit for step in steps))]
    if size > unit:
        numbers += size // unit, 1, 1
    if not apply(takes_tiles, unit, *numbers):
        return False
    words = apply(words_of_tiles, first // unit, target_first // unit, unit, *numbers)
    values = {
        "unit": unit,
        "rank": axes_of_tiles(len(numbers) // 3),
        "slots": TILE_BYTES[unit] // max(4, unit),
        "steps": TILE_STEPS[unit],
        "layers": bool(apply(has_layers, unit, *numbers)),
        "workgroup_size": TILE_INVOCATIONS,
    }
    tiles, elements = apply(count_tiles, unit, *numbers), source.nbytes // source.element_bytes
    bindings = [context.uniform(words), *bound]
    stage = stage_dispatch(context, "arrays/copy_tiles.wgsl", bindings, tiles, elements, **values)
    deferrable = are_owned(source.array, target.array)
    context.submit([stage], sum(part.size or 0 for part in bound), deferrable=deferrable)
    return True


def _copy_in_halves(view: StridedView, result: DeviceArray, start: int, run: int, pitch: int) -> None:
    """Copy a view that exceeds a binding: half of the rows at a time, or half of the columns if rows are too long."""
    limit, offset, shape = result._context.binding_limit, start - result.offset, view.shape
    if not shape:
        raise GpuscanError(
            f"a copy on {result._context.capabilities.summary} was asked for, but one element of {view.element_bytes} "
            f"bytes does not fit the {limit} bytes that it binds. Copy on the CPU: array.numpy()"
        )
    contiguous = run == pitch or run == view.nbytes
    layout = {} if contiguous else {"run": run, "pitch": pitch}
    row = replace(view, shape=shape[1:], strides=view.strides[1:])
    if shape[0] == 1:
        copy_elements(row, result, offset=offset, **layout)
        return
    if len(shape) == 2 and (contiguous or run == row.nbytes) and (shape[1] - 1) * abs(view.strides[1]) > limit // 2:
        middle = shape[1] // 2
        left = replace(view, shape=(shape[0], middle))
        right = replace(view, shape=(shape[0], shape[1] - middle), first=view.first + middle * view.strides[1])
        width, step = middle * view.element_bytes, row.nbytes if contiguous else pitch
        copy_elements(left, result, offset=offset, run=width, pitch=step)
        copy_elements(right, result, offset=offset + width, run=row.nbytes - width, pitch=step)
        return
    # Each half has whole runs.
    rows = 1 if contiguous else run // gcd(run, row.nbytes)
    middle = shape[0] // 2 // rows * rows
    first, second = view.rows(0, middle), view.rows(middle, shape[0])
    copy_elements(first, result, offset=offset, **layout)
    taken = first.nbytes if contiguous else first.nbytes // run * pitch
    copy_elements(second, result, offset=offset + taken, **layout)


def scatter(source: StridedView, target: StridedView) -> None:
    """Copy one view to another of the same shape in another buffer."""
    if not source.nbytes:
        return
    context = target.array._context
    size, axes = _join_neighbours(join_axes(source.shape, source.strides, target.strides), source.element_bytes)
    unit = reveal(gcd(4, size, source.start, target.start, *(step for _, *steps in axes for step in steps)))
    (bound, base), (result, result_base) = (bind_range(context, view.array, *view.extent) for view in (source, target))
    units = source.nbytes // unit
    if max(bound.size or 0, result.size or 0) > context.binding_limit or units > _MAX_UNITS:
        for half, half_target in _halves(source, target):
            scatter(half, half_target)
        return
    if _copy_by_tiles(source, target, (bound, result), (base, result_base)):
        return
    sizes = [(length, *(step // unit for step in steps)) for length, *steps in axes]
    if size > unit or not sizes:
        sizes.append((size // unit, 1, 1))
    starts = [(source.start - base) // unit, (target.start - result_base) // unit]
    numbers = [*starts, units, 0, *(number for axis in sizes for number in axis)]
    values = {"steps": WORDS, "unit": unit, "rank": len(sizes)}
    elements, invocations = units * unit // source.element_bytes, -(-units // WORDS)
    deferrable = are_owned(source.array, target.array)
    bindings = [bound, result]
    submit_stage(
        context, "arrays/scatter_elements.wgsl", numbers, bindings, invocations, elements, deferrable, **values
    )


def _halves(source: StridedView, target: StridedView) -> list[tuple[StridedView, StridedView]]:
    """Return both views cut in the middle of the axis that reaches furthest."""

    def part(view: StridedView, axis: int, start: int, stop: int) -> StridedView:
        shape = (*view.shape[:axis], stop - start, *view.shape[axis + 1 :])
        return replace(view, shape=shape, first=view.first + start * view.strides[axis])

    steps = [max(abs(a), abs(b)) for a, b in zip(source.strides, target.strides, strict=True)]
    ways = [(length - 1) * step for length, step in zip(source.shape, steps, strict=True)]
    axis = ways.index(max(ways))
    middle, end = source.shape[axis] // 2, source.shape[axis]
    return [
        (part(source, axis, start, stop), part(target, axis, start, stop))
        for start, stop in ((0, middle), (middle, end))
    ]


def bind_range(context: DeviceContext, array: DeviceArray, low: int, high: int) -> tuple[Binding, int]:
    """Return the binding of the buffer's bytes from `low` to `high`, and the byte where it begins."""
    base = low // context.offset_alignment * context.offset_alignment
    return Binding(array.buffer, base, round_up(high - base)), base
