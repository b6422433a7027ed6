"""Run linear recurrences in PyTorch, with gradients. It needs ``pip install gpuscan[torch]``."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this module)

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.device import resolve_device

__all__ = ["linear_recurrence"]


class _LinearRecurrence(torch.autograd.Function):
    """The recurrence and its gradient, each one scan over the tensors' memory."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, initial: Any, axis: int, reverse: bool) -> Any:
        states = _states(_array(a), _array(b), axis, None if initial is None else _array(initial), reverse)
        h = _tensor(states, b)
        ctx.save_for_backward(a, h, initial)
        ctx.axis, ctx.reverse = axis, reverse
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_h: Any) -> Any:
        a, h, initial = ctx.saved_tensors
        start = None if initial is None else _array(initial.conj())
        grads = _gradients(_array(a.conj()), _array(h.conj()), _array(grad_h), ctx.axis, start, ctx.reverse)
        grad_a, grad_b, grad_initial = (None if grad is None else _tensor(grad, a) for grad in grads)
        return grad_a, grad_b, grad_initial, None, None


def linear_recurrence(a: Any, b: Any, *, axis: int = -1, initial: Any = None, reverse: bool = False) -> Any:
    """Return the states of a linear recurrence, ``h[t] = a[t] * h[t-1] + b[t]``, as a differentiable CPU tensor.

    The forward and the backward pass are one scan each, on gpuscan's default device. float64 runs there if the device
    has 64-bit floats, else on the CPU.

    Args:
        a: the gates.
        b: the inputs, of the gates' shape and dtype.
        axis: the axis that t counts along.
        initial: the state before the first one, a tensor that broadcasts to the other axes.
        reverse: True to run from the end: ``h[t] = a[t] * h[t+1] + b[t]``.

    Returns:
        The states: a tensor of the shape of `b`.

    Raises:
        TypeError: an argument is not a tensor, or their dtypes differ.
        ValueError: a tensor is not on the CPU, or the shapes do not fit.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> a = torch.full((3,), 0.5, requires_grad=True)
        >>> h = gpuscan.torch.linear_recurrence(a, torch.ones(3))
        >>> h.sum().backward()
        >>> a.grad
        tensor([0.0000, 1.5000, 1.5000])
    """
    for name, tensor in (("a", a), ("b", b), ("initial", initial)):
        if tensor is None and name == "initial":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} of type {type(tensor).__name__} was passed; pass torch.as_tensor({name})")
        if tensor.device.type != "cpu":
            raise ValueError(
                f"{name} on the device {tensor.device} was passed, but gpuscan takes tensors of the CPU. Pass "
                f"{name}.cpu()"
            )
        if tensor.dtype != a.dtype:
            raise TypeError(
                f"{name} of dtype {tensor.dtype} and a of dtype {a.dtype} were passed, but all must agree. Pass "
                f"{name}.to({a.dtype})"
            )
    return _LinearRecurrence.apply(a, b, initial, axis, reverse)


# ----- The scans, on the device that has the dtype


def _on_cpu(dtype: Any) -> bool:
    device = resolve_device(None)
    return device is None or (dtype == np.float64 and not device.capabilities.float64)


def _states(a: Any, b: Any, axis: int, initial: Any, reverse: bool) -> Any:
    where = "numpy" if _on_cpu(a.dtype) else None
    return recurrence.linear_recurrence(a, b, axis=axis, initial=initial, reverse=reverse, device=where)


def _gradients(a: Any, h: Any, grad_h: Any, axis: int, initial: Any, reverse: bool) -> Any:
    where = "numpy" if _on_cpu(a.dtype) else None
    return recurrence.gradients(a, h, grad_h, axis=axis, initial=initial, reverse=reverse, device=where)


# ----- Between tensors and arrays


def _array(tensor: Any) -> Any:
    """Return the tensor's memory as an array."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    # NumPy has no bfloat16, so torch passes its bits as integers.
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _tensor(array: Any, like: Any) -> Any:
    """Return the array's memory as a tensor of the dtype of `like`."""
    # np.ascontiguousarray would give a number an axis.
    array = np.asarray(array, order="C")
    if like.dtype == torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
