"""Pack fields of one width into one array, for bundles with more fields than an adapter can bind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.elements import Element, Field, Structure, element_of
from gpuscan.errors import GpuscanError
from gpuscan.operators.traced_array import Traced
from gpuscan.operators.tracing import traced

if TYPE_CHECKING:
    from gpuscan.problem.problem import Problem

# WebGPU's name of the limit on the storage buffers that a shader binds.
STORAGE_LIMIT = "max-storage-buffers-per-shader-stage"
# The buffers that a stage binds in addition to the arrays: the tile state, and a carry.
AUXILIARY_BUFFERS = 2
Arrays = list[np.ndarray[Any, Any]]


def binds_too_many(problem: Problem, limit: int) -> bool:
    """Return True if the problem has more arrays than the `limit` of buffers that a shader binds."""
    arrays = len(problem.source.fields) + len(problem.destination.fields)
    auxiliary = AUXILIARY_BUFFERS + (problem.seeds is not None) + (problem.heads is not None)
    return arrays + auxiliary > limit


def packed(problem: Problem, leaves: Sequence[Any], limit: int, adapter: str) -> Problem:
    """Return the same problem on fewer arrays: each has the numbers of all the fields of one width, as bits.

    Args:
        problem: the problem.
        leaves: its arrays, packed by `pack_arrays` or on the device.
        limit: how many buffers a shader binds.
        adapter: the adapter's name, for the error.

    Raises:
        GpuscanError: the fields have too many different widths.
    """
    whole = replace(
        problem,
        leaves=tuple(leaves),
        source=packed_element(problem.source),
        destination=packed_element(problem.destination),
    )
    if binds_too_many(whole, limit):
        raise GpuscanError(
            f"a scan from {len(problem.source.fields)} arrays to {len(problem.destination.fields)} was asked for, with "
            f"fields of {len(whole.source.fields)} and {len(whole.destination.fields)} widths, but {adapter} binds "
            f"{limit} buffers at most. Pass fields of fewer widths"
        )
    return replace(
        whole,
        before=traced(unpack_before(problem.source, problem.before), whole.source, "before"),
        after=traced(pack_after(problem.element, problem.destination, problem.after), problem.element, "after"),
    )


def unpacked(problem: Problem, results: Sequence[np.ndarray[Any, Any]]) -> Arrays:
    """Return the results of the problem, given those of the packed problem."""
    arrays: Arrays = []
    for field, (group, first) in zip(problem.destination.fields, places(problem.destination), strict=True):
        whole = results[group]
        numbers = np.ascontiguousarray(whole[..., first : first + field.count]).view(field.scalar.dtype)
        arrays.append(numbers.reshape(*whole.shape[:-1], *field.shape))
    return arrays


# ----- The places of the fields


def carrier(field: Field) -> np.dtype[Any]:
    """Return the dtype of the array that carries the field's bits."""
    if field.scalar.kind == "complex":
        return field.scalar.dtype
    return np.dtype(f"u{field.scalar.dtype.itemsize}")


@lru_cache(maxsize=256)
def places(element: Element) -> tuple[tuple[int, int], ...]:
    """Return, for each field, the index of the array that carries it and its first number in the array's vectors."""
    counts: dict[Any, int] = {}
    found = []
    for field in element.fields:
        first = counts.setdefault(carrier(field), 0)
        found.append((list(counts).index(carrier(field)), first))
        counts[carrier(field)] += field.count
    return tuple(found)


def packed_element(element: Element) -> Element:
    """Return an element with one vector for each carrier, in the order of the fields."""
    counts: dict[Any, int] = {}
    for field in element.fields:
        counts[carrier(field)] = counts.get(carrier(field), 0) + field.count
    structure = Structure("tuple", tuple(range(len(counts))), (Structure(),) * len(counts))
    return element_of(list(counts), structure, [(count,) for count in counts.values()])


def pack_arrays(element: Element, arrays: Sequence[Any], axes: int) -> Arrays:
    """Return the arrays of an element's fields, packed into one array for each carrier.

    Args:
        element: the element.
        arrays: an array for each field.
        axes: the number of axes of each array before those of the element.
    """
    groups: list[list[Any]] = [[] for _ in packed_element(element).fields]
    for array, field, (group, _) in zip(arrays, element.fields, places(element), strict=True):
        bits = np.ascontiguousarray(array).view(carrier(field))
        groups[group].append(bits.reshape(*array.shape[:axes], field.count))
    return [np.concatenate(group, axis=-1) for group in groups]


# ----- The maps between the two forms


def unpack_before(source: Element, before: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a map from packed fields to the element, followed by the user's map if there is one."""

    def unpack(vectors: Any) -> Any:
        parts = []
        for field, (group, first) in zip(source.fields, places(source), strict=True):
            numbers = [_viewed(vectors[group][..., first + i], field) for i in range(field.count)]
            parts.append(shaped(numbers, field.shape))
        value = source.structure.unflatten(parts)
        return value if before is None else before(value)

    return unpack


def pack_after(element: Element, destination: Element, after: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """Return a map from a result to packed fields, which applies the user's map first if there is one."""

    def pack(value: Any) -> Any:
        leaves = destination.structure.flatten(value if after is None else after(value))
        groups: list[list[Any]] = [[] for _ in packed_element(destination).fields]
        for leaf, field, (group, _) in zip(leaves, destination.fields, places(destination), strict=True):
            if not isinstance(leaf, Traced):  # A constant is the same number in every result.
                leaf = np.full_like(element.structure.flatten(value)[0], leaf, dtype=field.scalar.dtype)
            leaf = leaf.astype(field.scalar.dtype)
            bits = leaf if carrier(field) == field.scalar.dtype else leaf.bits_as(carrier(field))
            groups[group] += [bits[(..., *at)] for at in np.ndindex(field.shape)]
        return tuple(np.stack(group, axis=-1) for group in groups)

    return pack


def _viewed(carried: Any, field: Field) -> Any:
    """Return a number of the field from the number that carries its bits."""
    return carried if carrier(field) == field.scalar.dtype else carried.view(field.scalar.dtype)


def shaped(numbers: list[Any], shape: tuple[int, ...]) -> Any:
    """Return the numbers as an array of this shape, in C order as NumPy's `reshape`."""
    if not shape:
        return numbers[0]
    each = len(numbers) // shape[0]
    return np.stack([shaped(numbers[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0])], axis=-len(shape))
