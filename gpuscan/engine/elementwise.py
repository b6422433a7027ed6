"""Apply a function to every element of an array on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import contiguous
from gpuscan.operators.operator import operator
from gpuscan.problem.problem import make_problem

if TYPE_CHECKING:
    from gpuscan.device.device_array import DeviceArray
    from gpuscan.engine.executor import Executor


@operator(name="keep left")
def LEFT(left: Any, right: Any) -> Any:  # noqa: N802 (a constant)
    """Return the left operand. It is never called: rows of one element combine nothing."""
    del right
    return left


def mapped(executor: Executor, array: DeviceArray, function: Callable[[Any], Any]) -> list[DeviceArray]:
    """Return the fields of the function's results for each element, as arrays of one axis.

    The function is the map on load of a scan of rows of one element.
    """
    rows = contiguous(array).viewed((array.size, 1))
    return scan_device(executor, make_problem(rows, LEFT, axis=1, before=function))


def converted(executor: Executor, array: DeviceArray, dtype: np.dtype[Any]) -> DeviceArray:
    """Return the array in another dtype."""
    (result,) = mapped(executor, array, lambda value: value.astype(dtype))
    return result.viewed(array.shape)
