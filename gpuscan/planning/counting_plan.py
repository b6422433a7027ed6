"""Decide how elements are counted, searched and selected on a device."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscan.elements import Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.key_heuristics import counting_heuristics_for

# Words of workgroup memory that kernels need in addition to their counters.
_OTHER_WORDS = 8
# The numbers of counters between two powers of two.
_COUNTER_STEPS = 8


@dataclass(frozen=True)
class CountPlan:
    """The shape of a kernel that counts.

    Attributes:
        workgroup: invocations in a workgroup.
        share: vectors of four words that a workgroup takes.
        workgroups: the number of workgroups.
        slots: counters in workgroup memory.
        copies: the copies of each bin among them; 0 if there are too many bins.
        cached: the most edges of bins in workgroup memory; 0 if there are too many, or none.
    """

    workgroup: int
    share: int
    workgroups: int
    slots: int
    copies: int
    cached: int


def plan_count(scalar: Scalar, length: int, bins: int, capabilities: Capabilities, *, edged: bool) -> CountPlan:
    """Return how elements are counted.

    Args:
        scalar: the kind of element.
        length: the number of elements.
        bins: the number of bins, 1 or more.
        capabilities: the device's.
        edged: True if edges say which bin an element belongs to.
    """
    h = counting_heuristics_for(capabilities.adapter_type)
    room = capabilities.limits["max-compute-workgroup-storage-size"] // 4 - _OTHER_WORDS
    cached = h.cached_edges if edged and bins < h.cached_edges and h.cached_edges * scalar.words <= room // 2 else 0
    room -= cached * scalar.words
    # Few numbers of counters, so that few shaders are compiled.
    step = max(1, (1 << (bins - 1).bit_length()) // _COUNTER_STEPS)
    slots = max(min(h.counters, room), -(-bins // step) * step)
    copies = 1 << (min(h.max_copies, slots // bins).bit_length() - 1) if slots <= room else 0
    if not copies:
        # Each counter also has a word that says which bin it counts.
        slots = min(h.shared_counters, 1 << ((room // 2).bit_length() - 1))
    workgroup = min(h.count_workgroup, capabilities.limits["max-compute-invocations-per-workgroup"])
    vectors = -(-length * scalar.bits // 128)
    share = min(max(h.min_share, -(-vectors // h.count_workgroups)), h.max_vectors * workgroup)
    return CountPlan(workgroup, share, -(-vectors // share), slots, copies, cached)


@dataclass(frozen=True)
class SelectRound:
    """One round of a selection.

    Attributes:
        length: the keys or candidates of a row.
        items: the keys or candidates that one invocation takes.
        tiles: the tiles of a row.
    """

    length: int
    items: int
    tiles: int


@dataclass(frozen=True)
class SelectPlan:
    """A plan to select the first keys of each row.

    Attributes:
        workgroup: the invocations of a workgroup.
        rounds: the rounds. The last one has one tile for each row.
    """

    workgroup: int
    rounds: tuple[SelectRound, ...]


def plan_select(scalar: Scalar, row_length: int, kept: int, capabilities: Capabilities) -> SelectPlan | None:
    """Return a plan to select the first `kept` keys of each row; None if `kept` is so large that a sort is better.

    Args:
        scalar: the kind of key.
        row_length: the keys in a row.
        kept: how many are wanted, 1 or more.
        capabilities: the device's.
    """
    h = counting_heuristics_for(capabilities.adapter_type)
    workgroup = min(h.select_workgroup, capabilities.limits["max-compute-invocations-per-workgroup"])
    choices = [max(1, words // scalar.words) for words in h.select_items]
    most = choices[-1]
    if kept > h.max_kept * min(workgroup * most, row_length):
        return None
    rounds = []
    length = row_length
    while True:
        items = next((each for each in choices if each * workgroup >= length), most)
        tiles = -(-length // (items * workgroup))
        rounds.append(SelectRound(length, items, tiles))
        if tiles == 1:
            return SelectPlan(workgroup, tuple(rounds))
        length = tiles * kept
