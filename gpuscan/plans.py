"""A plan that users hold: one kind of scan, compiled once, run many times."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.planning import ScanPlan, plan_scan
from gpuscan.problem import pose
from gpuscan.runner import check_dtypes, work_of
from gpuscan.templates import render_kernel

if TYPE_CHECKING:
    from gpuscan.device import Device


class Plan:
    """One kind of scan on one device: made by `Device.plan`.

    Attributes:
        strategy: how a tile learns its prefix.
        reason: why this strategy.
        wgsl: the WGSL text of each stage, by the stage's name.
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: Any, op: Any, strategy: str, options: dict[str, Any]
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._op = op
        self._options = options
        stand_in = np.broadcast_to(np.zeros((), self.dtype), shape)
        given = {"axis": None, "exclusive": False, "reverse": False, "initial": None, "dtype": None} | options
        problem = pose(stand_in, op, before=None, after=None, **given)
        check_dtypes(device, problem.source, problem.element, problem.destination)
        self.strategy, self.reason = device.strategy(strategy)
        self._plan: ScanPlan = plan_scan(work_of(device, problem), device.capabilities, self.strategy, self.reason)
        for stage in self._plan.stages:
            device.pipeline(stage.kernel)

    def __repr__(self) -> str:
        return f"gpuscan.Plan({self._op!r}, {self.dtype} {self.shape}, {self.strategy} on {self.device!r})"

    @cached_property
    def wgsl(self) -> dict[str, str]:
        return {stage.name: render_kernel(stage.kernel) for stage in self._plan.stages}

    def __call__(self, array: Any, out: Any = None) -> Any:
        """The scan of an array of the plan's shape and dtype.

        Raises:
            ValueError, TypeError: the array has another shape or dtype.
        """
        from gpuscan.api import scan

        array = np.asarray(array)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} was passed to a plan for shape {self.shape}")
        if array.dtype != self.dtype:
            raise TypeError(f"an array of dtype {array.dtype} was passed to a plan for dtype {self.dtype}")
        return scan(array, self._op, out=out, device=self.device, strategy=self.strategy, **self._options)
