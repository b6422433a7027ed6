"""Bind initial values that are on the device already: they are converted and laid out there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty, upload_array, upload_changing, upload_rows
from gpuscan.device.strides import c_strides
from gpuscan.elements import Element, Field, word_dtype, words_of
from gpuscan.engine.element_copy import StridedView, elements_of, scatter, write_elements
from gpuscan.engine.elementwise import broadcast, in_dtype
from gpuscan.engine.preparation import check_seeds, seed_words
from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.operators.parameters import derive
from gpuscan.problem.arguments import Leaf
from gpuscan.sizes import has_size

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem

# The most bytes of an array of NumPy that is a parameter of the program. Initial values of 16,000 rows take 81 us of a
# core if the last call had the same values, and 125 us if not. Uploaded arrays take 101 and 108 us, and a stage more.
# What does not take arrays on a device, such as the init of a loop, has no program then.
MAX_PARAMETER_BYTES = 1 << 16
# The most bytes of initial values that each call with another float uploads. Of more, floats are revealed. Not tuned:
# these are four fields of the longest arrays.
_MAX_UPLOADED_BYTES = 4 * MAX_PARAMETER_BYTES


def seeds_by_rows(problem: Problem) -> Problem:
    """Return the problem with one initial value for each row.

    Only initial values on the device are changed: they become arrays (rows, *element shape) of their own. As initial
    values of NumPy are, they are rounded to what an element can store. If the number of rows is a size, all values are
    brought to the device, where other calls have other numbers of rows.
    """
    arrays = [leaf for leaf in problem.leaves if isinstance(leaf, DeviceArray)]
    if arrays and problem.seeds and has_size((problem.rows,)):
        context = arrays[0]._context
        given: Sequence[Any] = problem.seeds
        moved = [seed if isinstance(seed, DeviceArray) else upload_array(context, seed) for seed in given]
        problem = replace(problem, seeds=tuple(moved))
    if not any(isinstance(seed, DeviceArray) for seed in problem.seeds or ()):
        return problem
    others = tuple(size for i, size in enumerate(problem.shape) if i != problem.axis)
    seeds: list[Leaf] = []
    for seed, field in zip(problem.seeds or (), problem.seed_element.fields, strict=True):
        if isinstance(seed, DeviceArray):
            rows = empty(seed._context, (*others, *field.shape), field.scalar.dtype)
            if rows.nbytes:
                with seed._context.errors, seed._context.lock:
                    seed._check("STORAGE")
                    write_elements(broadcast(in_dtype(seed, rows.dtype), rows.shape), rows)
            seed = rows._view_as((problem.rows, *field.shape))
        seeds.append(seed)
    return replace(problem, seeds=tuple(seeds))


def seeds_on_host(problem: Problem) -> Problem:
    """Return the problem with the seeds that `seeds_by_rows` placed on the device as NumPy arrays."""
    if not any(isinstance(seed, DeviceArray) for seed in problem.seeds or ()):
        return problem
    seeds = (seed._read() if isinstance(seed, DeviceArray) else seed for seed in problem.seeds or ())
    return replace(problem, seeds=tuple(seeds))


def bind_seeds(
    problem: Problem, spec: ScanSpec, context: DeviceContext, *, whole: bool = True
) -> AnyArray | DeviceArray | None:
    """Return what `seed_words` returns, on the device if an initial value is there. The caller must hold its lock.

    Args:
        problem: the problem. Its seeds have the shape (rows, *element shape), or of one row if all rows have the same.
        whole: True if the device binds the values of all rows at once.

    Raises:
        GpuscanError: they exceed a binding.
    """
    given: Sequence[Any] = problem.seeds or ()
    if not any(isinstance(seed, DeviceArray) for seed in given):
        if given and isinstance(given[0], np.ndarray) and len(given[0]) != problem.rows:
            row = words_of(problem.seed_element, given)
            check_seeds(problem.rows, row.nbytes * problem.rows, context)
            return upload_rows(context, row, problem.rows)
        filled = _bind_parameters(problem, spec, context)
        return seed_words(problem, spec, context if whole else None) if filled is None else filled
    fields, rows = problem.seed_element.fields, problem.rows
    words = empty(context, (rows, sum(field.words for field in fields)), np.uint32)
    if whole:
        check_seeds(rows, words.nbytes, context)
    pitch = words.nbytes // rows
    backwards = spec.backwards_as_one
    pairs: list[tuple[Any, Field]] = [
        (_on_all_rows(context, seed, field, rows) if isinstance(seed, np.ndarray) and len(seed) == 1 else seed, field)
        for seed, field in zip(given, fields, strict=True)
    ]
    if not all(isinstance(seed, DeviceArray) for seed, _ in pairs):
        # The values of NumPy are copied together, with zeros in the place of the others.
        columns = [
            bytes(4 * rows * field.words)
            if isinstance(seed, DeviceArray)
            else words_of(Element((field,)), [np.asarray(seed)])[:: -1 if backwards else 1].tobytes()
            for seed, field in pairs
        ]
        content = np.frombuffer(_join_columns(int(rows), pitch // 4, *columns), np.uint32).reshape(words.shape)
        write_elements(upload_array(context, content), words)
    start = (rows - 1) * pitch if backwards else 0
    for seed, field in pairs:
        dtype = word_dtype(field.scalar)
        if isinstance(seed, DeviceArray):
            strides = (-pitch if backwards else pitch, *c_strides(field.shape, dtype.itemsize))
            target = StridedView(words, start, (rows, *field.shape), strides, dtype.itemsize)
            scatter(elements_of(in_dtype(seed, dtype)), target)
        start += prod(field.shape) * dtype.itemsize
    return words


def _on_all_rows(context: DeviceContext, seed: AnyArray, field: Field, rows: int) -> DeviceArray:
    """Return an array on the device with the same value for all rows. Only one value is uploaded."""
    return broadcast(upload_array(context, seed.astype(word_dtype(field.scalar))), (rows, *field.shape))


def _bind_parameters(problem: Problem, spec: ScanSpec, context: DeviceContext) -> DeviceArray | None:
    """Return the words of initial values with parameters of the call among them; None if there are none, or many."""
    seeds: Sequence[object] = problem.seeds or ()
    if not any(isinstance(seed, ParameterArray) for seed in seeds):
        return None
    fields, rows = problem.seed_element.fields, int(problem.rows)  # not a size, since the content depends on it
    width = sum(field.words for field in fields)
    if 4 * rows * width > _MAX_UPLOADED_BYTES:
        return None
    columns: list[object] = []
    for seed, field in zip(seeds, fields, strict=True):
        if isinstance(seed, ParameterArray):
            column = seed.astype(word_dtype(field.scalar))
            column = column[::-1] if spec.backwards_as_one else column
            columns.append(column.expression if isinstance(column, ParameterArray) else column.tobytes())
        else:
            words = words_of(Element((field,)), [np.asarray(seed)])
            columns.append((words[::-1] if spec.backwards_as_one else words).tobytes())
    return upload_changing(context, derive(_join_columns, rows, width, *columns), (rows, width), np.dtype(np.uint32))


def _join_columns(rows: int, width: int, *columns: object) -> bytes:
    """Return the words of rows, which have parts of their words in each of some columns: arrays, or their bytes."""
    words = np.empty((rows, width), np.uint32)
    start = 0
    for column in columns:
        whole = column if isinstance(column, bytes) else np.ascontiguousarray(column)
        part = np.frombuffer(whole, np.uint32).reshape(rows, -1)
        words[:, start : start + part.shape[1]] = part
        start += part.shape[1]
    return words.tobytes()
