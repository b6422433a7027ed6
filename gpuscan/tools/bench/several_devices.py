"""The wall-clock time of sums on one device and on several: from NumPy to NumPy, and of arrays that stay there."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

import gpuscan as gs
from gpuscan import Device
from gpuscan.tools.console import progress_console, table_console
from gpuscan.tools.option_types import STDOUT
from gpuscan.tools.output_file import write_text

if TYPE_CHECKING:
    from rich.table import Table

# Elements of the arrays from NumPy to NumPy, and of those that stay, on GPUs; and of both on software adapters.
GPU_SIZES = (1 << 28, 1 << 29)
CPU_SIZES = (1 << 22, 1 << 22)
# How many times everything is measured, to show how much figures differ.
RUNS = 3
# Calls in a run, after one that is not measured. Their median counts.
CALLS = 5


@dataclass
class Row:
    """The times of one kind of call.

    Attributes:
        call: what was called.
        devices: on how many devices.
        elements: of how many uint32.
        seconds: the median time of a call, in each run.
        wrong: True if a result differs from NumPy's.
    """

    call: str
    devices: int
    elements: int
    seconds: list[float]
    wrong: bool = False

    @property
    def gigabytes(self) -> list[float]:
        """Gigabytes read and written in a second, if each element moves twice."""
        return [8 * self.elements / seconds / 1e9 for seconds in self.seconds]


def measure_and_report(devices: Sequence[Device], sizes: Sequence[int], json_path: Path | None) -> None:
    """Measure sums of uint32 on the first device, and on the first 2, 3, … devices, and print a table.

    Args:
        devices: the devices.
        sizes: numbers of elements (default: by adapter).
        json_path: a file to write the figures to, or `STDOUT`.

    Raises:
        click.ClickException: a result is wrong.
    """
    by_adapter = CPU_SIZES if devices[0].capabilities.adapter_type == "CPU" else GPU_SIZES
    console = progress_console()
    rows: list[Row] = []
    for size in sizes or by_adapter[:1]:
        rows += from_numpy(devices, size, console.print)
    for size in sizes or by_adapter[1:]:
        rows += on_devices(devices, size, console.print)
    if json_path is not None:
        found = {"devices": [each.capabilities.summary for each in devices], "rows": [asdict(row) for row in rows]}
        write_text(json_path, json.dumps(found, indent=1) + "\n")
    if json_path != STDOUT:
        for number, each in enumerate(devices):
            click.echo(f"{number}: {each.capabilities.summary}, {each.capabilities.driver}")
        table_console().print(table_of(rows))
    if any(row.wrong for row in rows):
        raise click.ClickException("a result differs from NumPy's")


def from_numpy(devices: Sequence[Device], size: int, progress: Callable[[str], None]) -> list[Row]:
    """Time ``gs.scan(x, out=out, device=devices)`` of NumPy arrays."""
    x = np.arange(size, dtype=np.uint32)
    out, wanted = np.empty_like(x), np.cumsum(x, dtype=np.uint32)
    rows = []
    for count in range(1, len(devices) + 1):
        team = list(devices[:count])
        progress(f"NumPy to NumPy, {size} elements, {count} devices")
        seconds = timed(lambda team=team: gs.scan(x, out=out, device=team))  # type: ignore[misc]
        rows.append(Row("NumPy to NumPy", count, size, seconds, not np.array_equal(out, wanted)))
    return rows


def on_devices(devices: Sequence[Device], size: int, progress: Callable[[str], None]) -> list[Row]:
    """Time the scan of an array on one device, and of a sharded one, up to the moment when all devices are done."""
    x = np.arange(size, dtype=np.uint32)
    wanted = np.cumsum(x, dtype=np.uint32)
    rows = []
    for count in range(1, len(devices) + 1):
        team = list(devices[:count])
        progress(f"on the devices, {size} elements, {count} devices")
        array: Any = team[0].asarray(x) if count == 1 else gs.ShardedArray.from_numpy(x, team)
        wait = team[0] if count == 1 else array
        last: list[Any] = []

        def call(array: Any = array, wait: Any = wait, last: list[Any] = last) -> None:
            last[:] = [gs.scan(array)]
            wait.synchronize()

        seconds = timed(call)
        rows.append(Row("on the devices", count, size, seconds, not np.array_equal(last.pop().numpy(), wanted)))
        del array, wait, call
        for each in team:
            each.memory_cleanup()
    return rows


def timed(call: Callable[[], object]) -> list[float]:
    """Return the median time of a call, in each run."""
    medians = []
    for _ in range(RUNS):
        call()
        times = []
        for _ in range(CALLS):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
        medians.append(statistics.median(times))
    return medians


def table_of(rows: Sequence[Row]) -> Table:
    """Return the figures as a table, with the speed-up over one device."""
    from rich.table import Table

    table = Table(title=f"sums of uint32, {RUNS} runs, GB/s of bytes read and written")
    for name in ("call", "elements", "devices", "ms", "GB/s", "times one device", ""):
        table.add_column(name, justify="left" if name in ("call", "") else "right")
    for row in rows:
        one = next(each for each in rows if (each.call, each.elements, each.devices) == (row.call, row.elements, 1))
        ratios = [a / b for a, b in zip(one.seconds, row.seconds, strict=True)]
        table.add_row(
            row.call,
            f"{row.elements:,}",
            str(row.devices),
            "  ".join(f"{1e3 * seconds:.2f}" for seconds in row.seconds),
            "  ".join(f"{each:.1f}" for each in row.gigabytes),
            "  ".join(f"{ratio:.2f}" for ratio in ratios),
            "WRONG" if row.wrong else "",
        )
    return table
