"""Renders the WGSL templates under ``shaders/``. A variable that a template misses is an error with its name."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuscan.operators.user_wgsl import kept_apart

if TYPE_CHECKING:
    import jinja2

    from gpuscan.planning.kernel import Kernel

_PACKAGE = Path(__file__).parent


@cache
def shader_folder() -> Path:
    """Where the templates lie: inside the installed package, or at the top of a checkout."""
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
    """The text of a template with its variables filled in; runs of blank lines become one."""
    text = _environment().get_template(template).render(**variables)
    lines: list[str] = []
    for line in text.splitlines():
        if line.strip() or (lines and lines[-1]):
            lines.append(line.rstrip())
    return "\n".join(lines).strip() + "\n"


@lru_cache(maxsize=512)  # functions that are made anew at each call are kernels of their own
def render_kernel(kernel: Kernel) -> str:
    """The WGSL of one kernel."""
    text = render(kernel.template, kernel=kernel)
    return kept_apart(text, kernel.operator_name) if kernel.combine.foreign else text
