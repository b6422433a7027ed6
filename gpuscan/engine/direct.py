"""Runs a problem as its arrays lie, without bringing rows together: whole, or part by part of its rows and columns."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.transfer import is_mapped_file, release_pages
from gpuscan.engine.attempts import fits_beside
from gpuscan.errors import GpuscanError
from gpuscan.planning.column_tiles import column_chunk, column_tile
from gpuscan.planning.heuristics import CPU
from gpuscan.planning.plan import LENGTH_LIMIT
from gpuscan.planning.tile_shapes import ColumnTile
from gpuscan.planning.tiles import tile_shape

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.planning.tile_shapes import TileShape
    from gpuscan.problem.problem import Problem

PART_BYTES = 512 << 20  # of the largest field's share of a part
MAPPED_PART_BYTES = 16 << 20  # the same where the arrays lie in files, which may be larger than memory

Arrays = list[np.ndarray[Any, Any]]


def run_as_it_lies(device: Device, problem: Problem, strategy: str, outputs: Arrays | None, **options: Any) -> Arrays:
    """The result of the problem: one array (*shape, *element shape) for each field, or `outputs`, written.

    Every row is a scan of its own, so an array that is too large for one part is cut between rows. The tile is that
    of the whole array, and so are the bits.

    Raises:
        GpuscanError: one row alone is larger than a binding.
    """
    from gpuscan.engine.device_arrays import scan_on_device
    from gpuscan.engine.host_arrays import report_progress, work_of
    from gpuscan.engine.transpose import place

    if problem.inner > 1 and not (problem.in_columns and fits_columns(device, problem)):
        return run_by_rows(device, problem, strategy, outputs, options)
    outer, inner = prod(problem.shape[: problem.axis]), problem.inner
    shape = (outer, problem.row_length, inner)
    fields = problem.destination.fields
    results = outputs or [np.empty((*problem.shape, *f.shape), f.scalar.dtype) for f in fields]
    shape_of = column_tile if problem.in_columns else tile_shape
    tile = options.get("tile") or shape_of(work_of(device, problem), device.capabilities)
    together, columns = part_size(device, problem, shape, tile)
    if not columns:
        return run_by_rows(device, problem, strategy, outputs, options)
    options["tile"] = narrowed(tile, columns)
    seeds = [seed.reshape(outer, inner, *seed.shape[1:]) for seed in problem.seeds or ()]
    parts = [
        (slice(first, min(first + together, outer)), slice(column, min(column + columns, inner)))
        for first in range(0, outer, together)
        for column in range(0, inner, columns)
    ]
    done = 0
    written = results
    if len(parts) > 1:
        leaves = [leaf.reshape(*shape, *leaf.shape[len(problem.shape) :]) for leaf in problem.leaves]
        written = [r if r.flags.c_contiguous else np.empty(r.shape, r.dtype) for r in results]
    for outers, across in parts:
        part = problem
        if len(parts) > 1:
            part = replace(
                problem,
                leaves=tuple(np.ascontiguousarray(leaf[outers, :, across]) for leaf in leaves),
                shape=(outers.stop - outers.start, problem.row_length, across.stop - across.start),
                axis=1,
                seeds=tuple(s[outers, across].reshape(-1, *s.shape[2:]) for s in seeds) if seeds else None,
            )
        sources = [place(device, leaf) for leaf in part.leaves]
        targets = [device.empty((*part.shape, *f.shape), f.scalar.dtype) for f in fields]
        with device.lock:
            scan_on_device(device, part, strategy, sources, targets, in_place=False, **options)
        for result, target in zip(written, targets, strict=True):
            if len(parts) > 1:
                view = result.reshape(*shape, *result.shape[len(problem.shape) :])
                view[outers, :, across] = target.numpy()
            else:
                result[...] = target.numpy()
        done += part.size
        report_progress(done * problem.source.storage_bytes)
        for array in (*problem.leaves, *results):
            release_pages(array)
    for result, content in zip(results, written, strict=True):
        if result is not content:
            result[...] = content
    return results


def run_by_rows(
    device: Device, problem: Problem, strategy: str, outputs: Arrays | None, options: dict[str, Any]
) -> Arrays:
    """The same where neighbouring columns share words, and no part is of whole ones: rows are brought together."""
    from gpuscan.engine.host_arrays import run

    fields = problem.destination.fields
    outputs = outputs or [np.empty((*problem.shape, *f.shape), f.scalar.dtype) for f in fields]
    rows = replace(
        problem,
        leaves=tuple(problem.by_rows(leaf) for leaf in problem.leaves),
        shape=(problem.rows, problem.row_length),
        axis=1,
    )
    options = {name: option for name, option in options.items() if not isinstance(option, ColumnTile)}
    for output, result in zip(outputs, run(device, rows, strategy, **options), strict=True):
        output[...] = problem.from_rows(result)
    return outputs


def largest_part(device: Device, problem: Problem) -> int:
    """The elements of an array that a shader can bind and index."""
    largest = max(field.storage_bytes for field in (*problem.source.fields, *problem.destination.fields))
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    return int(min(limit // largest, LENGTH_LIMIT - 1))


def fits_columns(device: Device, problem: Problem) -> bool:
    """Whether a part can hold as many columns as fill whole words."""
    chunk = column_chunk(problem.source, problem.destination, problem.inner)
    return problem.row_length * chunk <= largest_part(device, problem)


def narrowed(tile: TileShape | ColumnTile, columns: int) -> TileShape | ColumnTile:
    """The tile for a part of so many columns: as high, hence of the same bits, and no wider than need be."""
    if not isinstance(tile, ColumnTile):
        return tile
    wanted = 1 << (-(-columns // tile.chunk) - 1).bit_length()
    return replace(tile, columns=min(tile.columns, max(wanted, -(-CPU.min_column_workgroup // tile.groups))))


def part_size(
    device: Device, problem: Problem, shape: tuple[int, int, int], tile: TileShape | ColumnTile
) -> tuple[int, int]:
    """The outer arrays and columns of a part: as many as a binding, 32-bit indices and `PART_BYTES` allow.

    A binding holds each of the part's arrays, and what its tiles tell each other; (1, 0) where it holds too little of
    the latter for any columns.

    Raises:
        GpuscanError: one row alone is larger than a binding.
    """
    from gpuscan.engine.host_arrays import work_of

    outer, length, inner = shape
    fields = (*problem.source.fields, *problem.destination.fields)
    wanted = MAPPED_PART_BYTES if any(map(is_mapped_file, problem.leaves)) else PART_BYTES
    row_bytes = length * max(f.storage_bytes for f in fields)
    bound = largest_part(device, problem)
    most = min(bound, max(wanted, 4 * row_bytes) // max(f.storage_bytes for f in fields))  # elements of a part
    if length > most:
        raise GpuscanError(
            f"a row of {length} elements was passed; {device.capabilities.summary} takes {bound} of them at a time. "
            'Cut the row, or compute on NumPy: pass NumPy arrays, and device="numpy" or GPUSCAN_ADAPTER=numpy in the '
            "environment"
        )
    work = work_of(device, problem)
    chunk = column_chunk(problem.source, problem.destination, inner)
    while True:
        wide = most // length >= inner
        columns = inner if wide else most // length
        if not wide:  # packed numbers fill whole words
            columns = columns // 4 * 4 if columns >= 4 else max(1, columns // chunk) * chunk
        together = min(outer, max(1, most // (length * inner))) if wide else 1
        part = replace(work, rows=together * columns, inner=columns if problem.in_columns else 1)
        if fits_beside(device, part, tile=narrowed(tile, columns)):
            return together, columns
        if together == 1 and columns <= 4:
            return 1, 0 if problem.in_columns else columns
        most = together * columns // 2 * length
