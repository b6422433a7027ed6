"""Write the expressions of a kernel that applies a function to every element of some arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import gcd

from gpuscan.codegen.load_store import vector_type
from gpuscan.codegen.number_formats import conversions_of, from_storage, from_words, to_storage, to_words
from gpuscan.elements import Element, Field, Scalar, min_chunk
from gpuscan.operators.code import Code, map_code
from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.trace import Map

# Neighbouring elements in a chunk that is loaded as vectors: at most four words of each 32-bit array.
VECTOR_CHUNK = 4


def number_at(array: str, scalar: Scalar, at: str, native_int64: bool) -> str:
    """Return number `at` of an array of words."""
    if scalar.packed:
        word = f"({array}[{at} / {scalar.per_word}u] >> ({at} % {scalar.per_word}u * {scalar.bits}u))"
        return from_storage(scalar, native_int64, [word], 0)
    words = [f"{array}[{at}]"]
    if scalar.words > 1:
        words = [f"{array}[{at} * {scalar.words}u + {word}u]" for word in range(scalar.words)]
    return from_words(scalar, native_int64, words)


@dataclass(frozen=True)
class _FunctionText:
    """A shader of one function of numbers: what the templates of scan kernels call a specification and a kernel.

    Attributes:
        code: the function, ``fn apply(x: Arguments) -> Result``.
        source: the numbers that the function takes.
        used: the numbers that it reads.
        native_int64: True if WGSL has 64-bit integers on the device.
        packs_halves: True if WGSL's packing of 16-bit floats is exact.
    """

    code: Code
    source: Element
    used: tuple[int, ...]
    native_int64: bool
    packs_halves: bool

    @property
    def captured_functions(self) -> tuple[tuple[str, Code], ...]:
        """The function if it reads captured constants; see shaders/shared/captured.wgsl."""
        return (("apply", self.code),) if self.code.captured else ()

    @property
    def helpers(self) -> tuple[str, ...]:
        """The functions of shaders/shared/arithmetic.wgsl that the function calls."""
        return self.code.helpers

    @property
    def sources(self) -> list[Field]:
        """The numbers that the function reads, as fields of its argument."""
        return [self.source.fields[index] for index in self.used]

    def type_of(self, field: Field) -> str:
        """Return the WGSL type of a field in compute form."""
        return field.wgsl(self.native_int64)


@dataclass(frozen=True)
class ElementwiseText(_FunctionText):
    """One shader: a function of one number of each array. Equal ones have equal text.

    Attributes:
        source: the numbers that the function takes, one of each array.
        used: the arrays that it reads.
        rank: the axes of the arrays, with those joined that are neighbours in all of them.
        aliases: for each array that is read, the result that is the same array, or None.
        vectors: for each array that is read, True if its elements are neighbours, so that chunks are loaded as vectors.
    """

    rank: int
    aliases: tuple[int | None, ...]
    vectors: tuple[bool, ...]

    def binding_of(self, name: str) -> int:
        """Return the binding of the captured constants: after the call, the sources and the destinations."""
        assert name == "captured"
        return 1 + len(self.bound) + len(self.code.result.fields)

    @property
    def float_conversions(self) -> tuple[str, ...]:
        """The conversions of 16-bit floats that loads and stores call."""
        return conversions_of(self.sources, self.code.result.fields)

    # ----- Types

    @cached_property
    def chunk(self) -> int:
        """The neighbouring elements that an invocation computes: their results are whole words, or whole vectors."""
        return VECTOR_CHUNK if any(self.vectors) else min_chunk(self.code.result)

    def words_of(self, field: Field) -> int:
        """Return the words of a field in a chunk."""
        return self.chunk * field.storage_bytes // 4

    def width_of(self, field: Field) -> int:
        """Return the words of one access to a field's array."""
        return gcd(4, self.words_of(field)) if any(self.vectors) else 1

    def array_type(self, field: Field) -> str:
        """Return the WGSL type of what one access loads or stores."""
        return vector_type(self.width_of(field))

    def source_type(self, index: int) -> str:
        """Return the same for an array that is read."""
        field = self.source.fields[index]
        return self.array_type(field) if self.vectors[self.used.index(index)] else "u32"

    # ----- Loads and stores

    @property
    def bound(self) -> list[int]:
        """The arrays that are bound as sources. The others are results as well."""
        return [index for index, alias in zip(self.used, self.aliases, strict=True) if alias is None]

    @property
    def loaded_vectors(self) -> list[int]:
        """The arrays that are loaded as vectors."""
        return [index for index, vector in zip(self.used, self.vectors, strict=True) if vector]

    @property
    def strided(self) -> list[int]:
        """The arrays that are loaded number by number."""
        return [index for index, vector in zip(self.used, self.vectors, strict=True) if not vector]

    def array_of(self, index: int) -> str:
        """Return the name of the array that a number is read from."""
        alias = self.aliases[self.used.index(index)]
        return f"source{index}" if alias is None else f"result{alias}"

    def accesses_of(self, index: int) -> int:
        """Return the accesses that load a chunk of an array."""
        field = self.source.fields[index]
        return self.words_of(field) // self.width_of(field)

    def load_number(self, index: int, position: int) -> str:
        """Return the number of an array's element at this place of the chunk."""
        field = self.source.fields[index]
        if index in self.strided:
            return number_at(self.array_of(index), field.scalar, f"at{index}_{position}", self.native_int64)
        width = self.width_of(field)
        names = [f"vector{index}_{access}" for access in range(self.accesses_of(index))]
        words = [f"{name}.{letter}" for name in names for letter in "xyzw"[:width]] if width > 1 else names
        return from_storage(field.scalar, self.native_int64, words, position)

    def pack_vectors(self, index: int) -> list[str]:
        """Return what each access stores of result `index` for the elements ``r0``, ``r1``, … of a chunk."""
        result = self.code.result
        field = result.fields[index]
        numbers: list[str] = []
        for position in range(self.chunk):
            member = result.member(f"r{position}", index)
            numbers += [f"{member}[{i}]" for i in range(field.count)] if field.shape else [member]
        words, width = to_storage(field.scalar, self.native_int64, numbers), self.width_of(field)
        if width == 1:
            return words
        type_name = vector_type(width)
        return [f"{type_name}({', '.join(words[at : at + width])})" for at in range(0, len(words), width)]


@dataclass(frozen=True)
class LoopText(_FunctionText):
    """The text of one shader: a loop of steps along rows, which keeps the numbers of the carry from step to step.

    Equal objects have equal text.

    Attributes:
        code: the step, ``fn apply(x: Arguments) -> Result``. It takes the numbers of the carry and of x, and returns
            the numbers of the next carry and of y.
        source: the numbers that the step takes: first all numbers of the carry, then all numbers of x.
        states: the kinds of number of the carry.
        xs, ys: for each number of x and of y its array, its place in an element, and the numbers of an element.
        branches: True to leave out the rare cases of steps with fixed bits by branches, which CPU adapters compile
            slowly.
    """

    states: tuple[Scalar, ...]
    xs: tuple[tuple[int, int, int], ...]
    ys: tuple[tuple[int, int, int], ...]
    branches: bool

    def binding_of(self, name: str) -> int:
        """Return the binding of the captured constants: after the call, the carries, the sources and the results."""
        assert name == "captured"
        return 1 + len(self.states) + len(self.read) + len({array for array, *_ in self.ys})

    @property
    def read(self) -> list[int]:
        """The arrays of x that the step reads."""
        indices = (index - len(self.states) for index in self.used if index >= len(self.states))
        return sorted({self.xs[position][0] for position in indices})

    @property
    def written(self) -> list[int]:
        """The arrays of y."""
        return sorted({array for array, *_ in self.ys})

    @property
    def float_conversions(self) -> tuple[str, ...]:
        """The conversions of 16-bit floats that loads and stores call."""
        fields = [Field("", scalar) for scalar in self.states]
        return conversions_of([*self.source.fields, *fields], fields)

    def load_number(self, index: int) -> str:
        """Return a number that the step reads at the place ``at``."""
        if index < len(self.states):
            return f"state{index}"
        array, component, count = self.xs[index - len(self.states)]
        return number_at(
            f"source{array}", self.source.fields[index].scalar, f"(at * {count}u + {component}u)", self.native_int64
        )

    def round_number(self, index: int, value: str) -> str:
        """Return a number of the carry as its array would hold it: narrow integers wrap, and 16-bit floats round."""
        scalar = self.states[index]
        if not scalar.packed or scalar.kind == "bool":
            return value
        return from_storage(scalar, self.native_int64, to_storage(scalar, self.native_int64, [value]), 0)

    def state_at(self, index: int) -> str:
        """Return a number of the carry of row ``row``, which its array holds in whole words."""
        scalar = self.states[index]
        words = [f"carry{index}[row * {scalar.words}u + {word}u]" for word in range(scalar.words)]
        return from_words(scalar, self.native_int64, words)

    def words_of(self, index: int, value: str) -> list[str]:
        """Return the words of a number of the carry."""
        return list(to_words(self.states[index], self.native_int64, value))

    def stores(self) -> list[tuple[int, str, str]]:
        """Return what is stored for y: the array, the place in it, and the word."""
        stores, result = [], self.code.result
        for number, (array, component, count) in enumerate(self.ys):
            index = len(self.states) + number
            scalar = result.fields[index].scalar
            words = to_words(scalar, self.native_int64, result.member("next", index))
            size = scalar.words
            for word, value in enumerate(words):
                stores.append((array, f"(at * {count}u + {component}u) * {size}u + {word}u", value))
        return stores


@lru_cache(maxsize=256)
def elementwise_code(function: Map, native_int64: bool, fixed: bool = False) -> tuple[Code, tuple[int, ...]]:
    """Return the WGSL of a traced function of a tuple of numbers, and which of them it reads.

    Its floats have the same bits on every device if `fixed` is True.
    """
    types = {"argument_type": "Arguments", "result_type": "Result"}
    code = map_code(function, function.source, "apply", native_int64, **types, captures=True, fixed=fixed)
    nodes = reachable([node for field in function.result.fields for node in field])
    return code, tuple(sorted({node.data[1] for node in nodes if node.op == "input"}))
