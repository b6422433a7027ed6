"""Picks elements by a mask: the scan of the mask fused with the scatter of what it picks."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.reduce import in_form_of
from gpuscan.api.scan import resolve_device
from gpuscan.device.submission import submit
from gpuscan.elements import Structure, element_of, scalar_of
from gpuscan.engine.record import record_beside
from gpuscan.errors import GpuscanError
from gpuscan.operators.operator import resolve
from gpuscan.problem.field_packing import STORAGE_LIMIT
from gpuscan.problem.problem import Problem, spread

if TYPE_CHECKING:
    from gpuscan.api.device import Device

MOVED_BYTES = (1, 2, 4, 8, 16)  # of an entry that is moved as it is scanned; others are gathered by their indices
MOVED_WORDS = 4  # of all entries that are moved together
GATHER_WORKGROUP = 256


class Picked(Array):
    """An array on a device whose length is known there, and here once it is asked for.

    Attributes:
        count: its length, one 32-bit word on the device: what `Plan.record` takes as ``length=``.
    """

    def __init__(self, device: Device, room: Array, dtype: np.dtype[Any], trailing: tuple[int, ...], count: Array):
        self.device = device
        self.buffer = room.buffer
        self.offset = room.offset
        self.dtype = dtype
        self.count = count
        self._trailing = trailing
        self._owner = room._owner

    @cached_property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """As NumPy has it; waits for the GPU, once."""
        return (int(self.count.numpy()[0]), *self._trailing)

    @cached_property
    def nbytes(self) -> int:
        return prod(self.shape) * int(self.dtype.itemsize)


def compact(x: Any, mask: Any) -> Any:
    """The entries of an array that a mask picks, in their order: ``x[mask]`` along the first axis.

    One pass: the mask is scanned, and what it picks is stored as soon as its place is known (Billeter, Olsson &
    Assarsson, "Efficient stream compaction on wide SIMD many-core architectures", 2009). Of an array on a device the
    result stays there, and so does its length until ``.shape`` is asked for; ``.count`` is the length as an array of
    one word on the device.

    Args:
        x: (n, …): a NumPy array or a `gpuscan.Array`, or a bundle of arrays of one length, which are picked from alike.
        mask: (n,) of bool.

    Returns:
        An array like `x`, or the bundle of them, with as many entries as the mask has true ones.

    Raises:
        ValueError: mask and array have not the same length, or the mask has several axes.
        TypeError: the mask is not bool.
        GpuscanError: one entry alone is larger than the device binds.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 1, 4, 1, 5], np.int32)
        >>> gs.compact(x, x > 2)
        array([3, 4, 5], dtype=int32)
    """
    structure, leaves = spread(x)
    for leaf in leaves:
        scalar_of(leaf.dtype)  # raises the same error with and without an adapter
    mask = mask if isinstance(mask, Array) else np.asarray(mask)
    check_mask(mask, [leaf.shape for leaf in leaves])
    on_device = [leaf for leaf in (*leaves, mask) if isinstance(leaf, Array)]
    home = on_device[0].device if on_device else resolve_device(None)
    if any(leaf.device is not home for leaf in on_device):
        raise ValueError("arrays on several devices were passed; bring them together with device.asarray")
    kept_there = any(isinstance(leaf, Array) for leaf in leaves)
    if home is None:
        results = [leaf[mask].astype(leaf.dtype.newbyteorder("="), copy=False) for leaf in leaves]
    elif kept_there and len(mask) <= most_entries(home, leaves):
        results = list(pick(home, [home.asarray(leaf) for leaf in leaves], home.asarray(mask)))
    else:
        results = pick_in_parts(home, leaves, mask)
        if kept_there:
            results = [home.asarray(result) for result in results]
    return in_form_of(x, results) if structure.kind == "record" else structure.unflatten(results)


def check_mask(mask: Any, shapes: list[tuple[int, ...]]) -> None:
    if mask.dtype != np.bool_:
        raise TypeError(f"a mask of dtype {mask.dtype} was passed; it must be bool. Pass mask != 0")
    for shape in shapes:
        if not shape:
            raise ValueError("an array of shape () was passed; it has no first axis to pick from. Pass x[np.newaxis]")
        if mask.shape != shape[:1]:
            raise ValueError(
                f"a mask of shape {mask.shape} was passed for an array of shape {shape}; pass {shape[0]} bools, one "
                "for each entry of the first axis"
            )


# ----- Parts that a device binds at a time


def entry_bytes(leaf: Any) -> int:
    """Bytes of one entry of the first axis."""
    return int(prod(leaf.shape[1:]) * leaf.dtype.itemsize)


def most_entries(device: Device, leaves: list[Any]) -> int:
    """How many entries can be picked from at a time.

    Raises:
        GpuscanError: one entry alone is larger than a binding.
    """
    widest = max(4, *(entry_bytes(leaf) for leaf in leaves))
    limit = int(device.capabilities.limits["max-storage-buffer-binding-size"])
    if widest > limit and len(leaves[0]):
        raise GpuscanError(
            f"entries of {widest} bytes were passed; {device.capabilities.summary} binds at most {limit}. Pick with "
            "NumPy: x[mask], or GPUSCAN_ADAPTER=numpy in the environment"
        )
    most = max(1, limit // widest)
    return most if most < 32 else most // 32 * 32


def pick_in_parts(device: Device, leaves: list[Any], mask: Any) -> list[Any]:
    """The results in NumPy, of arrays that may be larger than a binding."""
    most, length = most_entries(device, leaves), len(mask)
    parts: list[list[Any]] = []
    for start in range(0, max(1, length), most):
        stop = min(start + most, length)
        arrays = [device.asarray(leaf[start:stop]) for leaf in leaves]
        parts.append([result.numpy() for result in pick(device, arrays, device.asarray(mask[start:stop]))])
    return [part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True)]


def pick(device: Device, leaves: list[Array], mask: Array) -> list[Picked]:
    """What the mask picks of each array, on the device."""
    count = device.asarray(np.zeros(1, np.uint32))
    moved = [leaf for leaf in leaves if len(mask) and entry_bytes(leaf)]
    if not moved:
        count = device.asarray(np.array([np.count_nonzero(mask.numpy())], np.uint32))
    rooms = iter(rooms_of(device, moved, mask, count) if moved else ())
    found = [next(rooms) if len(mask) and entry_bytes(leaf) else leaf for leaf in leaves]
    return [Picked(device, room, leaf.dtype, leaf.shape[1:], count) for room, leaf in zip(found, leaves, strict=True)]


def rooms_of(device: Device, leaves: list[Array], mask: Array, count: Array) -> list[Array]:
    """What the mask picks of arrays whose entries have bytes, in memory as long as they; their number in `count`."""
    sizes = [entry_bytes(leaf) for leaf in leaves]
    bound = 2 * len(leaves) + 4 <= device.capabilities.limits[STORAGE_LIMIT]
    if bound and all(size in MOVED_BYTES for size in sizes) and sum(-(-size // 4) for size in sizes) <= MOVED_WORDS:
        return scatter(device, [words_of(leaf) for leaf in leaves], mask, count)
    indices = device.asarray(np.arange(len(mask), dtype=np.uint32))
    (picked,) = scatter(device, [words_of(indices)], mask, count)
    return [gather(device, leaf, picked, count) for leaf in leaves]


def words_of(leaf: Array) -> Array:
    """The array as words, or as parts of them, whatever they mean: (n, numbers of an entry)."""
    size = gcd(4, entry_bytes(leaf))
    shape = (leaf.shape[0], entry_bytes(leaf) // size)
    return Array(leaf.device, leaf.buffer, shape, f"u{size}", leaf.offset, leaf._owner)


# ----- On the device


def problem_of(leaves: list[Array], mask: Array) -> Problem:
    """The scan of the mask that moves what it picks of arrays of words."""
    flags = Array(mask.device, mask.buffer, mask.shape, np.uint8, mask.offset, mask._owner)
    numbers = Structure("tuple", tuple(range(len(leaves) + 1)), (Structure(),) * (len(leaves) + 1))
    moved = replace(numbers, keys=numbers.keys[:-1], children=numbers.children[:-1])
    return Problem(
        operator=resolve("add"),
        leaves=(flags, *leaves),  # type: ignore[arg-type]
        source=element_of([flags.dtype, *(a.dtype for a in leaves)], numbers, [(), *(a.shape[1:] for a in leaves)]),
        element=element_of([np.dtype(np.uint32)]),
        destination=element_of([a.dtype for a in leaves], moved, [a.shape[1:] for a in leaves]),
        shape=mask.shape,
        axis=0,
        moves=True,
    )


def scatter(device: Device, leaves: list[Array], mask: Array, count: Array) -> list[Array]:
    """Scan the mask, and store what it picks where the sums say; their number goes to `count`."""
    from gpuscan.device.guards import guarded
    from gpuscan.engine.device_arrays import bindable, scan_on_device

    problem = problem_of(leaves, mask)
    with guarded(device), device.lock:
        targets = [device.empty(a.shape, a.dtype) for a in leaves]
        sources = [bindable(leaf) for leaf in problem.leaves]  # type: ignore[arg-type]
        scan_on_device(device, problem, "auto", sources, targets, in_place=False, count=count)
    return targets


def gather(device: Device, leaf: Array, indices: Array, count: Array) -> Array:
    """The entries of these indices, one after the other."""
    from gpuscan.device.guards import guarded
    from gpuscan.engine.device_arrays import bindable, parts

    unit = gcd(4, entry_bytes(leaf))
    words = -(-leaf.nbytes // 4)
    call = device.uniform(np.array([entry_bytes(leaf) // unit, words, 0, 0], np.uint32).tobytes())
    with guarded(device), device.lock:
        room = device.empty(leaf.shape, leaf.dtype)
        bound = [call, *parts([bindable(leaf), indices, count, room])]
        encoder = device.wgpu_device.create_command_encoder()
        workgroups = -(-words // GATHER_WORKGROUP)
        values = {"workgroup_size": GATHER_WORKGROUP, "unit": unit}
        record_beside(device, encoder, "gather.wgsl", bound, workgroups, len(leaf), **values)
        submit(device.wgpu_device, encoder.finish())
    return room
