"""Sort rows of numbers on a device. Nothing here goes through the CPU, and nothing waits for the GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.bind_groups import Binding
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.guards import guarded
from gpuscan.elements import Scalar, scalar_of
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.element_copy import StridedView, contiguous, copied, copy_elements, duplicate, transposed, view_of
from gpuscan.engine.record import max_workgroups, record_stage
from gpuscan.errors import DeviceMemoryError
from gpuscan.planning.plan import grid_of
from gpuscan.planning.sort_heuristics import sort_heuristics_for
from gpuscan.planning.sort_plan import RowSort, TileSort, plan_sort
from gpuscan.problem.cache import cached_problem

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.executor import Executor

# Bytes of one step in the buffer of steps.
_STEP_BYTES = 32
# Invocations in a workgroup of sort/differences.wgsl.
_WORKGROUP_SIZE = 256


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
        options: those of `plan_sort`.

    Raises:
        DeviceMemoryError: the array, widened to 32 bits, exceeds what a shader of the device binds.
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
        rows = keys = contiguous(keys)
        if inner > 1:
            rows = copied(transposed(keys, length, inner, size), shape, keys.dtype)
        rows = _widened(rows, scalar)
        sort = _Sort(executor, rows, scalar, length, descending, with_keys, wants_places, words, options)
        found_keys, places = sort.run()
        results: list[DeviceArray | None] = []
        for array, dtype in ((found_keys, keys.dtype), (places, np.dtype(np.uint32))):
            if array is None:
                results.append(None)
                continue
            array = _narrowed(array, dtype)
            if inner > 1:
                array = copied(transposed(array, inner, length, dtype.itemsize), shape, dtype)
            results.append(array.viewed(shape, dtype))
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
        return array if array.is_bindable else duplicate(array)
    context, size = array.context, scalar.bits // 8
    wide = empty(context, (array.size,), np.uint32)
    encoder = context.queue.encoder()
    encoder.clear_buffer(wide.buffer, 0, wide.buffer.size)
    context.queue.submit(encoder)
    copy_elements(view_of(array, (array.size,), size), wide, run=size, pitch=4)
    return wide


def _narrowed(array: DeviceArray, dtype: np.dtype[Any]) -> DeviceArray:
    """Return the numbers without the bits that `_widened` added."""
    size = dtype.itemsize
    if size >= 4:
        return array
    return copied(StridedView(array, 0, (array.size,), (4,), size), (array.size,), dtype)


class _Sort:
    """One sort of rows that shaders can bind."""

    def __init__(
        self,
        executor: Executor,
        keys: DeviceArray,
        scalar: Scalar,
        length: int,
        descending: bool,
        with_keys: bool,
        with_places: bool,
        words: DeviceArray | None,
        options: dict[str, Any],
    ) -> None:
        self._executor, self._context = executor, executor.context
        self._input, self._length = keys, length
        self._size = keys.nbytes // (4 * scalar.words)
        self._scalar, self._descending = scalar, descending
        self._with_keys = with_keys
        self._payload = "none" if not with_places else "index" if words is None else "words"
        self._words = words if words is None or words.is_bindable else duplicate(words)
        self._plan = plan_sort(
            scalar, self._size // length, length, self._context.capabilities, with_places=with_places, **options
        )

    def run(self) -> tuple[DeviceArray | None, DeviceArray | None]:
        """Submit the sort; return the keys and the places, in words."""
        if isinstance(self._plan, RowSort):
            return self._sort_rows(self._plan)
        return self._sort_tiles(self._plan)

    def _new_keys(self) -> DeviceArray:
        return empty(self._context, (self._size * self._scalar.words,), np.uint32)

    def _new_places(self) -> DeviceArray | None:
        return None if self._payload == "none" else empty(self._context, (self._size,), np.uint32)

    def _sort_rows(self, plan: RowSort) -> tuple[DeviceArray | None, DeviceArray | None]:
        context = self._context
        keys = self._new_keys() if self._with_keys else None
        places = self._new_places()
        call = context.uniform(np.array([self._size, self._length, plan.rows, 0], np.uint32).tobytes())
        arrays = [array for array in (self._input, keys, places, self._words) if array is not None]
        encoder = context.queue.encoder()
        record_stage(
            context,
            encoder,
            "sort/merge_rows.wgsl",
            [call, *(array.binding() for array in arrays)],
            plan.workgroups,
            self._size,
            scalar=self._scalar,
            descending=self._descending,
            workgroup_size=plan.workgroup,
            capacity=plan.capacity,
            with_keys=self._with_keys,
            payload=self._payload,
        )
        context.queue.submit(encoder)
        return keys, places

    def _sort_tiles(self, plan: TileSort) -> tuple[DeviceArray | None, DeviceArray | None]:
        context = self._context
        keys, temporary = self._new_keys(), self._new_keys()
        places, temporary_places = self._new_places(), self._new_places()
        counts, offsets = (empty(context, (plan.counts,), np.uint32) for _ in range(2))
        steps = self._planned_steps(plan)
        shape = {
            "digits": plan.digits,
            "radix_bits": plan.radix_bits,
            "workgroup_size": plan.workgroup,
            "groups": plan.groups,
            "subgroups": plan.subgroups,
            "enable_subgroups": plan.subgroups and context.capabilities.enable_subgroups,
            "scalar": self._scalar,
            "descending": self._descending,
        }
        scan = cached_problem(counts, "add", axis=0, exclusive=True, reverse=False)
        kept = [array.binding() for array in (places, temporary_places, self._words) if array is not None]
        for number in range(plan.digits):
            call, grid = self._call(plan, number), (steps.buffer, number * _STEP_BYTES)
            bound = [call, steps, self._input.binding(), keys.binding(), temporary.binding()]
            encoder = context.queue.encoder()
            record_stage(
                context,
                encoder,
                "sort/count_digits.wgsl",
                [*bound, counts.binding()],
                grid,
                self._size,
                **shape,
            )
            context.queue.submit(encoder)
            scan_device(self._executor, scan, out=[offsets])
            encoder = context.queue.encoder()
            record_stage(
                context,
                encoder,
                "sort/scatter_digits.wgsl",
                [*bound, offsets.binding(), *kept],
                grid,
                self._size,
                with_keys=self._with_keys,
                payload=self._payload,
                items=plan.items,
                **shape,
            )
            context.queue.submit(encoder)
        return keys if self._with_keys else None, places

    def _planned_steps(self, plan: TileSort) -> Binding:
        """Submit the stages that choose the steps; return the buffer of the steps."""
        context, usage = self._context, self._context.usage
        create = context.wgpu_device.create_buffer
        # A buffer of its own, because no dispatch may write one part of a buffer and read another. With a single digit
        # the stage that finds the differences is skipped, and these values ask for one step.
        known = np.array([0, 0, plan.digits == 1, 0], np.uint32).tobytes()
        found = Binding(context.wgpu_device.create_buffer_with_data(data=known, usage=usage.STORAGE))
        steps = Binding(create(size=plan.digits * _STEP_BYTES, usage=usage.STORAGE | usage.INDIRECT))
        call = self._call(plan, 0)
        encoder = context.queue.encoder()
        keys = sort_heuristics_for(context.capabilities.adapter_type).keys_compared
        if plan.digits > 1:
            record_stage(
                context,
                encoder,
                "sort/differences.wgsl",
                [call, self._input.binding(), found],
                -(-self._size // (_WORKGROUP_SIZE * keys)),
                self._size,
                scalar=self._scalar,
                descending=self._descending,
                workgroup_size=_WORKGROUP_SIZE,
                keys_per_invocation=keys,
            )
        record_stage(
            context,
            encoder,
            "sort/plan_steps.wgsl",
            [call, found, steps],
            1,
            1,
            digits=plan.digits,
            radix_bits=plan.radix_bits,
            workgroup_size=plan.workgroup,
        )
        context.queue.submit(encoder)
        return steps

    def _call(self, plan: TileSort, step: int) -> Binding:
        x, y, _ = grid_of(plan.tiles, max_workgroups(self._context))
        numbers = [self._size, self._length, plan.tile_size, plan.tiles_per_row, plan.tiles, step, x, y]
        return self._context.uniform(np.array(numbers, np.uint32).tobytes())
