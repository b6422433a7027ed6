"""Writes a plan as WGSL and a small ES module that runs it in a browser, with a page that checks itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from gpuscan._version import __version__
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.elements import Element
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.operators.builtin import resolve
from gpuscan.operators.code import combine_code
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.problem.problem import pose
from gpuscan.tools.matrix import conformance

BROWSER_FILES = Path(__file__).parent / "browser"
STRATEGY = "three_dispatch"  # of whoever opens the page nothing is known
STAGES = ("reduce", "scan_totals", "scan", "carry")
CHECKED = 100_003  # elements at most in the page's check

# What every WebGPU device has at least: https://www.w3.org/TR/webgpu/#limits. No subgroups, for their size is not known
# before the shader is written; no 64-bit types, which WebGPU does not have.
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


def export(folder: Path, op: str, dtype: Any, length: int, strategy: str = STRATEGY) -> ScanPlan:
    """Write the scan of up to `length` numbers into a folder, for browsers; gives the plan.

    The folder gets ``plan.json``, one ``.wgsl`` file a stage, ``scan.js`` (the module to import), and ``index.html``
    with what it checks itself by. Serve it with any web server: browsers do not load modules from files.

    Args:
        folder: made if it is not there.
        op: an operator's name.
        dtype: what is combined.
        length: the longest array to come; the tile is chosen for it.
        strategy: `three_dispatch` runs on every GPU. The others need what a browser does not tell of a GPU.

    Raises:
        UnsupportedDtypeError: WebGPU has no such numbers, one array is larger than every browser's binding, or the
            operator combines elements of several numbers.
    """
    axes = resolve(op).element_axes
    if axes:
        raise UnsupportedDtypeError(
            f"operator {op!r} was asked for, whose elements have {axes} axes of their own; scan.js takes arrays of "
            "single numbers. Export another operator"
        )
    problem = pose(np.broadcast_to(np.zeros((), dtype), (length,)), op)
    check_element(problem.element, length)
    work = ScanSpec(
        source=problem.source,
        element=problem.element,
        destination=problem.destination,
        operator_name=problem.operator.name,
        combine=combine_code(problem.operator, problem.element, native_int64=False),
        rows=1,
        row_length=length,
    )
    plan = plan_scan(work, ANY_BROWSER, strategy, "as asked")
    folder.mkdir(parents=True, exist_ok=True)
    for name in STAGES:  # of an earlier export by another strategy
        (folder / f"{name}.wgsl").unlink(missing_ok=True)
    for stage in plan.stages:
        (folder / f"{stage.name}.wgsl").write_text(render_kernel(stage.kernel), encoding="utf-8")
    for file in ("scan.js", "check.js", "index.html"):
        shutil.copyfile(BROWSER_FILES / file, folder / file)
    sizes = _write_check(folder, op, np.dtype(dtype), plan)
    described = _describe(plan, problem.element, resolve(op).name) | {"check_sizes": sizes}
    (folder / "plan.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    return plan


def check_element(element: Element, length: int) -> None:
    """Raise UnsupportedDtypeError where no browser takes the array."""
    if any(field.scalar.name == "float64" for field in element.fields):
        raise UnsupportedDtypeError("float64 was asked for, and WebGPU has no 64-bit floats. Export float32")
    limit = ANY_BROWSER.limits["max-storage-buffer-binding-size"]
    if length * element.storage_bytes > limit:
        raise UnsupportedDtypeError(
            f"{length} elements of {element.storage_bytes} bytes were asked for; every browser binds {limit} bytes"
        )


def _describe(plan: ScanPlan, element: Element, op: str) -> dict[str, Any]:
    """What scan.js has to know of the plan."""
    stages = [
        {
            "name": stage.name,
            "file": f"{stage.name}.wgsl",
            "whole_grid": stage.name != "scan_totals",
            "bindings": [
                {
                    "name": array.name,
                    "binding": array.binding,
                    "type": "read-only-storage" if array.access == "read" else "storage",
                }
                for array in stage.kernel.bindings
            ],
        }
        for stage in plan.stages
    ]
    return {
        "version": __version__,
        "operator": op,
        "element": element.fields[0].scalar.name,
        "element_bytes": element.storage_bytes,
        "workgroups_beside": plan.workgroups_without_tile,
        "strategy": plan.strategy,
        "length": plan.length,
        "tile_size": plan.tile.tile_size,
        "state_bytes": plan.state_bytes,
        "spin_rounds": plan.spin_rounds,
        "tolerance": conformance.OPERATORS[op].tolerance,
        "stages": stages,
    }


def _write_check(folder: Path, op: str, dtype: np.dtype[Any], plan: ScanPlan) -> list[int]:
    """An input whose scan is known, and that scan; gives the lengths to check, about the edges of tiles and blocks."""
    length = min(plan.length, CHECKED)
    given, expected = conformance.known(dtype.name, resolve(op).name, length)
    (folder / "check.input").write_bytes(given.tobytes())
    (folder / "check.expected").write_bytes(expected.tobytes())
    tile = plan.tile.tile_size
    edges = {1, 33, tile - 1, tile, tile + 1, 32 * tile - 1, 32 * tile + 1, length}
    return sorted(edge for edge in edges if 0 < edge <= length)
