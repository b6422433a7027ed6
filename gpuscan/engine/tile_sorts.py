"""Sort long rows on a device, by a radix sort over tiles: in a single pass for each digit, or in three dispatches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, uploaded
from gpuscan.device.reports import SortRun
from gpuscan.device.steps import Binding, Clear, Dispatch, Step
from gpuscan.device.tile_state import RunKind
from gpuscan.device.transfer import padded
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.record import WORKGROUP_SIZE, stage_dispatch, uniform_of
from gpuscan.planning.sort_heuristics import sort_heuristics_for
from gpuscan.problem.cache import cached_problem

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Scalar
    from gpuscan.engine.executor import Executor
    from gpuscan.planning.sort_plan import TileSort

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
        scalar: the kind of key.
        length: the keys in a row.
        descending: True to put the greatest key first.
        with_keys: True to return the keys in order.
        payload: what moves along with a key: ``"none"``, its ``"index"`` in the row, or one of the ``"words"``.
        words: a word for each key.
    """

    array: DeviceArray
    scalar: Scalar
    length: int
    descending: bool
    with_keys: bool
    payload: str
    words: DeviceArray | None

    @property
    def size(self) -> int:
        """The keys of all rows."""
        return self.array.nbytes // (4 * self.scalar.words)

    @property
    def held(self) -> bool:
        """True if all buffers are those of the pool, so that the sort may be submitted with what comes next."""
        return self.array.owner is not None and (self.words is None or self.words.owner is not None)

    def result(self, context: DeviceContext) -> DeviceArray:
        """Return a new array for the keys, in words."""
        return empty(context, (self.size * self.scalar.words,), np.uint32)

    def places(self, context: DeviceContext) -> DeviceArray | None:
        """Return a new array for what moves along with the keys, if anything does."""
        return None if self.payload == "none" else empty(context, (self.size,), np.uint32)


def sort_tiles(
    executor: Executor, keys: Keys, plan: TileSort
) -> tuple[tuple[DeviceArray | None, DeviceArray | None], SortRun | None]:
    """Submit a sort by tiles.

    Returns:
        The keys and the places, in words; and the run, if a wait may time out in it.
    """
    sort = _TileSort(executor, keys, plan)
    run = sort.in_three_dispatches() if plan.kernel is None else sort.in_single_passes()
    return (sort.keys if keys.with_keys else None, sort.places), run


class _TileSort:
    """One sort by tiles, and its arrays."""

    def __init__(self, executor: Executor, given: Keys, plan: TileSort) -> None:
        self._executor, self._given, self._plan = executor, given, plan
        self._context = context = executor.context
        self.keys, self.places = given.result(context), given.places(context)
        # Arrays that nothing refers to go back to the pool, so the sort keeps those that it binds.
        bases = 0 if plan.kernel is None else plan.bases
        self._steps = empty(context, (plan.digits * _STEP_WORDS + bases,), np.uint32)
        self._temporary = given.result(context), given.places(context)
        self._arrays = [array.binding() for array in (given.array, self.keys, self._temporary[0])]
        moved = (self.places, self._temporary[1], given.words)
        self._moved = [array.binding() for array in moved if array is not None]
        self._keys_shape = {"scalar": given.scalar, "descending": given.descending}
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
            "turns": plan.turns,
            "kernel": plan.kernel,
        }

    def in_three_dispatches(self) -> SortRun | None:
        """Submit three dispatches for each digit: count, scan the counts, and scatter."""
        context, plan = self._context, self._plan
        counts, offsets = (empty(context, (plan.counts,), np.uint32) for _ in range(2))
        steps = self._steps_from_differences()
        scan = cached_problem(counts, "add", axis=0, exclusive=True, reverse=False)
        counting = self._tile_shape | {"copies": plan.copies}
        for number in range(plan.digits):
            bound = [self._params(number), steps, *self._arrays]
            self._submit([self._stage("count_digits", [*bound, counts.binding()], plan.tiles, counting)])
            scan_device(self._executor, scan, out=[offsets])
            bound += [offsets.binding(), *self._moved]
            self._submit([self._stage("scatter_digits", bound, plan.tiles, self._scatter)])
        return None

    def in_single_passes(self) -> SortRun:
        """Submit one pass that counts the values of all digits, and then a single pass for each digit."""
        context, plan = self._context, self._plan
        assert plan.kernel is not None
        words = tuple(tuple(self._numbers(number)) for number in range(plan.digits))
        kind = RunKind(words, _EPOCH_WORD, "counts", plan.state_bytes, plan.digits)
        steps = self._steps_from_histogram()
        state, epoch, params, offset, stride = context.begin(kind)
        state_binding = Binding(state, 0, -(-plan.state_bytes // 16) * 16)
        bound = [params, steps, *self._arrays, state_binding, *self._moved]
        self._submit(
            [
                self._stage("scatter_digits", bound, plan.tiles, self._scatter, offset + number * stride)
                for number in range(plan.digits)
            ]
        )
        return SortRun(plan.strategy, state, epoch)

    def _steps_from_differences(self) -> Binding:
        """Submit the stages that choose the steps; return the buffer of the steps."""
        context, plan, size = self._context, self._plan, self._given.size
        steps = self._steps.binding()
        if plan.digits == 1:
            # The stage that finds the differences is skipped, and these values ask for one step.
            found = uploaded(context, np.array([0, 0, 1, 0], np.uint32))
            self._submit([self._planning(found.binding(), steps)])
            return steps
        found = empty(context, (4,), np.uint32)
        params, keys = self._params(0), sort_heuristics_for(context.capabilities.adapter_type).keys_compared
        shape = self._keys_shape | {"workgroup_size": WORKGROUP_SIZE, "keys_per_invocation": keys}
        bound = [params, self._arrays[0], found.binding()]
        compare = self._stage("differences", bound, -(-size // (WORKGROUP_SIZE * keys)), shape)
        self._submit([_clear(found), compare, self._planning(found.binding(), steps)])
        return steps

    def _steps_from_histogram(self) -> Binding:
        """Submit the stages that count all digits' values and choose the steps; return the buffer of the plan."""
        context, plan = self._context, self._plan
        found = empty(context, (_DIFFERENCES + plan.bases,), np.uint32)
        steps, params, counts = self._steps.binding(), self._params(0), found.binding()
        rows = plan.tiles // plan.tiles_per_row
        shape = self._digits | {"workgroup_size": plan.workgroup}
        counting = self._keys_shape | shape | {"stretch": plan.stretch, "copies": plan.copies}
        workgroups = rows * -(-plan.tiles_per_row // plan.stretch)
        self._submit(
            [
                _clear(found),
                self._stage("histogram", [params, self._arrays[0], counts], workgroups, counting),
                self._planning(counts, steps),
                self._stage("scan_histograms", [params, counts, steps], rows * plan.digits, shape),
            ]
        )
        return steps

    def _planning(self, found: Binding, steps: Binding) -> Dispatch:
        shape = self._digits | {"workgroup_size": self._plan.workgroup}
        return stage_dispatch(self._context, "sort/plan_steps.wgsl", [found, steps], 1, 1, **shape)

    def _stage(
        self,
        name: str,
        bound: list[Binding],
        workgroups: int,
        values: dict[str, Any],
        offset: int | None = None,
    ) -> Dispatch:
        """Return a stage over the keys; `offset` is the dynamic one of its parameters."""
        template = f"sort/{name}.wgsl"
        return stage_dispatch(self._context, template, bound, workgroups, self._given.size, offset, **values)

    def _submit(self, steps: list[Step]) -> None:
        given = self._given
        self._context.submit(steps, 4 * given.size * given.scalar.words, held=given.held)

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
    return Clear(array.buffer, array.offset, padded(array.nbytes))
