"""Make the indices of entries on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.guards import guarded
from gpuscan.engine.record import are_owned, submit_stage

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext


def indices_of_rows(context: DeviceContext, places: DeviceArray, rows: int, length: int) -> DeviceArray:
    """Return the indices of entries in an array of contiguous rows, given their places within the rows.

    Args:
        context: the device.
        places: uint32 of shape (rows, length), or (length,) if they are the same in all rows.
        rows: the number of rows.
        length: the entries in a row.
    """
    size = rows * length
    with guarded(context), context.lock:
        indices = empty(context, (size,), np.uint32)
        numbers, bound = [size, length, places.size], [places._binding(), indices._binding()]
        submit_stage(context, "arrays/row_indices.wgsl", numbers, bound, size, size, are_owned(places))
    return indices


def all_indices(context: DeviceContext, length: int) -> DeviceArray:
    """Return the numbers from 0 to `length` - 1: the indices of rows of one entry, which is at place 0."""
    return indices_of_rows(context, upload_array(context, np.zeros(1, np.uint32)), length, 1)
