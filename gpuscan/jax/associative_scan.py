"""`associative_scan` of JAX arrays: a callback to the host, with a derivative of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax  # noqa: TID253 (only users of JAX import this package)
import jax.numpy as jnp  # noqa: TID253
import numpy as np

from gpuscan.api.row_scan import RowScan
from gpuscan.jax.traced_function import row_function
from gpuscan.operators.operator import name_of
from gpuscan.operators.row_functions import check_combined, row_operator
from gpuscan.problem.arguments import as_flag


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return the running combination of the elements along an axis, as `jax.lax.associative_scan` does.

    ``y[0] = x[0]`` and ``y[i] = fn(y[i-1], x[i])``. The function is traced by JAX and becomes a kernel of one scan on
    gpuscan's default device. It works under `jax.jit`, `jax.vmap` and `jax.grad`; arrays go to the device and back by
    way of the host, in a callback.

    Args:
        fn: an associative function of two pytrees like `elems`, written with `jax.numpy`. It treats all entries along
            the axis alike. Axes that it treats alike too, such as those of a batch, are scanned row by row; others,
            such as those of matrices that it multiplies, belong to the element and must be last and short.
        elems: a pytree of arrays with axes of one length.
        reverse: True to scan from the end: ``flip(associative_scan(fn, flip(elems)))``.
        axis: the axis to scan along.

    Returns:
        A pytree like `elems`.

    Raises:
        TypeError: `fn` cannot be called, or returns other dtypes than its arguments have.
        ValueError: the axis is out of range, the lengths along it differ, or `fn` returns other shapes.
        OperatorError: `fn` cannot become a kernel: it uses another primitive, closes over a traced value, or mixes
            elements along the axis.
        UnsupportedDtypeError: no element on a GPU has the dtype.

    The scan is that of Blelloch 1990. If `fn` has an operation that gpuscan cannot differentiate, JAX computes the
    gradient; it computes derivatives of gradients always. Forward mode (`jax.jvp`, `jax.jacfwd`) is not supported: JAX
    raises a TypeError that names `custom_vjp`. Use `jax.jacrev`.

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
    leaves = [jnp.asarray(leaf) for leaf in leaves]
    axis = _checked_axis(leaves, axis)
    _check_results(fn, tree, leaves)
    if not leaves[0].shape[axis]:
        return jax.tree.unflatten(tree, leaves)
    dtypes = [np.dtype(leaf.dtype) for leaf in leaves]
    found = row_operator(
        name_of(fn),
        lambda shapes: row_function(fn, tree, shapes, dtypes),
        [leaf.shape for leaf in leaves],
        dtypes,
        axis,
    )
    rows = RowScan(found, axis, as_flag("reverse", reverse), tuple(leaf.ndim for leaf in leaves))

    def by_jax(*values: Any) -> tuple[Any, ...]:
        results = jax.lax.associative_scan(fn, jax.tree.unflatten(tree, values), reverse=rows.reverse, axis=axis)
        return tuple(jax.tree.leaves(results))

    return jax.tree.unflatten(tree, _differentiable(rows, by_jax)(*leaves))


def _differentiable(rows: RowScan, by_jax: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Return the scan of leaves as a function that JAX differentiates by the derivative given here.

    Args:
        rows: the scan.
        by_jax: the same by JAX, for derivatives that have no scan: those of large elements, and derivatives of
            derivatives.
    """

    @jax.custom_vjp
    def scanned(*leaves: Any) -> tuple[Any, ...]:
        return _called(rows.scanned, leaves, leaves)

    def forward(*leaves: Any) -> tuple[Any, Any]:
        results = scanned(*leaves)
        return results, (leaves, results)

    def backward(kept: Any, grads: Any) -> Any:
        leaves, results = kept
        if not rows.has_gradient:
            return pullback(leaves, grads)
        return pulled_back(leaves, results, grads)

    def pullback(leaves: Any, grads: Any) -> Any:
        return jax.vjp(by_jax, *leaves)[1](grads)

    @jax.custom_vjp
    def pulled_back(leaves: Any, results: Any, grads: Any) -> Any:
        # JAX's gradient with respect to complex numbers is the conjugate of gpuscan's.
        weights = [jnp.conj(grad) for grad in grads]
        count = len(leaves)
        found = _called(
            lambda arrays: rows.gradients(arrays[:count], arrays[count : 2 * count], arrays[2 * count :]),
            leaves,
            [*leaves, *results, *weights],
        )
        return tuple(jnp.conj(grad) for grad in found)

    def forward_again(leaves: Any, results: Any, grads: Any) -> Any:
        return pulled_back(leaves, results, grads), (leaves, results, grads)

    def backward_again(kept: Any, weights: Any) -> Any:
        leaves, results, grads = kept
        # The results count as a function of the leaves, so they have no gradient of their own.
        ours, theirs = jax.vjp(pullback, leaves, grads)[1](weights)
        return ours, jax.tree.map(jnp.zeros_like, results), theirs

    scanned.defvjp(forward, backward)
    pulled_back.defvjp(forward_again, backward_again)
    differentiable: Callable[..., tuple[Any, ...]] = scanned
    return differentiable


def _called(
    function: Callable[[list[Any]], list[Any]], like: Sequence[Any], arguments: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the arrays that a function of NumPy arrays gives on the host; they are like `like`."""

    def on_host(*arrays: Any) -> tuple[Any, ...]:
        return tuple(function([np.asarray(array) for array in arrays]))

    shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in like)
    return tuple(jax.pure_callback(on_host, shapes, *arguments, vmap_method="broadcast_all"))


# ----- Checks


def _checked_axis(leaves: Sequence[Any], axis: Any) -> int:
    """Return the axis counted from 0.

    Raises:
        ValueError: there are no leaves, the axis is out of range, or the lengths along it differ.
        TypeError: the axis is not an integer.
    """
    if not leaves:
        raise ValueError("elems without arrays were passed; pass a pytree of one array or more")
    if isinstance(axis, bool) or not hasattr(axis, "__index__"):
        raise TypeError(f"axis={axis!r} was passed, but an axis is an integer; pass axis=0")
    index = int(axis.__index__())
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


def _check_results(fn: Callable[[Any, Any], Any], tree: Any, leaves: Sequence[Any]) -> None:
    """Raise an error unless the function returns what it takes.

    Raises:
        TypeError: it returns another pytree or dtype.
        ValueError: it returns another shape.
    """
    alike = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    argument = jax.tree.unflatten(tree, alike)
    value = jax.eval_shape(fn, argument, argument)
    results, found = jax.tree.flatten(value)
    if found != tree:
        raise TypeError(f"fn returned the pytree {found} for elems of {tree}; return a pytree like its arguments")
    check_combined("fn", results, alike, "an array", ".astype(x.dtype)")
