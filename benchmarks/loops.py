"""Times of loops as scans, compared with a copy of the same bytes, `jax.lax.scan` on the same GPU, and Numba.

Each loop runs over arrays on the device. Its GPU time is the sum of its stages, and its wall time runs from the call
until the device has finished. `jax.lax.scan` takes some microseconds for each step, so it runs fewer steps, and its
time is scaled up to the whole length. The GPU is kept busy before GPU time is measured.

Run:  python benchmarks/loops.py [--steps 10000000] [--jax-steps 100000] [--stages] [--device SUBSTRING]
          [--json FILE]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan as gs
from figures import FigureList, option_parser
from gpuscan.tools.bench.contenders import Unsupported
from gpuscan.tools.bench.peers import need
from gpuscan.tools.bench.timing import GpuTimer
from sorts import WARM_CALLS, WARM_SECONDS, gpu_times, wall_time, warm

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A loop.

    Attributes:
        name: the class of the loop.
        step: takes the carry and x, and returns the next carry.
        jax: the same, given `jax.numpy` first.
        numba: the whole loop, for Numba to compile: fills the carries from the input.
        xs: the input of a given length.
        rtol: the largest error of the results, relative to the largest number.
    """

    name: str
    step: Callable[[Any, Any], Any]
    jax: Callable[[Any, Any, Any], Any]
    numba: Callable[..., None]
    xs: Callable[[int], tuple[Array, ...]]
    rtol: float


# ----- Loops


def affine(carries: Array, a: Array, b: Array) -> None:
    h = np.float32(0)
    for t in range(a.size):
        h = a[t] * h + b[t]
        carries[t] = h


def max_plus(carries: Array, a: Array, b: Array) -> None:
    h = np.int32(0)
    for t in range(a.size):
        h = max(h + a[t], b[t])
        carries[t] = h


def clamp(carries: Array, x: Array) -> None:
    h = np.int32(0)
    for t in range(x.size):
        h = min(max(h + x[t], 0), 1000)
        carries[t] = h


def counter(carries: Array, x: Array) -> None:
    h = np.int32(0)
    for t in range(x.size):
        h = (h + x[t]) % 7
        carries[t] = h


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def floats(count: int) -> tuple[Array, ...]:
    return random().uniform(-1, 1, count).astype(np.float32), random().standard_normal(count).astype(np.float32)


def integers(count: int) -> tuple[Array, ...]:
    return tuple(random().integers(-9, 9, (2, count)).astype(np.int32))


CASES = (
    Case(
        "affine, float32",
        lambda h, x: x[0] * h + x[1],
        lambda jnp, h, x: x[0] * h + x[1],
        affine,
        floats,
        1e-5,
    ),
    Case(
        "max-plus, int32",
        lambda h, x: np.maximum(h + x[0], x[1]),
        lambda jnp, h, x: jnp.maximum(h + x[0], x[1]),
        max_plus,
        integers,
        0,
    ),
    Case(
        "clamp, int32",
        lambda h, x: np.clip(h + x[0], 0, 1000),
        lambda jnp, h, x: jnp.clip(h + x[0], 0, 1000),
        clamp,
        lambda count: integers(count)[:1],
        0,
    ),
    Case(
        "counter modulo 7, int32",
        lambda h, x: (h + x[0]) % 7,
        lambda jnp, h, x: (h + x[0]) % 7,
        counter,
        lambda count: (random().integers(0, 7, count).astype(np.int32),),
        0,
    ),
)


# ----- Other libraries


def time_numba(case: Case, xs: tuple[Array, ...], carries: Array) -> float:
    """Return the seconds of the compiled loop on one core, and fill `carries`."""
    compiled = need("numba").njit(case.numba)
    compiled(carries, *xs)
    return wall_time(lambda: compiled(carries, *xs), repeats=3)


def time_jax(case: Case, xs: tuple[Array, ...], steps: int) -> float:
    """Return the seconds of `jax.lax.scan`, for as many steps as `xs` has, after a run of `steps`."""
    jax = need("jax")
    first = tuple(jax.numpy.asarray(x[:steps]) for x in xs)
    init = jax.numpy.zeros((), first[0].dtype)

    @jax.jit
    def run(xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = case.jax(jax.numpy, h, x)
            return h, h

        return jax.lax.scan(step, init, xs)[1]

    seconds = wall_time(lambda: run(first).block_until_ready(), repeats=3)
    return seconds * xs[0].size / min(steps, xs[0].size)


# ----- Measurement


def measure(figures: FigureList, timer: GpuTimer, case: Case, steps: int, jax_steps: int, stages: bool) -> None:
    """Measure a loop, once its result was compared with the sequential one; with `stages`, print the time of each."""
    device, xs = timer.device, case.xs(steps)
    arrays = tuple(device.asarray(x) for x in xs)

    def call() -> Any:
        return gs.loop(case.step, xs[0].dtype.type(0), arrays).ys

    peers = {}
    carries = np.empty(steps, xs[0].dtype)
    try:
        peers["Numba"] = time_numba(case, xs, carries)
    except Unsupported as reason:
        print(f"  {reason}")
        case.numba(carries, *xs)
    got = np.asarray(call())
    largest = np.abs(carries).max()
    if np.abs(got.astype(np.float64) - carries).max() > case.rtol * largest:
        raise SystemExit(f"{case.name}: wrong result")
    warm(call, device.synchronize, WARM_CALLS)
    seconds = timer.time_call(call)
    if stages:
        times = gpu_times(device, call)
        print("   ", "  ".join(f"{stage} {time * 1e3:.3f}" for stage, time in times.items()))

    def finish() -> None:
        call()
        device.synchronize()

    wall = wall_time(finish)
    try:
        peers["JAX"] = time_jax(case, xs, jax_steps)
    except Unsupported as reason:
        print(f"  {reason}")
    copied = timer.time_copy(sum(x.nbytes for x in (*xs, xs[0])))
    figures.add(case.name, "GPU time", seconds, copied)
    figures.add(case.name, "call and wait", wall)
    for name, peer_seconds in peers.items():
        figures.add(case.name, name, peer_seconds)


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--jax-steps", type=int, default=100_000, help="the steps that jax.lax.scan runs")
    parser.add_argument("--stages", action="store_true", help="print the time of each stage")
    arguments = parser.parse_args()
    device = gs.Device(arguments.device)
    figures, timer = FigureList(device), GpuTimer(device, WARM_SECONDS)
    for case in CASES:
        measure(figures, timer, case, arguments.steps, arguments.jax_steps, arguments.stages)
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
