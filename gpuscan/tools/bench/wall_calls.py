"""The wall-clock time of calls from Python: what a program waits for, with the kernel, the submission and the wait."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

import gpuscan as gs
from gpuscan import Device
from gpuscan.tools.bench.peers.subjects import need, only

if TYPE_CHECKING:
    from rich.console import RenderableType

# The numbers of elements of the arrays, on GPUs and on software adapters.
GPU_SIZES = (1 << 10, 1 << 20, 1 << 24)
CPU_SIZES = (1 << 10, 1 << 20)
# Seconds that a call is repeated before it is measured, and then measured.
WARM_SECONDS = 0.2
MEASURED_SECONDS = 0.4
# Runs of a call that are measured at least.
MIN_RUNS = 9

Call = tuple[str, Callable[[], object]]


@dataclass(frozen=True)
class CallTime:
    """The wall-clock time of one call.

    Attributes:
        library: ``"gpuscan"`` or a peer's name.
        call: what was called.
        size: the number of float32 elements.
        seconds: the median time; None if the library could not be called.
        least: the shortest time.
        note: why there is no time.
    """

    library: str
    call: str
    size: int
    seconds: float | None = None
    least: float | None = None
    note: str = ""

    def row(self) -> dict[str, Any]:
        """Return the time as data for JSON, in microseconds."""
        times = {"microseconds": self.seconds, "least_microseconds": self.least}
        rounded = {name: None if value is None else round(1e6 * value, 2) for name, value in times.items()}
        return {"library": self.library, "call": self.call, "elements": self.size} | rounded | {"note": self.note}


def time_calls(
    device: Device, sizes: Sequence[int], peers: Sequence[str], progress: Callable[[str], None] = lambda what: None
) -> list[CallTime]:
    """Return the times of sums of float32 by gpuscan, and by those of the peers that run on a GPU."""
    usual = CPU_SIZES if device.capabilities.adapter_type == "CPU" else GPU_SIZES
    found = []
    for size in sizes or usual:
        progress(f"calls, {size:,}: gpuscan")
        found += [_timed("gpuscan", name, size, call) for name, call in _own_calls(device, size)]
        for peer in peers:
            if peer not in _PEERS:
                continue
            progress(f"calls, {size:,}: {peer}")
            try:
                found += [_timed(peer, name, size, call) for name, call in _PEERS[peer](size)]
            except Exception as error:  # a peer's failure is a row of the table
                found.append(CallTime(peer, "", size, note=f"{error}".partition("\n")[0]))
    return found


def calls_table(times: Sequence[CallTime]) -> list[RenderableType]:
    """Return the table of the times, with a section for each size, and the reasons for missing times."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = "Calls from Python, wall-clock time"
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("elements", no_wrap=True)
    table.add_column("call", overflow="fold")
    table.add_column("µs", justify="right", no_wrap=True)
    table.add_column("least", justify="right", no_wrap=True)
    missing = Table.grid(padding=(0, 2))
    for (library, note), sizes in _untimed(times).items():
        missing.add_row(Text(f"no time for {library} at {', '.join(sizes)}"), Text(note, "dim"))
    for size, group in groupby([each for each in times if each.seconds is not None], key=lambda each: each.size):
        section = list(group)
        for place, each in enumerate(section):
            first, last = place == 0, place + 1 == len(section)
            called = f"{each.library} {each.call}".strip()
            table.add_row(f"{size:,}" if first else "", called, *_microseconds(each), end_section=last)
    return [table, missing]


def _untimed(times: Sequence[CallTime]) -> dict[tuple[str, str], list[str]]:
    """Return the sizes at which a library could not be called, by the library and the reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in times:
        if each.seconds is None:
            found.setdefault((each.library, each.note), []).append(f"{each.size:,}")
    return found


def _microseconds(each: CallTime) -> list[str]:
    return [f"{1e6 * value:,.1f}" for value in (each.seconds, each.least) if value is not None]


def _timed(library: str, name: str, size: int, call: Callable[[], object]) -> CallTime:
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

    def waited(call: Callable[[], object], times: int = 1) -> Callable[[], object]:
        def run() -> None:
            for _ in range(times):
                call()
            device.synchronize()

        return run

    yield "device.synchronize()", device.synchronize
    yield "scan(a, out=o), synchronize()", waited(lambda: gs.scan(a, out=o))
    yield "scan(a), synchronize()", waited(lambda: gs.scan(a))
    yield "plan(a, out=o), synchronize()", waited(lambda: plan(a, out=o))
    yield "10 plan(a, out=o), synchronize()", waited(lambda: plan(a, out=o), 10)
    yield "reduce(a).numpy()", lambda: gs.reduce(a).numpy()
    yield "scan(NumPy array, out=…)", lambda: gs.scan(x, out=into, device=device)


def _torch_calls(size: int) -> Iterator[Call]:
    torch = need("torch")
    only(torch.cuda.is_available(), "PyTorch sees no CUDA device")
    a = torch.ones(size, device="cuda")
    o, host = torch.empty_like(a), torch.ones(size)

    def waited(times: int) -> None:
        for _ in range(times):
            torch.cumsum(a, 0, out=o)
        torch.cuda.synchronize()

    yield "cumsum(a, out=o), synchronize()", lambda: waited(1)
    yield "10 cumsum(a, out=o), synchronize()", lambda: waited(10)
    yield "sum().item()", lambda: a.sum().item()
    yield "cumsum(host.cuda()).cpu()", lambda: torch.cumsum(host.cuda(), 0).cpu()


def _cupy_calls(size: int) -> Iterator[Call]:
    cupy = need("cupy")
    only(cupy.cuda.is_available(), "CuPy sees no CUDA device")
    a = cupy.ones(size, np.float32)
    o, host = cupy.empty_like(a), np.ones(size, np.float32)

    def waited(times: int) -> None:
        for _ in range(times):
            cupy.cumsum(a, out=o)
        cupy.cuda.get_current_stream().synchronize()

    yield "cumsum(a, out=o), synchronize()", lambda: waited(1)
    yield "10 cumsum(a, out=o), synchronize()", lambda: waited(10)
    yield "sum().get()", lambda: a.sum().get()
    yield "cumsum(asarray(host)).get()", lambda: cupy.cumsum(cupy.asarray(host)).get()


def _numpy_calls(size: int) -> Iterator[Call]:
    x = np.ones(size, np.float32)
    into = np.empty_like(x)
    yield "cumsum(x, out=…)", lambda: np.cumsum(x, out=into)


_PEERS: dict[str, Callable[[int], Iterator[Call]]] = {
    "torch": _torch_calls,
    "cupy": _cupy_calls,
    "numpy": _numpy_calls,
}
