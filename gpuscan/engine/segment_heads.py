"""Say where rows and segments of a whole array begin: one bit for each element, in words on the device.

The bits are in one of three orders:

- of rows: one bit for each element, row by row, in the order of the scan. A reversed scan begins at the end of the
  last row.
- of columns that are all cut at the same indices: one bit for each index in a column, in the order of the scan.
- of other columns: one bit for each element, in the order of memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, empty, is_number, upload_array
from gpuscan.device.steps import Binding, Clear, Step
from gpuscan.device.transfer import round_up
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import bindable, contiguous, transpose_elements
from gpuscan.engine.plan_steps import (
    WORKGROUP_SIZE,
    are_owned,
    find_piece_position,
    new_validation_flag,
    stage_dispatch,
    submit_stage,
    uniform_of,
)
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.segments import Keys, Marks, Offsets, offsets_error
from gpuscan.sizes import spans

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.problem.segments import Cut, Heads

# Keys that one invocation of arrays/mark_keys.wgsl compares. An invocation of a CPU adapter is a serial loop, which
# makes a whole word.
_KEYS_PER_INVOCATION = 4
_KEYS_PER_INVOCATION_ON_CPU = 32
# Pieces of keys are multiples of this many elements, so that keys and bits begin where every adapter can bind them.
_PIECE_UNIT = 8 * 256


def segment_heads(context: DeviceContext, heads: Heads, *, in_columns: bool) -> DeviceArray:
    """Return the heads of the whole array as 32-bit words on the device, in the order that its kernels read.

    The bits are computed on the device. NumPy offsets or keys that exceed a binding, and NumPy keys of dtypes that
    shaders do not know, are turned into bits on the CPU.

    Args:
        in_columns: True if the array is scanned down its columns, in place.
    """
    heads = contiguous_heads(heads)
    with context.lock:
        if heads.cuts_rows_alike:
            row = _row_heads(context, heads)
            return row if in_columns or heads.rows == 1 else _repeat_heads(context, heads, row)
        keys = heads.cut.array
        if not isinstance(keys, DeviceArray):
            if not is_number(keys.dtype):
                words = heads.column_words(None, None) if in_columns else heads.words(0, heads.size)
                return upload_array(context, words)
            keys = upload_array(context, keys)
        if not in_columns:
            keys = transpose_elements(keys, heads.row_length, heads.inner, keys.dtype.itemsize)
        return _mark_keys(context, heads, keys, in_columns)


def contiguous_heads(heads: Heads) -> Heads:
    """Return the heads with keys and offsets on the device in C order."""
    if isinstance(heads.cut, Marks) or not isinstance(heads.cut.array, DeviceArray):
        return heads
    heads.cut.array._check("STORAGE")
    array = contiguous(heads.cut.array)
    return heads if array is heads.cut.array else replace(heads, cut=replace(heads.cut, array=array))


def _row_heads(context: DeviceContext, heads: Heads) -> DeviceArray:
    """Return the heads of one row, in the order of the scan."""
    words = -(-heads.row_length // 32)
    cut: Cut = heads.cut
    if isinstance(cut, Marks):
        return cut.array if isinstance(cut.array, DeviceArray) else upload_array(context, heads.row_words)
    if not isinstance(cut.array, DeviceArray):
        by_keys = isinstance(cut, Keys)
        item = cut.array.dtype.itemsize if by_keys else 4
        most = max(cut.array.size * item, 4 * words)
        if (by_keys and not is_number(cut.array.dtype)) or most > context.binding_limit:
            heads.check()
            return upload_array(context, heads.row_words)
        cut = (
            Keys(upload_array(context, cut.array)) if by_keys else Offsets(upload_array(context, cut.array, np.uint32))
        )
    if isinstance(cut, Keys):
        return _mark_keys(context, heads, cut.array, False)
    return _mark_segments(context, heads, cut)


def _mark_segments(context: DeviceContext, heads: Heads, cut: Offsets) -> DeviceArray:
    """Return the heads that offsets define, of one row for all.

    Unchecked offsets are checked as well. The validation flag is read with the reports.

    Args:
        cut: their offsets, on the device. If they exceed a binding, they are read piece by piece.

    Raises:
        DeviceMemoryError: the bits of a row exceed a binding.
    """
    words = -(-heads.row_length // 32)
    if 4 * words > context.binding_limit:
        raise DeviceMemoryError(
            f"segments on a device were passed for {heads.row_length} elements, but the bits that say where they begin "
            f"take {4 * words} bytes, and {context.capabilities.summary} binds at most {context.binding_limit}. Pass "
            "segments.numpy()"
        )
    offsets = bindable(cut.array)
    marks = empty(context, words, np.uint32)
    steps: list[Step] = [Clear(marks.buffer, marks.offset, round_up(marks.nbytes))]
    count = offsets.shape[0] - 1
    validation_flag = None
    if cut.unchecked:
        validation_flag = new_validation_flag(context, 4, offsets_error, (heads.row_length, count, cut.needs_full))
    most = context.binding_limit // offsets.dtype.itemsize // _PIECE_UNIT * _PIECE_UNIT - _PIECE_UNIT
    values = {"workgroup_size": WORKGROUP_SIZE, "scalar": scalar_of(offsets.dtype), "checked": cut.unchecked}
    values["needs_full"] = cut.unchecked and bool(cut.needs_full)
    for start, own in spans(count, most):
        read, first_offset = _bind_range(offsets, start, own + 1)
        call = uniform_of(context, [heads.row_length, own, heads.reverse, first_offset, start, count])
        bound = [call, read, marks._binding()]
        bound += [] if validation_flag is None else [validation_flag._binding()]
        workgroups = -(-own // WORKGROUP_SIZE)
        steps.append(
            stage_dispatch(context, "arrays/mark_segments.wgsl", bound, workgroups, heads.row_length, **values)
        )
    context.submit(steps, offsets.nbytes + marks.nbytes, deferrable=are_owned(offsets))
    return marks


def _mark_keys(context: DeviceContext, heads: Heads, keys: DeviceArray, in_columns: bool) -> DeviceArray:
    """Return the heads that keys define: of one row for all, or of all elements.

    Keys that exceed a binding are marked piece by piece.

    Args:
        keys: the keys: rows are contiguous, unless they are `in_columns`.
        in_columns: True if neighbours in memory are of different rows.
    """
    size, inner = keys.size, heads.inner if in_columns else 1
    keys = bindable(keys)
    marks = empty(context, -(-size // 32), np.uint32)
    steps: list[Step] = []
    item = keys.dtype.itemsize
    limit = context.binding_limit // max(item, 1) - _PIECE_UNIT
    most = size if size <= limit else limit // _PIECE_UNIT * _PIECE_UNIT
    on_cpu = context.capabilities.adapter_type == "CPU"
    keys_each = _KEYS_PER_INVOCATION_ON_CPU if on_cpu else _KEYS_PER_INVOCATION
    scalar = scalar_of(keys.dtype)
    values = {"workgroup_size": WORKGROUP_SIZE, "keys": keys_each, "scalar": scalar, "in_columns": in_columns}
    # Pieces that go forwards begin at multiples of `_PIECE_UNIT`.
    values["vectors"] = scalar.bits == 32 and not in_columns and not heads.reverse
    for start, count in spans(size, most):
        piece_start = size - start - count if heads.reverse and not in_columns else start
        before = piece_start + inner if heads.reverse else piece_start - inner
        own, first = _bind_range(keys, piece_start, count)
        others, other = _bind_range(keys, before, count)
        words = -(-count // 32)
        length, _, offset = (heads.row_length, 0, start) if in_columns else find_piece_position(start, heads.row_length)
        numbers = [count, words, heads.reverse, offset, length, inner, first, other]
        call = uniform_of(context, numbers)
        bits = Binding(marks.buffer, marks.offset + start // 8, round_up(4 * words, 4))
        workgroups = max(1, -(-count // (keys_each * WORKGROUP_SIZE)))
        bound = [call, own, others, bits]
        steps.append(stage_dispatch(context, "arrays/mark_keys.wgsl", bound, workgroups, count, **values))
    context.submit(steps, keys.nbytes, deferrable=are_owned(keys))
    return marks


def _bind_range(array: DeviceArray, first: int, count: int) -> tuple[Binding, int]:
    """Return the binding of a range of an array, and the index of its first element in the binding.

    The binding ends where the array does, in whole vectors. The index of an element before the array's first one is
    negative.
    """
    item = array.dtype.itemsize
    low = min(max(first, 0), array.size - 1) // _PIECE_UNIT * _PIECE_UNIT
    high = min(max(first + count, low + 1), array.size)
    return Binding(array.buffer, array.offset + low * item, round_up((high - low) * item, ALIGNMENT)), first - low


def _repeat_heads(context: DeviceContext, heads: Heads, row: DeviceArray) -> DeviceArray:
    """Repeat the heads of one row for all rows, and return them row by row."""
    words = -(-heads.size // 32)
    marks = empty(context, words, np.uint32)
    numbers, bound = [heads.size, heads.row_length], [row._binding(), marks._binding()]
    submit_stage(context, "arrays/repeat_heads.wgsl", numbers, bound, words, heads.size, True)
    return marks
