"""Scans of small NumPy arrays, one of many alike: what a call is made of is prepared once and kept.

A small scan costs what its calls of WebGPU cost; so the request is posed and planned at the first call of its kind,
and the next ones write, dispatch, copy and map. What is out of the ordinary goes the long way: see `scan_small`.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from gpuscan.api.device import STRATEGY_VARIABLE, Device
from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT, size_class
from gpuscan.device.guards import guarded
from gpuscan.device.submission import submit
from gpuscan.device.transfer import bytes_of, map_for_reading, padded, read_mapped
from gpuscan.engine.attempts import note_size, note_timeout, unfit
from gpuscan.engine.direct import largest_part
from gpuscan.engine.host_arrays import check_dtypes, planned
from gpuscan.engine.record import REPORT_BYTES, record
from gpuscan.operators.operator import Operator
from gpuscan.problem.field_packing import binds_too_many
from gpuscan.problem.problem import Problem, pose

KEPT = 256  # kinds of scans a device keeps prepared


class SmallScan:
    """One kind of scan on one device, ready to run.

    Args:
        device: where.
        problem: the first of its kind.
        strategy: as in `gpuscan.scan`.
    """

    def __init__(self, device: Device, problem: Problem, strategy: str) -> None:
        (target,) = problem.destination.fields
        self.capabilities = device.capabilities  # for which the plan was made
        self._plan = planned(device, problem, strategy)
        self._shape = (*problem.shape, *target.shape)
        self._dtype = target.scalar.dtype
        self._read = padded(problem.size * problem.source.storage_bytes, ALIGNMENT)
        self._stored = padded(problem.size * target.storage_bytes, ALIGNMENT)
        self._place = REPORT_BYTES if self._plan.reports else 0  # of the result in the staging buffer
        flags = device.usage
        usage, staged = flags.STORAGE | flags.COPY_DST | flags.COPY_SRC, flags.MAP_READ | flags.COPY_DST
        sizes = (self._read, usage), (self._stored, usage), (self._place + self._stored, staged)
        self._classes = [(kind, size_class(size)) for size, kind in sizes]

    def holds(self, device: Device) -> bool:
        """Whether the plan is what it would be by what is known of the device now."""
        return self.capabilities is device.capabilities and not unfit(device, self._plan)

    def run(self, device: Device, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
        """The result; None where the run failed, and another way has to be taken."""
        plan, place = self._plan, self._place
        with device.lock:
            buffers = device.pool.take_all(self._classes)
            clean = False
            try:
                source, destination, staging = buffers
                device.wgpu_device.queue.write_buffer(source, 0, bytes_of(x))
                encoder = device.wgpu_device.create_command_encoder()
                read, stored = Binding(source, 0, self._read), Binding(destination, 0, self._stored)
                ran = record(device, plan, encoder, [read], [stored])
                if place:
                    encoder.copy_buffer_to_buffer(ran.state, 0, staging, 0, REPORT_BYTES)
                encoder.copy_buffer_to_buffer(destination, 0, staging, place, self._stored)
                submit(device.wgpu_device, encoder.finish())
                map_for_reading(staging, place + self._stored).sync_wait()
                content = read_mapped(staging, place + self._stored)
                failed = False
                if place:
                    report = content[:place].view(np.uint32).tolist()
                    ran.check_turns(report)
                    failed = ran.width_differed(report) or ran.timed_out(report)
                if failed and ran.width_differed(report):
                    note_size(device, plan, differed=True)
                elif failed:
                    note_timeout(device)
                result = np.empty(self._shape, self._dtype)
                result.reshape(-1).view(np.uint8)[:] = content[place : place + result.nbytes]
                staging.unmap()
                clean = True
            finally:
                device.pool.give_all(buffers, self._classes, clean=clean)
        return None if failed else result


def scan_small(
    device: Device,
    x: np.ndarray[Any, Any],
    op: Any,
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    dtype: Any,
    strategy: str,
) -> np.ndarray[Any, Any] | None:
    """The scan of a small contiguous array of whole words along its last axis; None where it is not one for this way.

    Functions go the long way, for what they close over may change from call to call.

    Raises:
        GpuscanError, ValueError, TypeError: as `gpuscan.scan`.
    """
    if not isinstance(op, (str, np.ufunc, Operator)) or not x.flags.c_contiguous or x.nbytes % 4 or x.size == 0:
        return None
    if axis is not None and type(axis) is not int:  # 1.0 and True are equal to 1, and refused
        return None
    if type(exclusive) is not bool or type(reverse) is not bool:  # the same, and what is neither on nor off
        return None
    asked = os.environ.get(STRATEGY_VARIABLE) if strategy == "auto" else None
    key = (op, x.dtype, x.shape, axis, exclusive, reverse, dtype, strategy, asked)
    kept = device.small_scans
    try:
        known = key in kept
    except TypeError:  # something that has no hash
        return None
    prepared = kept.get(key)
    if not known or (prepared is not None and not prepared.holds(device)):
        with guarded(device), device.lock:
            prepared = prepare(device, x, op, strategy, axis, exclusive, reverse, dtype)
            if len(kept) >= KEPT:
                kept.clear()
            kept[key] = prepared
    if prepared is None:
        return None
    with guarded(device):
        return prepared.run(device, x)


def prepare(
    device: Device,
    x: np.ndarray[Any, Any],
    op: Any,
    strategy: str,
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    dtype: Any,
) -> SmallScan | None:
    """What `scan_small` keeps of a kind of scan: None where it has to go the long way."""
    problem = pose(x, op, axis=axis, exclusive=exclusive, reverse=reverse, dtype=dtype)
    check_dtypes(device, problem.source, problem.element, problem.destination)
    lone = len(problem.leaves) == len(problem.destination.fields) == 1 and x.dtype.names is None
    if not lone or problem.seeds is not None or problem.inner != 1 or binds_too_many(device, problem):
        return None
    as_it_lies = problem.leaves[0].dtype == x.dtype and problem.leaves[0].shape == x.shape
    if problem.size > largest_part(device, problem):
        return None
    return SmallScan(device, problem, strategy) if as_it_lies else None
