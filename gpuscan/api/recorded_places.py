"""Check the places that a recorded plan reads and writes: buffers, pairs of buffer and offset, or arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.picked import Picked
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.foreign_buffers import check_buffer
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import padded
from gpuscan.engine.record import Length
from gpuscan.errors import GpuscanError
from gpuscan.planning.kernel_parts import Placement

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Element, Structure
    from gpuscan.problem.problem import Problem

# A wgpu buffer, and the byte where an array begins in it.
Place = tuple[Any, int]


def places_of(context: DeviceContext, problem: Problem, name: str, given: Any, element: Element) -> list[Place]:
    """Return buffer and offset of each field's array.

    Raises:
        ValueError, TypeError, GpuscanError: as `Plan.record` raises them.
    """
    capabilities = context.capabilities
    alignment, limit = context.offset_alignment, context.binding_limit
    places = []
    for value, field in zip(by_field(name, given, element), element.fields, strict=True):
        buffer, offset = place_of(value, name)
        check_buffer(context.wgpu_device, buffer, name)
        if isinstance(value, Array) and value.dtype != field.scalar.dtype:
            raise TypeError(f"{name} is an array of dtype {value.dtype}; the plan has {field.scalar.dtype} there")
        if isinstance(value, Array):
            value.check()
            if not value.is_contiguous:
                raise ValueError(
                    f"{name} is a view of shape {value.shape} and strides {value.strides}; a recorded plan reads and "
                    "writes neighbouring elements. Pass a contiguous array, such as array.copy()"
                )
        nbytes = problem.size * field.storage_bytes
        if offset < 0 or offset % alignment:
            raise ValueError(
                f"{name} was passed at byte {offset} of its buffer, but {capabilities.summary} binds at multiples of "
                f"{alignment}. Move it to such a byte"
            )
        if nbytes > limit:
            raise GpuscanError(
                f"{name} has {nbytes} bytes; {capabilities.summary} binds at most {limit}. Record it in pieces, or "
                "pass the array to gpuscan.scan, which does"
            )
        if isinstance(value, Array) and extent(value) < nbytes:
            raise ValueError(
                f"{name} is an array of {value.nbytes} bytes; the plan for shape {problem.shape} needs {nbytes}. Pass "
                "one that holds the whole shape, also with length="
            )
        if offset + padded(nbytes) > buffer.size:
            raise ValueError(
                f"{name} needs {padded(nbytes)} bytes, whole words, from byte {offset} on; its buffer has {buffer.size}"
            )
        places.append((buffer, offset))
    return places


def length_of(context: DeviceContext, problem: Problem, given: Any) -> Length:
    """Return where the length is that the GPU knows.

    Raises:
        ValueError, TypeError: as `Plan.record` raises them.
    """
    narrow = any(f.storage_bytes % 4 for f in (*problem.source.fields, *problem.destination.fields))
    if problem.segmented or (problem.reverse and narrow):
        raise ValueError(
            "length= was passed to a plan of several rows or segments, or of a reversed scan of 8- or 16-bit "
            "elements; it is for 1-D plans, and reversed ones of 32-bit elements or wider. Record a plan of the "
            "length itself"
        )
    buffer, offset = place_of(given, "length")
    if isinstance(given, Array):
        given.check()
        if given.dtype not in (np.uint32, np.int32):
            raise TypeError(f"length= is a 32-bit word; an array of {given.dtype} was passed. Pass a uint32")
        if given.nbytes < 4:
            raise ValueError("length= is a 32-bit word; an array of 0 bytes was passed. Pass a uint32")
    check_buffer(context.wgpu_device, buffer, "length")
    if offset < 0 or offset % 4 or offset + 4 > buffer.size:
        raise ValueError(
            f"length= was passed at byte {offset} of a buffer of {buffer.size} bytes; it must be a 32-bit word in the "
            "buffer, at a multiple of 4 bytes"
        )
    return Length(buffer, offset)


def placement_of(
    problem: Problem, sources: list[Place], destinations: list[Place], *, dynamic: bool
) -> tuple[Placement, list[Binding]]:
    """Return how the arrays share buffers and how wide accesses may be, and the bindings.

    Args:
        problem: the scan to record.
        sources, destinations: the places, checked.
        dynamic: True if only the GPU knows the length.

    Raises:
        ValueError: as `Plan.record` raises it.
    """
    fields = (*problem.source.fields, *problem.destination.fields)
    width, exact = ALIGNMENT // 4, False
    for number, ((buffer, offset), field) in enumerate(zip((*sources, *destinations), fields, strict=True)):
        nbytes = problem.size * field.storage_bytes
        stored = number >= len(sources)
        while width > 1 and (
            offset + padded(nbytes, 4 * width) > buffer.size
            or (stored and (field.storage_bytes if dynamic else nbytes) % (4 * width))
        ):
            width //= 2
        exact = exact or (stored and (field.storage_bytes if dynamic else nbytes) % 4 != 0)
    if exact and problem.reverse:
        raise ValueError(
            f"a reversed scan of {problem.size} elements of {problem.source.fields[0].scalar.dtype} was to be "
            "recorded, but they end inside a 32-bit word. Record plans of whole words, or pass the array to "
            "gpuscan.scan"
        )
    bindings = [
        Binding(buffer, offset, max(4, padded(problem.size * field.storage_bytes, 4 * width)))
        for (buffer, offset), field in zip((*sources, *destinations), fields, strict=True)
    ]
    before, after = bindings[: len(sources)], bindings[len(sources) :]
    in_place = problem.source.fields == problem.destination.fields and all(
        a.buffer is b.buffer and a.offset == b.offset for a, b in zip(before, after, strict=True)
    )
    shared = not in_place and any(a.buffer is b.buffer for a in before for b in after)
    if shared and any(a.overlaps(b) for a in before for b in after):
        raise ValueError(
            "dst was passed where it overlaps src in one buffer; pass the same place for both, or places that do not "
            "overlap"
        )
    if any(a.overlaps(b) for number, a in enumerate(after) for b in after[:number]):
        raise ValueError("two fields of dst overlap in one buffer; pass places that do not overlap")
    return Placement(width=width, exact=exact, shared=shared, in_place=in_place), bindings


def by_field(name: str, given: Any, element: Element) -> list[Any]:
    """Return the place for each field of a bundle: by key if they were passed as a dict, else in order.

    Raises:
        TypeError: the places are not a bundle.
        ValueError: they have other fields.
    """
    count = len(element.fields)
    in_order = isinstance(given, (tuple, list)) and len(given) == count
    if in_order and element.structure.kind != "leaf":
        return list(given)
    return [given] if count == 1 and not isinstance(given, dict) else nested(name, given, element.structure)


def nested(name: str, given: Any, structure: Structure) -> list[Any]:
    """Return the places for the leaves of the structure. A place may be a pair, so leaves are not taken apart."""
    if structure.kind == "leaf":
        return [given]
    keys = ", ".join(map(repr, structure.keys))
    if isinstance(given, dict):
        if set(given) != set(structure.keys):
            raise ValueError(
                f"{name} has the keys {', '.join(map(repr, given))}; the plan takes one place for each of {keys}"
            )
        parts = [given[key] for key in structure.keys]
    elif isinstance(given, (tuple, list)):
        if len(given) != len(structure.keys):
            raise ValueError(f"{name} has {len(given)} places; the plan takes one for each of the fields {keys}")
        parts = list(given)
    else:
        raise TypeError(
            f"{name} was {type(given).__name__}; the plan takes a dict, tuple or list with a place for each of the "
            f"fields {keys}"
        )
    return [leaf for child, part in zip(structure.children, parts, strict=True) for leaf in nested(name, part, child)]


def place_of(value: Any, name: str) -> Place:
    """Return buffer and offset, given a buffer, a pair of both, or an array."""
    if isinstance(value, Array):
        return value.buffer, value.offset
    if isinstance(value, tuple):
        if len(value) != 2 or not hasattr(value[1], "__index__"):
            raise TypeError(f"{name} {value!r} was passed; a place in a buffer is (buffer, offset in bytes)")
        return value[0], operator.index(value[1])
    return value, 0


def extent(array: Array) -> int:
    """Return the bytes of the array; if only the GPU knows its length, the bytes of its longest form."""
    if isinstance(array, Picked) and array.owner is not None:
        return array.owner.nbytes
    return int(array.nbytes)


def arrays_in(places: Any) -> Iterator[Array]:
    """Yield the arrays among nested places."""
    if isinstance(places, Array):
        yield places
    elif isinstance(places, (tuple, list, dict)):
        for place in places.values() if isinstance(places, dict) else places:
            yield from arrays_in(place)
