"""The axes that a reduction combines, and how they become one axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from gpuscan.api.array import SomeArray, as_some_array
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import resolve_axes, structure_and_leaves
from gpuscan.problem.leading_axes import split_axes
from gpuscan.problem.results import over_arrays, own_axes

if TYPE_CHECKING:
    from gpuscan.api.annotations import Mapped


@dataclass(frozen=True)
class ReducedAxes:
    """The axes of a reduction.

    Attributes:
        shape: the shape of the arrays, without the axes that belong to the element.
        axes: the axes to combine, in ascending order.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that stay."""
        return tuple(i for i in range(len(self.shape)) if i not in self.axes)

    @property
    def consecutive(self) -> bool:
        """True if the axes are consecutive."""
        return bool(self.axes) and self.axes[-1] - self.axes[0] == len(self.axes) - 1

    @property
    def axis(self) -> int:
        """The axis that replaces the combined axes: at their own position, or the last one."""
        return self.axes[0] if self.consecutive else len(self.others)

    def result_shape(self, keepdims: bool) -> tuple[int, ...]:
        """Return the shape of the result; with `keepdims` the combined axes stay, with length 1."""
        lengths = (1 if i in self.axes else n for i, n in enumerate(self.shape) if keepdims or i not in self.axes)
        return tuple(lengths)

    def combine_axes(self, given: object) -> SomeArray:
        """Return the array with the combined axes as one, in C order. An array on a device stays there."""
        array = as_some_array(given)
        if len(self.axes) == 1:
            return array
        if not self.consecutive:
            array = array.transpose((*self.others, *self.axes, *range(len(self.shape), array.ndim)))
        lengths = [self.shape[i] for i in self.others]
        lengths.insert(self.axis, prod(self.shape[i] for i in self.axes))
        return array.reshape((*lengths, *array.shape[len(self.shape) :]))


def find_axes(x: object, operator: Operator, axis: object, before: Mapped | None = None) -> ReducedAxes:
    """Return the axes of a reduction of the bundle `x`.

    Args:
        x: the input of the reduction.
        axis: an axis, a tuple of axes, or None for all of them.
        before: the map on load, or None.

    Raises:
        ValueError: an axis is out of range or named twice, or the arrays do not fit each other.
        TypeError: `axis` is neither an integer nor a tuple of them.
    """
    structure, leaves = structure_and_leaves(x)
    shape, _ = split_axes(structure, leaves, own_axes(x), operator, before, scans=False)
    return ReducedAxes(shape, tuple(sorted(resolve_axes(axis, shape))))


def combine_bundle_axes(x: object, axes: ReducedAxes) -> object:
    """Return the same bundle with the combined axes of every array as one."""
    return x if len(axes.axes) == 1 else over_arrays(axes.combine_axes, x)
