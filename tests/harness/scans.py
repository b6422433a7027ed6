"""Scans under test conditions, and what the planner decides for them."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import wgpu

import gpuscan as gs
from gpuscan.api import plan as plan_module
from gpuscan.api.linear_recurrence import gradients
from gpuscan.api.reductions import of_segments
from gpuscan.api.scan_chunks import Stream, chunk_problems
from gpuscan.elements import min_chunk
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.host_arrays import scan_host
from gpuscan.engine.plan_steps import find_piece_position
from gpuscan.engine.segment_heads import segment_heads
from gpuscan.engine.streams import scan_stream
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.heuristics import GPU, heuristics_for
from gpuscan.planning.kernel_parts import InjectedFaults
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tile_shapes import ColumnTile, RowTile, TileShape
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.chunk_cuts import chunk_cuts
from gpuscan.problem.problem import Problem, ProblemOptions
from gpuscan.problem.problem import make_problem as problem_of
from gpuscan.problem.segments import heads_of
from tests.oracle import Array

Tile = TileShape | ColumnTile | RowTile

# Sizes at which gpuscan goes another way. Tests use arrays on both sides of them.
SMALL_ARRAY_BYTES = TRANSFERS.single_write_bytes
MANY_TILES = GPU.min_tiles_for_fold
# The shortest row with tiles of its own, in elements.
MIN_ROW = GPU.min_row


def single_piece_bytes(device: gs.Device) -> int:
    """Return the bytes up to which the device scans a NumPy array in one piece."""
    return heuristics_for(device.capabilities.adapter_type).single_piece_bytes


def piece_bytes(adapter_type: str) -> int:
    """Return the most bytes in a piece of chunks, or of a NumPy array, on an adapter of the type."""
    return heuristics_for(adapter_type).piece_bytes


# ----- Scans under test conditions


def record_and_submit(gpu: wgpu.GPUDevice, plan: gs.Plan, source: Any, target: Any, **options: Any) -> Any:
    """Record a plan, submit it without waiting, and return the target."""
    encoder = gpu.create_command_encoder()
    plan.record(encoder, source, target, **options)
    gpu.queue.submit([encoder.finish()])
    return target


def make_problem(x: Any, op: Any = "add", **options: Any) -> Problem:
    """Return the normalised request of ``gs.scan(x, op, **options)``."""
    return problem_of(x, op, **options)


def segments_of(x: Any, op: Any, **options: Any) -> Problem:
    """Return the normalised request of ``gs.reduce(x, op, segments=..., **options)``."""
    return of_segments(find_or_make_problem(x, resolve(op), exclusive=False, reverse=False, **options))


def scan_with(
    device: gs.Device,
    problem: Problem,
    strategy: str = "auto",
    *,
    tile: Tile | None = None,
    withheld: int = 0,
    scheduler: str = "",
    prefix_period: int = 0,
    one_workgroup_folds: bool | None = None,
    piece_bytes: int | None = None,
    out: list[Array] | None = None,
) -> list[Array]:
    """Run a scan of NumPy arrays under test conditions.

    Args:
        device: the device to run on.
        problem: the request, from `make_problem`.
        strategy: as in `gs.scan`.
        tile: the tile to use (default: the planner's).
        withheld: leave out the post of every tile of this period, as if its workgroup never ran on.
        scheduler: delay workgroups (``"random"``), run one at a time (``"serial"``), or let them start in bursts
            (``"bursts"``).
        prefix_period: let only every tile of columns of this period post the prefix of the next one.
        one_workgroup_folds: whether one waiting workgroup computes the prefixes of all tiles (default: the planner's
            choice by the number of tiles).
        piece_bytes: scan the array in pieces of this size (default: by the size of the array).
        out: arrays to write to.

    Returns:
        One array for each field of the result, in the shape of the input.
    """
    options: dict[str, Any] = {}
    if tile is not None:
        options["tile"] = tile
    if withheld or scheduler or prefix_period:
        options["test_build"] = InjectedFaults(withheld, scheduler, prefix_period)
    if one_workgroup_folds is not None:
        options["one_workgroup_folds"] = one_workgroup_folds
    return scan_host(device._executor, problem, strategy, piece_bytes=piece_bytes, outputs=out, **options)


def scan_on_device_with(
    device: gs.Device, problem: Problem, strategy: str = "auto", *, tile: Tile | None = None, out: list[gs.Array]
) -> None:
    """Scan arrays on a device into other ones there; arguments as in `scan_with`."""
    options: dict[str, Any] = {} if tile is None else {"tile": tile}
    scan_device(device._executor, problem, strategy, out=out, **options)


def scan_chunks_with(
    device: gs.Device,
    chunks: Iterable[Array] | Iterable[gs.Array],
    *,
    piece_bytes: int,
    segments: Any = None,
    keys: Any = None,
    on_device: bool = False,
    **more: Any,
) -> Generator[Any, None, None]:
    """Return the running sums of chunks, scanned in pieces of a given size; `more` are further options of a problem."""
    options: ProblemOptions = {"axis": 0, "exclusive": False, "reverse": False, **more}  # type: ignore[typeddict-item]
    pairs = chunk_problems(chunks, Stream("add", options, False, chunk_cuts(segments, keys), "auto"))
    problems = (problem for _, problem in pairs)
    stream = scan_stream(device._executor, next(problems), problems, "auto", piece_bytes, on_device=on_device)
    with closing(stream):
        yield from (result for (result,) in stream)


def gradients_of(a: Any, h: Any, grad_h: Any, *, where: gs.Device | str | None, **options: Any) -> tuple[Any, Any, Any]:
    """Return what `gs.linear_recurrence_vjp` does, for NumPy arrays on a chosen device."""
    options = {"axis": -1, "initial": None, "reverse": False} | options
    return gradients(a, h, grad_h, device=where, **options)


def device_marks(
    device: gs.Device, shape: tuple[int, ...], axis: int, reverse: bool, in_columns: bool, **cuts: Any
) -> tuple[Array, Array]:
    """Return the segment marks that the device makes of ``segments=`` or ``keys=``, and the marks of the CPU."""
    heads = heads_of(cuts.get("segments"), cuts.get("keys"), shape, axis, reverse)
    assert heads is not None
    made = segment_heads(device._context, heads, in_columns=in_columns)._read()
    if not in_columns:
        return made, heads.words(0, heads.size)
    return made, heads.row_words if heads.cuts_rows_alike else heads.column_words(None, None)


def origin_of_piece(start: int, row_length: int) -> tuple[int, int, int]:
    """Return the numbers that a shader gets of a piece that starts at an element.

    Returns:
        The row of the piece's first element, that element's offset in the row, and the row's length, each made small
        enough for 32 bits.
    """
    length, row, offset = find_piece_position(start, row_length)
    return row, offset, length


# ----- What the planner decides


def plan_with(
    device: gs.Device,
    problem: Problem,
    strategy: str,
    *,
    tile: Tile | None = None,
    scheduler: str = "",
    one_workgroup_folds: bool | None = None,
    reason: str = "as asked",
) -> ScanPlan:
    """Return the plan that `scan_with` runs under the same conditions."""
    work = scan_spec(problem, device.capabilities)
    options: dict[str, Any] = {"tile": tile, "one_workgroup_folds": one_workgroup_folds}
    if scheduler:
        options["test_build"] = InjectedFaults(0, scheduler)
    return plan_scan(work, device.capabilities, strategy, reason, **options)


@dataclass(frozen=True)
class KernelTraits:
    """What a test has to know about a stage's shader to be sure that it tests what it says.

    Attributes:
        one_workgroup_folds: one waiting workgroup computes the prefixes of all tiles.
        looks_at_blocks: a whole subgroup looks at a block of tiles at once.
        reads_ahead: the folding workgroup reads one block while it scans another.
        blocks_at_once: how many blocks it reads at a time.
        keeps_storage: packed numbers stay packed in registers, and are scanned twice.
        uses_workgroup_memory: elements pass through workgroup memory on their way in and out.
        starts_at_the_end: the last tiles are handed out first.
        shares_words: invocations store parts of one 32-bit word.
    """

    one_workgroup_folds: bool
    looks_at_blocks: bool
    reads_ahead: bool
    blocks_at_once: int
    keeps_storage: bool
    uses_workgroup_memory: bool
    starts_at_the_end: bool
    shares_words: bool


def traits_of(plan: ScanPlan | plan_module.Plan) -> dict[str, KernelTraits]:
    """Return the traits of each stage of a plan, by the stage's name."""
    inner = plan._plan if isinstance(plan, plan_module.Plan) else plan
    kernels = [stage.kernel for stage in inner.stages]
    return {
        kernel.stage: KernelTraits(
            one_workgroup_folds=kernel.wait_policy.one_workgroup_folds,
            looks_at_blocks=kernel.reloads_after_help,
            reads_ahead=kernel.fold.reads_ahead,
            blocks_at_once=kernel.fold.blocks,
            keeps_storage=kernel.keeps_storage_form,
            uses_workgroup_memory=kernel.exchanges_chunks,
            starts_at_the_end=kernel.last_tiles_first,
            shares_words=any(kernel.shares_words(field) for field in kernel.spec.destination.fields),
        )
        for kernel in kernels
    }


def tile_of(plan: plan_module.Plan) -> Tile:
    """Return the tile of a plan that `Device.plan` made."""
    return plan._plan.tile


def find_tile(device: gs.Device, problem: Problem) -> Tile:
    """Return the tile that the planner takes for a problem on the device."""
    return device._executor.planner.plan(scan_spec(problem, device.capabilities), "auto").tile


def smallest_chunk(device: gs.Device, problem: Problem) -> int:
    """Return how many elements an invocation must take at least, so that they fill whole words."""
    return min_chunk(problem.source, problem.destination)
