"""Make the table of docs/adapters/README.md from the reports in this folder.

Run it after a file has come or changed: python docs/adapters/make_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"

HEAD = """# GPUs and drivers

gpuscan tests a GPU before it chooses an algorithm for it. This page lists the GPUs and drivers that have been tested,
and the results: which algorithms are safe, which one gpuscan chooses, and how fast it is.

Is your GPU missing? Run this command. It takes one to two minutes:

```sh
gpuscan probe --report my-gpu.json
```

Then open an issue with the form "My GPU", and attach the file. It describes the GPU and its driver. It contains no user
name, no computer name and no path.

| GPU | backend, driver, WebGPU | subgroup size | look-back test | look-ahead test | algorithm | conformance | speed |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

FOOT = """
A link leads to the file of the measurement, which also has the date and the version of gpuscan. The columns:

- **subgroup size**: the number of invocations that run in lockstep, if the GPU lets shaders use that.
- **look-back test**: in how many test runs every workgroup that had started kept running while others waited for it.
  The algorithm `lookback` is safe only if this holds in all runs.
- **look-ahead test**: in how many test runs all workgroups could start while the first one waited for them. In
  parentheses: the number that could start. gpuscan takes the algorithm `lookahead` only if this holds in all runs.
- **algorithm**: what `strategy="auto"` chooses. [Concepts](../concepts.md) explains the algorithms.
- **conformance**: the number of cases of `gpuscan matrix --quick` that passed.
- **speed**: running sums of the longest array that was measured, in GB/s of bytes read plus written, and as a share of
  the speed of a copy of the same array.

lavapipe, llvmpipe and SwiftShader are software that runs shaders on the CPU. Their speeds depend on the CPU, not on a
GPU. The command `script/adapters` measures them again.
"""


def page() -> str:
    """Return the text of the page."""
    files = sorted(FOLDER.glob("*.json"))
    reports = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in files}
    return HEAD + "".join(row(name, report) for name, report in reports.items()) + FOOT


def row(name: str, report: dict[str, Any]) -> str:
    """Return the row of one adapter."""
    probe, litmus, matrix = report["probe"], report["litmus"], report["matrix"]
    counts = matrix["cells"]["strategy"].values()
    passed, run = (sum(cell[what] for cell in counts) for what in ("passed", "run"))
    lanes = " or ".join(map(str, litmus["subgroup_sizes"])) or "none"
    fewest, most = litmus["started_while_one_waited"]
    seen = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    later = f"{litmus['later_ones_start']} of {litmus['runs']}"
    if litmus["later_ones_start"] < litmus["runs"]:
        later += f" ({seen} of {litmus['workgroups']} workgroups)"
    cells = [
        f"[{probe['name']}]({name})",
        f"{probe['backend']}, {probe['driver'] or 'unknown driver'}, {probe['implementation']}",
        lanes,
        f"{litmus['started_keep_running']} of {litmus['runs']}",
        later,
        f"`{probe['strategy']}`",
        f"{passed} of {run}",
        speed(report),
    ]
    return f"| {' | '.join(cells)} |\n"


def speed(report: dict[str, Any]) -> str:
    """Return the speed of the strategy that ``"auto"`` takes, at the largest length."""
    ours = [each for each in report["speeds"] if each["name"] == report["probe"]["strategy"] and each["microseconds"]]
    if not ours:
        return "not measured"
    best = max(ours, key=lambda each: each["length"])
    length = best["length"].bit_length() - 1
    rate = best["gigabytes_per_second"]
    return f"{rate:{',.0f' if rate >= 1000 else '.3g'}} at 2^{length}, {best['of_copy']:.0%} of a copy"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
