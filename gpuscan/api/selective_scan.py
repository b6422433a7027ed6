"""Mamba's selective scan of NumPy arrays, and its gradient. The states never leave the device that computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.device import Device, resolve_device
from gpuscan.api.map import map as map_arrays
from gpuscan.api.reduce import reduce
from gpuscan.api.row_scan import device_for
from gpuscan.device.transfer import begun
from gpuscan.engine.selective_scan import selective_scan
from gpuscan.operators.operator import operator
from gpuscan.planning.array_heuristics import ARRAYS
from gpuscan.reference import stages

Array = np.ndarray[Any, Any]
# A part of the axes of batches and channels.
Part = tuple[slice, ...]
# A function that waits for an array.
Pending = Callable[[], Array]

# The last axes of all arrays. Those before are batches and channels.
STATES, TIME = -2, -1


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
        device = resolve_device(device_for(self.arrays))
        if device is None:
            return stages.selective_scan(*self.arrays)
        y = np.empty(self.u.shape, self.u.dtype)
        last = np.empty((*self.shape[:TIME], 1), self.A.dtype)
        if self._fits(device):
            return self._outputs_on(device, y, last)

        def computed(part: Part) -> list[Pending]:
            run = _Run([_within(array, part) for array in self.arrays])
            h = run.states()[1]
            return [*run.summed([run.outputs(h)], [y[part].shape]), run.pending(h[..., -1:])]

        for part, (outputs, states) in _in_flight(computed, self._state_parts()):
            y[part] = outputs().reshape(y[part].shape)
            last[part] = states()
        return y, last

    def _fits(self, device: Device) -> bool:
        """Return True if one kernel computes the outputs on this device."""
        weights = 4 * prod(self.shape[STATES:])
        return self.A.dtype == np.float32 and prod(self.shape) > 0 and weights <= device._context.binding_limit

    def _outputs_on(self, device: Device, y: Array, last: Array) -> tuple[Array, Array]:
        """Compute the outputs and the last states by one kernel, into arrays."""
        arrays = self._by_channels()
        shape = arrays[0].shape
        states, length = self.shape[STATES:]
        outputs = y.reshape(shape), last.reshape(*shape[:3], states, 1)

        def computed(part: Part) -> list[Pending]:
            found = selective_scan(*(device.asarray(_within(array, part)) for array in arrays))
            # The part of an array whose first axes are cut first is contiguous, so results are read straight to it.
            pairs = zip(found, outputs, strict=True)
            return [begun(device._readers, partial(array.read, into[part])).result for array, into in pairs]

        # The weights of a group may be more numbers than its input.
        inner = length * -(-max(states, shape[2]) // shape[2])
        for _, found in _in_flight(computed, _parts(shape[:3], inner, ARRAYS.selective_piece_bytes // 4)):
            for wait in found:
                wait()
        return y, last

    def _by_channels(self) -> list[Array]:
        """Return the arrays with three axes before the states: batches, groups that share B and C, their channels.

        If none of B and C depends on both time and group, there is one group.
        """
        *lead, groups, channels = self.shape[:STATES]
        weights = self.B, self.C
        shared = all(each.shape[TIME] == 1 or each.shape[STATES - 2] == 1 for each in weights)
        first = (prod(lead), 1, groups * channels) if shared else (prod(lead), groups, channels)
        found = []
        for array in self.arrays:
            whole = list(array.shape)
            if array.shape[TIME] == 1 or array is self.u or array is self.dt:
                whole[-4:-2] = groups, channels
            if any(n > 1 for n in array.shape[:-4]):
                whole[:-4] = lead
            array = np.broadcast_to(array, whole)
            batch = first[0] if any(n > 1 for n in whole[:-4]) else 1
            inner = first[1:] if whole[-4:-2] == [groups, channels] else ((1, 1) if shared else tuple(whole[-4:-2]))
            found.append(array.reshape(batch, *inner, *array.shape[-2:]))
        return found

    def gradients(self, grad_y: Array, grad_last: Array) -> tuple[Array, ...]:
        """Return the gradients with respect to u, dt, A, B and C. The states are computed again.

        The gradient of a complex number ``a + bi`` is ``dL/da + i dL/db``.

        Args:
            grad_y: the gradient with respect to y.
            grad_last: the gradient with respect to the states after the last step.
        """
        totals = tuple(np.zeros(array.shape, array.dtype) for array in self.arrays)

        def computed(part: Part) -> list[Pending]:
            run = _Run([_within(array, part) for array in self.arrays])
            return run.gradients(grad_y[part], grad_last[part])

        for part, found in _in_flight(computed, self._state_parts()):
            for total, values in zip(totals, found, strict=True):
                place = _within(total, part)
                place += values().reshape(place.shape)
        return totals

    def _state_parts(self) -> Iterator[Part]:
        return _parts(self.shape[:STATES], prod(self.shape[STATES:]), ARRAYS.max_states)


def _parts(lengths: Sequence[int], inner: int, limit: int) -> Iterator[Part]:
    """Yield parts of the axes of batches and channels. The first axes are cut first.

    Args:
        lengths: the lengths of these axes.
        inner: the numbers of one channel.
        limit: the most numbers of a part, which has one channel at least.
    """
    sizes = list(lengths)
    for axis in range(len(sizes)):
        sizes[axis] = max(1, min(sizes[axis], limit // max(1, prod(sizes[axis + 1 :]) * inner)))
    starts = (range(0, length, size) for length, size in zip(lengths, sizes, strict=True))
    for first in product(*starts):
        yield tuple(slice(at, at + size) for at, size in zip(first, sizes, strict=True))


def _in_flight(
    computed: Callable[[Part], list[Pending]], parts: Iterable[Part]
) -> Iterator[tuple[Part, list[Pending]]]:
    """Yield each part with its results, after the next one has been submitted. A device computes one meanwhile."""
    earlier = None
    for part in parts:
        submitted = part, computed(part)
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
        gates, inputs = self._map(_steps_complex if self._is_complex else _steps, u, dt, decays, inward)
        return gates, recurrence.linear_recurrence(gates, inputs, axis=TIME, device=self._where)

    def outputs(self, h: Any) -> Any:
        """Return what y is the sum of."""
        return self._map(_twice_real_product if self._is_complex else _product, h, self.arrays[4])

    def pending(self, array: Any) -> Pending:
        """Begin to read an array, and return a function that waits for it."""
        if self._device is None:
            return lambda: np.asarray(array)
        found: Pending = array.read_async().result
        return found

    def summed(self, values: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> list[Pending]:
        """Begin to sum arrays over the axes along which their shapes have length 1."""
        axes = [
            tuple(axis for axis, length in enumerate(shape) if length == 1 < value.shape[axis])
            for value, shape in zip(values, shapes, strict=True)
        ]
        if axes[0] and axes == [axes[0]] * 2:
            totals = reduce(tuple(values), _SUMS, axis=axes[0], device=self._where)
        else:
            pairs = zip(values, axes, strict=True)
            totals = [reduce(value, axis=each, device=self._where) if each else value for value, each in pairs]
        return [self.pending(total) for total in totals]

    def gradients(self, grad_y: Array, grad_last: Array) -> list[Pending]:
        """Begin to compute the gradients with respect to the arrays."""
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
        rates, by_decay = self._map(_rates, of_gates, gates, dt)
        to_steps, to_weights = (
            (_to_steps_complex, _to_weights_complex) if self._is_complex else (_to_steps, _to_weights)
        )
        by_u_and_dt = self._map(to_steps, of_inputs, inward, u, dt, rates, decays)
        by_weights = self._map(to_weights, of_inputs, u, dt, weights, h)
        shapes = self._shapes
        return [
            *self.summed(by_u_and_dt, shapes[:2]),
            *self.summed([by_decay], shapes[2:3]),
            *self.summed(by_weights, shapes[3:]),
        ]


# ----- Functions of one state, which become kernels


def _steps(u: Any, dt: Any, decay: Any, inward: Any) -> Any:
    """Return the gate and the input of a step."""
    return np.exp(dt * decay), dt * u * inward


def _steps_complex(u: Any, dt: Any, decay: Any, inward: Any) -> Any:
    """Return the gate and the input of a step.

    Errors of gates grow with the steps, and WGSL's sine and cosine may be off by 2^-11. These are within some units in
    the last place: Cephes' polynomials for float32, after the quarters of a turn have been taken off in three parts.
    """
    angle = dt * np.imag(decay)
    quarters = np.rint(angle * np.float32(2 / np.pi))
    rest = angle - quarters * np.float32(1.5703125)
    rest = rest - quarters * np.float32(4.837512969970703125e-4)
    rest = rest - quarters * np.float32(7.54978995489188216e-8)
    square = rest * rest
    sine = np.float32(-1.9515295891e-4) * square + np.float32(8.3321608736e-3)
    sine = (sine * square - np.float32(1.6666654611e-1)) * square * rest + rest
    cosine = np.float32(2.443315711809948e-5) * square - np.float32(1.388731625493765e-3)
    cosine = (cosine * square + np.float32(4.166664568298827e-2)) * square * square - np.float32(0.5) * square + 1
    turn = quarters - 4 * np.floor(quarters * np.float32(0.25))
    odd = (turn == 1) | (turn == 3)
    imag, real = np.where(odd, cosine, sine), np.where(odd, sine, cosine)
    imag = np.where(turn >= 2, -imag, imag)
    real = np.where((turn == 1) | (turn == 2), -real, real)
    size = np.exp(dt * np.real(decay))
    return size * real + 1j * (size * imag), dt * u * inward


def _product(one: Any, other: Any) -> Any:
    return one * other


def _twice_real_product(one: Any, other: Any) -> Any:
    return 2 * np.real(one * other)


def _to_states(outward: Any, grad_y: Any, grad_last: Any, is_last: Any) -> Any:
    return outward * grad_y + grad_last * is_last


def _to_states_complex(outward: Any, grad_y: Any, grad_last: Any, is_last: Any) -> Any:
    return np.conj(outward) * (2 * grad_y) + grad_last * is_last


def _rates(of_gate: Any, gate: Any, dt: Any) -> Any:
    """Return the gradient with respect to dt A, and that part of it that is the decay's."""
    rate = of_gate * np.conj(gate)
    return rate, rate * dt


def _to_steps(grad: Any, inward: Any, u: Any, dt: Any, rate: Any, decay: Any) -> Any:
    """Return what the gradients with respect to u and dt are sums of."""
    return grad * inward * dt, grad * inward * u + rate * decay


def _to_steps_complex(grad: Any, inward: Any, u: Any, dt: Any, rate: Any, decay: Any) -> Any:
    of_product = np.real(grad * np.conj(inward))
    return of_product * dt, of_product * u + np.real(rate * np.conj(decay))


def _to_weights(grad: Any, u: Any, dt: Any, grad_y: Any, h: Any) -> Any:
    """Return what the gradients with respect to B and C are sums of."""
    return grad * (u * dt), grad_y * h


def _to_weights_complex(grad: Any, u: Any, dt: Any, grad_y: Any, h: Any) -> Any:
    return grad * (u * dt), np.conj(h) * (2 * grad_y)


@operator(identity=(0, 0), name="sums")
def _SUMS(left: Any, right: Any) -> Any:  # noqa: N802 (a constant)
    return left[0] + right[0], left[1] + right[1]
