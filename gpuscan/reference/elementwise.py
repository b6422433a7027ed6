"""Apply a function to every element of NumPy arrays, as shaders/arrays/map_elements.wgsl does on a device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import compute_dtype
from gpuscan.operators.trace import Map
from gpuscan.reference.scan import broadcast_values

Array = AnyArray


def map_arrays(function: Map, arrays: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    """Return the fields of the function's result: one array (*shape, *field shape) for each.

    Args:
        function: a traced function of a tuple of numbers.
        arrays: one for each number, of shapes that broadcast to the common one.
        shape: the common shape.
    """
    fields = zip(arrays, function.source.fields, strict=True)
    wide = [np.broadcast_to(a.astype(compute_dtype(f.scalar), copy=False), shape) for a, f in fields]
    with np.errstate(all="ignore"):
        leaves = function.element.structure.flatten(function(tuple(wide)))
        results = function.element.fields
        return [
            broadcast_values(leaf, f.scalar.dtype, shape + f.shape) for leaf, f in zip(leaves, results, strict=True)
        ]
