"""The time that importing gpuscan takes in a fresh process, and the number of modules that it imports.

Run:  python benchmarks/startup.py [--runs 10]

NumPy's share is printed too, since every user of gpuscan imports it anyway.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

MODULES = ("numpy", "gpuscan", "gpuscan.cli")
CODE = (
    "import sys, time; begin = time.perf_counter(); import {module}; seconds = time.perf_counter() - begin; "
    "print(seconds, len(sys.modules))"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="processes for each module (10)")
    runs = parser.parse_args().runs
    for module in MODULES:
        command = [sys.executable, "-c", CODE.format(module=module)]
        lines = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)]
        taken = [1e3 * float(line.split()[0]) for line in lines]
        modules = lines[0].split()[1]
        print(
            f"import {module:12} median {statistics.median(taken):.1f} ms, least {min(taken):.1f} ms, {modules} modules"
        )


if __name__ == "__main__":
    main()
