"""Run random scans for some time while other processes keep the CPU busy: `script/soak`.

Every case draws new arrays and lengths. A recipe decides its shaders: the kind of scan, operator, options, strategy,
order of magnitude, hostile scheduler, and withheld posts. Some hundred cases share a recipe, because compiling takes a
thousand times as long as a scan. Every result is compared with NumPy's, and a call that hangs ends the run.

With --processes, that many processes scan on the same adapter at the same time, also arrays that keep it busy for long,
as programs that share a GPU do. Calls may time out then, but no process may give a strategy up.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import click
import numpy as np
from rich.console import Console
from rich.table import Column, Table

import gpuscan as gs
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.strategies import Strategy
from tests.harness.devices import auto_strategy, timeouts_apart
from tests.harness.scans import make_problem, scan_with
from tests.oracle import AFFINE, MATRICES, small_tiles, strategies_on, words
from tests.strategies import numbers

Array = np.ndarray[Any, Any]
Random = np.random.Generator
T = TypeVar("T")

# Seconds after which a call counts as hanging, and the process ends with all tracebacks.
HANGS = 120.0
# Seconds within which a call must end on a busy CPU, compiling included.
SECONDS = 60.0
# The same for small scans that wait for hindered workgroups, or for posts that never come.
WAITING_SECONDS = 20.0
HOGS = 2
# Cases from one new recipe to the next, for all kinds together.
RECIPE_CASES = 800
# The share of cases that wait for posts that never come: one takes as long as 100 others.
IN_VAIN = 1 / 400
# The share of recipes with lengths up to 2^LARGEST; the others have lengths up to 2^USUAL.
LARGE = 1 / 12
LARGEST, USUAL = 21, 15
# The share of cases that keep a shared adapter busy for long, the logarithm of their length on a GPU, and how many
# scans of that length a case makes.
LONG = 1 / 100
LONGEST, LONG_SCANS = 28, 12
SCHEDULERS = ["", "random", "serial", "bursts"]

ADD = resolve("add")
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
    """A call with its name, its result, and the seconds within which it must end.

    If `gives_up` is set, the call must raise ProgressTimeoutError. If `withholds` is set, it waits for posts that never
    come, so what it says about strategies does not count.
    """

    name: str
    call: Callable[[], Any]
    wanted: Any
    seconds: float = SECONDS
    gives_up: bool = False
    withholds: bool = False


def draw(seed: int, number: int, device: gs.Device, shared: bool) -> Case:
    """Draw case `number` of a seed: by one of the recipes in use, or a wait for posts that never come."""
    rng = np.random.default_rng([seed, 0, number])
    if rng.random() < IN_VAIN:
        return in_vain(rng, device)
    if shared and rng.random() < LONG:
        return long(rng, device)
    place = int(rng.integers(len(KINDS)))
    generation = (number // RECIPE_CASES + place) // len(KINDS)
    return KINDS[place](np.random.default_rng([seed, 1, place, generation]), rng, device)


def one_of(rng: Random, choices: Sequence[T]) -> T:
    return choices[int(rng.integers(len(choices)))]


def length_of(recipe: Random, rng: Random, most: int = LARGEST, least: int = 1) -> int:
    """Draw small to middle lengths, each order of magnitude equally often. Some recipes also draw large lengths."""
    most = most if recipe.random() < LARGE else min(most, USUAL)
    lowest = np.log2(least)
    top = recipe.uniform(lowest, most)
    return int(2 ** rng.uniform(max(lowest, top - 2), top))


def strategy_of(recipe: Random, device: gs.Device) -> Strategy:
    return one_of(recipe, ["auto", *strategies_on(device)])


def draw_ufunc(recipe: Random, rng: Random, device: gs.Device) -> Case:
    """Draw a ufunc of any dtype along any axis, of a NumPy or a device array."""
    dtype, name = one_of(recipe, list(UFUNCS.items()))
    ufunc: np.ufunc = getattr(np, name)
    dimensions, reverse = int(recipe.integers(1, 4)), bool(recipe.random() < 0.3)
    axis, strategy = int(recipe.integers(dimensions)), strategy_of(recipe, device)
    n = length_of(recipe, rng)
    shape = (n,) if dimensions == 1 else tuple(rng.permutation([max(1, n // 48), 6, 8])[:dimensions].tolist())
    x, there = numbers(rng, dtype, shape), bool(rng.random() < 0.3)
    flipped = np.flip(x, axis) if reverse else x
    wanted = ufunc.accumulate(flipped, axis=axis, dtype=x.dtype)

    def call() -> Any:
        given = device.asarray(x) if there else x
        return gs.scan(given, ufunc, axis=axis, reverse=reverse, strategy=strategy, device=device)

    note = f"{name} of {dtype} {shape}, axis {axis}, {strategy}, reverse={reverse}, there={there}"
    return Case(note, call, np.flip(wanted, axis) if reverse else wanted)


def draw_tiles(recipe: Random, rng: Random, device: gs.Device) -> Case:
    """Scan many small tiles that wait for each other, most of them hindered, some without posts."""
    tile, scheduler = one_of(recipe, small_tiles(device)), one_of(recipe, SCHEDULERS)
    withhold = int(one_of(recipe, [0, 0, 2, 7, 64]))
    waiting = [name for name in strategies_on(device) if name != "three_dispatch"]
    strategy, many = "fallback" if withhold else one_of(recipe, waiting), bool(recipe.random() < 0.5)
    reverse, op = bool(recipe.random() < 0.3), one_of(recipe, [ADD, AFFINE])
    n = length_of(recipe, rng, 14, 2 * tile.tile_size + 1)
    x: Any = numbers(rng, "uint32", (n,)) if op is ADD else words(rng, 2, (n,))
    if op is AFFINE:
        wanted = gs.scan(x, op, reverse=reverse, device="numpy")
    else:
        wanted = np.cumsum(x[::-1], dtype=x.dtype)[::-1] if reverse else np.cumsum(x, dtype=x.dtype)

    def call() -> Any:
        problem = make_problem(x, op, reverse=reverse)
        rows = scan_with(
            device, problem, strategy, tile=tile, withheld=withhold, one_workgroup_folds=many, scheduler=scheduler
        )
        return rows[0] if op is ADD else tuple(rows)

    note = f"{op.name} of {n}, {strategy}, {tile}, {withhold=}, {many=}, {scheduler=}, {reverse=}"
    return Case(note, call, wanted, WAITING_SECONDS)


def in_vain(rng: Random, device: gs.Device) -> Case:
    """Withhold posts: strategies that only wait time out, and `"auto"` continues with another one."""
    tile, withhold = one_of(rng, small_tiles(device)), int(one_of(rng, [2, 7, 64]))
    auto_waits = auto_strategy(device) in ("lookback", "lookahead")
    strategy, many = one_of(rng, ["lookback", "lookahead", *(["auto"] if auto_waits else [])]), bool(rng.random() < 0.5)
    x = numbers(rng, "uint32", (length_of(rng, rng, 16, 2 * tile.tile_size + 1),))

    def call() -> Any:
        return scan_with(device, make_problem(x), strategy, tile=tile, withheld=withhold, one_workgroup_folds=many)[0]

    note = f"every {withhold}th post withheld of {len(x)}, {strategy}, {tile}, {many=}"
    wanted = np.cumsum(x, dtype=np.uint32)
    return Case(note, call, wanted, WAITING_SECONDS, gives_up=strategy != "auto", withholds=True)


def long(rng: Random, device: gs.Device) -> Case:
    """Scan an array on the device again and again, so that the adapter is busy for long; compare some sums."""
    on_cpu = device.capabilities.adapter_type == "CPU"
    n, step = 1 << (LARGEST if on_cpu else LONGEST), 4099
    x = np.full(n, rng.integers(1, 1 << 32), np.uint32)
    wanted = np.arange(1, n + 1, step, dtype=np.uint32) * x[0]

    def call() -> Any:
        given = device.asarray(x)
        for _ in range(LONG_SCANS):
            found = gs.scan(given)
        return found[::step].numpy()

    return Case(f"{LONG_SCANS} scans of {n} on the device", call, wanted)


def draw_operator(recipe: Random, rng: Random, device: gs.Device) -> Case:
    """Compare operators that do not commute with the twins on NumPy."""
    op, fields = one_of(recipe, [(AFFINE, 2), (MATRICES, 4)])
    strategy, exclusive = strategy_of(recipe, device), bool(op is AFFINE and recipe.random() < 0.3)
    x = words(rng, fields, (length_of(recipe, rng, 17),))
    wanted = gs.scan(x, op, exclusive=exclusive, device="numpy")
    note = f"{op.name} of {len(x[0])}, {strategy}, exclusive={exclusive}"
    return Case(note, lambda: gs.scan(x, op, exclusive=exclusive, strategy=strategy, device=device), wanted)


def segments(recipe: Random, rng: Random, device: gs.Device) -> Case:
    strategy = strategy_of(recipe, device)
    x = numbers(rng, "int32", (length_of(recipe, rng),))
    cuts = np.sort(np.r_[0, rng.integers(0, len(x) + 1, rng.integers(0, 1 + len(x) // 3)), len(x)])
    sums = np.cumsum(x, dtype=np.int32)
    heads = np.repeat(cuts[:-1], np.diff(cuts))
    wanted = sums - np.where(heads > 0, sums[heads - 1], 0).astype(np.int32)
    note = f"{len(cuts) - 1} segments of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, segments=cuts, strategy=strategy, device=device), wanted)


def draw_compensation(recipe: Random, rng: Random, device: gs.Device) -> Case:
    strategy = strategy_of(recipe, device)
    x = rng.integers(-(2**23), 2**23, length_of(recipe, rng, 19)).astype(np.float32)
    wanted = np.cumsum(x, dtype=np.float64).astype(np.float32)
    note = f"compensated sum of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, compensated=True, strategy=strategy, device=device), wanted)


def wgsl(recipe: Random, rng: Random, device: gs.Device) -> Case:
    strategy = strategy_of(recipe, device)
    x = rng.integers(1, 5000, length_of(recipe, rng, 16)).astype(np.uint32) * np.uint32(12)
    note = f"gcd of {len(x)}, {strategy}"
    return Case(note, lambda: gs.scan(x, GCD, strategy=strategy, device=device), np.gcd.accumulate(x))


def draw_mask(recipe: Random, rng: Random, device: gs.Device) -> Case:
    dtype, width = one_of(recipe, ["uint8", "int32", "float64", "int16"]), int(recipe.integers(1, 4))
    x = rng.integers(0, 100, (length_of(recipe, rng), width)).astype(dtype)
    mask = rng.random(len(x)) < rng.random()
    return Case(f"compact of {dtype} {x.shape}", lambda: gs.compact(device.asarray(x), device.asarray(mask)), x[mask])


def draw_counts(recipe: Random, rng: Random, device: gs.Device) -> Case:
    """Count, rank or select keys with many ties, in an array on the device or in NumPy."""
    dtype, most = one_of(recipe, ["uint8", "int32", "float32"]), one_of(recipe, [2, 100, 250])
    x = (rng.integers(0, most, length_of(recipe, rng)) ** 2 // most).astype(dtype)
    there = device.asarray(x) if recipe.random() < 0.7 else x
    count = np.dtype(np.uint32 if isinstance(there, gs.Array) else np.int64)
    kind = one_of(recipe, ["unique", "runs", "top_k", "partition", "histogram", "search", "repeat"])
    calls: dict[str, Callable[[], tuple[Callable[[], Any], Any]]] = {
        "unique": lambda: (
            lambda: tuple(gs.unique_all(there, device=device)),
            (
                np.unique(x),
                *(each.astype(count) for each in np.unique(x, True, True, True)[1:]),
            ),
        ),
        "runs": lambda: (
            lambda: gs.repeat(*gs.run_length_encode(there, device=device)),
            x,
        ),
        "top_k": lambda: (
            lambda: gs.top_k(there, min(50, len(x)), largest=False, device=device)[1],
            np.argsort(x, kind="stable")[:50].astype(count),
        ),
        "partition": lambda: (
            lambda: tuple(gs.partition_by(there, x > most // 3, device=device)),
            (x[x > most // 3], x[x <= most // 3]),
        ),
        "histogram": lambda: (
            lambda: gs.histogram(there, 37, (0, 260), device=device)[0],
            np.histogram(x, 37, (0, 260))[0].astype(count),
        ),
        "search": lambda: (
            lambda: gs.searchsorted(np.sort(x), there, side="right", device=device),
            np.searchsorted(np.sort(x), x, "right").astype(count),
        ),
        "repeat": lambda: (
            lambda: gs.repeat(there, x.astype(np.int64) % 3, device=device),
            np.repeat(x, x.astype(np.int64) % 3),
        ),
    }
    call, wanted = calls[kind]()
    return Case(f"{kind} of {len(x)} {dtype}", call, wanted)


def chunks(recipe: Random, rng: Random, device: gs.Device) -> Case:
    x = numbers(rng, "uint32", (length_of(recipe, rng),))
    cuts = np.sort(rng.integers(0, len(x) + 1, 5))
    note = f"chunks of {len(x)} at {cuts.tolist()}"
    return Case(
        note,
        lambda: np.concatenate(list(gs.scan_chunks(np.split(x, cuts), device=device))),
        np.cumsum(x, dtype=np.uint32),
    )


def draw_reduction(recipe: Random, rng: Random, device: gs.Device) -> Case:
    axis = one_of(recipe, [None, 0, 1])
    x = numbers(rng, "uint32", (int(rng.integers(1, 40)), length_of(recipe, rng, 16)))
    return Case(
        f"reduction of {x.shape}, axis {axis}",
        lambda: gs.reduce(x, axis=axis, device=device),
        np.sum(x, axis=axis, dtype=np.uint32),
    )


KINDS = (
    5 * [draw_ufunc]
    + 6 * [draw_tiles]
    + [draw_operator, segments, draw_compensation, wgsl, draw_mask, draw_counts, chunks, draw_reduction]
)


# ----- Running them


@dataclass
class Tally:
    """The outcome of an adapter's cases."""

    adapter: str
    cases: int = 0
    gave_up: int = 0
    timeouts: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    longest: tuple[float, str] = (0.0, "")


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple):
        return all(same(a, b) for a, b in zip(got, wanted, strict=True))
    found = np.asarray(got)
    return found.shape == np.shape(wanted) and found.dtype == wanted.dtype and np.array_equal(found, wanted)


def soak(device: gs.Device, seconds: float, seed: int, most: int | None = None, *, shared: bool = False) -> Tally:
    """Run cases until the time is over, or `most` of them.

    Args:
        device: where to run them.
        seconds: for how long.
        seed: of the cases.
        most: how many, at most.
        shared: True if other processes use the adapter, so that calls may time out.
    """
    tally = Tally(device.capabilities.summary)
    start = time.monotonic()
    while time.monotonic() - start < seconds and tally.cases != most:
        number = tally.cases
        tally.cases += 1
        case = draw(seed, number, device, shared)
        faulthandler.dump_traceback_later(HANGS, exit=True)
        begin = time.perf_counter()
        try:
            with timeouts_apart(device) if case.withholds else nullcontext():
                failure = "" if same(case.call(), case.wanted) else "wrong"
            if case.gives_up:
                failure = "did not give up what never came"
        except gs.ProgressTimeoutError as error:
            tally.gave_up += case.gives_up
            tally.timeouts += not case.gives_up
            failure = "" if case.gives_up or shared else f"gave up: {error}"
        except Exception:
            failure = traceback.format_exc(limit=-2)
        took = time.perf_counter() - begin
        faulthandler.cancel_dump_traceback_later()
        if device.capabilities.distrusted:
            failure = failure or f"the process gave up {', '.join(device.capabilities.distrusted)}"
        tally.longest = max(tally.longest, (took, case.name))
        if took > case.seconds:
            failure = failure or f"it took {took:.1f} s"
        if failure:
            tally.failures.append(f"case {number} (--seed {seed}), {case.name}: {failure}")
            print(f"{tally.adapter}: {tally.failures[-1]}", file=sys.stderr, flush=True)
    tally.seconds = time.monotonic() - start
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


def soak_beside_others(name: str, seconds: float, seed: int, cases: int | None) -> Tally:
    """Run cases in this process while other processes use the same adapter."""
    return soak(gs.Device(name, unsafe=True), seconds, seed, cases, shared=True)


def soak_in_processes(processes: int, name: str, seconds: float, seed: int, cases: int | None) -> Tally:
    """Run cases in several processes on one adapter at a time; return what they found together."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning) as pool:
        begun = [pool.submit(soak_beside_others, name, seconds, seed + number, cases) for number in range(processes)]
        tallies = [each.result() for each in begun]
    return Tally(
        f"{name}, {processes} processes",
        cases=sum(each.cases for each in tallies),
        gave_up=sum(each.gave_up for each in tallies),
        timeouts=sum(each.timeouts for each in tallies),
        seconds=max(each.seconds for each in tallies),
        failures=[failure for each in tallies for failure in each.failures],
        longest=max(each.longest for each in tallies),
    )


@click.command(help=__doc__)
@click.option("--minutes", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True)
@click.option("--cases", type=click.IntRange(min=1), help="The most cases on an adapter, also if time remains.")
@click.option("--device", help='Words of an adapter\'s name, as "llvmpipe Vulkan"; else every adapter in turn.')
@click.option("--seed", type=int, help="Of the cases; else the time.")
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="On each adapter at a time."
)
def main(minutes: float, cases: int | None, device: str | None, seed: int | None, processes: int) -> None:
    seed = int(time.time()) if seed is None else seed
    with tempfile.TemporaryDirectory() as folder:  # the probe's results and distrust are for this run only
        os.environ["XDG_CACHE_HOME"] = os.environ["WIN_PD_OVERRIDE_LOCAL_APPDATA"] = folder
        names = [each.capabilities.summary for each in gs.devices()]
        names = [name for name in names if all(word in name.lower() for word in (device or "").lower().split())]
        if not names:
            raise click.ClickException("no adapter found to run on")
        seconds = 60 * minutes / len(names)
        if processes > 1:  # which keep the CPU busy themselves
            tallies = [soak_in_processes(processes, name, seconds, seed, cases) for name in names]
        else:
            with hogs(HOGS):
                tallies = [soak(gs.Device(name, unsafe=True), seconds, seed, cases) for name in names]
    columns = ("adapter", "cases", "cases/s", "failures", "gave up, as they must", "timeouts raised")
    table = Table(*columns, Column("longest call", overflow="fold"), title=f"seed {seed}")
    for tally in tallies:
        took, name = tally.longest
        counts = (f"{tally.cases:,}", f"{tally.cases / tally.seconds:.0f}", len(tally.failures))
        waits = (tally.gave_up, tally.timeouts)
        table.add_row(tally.adapter, *map(str, (*counts, *waits)), f"{took:.2f} s: {name}")
    Console(highlight=False).print(table)
    sys.exit(any(tally.failures for tally in tallies))


if __name__ == "__main__":
    main(prog_name="script/soak")
