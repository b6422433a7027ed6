"""Describe the parts that a kernel is composed of: frozen values, each about one question."""

from __future__ import annotations

from dataclasses import dataclass

# The 32-bit words at the start of the tile state: ticket, timeout, subgroup size, loop limit, folding, frontier.
# See shaders/shared/tile_state.wgsl.
STATE_HEADER_WORDS = 6

# The word that holds the epoch of a run in which a tile timed out.
STATUS_WORD = 1

# The word that holds the epoch of a run in which subgroups had another size than planned.
SUBGROUP_SIZE_WORD = 2

# The word that holds the epoch of a run in which a loop of the operator's WGSL did not end.
LOOP_LIMIT_WORD = 3


@dataclass(frozen=True)
class Placement:
    """Describe how the caller's arrays are placed in their buffers.

    Attributes:
        width: the 32-bit words of the widest access that the buffers' offsets allow: 4, 2 or 1.
        exact: the bytes after the destination's end belong to someone else and are not written. Otherwise stores may
            fill the last 16 bytes.
        shared: a source and a destination are in one buffer, so sources are bound as destinations are.
        in_place: each destination is its source, bound once.
        views: for each source and then for each destination, how the shader finds the array's words in its buffer:
            ``""`` for an array that is bound where it begins; ``"offset"`` for one that begins elsewhere; ``"rows"``
            for one with rows that are also apart; ``"repeated_rows"`` and ``"repeated_elements"`` for one that repeats
            its rows or its elements; ``"one_element"`` for one that repeats a single element. The tuple is empty if
            all are ``""``. The numbers are parameters of a run.
    """

    width: int = 4
    exact: bool = False
    shared: bool = False
    in_place: bool = False
    views: tuple[str, ...] = ()


@dataclass(frozen=True)
class Access(Placement):
    """Describe how a shader reads and writes arrays that are placed so. `width` may be less than the offsets allow.

    Attributes:
        several_rows: there are several rows, which are contiguous in memory.
        whole_chunks: each of several rows is whole chunks, so that a row begins and ends with a chunk.
        whole_results: the results of a chunk of columns are whole words, which an invocation stores together.
        reversed_together: several rows are read backwards as one row.
        unaligned_sizes: the sizes of elements, in bytes, with which chunks begin and end within 32-bit words, which
            neighbouring invocations share.
        recomputes_scan: chunks are scanned once for their totals and again where they are stored, and kept in their
            storage form in between. Narrow numbers take up to four times the registers once they are widened.
        via_workgroup_memory: elements that take several accesses go through workgroup memory, so that the lanes of a
            subgroup access neighbouring words.
    """

    several_rows: bool = False
    whole_chunks: bool = False
    whole_results: bool = False
    reversed_together: bool = False
    unaligned_sizes: tuple[int, ...] = ()
    recomputes_scan: bool = False
    via_workgroup_memory: bool = False


@dataclass(frozen=True)
class Target:
    """Describe what a device's shaders may use and rely on.

    Attributes:
        native_int64: shaders may have 64-bit integers.
        int64_atomics: 64-bit atomics have every operation.
        packs_halves: WGSL's packing of 16-bit floats rounds as NumPy does.
        enables_subgroups: the compiler wants the line ``enable subgroups;``.
        is_cpu_adapter: the adapter is the CPU.
        driver_ends_loops: the driver ends long loops silently, or may.
        starts_in_order: workgroups start in the order of their numbers, so tiles need no tickets.
    """

    native_int64: bool = False
    int64_atomics: bool = False
    packs_halves: bool = False
    enables_subgroups: bool = False
    is_cpu_adapter: bool = False
    driver_ends_loops: bool = False
    starts_in_order: bool = False


@dataclass(frozen=True)
class WaitPolicy:
    """Describe how a tile waits for its prefix.

    Attributes:
        spins_per_round: polls in a round of waiting.
        first_spins: polls in the first round of a wait under fallback, where one workgroup folds for all.
        pauses: divisions that pass the time between two polls.
        one_workgroup_folds: one waiting workgroup at a time computes the prefixes of all tiles.
        in_rounds: all subgroups of the workgroup that folds take part, each with a block in each round.
        at_once: a tile looks at all tiles before it at once.
        chained: a tile of columns waits for the prefix that the tile above posts, and looks no further back.
    """

    spins_per_round: int
    first_spins: int
    pauses: int = 0
    one_workgroup_folds: bool = False
    in_rounds: bool = False
    at_once: bool = False
    chained: bool = False


@dataclass(frozen=True)
class InjectedFaults:
    """Describe what a test build does to its own tiles.

    Attributes:
        withheld_period: one of this many tiles never posts; 0 if all post.
        scheduler: play a hostile scheduler: ``"random"``, ``"serial"`` or ``"bursts"``; ``""`` plays none. See
            shaders/shared/hostile_scheduler.wgsl.
        prefix_period: in scans of columns, only one of this many tiles posts the prefix of the next tile, except that
            one column always does, so that tiles look far back; 0 if all post.
    """

    withheld_period: int = 0
    scheduler: str = ""
    prefix_period: int = 0

    @property
    def needs_tickets(self) -> bool:
        """True if the scheduler decides by tickets which tile a workgroup takes."""
        return self.scheduler in ("serial", "bursts")


NO_FAULTS = InjectedFaults()


@dataclass(frozen=True)
class PostFormat:
    """Describe the words of a tile's post; see shaders/shared/posts.wgsl. Each of them carries the epoch.

    Attributes:
        item_words: the 32-bit words of the item that is posted.
        in_64_bits: a word has 64 bits, 32 of them of the item. Otherwise a word has 32 bits, 16 of them of the item.
        stride: the words from one word of a post to the next; see shaders/shared/tile_state.wgsl.
    """

    item_words: int
    in_64_bits: bool
    stride: int

    @property
    def words(self) -> int:
        """The number of words of a post."""
        return self.item_words * (1 if self.in_64_bits else 2)

    @property
    def payload_bits(self) -> int:
        """The bits of the item in a word. The epoch is above them."""
        return 32 if self.in_64_bits else 16


@dataclass(frozen=True)
class Fold:
    """Describe how a workgroup folds the aggregates of all tiles; see shaders/scan/fold_ahead.wgsl.

    Attributes:
        blocks: the blocks of aggregates that it reads at a time.
        reads_ahead: it reads the next block's aggregates while it scans one.
    """

    blocks: int
    reads_ahead: bool


@dataclass(frozen=True)
class BoundArray:
    """Describe a storage buffer as a shader declares it.

    Attributes:
        name: its name in the shader.
        binding: the number of its binding.
        access: ``"read"`` or ``"read_write"``.
        width: the 32-bit words of one access.
        atomic: its words are atomics.
        view: as in `Placement.views`.
        number: the array's number among all sources and destinations.
    """

    name: str
    binding: int
    access: str
    width: int = 1
    atomic: bool = False
    view: str = ""
    number: int = 0
