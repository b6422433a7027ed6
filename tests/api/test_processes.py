"""Interrupts, the end of Python, and forks, each in a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import wgpu

from tests.harness.processes import CHILD_SECONDS, python, start
from tests.harness.scans import piece_bytes


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.usefixtures("default_signals")
def test_an_interrupt_while_a_buffer_is_mapped(adapter: wgpu.GPUAdapter, name: str) -> None:
    """Interrupt by Ctrl-C in the callback of a map, on the thread of the call; in gpuscan's own by SIGTERM, too."""
    code = f"""
import signal, sys, threading
import numpy as np, gpuscan as gs
from gpuscan.device.native_queue import is_available
from tests.harness.devices import queue_of
device = gs.Device({adapter.summary!r})
x, pending = np.ones(3 << 19, np.uint32), True
def interrupt():
    global pending
    in_callback = sys._getframe(2).f_code.co_name in ("on_mapped", "buffer_map_callback")
    if pending and in_callback and threading.current_thread() is threading.main_thread():
        pending = False
        signal.raise_signal(number)
number = signal.SIGINT
if is_available(device.wgpu_device):
    number = signal.{name}
    signal.signal(number, signal.default_int_handler)
    class Ended(dict):
        def __setitem__(self, number, text):
            interrupt()
            super().__setitem__(number, text)
    queue_of(device).library.ended = Ended()
else:
    from wgpu.backends.wgpu_native import _poller
    done = _poller.PollToken.set_done
    _poller.PollToken.set_done = lambda token: (interrupt(), done(token))
try:
    for _ in range(20):
        if pending:
            gs.scan(x, device=device)
    # The package's own thread may have called back each time; then nothing could be lost.
    print("raised" if pending and not is_available(device.wgpu_device) else "lost")
except KeyboardInterrupt:
    print("raised")
print(gs.scan(x, device=device)[-1])
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, ["raised", str(3 << 19)]), done.stderr


def test_processes_that_share_an_adapter(adapter: wgpu.GPUAdapter, tmp_path: Path) -> None:
    """Assert that other processes, now and later, still trust a strategy that one process gave up."""
    code = f"""
import sys
import numpy as np, gpuscan as gs
from tests.harness.devices import count_timeouts
from tests.harness.scans import make_problem, scan_with
from tests.oracle import small_tiles
device = gs.Device({adapter.summary!r}, unsafe=True)
assert device.capabilities.distrusted == ()
x = np.arange(60_000, dtype=np.uint32)
wanted = np.cumsum(x, dtype=np.uint32)
for _ in range(int(sys.argv[1])):
    assert np.array_equal(gs.scan(x, device=device), wanted)
    try:
        scan_with(device, make_problem(x), "lookback", tile=small_tiles(device)[0], withheld=2)
    except gs.ProgressTimeoutError:
        assert np.array_equal(gs.scan(x, device=device), wanted)
print(*device.capabilities.distrusted, *count_timeouts(device).items())
"""
    home = {name: str(tmp_path) for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA")}
    beside = [start("-c", code, str(times), environment=home) for times in (3, 1)]
    found = [each.communicate(timeout=CHILD_SECONDS) for each in beside]
    assert [out.strip() for out, _ in found] == ["lookback", "('lookback', 1)"], found
    done = python("-c", code, "0", environment=home)
    assert done.stdout.strip() == "", done.stderr


def test_after_the_main_thread_has_ended(adapter: wgpu.GPUAdapter) -> None:
    """Scan in threads that continue, and at exit, when Python's own pools take no more work."""
    code = f"""
import atexit, threading
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
x = np.ones(9_000_000, np.uint32)
def work():
    threading.main_thread().join()
    held = device.asarray(x)
    print(gs.scan(x, device=device)[-1], held.numpy().sum(), held.read_async().result().sum())
atexit.register(lambda: print(gs.scan(x, device=device)[-1]))
threading.Thread(target=work).start()
"""
    done = python("-W", "ignore", "-c", code)
    assert done.stdout.split() == ["9000000"] * 4, done.stderr


@pytest.mark.parametrize("public", [False, True], ids=["native queue", "public queue"])
def test_python_ends_while_a_daemon_thread_scans(adapter: wgpu.GPUAdapter, public: bool) -> None:
    """End the main thread while a submission calls Python back, where Python would end the thread in native code."""
    code = f"""
import atexit, sys, threading, time
import numpy as np, gpuscan as gs
from wgpu.backends.wgpu_native import _poller
from gpuscan.device import queue
from tests.harness.devices import queue_of
if {public}:
    queue.is_available = lambda device: False
device = gs.Device({adapter.summary!r})
x = np.ones(3_000_000, np.uint32)
gs.scan(x, device=device)
inside = threading.Event()
def called_back():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_send":
        frame = frame.f_back
    if frame is not None:
        inside.set()
        time.sleep(0.3)
class Slow:
    def __del__(self, sleep=time.sleep):
        sleep(1)  # Python's end lasts longer than the callback
sys.slow = Slow()
if {public}:
    done = _poller.PollToken.set_done
    _poller.PollToken.set_done = lambda token: (called_back(), done(token))
else:
    class Ended(dict):
        def __setitem__(self, number, text):
            called_back()
            super().__setitem__(number, text)
    queue_of(device).library.ended = Ended()
def work():
    while True:
        gs.scan(x, device=device)
atexit.register(lambda: print("at exit"))
threading.Thread(target=work, daemon=True).start()
inside.wait(5)  # with some drivers no submission finds a buffer that is mapped by then
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["at", "exit"], "")


def test_calls_at_exit_while_a_daemon_thread_scans(adapter: wgpu.GPUAdapter) -> None:
    """Assert that functions which run after gpuscan's own at exit may scan, and that no lock is left locked."""
    code = f"""
import atexit, sys, threading, time
import numpy as np
def last():
    time.sleep(0.2)  # by now the thread has ended at its next call
    print(gs.scan(x, device=device)[-1], gs.scan(held).numpy()[-1], worker.is_alive())
atexit.register(last)
import gpuscan as gs
device = gs.Device({adapter.summary!r})
x = np.ones(3 << 19, np.uint32)
held = device.asarray(x)
def work():
    while True:
        gs.scan(x, device=device)
        gs.scan(held).numpy()
worker = threading.Thread(target=work, daemon=True)
worker.start()
time.sleep(0.3)
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [str(3 << 19)] * 2 + ["False"], "")


def test_new_buffers_at_exit(adapter: wgpu.GPUAdapter) -> None:
    """Assert that a function which runs at exit may scan in buffers that Python places where destroyed ones were."""
    code = f"""
import atexit
def last():
    for _ in range(20):
        assert gs.scan(x, device=device)[-1] == len(x)
        queue._finish_encoder = interrupted
        try:
            gs.scan(x, device=device)
        except KeyboardInterrupt:
            pass  # the call's buffers were destroyed
        queue._finish_encoder = finished
    print("done")
atexit.register(last)
import numpy as np, gpuscan as gs
from tests.harness.devices import queue_of
device = gs.Device({adapter.summary!r})
queue = queue_of(device)
finished = queue._finish_encoder
def interrupted(encoder):
    raise KeyboardInterrupt
x = np.ones(3 << 19, np.uint32)
gs.scan(x, device=device)
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["done"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork(adapter: wgpu.GPUAdapter) -> None:
    """Assert that the child gets a clear error at once, and that the parent continues."""
    # There are enough pieces for some to be submitted only after the first results have arrived.
    megabytes = 5 * piece_bytes(adapter.info["adapter_type"]) >> 20
    code = f"""
import os, sys
import numpy as np, gpuscan as gs
device = gs.Device({adapter.summary!r})
x = device.asarray(np.ones(100, np.uint32))
gs.scan(np.ones(1 << 21, np.uint32), device=device)
chunks = lambda: gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range({megabytes})), device=device)
begun, left = chunks(), chunks()
next(begun), next(left)
child = os.fork()
if child == 0:
    left.close()
    calls = (
        lambda: gs.scan(x),
        lambda: gs.scan(np.ones(9, "f4"), device=device),
        lambda: list(chunks()),
        lambda: list(begun),
        lambda: device.plan(77, np.int32, "maximum"),
        x.numpy,
        x.copy,
        x.read_async,
        device.synchronize,
        device.flush,
    )
    for call in calls:
        try:
            call()
        except gs.DeviceLostError as error:
            assert "spawn" in str(error)
        else:
            os._exit(1)
    os._exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(status, gs.scan(x).numpy()[-1], sum(map(len, begun)) == ({megabytes} - 1) << 18)
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "100", "True"]), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize(
    "used",
    [
        "gs.scan(gs.Device(name).asarray(np.ones(100, 'f4'))).device",
        "gs.Device(next(a for a in wgpu.gpu.enumerate_adapters_sync() if a.summary == name))",
        "next(a for a in wgpu.gpu.enumerate_adapters_sync() if a.summary == name).request_device_sync()",
    ],
)
def test_devices_are_not_opened_after_a_fork(adapter: wgpu.GPUAdapter, used: str) -> None:
    """Assert that a child can open a device only if its parent has not used the GPU."""
    code = f"""
import os, signal
import numpy as np, wgpu, gpuscan as gs
name = {adapter.summary!r}
def in_child(act):
    child = os.fork()
    if child == 0:
        signal.alarm({CHILD_SECONDS // 2})
        os._exit(act())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
def scans():
    return int(gs.scan(np.ones(9, "f4"), device=gs.Device(name))[-1])
def refused():
    ours = isinstance(held, gs.Device)
    kept = [lambda: gs.Device(held), lambda: gs.Device(held.wgpu_device.adapter)] if ours else []
    for call in (lambda: gs.Device(name), gs.devices, gs.default_device, lambda: gs.scan(np.ones(9, "f4")), *kept):
        try:
            call()
        except gs.DeviceLostError as error:
            assert "spawn" in str(error)
        else:
            return 1
    return int(gs.scan(np.ones(7, "f4"), device="numpy")[-1])
print(in_child(scans))
held = {used}
print(in_child(refused), in_child(lambda: in_child(refused)), scans())
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, ["9", "7", "7", "9"]), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_releases_nothing(adapter: wgpu.GPUAdapter) -> None:
    """Collect the parent's garbage in the child, where the driver would wait for locks of the parent's threads."""
    code = f"""
import gc, os, signal
import numpy as np, wgpu, gpuscan as gs
gc.disable()
device = gs.Device({adapter.summary!r})
held = device.asarray(np.ones(100, np.uint32))
begun = gs.scan_chunks((np.ones(1 << 18, np.uint32) for _ in range(9)), device=device)
next(begun)
begun.close()
def after_fork():
    global device, held, begun
    released = []
    ours = [thing for thing in gc.get_objects() if isinstance(thing, (wgpu.GPUObjectBase, wgpu.GPUAdapter))]
    for kind in set(map(type, ours)):
        kind._release = lambda thing: released.append(1)
    del device, held, begun, ours
    gc.collect()
    return min(len(released), 9)
child = os.fork()
if child == 0:
    signal.alarm({CHILD_SECONDS // 2})
    os._exit(after_fork())
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), after_fork() > 0)
"""
    done = python("-W", "ignore", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, ["0", "True"]), done.stderr
