"""Views of arrays on a device: basic indexing, transposes and reshapes, as NumPy defines them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

from gpuscan.device.device_array import DeviceArray
from gpuscan.device.strides import indexed, may_share_bytes, permutation, reshaped, resolved_shape
from gpuscan.problem.arguments import resolve_axis
from gpuscan.problem.indices import is_array_index


class Views(DeviceArray):
    """The part of `gpuscan.Array` that gives other arrays over the same buffer. Nothing is copied on the device."""

    def view_at(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Self:
        """Return the view of the same buffer with these strides, `offset` bytes after the begin of this array."""
        raise NotImplementedError

    def copy(self) -> Self:
        """Return a copy on the device, in C order; `copy.copy` and `copy.deepcopy` do the same."""
        raise NotImplementedError

    # ----- Indices

    def take_item(self, index: Any) -> Self:
        """Return the elements at an index with arrays, as a new array."""
        raise NotImplementedError

    def __getitem__(self, index: Any) -> Self:
        """Return a view by basic indexing: slices with steps, integers, ``...`` and None, for any number of axes.

        An index with arrays of integers or bools gives a new array, as NumPy's does. Arrays may be on the device:
        integers are checked there, and if one is wrong, the next read or `Device.synchronize` raises; a mask leaves the
        number of elements on the device until ``.shape`` is asked for.

        Raises:
            IndexError: there is no such entry, there are more indices than axes, a part is no index, or a mask has
                another shape.
        """
        if is_array_index(index):
            return self.take_item(index)
        return self.view_at(*indexed(self.shape, self.strides, index))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("the length of an array of shape () was asked for, but it has no axes; use array.size")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """Yield a view of each entry of the first axis."""
        if not self.shape:
            raise TypeError("an array of shape () was to be iterated over, but it has no axes; use array.reshape(1)")
        return (self[place] for place in range(self.shape[0]))

    # ----- Shapes

    def reshape(self, *shape: Any) -> Self:
        """Return the same elements, in C order, in another shape; one length may be -1.

        The result is a view wherever NumPy gives one, else a copy on the device.

        Raises:
            ValueError: the shape has another number of elements.
        """
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        wanted = resolved_shape(self.shape, given)
        strides = reshaped(self.shape, self.strides, wanted)
        if strides is None:
            return self.copy().reshape(wanted)
        return self.view_at(wanted, strides)

    def ravel(self) -> Self:
        """Return all elements, in C order, as one axis: a view if NumPy gives one, else a copy on the device."""
        return self.reshape(-1)

    def flatten(self) -> Self:
        """Return a copy of all elements, in C order, as one axis."""
        return self.copy().reshape(-1)

    def transpose(self, *axes: Any) -> Self:
        """Return a view with the axes in another order: reversed, or that of `axes`.

        Raises:
            ValueError: an axis is missing, or there is none of that number.
        """
        given = axes[0] if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list))) else axes
        order = permutation(len(self.shape), given or ())
        shape, strides = self.shape, self.strides
        return self.view_at(tuple([shape[i] for i in order]), tuple([strides[i] for i in order]))

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Return a view with two axes interchanged.

        Raises:
            ValueError: there is no such axis.
        """
        order = list(range(len(self.shape)))
        axis1, axis2 = (resolve_axis(axis, self.shape) for axis in (axis1, axis2))
        order[axis1], order[axis2] = order[axis2], order[axis1]
        return self.transpose(order)

    @property
    def T(self) -> Self:  # noqa: N802 (NumPy's name)
        """The view with all axes reversed."""
        return self.transpose()

    @property
    def mT(self) -> Self:  # noqa: N802 (NumPy's name)
        """The view with the last two axes interchanged."""
        if len(self.shape) < 2:
            raise ValueError(
                f"the matrix transpose of an array of shape {self.shape} was asked for, which has no two axes; use .T"
            )
        return self.swapaxes(-1, -2)

    def shares_memory(self, other: Views) -> bool:
        """Return True if a byte may belong to both arrays."""
        mine, theirs = ((a.shape, a.strides, a.offset, a.dtype.itemsize) for a in (self, other))
        return self.buffer is other.buffer and may_share_bytes(mine, theirs)
