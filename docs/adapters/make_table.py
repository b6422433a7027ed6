"""Make the table of docs/adapters/README.md from the reports in this folder.

Run it after a file has come or changed: python docs/adapters/make_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"

HEAD = """# Adapters

Look up here how a GPU and its driver fare: which promises its scheduler keeps, which algorithm gpuscan takes there, and
how fast it is. Is yours missing? `gpuscan probe --report FILE` measures it in a minute or two and writes a file without
your name, your machine's name or any path. Send it with the issue form "My GPU".

| adapter | driver | subgroups | keeps running | later ones start | algorithm | conformance | speed |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""

FOOT = """
- **keeps running**: in how many of the runs of the litmus test every workgroup that had started went on while others
  waited. `lookback` needs it.
- **later ones start**: in how many runs all workgroups could start while the first one waited. `lookahead` needs it.
- **conformance**: cases of `gpuscan matrix --quick` that passed.
- **speed**: sums of the largest array that was measured, in GB/s of bytes read plus written, and as a share of a copy
  of the same bytes.

A CPU plays the GPU on lavapipe, llvmpipe and SwiftShader, so their speeds tell of a CPU. `script/adapters` makes the
files of the adapters that need no GPU again.
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
        later += f" ({seen} of {litmus['workgroups']})"
    cells = [
        f"[{probe['name']}]({name}), {probe['backend']}",
        f"{probe['driver'] or 'not told'}; {probe['implementation']}; gpuscan {report['gpuscan']}, {report['date']}",
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
    return f"{best['gigabytes_per_second']:.3g} at 2^{length}, {best['of_copy']:.0%} of a copy"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
