"""Sort on NumPy, with the order of keys that devices have."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.reference.sort_stages import orders

Array = np.ndarray[Any, Any]


def argsort(keys: Array, axis: int, descending: bool = False) -> Array:
    """Return the indices that sort the keys along an axis; equal keys keep their order.

    Example:
        >>> import numpy as np
        >>> argsort(np.array([2, 1, 2, 3]), 0, descending=True)
        array([3, 0, 2, 1])
    """
    places: Array = np.argsort(orders(keys, descending), axis=axis, kind="stable")
    return places
