"""Memory of real devices: what is counted, and what does not grow over many calls."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device import bind_groups
from tests.harness.devices import (
    MAX_BIND_GROUPS,
    RUNS_BEFORE_PARAMETERS_ARE_WRITTEN_AHEAD,
    all_adapters,
    count_bind_groups,
)
from tests.harness.processes import python
from tests.harness.scans import record_and_submit

# Calls on the best adapter: more than any cache keeps entries.
CALLS = 3_000


def resident() -> int:
    """Return the bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_arrays_are_counted_to_the_byte(own_device: gs.Device) -> None:
    device = own_device
    before = device.memory_usage()
    assert before.bytes_in_use == 0
    x = device.asarray(np.ones(10_000, np.float32))
    view = x[100:200]
    y = device.empty((3, 5), np.int16)
    usage = device.memory_usage()
    size_of = device._context.pool.size_of
    assert usage.bytes_in_use == x.buffer.size + y.buffer.size == size_of(40_000) + size_of(30)
    assert usage.allocations == 2
    del x
    assert device.memory_usage().allocations == 2  # the view holds it
    np.testing.assert_array_equal(view, 1)
    del view, y
    assert device.memory_usage().bytes_in_use == 0
    device.memory_cleanup()
    assert device.memory_usage() == gs.MemoryUsage(0, 0, 0)
    np.testing.assert_array_equal(gs.scan(np.ones(1000, np.uint32), device=device), np.arange(1, 1001))


def test_what_is_kept_for_later_calls_is_not_in_use(own_device: gs.Device) -> None:
    """Assert that initial values and segment bits stay on the device for later calls."""
    device = own_device
    keys = np.arange(1000) // 7
    plan = device.plan(1000, np.int32, keys=keys)
    ones = device.asarray(np.ones(1000, np.int32))
    wanted = np.arange(1000, dtype=np.int32) % 7 + 1
    for _ in range(2):
        for rows in (10, 20_000, 20_001, 30_000):
            x = np.ones((rows, 2), np.int32)
            got = gs.scan(x, axis=1, initial=5, exclusive=True, device=device)
            np.testing.assert_array_equal(got, np.broadcast_to([5, 6], x.shape))
        np.testing.assert_array_equal(plan(ones), wanted)
        assert device.memory_usage().allocations == 1
        assert device.memory_usage().bytes_in_use == ones.buffer.size
    del ones
    device.memory_cleanup()
    assert device.memory_usage() == gs.MemoryUsage(0, 0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
@pytest.mark.slow
def test_nothing_grows(own_device: gs.Device) -> None:
    """Assert that calls of changing sizes, on NumPy and device arrays, do not use more and more memory."""
    device = own_device
    calls = CALLS if all_adapters()[0].summary == device.capabilities.summary else CALLS // 5
    rng = np.random.default_rng(0)
    x = np.ones(20_000, np.uint32)
    on_device = device.asarray(x)
    marks = []
    for call in range(calls):
        n = int(rng.integers(1, len(x)))
        if call % 2:
            assert gs.scan(x[:n], device=device)[-1] == n
        else:
            gs.scan(on_device[:n], device=device)
        if call in (calls // 4, calls - 1):
            gc.collect()
            device.synchronize()
            marks.append((device.memory_usage(), resident(), count_bind_groups(device)))
    (early, resident_early, _), (late, resident_late, groups) = marks
    assert late.bytes_in_use == early.bytes_in_use
    assert late.bytes_reserved <= early.bytes_reserved * 1.25
    assert resident_late - resident_early < 12 << 20
    assert groups <= MAX_BIND_GROUPS


def test_bind_groups_of_a_callers_buffers(own_device: gs.Device) -> None:
    """Assert that they are made once, and dropped with a buffer: they would keep its memory."""
    device = own_device
    gpu, usage = device.wgpu_device, wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    plan = device.plan(1000, np.uint32, strategy="fallback")  # one dispatch

    def run(source: wgpu.GPUBuffer, target: wgpu.GPUBuffer) -> int:
        record_and_submit(gpu, plan, source, target)
        np.testing.assert_array_equal(np.frombuffer(gpu.queue.read_buffer(target), np.uint32), np.arange(1, 1001))
        return count_bind_groups(device)

    source = gpu.create_buffer_with_data(data=np.ones(1000, np.uint32), usage=usage)
    targets = [gpu.create_buffer(size=4000, usage=usage) for _ in range(3)]
    for _ in range(1 + RUNS_BEFORE_PARAMETERS_ARE_WRITTEN_AHEAD):
        before = run(source, targets[0])
    kept = [run(source, target) for target in targets]  # the parameters are written for many runs from here on
    assert kept == [before, before + 1, before + 2]
    assert [run(source, target) for target in targets] == [before + 2] * 3
    gone = weakref.ref(targets[1])
    del targets[1]
    assert gone() is None
    assert count_bind_groups(device) == before + 1
    del source
    assert count_bind_groups(device) == 0


def recorder_of(device: gs.Device) -> tuple[Callable[[wgpu.GPUBuffer, wgpu.GPUBuffer], None], list[wgpu.GPUBuffer]]:
    """Return a function that records a scan from one buffer to another and submits it, and three buffers for it."""
    gpu, usage = device.wgpu_device, wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    plan = device.plan(1000, np.uint32, strategy="fallback")
    return partial(record_and_submit, gpu, plan), [gpu.create_buffer(size=4000, usage=usage) for _ in range(3)]


def collect_unraisable(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that takes the errors that Python ignores from now on."""
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: errors.append(unraisable.exc_value))
    return errors


def test_bind_groups_after_ctrl_c(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a group is dropped with its buffer if Ctrl-C arrives as the buffer is collected.

    A new buffer may have the id of the collected one, and would get its group.
    """
    device = own_device
    record, (source, target, other) = recorder_of(device)
    for _ in range(2 + RUNS_BEFORE_PARAMETERS_ARE_WRITTEN_AHEAD):
        record(source, other)
    before = count_bind_groups(device)
    record(source, target)
    assert count_bind_groups(device) == before + 1
    interrupted = collect_unraisable(monkeypatch)

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code.co_filename == bind_groups.__file__:
            raise KeyboardInterrupt

    tracer = sys.gettrace()
    sys.settrace(interrupt)
    try:
        del target
    finally:
        sys.settrace(tracer)
    assert [type(error) for error in interrupted] == [KeyboardInterrupt]
    record(source, other)
    assert count_bind_groups(device) == before


def test_ctrl_c_as_bind_groups_are_dropped(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that calls go on if Ctrl-C arrives as the groups of a collected buffer are dropped."""
    device = own_device
    record, (source, target, other) = recorder_of(device)
    for _ in range(2 + RUNS_BEFORE_PARAMETERS_ARE_WRITTEN_AHEAD):
        record(source, target)
    interrupted = collect_unraisable(monkeypatch)

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        is_taken = event == "c_return" and getattr(argument, "__name__", "") == "acquire"
        if is_taken and frame.f_code.co_filename == bind_groups.__file__:
            signal.raise_signal(signal.SIGINT)

    profiler = sys.getprofile()
    sys.setprofile(interrupt)
    try:
        del target
    finally:
        sys.setprofile(profiler)
    assert [type(error) for error in interrupted] == [KeyboardInterrupt]
    call = threading.Thread(target=record, args=(source, other), daemon=True)
    call.start()
    call.join(60)
    assert not call.is_alive()


def test_the_interpreter_ends_quietly(adapter: wgpu.GPUAdapter) -> None:
    """Assert that a process ends without an error while arrays, views and reads are alive, also in cycles."""
    code = f"""
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
a = device.asarray(np.ones(1000, np.float32))
views = [a[i:] for i in range(5)]
views.append(views)
future = a.read_async()
b = gs.scan(a)
print(float(b.numpy()[-1]))
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout.strip()) == (0, "1000.0"), done.stderr
    assert "Traceback" not in done.stderr
