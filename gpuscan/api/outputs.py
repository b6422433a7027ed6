"""Write results to the arrays that a caller passes as `out`, or to new ones in the form of the input."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np

from gpuscan.api.array import Array, SomeArray, arrays_on_device, new_array
from gpuscan.api.device_group import DeviceGroup
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import upload_array
from gpuscan.device.strides import overlaps_itself
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import write_elements
from gpuscan.engine.host_arrays import scan_host
from gpuscan.problem.arguments import OnDevice, as_numpy_arrays, fields_of, is_masked, structure_and_leaves
from gpuscan.problem.problem import Problem
from gpuscan.problem.results import assemble_arrays, copy_to_outputs
from gpuscan.problem.segments import Keys
from gpuscan.reference import scan as reference

# The rules of NumPy that say which dtypes values may be converted to.
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]

# How many steps NumPy may search to find out whether two results share memory.
_SEARCH_STEPS = 1000


def is_on_device(problem: Problem) -> bool:
    """Return True if any array of the problem is on a device."""
    return any(isinstance(leaf, OnDevice) for leaf in problem.leaves)


def check_out(
    problem: Problem, out: object, device: OpenedDevice | DeviceGroup | None, shape: tuple[int, ...] | None = None
) -> list[SomeArray] | None:
    """Return the arrays of `out`, depth first; None without.

    Args:
        out: what the caller passed.
        device: the device that the problem's arrays are on; None for NumPy arrays.
        shape: the shape of the result, without the axes of the element (default: the shape of the scan's arrays).

    Raises:
        TypeError: one is not an array, cannot be written, is not where its result is, or has another dtype.
        ValueError: one has another shape, or two share memory.
    """
    if out is None:
        return None
    if problem.destination.structure.container == "structured":
        structure, arrays = structure_and_leaves(out)
        if not isinstance(out, np.ndarray) or structure != problem.destination.structure:
            raise TypeError(
                f"out={type(out).__name__} was passed for a structured result; pass a structured array with the fields "
                f"{problem.destination.structure.keys}"
            )
    else:
        arrays = fields_of(out, problem.destination, "out")
    lead = problem.shape if shape is None else shape
    outputs = [
        check_out_array(array, (*lead, *field.shape), field.scalar.dtype, device)
        for array, field in zip(arrays, problem.destination.fields, strict=True)
    ]
    check_separate(outputs)
    return outputs


def check_out_array(
    given: object, shape: tuple[int, ...], dtype: AnyDType, device: OpenedDevice | DeviceGroup | None
) -> SomeArray:
    """Return an array of `out`, or raise an error if a result of this shape and dtype cannot be written to it."""
    array = _check_is_array(given, device)
    if array.shape != shape:
        raise ValueError(
            f"out of shape {array.shape} was passed for a result of shape {shape}; pass an array of that shape"
        )
    if array.dtype.newbyteorder("=") != dtype or (device is not None and not array.dtype.isnative):
        raise TypeError(
            f"out of dtype {array.dtype} was passed for a result of dtype {dtype}. Pass an out of the result's dtype, "
            f"or dtype={array.dtype.newbyteorder('=')} to a function that takes it"
        )
    if isinstance(array, Array):
        array._check("STORAGE")
    return array


def in_out(result: Array, out: object, casting: Casting = "no") -> Array:
    """Return a result on a device after copying it to the array of `out`; without `out`, the result itself.

    Args:
        out: what the caller passed.
        casting: NumPy's rule for a result that is converted to the dtype of `out`.

    Raises:
        TypeError, ValueError: as `check_out`.
    """
    if out is None:
        return result
    dtype = result.dtype
    if isinstance(out, Array) and np.can_cast(dtype, out.dtype, casting):
        dtype = out.dtype
    array = check_out_array(out, result.shape, dtype, result.device)
    assert isinstance(array, Array)
    array[...] = result
    return array


def check_casting(dtype: AnyDType, target: AnyDType, casting: Casting) -> None:
    """Raise TypeError if a rule of NumPy does not let elements be converted to another dtype."""
    if dtype != target and not np.can_cast(dtype, target, casting):
        raise TypeError(
            f"elements of dtype {dtype} were to be copied to an array of dtype {target}, which casting={casting!r} "
            'does not allow. Pass casting="unsafe", or convert them with .astype'
        )


def check_separate(arrays: Sequence[SomeArray]) -> None:
    """Raise an error if two arrays of `out` share memory."""
    if any(_share_bytes(a, b) for a, b in combinations(arrays, 2)):
        raise ValueError("two fields of out share memory, so results would overwrite each other; pass separate arrays")


def _check_is_array(out: object, device: OpenedDevice | DeviceGroup | None) -> SomeArray:
    if device is not None:
        if not isinstance(out, Array) or out.device is not device:
            raise TypeError(
                f"out of type {type(out).__name__} was passed, but the input is on {device!r}; pass a gpuscan.Array on "
                "that device"
            )
        if not out.is_contiguous:
            _check_overlap(out)
        return out
    if not isinstance(out, np.ndarray) or is_masked(out):
        also = ", or the input as device.asarray(x)" if isinstance(out, Array) else ""
        raise TypeError(f"out of type {type(out).__name__} was passed for a NumPy result; pass a NumPy array{also}")
    if not out.flags.writeable:
        raise ValueError("a read-only out was passed; pass an array that can be written")
    _check_overlap(out)
    return out


def _check_overlap(array: SomeArray) -> None:
    """Raise ValueError if elements of the array share memory."""
    if overlaps_itself(array.shape, array.strides, array.dtype.itemsize):
        raise ValueError(
            f"out has elements that share memory (strides {array.strides}), so results would overwrite each other; "
            "pass an array of separate elements, such as np.empty(shape, dtype)"
        )


def _share_bytes(a: SomeArray, b: SomeArray) -> bool:
    """Return True if a byte belongs to both arrays; False as well where that is too hard to tell."""
    if isinstance(a, Array) or isinstance(b, Array):
        return isinstance(a, Array) and isinstance(b, Array) and a._shares_memory(b)
    with suppress(np.exceptions.TooHardError):
        return np.shares_memory(a, b, max_work=_SEARCH_STEPS)  # type: ignore[arg-type]
    return False


def copy_if_overlapping(leaf: AnyArray, outputs: Sequence[AnyArray]) -> AnyArray:
    """Return the array, or a copy if results would overwrite what is still to be read.

    Large arrays are scanned part by part, so an element may be replaced by its own result, and by no other.
    """
    for output in outputs:
        same = leaf.__array_interface__["data"] == output.__array_interface__["data"] and leaf.strides == output.strides
        if not same and np.may_share_memory(leaf, output):
            return leaf.copy()
    return leaf


def copy_overlaps(problem: Problem, outputs: Sequence[AnyArray]) -> Problem:
    """Return the problem with copies of the arrays that `outputs` would overwrite too early."""
    problem = problem.with_leaves(tuple(copy_if_overlapping(leaf, outputs) for leaf in problem.numpy_leaves))
    if problem.heads is not None and isinstance(problem.heads.cut, Keys) and not problem.heads.on_device:
        keys = Keys(copy_if_overlapping(problem.heads.cut.array, outputs))
        problem = replace(problem, heads=replace(problem.heads, cut=keys))
    return problem


def execute(
    problem: Problem, device: OpenedDevice | DeviceGroup | None, strategy: str, outputs: Sequence[SomeArray] | None
) -> Sequence[SomeArray]:
    """Return the result of a problem, one array for each field, on its device or by NumPy.

    Args:
        device: the device to run on, or a device group; None for NumPy.
        strategy: as in `gpuscan.scan`.
        outputs: the arrays of `out`, checked; new ones without.
    """
    if is_on_device(problem):
        assert isinstance(device, OpenedDevice)
        device_outputs = None if outputs is None else arrays_on_device(outputs)
        scanned = scan_device(device._executor, problem, strategy, out=device_outputs)
        return device_outputs or [Array._of(device, array) for array in scanned]
    if problem.empty:
        lead = () if problem.keep_last_only else problem.shape
        fields = problem.destination.fields
        return outputs or [np.empty((*lead, *f.shape), f.scalar.dtype) for f in fields]
    targets = None if outputs is None else as_numpy_arrays(outputs)
    if device is not None:
        if targets is not None:
            problem = copy_overlaps(problem, targets)
        if isinstance(device, DeviceGroup):
            return device.executor_group.scan(problem, strategy, targets)
        return scan_host(device._executor, problem, strategy, outputs=targets)
    results = [np.ascontiguousarray(problem.from_rows(row)) for row in reference.accumulate(problem)]
    return write_to_numpy(results, outputs)


def reduce_rows(problem: Problem, device: OpenedDevice | DeviceGroup | None) -> Sequence[SomeArray]:
    """Return the last result of each row, (rows, *element shape), of each field: where the problem is, or in NumPy."""
    if device is None:
        return reference.reduce_rows(problem)
    if isinstance(device, DeviceGroup):
        return device.executor_group.scan(problem)
    if is_on_device(problem):
        return [Array._of(device, array) for array in scan_device(device._executor, problem)]
    return scan_host(device._executor, problem)


def write_to_numpy(results: list[AnyArray], outputs: Sequence[SomeArray] | None) -> list[AnyArray]:
    """Write results of NumPy to the arrays of `out`, if it was passed, and return the arrays that have the results."""
    return copy_to_outputs(results, None if outputs is None else as_numpy_arrays(outputs))


def write_to_device(device: OpenedDevice, results: Sequence[AnyArray], outputs: Sequence[Array] | None) -> list[Array]:
    """Copy results of NumPy to new arrays on the device, or to the arrays of `out`, and return these.

    The uploaded arrays are not returned themselves, since the program of the call uses their memory again.
    """
    arrays = list(outputs or [new_array(device, None, result.shape, result.dtype) for result in results])
    for array, result in zip(arrays, results, strict=True):
        write_elements(upload_array(device._context, result.reshape(array.shape)), array)
    return arrays


def in_form_of(problem: Problem, x: object, results: Sequence[SomeArray | np.generic]) -> object:
    """Return the results as the caller's value nests its arrays, or as the maps made of it."""
    structure = problem.destination.structure
    like = x if structure == problem.source.structure else None
    return assemble_arrays(structure, results, like)
