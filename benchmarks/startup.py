"""What a fresh process takes to import gpuscan, and to its first result.

Run:  python benchmarks/startup.py [--runs 10] [--json FILE]

Imports: the time of the import, and the modules there are after it. NumPy's is printed too, since every user of gpuscan
imports it anyway.

First results: from the start of the process to its end, with a scan of 1,000 elements in between, in wall and CPU time.
A cold process finds no results of the probe and no compiled shaders of Mesa on disk. A warm process finds the ones that
an earlier process wrote. Python's own compiled code is there each time, whatever PYTHONDONTWRITEBYTECODE says, because
installed packages have it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping

import gpuscan as gs
from figures import FigureList, option_parser

MODULES = ("numpy", "gpuscan", "gpuscan.cli")
IMPORT = (
    "import sys, time; begin = time.perf_counter(); import {module}; seconds = time.perf_counter() - begin; "
    "print(seconds, len(sys.modules))"
)
FIRST_RESULT = "import numpy as np, gpuscan as gs; gs.scan(np.arange(1000, dtype=np.float32))"


def environment(folder: str) -> dict[str, str]:
    """Return the environment of a process that keeps its caches in a folder."""
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return compiled | {"XDG_CACHE_HOME": folder, "MESA_SHADER_CACHE_DIR": folder}


def output_of(code: str, variables: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=variables).stdout


def first_result(folder: str) -> tuple[float, float]:
    """Return the seconds of a process with a first result: by the wall clock, and on all cores."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    output_of(FIRST_RESULT, environment(folder))
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = option_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="processes for each line (10)")
    arguments = parser.parse_args()
    runs, figures = arguments.runs, FigureList(gs.Device(arguments.device))
    with tempfile.TemporaryDirectory() as kept:
        first_result(kept)
        for module in MODULES:
            lines = [output_of(IMPORT.format(module=module), environment(kept)) for _ in range(runs)]
            taken = [float(line.split()[0]) for line in lines]
            figures.add(f"`import {module}`, {lines[0].split()[1]} modules", "wall clock", statistics.median(taken))
        cold = []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as empty:
                cold.append(first_result(empty))
        for caches, results in (("with empty caches", cold), ("warm", [first_result(kept) for _ in range(runs)])):
            for clock, taken in zip(("wall clock", "CPU time"), zip(*results, strict=True), strict=True):
                figures.add(f"a process with a first result, {caches}", clock, statistics.median(taken))
    figures.write(arguments.json)


if __name__ == "__main__":
    main()
