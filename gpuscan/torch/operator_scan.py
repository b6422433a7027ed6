"""The scan of tensors with an operator of gpuscan, as PyTorch differentiates, maps and compiles it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.api.row_scan import device_for
from gpuscan.api.scan import scan as scan_arrays
from gpuscan.api.scan_vjp import gradients
from gpuscan.errors import OperatorError
from gpuscan.operators.named_operators import resolve
from gpuscan.torch.operations import TensorScan, forward_derivative, run
from gpuscan.torch.tensors import numpy_dtype, tensor_of
from gpuscan.torch.torch_steps import scanned_with_options

# Functions of torch that have the names of operators.
TORCH_FUNCTIONS: dict[Any, str] = {
    torch.add: "add",
    torch.mul: "multiply",
    torch.multiply: "multiply",
    torch.minimum: "minimum",
    torch.maximum: "maximum",
    torch.fmin: "fmin",
    torch.fmax: "fmax",
    torch.logaddexp: "logaddexp",
    torch.logaddexp2: "logaddexp2",
    torch.hypot: "hypot",
    torch.gcd: "gcd",
    torch.bitwise_and: "bitwise_and",
    torch.bitwise_or: "bitwise_or",
    torch.bitwise_xor: "bitwise_xor",
    torch.logical_and: "logical_and",
    torch.logical_or: "logical_or",
    torch.logical_xor: "logical_xor",
    torch.matmul: "matmul",
}
_OF_TORCH = {name: function for function, name in TORCH_FUNCTIONS.items()}


@dataclass(frozen=True)
class OperatorScan(TensorScan):
    """A scan with an operator of gpuscan.

    The tensors are those of x, those of `initial`, and the offsets or keys, as far as they were passed.

    Attributes:
        op: the operator.
        key: equal for operators that compute the same.
        tree: the structure of the bundle.
        result_count: how many tensors x has.
        axis: the scanned axis; 0 or more if it is valid.
        exclusive, reverse: as in `scan`.
        seeded: True if there are values of `initial`.
        cut: what restarts the scan: ``"segments"``, ``"keys"``, or None.
    """

    op: Any = field(compare=False)
    key: Hashable
    tree: Any
    result_count: int
    axis: Any
    exclusive: bool
    reverse: bool
    seeded: bool
    cut: str | None

    def __hash__(self) -> int:
        options = self.result_count, self.axis, self.exclusive, self.reverse, self.seeded, self.cut
        return hash((self.key, repr(self.tree), options))

    @property
    def real_count(self) -> int:  # type: ignore[override]
        return self.result_count * (2 if self.seeded else 1)

    def scanned(self, arrays: Sequence[Any]) -> Sequence[Any]:
        x = arrays[: self.result_count]
        try:
            results = scan_arrays(self._bundle(x), self.op, device=device_for(x), **self._options(arrays))
        except OperatorError as error:
            if isinstance(error.__cause__, TypeError) and "must be Tensor" in str(error.__cause__):
                raise OperatorError(
                    f"{resolve(self.op).described} was passed to gpuscan.torch.scan, but it calls functions of torch. "
                    "Write it with NumPy, or use gpuscan.torch.associative_scan"
                ) from error
            raise
        return list(pytree.tree_leaves(results))

    def gradients(self, arrays: Sequence[Any], results: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
        x = arrays[: self.result_count]
        bundles = self._bundle(x), self._bundle(results), self._bundle(grads)
        found = gradients(*bundles, self.op, device=device_for(x), **self._options(arrays))
        return list(pytree.tree_leaves(found))

    def _options(self, arrays: Sequence[Any]) -> dict[str, Any]:
        options = {"axis": self.axis, "exclusive": self.exclusive, "reverse": self.reverse}
        if self.seeded:
            options["initial"] = self._bundle(arrays[self.result_count : self.real_count])
        return options if self.cut is None else options | {self.cut: arrays[-1]}

    def _bundle(self, values: Sequence[Any]) -> Any:
        return pytree.tree_unflatten(list(values), self.tree)

    # ----- Other derivatives

    def differentiable_gradients(self, tensors: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients: of a sum a sum in the other direction, of others by PyTorch."""
        if not self._is_sum:
            with self._derived("a derivative of its gradient"):
                real, cuts = tensors[: self.real_count], self._cuts(tensors)
                found: Sequence[Any] = torch.func.vjp(lambda *real: self._by_torch(real, cuts), *real)[1](tuple(grads))
                return found
        (grad,) = grads
        back = replace(self, reverse=not self.reverse, seeded=False)
        sums = run(back, [grad, *self._cuts(tensors)])
        if self.seeded:
            sums.append(grad.sum(self.axis).sum_to_size(tensors[1].shape))
        return sums

    def tangents(self, tensors: Sequence[Any], tangents: Sequence[Any]) -> Sequence[Any]:
        """Return the derivatives: of a sum the sum of the derivatives, of others by PyTorch."""
        if not self._is_sum:
            with self._derived("a forward-mode derivative"):
                real, cuts = tensors[: self.real_count], self._cuts(tensors)
                return forward_derivative(lambda *real: self._by_torch(real, cuts), real, tangents)
        pairs = zip(tensors, tangents, strict=False)
        rates = [torch.zeros_like(x) if rate is None else rate for x, rate in pairs]
        return run(self, [*rates, *self._cuts(tensors)])

    @property
    def _is_sum(self) -> bool:
        return resolve(self.op) is resolve("add")

    def _by_torch(self, tensors: Sequence[Any], cuts: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results by operations of PyTorch."""
        operator, x = resolve(self.op), tensors[: self.result_count]
        function = _OF_TORCH.get(operator.name, operator) if operator.kinds is not None else operator

        def combine(*leaves: Any) -> list[Any]:
            left, right = leaves[: len(x)], leaves[len(x) :]
            return list(pytree.tree_leaves(function(self._bundle(left), self._bundle(right))))

        rank = min(each.ndim for each in x) - operator.element_axes
        axis = 0 if self.axis is None else self.axis
        labels = self._labels(cuts[0], x[0].shape[axis], axis, rank) if cuts else None
        identity = None
        if self.exclusive:
            # What an exclusive scan of one element gives.
            one = [np.zeros((*leaf.shape[:axis], *leaf.shape[axis + 1 :]), numpy_dtype(leaf.dtype)) for leaf in x]
            first = self._bundle([np.expand_dims(each, axis) for each in one])
            options = {"initial": self._bundle(one)} if self.seeded else {}
            found = scan_arrays(first, self.op, axis=axis, exclusive=True, device="numpy", **options)
            identity = [tensor_of(each, leaf) for each, leaf in zip(pytree.tree_leaves(found), x, strict=True)]
        return tuple(
            scanned_with_options(
                combine,
                x,
                axis,
                rank=rank,
                reverse=self.reverse,
                starts=tensors[self.result_count :] if self.seeded else None,
                labels=labels,
                identity=identity,
            )
        )

    def _labels(self, cut: Any, length: int, axis: int, rank: int) -> Any:
        """Return the keys, or the numbers of the segments, with an axis for each one before those of the elements."""
        if self.cut == "segments":
            cut = torch.searchsorted(cut.to(torch.int64), torch.arange(length), right=True)
        return cut.reshape([length if i == axis else 1 for i in range(rank)]) if cut.ndim == 1 else cut

    @contextmanager
    def _derived(self, wanted: str) -> Iterator[None]:
        """Raise OperatorError if PyTorch does not know the operator's function."""
        try:
            yield
        except (TypeError, RuntimeError, AttributeError) as error:
            raise OperatorError(
                f"{wanted} was asked for of a scan with {resolve(self.op).described}, but its function is not one of "
                "torch. Write it with arithmetic alone, or use gpuscan.torch.associative_scan with a function written "
                "with torch"
            ) from error

    def _cuts(self, tensors: Sequence[Any]) -> Sequence[Any]:
        return tensors[self.real_count :]

    # ----- Batches

    def mapped(self, tensors: Sequence[Any], batched: Sequence[bool], size: int) -> tuple[TensorScan, Sequence[Any]]:
        if self.axis is None:
            raise ValueError("no axis was passed for tensors of several axes; pass axis=")
        x = [_spread(each, has, size) for each, has in zip(tensors, batched, strict=True)][: self.result_count]
        starts = tensors[self.result_count : self.real_count]
        has_batch = batched[self.result_count : self.real_count]
        aligned = [
            # A value is broadcast to all axes but the scanned one.
            _spread(start[(slice(None),) * has + (None,) * (like.ndim - 2 - start.ndim + has)], has, size)
            for start, has, like in zip(starts, has_batch, x, strict=False)
        ]
        cuts = self._cuts(tensors)
        if cuts and self.cut == "segments" and batched[-1]:
            raise ValueError(
                "segments of a batch were passed to gpuscan.torch.scan in torch.func.vmap, but all examples must be "
                "cut alike. Pass the offsets from outside, or keys="
            )
        if cuts and self.cut == "keys" and (batched[-1] or cuts[0].ndim > 1):
            rank = min(each.ndim for each in x) - resolve(self.op).element_axes
            keys = _spread(cuts[0], batched[-1], size)
            if keys.ndim == 2 < rank:
                keys = keys[(slice(None), *[None] * self.axis, slice(None), *[None] * (rank - 2 - self.axis))]
                keys = keys.expand(*(x[0].shape[:rank]))
            cuts = [keys]
        return replace(self, axis=self.axis + 1), [*x, *aligned, *cuts]


def _spread(tensor: Any, batched: bool, size: int) -> Any:
    """Return the tensor with the axis of the batch in front."""
    return tensor if batched else tensor.expand(size, *tensor.shape)
