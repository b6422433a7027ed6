"""`associative_scan` and `scan` of tensors, with gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch  # noqa: TID253 (only users of torch import this package)
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.api.row_scan import RowScan
from gpuscan.errors import OperatorError
from gpuscan.operators.operator import name_of
from gpuscan.operators.row_functions import row_operator
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.tensors import array_of, check_tensors, checked_dim, tensor_of
from gpuscan.torch.traced_function import row_function


@torch.compiler.disable
def associative_scan(combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False) -> Any:
    """Return the running combination of the elements along an axis, differentiable, with torch's signature.

    ``y[0] = x[0]`` and ``y[i] = combine_fn(y[i-1], x[i])``. The function is traced once and becomes a kernel of one
    scan on gpuscan's default device; so does its gradient.

    Args:
        combine_fn: an associative function of two pytrees like `xs`, written with torch. It gets elements without the
            axis. Axes that it treats alike, such as those of a batch, are scanned row by row; others, such as those of
            matrices that it multiplies, belong to the element and must be last and short.
        xs: a pytree of tensors with axes of one length.
        dim: the axis to scan along.
        reverse: True to scan from the end.

    Returns:
        A pytree like `xs`. Tensors that are not on the CPU are copied to the host and back; a warning says so once.

    Raises:
        TypeError: a leaf is not a tensor, the dtypes differ, or the function returns another pytree or dtype.
        ValueError: the axis is out of range, the lengths along it or the devices differ.
        OperatorError: the function cannot become a kernel, or mixes elements along the axis; or, where gradients are
            asked for, it has none.

    The scan is that of Blelloch 1990. `torch.compile` runs it outside of its graphs.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> a, b = torch.full((4,), 0.5), torch.ones(4)
        >>> gpuscan.torch.associative_scan(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), (a, b), 0)[1]
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    if not callable(combine_fn):
        raise TypeError(f"combine_fn={combine_fn!r} was passed, but it must be a function of two pytrees; pass one")
    leaves, tree = pytree.tree_flatten(xs)
    if not leaves:
        raise ValueError("xs without tensors was passed; pass a pytree of one tensor or more")
    check_tensors({f"leaf {i} of xs": leaf for i, leaf in enumerate(leaves)})
    axes = {checked_dim("dim", dim, leaf.shape) for leaf in leaves}
    lengths = {leaf.shape[dim] for leaf in leaves}
    if len(axes) > 1 or len(lengths) > 1:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise ValueError(
            f"dim={dim} was passed for tensors of shapes {shapes}; pass tensors of one length along one axis"
        )
    axis = axes.pop()
    _check_results(combine_fn, tree, leaves, axis)
    if not leaves[0].shape[axis]:
        return xs
    dtypes = [leaf.dtype for leaf in leaves]
    found = row_operator(
        name_of(combine_fn),
        lambda shapes: row_function(combine_fn, tree, shapes, dtypes, axis),
        [tuple(leaf.shape) for leaf in leaves],
        [array_of(torch.empty(0, dtype=dtype)).dtype for dtype in dtypes],
        axis,
    )
    rows = RowScan(found, axis, as_flag("reverse", reverse), tuple(leaf.ndim for leaf in leaves))
    if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves) and not rows.has_gradient:
        raise OperatorError(
            f"a gradient of {name_of(combine_fn)} was asked for, but its elements are too large for one, or it has an "
            "operation without a derivative. Pass xs without requires_grad, or use torch.associative_scan"
        )
    results = _Scan.apply(rows, *leaves)
    return pytree.tree_unflatten(list(results), tree)


class _Scan(torch.autograd.Function):
    """A scan of tensors and its gradient."""

    @staticmethod
    def forward(ctx: Any, rows: RowScan, *leaves: Any) -> Any:
        results = rows.scanned([array_of(leaf) for leaf in leaves])
        tensors = tuple(tensor_of(result, leaf) for result, leaf in zip(results, leaves, strict=True))
        ctx.rows, ctx.count = rows, len(leaves)
        ctx.save_for_backward(*leaves, *tensors)
        return tensors

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        leaves, results = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        arrays = [[array_of(each) for each in part] for part in (leaves, results, grads)]
        found = ctx.rows.gradients(*arrays)
        return None, *(tensor_of(grad, leaf) for grad, leaf in zip(found, leaves, strict=True))


def _check_results(function: Callable[[Any, Any], Any], tree: Any, leaves: Sequence[Any], axis: int) -> None:
    """Raise an error unless the function returns what it takes.

    Raises:
        TypeError: it returns another pytree or dtype.
        ValueError: it returns another shape.
    """
    length = leaves[0].shape[axis]
    alike = [leaf.detach().select(axis, 0) if length else leaf.new_zeros(_without(leaf, axis)) for leaf in leaves]
    argument = pytree.tree_unflatten(alike, tree)
    with torch.no_grad():
        value = function(argument, argument)
    results, found = pytree.tree_flatten(value)
    if found != tree:
        raise TypeError(f"combine_fn returned {found} for elements of {tree}; return a pytree like its arguments")
    for result, leaf in zip(results, alike, strict=True):
        if result.dtype != leaf.dtype:
            raise TypeError(
                f"combine_fn returned {result.dtype} for elements of {leaf.dtype}; convert the result with .to(x.dtype)"
            )
        if result.shape != leaf.shape:
            raise ValueError(
                f"combine_fn returned a tensor of shape {tuple(result.shape)} for elements of shape "
                f"{tuple(leaf.shape)}; return that shape"
            )


def _without(leaf: Any, axis: int) -> tuple[int, ...]:
    """Return the shape of a leaf without the axis."""
    return tuple(n for i, n in enumerate(leaf.shape) if i != axis)
