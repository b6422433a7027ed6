"""The methods of arrays on a device that are functions of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

A = TypeVar("A")
# The options of NumPy's functions.
Axes = int | tuple[int, ...] | None
Kind: TypeAlias = "DTypeLike | None"
Start: TypeAlias = "ArrayLike | None"


class ArrayMethods:
    """Combinations of elements. Each method calls NumPy's function, which is computed on the device."""

    def sum(
        self,
        axis: Axes = None,
        dtype: Kind = None,
        out: Self | None = None,
        keepdims: bool = False,
        initial: Start = None,
    ) -> Self:
        """Return ``np.sum`` of the array. Small integers are summed in 64 bits; `gpuscan.reduce` keeps their dtype.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).sum(axis=0).tolist()
            [4, 6]
        """
        return by_numpy(np.sum, self, axis, dtype, out, keepdims=keepdims, initial=initial)

    def prod(
        self,
        axis: Axes = None,
        dtype: Kind = None,
        out: Self | None = None,
        keepdims: bool = False,
        initial: Start = None,
    ) -> Self:
        """Return ``np.prod`` of the array. Small integers are multiplied in 64 bits.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([[1, 2], [3, 4]]).prod(axis=1).tolist()
            [2, 12]
        """
        return by_numpy(np.prod, self, axis, dtype, out, keepdims=keepdims, initial=initial)

    def max(self, axis: Axes = None, out: Self | None = None, keepdims: bool = False, initial: Start = None) -> Self:
        """Return ``np.max`` of the array.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([3, 1, 4, 1, 5]).max().item()
            5
        """
        return by_numpy(np.max, self, axis, out, keepdims=keepdims, initial=initial)

    def min(self, axis: Axes = None, out: Self | None = None, keepdims: bool = False, initial: Start = None) -> Self:
        """Return ``np.min`` of the array.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([3, 1, 4, 1, 5]).min().item()
            1
        """
        return by_numpy(np.min, self, axis, out, keepdims=keepdims, initial=initial)

    def argmax(self, axis: int | None = None, out: Self | None = None, *, keepdims: bool = False) -> Self:
        """Return ``np.argmax`` of the array: the index of the first greatest element, or of the first NaN, as uint32.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([3, 1, 4, 1, 5]).argmax().item()
            4
        """
        return by_numpy(np.argmax, self, axis, out, keepdims=keepdims)

    def argmin(self, axis: int | None = None, out: Self | None = None, *, keepdims: bool = False) -> Self:
        """Return ``np.argmin`` of the array: the index of the first least element, or of the first NaN, as uint32.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([3, 1, 4, 1, 5]).argmin().item()
            1
        """
        return by_numpy(np.argmin, self, axis, out, keepdims=keepdims)

    def any(self, axis: Axes = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return ``np.any`` of the array.

        Example:
            >>> import gpuscan as gs
            >>> (gs.default_device().asarray([3, 1, 4]) > 3).any().item()
            True
        """
        return by_numpy(np.any, self, axis, out, keepdims=keepdims)

    def all(self, axis: Axes = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return ``np.all`` of the array.

        Example:
            >>> import gpuscan as gs
            >>> (gs.default_device().asarray([3, 1, 4]) > 3).all().item()
            False
        """
        return by_numpy(np.all, self, axis, out, keepdims=keepdims)

    def mean(self, axis: Axes = None, dtype: Kind = None, out: Self | None = None, keepdims: bool = False) -> Self:
        """Return ``np.mean`` of an array of floats; for integers, pass ``dtype=np.float32``.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 2, 3, 4]).mean(dtype="float32").item()
            2.5
        """
        return by_numpy(np.mean, self, axis, dtype, out, keepdims=keepdims)

    def std(
        self, axis: Axes = None, dtype: Kind = None, out: Self | None = None, ddof: float = 0, keepdims: bool = False
    ) -> Self:
        """Return ``np.std`` of an array of floats; for integers, pass ``dtype=np.float32``.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 3]).std(dtype="float32").item()
            1.0
        """
        return by_numpy(np.std, self, axis, dtype, out, ddof, keepdims)

    def var(
        self, axis: Axes = None, dtype: Kind = None, out: Self | None = None, ddof: float = 0, keepdims: bool = False
    ) -> Self:
        """Return ``np.var`` of an array of floats; for integers, pass ``dtype=np.float32``.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([2, 6]).var(dtype="float32", ddof=1).item()
            8.0
        """
        return by_numpy(np.var, self, axis, dtype, out, ddof, keepdims)

    def take(self, indices: ArrayLike, axis: int | None = None, out: Self | None = None, mode: str = "raise") -> Self:
        """Return ``np.take`` of the array: the elements at the indices along an axis.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([10, 20, 30]).take([2, 0]).tolist()
            [30, 10]
        """
        return by_numpy(np.take, self, indices, axis, out, mode)

    def cumsum(self, axis: int | None = None, dtype: Kind = None, out: Self | None = None) -> Self:
        """Return ``np.cumsum`` of the array. Small integers are summed in 64 bits.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 2, 3]).cumsum().tolist()
            [1, 3, 6]
        """
        return by_numpy(np.cumsum, self, axis, dtype, out)

    def cumprod(self, axis: int | None = None, dtype: Kind = None, out: Self | None = None) -> Self:
        """Return ``np.cumprod`` of the array. Small integers are multiplied in 64 bits.

        Example:
            >>> import gpuscan as gs
            >>> gs.default_device().asarray([1, 2, 3]).cumprod().tolist()
            [1, 2, 6]
        """
        return by_numpy(np.cumprod, self, axis, dtype, out)


def by_numpy(function: Callable[..., Any], array: A, *arguments: object, **options: object) -> A:
    """Return what a function of NumPy makes of an array on a device. NumPy's types do not know such arrays."""
    result: A = function(array, *arguments, **options)
    return result
