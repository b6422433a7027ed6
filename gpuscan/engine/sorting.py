"""Sort rows of numbers on a device. Nothing here goes through the CPU, and nothing waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.device.reports import read_report
from gpuscan.device.steps import Clear
from gpuscan.elements import Scalar, scalar_of
from gpuscan.engine.element_copy import StridedView, bindable, contiguous, copied, copy_elements, interchanged, view_of
from gpuscan.engine.record import stage_dispatch, uniform_of
from gpuscan.engine.tile_sorts import Keys, sort_tiles
from gpuscan.errors import DeviceMemoryError
from gpuscan.planning.sort_plan import RowSort, plan_sort

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.executor import Executor


@dataclass(frozen=True)
class Sorted:
    """The result of a sort: arrays of the shape of the keys, or None for what was not asked for.

    Attributes:
        keys: the keys in order.
        places: for each key in order, its index before the sort, or the word that was passed for it.
    """

    keys: DeviceArray | None
    places: DeviceArray | None


def sort_device(
    executor: Executor,
    keys: DeviceArray,
    axis: int,
    *,
    descending: bool = False,
    with_keys: bool = True,
    with_places: bool = False,
    words: DeviceArray | None = None,
    strategy: str = "auto",
    **options: Any,
) -> Sorted:
    """Sort an array on a device along an axis; equal keys keep their order.

    Args:
        executor: of the array's device.
        keys: the array, with one axis or more.
        axis: the axis, counted from 0.
        descending: True to put the greatest key first.
        with_keys: True to return the keys in order.
        with_places: True to return the indices of the keys along the axis, as uint32.
        words: words of 32 bits in C order, one for each key of a 1-D array, to return in place of the indices.
        strategy: how tiles learn where their elements belong: ``"auto"``, ``"lookback"``, ``"fallback"`` or
            ``"three_dispatch"``.
        options: further ones of `plan_sort`.

    Raises:
        DeviceMemoryError: the array, widened to 32 bits, exceeds what a shader of the device binds.
        ProgressTimeoutError: the strategy was asked for by name and timed out.
    """
    context = executor.context
    shape, length = keys.shape, keys.shape[axis]
    wants_places = with_places or words is not None
    if keys.size == 0:
        found = empty(context, shape, keys.dtype) if with_keys else None
        return Sorted(found, empty(context, shape, np.uint32) if wants_places else None)
    scalar = scalar_of(keys.dtype)
    check_size(context, keys.size, scalar)
    inner = int(np.prod(shape[axis + 1 :], dtype=np.int64))
    size = keys.dtype.itemsize
    with guarded(context), context.lock:
        keys.check("STORAGE")
        rows = _widened(interchanged(contiguous(keys), length, inner, size), scalar)
        payload = "none" if not wants_places else "index" if words is None else "words"
        given = Keys(rows, scalar, length, descending, with_keys, payload, None if words is None else bindable(words))
        found_keys, places = _sort(executor, given, strategy, options)
        results: list[DeviceArray | None] = []
        for array, dtype in ((found_keys, keys.dtype), (places, np.dtype(np.uint32))):
            if array is None:
                results.append(None)
                continue
            array = _narrowed(array, dtype).viewed(shape, dtype)
            results.append(interchanged(array, inner, length, dtype.itemsize))
        return Sorted(*results)


def check_size(context: DeviceContext, keys: int, scalar: Scalar) -> None:
    """Raise DeviceMemoryError if that many keys exceed what a shader of the device binds."""
    nbytes, limit = keys * 4 * scalar.words, context.binding_limit
    if nbytes > limit or keys >= 2**31:
        raise DeviceMemoryError(
            f"{keys} keys of dtype {scalar.name} were to be sorted, which take {nbytes} bytes in shaders, but "
            f"{context.capabilities.summary} binds at most {limit} bytes, and sorts fewer than 2**31 keys. Use NumPy: "
            'device="numpy", or np.sort(..., kind="stable") of array.numpy()'
        )


def _widened(array: DeviceArray, scalar: Scalar) -> DeviceArray:
    """Return numbers of 8 or 16 bits as a word each; wider ones as they are, or copied if they cannot be bound."""
    if not scalar.packed:
        return bindable(array)
    context, size = array.context, scalar.bits // 8
    wide = empty(context, (array.size,), np.uint32)
    context.submit([Clear(wide.buffer, 0, wide.buffer.size)], wide.nbytes, held=True)
    copy_elements(view_of(array, (array.size,), size), wide, run=size, pitch=4)
    return wide


def _narrowed(array: DeviceArray, dtype: np.dtype[Any]) -> DeviceArray:
    """Return the numbers without the bits that `_widened` added."""
    size = dtype.itemsize
    if size >= 4:
        return array
    return copied(StridedView(array, 0, (array.size,), (4,), size), (array.size,), dtype)


def _sort(
    executor: Executor, keys: Keys, asked: str, options: dict[str, Any]
) -> tuple[DeviceArray | None, DeviceArray | None]:
    """Submit the sort; return the keys and the places, in words. A strategy that times out gives way to another one."""
    context = executor.context
    failed: list[str] = []
    while True:
        without = tuple(failed)
        strategy = context.sort_strategy(asked, without)
        plan = plan_sort(
            keys.scalar,
            keys.size // keys.length,
            keys.length,
            context.capabilities_without(without),
            with_places=keys.payload != "none",
            strategy=strategy,
            **options,
        )
        if isinstance(plan, RowSort):
            return _sort_rows(context, keys, plan)
        found, run = sort_tiles(executor, keys, plan)
        if run is None:
            return found
        if not context.may_time_out(strategy):
            context.read_report_later(run)
            context.check_if_many()
            return found
        report = read_report(context, run.state)
        if not run.timed_out(report):
            return found
        executor.handle_timeout(strategy, asked, failed)


def _sort_rows(context: DeviceContext, keys: Keys, plan: RowSort) -> tuple[DeviceArray | None, DeviceArray | None]:
    """Submit a sort in which each workgroup sorts whole rows."""
    found, places = keys.result(context) if keys.with_keys else None, keys.places(context)
    call = uniform_of(context, [keys.size, keys.length, plan.rows])
    arrays = [array for array in (keys.array, found, places, keys.words) if array is not None]
    stage = stage_dispatch(
        context,
        "sort/merge_rows.wgsl",
        [call, *(array.binding() for array in arrays)],
        plan.workgroups,
        keys.size,
        scalar=keys.scalar,
        descending=keys.descending,
        workgroup_size=plan.workgroup,
        capacity=plan.capacity,
        with_keys=keys.with_keys,
        payload=keys.payload,
    )
    context.submit([stage], 4 * keys.size * keys.scalar.words, held=keys.held)
    return found, places
