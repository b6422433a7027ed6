"""Plan the scans of a device, and keep the plans for later calls of their kinds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Unpack

from gpuscan.device.context import strategy_key
from gpuscan.planning.plan import choose_tile, plan_scan
from gpuscan.recent_values import RecentValues
from gpuscan.sizes import has_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuscan.device.context import DeviceContext
    from gpuscan.engine.job import Layout, PlacedOptions
    from gpuscan.planning.plan import ScanPlan
    from gpuscan.planning.spec import ScanSpec

_log = logging.getLogger("gpuscan")
# How many plans, and how many layouts, are kept.
_MAX_PLANS = 512


class Planner:
    """The plans and the layouts of one device's scans.

    Args:
        context: the device.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._plans: RecentValues[tuple[object, ...], ScanPlan] = RecentValues(_MAX_PLANS)
        self._layouts: RecentValues[tuple[object, ...], Layout] = RecentValues(_MAX_PLANS)

    def plan(
        self, spec: ScanSpec, strategy: str, *, without: tuple[str, ...] = (), **options: Unpack[PlacedOptions]
    ) -> ScanPlan:
        """Return the plan for a scan, and keep it for later calls of the same kind.

        Args:
            spec: the scan.
            strategy: as in `gpuscan.scan`; ``"auto"`` also looks at the number of tiles.
            without: strategies that timed out in this call, which ``"auto"`` leaves out.
            options: further arguments of `plan_scan`.
        """
        context = self._context
        if has_size((spec.rows, spec.row_length, spec.inner)):
            # A recorded program takes the place of the plan.
            return self._new_plan(spec, strategy, without, options)
        chosen = context.strategy(strategy, without=without)
        key = (spec, chosen, context.capabilities.distrusted, without, *options.items())
        with context.lock:
            plan = self._plans.find(key)
            if plan is None or context.runs.has_wrong_subgroup_size(plan):
                plan = self._plans.keep(key, self._new_plan(spec, strategy, without, options))
            return plan

    def _new_plan(self, spec: ScanSpec, strategy: str, without: tuple[str, ...], options: PlacedOptions) -> ScanPlan:
        context = self._context
        options = options.copy()
        chosen, reason = context.strategy(strategy, without=without)
        capabilities = context.capabilities_without(without)
        if options.get("tile") is None:
            subgroups, piece = options.get("subgroups", True), options.get("piece")
            options["tile"] = choose_tile(spec, context.capabilities, context.tuned, subgroups, piece)
        plan = plan_scan(spec, capabilities, chosen, reason, **options)
        better, why = context.strategy(strategy, plan.tiles, without)
        if plan.strategy == chosen != better:
            plan = plan_scan(spec, capabilities, better, why, **options)
        plan = self.bindable_plan(spec, plan, **options)
        if context.runs.has_wrong_subgroup_size(plan):
            return self._new_plan(spec, strategy, without, options | {"subgroups": False, "tile": None})
        _log.debug("%s of %d elements by %s: %s", spec.operator_name, plan.length, plan.strategy, plan.reason)
        return plan

    def bindable_plan(self, spec: ScanSpec, plan: ScanPlan, **options: Unpack[PlacedOptions]) -> ScanPlan:
        """Return the plan, or that of ``three_dispatch`` if the tile state of this one exceeds a binding."""
        limit = self._context.binding_limit
        if not plan.posts or plan.state_bytes <= limit:
            return plan
        reason = f"{plan.reason}; but its tile state of {plan.state_bytes} bytes exceeds the binding limit of {limit}"
        return plan_scan(spec, self._context.capabilities, "three_dispatch", reason, **options)

    def layout(self, kind: object | None, strategy: str, make: Callable[[], Layout]) -> Layout:
        """Return how scans of a kind are cut and planned, from an earlier call where there was one.

        Args:
            kind: `Problem.kind`, and everything else that decides the layout; None to keep nothing.
            strategy: as in `gpuscan.scan`.
            make: makes the layout.
        """
        if kind is None:
            return make()
        context = self._context
        context.take_strategies_back()
        key = (kind, *strategy_key(strategy))
        with context.lock:
            layout = self._layouts.find(key)
            if layout is None or layout.capabilities is not context.capabilities:
                layout = self._layouts.keep(key, make())
            return layout
