"""Run gated linear attention and its gradient on a device, in chunks.

The steps are cut into chunks, and these into windows, and only the states of one window are kept at a time. Within a
window three stages follow each other: what each chunk knows by itself, the walk from state to state, and what each
chunk computes from the state before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from gpuscan.device.context import DeviceContext
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Binding, Clear, Copy, Step
from gpuscan.device.transfer import round_up
from gpuscan.engine.plan_steps import are_owned, stage_dispatch, uniform_of
from gpuscan.operators.parameters import Parameter, derive
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.sizes import apply, spans

# The steps of a chunk, and the rows and columns of a product, which shaders/attention/tile.wgsl has as well.
CHUNK = 32
# Bindings begin at multiples of 256 bytes, which are this many numbers.
_ALIGNED_NUMBERS = 64


@dataclass(frozen=True, eq=False)
class DeviceAttention:
    """The arrays of a gated linear attention on a device: float32, in C order, not empty, and bindable.

    Attributes:
        q, k: (batch, step, head, key).
        v: (batch, step, head, value).
        g: the logarithms of the decays, (batch, step, head) or (batch, step, head, key).
        beta: the weights of the delta rule, (batch, step, head); None for no delta rule.
        scale: the factor of the outputs.
        initial: the state before the first step, (batch, head, key, value); None for 0.
    """

    q: DeviceArray
    k: DeviceArray
    v: DeviceArray
    g: DeviceArray
    beta: DeviceArray | None
    scale: float | Parameter
    initial: DeviceArray | None

    def outputs(self) -> tuple[DeviceArray, DeviceArray]:
        """Submit the attention, and return its outputs, in the shape of `v`, and the last state."""
        o = self._empty(self.v.shape)
        states = self._empty((self._window + 1, *self._state_shape))
        last = self._empty(self._state_shape)
        updates = self.v if self.beta is None else self._empty(self.v.shape)
        before = self.initial
        for first, chunks in self._windows:
            call = self._call(first, chunks)
            steps = [self._put(before, states, 0)]
            steps += self._make_pair_steps(call, chunks)
            steps += self._make_state_steps(call, states, updates)
            bound = [self.q, self._gates, self._matrices, states, updates, o]
            steps += self._stage("outputs", call, bound, chunks * self._blocks)
            steps.append(self._take_state(states, chunks, last))
            self._submit(steps)
            before = last
        return o, last

    def gradients(self, grad: DeviceArray, grad_last: DeviceArray | None) -> list[DeviceArray | None]:
        """Submit the gradient, and return it with respect to q, k, v, g, beta and the first state.

        Args:
            grad: the gradient with respect to the outputs.
            grad_last: the gradient with respect to the last state; None for 0.
        """
        delta = self.beta is not None
        # Both the states and their gradients, one slot more than chunks of each.
        slots = self._window + 1
        states = self._empty((2, slots, *self._state_shape))
        values = round_up(self.v.size, _ALIGNED_NUMBERS)
        updates = self._empty((2 if delta else 1, values))
        parts = [self.q, self.k, self.g, *([] if self.beta is None else [self.beta])]
        offsets = [0]
        for part in parts:
            offsets.append(offsets[-1] + round_up(part.size, _ALIGNED_NUMBERS))
        results = self._empty((offsets[-1],))
        begins = self._checkpoints(states, updates)
        of_first = self._empty(self._state_shape)
        after = grad_last
        for (first, chunks), before in zip(reversed(self._windows), reversed(begins), strict=True):
            grads = slots * prod(self._state_shape)
            of_updates = values if delta else 0
            call = self._call(first, chunks, grads, of_updates, *offsets[1:3], offsets[3] if delta else 0)
            steps = [self._put(before, states, 0), self._put(after, states, slots + chunks)]
            steps += self._make_pair_steps(call, chunks)
            steps += self._make_state_steps(call, states, updates)
            bound = [self.q, self.k, self._gates, self._matrices, grad, states, updates]
            steps += self._stage("state_gradients", call, bound, self._blocks)
            bound = [self.q, self.k, self.v, self._gates, grad, states, results, *([updates] if delta else [])]
            steps += self._stage("gradients", call, bound, chunks)
            steps.append(self._take_state(states, slots, of_first))
            self._submit(steps)
            after = of_first
        gradients = [
            results._view_as(part.shape, offset=4 * offset) for part, offset in zip(parts, offsets, strict=False)
        ]
        of_values = updates._view_as(self.v.shape, offset=4 * values if delta else 0)
        of_beta = gradients[3] if delta else None
        return [*gradients[:2], of_values, gradients[2], of_beta, None if self.initial is None else of_first]

    def _checkpoints(self, states: DeviceArray, updates: DeviceArray) -> list[DeviceArray | None]:
        """Submit the walk, and return the state before each window; None for 0."""
        begins: list[DeviceArray | None] = [self.initial]
        for first, chunks in self._windows[:-1]:
            call = self._call(first, chunks)
            end = self._empty(self._state_shape)
            steps = [self._put(begins[-1], states, 0)]
            steps += self._make_pair_steps(call, chunks)
            steps += self._make_state_steps(call, states, updates)
            steps.append(self._take_state(states, chunks, end))
            self._submit(steps)
            begins.append(end)
        return begins

    # ----- Stages

    def _make_pair_steps(self, call: Binding, chunks: int) -> list[Step]:
        bound = [self.q, self.k, self.g, self._gates, self._matrices, *([] if self.beta is None else [self.beta])]
        return self._stage("pairs", call, bound, chunks)

    def _make_state_steps(self, call: Binding, states: DeviceArray, updates: DeviceArray) -> list[Step]:
        more = [] if self.beta is None else [self._matrices, updates]
        return self._stage("states", call, [self.k, self.v, self._gates, states, *more], self._blocks)

    def _stage(self, name: str, call: Binding, bound: list[DeviceArray], workgroups: int) -> list[Step]:
        """Return the dispatch of a stage.

        Args:
            name: the name of its file in shaders/attention.
            call: the uniform buffer of the call.
            bound: what it binds after the call.
            workgroups: how many it has for each head.
        """
        values = {"delta": self.beta is not None, "by_key": self.g.ndim == self.q.ndim}
        bindings = [call, *(array._binding() for array in bound)]
        batches, _, heads, _ = self.q.shape
        template = f"attention/{name}.wgsl"
        count = batches * heads * workgroups
        return [stage_dispatch(self._context, template, bindings, count, self.v.size, **values)]

    def _call(self, first: int, chunks: int, *offsets: int) -> Binding:
        """Return the uniform buffer of a call, for some chunks from the first on."""
        batches, length, heads, keys = self.q.shape
        scale = derive(_bits, self.scale._expression) if type(self.scale) is Parameter else apply(_bits, self.scale)
        sizes = [batches, heads, length, keys, self.v.shape[3], first, chunks, scale]
        return uniform_of(self._context, [*sizes, self._beta_offset, *offsets, *[0] * (7 - len(offsets))])

    def _put(self, state: DeviceArray | None, states: DeviceArray, slot: int) -> Step:
        """Return the step that writes a state, or 0, to a slot."""
        size = 4 * prod(self._state_shape)
        if state is None:
            return Clear(states.buffer, states.offset + slot * size, size)
        return Copy(state.buffer, state.offset, states.buffer, states.offset + slot * size, size)

    def _take_state(self, states: DeviceArray, slot: int, state: DeviceArray) -> Step:
        """Return the step that copies a state from a slot."""
        size = 4 * prod(self._state_shape)
        return Copy(states.buffer, states.offset + slot * size, state.buffer, state.offset, size)

    def _submit(self, steps: list[Step]) -> None:
        context = self._context
        given = self.q, self.k, self.v, self.g, self.beta, self.initial
        with context.errors, context.lock:
            nbytes = sum(array.nbytes for array in given if array is not None)
            context.submit(steps, nbytes, deferrable=are_owned(*given))

    # ----- Memory

    def _empty(self, shape: tuple[int, ...]) -> DeviceArray:
        return empty(self._context, shape, self.q.dtype)

    @cached_property
    def _context(self) -> DeviceContext:
        return self.q._context

    @cached_property
    def _state_shape(self) -> tuple[int, ...]:
        batches, _, heads, keys = self.q.shape
        return batches, heads, keys, self.v.shape[3]

    @cached_property
    def _blocks(self) -> int:
        """The workgroups that share the values of a head."""
        return -(-self.v.shape[3] // CHUNK)

    @cached_property
    def _window(self) -> int:
        """The chunks of a window."""
        chunks = -(-self.q.shape[1] // CHUNK)
        limit: int = self._context.capabilities.loop_iterations
        rounds = min(limit // loops(self.q.shape[3]) if limit else chunks, ARRAYS.max_attention_chunks)
        batches, heads, keys, values = self._state_shape
        fitting = ARRAYS.attention_state_numbers // prod(self._state_shape)
        # States and their gradients are one binding, with a slot more than chunks, and matrices are another.
        bound: int = self._context.binding_limit // 4 // (2 * batches * heads * max(keys * values, CHUNK**2)) - 1
        return max(1, min(chunks, rounds, fitting, bound))

    @cached_property
    def _windows(self) -> list[tuple[int, int]]:
        """The first chunk of each window, and its number of chunks."""
        chunks = -(-self.q.shape[1] // CHUNK)
        return list(spans(chunks, self._window))

    @cached_property
    def _beta_offset(self) -> int:
        return round_up(self.g.size, _ALIGNED_NUMBERS)

    @cached_property
    def _gates(self) -> DeviceArray:
        """The sums of g over the steps of each chunk, and beta."""
        return self._empty((self._beta_offset + (0 if self.beta is None else self.beta.size),))

    @cached_property
    def _matrices(self) -> DeviceArray:
        """The matrices of each chunk of a window."""
        count = 1 if self.beta is None else 2
        return self._empty((self._window, *self._state_shape[:2], count, CHUNK, CHUNK))


def largest_numbers(keys: int, values: int, length: int, by_key: bool) -> int:
    """Return the numbers of the largest array that the attention of one head has on a device."""
    gates = keys if by_key else 1
    states = 4 * max(keys * values, CHUNK**2)
    return max(length * (2 * keys + gates + 1), 2 * length * values, states) + 4 * _ALIGNED_NUMBERS


def loops(keys: int) -> int:
    """Return the iterations of the loops of one chunk in the longest walk."""
    return 1 + (3 + 4 * -(-keys // CHUNK)) * (CHUNK // 4 + 1)


def _bits(number: float) -> int:
    with np.errstate(over="ignore"):
        return int(np.float32(number).view(np.uint32))
