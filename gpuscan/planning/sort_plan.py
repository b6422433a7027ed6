"""Decide how rows are sorted on a device: by exchanges in one workgroup, or by a radix sort over tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuscan.elements import Scalar
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel_parts import NO_FAULTS, STATE_HEADER_WORDS, InjectedFaults, Target, WaitPolicy
from gpuscan.planning.key_heuristics import SortHeuristics, sort_heuristics_for
from gpuscan.planning.plan import target_of, wait_bounds
from gpuscan.sizes import reveal

# The fewest lanes that a vendor's compilers choose for a subgroup, and the fewest for GPUs of other vendors.
_FEWEST_LANES = {"NVIDIA": 32, "AMD": 32, "Apple": 32, "Intel": 8}
_FEWEST_LANES_ANYWHERE = 4
# The invocations of a workgroup that writes counted keys, and the words that each writes. Not measured against others.
REPEATING_WORKGROUP = 256
REPEATED_WORDS = 4
# The keys of one byte that such a workgroup writes. Shorter rows are not sorted by counting.
REPEATED_KEYS = 4 * REPEATED_WORDS * REPEATING_WORKGROUP
# The words of workgroup memory that a sort of rows needs once: two flags.
ROW_WORDS = 2
# A tile's count of a digit is posted in 16 bits.
_MOST_COUNTED = 0xFFFF
# The words of workgroup memory that a ranking by subgroups needs once: the number of subgroups, and a word for counts
# that are not read.
_RANKING_WORDS = 2
# The words of workgroup memory that a single pass needs once, not for each digit: the ticket, the outcome, and the lock
# of a hostile scheduler.
_SINGLE_PASS_WORDS = 8
# The words of workgroup memory for the counters of all digits, at most: half of what every adapter has.
_COUNTER_WORDS = 2048


@dataclass(frozen=True)
class DigitKernel:
    """Describe how tiles learn, in a single pass for each digit, where their elements belong.

    Attributes that `gpuscan.planning.kernel.Kernel` has too mean the same here: the templates under shaders/shared/
    read both.

    Attributes:
        strategy: ``"lookback"`` or ``"fallback"``.
        block: tiles that a look covers, and for which a sum is posted.
        subgroups: True if the shader uses subgroup operations.
        target: what the device's shaders may use and rely on.
        wait_policy: how a tile waits.
        test_build: faults that a test injects.
    """

    strategy: str
    block: int
    subgroups: bool
    target: Target
    wait_policy: WaitPolicy
    test_build: InjectedFaults

    @property
    def tiles_by_number(self) -> bool:
        """True if each workgroup takes the tile of its own number."""
        return self.target.starts_in_order and not self.test_build.needs_tickets

    @property
    def header_words(self) -> int:
        """The 32-bit words before the posts."""
        return STATE_HEADER_WORDS


@dataclass(frozen=True)
class TileSort:
    """The shape of a radix sort over tiles.

    Attributes:
        radix_bits: bits of a digit.
        digits: digits of a key, the lowest first.
        workgroup: invocations in a workgroup; one workgroup sorts one tile.
        groups: the most subgroups of a workgroup; without subgroups, the invocations.
        subgroups: True if the lanes of a subgroup rank their elements together.
        tile_size: elements of a tile.
        tiles_per_row: tiles of a row; a tile has elements of one row only.
        tiles: tiles of all rows.
        batches: with subgroups, the number of batches in which a tile is stored once it is in order.
        copies: copies of the counters of a workgroup that counts digits.
        kernel: how tiles learn where their elements belong in a single pass; None in three dispatches.
        spin_rounds: the bound of a wait in a single pass, in rounds of the kernel's spins.
        tiles_per_workgroup: tiles of a workgroup that counts the values of all digits before single passes.
        repeats: True to count the keys and write each as often as it is there, without moving any.
    """

    radix_bits: int
    digits: int
    workgroup: int
    groups: int
    subgroups: bool
    tile_size: int
    tiles_per_row: int
    tiles: int
    batches: int
    copies: int
    kernel: DigitKernel | None = None
    spin_rounds: int = 0
    tiles_per_workgroup: int = 1
    repeats: bool = False

    @property
    def strategy(self) -> str:
        """How tiles learn where their elements belong."""
        return "three_dispatch" if self.kernel is None else self.kernel.strategy

    @property
    def items(self) -> int:
        """The elements of an invocation, at most."""
        return -(-self.tile_size // self.workgroup)

    @property
    def counts(self) -> int:
        """The number of counts: one for each value of a digit and each tile."""
        return self.tiles << self.radix_bits

    @property
    def bases(self) -> int:
        """The number of places where the elements of a row with a value of a digit begin."""
        return self.tiles // self.tiles_per_row * self.digits << self.radix_bits

    @property
    def state_bytes(self) -> int:
        """The size in bytes of the tile state of a single pass: a word for each count, and two for each block's sum."""
        assert self.kernel is not None
        # A tile of the first block looks at that block's sum, which may not be there.
        blocks = self.tiles // self.tiles_per_row * (self.tiles_per_row // self.kernel.block) + 1
        return 4 * (STATE_HEADER_WORDS + ((self.tiles + 2 * blocks) << self.radix_bits))


@dataclass(frozen=True)
class RowSort:
    """The shape of a sort in which each workgroup sorts whole rows.

    Attributes:
        log_capacity: elements that fit the workgroup's memory, as a power of 2.
        log_items: elements that an invocation exchanges at a time, as a power of 2.
        levels: the places of a row in workgroup memory, as a power of 2.
        workgroups: the number of workgroups.
        unrolls: True if the shader repeats the text of an exchange, and has no loop.
    """

    log_capacity: int
    log_items: int
    levels: int
    workgroups: int
    unrolls: bool

    @property
    def rows(self) -> int:
        """The rows of one workgroup."""
        return 1 << (self.log_capacity - self.levels)

    @property
    def workgroup(self) -> int:
        """The invocations in a workgroup: each has `log_items` elements."""
        return 1 << (self.log_capacity - self.log_items)

    @property
    def exchanges(self) -> tuple[tuple[int, int, bool], ...]:
        """The exchanges that merge halves, where elements of an invocation differ in `log_items` bits of their places.

        Each is the lowest of these bits, the bit of these by which elements are exchanged first, and True if the halves
        of a level are mirrored. Bits below follow.
        """
        exchanges = []
        for level in range(self.log_items + 1, self.levels + 1):
            bits = level
            while bits:
                bit = min((bits - 1) // self.log_items * self.log_items, self.log_capacity - self.log_items)
                exchanges.append((bit, bits - 1 - bit, bits == level))
                bits = bit
        return tuple(exchanges)


def fewest_lanes(capabilities: Capabilities) -> int:
    """Return the fewest lanes of a subgroup for which shaders need counters.

    A compiler may choose another size for each shader than the probe saw. A workgroup has counters for
    as many subgroups as there can be, so that a sort is right whatever the compiler chooses.
    """
    seen = min(capabilities.subgroup_sizes)
    if capabilities.adapter_type == "CPU":
        return seen
    return min(seen, _FEWEST_LANES.get(capabilities.vendor, _FEWEST_LANES_ANYWHERE))


def plan_row_sort(
    scalar: Scalar, rows: int, row_length: int, capabilities: Capabilities, *, with_payload: bool = False
) -> RowSort | None:
    """Return how workgroups sort whole rows, or None if rows are too long for that.

    Args:
        scalar: the type of the keys.
        rows: the number of rows, 1 or more.
        row_length: the keys in a row, 1 or more.
        with_payload: True if each key takes its index along, or words.
    """
    h = sort_heuristics_for(capabilities.adapter_type)
    levels: int = reveal(max(1, (row_length - 1).bit_length()))
    log_items = min(h.log_row_items, levels)
    words = capabilities.limits["max-compute-workgroup-storage-size"] // 4 - ROW_WORDS
    fitting = min(words, capabilities.limits["max-compute-invocations-per-workgroup"] << log_items)
    log_fitting = fitting.bit_length() - 1
    if row_length > h.max_row_length // scalar.words or levels > log_fitting:
        return None
    log_capacity = max(levels, min(h.log_row_capacity, log_fitting))
    is_word = scalar.packed or (scalar.words == 1 and not with_payload)
    return RowSort(log_capacity, log_items, levels, -(-rows >> (log_capacity - levels)), h.unrolls_rows and is_word)


def plan_sort(
    scalar: Scalar,
    rows: int,
    row_length: int,
    capabilities: Capabilities,
    *,
    with_payload: bool = False,
    payload_words: int = 1,
    strategy: str = "three_dispatch",
    subgroups: bool | None = None,
    tile_size: int | None = None,
    test_build: InjectedFaults = NO_FAULTS,
) -> TileSort:
    """Return how rows are sorted by tiles.

    Args:
        scalar: the type of the keys.
        rows: the number of rows, 1 or more.
        row_length: the keys in a row, 1 or more.
        with_payload: True if each key takes its index along, or words.
        payload_words: the words that it takes along, 1 or 2.
        strategy: how tiles learn where their elements belong: ``"three_dispatch"``, ``"lookback"`` or ``"fallback"``.
            Rows of few tiles take three dispatches, and so does what does not fit a binding.
        subgroups: True to rank tiles by subgroups (default: on GPUs that have subgroups).
        tile_size: the elements of a tile, to sort by tiles, and by the strategy, whatever the length.
        test_build: faults that a test injects.
    """
    h = sort_heuristics_for(capabilities.adapter_type)
    memory = capabilities.limits["max-compute-workgroup-storage-size"]
    max_invocations = capabilities.limits["max-compute-invocations-per-workgroup"]
    if subgroups is None:
        subgroups = h.subgroups and bool(capabilities.subgroup_sizes)
    radix_bits = h.radix_bits if subgroups else h.serial_radix_bits
    wanted_size = h.workgroup_with_payload if with_payload else h.workgroup
    workgroup = min(wanted_size if subgroups else h.serial_workgroup, max_invocations)
    batches = h.batches_with_payload if with_payload else h.batches
    if subgroups:
        # The counters share memory with the keys of a batch. A ranking needs up to two more words for each value of a
        # digit, and a single pass another one.
        words = memory // 4 - _RANKING_WORDS - (2 << radix_bits)
        if strategy != "three_dispatch":
            words -= _SINGLE_PASS_WORDS + (1 << radix_bits)
        groups = max(1, workgroup // fewest_lanes(capabilities))
        while groups > 1 and max(groups << radix_bits, workgroup * scalar.words) > words:
            workgroup, groups = workgroup // 2, groups // 2
        batches *= payload_words
        fitting = words // max(scalar.words, payload_words) // workgroup * workgroup * batches
    else:
        groups, fitting = workgroup, workgroup * h.serial_items
    if tile_size is None:
        items = max(1, (h.items_with_payload if with_payload else h.items) // scalar.words)
        max_items = items if subgroups else h.serial_items
        least = workgroup * min(max_items, h.min_items)
        wanted = -(-rows * row_length // h.min_tiles)
        tile_size = min(fitting, workgroup * max_items, max(least, -(-wanted // workgroup) * workgroup))
        if -(-row_length // tile_size) < h.min_single_pass_tiles:
            strategy = "three_dispatch"
    tiles_per_row = -(-row_length // tile_size)
    bits = 1 if scalar.kind == "bool" else scalar.bits
    digits = -(-bits // radix_bits)
    tiles = rows * tiles_per_row
    shape = radix_bits, digits, workgroup, groups, subgroups, tile_size, tiles_per_row, tiles
    plan = TileSort(*shape, batches, h.copies)
    if scalar.bits == 8 and scalar.kind != "bool" and not with_payload and digits == 1 and row_length >= REPEATED_KEYS:
        return replace(plan, tiles_per_workgroup=max(1, min(h.tiles_per_workgroup, tiles // h.min_tiles)), repeats=True)
    return _in_single_passes(plan, strategy, capabilities, h, test_build)


def _in_single_passes(
    plan: TileSort, strategy: str, capabilities: Capabilities, h: SortHeuristics, test_build: InjectedFaults
) -> TileSort:
    """Return the plan with a single pass for each digit, or as it is if it takes three dispatches."""
    if strategy == "three_dispatch" or plan.tile_size > _MOST_COUNTED:
        return plan
    rounds, policy = wait_bounds(strategy, capabilities)
    kernel = DigitKernel(strategy, h.block, plan.subgroups, target_of(capabilities), policy, test_build)
    single = replace(
        plan,
        kernel=kernel,
        spin_rounds=rounds,
        tiles_per_workgroup=max(1, min(h.tiles_per_workgroup, plan.tiles // h.min_tiles)),
        copies=max(1, min(plan.copies, _COUNTER_WORDS // (plan.digits << plan.radix_bits))),
    )
    largest = max(single.state_bytes, 4 * (4 + single.bases), 24 * plan.digits + 4 * single.bases)
    return single if largest <= capabilities.limits["max-storage-buffer-binding-size"] else plan
