"""Run scans of groups: on a device, or on NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import execute, is_on_device
from gpuscan.engine.groups import scan_groups
from gpuscan.problem.arguments import OnDevice
from gpuscan.problem.groups import in_order, numbered
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import Heads
from gpuscan.reference import groups as reference


def execute_groups(
    problem: Problem, labels: Any, home: OpenedDevice | None, strategy: str, outputs: list[Any] | None
) -> list[Any]:
    """Return the result of a problem in which each element is combined with those of its own label.

    Args:
        problem: the scan, without heads.
        labels: the labels, checked.
        home: the device to run on; None for NumPy.
        strategy: as in `gpuscan.scan`.
        outputs: the arrays of `out`, checked; new ones without.
    """
    if problem.empty:
        return execute(problem, home, strategy, outputs)
    if not isinstance(labels, OnDevice):
        labels = numbered(labels)
        if in_order(labels, problem.axis):
            # Elements of one label are neighbours already.
            heads = Heads(problem.shape, problem.axis, problem.reverse, keys=labels)
            return execute(replace(problem, heads=heads), home, strategy, outputs)
    if problem.indexed:
        raise ValueError(
            "before= was passed as a function of an element and its index, with groups= in any order, for which "
            "elements are moved. Pass the indices as one more array of a bundle"
        )
    if home is None:
        rows = reference.accumulate_groups(problem, labels)
        results: list[Any] = [np.ascontiguousarray(problem.from_rows(row)) for row in rows]
    elif is_on_device(problem):
        found = scan_groups(home._executor, problem, labels, strategy, out=outputs)
        return outputs or [Array.of(home, array) for array in found]
    else:
        results = [array.read() for array in scan_groups(home._executor, problem, labels, strategy)]
        home._context.check()
    for target, result in zip(outputs or (), results, strict=outputs is not None):
        target[...] = result
    return outputs or results
