"""Bring a request into normal form: check what the user asked for, before any device is used."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import TypedDict

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Element, dtype_from, element_of
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import ROUNDED_WHEN_STORED, Map, trace_function
from gpuscan.problem.arguments import (
    Leaf,
    OnDevice,
    as_flag,
    as_numpy_arrays,
    cast_after,
    initial_rows,
    native,
    resolve_axis,
    structure_and_leaves,
    with_dtype,
)
from gpuscan.problem.fixed_bits import check_fixed_bits, needs_fixed_bits, trace_with_one_nan, with_one_nan
from gpuscan.problem.indexed_maps import IndexedMap, as_map, with_index
from gpuscan.problem.leading_axes import split_axes
from gpuscan.problem.results import own_axes
from gpuscan.problem.segments import Heads, Keys, RowsAlongAxis, heads_of
from gpuscan.sizes import has_size


class ReductionOptions(TypedDict, total=False):
    """The options of `make_problem` that a reduction has as well."""

    axis: int | None
    initial: object
    dtype: object
    before: Callable[..., object] | None
    after: Callable[..., object] | None
    segments: object
    keys: object
    checks_later: bool
    seeds_on_device: bool
    reproducible: str | None


class ProblemOptions(ReductionOptions, total=False):
    """The options of `make_problem`."""

    exclusive: bool
    reverse: bool


@dataclass(frozen=True)
class LoopSteps:
    """What a kernel needs to run a loop within a chunk of neighbouring elements.

    The maps of the steps are then composed once for each chunk. The state before a chunk follows from these
    compositions, and the states within it from the loop's own step.

    Attributes:
        before: the problem's `before`, which gives the map of a step. Steps of a problem that has another one, since it
            was rewritten, are not taken.
        state: takes an element, which is a constant map, to the numbers of the state.
        take: takes the numbers of a state and of a source to the numbers of the next state.
        finish: takes the numbers of the next state and of the source to a result.
        first: takes a source to its map in the form in which a chunk composes maps; None if that is an element.
        extend: takes such a map and a source to their composition; None to combine elements.
        settle: takes such a map to an element; None if it is one.
    """

    before: Map
    state: Map
    take: Map
    finish: Map
    first: Map | None = None
    extend: Map | None = None
    settle: Map | None = None


@dataclass(frozen=True)
class Problem(RowsAlongAxis):
    """A scan that a user asked for, in normal form.

    Attributes:
        operator: the operator.
        leaves: the input's arrays, depth first, in the user's layout.
        source: the element type of the input's arrays.
        element: the element type that the operator combines.
        destination: the element type of the result's arrays.
        shape: the arrays' common shape, without the axes that belong to the element.
        axis: the axis to scan along, 0 or more.
        exclusive, reverse: as in `gpuscan.scan`.
        seeds: for each field, an array (rows, *element shape) with `initial` or the identity for each row; or None.
        initial: True if the seeds are combined with the first elements. False if they only stand before them, in an
            exclusive scan.
        before, after: functions to fuse, or None; the user's are a `gpuscan.operators.trace.Map`.
        field_offsets: for each source field, which value an element takes, in the order of the scan: 0 for its own, -1
            for the value of the element before it, 1 for the value of the element after it. See
            `gpuscan.planning.spec.ShaderSpec`. With a 1, the seeds are the values that follow the last elements of the
            rows, unless there are `row_ends`.
        row_ends: the numbers that follow a row's last element, for each source field; empty if fields with an offset of
            1 are no part of the elements. With them the element after is loaded like any other, for `before`.
        heads: the heads at which rows restart, each time with their seed; None without segments.
        keep_last_only: True if only the last result of each row, or of each of its segments, is wanted.
        fill: for each field, the result of an empty segment of each row: (rows, *element shape); None if there is no
            initial value and no identity.
        compacts: True if the first field is a mask that picks the entries of the other fields to store, or if `before`
            gives such a mask and all fields are stored.
        partitions: True if a compaction also stores the entries that the mask does not pick, in as many fields more.
        indexed: True if `before` takes a pair of an element and its index along the axis.
        everywhere: True if the results must have the same bits on every device and on NumPy.
        lists_key_runs: True if the number of the only row's segments and where each of them begins are wanted as well.
        steps: the loop's own steps, if the operator composes their maps; None otherwise.
        cache_key: a value that problems with the same plans share; None if that is not known, as of a problem that
            `replace` returns.
        keeps_heads: True if all problems with the key have the same heads.
    """

    operator: Operator
    leaves: tuple[Leaf, ...] = field(repr=False)
    source: Element
    element: Element
    destination: Element
    shape: tuple[int, ...]
    axis: int
    exclusive: bool = False
    reverse: bool = False
    seeds: tuple[Leaf, ...] | None = field(default=None, repr=False)
    initial: bool = False
    before: Callable[..., object] | None = None
    after: Callable[..., object] | None = None
    field_offsets: tuple[int, ...] = ()
    row_ends: tuple[tuple[object, ...], ...] = ()
    heads: Heads | None = field(default=None, repr=False)
    keep_last_only: bool = False
    fill: tuple[AnyArray, ...] | None = field(default=None, repr=False)
    compacts: bool = False
    partitions: bool = False
    lists_key_runs: bool = False
    indexed: bool = False
    everywhere: bool = False
    steps: LoopSteps | None = None
    # `replace` does not pass these on.
    cache_key: Hashable = field(default=None, init=False, repr=False, compare=False)
    keeps_heads: bool = field(default=False, init=False, repr=False, compare=False)

    def with_same_keys(self, **values: object) -> Problem:
        """Return a copy with other values of some attributes, which keeps its keys and what is computed of the shape.

        This is faster than `replace`, and only for values on which neither depends.
        """
        other = object.__new__(Problem)
        other.__dict__.update(self.__dict__, **values)
        return other

    def drop_arrays(self) -> Problem:
        """Return the problem without its arrays, for the cache. Problems with the same key share cached properties."""
        for name in ("row_length", "rows", "size", "inner", "empty"):
            # This computes the cached property once, for all problems with the same key.
            getattr(self, name)
        return self.with_same_keys(leaves=(), cache_key=object(), keeps_heads=self.heads is not None)

    def as_rewrite_of(self, problem: Problem, rewrite: str) -> Problem:
        """Return this problem with the cache key of the problem from which a rewrite of this name made it."""
        key = problem.cache_key and (rewrite, problem.cache_key)
        return self.with_same_keys(cache_key=key, keeps_heads=problem.keeps_heads)

    def with_leaves(self, leaves: tuple[object, ...]) -> Problem:
        """Return the same problem with other arrays of the same shape and dtype."""
        return self.with_same_keys(leaves=leaves)

    def for_call(
        self,
        leaves: tuple[object, ...],
        op: object,
        dtype: object,
        before: Callable[..., object] | None,
        after: Callable[..., object] | None,
    ) -> Problem:
        """Return the kept problem for a call with the same key, with the arrays and the functions of that call.

        What the functions of the first call close over may have changed since, so they are not called any more.
        """
        functions: dict[str, object] = {}
        if not isinstance(op, (str, np.ufunc, Operator)):
            functions["operator"] = resolve(op)
        if before is not None:
            assert isinstance(self.before, Map)
            functions["before"] = replace(self.before, function=lambda value: _make_load_map(before, dtype)(value))
        if after is not None:
            assert isinstance(self.after, Map)
            function = with_one_nan(after, self.element) if self.everywhere else after
            functions["after"] = replace(self.after, function=function)
        return self.with_same_keys(leaves=leaves, **functions)

    def cut(self, segments: object, keys: object, *, checks_later: bool) -> Problem:
        """Return the same problem with rows that restart at these offsets, or where these keys change.

        Raises:
            ValueError, TypeError: as `heads_of` does.
        """
        checks_later = checks_later and all(isinstance(leaf, OnDevice) for leaf in self.leaves)
        heads = heads_of(segments, keys, self.shape, self.axis, self.reverse, checks_later=checks_later)
        assert heads is not None
        how = (heads.cut.array.dtype, heads.cut.array.shape) if isinstance(heads.cut, Keys) else ("segments",)
        return self.with_same_keys(heads=heads, cache_key=self.cache_key and (self.cache_key, *how))

    def as_reproducible(self, step: str | None = None) -> Problem:
        """Return the same problem with the same bits on every device.

        Args:
            step: the step of the loop that it computes, as messages name it; None outside loops.

        Raises:
            OperatorError: a function has an operation with different bits on different devices.
        """
        after = trace_with_one_nan(self.after, self.element)
        assert self.before is None or isinstance(self.before, Map)
        check_fixed_bits(self.operator, self.element, self.before, after, step=step)
        destination = self.element if after is None else after.element
        return replace(self, after=after, destination=destination, everywhere=True)

    def as_reduction(
        self, *, heads: Heads | None = None, fill: tuple[AnyArray, ...] | None = None, lists_key_runs: bool = False
    ) -> Problem:
        """Return the reduction of the rows, or of their segments, with the same arrays and cache key.

        Args:
            heads: the heads (default: the problem's heads).
            fill, lists_key_runs: see the attributes.
        """
        return self.with_same_keys(
            heads=heads or self.heads, keep_last_only=True, fill=fill, lists_key_runs=lists_key_runs
        )

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: all but the cache key, which other processes do not have."""
        return vars(self) | {"cache_key": None, "keeps_heads": False}

    @property
    def seed_element(self) -> Element:
        """The type of a seed: the element, or the source field that is taken from the next element."""
        if not self.passes_neighbour:
            return self.element
        return Element((self.source.fields[self.field_offsets.index(1)],))

    @property
    def passes_neighbour(self) -> bool:
        """True if a source field is taken from the element after, and passed to `after`."""
        return 1 in self.field_offsets and not self.row_ends

    @cached_property
    def empty(self) -> bool:
        """True if there is nothing to compute: no elements, or elements without numbers."""
        return self.size == 0 or self.element.storage_bytes == 0

    @property
    def results_shape(self) -> tuple[int, ...]:
        """The shape of the result's arrays, without the axes that belong to the element; (rows,) of reduced rows."""
        if not self.keep_last_only:
            return self.shape
        if self.heads is None:
            return (self.rows,)
        return (*self.shape[: self.axis], self.heads.segments, *self.shape[self.axis + 1 :])

    @property
    def numpy_leaves(self) -> list[AnyArray]:
        """The leaves of a problem in NumPy."""
        return as_numpy_arrays(self.leaves)

    @property
    def numpy_seeds(self) -> tuple[AnyArray, ...] | None:
        """The seeds, which are all NumPy's."""
        return None if self.seeds is None else tuple(map(np.asarray, as_numpy_arrays(self.seeds)))

    @property
    def reduces_rows(self) -> bool:
        """True if only the last result of each row is wanted."""
        return self.keep_last_only and self.heads is None

    @property
    def arrays(self) -> tuple[Leaf, ...]:
        """All arrays that the scan reads, and that may be on a device: the input's, seeds, and keys or offsets."""
        arrays = (*self.leaves, *(self.seeds or ()))
        return arrays if self.heads is None else (*arrays, self.heads.cut.array)

    @property
    def segmented(self) -> bool:
        """True if the scan restarts anywhere: at a row or at a segment."""
        return self.rows > 1 or self.heads is not None

    def with_rows_together(self, leaves: Iterable[Leaf]) -> Problem:
        """Return the same problem on arrays (rows, row_length, *element shape); see `by_rows`.

        `from_rows` brings its results back to the order of this problem's axes.
        """
        return replace(self, leaves=tuple(leaves), shape=(self.rows, self.row_length), axis=1)

    def by_rows(self, leaf: AnyArray) -> AnyArray:
        """Return a leaf as a contiguous array (rows, row_length, *element shape)."""
        trailing = leaf.shape[len(self.shape) :]
        last = len(self.shape) - 1
        moved = leaf if self.axis == last else np.moveaxis(leaf, self.axis, last)
        return np.ascontiguousarray(moved).reshape(self.rows, self.row_length, *trailing)

    def from_rows(self, rows: AnyArray) -> AnyArray:
        """Return an array (rows, length, *element shape) as a view in the user's order of axes."""
        others = [s for i, s in enumerate(self.shape) if i != self.axis]
        shaped = rows.reshape(*others, *rows.shape[1:])
        last = len(self.shape) - 1
        return shaped if self.axis == last else np.moveaxis(shaped, last, self.axis)


def _make_load_map(before: Callable[..., object], dtype: object) -> Callable[..., object]:
    """Return the map on load of a call with `before`."""
    function = as_map(before)
    return function if dtype is None else cast_after(function, dtype_from(dtype))


def make_problem(
    x: object,
    op: object,
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    dtype: object = None,
    before: Callable[..., object] | None = None,
    after: Callable[..., object] | None = None,
    segments: object = None,
    keys: object = None,
    checks_later: bool = False,
    seeds_on_device: bool = False,
    reproducible: str | None = None,
) -> Problem:
    """Return the `Problem` of a call to `gpuscan.scan`.

    With `checks_later`, `Heads.check` checks the offsets of NumPy if the elements are on a device. With
    `seeds_on_device`, initial values on a device are not read if the elements are there as well. The seeds are then
    arrays of any shape that broadcasts to the shape of the rows (see `gpuscan.engine.device_seeds`).

    Raises:
        ValueError: the axis, the shapes, `initial`, `segments` or `keys` do not fit, or an exclusive scan has neither
            `initial` nor an identity.
        TypeError, OperatorError, UnsupportedDtypeError: the operator does not support the element type.
        OperatorError: with ``reproducible="everywhere"``, the bits of some operation differ between devices.
    """
    operator = resolve(op)
    exclusive, reverse = as_flag("exclusive", exclusive), as_flag("reverse", reverse)
    for name, function in (("before", before), ("after", after)):
        if function is not None and not callable(function):
            raise TypeError(f"{name}={function!r} was passed, but {name} must be a function of one element")
    before = as_map(before)
    structure, leaves = structure_and_leaves(x)
    if dtype is not None:
        leaves, before = with_dtype(leaves, structure, dtype_from(dtype), before)
    leaves = [native(leaf) for leaf in leaves]
    shape, trailing = split_axes(structure, leaves, own_axes(x), operator, before)
    axis = resolve_axis(axis, shape, max(len(axes) for axes in trailing))
    checks_later = checks_later and all(isinstance(leaf, OnDevice) for leaf in leaves)
    heads = heads_of(segments, keys, shape, axis, reverse, checks_later=checks_later)
    source = element_of([leaf.dtype for leaf in leaves], structure, trailing)
    element, indexed = source, False
    if before is not None:
        argument = with_index(source, shape[axis]) if isinstance(before, IndexedMap) else source
        indexed = argument is not source
        before = trace_function(before, argument, "before")
        element = before.element
    operator.check(element)
    destination = element
    everywhere = needs_fixed_bits(reproducible, operator, element, maps=before is not None or after is not None)
    if everywhere:
        after = trace_with_one_nan(after, element)
        check_fixed_bits(operator, element, before, after)
    elif after is not None:
        after = trace_function(after, element, "after")
    if after is not None:
        destination = after.element
    seeds: tuple[Leaf, ...] | None = None
    rows_shape = tuple(s for i, s in enumerate(shape) if i != axis)
    if initial is not None:
        on_device = all(isinstance(leaf, OnDevice) for leaf in leaves)
        seeds = initial_rows(
            initial, element, rows_shape, stays_on_device=seeds_on_device and on_device, keeps_parameters=on_device
        )
    elif exclusive:
        identity = operator.identity_for(element)
        if identity is None:
            raise ValueError(
                f"exclusive=True was passed with {operator.described}, which has no identity for the scan to "
                "begin with. Pass initial=..., or give the operator an identity: "
                "gpuscan.operator(function, identity=...)"
            )
        rows = prod(rows_shape)
        # If the number of rows is a size, the values are brought to the device, and broadcast there.
        seeds = tuple(
            value if has_size((rows,)) else np.broadcast_to(value, (rows, *f.shape))
            for value, f in zip(identity, element.fields, strict=True)
        )
    return Problem(
        operator=operator,
        leaves=tuple(leaves),
        source=source,
        element=element,
        destination=destination,
        shape=shape,
        axis=axis,
        exclusive=exclusive,
        reverse=reverse,
        seeds=seeds,
        initial=initial is not None,
        before=before,
        after=after,
        heads=heads,
        indexed=indexed,
        everywhere=everywhere,
    )


def make_unrounded(problem: Problem) -> Problem:
    """Return the same problem without `after`, and with 16-bit floats stored as float32, as they are combined."""
    structure = problem.element.structure
    rounded = [field.scalar.name in ROUNDED_WHEN_STORED for field in problem.element.fields]
    if problem.after is None and not any(rounded):
        return problem

    def in_full(value: object) -> object:
        leaves = zip(structure.flatten(value), rounded, strict=True)
        return structure.unflatten([leaf.astype(np.float32) if wide else leaf for leaf, wide in leaves])

    after = trace_function(in_full, problem.element, "after")
    return replace(problem, after=after, destination=after.element)
