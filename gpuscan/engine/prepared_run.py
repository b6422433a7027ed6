"""Submit a run again that was recorded before, over the same buffers, without planning or looking anything up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.reports import Run
from gpuscan.device.transfer import padded

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.device.device_array import DeviceArray
    from gpuscan.engine.record import Buffers
    from gpuscan.planning.plan import ScanPlan


class PreparedRun:
    """One plan over the same buffers, ready to be submitted again and again.

    Args:
        context: the device.
        plan: a plan with runs that no call waits for, so its kernels are verified, and that clears no destination.
        buffers: the buffers that its kernels bind.
        alive: arrays that the kernels bind and that nothing else may keep alive: seeds and segment bits.
    """

    def __init__(
        self, context: DeviceContext, plan: ScanPlan, buffers: Buffers, alive: tuple[DeviceArray | None, ...]
    ) -> None:
        self._context, self._plan, self._buffers, self._alive = context, plan, buffers, alive
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
        return not context.runs.has_wrong_subgroup_size(self._plan)

    def submit(self) -> None:
        """Submit the run. Its report stays unread until a later check."""
        safe_until = time.perf_counter() + self._plan.min_timeout_seconds
        run = self.begin()
        if self._plan.posts:
            self._context.runs.add_pending(run, safe_until)

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
