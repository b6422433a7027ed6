"""`gpuscan.compact`: pick entries of an array by a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device, as_some_array, new_array
from gpuscan.api.call_device import Devices, find_device_or_group, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.device_group import DeviceGroup
from gpuscan.api.launches import launchable_with
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import check_out_array, check_separate
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.device.device_array import DeviceArray
from gpuscan.elements import Structure, compute_dtype, element_of, scalar_of
from gpuscan.engine.compaction import Compacted, compact_on_device, entry_bytes, max_entries
from gpuscan.engine.element_copy import write_elements
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import Leaf, as_bits, as_numpy_arrays, from_bits, structure_and_leaves
from gpuscan.problem.results import assemble_arrays, over_arrays

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from gpuscan.api.annotations import B, Bundle, Mapped, Of, S
    from gpuscan.array_types import AnyArray


@overload
def compact(x: Array, mask: ArrayLike | Mapped, *, out: Array | None = ..., device: Devices = ...) -> Array: ...
@overload
def compact(x: Of[S], mask: ArrayLike | Mapped, *, out: AnyArray | None = ..., device: Devices = ...) -> NDArray[S]: ...
@overload
def compact(x: B, mask: ArrayLike | Mapped, *, out: Bundle | None = ..., device: Devices = ...) -> B: ...
@overload
def compact(
    x: ArrayLike, mask: ArrayLike | Mapped, *, out: AnyArray | None = ..., device: Devices = ...
) -> AnyArray: ...
@takes_numpy("x", "mask")
@launchable_with(data=["mask"])
def compact(x: object, mask: object, *, out: object = None, device: Devices = None) -> object:
    """Return the entries of an array for which a mask is True, in their order: ``x[mask]`` along the first axis.

    One pass scans the mask and stores the entries (Billeter, Olsson & Assarsson, "Efficient stream compaction on wide
    SIMD many-core architectures", 2009).

    Args:
        x: an array of shape (n, …): a NumPy array or a `gpuscan.Array`; or a bundle of arrays of one length. With a
            mask of bools, NumPy arrays may also hold dates, durations or complex128.
        mask: an array of bools of shape (n,); or a function that takes an entry and returns a bool. The function is
            traced and fused into the pass, like the `before` of `gpuscan.scan`. An entry of an array of shape (n, k) is
            a vector; write ``v[..., 0]`` for its first number.
        out: an array to write the entries to, of the dtype of `x` and with the same axes after the first; for a bundle,
            a bundle of them. It may be longer than the result. On a device, the entries after the result are then
            undefined, and the call waits for the GPU if `out` has fewer entries than `x`.
        device: as in `gpuscan.scan`.

    Returns:
        An array like `x`, or a bundle like `x`, with one entry for each True of the mask. With `out`, a view of its
        first entries, or `out` itself if it is as long as the result. On a device, the call does not wait for the
        length: reading ``.shape`` of the result waits for it, and ``.count`` is the length as an array of shape (1,) on
        the device.

    Raises:
        ValueError: mask and array differ in length, the mask has several axes, or `out` is too short or has another
            shape.
        TypeError: the mask is not bool, or `out` has another type or dtype.
        OperatorError: the function cannot be traced.
        GpuscanError: a single entry is larger than one buffer binding of the device.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 1, 4, 1, 5], np.int32)
        >>> gs.compact(x, x > 2)
        array([3, 4, 5], dtype=int32)
        >>> gs.compact(x, lambda v: v % 2 == 1)
        array([3, 1, 1, 5], dtype=int32)
    """
    structure, leaves_given = structure_and_leaves(x, only_moved=not callable(mask))
    given = [as_some_array(leaf) for leaf in leaves_given]
    leaves = given
    if not callable(mask) and not any(isinstance(leaf, Array) for leaf in given):
        leaves = [as_bits(leaf) for leaf in given]
    for leaf in leaves:
        # The same error with and without an adapter.
        scalar_of(leaf.dtype)
    picks: Map | SomeArray
    if callable(mask):
        picks = predicate_of(mask, structure, leaves)
        call_device = find_device_or_group(leaves, device)
    else:
        picks = as_some_array(mask)
        check_mask(picks, [leaf.shape for leaf in given])
        call_device = find_device_or_group((*leaves, picks), device)
    on_device = isinstance(call_device, Device) and any(isinstance(leaf, Array) for leaf in leaves)
    outputs = (
        None
        if out is None
        else check_compact_out(
            out, structure, given, call_device if isinstance(call_device, Device) and on_device else None
        )
    )
    if isinstance(call_device, Device) and on_device:
        arrays = [call_device.asarray(leaf) for leaf in leaves]
        chosen = picks if isinstance(picks, Map) else call_device.asarray(picks)
        targets = None if outputs is None else arrays_on_device(outputs)
        return structure.build_bundle(pick_entries(call_device, arrays, chosen, targets))
    numbers = as_numpy_arrays(leaves)
    if call_device is None:
        bools = pick_by_numpy(picks, numbers) if isinstance(picks, Map) else np.asarray(picks)
        results = [leaf[bools].astype(leaf.dtype.newbyteorder("="), copy=False) for leaf in numbers]
    elif isinstance(call_device, DeviceGroup):
        results = compact_together(call_device, numbers, picks)
    else:
        results = compact_host(call_device, numbers, picks)
    results = [from_bits(result, leaf.dtype) for result, leaf in zip(results, given, strict=True)]
    if outputs is not None:
        return write_to_out(results, as_numpy_arrays(outputs), out)
    return assemble_arrays(structure, results, x)


# ----- The mask


def check_mask(mask: SomeArray, shapes: list[tuple[int, ...]]) -> None:
    """Raise an error if the mask does not fit arrays of these shapes."""
    if mask.dtype != np.bool_:
        raise TypeError(f"a mask of dtype {mask.dtype} was passed, but a mask must be bool. Pass mask != 0")
    check_entries(shapes)
    for shape in shapes:
        if mask.shape != shape[:1]:
            raise ValueError(
                f"a mask of shape {mask.shape} was passed for an array of shape {shape}; pass {shape[0]} bools, one "
                "for each entry of the first axis"
            )


def check_entries(shapes: list[tuple[int, ...]]) -> None:
    """Raise an error if one of the arrays has no first axis."""
    if () in shapes:
        raise ValueError("an array of shape () was passed, which has no first axis to pick from. Pass x[np.newaxis]")


def predicate_of(function: Mapped, structure: Structure, leaves: Sequence[Leaf], argument: str = "mask") -> Map:
    """Return a mask function, traced for an entry of the arrays. Errors call it by the name of its argument.

    Raises:
        TypeError: it does not give one bool.
        ValueError: the arrays differ in length, or have entries without numbers.
    """
    shapes = [leaf.shape for leaf in leaves]
    check_entries(shapes)
    # The lengths are not put into a set: a hash would reveal a length that is an unknown size.
    if any(shape[0] != shapes[0][0] for shape in shapes):
        lengths = " and ".join(str(shape[0]) for shape in shapes)
        raise ValueError(f"a bundle of arrays of {lengths} entries was passed; pass arrays of one length")
    if not all(entry_bytes(leaf) for leaf in leaves):
        raise ValueError(
            f"{argument}= was passed as a function for arrays of the shapes {', '.join(map(str, shapes))}, but one of "
            "them has entries without numbers. Pass a mask of bools"
        )
    entry = element_of([leaf.dtype for leaf in leaves], structure, [shape[1:] for shape in shapes])
    predicate = trace_function(function, entry, argument)
    element = predicate.element
    if not element.single or element.fields[0].scalar.name != "bool" or element.fields[0].shape:
        given = ", ".join(f"{field.scalar.name}{list(field.shape) or ''}" for field in element.fields)
        raise TypeError(
            f"{argument}= was passed as a function that gives {given} for an entry, but it must give one bool. "
            "Compare: v != 0; or join the answers of a vector by np.any(…, axis=-1)"
        )
    return predicate


def pick_by_numpy(predicate: Map, leaves: Sequence[AnyArray]) -> AnyArray:
    """Return the predicate's bool for each entry of NumPy arrays."""
    fields = predicate.source.fields
    wide = [leaf.astype(compute_dtype(field.scalar), copy=False) for leaf, field in zip(leaves, fields, strict=True)]
    with np.errstate(all="ignore"):
        mask = np.asarray(predicate(predicate.source.structure.unflatten(wide)))
    return np.broadcast_to(mask, leaves[0].shape[:1])


# ----- The results


def check_compact_out(
    out: object, structure: Structure, leaves: Sequence[Leaf], device: Device | None
) -> list[SomeArray]:
    """Return the arrays of `out`, depth first.

    Raises:
        ValueError, TypeError: as `compact` raises them.
    """
    own_structure, given = structure_and_leaves(out, only_moved=True)
    if own_structure != structure or (structure.container == "structured" and not isinstance(out, np.ndarray)):
        raise ValueError(
            f"out of type {type(out).__name__} was passed, but its structure is not the input's; pass an array for "
            "each array of the input, in the same bundle"
        )
    targets = [as_some_array(target) for target in given]
    for target, leaf in zip(targets, leaves, strict=True):
        length = target.shape[:1] if getattr(target, "shape", ()) else (0,)
        check_out_array(target, (*length, *leaf.shape[1:]), leaf.dtype.newbyteorder("="), device)
    check_separate(targets)
    return targets


def write_to_out(results: Sequence[AnyArray], targets: Sequence[AnyArray], out: object) -> object:
    """Write the entries to the arrays of `out`, and return the parts of the arrays that were written."""
    count = len(results[0])
    for target in targets:
        check_output_length(target, count)
    for target, result in zip(targets, results, strict=True):
        target[:count] = result
    return over_arrays(lambda array: array if len(array) == count else array[:count], out)


def check_output_length(target: SomeArray, count: int) -> None:
    """Raise an error if an array of `out` has fewer than `count` entries."""
    if len(target) < count:
        raise ValueError(
            f"out of shape {target.shape} was passed, but the mask picks {count} entries. Pass an out with room for "
            "them; one as long as the input always has it"
        )


def pick_entries(device: Device, arrays: list[Array], mask: Array | Map, targets: list[Array] | None) -> list[Array]:
    """Return the picked entries as public arrays."""
    length = arrays[0].shape[0]
    long = targets is not None and all(len(target) >= length and target.is_contiguous for target in targets)
    out = None
    if targets is not None and long:
        out = [target[:length]._view_as(array.shape) for target, array in zip(targets, arrays, strict=True)]
    compacted = compact_on_device(device._executor, arrays, mask, out)
    if targets is not None and not long:
        return copy_into(targets, compacted)
    count = Array._of(device, compacted.count)
    chosen: list[Array] = []
    for entries, array in zip(out or compacted.entries, arrays, strict=True):
        chosen.append(
            UnknownLengthArray(Array._of(device, entries), array.dtype, array.shape[1:], count, compacted.known)
        )
    return chosen


def copy_into(targets: list[Array], compacted: Compacted) -> list[Array]:
    """Copy the entries to arrays that may be too short for all of them; this waits for their number."""
    count = compacted.read_count(compacted.entries[0].shape[0])
    for target in targets:
        target._context.check()
        check_output_length(target, count)
    for target, entries in zip(targets, compacted.entries, strict=True):
        if entry_bytes(entries):
            with target._context.errors:
                write_elements(entries._view_as((count, *target.shape[1:]), target.dtype), target[:count])
    return [target if len(target) == count else target[:count] for target in targets]


def compact_together(device_group: DeviceGroup, leaves: Sequence[AnyArray], mask: Map | SomeArray) -> list[AnyArray]:
    """Return the picked entries of NumPy arrays; each device of the group picks some of them."""

    def part(low: int, high: int, device: OpenedDevice) -> list[AnyArray]:
        return compact_host(
            device, [leaf[low:high] for leaf in leaves], mask if isinstance(mask, Map) else mask[low:high]
        )

    parts = device_group.share(len(leaves[0]), part)
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def compact_host(device: OpenedDevice, leaves: Sequence[AnyArray], mask: Map | SomeArray) -> list[AnyArray]:
    """Return the picked entries of NumPy arrays, which are uploaded part by part."""
    executor, length = device._executor, len(leaves[0])
    most = max_entries(executor.context, leaves)
    parts: list[list[AnyArray]] = []
    for start in range(0, max(1, length), most):
        stop = min(start + most, length)
        arrays: list[DeviceArray] = [new_array(device, leaf[start:stop]) for leaf in leaves]
        chosen = mask if isinstance(mask, Map) else mask[start:stop]
        chosen = new_array(device, chosen) if isinstance(chosen, np.ndarray) else chosen
        compacted = compact_on_device(executor, arrays, chosen)
        count = compacted.read_count(stop - start)
        views = [
            entries._view_as((count, *leaf.shape[1:]), leaf.dtype)
            for entries, leaf in zip(compacted.entries, arrays, strict=True)
        ]
        parts.append([view._read() if entry_bytes(view) else np.empty(view.shape, view.dtype) for view in views])
    device._context.check()
    return [part[0] if len(parts) == 1 else np.concatenate(part) for part in zip(*parts, strict=True)]
