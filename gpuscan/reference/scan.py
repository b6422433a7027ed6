"""Run the same algorithm on NumPy: the fallback on machines without an adapter, and the oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.array_types import AnyDType
from gpuscan.elements import compute_dtype
from gpuscan.operators.trace import Map
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH
from gpuscan.problem.problem import Problem
from gpuscan.problem.segments import empty_segment_error
from gpuscan.reference.everywhere import FixedJoiner, compute_fixed_map, scan_everywhere
from gpuscan.reference.stages import Items, Joiner, last, reduce, scan, scan_tile, scan_totals

# These constants tune NumPy, not an adapter, so they stand here and not in planning/heuristics.py. The experiments were
# not recorded.

# Invocations in a tile of `accumulate`.
WORKGROUP = 64
# Elements in a chunk, at most.
MAX_CHUNK = 64
# Elements that one call of the operator should combine before chunks grow.
MIN_CALL_LENGTH = 1 << 14
# Bytes of storage of the elements that are scanned at a time.
PIECE_BYTES = 16 << 20


def accumulate(problem: Problem) -> list[Array]:
    """Return the result of the problem: one array (rows, row_length, *element shape) for each field.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])`` in every row or segment. A built-in operator runs as its ufunc's
    `accumulate`. Any other runs in the tree of the GPU's stages, with its function called on whole arrays.

    Raises:
        OperatorError: the operator has only WGSL, or its function does not return elements.

    Example:
        >>> import numpy as np
        >>> from gpuscan.problem.problem import make_problem
        >>> accumulate(make_problem(np.array([3, 1, 4], np.int32), "add", reverse=True))
        [array([[8, 5, 4]], dtype=int32)]
    """
    if problem.empty:
        return _outputs(problem)
    with np.errstate(all="ignore"):
        if problem.everywhere:
            return accumulate_everywhere(problem)
        if problem.heads is None and problem.operator.kinds is not None and not problem.operator.element_axes:
            return accumulate_ufunc(problem, getattr(np, problem.operator.name))
        return accumulate_stages(problem, tile_shape(problem.size))


def accumulate_ufunc(problem: Problem, ufunc: np.ufunc) -> list[Array]:
    """Return the result for a built-in operator of single values, by NumPy's own loop."""
    (field,) = problem.element.fields
    dtype = compute_dtype(field.scalar)
    (rows,) = from_storage(
        problem, [problem.by_rows(leaf) for leaf in problem.numpy_leaves], np.arange(problem.row_length)
    )
    given = problem.numpy_seeds
    seeds = None if given is None else given[0].astype(dtype)[:, np.newaxis]
    rows = in_order(problem, rows)
    if problem.initial:
        sums = running(ufunc, np.concatenate([seeds, rows], axis=1))
        sums = sums[:, :-1] if problem.exclusive else sums[:, 1:]
    else:
        sums = running(ufunc, rows)
        if problem.exclusive:
            sums = np.concatenate([seeds, sums[:, :-1]], axis=1)
    return to_storage(problem, [in_order(problem, sums)])


def reduce_rows(problem: Problem) -> list[Array]:
    """Return the last result of each row, or of each of its segments: (*results shape, *element shape) for each field.

    An axis of length 0 gives the problem's seeds.
    """
    if problem.heads is not None:
        return reduce_segments(problem)
    if problem.row_length == 0:
        seeds = problem.numpy_seeds
        assert seeds is not None
        return store_seeds(problem, seeds)
    if problem.operator.kinds is None or problem.operator.element_axes or problem.initial or problem.everywhere:
        return [rows[:, -1] for rows in accumulate(problem)]
    ufunc: np.ufunc = getattr(np, problem.operator.name)
    with np.errstate(all="ignore"):
        (rows,) = from_storage(
            problem, [problem.by_rows(leaf) for leaf in problem.numpy_leaves], np.arange(problem.row_length)
        )
        # Without an initial value NumPy would begin with the identity, and the sum of -0.0 would be 0.0.
        return to_storage(problem, [np.asarray(ufunc.reduce(rows, axis=1, dtype=rows.dtype, initial=None))])


def reduce_segments(problem: Problem) -> list[Array]:
    """Return the last result of each segment. An empty segment gives the problem's `fill`.

    Raises:
        ValueError: a segment is empty, and there is no `fill`.
    """
    assert problem.heads is not None
    offsets = np.asarray(problem.heads.cut.array)
    empty = offsets[:-1] == offsets[1:]
    if empty.any() and problem.fill is None:
        raise empty_segment_error(int(np.argmax(empty)), problem.operator.described)
    results = []
    for number, field in enumerate(problem.destination.fields):
        ends = np.empty((problem.rows, len(empty), *field.shape), field.scalar.dtype)
        if empty.any():
            assert problem.fill is not None
            ends[:, empty] = problem.fill[number][:, np.newaxis]
        results.append(ends)
    if not problem.empty:
        for ends, rows in zip(results, accumulate(problem), strict=True):
            ends[:, ~empty] = rows[:, offsets[1:][~empty] - 1]
    return [np.ascontiguousarray(problem.from_rows(ends)) for ends in results]


def reduce_key_runs(problem: Problem) -> tuple[Array, list[Array]]:
    """Return where the runs of equal keys of one row begin, and the last result of each."""
    assert problem.heads is not None
    starts = np.flatnonzero(problem.heads.flags(0, problem.size))
    ends = np.append(starts[1:], problem.size) - 1
    return starts, [rows.reshape(problem.size, *rows.shape[2:])[ends[: len(starts)]] for rows in accumulate(problem)]


def store_seeds(problem: Problem, seeds: Sequence[Array]) -> list[Array]:
    """Return the results of no elements: the seeds, mapped by `after`."""
    fields = problem.element.fields
    return to_storage(problem, [seed.astype(compute_dtype(f.scalar)) for seed, f in zip(seeds, fields, strict=True)])


def running(ufunc: np.ufunc, rows: Array) -> Array:
    """Return ``ufunc.accumulate`` along rows, with bits that do not depend on the memory layout.

    NumPy's rounding of complex products depends on the strides, and differs between one product and several.
    """
    if rows.dtype.kind != "c":
        return ufunc.accumulate(rows, axis=1, dtype=rows.dtype)
    rows = np.concatenate([rows, rows[:, -1:]], axis=1)
    return ufunc.accumulate(rows, axis=1)[:, :-1]


def tile_shape(length: int) -> TileShape:
    """Return a tile for whole-array calls: long chunks, unless one call would combine too few elements."""
    return TileShape(WORKGROUP, 0, 1, min(MAX_CHUNK, max(1, length // MIN_CALL_LENGTH)))


def accumulate_stages(problem: Problem, shape: TileShape, piece_bytes: int = PIECE_BYTES) -> list[Array]:
    """Return the result by the twins of the GPU's stages: the bits that every strategy gives with this tile.

    Args:
        shape: the tile's shape.
        piece_bytes: storage of the elements that are scanned at a time. Pieces are whole blocks of tiles, so their
            size does not change the result.
    """
    flat = [flatten_rows(problem, problem.by_rows(leaf)) for leaf in problem.numpy_leaves]
    outputs = _outputs(problem)
    logical = [output.reshape(problem.size, *output.shape[2:]) for output in outputs]
    if shape.per_row:
        accumulate_rows(problem, shape, flat, logical)
    else:
        accumulate_flat(problem, shape, flat, logical, piece_bytes)
    return [in_order(problem, output) for output in outputs]


def accumulate_flat(
    problem: Problem, shape: TileShape, flat: list[Array], outputs: list[Array], piece_bytes: int
) -> None:
    """Scan all rows as one array, piece by piece, and write the results to `outputs`."""
    join = Joiner(problem.operator, problem.element, problem.segmented)
    block = shape.tile_size * shape.block
    piece = block * max(1, piece_bytes // (block * problem.element.storage_bytes))
    carry: Items | None = None
    for start in range(0, problem.size, piece):
        items = load(problem, [leaf[start : start + piece] for leaf in flat], start)
        sums = scan_tile(join, shape, items)
        prefixes, folded = scan_totals(join, shape.block, reduce(sums), carry)
        results = scan(join, sums, prefixes, carried=carry is not None, exclusive=problem.exclusive)
        stored = store(problem, results, start)
        for output, part in zip(outputs, stored, strict=True):
            output[start : start + piece] = part
        carry = last(folded)


def accumulate_everywhere(problem: Problem) -> list[Array]:
    """Return the result in the canonical order: the bits that every device gives with reproducible="everywhere"."""
    flat = [flatten_rows(problem, problem.by_rows(leaf)) for leaf in problem.numpy_leaves]
    outputs = _outputs(problem)
    logical = [output.reshape(problem.size, *output.shape[2:]) for output in outputs]
    join = FixedJoiner(problem.operator, problem.element, problem.segmented)
    parts = scan_everywhere(
        join,
        lambda start, stop: load(problem, [leaf[start:stop] for leaf in flat], start),
        problem.size,
        exclusive=problem.exclusive,
    )
    for start, results in parts:
        for output, part in zip(logical, store(problem, results, start), strict=True):
            output[start : start + len(part)] = part
    return [in_order(problem, output) for output in outputs]


def accumulate_rows(problem: Problem, shape: TileShape, flat: list[Array], outputs: list[Array]) -> None:
    """Scan every row by itself, for tiles that end where rows end, and write the results to `outputs`.

    The items need no head flag.
    """
    join = Joiner(problem.operator, problem.element)
    for start in range(0, problem.size, problem.row_length):
        row = slice(start, start + problem.row_length)
        items = load(problem, [leaf[row] for leaf in flat], start)[: len(problem.element.fields)]
        sums = scan_tile(join, shape, items)
        prefixes, _ = scan_totals(join, shape.block, reduce(sums))
        stored = store(problem, scan(join, sums, prefixes, exclusive=problem.exclusive), start)
        for output, part in zip(outputs, stored, strict=True):
            output[row] = part


def in_order(problem: Problem, rows: Array) -> Array:
    """Convert rows between the order in memory and the order of the scan: reverse each if the scan is reversed.

    Rows that are scanned as one are reversed as one.
    """
    if problem.reverse and problem.rows > 1 and problem.heads is not None:
        return rows[::-1, ::-1]
    # A row of one element is not reversed, because other libraries refuse arrays with a negative stride.
    return rows[:, ::-1] if problem.reverse and rows.shape[1] > 1 else rows


def flatten_rows(problem: Problem, rows: Array) -> Array:
    """Return all rows as one, in the order of the scan."""
    return in_order(problem, rows).reshape(problem.size, *rows.shape[2:])


def load(problem: Problem, leaves: Sequence[Array], start: int = 0) -> Items:
    """Return items from storage: apply `before`, combine heads with `initial`, and add head flags if needed.

    Args:
        leaves: for each field of the source, the elements from `start` on, in the order of the scan.
        start: the index of the first one.
    """
    indices = np.arange(start, start + len(leaves[0])) % problem.row_length
    wide = from_storage(problem, leaves, problem.row_length - 1 - indices if problem.reverse else indices)
    heads, seeds = heads_between(problem, start, start + len(wide[0]))
    if problem.initial and len(heads):
        join = (FixedJoiner if problem.everywhere else Joiner)(problem.operator, problem.element)
        combined = join.combine(seeds, tuple(a[heads] for a in wide))
        wide = [replace_entries(array, heads, part) for array, part in zip(wide, combined, strict=True)]
    if not problem.segmented:
        return tuple(wide)
    return (*wide, replace_entries(np.zeros(len(wide[0]), bool), heads, np.True_))


def store(problem: Problem, results: Items, start: int = 0) -> list[Array]:
    """Return storage from items: put the seeds at the heads of an exclusive scan, apply `after`, and round.

    Args:
        results: the items from index `start` on, in the order of the scan.
        start: the index of the first one.
    """
    wide: Sequence[Array] = results[: len(problem.element.fields)]
    if problem.exclusive:
        heads, seeds = heads_between(problem, start, start + len(wide[0]))
        wide = [replace_entries(array, heads, part) for array, part in zip(wide, seeds, strict=True)]
    return to_storage(problem, wide)


def from_storage(problem: Problem, leaves: Sequence[Array], indices: Array) -> list[Array]:
    """Return the source's arrays in compute form, mapped by `before`.

    Args:
        leaves: an array for each field of the source.
        indices: the index of each element along the axis, for a map that takes it.
    """
    wide = [a.astype(compute_dtype(f.scalar), copy=False) for a, f in zip(leaves, problem.source.fields, strict=True)]
    if problem.before is None:
        return wide
    axes = wide[0].shape[: wide[0].ndim - len(problem.source.fields[0].shape)]
    if problem.everywhere:
        assert isinstance(problem.before, Map)
        index = [np.broadcast_to(indices.astype(index_dtype(problem)), axes)] if problem.indexed else []
        return compute_fixed_map(problem.before, [*wide, *index])
    argument = problem.source.structure.unflatten(wide)
    if problem.indexed:
        argument = (argument, np.broadcast_to(indices.astype(index_dtype(problem)), axes))
    mapped = problem.element.structure.flatten(problem.before(argument))
    fields = problem.element.fields
    return [broadcast_values(a, compute_dtype(f.scalar), axes + f.shape) for a, f in zip(mapped, fields, strict=True)]


def index_dtype(problem: Problem) -> type[np.int32 | np.int64]:
    """Return the dtype of the index that `before` takes."""
    return np.int32 if problem.row_length <= MAX_INT32_LENGTH else np.int64


def to_storage(problem: Problem, wide: Sequence[Array]) -> list[Array]:
    """Return the destination's arrays: elements in compute form, mapped by `after` and rounded."""
    axes = wide[0].shape[: wide[0].ndim - len(problem.element.fields[0].shape)]
    with np.errstate(all="ignore"):
        if problem.after is not None:
            wide = apply_after(problem, wide)
        fields = problem.destination.fields
        return [broadcast_values(a, f.scalar.dtype, axes + f.shape) for a, f in zip(wide, fields, strict=True)]


def apply_after(problem: Problem, wide: Sequence[Array]) -> list[Array]:
    """Return the results of `after`: an array for each field, even if it returns one array for several."""
    assert problem.after is not None
    if problem.everywhere:
        assert isinstance(problem.after, Map)
        return compute_fixed_map(problem.after, wide)
    value = problem.after(problem.element.structure.unflatten(wide))
    return [np.array(leaf) for leaf in problem.destination.structure.flatten(value)]


def broadcast_values(values: Array, dtype: AnyDType, shape: tuple[int, ...]) -> Array:
    """Return the values in this dtype, broadcast to this shape: a map may return one number for all elements."""
    array = np.asarray(values).astype(dtype, copy=False)
    return array if array.shape == shape else np.broadcast_to(array, shape).copy()


def heads_between(problem: Problem, start: int, stop: int) -> tuple[Array, Items]:
    """Return the heads between two indices, counted from `start`, and their seeds in compute form."""
    if problem.heads is not None:
        heads = np.flatnonzero(problem.heads.flags(start, stop - start))
    else:
        heads = np.arange(-start % problem.row_length, stop - start, problem.row_length)
    seeds = problem.numpy_seeds
    if seeds is None:
        return heads, ()
    row = (heads + start) // problem.row_length
    if problem.reverse and problem.heads is not None:
        row = problem.rows - 1 - row
    fields = problem.element.fields
    return heads, tuple(s[row].astype(compute_dtype(f.scalar)) for s, f in zip(seeds, fields, strict=True))


def shift(array: Array, first: object, axis: int, *, reverse: bool) -> Array:
    """Return for each element along an axis the one before it in this order; before the first one of a row `first`."""
    shifted = np.roll(array, -1 if reverse else 1, axis)
    if array.shape[axis]:
        shifted[(slice(None),) * axis + (-1 if reverse else 0,)] = first
    return shifted


def replace_entries(array: Array, where: Array, values: Array | np.generic) -> Array:
    """Return a copy of the array with ``copy[where] = values``."""
    copy = array.copy()
    copy[where] = values
    return copy


def _outputs(problem: Problem) -> list[Array]:
    fields = problem.destination.fields
    return [np.empty((problem.rows, problem.row_length, *f.shape), f.scalar.dtype) for f in fields]


# ----- Functions of elements


def map_arrays(function: Map, arrays: Sequence[Array], shape: tuple[int, ...]) -> list[Array]:
    """Return the fields of the function's result: one array (*shape, *field shape) for each.

    Args:
        function: a traced function of a tuple of numbers.
        arrays: one for each number, of shapes that broadcast to the common one.
        shape: the common shape.
    """
    fields = zip(arrays, function.source.fields, strict=True)
    wide = [np.broadcast_to(a.astype(compute_dtype(f.scalar), copy=False), shape) for a, f in fields]
    with np.errstate(all="ignore"):
        leaves = function.element.structure.flatten(function(tuple(wide)))
        results = function.element.fields
        return [
            broadcast_values(leaf, f.scalar.dtype, shape + f.shape) for leaf, f in zip(leaves, results, strict=True)
        ]
