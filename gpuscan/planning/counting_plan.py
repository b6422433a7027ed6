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
# How often a counter of a part's elements may count in a tile: see shaders/counting/divide_bins.wgsl.
_MOST_IN_COUNTER = 1 << 10
# Words of workgroup memory for each invocation that counts parts: see shaders/counting/count_parts.wgsl.
_RANGE_WORDS = 3


@dataclass(frozen=True)
class BinParts:
    """How bins are divided among parts that are counted one by one.

    Attributes:
        parts: the number of parts.
        part_bins: the bins of a part.
        copies: the counters of each part in a workgroup that divides.
        workgroup: invocations in a workgroup that divides.
        vectors: vectors of four words that each of these invocations takes.
        tile: the elements of a workgroup that divides.
        tiles: the number of workgroups that divide.
        counting_workgroup: invocations in a workgroup that counts.
        lanes: invocations of such a workgroup that take the elements of a tile together, at least.
        at_once: words of two elements that an invocation loads at a time.
        workgroups: the number of workgroups that count, at most.
    """

    parts: int
    part_bins: int
    copies: int
    workgroup: int
    vectors: int
    tile: int
    tiles: int
    counting_workgroup: int
    lanes: int
    at_once: int
    workgroups: int


@dataclass(frozen=True)
class CountPlan:
    """How elements are counted.

    Attributes:
        workgroup: invocations in a workgroup.
        share: vectors of four words that a workgroup takes.
        workgroups: the number of workgroups.
        slots: counters in workgroup memory; 0 to count in storage.
        copies: the copies of each bin among them.
        cached: the most edges of bins in workgroup memory; 0 if there are too many, or none.
        divided: the parts that bins are divided among; None if one workgroup has counters for all of them, or if parts
            would be slower than counts in storage. With parts, the attributes above are not used.
    """

    workgroup: int
    share: int
    workgroups: int
    slots: int
    copies: int
    cached: int
    divided: BinParts | None = None


def plan_count(scalar: Scalar, length: int, bins: int, capabilities: Capabilities, *, edged: bool) -> CountPlan:
    """Return how elements are counted.

    Args:
        scalar: the type of the elements.
        length: the number of elements.
        bins: the number of bins, 1 or more.
        edged: True if edges say which bin an element belongs to.
    """
    h = counting_heuristics_for(capabilities.adapter_type)
    free_words = capabilities.limits["max-compute-workgroup-storage-size"] // 4 - _OTHER_WORDS
    cached = (
        h.cached_edges if edged and bins < h.cached_edges and h.cached_edges * scalar.words <= free_words // 2 else 0
    )
    free_words -= cached * scalar.words
    # Few numbers of counters, so that few shaders are compiled.
    step = max(1, (1 << (bins - 1).bit_length()) // _COUNTER_STEPS)
    slots = max(min(h.counters, free_words), -(-bins // step) * step)
    divided = None
    if slots > free_words:
        slots = 0
        divided = _plan_parts(scalar, length, bins, capabilities)
    copies = 1 << (min(h.max_copies, slots // bins).bit_length() - 1) if slots else 0
    workgroup = min(h.count_workgroup, capabilities.limits["max-compute-invocations-per-workgroup"])
    vectors = -(-length * scalar.bits // 128)
    wanted = h.few_count_workgroups if slots and bins > h.few_bins else h.count_workgroups
    share = min(max(h.min_share, -(-vectors // wanted)), h.max_vectors * workgroup)
    return CountPlan(workgroup, share, -(-vectors // share), slots, copies, cached, divided)


def _plan_parts(scalar: Scalar, length: int, bins: int, capabilities: Capabilities) -> BinParts | None:
    """Return how bins are divided among parts; None if there are too many bins, or too few elements or too many."""
    h = counting_heuristics_for(capabilities.adapter_type)
    limits = capabilities.limits
    most = limits["max-compute-invocations-per-workgroup"]
    memory = limits["max-compute-workgroup-storage-size"] // 4 - _OTHER_WORDS
    counting = min(h.count_workgroup, most)
    part_bins = 1 << (min(h.part_bins, memory - h.max_parts - _RANGE_WORDS * counting).bit_length() - 1)
    parts = -(-bins // part_bins)
    # The places of elements in their parts take 16 bits each.
    if parts > h.max_parts or not h.min_divided <= length <= limits["max-storage-buffer-binding-size"] // 2:
        return None
    vectors = max(1, h.divided_bits // 128 * scalar.bits // 32)
    items = vectors * 128 // scalar.bits
    workgroup = min(h.divide_workgroup, most)
    while h.part_counters + workgroup * (items // 2 + 3) > memory:
        workgroup //= 2
    tile = workgroup * items
    copies = max(tile // _MOST_IN_COUNTER, min(h.max_copies, 1 << ((h.part_counters // parts).bit_length() - 1)))
    workgroups = max(h.part_workgroups, 2 * parts)
    return BinParts(
        parts,
        part_bins,
        copies,
        workgroup,
        vectors,
        tile,
        -(-length // tile),
        counting,
        h.part_lanes,
        h.parts_at_once,
        workgroups,
    )


@dataclass(frozen=True)
class SelectRound:
    """One round of a selection.

    Attributes:
        length: the keys or candidates of a row.
        items: the keys or candidates that one invocation takes.
        tiles: the tiles of a row.
        stride: the distance between two tiles, in tiles.
    """

    length: int
    items: int
    tiles: int
    stride: int = 1


@dataclass(frozen=True)
class SelectPlan:
    """A plan to select the first keys of each row.

    Attributes:
        workgroup: the invocations of a workgroup.
        sample: rounds that select from a few tiles, and find a key that no key of the result exceeds; perhaps none.
        rounds: the rounds. The last one has one tile for each row.
    """

    workgroup: int
    sample: tuple[SelectRound, ...]
    rounds: tuple[SelectRound, ...]


def plan_select(scalar: Scalar, row_length: int, kept: int, capabilities: Capabilities) -> SelectPlan | None:
    """Return a plan to select the first `kept` keys of each row; None if `kept` is so large that a sort is better."""
    h = counting_heuristics_for(capabilities.adapter_type)
    workgroup = min(h.select_workgroup, capabilities.limits["max-compute-invocations-per-workgroup"])
    choices = [max(1, words // scalar.words) for words in h.select_items]
    most = choices[-1]
    if kept > h.max_kept * min(workgroup * most, row_length):
        return None

    def add_rounds(rounds: list[SelectRound], length: int) -> tuple[SelectRound, ...]:
        """Return the rounds, and then rounds that select from `length` candidates."""
        while not rounds or rounds[-1].tiles > 1:
            items = next((choice for choice in choices if choice * workgroup >= length), most)
            rounds.append(SelectRound(length, items, -(-length // (items * workgroup))))
            length = rounds[-1].tiles * kept
        return tuple(rounds)

    tiles = -(-row_length // (workgroup * most))
    sample: tuple[SelectRound, ...] = ()
    if tiles >= h.min_sampled_tiles:
        first = SelectRound(row_length, most, -(-tiles // h.sample_stride), h.sample_stride)
        sample = add_rounds([first], first.tiles * kept)
    return SelectPlan(workgroup, sample, add_rounds([], row_length))
