"""Runs a problem on a device: from the caller's arrays to the result's, and again where a strategy gave up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.guards import guarded
from gpuscan.device.submission import submit
from gpuscan.device.transfer import (
    Walk,
    bytes_of,
    copy,
    is_mapped_file,
    map_for_reading,
    padded,
    read_mapped,
    staging_ring,
    upload,
)
from gpuscan.elements import Element, Field, words_of
from gpuscan.engine.attempts import note_size, plan_for, retry, unfit
from gpuscan.engine.direct import run_as_it_lies
from gpuscan.engine.record import REPORT_BYTES, record
from gpuscan.engine.streams import Piece, Stream
from gpuscan.errors import GpuscanError, UnsupportedDtypeError, smaller
from gpuscan.planning.plan import ScanPlan
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.field_packing import binds_too_many, packed, unpacked

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device
    from gpuscan.problem.problem import Problem

Rows = list[np.ndarray[Any, Any]]
Progress = Callable[[int], None]

_watcher: ContextVar[Progress | None] = ContextVar("gpuscan_progress", default=None)


@contextmanager
def watched(progress: Progress) -> Iterator[None]:
    """Let `progress` be called with the bytes of input done so far by scans of large arrays inside the ``with``."""
    token = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(token)


def report_progress(done: int) -> None:
    """Tell whoever watches of the bytes of input done so far."""
    progress = _watcher.get()
    if progress is not None:
        progress(done)


SINGLE_PASS_BYTES = 4 << 20  # arrays up to this are scanned by one submission; larger ones in overlapping pieces
BESIDE_BYTES = 256  # of the report, and of gaps between results, that a submission reads back in one buffer with them
PLANS_KEPT = 512


def run(
    device: Device,
    problem: Problem,
    strategy: str = "auto",
    *,
    outputs: Rows | None = None,
    piece_bytes: int | None = None,
    **options: Any,
) -> Rows:
    """The result of the problem: one array (rows, row_length, *element shape) for each field.

    Under ``"auto"`` a strategy that runs out of its bounds is distrusted from then on, and the work done again by
    the next one; asked for by name, it raises.

    Args:
        device: where to run.
        problem: what was asked for.
        strategy: as in `gpuscan.scan`.
        outputs: arrays of the result's shape; large results are written to them piece by piece, and left out of
            what is returned.
        piece_bytes: scan in pieces of so many bytes; left out, large arrays are, and in pieces that suit the adapter.
        options: `tile`, `one_workgroup_folds` and `test_build`, as in `plan_scan`.

    Raises:
        ProgressTimeoutError: the strategy that was asked for by name gave up waiting.
    """
    check_dtypes(device, problem.source, problem.element, problem.destination)
    if binds_too_many(device, problem):
        rows = run(device, packed(device, problem), strategy, piece_bytes=piece_bytes, **options)
        return written(problem, unpacked(problem, rows), outputs)
    with guarded(device):
        in_columns = problem.in_columns and not isinstance(options.get("tile"), TileShape)
        if problem.shifts or in_columns or turned_there(device, problem, options):
            results = run_as_it_lies(device, problem, strategy, outputs, **options)
            return [] if outputs is not None else [problem.by_rows(result) for result in results]
        largest = max(problem.source.storage_bytes, problem.destination.storage_bytes) * problem.size
        limits = device.wgpu_device.limits
        most = min(
            SINGLE_PASS_BYTES, limits["max-storage-buffer-binding-size"], limits["max-buffer-size"] - BESIDE_BYTES
        )
        if piece_bytes is not None or largest > most:
            return run_pieces(device, problem, strategy, outputs, piece_bytes, options)
        return run_whole(device, problem, strategy, options)


def turned_there(device: Device, problem: Problem, options: dict[str, Any]) -> bool:
    """Whether rows that lie one after the other, but for the array's memory order, are brought so by the device."""
    from gpuscan.engine.transpose import turns_on

    return problem.inner == 1 and not options and any(turns_on(device, leaf) for leaf in problem.leaves)


def written(problem: Problem, rows: Rows, outputs: Rows | None) -> Rows:
    """The rows, or nothing, once they are written to the outputs."""
    for output, result in zip(outputs or (), rows, strict=outputs is not None):
        output[...] = problem.from_rows(result)
    return rows if outputs is None else []


def check_dtypes(device: Device, *elements: Element) -> None:
    """Raise UnsupportedDtypeError where the device cannot hold a field of one of the elements."""
    for field in (field for element in elements for field in element.fields):
        if field.scalar.name == "float64" and not device.capabilities.float64:
            raise UnsupportedDtypeError(
                f"float64 was asked for, but {device.capabilities.summary} has no 64-bit floats. Pass "
                'dtype=np.float32 to combine in 32 bits, or device="numpy" to run on the CPU'
            )


def work_of(device: Device, problem: Problem, *, carried: bool = False) -> ScanSpec:
    """Return what decides the problem's shaders on this device."""
    return scan_spec(problem, device.capabilities, carried=carried)


def planned(device: Device, problem: Problem, strategy: str, **options: Any) -> ScanPlan:
    """The plan of a problem, kept for later calls of its kind."""
    key = (
        problem.operator,
        problem.source,
        problem.element,
        problem.destination,
        problem.before,
        problem.after,
        problem.rows,
        problem.row_length,
        problem.inner,
        problem.reverse,
        problem.exclusive,
        problem.initial,
        problem.shifts,
        problem.seeds is None,
        problem.heads is None,
        problem.ends,
        problem.moves,
        device.strategy(strategy),
        device.capabilities.distrusted,
        *options.items(),
    )
    plans = device.plans_kept
    with device.lock:
        plan = plans.get(key)
        if plan is None or unfit(device, plan):
            plans[key] = plan = plan_for(device, work_of(device, problem), strategy, **options)
            if len(plans) > PLANS_KEPT:
                plans.popitem(last=False)
        else:
            plans.move_to_end(key)
        return plan


def seed_words(device: Device, problem: Problem) -> np.ndarray[Any, Any] | None:
    """The words of the rows' seeds.

    Raises:
        GpuscanError: they are larger than a binding.
    """
    if problem.seeds is None:
        return None
    words = words_of(problem.seed_element, problem.seeds)
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    if words.nbytes > limit:
        raise GpuscanError(
            f"a scan of {problem.rows} rows was asked for, whose initial values, or identities, are {words.nbytes} "
            f"bytes; {device.capabilities.summary} binds at most {limit}. {smaller(problem.rows)}"
        )
    return words


def run_whole(device: Device, problem: Problem, strategy: str, options: dict[str, Any]) -> Rows:
    """The scan of a small array: one submission and one map."""
    while True:
        plan = planned(device, problem, strategy, **options)
        outcome, rows = run_plan(device, problem, plan)
        if outcome == "done":
            return rows
        retry(device, outcome, plan.strategy, strategy)


def run_plan(device: Device, problem: Problem, plan: ScanPlan) -> tuple[str, Rows]:
    """Upload, dispatch, read back: ``"done"`` and the rows, or ``"timeout"`` or ``"width"``."""
    flags = device.usage
    usage, read_usage = flags.STORAGE | flags.COPY_DST | flags.COPY_SRC, flags.MAP_READ | flags.COPY_DST
    leaves = [problem.by_rows(leaf) for leaf in problem.leaves]
    rows = [np.empty((problem.rows, problem.row_length, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    places = [REPORT_BYTES]  # in the staging buffer: the report, then each result
    for row in rows:
        places.append(places[-1] + padded(row.nbytes, ALIGNMENT))
    seeds = seed_words(device, problem)
    taken: list[wgpu.GPUBuffer] = []

    def bind(nbytes: int, array: np.ndarray[Any, Any] | None) -> Binding:
        size = padded(nbytes, ALIGNMENT)
        buffer = device.pool.take(size, usage)
        taken.append(buffer)
        if array is not None:
            upload(device.wgpu_device, array, buffer, pool=device.pool)
        return Binding(buffer, 0, size)

    with device.lock:
        try:
            sources = [bind(leaf.nbytes, leaf) for leaf in leaves]
            destinations = [bind(row.nbytes, None) for row in rows]
            seed_binding = None if seeds is None else bind(seeds.nbytes, seeds)
            marks = None if problem.heads is None else problem.heads.words(0, problem.size)
            heads = {} if marks is None else {"heads": bind(marks.nbytes, marks)}
            encoder = device.wgpu_device.create_command_encoder()
            ran = record(device, plan, encoder, sources, destinations, seed_binding, beside=heads)
            with staging_ring(device.pool, read_usage, places[-1], 1) as (staging,):
                if plan.reports:
                    encoder.copy_buffer_to_buffer(ran.state, 0, staging, 0, REPORT_BYTES)
                for binding, row, place in zip(destinations, rows, places, strict=False):
                    encoder.copy_buffer_to_buffer(binding.buffer, 0, staging, place, padded(row.nbytes))
                submit(device.wgpu_device, encoder.finish())
                map_for_reading(staging, places[-1]).sync_wait()
                read = read_mapped(staging, places[-1])
                report = read[:REPORT_BYTES].view(np.uint32).tolist()
                for row, place in zip(rows, places, strict=False):
                    copy(bytes_of(row), read[place : place + row.nbytes])
                staging.unmap()
        finally:
            for buffer in taken:
                device.pool.give(buffer)
    ran.check_turns(report)
    if plan.reports and ran.width_differed(report):
        note_size(device, plan, differed=True)
        return "width", rows
    return ("timeout" if plan.reports and ran.timed_out(report) else "done"), rows


def run_pieces(
    device: Device,
    problem: Problem,
    strategy: str,
    outputs: Rows | None,
    piece_bytes: int | None,
    options: dict[str, Any],
) -> Rows:
    """The scan of a large array, piece by piece; where pieces are no whole rows, the CPU turns rows."""
    seeds = seed_words(device, problem)
    stream = Stream(device, work_of(device, problem), strategy, seeds=seeds, piece_bytes=piece_bytes, **options)
    turns = problem.reverse and problem.rows > 1  # also of columns, which are brought together
    if turns and stream.unit % problem.row_length:
        turned = None if outputs is None else [np.flip(output, problem.axis) for output in outputs]
        rows = run_pieces(device, forwards(problem), strategy, turned, piece_bytes, options)
        return [row[:, ::-1] for row in rows]
    walks = [walk(problem, leaf, field) for leaf, field in zip(problem.leaves, problem.source.fields, strict=True)]
    fields = problem.destination.fields
    shape = (problem.rows, problem.row_length)
    rows = [np.empty((*shape, *field.shape), field.scalar.dtype) for field in fields] if outputs is None else []
    if outputs is None:
        results = [Walk(row, shape, 1, row.dtype) for row in rows]
    else:
        results = [Walk(o, problem.shape, problem.axis, f.scalar.dtype) for o, f in zip(outputs, fields, strict=True)]

    def place(start: int, count: int) -> int:
        return problem.size - start - count if problem.reverse and problem.rows == 1 else start

    def pieces(length: int) -> Iterator[Piece]:
        for start in range(0, problem.size, length):
            count = min(length, problem.size - start)
            at = place(start, count)
            yield Piece(
                start,
                count,
                start + count == problem.size,
                lambda field, memory, at=at: walks[field].read(at, memory),  # type: ignore[misc]
                lambda field, memory, at=at: results[field].write(at, memory),  # type: ignore[misc]
                None if problem.heads is None else problem.heads.words(start, count),
            )

    for piece in stream.run(pieces(stream.piece_length)):
        report_progress((piece.start + piece.length) * problem.source.storage_bytes)
    return rows


def forwards(problem: Problem) -> Problem:
    """The scan of the rows turned round, of which the one that was asked for is the result turned round."""
    return replace(problem, leaves=tuple(np.flip(leaf, problem.axis) for leaf in problem.leaves), reverse=False)


def walk(problem: Problem, leaf: np.ndarray[Any, Any], field: Field) -> Walk:
    """A leaf as the scan reads it: in place in a file, and of rows turned round; else a copy of what lies otherwise."""
    turned = not leaf.flags.c_contiguous and np.flip(leaf, problem.axis).flags.c_contiguous
    if is_mapped_file(leaf) or turned:
        return Walk(leaf, problem.shape, problem.axis, field.scalar.dtype)
    return Walk(problem.by_rows(leaf), (problem.rows, problem.row_length), 1, field.scalar.dtype)
