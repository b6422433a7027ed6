"""Scans of tensors as operations that PyTorch differentiates, maps and compiles as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch._C._functorch import is_legacy_batchedtensor  # noqa: TID253
from torch.autograd.forward_ad import _set_fwd_grad_enabled, make_dual, unpack_dual  # noqa: TID253

from gpuscan.array_types import AnyArray as Array
from gpuscan.torch.tensors import array_of, tensor_of

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

Tensors = Sequence[Tensor]
# For each tensor the axis of a batch; None for a tensor without one.
Dims = Sequence[int | None]
# How many batches of batches PyTorch allows.
_MAX_LEVELS = 64


class TensorScan(ABC):
    """A scan without its tensors. It must be equal to, and have the hash of, another one that computes the same.

    Attributes:
        result_count: how many results there are.
        real_count: how many of the first tensors have gradients.
    """

    result_count: int
    real_count: int

    def like_results(self, tensors: Tensors) -> Tensors:
        """Return tensors with the shapes, dtypes and device of the results (default: the first tensors)."""
        return tensors[: self.result_count]

    @abstractmethod
    def compute_results(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the results."""

    @abstractmethod
    def gradients(
        self, arrays: Sequence[Array], results: Sequence[Array], grads: Sequence[Array]
    ) -> Sequence[Array] | None:
        """Return the gradients of the first `real_count` arrays; None if they cannot be had by a scan."""

    @abstractmethod
    def differentiable_gradients(self, tensors: Tensors, grads: Tensors) -> Tensors:
        """Return the gradients of the first `real_count` tensors, computed by operations that have gradients.

        Raises:
            OperatorError: this scan has none.
        """

    @abstractmethod
    def tangents(self, tensors: Tensors, results: Tensors, tangents: Tensors) -> Tensors:
        """Return the forward-mode derivatives of the results.

        Args:
            tensors, results: the tensors of the scan, and its results.
            tangents: the derivatives of the first `real_count` tensors; None for one that has none.

        Raises:
            OperatorError: this scan has none.
        """

    def map_over_batch(self, tensors: Tensors, batched: Sequence[bool], size: int) -> tuple[TensorScan, Tensors]:
        """Return the scan of all examples of a batch at once, and its tensors.

        This is for scans with an attribute `lead`, the number of axes of batches in front. Others have their own.

        Args:
            tensors: the tensors, with the axis of the batch in front where they have one.
            batched: which of them have it.
            size: the length of the batch.
        """
        scan: Any = self
        pairs = zip(tensors, batched, strict=True)
        return replace(scan, lead=scan.lead + 1), [x if has else x.expand(size, *x.shape) for x, has in pairs]


class ScanByTorch(TensorScan):
    """A scan that PyTorch can compute, too. Its further derivatives are PyTorch's."""

    @abstractmethod
    def by_torch(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return the results by operations of PyTorch, which have derivatives of all orders."""

    def differentiable_gradients(self, tensors: Tensors, grads: Tensors) -> Tensors:
        return reverse_derivative(self.by_torch, tensors, grads)

    def tangents(self, tensors: Tensors, results: Tensors, tangents: Tensors) -> Tensors:
        return forward_derivative(self.by_torch, tensors, tangents)


def compute_scan(make: Callable[..., TensorScan], options: tuple[object, ...], tensors: Tensors) -> Tensors:
    """Return the results of a scan, with derivatives.

    Args:
        make: makes the scan of the options, which are constants in compiled functions.
        options: the options.
        tensors: the tensors of the scan.
    """
    if torch.compiler.is_compiling():
        results: Tensors = torch.ops.gpuscan.scan([*tensors], _constant_handle(make, options))
        return results
    return run(make(*options), tensors)


@torch.compiler.assume_constant_result
def _constant_handle(make: Callable[..., TensorScan], options: tuple[object, ...]) -> int:
    return handle_of(make(*options))


def run(scan: TensorScan, tensors: Tensors) -> list[Tensor]:
    """Return the results of a scan, with derivatives, outside of compiled functions."""
    return list(apply_function(_Scan, scan, *tensors))


def forward_derivative(
    function: Callable[..., tuple[object, ...]], values: Tensors, tangents: Tensors
) -> tuple[Tensor, ...]:
    """Return the forward-mode derivatives of a function's results. A rule of forward mode calls this.

    Args:
        values: its arguments.
        tangents: the derivatives of these; None for one that has none.
    """
    duals = [x if rate is None else make_dual(x.contiguous(), rate) for x, rate in zip(values, tangents, strict=True)]
    results = map(unpack_dual, function(*duals))
    return tuple(torch.zeros_like(x) if rate is None else rate for x, rate in results)


def reverse_derivative(function: Callable[..., object], values: Tensors, grads: Sequence[Tensor | None]) -> Tensors:
    """Return the gradient of a function, by PyTorch, which has derivatives of its own."""
    of_values: Tensors = torch.func.vjp(function, *values)[1](tuple(grads))
    return of_values


def _compute_results(scan: TensorScan, tensors: Tensors) -> list[Tensor]:
    results = scan.compute_results([array_of(tensor) for tensor in tensors])
    return [tensor_of(result, like) for result, like in zip(results, scan.like_results(tensors), strict=True)]


def _compute_gradients(scan: TensorScan, tensors: Tensors, results: Tensors, grads: Tensors) -> list[Tensor] | None:
    arrays = [[array_of(tensor) for tensor in part] for part in (tensors, results, grads)]
    computed = scan.gradients(*arrays)
    return None if computed is None else [tensor_of(grad, like) for grad, like in zip(computed, tensors, strict=False)]


# ----- Outside of compiled functions


class _Scan(torch.autograd.Function):
    """The results of a scan."""

    @staticmethod
    def forward(scan: TensorScan, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_compute_results(scan, tensors))

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
        ctx.scan, *tensors = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.save_for_forward(*tensors, *output)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        scan: TensorScan = ctx.scan
        # Activation checkpointing lets an operation ask for what it saved only once.
        saved = ctx.saved_tensors
        of_tensors = apply_function(_Gradients, scan, *saved, *grads)
        return None, *of_tensors, *[None] * (len(saved) - scan.result_count - scan.real_count)

    @staticmethod
    def jvp(ctx: FunctionCtx, _: object, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        saved = _values_of(ctx.saved_tensors)
        with _set_fwd_grad_enabled(True):
            of_results = ctx.scan.tangents(
                saved[: len(tangents)], saved[len(tangents) :], tangents[: ctx.scan.real_count]
            )
        return tuple(of_results)

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, scan: TensorScan, *tensors: Tensor) -> tuple[Tensors, Dims]:
        mapped, moved = _map_moved(scan, tensors, in_dims[1:], info.batch_size)
        results = apply_function(_Scan, mapped, *moved)
        return results, (0,) * len(results)


class _Gradients(torch.autograd.Function):
    """The gradients of a scan, from its tensors, its results, and the gradients of these."""

    @staticmethod
    def forward(scan: TensorScan, *given: Tensor) -> tuple[Tensor, ...]:
        of_tensors = _compute_gradients(scan, *_parts(scan, given))
        if of_tensors is None:
            tensors, _, grads = _parts(scan, given)
            of_tensors = list(scan.differentiable_gradients([tensor.detach() for tensor in tensors], grads))
        return tuple(of_tensors)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[object, ...], output: tuple[Tensor, ...]) -> None:
        ctx.scan, *given = inputs
        ctx.save_for_backward(*given)
        ctx.save_for_forward(*given)

    @staticmethod
    def backward(ctx: FunctionCtx, *weights: Tensor | None) -> tuple[Tensor | None, ...]:
        # The results count as a function of the tensors, so they have no gradient of their own.
        scan: TensorScan = ctx.scan
        tensors, results, grads = _parts(scan, ctx.saved_tensors)
        count, others = scan.real_count, tensors[scan.real_count :]
        of_given = reverse_derivative(_gradient_function(scan, others), [*tensors[:count], *grads], weights)
        return None, *of_given[:count], *[None] * (len(others) + len(results)), *of_given[count:]

    @staticmethod
    def jvp(ctx: FunctionCtx, _: object, *tangents: Tensor | None) -> tuple[Tensor, ...]:
        scan: TensorScan = ctx.scan
        tensors, _, grads = _parts(scan, _values_of(ctx.saved_tensors))
        of_tensors, _, of_grads = _parts(scan, tangents)
        count, others = scan.real_count, tensors[scan.real_count :]
        with _set_fwd_grad_enabled(True):
            return forward_derivative(
                _gradient_function(scan, others), [*tensors[:count], *grads], [*of_tensors[:count], *of_grads]
            )

    @staticmethod
    def vmap(info: Batch, in_dims: Dims, scan: TensorScan, *given: Tensor) -> tuple[Tensors, Dims]:
        split = len(given) - 2 * scan.result_count
        mapped, tensors = _map_moved(scan, given[:split], in_dims[1 : 1 + split], info.batch_size)
        others = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(given[split:], in_dims[1 + split :], strict=True)
        ]
        of_tensors = apply_function(_Gradients, mapped, *tensors, *others)
        return of_tensors, (0,) * len(of_tensors)


def _values_of(saved: Tensors) -> Tensors:
    """Return saved tensors without the derivatives for which a rule of forward mode is called.

    PyTorch turns forward mode off for a rule, and with it the derivatives of nested forward modes. The rules turn it
    on, so their tensors must not have the derivatives that the rules compute.
    """
    return [unpack_dual(tensor).primal for tensor in saved]


def _gradient_function(scan: TensorScan, others: Tensors) -> Callable[..., tuple[Tensor, ...]]:
    """Return the gradients of a scan as a function of the tensors that have them, and then of the results' gradients.

    `others` are the tensors without gradients.
    """

    def gradients(*given: Tensor) -> tuple[Tensor, ...]:
        count = scan.real_count
        return tuple(scan.differentiable_gradients([*given[:count], *others], given[count:]))

    return gradients


def _parts(scan: TensorScan, given: Tensors) -> tuple[Tensors, Tensors, Tensors]:
    """Return the tensors of a scan, its results, and their gradients."""
    ends = len(given) - 2 * scan.result_count, len(given) - scan.result_count
    return given[: ends[0]], given[ends[0] : ends[1]], given[ends[1] :]


def _map_moved(scan: TensorScan, tensors: Tensors, in_dims: Dims, size: int) -> tuple[TensorScan, Tensors]:
    moved = [tensor if dim is None else tensor.movedim(dim, 0) for tensor, dim in zip(tensors, in_dims, strict=True)]
    return scan.map_over_batch(moved, [dim is not None for dim in in_dims], size)


class Batch(NamedTuple):
    """What PyTorch says about a batch.

    Attributes:
        batch_size: its length.
    """

    batch_size: int


def apply_function(function: type[torch.autograd.Function], *given: Tensor) -> Any:
    """Return ``function.apply(*given)``, also for tensors that `torch.autograd` has batched.

    Its batched gradients (``is_grads_batched=True``, ``jacobian(vectorize=True)``) do not use the rules of
    `torch.func.vmap`, but tensors of a kind of their own. These have no memory, and keep no derivatives of what is
    applied to them.

    Args:
        function: a subclass of `torch.autograd.Function` with a rule for `torch.func.vmap`.
        given: its arguments.
    """
    marked = [isinstance(tensor, Tensor) and is_legacy_batchedtensor(tensor) for tensor in given]
    if not any(marked):
        return function.apply(*given)
    for level in range(1, _MAX_LEVELS + 1):
        # A tensor without a batch of this level gets one of length 0.
        moved = [
            torch._remove_batch_dim(x, level, 0, 0) if mark else None for x, mark in zip(given, marked, strict=True)
        ]
        batches = [None if x is None or not len(x) else x for x in moved]
        sizes = [len(x) for x in batches if x is not None]
        if sizes:
            break
    whole = [tensor if x is None else x for x, tensor in zip(batches, given, strict=True)]
    results, _ = function.vmap(Batch(sizes[0]), [None if x is None else 0 for x in batches], *whole)
    if isinstance(results, Tensor):
        return torch._add_batch_dim(results, 0, level)
    return [torch._add_batch_dim(tensor, 0, level) for tensor in results]


# ----- Within compiled functions. PyTorch's operations take numbers and tensors, so a number stands for a scan.

_kept: dict[int, TensorScan] = {}
_handles: dict[TensorScan, int] = {}
_numbers = count()
_lock = Lock()


def handle_of(scan: TensorScan) -> int:
    """Return the number of a scan for the operations below."""
    with _lock:
        if scan not in _handles:
            _handles[scan] = next(_numbers)
            _kept[_handles[scan]] = scan
        return _handles[scan]


@torch.library.custom_op("gpuscan::scan", mutates_args=())
def _scan(tensors: list[Tensor], handle: int) -> list[Tensor]:
    return _compute_results(_kept[handle], tensors)


@torch.library.custom_op("gpuscan::scan_vjp", mutates_args=())
def _scan_vjp(tensors: list[Tensor], results: list[Tensor], grads: list[Tensor], handle: int) -> list[Tensor]:
    scan = _kept[handle]
    of_tensors = _compute_gradients(scan, tensors, results, grads)
    if of_tensors is None:
        # Operations of PyTorch are not differentiated within one.
        of_tensors = list(scan.differentiable_gradients(tensors, grads))
    return of_tensors


@_scan.register_fake
def _(tensors: list[Tensor], handle: int) -> list[Tensor]:
    return [_like(tensor) for tensor in _kept[handle].like_results(tensors)]


@_scan_vjp.register_fake
def _(tensors: list[Tensor], results: list[Tensor], grads: list[Tensor], handle: int) -> list[Tensor]:
    return [_like(tensor) for tensor in tensors[: _kept[handle].real_count]]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _keep(ctx: FunctionCtx, inputs: tuple[Tensors, int], output: Tensors) -> None:
    tensors, ctx.handle = inputs
    ctx.count = len(tensors)
    ctx.save_for_backward(*tensors, *output)


def _backward(ctx: FunctionCtx, grads: Sequence[Tensor | None]) -> tuple[list[Tensor | None], None]:
    saved = ctx.saved_tensors
    tensors, results = saved[: ctx.count], saved[ctx.count :]
    grads = [torch.zeros_like(y) if grad is None else grad for grad, y in zip(grads, results, strict=True)]
    of_tensors = torch.ops.gpuscan.scan_vjp(list(tensors), list(results), grads, ctx.handle)
    return [*of_tensors, *[None] * (ctx.count - len(of_tensors))], None


_scan.register_autograd(_backward, setup_context=_keep)


@_scan.register_vmap
def _(info: Batch, in_dims: tuple[Dims, None], tensors: list[Tensor], handle: int) -> tuple[Tensors, Dims]:
    scan, moved = _map_moved(_kept[handle], tensors, in_dims[0], info.batch_size)
    results = torch.ops.gpuscan.scan(list(moved), handle_of(scan))
    return results, [0] * len(results)
