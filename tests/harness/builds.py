"""Test builds: change how every call from now on is planned or run, and count what calls do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import wgpu

import gpuscan as gs
from gpuscan.api import plan as plan_module
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device import capability_probe, context, program, reports, timeouts, transfer
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.native_queue import NativeQueue
from gpuscan.device.queue import PublicMapping
from gpuscan.engine import element_copy, executor, host_arrays
from gpuscan.engine.executor import Executor
from gpuscan.planning import heuristics, tile_shapes
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import Fold, InjectedFaults
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.tile_shapes import ColumnTile, TileShape
from gpuscan.planning.transfer_heuristics import TRANSFERS
from tests.harness.devices import count_programs
from tests.oracle import Array

Tile = TileShape | ColumnTile

# ----- Test builds: change how every call from now on is planned


def withhold_posts(monkeypatch: pytest.MonkeyPatch, *, every: int = 2, tile: Tile | None = None) -> None:
    """Leave out posts in every scan that is planned from now on, through whatever function it is called."""
    forced: dict[str, Any] = {"test_build": InjectedFaults(every)} | ({} if tile is None else {"tile": tile})

    def plan_with_faults(*given: Any, **options: Any) -> ScanPlan:
        return plan_scan(*given, **(options | forced))

    for module in (executor, plan_module):
        monkeypatch.setattr(module, "plan_scan", plan_with_faults)


def end_in_time(monkeypatch: pytest.MonkeyPatch, in_time: Callable[[], bool]) -> None:
    """Let `in_time` say, each time that the device looks, if runs over known buffers ended too soon to have failed."""
    monkeypatch.setattr(reports.RunLog, "may_be_timely", property(lambda log: bool(log.pending) and in_time()))


def wait_for_reports(monkeypatch: pytest.MonkeyPatch, wait: bool) -> None:
    """Make scans of device arrays wait for their own report, or leave it to a later read."""
    monkeypatch.setattr(Executor, "needs_report", lambda *_: wait)


def keep_no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call do what a program cannot do again."""
    monkeypatch.setattr(program.Recording, "program", lambda *_: None)


def trust_after_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let calls on device arrays leave their report to a later read, also after a timeout."""
    monkeypatch.setattr(timeouts, "WATCH_SECONDS", 0.0)


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let look-back give up after a few polls, within the iterations that llvmpipe allows a loop."""
    for table in ("GPU", "INTEGRATED_GPU"):
        monkeypatch.setattr(heuristics, table, replace(getattr(heuristics, table), min_lookback_spins=16))


def narrow_blocks(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, size: int) -> None:
    """Make a block as wide as a subgroup of `size` lanes, as it is on GPUs, until the test ends."""
    # The size of a block is no part of the cache's keys.
    render_kernel.cache_clear()
    request.addfinalizer(render_kernel.cache_clear)
    monkeypatch.setattr(tile_shapes, "BLOCK", size)


def wait_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let software adapters that pretend to be GPUs wait as they wait otherwise, with pauses between two polls.

    Without pauses llvmpipe ends a wait after half a millisecond, and a busy machine may stop a workgroup for longer.
    """
    waits = {
        name: getattr(heuristics.CPU, name) for name in ("fixed_lookback_spins", "pause_divisions", "timeout_retries")
    }
    monkeypatch.setattr(heuristics, "GPU", replace(heuristics.GPU, **waits))


def plan_short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give software adapters chunks of the length that GPUs have, which compile two to four times sooner.

    A chunk is unrolled in the shader, and on a software adapter it is up to 64 words long.
    """
    short: dict[str, Any] = {"serial_chunk_words": 8, "serial_wide_chunk_words": 16, "min_row_chunk_words": 4}
    columns: dict[str, Any] = {"column_rows": (1, 4, 8), "column_register_words": 48}
    monkeypatch.setattr(heuristics, "CPU", replace(heuristics.CPU, **short, **columns))


def read_ahead_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a workgroup that folds one block at a time read ahead, as only look-ahead on a GPU does otherwise."""
    planned = Kernel.fold.func  # type: ignore[attr-defined]

    def fold(kernel: Kernel) -> Fold:
        found: Fold = planned(kernel)
        return replace(found, reads_ahead=found.blocks == 1)

    monkeypatch.setattr(Kernel, "fold", property(fold))


def transpose_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a device bring NumPy arrays of any size into C order, even if they are too small for this to pay."""
    monkeypatch.setattr(heuristics, "GPU", replace(heuristics.GPU, min_transposed_bytes=1))


def take_columns_as_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU scan few columns as one column of vectors, even if they are too short for this to pay."""
    monkeypatch.setattr(heuristics, "GPU", replace(heuristics.GPU, min_vector_rows=16))


def copy_any_size_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a GPU copy arrays of any size by tiles, even if they are too small for this to pay."""
    monkeypatch.setattr(heuristics, "GPU", replace(heuristics.GPU, min_tiled_copy_bytes=1))


def is_transposed_on(device: gs.Device, x: Array) -> bool:
    """Return True if the device, and not the CPU, brings the array into C order."""
    return host_arrays.transposes_on_device(device._context, x)


def upload_in_order(device: gs.Device, x: Array) -> gs.Array:
    """Return a copy of the array on the device in C order, transposed there."""
    return gs.Array._of(device, host_arrays.place_on_device(device._context, x))


def pretend_wrong_subgroup_size(monkeypatch: pytest.MonkeyPatch, picks: Callable[[Any], bool]) -> None:
    """Let the shaders that `picks` returns True for find another subgroup size than they were built for.

    `picks` gets a kernel, which has the attributes ``stage`` and ``spec.carried`` (it continues an earlier piece).
    """
    check = "subgroup_size != SUBGROUP_SIZE"

    def render(kernel: Kernel) -> str:
        text = render_kernel(kernel)
        return text.replace(check, f"true || {check}") if picks(kernel) else text

    monkeypatch.setattr(context, "render_kernel", render)


def has_mismatched_kernels(device: gs.Device) -> bool:
    """Return True if a run has shown another subgroup size than planned."""
    return bool(device._context.run_log.mismatched_kernels)


def has_verified_kernels(device: gs.Device) -> bool:
    """Return True if a run has shown the subgroup size that was planned."""
    return bool(device._context.run_log.verified_kernels)


# ----- Counting


def count_runs(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows by one entry with each run that the device starts."""
    tile_state = device._context.tile_state
    begin, runs = tile_state.begin, []

    def note_begin(kind: Any) -> Any:
        runs.append(kind)
        return begin(kind)

    monkeypatch.setattr(tile_state, "begin", note_begin)
    return runs


def count_plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that grows by at least one entry with each call that plans."""
    plans: list[Any] = []

    def note_plan(*given: Any, **options: Any) -> ScanPlan:
        plans.append(given)
        return plan_scan(*given, **options)

    monkeypatch.setattr(executor, "plan_scan", note_plan)
    return plans


def count_shader_modules(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the text of each shader that is compiled."""
    gpu, texts = type(device.wgpu_device), list[str]()
    make = gpu.create_shader_module

    def note_module(*given: Any, **options: Any) -> Any:
        texts.append(options["code"])
        return make(*given, **options)

    monkeypatch.setattr(gpu, "create_shader_module", note_module)
    return texts


def count_measurements(monkeypatch: pytest.MonkeyPatch) -> list[wgpu.GPUDevice]:
    """Return a list that grows by the wgpu device of each probe that measures instead of reading the cache."""
    measure, measured = capability_probe._measure, []

    def note_measurement(wgpu_device: wgpu.GPUDevice, found: Any) -> Any:
        measured.append(wgpu_device)
        return measure(wgpu_device, found)

    monkeypatch.setattr(capability_probe, "_measure", note_measurement)
    return measured


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the bytes of each array, also inside the engine, that is copied to the CPU."""
    reads: list[int] = []
    read, read_and_check = DeviceArray._read, context.DeviceContext.read_and_check

    def note_read(array: DeviceArray) -> Array:
        reads.append(array.nbytes)
        return read(array)

    def note_checked_read(device: context.DeviceContext, *ranges: tuple[Any, int, int]) -> Any:
        reads.extend(nbytes for _, _, nbytes in ranges)
        return read_and_check(device, *ranges)

    monkeypatch.setattr(DeviceArray, "_read", note_read)
    monkeypatch.setattr(context.DeviceContext, "read_and_check", note_checked_read)
    return reads


@contextmanager
def count_waits(device: gs.Device) -> Iterator[list[str]]:
    """Yield a list that grows by the method's name with each call in the ``with`` that may wait for the device."""
    waits: list[str] = []
    queue = device._context.queue
    # The methods that are under way: some call others.
    under_way: list[str] = []

    def note_calls(name: str, method: Any) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            if not under_way:
                waits.append(name)
            under_way.append(name)
            try:
                return method(*given, **options)
            finally:
                under_way.pop()

        return call

    with pytest.MonkeyPatch.context() as patched:
        for name in ("map", "read", "wait_idle", "is_soon_idle"):
            patched.setattr(queue, name, note_calls(name, getattr(queue, name)))
        yield waits


@contextmanager
def assert_no_waits(device: gs.Device) -> Iterator[None]:
    """Assert that no call in the ``with`` waits for the device."""
    with count_waits(device) as waits:
        yield
        assert not waits


@contextmanager
def assert_launches(device: gs.Device) -> Iterator[None]:
    """Assert that the calls in the ``with`` launch programs that the device keeps, and wait for nothing."""
    known = count_programs(device)
    with assert_no_waits(device):
        yield
    assert count_programs(device) == known > 0


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the bytes of each copy of elements on a device, by a kernel or by the driver."""
    copies: list[int] = []
    copy, scatter = element_copy.copy_elements, element_copy.scatter

    def note_copy(view: element_copy.StridedView, result: DeviceArray, **options: Any) -> None:
        copies.append(view.nbytes)
        copy(view, result, **options)

    def note_scatter(source: element_copy.StridedView, target: element_copy.StridedView) -> None:
        copies.append(source.nbytes)
        scatter(source, target)

    monkeypatch.setattr(element_copy, "copy_elements", note_copy)
    monkeypatch.setattr(element_copy, "scatter", note_scatter)
    return copies


def count_transfers(monkeypatch: pytest.MonkeyPatch, device: gs.Device) -> list[int]:
    """Return a list that grows by the bytes of each transfer between the CPU and the device, but for parameters."""
    moved: list[int] = []
    queue, gpu = device._context.queue, type(device.wgpu_device)
    # What has a method `view`, and the number of its arguments before the size.
    viewer: tuple[Any, int] = (NativeQueue, 1) if isinstance(queue, NativeQueue) else (PublicMapping, 0)
    write, view, made = queue.write, viewer[0].view, gpu.create_buffer_with_data

    def note_write(buffer: wgpu.GPUBuffer, offset: int, data: Array) -> None:
        moved.append(data.nbytes)
        write(buffer, offset, data)

    def note_view(self: Any, *given: Any) -> Any:
        moved.append(given[viewer[1]])
        return view(self, *given)

    def note_buffer(self: wgpu.GPUDevice, *, data: Any, usage: int, **options: Any) -> Any:
        if not usage & wgpu.BufferUsage.UNIFORM:
            moved.append(memoryview(data).nbytes)
        return made(self, data=data, usage=usage, **options)

    monkeypatch.setattr(queue, "write", note_write)
    monkeypatch.setattr(viewer[0], "view", note_view)
    monkeypatch.setattr(gpu, "create_buffer_with_data", note_buffer)
    return moved


def small_transfers(monkeypatch: pytest.MonkeyPatch, piece: int, single_write: int | None = None) -> None:
    """Copy to and from the device in pieces of `piece` bytes, and in one write up to `single_write` bytes."""
    transfers = replace(TRANSFERS, staging_bytes=piece)
    monkeypatch.setattr(transfer, "TRANSFERS", transfers)
    if single_write is not None:
        transfers = replace(transfers, single_write_bytes=single_write)
        monkeypatch.setattr(transfer, "TRANSFERS", transfers)
        monkeypatch.setattr(host_arrays, "TRANSFERS", transfers)
