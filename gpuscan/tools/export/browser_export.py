"""Writes a scan as WGSL and a small ES module that runs it in a browser, with a page that checks itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np

from gpuscan._version import __version__
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.plan import ScanPlan
from gpuscan.tools.exit_codes import fail_to_write
from gpuscan.tools.export.any_browser import plan_for_browsers
from gpuscan.tools.matrix import conformance
from gpuscan.tools.output_file import replaced_file

# The files of every export, which do not depend on the scan.
BROWSER_FILES = Path(__file__).parent / "browser"

# Runs on every GPU. Nothing is known of the GPU of a page's visitor.
STRATEGY = "three_dispatch"

# All stages that a plan can have, for removing the files of an earlier export.
STAGES = ("reduce", "scan_totals", "scan", "carry")

# The longest array that the page checks, in elements.
MAX_CHECKED = 100_003


def export_and_describe(folder: Path, op: str, dtype: np.dtype[Any], length: int, strategy: str) -> str:
    """Export a scan, and return a line that says what is in the folder.

    Raises:
        click.UsageError: the operator does not combine the dtype.
        click.ClickException: the folder cannot be written.
    """
    try:
        plan = export(folder, op, dtype, length, strategy)
    except OSError as error:
        fail_to_write(folder, error)
    except TypeError as error:
        raise click.UsageError(str(error)) from error
    stages = ", ".join(f"{stage.name}.wgsl" for stage in plan.stages)
    return f"{folder}: {stages}, scan.js to import, index.html to open from: python -m http.server -d {folder}"


def export(folder: Path, op: str, dtype: Any, length: int, strategy: str = STRATEGY) -> ScanPlan:
    """Write the scan of up to `length` numbers into a folder, for browsers, and return its plan.

    The folder gets ``plan.json``, one ``.wgsl`` file for each stage, ``scan.js`` (the module to import), and
    ``index.html``, a page that checks itself. Serve it with any web server: browsers load no modules from files. A
    file or symbolic link of the same name in the folder is replaced, never written through.

    Args:
        folder: made if it does not exist.
        op: an operator's name.
        dtype: the type of the numbers.
        length: the longest array. The tile is chosen for it.
        strategy: `three_dispatch` runs on every GPU. The others need what a browser does not tell about a GPU.

    Raises:
        UnsupportedDtypeError: as `plan_for_browsers` raises.
        OSError: a file cannot be written.
    """
    plan = plan_for_browsers(op, dtype, length, strategy)
    folder.mkdir(parents=True, exist_ok=True)
    for name in STAGES:
        (folder / f"{name}.wgsl").unlink(missing_ok=True)
    for name, content in _files(plan, op, np.dtype(dtype)).items():
        with replaced_file(folder / name) as partial:
            partial.write_bytes(content)
    return plan


def _files(plan: ScanPlan, op: str, dtype: np.dtype[Any]) -> dict[str, bytes]:
    """Return the content of every file by its name, the plan last."""
    given, expected = conformance.known(dtype.name, resolve(op).name, min(plan.length, MAX_CHECKED))
    described = _describe(plan, dtype, resolve(op).name) | {"check_sizes": _check_sizes(plan, len(given))}
    return {
        **{f"{stage.name}.wgsl": render_kernel(stage.kernel).encode() for stage in plan.stages},
        **{name: (BROWSER_FILES / name).read_bytes() for name in ("scan.js", "check.js", "index.html")},
        "check.input": given.tobytes(),
        "check.expected": expected.tobytes(),
        "plan.json": (json.dumps(described, indent=1) + "\n").encode(),
    }


def _describe(plan: ScanPlan, dtype: np.dtype[Any], op: str) -> dict[str, Any]:
    """Return what scan.js has to know about the plan."""
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
        "element": dtype.name,
        "element_bytes": dtype.itemsize,
        "workgroups_beside": plan.workgroups_without_tile,
        "strategy": plan.strategy,
        "length": plan.length,
        "tile_size": plan.tile.tile_size,
        "state_bytes": plan.state_bytes,
        "spin_rounds": plan.spin_rounds,
        "tolerance": conformance.OPERATORS[op].tolerance,
        "stages": stages,
    }


def _check_sizes(plan: ScanPlan, length: int) -> list[int]:
    """Return the lengths that the page checks: around the edges of tiles and of blocks of 32 tiles."""
    tile = plan.tile.tile_size
    edges = {1, 33, tile - 1, tile, tile + 1, 32 * tile - 1, 32 * tile + 1, length}
    return sorted(edge for edge in edges if 0 < edge <= length)
