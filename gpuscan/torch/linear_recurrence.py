"""Linear recurrences of tensors: operations that PyTorch differentiates, maps and compiles as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch._C._functorch import is_legacy_batchedtensor  # noqa: TID253

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.row_scan import device_for
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.operations import Batch, Dims, apply_function
from gpuscan.torch.tensors import array_of, check_dim, check_tensors, tensor_of

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx

# The gates, the inputs, the first state, the axis, and True to run from the end.
Inputs = tuple[Tensor, Tensor, Tensor | None, int, bool]


def linear_recurrence(
    a: Tensor, b: Tensor, *, axis: int = -1, initial: Tensor | None = None, reverse: bool = False
) -> Tensor:
    """Return the states of a linear recurrence, ``h[t] = a[t] * h[t-1] + b[t]``, as a differentiable tensor.

    The forward and the backward pass are one scan each, on gpuscan's default device. float64 runs there if the device
    has 64-bit floats, else on NumPy. Derivatives of derivatives, forward-mode derivatives and `torch.func.vmap` are
    supported. `torch.compile` calls the recurrence as one operation.

    Args:
        a: the gates, a tensor of any shape.
        b: the inputs, of the shape and dtype of `a`.
        axis: the axis of the steps t.
        initial: the state before the first one, a tensor that broadcasts to the other axes.
        reverse: True to run from the end: ``h[t] = a[t] * h[t+1] + b[t]``.

    Returns:
        The states: a tensor of the shape of `b`, on its device. Tensors that are not on the CPU are copied to the host
        and back; a warning says so once.

    Raises:
        TypeError: an argument is not a tensor, or their dtypes differ.
        ValueError: the shapes do not fit, or the devices differ.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> a = torch.full((3,), 0.5, requires_grad=True)
        >>> h = gpuscan.torch.linear_recurrence(a, torch.ones(3))
        >>> h.sum().backward()
        >>> a.grad
        tensor([0.0000, 1.5000, 1.5000])
    """
    check_tensors({"a": a, "b": b, "initial": initial})
    if a.shape != b.shape:
        raise ValueError(
            f"a of shape {tuple(a.shape)} and b of shape {tuple(b.shape)} were passed; pass tensors of one shape"
        )
    axis = check_dim("axis", axis, a.shape)
    if initial is None:
        return _recur(a, b, None, axis, as_flag("reverse", reverse))
    others = a.shape[:axis] + a.shape[axis + 1 :]
    try:
        initial = initial.expand(others)
    except RuntimeError:
        raise ValueError(
            f"initial of shape {tuple(initial.shape)} was passed, which does not broadcast to {tuple(others)}, the "
            "shape without the axis. Pass one value, or one for each row"
        ) from None
    return _recur(a, b, initial, axis, as_flag("reverse", reverse))


def _recur(a: Tensor, b: Tensor, initial: Tensor | None, axis: int, reverse: bool) -> Tensor:
    if torch.compiler.is_compiling():
        return torch.ops.gpuscan.linear_recurrence(a, b, initial, axis, reverse)
    return apply_function(_Recurrence, a, b, initial, axis, reverse)


# ----- The operations


@torch.library.custom_op("gpuscan::linear_recurrence", mutates_args=())
def _recurrence(a: Tensor, b: Tensor, initial: Tensor | None, axis: int, reverse: bool) -> Tensor:
    gates, inputs = array_of(a), array_of(b)
    states = recurrence.linear_recurrence(
        gates,
        inputs,
        axis=axis,
        initial=None if initial is None else array_of(initial),
        reverse=reverse,
        device=device_for([gates]),
    )
    return tensor_of(states, b)


@torch.library.custom_op("gpuscan::linear_recurrence_vjp", mutates_args=())
def _gradients(
    a: Tensor, h: Tensor, grad_h: Tensor, initial: Tensor | None, axis: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    gates = array_of(a)
    start = None if initial is None else array_of(initial)
    grads = recurrence.gradients(
        gates,
        array_of(h),
        array_of(grad_h),
        axis=axis,
        initial=start,
        reverse=reverse,
        device=device_for([gates]),
    )
    grad_a, grad_b, grad_initial = grads
    nothing = a.new_empty(0)
    return tensor_of(grad_a, a), tensor_of(grad_b, a), nothing if start is None else tensor_of(grad_initial, a)


@_recurrence.register_fake
def _(a: Tensor, b: Tensor, initial: Tensor | None, axis: int, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


@_gradients.register_fake
def _(
    a: Tensor, h: Tensor, grad_h: Tensor, initial: Tensor | None, axis: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    like = torch.empty_like(a, memory_format=torch.contiguous_format)
    start = a.new_empty(0) if initial is None else a.new_empty(initial.shape)
    return like, torch.empty_like(like), start


# ----- Derivatives


def _backward(ctx: FunctionCtx, grad_h: Tensor) -> tuple[Tensor, Tensor, Tensor | None, None, None]:
    a, h, initial = ctx.saved_tensors
    a, h, initial = a.conj(), h.conj(), None if initial is None else initial.conj()
    if torch.is_grad_enabled() or is_legacy_batchedtensor(grad_h):
        grads = _differentiable_gradients(a, h, grad_h, initial, ctx.axis, ctx.reverse)
    else:
        grads = torch.ops.gpuscan.linear_recurrence_vjp(a, h, grad_h, initial, ctx.axis, ctx.reverse)
    grad_a, grad_b, grad_initial = grads
    return grad_a, grad_b, None if initial is None else grad_initial, None, None


def _differentiable_gradients(
    a: Tensor, h: Tensor, grad_h: Tensor, initial: Tensor | None, axis: int, reverse: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients by operations that have gradients themselves: the recurrence in the other direction."""
    length = a.shape[axis]
    if not length:
        return torch.zeros_like(a), torch.zeros_like(a), None if initial is None else torch.zeros_like(initial)
    # The gates after each step, in the order of the recurrence.
    zero = torch.zeros_like(a.narrow(axis, 0, 1))
    if reverse:
        gates = torch.cat([zero, a.narrow(axis, 0, length - 1)], axis)
    else:
        gates = torch.cat([a.narrow(axis, 1, length - 1), zero], axis)
    grad_b = _recur(gates, grad_h, None, axis, not reverse)
    start = length - 1 if reverse else 0
    grad_initial = None if initial is None else a.select(axis, start) * grad_b.select(axis, start)
    return grad_b * _before(h, initial, axis, reverse), grad_b, grad_initial


def _before(h: Tensor, initial: Tensor | None, axis: int, reverse: bool) -> Tensor:
    """Return the state before each step."""
    length = h.shape[axis]
    first = torch.zeros_like(h.narrow(axis, 0, 1)) if initial is None else initial.unsqueeze(axis)
    if reverse:
        return torch.cat([h.narrow(axis, 1, length - 1), first], axis)
    return torch.cat([first, h.narrow(axis, 0, length - 1)], axis)


def _keep(ctx: FunctionCtx, inputs: Inputs, output: Tensor) -> None:
    a, _, initial, ctx.axis, ctx.reverse = inputs
    ctx.save_for_backward(a, output, initial)


_recurrence.register_autograd(_backward, setup_context=_keep)


class _Recurrence(torch.autograd.Function):
    """The operation for programs that are not compiled. It adds forward-mode derivatives and `torch.func.vmap`."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, initial: Tensor | None, axis: int, reverse: bool) -> Tensor:
        return torch.ops.gpuscan.linear_recurrence(a, b, initial, axis, reverse)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: Inputs, output: Tensor) -> None:
        _keep(ctx, inputs, output)
        ctx.save_for_forward(inputs[0], output, inputs[2])

    backward = staticmethod(_backward)

    @staticmethod
    def jvp(ctx: FunctionCtx, da: Tensor, db: Tensor, dinitial: Tensor | None, *_: object) -> Tensor:
        a, h, initial = ctx.saved_tensors
        inputs = torch.zeros_like(h) if db is None else db
        if da is not None and h.shape[ctx.axis]:
            inputs = inputs + da * _before(h, initial, ctx.axis, ctx.reverse)
        return _recur(a, inputs, dinitial, ctx.axis, ctx.reverse)

    @staticmethod
    def vmap(
        info: Batch, in_dims: Dims, a: Tensor, b: Tensor, initial: Tensor | None, axis: int, reverse: bool
    ) -> tuple[Tensor, int]:
        a, b, initial = (
            None
            if tensor is None
            else tensor.movedim(dim, 0)
            if dim is not None
            else tensor.expand(info.batch_size, *tensor.shape)
            for tensor, dim in zip((a, b, initial), in_dims[:3], strict=True)
        )
        return _recur(a, b, initial, axis + 1, reverse), 0
