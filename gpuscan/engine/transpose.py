"""Transpositions on a device, of arrays that no shader scans as they lie.

Columns of 8- and 16-bit numbers whose neighbours share words: rows are brought together, and put back after. Arrays of
the CPU in another memory order: uploaded as they lie, and brought into C order by the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array, empty
from gpuscan.device.submission import submit
from gpuscan.engine.record import record_beside

if TYPE_CHECKING:
    from gpuscan.api.device import Device
    from gpuscan.problem.problem import Problem

WORKGROUP_SIZE = 256
LEAST_BYTES = 1 << 20  # of the CPU's arrays that are worth it


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
    from gpuscan.engine.device_arrays import bindable, copy_over, fits_whole, scan_on_device

    outer, inner = prod(problem.shape[: problem.axis]), problem.inner
    rows = (outer * inner, problem.row_length)
    sources = [empty(device, (*rows, *f.shape), f.scalar.dtype) for f in problem.source.fields]
    for leaf, source, field in zip(leaves, sources, problem.source.fields, strict=True):
        transpose(device, bindable(leaf), source, field.storage_bytes, problem.row_length, inner)
    targets = [empty(device, (*rows, *f.shape), f.scalar.dtype) for f in problem.destination.fields]
    together = replace(problem, shape=rows, axis=1)
    scan_on_device(device, together, strategy, sources, targets, in_place=False)
    for target, result, field in zip(targets, results, problem.destination.fields, strict=True):
        whole = result if fits_whole(result) else empty(device, result.shape, result.dtype)
        transpose(device, target, whole, field.storage_bytes, inner, problem.row_length)
        if whole is not result:
            copy_over(whole, result)


def turns_on(device: Device, leaf: np.ndarray[Any, Any]) -> bool:
    """Whether `place` brings an array of the CPU into C order on the device: one block of memory, in another order.

    Adapters that share the CPU's memory gain nothing by it.
    """
    capabilities = device.capabilities
    fits = LEAST_BYTES <= leaf.nbytes <= capabilities.limits["max-storage-buffer-binding-size"]
    away = capabilities.adapter_type not in ("CPU", "IntegratedGPU")
    return away and fits and not leaf.flags.c_contiguous and leaf.transpose(memory_order(leaf)).flags.c_contiguous


def memory_order(leaf: np.ndarray[Any, Any]) -> list[int]:
    """The axes, the one of the largest steps first."""
    return sorted(range(leaf.ndim), key=lambda axis: -abs(leaf.strides[axis]))


def place(device: Device, leaf: np.ndarray[Any, Any]) -> Array:
    """A copy of the CPU's array on the device, in C order."""
    if not turns_on(device, leaf):
        return device.asarray(np.ascontiguousarray(leaf))
    order = memory_order(leaf)
    array = device.asarray(leaf.transpose(order))
    for axis in range(leaf.ndim):  # one after the other to its place, what lies behind it as elements
        at = order.index(axis)
        if at == axis:
            continue
        sizes = [leaf.shape[each] for each in order]
        turned = empty(device, leaf.shape, leaf.dtype)
        behind = leaf.dtype.itemsize * prod(sizes[at + 1 :])
        transpose(device, array, turned, behind, prod(sizes[axis:at]), sizes[at])
        array = turned
        order.insert(axis, order.pop(at))
    return array


def transpose(device: Device, source: Array, result: Array, element_bytes: int, rows: int, columns: int) -> None:
    """Submit the transposition of arrays (outer, rows, columns) of elements of so many bytes."""
    from gpuscan.engine.device_arrays import parts

    unit = gcd(4, element_bytes)
    row = np.array([rows, columns, element_bytes // unit, source.nbytes // unit], np.uint32)
    bound = [device.uniform(row.tobytes()), *parts([source, result])]
    workgroups = -(-source.nbytes // (4 * WORKGROUP_SIZE))
    length = source.nbytes // element_bytes
    values = {"workgroup_size": WORKGROUP_SIZE, "unit": unit}
    with device.lock:
        encoder = device.wgpu_device.create_command_encoder()
        record_beside(device, encoder, "arrays/transpose.wgsl", bound, workgroups, length, **values)
        submit(device.wgpu_device, encoder.finish())
