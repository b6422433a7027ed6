"""Submit a run again that was recorded before, over the same buffers, without planning or looking anything up."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.context import strategy_key
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.held_runs import Clear, Dispatch
from gpuscan.device.reports import Run, Verdict
from gpuscan.device.transfer import padded

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.record import Buffers
    from gpuscan.planning.plan import ScanPlan
    from gpuscan.problem.problem import Problem


@dataclass(frozen=True)
class PreparedStages:
    """Stages around a plan over the same buffers, ready to be submitted again and again.

    Attributes:
        context: the device.
        dispatches: the stages.
        made: the arrays that they write for the plan, or read because a call made them; they stay alive.
        clears: what is set to zero before.
        verdicts: what the stages find out about arguments.
    """

    context: DeviceContext
    dispatches: Sequence[Dispatch]
    made: Sequence[DeviceArray]
    clears: Sequence[Clear] = ()
    verdicts: Sequence[Verdict] = ()

    # Nothing that is found out later changes such stages.
    is_valid = True

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays that stay alive."""
        return sum(array.nbytes for array in self.made)

    def submit(self) -> None:
        """Submit the stages."""
        self.context.queue.run(self.dispatches, None, self.nbytes, self.clears)
        for verdict in self.verdicts:
            self.context.runs.add_verdict(verdict)


class PreparedRun:
    """One plan over the same buffers, ready to be submitted again and again.

    Args:
        context: the device.
        plan: a plan with runs that no call waits for, so its kernels are verified, and that clears no destination.
        buffers: the buffers that its kernels bind.
        alive: arrays that have to stay alive because the kernels bind them: seeds, segment bits, temporary results.
        before, after: what is submitted before and after the plan.

    Attributes:
        nbytes: the bytes of the arrays that it keeps alive for this run alone.
    """

    def __init__(
        self,
        context: DeviceContext,
        plan: ScanPlan,
        buffers: Buffers,
        alive: tuple[DeviceArray | None, ...],
        before: Sequence[Prepared] = (),
        after: Sequence[Prepared] = (),
        nbytes: int = 0,
    ) -> None:
        self._context, self._plan, self._buffers, self._alive = context, plan, buffers, alive
        self._before, self._after = before, after
        self.nbytes: int = nbytes + sum(each.nbytes for each in (*before, *after))
        self._capabilities = context.capabilities
        self._place = (plan.row_length, 0, 0)
        self._bytes = sum(part.size or 0 for part in buffers.sources)
        # The tile state and the parameters that the bind groups were made for.
        self._state: Any = None
        self._params: Any = None
        self._stages: list[tuple[Any, Any, tuple[int, int, int]]] = []

    @property
    def is_valid(self) -> bool:
        """True if the plan is still the one that a new call would get, and no profile is open."""
        context = self._context
        if self._capabilities is not context.capabilities or context.profiles.active:
            return False
        others = all(each.is_valid for each in (*self._before, *self._after))
        return others and not context.runs.has_wrong_subgroup_size(self._plan)

    def submit(self) -> None:
        """Submit the run, with what belongs before and after it. Its report stays unread until a later check."""
        for each in self._before:
            each.submit()
        safe_until = time.perf_counter() + self._plan.min_timeout_seconds
        run = self.begin()
        if self._plan.posts:
            self._context.runs.add_pending(run, safe_until)
        for each in self._after:
            each.submit()

    def begin(self) -> Run:
        """Submit the run; the caller reads its report."""
        context, plan = self._context, self._plan
        state, epoch, params, offset = context.tile_state.begin(plan, self._place)
        if state is not self._state or params.buffer is not self._params:
            self._bind(state, params)
        context.queue.run(self._stages, offset, self._bytes)
        return Run(plan, state, epoch)

    def _bind(self, state: Any, params: Binding) -> None:
        context = self._context
        self._state, self._params = state, params.buffer
        state_binding = Binding(state, 0, padded(self._plan.state_bytes, ALIGNMENT))
        self._stages = []
        for stage in self._plan.stages:
            pipeline, layout = context.pipeline(stage.kernel)
            bound = [(0, params)]
            for binding, role, index in stage.kernel.slots:
                bound.append((binding, state_binding if role == "state" else self._buffers.bound(role, index)))
            self._stages.append((pipeline, context.bind_groups.group(layout, bound, keep=True), stage.grid))


Prepared = PreparedRun | PreparedStages


def run_key(problem: Problem, strategy: str, arrays: Iterable[Any]) -> tuple[Any, ...] | None:
    """Return what tells a scan from others of its kind: its buffers. None if it may change, or a caller owns one.

    Buffers of the pool live as long as the run that is kept, so their ids are theirs alone.

    Args:
        problem: the scan, with or without its arrays.
        strategy: as in `gpuscan.scan`.
        arrays: the input's arrays, the results, and the array for a count.
    """
    key: list[Any] = [problem.kind, problem.keep_last_only, problem.lists_runs, *strategy_key(strategy)]
    if problem.kind is None:
        heads = problem.heads
        if heads is None or problem.layout_kind is None or not (heads.cuts_rows_alike or problem.inner == 1):
            return None
        cut = heads.offsets if heads.keys is None else heads.keys
        # Bits are made of the array itself, and not of a copy, each time that a kept run is submitted.
        if not isinstance(cut, DeviceArray) or not cut.is_bindable:
            return None
        key += (problem.layout_kind, cut.dtype, cut.shape, heads.unchecked)
        arrays = (*arrays, cut)
    for array in arrays:
        if not isinstance(array, DeviceArray) or array.owner is None:
            return None
        key += (id(array.buffer), array.offset, None if array.is_contiguous else array.strides)
    return tuple(key)
