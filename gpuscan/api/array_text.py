"""Arrays on a device as text, in NumPy's form. Only the numbers that are shown are read."""

from __future__ import annotations

from html import escape
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.engine.element_copy import contiguous
from gpuscan.html_table import html_table

if TYPE_CHECKING:
    from gpuscan.api.array import Array

_NAME = "gpuscan.Array("


def represent(array: Array) -> str:
    """Return what `repr` shows: the numbers, the dtype and the device. Reading them may fail, but this never raises."""
    shape, text = _text_of(array, separator=", ", prefix=_NAME)
    whole = shape is None or (0 < prod(shape) <= np.get_printoptions()["threshold"] and not text.startswith("<"))
    size = "" if whole else f", shape={shape}"
    return f"{_NAME}{text}{size}, dtype={array.dtype}, device={array.device.capabilities.summary!r})"


def plain_text(array: Array) -> str:
    """Return what `str` and `print` show, as NumPy does. This never raises."""
    return _text_of(array)[1]


def html_text(array: Array) -> str:
    """Return what notebooks show. This never raises."""
    shape, text = _text_of(array)
    rows = {
        "shape": "unknown" if shape is None else shape,
        "dtype": array.dtype,
        "device": array.device.capabilities.summary,
    }
    if shape is not None:
        rows |= {
            "bytes": f"{prod(shape) * array.dtype.itemsize:,}",
            "order": "C" if array.is_contiguous else f"strides {array.strides}",
        }
    return f"{html_table('gpuscan.Array', rows.items())}\n<pre>{escape(text)}</pre>"


def _text_of(array: Array, **options: Any) -> tuple[tuple[int, ...] | None, str]:
    """Return the shape, if it is known, and the numbers as text, or the error if they cannot be read."""
    shape = None
    try:
        # Unread reports are left for the caller's next read, which raises what they tell of.
        shown = known = array.with_known_shape()
        shape, settings = known.shape, np.get_printoptions()
        if known.size > settings["threshold"]:
            options["threshold"] = 0
            shown = known[np.ix_(*(_places_to_show(length, settings["edgeitems"]) for length in known.shape))]
        values = contiguous(shown).read()
        return shape, np.array2string(values, **options) if options or shape else str(values)
    except Exception as error:
        first = str(error).partition("\n")[0]
        return shape, f"<not readable: {type(error).__name__}: {first}>"


def _places_to_show(length: int, edge: int) -> np.ndarray[Any, Any]:
    """Return the places of an axis that NumPy shows of a long array, and one more for the dots between them."""
    return np.r_[: edge + 1, length - edge : length] if length > 2 * edge else np.arange(length)
