"""Associative operators in two forms: NumPy code for gpuscan to trace, and exact arithmetic on Python's own numbers.

The exact forms share nothing with the traced ones but the law: integers are Python's and wrap by an explicit modulo,
floats are whole numbers that no rounding touches, elements with axes are arrays of Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd
from typing import Any

import ml_dtypes
import numpy as np

from gpuscan.elements import LEAF, Element, Structure, element_of, scalar_of
from tests.oracle import Array

Leaves = tuple[Any, ...]

INTEGERS = tuple(f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u"))
FLOATS = ("float16", "bfloat16", "float32")
UNITS = np.array([1, -1, 1j, -1j], np.complex64)


@dataclass(frozen=True, eq=False)
class Law:
    """An associative operator on elements of one or more leaves.

    Attributes:
        name: for messages.
        dtypes: of the leaves.
        combine: NumPy code on two tuples of leaves.
        exact: the same on two tuples of Python numbers, or of object arrays where there are element axes. Integers
            are wrapped by the caller.
        draw: makes leaves of a shape; their combinations stay exact.
        identity: one value for each leaf, or None.
        shape: the element's own axes.
    """

    name: str
    dtypes: tuple[str, ...]
    combine: Callable[[Leaves, Leaves], Leaves]
    exact: Callable[[Leaves, Leaves], Leaves]
    draw: Callable[[np.random.Generator, tuple[int, ...]], Leaves]
    identity: Leaves | None = None
    shape: tuple[int, ...] = ()

    @property
    def element(self) -> Element:
        """The element that gpuscan makes of the leaves."""
        structure = Structure("tuple", tuple(range(len(self.dtypes))), (LEAF,) * len(self.dtypes))
        return element_of([dtype_of(name) for name in self.dtypes], structure, [self.shape] * len(self.dtypes))

    @property
    def words(self) -> int:
        """32-bit words of an element."""
        return self.element.words

    @property
    def least_chunk(self) -> int:
        """Elements that fill whole words in every leaf."""
        return max(4 // gcd(4, field.storage_bytes) for field in self.element.fields)

    def __repr__(self) -> str:
        return f"{self.name} of {', '.join(self.dtypes)}{self.shape or ''}"


# ----- Exact folds


def dtype_of(name: str) -> np.dtype[Any]:
    """Return the dtype of a name, bfloat16 included."""
    if name == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def wrap_integers(value: Any, name: str) -> Any:
    """Wrap Python integers into the range of an integer dtype, and return other values unchanged."""
    dtype = np.dtype(name) if name != "bfloat16" else None
    if dtype is None or dtype.kind not in "iu":
        return value
    low, count = int(np.iinfo(dtype).min), 2 ** (8 * dtype.itemsize)
    return (value - low) % count + low


def in_python(leaf: Array) -> Any:
    """Return one element as a Python number or an object array of them."""
    if leaf.dtype.name == "bfloat16":
        leaf = leaf.astype(np.float32)
    return leaf.astype(object) if leaf.ndim else leaf.item()


def fold_rows(
    law: Law, leaves: Leaves, exclusive: bool = False, reverse: bool = False, seeds: Leaves | None = None
) -> Leaves:
    """Scan every row of leaves (rows, length, *shape) element by element; `seeds` are (rows, *shape)."""
    results: list[list[Any]] = [[] for _ in leaves]
    rows, length = leaves[0].shape[:2]
    order = range(length - 1, -1, -1) if reverse else range(length)
    for row in range(rows):
        carry = None if seeds is None else tuple(in_python(seed[row]) for seed in seeds)
        outcome: list[Any] = [None] * length
        for i in order:
            item = tuple(in_python(leaf[row, i]) for leaf in leaves)
            following = item if carry is None else law.exact(carry, item)
            following = tuple(wrap_integers(v, d) for v, d in zip(following, law.dtypes, strict=True))
            outcome[i] = carry if exclusive else following
            carry = following
        for result, values in zip(results, zip(*outcome, strict=True), strict=True):
            result.extend(values)
    return tuple(
        in_numpy(result, name).reshape(rows, length, *law.shape)
        for result, name in zip(results, law.dtypes, strict=True)
    )


def in_numpy(values: Sequence[Any], name: str) -> Array:
    """Return Python numbers, or object arrays of them, as an array; floats are rounded once."""
    stacked = np.stack(values) if isinstance(values[0], np.ndarray) else np.array(values, object)
    if name in ("float16", "bfloat16"):
        stacked = stacked.astype(np.float32)
    return stacked.astype(dtype_of(name))


# ----- Numbers


def any_bits(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> Array:
    """Draw integers of all bit patterns."""
    limits = np.iinfo(name)
    return rng.integers(limits.min, limits.max, shape, dtype=name, endpoint=True)


def whole(rng: np.random.Generator, name: str, shape: tuple[int, ...], low: int = -8, high: int = 8) -> Array:
    """Draw small whole numbers of any dtype, with an imaginary part for complex ones."""
    if name == "bool":
        return rng.random(shape) < 0.5
    if dtype_of(name).kind == "u":
        low = 0
    numbers = rng.integers(low, high + 1, shape)
    if name == "complex64":
        return (numbers + 1j * rng.integers(low, high + 1, shape)).astype(np.complex64)
    return numbers.astype(dtype_of(name))


def is_float(name: str) -> bool:
    return scalar_of(dtype_of(name)).kind in ("float", "complex")


# ----- The laws


@cache
def affine(name: str) -> Law:
    """Compose ``x -> a x + b``, modulo 2^bits; of floats and complex numbers with a of size one."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        if not is_float(name):
            return any_bits(rng, name, shape), any_bits(rng, name, shape)
        units = UNITS if name == "complex64" else np.array([1, -1], dtype_of(name))
        return units[rng.integers(0, len(units), shape)], whole(rng, name, shape)

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return l[0] * r[0], r[0] * l[1] + r[1]

    return Law("affine", (name, name), combine, combine, draw, (1, 0))


@cache
def min_plus(name: str) -> Law:
    """Return the product of 2 x 2 matrices in which min is the sum and + the product."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return (np.min(l[0][..., :, :, None] + r[0][..., None, :, :], axis=-2),)

    def exact(l: Leaves, r: Leaves) -> Leaves:
        a, b = l[0].tolist(), r[0].tolist()
        product = [[min(a[i][0] + b[0][j], a[i][1] + b[1][j]) for j in (0, 1)] for i in (0, 1)]
        return (np.array(product, object),)

    return Law("min-plus", (name,), combine, exact, lambda rng, s: (whole(rng, name, (*s, 2, 2)),), None, (2, 2))


@cache
def matrices(name: str, k: int) -> Law:
    """Multiply k x k matrices modulo 2^bits."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return (l[0] @ r[0],)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return (any_bits(rng, name, (*shape, k, k)),)

    return Law("matrices", (name,), combine, combine, draw, (np.eye(k, dtype=int),), (k, k))


@cache
def residues(name: str, modulus: int) -> Law:
    """Multiply 2 x 2 matrices modulo a number, field by field."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        (a, b, c, d), (e, f, g, h) = l, r
        return (
            (a * e + b * g) % modulus,
            (a * f + b * h) % modulus,
            (c * e + d * g) % modulus,
            (c * f + d * h) % modulus,
        )

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return tuple(rng.integers(0, modulus, shape).astype(name) for _ in range(4))

    return Law(f"residues mod {modulus}", (name,) * 4, combine, combine, draw, (1, 0, 0, 1))


@cache
def permutations(name: str, k: int) -> Law:
    """Compose permutations of k things: first the left one, then the right one."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return (np.take_along_axis(r[0], l[0], axis=-1),)

    def exact(l: Leaves, r: Leaves) -> Leaves:
        return (np.array([r[0][i] for i in l[0]], object),)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return (rng.permuted(np.broadcast_to(np.arange(k), (*shape, k)), axis=-1).astype(name),)

    return Law("permutations", (name,), combine, exact, draw, (np.arange(k),), (k,))


@cache
def max_subarray(name: str) -> Law:
    """Combine sum, best beginning, best end and best run of two stretches of numbers."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return (
            l[0] + r[0],
            np.maximum(l[1], l[0] + r[1]),
            np.maximum(r[2], r[0] + l[2]),
            np.maximum(np.maximum(l[3], r[3]), l[2] + r[1]),
        )

    def exact(l: Leaves, r: Leaves) -> Leaves:
        return l[0] + r[0], max(l[1], l[0] + r[1]), max(r[2], r[0] + l[2]), max(l[3], r[3], l[2] + r[1])

    return Law("max-subarray", (name,) * 4, combine, exact, lambda rng, s: (whole(rng, name, s),) * 4)


@cache
def last_valid(name: str, flag: str) -> Law:
    """Return the law of the last value with its flag set."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        return np.where(r[1] != 0, r[0], l[0]), l[1] | r[1]

    def exact(l: Leaves, r: Leaves) -> Leaves:
        return r[0] if r[1] else l[0], l[1] | r[1]

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return whole(rng, name, shape, high=100), (rng.random(shape) < 0.1).astype(flag)

    return Law("last valid", (name, flag), combine, exact, draw)


@cache
def argmax(name: str, index: str) -> Law:
    """Return the greatest value and the first place where it is."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        right = r[0] > l[0]
        return np.where(right, r[0], l[0]), np.where(right, r[1], l[1])

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        places = np.broadcast_to(np.arange(shape[-1]), shape).astype(index)
        return whole(rng, name, shape, high=60), places

    return Law("argmax", (name, index), combine, lambda l, r: r if r[0] > l[0] else l, draw)


@cache
def strings(name: str, modulus: int) -> Law:
    """Combine polynomial hashes of strings, with base^length, by concatenation; modulus 0 is 2^bits."""

    def combine(l: Leaves, r: Leaves) -> Leaves:
        code, power = l[0] * r[1] + r[0], l[1] * r[1]
        return (code % modulus, power % modulus) if modulus else (code, power)

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return rng.integers(97, 123, shape).astype(name), np.full(shape, 263).astype(name)

    return Law(f"strings mod {modulus}", (name, name), combine, combine, draw, (0, 1))


@cache
def sums(name: str) -> Law:
    """Add values of any type."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Leaves:
        return (whole(rng, name, shape) if is_float(name) else any_bits(rng, name, shape),)

    return Law("sums", (name,), lambda l, r: (l[0] + r[0],), lambda l, r: (l[0] + r[0],), draw, (0,))


EVERY = ("bool", *INTEGERS, *FLOATS, "complex64")
ORDERED = (*INTEGERS, *FLOATS)
LAWS: dict[str, list[Law]] = {
    "affine": [affine(name) for name in (*INTEGERS, *FLOATS, "complex64")],
    "min-plus": [min_plus(name) for name in ("int32", "int64", *FLOATS)],
    "matrices": [matrices(name, k) for name in INTEGERS for k in (1, 2, 3)],
    "residues": [residues("uint32", 251), residues("int32", 23_167), residues("uint64", 65_521)],
    "permutations": [permutations(name, k) for name in ("uint8", "int16", "uint32", "int64") for k in (1, 3, 5, 8)],
    "max-subarray": [max_subarray(name) for name in ("int32", "int64", *FLOATS)],
    "last valid": [last_valid(name, flag) for name in EVERY for flag in ("bool", "uint8", "int64")],
    "argmax": [argmax(name, index) for name in ORDERED for index in ("uint32", "int64", "uint16")],
    "strings": [strings("uint32", 0), strings("uint32", 65_521), strings("uint64", 0), strings("uint64", 2**31 - 1)],
    "sums": [sums(name) for name in (*INTEGERS, *FLOATS, "complex64")],
}
