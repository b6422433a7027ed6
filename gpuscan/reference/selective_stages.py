"""Compute on NumPy what the stages of a selective scan compute on a device: one function a stage, of the same name."""

from __future__ import annotations

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.problem.broadcasting import sum_to_shape


def selective_scan(u: Array, dt: Array, decays: Array, inward: Array, outward: Array) -> tuple[Array, Array]:
    """Return ``y[t] = sum over states of C[t] h[t]`` and the last states, as arrays/selective_scan.wgsl does.

    ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]``. The last two axes of all arrays are states and time; the others
    broadcast. For complex states, `y` is twice the real part.
    """
    y, states = np.empty_like(u), _selective_states(u, dt, decays, inward, outward)
    for time, h in enumerate(states[1:]):
        sums = (h * _at(outward, time)).sum(-1)
        y[..., 0, time] = 2 * sums.real if h.dtype.kind == "c" else sums
    return y, states[-1][..., np.newaxis]


def selective_gradient(
    u: Array, dt: Array, decays: Array, inward: Array, outward: Array, grad_y: Array, grad_last: Array
) -> tuple[Array, ...]:
    """Return the gradients of `selective_scan` with respect to its arrays, as arrays/selective_gradient.wgsl does.

    The gradient of a complex number ``a + bi`` is ``dL/da + i dL/db``.
    """
    arrays = u, dt, decays, inward, outward
    states = _selective_states(*arrays)
    totals = [np.zeros(array.shape, array.dtype) for array in arrays]
    after, twice = grad_last[..., 0], 2 if decays.dtype.kind == "c" else 1
    for time in reversed(range(len(states) - 1)):
        x, step, decay, weight, out = (_at(array, time) for array in arrays)
        grad = twice * grad_y[..., time]
        of_state = np.conj(out) * grad + after
        after = np.conj(np.exp(step * decay)) * of_state
        rate = after * np.conj(states[time])
        of_input = (of_state * np.conj(weight)).real
        by_step = of_input * x + (rate * np.conj(decay)).real
        parts = of_input * step, by_step, rate * step, of_state * step * x, np.conj(states[time + 1]) * grad
        for total, part in zip(totals, parts, strict=True):
            own = _at(total, time)
            own += sum_to_shape(own.shape, part)
    return tuple(totals)


def _selective_states(u: Array, dt: Array, decays: Array, inward: Array, outward: Array) -> list[Array]:
    """Return the states of a selective scan before the first step and after each."""
    shape = np.broadcast_shapes(*(array.shape for array in (u, dt, decays, inward, outward)))
    states = [np.zeros(shape[:-1], decays.dtype)]
    for time in range(shape[-1]):
        x, step, decay, weight = (_at(array, time) for array in (u, dt, decays, inward))
        states.append(np.exp(step * decay) * states[-1] + step * x * weight)
    return states


def _at(array: Array, time: int) -> Array:
    """Return an array at a step; any step of one that does not depend on time."""
    return array[..., min(time, array.shape[-1] - 1)]
