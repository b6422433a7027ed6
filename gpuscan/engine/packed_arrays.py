"""Pack the fields of bundles that have more than a shader binds into arrays that carry several each, on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.engine.element_copy import StridedView, copy_elements, view_of
from gpuscan.problem.packed_fields import packed_element, places

if TYPE_CHECKING:
    from gpuscan.problem.problem import Problem


def packed_arrays(problem: Problem, leaves: Sequence[DeviceArray]) -> list[DeviceArray]:
    """Pack the fields into the arrays that carry them, on the device."""
    context = leaves[0].context
    carriers = packed_element(problem.source).fields
    arrays = [empty(context, (*problem.shape, *carrier.shape), carrier.scalar.dtype) for carrier in carriers]
    for leaf, f, (carrier, start) in zip(leaves, problem.source.fields, places(problem.source), strict=True):
        copy_elements(
            view_of(leaf, (problem.size,), f.storage_bytes),
            arrays[carrier],
            offset=start,
            run=f.storage_bytes,
            pitch=carriers[carrier].storage_bytes,
        )
    return arrays


def unpack(problem: Problem, wholes: Sequence[DeviceArray], results: Sequence[DeviceArray]) -> None:
    """Copy the fields of a packed problem's results to arrays of their own."""
    fields, carriers = problem.destination.fields, packed_element(problem.destination).fields
    count = math.prod(problem.results_shape)
    for result, f, (carrier, start) in zip(results, fields, places(problem.destination), strict=True):
        view = StridedView(wholes[carrier], start, (count,), (carriers[carrier].storage_bytes,), f.storage_bytes)
        copy_elements(view, result)
