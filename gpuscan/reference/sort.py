"""Sort on NumPy, with the order of keys that devices have."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.elements import Scalar, scalar_of


def argsort(keys: Array, axis: int, descending: bool = False) -> Array:
    """Return the indices that sort the keys along an axis, as int64; equal keys keep their order.

    Example:
        >>> import numpy as np
        >>> argsort(np.array([2, 1, 2, 3]), 0, descending=True)
        array([3, 0, 2, 1])
    """
    # NumPy's own indices have 32 bits under Pyodide.
    return np.argsort(orders(keys, descending), axis=axis, kind="stable").astype(np.int64, copy=False)


def orders(keys: Array, descending: bool = False) -> Array:
    """Return unsigned integers of the keys' size that compare as the keys do in a sort: the twin of ``order_of``.

    0.0 equals -0.0. Every NaN equals every other NaN and comes after all numbers, in descending sorts too.

    Example:
        >>> import numpy as np
        >>> orders(np.array([-1, 0, 1], np.int8)).tolist()
        [127, 128, 129]
    """
    scalar = scalar_of(keys.dtype)
    unsigned = np.dtype(f"u{scalar.bits // 8}")
    native: Array = np.ascontiguousarray(keys.astype(keys.dtype.newbyteorder("="), copy=False))
    bits = native.view(unsigned)
    order: Array = _ascending(bits, scalar)
    if descending:
        order = ~order
    return np.where(_is_nan(bits, scalar), ~unsigned.type(0), order)


def _ascending(bits: Array, scalar: Scalar) -> Array:
    if scalar.kind == "bool":
        return np.minimum(bits, np.uint8(1))
    sign = bits.dtype.type(1 << (scalar.bits - 1))
    if scalar.kind == "signed":
        flipped: Array = bits ^ sign
        return flipped
    if scalar.kind != "float":
        return bits
    return np.where(bits & ~sign, np.where(bits & sign, ~bits, bits | sign), sign)


def _is_nan(bits: Array, scalar: Scalar) -> Any:
    if scalar.kind != "float":
        return False
    exponent = {"float16": 5, "float64": 11}.get(scalar.name, 8)
    infinity = ((1 << exponent) - 1) << (scalar.bits - 1 - exponent)
    return bits & bits.dtype.type((1 << (scalar.bits - 1)) - 1) > bits.dtype.type(infinity)
