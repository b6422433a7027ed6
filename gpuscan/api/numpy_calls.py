"""Run calls of small arrays of NumPy as calls of arrays on a device: upload them, launch a program, read the results.

`takes_numpy_on` wraps a function that `gpuscan.api.launches` has made launchable. The function sees only arrays on a
device, so a call of arrays of NumPy launches the same program as a call of arrays on a device.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.launches import dtypes_to_upload, is_array, replace_leaves
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.unknown_length_array import read_arrays
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, device_arrays_in, upload_together
from gpuscan.elements import LEAF, Structure
from gpuscan.engine.device_seeds import MAX_PARAMETER_BYTES
from gpuscan.engine.progress import report_progress
from gpuscan.errors import GpuscanError, ProgressTimeoutError
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.problem.results import assemble_arrays

F = TypeVar("F", bound=Callable[..., object])

_BUNDLES = (tuple, list, dict)
# Bundles that nest deeper than this are not uploaded.
_MAX_LEVELS = 8
# A list of numbers of these types is taken as an array.
_NUMBERS = frozenset({bool, int, float, complex})
# Values of these types in place of an array are passed on unchanged: they are numbers and functions.
_NO_ARRAYS = (np.generic, FunctionType, functools.partial)
# Arguments of these types hold no arrays.
_PLAIN = frozenset({type(None), bool, int, float, complex, str})
# Functions of elements, by which a structured array may become a dict.
_MAPS = {"before", "after"}
# The result of a call that has raised an error.
_FAILED = object()
# `map` with it makes no Python calls.
_nbytes_of = attrgetter("nbytes")


def takes_numpy_on(
    resolve: Callable[[Any], OpenedDevice | None],
    *data: str,
    long: tuple[str, ...] = (),
    indices: tuple[int, ...] = (),
    each_like: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Let a launchable function take small arrays of NumPy: they are uploaded, and its results are read.

    The function gets the arrays of NumPy themselves if an argument is on a device, if they are large, or if their dtype
    needs a conversion. If the call with the uploaded arrays raises an error, the function is called again with the
    arrays of NumPy. It may then compute in another way; otherwise, its error message is about what the caller passed.

    Args:
        resolve: returns the device that the argument `device` means; None stands for NumPy.
        data: the names of the parameters that take the arrays, or bundles of them.
        long: the names of further parameters. Their arrays are uploaded only if they are too long to be parameters of
            the program.
        indices: the results that are uint32 on a device and int64 in NumPy, by their numbers in depth-first order.
        each_like: the name of a parameter for each result of a tuple. The result is returned on the device if that
            argument is on a device, and in NumPy otherwise. Then the arguments of one call may be in both places.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        names = [name for name, parameter in parameters.items() if parameter.kind < parameter.VAR_POSITIONAL]
        several = any(name in data and each.kind == each.VAR_POSITIONAL for name, each in parameters.items())
        has_operator = "op" in parameters
        moves = _Moves(frozenset(data), frozenset(long), frozenset(each_like), several)

        @functools.wraps(function)
        def call(*arguments: object, **options: object) -> object:
            if not each_like:
                for value in arguments:
                    first = value[0] if type(value) is tuple and value else value
                    if isinstance(first, DeviceArray):
                        return function(*arguments, **options)
            count = len(arguments)
            # Arguments in ``*arrays`` have numbers instead of names, as in `launchable`.
            given = dict(zip(names if count <= len(names) else [*names, *range(count)], arguments, strict=False))
            given |= options
            if len(given) < count + len(options) or not options.keys() <= parameters.keys():
                # The function raises the error for an argument that is passed twice, or that it does not take.
                return function(*arguments, **options)
            device, out = given.pop("device", None), given.pop("out", None)
            records = given.get(data[0])
            if has_operator and type(records) is np.ndarray and records.dtype.names and not given.keys() & _MAPS:
                given[data[0]] = _fields_of(records)
            else:
                records = None
            found = _find_arrays(given, device, moves, resolve) if out is None or type(out) is np.ndarray else None
            if found is None:
                return function(*arguments, **options)
            moved, arrays, device = found
            context = device._context
            log = context.run_log
            with context.lock:
                if context.queue.recording is not None:
                    return function(*arguments, **options)
                # Reports of earlier calls are read first, so that a failure below is this call's own. Encoded runs may
                # be submitted at any time, so their failures are kept for the end of the call.
                if log.has_unread_calls:
                    context.check()
                called, outer, log.keeps_failures = False, log.keeps_failures, True
                try:
                    uploads = _upload(device, arrays)
                    for name in moved:
                        value = given[name]
                        whole = type(value) is np.ndarray
                        given[name] = next(uploads) if whole else replace_leaves(value, _is_uploaded, uploads)
                    values = list(given.values())
                    result = function(*values[:count], **dict(list(given.items())[count:]))
                    called = True
                    if each_like:
                        result = _read_some(result, [name in moved for name in each_like], indices)
                    else:
                        result = read_results(result, indices)
                except (GpuscanError, TypeError, ValueError, IndexError) as error:
                    if isinstance(error, ProgressTimeoutError) and not called:
                        # The caller has named the strategy, and the function has tried it more than once.
                        raise
                    # The call at the end raises the error again, or computes the result in another way.
                    result = _FAILED
                finally:
                    log.keeps_failures = outer
                if log.kept_failures:
                    context.check()
            if result is not _FAILED:
                report_progress(sum(map(_nbytes_of, arrays)))
                if records is not None:
                    result = _as_records(result, records)
                if out is None:
                    return result
                if _fits(result, out):
                    out[...] = result
                    return out
            return function(*arguments, **options)

        return call  # type: ignore[return-value]

    return decorate


# ----- Arguments


class _Moves(NamedTuple):
    """Which arguments of a function may be uploaded.

    Attributes:
        data, long, each_like: as in `takes_numpy_on`.
        several: True if ``*arrays`` are uploaded.
    """

    data: frozenset[str]
    long: frozenset[str]
    each_like: frozenset[str]
    several: bool


# The names of the arguments to upload, their arrays in depth-first order, and the device of the call.
_Found: TypeAlias = tuple[list[str | int], list[AnyArray], OpenedDevice]


def _find_arrays(
    given: dict[object, object], device: object, moves: _Moves, resolve: Callable[[Any], OpenedDevice | None]
) -> _Found | None:
    """Return the arrays of a call to upload; None to pass all arguments on unchanged.

    Args:
        given: the arguments by their names, or by their numbers within ``*arrays``.
        device: what was passed as `device`.
        moves: which arguments may be uploaded.
        resolve: as in `takes_numpy_on`.
    """
    data, long, each_like, several = moves
    moved: list[str | int] = []
    arrays: list[AnyArray] = []
    for name, value in given.items():
        if type(value) in _PLAIN:
            continue
        if name in data or (several and type(name) is int) or (name in long and _is_long(value)):
            if isinstance(value, _NO_ARRAYS):
                continue
            if name in each_like and isinstance(value, DeviceArray) and device in (None, _device_of(value)):
                device = _device_of(value)
                continue
            if type(value) is np.ndarray:
                arrays.append(value)
            elif not _collect(value, arrays):
                return None
            moved.append(name)
        elif isinstance(value, DeviceArray) or (isinstance(value, _BUNDLES) and _holds_array(value)):
            return None
    if not arrays or type(device) in _BUNDLES:
        return None
    opened = resolve(device)
    return None if opened is None or not _are_small(arrays, opened) else (moved, arrays, opened)


def _is_long(value: object) -> bool:
    """Return True for arrays of NumPy that are all too long to be parameters of a program."""
    arrays: list[AnyArray] = []
    return _collect(value, arrays) and bool(arrays) and min([array.nbytes for array in arrays]) > MAX_PARAMETER_BYTES


def _device_of(array: DeviceArray) -> object:
    """Return the device of a public array; None for an array without one."""
    return getattr(array, "device", None)


def _collect(value: Any, into: list[AnyArray], levels: int = _MAX_LEVELS) -> bool:
    """Add the arrays of an argument to a list.

    Return False if the argument nests too deep, or has anything but arrays of NumPy and numbers.
    """
    kind = type(value)
    if kind is np.ndarray:
        into.append(value)
    elif kind is list and is_list_of_numbers(value):
        into.append(np.asarray(value))
    elif _is_bundle(value) and value and levels and (kind is not list or any(map(_has_axes, value))):
        for part in value.values() if kind is dict else value:
            if type(part) is np.ndarray:
                into.append(part)
            elif not _collect(part, into, levels - 1):
                return False
    elif kind not in _NUMBERS and not isinstance(value, np.generic):
        return False
    return True


def _is_bundle(value: object) -> bool:
    """Return True for a tuple, a named tuple, a list or a dict, but not for other classes of these."""
    return type(value) in _BUNDLES or (isinstance(value, tuple) and hasattr(value, "_fields"))


def _upload(device: OpenedDevice, arrays: list[AnyArray]) -> Iterator[Array]:
    """Return an iterator over copies of arrays on a device."""
    copies = []
    for owner, array in zip(upload_together(device._context, arrays), arrays, strict=True):
        copies.append(Array(device, owner.buffer, array.shape, array.dtype, 0, owner))
    return iter(copies)


def is_list_of_numbers(value: object) -> bool:
    """Return True for a list of Python numbers, which is one array."""
    return type(value) is list and bool(value) and _NUMBERS.issuperset(map(type, value))


def _is_uploaded(value: object) -> bool:
    """Return True for the arrays that `_collect` finds."""
    return type(value) is np.ndarray or (type(value) is list and is_list_of_numbers(value))


def _has_axes(value: object) -> bool:
    """Return True for an array with axes. A list of those is a bundle; one of 0-d arrays is not."""
    return type(value) is np.ndarray and value.ndim > 0


def _holds_array(bundle: Any) -> bool:
    """Return True if a bundle has an array on a device, or nests too deep to tell."""
    bundles = [bundle]
    for _ in range(_MAX_LEVELS + 1):
        inner: list[Any] = []
        for each in bundles:
            for part in each.values() if isinstance(each, dict) else each:
                if isinstance(part, DeviceArray):
                    return True
                if isinstance(part, _BUNDLES):
                    inner.append(part)
        if not inner:
            return False
        bundles = inner
    return True


def _are_small(arrays: list[AnyArray], device: OpenedDevice) -> bool:
    """Return True if arrays can be uploaded as they are, each by one copy."""
    dtypes = dtypes_to_upload(device._context)
    for array in arrays:
        if array.dtype not in dtypes or not 0 < array.nbytes <= TRANSFERS.single_write_bytes:
            return False
    return True


# ----- Results


def read_results(result: object, indices: tuple[int, ...] = ()) -> Any:
    """Return a result in NumPy. All its arrays on the device are read in one wait."""
    arrays: list[object] = []
    for number, array in enumerate(read_arrays(device_arrays_in(result))):
        if number in indices:
            array = array.astype(np.int64)
        # As NumPy does, return a number instead of an array of shape ().
        arrays.append(array if array.shape else array[()])
    return arrays[0] if isinstance(result, DeviceArray) else replace_leaves(result, is_array, iter(arrays))


def _fields_of(records: AnyArray) -> object:
    """Return a structured array as a dict of its fields; the array itself if a field has axes of its own."""
    names = records.dtype.names or ()
    has_axes = any(records.dtype[name].shape for name in names)
    return records if has_axes else {name: records[name] for name in names}


def _as_records(result: Any, like: AnyArray) -> object:
    """Return a dict of results as a structured array like the given one; in a tuple, each of them."""
    if isinstance(result, tuple):
        return tuple([_as_records(part, like) for part in result])
    leaves = list(result.values())
    structure = Structure("structured", tuple(result), (LEAF,) * len(leaves))
    return assemble_arrays(structure, leaves, like, leaves[0].ndim)


def _read_some(results: Any, which: list[bool], indices: tuple[int, ...]) -> tuple[object, ...]:
    """Return a tuple of results. Read the results that are True in `which`, and leave the others on the device."""
    read = iter(read_results(tuple(itertools.compress(results, which)), indices))
    return tuple([next(read) if is_read else result for result, is_read in zip(results, which, strict=True)])


def _fits(result: object, out: AnyArray) -> bool:
    """Return True if a result can be written to `out` without a conversion, a broadcast or an error."""
    if not isinstance(result, (np.ndarray, np.generic)):
        return False
    return result.shape == out.shape and result.dtype == out.dtype and bool(out.flags.carray)
