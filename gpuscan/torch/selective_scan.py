"""Mamba's selective scan, from linear recurrences."""

from __future__ import annotations

from math import prod
from typing import Any

import torch  # noqa: TID253 (only users of torch import this package)
from torch.nn.functional import silu, softplus  # noqa: TID253
from torch.utils.checkpoint import checkpoint  # noqa: TID253

from gpuscan.torch.linear_recurrence import linear_recurrence
from gpuscan.torch.tensors import check_tensors

# The most states that are computed at a time, since states take N times the memory of the input. More channels are
# computed in several turns, and once more for the gradient.
MAX_STATES = 1 << 26


def selective_scan(
    u: Any,
    delta: Any,
    A: Any,  # noqa: N803 (mamba's name)
    B: Any,  # noqa: N803
    C: Any,  # noqa: N803
    D: Any = None,  # noqa: N803
    z: Any = None,
    delta_bias: Any = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """Return the outputs of mamba's selective state space, with the signature of mamba's `selective_scan_fn`.

    With ``dt = softplus(delta + delta_bias)`` or its parts, for each batch, channel and state:
    ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]`` and ``y[t] = sum over states of C[t] h[t]``, plus ``D u[t]``, times
    ``silu(z[t])``. The states are computed in float32 (float64 for float64), by `linear_recurrence`.

    Args:
        u: the input, of shape (batch, dim, length).
        delta: the step sizes, of the same shape.
        A: the decays, of shape (dim, N); real or complex.
        B: the input's weights: (dim, N), or for each time (batch, N, length), or in groups of channels
            (batch, groups, N, length). For a complex A, B and C are complex, or where they vary with time real with
            twice the length: real and imaginary parts in turn.
        C: the output's weights, in one of these shapes.
        D: the weights of the input in the output, of shape (dim,); or None.
        z: the gates of the output, of the shape of `u`; or None.
        delta_bias: numbers to add to `delta`, of shape (dim,); or None.
        delta_softplus: True to apply softplus to the step sizes.
        return_last_state: True to return the states after the last step as well.

    Returns:
        The output, of the shape and dtype of `u`; with `return_last_state` a pair with the states (batch, dim, N).

    Raises:
        TypeError: an argument is not a tensor, or the dtypes of `u`, `delta` and `z` differ.
        ValueError: the shapes do not fit, or the devices differ.

    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), algorithm 2.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> u = torch.ones(1, 2, 3)
        >>> A, B = -torch.ones(2, 4), torch.full((2, 4), 0.25)
        >>> gpuscan.torch.selective_scan(u, 0.5 * u, A, B, torch.ones(2, 4))[0, 0]
        tensor([0.5000, 0.8033, 0.9872])
    """
    check_tensors({"u": u, "delta": delta, "z": z})
    tensors = {"u": u, "A": A, "B": B, "C": C, "D": D, "delta_bias": delta_bias}
    check_tensors(tensors, same_dtype=False)
    _check_shapes(u, A, {"delta": delta, "z": z}, {"B": B, "C": C}, {"D": D, "delta_bias": delta_bias})
    wide = torch.promote_types(u.dtype, torch.float32)
    step = delta.to(wide)
    if delta_bias is not None:
        step = step + delta_bias.to(wide)[:, None]
    if delta_softplus:
        step = softplus(step)
    x, decays = u.to(wide), A.to(torch.promote_types(A.dtype, wide))
    weights = [_by_time(each, decays) for each in (B, C)]
    batch, dim, length = u.shape
    channels = max(1, MAX_STATES // max(1, prod((batch, A.shape[1], length))))
    outputs, states = [], []
    for start in range(0, dim, channels):
        part = slice(start, min(start + channels, dim))
        own = [_of_channels(each, part, dim) for each in weights]
        arguments = (x[:, part], step[:, part], decays[part], *own)
        again = channels < dim and torch.is_grad_enabled()
        y, last = checkpoint(_channels, *arguments, use_reentrant=False) if again else _channels(*arguments)
        outputs.append(y)
        states.append(last)
    y = torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0]
    if D is not None:
        y = y + x * D.to(wide)[:, None]
    if z is not None:
        y = y * silu(z.to(wide))
    y = y.to(u.dtype)
    return (y, torch.cat(states, 1)) if return_last_state else y


def _channels(x: Any, step: Any, decays: Any, b: Any, c: Any) -> tuple[Any, Any]:
    """Return the outputs and the last states of some channels: (batch, dim, length) and (batch, dim, N)."""
    gates = torch.exp(step[:, :, None, :] * decays[None, :, :, None])
    inputs = (step * x)[:, :, None, :] * b
    h = linear_recurrence(gates, inputs.to(gates.dtype))
    y = (h * c).sum(2)
    # Of conjugate pairs of states, one is computed.
    return (2 * y.real if y.is_complex() else y), h[..., -1]


def _by_time(weights: Any, decays: Any) -> Any:
    """Return B or C as (batch or 1, dim or groups, N, length or 1)."""
    if weights.ndim == 2:
        return weights.to(decays.dtype)[None, :, :, None]
    if decays.is_complex() and not weights.is_complex():
        pairs = weights.to(decays.real.dtype).unflatten(-1, (-1, 2)).contiguous()
        weights = torch.view_as_complex(pairs)
    weights = weights.to(decays.dtype)
    return weights if weights.ndim == 4 else weights[:, None]


def _of_channels(weights: Any, part: slice, dim: int) -> Any:
    """Return the weights of some channels; each group of channels shares its own."""
    groups = weights.shape[1]
    if groups == 1:
        return weights
    if groups == dim:
        return weights[:, part]
    index = torch.arange(part.start, part.stop, device=weights.device) // (dim // groups)
    return weights.index_select(1, index)


def _check_shapes(
    u: Any, decays: Any, like: dict[str, Any], weights: dict[str, Any], by_channel: dict[str, Any]
) -> None:
    """Raise ValueError unless the shapes fit."""
    if u.ndim != 3:
        raise ValueError(f"u of shape {tuple(u.shape)} was passed; pass a tensor (batch, dim, length)")
    batch, dim, length = u.shape
    if not length:
        raise ValueError(f"u of shape {tuple(u.shape)} was passed, which has no time step; pass one or more")
    if decays.ndim != 2 or len(decays) != dim:
        raise ValueError(f"A of shape {tuple(decays.shape)} was passed for {dim} channels; pass a tensor ({dim}, N)")
    states = decays.shape[1]
    for name, tensor in like.items():
        if tensor is not None and tensor.shape != u.shape:
            raise ValueError(
                f"{name} of shape {tuple(tensor.shape)} was passed for u of shape {tuple(u.shape)}; pass one shape"
            )
    for name, tensor in by_channel.items():
        if tensor is not None and tuple(tensor.shape) != (dim,):
            raise ValueError(f"{name} of shape {tuple(tensor.shape)} was passed; pass a tensor ({dim},)")
    for name, tensor in weights.items():
        times = length * (2 if decays.is_complex() and not tensor.is_complex() else 1)
        shape = tuple(tensor.shape)
        grouped = tensor.ndim == 4 and shape[1] > 0 and dim % shape[1] == 0
        allowed = [(dim, states), (batch, states, times), *([(batch, shape[1], states, times)] if grouped else [])]
        if shape not in allowed:
            raise ValueError(
                f"{name} of shape {shape} was passed; pass a tensor ({dim}, {states}), ({batch}, {states}, {times}), "
                f"or ({batch}, groups, {states}, {times}) with groups that divide {dim}"
            )
