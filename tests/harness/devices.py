"""Adapters and devices: what they keep, and devices that pretend to be others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.api import device as device_module
from gpuscan.device import adapters, bind_groups, deferred_runs, queue, reports, tile_cache
from gpuscan.device.adapter_requirements import choose_features, choose_limits
from gpuscan.device.adapters import find_adapters
from gpuscan.device.buffer_pool import BufferPool
from gpuscan.device.native_queue import NativeQueue
from gpuscan.device.profiles import Profiles
from gpuscan.device.queue import Queue
from gpuscan.device.reports import RunLog
from gpuscan.device.tile_state import GROWTH
from gpuscan.device.timeouts import TIMEOUTS_TO_PAUSE, Timeouts
from gpuscan.engine.executor import Executor
from gpuscan.planning.strategies import starts_in_order
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.recent_values import RecentValues

# How much a device keeps of earlier calls.
MAX_BIND_GROUPS = bind_groups.MAX_BIND_GROUPS
MAX_ENCODED_RUNS = reports.MAX_ENCODED_RUNS
MAX_ENCODED_STATES = reports.MAX_ENCODED_STATES
RUNS_BEFORE_PARAMETERS_ARE_WRITTEN_AHEAD = GROWTH


# ----- Adapters


@cache
def can_open(adapter: wgpu.GPUAdapter) -> bool:
    """Return True if the driver opens the adapter: some list an OpenGL adapter and then refuse it."""
    try:
        adapter.request_device_sync(
            required_features=choose_features(adapter), required_limits=choose_limits(adapter)
        ).destroy()
    except RuntimeError:
        return False
    return True


def all_adapters() -> list[wgpu.GPUAdapter]:
    """Return every adapter of the machine that gpuscan could use, best first."""
    return list(find_adapters())


def usable_adapters() -> list[wgpu.GPUAdapter]:
    """Return the adapters that `gpuscan probe` lists: the ones that their drivers open."""
    return list(filter(can_open, all_adapters()))


def small_binding(adapter: wgpu.GPUAdapter) -> int:
    """Return a limit on the bytes of a binding that is small, and takes a piece of any scan on the adapter."""
    return 1 << 20 if adapter.info["adapter_type"] == "CPU" else 8 << 20


def hide_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the machine look as if it had no adapter, and as if no call had warned about it yet."""
    monkeypatch.setattr(adapters, "_adapters", [])
    monkeypatch.setattr(device_module, "_warned", threading.Event())
    for variable in ("GPUSCAN_ADAPTER", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"):
        monkeypatch.delenv(variable, raising=False)


def forget_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make gpuscan look for adapters again."""
    monkeypatch.setattr(adapters, "_adapters", None)


# ----- Devices


def device_as_if(device: gs.Device, *, unsafe: bool | None = None, **capabilities: Any) -> gs.Device:
    """Return a device on the same GPU for which the probe found other capabilities.

    It shares buffers and compiled shaders with `device`, but no plan and no report. Capabilities change what gpuscan
    plans, not what the GPU enforces: for real limits, open `gs.Device(adapter, required_limits=...)`. What it keeps is
    given back after the test: see `clean_devices_as_if`.
    """
    context = device._context
    as_if = object.__new__(type(context))
    own: dict[str, Any] = {
        "capabilities": replace(context.capabilities, **capabilities),
        "unsafe": context.unsafe if unsafe is None else unsafe,
        "run_log": RunLog(),
        "programs": RecentValues(64),
    }
    assert own.keys() <= vars(context).keys(), "a device has other attributes by now"
    vars(as_if).update(vars(context) | own)
    as_if.profiles = Profiles(as_if)
    other = object.__new__(type(device))
    vars(other).update(_context=as_if, _executor=Executor(as_if))
    _AS_IF.append(other)
    return other


def as_gpu(device: gs.Device) -> gs.Device:
    """Return a device that plans as a GPU does: software adapters have one tile for each order of combination."""
    return device_as_if(device, adapter_type="DiscreteGPU")


def as_gpu_of_programs(device: gs.Device) -> gs.Device:
    """Return a device as `as_gpu` does, with a driver that ends no loops, as the drivers of GPUs do not.

    So no call waits for a report, and all launch programs. Only short arrays are right on all software adapters.
    """
    return device_as_if(device, adapter_type="DiscreteGPU", loop_iterations=0)


def plan_as_gpu(device: gs.Device) -> None:
    """Let a new device plan as a GPU of a vendor that guarantees progress of workgroups.

    It leaves out look-back and look-ahead, as GPUs do after timeouts: under them, workgroups of software adapters may
    wait for long on a busy machine.
    """
    context = device._context
    context.capabilities = replace(
        context.capabilities,
        adapter_type="DiscreteGPU",
        vendor="NVIDIA",
        progress_earlier=True,
        progress_later=True,
        starts_in_order=True,
        distrusted=("lookback", "lookahead"),
    )


# The devices of the running test that `device_as_if` has made.
_AS_IF: list[gs.Device] = []


def clean_devices_as_if() -> None:
    """Give back the memory that devices of `device_as_if` keep, since they share it with the device of other tests."""
    while _AS_IF:
        _AS_IF.pop().memory_cleanup()


def forget_plans(device: gs.Device) -> None:
    """Let the device plan every scan again. It keeps its compiled shaders."""
    executor = device._executor
    for kept in (executor.planner._plans, executor.planner._layouts, device._context.programs):
        kept.clear()


def auto_strategy(device: gs.Device) -> str:
    """Return the strategy that ``"auto"`` takes for an array of many tiles."""
    return device._context.strategy("auto")[0]


def force_strategy(device: gs.Device, monkeypatch: pytest.MonkeyPatch, first: str, then: str) -> None:
    """Make ``"auto"`` take the strategy `first`, and `then` in a call in which it timed out."""
    context = device._context
    choose = context.strategy

    def strategy(asked: str = "auto", tiles: int | None = None, without: tuple[str, ...] = ()) -> tuple[str, str]:
        return choose(then if without or device.capabilities.distrusted else first, tiles)

    monkeypatch.setattr(context, "strategy", strategy)


def distrust(device: gs.Device, strategy: str) -> None:
    """Note that a strategy timed out on the device again and again, as runs that time out do."""
    for _ in range(TIMEOUTS_TO_PAUSE):
        device._context.note_timeout(strategy)


def count_timeouts(device: gs.Device) -> dict[str, int]:
    """Return the strategies that timed out on the device and are not given up, and how often they did lately."""
    return {strategy: len(times) for strategy, times in device._context.run_log.timeouts._times.items()}


@contextmanager
def timeouts_apart(device: gs.Device) -> Iterator[None]:
    """Let the device forget at the end what it learns of timeouts inside the ``with``."""
    context = device._context
    timeouts, distrusted = context.run_log.timeouts, context.capabilities.distrusted
    context.run_log.timeouts = Timeouts()
    try:
        yield
    finally:
        context.run_log.timeouts = timeouts
        context.capabilities = replace(context.capabilities, distrusted=distrusted)


def pass_time(device: gs.Device, seconds: float) -> None:
    """Let so much time pass for what the device remembers of timeouts."""
    timeouts = device._context.run_log.timeouts
    clock = timeouts.clock
    timeouts.clock = lambda: clock() + seconds


def hands_out_tiles_by_number(device: gs.Device) -> bool:
    """Return True if tiles are numbered by workgroup, which needs workgroups that start in order."""
    return starts_in_order(device.capabilities)


def is_lost(device: gs.Device) -> bool:
    """Return True if an earlier call found that the device was lost."""
    return device._context.lost


def mark_lost(device: gs.Device, lost: bool) -> None:
    """Note that the device was lost, or forget it, without touching the GPU."""
    device._context.lost = lost


def pool_of(device: gs.Device) -> BufferPool:
    """Return the pool that the device takes its buffers from."""
    return device._context.pool


def queue_of(device: gs.Device) -> Queue:
    """Return the queue that the device submits to."""
    return device._context.queue


def use_public_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let devices that are opened from now on submit by the public objects of the package, as Dawn's devices do."""
    monkeypatch.setattr(queue, "is_available", lambda _: False)


def replace_submit(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, submit: Callable[[Callable[[], Any]], Any]
) -> None:
    """Call `submit` where the device's queue calls wgpu to submit or to poll; its argument is that call."""

    def wrap_call(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: submit(lambda: original(*arguments))

    opened = queue_of(device)
    if isinstance(opened, NativeQueue):
        library = opened.library.checked
        for name in ("wgpuQueueSubmitForIndex", "wgpuDevicePoll"):
            monkeypatch.setattr(library, name, wrap_call(getattr(library, name)))
    else:
        monkeypatch.setattr(device.wgpu_device.queue, "submit", wrap_call(device.wgpu_device.queue.submit))


def poison(device: gs.Device, *sizes: int) -> None:
    """Fill free buffers of these sizes with junk, so that a result that is not wholly written shows."""
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
    taken = [device._context.pool.take(size, usage) for size in sizes for _ in range(4)]
    for buffer in taken:
        device.wgpu_device.queue.write_buffer(buffer, 0, np.full(buffer.size, 0xA5, np.uint8))
        device._context.pool.give(buffer)


def count_bind_groups(device: gs.Device) -> int:
    """Return how many bind groups the device keeps."""
    return len(device._context.bind_groups)


def count_plans_and_pipelines(device: gs.Device) -> tuple[int, int]:
    """Return how many plans and compiled shaders the device keeps."""
    return len(device._executor.planner._plans), len(device._context._pipelines)


def read_validation_flags(device: gs.Device, first: int) -> list[Any]:
    """Return the two words of each unread validation flag from number `first` on."""
    validation_flags = list(device._context.run_log.validation_flags.values())[first:]
    arrays: list[Any] = [validation_flag.array for validation_flag in validation_flags]
    return [array._read()[:2].tolist() for array in arrays]


def count_programs(device: gs.Device) -> int:
    """Return how many programs the device keeps."""
    return sum(isinstance(kept, tuple) for kept in list(device._context.programs.values()))


def count_encoded_runs(device: gs.Device) -> int:
    """Return how many recorded runs the device still reads reports of."""
    return len(device._context.run_log.encoded)


def count_encoded_states(device: gs.Device) -> int:
    """Return how many buffers those reports are in."""
    return len({id(run.state) for run in device._context.run_log.encoded})


def store_tuned_tiles(device: gs.Device, tiles: dict[tuple[int, int], TileShape]) -> None:
    """Store tiles as ``gpuscan tune`` does: one for each pair of an item's words and a length."""
    assert tile_cache.store(device.capabilities, tiles) is not None


def find_tuned_tiles(device: gs.Device) -> dict[tuple[int, int], TileShape]:
    """Return the tuned tiles that the device has loaded."""
    return dict(device._context.tuned)


def defer_runs(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Change how many runs, and of how many bytes, queues defer, and when."""
    monkeypatch.setattr(deferred_runs, "TRANSFERS", replace(TRANSFERS, **limits))


def spin(device: gs.Device, monkeypatch: pytest.MonkeyPatch, seconds: float) -> Callable[[], bool]:
    """Let waits spin for so long before they sleep; return a function that tells if the GPU has nothing to do."""
    opened = queue_of(device)
    if not isinstance(opened, NativeQueue):
        pytest.skip("the queue does not poll by itself")
    monkeypatch.setattr(opened, "spin_seconds", seconds)
    library = opened.library
    return lambda: bool(library.lib.wgpuDevicePoll(device.wgpu_device._internal, 0, library.ffi.NULL) & 0xFF)
