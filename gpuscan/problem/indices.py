"""Split an index with arrays into the views and the places that it names, as NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import OnDevice, as_array, as_integer
from gpuscan.problem.broadcasting import broadcast_shapes

Axes = tuple[int, ...]

# Kernels count the rows of indexed axes in 32 bits, and 2**32 - 1 says that there is none.
MAX_PLACES = 2**32 - 2


@dataclass(frozen=True)
class ArrayIndex:
    """An index with arrays.

    Attributes:
        view: the basic index to take first. It has slices and None, and leaves the indexed axes whole.
        axes: the axes of that view that are indexed.
        numbers: the numbers of these axes in the array itself. A new axis has the number of the axis after it.
        indices: for each of them the indices.
        shape: the shape that the indices broadcast to.
        axes_before: the number of axes that the result has before the axes of the indices.
        unique: True if no two indices name the same element.
    """

    view: tuple[slice | None, ...]
    axes: Axes
    numbers: Axes
    indices: tuple[AnyArray | OnDevice, ...]
    shape: Axes
    axes_before: int
    unique: bool


def is_array_index(index: object) -> bool:
    """Return True if an index picks elements by arrays, lists or bools, so that the result is no view."""
    for part in index if isinstance(index, tuple) else (index,):
        if part is None or part is Ellipsis or type(part) in (slice, int):
            continue
        if isinstance(part, (list, tuple, range, bool)) or is_mask(part) or getattr(part, "shape", None):
            return True
    return False


def parts_of(index: object, shape: Axes) -> list[Any]:
    """Return the parts of an index, one for each axis or None, and an array of bools for as many axes as it has.

    Lists become arrays, and the axes that the index leaves out have slices.

    Raises:
        IndexError: a part is no index, there are too many, or a mask has another shape than the axes.
    """
    parts = [_check_part(part) for part in (index if isinstance(index, tuple) else (index,))]
    gaps = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(gaps) > 1:
        raise IndexError(f"an index with {len(gaps)} ellipses (...) was asked for; pass one at most")
    count = sum(_axes_of(part) for part in parts)
    if count > len(shape):
        raise IndexError(
            f"{count} indices were asked for, but the array has {len(shape)} axes; pass at most one for each"
        )
    gap = gaps[0] if gaps else len(parts)
    whole = [slice(None)] * (len(shape) - count)
    # NumPy counts an ellipsis for no axis as something between its neighbours.
    between = [Ellipsis] if gaps and not whole else []
    parts = [*parts[:gap], *whole, *between, *parts[gap + 1 :]]
    axis = 0
    for part in parts:
        axes = _axes_of(part)
        if is_mask(part) and part.shape != shape[axis : axis + axes]:
            raise IndexError(
                f"a mask of shape {part.shape} was passed for axes of the lengths {shape[axis : axis + axes]} of an "
                f"array of shape {shape}; pass one bool for each element"
            )
        axis += axes
    return parts


def _check_part(part: object) -> Any:
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (list, tuple, range)):
        array = as_array(part)
        part = array.astype(np.intp) if not array.size else array
    if isinstance(part, (bool, np.bool_)):
        return np.asarray(part)
    if getattr(part, "shape", ()) == () and not is_mask(part) and (number := as_integer(part)) is not None:
        return number
    if hasattr(type(part), "__array__") and not isinstance(part, (np.generic, OnDevice)):
        part = as_array(part)
    if isinstance(part, (np.ndarray, OnDevice)) and part.dtype.kind in "iub":
        return part
    what = f"of dtype {part.dtype}" if isinstance(part, (np.ndarray, OnDevice)) else abbreviate(part)
    raise IndexError(
        f"an index {what} was asked for, but indices are integers, slices, ..., None, and arrays of integers or bools. "
        "Convert other numbers with .astype(np.int64)"
    )


def is_mask(part: object) -> bool:
    """Return True for an array of bools."""
    return isinstance(part, (np.ndarray, np.bool_, OnDevice)) and part.dtype == np.bool_


def _axes_of(part: Any) -> int:
    """Return how many axes of the array a part of an index is for."""
    if part is None or part is Ellipsis:
        return 0
    return len(part.shape) if is_mask(part) else 1


def split_index(parts: Sequence[Any], shape: Axes, true_places: Callable[[Any], Sequence[object]]) -> ArrayIndex:
    """Return an index with arrays in normal form.

    Args:
        parts: what `parts_of` returned.
        shape: the shape of the array.
        true_places: returns for a mask with axes the indices of its true elements along each axis.

    Raises:
        IndexError: an index is outside its axis, or the indices do not broadcast to each other.
    """
    view: list[slice | None] = []
    axes: list[int] = []
    numbers: list[int] = []
    indices: list[AnyArray | OnDevice] = []
    arrays: list[int] = []
    axis = 0
    for number, part in enumerate(parts):
        if part is None or part is Ellipsis or isinstance(part, slice):
            view += [] if part is Ellipsis else [part]
            axis += isinstance(part, slice)
            continue
        arrays.append(number)
        if is_mask(part) and not part.shape:
            # One bool stands for a new axis of length 1, or for no element.
            parts_of_mask: Sequence[object] = [np.zeros(int(bool(part)), np.intp)]
            new: list[slice | None] = [None]
            lengths: Axes = (1,)
        else:
            parts_of_mask = true_places(part) if is_mask(part) else [part]
            new, lengths = [slice(None)] * len(parts_of_mask), shape[axis : axis + len(parts_of_mask)]
        for offset, (index, length) in enumerate(zip(parts_of_mask, lengths, strict=True)):
            axes.append(len(view) + offset)
            numbers.append(axis + offset)
            indices.append(check_indices(index, axis + offset, length))
        axis += len(new) if new != [None] else 0
        view += new
    try:
        common = broadcast_shapes(*(index.shape for index in indices))
    except ValueError:
        shown = ", ".join(str(index.shape) for index in indices)
        raise IndexError(
            f"indices of the shapes {shown} were asked for, but they have to broadcast to one shape. Reshape them, "
            "for example with index[:, np.newaxis]"
        ) from None
    together = arrays == list(range(arrays[0], arrays[-1] + 1))
    unique = len(arrays) == 1 and is_mask(parts[arrays[0]])
    axes_before = axes[0] if together else 0
    return ArrayIndex(tuple(view), tuple(axes), tuple(numbers), tuple(indices), common, axes_before, unique)


def check_indices(index: object, axis: int, length: int) -> Any:
    """Return an index of NumPy as places along its axis, and one on a device, which is checked there, as it is.

    Raises:
        IndexError: an index is outside the axis.
    """
    if isinstance(index, OnDevice):
        if not length and 0 not in index.shape:
            raise IndexError(f"indices were asked for along axis {axis}, which has 0 entries; pass a slice")
        return index
    given = np.asarray(index)
    least, largest = 0, -1
    if given.size:
        # Ufuncs take no Python calls, unlike the methods of arrays.
        least, largest = int(np.minimum.reduce(given, None)), int(np.maximum.reduce(given, None))
    if least < -length or largest >= length:
        raise outside_error(axis, length, largest if largest >= length else least)
    wide = given.astype(np.int64)
    return wide + length * (wide < 0) if least < 0 else wide


def outside_error(axis: int, length: int, index: int) -> IndexError:
    """Return the error for an index that is outside its axis."""
    advice = f"pass indices from {-length} to {length - 1}" if length else "pass a slice"
    # The device counts indices of more than 32 bits as 2**32 - 1.
    shown = f"{index}" if abs(index) <= MAX_PLACES else "2**32 - 1 or more" if index > 0 else "1 - 2**32 or less"
    return IndexError(f"index {shown} was asked for along axis {axis}, which has {length} entries; {advice}")


def index_error(axis: int, length: int, words: Sequence[int]) -> IndexError | None:
    """Return the error for indices that a device has checked; None if they are right.

    Args:
        axis: the number of the axis.
        words: the validation flag of arrays/resolve_indices.wgsl.
    """
    above, below, *_ = words
    index = above or -below
    return outside_error(axis, length, index) if index and not -length <= index < length else None


def rows_of(indices: Sequence[AnyArray], lengths: Axes) -> AnyArray:
    """Return the numbers of rows of several axes, in C order, that places along each of them give."""
    rows = np.zeros((), np.int64)
    for index, length in zip(indices, lengths, strict=True):
        rows = rows * length + index
    return rows.astype(np.uint32)


def check_rows(lengths: Axes) -> None:
    """Raise ValueError if the axes that are indexed have too many rows together."""
    if prod(lengths) > MAX_PLACES:
        raise ValueError(
            f"an array was to be indexed along axes of the lengths {lengths}, which have more than {MAX_PLACES} rows "
            "together. Index a part of it, or a copy on the CPU: a.numpy()"
        )
