"""The text that shows an array on a device."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.engine.element_copy import contiguous


def text_of(array: Any, **options: Any) -> tuple[tuple[int, ...] | None, str]:
    """Return the shape, if it is known, and the numbers as text, or the error if they cannot be read.

    The text is in NumPy's form. Only the numbers that are shown are read.
    """
    shape = None
    try:
        # Unread reports are left for the caller's next read, which raises what they tell of.
        shown = sized = array._with_known_shape()
        shape, settings = sized.shape, np.get_printoptions()
        if sized.size > settings["threshold"]:
            options["threshold"] = 0
            shown = sized[np.ix_(*(_places_to_show(length, settings["edgeitems"]) for length in sized.shape))]
        values = contiguous(shown)._read()
        return shape, np.array2string(values, **options) if options or shape else str(values)
    except Exception as error:
        first = str(error).partition("\n")[0]
        return shape, f"<not readable: {type(error).__name__}: {first}>"


def _places_to_show(length: int, edge: int) -> list[int]:
    """Return the indices of an axis that NumPy shows for a long array, and one more for the dots between them."""
    return [*range(edge + 1), *range(length - edge, length)] if length > 2 * edge else list(range(length))
