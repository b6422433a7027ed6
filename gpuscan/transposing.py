"""Scans on a device down columns whose neighbours share words: rows are brought together there, and put back after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.arrays import Array, empty
from gpuscan.execution import record_beside

if TYPE_CHECKING:
    from gpuscan.device import Device
    from gpuscan.elements import Field
    from gpuscan.problem import Problem

WORKGROUP_SIZE = 256


def scan_transposed(
    device: Device, problem: Problem, strategy: str, leaves: Sequence[Array], results: Sequence[Array]
) -> None:
    """Scan the leaves into the results along an inner axis, by way of arrays whose rows lie one after the other.

    Args:
        device: of the arrays.
        problem: what was asked for.
        strategy: as in `gpuscan.scan`.
        leaves, results: what is loaded and stored; they may be the same.
    """
    from gpuscan.deferred import bindable, copy_over, fits_whole, scan_on_device

    outer, inner = prod(problem.shape[: problem.axis]), problem.inner
    rows = (outer * inner, problem.row_length)
    sources = [empty(device, (*rows, *f.shape), f.scalar.dtype) for f in problem.source.fields]
    for leaf, source, field in zip(leaves, sources, problem.source.fields, strict=True):
        transpose(device, bindable(leaf), source, field, problem.row_length, inner)
    targets = [empty(device, (*rows, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    together = replace(problem, shape=rows, axis=1)
    scan_on_device(device, together, strategy, sources, targets, in_place=False)
    for target, result, field in zip(targets, results, problem.destination.fields, strict=True):
        whole = result if fits_whole(result) else empty(device, result.shape, result.dtype)
        transpose(device, target, whole, field, inner, problem.row_length)
        if whole is not result:
            copy_over(whole, result)


def transpose(device: Device, source: Array, result: Array, field: Field, rows: int, columns: int) -> None:
    """Submit the transposition of arrays (outer, rows, columns) of the field's elements."""
    from gpuscan.deferred import parts

    unit = gcd(4, field.storage_bytes)
    row = np.array([rows, columns, field.storage_bytes // unit, source.nbytes // unit], np.uint32)
    bound = [device.uniform(row.tobytes()), *parts([source, result])]
    workgroups = -(-source.nbytes // (4 * WORKGROUP_SIZE))
    encoder = device.wgpu_device.create_command_encoder()
    length = source.nbytes // field.storage_bytes
    values = {"workgroup_size": WORKGROUP_SIZE, "unit": unit}
    record_beside(device, encoder, "transpose.wgsl", bound, workgroups, length, **values)
    device.wgpu_device.queue.submit([encoder.finish()])
