"""Adapters, capabilities and scans made up for tests that need no GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuscan.elements import LEAF, SCALARS, Structure, element_of
from gpuscan.operators.code import combine_code
from gpuscan.operators.operator import operator
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.spec import ScanSpec

NVIDIA = {"vendor_id": 0x10DE, "vendor": "NVIDIA", "description": "580.1"}
MESA = {"vendor_id": 0x10005, "vendor": "llvmpipe", "description": "Mesa 22.3.6"}


@dataclass(eq=False)
class FakeAdapter:
    """Stand in for a wgpu adapter: it has what `gpuscan.device` reads of one."""

    name: str = "GeForce"
    adapter_type: str = "DiscreteGPU"
    backend: str = "Vulkan"
    features: frozenset[str] = frozenset()
    invocations: int = 1024
    storage_buffers: int = 8
    about: dict[str, Any] = field(default_factory=lambda: dict(NVIDIA))

    @property
    def info(self) -> dict[str, Any]:
        """What the adapter says about itself."""
        return self.about | {"device": self.name, "adapter_type": self.adapter_type, "backend_type": self.backend}

    @property
    def limits(self) -> dict[str, int]:
        """The limits that decide whether it can compute."""
        return {
            "max-compute-invocations-per-workgroup": self.invocations,
            "max-compute-workgroup-size-x": self.invocations,
            "max-compute-workgroup-storage-size": 16384,
            "max-storage-buffers-per-shader-stage": self.storage_buffers,
            "max-buffer-size": 1 << 30,
            "max-texture-dimension-1d": 16384,
        }

    @property
    def summary(self) -> str:
        """One line, as wgpu writes it."""
        return f"{self.name} ({self.adapter_type}) via {self.backend}"


def capabilities(**changes: Any) -> Capabilities:
    """Make the capabilities of a discrete GPU that passed every test, with these fields changed."""
    fields: dict[str, Any] = {
        "summary": "GeForce (DiscreteGPU) via Vulkan",
        "name": "GeForce",
        "vendor": "NVIDIA",
        "driver": "NVIDIA 580.1",
        "backend": "Vulkan",
        "adapter_type": "DiscreteGPU",
        "implementation": "wgpu-native 29.0.1.1",
        "features": frozenset({"subgroup", "timestamp-query"}),
        "limits": {"max-buffer-size": 1 << 30, "max-compute-invocations-per-workgroup": 1024},
        "subgroup_sizes": (32,),
        "subgroup_size": 32,
        "lanes_in_order": True,
        "progress_earlier": True,
        "progress_later": True,
        "starts_in_order": True,
        "packs_halves": True,
        "started_while_spinning": 8192,
        "litmus_workgroups": 8192,
        "spins_per_second": 1.5e6,
        "loop_iterations": 0,
        "timestamps": True,
        "timestamp_period": 1.0,
        "native_int64": True,
        "int64_atomics": True,
        "float64": True,
        "shader_f16": True,
        "mappable_storage": False,
    }
    return Capabilities(**(fields | changes))


# ----- For the planner

# The limits that planning reads.
LIMITS = {
    "max-compute-invocations-per-workgroup": 1024,
    "max-compute-workgroup-size-x": 1024,
    "max-compute-workgroup-storage-size": 32768,
    "max-compute-workgroups-per-dimension": 65535,
}

NEWEST = operator(lambda l, r: r, name="newest")


def gpu(**changes: Any) -> Capabilities:
    """Make the capabilities of a discrete GPU with the limits that planning reads, with these fields changed."""
    return capabilities(**({"limits": LIMITS} | changes))


def software(**changes: Any) -> Capabilities:
    """Make the capabilities of an adapter that is the CPU, with these fields changed."""
    return gpu(**({"adapter_type": "CPU", "subgroup_sizes": (8,), "subgroup_size": 8} | changes))


def spec(*dtypes: str, shapes: Any = None, rows: int = 1, row_length: int = 1000, **options: Any) -> ScanSpec:
    """Make the scan of a bundle of these dtypes, or of single values."""
    names = dtypes or ("float32",)
    structure = LEAF if len(names) == 1 else Structure("tuple", tuple(range(len(names))), (LEAF,) * len(names))
    element = element_of([SCALARS[name].dtype for name in names], structure, shapes)
    code = combine_code(NEWEST, element, native_int64=True)
    fields: dict[str, Any] = {"source": element, "element": element, "destination": element}
    fields |= {"operator_name": "newest", "combine": code, "rows": rows, "row_length": row_length}
    return ScanSpec(**(fields | options))
