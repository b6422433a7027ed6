"""The file of ``gpuscan probe --report``: all that is worth knowing of one adapter, and nothing of the person."""

from __future__ import annotations

import datetime
import getpass
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np

from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.device.capability_probe import measure_again
from gpuscan.planning.capabilities import Capabilities
from gpuscan.tools.bench.command import Request, measure_all
from gpuscan.tools.bench.results import Measurement, report
from gpuscan.tools.console import progress_console
from gpuscan.tools.matrix.columns import without_cases
from gpuscan.tools.matrix.command import run_all
from gpuscan.tools.matrix.conformance import Case
from gpuscan.tools.option_types import STDOUT
from gpuscan.tools.output_file import write_text
from gpuscan.tools.probe_report import report as probe_report

# The name of the file format, with its version.
FORMAT = "gpuscan adapter 1"

# How often the litmus tests run. What a scheduler does now and then shows in the counts.
LITMUS_RUNS = 10

# The lengths of the arrays to time sums of, on GPUs and on software adapters.
GPU_SIZES = (1 << 20, 1 << 24, 1 << 26)
CPU_SIZES = (1 << 16, 1 << 20, 1 << 22)

# What a measurement says in the file.
_SPEED_FIELDS = (
    "length",
    "library",
    "name",
    "microseconds",
    "gigabytes_per_second",
    "of_copy",
    "clock",
    "right",
    "note",
)

# A path of folders, on any system. Texts of drivers may name some.
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\s\\/'\"():;,]+){2,}")

# The fewest characters of a name that is looked for. Shorter ones are parts of ordinary words.
_MIN_NAME = 3


def write_report(path: Path, device: Device) -> Path:
    """Write the report on a device, and return the path of the file.

    Args:
        path: the file, or a folder, in which the file is named after the adapter; `STDOUT` to print. In a folder only
            an earlier report is replaced.
        device: what to report on.

    Raises:
        click.UsageError: the folder has another file of that name.
    """
    if path != STDOUT and path.is_dir():
        path = path / file_name(device.capabilities)
        if os.path.lexists(path) and not _is_report(path):
            raise click.UsageError(
                f"a report in the folder {path.parent} was asked for, but the file {path.name} there is no report. "
                f"Write --report {path} to replace it, or name another file."
            )
    write_text(path, json.dumps(adapter_report(device), indent=1, ensure_ascii=False) + "\n")
    return path


def _is_report(path: Path) -> bool:
    """Return True if a file is a report that this command wrote."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        return not path.is_symlink() and isinstance(found, dict) and found.get("format") == FORMAT
    return False


def file_name(capabilities: Capabilities) -> str:
    """Return the usual name of an adapter's file, such as ``llvmpipe-vulkan-wgpu-native.json``."""
    name = re.sub(r"\(.*?\)", "", capabilities.name)
    parts = (name, capabilities.backend, capabilities.implementation.split()[0])
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).casefold()).strip("-") + ".json"


def adapter_report(
    device: Device, cases: Sequence[Case] | None = None, sizes: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return the report on a device as data.

    Args:
        device: what to report on.
        cases: cases of the conformance suite (default: the quick suite).
        sizes: array lengths to time sums of (default: some that suit the adapter).
    """
    capabilities = device.capabilities
    if sizes is None:
        sizes = CPU_SIZES if capabilities.adapter_type == "CPU" else GPU_SIZES
    column = run_all([device], True, cases)[0]
    request = Request(["add"], [np.dtype(np.uint32)], sizes)
    found = probe_report(0, device, None)
    for name in ("number", "default"):  # of this machine, not of the adapter
        del found[name]
    made: dict[str, Any] = without_person(
        {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "gpuscan": __version__,
            "software": _software(capabilities),
            "probe": found,
            "litmus": litmus_counts(measure_again(device._context.adapter, device.wgpu_device, LITMUS_RUNS)),
            "matrix": without_cases(column),
            "speeds": _speeds(device, measure_all(request.entrants(device), progress_console())),
        }
    )
    return made


def _software(capabilities: Capabilities) -> dict[str, str]:
    package = "wgpudawn" if capabilities.implementation.startswith("Dawn") else "wgpu"
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        package: importlib.metadata.version(package),
    }


def litmus_counts(runs: Sequence[Capabilities]) -> dict[str, Any]:
    """Return how many of several measurements saw each promise kept, and the range of what they counted."""
    started = [run.started_while_spinning for run in runs]
    polls = [run.spins_per_second for run in runs]
    return {
        "runs": len(runs),
        "workgroups": runs[0].litmus_workgroups,
        "started_keep_running": sum(run.progress_earlier for run in runs),
        "later_ones_start": sum(run.progress_later for run in runs),
        "started_while_one_waited": [min(started), max(started)],
        # CPU adapters are not tested for it.
        "start_in_order": sum(run.starts_in_order for run in runs) if runs[0].adapter_type != "CPU" else None,
        "lanes_in_order": sum(run.lanes_in_order for run in runs),
        "subgroup_sizes": sorted({size for run in runs for size in run.subgroup_sizes}),
        "polls_per_second": [round(min(polls)), round(max(polls))],
    }


def _speeds(device: Device, measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    rows = report(device, measurements, [])["measurements"]
    return [{name: row[name] for name in _SPEED_FIELDS if name in row} for row in rows]


# ----- Nothing of the person


def without_person(data: Any) -> Any:
    """Return the data without paths, and without the names of the user and the machine."""
    names = {Path.home().name, platform.node(), platform.node().partition(".")[0], _user()}
    known = [re.escape(name) for name in sorted(names, key=len, reverse=True) if len(name) >= _MIN_NAME]
    person = re.compile(rf"(?<!\w)(?:{'|'.join(known)})(?!\w)") if known else None

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: clean(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [clean(each) for each in value]
        if not isinstance(value, str):
            return value
        value = _PATH.sub("(path)", value)
        return person.sub("(name)", value) if person else value

    return clean(data)


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without a name
        return ""
