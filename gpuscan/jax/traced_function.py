"""Operators written with `jax.numpy`: JAX traces the function, and its primitives are interpreted on numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax  # noqa: TID253 (only users of JAX import this package)
import jax.numpy as jnp  # noqa: TID253
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun  # noqa: TID253

from gpuscan.array_types import AnyDType
from gpuscan.errors import OperatorError
from gpuscan.operators.components import (
    COMMON,
    OTHER,
    Numbers,
    apply,
    constants_of,
    contract_axes,
    convert_number,
    fold_axes,
    is_other,
    logistic,
    make_number_array,
    select,
)
from gpuscan.operators.matrices import Rows, factor_cholesky, factor_lu, over_matrices, solve_triangular, swap_rows
from gpuscan.operators.row_functions import RowFunction

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr, JaxprEqn, Var

Arrays = Sequence[jax.Array]
# The shapes and dtypes of arrays.
Likes = Sequence[jax.ShapeDtypeStruct]


def row_function(
    function: Callable[..., object], shapes: Sequence[tuple[int, ...]], dtypes: Sequence[AnyDType], name: str
) -> RowFunction:
    """Return a function of two lists of arrays as one of two lists of arrays of numbers.

    Args:
        function: JAX's function.
        shapes: the shape of each array.
        dtypes: their dtypes.
        name: the name of the user's function, for messages.

    The function must not close over values that JAX is tracing.
    """
    leaves = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    closed = jax.make_jaxpr(function)(leaves, leaves)
    consts = [constants_of(const) for const in closed.consts]

    def interpret_rows(left: Sequence[Numbers], right: Sequence[Numbers]) -> list[Numbers]:
        return _run(closed.jaxpr, consts, [*left, *right], name)

    return interpret_rows


def array_step(
    function: Callable[..., object], carry: Likes, xs: Likes, name: str
) -> tuple[Callable[[Sequence[Numbers]], list[Numbers]], list[tuple[int, ...]], list[AnyDType]]:
    """Return the step of a loop as a function of arrays of numbers, and the shapes and dtypes of its results.

    Args:
        function: takes two lists of arrays, the carry and x, and returns a list.
        carry, xs: the shapes and dtypes of these arrays.
        name: the name of the user's function, for messages.
    """
    closed = jax.make_jaxpr(function)([*carry], [*xs])
    consts = [constants_of(const) for const in closed.consts]
    shapes = [tuple(aval.shape) for aval in closed.out_avals]

    def interpret_arrays(arrays: Sequence[Numbers]) -> list[Numbers]:
        return _run(closed.jaxpr, consts, arrays, name)

    return interpret_arrays, shapes, [np.dtype(aval.dtype) for aval in closed.out_avals]


class LiftedFunction:
    """A function of two lists that takes the values that JAX is tracing, and that it closes over, as arguments.

    JAX traces the function once for each shape of its arguments. So the function can be called when the transformation
    that the values belong to has ended, where JAX 0.11 refuses to compute with them.

    Args:
        function: JAX's function.
        left, right: the shapes and dtypes of the lists.

    Attributes:
        free: the values that the function closes over.
    """

    def __init__(self, function: Callable[[Arrays, Arrays], Arrays], left: Likes, right: Likes) -> None:
        self._function = function
        self._traced: dict[tuple[object, ...], ClosedJaxpr] = {}
        consts = self._trace(left, right).consts
        self.free = list({id(const): const for const in consts if isinstance(const, jax.core.Tracer)}.values())

    def call(self, values: Arrays, left: Arrays, right: Arrays) -> list[jax.Array]:
        """Call the function with other values in place of `free`."""
        if not self.free:
            return list(self._function([*left], [*right]))
        traced = self._trace(left, right)
        others = {id(variable): value for variable, value in zip(self.free, values, strict=True)}
        consts = [others.get(id(const), const) for const in traced.consts]
        return list(jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, consts))(*left, *right))

    def call_along(self, axis: int, values: Arrays, left: Arrays, right: Arrays) -> list[jax.Array]:
        """Do the same for arrays of any length along an axis, along which the function combines elements apart.

        It is traced for one element.
        """
        if not self.free:
            return list(self._function([*left], [*right]))

        def combine(left: Arrays, right: Arrays) -> list[jax.Array]:
            return self.call(values, left, right)

        elements = ([jnp.expand_dims(array, axis + 1) for array in arrays] for arrays in (left, right))
        combined = jax.vmap(combine, axis, axis)(*elements)
        return [jnp.squeeze(array, axis + 1) for array in combined]

    def _trace(self, left: Arrays | Likes, right: Arrays | Likes) -> ClosedJaxpr:
        likes = [[jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays] for arrays in (left, right)]
        key = tuple((like.shape, like.dtype) for arrays in likes for like in arrays)
        if key not in self._traced:
            self._traced[key] = jax.make_jaxpr(self._function)(*likes)
        return self._traced[key]


def _run(jaxpr: Jaxpr, consts: Sequence[Numbers], arguments: Sequence[Numbers], name: str) -> list[Numbers]:
    """Return the results of a jaxpr."""
    value_of: dict[Var, Numbers] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *arguments), strict=True))

    def read(atom: Literal | Var) -> Numbers:
        if isinstance(atom, Literal):
            return constants_of(np.asarray(atom.val, atom.aval.dtype))
        return value_of[atom]

    for equation in jaxpr.eqns:
        results = _apply(equation, [read(atom) for atom in equation.invars], name)
        value_of.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _apply(equation: JaxprEqn, arrays: list[Numbers], name: str) -> list[Numbers]:
    primitive, parameters = equation.primitive.name, equation.params
    try:
        if primitive in ELEMENTWISE:
            return [apply(ELEMENTWISE[primitive], *arrays)]
        if primitive in FOLDS:
            return [fold_axes(FOLDS[primitive], arrays[0], parameters["axes"])]
        if primitive in TYPED:
            return [TYPED[primitive](*arrays, dtype=equation.outvars[0].aval.dtype)]
        if primitive in OTHERS:
            output = OTHERS[primitive](*arrays, **parameters)
            return output if isinstance(output, list) else [output]
    except NotImplementedError as error:
        primitive = str(error)
    if primitive == "custom_linear_solve":
        # Its operands are the constants of four functions, and then the right-hand side.
        lengths = parameters["const_lengths"]
        first = lengths.matvec + lengths.vecmat
        solve = parameters["jaxprs"].solve
        consts = [constants_of(const) for const in solve.consts]
        return _run(solve.jaxpr, consts, [*arrays[first : first + lengths.solve], *arrays[sum(lengths) :]], name)
    inner = next((parameters[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in parameters), None)
    if primitive not in CALLS or inner is None:
        raise OperatorError(
            f"{name} uses JAX's primitive {primitive!r}, which has no form in a scan on a GPU. Write the function "
            f"with the primitives {', '.join(NAMES)}, or use jax.lax.associative_scan"
        )
    consts = [constants_of(const) for const in getattr(inner, "consts", ())]
    return _run(getattr(inner, "jaxpr", inner), consts, arrays, name)


# ----- Primitives
#
# The primitives of JAX that an operator may consist of, on arrays of numbers (`gpuscan.operators.components`).


# Primitives that work number by number, and the function of numbers that does the same.
ELEMENTWISE: dict[str, Callable[..., object]] = {
    **COMMON,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "max": np.maximum,
    "min": np.minimum,
    "rem": np.fmod,
    "pow": np.power,
    "cbrt": np.cbrt,
    "logistic": logistic,
    "is_finite": np.isfinite,
    "complex": lambda real, imag: real + 1j * imag,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
}
# Primitives that combine numbers along axes.
FOLDS: dict[str, np.ufunc] = {
    "reduce_sum": np.add,
    "reduce_prod": np.multiply,
    "reduce_max": np.maximum,
    "reduce_min": np.minimum,
    "reduce_and": np.bitwise_and,
    "reduce_or": np.bitwise_or,
    "reduce_xor": np.bitwise_xor,
}
# Primitives that contain the primitives of a function.
CALLS = frozenset("jit pjit closed_call core_call custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr".split())
CALLS |= {"remat", "remat2", "checkpoint"}


def div(x: Numbers, y: Numbers, *, dtype: AnyDType) -> Numbers:
    if dtype.kind in "iu":
        raise NotImplementedError("div of integers")
    return apply(np.divide, x, y)


def shift_right(x: Numbers, y: Numbers, *, dtype: AnyDType, dtype_kind: str) -> Numbers:
    if dtype.kind != dtype_kind:
        raise NotImplementedError(f"that shift of {dtype}")
    return apply(np.right_shift, x, y)


# Primitives that depend on the dtype of the result.
TYPED: dict[str, Callable[..., Numbers]] = {
    "div": div,
    "shift_right_arithmetic": partial(shift_right, dtype_kind="i"),
    "shift_right_logical": partial(shift_right, dtype_kind="u"),
}


def select_n(which: Numbers, *cases: Numbers) -> Numbers:
    if len(cases) != 2:
        raise NotImplementedError(f"select_n of {len(cases)} cases")
    return apply(select, which, cases[1], cases[0])


def round_numbers(x: Numbers, *, rounding_method: jax.lax.RoundingMethod) -> Numbers:
    if int(rounding_method) != 1:
        raise NotImplementedError("round away from zero")
    return apply(np.rint, x)


def broadcast_in_dim(x: Numbers, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: object) -> Numbers:
    own = [1] * len(shape)
    for axis, target_axis in enumerate(broadcast_dimensions):
        own[target_axis] = x.shape[axis]
    return np.broadcast_to(x.reshape(own), tuple(shape))


def slice_axes(
    x: Numbers, *, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None
) -> Numbers:
    steps = strides or (None,) * x.ndim
    return x[tuple(slice(*bounds) for bounds in zip(start_indices, limit_indices, steps, strict=True))]


def dot_general(x: Numbers, y: Numbers, *, dimension_numbers: jax.lax.DotDimensionNumbers, **_: object) -> Numbers:
    sums, batch = dimension_numbers
    return contract_axes(x, y, sums, batch)


def iota(*, dtype: AnyDType, shape: Sequence[int], dimension: int, **_: object) -> Numbers:
    along = np.arange(shape[dimension], dtype=dtype)
    others = [axis for axis in range(len(shape)) if axis != dimension]
    return constants_of(np.broadcast_to(np.expand_dims(along, others), tuple(shape)))


def reshape(x: Numbers, *, new_sizes: Sequence[int], dimensions: object, **_: object) -> Numbers:
    if dimensions is not None:
        raise NotImplementedError("reshape in another order")
    return x.reshape(tuple(new_sizes))


# ----- Small matrices


def lu(x: Numbers, **_: object) -> list[Numbers]:
    """Return the factors, the row that each one was swapped with, and the order of the rows."""

    def factor(rows: Rows) -> tuple[Rows, list[int], list[object]]:
        swaps = factor_lu(rows, len(rows[0]))
        order: Rows = [[np.int32(row)] for row in range(len(rows))]
        for row, pivot in enumerate(swaps):
            swap_rows(order, row, pivot)
        return rows, swaps, [row for (row,) in order]

    return over_matrices(factor, x)


def cholesky(x: Numbers, **_: object) -> list[Numbers]:
    return over_matrices(lambda rows: [factor_cholesky(rows)], x)


def triangular_solve(
    a: Numbers,
    b: Numbers,
    *,
    left_side: bool,
    lower: bool,
    transpose_a: bool,
    conjugate_a: bool,
    unit_diagonal: bool,
) -> Numbers:
    if conjugate_a:
        a = apply(np.conj, a)
    if transpose_a:
        a, lower = np.swapaxes(a, -1, -2), not lower
    if not left_side:
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    (x,) = over_matrices(lambda a, b: [solve_triangular(a, b, lower=lower, unit=unit_diagonal)], a, b)
    return x if left_side else np.swapaxes(x, -1, -2)


# ----- Indices


def gather(
    x: Numbers,
    indices: Numbers,
    *,
    dimension_numbers: jax.lax.GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    mode: jax.lax.GatherScatterMode,
    **_: object,
) -> Numbers:
    """Return slices of an array at indices, which may be traced: each number is then chosen among all in question."""
    numbers = dimension_numbers
    batched = tuple(getattr(numbers, "operand_batching_dims", ()))
    by_batch = dict(zip(batched, getattr(numbers, "start_indices_batching_dims", ()), strict=True))
    window_axes = [axis for axis in range(x.ndim) if axis not in (*numbers.collapsed_slice_dims, *batched)]
    sliced = dict(zip(numbers.offset_dims, (slice_sizes[axis] for axis in window_axes), strict=True))
    batch_lengths = iter(indices.shape[:-1])
    shape = [sliced[axis] if axis in sliced else next(batch_lengths) for axis in range(indices.ndim - 1 + len(sliced))]
    fills = "FILL" in str(mode)
    entries = []
    for at in np.ndindex(*shape):
        batch = tuple(at[axis] for axis in range(len(shape)) if axis not in sliced)
        position = dict.fromkeys(range(x.ndim), 0)
        position |= {axis: at[out] for axis, out in zip(window_axes, numbers.offset_dims, strict=True)}
        position |= {axis: batch[other] for axis, other in by_batch.items()}
        starts = dict(zip(numbers.start_index_map, indices[batch], strict=True))
        limits = {axis: x.shape[axis] - slice_sizes[axis] for axis in starts}
        entries.append(_pick(x, position, starts, limits, fills))
    return make_number_array(entries, tuple(shape))


def _pick(x: Numbers, position: dict[int, int], starts: dict[int, Any], limits: dict[int, int], fills: bool) -> object:
    """Return the number of an array at a place, which the starts of a slice move along some axes."""
    if not starts:
        return x[tuple(position[axis] for axis in range(x.ndim))]
    (axis, start), *rest = starts.items()
    if is_other(start):
        return OTHER
    choices: Sequence[int] = range(limits[axis] + 1)
    is_constant = isinstance(start, (int, np.integer))
    if fills and not is_constant:
        raise NotImplementedError("gather with a fill value; pass mode='clip' to jax.numpy.take")
    if fills and start not in choices:
        raise IndexError(f"index {start} was passed for an axis of {x.shape[axis]} numbers")
    if is_constant:
        choices = [min(max(int(start), 0), limits[axis])]
    moved = [_pick(x, position | {axis: position[axis] + choice}, dict(rest), limits, fills) for choice in choices]
    if any(map(is_other, moved)):
        return OTHER
    result = moved[0]
    for choice, number in zip(choices[1:], moved[1:], strict=True):
        result = select(start >= choice, number, result)
    return result


# Primitives with parameters.
OTHERS: dict[str, Callable[..., Numbers | list[Numbers]]] = {
    "integer_pow": lambda x, *, y: apply(lambda number: number**y, x),
    "select_n": select_n,
    "round": round_numbers,
    "broadcast_in_dim": broadcast_in_dim,
    "slice": slice_axes,
    "split": lambda x, *, sizes, axis: np.split(x, np.cumsum(sizes)[:-1].tolist(), axis),
    "dot_general": dot_general,
    "iota": iota,
    "reshape": reshape,
    "convert_element_type": lambda x, *, new_dtype, **_: apply(partial(convert_number, dtype=np.dtype(new_dtype)), x),
    "squeeze": lambda x, *, dimensions: x.reshape([n for i, n in enumerate(x.shape) if i not in dimensions]),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose([int(axis) for axis in permutation]),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *arrays, dimension: np.concatenate(arrays, dimension),
    "stack": lambda *arrays, axis: np.stack(arrays, axis),
    "gather": gather,
    "lu": lu,
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
}
NAMES = sorted((*ELEMENTWISE, *FOLDS, *TYPED, *OTHERS, "custom_linear_solve"))
