"""What is tried for a scan, and what comes after a strategy that gave up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuscan.errors import ProgressTimeoutError
from gpuscan.planning import LOOKBACK_SECONDS, ScanPlan, Work, plan_scan
from gpuscan.tuning import tile_on

if TYPE_CHECKING:
    from gpuscan.device import Device


def plan_for(device: Device, work: Work, strategy: str, **options: Any) -> ScanPlan:
    """The plan of this work by the strategy that is asked for; what ``"auto"`` takes, the number of tiles decides."""
    chosen, reason = device.strategy(strategy)
    if options.get("tile") is None and work.inner == 1:
        options["tile"] = tile_on(device, work, options.get("subgroups", True))
    plan = plan_scan(work, device.capabilities, chosen, reason, **options)
    better, why = device.strategy(strategy, plan.tiles)
    if plan.strategy == chosen != better:
        plan = plan_scan(work, device.capabilities, better, why, **options)
    return plan


def retry(device: Device, outcome: str, failed: str, asked: str) -> None:
    """Note that a strategy gave up, so that ``"auto"`` goes on with another.

    Raises:
        ProgressTimeoutError: it was asked for by name.
    """
    if outcome != "timeout":
        return  # the compiler gave this shader another subgroup size than the probe saw: go on without subgroups
    device.distrust(failed)
    if asked != "auto":
        raise ProgressTimeoutError(
            f"strategy {failed!r} was asked for, but on {device.capabilities.summary} a tile waited over "
            f'{LOOKBACK_SECONDS} s for an earlier tile\'s post. Use strategy="auto", which now leaves it out, '
            'or strategy="three_dispatch", which waits for nothing'
        )
