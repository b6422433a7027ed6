"""`associative_scan` of JAX arrays, with an operator written with `jax.numpy`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import jax.numpy as jnp  # noqa: TID253
import numpy as np

from gpuscan.api.row_scan import RowScan
from gpuscan.jax.derivatives import DifferentiableScan
from gpuscan.jax.traced_function import call_with, free_values, row_function
from gpuscan.operators.operator import name_of
from gpuscan.operators.row_functions import check_combined, row_operator
from gpuscan.problem.arguments import as_flag, as_integer, check_library


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return the running combination of the elements along an axis, as `jax.lax.associative_scan` does.

    ``y[0] = x[0]`` and ``y[i] = fn(y[i-1], x[i])``. The function is traced by JAX and becomes a kernel of one scan on
    gpuscan's default device. It works under `jax.jit` and `jax.vmap`, and has derivatives in both modes (`jax.grad`,
    `jax.jvp`); arrays go to the device and back by way of the host, in a callback.

    Args:
        fn: an associative function of two pytrees like `elems`, written with `jax.numpy`. It may close over values
            that JAX is tracing, which get derivatives, too. It treats all entries along the axis alike. Axes that it
            treats alike too, such as those of a batch, are scanned row by row; others, such as those of matrices that
            it multiplies, belong to the element and must be last and short.
        elems: a pytree of arrays with axes of one length.
        reverse: True to scan from the end: ``flip(associative_scan(fn, flip(elems)))``.
        axis: the axis to scan along.

    Returns:
        A pytree like `elems`.

    Raises:
        TypeError: `fn` cannot be called, or returns other dtypes than its arguments have.
        ValueError: the axis is out of range, the lengths along it differ, or `fn` returns other shapes.
        OperatorError: `fn` cannot become a kernel: it uses another primitive, or mixes elements along the axis.
        UnsupportedDtypeError: no element on a GPU has the dtype.

    The scan is that of Blelloch 1990. Its gradient is a scan from the other end, and its derivative in forward mode a
    scan of twice as many arrays. JAX computes derivatives of derivatives, and all derivatives if `fn` has an operation
    that gpuscan cannot differentiate, or an element has more than 16 numbers.

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
    axis = _checked_axis(leaves, axis)
    like = jax.tree.unflatten(tree, [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves])
    results = jax.tree.flatten(jax.eval_shape(fn, like, like))
    check_combined("fn", results, (leaves, tree), "an array", ".astype(x.dtype)")
    if not leaves[0].shape[axis]:
        return jax.tree.unflatten(tree, leaves)
    reverse = as_flag("reverse", reverse)
    count = len(leaves)

    def flat(left: Any, right: Any) -> Any:
        return jax.tree.leaves(fn(jax.tree.unflatten(tree, left), jax.tree.unflatten(tree, right)))

    # Values that JAX is tracing, and the function closes over, are operands that all elements share.
    free = free_values(flat, jax.tree.leaves(like))
    operands = [*leaves, *free]

    def make_rows(function: Callable[[Any, Any], Any], times: int) -> RowScan:
        """Return the scan with a function of two lists, which hold the operands `times` times."""
        like = operands * times
        dtypes = [np.dtype(leaf.dtype) for leaf in like]
        found = row_operator(
            name_of(fn),
            lambda shapes: row_function(function, shapes, dtypes, name_of(fn)),
            [leaf.shape for leaf in like],
            dtypes,
            axis,
            ([False] * count + [True] * len(free)) * times,
        )
        return RowScan(found, axis, reverse, tuple(leaf.ndim for leaf in like))

    def combined(left: Any, right: Any) -> Any:
        shared = left[count:]
        return [*call_with(flat, free, shared, left[:count], right[:count]), *shared]

    def by_jax(*values: Any) -> tuple[Any, ...]:
        shared = values[count:]

        def function(left: Any, right: Any) -> Any:
            return call_with(flat, free, shared, left, right)

        return *jax.lax.associative_scan(function, [*values[:count]], reverse=reverse, axis=axis), *shared

    scan = DifferentiableScan(make_rows(combined, 1), combined, by_jax, make_rows)
    return jax.tree.unflatten(tree, scan.results(operands)[:count])


def _checked_axis(leaves: Sequence[Any], axis: Any) -> int:
    """Return the axis counted from 0.

    Raises:
        ValueError: there are no leaves, the axis is out of range, or the lengths along it differ.
        TypeError: the axis is not an integer.
    """
    if not leaves:
        raise ValueError("elems without arrays were passed; pass a pytree of one array or more")
    if (index := as_integer(axis)) is None:
        raise TypeError(f"axis={axis!r} was passed, but an axis is an integer; pass axis=0")
    found: set[int] = {index + leaf.ndim if index < 0 else index for leaf in leaves}
    for leaf in leaves:
        if not -leaf.ndim <= index < leaf.ndim:
            raise ValueError(
                f"axis={index} was passed for an array of shape {leaf.shape}, which has no such axis; pass an axis of "
                "every array, such as 0"
            )
    if len(found) > 1:
        raise ValueError(
            f"axis={index} was passed for arrays of {', '.join(str(leaf.ndim) for leaf in leaves)} axes, where it "
            "means different axes. Pass an axis counted from 0"
        )
    lengths = [leaf.shape[index] for leaf in leaves]
    if len(set(lengths)) > 1:
        raise ValueError(f"arrays of the lengths {lengths} along axis {index} were passed; pass arrays of one length")
    return found.pop()
