"""Render the WGSL templates under ``shaders/``. A missing variable is an error that names it."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2

_PACKAGE = Path(__file__).parent


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
    text = _environment().get_template(template).render(**variables)
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines).strip() + "\n"
