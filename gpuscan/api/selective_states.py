"""Mamba's recurrence by kernels that write the states: for numbers and lengths that the fused kernels do not take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api import linear_recurrence as recurrence
from gpuscan.api.array import Array as DeviceArray
from gpuscan.api.array import SomeArray
from gpuscan.api.device import Device
from gpuscan.api.map import map as map_arrays
from gpuscan.api.reduce import reduce
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.operators.operator import operator
from gpuscan.planning.tile_shapes import power_above
from gpuscan.problem.broadcasting import find_repeated_axes

if TYPE_CHECKING:
    from gpuscan.api.annotations import Value

Array = AnyArray

# The last axes of all arrays. Those before are batches and channels.
STATES, TIME = -2, -1


class StateRun:
    """The computation of one part on a device."""

    def __init__(self, device: Device, arrays: Sequence[SomeArray]) -> None:
        self._device = device
        self._is_complex = arrays[2].dtype.kind == "c"
        self._shapes = [array.shape for array in arrays]
        self.arrays = [device.asarray(array) for array in arrays]

    def _map(self, function: Callable[..., object], *arrays: object) -> Any:
        return map_arrays(function, *arrays, device=self._device)

    def states(self) -> tuple[DeviceArray, DeviceArray]:
        """Return the gates and the states."""
        u, dt, decays, inward, _ = self.arrays
        gates, inputs = self._map(_steps, u, dt, decays, inward)
        return gates, recurrence.linear_recurrence(gates, inputs, axis=TIME, device=self._device)

    def outputs(self, h: DeviceArray) -> DeviceArray:
        """Return what y is the sum of."""
        products: DeviceArray = self._map(twice_real_product if self._is_complex else product, h, self.arrays[4])
        return products

    def sum_repeated_axes(self, values: Sequence[DeviceArray], shapes: Sequence[tuple[int, ...]]) -> list[DeviceArray]:
        """Return the sums of arrays over the axes along which their shapes have length 1."""
        axes = [find_repeated_axes(shape, value.shape) for value, shape in zip(values, shapes, strict=True)]
        if axes[0] and axes == [axes[0]] * 2:
            return list(reduce(tuple(values), _SUMS, axis=axes[0], device=self._device))
        pairs = zip(values, axes, strict=True)
        return [reduce(value, axis=repeated, device=self._device) if repeated else value for value, repeated in pairs]

    def _mark_end(self, dtype: AnyDType) -> DeviceArray:
        """Return ones at the last step and zeros at the others. Calls of other lengths view the same memory."""
        length = self._shapes[0][TIME]
        marks = np.zeros(power_above(length), dtype)
        marks[-1:] = 1
        return self._device.asarray(marks)[len(marks) - length :]

    def gradients(self, grad_y: SomeArray, grad_last: SomeArray) -> list[DeviceArray]:
        """Return the gradients with respect to the arrays."""
        u, dt, decays, inward, outward = self.arrays
        weights, after = (self._device.asarray(array) for array in (grad_y, grad_last))
        ends = self._mark_end(grad_y.dtype)
        gates, h = self.states()
        a, states = gates, h
        if self._is_complex:
            # y is twice the real part of the sum of products.
            weights, a, states = self._map(np.add, weights, weights), self._map(np.conj, gates), self._map(np.conj, h)
        of_states = self._map(_to_states, outward, weights, after, ends)
        of_gates, of_inputs, _ = recurrence.gradients(
            a, states, of_states, axis=TIME, initial=None, reverse=False, device=self._device
        )
        rates, by_decay = self._map(_rates, of_gates, gates, dt)
        by_u_and_dt = self._map(_to_steps, of_inputs, inward, u, dt, rates, decays)
        by_weights = self._map(_to_weights, of_inputs, u, dt, weights, states)
        shapes = self._shapes
        return [
            *self.sum_repeated_axes(by_u_and_dt, shapes[:2]),
            *self.sum_repeated_axes([by_decay], shapes[2:3]),
            *self.sum_repeated_axes(by_weights, shapes[3:]),
        ]


# ----- Functions of one state, which become kernels


def _steps(u: Value, dt: Value, decay: Value, inward: Value) -> object:
    """Return the gate and the input of a step."""
    return np.exp(dt * decay), dt * u * inward


def product(one: Value, other: Value) -> Value:
    """Return what an output is the sum of, over states."""
    return one * other


def twice_real_product(one: Value, other: Value) -> object:
    """Return the same of a complex state, which stands for itself and its conjugate."""
    return 2 * np.real(one * other)


def _to_states(outward: Value, grad_y: Value, grad_last: Value, is_last: Value) -> object:
    return np.conj(outward) * grad_y + grad_last * is_last


def _rates(of_gate: Value, gate: Value, dt: Value) -> tuple[Value, Value]:
    """Return the gradient with respect to dt A, and that part of it that is the decay's."""
    rate = of_gate * np.conj(gate)
    return rate, rate * dt


def _to_steps(grad: Value, inward: Value, u: Value, dt: Value, rate: Value, decay: Value) -> object:
    """Return what the gradients with respect to u and dt are sums of."""
    of_product = np.real(grad * np.conj(inward))
    return of_product * dt, of_product * u + np.real(rate * np.conj(decay))


def _to_weights(grad: Value, u: Value, dt: Value, grad_y: Value, conjugate: Value) -> object:
    """Return what the gradients with respect to B and C are sums of."""
    return grad * (u * dt), grad_y * conjugate


@operator(identity=(0, 0), name="sums")
def _SUMS(left: tuple[Value, Value], right: tuple[Value, Value]) -> tuple[Value, Value]:  # noqa: N802 (a constant)
    return left[0] + right[0], left[1] + right[1]
