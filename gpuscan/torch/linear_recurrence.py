"""Linear recurrences of tensors: operations that PyTorch differentiates, maps and compiles as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)
from torch import Tensor  # noqa: TID253

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.row_scan import device_for
from gpuscan.array_types import AnyArray
from gpuscan.problem.arguments import as_flag
from gpuscan.torch.operations import TensorScan, compute_scan, run
from gpuscan.torch.tensors import check_dim, check_tensors


def linear_recurrence(
    a: Tensor | complex, b: Tensor, *, axis: int = -1, initial: Tensor | None = None, reverse: bool = False
) -> Tensor:
    """Return the states of a linear recurrence, ``h[t] = a[t] * h[t-1] + b[t]``, as a differentiable tensor.

    The forward and the backward pass are one scan each, on gpuscan's default device. float64 runs there if the device
    has 64-bit floats, else on NumPy. Derivatives of derivatives, forward-mode derivatives and `torch.func.vmap` are
    supported. `torch.compile` calls the recurrence as one operation.

    Args:
        a: the gates, a tensor that broadcasts to the shape of `b`, or a number.
        b: the inputs, a tensor of any shape, of the dtype of `a`.
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
    if isinstance(a, (int, float, complex)):
        check_tensors({"b": b})
        a = torch.as_tensor(a, dtype=b.dtype, device=b.device)
    check_tensors({"a": a, "b": b, "initial": initial})
    if a.shape != b.shape:
        try:
            a = a.expand(b.shape)
        except RuntimeError:
            raise ValueError(
                f"a of shape {tuple(a.shape)} and b of shape {tuple(b.shape)} were passed, but a must broadcast to the "
                "shape of b. Pass gates of that shape, or b.expand(...) to the shape of a"
            ) from None
    axis = check_dim("axis", axis, a.shape)
    start = []
    if initial is not None:
        others = a.shape[:axis] + a.shape[axis + 1 :]
        try:
            start.append(initial.expand(others))
        except RuntimeError:
            raise ValueError(
                f"initial of shape {tuple(initial.shape)} was passed, which does not broadcast to {tuple(others)}, the "
                "shape without the axis. Pass one value, or one for each row"
            ) from None
    (h,) = compute_scan(_Recurrence, (axis, as_flag("reverse", reverse), len(start) > 0), [a, b, *start])
    return h


@dataclass(frozen=True)
class _Recurrence(TensorScan):
    """The states, from the gates, the inputs and, if there is one, the first state.

    Attributes:
        lead: how many axes stand before the axis of the steps.
        reverse: True to run from the end.
        has_initial: True if there is a first state.
    """

    lead: int
    reverse: bool
    has_initial: bool
    result_count = 1

    @property
    def real_count(self) -> int:  # type: ignore[override]
        return 2 + self.has_initial

    def compute_results(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        a, b, *start = arrays
        initial = start[0] if start else None
        return [
            recurrence.linear_recurrence(
                a, b, axis=self.lead, initial=initial, reverse=self.reverse, device=device_for([a])
            )
        ]

    def gradients(
        self, arrays: Sequence[AnyArray], results: Sequence[AnyArray], grads: Sequence[AnyArray]
    ) -> Sequence[AnyArray]:
        a, _, *start = (array.conj() for array in arrays)
        grads_of_all = recurrence.gradients(
            a,
            results[0].conj(),
            grads[0],
            axis=self.lead,
            initial=start[0] if start else None,
            reverse=self.reverse,
            device=device_for([a]),
        )
        return [np.asarray(grad) for grad in grads_of_all if grad is not None]

    def differentiable_gradients(self, tensors: Sequence[Tensor], grads: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the gradients by the recurrence in the other direction."""
        a, length = tensors[0].conj(), tensors[0].shape[self.lead]
        if not length:
            return [torch.zeros_like(tensor) for tensor in tensors]
        # The gates after each step, in the order of the recurrence.
        gates = self._shift(a, torch.zeros_like(a.narrow(self.lead, 0, 1)), reverse=not self.reverse)
        (of_b,) = run(_Recurrence(self.lead, not self.reverse, False), [gates, grads[0]])
        of_a = of_b * self._before(tensors, *run(self, tensors)).conj()
        first = length - 1 if self.reverse else 0
        return [of_a, of_b, *([a.select(self.lead, first) * of_b.select(self.lead, first)] if self.has_initial else [])]

    def tangents(
        self, tensors: Sequence[Tensor], results: Sequence[Tensor], tangents: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        a, b = tensors[:2]
        of_a, of_b, *of_start = tangents
        inputs = torch.zeros_like(b) if of_b is None else of_b
        if of_a is not None and a.shape[self.lead]:
            inputs = inputs + of_a * self._before(tensors, *results)
        start = [tangent for tangent in of_start if tangent is not None]
        return run(replace(self, has_initial=len(start) > 0), [a, inputs, *start])

    def _before(self, tensors: Sequence[Tensor], h: Tensor) -> Tensor:
        """Return the state before each step."""
        zero = torch.zeros_like(h.narrow(self.lead, 0, 1))
        return self._shift(h, tensors[2].unsqueeze(self.lead) if self.has_initial else zero, reverse=self.reverse)

    def _shift(self, x: Tensor, first: Tensor, *, reverse: bool) -> Tensor:
        """Return for each step the entry of the step before it, which is `first` for the first step."""
        rest = x.narrow(self.lead, 1 if reverse else 0, x.shape[self.lead] - 1)
        return torch.cat([rest, first] if reverse else [first, rest], self.lead)
