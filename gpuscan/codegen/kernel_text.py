"""The WGSL text of a kernel."""

from __future__ import annotations

from functools import lru_cache

from gpuscan.operators.user_wgsl import kept_apart
from gpuscan.planning.kernel import Kernel
from gpuscan.templates import render


@lru_cache(maxsize=512)
def render_kernel(kernel: Kernel) -> str:
    """Return the WGSL of one kernel."""
    text = render(kernel.template, kernel=kernel)
    return kept_apart(text, kernel.operator_name) if kernel.combine.foreign else text
