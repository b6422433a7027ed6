"""Sort rows of numbers on a device. Nothing here goes through the CPU, and nothing waits for the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, TypedDict, Unpack

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.reports import SortRun, read_report
from gpuscan.device.steps import Binding, Clear, Dispatch, Step
from gpuscan.device.tile_state import RunDescriptor
from gpuscan.device.timeouts import handle_timeout
from gpuscan.device.transfer import round_up
from gpuscan.elements import Scalar, scalar_of
from gpuscan.engine.compaction import entry_bytes
from gpuscan.engine.device_arrays import scan_array
from gpuscan.engine.element_copy import (
    StridedView,
    bindable,
    contiguous,
    copy_view,
    transpose_elements,
)
from gpuscan.engine.plan_steps import WORKGROUP_SIZE, stage_dispatch, uniform_of
from gpuscan.errors import DeviceMemoryError
from gpuscan.planning.key_heuristics import sort_heuristics_for
from gpuscan.planning.sort_plan import (
    REPEATED_KEYS,
    REPEATED_WORDS,
    REPEATING_WORKGROUP,
    RowSort,
    plan_row_sort,
    plan_sort,
)
from gpuscan.problem.packed_fields import STORAGE_LIMIT

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Scalar
    from gpuscan.engine.executor import Executor
    from gpuscan.planning.kernel_parts import InjectedFaults
    from gpuscan.planning.sort_plan import TileSort


# What moves along with a key, by its bytes.
_PAYLOADS = {4: "words", 8: "pairs"}


class Sorted:
    """The result of a sort: arrays of the shape of the keys. What was not asked for is None, and must not be read.

    Attributes:
        words: the words, if indices and words were asked for.
    """

    def __init__(self, keys: DeviceArray | None, payload: DeviceArray | None, words: DeviceArray | None = None) -> None:
        self._keys, self._payload, self.words = keys, payload, words

    @property
    def keys(self) -> DeviceArray:
        """The keys in order."""
        assert self._keys is not None
        return self._keys

    @property
    def payload(self) -> DeviceArray:
        """For each key in order, its index before the sort, or the word that was passed for it."""
        assert self._payload is not None
        return self._payload


class SortPlanOptions(TypedDict, total=False):
    """Further arguments of `plan_sort`, which tests and the search for the best tiles pass."""

    subgroups: bool | None
    tile_size: int | None
    test_build: InjectedFaults


def sort_device(
    executor: Executor,
    keys: DeviceArray,
    axis: int,
    *,
    descending: bool = False,
    with_keys: bool = True,
    with_indices: bool = False,
    words: DeviceArray | None = None,
    strategy: str = "auto",
    **options: Unpack[SortPlanOptions],
) -> Sorted:
    """Sort an array on a device along an axis; equal keys keep their order.

    Args:
        keys: the array, with one axis or more.
        axis: the axis, counted from 0.
        descending: True to put the greatest key first.
        with_keys: True to return the keys in order.
        with_indices: True to return the indices of the keys along the axis, as uint32.
        words: entries of 4 or 8 bytes in C order, one for each key of a 1-D array, to return in place of the indices,
            as uint32 or uint64. With indices too, they have 4 bytes, and no workgroup can sort a row.
        strategy: how tiles learn where their elements belong: ``"auto"``, ``"lookback"``, ``"fallback"`` or
            ``"three_dispatch"``.
        options: further ones of `plan_sort`.

    Raises:
        DeviceMemoryError: the array, widened to 32 bits, exceeds what a shader of the device binds.
        ProgressTimeoutError: the strategy was asked for by name and timed out.
    """
    context = executor.context
    shape, length = keys.shape, keys.shape[axis]
    has_payload = with_indices or words is not None
    if keys.size == 0:
        sorted_keys = empty(context, shape, keys.dtype) if with_keys else None
        return Sorted(sorted_keys, empty(context, shape, np.uint32) if has_payload else None)
    scalar = scalar_of(keys.dtype)
    check_size(context, keys.size, scalar)
    inner = prod(shape[axis + 1 :])
    size = keys.dtype.itemsize
    with context.errors, context.lock:
        keys._check("STORAGE")
        plan = None
        if options.get("tile_size") is None:
            rows = keys.size // length
            plan = plan_row_sort(scalar, rows, length, context.capabilities, with_payload=has_payload)
        # Columns of words are sorted where they are, unless a workgroup would read only one.
        moves = scalar.packed or plan is None or plan.rows == 1
        keys = contiguous(keys)
        if moves:
            keys = transpose_elements(keys, length, inner, size)
        payload = "none"
        if has_payload:
            payload = "index" if words is None else "both" if with_indices else _PAYLOADS[entry_bytes(words)]
        moved = None if words is None else bindable(words)
        step = 1 if moves else inner
        given = Keys(bindable(keys), scalar, length, descending, with_keys, payload, moved, min(4, size), step)
        found_keys, payload_array, along = _sort(executor, given, plan, strategy, options)
        results: list[DeviceArray | None] = []
        for array, dtype in (
            (found_keys, np.dtype(scalar.dtype)),
            (payload_array, np.dtype(np.uint64 if payload == "pairs" else np.uint32)),
        ):
            if array is None:
                results.append(None)
                continue
            array = _narrow_numbers(array, dtype)._view_as(shape, dtype)
            results.append(transpose_elements(array, inner, length, dtype.itemsize) if moves else array)
        return Sorted(results[0], results[1], along)


def sort_selected(
    executor: Executor, keys: DeviceArray, dtype: AnyDType, length: int, words: DeviceArray, *, descending: bool
) -> Sorted:
    """Sort rows of keys that are words already, and move a word along with each.

    Args:
        keys: the keys of all rows, as one or two words each.
        dtype: the dtype of a key.
        length: the keys in a row.
        words: a word for each key.
        descending: True to put the greatest key first.

    Returns:
        The keys in their dtype, and the words, both as one row.
    """
    with keys._context.errors, keys._context.lock:
        scalar, context = scalar_of(dtype), keys._context
        given = Keys(keys, scalar, length, descending, True, "words", words)
        plan = plan_row_sort(scalar, given.size // length, length, context.capabilities, with_payload=True)
        sorted_keys, payload, _ = _sort(executor, given, plan, "auto", {})
        assert sorted_keys is not None
        return Sorted(_narrow_numbers(sorted_keys, dtype), payload)


def partition_indices(executor: Executor, indices: DeviceArray, words: DeviceArray) -> Sorted:
    """Sort indices by one digit, and move words along, so that indices in one part of an array come together.

    Args:
        indices: uint32, 1-D, longer than a sort of rows takes.
        words: a word of 32 or 64 bits for each index.
    """
    context = executor.context
    with context.errors, context.lock:
        payload = _PAYLOADS[entry_bytes(words)]
        keys = Keys(bindable(indices), scalar_of(indices.dtype), indices.size, False, True, payload, bindable(words))
        plan = plan_sort(
            keys.scalar, 1, keys.length, context.capabilities, with_payload=True, payload_words=keys.payload_words
        )
        sort = _TileSort(executor, keys, plan, alone=True)
        sort.by_digit(_PARTITION_BIT // plan.radix_bits)
        assert sort.payload is not None
        return Sorted(sort.keys, sort.payload._view_as(words.shape, words.dtype))


@dataclass(frozen=True)
class Partitioned:
    """Keys and words that were sorted by one digit.

    Attributes:
        keys: the keys, in words.
        words: the words that moved along.
        destinations: the new index of each key.
        offsets: where the first key of each tile with each digit is: (digit values, tiles).
    """

    keys: DeviceArray
    words: DeviceArray
    destinations: DeviceArray
    offsets: DeviceArray


def plan_partition(context: DeviceContext, dtype: AnyDType, length: int, words: int) -> TileSort | None:
    """Plan a sort by one digit of keys with `words` words each. Return None if the device cannot keep where they go."""
    capabilities = context.capabilities
    plan = plan_sort(scalar_of(dtype), 1, length, capabilities, with_payload=True, payload_words=words)
    # Nine arrays are bound.
    return plan if plan.subgroups and capabilities.limits[STORAGE_LIMIT] > 8 else None


def partition(executor: Executor, keys: DeviceArray, words: DeviceArray, plan: TileSort, step: Binding) -> Partitioned:
    """Sort keys by one digit, and move words along.

    Args:
        keys: the keys, 1-D, as `plan_partition` planned for.
        words: a word of 32 or 64 bits for each key.
        step: the step, as in shaders/sort/params.wgsl, with room for one for each digit.
    """
    payload = _PAYLOADS[entry_bytes(words)]
    scalar = scalar_of(keys.dtype)
    given = Keys(bindable(keys), scalar, keys.size, False, True, payload, bindable(words))
    sort = _TileSort(executor, given, plan, alone=True)
    destinations = empty(executor.context, (keys.size,), np.uint32)
    offsets = sort.by_step(step, destinations)
    assert sort.payload is not None
    return Partitioned(sort.keys, sort.payload, destinations, offsets)


def check_size(context: DeviceContext, keys: int, scalar: Scalar) -> None:
    """Raise DeviceMemoryError if that many keys exceed what a shader of the device binds."""
    nbytes, limit = keys * 4 * scalar.words, context.binding_limit
    if nbytes > limit or keys >= 2**31:
        raise DeviceMemoryError(
            f"{keys} keys of dtype {scalar.name} were to be sorted, which take {nbytes} bytes in shaders, but "
            f"{context.capabilities.summary} binds at most {limit} bytes, and sorts fewer than 2**31 keys. Use NumPy: "
            'device="numpy", or np.sort(..., kind="stable") of array.numpy()'
        )


def _narrow_numbers(array: DeviceArray, dtype: AnyDType) -> DeviceArray:
    """Return numbers of 8 or 16 bits that have a word each as arrays have them."""
    size = dtype.itemsize
    if array.dtype.itemsize == size or size == 8:
        return array
    return copy_view(StridedView(array, 0, (array.size,), (4,), size), (array.size,), dtype)


def _sort(
    executor: Executor, keys: Keys, rows: RowSort | None, requested: str, options: SortPlanOptions
) -> tuple[DeviceArray | None, DeviceArray | None, DeviceArray | None]:
    """Submit the sort; return the keys, the payload and the moved words, in words.

    A strategy that times out gives way to another one.
    """
    context = executor.context
    if rows is not None:
        return (*_sort_rows(context, keys, rows), None)
    failed: list[str] = []
    while True:
        without = tuple(failed)
        strategy = context.sort_strategy(requested, without)
        plan = plan_sort(
            keys.scalar,
            keys.size // keys.length,
            keys.length,
            context.capabilities_without(without),
            with_payload=keys.payload != "none",
            payload_words=keys.payload_words,
            strategy=strategy,
            **options,
        )
        sorted_arrays, run = sort_tiles(executor, keys, plan)
        if run is None:
            return sorted_arrays
        if not context.may_time_out(strategy):
            context.read_report_later(run)
            context.check_if_many()
            return sorted_arrays
        report = read_report(context, run.state)
        if not run.has_timed_out(report):
            return sorted_arrays
        handle_timeout(context, strategy, requested, failed)


def _sort_rows(context: DeviceContext, keys: Keys, plan: RowSort) -> tuple[DeviceArray | None, DeviceArray | None]:
    """Submit a sort in which each workgroup sorts whole rows."""
    sorted_keys, payload = keys.result(context) if keys.with_keys else None, keys.new_payload(context)
    call = uniform_of(context, [keys.length, keys.step, keys.size // keys.length, plan.levels])
    arrays = [array for array in (keys.array, sorted_keys, payload, keys.words) if array is not None]
    # Workgroups share words of the result where their rows do not end with a word.
    edges = keys.with_keys and plan.workgroups > 1 and plan.rows * keys.length * keys.unit % 4 != 0
    stage = stage_dispatch(
        context,
        "sort/exchange_rows.wgsl",
        [call, *(array._binding() for array in arrays)],
        plan.workgroups,
        keys.size,
        scalar=keys.scalar,
        descending=keys.descending,
        log_capacity=plan.log_capacity,
        log_items=plan.log_items,
        levels=plan.levels if plan.unrolls else 0,
        exchanges=plan.exchanges if plan.unrolls else (),
        unit=keys.unit,
        edges=edges,
        columns=keys.step > 1,
        with_keys=keys.with_keys,
        payload=keys.payload,
    )
    clears = [_clear(sorted_keys)] if sorted_keys is not None and edges else []
    context.submit([*clears, stage], keys.array.nbytes, deferrable=keys.deferrable)
    return sorted_keys, payload


# ----- Sorts in single passes
#
# Sort long rows on a device, by a radix sort over tiles: in a single pass for each digit, or in three dispatches.


# A part of `partition_indices` has runs of 2**16 indices, so that the words of several runs fit a GPU's cache.
_PARTITION_BIT = 16
# 32-bit words of one step in the buffer of steps.
_STEP_WORDS = 6
# The word of the parameters that holds the epoch.
_EPOCH_WORD = 6
# Words before the counts that sort/histogram.wgsl leaves.
_DIFFERENCES = 4


@dataclass(frozen=True)
class Keys:
    """Rows of keys that shaders can bind, and what their sort returns.

    Attributes:
        array: the keys, one row after the other.
        scalar: the type of the keys.
        length: the keys in a row.
        descending: True to put the greatest key first.
        with_keys: True to return the keys in order.
        payload: what moves along with a key: ``"none"``, its ``"index"`` in the row, one of the ``"words"`` or
            ``"pairs"`` of words, or ``"both"``, its index and a word.
        words: a word or a pair for each key.
        unit: the bytes of a key in the array, or 4 if it takes two words.
        step: the keys from one element of a row to the next.
    """

    array: DeviceArray
    scalar: Scalar
    length: int
    descending: bool
    with_keys: bool
    payload: str
    words: DeviceArray | None
    unit: int = 4
    step: int = 1

    @property
    def size(self) -> int:
        """The keys of all rows."""
        return self.array.nbytes // (self.unit * self.scalar.words)

    @property
    def payload_words(self) -> int:
        """The words that move along with a key."""
        return 2 if self.payload in ("pairs", "both") else 1

    @property
    def deferrable(self) -> bool:
        """True if all buffers come from the pool, so that the sort may be submitted with what comes next."""
        return self.array._owner is not None and (self.words is None or self.words._owner is not None)

    def result(self, context: DeviceContext) -> DeviceArray:
        """Return a new array for the keys, of as many bytes for each as it has now."""
        return empty(context, (self.size * self.scalar.words,), f"u{self.unit}")

    def words_of_keys(self, context: DeviceContext) -> DeviceArray:
        """Return a new array for the keys, in words."""
        return empty(context, (self.size * self.scalar.words,), np.uint32)

    def new_payload(self, context: DeviceContext) -> DeviceArray | None:
        """Return a new array for what moves along with the keys, if anything does."""
        return None if self.payload == "none" else empty(context, (self.size * self.payload_words,), np.uint32)


def sort_tiles(
    executor: Executor, keys: Keys, plan: TileSort
) -> tuple[tuple[DeviceArray | None, DeviceArray | None, DeviceArray | None], SortRun | None]:
    """Submit a sort by tiles.

    Returns:
        The keys, the payload, and the moved words, in words; and the run, if a wait may time out in it.
    """
    sort = _TileSort(executor, keys, plan)
    run = None
    if plan.repeats:
        sort.by_counting()
    elif plan.kernel is None:
        sort.in_three_dispatches()
    else:
        run = sort.in_single_passes()
    return (sort.keys if keys.with_keys else None, sort.payload, sort.words), run


class _TileSort:
    """One sort by tiles, and its arrays.

    Args:
        alone: True for a single step, which needs no temporary arrays.
    """

    def __init__(self, executor: Executor, given: Keys, plan: TileSort, *, alone: bool = False) -> None:
        self._executor, self._given, self._plan = executor, given, plan
        self._context = context = executor.context
        self.keys = given.result(context) if plan.repeats else given.words_of_keys(context)
        self.payload, self.words = given.new_payload(context), None
        if given.payload == "both":
            self.payload, self.words = (empty(context, (given.size,), np.uint32) for _ in range(2))
        # An array that nothing refers to goes back to the pool, so the sort refers to all arrays that it binds.
        bases = plan.bases if plan.repeats or plan.kernel else 0
        self._steps = empty(context, (plan.digits * _STEP_WORDS + bases,), np.uint32)
        self._temporary: tuple[DeviceArray, DeviceArray | None]
        if alone:
            self._temporary = empty(context, (4,), np.uint32), empty(context, (4,), np.uint32)
        else:
            self._temporary = self.keys if plan.repeats else given.words_of_keys(context), given.new_payload(context)
        self._arrays = [array._binding() for array in (given.array, self.keys, self._temporary[0])]
        moved = (self.payload, self._temporary[1], given.words, self.words)
        self._moved = [array._binding() for array in moved if array is not None]
        self._keys_shape = {"scalar": given.scalar, "unit": given.unit, "descending": given.descending}
        self._digits = {"digits": plan.digits, "radix_bits": plan.radix_bits}
        enabled = plan.subgroups and context.capabilities.enable_subgroups
        self._tile_shape = (
            self._keys_shape
            | self._digits
            | {
                "workgroup_size": plan.workgroup,
                "groups": plan.groups,
                "subgroups": plan.subgroups,
                "enable_subgroups": enabled,
            }
        )
        self._scatter = self._tile_shape | {
            "with_keys": given.with_keys,
            "payload": given.payload,
            "items": plan.items,
            "batches": plan.batches,
            "kernel": plan.kernel,
            "keeps_destinations": False,
        }

    def in_three_dispatches(self) -> None:
        """Submit three dispatches for each digit: count, scan the counts, and scatter."""
        steps = self._steps_from_differences()
        for number in range(self._plan.digits):
            self._submit_step(number, steps)

    def by_digit(self, number: int) -> None:
        """Submit the step of one digit alone."""
        only = np.zeros((self._plan.digits, _STEP_WORDS), np.uint32)
        only[number] = [1, 0, 1, 1, 1, (1 << self._plan.radix_bits) - 1]  # as in sort/params.wgsl
        self._submit_step(number, upload_array(self._context, only)._binding())

    def by_step(self, step: Binding, destinations: DeviceArray) -> DeviceArray:
        """Submit one step alone, which also stores the new index of each key; return the offsets of its tiles."""
        self._moved.append(destinations._binding())
        self._scatter["keeps_destinations"] = True
        return self._submit_step(0, step)

    def _submit_step(self, number: int, steps: Binding) -> DeviceArray:
        """Submit the three dispatches of a digit; return where the keys of each tile with each digit belong."""
        plan = self._plan
        counts = empty(self._context, (plan.counts,), np.uint32)
        counting = self._tile_shape | {"copies": plan.copies}
        bound = [self._params(number), steps, *self._arrays]
        self._submit([self._stage("count_digits", [*bound, counts._binding()], plan.tiles, counting)])
        offsets = scan_array(self._executor, counts, "add", exclusive=True)
        bound += [offsets._binding(), *self._moved]
        self._submit([self._stage("scatter_digits", bound, plan.tiles, self._scatter)])
        return offsets

    def in_single_passes(self) -> SortRun:
        """Submit one pass that counts the values of all digits, and then a single pass for each digit."""
        context, plan = self._context, self._plan
        assert plan.kernel is not None
        words = tuple(tuple(self._numbers(number)) for number in range(plan.digits))
        run_descriptor = RunDescriptor(words, _EPOCH_WORD, "counts", plan.state_bytes, plan.digits)
        steps = self._steps_from_histogram()
        state, epoch, params, offset, stride = context.begin(run_descriptor)
        state_binding = Binding(state, 0, -(-plan.state_bytes // 16) * 16)
        bound = [params, steps, *self._arrays, state_binding, *self._moved]
        self._submit(
            [
                self._stage("scatter_digits", bound, plan.tiles, self._scatter, offset + number * stride)
                for number in range(plan.digits)
            ]
        )
        return SortRun(plan.strategy, state, epoch)

    def by_counting(self) -> None:
        """Submit one pass that counts the keys, and one that writes them in order."""
        bound = [self._params(0), self._steps_from_histogram(), self.keys._binding()]
        shape = self._digits | {"workgroup_size": REPEATING_WORKGROUP, "words": REPEATED_WORDS}
        workgroups = -(-self._given.size // REPEATED_KEYS)
        self._submit([self._stage("repeat_keys", bound, workgroups, self._keys_shape | shape)])

    def _steps_from_differences(self) -> Binding:
        """Submit the stages that choose the steps; return the buffer of the steps."""
        context, plan, size = self._context, self._plan, self._given.size
        steps = self._steps._binding()
        if plan.digits == 1 or (plan.digits == 2 and self._given.scalar.kind == "float"):
            # The search for the digits in which keys differ takes half as long as a step, and floats differ in both.
            differences = upload_array(context, np.array([0xFFFFFFFF, 0, 1, 0], np.uint32))
            self._submit([self._planning(differences._binding(), steps)])
            return steps
        differences = empty(context, (4,), np.uint32)
        params, keys = self._params(0), sort_heuristics_for(context.capabilities.adapter_type).keys_compared
        shape = self._keys_shape | {"workgroup_size": WORKGROUP_SIZE, "keys_per_invocation": keys}
        bound = [params, self._arrays[0], differences._binding()]
        compare = self._stage("differences", bound, -(-size // (WORKGROUP_SIZE * keys)), shape)
        self._submit([_clear(differences), compare, self._planning(differences._binding(), steps)])
        return steps

    def _steps_from_histogram(self) -> Binding:
        """Submit the stages that count all digits' values and choose the steps; return the buffer of the plan."""
        context, plan = self._context, self._plan
        histogram = empty(context, (_DIFFERENCES + plan.bases,), np.uint32)
        steps, params, counts = self._steps._binding(), self._params(0), histogram._binding()
        rows = plan.tiles // plan.tiles_per_row
        shape = self._digits | {"workgroup_size": plan.workgroup}
        counting = self._keys_shape | shape | {"tiles_per_workgroup": plan.tiles_per_workgroup, "copies": plan.copies}
        workgroups = rows * -(-plan.tiles_per_row // plan.tiles_per_workgroup)
        self._submit(
            [
                _clear(histogram),
                self._stage("histogram", [params, self._arrays[0], counts], workgroups, counting),
                self._planning(counts, steps),
                self._stage("scan_histograms", [params, counts, steps], rows * plan.digits, shape),
            ]
        )
        return steps

    def _planning(self, differences: Binding, steps: Binding) -> Dispatch:
        shape = self._digits | {"workgroup_size": self._plan.workgroup}
        return stage_dispatch(self._context, "sort/plan_steps.wgsl", [differences, steps], 1, 1, **shape)

    def _stage(
        self,
        name: str,
        bound: list[Binding],
        workgroups: int,
        values: Mapping[str, object],
        offset: int | None = None,
    ) -> Dispatch:
        """Return a stage over the keys; `offset` is the dynamic one of its parameters."""
        template = f"sort/{name}.wgsl"
        return stage_dispatch(self._context, template, bound, workgroups, self._given.size, offset, **values)

    def _submit(self, steps: list[Step]) -> None:
        given = self._given
        self._context.submit(steps, 4 * given.size * given.scalar.words, deferrable=given.deferrable)

    def _params(self, step: int) -> Binding:
        return uniform_of(self._context, self._numbers(step))

    def _numbers(self, step: int) -> list[int]:
        """Return the parameters of a stage, with an epoch of 0."""
        plan, given = self._plan, self._given
        return [
            given.size,
            given.length,
            plan.tile_size,
            plan.tiles_per_row,
            plan.tiles,
            step,
            0,
            plan.spin_rounds,
        ]


def _clear(array: DeviceArray) -> Clear:
    return Clear(array.buffer, array.offset, round_up(array.nbytes))
