"""The public functions `scan` and `reduce` of dask arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import prod
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeVar

import dask.array as da
import numpy as np
from dask._task_spec import List, Task, TaskRef, convert_legacy_graph
from dask.base import clone_key, is_dask_collection, tokenize
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph

import gpuscan
from gpuscan.array_types import AnyArray
from gpuscan.dask.tasks import Work, result_of, unbox_leaf
from gpuscan.dask.workers import threads
from gpuscan.device.adapters import NUMPY
from gpuscan.elements import Structure
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.trace import structure_of
from gpuscan.problem.arguments import as_flag, check_library, resolve_axis, structure_and_leaves
from gpuscan.problem.fixed_bits import EVERYWHERE, is_everywhere
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH, IndexedMap, as_map
from gpuscan.problem.leading_axes import split_axes
from gpuscan.problem.problem import make_problem
from gpuscan.problem.results import over_arrays, own_axes

if TYPE_CHECKING:
    from dask._task_spec import GraphNode
    from numpy.typing import DTypeLike

    from gpuscan.api.annotations import Mapped, Operation

T = TypeVar("T")
METHODS = ("totals", "sequential")


def scan(
    x: object,
    op: Operation = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    dtype: DTypeLike | None = None,
    before: Mapped | None = None,
    after: Mapped | None = None,
    method: str = "totals",
    reproducible: str | None = None,
) -> Any:
    """Return the prefix scan of a dask array along an axis, as a lazy dask array.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``, as `gpuscan.scan` computes it. The worker that has a block scans it
    on its default device, see `use_one_device_each`. Integers have the bits of `gpuscan.scan` of the whole array.
    Floats have the same bits on every run for the same chunks and the same model of device.

    Args:
        x: a dask array of shape (…, n, …), or what `dask.array.asarray` takes; or a bundle of them, which is a tuple,
            named tuple, list or dict of arrays of one shape. Chunks may have unknown lengths.
        op: as in `gpuscan.scan`: any associative operator. It is sent to the workers by cloudpickle.
        axis: the axis to scan along. A 1-D array needs none.
        exclusive: as in `gpuscan.scan`.
        reverse: as in `gpuscan.scan`.
        initial: as in `gpuscan.scan`. It may be a dask array of the shape of `x` without the axis.
        dtype: as in `gpuscan.scan`.
        before, after: as in `gpuscan.scan`: functions that map each element as it is loaded, and each combined element
            as it is stored. A `before` of two parameters also gets the element's index in the whole array.
        method: ``"totals"`` reduces all blocks in parallel, scans the totals of each row of blocks in one task, and
            then scans all blocks in parallel. It computes `x` twice, so that no block has to wait in memory. If that is
            slow, or if `x` has other values the second time, pass ``x.persist()``. ``"sequential"`` computes each block
            once, and scans it when the block before it is done. At most as many blocks wait in memory as the cluster
            (or, without a cluster, this machine) has threads at the time of the call, plus one.
        reproducible: as in `gpuscan.scan`. One task then scans the whole array, on one worker.

    Returns:
        A dask array with the chunks of `x`, or a bundle of them. Axes that belong to the element, such as the axes of
        matrices, have one chunk.

    Raises:
        ValueError: the axis, `initial`, `method` or the shapes of a bundle do not fit; or a `before` of two parameters
            is passed for chunks of unknown lengths, or `reproducible` is.
        TypeError: the operator does not take the dtype, or an argument has the wrong type.
        OperatorError: `op` is not an operator.

    ``"totals"`` has the three steps of Blelloch, "Prefix Sums and Their Applications" (1990).

    Example:
        >>> import dask.array as da
        >>> import gpuscan.dask
        >>> x = da.asarray([3, 1, 4, 1, 5, 9], chunks=2)
        >>> gpuscan.dask.scan(x, "maximum").compute()
        array([3, 3, 4, 4, 5, 9])
    """
    if method not in METHODS:
        raise ValueError(f"method={method!r} was passed, and there is none of that name; pass one of {METHODS}")
    options: dict[str, Any] = {"exclusive": as_flag("exclusive", exclusive), "reverse": as_flag("reverse", reverse)}
    options |= {"before": before, "after": after}
    if is_everywhere(reproducible):
        return scan_in_one_block(x, op, axis, dtype, initial, **options)
    call = call_of(x, op, axis, dtype, **options)
    call, seeds = with_initial(call, initial)
    if method == "sequential":
        return scan_sequentially(call, seeds, read_ahead=1 + threads())
    return scan_by_totals(call, seeds)


def reduce(
    x: object,
    op: Operation = "add",
    *,
    axis: int | tuple[int, ...] | None = None,
    reproducible: str | None = None,
) -> Any:
    """Return the combination of all elements of a dask array, or along some axes, as a lazy dask array.

    The result is ``op(…op(x[0], x[1])…, x[n-1])``. Each worker reduces its blocks on its default device, and one task
    reduces the totals of each row of blocks. Elements are combined in their order, so `op` need not commute.

    Args:
        x: as in `scan`.
        op: as in `gpuscan.scan`.
        axis: the axis to reduce, or a tuple of axes (default: all of them). Elements are combined in C order.
        reproducible: as in `gpuscan.reduce`. One task then reduces the whole array, on one worker.

    Returns:
        A dask array with the shape of `x` without the axes (for all axes: of shape ``()``), or a bundle of them.

    Raises:
        ValueError: the axis or the shapes of a bundle do not fit; or, when it is computed, an axis has length 0 and the
            operator has no identity; or `reproducible` is passed for chunks of unknown lengths.
        TypeError, OperatorError: as in `scan`.

    Example:
        >>> import dask.array as da
        >>> import gpuscan.dask
        >>> gpuscan.dask.reduce(da.asarray([[3, 1], [4, 1], [5, 9]], chunks=2), axis=0).compute()
        array([12, 11])
    """
    fixed = is_everywhere(reproducible)
    if axis is not None and not isinstance(axis, tuple):
        if not fixed:
            return reduce_axis(call_of(x, op, axis, None))
        axis = (axis,)
    shape = (1,) * call_of(x, op, 0, None).ndim
    axes = range(len(shape)) if axis is None else [resolve_axis(number, shape) for number in axis]
    if not axes or len(set(axes)) < len(axes):
        raise ValueError(f"axis={axis!r} was passed; pass at least one axis, and each axis once")
    if fixed:
        return reduce_in_one_block(x, op, [i for i in range(len(shape)) if i not in axes], sorted(axes))
    for last in sorted(axes, reverse=True):
        # Along the last axis first: this combines the elements in C order.
        x = reduce_axis(call_of(x, op, last, None))
    return x


# ----- Graphs
#
# Write a call as a graph of tasks, with dask's own building blocks.


def scan_by_totals(call: Call, seeds: Sequence[da.Array]) -> object:
    """Return the scan by totals of blocks, which are computed from arrays of their own.

    Otherwise every block would be kept until its prefix is known.
    """
    work, axis, lead = call.work, call.axis, call.lead
    if call.blocks > 1:
        twin = replace(call, arrays=tuple(map(_twin, call.arrays)))
        totals = _boxes(twin, work.total)
        without_last = slice(1, None) if work.reverse else slice(-1)
        index = tuple(without_last if i == axis else slice(None) for i in lead)
        totals = totals.blocks[index].rechunk({axis: -1})
    else:
        totals = da.full(tuple(map(len, call.chunks)), None, dtype=object, chunks=1)
    pairs = [part for number, seed in enumerate(seeds) for part in (seed, _rows_indices(call, number))]
    prefixes = da.blockwise(
        *(work.prefixes, lead, totals, lead, *pairs),
        **_object_options(call.ndim),
        adjust_chunks={i: (call.blocks,) if i == axis else 1 for i in lead},
    ).rechunk({axis: 1})
    return work.results.build_bundle(_unbox_blocks(call, _boxes(call, work.block, prefixes), call.results))


def scan_in_one_block(
    x: object, op: Operation, axis: int | None, dtype: DTypeLike | None, initial: object, **options: Any
) -> Any:
    """Return the scan with the same bits on every device, by one task, with the chunks of `x`.

    Args:
        x, op, axis, dtype, initial: as in `scan`.
        options: the other options of `call_of`.

    Raises:
        ValueError: chunks have unknown lengths; or as `scan`.
    """
    arrays, whole = _in_one_block(x)
    call = call_of(whole, op, axis, dtype, **options)
    call = replace(call, work=replace(call.work, reproducible=EVERYWHERE))
    work = call.work
    make_problem(
        call.without_elements(),
        op,
        axis=call.axis,
        dtype=dtype,
        reproducible=EVERYWHERE,
        before=work.before,
        after=work.after,
    )
    call, seeds = with_initial(call, initial)
    results = scan_by_totals(call, seeds)
    chunks = arrays[0].chunks[: call.ndim]
    return over_arrays(lambda array: array.rechunk(dict(enumerate(chunks))), results)


def reduce_in_one_block(x: object, op: Operation, others: list[int], axes: list[int]) -> Any:
    """Return the reduction with the same bits on every device, by one task, with the chunks of `x`.

    Args:
        x, op: as in `reduce`.
        others, axes: the axes that stay, and those to reduce, in ascending order.

    Raises:
        ValueError: chunks have unknown lengths; or as `reduce`.
    """
    arrays, whole = _in_one_block(x)
    ndim = len(others) + len(axes)

    def bring_together(array: da.Array) -> da.Array:
        moved = array.transpose((*others, *axes, *range(ndim, array.ndim)))
        length = prod(array.shape[axis] for axis in axes)
        return moved.reshape((*(array.shape[axis] for axis in others), length, *array.shape[ndim:]))

    call = call_of(over_arrays(bring_together, whole), op, len(others), None)
    make_problem(call.without_elements(), op, axis=call.axis, reproducible=EVERYWHERE)
    results = reduce_axis(replace(call, work=replace(call.work, reproducible=EVERYWHERE)))
    chunks = {number: arrays[0].chunks[axis] for number, axis in enumerate(others)}
    return over_arrays(lambda array: array.rechunk(chunks), results)


def _in_one_block(x: object) -> tuple[list[da.Array], object]:
    """Return the arrays of a bundle, depth first, and the bundle with one chunk in each array.

    Raises:
        ValueError: chunks have unknown lengths.
    """
    arrays = [_as_dask_array(array) for array in structure_of(x)[1]]
    if any(np.isnan(n) for array in arrays for n in array.shape):
        raise ValueError(
            'reproducible="everywhere" was passed for chunks of unknown lengths, but one task takes the whole array, '
            "and Dask joins only chunks of known lengths. Call compute_chunk_sizes() on the arrays, or leave "
            "reproducible out"
        )
    return arrays, over_arrays(lambda array: _as_dask_array(array).rechunk(-1), x)


def _twin(array: da.Array) -> da.Array:
    """Return an equal array that tasks of its own compute.

    `dask.graph_manipulation.clone` does the same, but as of dask 2026.8 it leaves keys inside tasks as they are.
    """
    tasks, futures = _tasks_and_futures(dict(array.dask))
    if any(key in futures for key in flatten(array.__dask_keys__())):
        return array
    names = {key: clone_key(key, "gpuscan") for key in tasks}
    twins = {names[key]: task.substitute(names, key=names[key]) for key, task in tasks.items()}
    name = clone_key(array.name, "gpuscan")
    whole = HighLevelGraph.from_collections(name, twins | futures)
    return da.Array(whole, name, array.chunks, meta=array._meta)


def _tasks_and_futures(graph: Graph) -> tuple[dict[Hashable, GraphNode], Graph]:
    """Return the tasks of a graph, and its futures of a cluster, which are computed already."""
    tasks = convert_legacy_graph(graph)
    return tasks, {key: value for key, value in graph.items() if key not in tasks}


def scan_sequentially(call: Call, seeds: Sequence[da.Array], read_ahead: int) -> object:
    """Return the scan in which each block takes its prefix from the block before it.

    Args:
        seeds: an initial value for each row; none if they share one.
        read_ahead: the number of blocks that may be computed, and wait for their prefixes, at a time.
    """
    work, axis = call.work, call.axis
    name = "gpuscan-steps-" + tokenize(call.arrays, seeds, work, read_ahead)
    counts = [range(len(lengths)) for lengths in call.chunks]
    along = reversed(counts[axis]) if work.reverse else counts[axis]
    rows = product(*call.without_axis(counts))
    blocks = [(*row[:axis], k, *row[axis:]) for k, row in product(along, rows)]
    leaves = [[(array.name, *block, *(0,) * (array.ndim - call.ndim)) for array in call.arrays] for block in blocks]
    carries = [(name + "-carry", *block) for block in blocks]
    steps, names = waiting_graph(name, call.arrays, leaves, carries[: max(0, len(blocks) - read_ahead)])
    before: dict[tuple[int, ...], Hashable] = {}
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
    arrays = []
    for number, result in enumerate(call.results):
        own = f"{name}-{number}"
        of_element = result.shape[call.ndim :]
        pick = {
            (own, *block, *(0,) * len(of_element)): (partial(result_of, number), (name, *block)) for block in blocks
        }
        whole = HighLevelGraph({**graph.layers, own: pick}, {**graph.dependencies, own: {name}})
        chunks = (*call.chunks, *((n,) for n in of_element))
        arrays.append(da.Array(whole, own, chunks, meta=np.empty((0,) * result.ndim, result.dtype)))
    return work.results.build_bundle(arrays)


def reduce_axis(call: Call) -> object:
    """Return the reduction along the call's axis."""
    work = call.work
    totals = _boxes(call, work.total).rechunk({call.axis: -1})
    rows = call.without_axis(call.lead)
    boxes = da.blockwise(*(work.row_results, rows, totals, call.lead), **_object_options(len(rows)))
    return work.elements.build_bundle(_unbox_blocks(call, boxes, call.elements, rows))


def _boxes(call: Call, function: Callable[..., AnyArray], prefixes: da.Array | None = None) -> da.Array:
    """Return a dask array with one object for each block: what a function of the blocks' arrays returns."""
    pairs = [part for number, array in enumerate(call.arrays) for part in (array, call.indices(number))]
    first = () if prefixes is None else (prefixes, call.lead)
    options = _object_options(call.ndim) | {"adjust_chunks": dict.fromkeys(call.lead, 1)}
    return da.blockwise(function, call.lead, *first, *pairs, **options)


def _unbox_blocks(
    call: Call, boxes: da.Array, like: Sequence[AnyArray], lead: tuple[int, ...] | None = None
) -> list[da.Array]:
    """Return the dask arrays of the blocks that a dask array of objects holds.

    Args:
        boxes: the objects.
        like: for each array, one of its dtype with the axes of its element.
        lead: the indices of the other axes (default: the indices of the axes that the call's arrays share).
    """
    lead = call.lead if lead is None else lead
    blocks_of_leaves = []
    for number, array in enumerate(like):
        own = call.indices(number, like)[call.ndim :]
        leaf_blocks = da.blockwise(
            *(partial(unbox_leaf, number), (*lead, *own), boxes, lead),
            **_options(np.empty((0,) * (len(lead) + len(own)), array.dtype)),
            new_axes=dict(zip(own, array.shape[call.ndim :], strict=True)),
            adjust_chunks={i: call.chunks[i] for i in lead},
        )
        blocks_of_leaves.append(leaf_blocks)
    return blocks_of_leaves


def _rows_indices(call: Call, number: int) -> tuple[int, ...]:
    """Return the indices of an initial value's axes: the row axes first, then the axes of the element."""
    own = call.indices(number, call.elements)
    return (*call.without_axis(own[: call.ndim]), *own[call.ndim :])


def _options(meta: AnyArray) -> dict[str, object]:
    return {"dtype": meta.dtype, "meta": meta, "concatenate": True, "align_arrays": False}


def _object_options(ndim: int) -> dict[str, object]:
    return _options(np.empty((0,) * ndim, object))


# ----- Blocks that wait for their turn
#
# Bound the blocks that are computed ahead of a sequential scan: each waits for an earlier block's carry.


# The graph of a dask array, or a part of one.
Graph = dict[Hashable, object]


class CarryTask(Task):  # type: ignore[misc]
    """A task that dask never fuses with the tasks that wait for it: they would get the whole block that it is in."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


def waiting_graph(
    name: str, arrays: Sequence[da.Array], blocks: Sequence[Sequence[Hashable]], carries: Sequence[Hashable]
) -> tuple[Graph, dict[Hashable, Hashable]]:
    """Return the graph of dask arrays in which blocks wait for carries, and a dict from the arrays' keys to its keys.

    Args:
        name: what the new keys are made from.
        arrays: the arrays. Their own graphs do not change.
        blocks: the keys of each block of the scan, in its order.
        carries: the key of the carry that each of the last blocks waits for. The blocks before do not wait.
    """
    graph = {key: task for array in arrays for key, task in dict(array.dask).items()}
    tasks, futures = _tasks_and_futures(graph)
    first = _first_blocks(tasks, blocks)
    names = {key: clone_key(key, name) for key in first}
    twins: Graph = {}
    for key, block in first.items():
        task = tasks[key].substitute(names, key=names[key])
        waits = block - (len(blocks) - len(carries))
        # A task that takes another one's result of the same block waits with that one.
        own = (tasks.get(dependency) for dependency in tasks[key].dependencies if first.get(dependency) == block)
        if waits >= 0 and isinstance(task, Task) and not any(isinstance(dependency, Task) for dependency in own):
            # As a producer of data it may run on any idle worker, not only on the one that has the carry.
            task = Task(names[key], _after, TaskRef(carries[waits]), task, _data_producer=True)
        twins[names[key]] = task
    return twins | futures, names


def _first_blocks(tasks: Mapping[Hashable, GraphNode], blocks: Sequence[Sequence[Hashable]]) -> dict[Hashable, int]:
    """Return the number of the first block that needs each task."""
    first: dict[Hashable, int] = {}
    for number, keys in enumerate(blocks):
        left = list(keys)
        while left:
            key = left.pop()
            if key in tasks and key not in first:
                first[key] = number
                left.extend(tasks[key].dependencies)
    return first


def _after(carry: object, value: T) -> T:
    return value


# ----- Calls
#
# Bring a call on dask arrays into normal form, and check it before anything is computed.


@dataclass(frozen=True)
class Call:
    """One call in normal form.

    Attributes:
        arrays: the dask arrays, depth first, with equal chunks along the axes that they share.
        structure: the way in which the user nests the arrays. Structured arrays are not taken apart.
        results: for each result, an array of its dtype with the axes of its element, and no elements.
        elements: the same for what is combined.
        ndim: the number of axes that the arrays share.
        axis: the axis to scan along, 0 or more.
        work: what the tasks have to know.
    """

    arrays: tuple[da.Array, ...]
    structure: Structure
    results: tuple[AnyArray, ...]
    elements: tuple[AnyArray, ...]
    ndim: int
    axis: int
    work: Work

    @property
    def lead(self) -> tuple[int, ...]:
        """The indices of the shared axes, as `dask.array.blockwise` takes them."""
        return tuple(range(self.ndim))

    def indices(self, number: int, arrays: Sequence[da.Array | AnyArray] | None = None) -> tuple[int, ...]:
        """Return the indices of all axes of an array. No other array has the indices of its element's axes.

        Args:
            number: the index of the array in `arrays`.
            arrays: the arrays (default: the arrays of the call).
        """
        own = (self.arrays if arrays is None else arrays)[number].ndim - self.ndim
        return (*self.lead, *(self.ndim + 100 * (number + 1) + i for i in range(own)))

    def without_elements(self) -> object:
        """Return a bundle of empty NumPy arrays with the dtypes and numbers of axes of the arguments."""
        return _without_elements(self.structure, self.arrays, self.ndim)

    def without_axis(self, values: Sequence[T]) -> tuple[T, ...]:
        """Return what belongs to the axes other than the scanned one."""
        return tuple(value for i, value in enumerate(values) if i != self.axis)

    @property
    def chunks(self) -> tuple[tuple[float, ...], ...]:
        """The chunks along the shared axes; an unknown length is NaN."""
        return tuple(self.arrays[0].chunks[: self.ndim])

    @property
    def blocks(self) -> int:
        """How many blocks the arrays have along the scanned axis."""
        return len(self.chunks[self.axis])


def call_of(
    x: object,
    op: Operation,
    axis: int | None,
    dtype: DTypeLike | None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    before: Mapped | None = None,
    after: Mapped | None = None,
) -> Call:
    """Check the arguments, and return the call.

    Raises:
        ValueError, TypeError, OperatorError: as `scan` and `reduce`.
    """
    operator = resolve(op)
    structure, arrays = structure_of(over_arrays(_as_dask_array, x))
    check_known(arrays)
    # The shapes and the axis are checked on arrays of the same shapes that take no memory.
    shapes = [tuple(1 if np.isnan(n) else int(n) for n in array.shape) for array in arrays]
    like = [np.broadcast_to(np.zeros((), a.dtype), shape) for a, shape in zip(arrays, shapes, strict=True)]
    bundle = structure.build_bundle(like)
    shape, trailing = split_axes(*structure_and_leaves(bundle), own_axes(bundle), operator, before)
    axis = resolve_axis(axis, shape, max(len(axes) for axes in trailing))
    ndim = len(shape)
    if isinstance(as_map(before), IndexedMap):
        assert before is not None
        index = _indices_along(arrays[0], ndim, axis)
        return call_of(
            (structure.build_bundle(arrays), index),
            op,
            axis,
            dtype,
            exclusive=exclusive,
            reverse=reverse,
            before=partial(_apply_to_pair, before),
            after=after,
        )
    # Scans of empty arrays on NumPy show the dtypes of what is combined, and of the results.
    empty = _without_elements(structure, like, ndim)
    options: dict[str, Any] = {"axis": axis, "dtype": dtype, "before": before, "device": NUMPY}
    combined, elements = structure_of(gpuscan.scan(empty, op, **options))
    returned, results = (
        (combined, elements) if after is None else structure_of(gpuscan.scan(empty, op, after=after, **options))
    )
    work = Work(structure, op, axis, ndim, combined, returned, exclusive, reverse, dtype, before, after)
    arrays = [array.rechunk(dict.fromkeys(range(ndim, array.ndim), -1)) for array in arrays]
    call = Call(tuple(arrays), structure, tuple(results), tuple(elements), ndim, axis, work)
    if len(arrays) > 1:
        pairs = [part for number, array in enumerate(arrays) for part in (array, call.indices(number))]
        call = replace(call, arrays=tuple(da.core.unify_chunks(*pairs)[1]))
    return call


def _without_elements(structure: Structure, arrays: Sequence[da.Array | AnyArray], ndim: int) -> object:
    return structure.build_bundle([np.empty((0,) * ndim + array.shape[ndim:], array.dtype) for array in arrays])


def _apply_to_pair(function: Mapped, pair: Sequence[object]) -> object:
    return function(*pair)


def _indices_along(array: da.Array, ndim: int, axis: int) -> da.Array:
    """Return the index of each element along an axis, as a dask array with the chunks of another one.

    Args:
        array: the other one.
        ndim: how many of its axes are no part of an element.

    Raises:
        ValueError: its chunks along these axes have unknown lengths.
    """
    shape, chunks = array.shape[:ndim], array.chunks[:ndim]
    if any(np.isnan(n) for n in shape):
        raise ValueError(
            "before= of two parameters takes the index of each element, but chunks of unknown lengths were passed. "
            "Call compute_chunk_sizes() on the arrays"
        )
    dtype = np.int32 if shape[axis] <= MAX_INT32_LENGTH else np.int64
    along = da.arange(shape[axis], chunks=(chunks[axis],), dtype=dtype)
    return da.broadcast_to(along[(slice(None), *[None] * (ndim - axis - 1))], shape, chunks=chunks)


def _as_dask_array(x: object) -> da.Array:
    check_library(x, ["xarray"])
    return da.asarray(x)


def check_known(arrays: Sequence[da.Array]) -> None:
    """Raise ValueError if an axis has a known length in one array of a bundle, and an unknown one in another."""
    for axis in range(min(array.ndim for array in arrays) if arrays else 0):
        are_unknown = {bool(np.isnan(array.shape[axis])) for array in arrays}
        if len(are_unknown) > 1:
            raise ValueError(
                f"a bundle of arrays was passed in which some have chunks of unknown lengths along axis {axis}, and "
                "others have not, so their shapes cannot be compared. Call compute_chunk_sizes() on the arrays"
            )


def is_shared(value: Any, array: AnyArray, ndim: int) -> bool:
    """Return True if all rows share an initial value, which has at most as many axes as an element of the array."""
    if is_dask_collection(value) or isinstance(value, np.ndarray) or not array.dtype.names:
        return not is_dask_collection(value) and np.ndim(value) <= array.ndim - ndim
    return True  # one record, such as a tuple


def with_initial(call: Call, initial: object) -> tuple[Call, tuple[da.Array, ...]]:
    """Return the call with the initial value that all rows share, or dask arrays of one for each row.

    Raises:
        ValueError, TypeError: it does not fit; or an exclusive scan has neither this nor an identity.
    """
    work = call.work
    check = partial(
        make_problem, call.without_elements(), work.op, axis=call.axis, dtype=work.dtype, before=work.before
    )
    if initial is None:
        check(exclusive=work.exclusive)
        return call, ()
    try:
        values = work.elements.flatten(initial)
    except (TypeError, ValueError, KeyError, IndexError):
        raise ValueError(
            f"initial {initial!r} was passed, but its structure is not that of the elements; pass one value for each "
            "array of an element, in the structure of the input, or of the results of before="
        ) from None
    if all(is_shared(value, array, call.ndim) for value, array in zip(values, call.elements, strict=True)):
        check(initial=initial)
        return replace(call, work=replace(work, initial=initial)), ()
    values = [value if is_dask_collection(value) else np.asarray(value) for value in values]
    elements = [a.shape[call.ndim :] for a in call.elements]
    check(initial=work.elements.build_bundle([np.zeros(e, v.dtype) for v, e in zip(values, elements, strict=True)]))
    rows, chunks = call.without_axis(call.arrays[0].shape[: call.ndim]), call.without_axis(call.chunks)
    if any(np.isnan(n) for n in rows):
        raise ValueError(
            "initial of one value for each row was passed with arrays of chunks of unknown lengths. Call "
            "compute_chunk_sizes() on the arrays, or pass one value for all rows"
        )
    seeds = []
    for value, element in zip(values, elements, strict=True):
        try:
            wide = da.broadcast_to(da.asarray(value), (*rows, *element))
        except ValueError:
            raise ValueError(
                f"initial of shape {value.shape} was passed, which does not broadcast to {(*rows, *element)}, the "
                "array's shape without the scanned axis. Pass one value, or one for each row"
            ) from None
        # Dask does not rechunk an array if all its axes have length 0.
        wide = da.zeros(wide.shape, dtype=wide.dtype) if 0 in wide.shape else wide
        seeds.append(wide.rechunk((*chunks, *((n,) for n in element))))
    return call, tuple(seeds)
