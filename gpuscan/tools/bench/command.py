"""What ``gpuscan bench`` does: measure what the options ask for, and print or write the figures."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
import numpy as np

import gpuscan as gs
from gpuscan import Device
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.backends import IN_BROWSER
from gpuscan.planning.strategies import STRATEGIES, unsafe_reason
from gpuscan.replaced_file import replace_file
from gpuscan.tools.bench.cases import ScanCase, takes
from gpuscan.tools.bench.contenders import Contender, copy_contender, run_suite, scan_contenders
from gpuscan.tools.bench.peers import CALLS, Call, peer_contenders
from gpuscan.tools.bench.results import (
    OURS,
    Measurement,
    failures,
    need_matplotlib,
    report,
    save_plot,
    tables,
    tabulate_reasons,
)
from gpuscan.tools.bench.timing import GpuTimer
from gpuscan.tools.output import STDOUT, fail_to_write, progress_console, table_console, write_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


# The numbers of elements of the arrays, on GPUs and on software adapters.
GPU_SIZES = tuple(1 << exponent for exponent in (16, 18, 20, 22, 25, 28))
CPU_SIZES = tuple(1 << exponent for exponent in (12, 16, 20, 22))


@dataclass(frozen=True)
class Request:
    """What to measure.

    Attributes:
        ops: the names of operators, or "sort".
        dtypes: element types. Each operator runs on the types that it combines.
        sizes: numbers of elements in an array. Empty: sizes that suit the adapter.
        rows: the number of rows that the elements are cut into.
        strategies: gpuscan's strategies. Empty: every one that is safe on the adapter.
        peers: the names of other libraries.
        calls: True to measure the wall-clock time of calls from Python as well.
    """

    ops: Sequence[str]
    dtypes: Sequence[AnyDType]
    sizes: Sequence[int] = ()
    rows: int = 1
    strategies: Sequence[str] = ()
    peers: Sequence[str] = ()
    calls: bool = False

    def cases(self, device: Device) -> list[ScanCase]:
        """Return every case, ordered by operator, dtype and size."""
        limits = device.capabilities.limits
        largest = min(limits["max-buffer-size"], limits["max-storage-buffer-binding-size"])
        usual = CPU_SIZES if device.capabilities.adapter_type == "CPU" else GPU_SIZES
        return [
            ScanCase(op, dtype, max(1, size // self.rows), self.rows)
            for op in self.ops
            for dtype in self.dtypes
            if takes(op, dtype)
            for size in self.sizes or [n for n in usual if ScanCase(op, dtype, n).moved_bytes // 2 <= largest]
        ]

    def entrants(self, device: Device) -> list[tuple[ScanCase, list[Contender]]]:
        """Return every case with its contenders: the copy, gpuscan, and the peers."""
        timer = GpuTimer(device)
        strategies = self.strategies or safe_strategies(device)
        return [
            (
                case,
                [
                    copy_contender(timer, case),
                    *scan_contenders(timer, case, strategies),
                    *peer_contenders(self.peers, case),
                ],
            )
            for case in self.cases(device)
        ]


def safe_strategies(device: Device) -> list[str]:
    """Return the strategies that the probe found safe on this adapter."""
    return [name for name in STRATEGIES if unsafe_reason(name, device.capabilities) is None]


def measure_all(entrants: Sequence[tuple[ScanCase, Sequence[Contender]]], console: Console) -> list[Measurement]:
    """Measure the contenders of every case, with a progress bar on the console."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, auto_refresh=not IN_BROWSER) as progress:
        task = progress.add_task("", total=sum(len(contenders) for _, contenders in entrants))
        return run_suite(
            entrants,
            lambda what: progress.update(task, description=what),
            lambda measurement: progress.advance(task),
        )


def bench(device: Device, request: Request, json_path: Path | None, plot: Path | None) -> None:
    """Measure, print the tables, and write the files asked for.

    Raises:
        click.UsageError: there is nothing to measure.
        click.ClickException: a result of gpuscan is wrong.
    """
    if plot is not None:
        need_matplotlib()
    entrants = request.entrants(device)
    if not entrants:
        raise click.UsageError("none of the operators of --op combines any type of --dtype. Name others.")
    measurements = measure_all(entrants, progress_console())
    calls = time_calls(device, request.sizes, request.peers) if request.calls else []
    show([device], measurements, calls, json_path, plot, ["gpuscan", *sys.argv[1:]])


def show(
    devices: Sequence[Device],
    measurements: Sequence[Measurement],
    calls: Sequence[CallTime],
    json_path: Path | None,
    plot: Path | None,
    command: Sequence[str],
) -> None:
    """Print the tables, and write the files asked for.

    Raises:
        click.ClickException: a result of gpuscan is wrong.
    """
    if json_path is not None:
        results = report(devices[0], measurements, command) | {"calls": [call.row() for call in calls]}
        if len(devices) > 1:
            results["devices"] = [device.capabilities.summary for device in devices]
        write_text(json_path, json.dumps(results, indent=1) + "\n")
    if json_path != STDOUT:
        for device in devices:
            click.echo(f"{device.capabilities.summary}, {device.capabilities.driver}")
        table_console().print(*tables(measurements), *(calls_table(calls) if calls else []), sep="\n")
    if plot is not None:
        try:
            with replace_file(plot) as partial:
                save_plot(partial, measurements, devices[0].capabilities.name)
        except OSError as error:
            fail_to_write(plot, error)
    wrong = [f"{m.name}, {m.case.series}, {m.case.size}" for m in failures(measurements)]
    wrong += [f"{call.call}, {call.size:,}" for call in calls if not call.right]
    if wrong:
        raise click.ClickException(f"wrong results of {'; '.join(wrong)}")


def bench_devices(devices: Sequence[Device], sizes: Sequence[int], json_path: Path | None) -> None:
    """Measure calls that several devices share, print a table, and write the file asked for."""
    show(devices, [], time_devices(devices, sizes), json_path, None, ["gpuscan", *sys.argv[1:]])


# ----- The time of calls
#
# The wall-clock time of calls from Python: what a program waits for, with transfers, the kernel and the wait.


# The numbers of elements of the arrays, on GPUs and on software adapters.
CALL_GPU_SIZES = (1 << 10, 1 << 20, 1 << 24)
CALL_CPU_SIZES = (1 << 10, 1 << 20)
# Seconds that a call is repeated before it is measured, and then measured.
WARM_SECONDS = 0.2
MEASURED_SECONDS = 0.4
# Runs of a call that are measured at least.
MIN_RUNS = 9

# The numbers of elements that several devices share: of NumPy arrays, and of arrays on the devices.
SHARED_GPU_SIZES = (1 << 28, 1 << 29)
SHARED_CPU_SIZES = (1 << 22, 1 << 22)

OnDevices: TypeAlias = gs.Array | gs.ShardedArray


@dataclass(frozen=True)
class CallTime:
    """The wall-clock time of one call.

    Attributes:
        library: ``"gpuscan"`` or a peer's name.
        call: what was called.
        size: the number of elements: float32, or uint32 for several devices.
        seconds: the median time; None if the library could not be called.
        least: the shortest time.
        note: why there is no time.
        right: False if a result differs from NumPy's.
    """

    library: str
    call: str
    size: int
    seconds: float | None = None
    least: float | None = None
    note: str = ""
    right: bool = True

    def row(self) -> dict[str, object]:
        """Return the time as data for JSON, in microseconds."""
        times = {"microseconds": self.seconds, "least_microseconds": self.least}
        rounded = {name: None if value is None else round(1e6 * value, 2) for name, value in times.items()}
        named = {"library": self.library, "call": self.call, "elements": self.size}
        return named | rounded | {"note": self.note, "right": self.right}


def time_calls(device: Device, sizes: Sequence[int], peers: Sequence[str]) -> list[CallTime]:
    """Return the times of sums of float32 by gpuscan and by the peers."""
    usual = CALL_CPU_SIZES if device.capabilities.adapter_type == "CPU" else CALL_GPU_SIZES
    times = []
    for size in sizes or usual:
        times += [_time(OURS, name, size, call) for name, call in _own_calls(device, size)]
        for peer in peers:
            if peer not in CALLS:
                continue
            try:
                times += [_time(peer, name, size, call) for name, call in CALLS[peer](size)]
            except Exception as error:  # a peer's failure is a row of the table
                times.append(CallTime(peer, "", size, note=f"{error}".partition("\n")[0]))
    return times


def time_devices(devices: Sequence[Device], sizes: Sequence[int]) -> list[CallTime]:
    """Return the times of sums of uint32 on the first device, and on the first 2, 3, … devices.

    Arrays are NumPy's, or on the devices. Then a call ends when all devices are done.
    """
    cpu = devices[0].capabilities.adapter_type == "CPU"
    from_numpy, on_devices = ([size] for size in (SHARED_CPU_SIZES if cpu else SHARED_GPU_SIZES))
    times = []
    for size in sizes or from_numpy:
        x = np.arange(size, dtype=np.uint32)
        out, wanted = np.empty_like(x), np.cumsum(x, dtype=np.uint32)
        for count in range(1, len(devices) + 1):
            first_devices = list(devices[:count])
            timed = _time(
                OURS, f"scan(NumPy array, out=…), {count} devices", size, partial(_scan_on, first_devices, x, out)
            )
            times.append(replace(timed, right=np.array_equal(out, wanted)))
    for size in sizes or on_devices:
        x = np.arange(size, dtype=np.uint32)
        wanted = np.cumsum(x, dtype=np.uint32)
        for count in range(1, len(devices) + 1):
            array: OnDevices = (
                devices[0].asarray(x) if count == 1 else gs.ShardedArray.from_numpy(x, list(devices[:count]))
            )
            results: list[OnDevices] = []
            waits = array if isinstance(array, gs.ShardedArray) else devices[0]
            call = partial(_scan_on_devices, array, waits, results)
            timed = _time(OURS, f"scan(array), synchronize(), {count} devices", size, call)
            times.append(replace(timed, right=np.array_equal(results.pop().numpy(), wanted)))
            del array, waits, call
            for device in devices[:count]:
                device.memory_cleanup()
    return times


def _scan_on(devices: list[Device], x: AnyArray, out: AnyArray) -> None:
    gs.scan(x, out=out, device=devices)


def _scan_on_devices(array: OnDevices, waits: Device | gs.ShardedArray, results: list[OnDevices]) -> None:
    results[:] = [gs.scan(array)]
    waits.synchronize()


def calls_table(times: Sequence[CallTime]) -> list[RenderableType]:
    """Return the table of the times, with a section for each size, and the reasons for missing times."""
    from rich import box
    from rich.table import Table

    title = "Calls from Python, wall-clock time"
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("elements", no_wrap=True)
    table.add_column("call", overflow="fold")
    table.add_column("µs", justify="right", no_wrap=True)
    table.add_column("least", justify="right", no_wrap=True)
    missing = tabulate_reasons((call.library, call.note, f"{call.size:,}") for call in times if call.seconds is None)
    for size, group in groupby([call for call in times if call.seconds is not None], key=lambda call: call.size):
        section = list(group)
        for row, call in enumerate(section):
            first, last = row == 0, row + 1 == len(section)
            called = f"{call.library} {call.call}{'' if call.right else ', WRONG'}".strip()
            microseconds = [f"{1e6 * value:,.1f}" for value in (call.seconds, call.least) if value is not None]
            table.add_row(f"{size:,}" if first else "", called, *microseconds, end_section=last)
    return [table, missing]


def _time(library: str, name: str, size: int, call: Callable[[], object]) -> CallTime:
    end = time.perf_counter() + WARM_SECONDS
    call()
    while time.perf_counter() < end:
        call()
    times: list[float] = []
    end = time.perf_counter() + MEASURED_SECONDS
    while len(times) < MIN_RUNS or time.perf_counter() < end:
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return CallTime(library, name, size, statistics.median(times), min(times))


def _own_calls(device: Device, size: int) -> Iterator[Call]:
    x = np.ones(size, np.float32)
    a, o, into = device.asarray(x), device.empty(x.shape, x.dtype), np.empty_like(x)
    plan = device.plan(x.shape, x.dtype)

    def and_wait(call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        def run() -> None:
            for _ in range(times):
                call()
            device.synchronize()

        return run

    yield "device.synchronize()", device.synchronize
    yield "asarray(x), synchronize()", and_wait(lambda: device.asarray(x))
    yield "a.numpy()", a.numpy
    yield "scan(a, out=o), synchronize()", and_wait(lambda: gs.scan(a, out=o))
    yield "scan(a), synchronize()", and_wait(lambda: gs.scan(a))
    yield "plan(a, out=o), synchronize()", and_wait(lambda: plan(a, out=o))
    yield "10 plan(a, out=o), synchronize()", and_wait(lambda: plan(a, out=o), 10)
    yield "reduce(a).numpy()", lambda: gs.reduce(a).numpy()
    yield "scan(NumPy array, out=…)", lambda: gs.scan(x, out=into, device=device)
