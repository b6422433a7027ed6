"""Gated linear attention and the gated delta rule as one operation each. Their states stay on gpuscan's device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253

from gpuscan.api import linear_attention as attention
from gpuscan.array_types import AnyArray
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.operations import ScanByTorch, compute_scan
from gpuscan.torch.tensors import check_tensors


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> Any:
    """Return the differentiable outputs of the gated delta rule, with the arguments of flash-linear-attention.

    For each batch and head, with states S of shape (D_k, D_v) and column vectors q, k, v and o:
    ``S[t] = exp(g[t]) (I - beta[t] k[t] k[t]^T) S[t-1] + beta[t] k[t] v[t]^T`` and ``o[t] = scale S[t]^T q[t]``.
    Only the arguments are kept for the backward pass, which computes the states again, for a few chunks of steps at a
    time. `torch.compile` calls each pass as one operation; `torch.func.vmap` computes a batch at once. PyTorch computes
    derivatives of gradients and forward-mode derivatives step by step.

    Args:
        q, k, v, g, beta, scale, initial_state, output_final_state: as in `gpuscan.gated_delta_rule`, as tensors.

    Returns:
        The outputs, in the shape and dtype of `v`; with `output_final_state` a pair with the last state, of float32 and
        shape (B, H, D_k, D_v). float64 is computed on NumPy, and its state is float64.

    Raises:
        TypeError: an argument is not a tensor, or not of floats.
        ValueError: the shapes do not fit, an axis has length 0, or the devices differ.

    Yang et al., "Gated Delta Networks" (2024).

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> k = torch.eye(2)[[0, 1, 0]].reshape(1, 3, 1, 2)     # keys: first, second, first
        >>> v = torch.tensor([5.0, 7.0, 9.0], requires_grad=True)
        >>> g, beta = torch.zeros(1, 3, 1), torch.ones(1, 3, 1)
        >>> o, state = gpuscan.torch.gated_delta_rule(k, k, v.reshape(1, 3, 1, 1), g, beta, output_final_state=True)
        >>> state[0, 0, :, 0]                                   # 9 has replaced 5
        tensor([9., 7.], grad_fn=<SelectBackward0>)
        >>> state.sum().backward()
        >>> v.grad
        tensor([0., 1., 1.])
    """
    tensors = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial_state}
    return _attend(tensors, scale, output_final_state)


def gated_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
) -> Any:
    """Return the differentiable outputs of gated linear attention, with the arguments of flash-linear-attention.

    For each batch and head, with states S of shape (D_k, D_v) and column vectors q, k, v and o:
    ``S[t] = exp(g[t]) S[t-1] + k[t] v[t]^T`` and ``o[t] = scale S[t]^T q[t]``. If `g` has the shape (B, T, H, D_k), row
    i of S has the decay ``exp(g[t, i])``. Mamba-2 is the case ``q = C, k = B, v = dt x, g = dt A, scale=1``.

    Args:
        q, k, v, scale, initial_state, output_final_state: as in `gpuscan.torch.gated_delta_rule`.
        g: the logarithms of the decays, at most 0, of shape (B, T, H) or (B, T, H, D_k).

    Returns:
        As `gpuscan.torch.gated_delta_rule`, with the same derivatives.

    Raises:
        TypeError, ValueError: as `gpuscan.torch.gated_delta_rule` does.

    Dao & Gu, "Transformers are SSMs" (2024); Yang et al., "Gated Linear Attention Transformers" (2024).

    Example:
        >>> import torch
        >>> import gpuscan.torch
        >>> ones = torch.ones(1, 4, 1, 1)
        >>> gpuscan.torch.gated_linear_attention(ones, ones, ones, torch.log(0.5 * ones[..., 0])).flatten()
        tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    tensors = {"q": q, "k": k, "v": v, "g": g, "initial_state": initial_state}
    return _attend(tensors, scale, output_final_state)


def _attend(named: dict[str, Tensor | None], scale: float | None, with_state: bool) -> Tensor | tuple[Tensor, Tensor]:
    check_tensors(named, same_dtype=False)
    attention.check_shapes(named)
    for name, tensor in named.items():
        if tensor is not None and not tensor.dtype.is_floating_point:
            raise TypeError(
                f"{name} of dtype {tensor.dtype} was passed, but attention takes floats; pass {name}.float()"
            )
    has_beta, has_state = "beta" in named, named["initial_state"] is not None
    tensors = [tensor for tensor in named.values() if tensor is not None]
    scale = None if scale is None else float(scale)
    o, last = compute_scan(_Attention, (scale, has_beta, has_state), tensors)
    return (o, last) if as_flag("output_final_state", with_state) else o


@dataclass(frozen=True)
class _Attention(ScanByTorch):
    """The outputs and the last state, from q, k, v and g, and from beta and the first state if there are.

    Attributes:
        scale: the factor of the outputs; None for the default.
        has_beta, has_state: which of the others there are.
        lead: how many axes of batches of `torch.func.vmap` stand before the others.
    """

    scale: float | None
    has_beta: bool
    has_state: bool
    lead: int = 0
    result_count = 2

    @property
    def real_count(self) -> int:  # type: ignore[override]
        return 4 + self.has_beta + self.has_state

    def like_results(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        k, v = tensors[1:3]
        wide = any(tensor.dtype == torch.float64 for tensor in tensors)
        *batches, _, heads, keys = k.shape
        shape = *batches, heads, keys, v.shape[-1]
        return v, v.new_empty(shape, dtype=torch.float64 if wide else torch.float32)

    def compute_results(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        given, state, device = self._split(arrays)
        function = attention.gated_delta_rule if self.has_beta else attention.gated_linear_attention
        o, last = function(*given, scale=self.scale, initial_state=state, output_final_state=True, device=device)
        lead = arrays[0].shape[: self.lead]
        return [array.reshape(*lead, -1, *array.shape[1:]) for array in (o, last)] if lead else [o, last]

    def gradients(
        self, arrays: Sequence[AnyArray], results: Sequence[AnyArray], grads: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        given, state, device = self._split(arrays)
        function: Callable[..., Sequence[AnyArray]] = (
            attention.gated_delta_rule_vjp if self.has_beta else attention.gated_linear_attention_vjp
        )
        of_o, of_last = (self._flat(grad) for grad in grads)
        of_arrays = function(
            *given, of_o, scale=self.scale, initial_state=state, grad_final_state=of_last, device=device
        )
        of_arrays = of_arrays if self.has_state else of_arrays[:-1]
        return [grad.reshape(array.shape) for grad, array in zip(of_arrays, arrays, strict=True)]

    def _flat(self, array: AnyArray) -> AnyArray:
        """Return an array with one axis of batches."""
        return array.reshape(-1, *array.shape[self.lead + 1 :])

    def _split(self, arrays: Sequence[AnyArray]) -> tuple[list[AnyArray], AnyArray | None, str | None]:
        """Return the arguments of a function of `gpuscan`: the first ones, `initial_state`, and `device`."""
        flat = [self._flat(array) for array in arrays]
        wide = any(array.dtype == np.float64 for array in arrays)
        state = flat.pop() if self.has_state else None
        return flat, state, "numpy" if wide else None

    def by_torch(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        like_o, like_last = self.like_results(tensors)
        # Time first, and a column of keys by a row of values.
        q, k, v, g, *others = (tensor.to(like_last.dtype) for tensor in tensors)
        state = others.pop() if self.has_state else torch.zeros_like(like_last)
        axis = self.lead + 1
        decays = (g if g.ndim == k.ndim else g[..., None]).exp()[..., None]
        scale = k.shape[-1] ** -0.5 if self.scale is None else self.scale
        outputs = []
        for t in range(k.shape[axis]):
            key, value = k.select(axis, t)[..., None], v.select(axis, t)[..., None, :]
            state = decays.select(axis, t) * state
            if self.has_beta:
                beta = others[0].select(axis, t)[..., None, None]
                value = beta * (value - (key * state).sum(-2, keepdim=True))
            state = state + key * value
            outputs.append(scale * (q.select(axis, t)[..., None] * state).sum(-2))
        return torch.stack(outputs, axis).to(like_o.dtype), state
