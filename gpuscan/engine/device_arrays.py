"""Scan arrays that are on a device. Their elements never leave it, and calls wait only for runs that may fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Unpack

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.context import DeviceContext, strategy_key
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.engine.array_views import ArrayView, view_of_array
from gpuscan.engine.device_seeds import MAX_PARAMETER_BYTES, bind_seeds
from gpuscan.engine.element_copy import (
    StridedView,
    contiguous,
    copy_elements,
    copy_view,
    duplicate,
    flip_view,
    slice_axis,
    targets_for,
    transpose_view,
    view_of,
    write_to_outputs,
)
from gpuscan.engine.endpoints import DeviceSource
from gpuscan.engine.executor import Executor
from gpuscan.engine.head_bits import ComparedKeys, HeadBits, MarkedHeads, can_compare, with_keys, with_offsets_on_device
from gpuscan.engine.job import Job, Layout, PlanOptions
from gpuscan.engine.kept_programs import launch_or_record
from gpuscan.engine.preparation import prepare_problem, row_too_long, slab_tile, spans_too_long, tile_on
from gpuscan.engine.segment_heads import segment_heads
from gpuscan.engine.segment_results import device_sinks, fold_segments
from gpuscan.errors import StrategyError
from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.operators.parameters import Parameters
from gpuscan.operators.traced_array import Number
from gpuscan.planning.column_tiles import takes_vectors
from gpuscan.planning.kernel_parts import Placement
from gpuscan.planning.partition import (
    Part,
    device_piece_length,
    largest_field,
    needs_whole_rows,
    piece_unit,
    pieces,
    rows_in_whole_units,
    slab_size,
    slabs,
    whole_fits,
)
from gpuscan.planning.plan import reverses_rows, shares_words
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import RowTile
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.column_vectors import as_vectors, vectors_in
from gpuscan.problem.packed_fields import (
    STORAGE_LIMIT,
    binds_too_many,
    carrier_offsets,
    make_packed_element,
    pack_problem,
)
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Heads, Keys


@dataclass(frozen=True)
class _Call:
    """A call of `scan_device`, with its arrays on the device.

    Attributes:
        executor, problem, strategy, count, options: as in `scan_device`.
        leaves: the input's arrays.
        results: the arrays to write.
    """

    executor: Executor
    problem: Problem
    strategy: str
    leaves: Sequence[DeviceArray]
    results: Sequence[DeviceArray]
    count: DeviceArray | None
    options: PlanOptions


def scan_device(
    executor: Executor,
    problem: Problem,
    strategy: str = "auto",
    *,
    out: Sequence[DeviceArray] | None = None,
    count: DeviceArray | None = None,
    **options: Unpack[PlanOptions],
) -> list[DeviceArray]:
    """Return the result of a problem with arrays on the device: one array on the device for each field.

    Args:
        problem: the scan. Its NumPy arrays are uploaded. Views that are not contiguous are copied first.
        strategy: as in `gpuscan.scan`.
        out: arrays to write, which fit; new ones without. They may be the problem's own, and views.
        count: the array for the number of elements that a mask picks, or for the list of runs.
        options: `tile` and the test builds of `plan_scan`.

    Raises:
        StrategyError: the strategy cannot scan in place.
        ProgressTimeoutError: the strategy was asked for by name and timed out.
    """
    context = executor.context
    problem = prepare_problem(context, problem)
    fields = problem.destination.fields
    lead = problem.results_shape
    results = list(out) if out is not None else [empty(context, (*lead, *f.shape), f.scalar.dtype) for f in fields]
    if problem.empty:
        return results
    with context.errors, context.lock:
        problem = with_offsets_on_device(context, problem)
        leaves = [
            leaf if isinstance(leaf, DeviceArray) else upload_array(context, np.asarray(leaf))
            for leaf in problem.leaves
        ]
        for array in (*leaves, *results):
            array._check("STORAGE")
        if strategy == "auto" and not options and fold_segments(context, problem, leaves, results):
            return results
        call = _Call(executor, problem, strategy, leaves, results, count, options)
        limit = context.capabilities.limits[STORAGE_LIMIT]
        if binds_too_many(problem, limit):
            with _in_c_order(call) as dense:
                whole = pack_problem(
                    problem, pack_device_arrays(problem, dense.leaves), limit, context.capabilities.summary
                )
                packed = empty_carriers(problem, dense.results)
                scan_device(executor, whole, strategy, out=packed, count=count, **options)
                unpack(problem, packed, dense.results)
            return results
        if takes_vectors(problem, context.capabilities):
            with _in_c_order(call) as dense:
                whole = as_vectors(problem.with_leaves(tuple(dense.leaves)))
                vectors = vectors_in(dense.results, whole.results_shape, problem.inner)
                scan_device(executor, whole, strategy, out=vectors, **options)
            return results
        layout_key = None if options else problem.cache_key
        if layout_key is not None:
            compares = problem.heads is not None and can_compare(problem.heads, problem.inner, results)
            layout_key = (layout_key, problem.keep_last_only, problem.lists_key_runs, compares, "on device")
        layout = executor.planner.layout(layout_key, strategy, lambda: _layout(context, problem, strategy, results))
        if layout.parts:
            _scan_whole(call, layout)
            return results
        with _in_c_order(call) as dense:
            _scan_in_parts(dense, layout)
    return results


def scan_array(
    executor: Executor,
    array: object,
    op: str,
    *,
    before: Callable[..., object] | None = None,
    exclusive: bool = False,
    reduces: bool = False,
) -> DeviceArray:
    """Return the scan or the reduction of an array on the device, or of a bundle, along its first axis."""
    problem = find_or_make_problem(array, op, axis=0, exclusive=exclusive, reverse=False, before=before)
    (result,) = scan_device(executor, problem.as_reduction() if reduces else problem)
    return result


def launch_of_kind(
    problem: Problem,
    strategy: str,
    compute: Callable[[tuple[Any, ...] | None], list[DeviceArray]],
    what: Hashable = None,
    *,
    seeds: tuple[AnyArray, ...] | None = None,
    out: Sequence[DeviceArray] | None = None,
) -> list[DeviceArray]:
    """Return what a function computes from a problem. Launch its program if there was a problem of the same kind.

    Args:
        problem: the problem. Its kind, `strategy` and `what` decide what is computed.
        strategy: as in `gpuscan.scan`.
        compute: computes the results, from these seeds.
        what: what it computes.
        seeds: initial values that are no part of the kind; None if there are none.
        out: the arrays that it writes; None for new ones.
    """
    if problem.cache_key is None or problem.heads is not None or (seeds is not None and not _are_parameters(seeds)):
        return compute(seeds)
    arrays: list[DeviceArray] = []
    buffers: list[object] = []
    layouts = []
    for array in (*problem.leaves, *(out or ())):
        if not isinstance(array, DeviceArray) or array._owner is None:
            return compute(seeds)
        arrays.append(array)
        buffers.append(array.buffer)
        # The first array in the same buffer: whether results overwrite what is read depends on it.
        layouts.append((buffers.index(array.buffer), array.offset, array._owner.nbytes, array._strides))
    seed_forms = None if seeds is None else tuple([(seed.dtype, seed.shape) for seed in seeds])

    def compute_recorded(
        parameters: Parameters | None, given: Sequence[object], sizes: Iterator[object]
    ) -> tuple[list[DeviceArray], None]:
        del given, sizes
        return compute(seeds if parameters is None else tuple(map(ParameterArray, parameters.leaves))), None

    # The kind has the shapes of the arrays.
    key = (what, problem.cache_key, problem.keep_last_only, *layouts, seed_forms, *strategy_key(strategy))
    return launch_or_record(arrays[0]._context, key, (), arrays, compute_recorded, None, seeds or (), key)


def _are_parameters(seeds: Sequence[AnyArray]) -> bool:
    """Return True if initial values can be parameters of a program."""
    return all(seed.dtype.kind in "biufc" and 0 < seed.nbytes <= MAX_PARAMETER_BYTES for seed in seeds)


@contextmanager
def _in_c_order(call: _Call) -> Iterator[_Call]:
    """Give the call with arrays in C order: copies of views, and new arrays, copied to views of results at the end."""
    leaves = [contiguous(leaf) for leaf in call.leaves]
    targets = targets_for(call.results, (result.is_contiguous for result in call.results))
    yield replace(call, leaves=leaves, results=targets)
    write_to_outputs(targets, call.results)


# ----- Arrays that a shader binds as a whole


def _scan_whole(call: _Call, layout: Layout) -> None:
    """Scan arrays in one part. Views are read and written where they are, if the kernel can find their elements."""
    executor, problem, strategy = call.executor, call.problem, call.strategy
    leaves, results, options = call.leaves, call.results, call.options
    context, spec, fields = executor.context, layout.spec, problem.source.fields
    read = [None if leaf._is_bindable else view_of_array(leaf, f) for leaf, f in zip(leaves, fields, strict=True)]
    written = _views_of_results(problem, results)
    in_place = _in_place(problem, spec, leaves, results, written)
    if in_place and strategy == "fallback":
        if not any(written):
            raise StrategyError(
                'strategy "fallback" was asked for with out= the input, but it may read a late tile again after the '
                'tile was overwritten. Pass another out, or strategy="auto"'
            )
        in_place = False
    if in_place and strategy == "auto":
        # A single pass that fails leaves a part of the input overwritten, so it could not be done again.
        strategy = "three_dispatch"
    inputs, targets = list(leaves), list(results)
    if in_place:
        read = written
    else:
        taken = {id(result.buffer) for result in results}
        for i, (leaf, view) in enumerate(zip(leaves, read, strict=True)):
            if id(leaf.buffer) in taken or not (view or leaf.is_contiguous):
                inputs[i], read[i] = duplicate(leaf), None
        direct = [bool(view) or array.is_contiguous for array, view in zip(results, written, strict=True)]
        targets = targets_for(results, direct)
        written = written if all(direct) else [None] * len(results)
    sources = [DeviceSource(leaf, f, spec.inner, view) for leaf, f, view in zip(inputs, fields, read, strict=True)]
    addressing = tuple(view.addressing if view else "" for view in (*read, *written))
    placement = Placement(in_place=in_place, views=addressing if any(addressing) else ())
    job = Job(
        spec,
        strategy,
        sources,
        device_sinks(context, problem, spec, targets, partial(segment_ranks, executor), written),
        seeds=bind_seeds(problem, spec, context),
        heads=_heads_of(executor, problem, spec, one_part=True),
        count=call.count,
        placement=placement,
        options=options,
    )
    for _ in executor.run(job, layout.parts):
        pass
    write_to_outputs(targets, results)


def _views_of_results(problem: Problem, results: Sequence[DeviceArray]) -> list[ArrayView | None]:
    """Return views of the results that kernels write where they are, although they do not own whole vectors.

    Packed numbers share their words with what is around the array, and two bindings that kernels write to may not
    overlap, so such results are copied.
    """
    views: list[ArrayView | None] = [None] * len(results)
    if problem.keep_last_only or problem.compacts:
        return views
    for i, (result, f) in enumerate(zip(results, problem.destination.fields, strict=True)):
        if not (result._is_writable_in_vectors or f.scalar.packed):
            views[i] = view_of_array(result, f)
    bound = [
        view.binding if view else result._binding() if result.is_contiguous else None
        for view, result in zip(views, results, strict=True)
    ]
    if any(a and b and a.overlaps(b) for a, b in combinations(bound, 2)):
        return [None] * len(results)
    return views


def _in_place(
    problem: Problem,
    spec: ScanSpec,
    leaves: Sequence[DeviceArray],
    results: Sequence[DeviceArray],
    written: Sequence[ArrayView | None],
) -> bool:
    """Return True if every result replaces its own input, in whole words."""
    if problem.keep_last_only or problem.compacts or problem.source.fields != problem.destination.fields:
        return False
    same = all(
        a.buffer is b.buffer and a.offset == b.offset and a.strides == b.strides
        for a, b in zip(leaves, results, strict=True)
    )
    pairs = zip(results, written, strict=True)
    return same and not shares_words(spec, spec.length) and all(a._is_writable_in_vectors or view for a, view in pairs)


# ----- Segments


def segment_ranks(executor: Executor, heads: Heads) -> DeviceArray:
    """Return the ranks of segments by offsets, computed on the device."""
    offsets, count = heads.cut.array, heads.segments
    if not isinstance(offsets, DeviceArray):
        offsets = upload_array(executor.context, offsets, np.uint32)
    ends = (slice_axis(offsets, 0, 0, count), slice_axis(offsets, 0, 1, count + 1))
    return scan_array(executor, ends, "add", before=_is_full)


def _is_full(ends: Number) -> object:
    """Return 1 for a segment with elements, 0 for an empty one."""
    return (ends[0] < ends[1]).astype(np.uint32)


# ----- Arrays that exceed a binding


def _scan_in_parts(call: _Call, layout: Layout) -> None:
    """Scan arrays in C order part by part."""
    executor, problem, options = call.executor, call.problem, call.options
    context, spec, inner = executor.context, layout.spec, layout.spec.inner
    parts = _parts(context, spec) if problem.inner == inner else None
    if parts is None:
        _scan_rows_together(call)
        return
    taken = {id(result.buffer) for result in call.results}
    leaves = [duplicate(leaf) if id(leaf.buffer) in taken else leaf for leaf in call.leaves]
    job = Job(
        spec,
        call.strategy,
        [DeviceSource(leaf, f, inner) for leaf, f in zip(leaves, problem.source.fields, strict=True)],
        device_sinks(context, problem, spec, call.results, partial(segment_ranks, executor)),
        seeds=bind_seeds(problem, spec, context, whole=False),
        heads=_heads_of(executor, problem, spec, one_part=False),
        count=call.count,
        options=options,
    )
    for _ in executor.run(job, parts):
        pass


def _heads_of(executor: Executor, problem: Problem, spec: ScanSpec, *, one_part: bool) -> HeadBits | None:
    """Return where a scan restarts: the segment bits, which are constants of a program if the heads are; or keys."""
    heads, context, in_columns = problem.heads, executor.context, spec.inner > 1
    if heads is None:
        return None
    if spec.key is not None:
        assert isinstance(heads.cut, Keys)
        return ComparedKeys(heads.cut.array)
    bits = None
    if one_part and problem.keeps_heads:
        with context.pause_recording():
            bits = segment_heads(context, heads, in_columns=in_columns)
        context.note_constant(bits.buffer, bits._owner)
    return MarkedHeads(context, heads, in_columns, bits)


def _layout(context: DeviceContext, problem: Problem, strategy: str, results: Sequence[DeviceArray]) -> Layout:
    """Return the layout of the scan: its one part, if shaders can bind the arrays as a whole."""
    spec = scan_spec(problem, context.capabilities, captures=True)
    if problem.inner != spec.inner or not whole_fits(spec, context.capabilities):
        return Layout(spec, (), context.capabilities)
    spec = with_keys(spec, problem.heads, context.strategy(strategy)[0], results)
    return Layout(spec, (Part(spec, 0, spec.length, last=True),), context.capabilities)


def _parts(context: DeviceContext, spec: ScanSpec) -> Iterable[Part] | None:
    """Return the parts of a scan of large arrays; None if its rows have to be brought together first.

    Raises:
        GpuscanError: a row can be cut nowhere and does not fit a binding.
    """
    capabilities = context.capabilities
    tile = slab_tile(context, spec)
    if spec.inner > 1:
        together, columns = slab_size(spec, tile, capabilities)
        return slabs(spec, tile, together, columns) if columns else None
    tiles = (tile_on(context, spec), tile_on(context, spec, False))
    unit = piece_unit(spec, tiles, context.offset_alignment)
    if unit * largest_field(spec) > context.binding_limit and not spec.has_segment_bits:
        # Pieces that do not begin where a shader can bind them are copied.
        unit = piece_unit(spec, tiles)
    cut_rows = needs_whole_rows(spec) and spec.rows > 1
    if reverses_rows(spec):
        # Pieces that are read backwards have to be whole rows.
        unit = math.lcm(unit, spec.row_length)
        cut_rows = cut_rows or unit * largest_field(spec) > context.binding_limit
    if cut_rows or any(spec.field_offsets):
        together, columns = slab_size(spec, tile, capabilities)
        if not columns:
            raise row_too_long(context, spec)
        if isinstance(tile, RowTile):
            # The order in which a row is reduced depends on where it begins within a chunk.
            return slabs(spec, tile, rows_in_whole_units(spec, tile.chunk, together) or 1)
        whole = rows_in_whole_units(spec, unit, together)
        if spec.everywhere and not whole:
            raise spans_too_long(context, spec)
        return slabs(spec, tile, whole or together)
    return pieces(spec, device_piece_length(spec, unit, capabilities))


# ----- Arrays that are transposed first


def _scan_rows_together(call: _Call) -> None:
    """Scan along an inner axis: transpose the arrays on the device so that rows are contiguous, and back.

    Reversed rows are stored forward on the way, since forward scans are faster.
    """
    problem, inner, length = call.problem, call.problem.inner, call.problem.row_length
    rows = (problem.rows, length)
    plain = problem.heads is None and not (any(problem.field_offsets) or problem.indexed or problem.compacts)
    turned = problem.reverse and plain
    sources = []
    for leaf, f in zip(call.leaves, problem.source.fields, strict=True):
        view = transpose_view(leaf, length, inner, f.storage_bytes)
        view = flip_view(view, 2) if turned else view
        sources.append(copy_view(view, (*rows, *f.shape), f.scalar.dtype))
    reverse = problem.reverse and not turned
    together = replace(problem.with_rows_together(sources), reverse=reverse)
    if problem.reduces_rows:
        scan_device(call.executor, together, call.strategy, out=call.results, **call.options)
        return
    targets = scan_device(call.executor, together, call.strategy, **call.options)
    length = together.results_shape[-1]
    for target, result, f in zip(targets, call.results, problem.destination.fields, strict=True):
        view = transpose_view(target, inner, length, f.storage_bytes)
        view = flip_view(view, 1) if turned else view
        if target.buffer is result.buffer:
            view = replace(view, array=duplicate(target))
        copy_elements(view, result)


# ----- More fields than a shader binds
#
# Pack the fields of bundles that have more than a shader binds into arrays that carry several each, on the device.


def pack_device_arrays(problem: Problem, leaves: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Pack the fields into the arrays that carry them, on the device."""
    context = leaves[0]._context
    carriers = make_packed_element(problem.source).fields
    arrays = [empty(context, (*problem.shape, *carrier.shape), carrier.scalar.dtype) for carrier in carriers]
    for leaf, f, (carrier, start) in zip(leaves, problem.source.fields, carrier_offsets(problem.source), strict=True):
        copy_elements(
            view_of(leaf, (problem.size,), f.storage_bytes),
            arrays[carrier],
            offset=start,
            run=f.storage_bytes,
            pitch=carriers[carrier].storage_bytes,
        )
    return arrays


def empty_carriers(problem: Problem, results: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Return new arrays for the results of the packed problem. They have as many elements as the results."""
    count = results[0].size // problem.destination.fields[0].count
    carriers = make_packed_element(problem.destination).fields
    return [empty(results[0]._context, (count, *carrier.shape), carrier.scalar.dtype) for carrier in carriers]


def unpack(problem: Problem, wholes: Sequence[DeviceArray], results: Sequence[DeviceArray]) -> None:
    """Copy the fields of a packed problem's results to arrays of their own."""
    fields, carriers = problem.destination.fields, make_packed_element(problem.destination).fields
    for result, f, (carrier, start) in zip(results, fields, carrier_offsets(problem.destination), strict=True):
        shape, pitches = (result.size // f.count,), (carriers[carrier].storage_bytes,)
        copy_elements(StridedView(wholes[carrier], start, shape, pitches, f.storage_bytes), result)
