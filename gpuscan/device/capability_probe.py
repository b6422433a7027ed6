"""Probe an adapter: read its features and limits, and measure what WebGPU does not report.

Small shaders (`shaders/probe/*.wgsl`) measure the real subgroup sizes, the order of lanes and the speed of polling.
Litmus tests of forward progress decide which strategies are safe on the adapter. Every wait in them is bounded.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from gpuscan._version import __version__
from gpuscan.device import disk_cache
from gpuscan.device.adapter_requirements import FLOAT64_FEATURES, choose_features, choose_limits, limits_within
from gpuscan.device.adapters import fresh, summary_of
from gpuscan.device.backends import implementation, timestamp_period, webgpu
from gpuscan.device.interrupts import defer_interrupts
from gpuscan.planning.capabilities import Capabilities
from gpuscan.templates import render

if TYPE_CHECKING:
    import wgpu


# ----- Litmus tests
#
# Run the probe's shaders (`shaders/probe/*.wgsl`) on a device, and read their results.


# The first words of ProbeResults in shaders/probe/results.wgsl.
_RESULTS = (
    "next_ticket",
    "timed_out",
    "started",
    "started_while_spinning",
    "polls",
    "subgroup_sizes",
    "lanes_out_of_order",
    "never",
    "waited_by_number",
    "found_by_number",
    "halves_alike",
)
_RESULT_BYTES = 4 * len(_RESULTS)
# The number of 16-bit patterns. The probe compares the packing of each of them.
HALVES = 1 << 16
# The bytes of two timestamps.
_TICK_BYTES = 16


@dataclass(frozen=True)
class Litmus:
    """The size of the litmus tests.

    Attributes:
        workgroups: several times more than can run at once.
        workgroup_size: invocations in a workgroup.
        chain_seconds: how long a workgroup waits for the one before it. Only a chain that fails takes as long.
        later_seconds: how long the first workgroup waits for the later ones to start.
        pauses: divisions that pass the time between two polls; see shaders/shared/pause.wgsl.
    """

    workgroups: int
    workgroup_size: int
    chain_seconds: float
    later_seconds: float
    pauses: int


class ProbeBench:
    """The probe's buffers and compiled shaders. It runs several of them in one submission."""

    def __init__(self, wgpu_device: wgpu.GPUDevice, litmus: Litmus, *, enable_subgroups: bool) -> None:
        self._device = wgpu_device
        self._values: dict[str, object] = {
            "workgroups": litmus.workgroups,
            "workgroup_size": litmus.workgroup_size,
            "pauses": litmus.pauses,
            "enable_subgroups": enable_subgroups,
        }
        self._grids = {"spin": 1, "subgroups": 4, "halves": -(-HALVES // litmus.workgroup_size)}
        self._grids |= dict.fromkeys(("chain", "order", "later"), litmus.workgroups)
        self._pipelines: dict[str, wgpu.GPUComputePipeline] = {}
        usage = webgpu().BufferUsage
        self._results = wgpu_device.create_buffer(
            label="gpuscan probe: results",
            size=_RESULT_BYTES + 4 * litmus.workgroups,
            usage=usage.STORAGE | usage.COPY_SRC,
        )
        self._readback = wgpu_device.create_buffer(
            label="gpuscan probe: readback", size=_RESULT_BYTES + _TICK_BYTES, usage=usage.COPY_DST | usage.MAP_READ
        )
        self._queries: wgpu.GPUQuerySet | None = None
        if "timestamp-query" in wgpu_device.features:
            self._queries = wgpu_device.create_query_set(type="timestamp", count=2)
            self._ticks = wgpu_device.create_buffer(
                label="gpuscan probe: ticks", size=_TICK_BYTES, usage=usage.QUERY_RESOLVE | usage.COPY_SRC
            )
        self.timestamp_period = timestamp_period(wgpu_device)

    def run(self, bounds: Mapping[str, tuple[int, int]]) -> tuple[dict[str, int], float, float]:
        """Run stages in order, time the last one, and read the results.

        Args:
            bounds: for each stage's name the bound of its waits: rounds, and polls in a round.

        Returns:
            The first words of ProbeResults, by name, the seconds of the last pass by timestamps, 0.0 if the device has
            none, and the seconds from the submission to the end of the read-back.
        """
        encoder = self._device.create_command_encoder()
        for stage, bound in bounds.items():
            timed = self._queries is not None and stage == list(bounds)[-1]
            writes = {
                "query_set": self._queries,
                "beginning_of_pass_write_index": 0,
                "end_of_pass_write_index": 1,
            }
            pipeline = self._pipeline(stage, bound)
            bindings = self._device.create_bind_group(
                layout=pipeline.get_bind_group_layout(0),
                entries=[{"binding": 0, "resource": {"buffer": self._results}}],
            )
            compute = encoder.begin_compute_pass(timestamp_writes=writes if timed else None)
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, bindings)
            compute.dispatch_workgroups(self._grids[stage])
            compute.end()
        encoder.copy_buffer_to_buffer(self._results, 0, self._readback, 0, _RESULT_BYTES)
        if self._queries is not None:
            encoder.resolve_query_set(self._queries, 0, 2, self._ticks, 0)
            encoder.copy_buffer_to_buffer(self._ticks, 0, self._readback, _RESULT_BYTES, _TICK_BYTES)
        commands = encoder.finish()

        start = time.perf_counter()
        with defer_interrupts():
            self._device.queue.submit([commands])
        self._readback.map_sync("READ")
        wall_seconds = time.perf_counter() - start
        data = self._readback.read_mapped(copy=True)
        self._readback.unmap()
        words = dict(zip(_RESULTS, data[:_RESULT_BYTES].cast("I"), strict=True))
        return words, self._seconds(data[_RESULT_BYTES:]), wall_seconds

    def _pipeline(self, stage: str, bound: tuple[int, int]) -> wgpu.GPUComputePipeline:
        if stage not in self._pipelines:
            rounds, polls = bound
            code = render(f"probe/{stage}.wgsl", rounds=rounds, polls=polls, **self._values)
            module = self._device.create_shader_module(label=f"gpuscan probe: {stage}", code=code)
            self._pipelines[stage] = self._device.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": "main"}
            )
        return self._pipelines[stage]

    def _seconds(self, ticks: memoryview) -> float:
        if self._queries is None:
            return 0.0
        begin, end = ticks.cast("Q")
        return (end - begin) * self.timestamp_period * 1e-9


# ----- The cache of findings
#
# Keep the probe's findings on disk, one file for each adapter (see disk_cache.py).
#
# A file with anything else in it counts as absent.


FOLDER = "probe"

# The fields that must agree for the findings to apply.
_KEY_FIELDS = ("name", "vendor", "driver", "backend", "adapter_type", "implementation", "features")


def load_findings(described: Mapping[str, object]) -> Capabilities | None:
    """Return the findings for the adapter that `described` identifies, or None."""
    try:
        capabilities = Capabilities.from_json(disk_cache.read(FOLDER, _key(described)))
        return replace(capabilities, distrusted=())  # a process learns that for itself
    except (ValueError, TypeError, KeyError):
        return None


def store_findings(capabilities: Capabilities) -> None:
    """Write the findings to disk."""
    described = {field.name: getattr(capabilities, field.name) for field in fields(capabilities)}
    disk_cache.write(FOLDER, _key(described), capabilities.to_json())


def _key(described: Mapping[str, Any]) -> dict[str, object]:
    key = {name: described[name] for name in _KEY_FIELDS} | {"gpuscan": __version__}
    return key | {"features": sorted(key["features"])}


# ----- The probe

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
        kept = None if refresh else load_findings(described)
        if kept is not None:
            return replace(kept, **described)
        _log.info("probing %s, which takes less than a second; the findings are kept", described["summary"])
        capabilities = Capabilities(**described, **_measure(_able(adapter, wgpu_device), described))
        store_findings(capabilities)
        return capabilities


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
        "mappable_storage": "mappable-primary-buffers" in features.intersection(choose_features(adapter)),
    }


def _vendor(info: Any) -> str:
    vendor = _VENDORS.get(info["vendor_id"])
    if vendor is None and info["backend_type"] == "Metal" and info["device"].startswith("Apple"):
        return "Apple"  # Metal reports no vendor number.
    return vendor or str(info["vendor"]) or "unknown"


# ----- What the probe measures


def _able(adapter: wgpu.GPUAdapter, wgpu_device: wgpu.GPUDevice) -> wgpu.GPUDevice:
    """Return the device, or another one if its user asked for smaller limits than the litmus tests need."""
    best = limits_within(choose_limits(adapter))
    if all(int(wgpu_device.limits[name]) >= min(best[name], least) for name, least in _LITMUS_LIMITS.items()):
        return wgpu_device
    return fresh(adapter).request_device_sync(required_features=choose_features(adapter), required_limits=best)


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
    polls = spins[0][0]["polls"]
    timestamps = all(0 < on_gpu < seconds * 1.1 for _, on_gpu, seconds in spins)
    rate = max(polls, 1) / min(on_gpu if timestamps else seconds for _, on_gpu, seconds in spins)

    iterations_per_second = rate / (1 + litmus.pauses)
    chain = _split_iterations(litmus.chain_seconds * iterations_per_second)
    words, _, _ = bench.run({"chain": chain, "later": _split_iterations(litmus.later_seconds * iterations_per_second)})
    # The threads of a CPU start workgroups in any order, and the packing of halves need not be fast there.
    if described["adapter_type"] != "CPU":
        words |= bench.run({"halves": (0, 0), "order": chain})[0]

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


def _split_iterations(iterations: float) -> tuple[int, int]:
    """Return a number of iterations as rounds, and polls in a round."""
    rounds = min(max(1, math.ceil(iterations / _MAX_POLLS)), _MAX_POLLS)
    return rounds, math.ceil(iterations / rounds)
