"""Apply a function to every element of arrays on a device, by one kernel that reads views at their own strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING

from gpuscan.array_types import AnyDType
from gpuscan.codegen.elementwise_text import VECTOR_CHUNK, ElementwiseText, elementwise_code
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding
from gpuscan.device.strides import broadcast_strides, c_strides, join_axes, reach
from gpuscan.device.transfer import round_up
from gpuscan.elements import element_of, tuple_of
from gpuscan.engine.element_copy import copy_view, elements_of, targets_for, write_to_outputs
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.errors import GpuscanError
from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.trace import trace_function
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.sizes import spans

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.operators.trace import Map

# Chunks that an invocation computes, so that several loads are under way.
_STEPS = 4
# Pieces of arrays that exceed a binding begin at multiples of this many elements, where a shader can bind them.
_PIECE_UNIT = 256
# The kernel counts elements in 32 bits.
_MAX_ELEMENTS = 2**32 - 1


@dataclass(frozen=True)
class _Run:
    """One call: what it reads and writes. Axes that are neighbours in all sources are joined.

    Attributes:
        text: the kernel's text.
        sources: the arrays that the function reads.
        axes: for each axis its length, and the bytes from one element to the next in each source.
        results: the arrays to write, in C order.
        aliases: for each source the result that it is read from, because it is the same array; or None.
    """

    text: ElementwiseText
    sources: Sequence[DeviceArray]
    axes: Sequence[tuple[int, ...]]
    results: Sequence[DeviceArray]
    aliases: Sequence[int | None]

    @property
    def inner(self) -> int:
        """The elements of one entry of the first axis."""
        return prod(length for length, *_ in self.axes[1:])

    def source_reach(self, index: int, rows: int) -> tuple[int, int]:
        """Return the first byte and the end of this many entries of a source's first axis."""
        shape = (rows, *(axis[0] for axis in self.axes[1:]))
        strides = [axis[1 + index] for axis in self.axes]
        return reach(shape, strides, self.sources[index].dtype.itemsize)


def map_elements(
    context: DeviceContext,
    sources: Sequence[DeviceArray],
    function: Map,
    shape: tuple[int, ...],
    out: Sequence[DeviceArray] | None = None,
) -> list[DeviceArray]:
    """Return the fields of the function's result for each element: ``function((a, b, …))`` of the broadcast arrays.

    Args:
        sources: arrays of any strides that broadcast to the shape.
        function: a traced function of a tuple of numbers.
        shape: the shape of the results.
        out: arrays to write, which fit and do not overlap each other; new ones without. They may be sources.

    Raises:
        UnsupportedDtypeError: the device has no such numbers.
        GpuscanError: there are more arrays than the device binds.
    """
    check_numbers(context, function)
    fields = function.element.fields
    results = list(out) if out is not None else [empty(context, (*shape, *f.shape), f.scalar.dtype) for f in fields]
    if not any(result.nbytes for result in results):
        return results
    with context.errors, context.lock:
        for array in (*sources, *results):
            array._check("STORAGE")
        code, used = elementwise_code(function, context.capabilities.native_int64)
        _check_count(context, len(used), len(fields))
        views = [broadcast(sources[index], shape) for index in used]
        targets = targets_for(results, (_is_direct(result, views) for result in results))
        aliases = [
            next((i for i, target in enumerate(targets) if target.buffer is view.buffer), None) for view in views
        ]
        capabilities = context.capabilities
        text = ElementwiseText(
            code, function.source, used, capabilities.native_int64, capabilities.packs_halves, 1, tuple(aliases), ()
        )
        run = _join_run_axes(context, _Run(text, views, (), targets, aliases), shape)
        for start, count in spans(prod(shape), _piece_length(context, run, prod(shape))):
            _submit(context, run, start, start + count)
        write_to_outputs(targets, results)
    return results


def convert_array(array: DeviceArray, dtype: AnyDType) -> DeviceArray:
    """Return the array in another dtype."""
    (result,) = map_elements(array._context, [array], _conversion(array.dtype, dtype), array.shape)
    return result


def in_dtype(array: DeviceArray, dtype: AnyDType) -> DeviceArray:
    """Return the array itself if it has a dtype, else a copy in that dtype."""
    return array if array.dtype == dtype else convert_array(array, dtype)


@cache
def _conversion(source: AnyDType, dtype: AnyDType) -> Map:
    element = element_of([source], tuple_of(1))
    return trace_function(lambda numbers: numbers[0].astype(dtype), element, "astype")


def broadcast(array: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """Return the array as a view of a shape that it broadcasts to."""
    return array._view_at(shape, broadcast_strides(array.shape, array.strides, shape))


def check_numbers(context: DeviceContext, function: Map) -> None:
    """Raise UnsupportedDtypeError if the function takes, gives or computes float64, and the device has none."""
    nodes = reachable([node for field in function.result.fields for node in field])
    scalars = {field.scalar.name for field in function.source.fields} | {node.scalar.name for node in nodes}
    if "float64" in scalars and not context.capabilities.float64:
        raise context.float64_error(
            "a computation in float64 was asked for", "float32, or compute on the CPU: array.numpy()"
        )


def _check_count(context: DeviceContext, sources: int, results: int) -> None:
    limit = context.capabilities.limits[STORAGE_LIMIT]
    if sources + results > limit:
        raise GpuscanError(
            f"a function of {sources} arrays with {results} results was passed, but {context.capabilities.summary} "
            f"binds {limit} arrays at most. Compute some of the results in another call"
        )


def _is_direct(result: DeviceArray, sources: Sequence[DeviceArray]) -> bool:
    """Return True if the kernel may write straight to the result: a source in the same buffer is the same array."""
    same = (
        source.buffer is not result.buffer
        or (source.offset == result.offset and source.strides == result.strides and source.dtype == result.dtype)
        for source in sources
    )
    return result._is_writable_in_vectors and all(same)


def _join_run_axes(context: DeviceContext, run: _Run, shape: tuple[int, ...]) -> _Run:
    """Return the call with its axes. If sources would exceed a binding in every piece, they are copied in C order."""
    axes = join_axes(shape, *(source.strides for source in run.sources)) or [(1, *[0] * len(run.sources))]
    vectors = tuple(len(axes) == 1 and _is_vector(source, axes[0][1 + i]) for i, source in enumerate(run.sources))
    joined = replace(run, axes=axes, text=replace(run.text, rank=len(axes), vectors=vectors))
    widths = [high - low for low, high in (joined.source_reach(index, 1) for index in range(len(run.sources)))]
    large = max(widths, default=0) > context.binding_limit // 4
    if len(axes) == 1 or not (large or prod(shape) > _MAX_ELEMENTS):
        return joined
    copies = [
        source
        if source.strides == c_strides(shape, source.dtype.itemsize)
        else copy_view(elements_of(source), shape, source.dtype)
        for source in run.sources
    ]
    return _join_run_axes(context, replace(run, sources=copies), shape)


def _is_vector(source: DeviceArray, stride: int) -> bool:
    """Return True if the elements are neighbours, and a shader can load them as vectors from where they are."""
    size = source.dtype.itemsize
    if stride != size or source.offset % min(ALIGNMENT, VECTOR_CHUNK * size):
        return False
    return bool(round_up(source._extent[1], ALIGNMENT) <= source._buffer_bytes)


def _piece_length(context: DeviceContext, run: _Run, size: int) -> int:
    """Return how many elements the kernel computes at a time, so that it can bind its arrays."""
    limit = context.binding_limit - context.offset_alignment
    widest = max(field.storage_bytes for field in run.text.code.result.fields)
    length = min(size, _MAX_ELEMENTS, max(1, limit // max(widest, 1)))

    def fits(length: int) -> bool:
        rows = min(run.axes[0][0], -(-length // run.inner) + 1)
        reached = (run.source_reach(index, rows) for index in range(len(run.sources)))
        return all(high - low <= limit for low, high in reached)

    while not fits(length) and length > _PIECE_UNIT:
        length = -(-length // 2)
    return length if length == size else max(_PIECE_UNIT, length // _PIECE_UNIT * _PIECE_UNIT)


def _submit(context: DeviceContext, run: _Run, start: int, stop: int) -> None:
    """Submit the kernel for the elements from `start` to `stop`, counted in C order."""
    first_row, rows = start // run.inner, (stop - 1) // run.inner - start // run.inner + 1
    numbers = [start - first_row * run.inner, stop - start, *(length for length, *_ in run.axes)]
    sources: list[Binding] = []
    for index, (source, alias) in enumerate(zip(run.sources, run.aliases, strict=True)):
        size = source.dtype.itemsize
        steps = [axis[1 + index] for axis in run.axes]
        if alias is None:
            begin = source.offset + first_row * steps[0]
            low, high = (begin + at for at in run.source_reach(index, rows))
            base = low // context.offset_alignment * context.offset_alignment
            vector = run.text.vectors[index]
            sources.append(Binding(source.buffer, base, round_up(high - base, ALIGNMENT if vector else 4)))
            numbers.append((begin - base) // (min(ALIGNMENT, VECTOR_CHUNK * size) if vector else size))
        else:
            numbers.append(0 if run.text.vectors[index] else first_row * run.inner - start)
        numbers += [step // size for step in steps]
    results = []
    for result, field in zip(run.results, run.text.code.result.fields, strict=True):
        at = result.offset + start * field.storage_bytes
        results.append(Binding(result.buffer, at, round_up((stop - start) * field.storage_bytes, ALIGNMENT)))
    captured = [context.uniform(run.text.code.captured)] if run.text.captured_functions else []
    bound = [*sources, *results, *captured]
    count, values = stop - start, {"text": run.text, "steps": _STEPS}
    invocations = -(-count // (_STEPS * run.text.chunk))
    deferrable = are_owned(*run.sources, *run.results)
    submit_stage(context, "arrays/map_elements.wgsl", numbers, bound, invocations, count, deferrable, **values)
