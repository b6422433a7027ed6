"""Runs a problem on a device: from the caller's arrays to the result's, and again where a strategy gave up."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.elements import Element, words_of
from gpuscan.errors import GpuscanError, ProgressTimeoutError, UnsupportedDtypeError
from gpuscan.execution import REPORT_BYTES, Binding, record
from gpuscan.memory import ALIGNMENT
from gpuscan.operators import Code, Operator, combine_code
from gpuscan.planning import LOOKBACK_SECONDS, ScanPlan, Work, plan_scan
from gpuscan.transfer import Download, upload

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device import Device
    from gpuscan.problem import Problem

Rows = list[np.ndarray[Any, Any]]


def run(device: Device, problem: Problem, strategy: str = "auto", **options: Any) -> Rows:
    """The result of the problem: one array (rows, row_length, *element shape) for each field.

    Under ``"auto"`` a strategy that runs out of its bounds is distrusted from then on, and the work done again by
    the next one; asked for by name, it raises.

    Raises:
        ProgressTimeoutError: the strategy that was asked for by name gave up waiting.
        GpuscanError: the array needs a larger binding than the device has.
    """
    check_dtypes(device, problem.element)
    work = work_of(device, problem)
    asked_by_name = strategy != "auto"
    subgroups = True
    while True:
        chosen, reason = device.strategy(strategy)
        plan = plan_scan(work, device.capabilities, chosen, reason, subgroups=subgroups, **options)
        outcome, rows = run_plan(device, problem, plan)
        if outcome == "done":
            return rows
        if outcome == "width":
            subgroups = False  # the compiler gave this shader another subgroup size than the probe saw
            continue
        device.distrust(chosen)
        if asked_by_name:
            raise ProgressTimeoutError(
                f"strategy {chosen!r} was asked for, but on {device.capabilities.summary} a tile waited over "
                f'{LOOKBACK_SECONDS} s for an earlier tile\'s post. Use strategy="auto", which now leaves it out, '
                'or strategy="three_dispatch", which waits for nothing'
            )


def check_dtypes(device: Device, element: Element) -> None:
    """Raise UnsupportedDtypeError where the device cannot hold a field of the element."""
    for field in element.fields:
        if field.scalar.name == "float64" and not device.capabilities.float64:
            raise UnsupportedDtypeError(
                f"float64 was asked for, but {device.capabilities.summary} has no 64-bit floats. Pass "
                'dtype=np.float32 to combine in 32 bits, or device="numpy" to run on the CPU'
            )


@lru_cache(maxsize=256)
def _combine(operator: Operator, element: Element, native_int64: bool) -> Code:
    return combine_code(operator, element, native_int64)


def work_of(device: Device, problem: Problem, *, carried: bool = False) -> Work:
    """The problem's part that decides its shaders."""
    return Work(
        source=problem.source,
        element=problem.element,
        destination=problem.element,
        operator_name=problem.operator.name,
        combine=_combine(problem.operator, problem.element, device.capabilities.native_int64),
        rows=problem.rows,
        row_length=problem.row_length,
        reverse=problem.reverse,
        exclusive=problem.exclusive,
        initial=problem.initial,
        carried=carried,
    )


def run_plan(device: Device, problem: Problem, plan: ScanPlan) -> tuple[str, Rows]:
    """Upload, dispatch, read back: ``"done"`` and the rows, or ``"timeout"`` or ``"width"``."""
    import wgpu

    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
    leaves = [problem.by_rows(leaf) for leaf in problem.leaves]
    rows = [np.empty((problem.rows, problem.row_length, *f.shape), f.scalar.dtype) for f in problem.element.fields]
    seeds = None if problem.seeds is None else words_of(problem.element, problem.seeds)
    if problem.reverse and seeds is not None:
        seeds = np.ascontiguousarray(seeds[::-1])  # rows are read from the last to the first
    report = np.zeros(REPORT_BYTES // 4, np.uint32)
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    for array in [*leaves, *rows]:
        if array.nbytes > limit:
            raise GpuscanError(
                f"an array of {array.nbytes} bytes was passed; {device.capabilities.summary} binds at most {limit}. "
                'Scan it in chunks, or pass device="numpy"'
            )

    taken: list[wgpu.GPUBuffer] = []

    def bind(array: np.ndarray[Any, Any], fill: bool) -> Binding:
        size = -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        buffer = device.pool.take(size, usage)
        taken.append(buffer)
        if fill:
            upload(device.wgpu_device, array, buffer)
        return Binding(buffer, 0, size)

    with device.lock:
        try:
            sources = [bind(leaf, fill=True) for leaf in leaves]
            destinations = [bind(row, fill=False) for row in rows]
            seed_binding = None if seeds is None else bind(seeds, fill=True)
            encoder = device.wgpu_device.create_command_encoder()
            ran = record(device, plan, encoder, sources, destinations, seed_binding)
            download = Download(device.wgpu_device, device.pool, encoder)
            download.add(ran.state, report)
            for binding, row in zip(destinations, rows, strict=True):
                download.add(binding.buffer, row)
            device.wgpu_device.queue.submit([encoder.finish()])
            download.finish()
        finally:
            for buffer in taken:
                device.pool.give(buffer)
    if ran.width_differed(report.tolist()):
        return "width", rows
    return ("timeout" if ran.timed_out(report.tolist()) else "done"), rows
