"""Write a call as a graph of tasks, with dask's own building blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from operator import getitem
from typing import Any

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef, convert_legacy_graph
from dask.base import clone_key, tokenize
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

from gpuscan.dask.call import Call
from gpuscan.dask.read_ahead import CarryTask, waiting_graph
from gpuscan.dask.tasks import result_of, unboxed_leaf


def scan_by_totals(call: Call, seeds: Sequence[Any]) -> Any:
    """Return the scan by totals of blocks, which are computed from arrays of their own.

    Otherwise every block would be kept until its prefix is known.
    """
    work, axis, lead = call.work, call.axis, call.lead
    if call.blocks > 1:
        twin = replace(call, arrays=tuple(map(_twin, call.arrays)))
        totals = _boxes(twin, work.total, twin.arrays)
        known = slice(1, None) if work.reverse else slice(-1)
        index = tuple(known if i == axis else slice(None) for i in lead)
        totals = totals.blocks[index].rechunk({axis: -1})
    else:
        totals = da.full(tuple(map(len, call.chunks)), None, dtype=object, chunks=1)
    pairs = [part for place, seed in enumerate(seeds) for part in (seed, _rows_indices(call, place))]
    prefixes = da.blockwise(
        *(work.prefixes, lead, totals, lead, *pairs),
        **_object_options(call.ndim),
        adjust_chunks={i: (call.blocks,) if i == axis else 1 for i in lead},
    ).rechunk({axis: 1})
    array, result = call.arrays[0], call.results[0]
    of_element = array.shape[call.ndim :]
    if len(call.arrays) > 1 or len(call.results) > 1 or result.shape[call.ndim :] != of_element:
        return work.results.nested(_unboxed(call, _boxes(call, work.block, call.arrays, prefixes), call.results))
    indices = call.indices(0)
    meta = np.empty((0,) * array.ndim, result.dtype)
    found = da.blockwise(
        *(work.lone_block, indices, prefixes, lead, array, indices),
        **_options(meta),
        adjust_chunks=dict(zip(lead, call.chunks, strict=True)),
    )
    return work.results.nested([found])


def _twin(array: Any) -> Any:
    """Return an equal array that tasks of its own compute.

    `dask.graph_manipulation.clone` does the same, but as of dask 2026.8 it leaves keys inside tasks as they are.
    """
    graph = dict(array.dask)
    tasks = convert_legacy_graph(graph)
    # What else there is are futures of a cluster, which are computed already.
    futures = {key: value for key, value in graph.items() if key not in tasks}
    if any(key in futures for key in flatten(array.__dask_keys__())):
        return array
    names = {key: clone_key(key, "gpuscan") for key in tasks}
    twins = {names[key]: task.substitute(names, key=names[key]) for key, task in tasks.items()}
    name = clone_key(array.name, "gpuscan")
    whole = HighLevelGraph.from_collections(name, twins | futures)
    return da.Array(whole, name, array.chunks, meta=array._meta)


def scan_sequentially(call: Call, seeds: Sequence[Any], read_ahead: int) -> Any:
    """Return the scan in which each block takes its prefix from the block before it.

    Args:
        call: the call.
        seeds: an initial value for each row; none if they share one.
        read_ahead: the number of blocks that may be computed, and wait for their prefixes, at a time.
    """
    work, axis = call.work, call.axis
    name = "gpuscan-steps-" + tokenize(call.arrays, seeds, work, read_ahead)
    counts = [range(len(each)) for each in call.chunks]
    along = reversed(counts[axis]) if work.reverse else counts[axis]
    rows = product(*call.without_axis(counts))
    blocks = [(*row[:axis], k, *row[axis:]) for k, row in product(along, rows)]
    leaves = [[(array.name, *block, *(0,) * (array.ndim - call.ndim)) for array in call.arrays] for block in blocks]
    carries = [(name + "-carry", *block) for block in blocks]
    steps, names = waiting_graph(name, call.arrays, leaves, carries[: max(0, len(blocks) - read_ahead)])
    before: dict[tuple[int, ...], Any] = {}
    for block, keys, carry in zip(blocks, leaves, carries, strict=True):
        row = call.without_axis(block)
        start = [(seed.name, *row, *(0,) * (seed.ndim - len(row))) for seed in seeds]
        prefix = TaskRef(before[row]) if row in before else List(*map(TaskRef, start))
        step = (name, *block)
        steps[step] = Task(step, work.step, prefix, *(TaskRef(names.get(key, key)) for key in keys))
        # A task of its own takes the carry, so that the results need not wait for the next block.
        steps[carry] = CarryTask(carry, getitem, TaskRef(step), 1)
        before[row] = carry
    graph = HighLevelGraph.from_collections(name, steps, dependencies=seeds)
    found = []
    for place, result in enumerate(call.results):
        own = f"{name}-{place}"
        of_element = result.shape[call.ndim :]
        pick = {(own, *block, *(0,) * len(of_element)): (partial(result_of, place), (name, *block)) for block in blocks}
        whole = HighLevelGraph({**graph.layers, own: pick}, {**graph.dependencies, own: {name}})
        chunks = (*call.chunks, *((n,) for n in of_element))
        found.append(da.Array(whole, own, chunks, meta=np.empty((0,) * result.ndim, result.dtype)))
    return work.results.nested(found)


def reduce_axis(call: Call) -> Any:
    """Return the reduction along the call's axis."""
    work = call.work
    totals = _boxes(call, work.total, call.arrays).rechunk({call.axis: -1})
    rows = call.without_axis(call.lead)
    boxes = da.blockwise(*(work.row_results, rows, totals, call.lead), **_object_options(len(rows)))
    return work.elements.nested(_unboxed(call, boxes, call.elements, rows))


def _boxes(call: Call, function: Callable[..., Any], arrays: Sequence[Any], prefixes: Any = None) -> Any:
    """Return a dask array with one object for each block: what a function of the blocks' arrays returns."""
    pairs = [part for place, array in enumerate(arrays) for part in (array, call.indices(place))]
    first = () if prefixes is None else (prefixes, call.lead)
    options = _object_options(call.ndim) | {"adjust_chunks": dict.fromkeys(call.lead, 1)}
    return da.blockwise(function, call.lead, *first, *pairs, **options)


def _unboxed(call: Call, boxes: Any, like: Sequence[Any], lead: tuple[int, ...] | None = None) -> list[Any]:
    """Return the dask arrays of the blocks that a dask array of objects holds.

    Args:
        call: the call.
        boxes: the objects.
        like: for each array, one of its dtype with the axes of its element.
        lead: the indices of the other axes (default: those that the call's arrays share).
    """
    lead = call.lead if lead is None else lead
    found = []
    for place, each in enumerate(like):
        own = call.indices(place, like)[call.ndim :]
        taken = da.blockwise(
            *(partial(unboxed_leaf, place), (*lead, *own), boxes, lead),
            **_options(np.empty((0,) * (len(lead) + len(own)), each.dtype)),
            new_axes=dict(zip(own, each.shape[call.ndim :], strict=True)),
            adjust_chunks={i: call.chunks[i] for i in lead},
        )
        found.append(taken)
    return found


def _rows_indices(call: Call, place: int) -> tuple[int, ...]:
    """Return the indices of an initial value's axes: those of the rows, then those of the element."""
    own = call.indices(place, call.elements)
    return (*call.without_axis(own[: call.ndim]), *own[call.ndim :])


def _options(meta: Any) -> dict[str, Any]:
    return {"dtype": meta.dtype, "meta": meta, "concatenate": True, "align_arrays": False}


def _object_options(ndim: int) -> dict[str, Any]:
    return _options(np.empty((0,) * ndim, object))
