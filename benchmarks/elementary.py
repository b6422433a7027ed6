"""Errors, special values and times of the elementary functions of float32 on a device.

Errors are in units of the last place, against NumPy in float64. Every device must give the same digest of the results.
Times are compared with the times of a copy and of PyTorch.

    python benchmarks/elementary.py                    # every 4,099th float of each function, and times
    python benchmarks/elementary.py --stride 1         # all 2^32 floats, some minutes on a GPU
    python benchmarks/elementary.py --functions exp,log --no-times
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import click
import numpy as np
import scipy.special

import gpuscan as gs
from gpuscan.operators.wgsl_arithmetic import ELEMENTARY
from gpuscan.reference.elementary import errors_in_units
from gpuscan.tools.bench.timing import GpuTimer

Array = np.ndarray[Any, Any]

# Arguments that are computed and compared at a time.
BLOCK = 1 << 22
WARM_SECONDS = 0.5
OF_TWO = ("arctan2", "power", "hypot", "logaddexp", "divide")
# Arguments of each function of two numbers.
PAIRS = 1 << 20
# The range of the arguments that are timed, for each function. Others take 0.1 to 2.
TIMED = {"sin": (-1e4, 1e4), "cos": (-1e4, 1e4), "tan": (-1e4, 1e4), "exp": (-80, 80), "log": (0, 1e6), "tanh": (-6, 6),
         "arcsin": (-1, 1), "arccos": (-1, 1), "arctanh": (-1, 1), "arccosh": (1, 100)}  # fmt: skip
# PyTorch's names where they differ from NumPy's.
TORCH = {"power": "pow", "divide": "div", "cbrt": "", "absolute": "abs"}


def ufunc(name: str) -> np.ufunc:
    """Return the ufunc of NumPy, or of SciPy, which has the error function."""
    return scipy.special.erf if name == "erf" else getattr(np, name)


def special_numbers() -> Array:
    """Return numbers at which functions are exact, change their form, or have no finite value, with both signs."""
    bits = [0, 1, 2, 0x7FFFFF, 0x800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x42B17218, 0x42B17219, 0x42CFF1B5,
            0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x40490FDB, 0x3FC90FDB, 0x4B800000, 0x4B000001]  # fmt: skip
    others = np.array([2, 3, 0.5, 0.25, 10, 100, 7.5], np.float32)
    numbers = np.concatenate([np.array(bits, np.uint32).view(np.float32), others])
    return np.concatenate([numbers, -numbers])


def blocks_of_one(stride: int) -> Iterator[tuple[Array]]:
    """Yield the special numbers, then every `stride`-th float by its bits."""
    yield (special_numbers(),)
    for start in range(0, 1 << 32, BLOCK * stride):
        bits = np.arange(start, min(start + BLOCK * stride, 1 << 32), stride, dtype=np.uint64)
        yield (bits.astype(np.uint32).view(np.float32),)


def pairs(name: str) -> tuple[Array, Array]:
    """Return pairs of special numbers, of any bits, of numbers near 1, and powers within the range of float32."""
    rng = np.random.default_rng(7)
    a, b = (grid.ravel() for grid in np.meshgrid(special_numbers(), special_numbers()))
    bits = rng.integers(0, 1 << 32, (2, PAIRS), np.uint32).view(np.float32)
    near = rng.normal(0, 10, (2, PAIRS)).astype(np.float32)
    parts = [(a, b), bits, near]
    if name == "power":
        base = np.exp(rng.normal(0, 3, PAIRS) * 10.0 ** -rng.integers(0, 6, PAIRS)).astype(np.float32)
        with np.errstate(all="ignore"):
            exponent = (rng.uniform(-104, 89, PAIRS) / np.log(base.astype(np.float64))).astype(np.float32)
        parts.append((base, exponent))
    return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def compare(name: str, computed: Array, arguments: Sequence[Array]) -> tuple[float, int, tuple[float, ...], int]:
    """Return the largest error, how many special values are wrong, the arguments of the largest error, and a digest.

    The terms of logaddexp may cancel. Its errors are in units of the last place of the largest of terms and result.
    """
    with np.errstate(all="ignore"):
        exact = ufunc(name)(*(array.astype(np.float64) for array in arguments))
        errors = errors_in_units(computed, exact)
        if name == "logaddexp":
            finite = np.isfinite(errors)
            terms = np.maximum(*map(np.abs, arguments))
            largest = np.where(np.isfinite(terms), np.maximum(np.abs(exact), terms), np.abs(exact)).astype(np.float32)
            exponents = [np.maximum(np.frexp(array)[1], -125) for array in (exact, largest)]
            errors[finite] *= np.ldexp(1.0, exponents[0] - exponents[1])[finite]
    wrong = np.isinf(errors)
    errors[wrong] = -1
    at = int(errors.argmax())
    digest = int.from_bytes(hashlib.sha256(computed.tobytes()).digest()[:8], "little")
    return float(errors[at]), int(wrong.sum()), tuple(float(array[at]) for array in arguments), digest


def accuracy(device: gs.Device, name: str, stride: int, pool: ThreadPoolExecutor) -> str:
    """Return a line with the largest error of a function, its wrong special values, and a digest of its results."""
    blocks: Any = [pairs(name)] if name in OF_TWO else blocks_of_one(stride)
    count, waiting, results = 0, [], []
    for arguments in blocks:
        computed = np.asarray(ufunc(name)(*(device.asarray(array) for array in arguments)))
        count += computed.size
        waiting.append(pool.submit(compare, name, computed, arguments))
        if len(waiting) > 2 * (os.cpu_count() or 1):
            results.append(waiting.pop(0).result())
    results += [job.result() for job in waiting]
    error, _, at, _ = max(results)
    shown = ", ".join(f"{argument:.9g}" for argument in at)
    wrong = sum(result[1] for result in results)
    digest = sum(result[3] for result in results) % 2**64
    return f"{name:10} {error:13.4f} {wrong:6d}  {digest:016x} {count:13,d}  at {shown}"


def times(device: gs.Device, names: Sequence[str], size: int) -> Iterator[str]:
    """Yield a line for each function, with the time of a copy of the same bytes over its own and over PyTorch's."""
    timer = GpuTimer(device, WARM_SECONDS)
    rng = np.random.default_rng(3)
    for name in names:
        low, high = TIMED.get(name, (0.1, 2))
        numbers = [rng.uniform(low, high, size).astype(np.float32) for _ in range(2 if name in OF_TWO else 1)]
        sources = [device.asarray(array) for array in numbers]
        target = device.empty(size, np.float32)
        copy = timer.time_copy(4 * size * (len(sources) + 1))
        function = ufunc(name)
        ours = timer.time_call(lambda function=function, sources=sources, target=target: function(*sources, out=target))
        yield f"{name:10} {copy * 1e6:9.0f} {ours * 1e6:9.0f} {copy / ours:8.2f} {torch_share(name, numbers, copy):>8}"


def torch_share(name: str, numbers: Sequence[Array], copy: float) -> str:
    """Return the time of a copy over that of PyTorch's function on CUDA, or a dash without it."""
    with suppress(ImportError):
        torch = importlib.import_module("torch")
        function = getattr(torch, TORCH.get(name, name), None)
        if function is not None and torch.cuda.is_available():
            sources = [torch.from_numpy(array).cuda() for array in numbers]
            target = torch.empty_like(sources[0])
            spans = []
            for _ in range(30):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                function(*sources, out=target)
                stop.record()
                torch.cuda.synchronize()
                spans.append(start.elapsed_time(stop) * 1e-3)
            return f"{copy / float(np.median(spans[10:])):.2f}"
    return "-"


@click.command(help=__doc__)
@click.option("--functions", default=",".join(ELEMENTARY), help="Functions, separated by commas.")
@click.option("--stride", default=4099, help="Compute every n-th float32; 1 for all.")
@click.option("--size", default=1 << 26, help="Elements of the arrays that are timed.")
@click.option("--accuracy/--no-accuracy", "with_accuracy", default=True)
@click.option("--times/--no-times", "with_times", default=True)
@click.option("--device", "adapter", default=None, help="Part of the adapter's name.")
def main(functions: str, stride: int, size: int, with_accuracy: bool, with_times: bool, adapter: str | None) -> None:
    device, names = gs.Device(adapter), functions.split(",")
    print(device, flush=True)
    if with_accuracy:
        print("function   largest error  wrong  digest           arguments")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for name in names:
                print(accuracy(device, name, stride, pool), flush=True)
    if with_times:
        print(f"function   copy, us  gpuscan  of copy    torch   ({size:,} elements)")
        for line in times(device, names, size):
            print(line, flush=True)


if __name__ == "__main__":
    main()
