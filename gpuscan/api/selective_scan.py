"""Mamba's selective scan of NumPy arrays, and its gradient. The states are computed on a device and never leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.device import Device, resolve_device
from gpuscan.api.map import map as map_arrays
from gpuscan.api.reduce import reduce
from gpuscan.api.row_scan import device_for

Array = np.ndarray[Any, Any]
# A part of the axes of batches and channels.
Part = tuple[slice, ...]
# A function that waits for an array.
Pending = Callable[[], Array]

# The last axes of all arrays. Those before are batches and channels.
STATES, TIME = -2, -1
# The most states that are computed at a time. A device holds up to eight arrays of this size. Not tuned.
MAX_STATES = 1 << 25


@dataclass(frozen=True, eq=False)
class SelectiveScan:
    """The arrays of a selective scan.

    With the states ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]``, which begin at 0, the outputs are
    ``y[t] = sum over states of C[t] h[t]``; if the states are complex, twice the real part of that.

    All arrays have the same number of axes. The last two are states and time. An axis that an array does not
    depend on has length 1.

    Attributes:
        u: the input: it depends on all axes but the states.
        dt: the step sizes, in the shape of `u`.
        A: the decays: they do not depend on time.
        B: the weights of the input.
        C: the weights of the output.
    """

    u: Array
    dt: Array
    A: Array
    B: Array
    C: Array

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        return self.u, self.dt, self.A, self.B, self.C

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the states."""
        return np.broadcast_shapes(*(array.shape for array in self.arrays))

    def outputs(self) -> tuple[Array, Array]:
        """Return y, in the shape of `u`, and the states after the last step, with a time axis of length 1."""
        y = np.empty(self.u.shape, self.u.dtype)
        last = np.empty((*self.shape[:TIME], 1), self.A.dtype)

        def computed(part: Part) -> Iterator[Pending]:
            run = _Run([_within(array, part) for array in self.arrays])
            h = run.states()[1]
            yield run.summed(run.output, (h, run.arrays[4]), y[part].shape)
            yield run.pending(h[..., -1:])

        for part, (outputs, states) in _in_flight(computed, self._parts()):
            y[part] = outputs().reshape(y[part].shape)
            last[part] = states()
        return y, last

    def gradients(self, grad_y: Array, grad_last: Array) -> tuple[Array, ...]:
        """Return the gradients with respect to u, dt, A, B and C. The states are computed again.

        The gradient of a complex number ``a + bi`` is ``dL/da + i dL/db``.

        Args:
            grad_y: the gradient with respect to y.
            grad_last: the gradient with respect to the states after the last step.
        """
        totals = tuple(np.zeros(array.shape, array.dtype) for array in self.arrays)

        def computed(part: Part) -> Iterator[Pending]:
            run = _Run([_within(array, part) for array in self.arrays])
            return run.gradients(grad_y[part], grad_last[part])

        for part, found in _in_flight(computed, self._parts()):
            for total, values in zip(totals, found, strict=True):
                place = _within(total, part)
                place += values().reshape(place.shape)
        return totals

    def _parts(self) -> Iterator[Part]:
        """Yield parts of the axes of batches and channels that have at most `MAX_STATES` states together."""
        sizes = list(self.shape[:STATES])
        for axis in range(len(sizes)):
            # The first axes are cut first.
            rest = prod(sizes[axis + 1 :]) * prod(self.shape[STATES:])
            sizes[axis] = max(1, min(sizes[axis], MAX_STATES // max(1, rest)))
        starts = (range(0, length, size) for length, size in zip(self.shape, sizes, strict=False))
        for first in product(*starts):
            yield tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))


def _in_flight(
    computed: Callable[[Part], Iterator[Pending]], parts: Iterable[Part]
) -> Iterator[tuple[Part, list[Pending]]]:
    """Yield each part with its results, after the next one has been submitted. A device computes one meanwhile."""
    earlier = None
    for part in parts:
        submitted = part, list(computed(part))
        if earlier is not None:
            yield earlier
        earlier = submitted
    if earlier is not None:
        yield earlier


def _within(array: Array, part: Part) -> Array:
    """Return the part of an array; all of it along axes of length 1."""
    return array[tuple(each if length > 1 else slice(None) for each, length in zip(part, array.shape, strict=False))]


class _Run:
    """The computation of one part, on the default device or on NumPy."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        asked = device_for(arrays)
        device = resolve_device(asked)
        self._where: Device | str = "numpy" if device is None else device
        self._device = device
        self._is_complex = arrays[2].dtype.kind == "c"
        self._shapes = [array.shape for array in arrays]
        self.arrays = [self._put(array) for array in arrays]

    def _put(self, array: Array) -> Any:
        return array if self._device is None else self._device.asarray(array)

    def _map(self, function: Callable[..., Any], *arrays: Any) -> Any:
        return map_arrays(function, *arrays, device=self._where)

    def states(self) -> tuple[Any, Any]:
        """Return the gates and the states."""
        u, dt, decays, inward, _ = self.arrays
        gates, inputs = self._map(_steps, u, dt, decays, inward)
        return gates, recurrence.linear_recurrence(gates, inputs, axis=TIME, device=self._where)

    @property
    def output(self) -> Callable[..., Any]:
        return _twice_real_product if self._is_complex else _product

    def pending(self, array: Any) -> Pending:
        """Begin to read an array, and return a function that waits for it."""
        if self._device is None:
            return lambda: np.asarray(array)
        found: Pending = array.read_async().result
        return found

    def summed(self, function: Callable[..., Any], arrays: Sequence[Any], shape: tuple[int, ...]) -> Pending:
        """Begin to sum a function of every state over the axes along which the shape has length 1."""
        values = self._map(function, *arrays)
        axes = tuple(axis for axis, length in enumerate(shape) if length == 1 < values.shape[axis])
        return self.pending(reduce(values, axis=axes, device=self._where) if axes else values)

    def gradients(self, grad_y: Array, grad_last: Array) -> Iterator[Pending]:
        """Begin to compute the gradients with respect to the arrays, one after the other."""
        u, dt, decays, inward, outward = self.arrays
        is_last = np.zeros(self._shapes[0][TIME], grad_y.dtype)
        is_last[-1:] = 1
        weights, after, ends = (self._put(array) for array in (grad_y, grad_last, is_last))
        gates, h = self.states()
        of_states = self._map(_to_states_complex if self._is_complex else _to_states, outward, weights, after, ends)
        conjugates = (self._map(np.conj, gates), self._map(np.conj, h)) if self._is_complex else (gates, h)
        of_gates, of_inputs, _ = recurrence.gradients(
            *conjugates, of_states, axis=TIME, initial=None, reverse=False, device=self._where
        )
        # The gradient with respect to dt A.
        rates = self._map(_times_conjugate, of_gates, gates)
        by_u, by_dt = (_by_u_complex, _by_dt_complex) if self._is_complex else (_by_u, _by_dt)
        yield self.summed(by_u, (of_inputs, inward, dt), self._shapes[0])
        yield self.summed(by_dt, (of_inputs, inward, u, rates, decays), self._shapes[1])
        yield self.summed(_product, (rates, dt), self._shapes[2])
        yield self.summed(_by_inward, (of_inputs, u, dt), self._shapes[3])
        yield self.summed(_by_outward_complex if self._is_complex else _product, (weights, h), self._shapes[4])


# ----- Functions of one state, which become kernels


def _steps(u: Any, dt: Any, decay: Any, inward: Any) -> Any:
    """Return the gate and the input of a step."""
    return np.exp(dt * decay), dt * u * inward


def _product(one: Any, other: Any) -> Any:
    return one * other


def _times_conjugate(one: Any, other: Any) -> Any:
    return one * np.conj(other)


def _twice_real_product(one: Any, other: Any) -> Any:
    return 2 * np.real(one * other)


def _to_states(outward: Any, grad_y: Any, grad_last: Any, is_last: Any) -> Any:
    return outward * grad_y + grad_last * is_last


def _to_states_complex(outward: Any, grad_y: Any, grad_last: Any, is_last: Any) -> Any:
    return np.conj(outward) * (2 * grad_y) + grad_last * is_last


def _by_u(grad: Any, inward: Any, dt: Any) -> Any:
    return grad * inward * dt


def _by_u_complex(grad: Any, inward: Any, dt: Any) -> Any:
    return np.real(grad * np.conj(inward)) * dt


def _by_dt(grad: Any, inward: Any, u: Any, rate: Any, decay: Any) -> Any:
    return grad * inward * u + rate * decay


def _by_dt_complex(grad: Any, inward: Any, u: Any, rate: Any, decay: Any) -> Any:
    return np.real(grad * np.conj(inward)) * u + np.real(rate * np.conj(decay))


def _by_inward(grad: Any, u: Any, dt: Any) -> Any:
    return grad * (u * dt)


def _by_outward_complex(grad_y: Any, h: Any) -> Any:
    return np.conj(h) * (2 * grad_y)
