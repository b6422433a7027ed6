"""`scan` of tensors with gpuscan's operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import cast, py_object
from dataclasses import dataclass, field, replace
from inspect import getclosurevars
from types import FunctionType
from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch.utils import _pytree as pytree  # noqa: TID253

from gpuscan.api.row_scan import device_for
from gpuscan.api.scan import scan as scan_arrays
from gpuscan.api.scan_vjp import gradients
from gpuscan.array_types import AnyArray
from gpuscan.errors import OperatorError
from gpuscan.operators.function_keys import function_key, has_closure
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import as_flag, check_one_cut
from gpuscan.torch.operations import ScanByTorch, TensorScan, forward_derivative, handle_of, reverse_derivative, run
from gpuscan.torch.tensors import check_tensors, numpy_dtype, tensor_of
from gpuscan.torch.torch_steps import scan_with_options


def scan(
    x: object,
    op: object = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    segments: object = None,
    keys: object = None,
) -> Any:
    """Return the differentiable prefix scan of tensors along an axis, as `gpuscan.scan` computes it.

    ``y[0] = x[0]`` and ``y[i] = op(y[i-1], x[i])``. `gpuscan.scan_vjp` computes the gradient. The scan and its gradient
    are one scan each on gpuscan's default device; float64 runs there if the device has 64-bit floats, else on NumPy.
    `torch.func.vmap` scans a batch at once.

    For sums, derivatives of gradients and forward-mode derivatives are scans as well. For other operators, PyTorch
    computes these derivatives. It can do so if torch has the operator, or if the operator's function has only
    arithmetic operations, and no NumPy functions.

    Args:
        x: the input: a tensor, or a bundle, which is a tuple, list or dict of tensors, possibly nested.
        op: the operator: a name (``"add"``, ``"maximum"``, …), the function of torch or NumPy of such a name, a
            `gpuscan.Operator`, or a Python function of (left, right), written with NumPy. It must be associative.
        axis: the axis to scan along. A tensor of one axis needs none.
        exclusive: True to leave ``x[i]`` out of ``y[i]``, so that ``y[0]`` is `initial` or the operator's identity.
        reverse: True to scan from the end.
        initial: the left operand of the first combination, broadcast over the other axes: a number or tensor, or a
            bundle like `x`. Tensors get gradients.
        segments: the offsets along the axis where the scan restarts: the first is 0, the last is the axis's length.
        keys: the scan restarts where a key differs from the previous key along the axis. Pass one key for each element,
            in the shape of `x`; or keys of shape ``(n,)`` for an axis of length n, which hold for all rows.

    Returns:
        A tensor or bundle like `x`. Tensors that are not on the CPU are copied to the host and back; a warning says so
        once.

    Raises:
        ValueError: the axis, `initial`, `segments`, `keys` or the shapes of a bundle do not fit, the devices differ, or
            both `segments` and `keys` are passed.
        TypeError: an argument is not a tensor, or the operator does not take the dtype.
        OperatorError: the operator cannot be turned into a shader, it uses a tensor that requires a gradient, or a
            derivative is asked for that it does not have.
        UnsupportedDtypeError: the adapter cannot hold the dtype.

    `torch.compile` calls the scan as one operation, unless `op` is a Python function that reads more than its arguments
    and other functions; it leaves the graph for such a call.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> x = torch.tensor([2.0, 3.0, 0.0, 5.0], requires_grad=True)
        >>> y = gpuscan.torch.scan(x, "multiply")
        >>> y.sum().backward()
        >>> y.tolist(), x.grad.tolist()
        ([2.0, 6.0, 0.0, 0.0], [4.0, 2.0, 36.0, 0.0])
        >>> gpuscan.torch.scan(torch.ones(5), segments=[0, 2, 5], initial=10.0)
        tensor([11., 12., 11., 12., 13.])
    """
    leaves, tree = pytree.tree_flatten(x)
    if not leaves:
        raise ValueError("x without tensors was passed; pass a tensor, or a tuple or dict of tensors")
    check_one_cut(segments=segments, keys=keys)
    single = len(leaves) == 1 and tree.is_leaf()
    names = ["x"] if single else [f"leaf {i} of x" for i in range(len(leaves))]
    tensors = dict(zip(names, leaves, strict=True))
    check_tensors(tensors, same_dtype=False)
    starts = _starts(initial, leaves, tree)
    cuts = [torch.as_tensor(cut).detach() for cut in (segments, keys) if cut is not None]
    ranks = tuple(leaf.ndim for leaf in leaves)
    cut = "segments" if segments is not None else "keys" if keys is not None else None
    options = as_flag("exclusive", exclusive), as_flag("reverse", reverse), initial is not None, cut
    op = TORCH_FUNCTIONS.get(op, op) if callable(op) else op
    leaf_numbers = pytree.tree_unflatten(list(range(len(leaves))), tree)
    if torch.compiler.is_compiling():
        # This call is traced, and a function that closes over what is traced cannot be read here. PyTorch 2.11 passes
        # no operators to `_handle`, but knows their addresses.
        given = id(op) if isinstance(op, Operator) else op
        handle = -1 if has_closure(op) else _handle(given, leaf_numbers, ranks, axis, *options)
        if handle < 0:
            cuts_given = {"segments": segments, "keys": keys}
            flags = {"exclusive": exclusive, "reverse": reverse}
            return _scan_outside_of_graphs(x, op, axis=axis, initial=initial, **flags, **cuts_given)
        results = torch.ops.gpuscan.scan([*leaves, *starts, *cuts], handle)
    else:
        _check_variables(op.function if isinstance(op, Operator) else op)
        results = run(_scan_of(op, None, leaf_numbers, ranks, axis, *options), [*leaves, *starts, *cuts])
    return pytree.tree_unflatten(list(results), tree)


def _check_variables(function: object) -> None:
    """Raise OperatorError if a function closes over a tensor that would not get its gradient, or uses a global one."""
    if isinstance(function, FunctionType) and torch.is_grad_enabled():
        variables = getclosurevars(function)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            if isinstance(value, Tensor) and value.requires_grad:
                raise OperatorError(
                    f"the operator uses the tensor {name}, which requires a gradient and would not get one. Pass it as "
                    "one more field of x, expanded along the axis, or detach it before the call"
                )


# A compiled function leaves its graph for it.
_scan_outside_of_graphs = torch.compiler.disable(scan)


@torch.compiler.assume_constant_result
def _handle(op: object, *options: Any) -> int:
    """Return the number of a scan for compiled functions; -1 if these would not notice that the operator changes.

    Args:
        op: the operator; the address of an `Operator`, which the caller keeps.
        options: the other arguments of `_scan_of`, after `key`.
    """
    if isinstance(op, int):
        op = cast(op, py_object).value
    key = op if isinstance(op, (str, Operator)) else function_key(op, numbers=False)
    return -1 if key is None else handle_of(_scan_of(op, key, *options))


def _starts(initial: object, leaves: Sequence[Tensor], tree: pytree.TreeSpec) -> list[Tensor]:
    """Return the tensors of `initial`, in the dtypes of the leaves.

    Raises:
        ValueError: its structure is not that of x, or the leaves' type does not hold a number.
        TypeError: it has another dtype.
    """
    if initial is None:
        return []
    try:
        values = tree.flatten_up_to(initial)
    except ValueError:
        raise ValueError(
            f"initial={initial!r} was passed for x of {len(leaves)} tensors, but its structure is not that of x; pass "
            "one value for each tensor, in the structure of x"
        ) from None
    starts = []
    for value, leaf in zip(values, leaves, strict=True):
        given = torch.as_tensor(value)
        tensor = isinstance(value, torch.Tensor)
        if given.dtype != leaf.dtype and (tensor or _generality(given.dtype) > _generality(leaf.dtype)):
            raise TypeError(
                f"initial of dtype {given.dtype} was passed for a tensor of dtype {leaf.dtype}, but both must agree. "
                f"Pass a value of {leaf.dtype}"
            )
        starts.append(given if tensor else torch.as_tensor(value, dtype=leaf.dtype, device=leaf.device))
        check_tensors({"x": leaf, "initial": starts[-1]})
    return starts


def _generality(dtype: torch.dtype) -> int:
    """Return a number that is larger for a kind of numbers that holds others."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype != torch.bool)


def _scan_of(
    op: object,
    key: Hashable,
    leaf_numbers: object,
    ranks: tuple[int, ...],
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    seeded: bool,
    cut: str | None,
) -> OperatorScan:
    """Return a scan without its tensors.

    Args:
        key: equal for operators that compute the same; None for one that is not kept.
        leaf_numbers: a bundle of numbers, nested as x.
        ranks: the number of axes of each tensor of x.
        axis: the axis as the caller passed it.
        exclusive, reverse: as in `scan`.
        seeded: True if there are values of `initial`.
        cut: what restarts the scan: ``"segments"``, ``"keys"``, or None.
    """
    rank = min(ranks) - resolve(op).element_axes
    if axis is None and rank == 1:
        axis = 0
    if isinstance(axis, int) and -rank <= axis < 0:
        axis += rank
    return OperatorScan(op, key, pytree.tree_structure(leaf_numbers), len(ranks), axis, exclusive, reverse, seeded, cut)


# ----- Scans with gpuscan's operators
#
# The scan of tensors with an operator of gpuscan, as PyTorch differentiates, maps and compiles it.


# Functions of torch that have the names of operators.
TORCH_FUNCTIONS: dict[Callable[..., object], str] = {
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
class OperatorScan(ScanByTorch):
    """A scan with an operator of gpuscan.

    Its tensors are, in this order: the tensors of x, the tensors of `initial`, and the offsets or keys. Arguments that
    were not passed have none.

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
    tree: pytree.TreeSpec
    result_count: int
    axis: int | None
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

    def compute_results(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
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

    def gradients(
        self, arrays: Sequence[AnyArray], results: Sequence[AnyArray], grads: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        x = arrays[: self.result_count]
        bundles = self._bundle(x), self._bundle(results), self._bundle(grads)
        grads_of_bundles = gradients(*bundles, self.op, device=device_for(x), **self._options(arrays))
        return list(pytree.tree_leaves(grads_of_bundles))

    def _options(self, arrays: Sequence[AnyArray]) -> dict[str, Any]:
        options = {"axis": self.axis, "exclusive": self.exclusive, "reverse": self.reverse}
        if self.seeded:
            options["initial"] = self._bundle(arrays[self.result_count : self.real_count])
        return options if self.cut is None else options | {self.cut: arrays[-1]}

    def _bundle(self, values: Sequence[object]) -> Any:
        return pytree.tree_unflatten(list(values), self.tree)

    # ----- Other derivatives

    def differentiable_gradients(self, tensors: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the gradients: of a sum a sum in the other direction, of others by PyTorch."""
        if not self._is_sum:
            with self._translate_errors("a derivative of the gradient"):
                return reverse_derivative(*self._real_function(tensors), grads)
        (grad,) = grads
        back = replace(self, reverse=not self.reverse, seeded=False)
        sums = run(back, [grad, *self._cuts(tensors)])
        if self.seeded:
            sums.append(grad.sum(self.axis).sum_to_size(tensors[1].shape))
        return sums

    def tangents(
        self, tensors: Sequence[Tensor], results: Sequence[Tensor], tangents: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the derivatives: of a sum the sum of the derivatives, of others by PyTorch."""
        if not self._is_sum:
            with self._translate_errors("a forward-mode derivative"):
                return forward_derivative(*self._real_function(tensors), tangents)
        pairs = zip(tensors, tangents, strict=False)
        rates = [torch.zeros_like(x) if rate is None else rate for x, rate in pairs]
        return run(self, [*rates, *self._cuts(tensors)])

    @property
    def _is_sum(self) -> bool:
        return resolve(self.op) is resolve("add")

    def _real_function(self, tensors: Sequence[Tensor]) -> tuple[Callable[..., tuple[Tensor, ...]], Sequence[Tensor]]:
        """Return the scan by PyTorch as a function of the tensors that have derivatives, and these tensors."""
        cuts = self._cuts(tensors)
        return lambda *real: self.by_torch(*real, *cuts), tensors[: self.real_count]

    def by_torch(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        operator, x, cuts = resolve(self.op), tensors[: self.result_count], self._cuts(tensors)
        function = _OF_TORCH.get(operator.name, operator) if operator.kinds is not None else operator

        def combine(*leaves: Tensor) -> list[Tensor]:
            left, right = leaves[: len(x)], leaves[len(x) :]
            return list(pytree.tree_leaves(function(self._bundle(left), self._bundle(right))))

        rank = min(array.ndim for array in x) - operator.element_axes
        axis = 0 if self.axis is None else self.axis
        labels = self._labels(cuts[0], x[0].shape[axis], axis, rank) if cuts else None
        identity = None
        if self.exclusive:
            # What an exclusive scan of one element gives.
            one = [np.zeros((*leaf.shape[:axis], *leaf.shape[axis + 1 :]), numpy_dtype(leaf.dtype)) for leaf in x]
            first = self._bundle([np.expand_dims(array, axis) for array in one])
            options = {"initial": self._bundle(one)} if self.seeded else {}
            bundle = scan_arrays(first, self.op, axis=axis, exclusive=True, device="numpy", **options)
            identity = [tensor_of(array, leaf) for array, leaf in zip(pytree.tree_leaves(bundle), x, strict=True)]
        return tuple(
            scan_with_options(
                combine,
                x,
                axis,
                rank=rank,
                reverse=self.reverse,
                starts=tensors[self.result_count : self.real_count] if self.seeded else None,
                labels=labels,
                identity=identity,
            )
        )

    def _labels(self, cut: Tensor, length: int, axis: int, rank: int) -> Tensor:
        """Return the keys, or the number of each place's segment, with the `rank` axes in front of the element."""
        if self.cut == "segments":
            cut = torch.searchsorted(cut.to(torch.int64), torch.arange(length), right=True)
        return cut.reshape([length if i == axis else 1 for i in range(rank)]) if cut.ndim == 1 else cut

    @contextmanager
    def _translate_errors(self, wanted: str) -> Iterator[None]:
        """Raise OperatorError if PyTorch does not know the operator's function."""
        try:
            yield
        except (TypeError, RuntimeError, AttributeError) as error:
            raise OperatorError(
                f"{wanted} of a scan was asked for with {resolve(self.op).described}, but its function is not one of "
                "torch. Write it with arithmetic alone, or use gpuscan.torch.associative_scan with a function written "
                "with torch"
            ) from error

    def _cuts(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors[self.real_count :]

    # ----- Batches

    def map_over_batch(
        self, tensors: Sequence[Tensor], batched: Sequence[bool], size: int
    ) -> tuple[TensorScan, Sequence[Tensor]]:
        if self.axis is None:
            raise ValueError("no axis was passed for tensors of several axes; pass axis=")
        x = [_spread(tensor, has, size) for tensor, has in zip(tensors, batched, strict=True)][: self.result_count]
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
                "segments of a batch were passed to gpuscan.torch.scan in torch.func.vmap, but all examples must have "
                "the same segments. Pass the offsets from outside, or keys="
            )
        if cuts and self.cut == "keys" and (batched[-1] or cuts[0].ndim > 1):
            rank = min(tensor.ndim for tensor in x) - resolve(self.op).element_axes
            keys = _spread(cuts[0], batched[-1], size)
            if keys.ndim == 2 < rank:
                keys = keys[(slice(None), *[None] * self.axis, slice(None), *[None] * (rank - 2 - self.axis))]
                keys = keys.expand(*(x[0].shape[:rank]))
            cuts = [keys]
        return replace(self, axis=self.axis + 1), [*x, *aligned, *cuts]


def _spread(tensor: Tensor, batched: bool, size: int) -> Tensor:
    """Return the tensor with the axis of the batch in front."""
    return tensor if batched else tensor.expand(size, *tensor.shape)
