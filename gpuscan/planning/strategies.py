"""Choose the strategy for an adapter, and say which strategies are unsafe on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

from gpuscan.errors import StrategyError
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.key_heuristics import sort_heuristics_for

# What `strategy=` takes, and the strategies among these.
Strategy: TypeAlias = Literal["auto", "lookahead", "lookback", "fallback", "three_dispatch"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)[1:]
# The environment variable that names the strategy of "auto".
STRATEGY_VARIABLE = "GPUSCAN_STRATEGY"
# The dict behind `os.environ`, and the variable's key in it. Each call reads the variable, and `os.environ.get` takes
# three of the Python calls of a launch.
environment: dict[object, str | bytes] = getattr(os.environ, "_data")  # noqa: B009 (mypy does not know it)
STRATEGY_KEY: object = os.environ.encodekey(STRATEGY_VARIABLE)

# The vendors and adapter types for which it is published that workgroups, once started, keep making progress. A litmus
# test that passed shows that starvation was not seen, not that it cannot happen. For the others, Apple, ARM,
# Imagination and Qualcomm among them, "auto" takes a strategy that needs no such promise. NVIDIA and AMD: Merrill &
# Garland 2016, and the libraries that have shipped look-back since. Intel's discrete GPUs: Smith, Levien & Owens 2025.
# Mesa's llvmpipe runs workgroups on the system's threads, and each thread runs its workgroups one at a time.
PUBLISHED_PROGRESS: Mapping[str, frozenset[str]] = {
    "NVIDIA": frozenset({"DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown"}),
    "AMD": frozenset({"DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown"}),
    "Intel": frozenset({"DiscreteGPU"}),
    "Mesa": frozenset({"CPU"}),
}

# The vendors for whom it is published that workgroups start in the order of their numbers: CUB's scans take tiles by
# number. On the others tickets number the tiles, which costs each tile a round trip to memory before it loads. The grid
# of the litmus test has one dimension. That larger grids start row by row is published, not seen. A wait that cannot
# succeed still ends in time. H100: 17.0 instead of 20.2 us for 2^22 elements without tickets.
PUBLISHED_ORDER = frozenset({"NVIDIA"})

_NEEDS_PROGRESS = frozenset({"lookahead", "lookback"})


def check_strategy(strategy: str, source: str = "") -> None:
    """Raise StrategyError if there is no such strategy. The message says the source behind the name."""
    if not isinstance(strategy, str) or strategy not in ("auto", *STRATEGIES):
        names = ", ".join(("auto", *STRATEGIES))
        raise StrategyError(f"strategy {strategy!r}{source} was asked for, but there is no such strategy. Pass {names}")


def strategy_asked_for(strategy: str) -> str:
    """Return what a call asks for: ``"auto"`` means ``$GPUSCAN_STRATEGY`` where it is set."""
    if strategy != "auto" or STRATEGY_KEY not in environment:
        return strategy
    return os.environ[STRATEGY_VARIABLE].strip() or strategy


@dataclass(frozen=True)
class Choice:
    """A strategy, and why this one."""

    strategy: str
    reason: str


def has_few_tiles(capabilities: Capabilities, tiles: int | None) -> bool:
    """Return True if there are so few tiles that look-back is faster than look-ahead; None stands for a large array."""
    few = heuristics_for(capabilities.adapter_type).lookback_tiles
    return tiles is not None and few.start <= tiles < few.stop


def choose_strategy(capabilities: Capabilities, tiles: int | None = None) -> Choice:
    """Return what ``"auto"`` takes on this adapter for this number of tiles (default: for a large array)."""
    heuristics = heuristics_for(capabilities.adapter_type)
    choice = _first_safe(capabilities, heuristics.strategy_order)
    if (
        choice.strategy == "lookahead"
        and has_few_tiles(capabilities, tiles)
        and _objection("lookback", capabilities) is None
    ):
        return Choice("lookback", "tiles are so few that look-back is faster than look-ahead")
    return choice


def choose_sort_strategy(capabilities: Capabilities) -> str:
    """Return what sorts take on this adapter: the first safe strategy of their own order."""
    return _first_safe(capabilities, sort_heuristics_for(capabilities.adapter_type).strategy_order).strategy


@lru_cache(maxsize=64)
def _first_safe(capabilities: Capabilities, order: tuple[str, ...]) -> Choice:
    passed_over: list[str] = []
    for strategy in order:
        objection = _objection(strategy, capabilities)
        if objection is None:
            return Choice(strategy, "; ".join([*passed_over, _merit(strategy)]))
        passed_over.append(f"no {strategy}: {objection}")
    return Choice("three_dispatch", "; ".join([*passed_over, _merit("three_dispatch")]))


def unsafe_reason(strategy: str, capabilities: Capabilities) -> str | None:
    """Return why a strategy is refused on this adapter, or None if the probe found it safe."""
    if strategy in _NEEDS_PROGRESS and not capabilities.progress_earlier:
        return "a workgroup that had started made no progress while another waited for it"
    if strategy == "lookahead" and not capabilities.progress_later:
        return (
            f"only {capabilities.started_while_spinning} of {capabilities.litmus_workgroups} workgroups had started "
            "while the first one waited for all"
        )
    return None


def starts_in_order(capabilities: Capabilities) -> bool:
    """Return True if workgroups start in the order of their numbers: the probe saw it, and it is published.

    After a timeout it is not assumed, since another order may have caused it.
    """
    return capabilities.starts_in_order and capabilities.vendor in PUBLISHED_ORDER and not capabilities.distrusted


def may_time_out(strategy: str, capabilities: Capabilities, *, recently: bool = False) -> bool:
    """Return True if a single pass by the strategy may wait too long, so that calls wait for its report.

    Waits are known to end in time on the GPUs of some vendors. Under fallback no workgroup depends on another one's
    progress, so it ends in time unless the driver ends its loops.

    Args:
        strategy: how tiles learn their prefixes.
        recently: True if a wait has timed out on the device a short while ago.
    """
    if strategy == "fallback" and not ends_loops(capabilities):
        return False
    return recently or capabilities.adapter_type == "CPU" or not _progress_is_published(capabilities)


def ends_loops(capabilities: Capabilities) -> bool:
    """Return True if the driver ends loops that take long."""
    return capabilities.adapter_type == "CPU" or capabilities.loop_iterations > 0


def _progress_is_published(capabilities: Capabilities) -> bool:
    return capabilities.adapter_type in PUBLISHED_PROGRESS.get(capabilities.vendor, frozenset())


def _objection(strategy: str, capabilities: Capabilities) -> str | None:
    """Return why "auto" does not take a strategy: it is unsafe, nothing is published about it, or it timed out here."""
    if (unsafe := unsafe_reason(strategy, capabilities)) is not None:
        return unsafe
    if strategy in _NEEDS_PROGRESS and not _progress_is_published(capabilities):
        return f"nothing published promises that workgroups on this {capabilities.vendor} adapter make progress"
    if strategy in capabilities.distrusted:
        return "it ran out of time on this adapter a short while ago"
    if strategy == "lookahead" and "lookback" in capabilities.distrusted:
        return "lookback, which rests on less, ran out of time on this adapter a short while ago"
    return None


def _merit(strategy: str) -> str:
    if strategy == "lookahead":
        return "later workgroups start while the first one spins, and every element moves twice"
    if strategy == "lookback":
        return "workgroups that have started make progress, and every element moves twice"
    if strategy == "fallback":
        return "a workgroup that waits too long does the late tile's work itself"
    return "three dispatches ask nothing of the scheduler"
