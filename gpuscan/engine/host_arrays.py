"""Scan NumPy arrays on a device: decide how they are cut, and hand them to the executor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Unpack

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.elements import Field
from gpuscan.engine.device_arrays import launch_of_kind, scan_device, segment_ranks
from gpuscan.engine.element_copy import StridedView, copy_view
from gpuscan.engine.endpoints import DeviceSink, DeviceSource, HostRows, HostSink, HostSlabs, is_mapped_file
from gpuscan.engine.executor import Executor
from gpuscan.engine.head_bits import HeadBits, MarkedHeads, UploadedHeads
from gpuscan.engine.job import Job, Layout, PlanOptions
from gpuscan.engine.preparation import prepare_problem, row_too_long, seed_words, slab_tile, spans_too_long, tile_on
from gpuscan.engine.progress import report_progress
from gpuscan.engine.segment_results import device_sinks
from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.column_tiles import takes_vectors
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.partition import (
    Part,
    device_piece_length,
    host_piece_length,
    largest_field,
    piece_unit,
    pieces,
    rows_in_whole_units,
    slab_size,
    slabs,
    whole_fits,
)
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import RowTile, TileShape
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.problem.column_vectors import as_vectors
from gpuscan.problem.packed_fields import STORAGE_LIMIT, binds_too_many, pack_arrays, pack_problem, unpack_results
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import copy_to_outputs

Arrays = list[AnyArray]


def scan_host(
    executor: Executor,
    problem: Problem,
    strategy: str = "auto",
    *,
    outputs: Arrays | None = None,
    piece_bytes: int | None = None,
    **options: Unpack[PlanOptions],
) -> Arrays:
    """Return the result of a problem of NumPy arrays: one array for each field.

    If a strategy times out under ``"auto"``, it is not chosen again, and the scan runs again with another one.

    Args:
        problem: the scan, which is not empty.
        strategy: as in `gpuscan.scan`.
        outputs: the arrays (*shape, *element shape) to write (default: new ones).
        piece_bytes: the bytes of a piece (default: chosen for the adapter).
        options: `tile` and the test builds of `plan_scan`.

    Raises:
        UnsupportedDtypeError: the device does not support a dtype.
        ProgressTimeoutError: the strategy was asked for by name and timed out.
    """
    context = executor.context
    problem = prepare_problem(context, problem)
    limit = context.capabilities.limits[STORAGE_LIMIT]
    if binds_too_many(problem, limit):
        leaves = pack_arrays(problem.source, problem.numpy_leaves, len(problem.shape))
        packed = pack_problem(problem, leaves, limit, context.capabilities.summary)
        results = unpack_results(problem, scan_host(executor, packed, strategy, piece_bytes=piece_bytes, **options))
        return copy_to_outputs(results, outputs)
    if takes_vectors(problem, context.capabilities):
        of_vectors = as_vectors(problem)
        scanned = scan_host(executor, of_vectors, strategy, piece_bytes=piece_bytes, **options)
        return copy_to_outputs([array.reshape(problem.results_shape) for array in scanned], outputs)
    lead = problem.results_shape
    results = outputs or [np.empty((*lead, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    with context.errors:
        if options or piece_bytes is not None or not scan_small(executor, problem, strategy, results):
            _Scan(executor, problem, strategy, results, piece_bytes, options).run()
    return results


class _Scan:
    """A scan of NumPy arrays."""

    def __init__(
        self,
        executor: Executor,
        problem: Problem,
        strategy: str,
        results: Arrays,
        piece_bytes: int | None,
        options: PlanOptions,
    ) -> None:
        self._executor, self._problem, self._strategy = executor, problem, strategy
        self._results, self._piece_bytes, self._options = results, piece_bytes, options
        self._leaves = problem.numpy_leaves
        self._spec: ScanSpec

    def run(self) -> None:
        """Scan small arrays in one part, and others in slabs or pieces."""
        problem, executor = self._problem, self._executor
        plain = not self._options and self._piece_bytes is None
        in_order = plain and all(leaf.flags.c_contiguous for leaf in self._leaves)
        layout_key = (problem.cache_key, problem.keep_last_only) if in_order and problem.cache_key is not None else None
        layout = executor.planner.layout(layout_key, self._strategy, self._layout)
        spec = self._spec = layout.spec
        if layout.parts:
            self._run_parts(layout.parts, spec, whole=spec.inner > 1)
            return
        context = executor.context
        transposed = plain and spec.inner == problem.inner == 1
        transposed = transposed and any(transposes_on_device(context, leaf) for leaf in self._leaves)
        if transposed and whole_fits(spec, context.capabilities):
            self._run_parts([Part(spec, 0, spec.length, last=True)], spec, uploads_whole=True)
            return
        if spec.inner > 1:
            if self._run_slabs():
                return
            self._spec = spec = replace(spec, inner=1)
        if any(spec.field_offsets):
            if problem.inner > 1 or not self._run_slabs():
                self._run_with_rows_together()
        elif spec.keep_last_only and not spec.reduces_segments:
            self._run_reduction()
        else:
            self._run_pieces()

    def _layout(self) -> Layout:
        """Return the layout of the scan: its one part, if it is small."""
        capabilities = self._executor.context.capabilities
        spec = scan_spec(self._problem, capabilities, captures=True)
        if isinstance(self._options.get("tile"), TileShape):
            # A tile of neighbours in memory needs rows that are brought together.
            spec = replace(spec, inner=1)
        h = heuristics_for(capabilities.adapter_type)
        most = h.slab_bytes if spec.inner > 1 or any(spec.field_offsets) else h.single_piece_bytes
        neighbours = spec.inner > 1 or self._problem.inner == 1 or not any(spec.field_offsets)
        small = self._piece_bytes is None and spec.length * largest_field(spec) <= most and neighbours
        small = small and whole_fits(spec, capabilities)
        return Layout(spec, (Part(spec, 0, spec.length, last=True),) if small else (), capabilities)

    # ----- One part, or pieces along the scan

    def _run_pieces(self) -> None:
        spec = self._spec
        capabilities = self._executor.context.capabilities
        unit = piece_unit(spec, self._tiles(spec))
        length = host_piece_length(spec, unit, capabilities, self._piece_bytes)
        if spec.reverse and not spec.backwards_as_one and unit % spec.row_length:
            # Pieces are no whole rows, so rows are read and written backwards here, and scanned forwards.
            spec = replace(spec, reverse=False)
            self._run_parts(pieces(spec, length), spec, flipped=True)
            return
        self._run_parts(pieces(spec, length), spec)

    def _tiles(self, spec: ScanSpec) -> tuple[TileShape, ...]:
        """Return the tiles that the planner may choose: a scan may have to continue without subgroups."""
        given = self._options.get("tile")
        if isinstance(given, TileShape):
            return (given,)
        return tuple(tile_on(self._executor.context, spec, subgroups) for subgroups in (True, False))

    # ----- Reductions of rows

    def _run_reduction(self) -> None:
        """Reduce several whole rows at a time, or one long row piece by piece.

        If rows are reduced in any order, the order depends on where a row begins within a chunk, and pieces of rows
        would change the bits of floats. So each slab begins where a chunk does. If no such slab is as small as a piece,
        the array is placed on the device as a whole, if the device can bind it.
        """
        spec, problem = self._spec, self._problem
        capabilities = self._executor.context.capabilities
        unit = piece_unit(spec, self._tiles(spec))
        tile = self._options.get("tile") or slab_tile(self._executor.context, spec)
        together = host_piece_length(spec, 1, capabilities, self._piece_bytes) // spec.row_length
        row_fits = whole_fits(replace(spec, rows=1), capabilities)
        if isinstance(tile, RowTile) and not spec.combine.order_free and problem.inner == 1 and row_fits:
            together = rows_in_whole_units(spec, tile.chunk, together)
            if (spec.rows == 1 or not together) and whole_fits(spec, capabilities):
                self._run_parts([Part(spec, 0, spec.length, last=True)], spec, uploads_whole=True)
                return
            most = device_piece_length(spec, 1, capabilities) // spec.row_length
            together = together or rows_in_whole_units(spec, tile.chunk, most) or 1
        elif not spec.everywhere:
            # Whole blocks of tiles give the bits of the whole array.
            together = rows_in_whole_units(spec, unit, together) or together
        if spec.rows == 1:
            length = host_piece_length(spec, unit, capabilities, self._piece_bytes)
            sinks: list[DeviceSink] = []
            for f in problem.destination.fields:
                total = empty(self._executor.context, (1, *f.shape), f.scalar.dtype)
                sinks.append(DeviceSink(total, f, 1, per_row=True))
            self._run_parts(pieces(spec, length), spec, sinks=sinks)
            for result, sink in zip(self._results, sinks, strict=True):
                result[...] = sink.array._read()
        elif spec.everywhere:
            self._reduce_everywhere(unit, together)
        elif together and problem.inner == 1:
            self._run_parts(slabs(spec, tile, together), spec, in_slabs=True)
        else:
            self._reduce_row_by_row()

    def _reduce_everywhere(self, unit: int, together: int) -> None:
        """Reduce several rows at a time in the canonical order, in which slabs begin where spans do.

        Args:
            unit: the elements in a span.
            together: the rows that a slab should have.

        Raises:
            GpuscanError: the fewest rows that end with a span do not fit a binding.
        """
        spec, problem = self._spec, self._problem
        if problem.inner > 1:
            scan_host(
                self._executor,
                problem.with_rows_together(map(problem.by_rows, self._leaves)),
                self._strategy,
                outputs=self._results,
                piece_bytes=self._piece_bytes,
                **self._options,
            )
            return
        most = device_piece_length(spec, 1, self._executor.context.capabilities) // spec.row_length
        together = rows_in_whole_units(spec, unit, together) or rows_in_whole_units(spec, unit, most)
        if not together and spec.rows > most:
            raise spans_too_long(self._executor.context, spec)
        self._run_parts(slabs(spec, self._tiles(spec)[0], together or spec.rows), spec, in_slabs=True)

    def _reduce_row_by_row(self) -> None:
        problem = self._problem
        moved = [np.moveaxis(leaf, problem.axis, len(problem.shape) - 1) for leaf in self._leaves]
        others = moved[0].shape[: len(problem.shape) - 1]
        seeds = problem.numpy_seeds
        for row in range(problem.rows):
            index = np.unravel_index(row, others)
            of_row = replace(
                problem,
                leaves=tuple(leaf[index] for leaf in moved),
                shape=(problem.row_length,),
                axis=0,
                seeds=None if seeds is None else tuple(seed[row : row + 1] for seed in seeds),
            )
            outputs = [result[row : row + 1] for result in self._results]
            scan_host(
                self._executor, of_row, self._strategy, outputs=outputs, piece_bytes=self._piece_bytes, **self._options
            )

    # ----- Slabs of rows and columns

    def _run_slabs(self) -> bool:
        """Scan slab by slab. Return False if a single column does not fit."""
        spec, context = self._spec, self._executor.context
        mapped = any(map(is_mapped_file, self._leaves))
        tile = self._options.get("tile") or slab_tile(context, spec)
        h = heuristics_for(context.capabilities.adapter_type)
        wanted = h.mapped_slab_bytes if mapped else h.slab_bytes
        together, columns = slab_size(spec, tile, context.capabilities, wanted)
        if not columns:
            return False
        self._run_parts(slabs(spec, tile, together, columns), spec, in_slabs=True)
        return True

    def _run_with_rows_together(self) -> None:
        """Make the elements of each row neighbours in memory, on the CPU, and scan the array of rows."""
        problem = self._problem
        rows = problem.with_rows_together(map(problem.by_rows, self._leaves))
        if rows.leaves[0] is problem.leaves[0]:
            raise row_too_long(self._executor.context, self._spec)
        scanned = scan_host(self._executor, rows, self._strategy, **self._options)
        for result, values in zip(self._results, scanned, strict=True):
            result[...] = problem.from_rows(values)

    # ----- The job

    def _run_parts(
        self,
        parts: Iterable[Part],
        spec: ScanSpec,
        *,
        in_slabs: bool = False,
        whole: bool = False,
        flipped: bool = False,
        uploads_whole: bool = False,
        sinks: Sequence[HostSink | DeviceSink] | None = None,
    ) -> None:
        problem, context = self._problem, self._executor.context
        # Results of a segmented reduction are then brought into the order of the array at the end.
        rows_together = spec.inner != problem.inner

        def endpoint(array: AnyArray, field: Field) -> HostRows | HostSlabs:
            if in_slabs:
                return HostSlabs(array, problem.shape, problem.axis, field)
            array = np.flip(array, problem.axis) if flipped else array
            return HostRows(array, problem.shape, len(problem.shape) - 1 if whole else problem.axis, field)

        sources = [
            DeviceSource(place_on_device(context, leaf), f, 1) if uploads_whole else endpoint(leaf, f)
            for leaf, f in zip(self._leaves, problem.source.fields, strict=True)
        ]
        on_device: list[DeviceArray] = []
        if spec.reduces_segments:
            fields = problem.destination.fields
            segments = problem.results_shape[problem.axis]
            lead = (problem.rows, segments) if rows_together else problem.results_shape
            on_device = [empty(context, (*lead, *f.shape), f.scalar.dtype) for f in fields]
            sinks = device_sinks(context, problem, spec, on_device, partial(segment_ranks, self._executor))
        elif sinks is None:
            sinks = [
                RowResults(result, f, spec.inner if in_slabs else 1) if problem.keep_last_only else endpoint(result, f)
                for result, f in zip(self._results, problem.destination.fields, strict=True)
            ]
        # A slab binds the seeds of its own rows alone.
        seeds = seed_words(problem, spec, None if in_slabs else context)
        job = Job(
            spec,
            self._strategy,
            sources,
            sinks,
            seeds=seeds,
            heads=self._heads(spec),
            options=self._options,
            writes_back_apart=True,
        )
        done = 0
        for part in self._executor.run(job, parts):
            done += part.length
            report_progress(done * problem.source.storage_bytes)
        for array, result in zip(on_device, self._results, strict=False):
            content = array._read()
            result[...] = problem.from_rows(content) if rows_together else content

    def _heads(self, spec: ScanSpec) -> HeadBits | None:
        heads = self._problem.heads
        if heads is None:
            return None
        if heads.on_device:
            return MarkedHeads(self._executor.context, heads, spec.inner > 1)
        return UploadedHeads(heads, spec.inner > 1)


class RowResults:
    """A sink with one result for each row: (rows, *element shape)."""

    def __init__(self, array: AnyArray, field: Field, inner: int) -> None:
        self._rows, self._inner = array, inner
        self._field = field
        self.element_bytes = field.storage_bytes

    def write_back(self, part: Part, memory: AnyArray) -> None:
        """Take the part's results."""
        content = memory.view(self._field.scalar.dtype)
        if not part.is_slab:
            self._rows[...] = content.reshape(self._rows.shape)
            return
        matrices = self._rows.reshape(-1, self._inner, *self._field.shape)
        target = matrices[part.outer, part.columns]
        target[...] = content.reshape(target.shape)


# ----- Arrays of another memory order


def transposes_on_device(context: DeviceContext, leaf: AnyArray) -> bool:
    """Return True if `place_on_device` lets the device bring an array into C order.

    The array must be one block of memory in another order. Adapters that share the CPU's memory gain nothing by it.
    """
    least = heuristics_for(context.capabilities.adapter_type).min_transposed_bytes
    if leaf.flags.c_contiguous or least is None:
        return False
    fits = least <= leaf.nbytes <= context.binding_limit
    return bool(fits and leaf.transpose(memory_order(leaf)).flags.c_contiguous)


def memory_order(leaf: AnyArray) -> list[int]:
    """Return the axes, the one with the largest step first."""
    return sorted(range(leaf.ndim), key=lambda axis: -abs(leaf.strides[axis]))


def place_on_device(context: DeviceContext, leaf: AnyArray) -> DeviceArray:
    """Return a copy of a NumPy array on the device, in C order."""
    if not transposes_on_device(context, leaf):
        return upload_array(context, leaf)
    array = upload_array(context, leaf.transpose(memory_order(leaf)))
    view = StridedView(array, 0, leaf.shape, leaf.strides, leaf.dtype.itemsize)
    return copy_view(view, leaf.shape, leaf.dtype)


# ----- Small arrays


def scan_small(executor: Executor, problem: Problem, strategy: str, results: Sequence[AnyArray]) -> bool:
    """Scan small arrays on the device: one upload of each, one submission and one wait.

    Args:
        problem: the scan.
        strategy: as in `gpuscan.scan`.
        results: the arrays to write.

    Returns:
        True if the results are written; False if the arrays need more than one copy, or if the run timed out. The
        caller then scans in the long way.
    """
    context = executor.context
    most = min(TRANSFERS.single_write_bytes, context.binding_limit)
    if any(array.nbytes > most for array in (*problem.numpy_leaves, *results)):
        return False
    with context.lock:
        # Reports of earlier calls are read first, so that a failure below is this call's own.
        context.check()
        pairs = zip(problem.numpy_leaves, problem.source.fields, strict=True)
        leaves = tuple([upload_array(context, leaf, f.scalar.dtype) for leaf, f in pairs])
        placed = problem.with_leaves(leaves)
        scanned = launch_of_kind(placed, strategy, lambda _: scan_device(executor, placed, strategy))
        try:
            contents = context.read_and_check(*((array.buffer, array.offset, array.nbytes) for array in scanned))
        except ProgressTimeoutError:
            return False
    for array, content, result in zip(scanned, contents, results, strict=True):
        result[...] = content.view(array.dtype).reshape(result.shape)
    report_progress(problem.size * problem.source.storage_bytes)
    return True
