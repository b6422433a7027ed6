"""Random scans for a while, beside processes that keep the CPU busy: `script/soak`.

Shapes, operators, options and strategies are drawn at random, and now and then tiles whose posts never come (see
tests/gpu/test_withheld.py). Every result is compared with NumPy's; a call that takes too long ends the run.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import gpuscan as gs
from gpuscan import runner
from tests.oracle import AFFINE, MATRICES, posed, small_tiles, strategies_on, words
from tests.strategies import numbers

Array = np.ndarray[Any, Any]
HANGS = 120.0  # seconds after which a call is taken to hang, and the process ends with all tracebacks
VAIN = 10.0  # seconds within which a wait in vain has to end, on a CPU that others use
HOGS = 2
LARGEST = 21  # 2^21 elements

GCD = gs.wgsl_operator(
    """fn combine(a: Element, b: Element) -> Element {
    var pair = vec2u(a, b);
    while (pair.y != 0u) { pair = vec2u(pair.y, pair.x % pair.y); }
    return pair.x;
}""",
    name="gcd",
)
UFUNCS = {"int32": "add", "uint32": "bitwise_xor", "int64": "add", "uint8": "add", "int16": "minimum",
          "float32": "maximum", "float16": "maximum", "bool": "logical_xor", "uint64": "multiply"}  # fmt: skip


# ----- Cases


@dataclass(frozen=True)
class Case:
    """A call, what it must give, and what to call it by. Of a wait in vain it may give up instead, in time."""

    name: str
    call: Callable[[], Any]
    wanted: Any
    in_vain: bool = False


def draw(rng: np.random.Generator, device: gs.Device) -> Case:
    kinds = [named, named, named, traced, withheld, segments, compensated, wgsl, picked, chunks, reduced]
    return kinds[rng.integers(len(kinds))](rng, device)


def length_of(rng: np.random.Generator, most: int = LARGEST) -> int:
    return int(2 ** rng.uniform(0, most))


def strategy_of(rng: np.random.Generator, device: gs.Device) -> str:
    choices = ["auto", *strategies_on(device)]
    return choices[rng.integers(len(choices))]


def named(rng: np.random.Generator, device: gs.Device) -> Case:
    """A ufunc of any dtype along any axis, from NumPy or from the device."""
    dtype = list(UFUNCS)[rng.integers(len(UFUNCS))]
    ufunc: np.ufunc = getattr(np, UFUNCS[dtype])
    n = length_of(rng)
    shape = (
        (n,) if rng.random() < 0.5 else tuple(rng.permutation([max(1, n // 48), 6, 8])[: rng.integers(2, 4)].tolist())
    )
    axis, reverse = int(rng.integers(len(shape))), bool(rng.random() < 0.3)
    x = numbers(rng, dtype, shape)
    strategy, there = strategy_of(rng, device), bool(rng.random() < 0.3)
    flipped = np.flip(x, axis) if reverse else x
    wanted = ufunc.accumulate(flipped, axis=axis, dtype=x.dtype)

    def call() -> Any:
        given = device.asarray(x) if there else x
        return gs.scan(given, ufunc, axis=axis, reverse=reverse, strategy=strategy, device=device)

    note = f"{UFUNCS[dtype]} of {dtype} {shape}, axis {axis}, {strategy}, reverse={reverse}, there={there}"
    return Case(note, call, np.flip(wanted, axis) if reverse else wanted)


def traced(rng: np.random.Generator, device: gs.Device) -> Case:
    """Operators that do not commute, against the twins on NumPy."""
    op, fields = [(AFFINE, 2), (MATRICES, 4)][rng.integers(2)]
    x = words(rng, fields, (length_of(rng, 17),))
    strategy, exclusive = strategy_of(rng, device), bool(op is AFFINE and rng.random() < 0.3)
    wanted = gs.scan(x, op, exclusive=exclusive, device="numpy")
    note = f"{op.name} of {len(x[0])}, {strategy}, exclusive={exclusive}"
    return Case(note, lambda: gs.scan(x, op, exclusive=exclusive, strategy=strategy, device=device), wanted)


def withheld(rng: np.random.Generator, device: gs.Device) -> Case:
    """Posts that never come: fallback does without them; who only waits gives up in time."""
    x = numbers(rng, "uint32", (int(rng.integers(1, 60_000)),))
    tiles = small_tiles(device)
    tile, period = tiles[rng.integers(len(tiles))], int(rng.choice([2, 7, 64]))
    strategy = str(rng.choice(["fallback", "lookback", "lookahead", "auto"]))
    note = f"every {period}th post withheld of {len(x)}, {strategy}, {tile}"

    def call() -> Any:
        return runner.run(device, posed(x), strategy, tile=tile, withhold=period)[0][0]

    return Case(note, call, np.cumsum(x, dtype=np.uint32), in_vain=strategy in ("lookback", "lookahead"))


def segments(rng: np.random.Generator, device: gs.Device) -> Case:
    x = numbers(rng, "int32", (length_of(rng),))
    cuts = np.sort(np.r_[0, rng.integers(0, len(x) + 1, rng.integers(0, 1 + len(x) // 3)), len(x)])
    sums = np.cumsum(x, dtype=np.int32)
    heads = np.repeat(cuts[:-1], np.diff(cuts))
    wanted = sums - np.where(heads > 0, sums[heads - 1], 0).astype(np.int32)
    strategy = strategy_of(rng, device)
    note = f"{len(cuts) - 1} segments of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, segments=cuts, strategy=strategy, device=device), wanted)


def compensated(rng: np.random.Generator, device: gs.Device) -> Case:
    x = rng.integers(-(2**23), 2**23, length_of(rng, 19)).astype(np.float32)
    wanted = np.cumsum(x, dtype=np.float64).astype(np.float32)
    strategy = strategy_of(rng, device)
    note = f"compensated sum of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, compensated=True, strategy=strategy, device=device), wanted)


def wgsl(rng: np.random.Generator, device: gs.Device) -> Case:
    x = rng.integers(1, 5000, length_of(rng, 16)).astype(np.uint32) * np.uint32(12)
    strategy = strategy_of(rng, device)
    note = f"gcd of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, GCD, strategy=strategy, device=device), np.gcd.accumulate(x))


def picked(rng: np.random.Generator, device: gs.Device) -> Case:
    dtype = ["uint8", "int32", "float64", "int16"][rng.integers(4)]
    x = rng.integers(0, 100, (length_of(rng), int(rng.integers(1, 4)))).astype(dtype)
    mask = rng.random(len(x)) < rng.random()
    return Case(f"compact of {dtype} {x.shape}", lambda: gs.compact(device.asarray(x), device.asarray(mask)), x[mask])


def chunks(rng: np.random.Generator, device: gs.Device) -> Case:
    x = numbers(rng, "uint32", (length_of(rng),))
    cuts = np.sort(rng.integers(0, len(x) + 1, 5))
    note = f"chunks of {len(x)} at {cuts.tolist()}"
    return Case(
        note,
        lambda: np.concatenate(list(gs.scan_chunks(np.split(x, cuts), device=device))),
        np.cumsum(x, dtype=np.uint32),
    )


def reduced(rng: np.random.Generator, device: gs.Device) -> Case:
    x = numbers(rng, "uint32", (int(rng.integers(1, 40)), length_of(rng, 16)))
    axis = [None, 0, 1][rng.integers(3)]
    return Case(
        f"reduction of {x.shape}, axis {axis}",
        lambda: gs.reduce(x, axis=axis, device=device),
        np.sum(x, axis=axis, dtype=np.uint32),
    )


# ----- Running them


@dataclass
class Tally:
    """What came of an adapter's cases."""

    adapter: str
    cases: int = 0
    gave_up: int = 0
    failures: list[str] = field(default_factory=list)
    longest: tuple[float, str] = (0.0, "")


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return all(same(a, b) for a, b in zip(got, wanted, strict=True))
    found = np.asarray(got)
    return found.shape == np.shape(wanted) and found.dtype == wanted.dtype and np.array_equal(found, wanted)


def soak(device: gs.Device, seconds: float, seed: int) -> Tally:
    """Cases until the time is over."""
    tally = Tally(device.capabilities.summary)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number = tally.cases
        tally.cases += 1
        case = draw(np.random.default_rng([seed, number]), device)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        begin = time.perf_counter()
        try:
            verdict = "" if same(case.call(), case.wanted) else "wrong"
        except gs.ProgressTimeoutError as error:
            tally.gave_up += 1
            verdict = "" if case.in_vain else f"gave up: {error}"
        except Exception:
            verdict = traceback.format_exc(limit=-2)
        took = time.perf_counter() - begin
        faulthandler.cancel_dump_traceback_later()
        tally.longest = max(tally.longest, (took, case.name))
        if case.in_vain and took > VAIN:
            verdict = verdict or f"a wait in vain took {took:.1f} s"
        if verdict:
            tally.failures.append(f"case {number} (--seed {seed}), {case.name}: {verdict}")
            print(f"{tally.adapter}: {tally.failures[-1]}", file=sys.stderr, flush=True)
    if device.memory_usage().bytes_in_use:
        tally.failures.append(f"{device.memory_usage().bytes_in_use} bytes are still in use")
    return tally


def hog() -> None:
    """Keep a core busy until the parent is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        sum(range(100_000))


@contextmanager
def hogs(count: int) -> Iterator[None]:
    spawning = multiprocessing.get_context("spawn")
    processes = [spawning.Process(target=hog, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


@click.command(help=__doc__)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True)
@click.option("--device", help="A part of an adapter's name; else every adapter in turn.")
@click.option("--seed", type=int, help="Of the cases; else the time.")
def main(minutes: float, device: str | None, seed: int | None) -> None:
    seed = int(time.time()) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder:  # what the probe finds, and what is distrusted, is for this run
        os.environ["XDG_CACHE_HOME"] = os.environ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] = folder
        names = [each.capabilities.summary for each in gs.devices()]
        names = [name for name in names if device is None or device.lower() in name.lower()]
        if not names:
            raise click.ClickException("no adapter found to run on")
        with hogs(HOGS):
            tallies = [soak(gs.Device(name, unsafe=True), 60 * minutes / len(names), seed) for name in names]
    table = Table("adapter", "cases", "failures", "gave up, as they must", "longest call", title=f"seed {seed}")
    for tally in tallies:
        seconds, name = tally.longest
        numbers = (tally.cases, len(tally.failures), tally.gave_up)
        table.add_row(tally.adapter, *map(str, numbers), f"{seconds:.2f} s: {name}")
    Console(highlight=False).print(table)
    sys.exit(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    main(prog_name="script/soak")
