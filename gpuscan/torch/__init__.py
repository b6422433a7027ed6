"""Scans and loops of PyTorch tensors on any GPU, with gradients. It needs ``pip install ".[torch]"``.

On Mesa's software driver, a first import of triton after the first scan ends the process, because both bring an LLVM of
their own. So this package imports triton, where it is installed.
"""

from contextlib import suppress

with suppress(ImportError):
    import triton  # type: ignore[import-not-found]  # noqa: F401

from gpuscan.torch.associative_scan import associative_scan
from gpuscan.torch.linear_attention import gated_delta_rule, gated_linear_attention
from gpuscan.torch.linear_recurrence import linear_recurrence
from gpuscan.torch.loop import loop
from gpuscan.torch.scan import scan
from gpuscan.torch.selective_scan import selective_scan, selective_state_update

__all__ = [
    "associative_scan",
    "gated_delta_rule",
    "gated_linear_attention",
    "linear_recurrence",
    "loop",
    "scan",
    "selective_scan",
    "selective_state_update",
]
