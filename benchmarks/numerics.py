"""The errors of float32 sums: gpuscan, plain and compensated, compared with NumPy, CUB, CuPy and PyTorch.

Each figure is the largest error of the running sums, over the largest exact sum. The exact sums are NumPy's in extended
precision (64 bits of significand on x86, else float64's 53), and "rounded" is their own rounding to float32: no float32
result is better. "pairs" are the sums that `compensated` holds before it rounds them.

    python benchmarks/numerics.py                     # 2^10 … 2^24; --most 28 for all
    python benchmarks/numerics.py --least 12 --step 6 # 2^12, 2^18 and 2^24
    python benchmarks/numerics.py --device numpy --json -
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import gpuscan as gs
from gpuscan.problem.compensated_sum import add_pairs, make_pair_map
from gpuscan.tools.bench.contenders import Unsupported
from peers import cub

Array = np.ndarray[Any, Any]

# Columns of the table in a file.
WIDTH = 120

Sums = Callable[[Array], Any]  # one array, or the high and the low parts

# Elements that are compared at a time.
BLOCK = 1 << 20


def uniform(rng: np.random.Generator, n: int) -> Array:
    return rng.random(n, np.float32)


def normal(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal(n, np.float32)


def alternating(rng: np.random.Generator, n: int) -> Array:
    """Return terms with alternating signs, which keep the sums small."""
    x = rng.random(n, np.float32)
    x[1::2] *= -1
    return x


def large_term(rng: np.random.Generator, n: int) -> Array:
    """Return a first term that is much larger than all others."""
    x = rng.random(n, np.float32)
    x[0] = 2.0**26
    return x


DISTRIBUTIONS = {"uniform": uniform, "normal": normal, "alternating": alternating, "one large term": large_term}


def exact_sums(x: Array) -> Array:
    """Return the running sums in extended precision."""
    sums = np.empty(len(x), np.longdouble)
    for part in blocks(len(x)):
        np.cumsum(x[part], dtype=np.longdouble, out=sums[part])
        sums[part] += sums[part.start - 1] if part.start else 0
    return sums


def blocks(length: int) -> list[slice]:
    return [slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK)]


def errors(x: Array, functions: dict[str, Sums]) -> dict[str, float]:
    """Return the largest error of each function and of the rounded exact sums, relative to the largest exact sum.

    The exact sums and the sums of one function are in memory at the same time: 5 GiB for an array of 2^28.
    """
    exact = exact_sums(x)
    largest = largest_of(lambda part: exact[part], len(x))
    worst = {name: largest_error(function(x), exact) for name, function in functions.items()}
    worst["rounded"] = largest_of(lambda part: exact[part].astype(np.float32) - exact[part], len(x))
    return {name: float(error / largest) for name, error in worst.items()}


def largest_error(sums: Any, exact: Array) -> np.longdouble:
    def error(part: slice) -> Array:
        if isinstance(sums, tuple):
            return sums[0][part].astype(np.longdouble) + sums[1][part] - exact[part]
        return sums[part] - exact[part]

    return largest_of(error, len(exact))


def largest_of(numbers: Callable[[slice], Array], length: int) -> np.longdouble:
    """Return the largest magnitude of the numbers, several blocks at a time."""
    with ThreadPoolExecutor() as pool:
        return max(pool.map(lambda part: np.max(np.abs(numbers(part))), blocks(length)))


def peers() -> dict[str, Sums]:
    """Return the functions of NumPy and of the other libraries that are installed."""
    sums: dict[str, Sums] = {"numpy": lambda x: np.cumsum(x, dtype=np.float32)}
    with suppress(Unsupported):
        sums["CUB"] = cub.sums_of(np.dtype(np.float32))
    with suppress(ImportError):
        cupy = importlib.import_module("cupy")
        sums["cupy"] = lambda x: cupy.cumsum(cupy.asarray(x), dtype=np.float32).get()
    with suppress(ImportError):
        torch = importlib.import_module("torch")
        device_type = "cuda" if torch.cuda.is_available() else "cpu"
        sums[f"torch {device_type}"] = lambda x: torch.cumsum(torch.from_numpy(x).to(device_type), 0).cpu().numpy()
    return sums


def ours(device: Any) -> dict[str, Sums]:
    return {
        "gpuscan": lambda x: gs.scan(x, device=device),
        "compensated": lambda x: gs.scan(x, compensated=True, device=device),
        "pairs": lambda x: gs.scan(x, add_pairs, before=make_pair_map(None), device=device),
    }


@click.command(help=__doc__)
@click.option("--device", help="A part of an adapter's name, or numpy; else the best adapter.")
@click.option("--least", type=click.IntRange(1, 28), default=10, show_default=True, help="The smallest size, 2^LEAST.")
@click.option("--step", type=click.IntRange(1), default=2, show_default=True, help="From exponent to exponent.")
@click.option("--most", type=click.IntRange(1, 28), default=24, show_default=True, help="The largest size, 2^MOST.")
@click.option("--json", "json_path", type=click.Path(allow_dash=True), help="Write the figures; - to print.")
@click.option("--seed", default=0, show_default=True)
def main(device: str | None, least: int, step: int, most: int, json_path: str | None, seed: int) -> None:
    chosen: Any = device if device == "numpy" else gs.Device(device)
    name = "NumPy" if chosen == "numpy" else chosen.capabilities.summary
    functions = peers() | ours(chosen)
    rows = []
    for distribution, draw in DISTRIBUTIONS.items():
        for exponent in range(least, most + 1, step):
            x = draw(np.random.default_rng(seed), 1 << exponent)
            errors_of_libraries = errors(x, functions)
            rows.append({"distribution": distribution, "elements": 1 << exponent, "errors": errors_of_libraries})
    if json_path is not None:
        with click.open_file(json_path, "w", encoding="utf-8") as file:
            file.write(json.dumps({"device": name, "seed": seed, "rows": rows}, indent=1) + "\n")
    if json_path != "-":
        show(name, rows)
    for row in rows:
        if row["errors"]["gpuscan"] > row["errors"]["numpy"]:
            click.echo(f"worse than NumPy: {row['distribution']}, {row['elements']:,} elements", err=True)


def show(name: str, rows: list[dict[str, Any]]) -> None:
    labels = list(rows[0]["errors"])
    table = Table("terms", "elements", *labels, title=f"float32 sums on {name}: largest error over the largest sum")
    for row in rows:
        power = f"2^{row['elements'].bit_length() - 1}"
        table.add_row(row["distribution"], power, *(f"{row['errors'][label]:.1e}" for label in labels))
    Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH).print(table)


if __name__ == "__main__":
    main(prog_name=f"python {Path('benchmarks', Path(__file__).name)}")
