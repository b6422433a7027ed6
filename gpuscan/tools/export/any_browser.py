"""The plan of a scan that runs in every browser with WebGPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.elements import Element
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.problem.problem import make_problem

# The least that every WebGPU device has: https://www.w3.org/TR/webgpu/#limits. There are no subgroups, because their
# size is not known when the shader is written, and no 64-bit types, because WebGPU has none.
ANY_BROWSER = Capabilities(
    summary="any browser with WebGPU",
    name="any",
    vendor="any",
    driver="",
    backend="browser",
    adapter_type="Unknown",
    implementation="browser",
    features=frozenset(),
    limits={
        "max-buffer-size": 1 << 28,
        "max-compute-invocations-per-workgroup": 256,
        "max-compute-workgroup-size-x": 256,
        "max-compute-workgroup-storage-size": 16384,
        "max-compute-workgroups-per-dimension": 65535,
        "max-storage-buffer-binding-size": 1 << 27,
        "max-storage-buffers-per-shader-stage": 8,
    },
    subgroup_sizes=(),
    subgroup_size=0,
    lanes_in_order=False,
    progress_earlier=False,
    progress_later=False,
    starts_in_order=False,
    packs_halves=False,
    started_while_spinning=0,
    litmus_workgroups=0,
    spins_per_second=1e7,
    loop_iterations=0,
    timestamps=False,
    timestamp_period=1.0,
    native_int64=False,
    int64_atomics=False,
    float64=False,
    shader_f16=False,
    mappable_storage=False,
)


def plan_for_browsers(op: str, dtype: Any, length: int, strategy: str) -> ScanPlan:
    """Return the plan of the scan of up to `length` numbers.

    Raises:
        UnsupportedDtypeError: WebGPU has no such numbers, the array is larger than every browser's binding, or the
            operator combines elements of several numbers.
    """
    axes = resolve(op).element_axes
    if axes:
        raise UnsupportedDtypeError(
            f"operator {op!r} was asked for, which combines elements with {axes} axes of their own; scan.js takes "
            "arrays of single numbers. Export another operator"
        )
    problem = make_problem(np.broadcast_to(np.zeros((), dtype), (length,)), op)
    check_element(problem.element, length)
    return plan_scan(scan_spec(problem, ANY_BROWSER), ANY_BROWSER, strategy, "as asked")


def check_element(element: Element, length: int) -> None:
    """Raise UnsupportedDtypeError if some browser cannot hold an array of this length."""
    if any(field.scalar.name == "float64" for field in element.fields):
        raise UnsupportedDtypeError("float64 was asked for, and WebGPU has no 64-bit floats. Export float32")
    limit = ANY_BROWSER.limits["max-storage-buffer-binding-size"]
    if length * element.storage_bytes > limit:
        raise UnsupportedDtypeError(
            f"{length} elements of {element.storage_bytes} bytes were asked for, and some browsers bind only {limit} "
            f"bytes. Export a length of at most {limit // element.storage_bytes}"
        )
