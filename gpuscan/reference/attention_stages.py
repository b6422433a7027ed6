"""Compute on NumPy what the stages of a gated linear attention compute on a device.

There is one function a stage, of the same name. All of them take one chunk of all heads: arrays (batch, head, step,
...), and states (batch, head, key, value).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuscan.array_types import AnyArray as Array

# The steps of a chunk.
CHUNK = 32
# The least logarithm of a decay, as in shaders/attention/pairs.wgsl.
_LEAST_GATE = -104


@dataclass(frozen=True, eq=False)
class Chunk:
    """The arrays of a chunk.

    Attributes:
        q, k, v, gates, beta: as in shaders/attention/pairs.wgsl; beta is None without the delta rule.
        scale: the factor of the outputs.
    """

    q: Array
    k: Array
    v: Array
    gates: Array
    beta: Array | None
    scale: float

    @property
    def by_key(self) -> bool:
        """True if the decays depend on the key."""
        return self.gates.ndim == self.q.ndim

    @property
    def decays(self) -> Array:
        """The decays to each step since the begin of the chunk, with an axis of keys or one of length 1."""
        return np.exp(self.gates if self.by_key else self.gates[..., np.newaxis])

    @property
    def decays_after(self) -> Array:
        """The decays from each step to the end of the chunk, in that form."""
        gates = self.gates if self.by_key else self.gates[..., np.newaxis]
        after: Array = np.exp(gates[..., -1:, :] - gates)
        return after

    @property
    def decays_between(self) -> Array:
        """The decays to a step i from a step j, (batch, head, i, j), in that form; 0 to earlier steps."""
        gates = self.gates if self.by_key else self.gates[..., np.newaxis]
        between = gates[..., :, np.newaxis, :] - gates[..., np.newaxis, :, :]
        steps = np.arange(self.q.shape[-2])
        return np.exp(np.where(steps[:, np.newaxis, np.newaxis] < steps[:, np.newaxis], -np.inf, between))

    @property
    def whole_decay(self) -> Array:
        """The decay over the whole chunk, as a column of keys or of one number."""
        return _transpose(self.decays[..., -1:, :])


def pairs(chunk: Chunk) -> tuple[Array, Array | None]:
    """Return the pairs of steps, and with the delta rule the inverse of its system."""
    between = chunk.decays_between
    if chunk.by_key:
        return chunk.scale * np.einsum("...ik,...jk,...ijk->...ij", chunk.q, chunk.k, between), None
    matrix = chunk.scale * between[..., 0] * (chunk.q @ _transpose(chunk.k))
    if chunk.beta is None:
        return matrix, None
    system = chunk.beta[..., np.newaxis] * between[..., 0] * (chunk.k @ _transpose(chunk.k))
    inverse = np.zeros_like(system)
    for row in range(system.shape[-1]):
        inverse[..., row, :] = -np.einsum("...j,...jk->...k", system[..., row, :row], inverse[..., :row, :])
        inverse[..., row, row] = 1
    return matrix, inverse


def states(chunk: Chunk, inverse: Array | None, state: Array) -> tuple[Array, Array]:
    """Return the updates of a chunk, and the state after it."""
    updates = chunk.v
    if inverse is not None and chunk.beta is not None:
        updates = inverse @ (chunk.beta[..., np.newaxis] * (chunk.v - chunk.decays * (chunk.k @ state)))
    return updates, chunk.whole_decay * state + _transpose(chunk.k * chunk.decays_after) @ updates


def outputs(chunk: Chunk, pairs: Array, state: Array, updates: Array) -> Array:
    """Return the outputs of a chunk, from the state before it."""
    results: Array = (chunk.scale * chunk.q * chunk.decays) @ state + pairs @ updates
    return results


def state_gradients(
    chunk: Chunk, pairs: Array, inverse: Array | None, grad: Array, after: Array
) -> tuple[Array, Array]:
    """Return the gradients with respect to the input of a chunk's updates, and to the state before the chunk.

    Args:
        chunk, pairs, inverse: the chunk, and what `pairs` gave for it.
        grad: the gradient of the outputs.
        after: the gradient of the state after the chunk.
    """
    residuals = _transpose(pairs) @ grad + (chunk.k * chunk.decays_after) @ after
    before = chunk.whole_decay * after + _transpose(chunk.scale * chunk.q * chunk.decays) @ grad
    if inverse is not None and chunk.beta is not None:
        residuals = _transpose(inverse) @ residuals
        before = before - _transpose(chunk.beta[..., np.newaxis] * chunk.decays * chunk.k) @ residuals
    return residuals, before


def gradients(
    chunk: Chunk, state: Array, end: Array, updates: Array, residuals: Array, grad: Array, after: Array
) -> list[Array | None]:
    """Return the gradients with respect to q, k, v, g and beta.

    Args:
        state, end: the states before and after it.
        updates, residuals: what `states` and `state_gradients` gave for it.
        grad: the gradient of the outputs.
        after: the gradient of the state after the chunk.
    """
    between = chunk.decays_between
    weights = chunk.scale * (grad @ _transpose(updates))
    of_q = chunk.scale * chunk.decays * (grad @ _transpose(state))
    of_k = chunk.decays_after * (updates @ _transpose(after))
    if chunk.by_key:
        of_q += np.einsum("...ij,...jk,...ijk->...ik", weights, chunk.k, between)
        of_k += np.einsum("...ij,...ik,...ijk->...jk", weights, chunk.q, between)
    else:
        of_q += (weights * between[..., 0]) @ chunk.k
        of_k += _transpose(weights * between[..., 0]) @ chunk.q
    of_row = np.zeros_like(of_k)
    of_beta = None
    of_v = residuals
    if chunk.beta is not None:
        beta = chunk.beta[..., np.newaxis]
        system = np.tril(-between[..., 0] * (residuals @ _transpose(updates)), -1)
        by_beta = system @ chunk.k - chunk.decays * (residuals @ _transpose(state))
        of_beta = (residuals * chunk.v).sum(-1) + (by_beta * chunk.k).sum(-1)
        of_row, of_v = beta * by_beta, beta * residuals
        of_k = of_k + _transpose(system) @ (beta * chunk.k)
    by_step = chunk.q * of_q + chunk.k * (of_row - of_k)
    of_end = (end * after).sum(-1)
    if not chunk.by_key:
        by_step, of_end = by_step.sum(-1), of_end.sum(-1)
    later = np.flip(np.cumsum(np.flip(by_step, 2), 2), 2)
    return [of_q, of_k + of_row, of_v, later + of_end[:, :, np.newaxis], of_beta]


@dataclass(frozen=True, eq=False)
class HostAttention:
    """The NumPy arrays of a gated linear attention, all of one dtype, as in `gpuscan.engine.linear_attention`."""

    q: Array
    k: Array
    v: Array
    g: Array
    beta: Array | None
    scale: float
    initial: Array | None

    def outputs(self) -> tuple[Array, Array]:
        """Return the outputs, in the shape of `v`, and the last state."""
        o = np.empty(self.v.shape, self.v.dtype)
        state = self._first_state()
        for first in range(0, self.q.shape[1], CHUNK):
            chunk = self._chunk(first)
            matrix, inverse = pairs(chunk)
            updates, end = states(chunk, inverse, state)
            o[:, first : first + CHUNK] = outputs(chunk, matrix, state, updates).swapaxes(1, 2)
            state = end
        return o, state

    def gradients(self, grad: Array, grad_last: Array | None) -> list[Array | None]:
        """Return the gradients with respect to q, k, v, g, beta and the first state."""
        totals = [None if array is None else np.empty_like(array) for array in (*self._arrays, self.beta)]
        firsts = range(0, self.q.shape[1], CHUNK)
        begins = [self._first_state()]
        for first in firsts:
            chunk = self._chunk(first)
            begins.append(states(chunk, pairs(chunk)[1], begins[-1])[1])
        after = np.zeros_like(begins[0]) if grad_last is None else grad_last
        for first in reversed(firsts):
            end, state = begins.pop(), begins[-1]
            chunk, of_outputs = self._chunk(first), grad[:, first : first + CHUNK].swapaxes(1, 2)
            matrix, inverse = pairs(chunk)
            updates, _ = states(chunk, inverse, state)
            residuals, before = state_gradients(chunk, matrix, inverse, of_outputs, after)
            own = gradients(chunk, state, end, updates, residuals, of_outputs, after)
            for total, part in zip(totals, own, strict=True):
                if total is not None and part is not None:
                    total[:, first : first + CHUNK] = part.swapaxes(1, 2)
            after = before
        return [*totals, None if self.initial is None else after]

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.q, self.k, self.v, self.g

    def _first_state(self) -> Array:
        batches, _, heads, keys = self.q.shape
        shape = batches, heads, keys, self.v.shape[3]
        return np.zeros(shape, self.q.dtype) if self.initial is None else self.initial

    def _chunk(self, first: int) -> Chunk:
        def own(array: Array) -> Array:
            return array[:, first : first + CHUNK].swapaxes(1, 2)

        q, k, v, g = map(own, self._arrays)
        gates = np.cumsum(np.maximum(g, _LEAST_GATE), axis=2)
        return Chunk(q, k, v, gates, None if self.beta is None else own(self.beta), self.scale)


def _transpose(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
