"""One shader as a value: which stage it is, of which tile shape, over which element. The templates read it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from gpuscan import forms
from gpuscan.elements import Element, Field

if TYPE_CHECKING:
    from gpuscan.operators import Code

SPINS_PER_ROUND = 4096  # long waits are loops of short ones
STATE_HEADER_WORDS = 4  # ticket, status, width, unused: see shaders/parts/tile_state.wgsl
STATUS_WORD = 1
WIDTH_WORD = 2
WIDE_WORDS = 3  # items from here on have their posts interleaved; measured on an H100


@dataclass(frozen=True)
class TileShape:
    """How a workgroup shares out a tile; with the operator it fixes the order of combination.

    Attributes:
        workgroup_size: invocations in a workgroup.
        subgroup_size: lanes in a subgroup; 0 to do without subgroup operations.
        steps: chunks that one invocation takes, a subgroup's width apart; 1 without subgroups.
        chunk: neighbouring elements that one invocation takes in a step.
    """

    workgroup_size: int
    subgroup_size: int
    steps: int
    chunk: int

    @property
    def tile_size(self) -> int:
        """Elements in a tile."""
        return self.workgroup_size * self.steps * self.chunk

    @property
    def block(self) -> int:
        """Tiles whose aggregates are scanned together."""
        return min(32, self.workgroup_size)

    @property
    def subgroups_per_workgroup(self) -> int:
        return self.workgroup_size // self.subgroup_size if self.subgroup_size else 1


@dataclass(frozen=True)
class ColumnTile:
    """How a workgroup shares out a tile of an array whose scanned axis is not the last: rows of columns.

    Attributes:
        columns: invocations side by side, each with `chunk` neighbouring columns.
        groups: invocations one below the other.
        rows: rows that one invocation takes.
        chunk: neighbouring columns that one invocation takes.
    """

    columns: int
    groups: int
    rows: int
    chunk: int

    subgroup_size = 0
    steps = 1
    block = 1

    @property
    def workgroup_size(self) -> int:
        """Invocations in a workgroup."""
        return self.columns * self.groups

    @property
    def height(self) -> int:
        """Rows in a tile."""
        return self.groups * self.rows

    @property
    def width(self) -> int:
        """Columns in a tile."""
        return self.columns * self.chunk

    @property
    def tile_size(self) -> int:
        """Elements in a tile."""
        return self.height * self.width

    @property
    def subgroups_per_workgroup(self) -> int:
        return 1


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
        strategy: how a tile learns its prefix.
        source, element, destination: what is loaded, combined, and stored.
        combine, before, after: the operator's code and the maps fused into load and store.
        tile: the tile's shape.
        reverse, exclusive: as the user asked.
        initial: every row's first element is combined with a seed; `seeded` also where an exclusive scan needs one.
        segmented: the array has several rows.
        carried: a carry of an earlier piece comes before the first tile.
        carry_out: the carry for the next piece is written.
        shared: sources lie in a destination's buffer, so they are bound as destinations are.
        in_place: each destination is its source, bound once.
        exact: not one byte past the end is written; else up to the end of the last 16.
        straddling: sizes of elements, in bytes, whose array ends within a word: read backwards, their chunks begin
            and end within words, and neighbours share those.
        width: 32-bit words that one load or store may take (4, 2 or 1).
        native_int64, immediates, dawn: what the device's shaders may use.
        spins_per_round, pauses: polls in a round of waiting, and divisions that pass the time between two polls.
        looks: posts that a lane reads at a time where it walks a column of tiles.
        withhold: leave out the post of every tile of this period (0: none); a test build.
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
    carried: bool = False
    carry_out: bool = False
    shared: bool = False
    in_place: bool = False
    exact: bool = False
    straddling: tuple[int, ...] = ()
    width: int = 4
    native_int64: bool = False
    immediates: bool = False
    dawn: bool = False
    withhold: int = 0
    spins_per_round: int = SPINS_PER_ROUND
    pauses: int = 0
    looks: int = 4

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
    def in_columns(self) -> bool:
        """Whether neighbours in memory belong to different rows."""
        return isinstance(self.tile, ColumnTile)

    @property
    def backwards(self) -> bool:
        """Whether a chunk is read from its end."""
        return self.reverse and not self.in_columns

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

    @property
    def post_stride(self) -> int:
        """Words from one half word of a tile's post to the next: see parts/tile_state.wgsl."""
        return self.tile.block if self.item_words >= WIDE_WORDS else 1

    @property
    def block_in_subgroup(self) -> bool:
        """Whether one subgroup is wide enough to look at a block of tiles at once."""
        return self.tile.subgroup_size >= self.tile.block

    @property
    def totals_fit_subgroup(self) -> bool:
        return self.tile.subgroups_per_workgroup <= self.tile.subgroup_size

    @property
    def uses_scratch(self) -> bool:
        """Whether some scan goes through workgroup memory."""
        return not self.subgroups or not self.totals_fit_subgroup or not self.block_in_subgroup

    @property
    def reduces(self) -> bool:
        return self.stage == "reduce" or self.strategy == "fallback"

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
            if self.seeded:
                bound.append(BoundArray("seeds", self.seed_binding, "read"))
        if self.carried and (self.stage == "scan_totals" or self.strategy != "three_dispatch"):
            bound.append(BoundArray("carries", self.carry_binding, "read"))
        if self.carry_out and self.stage in ("scan_totals", "carry"):
            bound.append(BoundArray("carry_out", self.carry_out_binding, "read_write"))
        return tuple(bound)

    def _destination_vector(self, field: Field) -> str:
        return "atomic<u32>" if self.straddles(field) else self._vector(self.field_width(field))

    @staticmethod
    def _vector(width: int) -> str:
        return "u32" if width == 1 else f"vec{width}<u32>"

    def field_width(self, field: Field) -> int:
        """32-bit words that one access to the field's array takes: as many as are allowed and divide a chunk."""
        return gcd(self.width, self.tile.chunk * field.storage_bytes // 4)

    # ----- Expressions of elements

    def _numbers(self, element: Element, variable: str) -> list[tuple[Field, list[str]]]:
        """For each field, the expressions of its numbers in the element called `variable`."""
        numbers = []
        for index, field in enumerate(element.fields):
            member = element.member(variable, index)
            numbers.append((field, [f"{member}[{i}]" for i in range(field.count)] if field.shape else [member]))
        return numbers

    def _construct(self, name: str, element: Element, numbers: list[list[str]]) -> str:
        """The expression that builds an element of the WGSL type `name` from its fields' numbers."""
        fields = []
        for field, parts in zip(element.fields, numbers, strict=True):
            fields.append(f"{field.wgsl(self.native_int64)}({', '.join(parts)})" if field.shape else parts[0])
        return fields[0] if element.single else f"{name}({', '.join(fields)})"

    def element_words(self, variable: str) -> list[str]:
        return [
            word
            for field, numbers in self._numbers(self.element, variable)
            for number in numbers
            for word in forms.to_words(field.scalar, self.native_int64, number)
        ]

    def element_from_words(self, words: str, offset: str = "") -> str:
        """The element whose words are ``words[offset + 0]`` and on."""
        numbers, position = [], 0
        for field in self.element.fields:
            parts = []
            for _ in range(field.count):
                names = [f"{words}[{offset}{position + i}u]" for i in range(field.scalar.words)]
                parts.append(forms.from_words(field.scalar, self.native_int64, names))
                position += field.scalar.words
            numbers.append(parts)
        return self._construct("Element", self.element, numbers)

    def seed_expression(self) -> str:
        return self.element_from_words("seeds", "at + ")

    def pick_element(self, condition: str, yes: str, no: str) -> str:
        both = zip(self._numbers(self.element, yes), self._numbers(self.element, no), strict=True)
        numbers = [[f"select({n}, {y}, {condition})" for y, n in zip(a, b, strict=True)] for (_, a), (_, b) in both]
        return self._construct("Element", self.element, numbers)

    def mapped_result(self, item: str) -> str:
        return f"after({item})" if self.after else item

    # ----- Loads and stores of a chunk

    def _at(self, field: Field, first: str, backwards: bool) -> str:
        """The place of element `first` in the field's array of vectors."""
        numerator, denominator = field.storage_bytes, 4 * self.field_width(field)
        common = gcd(numerator, denominator)
        numerator, denominator = numerator // common, denominator // common
        words = first if numerator == 1 else f"{first} * {numerator}u"
        if denominator == 1:
            return words
        shift = denominator.bit_length() - 1
        if backwards:  # `first` may lie before the array's begin: shift as a signed number
            return f"bitcast<u32>(bitcast<i32>({words}) >> {shift}u)"
        return f"({words}) >> {shift}u" if numerator > 1 else f"{words} >> {shift}u"

    def load_lines(self, first: str) -> list[str]:
        """Statements that load a chunk and name its elements ``e0``, ``e1``, … in logical order."""
        chunk = self.tile.chunk
        lines = []
        numbers: list[list[list[str]]] = []  # field, element, number
        for array, field in zip(self.sources, self.source.fields, strict=True):
            width = self.field_width(field)
            count = chunk * field.storage_bytes // 4 // width
            straddles = self.straddles(field)
            lines.append(f"let {array.name}_at = {self._at(field, first, self.backwards)};")
            words = []
            for i in range(count + 1 if straddles else count):
                place = f"{array.name}[{array.name}_at + {i}u]"
                lines.append(f"let {array.name}_{i} = {f'atomicLoad(&{place})' if self._is_atomic(array) else place};")
                words += [f"{array.name}_{i}"] if width == 1 else [f"{array.name}_{i}.{c}" for c in "xyzw"[:width]]
            if straddles:
                lines.append(self._shift_line(array, field))
                shift = f"{array.name}_shift"
                words = [f"(({low} >> {shift}) | ({high} << (32u - {shift})))" for low, high in pairwise(words)]
            numbers.append(
                [
                    [
                        forms.from_storage(field.scalar, self.native_int64, words, place * field.count + i)
                        for i in range(field.count)
                    ]
                    for place in self._places()
                ]
            )
        keyword = "var" if self.initial else "let"
        for position in range(chunk):
            value = self._construct("Source", self.source, [field[position] for field in numbers])
            lines.append(f"{keyword} e{position} = {f'before({value})' if self.before else value};")
        return lines

    def store_lines(self, index: str) -> list[str]:
        """Statements that store the results ``r0``, ``r1``, … of a chunk, leaving out what lies past the end."""
        lines = []
        first = index
        if self.backwards:
            lines.append(f"let first = params.length - CHUNK - {index};")
            first = "first"
        results = [self._numbers(self.destination, f"r{place}") for place in self._places()]
        for number, (array, field) in enumerate(zip(self.destinations, self.destination.fields, strict=True)):
            width = self.field_width(field)
            values = [value for result in results for value in result[number][1]]
            words = forms.to_storage(field.scalar, self.native_int64, values)
            lines.append(f"let {array.name}_at = {self._at(field, first, self.backwards)};")
            lines.append(f"let {array.name}_end = {self._end(field)};")
            if self.straddles(field):
                lines += self._straddling_store(array, field, words)
                continue
            for i in range(len(words) // width):
                at = f"{array.name}_at + {i}u"
                vector = words[i * width : (i + 1) * width]
                text = vector[0] if width == 1 else f"vec{width}<u32>({', '.join(vector)})"
                if self.exact and field.storage_bytes % 4:
                    lines += self._exact_store(array, field, at, text)
                    continue
                lines += [f"if ({at} < {array.name}_end) {{", f"    {array.name}[{at}] = {text};", "}"]
        return lines

    @staticmethod
    def _exact_store(array: BoundArray, field: Field, at: str, word: str) -> list[str]:
        """Statements that store a word, of the last one only the bytes before the end."""
        place = f"{array.name}[{at}]"
        tail = f"((params.length * {field.storage_bytes}u) & 3u)"
        mask = f"((1u << (8u * {tail})) - 1u)"
        return [
            f"if ({at} + 1u == {array.name}_end && {tail} > 0u) {{",
            f"    {place} = ({place} & ~{mask}) | (({word}) & {mask});",
            f"}} else if ({at} < {array.name}_end) {{",
            f"    {place} = {word};",
            "}",
        ]

    def straddles(self, field: Field) -> bool:
        """Whether the field's chunks begin and end within words."""
        return field.storage_bytes in self.straddling

    def _is_atomic(self, array: BoundArray) -> bool:
        return array.vector == "atomic<u32>"

    def _shift_line(self, array: BoundArray, field: Field) -> str:
        """How many bits of a word lie before a chunk's first element; never 0 where chunks straddle."""
        return f"let {array.name}_shift = ((params.length * {field.storage_bytes}u) & 3u) * 8u;"

    def _straddling_store(self, array: BoundArray, field: Field, words: list[str]) -> list[str]:
        """Statements that store a chunk's words shifted; the first and last are shared with neighbours, and were 0."""
        shift = f"{array.name}_shift"
        lines = [self._shift_line(array, field)]
        lines += [f"let {array.name}_{i} = {word};" for i, word in enumerate(words)]
        for i in range(len(words) + 1):
            parts = [f"({array.name}_{i} << {shift})"] if i < len(words) else []
            parts += [f"({array.name}_{i - 1} >> (32u - {shift}))"] if i > 0 else []
            call = "atomicStore" if 0 < i < len(words) else "atomicOr"
            at = f"{array.name}_at + {i}u"
            lines += [f"if ({at} < {array.name}_end) {{", f"    {call}(&{array.name}[{at}], {' | '.join(parts)});", "}"]
        return lines

    def _places(self) -> list[int]:
        """Where the chunk's elements lie in storage, in logical order (its own inverse)."""
        places = range(self.tile.chunk)
        return list(reversed(places)) if self.backwards else list(places)

    def _end(self, field: Field) -> str:
        """How many vectors of the field's array hold elements before the end."""
        numerator, denominator = field.storage_bytes, 4 * self.field_width(field)
        common = gcd(numerator, denominator)
        numerator, denominator = numerator // common, denominator // common
        words = "params.length" if numerator == 1 else f"params.length * {numerator}u"
        return words if denominator == 1 else f"({words} + {denominator - 1}u) / {denominator}u"
