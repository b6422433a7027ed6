"""Bind initial values that are on the device already: they are converted and laid out there."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, uploaded
from gpuscan.device.guards import guarded
from gpuscan.device.strides import c_strides
from gpuscan.elements import word_dtype
from gpuscan.engine.element_copy import StridedView, elements_of, scatter, write_elements
from gpuscan.engine.elementwise import broadcast, converted
from gpuscan.engine.preparation import check_seeds, seed_words

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem


def seeds_by_rows(problem: Problem) -> Problem:
    """Return the problem with one initial value for each row, in the form in which elements are combined.

    Only initial values on the device are changed: they become arrays (rows, *element shape) of their own.
    """
    if not any(isinstance(seed, DeviceArray) for seed in problem.seeds or ()):
        return problem
    others = tuple(size for i, size in enumerate(problem.shape) if i != problem.axis)
    seeds: list[Any] = []
    for seed, field in zip(problem.seeds or (), problem.element.fields, strict=True):
        if isinstance(seed, DeviceArray):
            dtype = word_dtype(field.scalar)
            rows = empty(seed.context, (*others, *field.shape), dtype)
            if rows.nbytes:
                with guarded(seed.context), seed.context.lock:
                    seed.check("STORAGE")
                    # As initial values of NumPy are, these are rounded to what an element can store.
                    for each in (field.scalar.dtype, dtype):
                        seed = seed if seed.dtype == each else converted(seed.context, seed, each)
                    write_elements(broadcast(seed, rows.shape), rows)
            seed = rows.viewed((problem.rows, *field.shape))
        seeds.append(seed)
    return replace(problem, seeds=tuple(seeds))


def bound_seeds(
    problem: Problem, spec: ScanSpec, context: DeviceContext, *, whole: bool = True
) -> np.ndarray[Any, Any] | DeviceArray | None:
    """Return what `seed_words` returns, on the device if an initial value is there. The caller must hold its lock.

    Args:
        problem: the problem, as `seeds_by_rows` returns it.
        spec: the scan of the problem.
        context: the arrays' device.
        whole: True if the device binds the values of all rows at once.

    Raises:
        GpuscanError: they exceed a binding.
    """
    if not any(isinstance(seed, DeviceArray) for seed in problem.seeds or ()):
        return seed_words(problem, spec, context if whole else None)
    fields, rows = problem.seed_element.fields, problem.rows
    words = empty(context, (rows, sum(field.words for field in fields)), np.uint32)
    if whole:
        check_seeds(rows, words.nbytes, context)
    pitch = words.nbytes // rows
    backwards = spec.reverse and spec.has_segment_bits and spec.inner == 1
    start = (rows - 1) * pitch if backwards else 0
    for seed, field in zip(problem.seeds or (), fields, strict=True):
        dtype = word_dtype(field.scalar)
        values = seed if isinstance(seed, DeviceArray) else uploaded(context, seed.astype(dtype, copy=False))
        strides = (-pitch if backwards else pitch, *c_strides(field.shape, dtype.itemsize))
        target = StridedView(words, start, (rows, *field.shape), strides, dtype.itemsize)
        scatter(elements_of(values), target)
        start += prod(field.shape) * dtype.itemsize
    return words
