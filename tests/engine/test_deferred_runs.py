"""Short runs over known buffers are deferred, and submitted together or with the read that follows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.steps import Copy
from tests.engine.test_withheld import TRUSTED
from tests.harness.builds import end_in_time, shorten_waits, trust_after_timeouts, withhold_posts
from tests.harness.devices import defer_runs, device_as_if, pool_of, queue_of, spin
from tests.oracle import assert_same, small_tiles

X = np.random.default_rng(0).integers(0, 2**32, 6_000, dtype=np.uint32)
SUM = np.cumsum(X, dtype=np.uint32)


@pytest.fixture
def submissions(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets an entry for each submission of the device."""
    made: list[str] = []
    queue = queue_of(own_device)
    send = queue._send

    def note_submit(commands: Any) -> None:
        made.append("submit")
        send(commands)

    monkeypatch.setattr(queue, "_send", note_submit)
    return made


def steps(made: list[str], call: Callable[[], object], count: int = 4) -> list[int]:
    """Return how many submissions each of several calls makes."""
    numbers = []
    for _ in range(count):
        made.clear()
        call()
        numbers.append(len(made))
    return numbers


def test_runs_and_the_wait_for_them_are_one_submission(own_device: gs.Device, submissions: list[str]) -> None:
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    source, result = device.asarray(X), device.empty(X.shape, X.dtype)
    plan = device.plan(X.shape, X.dtype, strategy="fallback")

    def scans(count: int) -> None:
        for _ in range(count):
            gs.scan(source, out=result, strategy="fallback")
        device.synchronize()

    assert steps(submissions, lambda: scans(1))[-2:] == [1, 1]
    assert_same(result.numpy(), SUM)
    assert steps(submissions, lambda: scans(10))[-2:] == [1, 1]
    assert steps(submissions, lambda: scans(20), 1) == [2]

    def plans() -> None:
        for _ in range(10):
            plan(source, out=result)
        device.synchronize()

    assert steps(submissions, plans)[-1] == 1
    here = own_device.asarray(X)
    assert steps(submissions, lambda: gs.reduce(here).numpy())[-1] == 1
    assert int(gs.reduce(here).numpy()) == SUM[-1]
    made = gs.scan(source, strategy="fallback")
    assert_same(made.numpy(), SUM)


def test_waits_last_until_the_gpu_is_done(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that a wait polls until the end, whether it spins all the time, a part of it, or never."""
    x = np.random.default_rng(4).integers(0, 2**32, 1 << 18, dtype=np.uint32)
    source, result = own_device.asarray(x), own_device.empty(x.shape, x.dtype)
    for seconds in (60.0, 1e-4, 0.0):
        is_idle = spin(own_device, monkeypatch, seconds)
        for _ in range(3):
            gs.scan(source, out=result)
            own_device.synchronize()
            assert is_idle()
            gs.scan(source, out=result)
            assert_same(result.numpy(), np.cumsum(x, dtype=np.uint32))


def test_runs_are_deferred_until_they_take_longer_than_their_submission(
    own_device: gs.Device, submissions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    source, result = device.asarray(X), device.empty(X.shape, X.dtype)

    def scan() -> None:
        gs.scan(source, out=result, strategy="fallback")

    # A GPU that needs a second for each scan, and one that needs no time. The queue learns it with a submission.
    for most, made in ((float(X.nbytes), 1), (1e30, 0)):
        defer_runs(monkeypatch, most_bytes_per_second=most)
        scan()
        device.synchronize()
        assert steps(submissions, scan) == [made] * 4
    assert_same(result.numpy(), np.cumsum(X, dtype=np.uint32))
    # The estimate follows the submissions of this machine, also to more than the first estimate.
    queue = queue_of(own_device)
    queue._submission_seconds = 1e-9
    for _ in range(4):
        scan()
        device.synchronize()
    assert 1e-9 < queue._submission_seconds < 1e-3


def test_a_deferred_report_tells_of_a_timeout(
    own_device: gs.Device, submissions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trust_after_timeouts(monkeypatch)
    shorten_waits(monkeypatch)
    end_in_time(monkeypatch, lambda: False)  # a fast adapter may be done in time to look whether it is
    withhold_posts(monkeypatch, tile=small_tiles(own_device)[0])
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    source = device.asarray(np.ones(5000, np.uint32))
    result = device.empty((5000,), np.uint32)

    def scan_and_wait() -> None:
        gs.scan(source, out=result, strategy="lookback")
        with pytest.raises(gs.ProgressTimeoutError):
            device.synchronize()

    assert steps(submissions, scan_and_wait, count=5)[-1] == 1


def test_reports_of_runs_that_end_in_time_are_not_read(
    own_device: gs.Device, submissions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that a timeout raises as long as the runs ended too late, or the GPU was still at work."""
    trust_after_timeouts(monkeypatch)
    shorten_waits(monkeypatch)
    withhold_posts(monkeypatch, tile=small_tiles(own_device)[0])
    device = device_as_if(own_device, unsafe=True, **TRUSTED)
    source = device.asarray(np.ones(5000, np.uint32))
    result = device.empty((5000,), np.uint32)
    scan = partial(gs.scan, source, out=result, strategy="lookback")
    for wait in (device.synchronize, result.numpy):
        for answers, submitted, raises in (([True, True], 1, False), ([True, False], 2, True), ([False], 1, True)):
            for _ in range(2):
                scan()
                with pytest.raises(gs.ProgressTimeoutError):
                    device.synchronize()
            with monkeypatch.context() as patched:
                spin(device, patched, 60.0)
                end_in_time(patched, iter(answers).__next__)
                submissions.clear()
                scan()
                with pytest.raises(gs.ProgressTimeoutError) if raises else nullcontext():
                    wait()
            assert len(submissions) == submitted
            device.synchronize()


def test_nothing_overtakes_a_deferred_run(device: gs.Device) -> None:
    """Assert that uploads, kernels, reads and a caller's own commands come after the scans before them."""
    source, result = device.asarray(X), device.empty(X.shape, X.dtype)

    def scan_into_result() -> gs.Array:
        device.wgpu_device.queue.write_buffer(result.buffer, 0, np.zeros_like(X))
        gs.scan(source, out=result)
        return result

    for _ in range(2):
        scan_into_result()
    assert_same(scan_into_result().numpy(), SUM)
    assert_same(scan_into_result()[::-3].numpy(), SUM[::-3])
    assert_same(scan_into_result().copy().numpy(), SUM)
    assert_same(scan_into_result().read_async().result(), SUM)
    assert_same(gs.scan(scan_into_result()).numpy(), np.cumsum(SUM, dtype=np.uint32))
    gpu = device.wgpu_device
    assert_same(np.frombuffer(gpu.queue.read_buffer(scan_into_result().buffer, 0, X.nbytes), np.uint32), SUM)
    encoder = gpu.create_command_encoder()
    copy = device.empty(X.shape, X.dtype)
    encoder.copy_buffer_to_buffer(result.buffer, 0, copy.buffer, 0, X.nbytes)
    scan_into_result()
    gpu.queue.submit([encoder.finish()])
    assert_same(copy.numpy(), SUM)
    scan_into_result()
    gpu.queue.write_buffer(result.buffer, 0, X)
    assert_same(result.numpy(), X)


def test_arrays_and_buffers_that_go_before_the_run_is_submitted(own_device: gs.Device) -> None:
    device, pool = own_device, pool_of(own_device)
    source, result = device.asarray(X), device.empty(X.shape, X.dtype)
    for _ in range(2):
        gs.scan(source, out=result)
        device.synchronize()
    gs.scan(source, out=result)
    del source
    # The upload takes the same buffer from the pool, and the clean-up destroys it.
    other = device.asarray(np.zeros_like(X))
    assert_same(result.numpy(), SUM)
    for _ in range(2):
        gs.scan(other, out=result)
        device.synchronize()
    gs.scan(other, out=result)
    del other
    pool.cleanup()
    assert not result.numpy().any()


def test_copies_that_fail_lose_no_run(own_device: gs.Device) -> None:
    device, queue = own_device, queue_of(own_device)
    source, result = device.asarray(X), device.empty(X.shape, X.dtype)
    for _ in range(2):
        gs.scan(source, out=result)
        device.synchronize()
    gs.scan(result, out=source)
    gs.scan(source, out=result)
    with pytest.raises(Exception, match="same buffer"):
        queue.flush([Copy(source.buffer, 0, source.buffer, 0, 1 << 40)])
    assert_same(source.numpy(), np.cumsum(SUM, dtype=np.uint32))


def test_calls_that_look_alike_are_told_apart(device: gs.Device) -> None:
    """Assert that a call over known buffers still checks what Python takes for equal: 1, 1.0 and True."""
    x = np.random.default_rng(1).integers(0, 2**32, (3, 50), dtype=np.uint32)
    source, result = device.asarray(x), device.empty(x.shape, x.dtype)
    for _ in range(3):
        assert_same(gs.scan(source, axis=1, out=result).numpy(), np.cumsum(x, axis=1, dtype=np.uint32))
        assert_same(gs.reduce(source, axis=1).numpy(), np.sum(x, axis=1, dtype=np.uint32))
        assert gs.reduce(source, axis=1, keepdims=True).shape == (3, 1)
    odd: Any
    for odd in (True, 1.0):
        for function in (gs.scan, gs.reduce):
            with pytest.raises(TypeError):
                function(source, axis=odd)
    assert_same(gs.scan(source, axis=0, out=result).numpy(), np.cumsum(x, axis=0, dtype=np.uint32))
    odd = 1
    assert_same(gs.scan(source, axis=1, reverse=odd, out=result).numpy()[:, ::-1], np.cumsum(x[:, ::-1], 1, np.uint32))
    with pytest.raises(TypeError):
        gs.scan(source, axis=1, out=device.empty(x.shape, np.uint64))
    with pytest.raises(ValueError, match="shape"):
        gs.scan(source, axis=1, out=device.empty((50, 3), np.uint32))
    odd = []
    with pytest.raises((TypeError, ValueError)):
        gs.scan(source, axis=1, strategy=odd)
