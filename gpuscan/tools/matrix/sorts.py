"""The sorts of the conformance suite: calls with a result that NumPy's stable sort gives to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan
from gpuscan import Device

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TestedSort:
    """A function of the suite that sorts.

    Attributes:
        call: gets an array, the axis and the device.
        expected: gets the same array and axis, and returns the same result by NumPy.
    """

    call: Callable[[Array, int, Device], Any]
    expected: Callable[[Array, int], Any]


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
        lambda x, axis, device: gpuscan.sort(x, axis=axis, device=device),
        lambda x, axis: np.sort(x, axis=axis, kind="stable"),
    ),
    "argsort, descending": TestedSort(
        lambda x, axis, device: gpuscan.argsort(x, axis=axis, descending=True, device=device), _descending_order
    ),
    "add, by groups": TestedSort(
        lambda x, axis, device: gpuscan.scan(x, axis=axis, groups=x & 1, device=device), _sums_of_groups
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
