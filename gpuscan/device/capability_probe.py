"""Probe an adapter: read its features and limits, and measure what WebGPU does not report.

Small shaders (`shaders/probe/*.wgsl`) measure the real subgroup sizes, the order of lanes and the speed of polling.
Litmus tests of forward progress decide which strategies are safe on the adapter. Every wait in them is bounded.
"""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuscan.device import probe_cache
from gpuscan.device.adapters import fresh, summary_of
from gpuscan.device.backends import implementation
from gpuscan.device.litmus import HALVES, Litmus, ProbeBench
from gpuscan.device.requirements import FLOAT64_FEATURES, limits_within, wanted_features, wanted_limits
from gpuscan.planning.capabilities import Capabilities

if TYPE_CHECKING:
    import wgpu

_log = logging.getLogger("gpuscan")

_VENDORS = {
    0x1002: "AMD",
    0x1010: "Imagination",
    0x106B: "Apple",
    0x10DE: "NVIDIA",
    0x13B5: "ARM",
    0x1414: "Microsoft",
    0x14E4: "Broadcom",
    0x1AE0: "Google",
    0x5143: "Qualcomm",
    0x8086: "Intel",
    0x10005: "Mesa",
}

# The litmus tests are not tuned for speed: their sizes decide what they can find out, so they stand here and not in
# planning/heuristics.py.
#
# A GPU holds a few thousand invocations on each of at most some 300 cores, which 8192 workgroups exceed several times.
_GPU_LITMUS = Litmus(workgroups=8192, workgroup_size=256, chain_seconds=0.05, later_seconds=0.02, pauses=0)
# The limits that a device needs for the litmus tests. With less, the probe opens a device of its own.
_LITMUS_LIMITS = {
    "max-buffer-size": 1 << 16,
    "max-storage-buffer-binding-size": 1 << 16,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroups-per-dimension": 8192,
}
# A software adapter runs a workgroup or two on each core, and the system may take the core away for a while, so waits
# are longer. Pauses lengthen them, since llvmpipe allows an invocation 65,535 iterations: with 32 divisions each
# they take 42 ms.
_CPU_LITMUS = Litmus(workgroups=512, workgroup_size=64, chain_seconds=0.1, later_seconds=0.02, pauses=32)

# The most polls in a round, fewer than the 65,535 iterations that llvmpipe allows.
_MAX_POLLS = 60_000
# Rounds, and polls in a round, of the shader that measures the speed of polling. Their product is more than llvmpipe
# allows, so that the probe notices the limit.
_SPIN_BOUND = (2, 33_000)
# How often the speed of polling is measured. The fastest run counts, since other programs may use the GPU.
_SPIN_RUNS = 5

_lock = threading.Lock()


def probe(adapter: wgpu.GPUAdapter, wgpu_device: wgpu.GPUDevice, *, refresh: bool = False) -> Capabilities:
    """Return what the adapter can do, measured through a device of it.

    The findings are kept on disk by adapter, driver, WebGPU implementation, features and gpuscan version. `refresh`
    measures again, which takes some tens of milliseconds on a GPU, and up to 0.2 seconds on a software adapter.
    """
    described = _describe(adapter, wgpu_device)
    with _lock:  # Two probes at the same time would disturb each other's measurements.
        kept = None if refresh else probe_cache.load(described)
        if kept is not None:
            return replace(kept, **described)
        _log.info("probing %s, which takes less than a second; the findings are kept", described["summary"])
        found = Capabilities(**described, **_measure(_able(adapter, wgpu_device), described))
        probe_cache.store(found)
        return found


def measure_again(adapter: wgpu.GPUAdapter, wgpu_device: wgpu.GPUDevice, times: int) -> list[Capabilities]:
    """Return what each of several new measurements found, and keep none of them."""
    described = _describe(adapter, wgpu_device)
    with _lock:
        able = _able(adapter, wgpu_device)
        return [Capabilities(**described, **_measure(able, described)) for _ in range(times)]


# ----- What the device reports


def _describe(adapter: wgpu.GPUAdapter, wgpu_device: wgpu.GPUDevice) -> dict[str, Any]:
    info = adapter.info
    features = frozenset(str(feature) for feature in wgpu_device.features)
    return {
        "summary": summary_of(adapter),
        "name": str(info["device"]),
        "vendor": _vendor(info),
        "driver": " ".join(part for part in (info["vendor"], info["description"]) if part),
        "backend": str(info["backend_type"]),
        "adapter_type": str(info["adapter_type"]),
        "implementation": implementation(adapter),
        "features": features,
        "limits": limits_within({str(limit): int(value) for limit, value in wgpu_device.limits.items()}),
        "native_int64": "shader-int64" in features,
        "int64_atomics": "shader-int64-atomic-all-ops" in features,
        "float64": features >= FLOAT64_FEATURES,
        "shader_f16": "shader-f16" in features,
        "mappable_storage": "mappable-primary-buffers" in features.intersection(wanted_features(adapter)),
    }


def _vendor(info: Any) -> str:
    known = _VENDORS.get(info["vendor_id"])
    if known is None and info["backend_type"] == "Metal" and info["device"].startswith("Apple"):
        return "Apple"  # Metal reports no vendor number.
    return known or str(info["vendor"]) or "unknown"


# ----- What the probe measures


def _able(adapter: wgpu.GPUAdapter, wgpu_device: wgpu.GPUDevice) -> wgpu.GPUDevice:
    """Return the device, or another one if its user asked for smaller limits than the litmus tests need."""
    best = limits_within(wanted_limits(adapter))
    if all(int(wgpu_device.limits[name]) >= min(best[name], least) for name, least in _LITMUS_LIMITS.items()):
        return wgpu_device
    return fresh(adapter).request_device_sync(required_features=wanted_features(adapter), required_limits=best)


def _measure(wgpu_device: wgpu.GPUDevice, described: dict[str, Any]) -> dict[str, Any]:
    litmus = _CPU_LITMUS if described["adapter_type"] == "CPU" else _GPU_LITMUS
    most = int(wgpu_device.limits["max-compute-invocations-per-workgroup"])
    litmus = replace(litmus, workgroup_size=min(litmus.workgroup_size, most))
    features = described["features"]
    bench = ProbeBench(wgpu_device, litmus, enable_subgroups="subgroups" in features)
    has_subgroups = not features.isdisjoint({"subgroup", "subgroups"})

    # The first run compiles the shaders and wakes the GPU up.
    bench.run({"spin": _SPIN_BOUND} | ({"subgroups": (0, 0)} if has_subgroups else {}))
    spins = [bench.run({"spin": _SPIN_BOUND}) for _ in range(_SPIN_RUNS)]
    polls = spins[0].words["polls"]
    timestamps = all(0 < spin.gpu_seconds < spin.wall_seconds * 1.1 for spin in spins)
    rate = max(polls, 1) / min(spin.gpu_seconds if timestamps else spin.wall_seconds for spin in spins)

    iterations_per_second = rate / (1 + litmus.pauses)
    chain = _bound(litmus.chain_seconds * iterations_per_second)
    words = bench.run({"chain": chain, "later": _bound(litmus.later_seconds * iterations_per_second)}).words
    # The threads of a CPU start workgroups in any order, and the packing of halves need not be fast there.
    if described["adapter_type"] != "CPU":
        words |= bench.run({"halves": (0, 0), "order": chain}).words

    sizes = tuple(1 << bit for bit in range(32) if words["subgroup_sizes"] >> bit & 1)
    in_order = bool(sizes) and words["lanes_out_of_order"] == 0
    return {
        "subgroup_sizes": sizes,
        "subgroup_size": sizes[0] if in_order and len(sizes) == 1 else 0,
        "lanes_in_order": in_order,
        "progress_earlier": words["next_ticket"] == litmus.workgroups and words["timed_out"] == 0,
        "progress_later": words["started_while_spinning"] == litmus.workgroups,
        "started_while_spinning": words["started_while_spinning"],
        "litmus_workgroups": litmus.workgroups,
        "starts_in_order": words["found_by_number"] == litmus.workgroups,
        "packs_halves": words["halves_alike"] == HALVES,
        "spins_per_second": rate,
        "loop_iterations": polls if polls < math.prod(_SPIN_BOUND) else 0,
        "timestamps": timestamps,
        "timestamp_period": bench.timestamp_period,
    }


def _bound(iterations: float) -> tuple[int, int]:
    """Return a number of iterations as rounds, and polls in a round."""
    rounds = min(max(1, math.ceil(iterations / _MAX_POLLS)), _MAX_POLLS)
    return rounds, math.ceil(iterations / rounds)
