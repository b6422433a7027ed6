"""Describe how a kernel accesses one field's array, and write the expressions of the numbers in it.

The statements of loads and stores are the macros of shaders/shared/chunk_access.wgsl.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd

from gpuscan.codegen.number_formats import across_words, from_storage, from_words
from gpuscan.elements import Field
from gpuscan.planning.kernel import MOVED, Kernel
from gpuscan.planning.kernel_parts import BoundArray


@dataclass(frozen=True)
class FieldAccess:
    """Plain values about one field's array, for the templates.

    Attributes:
        array: the array's binding.
        field: the field of its elements.
        native_int64: whether 64-bit integers are native in the shader.
        offset: which element is taken, in the order of the scan: -1 for the one before, 1 for the one after, else 0.
        width: the 32-bit words of one access.
        accesses: the accesses that cover a chunk.
        unaligned: True if chunks begin and end within words.
        exchanged: True if the lanes of a subgroup exchange chunks, so that each access takes neighbours.
    """

    array: BoundArray
    field: Field
    native_int64: bool
    offset: int
    width: int
    accesses: int
    unaligned: bool
    exchanged: bool

    @property
    def name(self) -> str:
        """The array's name in the shader."""
        return self.array.name

    @property
    def view(self) -> str:
        """How the array's words are found in its buffer: see `gpuscan.planning.kernel_parts.Placement.views`."""
        return self.array.view

    @property
    def per_word(self) -> int:
        """The numbers that the parameters of a view count in a word: its parts if numbers are packed."""
        return self.field.scalar.per_word if self.field.scalar.packed else 1

    def load_vector(self, index: str) -> str:
        """Return the expression of the vector at a place."""
        return f"load_{self.name}({index})" if self.view else f"{self.name}[{index}]"

    def refer_to_vector(self, index: str) -> str:
        """Return the reference to the vector at a place."""
        return f"{self.name}[index_in_{self.name}({index})]" if self.view else f"{self.name}[{index}]"

    @property
    def vector(self) -> str:
        """The WGSL type of one access."""
        return vector_type(self.width)

    @property
    def index_factor(self) -> int:
        """An element's index times this, shifted right by `index_shift`, is the index of its vector."""
        return self.field.storage_bytes // gcd(self.field.storage_bytes, 4 * self.width)

    @property
    def index_shift(self) -> int:
        """See `index_factor`."""
        return (4 * self.width // gcd(self.field.storage_bytes, 4 * self.width)).bit_length() - 1

    def list_words(self, accesses: int, prefix: str = "") -> list[str]:
        """Return the expressions of the words in vectors that are called ``source0_0``, ``source0_1``, …"""
        vectors = [f"{prefix}{self.name}_{i}" for i in range(accesses)]
        words = [f"{v}.{c}" for v in vectors for c in "xyzw"[: self.width]] if self.width > 1 else vectors
        if not self.unaligned:
            return words
        return [across_words(low, high, f"{self.name}_shift") for low, high in pairwise(words)]

    def numbers(self, words: Sequence[str], position: int) -> list[str]:
        """Return the expressions of the numbers of the element at this place in these words."""
        count = self.field.count
        return [from_storage(self.field.scalar, self.native_int64, words, position * count + i) for i in range(count)]

    def numbers_at(self, at: str) -> list[str]:
        """Return the expressions of the numbers of element `at`, wherever it begins within a word."""
        scalar, numbers = self.field.scalar, []
        for i in range(self.field.count):
            if scalar.packed:
                number = f"(({at}) * {self.field.count}u + {i}u)"
                word = self.word_at(f"{number} / {scalar.per_word}u")
                shifted = f"({word} >> ({number} % {scalar.per_word}u * {scalar.bits}u))"
                numbers.append(from_storage(scalar, self.native_int64, [shifted], 0))
            else:
                start = f"({at}) * {self.field.words}u + {i * scalar.words}u"
                words = [self.word_at(f"{start} + {word}u") for word in range(scalar.words)]
                numbers.append(from_words(scalar, self.native_int64, words))
        return numbers

    def word_at(self, index: str) -> str:
        """Return the expression of the array's word at a place."""
        if self.view:
            return f"load_{self.name}({index})"
        if self.width == 1:
            return f"{self.name}[{index}]"
        return f"{self.name}[({index}) / {self.width}u][({index}) % {self.width}u]"


def vector_type(width: int) -> str:
    """Return the WGSL type of this many 32-bit words."""
    return "u32" if width == 1 else f"vec{width}<u32>"


def source_accesses(kernel: Kernel) -> list[FieldAccess]:
    """Return how the kernel accesses each field that it loads."""
    pairs = zip(kernel.sources, kernel.spec.source.fields, strict=True)
    return [_access(kernel, array, field, kernel.spec.offset_of(i)) for i, (array, field) in enumerate(pairs)]


def destination_accesses(kernel: Kernel) -> list[FieldAccess]:
    """Return how the kernel accesses each field that it stores; none in a stage that stores no results."""
    if not kernel.destinations:
        return []
    pairs = zip(kernel.destinations, kernel.spec.destination.fields, strict=True)
    return [_access(kernel, array, field, 0) for array, field in pairs]


def count_moved_accesses(access: FieldAccess) -> int:
    """Return the accesses that the neighbours take which an invocation of a compaction moves at a time."""
    return MOVED * access.field.storage_bytes // 4 // access.width


def _access(kernel: Kernel, array: BoundArray, field: Field, offset: int) -> FieldAccess:
    width = 1 if array.view else kernel.field_width(field)
    return FieldAccess(
        array=array,
        field=field,
        native_int64=kernel.target.native_int64,
        offset=offset,
        width=width,
        accesses=kernel.chunk_accesses(field, width),
        unaligned=kernel.is_unaligned(field),
        exchanged=kernel.exchanges_chunks and (width == 1 or not kernel.access.views),
    )
