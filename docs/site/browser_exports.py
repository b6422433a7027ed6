"""Writes the exports that the page "Try it in your browser" runs: sums to measure, and the conformance cases.

Usage: python docs/site/browser_exports.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gpuscan

# The longest array that the page measures, in elements.
MEASURED_LENGTH = 1 << 24

# The longest array of a case, in elements: more than 32 tiles, and little to download.
CASE_LENGTH = 40_003

AFFINE = gpuscan.operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")


def latest(left: Any, right: Any) -> dict[str, Any]:
    """Return the last valid value."""
    return {
        "value": np.where(right["valid"], right["value"], left["value"]),
        "valid": left["valid"] | right["valid"],
    }


# The arguments of gpuscan.export, by the name of the case's folder.
CASES: dict[str, dict[str, Any]] = {
    "sums": {"dtype": np.int32, "length": MEASURED_LENGTH},
    "float-sums": {"dtype": np.float32},
    "maxima-reversed": {"op": "maximum", "dtype": np.float32, "reverse": True},
    "exclusive-sums": {"dtype": np.uint32, "exclusive": True},
    "bytes-reversed": {"dtype": np.uint8, "reverse": True, "exclusive": True},
    "bools": {"op": "logical_xor", "dtype": bool, "strategy": "three_dispatch"},
    "half-segments": {"dtype": np.float16, "segments": True},
    "words-of-64-bits": {"op": "multiply", "dtype": np.int64, "segments": True, "exclusive": True},
    "matrices": {"op": "matmul", "dtype": np.int32},
    "recurrence": {"op": AFFINE, "dtype": (np.float32, np.float32)},
    "latest": {"op": latest, "dtype": {"value": np.float32, "valid": bool}},
    "picked-by-mask": {"dtype": np.float32, "compact": True},
    "picked-by-function": {"dtype": np.int16, "compact": lambda v: v % 3 == 1},
}


def write_exports(folder: Path) -> None:
    """Write the exports into folders of their names, and the list of the names."""
    for name, options in CASES.items():
        gpuscan.export(folder / name, **{"length": CASE_LENGTH} | options)
        # The page takes its modules from the first export.
        for shared in ("index.html", "scan.d.ts", *([] if name == "sums" else ["scan.js", "check.js"])):
            (folder / name / shared).unlink()
    (folder / "cases.json").write_text(json.dumps(list(CASES)), encoding="utf-8")


if __name__ == "__main__":
    write_exports(Path(sys.argv[1]))
