"""The probe on every adapter found gives the findings that are known of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device.adapter_requirements import check_limits, choose_features, choose_limits, limits_within
from gpuscan.device.capability_probe import HALVES, Litmus, ProbeBench, probe
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.strategies import Strategy
from tests.harness.builds import count_measurements
from tests.harness.devices import small_binding
from tests.harness.processes import python
from tests.oracle import Array

# Seconds within which the probe has ended even on a busy machine; an unbounded wait never ends.
BOUNDED_SECONDS = 60


@pytest.fixture(scope="module")
def wgpu_device(adapter):
    """Return a device with everything that the probe asks for."""
    return adapter.request_device_sync(
        required_features=choose_features(adapter), required_limits=choose_limits(adapter)
    )


@pytest.fixture(scope="module")
def fresh_findings(adapter, wgpu_device) -> Capabilities:
    """Return freshly measured findings."""
    return probe(adapter, wgpu_device, refresh=True)


# By implementation and backend: subgroup size, and the findings of litmus 1, 2 and 3.
KNOWN = {
    ("llvmpipe", "Vulkan"): (8, True, False, False),  # fixed shares of the grid for each thread
    ("llvmpipe", "OpenGL"): (0, True, False, False),
    ("SwiftShader", "Vulkan"): (4, False, False, False),  # what follows a barrier is a task that spinning can hold up
    ("NVIDIA", "Vulkan"): (32, True, True, True),
}
FINDINGS = ("progress_earlier", "progress_later", "starts_in_order")


def test_findings(fresh_findings):
    """Assert that the probe finds what is known about an adapter."""
    known = [
        truth
        for (name, backend), truth in KNOWN.items()
        if name in fresh_findings.name and backend == fresh_findings.backend
    ]
    if known:
        assert (fresh_findings.subgroup_size, *(getattr(fresh_findings, name) for name in FINDINGS)) == known[0]
    assert fresh_findings.progress_later == (fresh_findings.started_while_spinning == fresh_findings.litmus_workgroups)
    assert 0 < fresh_findings.started_while_spinning <= fresh_findings.litmus_workgroups


def test_findings_are_stable(adapter, wgpu_device, fresh_findings):
    """Assert that repeated probes come to the same findings."""
    again = probe(adapter, wgpu_device, refresh=True)
    for name in ("subgroup_sizes", "lanes_in_order", *FINDINGS, "packs_halves", "timestamps"):
        assert getattr(again, name) == getattr(fresh_findings, name), name
    assert 0.02 < again.spins_per_second / fresh_findings.spins_per_second < 50


def test_the_chain_by_number_sees_who_waits_in_vain(wgpu_device, fresh_findings):
    """Assert that the chain by number counts the workgroups that see no post, within bounded waits."""
    litmus = Litmus(workgroups=64, workgroup_size=32, chain_seconds=0, later_seconds=0, pauses=0)
    bench = ProbeBench(wgpu_device, litmus, enable_subgroups="subgroups" in fresh_findings.features)
    words = bench.run({"chain": (1, 60_000), "order": (1, 60_000)})[0]
    assert words["next_ticket"] == 64  # the chain of tickets leaves nothing that the other takes for its own
    assert words["waited_by_number"] + words["found_by_number"] == 64
    assert words["waited_by_number"] == 0 if fresh_findings.starts_in_order else words["found_by_number"] > 0
    nobody = ProbeBench(wgpu_device, litmus, enable_subgroups="subgroups" in fresh_findings.features)
    words = nobody.run({"order": (1, 0)})[0]  # who may not look sees nothing
    assert (words["found_by_number"], words["waited_by_number"]) == (1, 63)


def test_packing_of_halves_that_rounds_another_way_is_seen(wgpu_device, fresh_findings):
    """Assert that only SwiftShader is seen to cut bits off: llvmpipe and NVIDIA's GPUs round as NumPy."""
    litmus = Litmus(workgroups=1, workgroup_size=48, chain_seconds=0, later_seconds=0, pauses=0)
    bench = ProbeBench(wgpu_device, litmus, enable_subgroups="subgroups" in fresh_findings.features)
    alike = bench.run({"halves": (0, 0)})[0]["halves_alike"]
    assert 1 << 11 < alike <= HALVES  # numbers that a half can hold need no rounding
    if "SwiftShader" in fresh_findings.name:
        assert alike < HALVES
    if "llvmpipe" in fresh_findings.name or fresh_findings.vendor == "NVIDIA":
        assert alike == HALVES
    assert fresh_findings.packs_halves == (alike == HALVES and fresh_findings.adapter_type != "CPU")


def test_loops_end_early_on_llvmpipe(fresh_findings):
    """Assert that llvmpipe's limit holds for all loops of an invocation together."""
    if "llvmpipe" in fresh_findings.name:
        assert 60_000 < fresh_findings.loop_iterations <= 65_535
    else:
        assert fresh_findings.loop_iterations == 0


def test_features_and_limits_are_the_devices(fresh_findings, wgpu_device):
    """Assert that the record has the features and limits of the device, not of the adapter."""
    assert fresh_findings.features == set(wgpu_device.features)
    limits = {name: int(value) for name, value in wgpu_device.limits.items()}
    assert dict(fresh_findings.limits) == limits_within(limits)
    assert fresh_findings.float64 == ({"shader-f64", "shader-int64"} <= set(wgpu_device.features))
    assert bool(fresh_findings.subgroup_sizes) == ("subgroup" in wgpu_device.features)


def test_a_device_without_features(adapter):
    """Assert that findings claim no feature that the device does not have. The wall clock times the polls."""
    bare = probe(adapter, adapter.request_device_sync(), refresh=True)
    assert (bare.subgroup_sizes, bare.subgroup_size, bare.lanes_in_order) == ((), 0, False)
    assert not bare.timestamps
    assert not bare.native_int64
    assert bare.spins_per_second > 1e4


def test_found_once_then_read(adapter, wgpu_device, monkeypatch, tmp_path):
    """Assert that the second device on an adapter does not measure. Processes of other tests have another folder."""
    for name in ("XDG_CACHE_HOME", "WIN_PD_OVERRIDE_LOCAL_APPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    found = probe(adapter, wgpu_device, refresh=True)
    measured = count_measurements(monkeypatch)
    assert probe(adapter, wgpu_device) == found
    assert measured == []


def test_found_on_a_device_of_small_limits(adapter, tmp_path: Path, monkeypatch):
    """Assert that the findings of a device with small limits also hold for devices with larger ones."""
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path))
    used = count_measurements(monkeypatch)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 12})
    assert small.capabilities.limits["max-storage-buffer-binding-size"] == 1 << 12
    assert int(used[0].limits["max-storage-buffer-binding-size"]) > 1 << 16
    assert small.capabilities.litmus_workgroups == gs.Device(adapter).capabilities.litmus_workgroups
    assert len(used) == 1


def test_starting_up_from_nothing(adapter, tmp_path: Path):
    """Assert that a new process with an empty cache opens a device in bounded time."""
    code = f"import gpuscan as gs; print(gs.Device({adapter.summary!r}).capabilities.name)"
    done = python("-c", code, seconds=BOUNDED_SECONDS, environment={"XDG_CACHE_HOME": str(tmp_path)})
    assert done.stdout.strip() in adapter.summary


LIMITS = [
    (ValueError, "'max-buffers', which WebGPU does not have; use one of .*max-buffer-size", {"max-buffers": 1}),
    (ValueError, "Ask for less", {"max-buffer-size": 1 << 62}),
    (ValueError, "Ask for more", {"max-buffer-size": -1}),
    (ValueError, "Ask for more", {"min-storage-buffer-offset-alignment": 1}),
    (TypeError, r"max-buffer-size'\] = '1' was passed, but a limit is an integer", {"max-buffer-size": "1"}),
    (TypeError, "required_limits of type list was passed; pass a dict", ["max-buffer-size"]),
]


@pytest.mark.parametrize(("error", "match", "limits"), LIMITS)
def test_limits_that_there_are_not(adapter: wgpu.GPUAdapter, error: Any, match: str, limits: Any) -> None:
    with pytest.raises(error, match=match):
        gs.Device(adapter, required_limits=limits)


@pytest.mark.parametrize("name", ["max-buffer-size", "max_buffer_size", "maxBufferSize"])
def test_limits_by_every_name(adapter: wgpu.GPUAdapter, name: str) -> None:
    limits: dict[str, Any] = {name: np.int64(1 << 20)}
    assert check_limits(adapter, limits) == {"max-buffer-size": 1 << 20}


def test_small_limits_are_kept_to(adapter: wgpu.GPUAdapter) -> None:
    """Assert that arrays larger than a binding are scanned in pieces, also short ones."""
    limit = small_binding(adapter)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit})
    assert small.capabilities.limits["max-storage-buffer-binding-size"] == limit
    x = np.arange(limit // 1024 * 400, dtype=np.int32)
    wanted = x.cumsum(dtype=np.int32)
    plan = small.plan(len(x), np.int32)
    for got in (gs.scan(x, device=small), plan(x), gs.scan(small.asarray(x)).numpy()):
        np.testing.assert_array_equal(got, wanted)
    columns = x.reshape(-1, 400)
    for axis in (0, 1):
        got = gs.scan(columns, axis=axis, reverse=True, device=small)
        np.testing.assert_array_equal(got, np.flip(np.flip(columns, axis).cumsum(axis, dtype=np.int32), axis))
    assert gs.reduce(x, device=small) == wanted[-1]


def scan_in_pieces(small: gs.Device, x: Array, width: int) -> Array:
    """Scan and reduce an array of NumPy, also as columns in rows of this width, and return the sums."""
    wanted = x.cumsum(dtype=np.int32)
    np.testing.assert_array_equal(gs.scan(x, device=small), wanted)
    assert gs.reduce(x, device=small) == wanted[-1]
    columns = x.reshape(-1, width)
    np.testing.assert_array_equal(gs.scan(columns, axis=0, device=small), columns.cumsum(0, dtype=np.int32))
    return wanted


def test_small_buffers_take_arrays_in_pieces(adapter: wgpu.GPUAdapter) -> None:
    """Scan NumPy arrays of any length, also if one buffer cannot hold both the array and the run's report."""
    limit = 1 << (22 if adapter.info["adapter_type"] == "CPU" else 23)
    small = gs.Device(adapter, required_limits={"max-buffer-size": limit})
    assert small.capabilities.limits["max-storage-buffer-binding-size"] == limit
    for n in (limit // 4, limit // 2):
        x = np.arange(n, dtype=np.int32)
        wanted = scan_in_pieces(small, x, 64)
        np.testing.assert_array_equal(np.concatenate(list(gs.scan_chunks([x[:7], x[7:]], device=small))), wanted)
    with pytest.raises(gs.DeviceMemoryError, match="larger limit"):
        small.asarray(x)


def test_limits_that_end_within_a_vector(adapter: wgpu.GPUAdapter) -> None:
    """Scan an array in the last 12 bytes below a binding limit that is not a multiple of 16."""
    limit = 1 << (20 if adapter.info["adapter_type"] == "CPU" else 23)
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": limit - 4})
    x = np.arange(limit // 4 - 1, dtype=np.int32)
    wanted = scan_in_pieces(small, x, 7)
    np.testing.assert_array_equal(gs.scan(small.asarray(x)).numpy(), wanted)


def test_the_tile_state_grows_within_the_limits(adapter: wgpu.GPUAdapter) -> None:
    """Run scans with posts that fit a binding, although twice their size would not."""
    small = gs.Device(adapter, unsafe=True, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    for length in (26_000, 28_000, 1000):
        x = np.arange(5 * length, dtype=np.int32).reshape(5, length)
        for strategy in ("fallback", "three_dispatch"):
            got = gs.scan(x, axis=0, device=small, strategy=strategy)
            np.testing.assert_array_equal(got, x.cumsum(0, dtype=np.int32))


@pytest.mark.parametrize("length", [1, 4])
def test_short_columns_as_large_as_a_binding(adapter: wgpu.GPUAdapter, length: int) -> None:
    """Scan short columns, with all rows in one tile, so that tiles share nothing."""
    small = gs.Device(adapter, unsafe=True, required_limits={"max-storage-buffer-binding-size": 1 << 20})
    x = np.random.default_rng(0).integers(0, 99, (length, (1 << 18) // length), dtype=np.int32)
    wanted = x.cumsum(0, dtype=np.int32)
    for strategy in ("three_dispatch", "lookback", "fallback"):
        np.testing.assert_array_equal(gs.scan(x, axis=0, device=small, strategy=strategy), wanted)
        np.testing.assert_array_equal(gs.scan(small.asarray(x), axis=0, strategy=strategy).numpy(), wanted)
        got = gs.scan(x, axis=0, reverse=True, exclusive=True, device=small, strategy=strategy)
        np.testing.assert_array_equal(got[:-1], x[::-1].cumsum(0, dtype=np.int32)[::-1][1:])
    np.testing.assert_array_equal(gs.reduce(x, axis=0, device=small), wanted[-1])


@pytest.mark.parametrize(
    ("dtype", "shape", "op"),
    [("int32", (2, 1 << 17), "add"), ("int8", (2, 1 << 19), "add"), ("float32", (20, 160, 4, 4), "matmul")],
)
def test_columns_whose_tiles_share_more_than_a_binding(
    adapter: wgpu.GPUAdapter, dtype: str, shape: tuple[int, ...], op: str
) -> None:
    """Assert that arrays are cut if their posts, totals or seeds exceed a binding, with up to 4 times the bytes."""
    most = max(1 << 16, np.dtype(dtype).itemsize * int(np.prod(shape)))
    small = gs.Device(adapter, unsafe=True, required_limits={"max-storage-buffer-binding-size": most})
    x = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)
    wanted = gs.scan(x, op, axis=0, device="numpy")
    strategies: tuple[Strategy, ...] = (
        ("fallback", "auto") if op == "matmul" else ("three_dispatch", "lookback", "fallback", "auto")
    )
    for strategy in strategies:  # matrices take long to compile
        np.testing.assert_allclose(gs.scan(x, op, axis=0, device=small, strategy=strategy), wanted, rtol=1e-5)
        got = gs.scan(small.asarray(x), op, axis=0, strategy=strategy).numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    if dtype == "int8":
        np.testing.assert_array_equal(gs.scan(x, op, axis=0, exclusive=True, device=small)[1:], wanted[:-1])
    np.testing.assert_allclose(gs.reduce(x, op, axis=0, device=small), wanted[-1], rtol=1e-5)
    np.testing.assert_array_equal(gs.scan(np.ones(9, np.int32), device=small), np.arange(1, 10))


def test_limits_too_small_for_a_piece(adapter: wgpu.GPUAdapter) -> None:
    small = gs.Device(adapter, required_limits={"max-storage-buffer-binding-size": 1 << 13})
    x = np.ones(70_001, np.int32)
    for array in (x, small.asarray(x)):
        with pytest.raises(gs.GpuscanError, match=r"scan of 70001 elements .* \d+ elements of 4 .* 8192 bytes"):
            gs.scan(array, device=small)
