"""What is tried for a scan, and what comes after a strategy that gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning.kernel import STATE_HEADER_WORDS
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tuned_tiles import best_tile

if TYPE_CHECKING:
    from gpuscan.api.device import Device

KERNELS_KEPT = 1024


def plan_for(device: Device, work: ScanSpec, strategy: str, **options: Any) -> ScanPlan:
    """The plan of this work by the strategy that is asked for; what ``"auto"`` takes, the number of tiles decides.

    Where subgroups were seen to have another size than planned, it goes without.
    """
    chosen, reason = device.strategy(strategy)
    if options.get("tile") is None and work.inner == 1:
        options["tile"] = best_tile(work, device.capabilities, device.tuned, options.get("subgroups", True))
    plan = plan_scan(work, device.capabilities, chosen, reason, **options)
    better, why = device.strategy(strategy, plan.tiles)
    if plan.strategy == chosen != better:
        plan = plan_scan(work, device.capabilities, better, why, **options)
    plan = bindable(device, work, plan, **options)
    if unfit(device, plan):
        return plan_for(device, work, strategy, **options | {"subgroups": False, "tile": None})
    return plan


def bindable(device: Device, work: ScanSpec, plan: ScanPlan, **options: Any) -> ScanPlan:
    """The plan, or that of ``three_dispatch``, of the same bits, where its posts are larger than a binding."""
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    if not plan.posts or plan.state_bytes <= limit:
        return plan
    reason = f"{plan.reason}; but its posts of {plan.state_bytes} bytes are more than the {limit} that can be bound"
    return plan_scan(work, device.capabilities, "three_dispatch", reason, **options)


def fits_beside(device: Device, work: ScanSpec, **options: Any) -> bool:
    """Whether what is bound beside the arrays can be: the tiles' totals, which posts are larger than, and the seeds."""
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    # A tile has one total a column at most, and its last columns may be half out of the array.
    if 4 * (STATE_HEADER_WORDS + 2 * work.length * work.item_words) <= limit:
        return True
    seeds = 4 * work.element.words * work.rows if work.initial or work.exclusive else 0
    return max(seeds, plan_scan(work, device.capabilities, "three_dispatch", "", **options).state_bytes) <= limit


def unfit(device: Device, plan: ScanPlan) -> bool:
    """Whether a run has shown subgroups of another size than the plan's."""
    return bool(device.misfits) and not device.misfits.isdisjoint(stage.kernel for stage in plan.stages)


def note_size(device: Device, plan: ScanPlan, *, differed: bool) -> None:
    """Keep what a run has shown of the size of subgroups."""
    kept = device.misfits if differed else device.proven
    if len(kept) > KERNELS_KEPT:
        kept.clear()
    kept.update(stage.kernel for stage in plan.stages if stage.kernel.subgroups)


def note_timeout(device: Device) -> None:
    """Note that a run gave up: its report lies where those did that nobody has read, and may hide that one did too."""
    runs = (*device.unchecked, *device.recorded)
    device.hidden = device.hidden or any(each.plan.posts and each.plan.strategy != "fallback" for each in runs)


def retry(device: Device, outcome: str, failed: str, asked: str) -> None:
    """Note that a strategy gave up, so that ``"auto"`` goes on with another.

    Raises:
        ProgressTimeoutError: it was asked for by name.
    """
    if outcome != "timeout":
        return  # the compiler gave this shader another subgroup size than the probe saw: `plan_for` goes without
    note_timeout(device)
    device.distrust(failed)
    if asked != "auto":
        raise ProgressTimeoutError(
            f"strategy {failed!r} was asked for, but on {device.capabilities.summary} a tile waited longer than its "
            'bound for an earlier tile\'s post. Use strategy="auto", which leaves it out, or '
            'strategy="three_dispatch", which waits for nothing'
        )
