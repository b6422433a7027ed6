"""Mamba's selective scan as one operation. Its states stay on gpuscan's device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm
from typing import Any

import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253
from torch.nn.functional import silu, softplus  # noqa: TID253

from gpuscan.api.selective_scan import SelectiveScan
from gpuscan.api.selective_states import STATES, TIME
from gpuscan.api.state_space import check_scan_shapes, check_update_shapes
from gpuscan.array_types import AnyArray
from gpuscan.torch.linear_recurrence import linear_recurrence
from gpuscan.torch.operations import ScanByTorch, compute_scan
from gpuscan.torch.tensors import check_tensors


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,  # noqa: N803 (mamba's name)
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """Return the outputs of mamba's selective state space, with the signature of mamba's `selective_scan_fn`.

    For each batch, channel and state: ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]``, with
    ``dt = softplus(delta + delta_bias)``. The output is ``y[t] = (sum over states of C[t] h[t] + D u[t]) silu(z[t])``.
    For complex states, the sum is twice its real part. The formulas omit optional arguments that are not passed. States
    are computed in float32, or in float64 for float64.

    For real float32 states, one kernel computes the outputs and keeps the states in registers. Another kernel computes
    the gradients, if there are at most 65,536 steps, and on a GPU at least 2,048 channels with 16 states each, counted
    over all batches. In all other cases the states take N times the memory of the input, on gpuscan's default device,
    for a part of the channels at a time. `torch.compile` calls each pass as one operation;
    `torch.func.vmap` computes a batch at once. Forward-mode derivatives and derivatives of gradients keep all states in
    PyTorch's memory.

    Args:
        u, delta, A, D, z, delta_bias, delta_softplus, return_last_state: as in `gpuscan.selective_scan`, as tensors.
        B, C: as in `gpuscan.selective_scan`. If A is complex and they vary with time, they may also be real with twice
            the length: each real part is followed by its imaginary part.

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
    named = {"u": u, "A": A, "B": B, "C": C, "D": D, "delta_bias": delta_bias}
    check_tensors(named, same_dtype=False)
    named |= {"delta": delta, "z": z}
    shapes = {name: tuple(tensor.shape) for name, tensor in named.items() if tensor is not None}
    check_scan_shapes(shapes, [name for name in ("B", "C") if A.is_complex() and not named[name].is_complex()])
    wide = torch.promote_types(u.dtype, torch.float32)
    step = delta.to(wide)
    if delta_bias is not None:
        step = step + delta_bias.to(wide)[:, None]
    x, decays = u.to(wide), A.to(torch.promote_types(A.dtype, wide))
    weights = [_by_time(tensor, decays) for tensor in (B, C)]
    batch, dim, length = u.shape
    groups = lcm(*(tensor.shape[1] for tensor in weights))
    # Batch, groups of channels that share B and C, channels of a group, states, time.
    channels = (batch, groups, dim // groups, 1, length)
    tensors = [
        x.reshape(channels),
        step.reshape(channels),
        decays.reshape(1, groups, dim // groups, -1, 1),
        *(_of_groups(tensor, groups)[:, :, None] for tensor in weights),
    ]
    y, last = compute_scan(_SelectiveScan, (bool(delta_softplus),), tensors)
    y, last = y.reshape(u.shape), last.reshape(batch, dim, -1)
    if D is not None:
        y = y + x * D.to(wide)[:, None]
    if z is not None:
        y = y * silu(z.to(wide))
    y = y.to(u.dtype)
    return (y, last) if return_last_state else y


@dataclass(frozen=True)
class _SelectiveScan(ScanByTorch):
    """The outputs and the last states, from the tensors that `gpuscan.api.selective_scan.SelectiveScan` describes.

    Attributes:
        softplus: True to compute the step sizes by softplus, on gpuscan's device.
        lead: how many axes of batches of `torch.func.vmap` stand before the others.
    """

    softplus: bool
    lead: int = 0
    result_count = 2
    real_count = 5

    def like_results(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        u, decays = tensors[0], tensors[2]
        return u, decays.new_empty((*u.shape[:STATES], decays.shape[STATES], 1))

    def compute_results(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        return SelectiveScan(*arrays, softplus=self.softplus).outputs()

    def gradients(
        self, arrays: Sequence[AnyArray], results: Sequence[AnyArray], grads: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        return SelectiveScan(*arrays, softplus=self.softplus).gradients(*grads)

    def by_torch(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        u, dt, decays, b, c = tensors
        steps = softplus(dt) if self.softplus else dt
        gates, inputs = torch.broadcast_tensors(torch.exp(steps * decays), (steps * u * b).to(decays.dtype))
        h = linear_recurrence(gates, inputs, axis=TIME)
        y = (h * c).sum(STATES, keepdim=True)
        # Of conjugate pairs of states, one is computed.
        return (2 * y.real if y.is_complex() else y), h[..., -1:]


def _by_time(weights: Tensor, decays: Tensor) -> Tensor:
    """Return B or C as (batch or 1, dim or groups, N, length or 1)."""
    if weights.ndim == 2:
        return weights.to(decays.dtype)[None, :, :, None]
    if decays.is_complex() and not weights.is_complex():
        pairs = weights.to(decays.real.dtype).unflatten(-1, (-1, 2)).contiguous()
        weights = torch.view_as_complex(pairs)
    weights = weights.to(decays.dtype)
    return weights if weights.ndim == 4 else weights[:, None]


def _of_groups(weights: Tensor, groups: int) -> Tensor:
    """Return weights with one group or `groups`."""
    own = weights.shape[1]
    return weights if own in (1, groups) else weights.repeat_interleave(groups // own, 1)


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,  # noqa: N803
    B: Tensor,  # noqa: N803
    C: Tensor,  # noqa: N803
    D: Tensor | None = None,  # noqa: N803
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
) -> Tensor:
    """Take one step of a selective scan, for inference: write the next states to `state`, and return the output.

    The next states are ``exp(dt A) state + dt B x``, with ``dt = softplus(dt + dt_bias)``. The output is
    ``y = (sum over the next states of C state + D x) silu(z)``. The formulas omit optional arguments that are not
    passed. mamba's `selective_state_update` has the same signature. PyTorch computes the step where the tensors are.

    Args:
        state, x, dt, A, B, C, D, z, dt_bias, dt_softplus: as in `gpuscan.selective_state_update`, as tensors.

    Returns:
        The output, of the shape and dtype of `x`.

    Raises:
        TypeError: an argument is not a tensor.
        ValueError: the shapes do not fit, or the devices differ.

    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), section 3.3.

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> state, A, B = torch.zeros(1, 2, 4), -torch.ones(2, 4), torch.full((1, 4), 0.25)
        >>> x = torch.ones(1, 2)
        >>> gpuscan.torch.selective_state_update(state, x, 0.5 * x, A, B, torch.ones(1, 4))
        tensor([[0.5000, 0.5000]])
        >>> gpuscan.torch.selective_state_update(state, x, 0.5 * x, A, B, torch.ones(1, 4))
        tensor([[0.8033, 0.8033]])
    """
    named = {"state": state, "x": x, "dt": dt, "A": A, "B": B, "C": C, "D": D, "z": z, "dt_bias": dt_bias}
    check_tensors(named, same_dtype=False)
    shapes = {name: tuple(tensor.shape) for name, tensor in named.items() if tensor is not None}
    check_update_shapes(shapes.pop("state"), shapes)
    wide = torch.promote_types(state.dtype, torch.float32)
    inputs, step = x.to(wide), dt.to(wide)
    if dt_bias is not None:
        step = step + dt_bias
    if dt_softplus:
        step = softplus(step)

    def of_states(weights: Tensor) -> Tensor:
        """Return B or C with the axes of the states."""
        if weights.ndim == 2:
            return weights.unsqueeze(1).unsqueeze(1) if state.ndim == 4 else weights.unsqueeze(1)
        return weights.repeat_interleave(state.shape[1] // weights.shape[1], 1).unsqueeze(2)

    after = torch.exp(step[..., None] * A) * state + step[..., None] * of_states(B) * inputs[..., None]
    with torch.no_grad():
        state.copy_(after)
    y = (after * of_states(C)).sum(-1)
    if D is not None:
        y = y + inputs * D
    if z is not None:
        y = y * silu(z.to(wide))
    return y.to(x.dtype)
