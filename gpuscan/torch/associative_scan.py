"""`associative_scan` of tensors with an operator written with torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.api.row_scan import RowScan
from gpuscan.array_types import AnyArray
from gpuscan.errors import OperatorError
from gpuscan.operators.function_keys import function_key, has_closure
from gpuscan.operators.operator import Function
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.operations import ScanByTorch, handle_of, run
from gpuscan.torch.tensors import check_dim, check_tensors
from gpuscan.torch.torch_steps import scan_tensors
from gpuscan.torch.traced_function import check_results, trace_row_operator


def associative_scan(combine_fn: Function, xs: object, dim: int, reverse: bool = False) -> Any:
    """Return the differentiable prefix scan of tensors along an axis, with the signature of torch's `associative_scan`.

    ``y[0] = x[0]`` and ``y[i] = combine_fn(y[i-1], x[i])``. The function is traced. The scan and its gradient are one
    scan each on gpuscan's default device. Forward-mode derivatives are a scan of twice as many tensors. PyTorch
    computes derivatives of derivatives, and the gradients of operators that gpuscan cannot differentiate.
    `torch.func.vmap` scans a batch at once.

    Args:
        combine_fn: an associative function of two pytrees like `xs`, written with torch. It gets elements without the
            scanned axis. Axes along which it treats all entries in the same way, such as a batch axis, are rows, which
            are scanned separately. All other axes belong to the element, such as the axes of matrices that `combine_fn`
            multiplies. They must be the last axes, and short.
        xs: a pytree of tensors with axes of one length.
        dim: the axis to scan along.
        reverse: True to scan from the end.

    Returns:
        A pytree like `xs`. Tensors that are not on the CPU are copied to the host and back; a warning says so once.

    Raises:
        TypeError: a leaf is not a tensor, the dtypes differ, or the function returns another pytree or dtype.
        ValueError: the axis is out of range, the lengths along it or the devices differ.
        OperatorError: the function cannot become a kernel, or mixes elements along the axis.

    `torch.compile` calls the scan as one operation if the function reads only its arguments and other functions; else
    it leaves the graph for the call. A function is traced once for each type of element. If it reads other objects than
    functions and numbers, such as tensors, it is traced at each call.

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
    axes = {check_dim("dim", dim, leaf.shape) for leaf in leaves}
    lengths = {leaf.shape[dim] for leaf in leaves}
    if len(axes) > 1 or len(lengths) > 1:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves)
        raise ValueError(
            f"dim={dim} was passed for tensors of shapes {shapes}; pass tensors of one length along one axis"
        )
    axis = axes.pop()
    reverse = as_flag("reverse", reverse)
    if not leaves[0].shape[axis]:
        check_results(combine_fn, tree, [leaf.shape for leaf in leaves], [leaf.dtype for leaf in leaves], axis)
        return xs
    ranks = tuple(leaf.ndim for leaf in leaves)
    if torch.compiler.is_compiling():
        # This call is traced, and a function that closes over what is traced cannot be read here.
        leaf_numbers = pytree.tree_unflatten(list(range(len(leaves))), tree)
        handle = -1 if has_closure(combine_fn) else _handle(combine_fn, leaf_numbers, axis, reverse, ranks)
        if handle < 0:
            return _scan_outside_of_graphs(combine_fn, xs, dim, reverse)
        results = torch.ops.gpuscan.scan(leaves, handle)
    else:
        results = run(_Scan(combine_fn, tree, axis, reverse, ranks, function_key(combine_fn)), leaves)
    return pytree.tree_unflatten(list(results), tree)


# A compiled function leaves its graph for it.
_scan_outside_of_graphs = torch.compiler.disable(associative_scan)


@torch.compiler.assume_constant_result
def _handle(
    combine_fn: Callable[..., object], leaf_numbers: object, axis: int, reverse: bool, ranks: tuple[int, ...]
) -> int:
    """Return the number of a scan for compiled functions; -1 if these would not notice that the function changes."""
    key = function_key(combine_fn, numbers=False)
    tree = pytree.tree_structure(leaf_numbers)
    return -1 if key is None else handle_of(_Scan(combine_fn, tree, axis, reverse, ranks, key))


@dataclass(frozen=True)
class _Scan(ScanByTorch):
    """A scan with a function of pytrees of tensors.

    Attributes:
        function: the function.
        tree: the structure of its arguments.
        axis: the scanned axis, 0 or more.
        reverse: True to scan from the end.
        ranks: the number of axes of each tensor.
        key: equal for functions that compute the same; None if that is not known.
        lead: how many axes of batches stand before those axes.
    """

    function: Callable[..., object] = field(compare=False)
    tree: pytree.TreeSpec
    axis: int
    reverse: bool
    ranks: tuple[int, ...]
    key: Hashable
    lead: int = 0

    def __hash__(self) -> int:
        return hash((self.key, repr(self.tree), self.axis, self.reverse, self.ranks, self.lead))

    @property
    def result_count(self) -> int:  # type: ignore[override]
        return len(self.ranks)

    @property
    def real_count(self) -> int:  # type: ignore[override]
        return len(self.ranks)

    # ----- By gpuscan

    def compute_results(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        return self._rows(arrays).scan_rows(arrays)

    def gradients(
        self, arrays: Sequence[AnyArray], results: Sequence[AnyArray], grads: Sequence[AnyArray]
    ) -> Sequence[AnyArray] | None:
        rows = self._rows(arrays)
        return rows.gradients(arrays, results, grads) if rows.has_gradient else None

    def _rows(self, arrays: Sequence[AnyArray]) -> RowScan:
        shapes = [array.shape[self.lead :] for array in arrays]
        dtypes = [array.dtype for array in arrays]
        operator = trace_row_operator(self.function, self.key, self.tree, shapes, dtypes, self.axis)
        return RowScan(operator, self.axis, self.reverse, self.ranks)

    # ----- By PyTorch

    def tangents(
        self, tensors: Sequence[Tensor], results: Sequence[Tensor], tangents: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the second half of a scan of the tensors and their derivatives, or what PyTorch computes."""
        count = len(tensors)
        rates = [torch.zeros_like(x) if rate is None else rate for x, rate in zip(tensors, tangents, strict=True)]

        def dual(left: Sequence[Tensor], right: Sequence[Tensor]) -> list[Tensor]:
            values, rates = [*left[:count], *right[:count]], [*left[count:], *right[count:]]
            return [*self._combine_leaves(*values), *_push_forward(self._combine_leaves, values, rates)]

        try:
            values_and_rates = associative_scan(dual, [*tensors, *rates], self.lead + self.axis, self.reverse)
        except OperatorError:
            # An operation of the derivative has no form in a kernel.
            return super().tangents(tensors, results, tangents)
        return list(values_and_rates[count:])

    def _combine_leaves(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        """Return the combination of left and right leaves, which have the axes of batches in front."""

        def flat(*leaves: Tensor) -> tuple[Tensor, ...]:
            count = len(leaves) // 2
            left, right = (pytree.tree_unflatten(list(part), self.tree) for part in (leaves[:count], leaves[count:]))
            return tuple(pytree.tree_leaves(self.function(left, right)))

        for _ in range(self.lead):
            flat = torch.func.vmap(flat)
        return flat(*leaves)

    def by_torch(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        axis = self.lead + self.axis
        combine = torch.func.vmap(self._combine_leaves, axis, axis)
        flipped = [x.flip(axis) for x in tensors] if self.reverse else list(tensors)
        results = scan_tensors(combine, flipped, axis)
        return tuple(y.flip(axis) for y in results) if self.reverse else tuple(results)


def _push_forward(
    function: Callable[..., tuple[Tensor, ...]], values: Sequence[Tensor], rates: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the forward-mode derivatives of a function's results, from its gradient's gradient.

    PyTorch cannot trace its own forward mode within a rule of it.
    """
    results, pullback = torch.func.vjp(function, *values)
    _, pushforward = torch.func.vjp(lambda *weights: pullback(weights), *map(torch.zeros_like, results))
    of_results: tuple[Tensor, ...] = pushforward(tuple(rates))
    return of_results
