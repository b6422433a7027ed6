"""`gpuscan.compact`: pick entries of an array by a mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.api.array import Array, Picked
from gpuscan.api.device import Device
from gpuscan.api.home import home_of
from gpuscan.device.device_array import DeviceArray
from gpuscan.elements import scalar_of
from gpuscan.engine.compaction import Compacted, compact_on_device, entry_bytes, max_entries
from gpuscan.problem.arguments import as_array, structure_and_leaves
from gpuscan.problem.results import assembled, own_axes


def compact(x: Any, mask: Any) -> Any:
    """Return the entries of an array that a mask picks, in their order: ``x[mask]`` along the first axis.

    It takes one pass: the mask is scanned, and each picked entry is stored as soon as its place is known (Billeter,
    Olsson & Assarsson, "Efficient stream compaction on wide SIMD many-core architectures", 2009). The result of an
    array on a device stays there. Its length stays there too until ``.shape`` is asked for; ``.count`` is the length as
    an array of one word on the device.

    Args:
        x: (n, …): a NumPy array or a `gpuscan.Array`, or a bundle of arrays of one length.
        mask: (n,) of bool.

    Returns:
        An array like `x`, or a bundle like `x`, with one entry for each True of the mask.

    Raises:
        ValueError: mask and array differ in length, or the mask has several axes.
        TypeError: the mask is not bool.
        GpuscanError: one entry alone exceeds what the device binds.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 1, 4, 1, 5], np.int32)
        >>> gs.compact(x, x > 2)
        array([3, 4, 5], dtype=int32)
    """
    structure, leaves = structure_and_leaves(x)
    for leaf in leaves:
        # The same error with and without an adapter.
        scalar_of(leaf.dtype)
    mask = mask if isinstance(mask, Array) else as_array(mask)
    check_mask(mask, [leaf.shape for leaf in leaves])
    home = home_of((*leaves, mask), None)
    results: list[Any]
    if home is None:
        results = [leaf[mask].astype(leaf.dtype.newbyteorder("="), copy=False) for leaf in leaves]
    elif any(isinstance(leaf, Array) for leaf in leaves):
        arrays = [home.asarray(leaf) for leaf in leaves]
        found = compact_on_device(home._executor, arrays, home.asarray(mask))
        results = picked_arrays(home, arrays, found)
    else:
        results = compact_host(home, leaves, mask)
    if structure.kind != "record":
        return structure.unflatten(results)
    return assembled(structure, results, results[0].ndim - own_axes(x)[0], x)


def check_mask(mask: Any, shapes: list[tuple[int, ...]]) -> None:
    """Raise an error if the mask does not fit arrays of these shapes."""
    if mask.dtype != np.bool_:
        raise TypeError(f"a mask of dtype {mask.dtype} was passed, but a mask must be bool. Pass mask != 0")
    for shape in shapes:
        if not shape:
            raise ValueError(
                "an array of shape () was passed, which has no first axis to pick from. Pass x[np.newaxis]"
            )
        if mask.shape != shape[:1]:
            raise ValueError(
                f"a mask of shape {mask.shape} was passed for an array of shape {shape}; pass {shape[0]} bools, one "
                "for each entry of the first axis"
            )


def picked_arrays(home: Device, arrays: list[Array], found: Compacted) -> list[Picked]:
    """Return the picked entries as public arrays."""
    count = Array.of(home, found.count)
    picked = []
    for room, array in zip(found.rooms, arrays, strict=True):
        result = Picked(Array.of(home, room), array.dtype, array.shape[1:], count)
        if found.known is not None:
            vars(result)["shape"] = (found.known, *array.shape[1:])
        picked.append(result)
    return picked


def compact_host(home: Device, leaves: list[Any], mask: Any) -> list[np.ndarray[Any, Any]]:
    """Return the picked entries of NumPy arrays, which are uploaded part by part."""
    executor, length = home._executor, mask.shape[0]
    most = max_entries(executor.context, leaves)
    parts: list[list[np.ndarray[Any, Any]]] = []
    for start in range(0, max(1, length), most):
        stop = min(start + most, length)
        arrays: list[DeviceArray] = [home.asarray(leaf[start:stop]) for leaf in leaves]
        found = compact_on_device(executor, arrays, home.asarray(mask[start:stop]))
        count = int(found.count.read()[0])
        views = [
            room.viewed((count, *leaf.shape[1:]), leaf.dtype) for room, leaf in zip(found.rooms, arrays, strict=True)
        ]
        parts.append([view.read() if entry_bytes(view) else np.empty(view.shape, view.dtype) for view in views])
    home._context.check()
    return [part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True)]
