"""What ``gpuscan probe`` shows of every adapter, and the file of ``--report`` with all about one adapter."""

from __future__ import annotations

import datetime
import getpass
import json
import os
import platform
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan._version import __version__
from gpuscan.device.adapters import ADAPTER_VARIABLE, NUMPY
from gpuscan.device.capability_probe import measure_again
from gpuscan.device.driver_advice import driver_advice
from gpuscan.planning.capabilities import Capabilities, describe_capabilities, element_types
from gpuscan.planning.strategies import choose_strategy
from gpuscan.tools.bench.command import Request, measure_all
from gpuscan.tools.bench.results import Measurement, report
from gpuscan.tools.matrix.columns import webgpu_package, without_cases
from gpuscan.tools.matrix.command import run_all
from gpuscan.tools.matrix.conformance import Case
from gpuscan.tools.output import STDOUT, USAGE_WRONG, progress_console, write_text

if TYPE_CHECKING:
    from rich.panel import Panel

# The name of the file format, with its version.
FORMAT = "gpuscan adapter 1"

# How often the litmus tests run. What a scheduler does now and then shows in the counts.
LITMUS_RUNS = 10

# The lengths of the arrays to time sums of, on GPUs and on software adapters.
GPU_SIZES = (1 << 20, 1 << 24, 1 << 26)
CPU_SIZES = (1 << 16, 1 << 20, 1 << 22)

# The fields of a measurement that the file keeps.
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


# ----- Every adapter


def print_report(as_json: bool) -> None:
    """Print what the probe found on every adapter, and mark the default one.

    Exits with code 2 after the report if GPUSCAN_ADAPTER names no adapter.
    """
    devices = gpuscan.devices()
    default, problem = _default()
    if as_json:
        click.echo(json.dumps([describe(number, device, default) for number, device in enumerate(devices)], indent=2))
    elif not devices:
        click.echo(f"No GPU adapter was found, so gpuscan runs on NumPy. To change that: {driver_advice()}.")
    else:
        _print_panels(devices, default)
    if problem:
        click.echo(f"gpuscan: {problem}", err=True)
        raise click.exceptions.Exit(USAGE_WRONG)


def describe(number: int, device: Device, default: Device | None) -> dict[str, object]:
    """Return an adapter as data: what the probe found, and what follows from it."""
    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    return (
        {"number": number, "default": device is default}
        | capabilities.to_json()
        | {
            "strategy": choice.strategy,
            "reason": choice.reason,
            "element_types": element_types(capabilities),
        }
    )


def _default() -> tuple[Device | None, str]:
    """Return the device that calls use which name none, and what is wrong with the variable that chooses it."""
    if _chosen_by_variable() == NUMPY:
        return None, ""
    try:
        return gpuscan.default_device(), ""
    except gpuscan.AdapterNotFoundError as error:
        return None, str(error) if _chosen_by_variable() else ""


def _chosen_by_variable() -> str:
    """Return what $GPUSCAN_ADAPTER asks for, in lower case."""
    return os.environ.get(ADAPTER_VARIABLE, "").strip().casefold()


def _print_panels(devices: Sequence[Device], default: Device | None) -> None:
    from rich.console import Console, Group

    Console(highlight=False).print(
        Group(*(panel(number, device, device is default) for number, device in enumerate(devices)))
    )
    if _chosen_by_variable() == NUMPY:
        click.echo(f"{ADAPTER_VARIABLE}=numpy is set, so scans run on NumPy unless a call names a device.")


def panel(number: int, device: Device, default: bool) -> Panel:
    """Return the report on one adapter for a terminal."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    capabilities = device.capabilities
    choice = choose_strategy(capabilities)
    rows = describe_capabilities(capabilities)
    names = list(rows)
    rows["strategy"] = f"{choice.strategy}: {choice.reason}"
    names.insert(names.index("elements"), "strategy")
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(name, Text(rows[name]))
    title = f"{number}: {capabilities.name}{' (default)' if default else ''}"
    return Panel(table, title=Text(title, "bold"), title_align="left")


# ----- The report on one adapter: all that is worth knowing of it, and nothing of the person


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
        content = json.loads(path.read_text(encoding="utf-8"))
        return not path.is_symlink() and isinstance(content, dict) and content.get("format") == FORMAT
    return False


def file_name(capabilities: Capabilities) -> str:
    """Return the usual name of an adapter's file, such as ``llvmpipe-vulkan-wgpu-native.json``."""
    name = re.sub(r"\(.*?\)", "", capabilities.name)
    parts = (name, capabilities.backend, capabilities.implementation.split()[0])
    return re.sub(r"[^a-z0-9]+", "-", " ".join(parts).casefold()).strip("-") + ".json"


def adapter_report(
    device: Device, cases: Sequence[Case] | None = None, sizes: Sequence[int] | None = None
) -> dict[str, object]:
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
    described = describe(0, device, None)
    for name in ("number", "default"):  # of this machine, not of the adapter
        del described[name]
    made: dict[str, object] = without_person(
        {
            "format": FORMAT,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "gpuscan": __version__,
            "software": _software(capabilities),
            "probe": described,
            "litmus": litmus_counts(measure_again(device._context.adapter, device.wgpu_device, LITMUS_RUNS)),
            "matrix": without_cases(column),
            "speeds": _speeds(device, measure_all(request.entrants(device), progress_console())),
        }
    )
    return made


def _software(capabilities: Capabilities) -> dict[str, str]:
    package, version = webgpu_package(capabilities.implementation)
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        package: version,
    }


def litmus_counts(runs: Sequence[Capabilities]) -> dict[str, list[int] | int | None]:
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


def _speeds(device: Device, measurements: Sequence[Measurement]) -> list[dict[str, object]]:
    rows = report(device, measurements, [])["measurements"]
    return [{name: row[name] for name in _SPEED_FIELDS if name in row} for row in rows]


# ----- Nothing of the person


def without_person(data: object) -> Any:
    """Return the data without paths, and without the names of the user and the machine."""
    names = {Path.home().name, platform.node(), platform.node().partition(".")[0], _user()}
    patterns = [re.escape(name) for name in sorted(names, key=len, reverse=True) if len(name) >= _MIN_NAME]
    person = re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)") if patterns else None

    def clean(value: object) -> object:
        if isinstance(value, dict):
            return {key: clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [clean(item) for item in value]
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
