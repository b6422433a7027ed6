"""One shader as a value: which stage it is, of which tile shape, over which element. The templates read it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING

from gpuscan.codegen import load_store as chunk_access
from gpuscan.codegen import number_formats as forms
from gpuscan.elements import LEAF, Element, Field, Structure
from gpuscan.operators.user_wgsl import label
from gpuscan.operators.wgsl_arithmetic import Text, wrapped
from gpuscan.planning.tile_shapes import ColumnTile, TileShape

if TYPE_CHECKING:
    from gpuscan.operators.code import Code

SPINS_PER_ROUND = 4096  # long waits are loops of short ones
STATE_HEADER_WORDS = 6  # ticket, status, width, turns, folding, frontier: see shaders/parts/tile_state.wgsl, turns.wgsl
STATUS_WORD = 1
WIDTH_WORD = 2
TURNS_WORD = 3
MOST_TURNS = 1 << 16  # of the loops of an operator's WGSL, in one combination
MOST_SOFTWARE_TURNS = 50_000  # on CPU adapters, in all combinations of an invocation
BLOCKS_AHEAD = 2  # that a fold reads at a time; 4 are 1 to 6 % slower on an H100
LONG_BLOCKS_AHEAD = 1  # of vectors, matrices and operators whose code is long, which stands there for each
WIDE_WORDS = 3  # of an item, from which on it is wide; measured on an H100
UNROLLED_WORDS = 16  # of an item, at most, whose scan over a block stands at each distance, for speed
UNROLLED_WORDS_AHEAD = 9  # the same under look-ahead, where 16 take long to compile


def stored_element(element: Element, held: Field) -> Element:
    """A tuple of the element's fields and of the one that is held until the store."""
    fields = (*element.fields, held)
    renamed = tuple(replace(field, name=f"f{i}") for i, field in enumerate(fields))
    return Element(renamed, Structure("tuple", tuple(range(len(fields))), (LEAF,) * len(fields)))


@dataclass(frozen=True)
class BoundArray:
    """A storage buffer as a shader declares it."""

    name: str
    binding: int
    access: str
    vector: str = "u32"


@dataclass(frozen=True)
class Kernel:
    """All that decides the text of one shader.

    Attributes:
        stage: ``"scan"``, ``"reduce"``, ``"scan_totals"`` or ``"carry"``: the template of that name.
        strategy: how a tile learns its prefix; ``"alone"`` where it has none, since it holds whole rows.
        source, element, destination: what is loaded, combined, and stored.
        combine, before, after: the operator's code and the maps fused into load and store.
        tile: the tile's shape.
        reverse, exclusive: as the user asked.
        initial: every row's first element is combined with a seed; `seeded` also where an exclusive scan needs one.
        segmented: items carry a head flag: the array has several rows that share tiles, or segments.
        marked: where segments begin lies in a buffer, a bit for each element.
        ends: of each row only the last result is stored.
        moves: the first source field is a mask, whose sum is scanned; the other fields of the elements that it picks
            are stored one after the other.
        carried: a carry of an earlier piece comes before the first tile.
        carry_out: the carry for the next piece is written.
        shared: sources lie in a destination's buffer, so they are bound as destinations are.
        in_place: each destination is its source, bound once.
        exact: not one byte past the end is written; else up to the end of the last 16.
        straddling: sizes of elements, in bytes, whose one row ends within a word: read backwards, its chunks begin
            and end within words, and neighbours share those.
        whole_chunks: of several rows each is whole chunks, so that a row begins with a chunk, and ends with one.
        shifts: for each source field, where in the order of the scan its element is taken from: -1, one before (zero
            before a row's first), 0, or 1, one after, which is not combined but handed to `after` (`tails` after a
            row's last); left out, all 0.
        tails: there is a value for each row that comes after its last element; else it is zero.
        width: 32-bit words that one load or store may take (4, 2 or 1).
        native_int64, int64_atomics, packs_halves, dawn: what the device's shaders may use.
        software, leaves_loops: the adapter is the CPU; its driver leaves long loops by force, or may.
        spins_per_round, pauses: polls in a round of waiting, and divisions that pass the time between two polls.
        first_spins: polls in the first round of a wait under fallback, where one folds for all.
        looks: posts that a lane reads at a time where it walks a column of tiles.
        many: tiles are so many that one folds for all under lookback and fallback, as under lookahead.
        in_order: workgroups start in the order of their numbers, so that these say who has which tile, not tickets.
        rescans: chunks are scanned once for their totals, and again where they are stored; what is kept between is what
            was loaded, since narrow numbers take up to four times the registers as soon as they are numbers.
        staged: elements that take several accesses to storage go through workgroup memory, so that lanes access
            neighbours.
        withhold: leave out the post of every tile of this period (0: none); a test build.
        scheduler: play a hostile one (see shaders/parts/scheduler.wgsl); "" for the adapter's own; a test build.
    """

    stage: str
    strategy: str
    source: Element
    element: Element
    destination: Element
    operator_name: str
    combine: Code
    tile: TileShape | ColumnTile
    before: Code | None = None
    after: Code | None = None
    reverse: bool = False
    exclusive: bool = False
    initial: bool = False
    segmented: bool = False
    marked: bool = False
    ends: bool = False
    moves: bool = False
    carried: bool = False
    carry_out: bool = False
    shared: bool = False
    in_place: bool = False
    exact: bool = False
    straddling: tuple[int, ...] = ()
    whole_chunks: bool = False
    shifts: tuple[int, ...] = ()
    tails: bool = False
    width: int = 4
    native_int64: bool = False
    int64_atomics: bool = False
    packs_halves: bool = False
    dawn: bool = False
    withhold: int = 0
    scheduler: str = ""
    spins_per_round: int = SPINS_PER_ROUND
    pauses: int = 0
    first_spins: int = SPINS_PER_ROUND
    software: bool = False
    leaves_loops: bool = False
    looks: int = 4
    many: bool = False
    in_order: bool = False
    rescans: bool = False
    staged: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Taken once: a kernel is looked up at every dispatch."""
        return hash(tuple(getattr(self, each.name) for each in fields(self)))

    # ----- What the templates ask

    @property
    def template(self) -> str:
        """The template of the stage."""
        return f"columns_{self.stage}.wgsl" if self.in_columns else f"{self.stage}.wgsl"

    @property
    def operator_label(self) -> str:
        """The operator's name for comments and labels."""
        return label(self.operator_name)

    @property
    def in_columns(self) -> bool:
        """Whether neighbours in memory belong to different rows."""
        return isinstance(self.tile, ColumnTile)

    @property
    def backwards(self) -> bool:
        """Whether a chunk is read from its end."""
        return self.reverse and not self.in_columns

    @property
    def several_rows(self) -> bool:
        """Whether rows lie one after the other; where they are read backwards, each is, from the first row on."""
        return self.tile.per_row or (self.segmented and not self.marked)

    @property
    def single_head(self) -> bool:
        """Whether the shader counts on it that no row begins within a chunk.

        An H100 then takes 5 to 15 % less where rows share tiles, and half for 16-bit floats; for bundles of two arrays,
        which fill its registers, it takes a quarter more.
        """
        return self.tile.per_row or (self.whole_chunks and len(self.source.fields) == 1)

    @property
    def scattered(self) -> bool:
        """Whether each element is loaded and stored for itself: a chunk that is read backwards is of two rows."""
        return self.backwards and self.several_rows and not self.whole_chunks

    @property
    def subgroups(self) -> bool:
        return self.tile.subgroup_size > 0

    @property
    def seeded(self) -> bool:
        return self.initial or self.exclusive

    @property
    def item_words(self) -> int:
        """32-bit words of an item: the element's, and one for the head flag."""
        return self.element.words + (1 if self.segmented else 0)

    # ----- Posts: see parts/posts.wgsl

    @property
    def posts(self) -> bool:
        """Whether tiles post to each other, in words that carry the epoch; else the tile state is plain words."""
        return self.strategy not in ("three_dispatch", "alone")

    @property
    def long_posts(self) -> bool:
        """Whether tiles post in 64-bit words; else each word of an item goes in two halves.

        Where each tile looks back over single words halves are faster (905 beside 976 us, 2^28, H100), else long words.
        """
        single = self.item_words == 1 and self.strategy in ("lookback", "fallback")
        return self.int64_atomics and (self.folds or self.in_columns or not single)

    @property
    def post_words(self) -> int:
        """Words of a tile's post, each of which carries the epoch: as many as the item has, or halves of those."""
        return self.item_words * (1 if self.long_posts else 2)

    @property
    def tag_shift(self) -> int:
        return 32 if self.long_posts else 16

    @property
    def wide(self) -> bool:
        """Whether items have their posts interleaved, and scans through workgroup memory are loops.

        In a loop the operator stands once, and software adapters compile matrices in a third of the time; those of
        narrow items run a fifth slower.
        """
        return self.item_words >= WIDE_WORDS

    @property
    def no_tag(self) -> str:
        return "0lu" if self.long_posts else "0u"

    @property
    def post_stride(self) -> int:
        """Words from one word of a tile's post to the next: see parts/tile_state.wgsl."""
        return self.tile.block if self.wide else 1

    @property
    def block_in_subgroup(self) -> bool:
        """Whether one subgroup is wide enough to look at a block of tiles at once."""
        return self.tile.subgroup_size >= self.tile.block

    @property
    def folds(self) -> bool:
        """Whether a workgroup folds for all, and posts every tile's prefix: see parts/fold_ahead.wgsl."""
        return self.strategy == "lookahead" or self.many

    @property
    def blocks_ahead(self) -> int:
        """Blocks of aggregates that a fold reads at a time."""
        one_a_load = self.wide and self.tile.chunk == 1  # an element fills a lane's load
        return LONG_BLOCKS_AHEAD if one_a_load or self.combine.long else BLOCKS_AHEAD

    @property
    def reads_ahead(self) -> bool:
        """Whether a fold reads the next block's aggregates while it scans one; else as many blocks as it scans.

        Not where the fold changes hands: an H100 is 3 to 30 % slower under lookback, and a tenth under fallback.
        """
        return self.blocks_ahead == 1 and self.strategy == "lookahead"

    @property
    def rolled(self) -> bool:
        """Whether scans over lanes are loops, so that the operator stands there once, not at each distance.

        An H100 then compiles wide items and long operators in half the time, and is as fast; bytes, of which a lane
        takes more than of anything else, it compiles in two thirds, and is 1 % slower; of other single words it is 3 %
        slower on short arrays.
        """
        bytewise = min(field.storage_bytes for field in self.source.fields) == 1
        return bytewise or self.wide or self.combine.long

    @property
    def rolls_fold(self) -> bool:
        """Whether the scan over the lanes of a block is one too: not of wide items, where it is what tiles wait for.

        Of the widest it is: an H100 compiles 4x4 matrices under look-ahead in 0.7 of the time and is 5 % slower, as for
        5x5; for 6x6 and 8x8 it is 10 and 40 % faster. Where the fold changes hands, 4x4 would be 10 % slower.
        """
        most = UNROLLED_WORDS_AHEAD if self.strategy == "lookahead" else UNROLLED_WORDS
        return (self.combine.long and not self.wide) or self.item_words > most

    @property
    def most_turns(self) -> int:
        """Turns that an operator's loops may make: see parts/turns.wgsl."""
        return MOST_SOFTWARE_TURNS if self.software else MOST_TURNS

    @property
    def totals_fit_subgroup(self) -> bool:
        return self.tile.subgroups_per_workgroup <= self.tile.subgroup_size

    @property
    def uses_scratch(self) -> bool:
        """Whether some scan goes through workgroup memory."""
        return not self.subgroups or not self.totals_fit_subgroup or not self.block_in_subgroup

    @property
    def has_bools(self) -> bool:
        """Whether an item has bools, which do not lie in workgroup memory as they are.

        NVIDIA's compiler puts several to a word there, and writes of neighbours by several subgroups get lost.
        """
        return any(field.scalar.kind == "bool" for field in self.element.fields)

    @property
    def shared_item(self) -> str:
        """The WGSL type of an item in workgroup memory."""
        return "Words" if self.has_bools else "Item"

    def to_shared(self, item: str, convert: str = "item_to_words") -> str:
        """The expression of an item as it lies in workgroup memory."""
        return f"{convert}({item})" if self.has_bools else item

    def from_shared(self, shared: str, convert: str = "item_from_words") -> str:
        """The expression of an item that lies in workgroup memory."""
        return f"{convert}({shared})" if self.has_bools else shared

    @property
    def helps(self) -> bool:
        """Whether a fallback's workgroup lets go of its own tile while it reduces a late one, and loads it again.

        What is held meanwhile costs a GPU registers all the time (a tenth of an H100's speed). Software adapters hold
        it: their compilers take long over loops.
        """
        return self.strategy == "fallback" and self.stage == "scan" and self.block_in_subgroup and not self.in_columns

    @property
    def reduces(self) -> bool:
        return self.stage == "reduce" or (self.strategy == "fallback" and not self.helps)

    @property
    def keeps_storage(self) -> bool:
        """Whether an invocation keeps its chunks as they lie in storage while its tile waits: see `rescans`."""
        return self.rescans and self.stage == "scan" and self.subgroups

    @property
    def stages_chunks(self) -> bool:
        """Whether chunks go through workgroup memory between storage and invocations: see parts/staging.wgsl."""
        return self.staged and self.stage in ("scan", "reduce")

    @property
    def loads_apart(self) -> bool:
        """Whether a chunk's words are loaded first, and made elements of later."""
        return self.keeps_storage or self.stages_chunks

    @property
    def from_the_end(self) -> bool:
        """Whether the last tiles are scanned first: a GPU's cache still holds what the dispatch before read last."""
        return self.stage == "scan" and self.strategy == "three_dispatch" and not self.software

    @property
    def blocks_at_once(self) -> int:
        """Blocks of totals that scan_totals scans side by side, one to a subgroup."""
        return self.tile.subgroups_per_workgroup if self.block_in_subgroup else 1

    @property
    def helpers(self) -> tuple[str, ...]:
        """Functions of parts/arithmetic.wgsl that the operator and the maps call."""
        codes = [code for code in (self.combine, self.before, self.after) if code is not None]
        return tuple(dict.fromkeys(name for code in codes for name in code.helpers))

    @property
    def float_conversions(self) -> tuple[str, ...]:
        """Conversions of 16-bit floats that load and store call."""
        names = {"float16": "half", "bfloat16": "bfloat"}
        loaded = [f"{names[f.scalar.name]}_to_float" for f in self.source.fields if f.scalar.name in names]
        stored = [f"float_to_{names[f.scalar.name]}" for f in self.destination.fields if f.scalar.name in names]
        return tuple(dict.fromkeys(loaded + stored))

    # ----- Fields that are taken from a neighbour

    def shift_of(self, index: int) -> int:
        """Where a source field's element is taken from: see `shifts`."""
        return self.shifts[index] if self.shifts else 0

    @property
    def held(self) -> Field | None:
        """The source field that is not combined but handed to `after`."""
        return self.source.fields[self.shifts.index(1)] if 1 in self.shifts else None

    @property
    def stored(self) -> Element:
        """What `after` takes where a field is held: the combined element's fields, then that one."""
        assert self.held is not None
        return stored_element(self.element, self.held)

    # ----- Bindings: 0 parameters, 1 tile state, then sources, destinations, seeds, carries

    state_binding = 1

    @cached_property
    def sources(self) -> tuple[BoundArray, ...]:
        access = "read_write" if self.shared or self.in_place else "read"
        return tuple(
            BoundArray(f"source{i}", 2 + i, access, self._vector(self.field_width(field)))
            for i, field in enumerate(self.source.fields)
        )

    @cached_property
    def destinations(self) -> tuple[BoundArray, ...]:
        if self.stage != "scan":
            return ()
        if self.in_place:
            return self.sources
        start = 2 + len(self.source.fields)
        return tuple(
            BoundArray(f"destination{i}", start + i, "read_write", self._destination_vector(field))
            for i, field in enumerate(self.destination.fields)
        )

    @property
    def seed_binding(self) -> int:
        return 2 + len(self.source.fields) + len(self.destination.fields)

    @property
    def carry_binding(self) -> int:
        return self.seed_binding + 1

    @property
    def carry_out_binding(self) -> int:
        return self.carry_binding + 1

    @property
    def heads_binding(self) -> int:
        return self.carry_out_binding + 1

    @property
    def count_binding(self) -> int:
        return self.heads_binding

    @cached_property
    def arrays(self) -> tuple[BoundArray, ...]:
        """The sources and destinations, each once."""
        return tuple(dict.fromkeys((*self.sources, *self.destinations)))

    @cached_property
    def bindings(self) -> tuple[BoundArray, ...]:
        """Every storage buffer that the stage binds."""
        bound = [BoundArray("state", self.state_binding, "read_write")]
        if self.stage in ("scan", "reduce"):
            bound += self.arrays
            if self.seeded or self.tails:
                bound.append(BoundArray("seeds", self.seed_binding, "read"))
            if self.marked:
                bound.append(BoundArray("heads", self.heads_binding, "read"))
            if self.moves and self.destinations:
                bound.append(BoundArray("count", self.count_binding, "read_write"))
        if self.carried and (self.stage == "scan_totals" or self.strategy != "three_dispatch"):
            bound.append(BoundArray("carries", self.carry_binding, "read"))
        if self.carry_out and self.stage in ("scan_totals", "carry"):
            bound.append(BoundArray("carry_out", self.carry_out_binding, "read_write"))
        return tuple(bound)

    @cached_property
    def slots(self) -> tuple[tuple[int, str, int], ...]:
        """For each binding what goes there: its role, and which of the sources or destinations."""
        places = {array: ("destination", i) for i, array in enumerate(self.destinations)}
        places |= {array: ("source", i) for i, array in enumerate(self.sources)}
        return tuple((array.binding, *places.get(array, (array.name, 0))) for array in self.bindings)

    @cached_property
    def cleared(self) -> tuple[int, ...]:
        """The destinations that have to be zero before."""
        return tuple(i for i, field in enumerate(self.destination.fields) if self.shares_words(field))

    def _destination_vector(self, field: Field) -> str:
        if self.shares_words(field):
            return "atomic<u32>"
        return "u32" if self.ends or self.moves else self._vector(self.field_width(field))

    @staticmethod
    def _vector(width: int) -> str:
        return "u32" if width == 1 else f"vec{width}<u32>"

    def field_width(self, field: Field) -> int:
        """32-bit words that one access to the field's array takes: as many as are allowed and divide a chunk."""
        moved = self.moves and field is not self.source.fields[0]
        return gcd(self.width, (chunk_access.MOVED if moved else self.tile.chunk) * field.storage_bytes // 4)

    # ----- Expressions of elements

    def numbers_of(self, element: Element, variable: str) -> list[tuple[Field, list[str]]]:
        """For each field, the expressions of its numbers in the element called `variable`."""
        numbers = []
        for index, field in enumerate(element.fields):
            member = element.member(variable, index)
            numbers.append((field, [f"{member}[{i}]" for i in range(field.count)] if field.shape else [member]))
        return numbers

    def construct(self, name: str, element: Element, numbers: list[list[str]]) -> str:
        """The expression that builds an element of the WGSL type `name` from its fields' numbers."""
        fields = []
        for field, parts in zip(element.fields, numbers, strict=True):
            fields.append(f"{field.wgsl(self.native_int64)}({', '.join(parts)})" if field.shape else parts[0])
        return fields[0] if element.single else f"{name}({', '.join(fields)})"

    def element_words(self, variable: str) -> list[str]:
        return self.words_of(self.element, variable)

    def result_words(self, variable: str) -> list[str]:
        return self.words_of(self.destination, variable)

    def words_of(self, element: Element, variable: str) -> list[str]:
        """The 32-bit words of the element called `variable`."""
        return [
            word
            for field, numbers in self.numbers_of(element, variable)
            for number in numbers
            for word in forms.to_words(field.scalar, self.native_int64, number)
        ]

    def element_from_words(self, words: str, offset: str = "") -> str:
        return self.from_words("Element", self.element, words, offset)

    def result_from_words(self, words: str, offset: str = "") -> str:
        return self.from_words("Result", self.destination, words, offset)

    def from_words(self, name: str, element: Element, words: str, offset: str) -> str:
        """The element of the WGSL type `name` whose words are ``words[offset + 0]`` and on."""
        numbers, position = [], 0
        for field in element.fields:
            parts = []
            for _ in range(field.count):
                names = [f"{words}[{offset}{position + i}u]" for i in range(field.scalar.words)]
                parts.append(forms.from_words(field.scalar, self.native_int64, names))
                position += field.scalar.words
            numbers.append(parts)
        return self.construct(name, element, numbers)

    def seed_expression(self) -> str:
        return self.element_from_words("seeds", "at + ")

    def tail_expression(self) -> str:
        assert self.held is not None
        return self.field_from_words(self.held, [f"seeds[at + {i}u]" for i in range(self.held.words)])

    def field_from_words(self, field: Field, words: list[str]) -> str:
        """The field whose words these are."""
        size = field.scalar.words
        numbers = [
            forms.from_words(field.scalar, self.native_int64, words[i * size : (i + 1) * size])
            for i in range(field.count)
        ]
        return f"{field.wgsl(self.native_int64)}({', '.join(numbers)})" if field.shape else numbers[0]

    def pick_element(self, condition: str, yes: str, no: str) -> str:
        both = zip(self.numbers_of(self.element, yes), self.numbers_of(self.element, no), strict=True)
        numbers = [[f"select({n}, {y}, {condition})" for y, n in zip(a, b, strict=True)] for (_, a), (_, b) in both]
        return self.construct("Element", self.element, numbers)

    def mapped_result(self, item: str, position: int = 0) -> str:
        """What is stored for an item at this place of a chunk."""
        if self.combine.wraps_late and self.after:
            item = self.in_range(item)
        if self.held is not None:
            numbers = [parts for _, parts in self.numbers_of(self.element, item)]
            held = (
                [f"next{position}"] if not self.held.shape else [f"next{position}[{i}]" for i in range(self.held.count)]
            )
            item = self.construct("Stored", self.stored, [*numbers, held])
        return f"after({item})" if self.after else item

    def in_range(self, item: str) -> str:
        """The element that an item out of range stands for."""
        numbers = [
            [wrapped(Text(number), field.scalar).argument for number in parts]
            for field, parts in self.numbers_of(self.element, item)
        ]
        return self.construct("Element", self.element, numbers)

    # ----- Loads and stores of a chunk

    def load_lines(self, first: str, previous: str = "") -> list[str]:
        return chunk_access.load_lines(self, first, previous)

    def word_lines(self, first: str) -> list[str]:
        return chunk_access.word_lines(self, first)

    @property
    def chunk_words(self) -> int:
        """Words, or vectors of words, in which the only field's chunk lies."""
        return chunk_access.chunk_words(self, self.source.fields[0])

    @property
    def staged_vectors(self) -> int:
        """Vectors of workgroup memory in which one step's chunks are staged: see parts/staging.wgsl."""
        vectors = self.tile.workgroup_size * self.chunk_words
        return vectors + (vectors // 8 if self.chunk_words % 2 == 0 else 0)

    def next_lines(self, first: str) -> list[str]:
        return chunk_access.next_lines(self, first)

    def row_lines(self, index: str) -> list[str]:
        return chunk_access.row_lines(self, index)

    def place_lines(self, index: str) -> list[str]:
        return chunk_access.place_lines(self, index)

    def store_lines(self, index: str) -> list[str]:
        return chunk_access.store_lines(self, index)

    def moved_lines(self, first: str, prefix: str) -> list[str]:
        return chunk_access.moved_lines(self, first, prefix)

    @property
    def moved_at_once(self) -> int:
        """Loads of a loop's turn, so that several are under way; compilers of software adapters want small loops."""
        return 1 if self.software else max(1, 4 // self.destination.words)

    def result_lines(self, at: str, result: str) -> list[str]:
        return chunk_access.result_lines(self, at, result)

    def shares_words(self, field: Field) -> bool:
        """Whether invocations add their bits to words of the destination that they share, and which begin as 0."""
        return self.straddles(field) or ((self.ends or self.moves or self.scattered) and field.scalar.packed)

    def straddles(self, field: Field) -> bool:
        """Whether the field's chunks begin and end within words."""
        return field.storage_bytes in self.straddling
