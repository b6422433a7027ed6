"""Describe what a scan computes: the values that decide its shaders, its tiles and its plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import attrgetter

import numpy as np

from gpuscan.elements import (
    SCALARS,
    Element,
    Field,
    HashedOnce,
    Scalar,
    bundle_of,
    element_of,
    intern_value,
    min_chunk,
)
from gpuscan.errors import OperatorError
from gpuscan.operators.code import Code, combine_code, map_code, tells_nan_apart
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.operators.parameters import Expression, concatenate
from gpuscan.operators.trace import Map
from gpuscan.operators.traced_array import Number
from gpuscan.planning.capabilities import Capabilities
from gpuscan.problem.indexed_maps import with_index
from gpuscan.problem.problem import Problem

# Bytes in the widest load or store: WGSL's vec4<u32>.
ACCESS_BYTES = 16


@dataclass(frozen=True)
class StepCodes(HashedOnce):
    """The code of the steps of a loop; see `gpuscan.problem.problem.LoopSteps`.

    Attributes:
        state, take, finish, first, extend, settle: the functions.
    """

    state: Code
    take: Code
    finish: Code
    first: Code | None
    extend: Code | None
    settle: Code | None

    __hash__ = HashedOnce.__hash__

    @property
    def named(self) -> tuple[tuple[str, Code], ...]:
        """The functions, each with its name."""
        pairs = ((f"loop_{step_code.name}", getattr(self, step_code.name)) for step_code in fields(self))
        return tuple((name, code) for name, code in pairs if code is not None)


@dataclass(frozen=True, kw_only=True)
class ShaderSpec(HashedOnce):
    """The part of a scan that decides the text of its shaders, for any number of rows and elements.

    Attributes:
        source: the element type that is loaded.
        element: the element type that the operator combines.
        destination: the element type that is stored.
        operator_name: the operator's name, for comments and messages.
        combine: the operator's code.
        before: the code of the map that is fused into the load, or None.
        maps_seeds: True if `before` also maps the rows' initial values, which then are of the source's type.
        after: the code of the map that is fused into the store, or None.
        reverse: the scan runs from the end of each row.
        exclusive: a result excludes its own element.
        initial: an initial value is combined with each row's first element.
        carried: a carry of an earlier piece precedes the first tile.
        carry_out: the carry for the next piece is written.
        field_offsets: for each source field, which element it is taken from in the order of the scan: -1 for the one
            before (zero before a row's first element), 0 for the element itself, or 1 for the one after. Without
            `row_ends` that is not combined but passed to `after`. Empty if all are 0.
        row_ends: for each source field, the numbers that follow a row's last element. They are used for an offset of 1.
        has_tail_values: the field with offset 1 has a value for each row that follows the row's last element. Without
            it that value is zero.
        has_segment_bits: a buffer holds one bit for each element that says whether a row or segment begins there. Rows
            that are contiguous in memory are then scanned as one row, and reversed as one.
        cuts_columns_alike: the buffer holds the bits of one column, which all columns share.
        key: with segment bits, the type of the keys that the buffer holds instead: one for each element, which
            the kernel compares with the key before it. None if the buffer holds bits.
        keep_last_only: only the last result of each row is stored; with segment bits, the last result of each segment.
        compacts: the first source field is a mask, which is summed. The other fields of the elements that it selects
            are stored without gaps. With `before` there is no such field: the map gives the mask, 0 or 1 for
            each element, and all source fields are stored.
        picks_heads: the mask of a compaction says where segments begin, and is no source field. Results have the length
            of the segment as a last field.
        partitions: a compaction also stores the elements that are not selected, in as many destinations more.
        index_step: 1 if `before` also takes the index of each element along the axis, -1 if the scan goes from the
            axis's end, so that indices fall; 0 if it does not take the index.
        lists_key_runs: the number of segments and where each of them begins are stored as well.
        everywhere: elements are combined in the canonical order (docs/numerics.md), by steps with the same bits on
            every device.
        steps: the loop's own steps, which give the results within a chunk; None to combine elements.
    """

    source: Element
    element: Element
    destination: Element
    operator_name: str
    combine: Code
    before: Code | None = None
    maps_seeds: bool = False
    after: Code | None = None
    reverse: bool = False
    exclusive: bool = False
    initial: bool = False
    carried: bool = False
    carry_out: bool = False
    field_offsets: tuple[int, ...] = ()
    row_ends: tuple[tuple[object, ...], ...] = ()
    has_tail_values: bool = False
    has_segment_bits: bool = False
    cuts_columns_alike: bool = False
    key: Scalar | None = None
    keep_last_only: bool = False
    compacts: bool = False
    picks_heads: bool = False
    partitions: bool = False
    lists_key_runs: bool = False
    index_step: int = 0
    everywhere: bool = False
    steps: StepCodes | None = None

    __hash__ = HashedOnce.__hash__

    @cached_property
    def functions(self) -> tuple[tuple[str, Code], ...]:
        """The functions of elements in the shader, each with its name."""
        steps = () if self.steps is None else self.steps.named
        functions = (("combine", self.combine), ("before", self.before), ("after", self.after), *steps)
        return tuple((name, code) for name, code in functions if code is not None)

    @cached_property
    def captured_functions(self) -> tuple[tuple[str, Code], ...]:
        """The functions that read captured constants, each with its name."""
        return tuple((name, code) for name, code in self.functions if code.captured)

    @property
    def captured(self) -> bytes | Expression:
        """The captured constants as shaders/shared/captured.wgsl declares them; see `Code.captured`."""
        return concatenate([code.captured for _, code in self.captured_functions])

    @property
    def seeded(self) -> bool:
        """True if rows start from a given value: `initial`, or the identity of an exclusive scan."""
        return self.initial or self.exclusive

    @property
    def has_long_functions(self) -> bool:
        """True if shaders that repeat the functions of an element for each element of a chunk take long to compile."""
        return any(code.long for _, code in self.functions)

    @property
    def has_long_terms(self) -> bool:
        """True if `has_long_functions` is, without `after`, which a reduction calls once for a result."""
        return any(code.long for name, code in self.functions if name != "after")

    @property
    def reads_nan(self) -> bool:
        """True if a function of an element tells NaN of different bits apart."""
        return any(code.reads_nan for _, code in self.functions)

    @property
    def reduces_segments(self) -> bool:
        """True if only the last result of each segment is stored. Items then count heads, to know where it belongs."""
        return self.keep_last_only and self.has_segment_bits

    @property
    def reduces_rows(self) -> bool:
        """True if only the last result of each row is stored."""
        return self.keep_last_only and not self.has_segment_bits

    @property
    def neighbour_field(self) -> Field | None:
        """The source field that is taken from the next element and passed to `after`, or None."""
        passes = 1 in self.field_offsets and not self.row_ends
        return self.source.fields[self.field_offsets.index(1)] if passes else None

    @property
    def neighbour_words(self) -> int:
        """The 32-bit words of the neighbour field; 0 if there is none."""
        return self.neighbour_field.words if self.neighbour_field else 0

    @property
    def with_neighbour(self) -> Element:
        """The argument of `after` where there is a neighbour field: the fields of the element, then that field."""
        assert self.neighbour_field is not None
        return bundle_of((*self.element.fields, self.neighbour_field))

    @property
    def moved_fields(self) -> tuple[Field, ...]:
        """The source fields that a compaction stores."""
        has_mask = self.before is None and not self.picks_heads
        return self.source.fields[has_mask:] if self.compacts else ()

    @cached_property
    def result(self) -> Element:
        """One result: what is stored at one index. A partition has two indices for the fields of an element."""
        fields = self.destination.fields
        return bundle_of(fields[: len(fields) // 2]) if self.partitions else self.destination

    @property
    def stepped(self) -> Element:
        """The argument of a step: the numbers of a state, then the numbers of a source."""
        assert self.steps is not None
        return bundle_of((*self.steps.state.result.fields, *self.source.fields))

    @property
    def extended(self) -> Element:
        """The argument of `StepCodes.extend`: the numbers of a map, then the numbers of a source."""
        return bundle_of((*self.element.fields, *self.source.fields))

    @cached_property
    def fields_of_prefix(self) -> tuple[int, ...]:
        """The fields of what precedes an element that its results depend on, by their numbers."""
        reader = self.after if self.steps is None else self.steps.state
        if reader is None or reader.reads is None or self.combine.reads is None:
            return tuple(range(len(self.element.fields)))
        needed: set[int] = set()
        more = set().union(*reader.reads)
        while more > needed:
            needed = more
            more = needed.union(*(self.combine.reads[field] for field in needed))
        return tuple(sorted(needed))

    @property
    def kept_words(self) -> int:
        """The 32-bit words of an element that an invocation keeps while its tile waits."""
        return self.element.words if self.steps is None else self.source.words

    @property
    def indexed_source(self) -> Element:
        """The argument of `before` where it takes an index."""
        return with_index(self.source, 1)

    def offset_of(self, index: int) -> int:
        """Return which element source field `index` is taken from; see `field_offsets`."""
        return self.field_offsets[index] if self.field_offsets else 0


@dataclass(frozen=True, kw_only=True)
class ScanSpec(ShaderSpec):
    """One scan: what it computes, and over how many rows and elements. Equal scans are equal keys of a cache.

    Attributes:
        rows: the number of rows, each scanned by itself.
        row_length: the number of elements in a row.
        inner: the number of rows that are interleaved in memory, one element of each after the other. It is 1 if the
            elements of a row are neighbours.
        rows_in_place: True if each row is read where it is, also backwards, as the kernels of groups do.
    """

    rows: int
    row_length: int
    inner: int = 1
    rows_in_place: bool = False

    __hash__ = HashedOnce.__hash__

    @cached_property
    def length(self) -> int:
        """The number of elements in all rows together."""
        return self.rows * self.row_length

    @property
    def stacked_rows(self) -> bool:
        """True if there are several rows, and they are contiguous in memory."""
        return self.rows > 1 and self.inner == 1

    @property
    def as_one_row(self) -> bool:
        """True if kernels take all rows for one row, since they are contiguous. Bits say where each of them begins."""
        return self.rows == 1 or self.has_segment_bits

    @cached_property
    def reversed_together(self) -> bool:
        """True if several rows are read backwards as one row, from the end of the last one.

        Rows then come in the reverse order. Tiles begin elsewhere in each row than in a forward scan of reversed rows,
        so the operator must give the same bits in any order. Rows that begin within vectors are faster then.
        """
        if (
            not (self.reverse and self.stacked_rows and self.combine.order_free)
            or self.has_segment_bits
            or self.rows_in_place
        ):
            return False
        if self.keep_last_only or self.compacts or self.index_step or any(self.field_offsets) or self.everywhere:
            return False
        fields = (*self.source.fields, *self.destination.fields)
        return any(self.row_length * field.storage_bytes % ACCESS_BYTES for field in fields)

    @property
    def backwards_as_one(self) -> bool:
        """True if all rows are read backwards, from the end of the last one."""
        return self.reverse and self.inner == 1 and (self.as_one_row or self.reversed_together)

    @property
    def segmented(self) -> bool:
        """True if items carry a head flag."""
        return (self.has_segment_bits or self.stacked_rows) and not self.picks_heads

    @cached_property
    def unaligned_columns(self) -> tuple[int, ...]:
        """The sizes of elements, in bytes, with which chunks of columns begin within words or end past their row."""
        if self.inner == 1:
            return ()
        ends_past = not self.reduces_rows and self.inner % min_chunk(self.source, self.destination) != 0
        sizes = {field.storage_bytes for field in (*self.source.fields, *self.destination.fields)}
        return tuple(sorted(size for size in sizes if ends_past or self.inner * size % 4))

    @cached_property
    def item_words(self) -> int:
        """The 32-bit words of what the scan carries from tile to tile: an element, and perhaps a head flag."""
        return self.element.words + (1 if self.segmented else 0)

    @cached_property
    def shader_spec(self) -> ShaderSpec:
        """The part that decides the shaders' text."""
        return intern_value(ShaderSpec(**dict(zip(_SHADER_FIELDS, _SHADER_VALUES(self), strict=True))))


_SHADER_FIELDS = tuple(field.name for field in fields(ShaderSpec))
_SHADER_VALUES = attrgetter(*_SHADER_FIELDS)


def scan_spec(
    problem: Problem,
    capabilities: Capabilities,
    *,
    captures: bool = False,
    rows_in_place: bool = False,
) -> ScanSpec:
    """Build the `ScanSpec` of a problem on a device.

    Args:
        problem: the request.
        capabilities: the device's; they decide how the operator's code treats 64-bit integers.
        captures: True to capture the constants of the user's functions; see `gpuscan.operators.code.Code`.
        rows_in_place: as in `ScanSpec`.

    Raises:
        OperatorError: the operator or a map cannot become WGSL.
    """
    native, options = capabilities.native_int64, {"captures": captures, "fixed": problem.everywhere}
    before = after = None
    if problem.before is not None:
        argument = with_index(problem.source, problem.row_length) if problem.indexed else problem.source
        kind = "Indexed" if problem.indexed else "Source"
        before = _map_code(
            problem.before, argument, "before", native, argument_type=kind, result_type="Element", **options
        )
    if problem.after is not None:
        neighbour = problem.seed_element.fields if problem.passes_neighbour else ()
        argument = bundle_of((*problem.element.fields, *neighbour)) if neighbour else problem.element
        kind = "Stored" if neighbour else "Element"
        after = _map_code(problem.after, argument, "after", native, argument_type=kind, result_type="Result", **options)
    # An array without elements is one row without elements.
    rows, inner = (problem.rows, problem.inner if scans_columns(problem) else 1) if problem.size else (1, 1)
    spec = ScanSpec(
        source=problem.source,
        element=problem.element,
        destination=problem.destination,
        operator_name=problem.operator.name,
        combine=_combine_code(problem.operator, problem.element, native, **options),
        before=before,
        after=after,
        rows=rows,
        row_length=problem.row_length if problem.size else 0,
        inner=inner,
        rows_in_place=rows_in_place,
        reverse=problem.reverse,
        exclusive=problem.exclusive,
        initial=problem.initial,
        field_offsets=problem.field_offsets,
        row_ends=problem.row_ends,
        has_tail_values=problem.passes_neighbour and problem.seeds is not None,
        has_segment_bits=problem.heads is not None,
        cuts_columns_alike=inner > 1 and problem.heads is not None and problem.heads.cuts_rows_alike,
        keep_last_only=problem.keep_last_only,
        compacts=problem.compacts,
        picks_heads=problem.compacts and problem.heads is not None,
        partitions=problem.partitions,
        lists_key_runs=problem.lists_key_runs,
        index_step=0 if not problem.indexed else -1 if problem.reverse else 1,
        everywhere=problem.everywhere,
        steps=_step_codes(problem, native, captures) if takes_steps(problem) else None,
    )
    if spec.steps is not None and spec.element.words <= spec.source.words and spec.combine.light:
        # Maps of steps take no more words than their sources, and a few instructions to combine.
        spec = replace(spec, steps=None)
    if problem.everywhere:
        combine = replace(spec.combine, order_free=False, commutes=False, atomic=None, neutral=None)
        if isinstance(problem.after, Map) and tells_nan_apart(problem.after.result.fields):
            combine = combine.without_quick_steps()
        return replace(spec, combine=combine)
    return by_order(without_signs(spec, lambda element: _combine_code(problem.operator, element, native, **options)))


def takes_steps(problem: Problem) -> bool:
    """Return True if kernels take a loop's own steps within chunks.

    Columns are combined. So are narrow numbers of one array, which fill a chunk and are kept as they are stored.
    """
    if problem.steps is None or problem.steps.before is not problem.before or scans_columns(problem):
        return False
    if problem.everywhere or problem.keep_last_only or problem.heads is not None or not problem.initial:
        return False
    return len(problem.source.fields) > 1 or problem.source.fields[0].storage_bytes >= 4


def _step_codes(problem: Problem, native: bool, captures: bool) -> StepCodes:
    """Return the code of a loop's own steps."""
    steps = problem.steps
    assert steps is not None

    def code(function: Map | None, name: str, argument: str, result: str) -> Code | None:
        if function is None:
            return None
        return _map_code(
            function,
            function.source,
            f"loop_{name}",
            native,
            argument_type=argument,
            result_type=result,
            captures=captures,
        )

    state, take = code(steps.state, "state", "Element", "LoopState"), code(steps.take, "take", "Stepped", "LoopState")
    finish = code(steps.finish, "finish", "Stepped", "Result")
    assert state is not None
    assert take is not None
    assert finish is not None
    return StepCodes(
        state,
        take,
        finish,
        first=code(steps.first, "first", "Source", "Element"),
        extend=code(steps.extend, "extend", "Extended", "Element"),
        settle=code(steps.settle, "settle", "Element", "Element"),
    )


def scans_columns(problem: Problem) -> bool:
    """Return True if the array is scanned down its columns in place, without bringing rows together first."""
    return not problem.everywhere and problem.inner != 1


_combine_code = lru_cache(maxsize=256)(combine_code)
_map_code = lru_cache(maxsize=256)(map_code)


# ----- Narrow integers


def without_signs(spec: ScanSpec, combine: Callable[[Element], Code]) -> ScanSpec:
    """Return the same scan over unsigned numbers if the operator needs only the low bits of its narrow integers.

    An H100 takes 3 % less time for bytes then, and signed and unsigned numbers share their shaders.

    Args:
        combine: gives the operator's code for an element.
    """
    mapped = spec.before is not None or spec.after is not None or spec.compacts or any(spec.field_offsets)
    if mapped or not spec.combine.wraps_late or not spec.source == spec.element == spec.destination:
        return spec
    element = replace(spec.element, fields=tuple(_make_unsigned(field) for field in spec.element.fields))
    if element == spec.element:
        return spec
    try:
        code = combine(element)
    except OperatorError:  # the operator has a constant below zero
        return spec
    if code != replace(spec.combine, result=element):
        return spec
    return replace(spec, source=element, element=element, destination=element, combine=code)


def _make_unsigned(field: Field) -> Field:
    if field.scalar.kind != "signed":
        return field
    return replace(field, scalar=SCALARS[f"u{field.scalar.name}"])


# ----- Extrema of floats

# For each float: the integer of the same bits, the bits of its magnitude, and the number of its positive NaN.
_FLOATS = {
    "float32": ("int32", 0x7FFFFFFF, 0x007FFFFF),
    "float16": ("int16", 0x7FFF, 0x03FF),
    "bfloat16": ("int16", 0x7FFF, 0x007F),
    "float64": ("int64", 0x7FFFFFFFFFFFFFFF, 0x000FFFFFFFFFFFFF),
}

# An extremum of floats is computed as an extremum of integers that have the order of the floats. For each one: its name
# for integers, and 1 or -1 if NaN is added to them or subtracted. It brings the NaN of both signs together at the end
# where they win, or lose.
_EXTREMA = {"maximum": ("maximum", -1), "minimum": ("minimum", 1), "fmax": ("maximum", 1), "fmin": ("minimum", -1)}


@lru_cache(maxsize=64)
def _extrema(float_name: str, shape: tuple[int, ...]) -> dict[tuple[Code, Element], tuple[Element, Code, Code, Code]]:
    """Return by the code of each extremum and its element: the integers, their code, and the maps around it.

    Only one type of floats is looked at, since bfloat16 needs a package that may be missing.

    Numbers of 16 bits are compared in the upper half of 32 bits, so that they wrap as numbers of 32 bits do.

    Args:
        shape: the shape of a vector or matrix of them; () for numbers.
    """
    extrema = {}
    integer, magnitude, nan = _FLOATS[float_name]
    word: type[np.int64 | np.int32] = np.int64 if integer == "int64" else np.int32
    (field,) = element_of([np.dtype(word)]).fields
    order, floats, stored = (
        replace(element_of([np.dtype(word)]), fields=(replace(field, scalar=SCALARS[name], shape=shape),))
        for name in (np.dtype(word).name, float_name, integer)
    )
    sign_bit = np.iinfo(word).bits - 1
    upper = np.iinfo(word).bits - stored.fields[0].scalar.bits
    for name, (of_integers, sign) in _EXTREMA.items():

        def to_order(bits: Number, shift: int = sign * nan) -> Number:
            number: Number = bits.astype(word)
            return ((number ^ ((number >> sign_bit) & magnitude)) + shift) << upper

        def bits_at(number: Number, shift: int = sign * nan) -> Number:
            own = (((number >> upper) - shift) << upper) >> upper
            bits = own ^ ((own >> sign_bit) & magnitude)
            return bits.astype(np.int16) if upper else bits

        extrema[_combine_code(BUILTINS[name], floats, True), floats] = (
            stored,
            _combine_code(BUILTINS[of_integers], order, True),
            map_code(to_order, stored, "before", True, argument_type="Source", result_type="Element"),
            map_code(bits_at, order, "after", True, argument_type="Element", result_type="Result"),
        )
    return extrema


def by_order(spec: ScanSpec) -> ScanSpec:
    """Return the same scan over integers in the order of the floats if it is an extremum of floats.

    An element is mapped once when it is loaded and once when it is stored. In between, an extremum is one instruction.
    That of floats takes ten, which tell NaN and signed zeros apart. Of several NaN another one may be the result. An
    H200 takes 60 instead of 81 us for maxima of 25 million float32 in one row.

    16-bit floats with initial values are not computed in this way, since seeds have another form.
    """
    mapped = spec.before is not None or spec.after is not None or spec.compacts or any(spec.field_offsets)
    if mapped or not spec.source == spec.element == spec.destination:
        return spec
    if not spec.combine.helpers:  # extrema of floats call one; the first scan of others need not render all helpers
        return spec
    name, shape = spec.element.fields[0].scalar.name, spec.element.fields[0].shape
    replacement = _extrema(name, shape).get((spec.combine, spec.element)) if name in _FLOATS else None
    if replacement is None or (spec.element.fields[0].storage_bytes < 4 and spec.seeded):
        return spec
    stored, combine, before, after = replacement
    spec = replace(spec, source=stored, element=combine.result, destination=stored)
    return replace(spec, combine=combine, before=before, maps_seeds=spec.seeded, after=after)
