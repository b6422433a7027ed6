"""`associative_scan` of JAX arrays, with an operator written with `jax.numpy`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import jax.numpy as jnp  # noqa: TID253
import numpy as np
from jax.extend.core import Primitive  # noqa: TID253
from jax.interpreters import ad, batching, mlir  # noqa: TID253

from gpuscan.api.row_scan import RowScan
from gpuscan.array_types import AnyArray
from gpuscan.errors import OperatorError
from gpuscan.jax.traced_function import Arrays, LiftedFunction, Likes, row_function
from gpuscan.operators.function_keys import function_key
from gpuscan.operators.operator import Function, name_of
from gpuscan.operators.row_functions import check_combined, row_operator
from gpuscan.problem.arguments import as_flag, as_integer, check_library
from gpuscan.recent_values import RecentValues

# Scans of functions that are known to compute the same.
_scans: RecentValues[Hashable, DifferentiableScan] = RecentValues(128)


def associative_scan(fn: Function, elems: object, reverse: bool = False, axis: int = 0) -> Any:
    """Return the prefix scan of arrays along an axis, as `jax.lax.associative_scan` does.

    ``y[0] = x[0]`` and ``y[i] = fn(y[i-1], x[i])``. JAX traces the function, which becomes one scan on gpuscan's
    default device. It works under `jax.jit` and `jax.vmap`, and has derivatives in both modes (`jax.grad`, `jax.jvp`).
    Arrays are copied from JAX to the device and back by the CPU, in a callback.

    Args:
        fn: an associative function of two pytrees like `elems`, written with `jax.numpy`. It may close over values
            that JAX is tracing, which get derivatives, too. It must treat all entries along the scanned axis in the
            same way. Other axes along which it does so, such as a batch axis, are rows, which are scanned separately.
            All other axes belong to the element, such as the axes of matrices that `fn` multiplies. They must be the
            last axes, and short.
        elems: a pytree of arrays with axes of one length.
        reverse: True to scan from the end: ``flip(associative_scan(fn, flip(elems)))``.
        axis: the axis to scan along.

    Returns:
        A pytree like `elems`.

    Raises:
        TypeError: `fn` cannot be called, or returns other dtypes than its arguments have.
        ValueError: the axis is out of range, the lengths along it differ, or `fn` returns other shapes.
        OperatorError: `fn` cannot become a kernel: it uses another primitive, or mixes elements along the axis.
        UnsupportedDtypeError: gpuscan has no element type of this dtype.

    The gradient is a scan from the other end, and the derivative in forward mode a scan of twice as many arrays. JAX
    computes derivatives of derivatives. It also computes the first derivatives if `fn` has an operation that gpuscan
    cannot differentiate, or if an element has more than 16 numbers.

    Example:
        >>> import jax.numpy as jnp
        >>> import gpuscan.jax
        >>> a, b = jnp.full(4, 0.5), jnp.ones(4)
        >>> gpuscan.jax.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b))[1]
        Array([1.   , 1.5  , 1.75 , 1.875], dtype=float32)
    """
    if not callable(fn):
        raise TypeError(f"fn={fn!r} was passed, but it must be a function of two pytrees like elems; pass one")
    leaves, tree = jax.tree.flatten(elems)
    for leaf in leaves:
        check_library(leaf)
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    axis = _check_axis(leaves, axis)
    likes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    like = jax.tree.unflatten(tree, likes)
    results = jax.tree.flatten(jax.eval_shape(fn, like, like))
    check_combined("fn", results, (leaves, tree), "an array", ".astype(x.dtype)")
    if not leaves[0].shape[axis]:
        return jax.tree.unflatten(tree, leaves)
    scan, free = _differentiable(fn, tree, likes, as_flag("reverse", reverse), axis)
    return jax.tree.unflatten(tree, scan.results([*leaves, *free])[: len(leaves)])


def _differentiable(
    fn: Function, tree: jax.tree_util.PyTreeDef, likes: Likes, reverse: bool, axis: int
) -> tuple[DifferentiableScan, Arrays]:
    """Return a scan without its arrays, and the values that JAX is tracing and the function closes over.

    Args:
        fn, reverse, axis: as in `associative_scan`.
        tree: the structure of the pytree.
        likes: the shapes and dtypes of its leaves.
    """
    key: Hashable = function_key(fn)
    if key is not None:
        key = key, tree, tuple((like.shape, like.dtype) for like in likes), reverse, axis, jax.config.jax_enable_x64
        if (known := _scans.find(key)) is not None:
            return known, ()
    count = len(likes)

    def flat(left: Arrays, right: Arrays) -> list[jax.Array]:
        return list(jax.tree.leaves(fn(jax.tree.unflatten(tree, left), jax.tree.unflatten(tree, right))))

    # Values that JAX is tracing, and the function closes over, are operands that all elements share.
    element = [jax.ShapeDtypeStruct((*like.shape[:axis], 1, *like.shape[axis + 1 :]), like.dtype) for like in likes]
    lifted = LiftedFunction(flat, element, element)
    operands = [*likes, *[jax.ShapeDtypeStruct(value.shape, value.dtype) for value in lifted.free]]

    def make_rows(function: Callable[[Arrays, Arrays], Arrays], times: int) -> RowScan:
        """Return the scan with a function of two lists, which hold the operands `times` times."""
        like = operands * times
        dtypes = [np.dtype(leaf.dtype) for leaf in like]
        combine = row_operator(
            name_of(fn),
            lambda shapes: row_function(function, shapes, dtypes, name_of(fn)),
            [leaf.shape for leaf in like],
            dtypes,
            axis,
            ([False] * count + [True] * len(lifted.free)) * times,
        )
        return RowScan(combine, axis, reverse, tuple(leaf.ndim for leaf in like))

    def combine_flat(left: Arrays, right: Arrays) -> Arrays:
        values = left[count:]
        return [*lifted.call(values, left[:count], right[:count]), *values]

    def by_jax(*arrays: jax.Array) -> Arrays:
        values = arrays[count:]

        def function(left: Arrays, right: Arrays) -> Arrays:
            return lifted.call_along(axis, values, left, right)

        return *jax.lax.associative_scan(function, [*arrays[:count]], reverse=reverse, axis=axis), *values

    scan = DifferentiableScan(make_rows(combine_flat, 1), combine_flat, by_jax, make_rows)
    if key is not None and not lifted.free:
        _scans.keep(key, scan)
    return scan, lifted.free


def _check_axis(leaves: Arrays, axis: object) -> int:
    """Return the axis counted from 0.

    Raises:
        ValueError: there are no leaves, the axis is out of range, or the lengths along it differ.
        TypeError: the axis is not an integer.
    """
    if not leaves:
        raise ValueError("elems without arrays were passed; pass a pytree of one array or more")
    if (index := as_integer(axis)) is None:
        raise TypeError(f"axis={axis!r} was passed, but an axis is an integer; pass axis=0")
    axes: set[int] = {index + leaf.ndim if index < 0 else index for leaf in leaves}
    for leaf in leaves:
        if not -leaf.ndim <= index < leaf.ndim:
            raise ValueError(
                f"axis={index} was passed for an array of shape {leaf.shape}, which has no such axis; pass an axis of "
                "every array, such as 0"
            )
    if len(axes) > 1:
        raise ValueError(
            f"axis={index} was passed for arrays of {', '.join(str(leaf.ndim) for leaf in leaves)} axes, where it "
            "means different axes. Pass an axis counted from 0"
        )
    lengths = [leaf.shape[index] for leaf in leaves]
    if len(set(lengths)) > 1:
        raise ValueError(f"arrays of the lengths {lengths} along axis {index} were passed; pass arrays of one length")
    return axes.pop()


# ----- Derivatives
#
# The derivative of a scan as a primitive of JAX: linear in its tangents, with a transpose, batches and derivatives.


@dataclass(frozen=True, eq=False)
class DifferentiableScan:
    """A scan, without its arrays.

    Attributes:
        rows: the scan by gpuscan.
        combined: its operator, a function of the leaves of a left and of a right element.
        by_jax: the scan by JAX, a function of leaves. It computes the derivatives that gpuscan cannot: derivatives of
            scans of large elements, and derivatives of derivatives.
        make_rows: returns the scan by gpuscan with another operator, for some times as many leaves.
    """

    rows: RowScan
    combined: Callable[[Arrays, Arrays], Arrays]
    by_jax: Callable[..., Arrays]
    make_rows: Callable[[Callable[[Arrays, Arrays], Arrays], int], RowScan]

    @cached_property
    def results(self) -> Callable[[Arrays], Arrays]:
        """Returns the scanned leaves, which JAX may differentiate in both modes."""

        @jax.custom_jvp
        def scan_leaves(*leaves: jax.Array) -> Arrays:
            return _call_on_host(self.rows.scan_rows, leaves, leaves)

        @scan_leaves.defjvp
        def derivative(leaves: Arrays, rates: Arrays) -> tuple[Arrays, Arrays]:
            are_floats = all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in leaves)
            if not are_floats or not self.rows.has_gradient:
                return scan_leaves(*leaves), jax.jvp(self.by_jax, leaves, rates)[1]
            results = scan_leaves(*leaves)
            return results, tuple(_derivative.bind(*leaves, *results, *rates, scan=self, transposed=False))

        return lambda leaves: scan_leaves(*leaves)

    # ----- The derivative. Arrays may have axes of batches in front.

    def rates(self, leaves: Arrays, rates: Arrays) -> Arrays:
        """Return the rates of change of the results, from the rates of change of the leaves."""
        if self._dual is None:
            return self.rates_by_jax(leaves, rates)
        return _call_on_host(self._dual.scan_rows, [*leaves, *rates], [*leaves, *rates])[len(leaves) :]

    def cotangents(self, leaves: Arrays, results: Arrays, given: Arrays) -> Arrays:
        """Return the cotangents of the leaves, from the cotangents of the results."""
        # JAX's gradient with respect to complex numbers is the conjugate of gpuscan's.
        weights = [jnp.conj(array) for array in given]
        conjugates = _call_on_host(self._gradients, [*leaves, *results, *weights], leaves)
        return tuple(jnp.conj(array) for array in conjugates)

    def _gradients(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        return self.rows.gradients(*_thirds(arrays))

    @cached_property
    def _dual(self) -> RowScan | None:
        """The scan of leaves and their rates of change; None if that cannot become a kernel."""

        def dual(left: Arrays, right: Arrays) -> Arrays:
            count = len(left) // 2
            values = tuple(left[:count]), tuple(right[:count])
            rates = tuple(left[count:]), tuple(right[count:])
            pair = jax.jvp(self.combined, values, rates)
            return [*chain(*pair)]

        try:
            return self.make_rows(dual, 2)
        except OperatorError:
            return None

    # ----- The same by JAX

    def rates_by_jax(self, leaves: Arrays, rates: Arrays) -> Arrays:
        of_results: Arrays = jax.jvp(self._batches_by_jax(leaves), tuple(leaves), tuple(rates))[1]
        return of_results

    def cotangents_by_jax(self, leaves: Arrays, given: Arrays) -> Arrays:
        of_leaves: Arrays = jax.vjp(self._batches_by_jax(leaves), *leaves)[1](tuple(given))
        return of_leaves

    def _batches_by_jax(self, leaves: Arrays) -> Callable[..., Arrays]:
        function = self.by_jax
        for _ in range(leaves[0].ndim - self.rows.ranks[0]):
            function = jax.vmap(function)
        return function


# ----- The primitive
# Its arguments are the leaves of a scan, its results, and vectors like these, in which it is linear: the rates of
# change of the leaves, or if it is `transposed` the cotangents of the results.

_derivative = Primitive("gpuscan_derivative")
_derivative.multiple_results = True


def _thirds(arrays: Arrays) -> tuple[Arrays, Arrays, Arrays]:
    count = len(arrays) // 3
    return arrays[:count], arrays[count : 2 * count], arrays[2 * count :]


@_derivative.def_impl
def _compute_derivative(*arrays: jax.Array, scan: DifferentiableScan, transposed: bool) -> list[jax.Array]:
    leaves, results, vectors = _thirds(arrays)
    return [*(scan.cotangents(leaves, results, vectors) if transposed else scan.rates(leaves, vectors))]


@_derivative.def_abstract_eval
def _infer_shapes(*avals: jax.core.ShapedArray, **_: object) -> list[jax.core.ShapedArray]:
    return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval in _thirds(avals)[0]]


def _derive_again(primals: Arrays, tangents: Arrays, **options: Any) -> tuple[list[jax.Array], list[jax.Array]]:
    """Return the primitive's results and their rates of change.

    The results of the scan count as a function of the leaves, so their own rates of change are not read.
    """
    scan, transposed = options["scan"], options["transposed"]
    (leaves, results, vectors), (of_leaves, _, of_vectors) = _thirds(primals), _thirds(tangents)
    outputs = _derivative.bind(*primals, **options)
    by_vectors = _derivative.bind(*leaves, *results, *map(ad.instantiate_zeros, of_vectors), **options)
    if all(isinstance(tangent, ad.Zero) for tangent in of_leaves):
        return outputs, by_vectors

    def by_jax(*leaves: jax.Array) -> Arrays:
        return tuple((scan.cotangents_by_jax if transposed else scan.rates_by_jax)(leaves, vectors))

    by_leaves = jax.jvp(by_jax, tuple(leaves), tuple(map(ad.instantiate_zeros, of_leaves)))[1]
    return outputs, [one + other for one, other in zip(by_vectors, by_leaves, strict=True)]


def _transpose_derivative(
    given: Arrays, *primals: jax.Array, scan: DifferentiableScan, transposed: bool
) -> list[jax.Array | None]:
    leaves, results, _ = _thirds(primals)
    weights = map(ad.instantiate_zeros, given)
    of_rates: list[jax.Array] = _derivative.bind(*leaves, *results, *weights, scan=scan, transposed=not transposed)
    return [*[None] * (len(leaves) + len(results)), *of_rates]


def _batch_derivative(
    arrays: Arrays, axes: Sequence[int | None], **options: object
) -> tuple[list[jax.Array], list[int]]:
    size = next(array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None)
    whole = [
        jnp.broadcast_to(array, (size, *array.shape)) if axis is None else jnp.moveaxis(array, axis, 0)
        for array, axis in zip(arrays, axes, strict=True)
    ]
    outputs = _derivative.bind(*whole, **options)
    return outputs, [0] * len(outputs)


ad.primitive_jvps[_derivative] = _derive_again
ad.primitive_transposes[_derivative] = _transpose_derivative
batching.primitive_batchers[_derivative] = _batch_derivative
mlir.register_lowering(_derivative, mlir.lower_fun(_compute_derivative, multiple_results=True))


def _call_on_host(
    function: Callable[[list[AnyArray]], Sequence[AnyArray]], arguments: Arrays, like: Arrays
) -> tuple[jax.Array, ...]:
    """Return the arrays that a function of NumPy arrays gives on the host; they are like `like`."""
    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in like)
    return tuple(jax.pure_callback(_OnHost(function), shapes, *arguments, vmap_method="broadcast_all"))


@dataclass(frozen=True)
class _OnHost:
    """A function of NumPy arrays as one of JAX's. JAX compiles equal callbacks once."""

    function: Callable[[list[AnyArray]], Sequence[AnyArray]]

    def __call__(self, *arrays: jax.Array) -> tuple[AnyArray, ...]:
        return tuple(self.function([np.asarray(array) for array in arrays]))
