"""The WGSL text of a scan, for ``gpuscan shader``."""

from __future__ import annotations

import click

from gpuscan import Device
from gpuscan.array_types import AnyDType
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.strategies import Strategy

# The side of the matrices in the shaders of matmul.
MATRIX_SIDE = 2


def shader_text(device: Device, op: str, dtype: AnyDType, length: int, strategy: Strategy) -> str:
    """Return the shaders that a scan of so long an array runs, each under a line that names its stage."""
    element = (MATRIX_SIDE,) * resolve(op).element_axes
    try:
        plan = device.plan((length, *element), dtype, op, axis=0, strategy=strategy)
    except TypeError as error:  # the operator does not combine the dtype
        raise click.UsageError(str(error)) from error
    stages = plan.wgsl.items()
    return "\n".join(f"// ===== {stage} ({plan.strategy}, {op}, {dtype})\n\n{text}" for stage, text in stages)
