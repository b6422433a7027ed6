"""Profiles: a span for each stage, to every profile that is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan import cli
from gpuscan.tools import files
from tests.harness.devices import device_as_if
from tests.harness.scans import record_and_submit


def test_spans_of_each_stage(device: gs.Device) -> None:
    assert device.capabilities.timestamps  # so it is on all adapters of the tests
    x = np.ones(300_000, np.float32)
    with device.profile() as profile:
        gs.scan(x, device=device, strategy="three_dispatch")
    assert [span.stage for span in profile.spans] == ["reduce", "scan_totals", "scan"]
    assert {span.strategy for span in profile.spans} == {"three_dispatch"}
    assert {span.elements for span in profile.spans} == {len(x)}
    seconds = [span.gpu_seconds for span in profile.spans]
    begins = [span.begin for span in profile.spans]
    assert all(s is not None and 0 <= s < 10 for s in seconds)
    assert begins == sorted(begins)  # type: ignore[type-var]
    assert profile.gpu_seconds == pytest.approx(sum(s for s in seconds if s is not None))
    gs.scan(x, device=device)
    assert len(profile.spans) == 3  # it is closed


def test_profiles_nest_and_overlap(device: gs.Device) -> None:
    x = np.ones(10, np.uint32)
    with device.profile() as outer:
        gs.scan(x, device=device)
        with device.profile() as inner:
            gs.scan(x, device=device)
        first, second = device.profile(), device.profile()
        p = first.__enter__()
        gs.scan(x, device=device)
        q = second.__enter__()
        gs.scan(x, device=device)
        first.__exit__(None, None, None)
        gs.scan(x, device=device)
        second.__exit__(None, None, None)
    assert [len(profile.spans) for profile in (outer, inner, p, q)] == [5, 1, 2, 2]
    with pytest.raises(KeyError), device.profile() as interrupted:
        raise KeyError
    gs.scan(x, device=device)
    assert interrupted.spans == []


def test_recorded_and_streamed_scans_have_spans(device: gs.Device) -> None:
    x = device.asarray(np.ones(1000, np.uint32))
    y = device.empty(1000, np.uint32)
    with device.profile() as profile:
        encoder = device.wgpu_device.create_command_encoder()
        device.plan(1000, np.uint32).record(encoder, x, y)
        gs.scan(np.ones(3 << 20, np.uint32), device=device)
    device.wgpu_device.queue.submit([encoder.finish()])
    assert sum(span.elements for span in profile.spans if span.stage == "scan") == 1000 + (3 << 20)


def test_a_profile_read_before_the_submission_is_read_again_after(device: gs.Device) -> None:
    x = device.asarray(np.ones(300_000, np.uint32))
    y = device.empty(300_000, np.uint32)
    with device.profile() as profile:
        encoder = device.wgpu_device.create_command_encoder()
        device.plan(300_000, np.uint32).record(encoder, x, y)
    stages = [span.stage for span in profile.spans]
    assert profile.gpu_seconds is None
    assert {span.begin for span in profile.spans} == {None}
    device.wgpu_device.queue.submit([encoder.finish()])
    assert profile.gpu_seconds is not None
    assert profile.gpu_seconds > 0
    assert [span.stage for span in profile.spans] == stages
    assert profile.spans[0] is profile.spans[0]  # kept now


def while_another_thread(work: Callable[[], object], reads: Callable[[], object], times: int) -> None:
    """Call `reads` so often while another thread does its work again and again."""
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            work()

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(go_on)
        try:
            for _ in range(times):
                reads()
        finally:
            stop.set()
        going.result()


def test_a_profile_is_read_while_another_thread_scans(device: gs.Device) -> None:
    """Assert that recorded work is submitted before its timestamps are read, so every span has a time."""
    x = np.ones(3000, np.int32)
    y = device.asarray(x)

    def profile_scan() -> None:
        with device.profile() as profile:
            gs.scan(x, device=device)
            for _ in range(3):
                assert profile.gpu_seconds is not None

    def scans() -> None:
        gs.scan(y)
        gs.compact(y, x > 0)
        gs.scan(x.reshape(100, 30), axis=0, device=device)

    while_another_thread(scans, profile_scan, 60)


def test_a_profile_is_read_while_another_thread_submits_what_it_recorded(device: gs.Device) -> None:
    """Assert that no submission uses a mapped buffer, with which wgpu-native ends the process."""
    x, y = device.asarray(np.ones(3000, np.uint32)), device.empty(3000, np.uint32)
    plan = device.plan(3000, np.uint32)

    def records() -> None:
        record_and_submit(device.wgpu_device, plan, x, y)

    def profile_scan() -> None:
        with device.profile() as profile:
            gs.scan(x)
            for _ in range(3):
                assert {span.stage for span in profile.spans} <= {"reduce", "scan_totals", "scan"}
        profiles.append(profile)

    profiles: list[Any] = []
    while_another_thread(records, profile_scan, 60)
    assert None not in [profile.gpu_seconds for profile in profiles]


def test_without_timestamps(device: gs.Device) -> None:
    less = device_as_if(device, timestamps=False)
    with less.profile() as profile:
        gs.scan(np.ones(10, np.uint32), device=less)
    assert [(span.stage, span.gpu_seconds) for span in profile.spans] == [("scan", None)]
    assert profile.gpu_seconds is None


def test_the_command_line_prints_them(device: gs.Device, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    """Assert that the command line prints spans for arrays in memory and for streamed ones."""
    np.save(tmp_path / "in.npy", np.ones(2 << 20, np.uint32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUSCAN_ADAPTER", device.capabilities.summary)
    for limit in (1 << 40, 1 << 20):
        monkeypatch.setattr(files, "STREAMED_BYTES", limit)
        assert cli.run(["scan", "in.npy", "out.npy", "--profile"]) == 0
        out, err = capsys.readouterr()
        assert "GPU time" in out
        assert "scan" in out
        assert err == ""
        assert np.load("out.npy")[-1] == 2 << 20
    assert cli.run(["scan", "in.npy", "out.npy", "--profile", "--device", "numpy"]) == 2
