"""Write the WGSL of a kernel.

The templates under shaders/ hold every statement. A `KernelText` gives them the expressions that depend on the fields
of the element, so that no template loops over numbers and their formats.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

from gpuscan.codegen.load_store import (
    FieldAccess,
    count_moved_accesses,
    destination_accesses,
    source_accesses,
    vector_type,
)
from gpuscan.codegen.number_formats import conversions_of, from_words, to_storage, to_words
from gpuscan.elements import Element, Field, Scalar, bundle_of
from gpuscan.operators.user_wgsl import isolate_user_code
from gpuscan.operators.wgsl_arithmetic import Text, literal, wrap_integer
from gpuscan.planning.kernel import KEY_RUNS_AT, MOVED, OTHERS_AT, Kernel
from gpuscan.planning.kernel_parts import BoundArray
from gpuscan.planning.tile_shapes import MAX_MARKED_ROWS, ColumnTile
from gpuscan.templates import leave_out_unused, render


# A function that is made again at each call gives a new kernel each time, so the cache is bounded.
@lru_cache(maxsize=512)
def render_kernel(kernel: Kernel) -> str:
    """Return the WGSL of a kernel, without unused declarations, unless the operator is written in WGSL itself."""
    text = render(kernel.template, kernel=kernel, spec=kernel.spec, text=KernelText(kernel))
    if kernel.spec.combine.foreign:
        return isolate_user_code(text, kernel.spec.operator_name)
    return leave_out_unused(text)


class KernelText:
    """The expressions of one kernel's WGSL. Methods return expressions, or lists of them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.spec = kernel.spec
        self.native_int64 = kernel.target.native_int64
        self.sources = source_accesses(kernel)
        self.destinations = destination_accesses(kernel)
        self.keys = key_access(kernel)

    # ----- Types and names

    def type_of(self, field: Field) -> str:
        """Return the WGSL type of a field in compute form."""
        return field.wgsl(self.native_int64)

    def array_type(self, array: BoundArray) -> str:
        """Return the WGSL type of an array's elements."""
        return "atomic<u32>" if array.atomic else vector_type(array.width)

    @property
    def helpers(self) -> tuple[str, ...]:
        """The functions of shaders/shared/arithmetic.wgsl that the operator and the maps call."""
        steps = () if self.spec.steps is None else (code for _, code in self.spec.steps.named)
        codes = [code for code in (self.spec.combine, self.spec.before, self.spec.after, *steps) if code is not None]
        return tuple(dict.fromkeys(name for code in codes for name in code.helpers))

    @property
    def float_conversions(self) -> tuple[str, ...]:
        """The conversions of 16-bit floats that loads and stores call."""
        return conversions_of(self.spec.source.fields, self.spec.destination.fields)

    @property
    def viewed(self) -> list[FieldAccess]:
        """The arrays that are views, each once."""
        return list({access.name: access for access in (*self.sources, *self.destinations) if access.view}.values())

    # ----- Head flags

    @property
    def votes_on_heads(self) -> bool:
        """True if the lanes of a subgroup learn of all heads by one vote, in place of a shuffle for each distance.

        An H200 takes 179 instead of 187 us for 2^26 words in a million segments.
        """
        return self.kernel.segmented and 0 < self.kernel.tile.subgroup_size <= 32

    @property
    def packs_heads(self) -> bool:
        """True if the head flags of chunks are kept as bits of a few words while the tile waits.

        Flags of their own would take a register for each element, and the stores would load the segment bits or keys
        again. An H200 takes 171 instead of 223 us for exclusive sums of 2^26 words in a million segments. Inclusive
        sums take as long either way.
        """
        kernel, spec, tile = self.kernel, self.spec, self.kernel.tile
        cut = spec.has_segment_bits and spec.exclusive and not spec.reduces_segments
        once = tile.single_lead and kernel.subgroups and not kernel.access.several_rows
        return cut and once and max(tile.steps, tile.chunk) <= 32

    @property
    def packs_column_heads(self) -> bool:
        """True if the head flags of columns are kept as bits of a word while the tile waits."""
        tile = self.kernel.tile
        return isinstance(tile, ColumnTile) and self.kernel.heads_cut_off and tile.rows <= MAX_MARKED_ROWS

    # ----- Items in workgroup memory: bools are stored as words, see Kernel.has_bools

    @property
    def shared_item(self) -> str:
        """The WGSL type of an item in workgroup memory."""
        return "Words" if self.kernel.has_bools else "Item"

    def to_shared(self, item: str, convert: str = "item_to_words") -> str:
        """Return what workgroup memory stores for an item."""
        return f"{convert}({item})" if self.kernel.has_bools else item

    def from_shared(self, words: str, convert: str = "item_from_words") -> str:
        """Return the item that workgroup memory stores."""
        return f"{convert}({words})" if self.kernel.has_bools else words

    # ----- Elements

    def numbers_of(self, element: Element, variable: str) -> list[list[str]]:
        """Return, for each field, the numbers in the element called `variable`."""
        numbers = []
        for index, field in enumerate(element.fields):
            member = element.member(variable, index)
            numbers.append([f"{member}[{i}]" for i in range(field.count)] if field.shape else [member])
        return numbers

    def field_value(self, field: Field, numbers: Sequence[str]) -> str:
        """Return the field that consists of these numbers."""
        return f"{self.type_of(field)}({', '.join(numbers)})" if field.shape else numbers[0]

    def construct(self, name: str, element: Element, numbers: Sequence[Sequence[str]]) -> str:
        """Return the element of the WGSL type `name` that consists of these numbers for each field."""
        fields = [self.field_value(field, parts) for field, parts in zip(element.fields, numbers, strict=True)]
        return fields[0] if element.single else f"{name}({', '.join(fields)})"

    def element_words(self, variable: str) -> list[str]:
        """Return the 32-bit words of an `Element`."""
        return self._words_of(self.spec.element, variable)

    def result_words(self, variable: str) -> list[str]:
        """Return the 32-bit words of a `Result`."""
        return self._words_of(self.spec.result, variable)

    def _words_of(self, element: Element, variable: str) -> list[str]:
        return [
            word
            for field, numbers in zip(element.fields, self.numbers_of(element, variable), strict=True)
            for number in numbers
            for word in to_words(field.scalar, self.native_int64, number)
        ]

    def element_from_words(self, words: str, offset: str = "") -> str:
        """Return the `Element` that consists of ``words[offset + 0]`` and the following words."""
        return self._from_words("Element", self.spec.element, _word_list(words, offset, self.spec.element.words))

    def seed_from_words(self, words: str, offset: str = "") -> str:
        """Return the seed that consists of ``words[offset + 0]`` and the following words."""
        value = self.element_from_words(words, offset)
        return f"before({value})" if self.spec.maps_seeds else value

    def result_from_words(self, words: str, offset: str = "") -> str:
        """Return the `Result` that consists of ``words[offset + 0]`` and the following words."""
        return self._from_words("Result", self.spec.result, _word_list(words, offset, self.spec.result.words))

    def _from_words(self, name: str, element: Element, words: Sequence[str]) -> str:
        numbers, position = [], 0
        for field in element.fields:
            numbers.append(self._numbers_from_words(field, words[position : position + field.words]))
            position += field.words
        return self.construct(name, element, numbers)

    def field_from_words(self, field: Field, words: str, offset: str = "") -> str:
        """Return the field that consists of ``words[offset + 0]`` and the following words."""
        return self.field_value(field, self._numbers_from_words(field, _word_list(words, offset, field.words)))

    def _numbers_from_words(self, field: Field, words: Sequence[str]) -> list[str]:
        size = field.scalar.words
        chunks = [words[i * size : (i + 1) * size] for i in range(field.count)]
        return [from_words(field.scalar, self.native_int64, chunk) for chunk in chunks]

    # ----- Items: elements, with a head flag if there are several rows or segments

    def item_words(self, item: str) -> list[str]:
        """Return the 32-bit words of an `Item`."""
        if self.kernel.segmented:
            return [*self.element_words(f"{item}.value"), f"{item}.head"]
        return self.element_words(item)

    def item_from_words(self, word: str, first: int = 0, known: Container[int] | None = None) -> str:
        """Return the `Item` of several words.

        Args:
            word: the expression of one, with ``{0}`` for its number.
            first: the number of the first one.
            known: the numbers of the words that exist (default: all of them). Any other word is 0.
        """
        numbers = range(first, first + self.kernel.item_words)
        return self._item([word.format(n) if known is None or n in known else "0u" for n in numbers])

    def shuffle_item(self, item: str, shuffle: str) -> str:
        """Return another lane's `Item`. `shuffle` is the expression of a word of it, with ``{0}`` for this lane's."""
        return self._item([shuffle.format(word) for word in self.item_words(item)])

    def shuffle_element(self, element: str, shuffle: str) -> str:
        """Return another lane's `Element`. `shuffle` is as in `shuffle_item`."""
        return self._from_words(
            "Element", self.spec.element, [shuffle.format(word) for word in self.element_words(element)]
        )

    def _item(self, words: Sequence[str]) -> str:
        element = self._from_words("Element", self.spec.element, words[: self.spec.element.words])
        return f"Item({element}, {words[-1]})" if self.kernel.segmented else element

    def pick_element(self, condition: str, yes: str, no: str) -> str:
        """Return the element `yes` where the condition holds, else `no`, without a branch."""
        return self._pick("Element", self.spec.element, condition, yes, no)

    def _pick(self, name: str, element: Element, condition: str, yes: str, no: str) -> str:
        both = zip(self.numbers_of(element, yes), self.numbers_of(element, no), strict=True)
        numbers = [[f"select({n}, {y}, {condition})" for y, n in zip(a, b, strict=True)] for a, b in both]
        return self.construct(name, element, numbers)

    # ----- Steps of a loop: see `gpuscan.problem.problem.LoopSteps`

    @property
    def state(self) -> Element:
        """The numbers of a loop's state."""
        assert self.spec.steps is not None
        return self.spec.steps.state.result

    def pick_state(self, condition: str, yes: str, no: str) -> str:
        """Return the state `yes` where the condition holds, else `no`, without a branch."""
        return self._pick("LoopState", self.state, condition, yes, no)

    def with_source(self, name: str, element: Element, value: str, source: str) -> str:
        """Return the value of the WGSL type `name` that has the numbers of an element, then the numbers of a source."""
        numbers = [*self.numbers_of(element, value), *self.numbers_of(self.spec.source, source)]
        return self.construct(name, bundle_of((*element.fields, *self.spec.source.fields)), numbers)

    def map_result(self, item: str, position: int = 0) -> str:
        """Return what is stored for the element `item` at this position of a chunk."""
        spec, element = self.spec, self.spec.element
        if spec.combine.wraps_late and spec.after:
            pairs = zip(element.fields, self.numbers_of(element, item), strict=True)
            in_range = [[wrap_integer(Text(n), field.scalar).argument for n in numbers] for field, numbers in pairs]
            item = self.construct("Element", element, in_range)
        if (field := spec.neighbour_field) is not None:
            following = [f"next{position}[{i}]" for i in range(field.count)] if field.shape else [f"next{position}"]
            item = self.construct("Stored", spec.with_neighbour, [*self.numbers_of(element, item), following])
        return f"after({item})" if spec.after else item

    # ----- Loads of a chunk

    @cached_property
    def positions(self) -> list[int]:
        """The positions of the chunk's elements in storage, in the order of the scan. The order is its own inverse."""
        positions = range(self.kernel.tile.chunk)
        return list(reversed(positions)) if self.kernel.reads_backwards else list(positions)

    @property
    def loaded_sources(self) -> list[FieldAccess]:
        """The sources that are combined. A neighbour field that is passed to `after` is loaded with the stores."""
        return [source for source in self.sources if source.offset <= 0 or self.spec.row_ends]

    @property
    def loads_following(self) -> bool:
        """True if elements take a number of the element after them."""
        return bool(self.spec.row_ends)

    @property
    def neighbour_source(self) -> FieldAccess:
        """The source of the neighbour field."""
        return self.sources[self.spec.field_offsets.index(1)]

    def mask_number(self, position: int) -> str:
        """Return the number of the mask at this position of the chunk: as it is stored, or as the map gives it."""
        if self.spec.before:
            return self.load_element(position, "first")
        return f"min({self._chunk_numbers(self.sources[0], position)[0]}, 1u)"

    def load_element(self, position: int, first: str) -> str:
        """Return the element at this position of the chunk that was loaded from place `first` in storage."""
        spec = self.spec
        numbers = [self._load_numbers(source, position, first) for source in self.loaded_sources]
        if self.kernel.takes_steps:
            return self.construct("Source", spec.source, numbers)
        name, element = ("Source", spec.source) if spec.neighbour_field is None else ("Element", spec.element)
        if spec.index_step:
            name, element, numbers = "Indexed", spec.indexed_source, [*numbers, [f"index{position}"]]
        value = self.construct(name, element, numbers)
        return f"before({value})" if spec.before else value

    def load_single(self, at: str) -> str:
        """Return element `at`, which is loaded by itself."""
        numbers = [source.numbers_at(at) for source in self.loaded_sources]
        value = self.construct("Source", self.spec.source, numbers)
        return f"before({value})" if self.spec.before else value

    def next_value(self, position: int, first: str) -> str:
        """Return the neighbour field of the element after this position, or what follows the row's last element."""
        source = self.neighbour_source
        numbers = self._following_numbers(source, position, first)
        tail = f"tail{position}"
        tails = [f"{tail}[{i}]" for i in range(len(numbers))] if source.field.shape else [tail]
        chosen = [f"select({number}, {t}, last{position})" for number, t in zip(numbers, tails, strict=True)]
        return self.field_value(source.field, chosen)

    def _following_numbers(self, source: FieldAccess, position: int, first: str) -> list[str]:
        """Return the numbers of the element after this position."""
        kernel = self.kernel
        if kernel.single_elements:
            return self._single_numbers(source, position)
        if kernel.in_columns:
            return self._chunk_numbers(source, position)
        if position + 1 < kernel.tile.chunk:
            return self._chunk_numbers(source, position + 1)
        return source.numbers_at("first - 1u" if kernel.reads_backwards else f"{first} + CHUNK")

    def _load_numbers(self, source: FieldAccess, position: int, first: str) -> list[str]:
        kernel = self.kernel
        if source.offset == 1:
            ends = self.spec.row_ends[self.sources.index(source)]
            texts = [literal(end, source.field.scalar, self.native_int64).text for end in ends]
            pairs = zip(self._following_numbers(source, position, first), texts, strict=True)
            return [f"select({number}, {end}, last{position})" for number, end in pairs]
        if kernel.single_elements:
            numbers = self._single_numbers(source, position)
        elif source.offset == 0 or kernel.in_columns:
            numbers = self._chunk_numbers(source, position)
        elif position > 0:
            numbers = self._chunk_numbers(source, position - 1)
        else:
            numbers = source.numbers_at(f"{first} + CHUNK" if kernel.reads_backwards else f"{first} - 1u")
        if source.offset == 0:
            return numbers
        zero = f"{source.field.scalar.wgsl(self.native_int64)}()"
        return [f"select({number}, {zero}, head{position})" for number in numbers]

    def _chunk_numbers(self, source: FieldAccess, position: int) -> list[str]:
        return source.numbers(source.list_words(source.accesses), self.positions[position])

    def _single_numbers(self, source: FieldAccess, position: int) -> list[str]:
        neighbour = {-1: " + 1u", 0: "", 1: " - 1u"}[source.offset]  # rows are reversed
        return source.numbers_at(f"at{position}{neighbour}")

    # ----- Stores of a chunk

    def pack_words(self, destination: FieldAccess, result: str) -> list[str]:
        """Return the storage words of a chunk's results, ``result.format(0)`` and so on, in the order of storage."""
        index = self.destinations.index(destination)
        results = [self.numbers_of(self.spec.destination, result.format(position)) for position in self.positions]
        values = [number for result in results for number in result[index]]
        return to_storage(destination.field.scalar, self.native_int64, values)

    def result_numbers(self, destination: FieldAccess, result: str) -> list[str]:
        """Return the numbers of one field of a result."""
        numbers = self.numbers_of(self.spec.result, result)
        return numbers[self.destinations.index(destination) % len(numbers)]

    def storage_words(self, destination: FieldAccess, number: str) -> list[str]:
        """Return the storage words of one number."""
        return to_storage(destination.field.scalar, self.native_int64, [number])

    # ----- Compaction

    @property
    def moved_sources(self) -> list[tuple[FieldAccess, int]]:
        """The sources that a mask selects from, each with the accesses that `MOVED` neighbours take."""
        moved = self.sources[len(self.sources) - len(self.spec.moved_fields) :]
        return [(source, count_moved_accesses(source)) for source in moved]

    def load_moved_result(self, position: int, prefix: str, offset: str) -> str:
        """Return the result at this place of the `MOVED` neighbours that were loaded under names with this prefix.

        `offset` is the offset of the first of them in the tile, which heads have as a last field.
        """
        numbers = [
            source.numbers(source.list_words(accesses, prefix), position) for source, accesses in self.moved_sources
        ]
        if self.spec.picks_heads:
            numbers.append([f"{offset} + {position}u"])
        return self.construct("Result", self.spec.result, numbers)

    moved = MOVED

    def destinations_of(self, *, others: bool) -> Sequence[FieldAccess]:
        """Return the destinations of the results. With `others`, return where a partition puts the other elements."""
        count = len(self.spec.result.fields)
        return self.destinations[count:] if others else self.destinations[:count]

    others_at = OTHERS_AT

    # ----- Reductions by key

    key_runs_at = KEY_RUNS_AT


def _word_list(words: str, offset: str, count: int) -> list[str]:
    return [f"{words}[{offset}{i}u]" for i in range(count)]


# ----- Keys
#
# Describe how a kernel loads the keys of neighbouring elements. The statements are in shaders/scan/key_heads.wgsl.


@dataclass(frozen=True)
class KeyAccess:
    """Plain values about the array of keys, for the templates.

    Attributes:
        scalar: the type of the keys.
        count: how many neighbouring keys are compared together: the keys of a chunk, at most 32.
        width: the 32-bit words of one access.
        accesses: the accesses that cover these keys; 0 if each key is loaded by itself.
    """

    scalar: Scalar
    count: int
    width: int
    accesses: int

    @property
    def vector(self) -> str:
        """The WGSL type of one access."""
        return vector_type(self.width)

    @property
    def words(self) -> list[str]:
        """The expressions of the words in vectors that are called ``keys0``, ``keys1``, …"""
        vectors = [f"keys{i}" for i in range(self.accesses)]
        return [f"{v}.{c}" for v in vectors for c in "xyzw"[: self.width]] if self.width > 1 else vectors

    def first(self, index: str) -> str:
        """Return the expression of the access that begins with an element, which begins a chunk."""
        bits, access = self.scalar.bits, 32 * self.width
        return f"{index} * {bits // access}u" if bits >= access else f"{index} / {access // bits}u"


def key_access(kernel: Kernel) -> KeyAccess | None:
    """Return how the kernel loads keys; None if it compares none."""
    scalar, count = kernel.spec.key, min(32, kernel.tile.chunk)
    if scalar is None:
        return None
    # Columns are compared one by one, and so are chunks that are read backwards, since they may begin within a vector.
    apart = kernel.in_columns or kernel.spec.reverse or count * scalar.bits % 32
    if apart:
        return KeyAccess(scalar, count, 2 if kernel.in_columns and scalar.bits == 64 else 1, 0)
    words = count * scalar.bits // 32
    width = gcd(words, 4)
    return KeyAccess(scalar, count, width, words // width)
