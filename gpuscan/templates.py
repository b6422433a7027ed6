"""Render the WGSL templates under ``shaders/``. A missing variable is an error that names it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).parent

# What begins the title of a section of a shader.
_TITLE = "// -----"

# What begins a declaration that a shader can do without if nothing names it. Bindings and directives stay.
_DECLARATION = re.compile(r"(?:fn|const|struct|alias|var<workgroup>) (\w+)")


@cache
def shader_folder() -> Path:
    """Return the folder of the templates: inside the installed package, or at the top of a checkout."""
    inside = _PACKAGE / "shaders"
    return inside if inside.is_dir() else _PACKAGE.parent / "shaders"


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shader_folder()),
        bytecode_cache=_make_template_cache(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _make_template_cache() -> jinja2.BytecodeCache | None:
    """Return the cache of compiled templates, a folder next to them; None where Python keeps compiled code elsewhere.

    To compile the templates of a first scan takes as long as NumPy's import. Jinja2 compares a template with the hash
    of the text that its code was made from.
    """
    import jinja2

    class Compiled(jinja2.FileSystemBytecodeCache):
        # A full disk, or a folder that is not there, only costs time.
        def load_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):
                super().load_bytecode(bucket)

        def dump_bytecode(self, bucket: Any) -> None:
            with suppress(OSError):
                if not sys.dont_write_bytecode:
                    super().dump_bytecode(bucket)

    if sys.pycache_prefix:
        return None
    folder = shader_folder() / "__pycache__"
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
    return Compiled(str(folder), f"%s.{sys.implementation.cache_tag}.jinja2")


def render(template: str, **variables: object) -> str:
    """Return the text of a template with its variables filled in. Runs of blank lines become one."""
    return _tidy(_environment().get_template(template).render(**variables).splitlines())


def _tidy(lines: Iterable[str]) -> str:
    tidy: list[str] = []
    for line in lines:
        if line.strip() or (tidy and tidy[-1]):
            tidy.append(line.rstrip())
    return "\n".join(tidy).strip() + "\n"


def leave_out_unused(text: str) -> str:
    """Return a shader without the functions, constants, types and workgroup variables that `main` does not need.

    So a template may declare what only some of its kernels use. The comment above a declaration goes with it, and so
    do the title of a section with nothing left, and the last members of ``Params`` if nothing names them.
    Declarations begin and end at the start of a line.
    """
    parts = _split_declarations(text.splitlines())
    uses: dict[str, set[str]] = {}
    for name, lines in parts:
        code = "\n".join(line.partition("//")[0] for line in lines)
        uses.setdefault(name, set()).update(re.findall(r"[A-Za-z_]\w*", code))
    needed: set[str] = set()
    new = {"", "main"}
    while new:
        needed |= new
        new = {name for used in new for name in uses.get(used, ()) if name in uses} - needed
    named = {word for name in needed - {"Params"} for word in uses.get(name, ())}
    kept: list[str] = []
    for name, lines in parts:
        while name == "Params" and len(lines) > 3 and lines[-2].partition(":")[0].strip() not in named:
            del lines[-2]
    for line in (line for name, lines in parts if name in needed for line in lines):
        if line.startswith((_TITLE, "@compute")):
            while kept and (not kept[-1] or kept[-1].startswith(_TITLE)):
                kept.pop()
            kept.append("")
        kept.append(line)
    return _tidy(kept)


def _split_declarations(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return the names and lines of declarations, with the comments above them. Other lines have the name ``""``."""
    parts: list[tuple[str, list[str]]] = []
    comments: list[str] = []
    within = False  # a declaration of several lines
    for line in lines:
        if within:
            parts[-1][1].append(line)
            within = not line.startswith(("}", ");"))
        elif line.startswith("//") and not line.startswith(_TITLE):
            comments.append(line)
        else:
            match = _DECLARATION.match(line)
            parts.append((match[1] if match else "", [*comments, line]))
            comments = []
            within = match is not None and not line.partition("//")[0].rstrip().endswith((";", "}"))
    return [*parts, ("", comments)]
