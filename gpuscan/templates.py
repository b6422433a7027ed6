"""Render the WGSL templates under ``shaders/``. A missing variable is an error that names it."""

from __future__ import annotations

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
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, **variables: Any) -> str:
    """Return the text of a template with its variables filled in. Runs of blank lines become one."""
    text = _environment().get_template(template).render(**variables)
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines).strip() + "\n"
