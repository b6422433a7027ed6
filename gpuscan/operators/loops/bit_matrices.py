"""Matrices over the field of two elements, and their rational canonical form. Vectors are integers, a bit an entry.

A matrix is the sequence of its columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

# How many vectors are tried for a subspace. Of all vectors, a quarter or more would do.
_MAX_TRIES = 64


def multiply(columns: Sequence[int], vector: int) -> int:
    """Return the product of a matrix and a vector."""
    product = 0
    for bit, column in enumerate(columns):
        if vector >> bit & 1:
            product ^= column
    return product


class Basis:
    """Independent vectors, and the coordinates of others in them."""

    def __init__(self) -> None:
        # For each leading bit, a vector with that bit and the combination of the given vectors that makes it.
        self._rows: dict[int, tuple[int, int]] = {}
        self.size = 0

    def coordinates(self, vector: int) -> tuple[int, int]:
        """Return the rest of a vector that the basis does not span, and the coordinates of the other part, as bits."""
        used = 0
        while vector:
            row = self._rows.get(vector.bit_length())
            if row is None:
                break
            vector, used = vector ^ row[0], used ^ row[1]
        return vector, used

    def add(self, vector: int) -> int | None:
        """Add a vector and return None, or return its coordinates if the basis spans it."""
        rest, used = self.coordinates(vector)
        if not rest:
            return used
        self._rows[rest.bit_length()] = rest, used ^ 1 << self.size
        self.size += 1
        return None


def _kernel(rows: Sequence[int], vectors: Sequence[int]) -> list[int]:
    """Return a basis of the combinations of vectors that have an even number of bits in common with each row."""
    for row in rows:
        odd = [vector for vector in vectors if (vector & row).bit_count() & 1]
        vectors = [vector for vector in vectors if vector not in odd] + [vector ^ odd[0] for vector in odd[1:]]
    return list(vectors)


@dataclass(frozen=True)
class Chain:
    """The vectors ``v, M v, M**2 v, ...``.

    Attributes:
        vectors: the first of them, up to the last one that does not depend on those before it.
        feedback: the next one in terms of them, as bits.
    """

    vectors: tuple[int, ...]
    feedback: int


def chain_of(columns: Sequence[int], vector: int) -> Chain:
    basis, vectors = Basis(), list[int]()
    while True:
        feedback = basis.add(vector)
        if feedback is not None:
            return Chain(tuple(vectors), feedback)
        vectors.append(vector)
        vector = multiply(columns, vector)


def decompose(columns: Sequence[int]) -> list[Chain]:
    """Return chains that together are a basis; the feedback of the first one is the minimal polynomial's.

    The search for vectors is random, and returns no chains in the unlikely case that it finds no such vectors.
    """
    choice = random.Random(0)
    size = len(columns)
    rows = [sum((columns[j] >> i & 1) << j for j in range(size)) for i in range(size)]
    space, chains = [1 << bit for bit in range(size)], list[Chain]()
    while space:
        chain = _longest_chain(columns, space, choice)
        chains.append(chain)
        length = len(chain.vectors)
        if length == len(space):
            break
        for _ in range(_MAX_TRIES):
            # Functionals phi M**i; what they take to 0 is invariant, and does not meet the chain if they are
            # independent on it.
            functionals = list(_powers(rows, choice.getrandbits(size), length))
            values = [sum(((f & v).bit_count() & 1) << i for i, v in enumerate(chain.vectors)) for f in functionals]
            basis = Basis()
            if all(basis.add(value) is None for value in values):
                space = _kernel(functionals, space)
                break
        else:
            return []
    return chains if all(_vanishes(columns, chains[0], 1 << bit) for bit in range(size)) else []


def _longest_chain(columns: Sequence[int], space: Sequence[int], choice: random.Random) -> Chain:
    best = chain_of(columns, space[0])
    for _ in range(_MAX_TRIES):
        if len(best.vectors) == len(space):
            break
        vector = reduce(int.__xor__, (vector for vector in space if choice.getrandbits(1)), 0)
        best = max(best, chain_of(columns, vector), key=lambda chain: len(chain.vectors))
    return best


def _vanishes(columns: Sequence[int], chain: Chain, vector: int) -> bool:
    """Return True if the minimal polynomial of a chain takes a vector to 0."""
    total = 0
    for power in range(len(chain.vectors)):
        total ^= vector if chain.feedback >> power & 1 else 0
        vector = multiply(columns, vector)
    return total == vector


def _powers(rows: Sequence[int], functional: int, count: int) -> Iterator[int]:
    """Yield phi, phi M, phi M**2, ... for a functional phi, which multiplies from the left."""
    for _ in range(count):
        yield functional
        functional = multiply(rows, functional)
