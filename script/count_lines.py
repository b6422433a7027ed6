"""Count the lines and files of each package, and the lines that each capability added, for docs/architecture.md.

Run it in a checkout with its history: python script/count_lines.py

It compares the working tree with the commit `BEFORE`. A file belongs to the first capability that names it.
Files that serve several capabilities are in the last row, so the row of a capability is the least that it needs.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = CHECKOUT / "docs" / "architecture.md"
BLOCK = re.compile(r"(<!-- lines, by script/count_lines\.py -->\n)(.*?)(<!-- end -->)", re.DOTALL)

# The commit before calls became programs and the capabilities below were added (2026-11-24).
BEFORE = "abed1ebb"

SUFFIXES = {"gpuscan": ".py", "shaders": ".wgsl"}

# The files of each capability, by patterns. Paths are relative to gpuscan/ or begin with shaders/.
CAPABILITIES = {
    "loops as scans (`gs.loop`)": (
        "operators/loops/*",
        "api/loop*",
        "api/row_loop.py",
        "engine/sequential_loop.py",
        "*/loop.py",
        "shaders/arrays/run_loop.wgsl",
        "shaders/shared/loop_limit.wgsl",
    ),
    "one program for each kind of call": (
        "api/launches.py",
        "engine/kept_programs.py",
        "device/program.py",
        "device/steps.py",
        "device/deferred_runs.py",
        "operators/function_keys.py",
        "operators/parameters.py",
        "operators/code.py",
        "sizes.py",
        "recent_values.py",
        "codegen/switches.py",
    ),
    "counting, ranking and selecting": (
        "api/counting.py",
        "api/selecting.py",
        "api/unique.py",
        "engine/counting.py",
        "engine/key_runs.py",
        "engine/runs.py",  # its former name
        "planning/counting_plan.py",
        "shaders/counting/*",
    ),
    "linear attention and state-space models": (
        "*linear_attention.py",
        "*selective_*",
        "api/state_space.py",
        "reference/attention_stages.py",
        "shaders/attention/*",
    ),
    "elementary functions with the same bits everywhere": (
        "reference/elementary.py",
        "operators/approximations.py",
        "shaders/shared/elementary*",
    ),
    "scans with the same bits everywhere": (
        "reference/everywhere.py",
        "reference/chunks.py",
        "problem/fixed_bits.py",
        "shaders/scan/*halve*",
        "shaders/shared/arithmetic_fixed.wgsl",
        "shaders/shared/combine_between.wgsl",
    ),
    "groups and segments without a sort": (
        "engine/group*",
        "engine/segment*",
        "engine/head_bits.py",
        "planning/group_plan.py",
        "planning/segment_plan.py",
        "planning/uncounted_groups.py",
        "problem/labels.py",
        "reference/groups.py",
        "shaders/groups/*",
        "shaders/segments/*",
    ),
    "sorts": (
        "engine/sorting.py",
        "engine/permutations.py",
        "planning/sort_plan.py",
        "reference/sort.py",
        "api/sort.py",
        "shaders/sort/*",
    ),
    "elements at indices (`take`, `put`, masks)": (
        "*array_indices.py",
        "problem/indices.py",
        "api/unknown_length_array.py",
        "shaders/arrays/*ind*",
        "shaders/arrays/take.wgsl",
        "shaders/arrays/put.wgsl",
    ),
    "gradients": ("operators/adjoint.py", "operators/derivatives.py", "api/scan_vjp.py", "api/linear_recurrence.py"),
    "Python in web pages": ("device/navigator_gpu.py", "device/backends.py"),
    "types of results (overloads)": ("api/annotations.py", "array_types.py"),
    "PyTorch": ("torch/*",),
    "JAX": ("jax/*",),
    "Dask, and arrays on several devices": (
        "dask/*",
        "api/shard_problems.py",
        "api/sharded_array.py",
        "api/device_group.py",
        "engine/shards.py",
    ),
    "filters (`gpuscan.signal`)": ("signal/*",),
}
REST = "files that serve several of these"


def count_before() -> dict[str, int]:
    """Return the lines of each file at the commit `BEFORE`."""
    command = ["git", "-C", str(CHECKOUT), "grep", "-c", "", BEFORE, "--", *SUFFIXES]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = (line.removeprefix(f"{BEFORE}:").rpartition(":") for line in output.splitlines())
    return {name: int(count) for name, _, count in pairs if name.endswith(SUFFIXES[name.partition("/")[0]])}


def count_now() -> dict[str, int]:
    """Return the lines of each file of the working tree."""
    return {
        path.relative_to(CHECKOUT).as_posix(): len(path.read_bytes().splitlines())
        for folder, suffix in SUFFIXES.items()
        for path in sorted((CHECKOUT / folder).rglob(f"*{suffix}"))
    }


def package_of(name: str) -> str:
    """Return the package of a file; all shaders are one."""
    folder, *rest = name.split("/")
    return "`shaders/`" if folder == "shaders" else f"`{rest[0]}/`" if len(rest) > 1 else "the top of `gpuscan/`"


def capability_of(name: str) -> str:
    """Return the capability that a file belongs to."""
    path = name.removeprefix("gpuscan/")
    return next(
        (capability for capability, patterns in CAPABILITIES.items() if any(fnmatch(path, p) for p in patterns)), REST
    )


def add_up(lines: Mapping[str, int], part_of: Mapping[str, str]) -> tuple[Counter[str], Counter[str]]:
    """Return the lines and the files of each part."""
    total, files = Counter[str](), Counter[str]()
    for name, count in lines.items():
        total[part_of[name]] += count
        files[part_of[name]] += 1
    return total, files


def tabulate(head: str, before: dict[str, int], now: dict[str, int], part_of: Mapping[str, str]) -> str:
    """Return a table of lines and files before and now, with the largest part first and a sum at the end."""
    (lines, files), (old_lines, old_files) = add_up(now, part_of), add_up(before, part_of)
    parts = sorted(set(lines) | set(old_lines), key=lambda part: (part == REST, -lines[part]))
    rows = [(part, old_lines[part], old_files[part], lines[part], files[part]) for part in parts]
    rows.append(("**all**", old_lines.total(), old_files.total(), lines.total(), files.total()))
    text = f"| {head} | lines before | files | lines now | files | more lines |\n|{' --- |' * 6}\n"
    for part, was, was_files, lines_now, files_now in rows:
        text += f"| {part} | {was:,} | {was_files} | {lines_now:,} | {files_now} | {lines_now - was:,} |\n"
    return text


def block_text() -> str:
    """Return both tables."""
    before, now = count_before(), count_now()
    names = before.keys() | now.keys()
    packages = tabulate("package", before, now, {name: package_of(name) for name in names})
    capabilities = tabulate("capability", before, now, {name: capability_of(name) for name in names})
    return f"{packages}\n{capabilities}"


def main() -> None:
    """Write the tables into the page."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(BLOCK.sub(lambda match: match[1] + block_text() + match[3], text), encoding="utf-8")


if __name__ == "__main__":
    main()
