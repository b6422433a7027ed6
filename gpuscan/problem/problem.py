"""One normalised request: what the user said, checked and in one form, before any device is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.elements import LEAF, Element, Scalar, Structure, dtype_from, element_of, min_chunk, scalar_of
from gpuscan.operators.operator import Operator, resolve
from gpuscan.operators.tracing import ROUNDED_WHEN_STORED, structure_of, traced
from gpuscan.problem.results import own_axes
from gpuscan.problem.segments import Heads, heads_of

Leaf = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Problem:
    """A scan as it was asked for.

    Attributes:
        operator: what combines.
        leaves: the input's arrays, depth first, in the user's layout.
        source: the element type of the input's arrays.
        element: the element type that the operator combines.
        destination: the element type of the result's arrays.
        shape: the arrays' common shape, without the axes that belong to the element.
        axis: the axis scanned along, 0 or more.
        exclusive, reverse: as asked.
        seeds: for each field, one value a row (rows, *element shape): `initial`, or an identity; None without.
        initial: whether the seeds are combined with the first elements, or only stand before them.
        before, after: functions to fuse, or None; the user's are a `gpuscan.operators.tracing.Map`.
        shifts: for each source field, whether its element is the one before (-1) or after (1) in the scan's order;
            see `Kernel`. Of one that comes after, `seeds` are what follows a row's last element.
        heads: where the one row there is restarts, each time with the seed; None where it does not.
        ends: of each row only the last result is wanted.
        moves: the first field is a mask that picks what is stored of the others; see `gpuscan.planning.kernel.Kernel`.
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
    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None
    shifts: tuple[int, ...] = ()
    heads: Heads | None = field(default=None, repr=False)
    ends: bool = False
    moves: bool = False

    @property
    def seed_element(self) -> Element:
        """What the seeds are: elements, or of a field that is taken from the next element, its values."""
        return Element((self.source.fields[self.shifts.index(1)],)) if 1 in self.shifts else self.element

    @property
    def row_length(self) -> int:
        return self.shape[self.axis]

    @property
    def rows(self) -> int:
        return prod(s for i, s in enumerate(self.shape) if i != self.axis)

    @property
    def size(self) -> int:
        """Elements in all rows together."""
        return self.rows * self.row_length

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compute: no elements, or elements without numbers."""
        return self.size == 0 or self.element.storage_bytes == 0

    @property
    def segmented(self) -> bool:
        """Whether the scan restarts anywhere."""
        return self.rows > 1 or self.heads is not None

    @property
    def inner(self) -> int:
        """Rows that lie side by side in memory: the product of the axes after the scanned one."""
        return prod(self.shape[self.axis + 1 :])

    @property
    def in_columns(self) -> bool:
        """Whether the array is scanned as it lies, down its columns, without bringing rows together first."""
        return self.inner > 1 and self.inner % min_chunk(self.source, self.destination) == 0

    def by_rows(self, leaf: Leaf) -> Leaf:
        """A leaf as a contiguous array (rows, row_length, *element shape)."""
        trailing = leaf.shape[len(self.shape) :]
        last = len(self.shape) - 1
        moved = leaf if self.axis == last else np.moveaxis(leaf, self.axis, last)
        return np.ascontiguousarray(moved).reshape(self.rows, self.row_length, *trailing)

    def from_rows(self, rows: Leaf) -> Leaf:
        """The inverse of `by_rows`: a view in the user's order of axes."""
        others = [s for i, s in enumerate(self.shape) if i != self.axis]
        shaped = rows.reshape(*others, self.row_length, *rows.shape[2:])
        last = len(self.shape) - 1
        return shaped if self.axis == last else np.moveaxis(shaped, last, self.axis)


def pose(
    x: Any,
    op: Any,
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    dtype: Any = None,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    segments: Any = None,
    keys: Any = None,
) -> Problem:
    """The `Problem` of a call to `gpuscan.scan`.

    Raises:
        ValueError: the axis, the shapes, `initial`, `segments` or `keys` do not fit, or an exclusive scan has nothing
            to begin with.
        TypeError, OperatorError, UnsupportedDtypeError: the operator and the element type do not go together.
    """
    operator = resolve(op)
    exclusive, reverse = as_flag("exclusive", exclusive), as_flag("reverse", reverse)
    for name, function in (("before", before), ("after", after)):
        if function is not None and not callable(function):
            raise TypeError(f"{name} is a function of an element; got {function!r}")
    structure, leaves = spread(x)
    if dtype is not None:
        leaves, before = with_dtype(leaves, structure, dtype_from(dtype), before)
    leaves = [leaf if leaf.dtype.isnative else leaf.astype(leaf.dtype.newbyteorder("=")) for leaf in leaves]
    shape, trailing = common_shape(leaves, operator, own_axes(x))
    axis = resolve_axis(axis, shape, max(len(axes) for axes in trailing))
    heads = heads_of(segments, keys, shape, reverse)
    source = element_of([leaf.dtype for leaf in leaves], structure, trailing)
    element = source
    if before is not None:
        before = traced(before, source, "before")
        element = before.element
    operator.check(element)
    destination = element
    if after is not None:
        after = traced(after, element, "after")
        destination = after.element
    seeds = None
    rows_shape = tuple(s for i, s in enumerate(shape) if i != axis)
    if initial is not None:
        seeds = initial_rows(initial, element, rows_shape)
    elif exclusive:
        identity = operator.identity_for(element)
        if identity is None:
            raise ValueError(
                f"an exclusive scan with operator {operator.name!r} was asked for, which has no identity to begin "
                "with. Pass initial=..., or give the operator an identity"
            )
        rows = int(np.prod(rows_shape, dtype=np.int64))
        seeds = tuple(
            np.broadcast_to(value, (rows, *f.shape)) for value, f in zip(identity, element.fields, strict=True)
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
    )


def as_flag(name: str, value: Any) -> bool:
    """What a caller gave for an option that is on or off.

    Raises:
        TypeError: it is neither: a word, an array.
    """
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError(f"{name}={value!r} was passed; pass {name}=True or {name}=False")


def with_dtype(
    leaves: list[Leaf], structure: Structure, dtype: np.dtype[Any], before: Callable[[Any], Any] | None
) -> tuple[list[Leaf], Callable[[Any], Any] | None]:
    """The arrays and the map on load that combine in `dtype`.

    Narrow numbers are widened on the GPU, after the cheaper transfer; others are converted before it.
    """
    scalar = scalar_of(dtype)
    if before is not None:
        return leaves, cast_after(before, dtype)
    if all(leaf.dtype == dtype for leaf in leaves):
        return leaves, None
    narrower = all(leaf.dtype.itemsize * 8 < scalar.bits and leaf.dtype.isnative for leaf in leaves)
    if structure.kind == "leaf" and narrower:
        return leaves, lambda value: value.astype(dtype)
    return [leaf.astype(dtype, copy=False) for leaf in leaves], None


def cast_after(before: Callable[[Any], Any], dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """`before`, and then a conversion to `dtype` of all that it gives."""

    def mapped(value: Any) -> Any:
        structure, leaves = structure_of(before(value))
        return structure.unflatten([leaf.astype(dtype) if hasattr(leaf, "astype") else leaf for leaf in leaves])

    return mapped


def unrounded(problem: Problem) -> Problem:
    """The same, whose results are what was combined: not mapped by `after`, and 16-bit floats as float32."""
    structure = problem.element.structure
    rounded = [field.scalar.name in ROUNDED_WHEN_STORED for field in problem.element.fields]
    if problem.after is None and not any(rounded):
        return problem

    def in_full(value: Any) -> Any:
        leaves = zip(structure.flatten(value), rounded, strict=True)
        return structure.unflatten([leaf.astype(np.float32) if wide else leaf for leaf, wide in leaves])

    after = traced(in_full, problem.element, "after")
    return replace(problem, after=after, destination=after.element)


def spread(x: Any) -> tuple[Structure, list[Leaf]]:
    """The structure of the user's value and its arrays, depth first."""
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return _gather("named", x._fields, list(x), type(x))
    if isinstance(x, tuple):
        return _gather("tuple", tuple(range(len(x))), list(x))
    if isinstance(x, dict):
        return _gather("dict", tuple(x), list(x.values()))
    if isinstance(x, Array):
        return LEAF, [x]  # type: ignore[list-item]  # it has what the checks below ask of NumPy's
    array = np.asarray(x)
    if array.dtype.names:
        return _gather("record", array.dtype.names, [array[name] for name in array.dtype.names])
    if array.dtype.newbyteorder("=") != np.complex128:  # which is no element, but `dtype` may convert it to one
        scalar_of(array.dtype)
    return LEAF, [array]


def _gather(
    kind: str, keys: tuple[Any, ...], parts: list[Any], factory: Callable[..., Any] | None = None
) -> tuple[Structure, list[Leaf]]:
    if not parts:
        raise ValueError("a bundle of no arrays was passed; a bundle holds one array or more, all of one shape")
    spreads = [spread(part) for part in parts]
    structure = Structure(kind, keys, tuple(s for s, _ in spreads), factory)
    return structure, [leaf for _, leaves in spreads for leaf in leaves]


def common_shape(
    leaves: Sequence[Leaf], operator: Operator, own: Sequence[int]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The shape that all leaves share, and each leaf's trailing axes that belong to the element.

    Those are the axes that the operator declares, or that a structured dtype has of its own, whichever are more.
    """
    counts = [max(operator.element_axes, axes) for axes in own]
    for leaf, axes in zip(leaves, counts, strict=True):
        if leaf.ndim < axes + 1:
            extra = f" and {axes} trailing axes of the element" if axes else ""
            raise ValueError(
                f"an array of shape {leaf.shape} was passed; operator {operator.name!r} needs at least one axis to "
                f"scan along{extra}. Pass x[np.newaxis] to scan a single element"
            )
    split = [leaf.ndim - axes for leaf, axes in zip(leaves, counts, strict=True)]
    shapes = [leaf.shape[:at] for leaf, at in zip(leaves, split, strict=True)]
    if len(set(shapes)) > 1:
        raise ValueError(f"the arrays of a bundle must have one shape; got {', '.join(map(str, shapes))}")
    return shapes[0], [leaf.shape[at:] for leaf, at in zip(leaves, split, strict=True)]


def resolve_axis(axis: int | None, shape: tuple[int, ...], own: int = 0) -> int:
    """The axis counted from 0; for 1-D arrays it may be left out. The element has `own` axes more, not counted."""
    if not shape:
        raise ValueError(
            "an array of shape () was passed, which has no axis to scan along; it takes at least one axis. Pass "
            "x[np.newaxis] to scan a single element"
        )
    choices = ", ".join(map(str, range(len(shape))))
    beside = f" beside the element's own {own}" if own else ""
    if axis is None:
        if len(shape) == 1:
            return 0
        raise ValueError(
            f"an array of shape {shape}{beside} was passed without axis=; pass one of {choices}, or a negative axis "
            "counted from the end of these, or x.reshape(-1) to scan all elements as one row"
        )
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise TypeError(f"axis must be an integer, got {axis!r}")
    index = axis.__index__()
    if not -len(shape) <= index < len(shape):
        raise np.exceptions.AxisError(
            f"axis {index} was asked for, but an array of shape {shape}{beside} has the axes {choices} (or "
            f"{-len(shape)} to -1)"
        )
    return index % len(shape)


def initial_rows(initial: Any, element: Element, rows_shape: tuple[int, ...]) -> tuple[Leaf, ...]:
    """`initial` for each field and row: (rows, *element shape), in the element's dtypes."""
    values = fields_of(initial, element, "initial")
    rows = int(np.prod(rows_shape, dtype=np.int64))
    seeds = []
    for value, f in zip(values, element.fields, strict=True):
        cast = as_scalars(np.asarray(value), f.scalar, "initial")
        try:
            wide = np.broadcast_to(cast, (*rows_shape, *f.shape))
        except ValueError:
            raise ValueError(
                f"initial of shape {cast.shape} does not broadcast to {(*rows_shape, *f.shape)}, the array's shape "
                "without the scanned axis"
            ) from None
        seeds.append(np.ascontiguousarray(wide).reshape(rows, *f.shape))
    return tuple(seeds)


def fields_of(value: Any, element: Element, what: str) -> list[Any]:
    """The fields of a value that is shaped as the element.

    Raises:
        ValueError: it has other fields.
    """
    try:
        return element.structure.flatten(value)
    except (TypeError, ValueError, KeyError, IndexError):
        raise ValueError(
            f"{what} {value!r} was passed for elements of {len(element.fields)} fields; pass one value for each, "
            "nested as the input is"
        ) from None


_RANKS = {"bool": 0, "unsigned": 1, "signed": 1, "float": 2, "complex": 3}


def as_scalars(given: Leaf, scalar: Scalar, what: str) -> Leaf:
    """`given` in the dtype of `scalar`, which must hold its kind and, of integers, its values.

    Raises:
        TypeError: the kind or a value would be lost.
    """
    cast = None
    if given.dtype.kind in "OSU":  # Python integers beyond 64 bits, text
        raise TypeError(
            f"{what} {given.tolist()!r} was passed for elements of dtype {scalar.dtype}, which cannot hold it. Pass "
            "numbers that fit the element's dtype"
        )
    if given.dtype.newbyteorder("=") == np.complex128:  # what Python's complex numbers become
        given = given.astype(np.complex64)
    if _RANKS[scalar_of(given.dtype).kind] <= _RANKS[scalar.kind]:
        cast = given.astype(scalar.dtype)
        if scalar.kind in ("signed", "unsigned") and not np.array_equal(cast, given):
            cast = None
    if cast is None:
        raise TypeError(
            f"{what} {np.array2string(given, threshold=4)} of dtype {given.dtype} was passed for elements of dtype "
            f"{scalar.dtype}, which cannot hold it. Pass values that fit the element's dtype, or dtype=..."
        )
    return cast
