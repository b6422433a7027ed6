"""The sorts of the conformance suite: calls with a result that NumPy's stable sort gives to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan
from gpuscan import Device
from gpuscan.device.device_array import uploaded
from gpuscan.engine.sorting import sort_device

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TestedSort:
    """A function of the suite that sorts.

    Attributes:
        call: gets an array, the axis, the device and the strategy. Public functions of sorts take ``"auto"`` alone.
        expected: gets the same array and axis, and returns the same result by NumPy.
    """

    call: Callable[[Array, int, Device, str], Any]
    expected: Callable[[Array, int], Any]


def _sorted(x: Array, axis: int, device: Device, strategy: str) -> Any:
    if strategy == "auto":
        return gpuscan.sort(x, axis=axis, device=device)
    found = sort_device(device._executor, uploaded(device._context, x), axis, strategy=strategy).keys
    assert found is not None
    keys = found.read()
    device._context.check()
    return keys


def _descending_order(x: Array, axis: int) -> Array:
    """Return the indices of a stable sort from the greatest to the smallest."""
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - flipped, axis)


def _sums_of_groups(x: Array, axis: int) -> Array:
    """Return the running sums of even and of odd elements, each by themselves."""
    odd = (x & 1).astype(bool)
    sums = [np.cumsum(np.where(chosen, x, 0), axis=axis, dtype=x.dtype) for chosen in (~odd, odd)]
    return np.where(odd, sums[1], sums[0])


SORTS: Mapping[str, TestedSort] = {
    "sort": TestedSort(
        _sorted,
        lambda x, axis: np.sort(x, axis=axis, kind="stable"),
    ),
    "argsort, descending": TestedSort(
        lambda x, axis, device, _: gpuscan.argsort(x, axis=axis, descending=True, device=device), _descending_order
    ),
    "add, by groups": TestedSort(
        lambda x, axis, device, _: gpuscan.scan(x, axis=axis, groups=x & 1, device=device), _sums_of_groups
    ),
}
# The elements that each function is tried with.
SORTED_ELEMENTS: Mapping[str, tuple[str, ...]] = {
    "sort": ("bool", "int8", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"),
    "argsort, descending": ("uint32", "float32"),
    "add, by groups": ("uint32",),
}
# The layouts: those in which arrays have no options.
SORTED_LAYOUTS = ("inclusive", "long rows", "short rows", "columns")
# What is sorted under every strategy: one row of several tiles.
SORTED_BY_STRATEGIES = ("uint32", "sort", "inclusive")
