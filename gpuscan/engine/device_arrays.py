"""Scans of arrays on a device: submitted, and not waited for.

A single pass can give up waiting, which only its report tells. Where that has to be reckoned with, the call waits for
the report; where it does not (`needs_report`), reports are read when the next array is, or `Device.synchronize`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array, empty
from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.guards import guarded
from gpuscan.device.submission import submit
from gpuscan.device.transfer import download, padded, upload
from gpuscan.engine.attempts import fits_beside, note_size, retry, unfit
from gpuscan.engine.host_arrays import check_dtypes, planned, run, seed_words, work_of
from gpuscan.engine.record import Origin, Run, read_report, record, turns_error
from gpuscan.engine.segment_heads import mark
from gpuscan.engine.subgroup_check import proves, unproven
from gpuscan.engine.transpose import scan_transposed
from gpuscan.errors import GpuscanError, ProgressTimeoutError, StrategyError, smaller
from gpuscan.planning.kernel import LOOP_LIMIT_WORD, STATUS_WORD, SUBGROUP_SIZE_WORD
from gpuscan.planning.kernel_parts import Placement
from gpuscan.planning.plan import ScanPlan, plan_scan, reverses_rows, shares_words
from gpuscan.planning.strategies import PUBLISHED_PROGRESS
from gpuscan.planning.tuned_tiles import best_tile
from gpuscan.problem.field_packing import binds_too_many

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.planning.tile_shapes import ColumnTile, TileShape
    from gpuscan.problem.problem import Problem

UNCHECKED_MOST = 256  # runs


def scan_arrays(problem: Problem, out: Sequence[Any] | None, device: Device | str | None, strategy: str) -> list[Array]:
    """The result of a problem whose leaves are on a device, on that device.

    Raises:
        ValueError, TypeError: the leaves are on several devices, or `out` does not fit.
        StrategyError: the strategy cannot scan in place.
        ProgressTimeoutError: a strategy that was asked for by name gave up waiting.
    """
    home = home_of(problem, device)
    check_dtypes(home, problem.source, problem.element, problem.destination)
    results = results_for(problem, home, out)
    if problem.empty:
        return results
    with guarded(home), home.lock:
        leaves = [home.asarray(leaf) for leaf in problem.leaves]
        limit = home.capabilities.limits["max-storage-buffer-binding-size"]
        too_long = max(array.nbytes for array in (*leaves, *results)) > limit or (
            problem.in_columns and not fits_beside(home, work_of(home, problem))
        )
        scattered = problem.inner != 1 and not problem.in_columns
        packed = binds_too_many(home, problem)
        if scattered and not too_long and not packed:
            scan_transposed(home, problem, strategy, leaves, results)
            return results
        if scattered or packed or (too_long and not in_pieces(home, problem)):
            for result, rows in zip(results, run(home, problem_on_cpu(problem, leaves), strategy), strict=True):
                put(home, np.ascontiguousarray(problem.from_rows(rows)), result)
            return results  # by way of the CPU, which brings rows or fields together and cuts pieces anywhere
        same = [(a.buffer is b.buffer and a.offset == b.offset) for a, b in zip(leaves, results, strict=False)]
        stored_alike = problem.source.fields == problem.destination.fields
        in_place = stored_alike and all(same) and not shares_words(problem, problem.size)
        if in_place and strategy == "fallback":
            raise StrategyError(
                'strategy "fallback" was asked for with out= the input: it reads a late tile again, which may have '
                'been overwritten. Pass another out, or strategy="auto"'
            )
        if in_place and strategy == "auto":
            strategy = "three_dispatch"  # a single pass that gives up leaves half of the input overwritten
        taken = {id(result.buffer) for result in results}
        if not in_place:
            leaves = [leaf.copy() if id(leaf.buffer) in taken else leaf for leaf in leaves]
        leaves = [bindable(leaf) for leaf in leaves]
        targets = [result if fits_whole(result) else empty(home, result.shape, result.dtype) for result in results]
        in_place = in_place and targets == results
        scan_on_device(home, problem, strategy, leaves, targets, in_place=in_place)
        for result, target in zip(results, targets, strict=True):
            if result is not target:
                copy_over(target, result)
    return results


def in_pieces(device: Device, problem: Problem) -> bool:
    """Whether pieces of whole blocks can be bound where they lie.

    Rows must lie one after the other, a piece that is read backwards begin where a binding may, and no element take
    anything from a neighbour, which may be another piece's. Of several rows that are read backwards, pieces must be
    whole ones.
    """
    limits = device.capabilities.limits
    fields = (*problem.source.fields, *problem.destination.fields)
    if problem.in_columns or any(problem.shifts):
        return False
    if reverses_rows(problem):
        work = work_of(device, problem)
        unit = max(
            piece_unit(device, problem, best_tile(work, device.capabilities, device.tuned, subgroups))
            for subgroups in (True, False)
        )
        return unit * max(f.storage_bytes for f in fields) <= limits["max-storage-buffer-binding-size"]
    alignment = limits["min-storage-buffer-offset-alignment"]
    return not problem.reverse or all(problem.size * field.storage_bytes % alignment == 0 for field in fields)


def piece_unit(device: Device, problem: Problem, tile: TileShape | ColumnTile) -> int:
    """The elements of which a piece is a multiple, so that it can be bound where it lies: whole blocks or rows."""
    alignment = device.capabilities.limits["min-storage-buffer-offset-alignment"]
    unit = problem.row_length if tile.per_row else tile.tile_size * tile.block
    if reverses_rows(problem):
        unit = math.lcm(unit, problem.row_length)
    if problem.heads is not None:
        unit = math.lcm(unit, 8 * alignment)
    return math.lcm(unit, alignment)


def home_of(problem: Problem, device: Device | str | None) -> Device:
    """The device that the arrays of a problem lie on."""
    from gpuscan.api.scan import resolve_device

    leaves: Sequence[Any] = problem.leaves
    homes = {leaf.device for leaf in leaves if isinstance(leaf, Array)}
    home = homes.pop()
    named = isinstance(device, str) and device.casefold() in home.capabilities.summary.casefold()
    asked = home if device is None or named else resolve_device(device)
    if homes or asked is not home:
        others = ", ".join(repr(other) for other in (*homes, asked) if other is not home)
        raise ValueError(
            f"an array on {home!r} was passed together with {others.replace('None', 'NumPy')}; a scan runs where its "
            "arrays are. Bring them together with device.asarray, or to NumPy with .numpy()"
        )
    return home


def results_for(problem: Problem, home: Device, out: Sequence[Any] | None) -> list[Array]:
    """The arrays to write: `out` once it is checked, or new ones."""
    fields = problem.destination.fields
    if out is None:
        return [empty(home, (*problem.shape, *f.shape), f.scalar.dtype) for f in fields]
    for array, field in zip(out, fields, strict=True):
        if not isinstance(array, Array) or array.device is not home:
            raise TypeError(f"out must be a gpuscan.Array on {home!r}, where the input is; got {type(array).__name__}")
        wanted = (*problem.shape, *field.shape)
        if array.shape != wanted:
            raise ValueError(f"out of shape {array.shape} was passed for a result of shape {wanted}")
        if array.dtype != field.scalar.dtype:
            raise TypeError(f"out of dtype {array.dtype} was passed for a result of dtype {field.scalar.dtype}")
        array.check()
    for a, b in combinations(out, 2):
        if a.buffer is b.buffer and a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
            raise ValueError("two fields of out share memory; pass arrays that lie apart")
    return list(out)


def problem_on_cpu(problem: Problem, leaves: Sequence[Array]) -> Problem:
    from dataclasses import replace

    return replace(problem, leaves=tuple(leaf.numpy() for leaf in leaves))


# ----- Buffers that a shader can bind


def bindable(array: Array) -> Array:
    """The array itself where a shader can bind it as it lies, else a copy that is so."""
    alignment = array.device.capabilities.limits["min-storage-buffer-offset-alignment"]
    if array.offset % alignment == 0 and array.offset + padded(array.nbytes, ALIGNMENT) <= array.buffer.size:
        return array
    if array.offset % 4 == 0 and (array.nbytes % 4 == 0 or array.offset + padded(array.nbytes) <= array.buffer.size):
        return array.copy()
    return array.device.asarray(array.numpy())


def fits_whole(array: Array) -> bool:
    """Whether whole vectors may be written to the array as it lies, with nobody's bytes in the last one."""
    alone = array.ours and array.offset == 0 and array.covers_buffer
    return bindable(array) is array and (alone or array.nbytes % ALIGNMENT == 0)


def copy_over(source: Array, target: Array) -> None:
    """Copy the bytes of one array to another's place, and no byte more."""
    device = source.device
    if target.offset % 4 or target.nbytes % 4:
        put(device, source.numpy(), target)
        return
    encoder = device.wgpu_device.create_command_encoder()
    encoder.copy_buffer_to_buffer(source.buffer, source.offset, target.buffer, target.offset, source.nbytes)
    submit(device.wgpu_device, encoder.finish())


def put(device: Device, content: np.ndarray[Any, Any], target: Array) -> None:
    """Write NumPy's bytes to an array; words that it shares with other data are read before."""
    start, stop = target.offset // 4 * 4, padded(target.offset + target.nbytes)
    words = content.reshape(-1).view(np.uint8)
    if (start, stop) != (target.offset, target.offset + target.nbytes):
        whole = np.empty(stop - start, np.uint8)
        download(device.wgpu_device, device.pool, target.buffer, start, whole)
        whole[target.offset - start : target.offset - start + target.nbytes] = words
        words = whole
    upload(device.wgpu_device, words, target.buffer, start, pool=device.pool)


# ----- Runs


def scan_on_device(
    device: Device,
    problem: Problem,
    strategy: str,
    leaves: Sequence[Array],
    targets: Sequence[Array],
    *,
    in_place: bool,
    count: Array | None = None,
    **options: Any,
) -> None:
    """Record and submit; wait for the report only where it may tell of a failure.

    Args:
        device: of the arrays.
        problem: what was asked for.
        strategy: as in `gpuscan.scan`.
        leaves, targets: what is loaded and stored.
        in_place: the targets are the leaves.
        count: where the number of elements goes that a mask picks.
        options: as in `plan_scan`.
    """
    words = seed_words(device, problem)
    seeds = None
    if words is not None:
        held = device.asarray(words)
        seeds = Binding(held.buffer, 0, padded(held.nbytes, ALIGNMENT))
    marks = None if problem.heads is None else mark(device, problem.heads)
    beside = {name: each for name, each in (("heads", marks), ("count", count)) if each is not None}
    placement = Placement(in_place=in_place)
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    cut = max(array.nbytes for array in (*leaves, *targets)) > limit
    while True:
        if cut:
            plans = piece_plans(device, problem, strategy, placement)
        else:
            plans = [planned(device, problem, strategy, placement=placement, **options)]
        if in_place and not all(proves(device, plan) for plan in plans):
            continue  # by other plans, while there is something to begin with
        if cut:
            runs = record_pieces(device, problem, plans, leaves, targets, seeds, marks)
        else:
            (plan,) = plans
            encoder = device.wgpu_device.create_command_encoder()
            bound = parts(leaves), parts(targets), seeds
            runs = [
                record(device, plan, encoder, *bound, beside=dict(zip(beside, parts([*beside.values()]), strict=True)))
            ]
            submit(device.wgpu_device, encoder.finish())
        outcome = settle(device, runs)
        if outcome == "done":
            return
        retry(device, outcome, runs[0].plan.strategy, strategy)


def parts(arrays: Sequence[Array]) -> list[Binding]:
    return [Binding(a.buffer, a.offset, padded(a.nbytes, ALIGNMENT)) for a in arrays]


def piece_plans(
    device: Device, problem: Problem, strategy: str, placement: Placement, subgroups: bool = True
) -> list[ScanPlan]:
    """The plans of the pieces of arrays larger than a binding, which are whole blocks."""
    from dataclasses import replace

    capabilities = device.capabilities
    limit = capabilities.limits["max-storage-buffer-binding-size"]
    fields = (*problem.source.fields, *problem.destination.fields)
    work = work_of(device, problem)
    chosen, reason = device.strategy(strategy)
    tile = best_tile(work, device.capabilities, device.tuned, subgroups)
    unit = piece_unit(device, problem, tile)
    length = limit // (unit * max(f.storage_bytes for f in fields)) * unit
    if length == 0:
        raise GpuscanError(
            f"a scan in pieces was asked for, of which the smallest, {unit} elements, does not fit the {limit} bytes "
            f"that {capabilities.summary} binds. {smaller(problem.rows)}"
        )
    plans = [
        plan_scan(
            replace(work, carried=start > 0, carry_out=start + length < problem.size),
            capabilities,
            chosen,
            reason,
            tile=tile,
            piece=min(length, problem.size - start),
            placement=placement,
        )
        for start in range(0, problem.size, length)
    ]
    if any(unfit(device, plan) for plan in plans):
        return piece_plans(device, problem, strategy, placement, subgroups=False)
    return plans


def record_pieces(
    device: Device,
    problem: Problem,
    plans: Sequence[ScanPlan],
    leaves: Sequence[Array],
    targets: Sequence[Array],
    seeds: Binding | None,
    marks: Array | None,
) -> list[Run]:
    """Submit the scan of arrays larger than a binding: pieces, bound where they lie."""
    carries = [device.allocate(4 * work_of(device, problem).item_words) for _ in range(2)]
    runs = []
    start = 0
    for number, plan in enumerate(plans):
        count = plan.length
        at = problem.size - start - count if problem.reverse and problem.rows == 1 else start

        def stretch(array: Array, size: int, at: int = at, count: int = count) -> Binding:
            return Binding(array.buffer, array.offset + at * size, padded(count * size, ALIGNMENT))

        heads = {}
        if marks is not None:
            heads["heads"] = Binding(marks.buffer, start // 8, padded(-(-count // 8)))
        encoder = device.wgpu_device.create_command_encoder()
        runs.append(
            record(
                device,
                plan,
                encoder,
                [stretch(a, f.storage_bytes) for a, f in zip(leaves, problem.source.fields, strict=True)],
                [stretch(a, f.storage_bytes) for a, f in zip(targets, problem.destination.fields, strict=True)],
                seeds,
                Binding(carries[number % 2].buffer),
                Binding(carries[(number + 1) % 2].buffer),
                Origin.at(start, problem.row_length),
                beside=heads,
            )
        )
        submit(device.wgpu_device, encoder.finish())
        start += count
    return runs


# ----- Reports


def needs_report(device: Device, plan: ScanPlan) -> bool:
    """Whether a run of the plan can fail in a way that has to be reckoned with.

    A wait that ends in vain is reckoned with unless it is published of the vendor's GPUs that workgroups make progress;
    so are subgroups of another size until a report has shown the plan's, and a loop of the user's WGSL, which may not
    end.
    """
    return plan.loops or unproven(device, plan) or may_wait_in_vain(device, plan)


def may_wait_in_vain(device: Device, plan: ScanPlan) -> bool:
    """Whether a tile of the plan may wait longer than its bound."""
    capabilities = device.capabilities
    published = capabilities.adapter_type in PUBLISHED_PROGRESS.get(capabilities.vendor, frozenset())
    return plan.posts and (not published or capabilities.adapter_type == "CPU")


def settle(device: Device, runs: Sequence[Run]) -> str:
    """Wait for the reports where need be: ``"done"``, ``"timeout"`` or ``"width"``; note the others for `check`."""
    for each in runs:
        if not needs_report(device, each.plan):
            if each.plan.posts:
                device.unchecked.append(each)
            continue
        report = read_report(device, each.state)
        each.check_turns(report)
        if each.width_differed(report):
            note_size(device, each.plan, differed=True)
            return "width"
        if each.timed_out(report):
            return "timeout"
        note_size(device, each.plan, differed=False)
    if len(device.unchecked) > UNCHECKED_MOST:
        check(device)
    return "done"


def check(device: Device) -> None:
    """Read the reports that nobody has waited for. A later run's failure hides an earlier one's, and tells as much.

    Of several failures the first is raised, a timeout before others, and the next one is its cause.

    Raises:
        ProgressTimeoutError: a run gave up waiting.
        OperatorError: a loop in a run's operator did not end.
        GpuscanError: a recorded run's subgroups had another size than its plan's.
    """
    with guarded(device), device.lock:
        runs = [*device.unchecked, *device.recorded]
        failures = failures_of(device, runs)
        device.unchecked.clear()
        hidden, device.hidden = device.hidden, False
        if hidden:  # it may have been a run that was done again: nobody knows any more
            failures.insert(0, gave_up(device, "", len(runs), "may have given up"))
        try:
            if failures:
                raise failures[0] from (failures[1] if len(failures) > 1 else None)
        finally:
            failures.clear()  # else they would hold this frame, and this frame them, and the caller's arrays


def failures_of(device: Device, runs: Sequence[Run]) -> list[GpuscanError]:
    """What the runs' reports tell, timeouts first: of those alone others' arrays may be wrong. Each is told of once."""
    states = {id(each.state): each.state for each in runs}
    reports = {key: read_report(device, state) for key, state in states.items()}
    timeouts: list[GpuscanError] = []
    others: list[GpuscanError] = []
    for each in runs:
        report = reports[id(each.state)]
        if each.epoch not in (report[STATUS_WORD], report[SUBGROUP_SIZE_WORD], report[LOOP_LIMIT_WORD]):
            continue
        device.recorded[:] = [other for other in device.recorded if other is not each]
        if each.width_differed(report):  # then whoever waited did so for workgroups that had left
            note_size(device, each.plan, differed=True)
            others.append(
                GpuscanError(
                    f"what a plan has recorded on {device.capabilities.summary} wrote nothing or too little: "
                    f"subgroups had another size than {each.plan.tile.subgroup_size}, which the probe saw. Record it "
                    "again, which now does without them"
                )
            )
        elif each.timed_out(report):
            device.distrust(each.plan.strategy)
            timeouts.append(gave_up(device, f"by strategy {each.plan.strategy!r} ", len(runs), "gave up"))
        if each.ran_on(report):
            others.append(turns_error(each.plan))
    return timeouts + others


def gave_up(device: Device, strategy: str, runs: int, how: str) -> ProgressTimeoutError:
    return ProgressTimeoutError(
        f"a scan {strategy}on {device.capabilities.summary}, one of the last {runs}, {how} waiting for an earlier "
        "tile's post, so arrays computed since the last read or synchronize may be wrong. Compute them again: "
        '"auto" now leaves the strategy out'
    )
