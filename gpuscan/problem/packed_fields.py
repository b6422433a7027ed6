"""Pack bundles of more fields than an adapter binds arrays: the bits of many fields go into one or two arrays.

Complex fields share an array of complex numbers. All other fields share an array of 32-bit words: several narrow
numbers share a word, and 64-bit numbers take two words. So any bundle fits the 8 storage buffers that WebGPU promises:
two arrays in, two arrays out, and four others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import Element, Field, Scalar, element_of, tuple_of
from gpuscan.errors import GpuscanError
from gpuscan.operators.expression_graph import FLOAT32
from gpuscan.operators.trace import trace_function
from gpuscan.operators.traced_array import Number, Traced, complex_of
from gpuscan.problem.indexed_maps import with_index

if TYPE_CHECKING:
    from gpuscan.problem.arguments import Leaf
    from gpuscan.problem.problem import Problem

# WebGPU's name of the limit on the storage buffers that a shader binds.
STORAGE_LIMIT = "max-storage-buffers-per-shader-stage"
# The buffers that a stage binds in addition to the arrays: the tile state, and a carry.
AUXILIARY_BUFFERS = 2
# The dtypes of the arrays that carry other fields.
_WORDS, _COMPLEX = np.dtype(np.uint32), np.dtype(np.complex64)
Arrays = list[AnyArray]


def binds_too_many(problem: Problem, limit: int) -> bool:
    """Return True if the problem has more arrays than the `limit` of buffers that a shader binds."""
    arrays = len(problem.source.fields) + len(problem.destination.fields)
    auxiliary = AUXILIARY_BUFFERS + (problem.seeds is not None) + (problem.heads is not None) + problem.lists_key_runs
    return arrays + auxiliary > limit


def pack_problem(problem: Problem, leaves: Sequence[Leaf], limit: int, adapter: str) -> Problem:
    """Return the same problem on packed arrays.

    Args:
        leaves: its arrays, packed by `pack_arrays` or on the device.
        limit: how many buffers a shader binds.
        adapter: the adapter's name, for the error.

    Raises:
        GpuscanError: the device was opened with a limit below WebGPU's minimum, which the packed arrays exceed.
    """
    whole = replace(
        problem,
        leaves=tuple(leaves),
        source=make_packed_element(problem.source),
        destination=make_packed_element(problem.destination),
        fill=None if problem.fill is None else tuple(pack_arrays(problem.destination, problem.fill, 1)),
    )
    if binds_too_many(whole, limit):
        raise GpuscanError(
            f"a scan from {len(problem.source.fields)} arrays to {len(problem.destination.fields)} was asked for, but "
            f"{adapter} binds {limit} buffers at most. Pass fewer arrays, or open the device with a larger limit "
            f'"{STORAGE_LIMIT}"'
        )
    argument = with_index(whole.source, problem.row_length) if problem.indexed else whole.source
    unpack = unpack_indexed if problem.indexed else unpack_before
    return replace(
        whole,
        before=trace_function(unpack(problem.source, problem.before), argument, "before"),
        after=trace_function(pack_after(problem.element, problem.destination, problem.after), problem.element, "after"),
    )


def unpack_results(problem: Problem, results: Sequence[AnyArray]) -> Arrays:
    """Return the results of the problem, given the results of the packed problem."""
    arrays: Arrays = []
    for field, (carrier, start) in zip(problem.destination.fields, carrier_offsets(problem.destination), strict=True):
        whole = np.ascontiguousarray(results[carrier])
        own = whole.view(np.uint8)[..., start : start + field.storage_bytes]
        numbers = np.ascontiguousarray(own).view(field.scalar.dtype)
        arrays.append(numbers.reshape(*whole.shape[:-1], *field.shape))
    return arrays


# ----- Where the fields are


@lru_cache(maxsize=256)
def _layout(element: Element) -> tuple[tuple[AnyDType, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Return the dtypes of the carriers, how many numbers each has, and `carrier_offsets`."""
    sizes: dict[AnyDType, int] = {}
    positions = []
    for field in element.fields:
        dtype = _COMPLEX if field.scalar.kind == "complex" else _WORDS
        # A number is never in two words, unless it has two of its own.
        step = min(field.scalar.dtype.itemsize, dtype.itemsize)
        start = -(-sizes.setdefault(dtype, 0) // step) * step
        positions.append((list(sizes).index(dtype), start))
        sizes[dtype] = start + field.storage_bytes
    return tuple(sizes), tuple(-(-size // dtype.itemsize) for dtype, size in sizes.items()), tuple(positions)


def carrier_offsets(element: Element) -> tuple[tuple[int, int], ...]:
    """Return for each field the number of the array that carries it, and its first byte in that array's element."""
    return _layout(element)[2]


def make_packed_element(element: Element) -> Element:
    """Return the element of the arrays that carry the fields: one vector for each."""
    dtypes, counts, _ = _layout(element)
    return element_of(dtypes, tuple_of(len(counts)), [(count,) for count in counts])


def pack_arrays(element: Element, arrays: Sequence[AnyArray], axes: int) -> Arrays:
    """Return the arrays that carry the fields.

    Args:
        arrays: one array for each field.
        axes: how many axes the arrays have before the axes of the element.
    """
    lead = arrays[0].shape[:axes]
    carriers = [np.zeros((*lead, *field.shape), field.scalar.dtype) for field in make_packed_element(element).fields]
    for array, field, (carrier, start) in zip(arrays, element.fields, carrier_offsets(element), strict=True):
        numbers = np.ascontiguousarray(array).reshape(*lead, field.count)
        carriers[carrier].view(np.uint8)[..., start : start + field.storage_bytes] = numbers.view(np.uint8)
    return carriers


# ----- The maps between the two forms


def unpack_before(source: Element, before: Callable[..., object] | None) -> Callable[..., object]:
    """Return a map from packed fields to the element, followed by the user's map if there is one."""

    def unpack(vectors: Sequence[Number]) -> object:
        parts = []
        for field, (carrier, start) in zip(source.fields, carrier_offsets(source), strict=True):
            size = field.scalar.dtype.itemsize
            numbers = [_number_at(vectors[carrier], start + i * size, field) for i in range(field.count)]
            parts.append(reshape_numbers(numbers, field.shape))
        value = source.structure.unflatten(parts)
        return value if before is None else before(value)

    return unpack


def unpack_indexed(source: Element, before: Callable[..., object] | None) -> Callable[..., object]:
    """Return `before`, a map of an element and its index, as a map of the words of the element and its index."""
    assert before is not None
    unpack = unpack_before(source, None)
    return lambda pair: before((unpack(pair[0]), pair[1]))


def pack_after(element: Element, destination: Element, after: Callable[..., object] | None) -> Callable[..., object]:
    """Return a map from a result to packed fields, which applies the user's map first if there is one."""

    def pack(value: object) -> object:
        leaves = destination.structure.flatten(value if after is None else after(value))
        carriers: list[list[Any]] = [[None] * field.count for field in make_packed_element(destination).fields]
        for leaf, field, (carrier, start) in zip(leaves, destination.fields, carrier_offsets(destination), strict=True):
            if not isinstance(leaf, Traced):  # A constant is the same number in every result.
                leaf = np.full_like(element.structure.flatten(value)[0], leaf, dtype=field.scalar.dtype)
            leaf = leaf.astype(field.scalar.dtype)
            for i, at in enumerate(np.ndindex(field.shape)):
                _put(carriers[carrier], start + i * field.scalar.dtype.itemsize, leaf[(..., *at)], field)
        return tuple(np.stack(carrier, axis=-1) for carrier in carriers)

    return pack


def _number_at(vector: Number, start: int, field: Field) -> Any:
    """Return the number of the field that begins at this byte of a vector."""
    if field.scalar.kind == "complex":
        return vector[..., start // _COMPLEX.itemsize]
    return number_from(vector, start, field.scalar)


def number_from(words: Number, start: int, scalar: Scalar) -> Any:
    """Return the number that begins at this byte of a vector of unsigned words, or of parts of words.

    A number of 64 bits takes two whole words. Every other number is inside one word.
    """
    unit, size = words.dtype.itemsize, scalar.dtype.itemsize
    if scalar.kind == "complex":
        return complex_of(*(number_from(words, at, FLOAT32) for at in (start, start + unit)))
    word = words[..., start // unit]
    if size > unit:
        word = word.astype(np.uint64) | (words[..., start // unit + 1].astype(np.uint64) << np.uint64(32))
    elif size < unit:
        word = (word >> words.dtype.type(8 * (start % unit))).astype(f"u{size}")
    return word.view(scalar.dtype)


def _put(vector: list[object], start: int, number: Traced, field: Field) -> None:
    """Put a number of the field at this byte of a vector. Items of the vector without a number are None."""
    if field.scalar.kind == "complex":
        vector[start // _COMPLEX.itemsize] = number
        return
    at, bits = start // _WORDS.itemsize, number.bits_as(f"u{field.scalar.dtype.itemsize}")
    if field.scalar.bits == 64:
        vector[at], vector[at + 1] = bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)
        return
    word = bits.astype(np.uint32)
    if field.scalar.bits < 32:
        word = word << np.uint32(8 * (start % _WORDS.itemsize))
    vector[at] = word if vector[at] is None else vector[at] | word


def reshape_numbers(numbers: Sequence[Number], shape: tuple[int, ...]) -> Number:
    """Return the numbers as an array of the shape, as NumPy's reshape does."""
    if not shape:
        return numbers[0]
    count = len(numbers) // shape[0]
    return np.stack(
        [reshape_numbers(numbers[i * count : (i + 1) * count], shape[1:]) for i in range(shape[0])], axis=-len(shape)
    )
