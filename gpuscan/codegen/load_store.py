"""WGSL statements that bring one invocation's chunk of neighbouring elements from storage to registers and back."""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

from gpuscan.codegen import number_formats as forms
from gpuscan.elements import Field, Scalar

if TYPE_CHECKING:
    from gpuscan.planning.kernel import BoundArray, Kernel

MOVED = 4  # neighbours that an invocation moves at a time: see shaders/parts/moves.wgsl


def place_lines(kernel: Kernel, index: str) -> list[str]:
    """Statements that name where a chunk lies in storage: ``first``, or of scattered elements ``at0``, ``at1``, ….

    Read backwards, one row's element i lies at ``length - 1 - i``. Of several rows each is read backwards in its own
    place, so that they lie in the tiles as they do forwards: element i, the p-th of its row, at
    ``i + row_length - 1 - 2 * p``. Past the end some place is named, where nothing is kept.

    Args:
        kernel: the shader that is written.
        index: the chunk's first element in logical order.
    """
    if not kernel.backwards:
        return [f"let first = {index};"]
    if not kernel.several_rows:
        return [f"let first = params.length - CHUNK - {index};"]
    if not kernel.scattered:
        return [f"let first = {index} + params.row_length - CHUNK - 2u * ({index} % params.row_length);"]
    lines = [f"let at0 = {index} + params.row_length - 1u - 2u * place0;"]
    for before in range(kernel.tile.chunk - 1):
        beyond = f"at{before} + 2u * params.row_length - 1u"  # the next row's first element
        lines.append(f"let at{before + 1} = select(at{before} - 1u, {beyond}, ends{before});")
    return lines


def row_lines(kernel: Kernel, index: str) -> list[str]:
    """Statements that name each element's place in its row, ``place0``, …, and whether it ends it, ``ends0``, ….

    Args:
        kernel: the shader that is written.
        index: the chunk's first element in logical order.
    """
    lines = [f"let place0 = ({index} + params.row_offset) % params.row_length;"]
    for position in range(kernel.tile.chunk):
        if position:  # no remainder for each, which takes a GPU 20 times as long
            lines.append(f"let place{position} = select(place{position - 1} + 1u, 0u, ends{position - 1});")
        lines.append(f"let ends{position} = place{position} + 1u == params.row_length;")
    return lines


def load_lines(kernel: Kernel, first: str, previous: str = "") -> list[str]:
    """Statements that load a chunk and name its elements ``e0``, ``e1``, … in logical order.

    Args:
        kernel: the shader that is written.
        first: the place of the chunk's first element in storage.
        previous: for columns, the same of the row before.
    """
    lines: list[str] = []
    if kernel.moves:
        mask = _chunk(kernel, kernel.sources[0], kernel.source.fields[0], first, lines)
        return lines + [
            f"let e{position} = select(0u, min({value}, 1u), {first} + {position}u < params.length);"
            for position, (value,) in enumerate(mask)
        ]
    numbers: list[list[list[str]]] = []  # field, element, number
    for index, (array, field) in enumerate(zip(kernel.sources, kernel.source.fields, strict=True)):
        shift = kernel.shift_of(index)
        if shift > 0:
            continue  # `next_lines` loads it
        start = previous if shift and kernel.in_columns else first
        if kernel.scattered:
            values = _scattered(kernel, array, field, shift)
        else:
            values = _chunk(kernel, array, field, start, lines)
        if shift:
            values = _shifted(kernel, array, field, values, first, lines)
        numbers.append(values)
    keyword = "var" if kernel.initial else "let"
    name, element = ("Source", kernel.source) if kernel.held is None else ("Element", kernel.element)
    for position in range(kernel.tile.chunk):
        value = kernel.construct(name, element, [values[position] for values in numbers])
        lines.append(f"{keyword} e{position} = {f'before({value})' if kernel.before else value};")
    return lines


def word_lines(kernel: Kernel, first: str) -> list[str]:
    """Statements that return the only field's chunk as it lies in storage, for `load_lines` to make elements of.

    Where chunks are staged it is not the invocation's own, but a lane's share of those of its subgroup.

    Args:
        kernel: the shader that is written.
        first: the place of the chunk's first element in storage.
    """
    (array,), (field,) = kernel.sources, kernel.source.fields
    words = [_word(array, f"at + {_stride(kernel, i)}") for i in range(chunk_words(kernel, field))]
    return [f"let at = {_shared_at(kernel, field, first)};", f"return Loaded({', '.join(words)});"]


def next_lines(kernel: Kernel, first: str) -> list[str]:
    """Statements that load what is held of the elements one after the chunk's, as ``next0``, ``next1``, ….

    Args:
        kernel: the shader that is written.
        first: the place of the chunk's first element in storage; for columns, of the row after.
    """
    if kernel.held is None:
        return []
    array = kernel.sources[kernel.shifts.index(1)]
    lines: list[str] = []
    if kernel.scattered:
        values = _scattered(kernel, array, kernel.held, 1)
    else:
        values = _chunk(kernel, array, kernel.held, first, lines)
    if not (kernel.in_columns or kernel.scattered):
        beyond = "first - 1u" if kernel.backwards else f"{first} + CHUNK"
        values = [*values[1:], _single(kernel, array, kernel.held, beyond)]
    for position, parts in enumerate(values):
        wanted = f"tail{position}"
        chosen = [f"select({part}, {_part(wanted, kernel.held, i)}, last{position})" for i, part in enumerate(parts)]
        text = f"{kernel.held.wgsl(kernel.native_int64)}({', '.join(chosen)})" if kernel.held.shape else chosen[0]
        lines.append(f"let next{position} = {text};")
    return lines


def store_lines(kernel: Kernel, index: str) -> list[str]:
    """Statements that store the results ``r0``, ``r1``, … of a chunk, leaving out what lies past the end."""
    if kernel.scattered:
        return _scattered_store(kernel, index)
    lines = []
    first = "first" if kernel.backwards else index
    results = [kernel.numbers_of(kernel.destination, f"r{place}") for place in _places(kernel)]
    for number, (array, field) in enumerate(zip(kernel.destinations, kernel.destination.fields, strict=True)):
        width = kernel.field_width(field)
        values = [value for result in results for value in result[number][1]]
        words = forms.to_storage(field.scalar, kernel.native_int64, values)
        name = f"stored{number}"
        lines.append(f"let {name}_at = {_shared_at(kernel, field, first)};")
        lines.append(f"let {name}_end = {_end(kernel, field)};")
        if kernel.straddles(field):
            lines += _straddling_store(array, field, name, words)
            continue
        vectors = [words[i : i + width] for i in range(0, len(words), width)]
        texts = [vector[0] if width == 1 else f"vec{width}<u32>({', '.join(vector)})" for vector in vectors]
        if kernel.stages_chunks:
            lines.append(f"let {name} = to_storage(invocation, Loaded({', '.join(texts)}));")
            texts = [f"{name}[{i}]" for i in range(len(texts))]
        for i, text in enumerate(texts):
            at = f"{name}_at + {_stride(kernel, i)}"
            if kernel.exact and field.storage_bytes % 4:
                lines += _exact_store(array, field, name, at, text)
                continue
            lines += [f"if ({at} < {name}_end) {{", f"    {array.name}[{at}] = {text};", "}"]
    return lines


def moved_lines(kernel: Kernel, first: str, prefix: str) -> list[str]:
    """Statements that load `MOVED` neighbours of what a mask picks from, as ``{prefix}r0``, ``{prefix}r1``, ….

    Args:
        kernel: the shader that is written.
        first: the place of the first of them in storage.
        prefix: of all names.
    """
    lines: list[str] = []
    values = []
    for array, field in zip(kernel.sources[1:], kernel.source.fields[1:], strict=True):
        width, start = kernel.field_width(field), f"{prefix}{array.name}"
        count = MOVED * field.storage_bytes // 4 // width
        words = []
        for i in range(count):
            name = f"{start}_{i}"
            lines.append(f"let {name} = {array.name}[{first} / MOVED * {count}u + {i}u];")
            words += [name] if width == 1 else [f"{name}.{c}" for c in "xyzw"[:width]]
        values.append(
            [
                [
                    forms.from_storage(field.scalar, kernel.native_int64, words, place * field.count + i)
                    for i in range(field.count)
                ]
                for place in range(MOVED)
            ]
        )
    for place in range(MOVED):
        result = kernel.construct("Result", kernel.destination, [numbers[place] for numbers in values])
        lines.append(f"let {prefix}r{place} = {result};")
    return lines


def result_lines(kernel: Kernel, at: str, result: str) -> list[str]:
    """Statements that store one result alone, wherever it falls.

    Args:
        kernel: the shader that is written.
        at: the result's place in its arrays.
        result: the result.
    """
    lines = []
    numbers = kernel.numbers_of(kernel.destination, result)
    for array, (field, values) in zip(kernel.destinations, numbers, strict=True):
        for i, value in enumerate(values):
            if field.scalar.packed:
                (bits,) = forms.to_storage(field.scalar, kernel.native_int64, [value])
                per_word, number = field.scalar.per_word, f"({at} * {field.count}u + {i}u)"
                shift = f"{number} % {per_word}u * {field.scalar.bits}u"
                lines.append(f"atomicOr(&{array.name}[{number} / {per_word}u], ({bits}) << ({shift}));")
            else:
                words = forms.to_storage(field.scalar, kernel.native_int64, [value])
                start = f"{at} * {field.words}u + {i * len(words)}u"
                lines += [f"{array.name}[{start} + {w}u] = {word};" for w, word in enumerate(words)]
    return lines


# ----- Scattered elements


def _scattered(kernel: Kernel, array: BoundArray, field: Field, shift: int) -> list[list[str]]:
    """For each element of a chunk in logical order, the expressions of its numbers, or of a neighbour's."""
    beside = {-1: " + 1u", 0: "", 1: " - 1u"}[shift]  # where that lies, read backwards
    return [_single(kernel, array, field, f"at{position}{beside}") for position in range(kernel.tile.chunk)]


def _scattered_store(kernel: Kernel, index: str) -> list[str]:
    lines = []
    for position in range(kernel.tile.chunk):
        stores = [f"    {line}" for line in result_lines(kernel, f"at{position}", f"r{position}")]
        lines += [f"if ({index} + {position}u < params.length) {{", *stores, "}"]
    return lines


# ----- Loads


def chunk_words(kernel: Kernel, field: Field) -> int:
    """The words, or vectors of words, that a chunk of the field lies in."""
    return kernel.tile.chunk * field.storage_bytes // 4 // kernel.field_width(field) + kernel.straddles(field)


def _chunk(kernel: Kernel, array: BoundArray, field: Field, first: str, lines: list[str]) -> list[list[str]]:
    """Load a field's chunk; for each element in logical order, the expressions of its numbers."""
    width = kernel.field_width(field)
    straddles = kernel.straddles(field)
    if not kernel.loads_apart:
        lines.append(f"let {array.name}_at = {_at(kernel, field, first)};")
    words = []
    for i in range(chunk_words(kernel, field)):
        word = f"loaded[{i}]" if kernel.loads_apart else _word(array, f"{array.name}_at + {i}u")
        lines.append(f"let {array.name}_{i} = {word};")
        words += [f"{array.name}_{i}"] if width == 1 else [f"{array.name}_{i}.{c}" for c in "xyzw"[:width]]
    if straddles:
        lines.append(_shift_line(array.name, field))
        shift = f"{array.name}_shift"
        words = [f"(({low} >> {shift}) | ({high} << (32u - {shift})))" for low, high in pairwise(words)]
    return [
        [
            forms.from_storage(field.scalar, kernel.native_int64, words, place * field.count + i)
            for i in range(field.count)
        ]
        for place in _places(kernel)
    ]


def _shifted(
    kernel: Kernel, array: BoundArray, field: Field, values: list[list[str]], first: str, lines: list[str]
) -> list[list[str]]:
    """A field's chunk of elements one before; zero before a row's first."""
    if not (kernel.in_columns or kernel.scattered):
        beyond = f"{first} + CHUNK" if kernel.backwards else f"{first} - 1u"
        values = [_single(kernel, array, field, beyond), *values[:-1]]
    zero = _zero(field.scalar, kernel.native_int64)
    return [
        [f"select({number}, {zero}, head{position})" for number in numbers] for position, numbers in enumerate(values)
    ]


def _single(kernel: Kernel, array: BoundArray, field: Field, at: str) -> list[str]:
    """The numbers of the field's element at this place, wherever it begins within a word."""
    width, numbers = kernel.field_width(field), []
    scalar = field.scalar

    def word(place: str) -> str:
        if width == 1:
            return _word(array, place)
        return f"{array.name}[({place}) / {width}u][({place}) % {width}u]"

    for i in range(field.count):
        if scalar.packed:
            number = f"(({at}) * {field.count}u + {i}u)"
            shifted = f"({word(f'{number} / {scalar.per_word}u')} >> ({number} % {scalar.per_word}u * {scalar.bits}u))"
            numbers.append(forms.from_storage(scalar, kernel.native_int64, [shifted], 0))
        else:
            start = f"({at}) * {field.words}u + {i * scalar.words}u"
            words = [word(f"{start} + {w}u") for w in range(scalar.words)]
            numbers.append(forms.from_words(scalar, kernel.native_int64, words))
    return numbers


def _zero(scalar: Scalar, native_int64: bool) -> str:
    return f"{scalar.wgsl(native_int64)}()"


def _part(variable: str, field: Field, index: int) -> str:
    return f"{variable}[{index}]" if field.shape else variable


def _word(array: BoundArray, at: str) -> str:
    return f"atomicLoad(&{array.name}[{at}])" if array.vector == "atomic<u32>" else f"{array.name}[{at}]"


# ----- Stores


def _exact_store(array: BoundArray, field: Field, name: str, at: str, word: str) -> list[str]:
    """Statements that store a word, of the last one only the bytes before the end."""
    place = f"{array.name}[{at}]"
    tail = f"((params.length * {field.storage_bytes}u) & 3u)"
    mask = f"((1u << (8u * {tail})) - 1u)"
    return [
        f"if ({at} + 1u == {name}_end && {tail} > 0u) {{",
        f"    {place} = ({place} & ~{mask}) | (({word}) & {mask});",
        f"}} else if ({at} < {name}_end) {{",
        f"    {place} = {word};",
        "}",
    ]


def _straddling_store(array: BoundArray, field: Field, name: str, words: list[str]) -> list[str]:
    """Statements that store a chunk's words shifted; the first and last are shared with neighbours, and were 0."""
    shift = f"{name}_shift"
    lines = [_shift_line(name, field)]
    lines += [f"let {name}_{i} = {word};" for i, word in enumerate(words)]
    for i in range(len(words) + 1):
        parts = [f"({name}_{i} << {shift})"] if i < len(words) else []
        parts += [f"({name}_{i - 1} >> (32u - {shift}))"] if i > 0 else []
        call = "atomicStore" if 0 < i < len(words) else "atomicOr"
        at = f"{name}_at + {i}u"
        lines += [f"if ({at} < {name}_end) {{", f"    {call}(&{array.name}[{at}], {' | '.join(parts)});", "}"]
    return lines


# ----- Places


def _shared_at(kernel: Kernel, field: Field, first: str) -> str:
    """The place of an invocation's first access to storage: its chunk's, or its lane's in what its subgroup shares."""
    at = _at(kernel, field, first)
    if not kernel.stages_chunks:
        return at
    place = "(SUBGROUP_SIZE - 1u - lane)" if kernel.backwards else "lane"
    return f"({at}) - {place} * {chunk_words(kernel, field)}u + lane"


def _stride(kernel: Kernel, access: int) -> str:
    return f"{access}u * SUBGROUP_SIZE" if kernel.stages_chunks else f"{access}u"


def _at(kernel: Kernel, field: Field, first: str) -> str:
    """The place of element `first` in the field's array of vectors."""
    numerator, denominator = _ratio(kernel, field)
    words = first if numerator == 1 else f"{first} * {numerator}u"
    if denominator == 1:
        return words
    shift = denominator.bit_length() - 1
    if kernel.backwards:  # `first` may lie before the array's begin: shift as a signed number
        return f"bitcast<u32>(bitcast<i32>({words}) >> {shift}u)"
    return f"({words}) >> {shift}u" if numerator > 1 else f"{words} >> {shift}u"


def _end(kernel: Kernel, field: Field) -> str:
    """How many vectors of the field's array hold elements before the end."""
    numerator, denominator = _ratio(kernel, field)
    words = "params.length" if numerator == 1 else f"params.length * {numerator}u"
    return words if denominator == 1 else f"({words} + {denominator - 1}u) / {denominator}u"


def _ratio(kernel: Kernel, field: Field) -> tuple[int, int]:
    """Vectors of the field's array for each element, as a fraction in lowest terms."""
    numerator, denominator = field.storage_bytes, 4 * kernel.field_width(field)
    common = gcd(numerator, denominator)
    return numerator // common, denominator // common


def _shift_line(name: str, field: Field) -> str:
    """How many bits of a word lie before a chunk's first element; never 0 where chunks straddle."""
    return f"let {name}_shift = ((params.length * {field.storage_bytes}u) & 3u) * 8u;"


def _places(kernel: Kernel) -> list[int]:
    """Where the chunk's elements lie in storage, in logical order (its own inverse)."""
    places = range(kernel.tile.chunk)
    return list(reversed(places)) if kernel.backwards else list(places)
