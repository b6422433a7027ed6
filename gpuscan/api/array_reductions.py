"""The methods of NumPy's arrays that combine elements. Each is NumPy's function, which is computed on the device."""

from __future__ import annotations

from typing import Any

import numpy as np

Axes = int | tuple[int, ...] | None


class Reductions:
    """Reductions and running reductions of an array that answers NumPy's functions, with NumPy's promotion of types."""

    def sum(
        self, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None
    ) -> Any:
        """Return ``np.sum`` of the array. Small integers are summed in 64 bits, other than by `gpuscan.reduce`."""
        return np.sum(self, axis, dtype, out, keepdims=keepdims, initial=initial)  # type: ignore[call-overload]

    def prod(
        self, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: bool = False, initial: Any = None
    ) -> Any:
        """Return ``np.prod`` of the array. Small integers are multiplied in 64 bits."""
        return np.prod(self, axis, dtype, out, keepdims=keepdims, initial=initial)  # type: ignore[call-overload]

    def max(self, axis: Axes = None, out: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        """Return ``np.max`` of the array."""
        return np.max(self, axis, out, keepdims=keepdims, initial=initial)  # type: ignore[call-overload]

    def min(self, axis: Axes = None, out: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
        """Return ``np.min`` of the array."""
        return np.min(self, axis, out, keepdims=keepdims, initial=initial)  # type: ignore[call-overload]

    def any(self, axis: Axes = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return ``np.any`` of the array."""
        return np.any(self, axis, out, keepdims=keepdims)  # type: ignore[call-overload]

    def all(self, axis: Axes = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return ``np.all`` of the array."""
        return np.all(self, axis, out, keepdims=keepdims)  # type: ignore[call-overload]

    def mean(self, axis: Axes = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """Return ``np.mean`` of an array of floats; for integers, pass ``dtype=np.float32``."""
        return np.mean(self, axis, dtype, out, keepdims=keepdims)  # type: ignore[call-overload]

    def std(
        self, axis: Axes = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
    ) -> Any:
        """Return ``np.std`` of an array of floats; for integers, pass ``dtype=np.float32``."""
        return np.std(self, axis, dtype, out, ddof, keepdims)  # type: ignore[call-overload]

    def var(
        self, axis: Axes = None, dtype: Any = None, out: Any = None, ddof: float = 0, keepdims: bool = False
    ) -> Any:
        """Return ``np.var`` of an array of floats; for integers, pass ``dtype=np.float32``."""
        return np.var(self, axis, dtype, out, ddof, keepdims)  # type: ignore[call-overload]

    def take(self, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise") -> Any:
        """Return ``np.take`` of the array: the elements at some indices of an axis."""
        return np.take(self, indices, axis, out, mode)  # type: ignore[call-overload]

    def cumsum(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        """Return ``np.cumsum`` of the array. Small integers are summed in 64 bits."""
        return np.cumsum(self, axis, dtype, out)  # type: ignore[call-overload]

    def cumprod(self, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
        """Return ``np.cumprod`` of the array. Small integers are multiplied in 64 bits."""
        return np.cumprod(self, axis, dtype, out)  # type: ignore[call-overload]
