"""Describe an exported scan: its plan.json and the other files of the folder."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuscan._version import __version__
from gpuscan.array_types import AnyArray
from gpuscan.browser.plans import Variant, storage_buffers
from gpuscan.browser.samples import TOLERANCE, Samples
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.elements import Element, words_of
from gpuscan.problem.problem import Problem
from gpuscan.templates import render

# The files of every export, which do not depend on the scan.
PAGE = Path(__file__).parent / "page"
PAGE_FILES = ("scan.js", "scan.d.ts", "check.js", "index.html")

# The line of scan.d.ts that says what the plan in the folder takes.
_ANY_PLAN = "export type Elements = AnyElements;"

# The names of an export's files, without its shaders and plan.json.
_FIXED_NAMES = (*PAGE_FILES, "check.input", "check.expected")

# The name of the format of plan.json, with its version.
FORMAT = "gpuscan export 2"

# The measurement of the subgroups' size: the file, the workgroups, the invocations in one, and the words of the results
# (shaders/probe/results.wgsl).
PROBE = {"file": "subgroups.wgsl", "workgroups": 4, "sizes_word": 5, "order_word": 6, "bytes": 4 * (11 + 4)}
_PROBE_WORKGROUP = 128


def files_of(
    problem: Problem, element: Element, variants: Sequence[Variant], samples: Samples | None
) -> dict[str, bytes]:
    """Return the content of every file by its name, the plan last.

    Args:
        element: the type of the elements that pages pass. A compaction moves their words.
        variants: the scan's plans.
        samples: arrays with known results, or None.
    """
    shaders: dict[str, str] = {}
    described = [_variant(variant, shaders) for variant in variants]
    fields = fields_of(element)
    plan: dict[str, object] = {
        "format": FORMAT,
        "version": __version__,
        "operator": "compact" if problem.compacts else problem.operator.name,
        "length": problem.size,
        "exclusive": problem.exclusive,
        "reverse": problem.reverse,
        "segments": problem.heads is not None,
        "reproducible": problem.everywhere,
        "compact": None if not problem.compacts else "mask" if problem.before is None else "function",
        "fields": fields,
        "seed": _seed(problem),
        "storage_buffers": storage_buffers(list(variants)),
        "subgroup_probe": PROBE if any(variant.subgroup_size for variant in variants) else None,
        "variants": described,
        "check": samples
        and {
            "sizes": check_sizes(variants, len(samples.given[0])),
            "offsets": None if samples.offsets is None else samples.offsets.tolist(),
            "tolerance": 0 if problem.everywhere else TOLERANCE,
        },
    }
    if plan["subgroup_probe"]:
        values = {"workgroups": PROBE["workgroups"], "workgroup_size": _PROBE_WORKGROUP, "pauses": 0}
        shaders["subgroups.wgsl"] = render("probe/subgroups.wgsl", enable_subgroups=True, rounds=1, polls=1, **values)
    files = {
        **{name: text.encode() for name, text in shaders.items()},
        **{name: (PAGE / name).read_bytes() for name in PAGE_FILES},
        "scan.d.ts": _types(fields).encode(),
        "check.input": b"".join(map(_pad_bytes, _collect_inputs(samples))),
        "check.expected": b"".join(map(_pad_bytes, samples.expected if samples else ())),
    }
    plan["files"] = {name: _digest(content) for name, content in files.items()}
    return files | {"plan.json": (json.dumps(plan, indent=1) + "\n").encode()}


def fields_of(element: Element) -> list[dict[str, object]]:
    """Return for each field its name, the type of its numbers, their count in an element, and an element's bytes."""
    return [
        {
            "name": ".".join(map(str, path)) or "x",
            "type": field.scalar.name,
            "numbers": field.count,
            "bytes": field.storage_bytes,
        }
        for path, field in zip(element.structure.paths(), element.fields, strict=True)
    ]


def _types(fields: Sequence[Mapping[str, object]]) -> str:
    """Return the type declarations of scan.js, with the types of the arrays that a plan of the fields takes."""
    arrays = [f'ArrayTypes["{field["type"]}"]' for field in fields]
    named = "; ".join(f"{json.dumps(field['name'])}: {array}" for field, array in zip(fields, arrays, strict=True))
    input_types = [*(arrays if len(arrays) == 1 else ()), f"[{', '.join(arrays)}]", f"{{ {named} }}"]
    text = (PAGE / "scan.d.ts").read_text(encoding="utf-8")
    before, _, after = text.partition(_ANY_PLAN)
    return f"{before}{_ANY_PLAN.partition('=')[0]}= {' | '.join(input_types)};{after}"


def _seed(problem: Problem) -> list[int] | None:
    """Return the words of the identity that an exclusive scan begins with."""
    seeds = problem.numpy_seeds
    if seeds is None:
        return None
    return words_of(problem.element, seeds).reshape(-1).tolist()


def _variant(variant: Variant, shaders: dict[str, str]) -> dict[str, object]:
    """Return what scan.js has to know about a plan, and add the texts of its shaders. Equal ones share a file."""
    plan = variant.plan
    stages = []
    for stage in plan.stages:
        text = render_kernel(stage.kernel)
        name = stage.name + (f"-{variant.subgroup_size}" if variant.subgroup_size else "")
        for number in range(len(variant.unaligned) + 1):
            file = f"{name}{'-part' * number}.wgsl"
            if shaders.setdefault(file, text) == text:
                break
        stages.append(
            {
                "name": stage.name,
                "file": file,
                "whole_grid": stage.name != "scan_totals",
                "bindings": [
                    {
                        "name": array.name,
                        "binding": array.binding,
                        "type": "read-only-storage" if array.access == "read" else "storage",
                    }
                    for array in stage.kernel.bindings
                ],
            }
        )
    return {
        "strategy": plan.strategy,
        "subgroup_size": variant.subgroup_size,
        "unaligned": list(variant.unaligned),
        "tile_size": plan.tile.tile_size,
        "workgroups_beside": plan.workgroups_without_tile,
        "state_bytes": plan.state_bytes,
        "spin_rounds": plan.spin_rounds,
        "cleared": list(plan.stages[-1].kernel.cleared),
        "posts": plan.posts,
        "stages": stages,
    }


def check_sizes(variants: Sequence[Variant], length: int) -> list[int]:
    """Return the lengths that the page checks: around the edges of tiles and of blocks of 32 tiles."""
    edges = {1, 33, length}
    for variant in variants:
        tile = variant.plan.tile.tile_size
        edges |= {tile - 1, tile, tile + 1, 32 * tile - 1, 32 * tile + 1}
    if variants[0].plan.stages[-1].kernel.spec.reverse:
        edges |= {length - 1, length - 2, length - 3}
    return sorted(edge for edge in edges if 0 < edge <= length)


def _collect_inputs(samples: Samples | None) -> list[AnyArray]:
    """Return the arrays of check.input: one for each field, and the mask of a compaction."""
    if samples is None:
        return []
    return samples.given if samples.mask is None else [*samples.given, samples.mask]


def _pad_bytes(array: AnyArray) -> bytes:
    content = array.tobytes()
    return content + bytes(-len(content) % 16)


# ----- Earlier exports


def earlier_plan(folder: Path) -> dict[str, object]:
    """Return the plan of the export in a folder, or an empty dict if there is none."""
    path = folder / "plan.json"
    plan: object = None
    if not path.is_symlink():
        with suppress(OSError, ValueError):
            plan = json.loads(path.read_text(encoding="utf-8"))
    return plan if isinstance(plan, dict) and str(plan.get("format")).startswith(FORMAT.rpartition(" ")[0]) else {}


def written_files(plan: Mapping[str, object]) -> dict[str, str]:
    """Return the digest of each file that an export wrote, by its name. Ignore names that no export gives."""
    files = plan.get("files")
    named = files.items() if isinstance(files, dict) else ()
    return {name: str(digest) for name, digest in named if name in _FIXED_NAMES or re.fullmatch(r"[\w-]+\.wgsl", name)}


def digest_of(path: Path) -> str:
    """Return the digest of a file, or an empty text for a link and for what cannot be read as a file."""
    try:
        return "" if path.is_symlink() else _digest(path.read_bytes())
    except OSError:
        return ""


def scan_text(plan: Mapping[str, object]) -> str:
    """Return what a plan computes, in words: the operator, the fields and the options, but not the length."""
    fields = plan.get("fields")
    typed = [
        f"{field.get('name')} {field.get('numbers')} {field.get('type')}".replace(" 1 ", " ").removeprefix("x ")
        for field in (fields if isinstance(fields, list) else ())
        if isinstance(field, dict)
    ]
    options = [name for name in ("exclusive", "reverse", "segments", "reproducible") if plan.get(name)]
    compaction = [f"by a {plan.get('compact')}"] if plan.get("compact") else []
    return ", ".join([f"{plan.get('operator')} of {' and '.join(typed)}", *options, *compaction])


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
