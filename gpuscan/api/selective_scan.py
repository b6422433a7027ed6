"""Mamba's selective scan of NumPy arrays, and its gradient. The states never leave the device that computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array as DeviceArray
from gpuscan.api.array import SomeArray
from gpuscan.api.device import Device, resolve_device
from gpuscan.api.map import map as map_arrays
from gpuscan.api.pieces import PartSlices, Pending, cut_axes, in_flight
from gpuscan.api.reduce import reduce
from gpuscan.api.row_scan import device_for
from gpuscan.api.selective_states import STATES, TIME, Array, StateRun
from gpuscan.array_types import AnyDType
from gpuscan.device.transfer import start_call
from gpuscan.engine.element_copy import bindable, contiguous
from gpuscan.engine.selective_scan import (
    can_differentiate,
    gradient_numbers,
    gradient_sources,
    selective_gradients,
    selective_scan,
)
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.problem.broadcasting import broadcast_shapes, find_repeated_axes, sum_to_shape
from gpuscan.reference import selective_stages as stages


@dataclass(frozen=True, eq=False)
class SelectiveScan:
    """The arrays of a selective scan.

    With the states ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]``, which begin at 0, the outputs are
    ``y[t] = sum over states of C[t] h[t]``; if the states are complex, twice the real part of that.

    All arrays have the same number of axes. The last two are states and time. An axis that an array does not
    depend on has length 1.

    Attributes:
        u: the input: it depends on all axes but the states.
        dt: the step sizes, in the shape of `u`; with `softplus`, the numbers that it takes to give the step sizes.
        A: the decays: they do not depend on time.
        B: the weights of the input.
        C: the weights of the output.
        device: where to compute (default: gpuscan's default device, or NumPy if that has no such numbers).
        softplus: True to compute the step sizes from `dt`, on the device.
    """

    u: Array
    dt: Array
    A: Array
    B: Array
    C: Array
    device: Device | str | None = field(default=None, kw_only=True)
    softplus: bool = field(default=False, kw_only=True)

    @cached_property
    def arrays(self) -> tuple[Array, Array, Array, Array, Array]:
        return self.u, self.dt, self.A, self.B, self.C

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the states."""
        return broadcast_shapes(*(array.shape for array in self.arrays))

    def outputs(self) -> tuple[Array, Array]:
        """Return y, in the shape of `u`, and the states after the last step, with a time axis of length 1."""
        device = resolve_device(device_for(self.arrays) if self.device is None else self.device)
        if device is None:
            return stages.selective_scan(self.u, self._steps, self.A, self.B, self.C)
        y = np.empty(self.u.shape, self.u.dtype)
        last = np.empty((*self.shape[:TIME], 1), self.A.dtype)
        if self._fits(device):
            return self._outputs_on(device, y, last)

        def compute_part(part: PartSlices) -> list[Pending]:
            run = StateRun(device, self._sources(device, self.arrays, part)[0])
            h = run.states()[1]
            return _read_all(device, [*run.sum_repeated_axes([run.outputs(h)], [y[part].shape]), h[..., -1:].copy()])

        for part, (outputs, states) in in_flight(compute_part, self._state_parts()):
            y[part] = outputs().reshape(y[part].shape)
            last[part] = states()
        return y, last

    def _fits(self, device: Device) -> bool:
        return _fits(device, self.A.dtype, self.shape)

    def _outputs_on(self, device: Device, y: Array, last: Array) -> tuple[Array, Array]:
        """Compute the outputs and the last states by one kernel, into arrays."""
        arrays = self._by_channels()
        shape = arrays[0].shape
        states, length = self.shape[STATES:]
        outputs = y.reshape(shape), last.reshape(*shape[:3], states, 1)

        def compute_part(part: PartSlices) -> list[Pending]:
            results = selective_scan(*map(device.asarray, self._sources(device, arrays, part)[0]))
            # Parts are contiguous, because the first axes are cut first, so results are read directly into the outputs.
            pairs = zip(results, outputs, strict=True)
            return [start_call(device._readers, partial(array._read, into[part])).result for array, into in pairs]

        # The weights of a group may be more numbers than its input.
        inner = length * -(-max(states, shape[2]) // shape[2])
        for _, reads in in_flight(compute_part, cut_axes(shape[:3], inner, ARRAYS.piece_bytes // 4)):
            for wait in reads:
                wait()
        return y, last

    @property
    def _steps(self) -> Array:
        """The step sizes."""
        return softplus(self.dt) if self.softplus else self.dt

    def _sources(
        self, device: Device, arrays: Sequence[Array], part: PartSlices
    ) -> tuple[list[SomeArray], DeviceArray | None]:
        """Return a part of the arrays with the step sizes, and with `softplus` what these are computed from."""
        own: list[SomeArray] = [_within(array, part) for array in arrays]
        if not self.softplus:
            return own, None
        given = device.asarray(own[1])
        own[1] = map_arrays(softplus, given)
        return own, given

    @cached_property
    def _channels(self) -> tuple[int, int, int]:
        """The axes before the states as three: batches, groups of channels that share B and C, channels.

        If none of B and C depends on both time and group, there is one group.
        """
        *lead, groups, channels = self.shape[:STATES]
        one_group = all(weights.shape[TIME] == 1 or weights.shape[STATES - 2] == 1 for weights in (self.B, self.C))
        return (prod(lead), 1, groups * channels) if one_group else (prod(lead), groups, channels)

    def _whole(self, array: Array) -> tuple[int, ...]:
        """Return the shape of an array with all batches or one, and with all channels if it is not one for many."""
        lead, own = self.shape[: STATES - 2], array.shape[: STATES - 2]
        by_channel = array.shape[TIME] == 1 or array is self.u or array is self.dt
        channels = self.shape[STATES - 2 : STATES] if by_channel else array.shape[STATES - 2 : STATES]
        return (*(lead if prod(own) > 1 else own), *channels, *array.shape[STATES:])

    def _by_channels(self) -> list[Array]:
        """Return the arrays with the axes of `_channels` before the states, or 1 where they do not depend on them."""
        copies = []
        for array in self.arrays:
            whole = self._whole(array)
            batches, channels = prod(whole[: STATES - 2]), whole[STATES - 2 : STATES]
            shape = self._channels[1:] if prod(channels) == prod(self._channels[1:]) else channels
            copies.append(np.broadcast_to(array, whole).reshape(batches, *shape, *array.shape[STATES:]))
        return copies

    def gradients(self, grad_y: Array, grad_last: Array) -> tuple[Array, ...]:
        """Return the gradients with respect to u, dt, A, B and C. The states are computed again.

        The gradient of a complex number ``a + bi`` is ``dL/da + i dL/db``.

        Args:
            grad_y: the gradient with respect to y.
            grad_last: the gradient with respect to the states after the last step.
        """
        device = resolve_device(device_for(self.arrays) if self.device is None else self.device)
        if device is None:
            arrays = self.u, self._steps, self.A, self.B, self.C
            of_u, of_dt, *others = stages.selective_gradient(*arrays, grad_y, grad_last)
            return of_u, softplus_gradient(of_dt, self.dt) if self.softplus else of_dt, *others
        sizes = prod(self._channels), self._channels[2], *self.shape[STATES:]
        if self._fits(device) and can_differentiate(device._context, *sizes):
            return self._gradients_on(device, grad_y, grad_last)
        totals = tuple(np.zeros(array.shape, array.dtype) for array in self.arrays)

        def compute_part(part: PartSlices) -> list[Pending]:
            own, given = self._sources(device, self.arrays, part)
            grads = StateRun(device, own).gradients(grad_y[part], grad_last[part])
            if given is not None:
                grads[1] = map_arrays(softplus_gradient, grads[1].reshape(given.shape), given)
            return _read_all(device, grads)

        for part, reads in in_flight(compute_part, self._state_parts()):
            for total, values in zip(totals, reads, strict=True):
                total_part = _within(total, part)
                total_part += values().reshape(total_part.shape)
        return totals

    def _gradients_on(self, device: Device, grad_y: Array, grad_last: Array) -> tuple[Array, ...]:
        """Compute the gradients by one kernel."""
        arrays = self._by_channels()
        shape, (states, length) = arrays[0].shape, self.shape[STATES:]
        weights = grad_y.reshape(shape), grad_last.reshape(*shape[:3], states, 1)
        of_inputs = [np.empty(shape, np.float32) for _ in range(2)]
        of_weights = [np.zeros(array.shape, np.float32) for array in arrays[2:]]

        def compute_part(part: PartSlices) -> list[Pending]:
            own, given = self._sources(device, arrays, part)
            own += [_within(array, part) for array in weights]
            grads = selective_gradients(gradient_sources(device._context, *own))
            if given is not None:
                grads[1] = map_arrays(softplus_gradient, DeviceArray._of(device, grads[1]), given)
            # All kernels are compiled before another thread reads: OpenGL's drivers let one thread in at a time.
            sums = [reduce(DeviceArray._of(device, array), axis=0, device=device) for array in grads[2:]]
            inputs = zip(grads[:2], of_inputs, strict=True)
            pending: list[Pending] = [
                start_call(device._readers, partial(array._read, into[part])).result for array, into in inputs
            ]
            return [*pending, *_read_all(device, sums)]

        # Channels of a group stay together, since their gradients with respect to B and C are summed.
        limit = min(4 * ARRAYS.piece_bytes, device._context.binding_limit) // 4
        parts = cut_axes(shape[:2], gradient_numbers(device._context, shape[2], states, length), limit)
        for part, (u_read, dt_read, *sums) in in_flight(compute_part, parts):
            for total, wait in zip(of_weights, sums, strict=True):
                total_part = _within(total, part)
                total_part += sum_to_shape(total_part.shape, wait())
            u_read(), dt_read()
        pairs = zip(self.arrays[2:], of_weights, strict=True)
        totals = (sum_to_shape(array.shape, grad.reshape(self._whole(array))) for array, grad in pairs)
        return (*(grad.reshape(self.u.shape) for grad in of_inputs), *totals)

    def _state_parts(self) -> Iterator[PartSlices]:
        return cut_axes(self.shape[:STATES], prod(self.shape[STATES:]), ARRAYS.max_states)


@dataclass(frozen=True, eq=False)
class DeviceScan:
    """The arrays of a selective scan on a device: (batch, group, channel, state, time), as `SelectiveScan` has them.

    Attributes:
        u, dt, A, B, C: the arrays. A, B and C may have length 1 along batches, and B and C along groups and channels.
        device: the device.
    """

    u: DeviceArray
    dt: DeviceArray
    A: DeviceArray
    B: DeviceArray
    C: DeviceArray
    device: Device

    @property
    def arrays(self) -> tuple[DeviceArray, ...]:
        return self.u, self.dt, self.A, self.B, self.C

    @property
    def _shape(self) -> tuple[int, ...]:
        return broadcast_shapes(*(array.shape for array in self.arrays))

    def outputs(self) -> tuple[DeviceArray, DeviceArray]:
        """Return y, in the shape of `u`, and the states after the last step, with a time axis of length 1."""
        if _fits(self.device, self.A.dtype, self._shape) and self._is_bindable:
            computed = selective_scan(*map(self._make_bindable, self.arrays))
            y, last = (DeviceArray._of(self.device, result) for result in computed)
            return y, last
        run = StateRun(self.device, self.arrays)
        h = run.states()[1]
        (y,) = run.sum_repeated_axes([run.outputs(h)], [self.u.shape])
        return y.reshape(self.u.shape), h[..., -1:].copy()

    def gradients(self, grad_y: DeviceArray, grad_last: DeviceArray) -> tuple[Any, ...]:
        """Return the gradients as `SelectiveScan.gradients` does."""
        context, (*lead, states, length) = self.device._context, self._shape
        channels = lead[2]
        numbers = lead[0] * lead[1] * gradient_numbers(context, channels, states, length)
        fits = (
            _fits(self.device, self.A.dtype, self._shape) and self._is_bindable and 4 * numbers <= context.binding_limit
        )
        if fits and can_differentiate(context, prod(lead), channels, states, length):
            given = map(self._make_bindable, (*self.arrays, grad_y, grad_last))
            grads: list[DeviceArray] = [
                DeviceArray._of(self.device, grad) for grad in selective_gradients(gradient_sources(context, *given))
            ]
            # Several strips of channels have a sum each, of all batches.
            grads[2:] = [reduce(grad, axis=0) for grad in grads[2:]]
        else:
            grads = StateRun(self.device, self.arrays).gradients(grad_y, grad_last)
        return tuple(self._sum_copies(grad, own.shape) for grad, own in zip(grads, self.arrays, strict=True))

    @property
    def _is_bindable(self) -> bool:
        nbytes = max(4 * prod(self.u.shape), *(array.nbytes for array in self.arrays))
        return bool(nbytes <= self.device._context.binding_limit)

    def _make_bindable(self, array: DeviceArray) -> Any:
        return bindable(contiguous(array))

    def _sum_copies(self, grad: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
        """Return the sum over the copies of an array of this shape."""
        if grad.ndim == len(shape):
            axes = find_repeated_axes(shape, grad.shape)
            grad = reduce(grad, axis=axes) if axes else grad
        return grad.reshape(shape)


# ----- Step sizes


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)), of arrays and in functions of `gpuscan.map`."""
    return np.logaddexp(x, np.zeros_like(x))


def softplus_gradient(grad: object, x: Any) -> Any:
    """Return a gradient with respect to x from one with respect to softplus(x)."""
    return grad / (1 + np.exp(-x))


# ----- Parts


def _read_all(device: Device, arrays: Iterable[DeviceArray]) -> list[Pending]:
    """Begin to read arrays, and return functions that wait for them."""
    return [start_call(device._readers, array.numpy).result for array in arrays]


def _fits(device: Device, dtype: AnyDType, shape: Sequence[int]) -> bool:
    """Return True if one kernel computes the outputs of states of this dtype and shape on a device."""
    weights = 4 * prod(shape[STATES:])
    return dtype == np.float32 and prod(shape) > 0 and weights <= device._context.binding_limit


def _within(array: Array, part: PartSlices) -> Array:
    """Return the part of an array; all of it along axes of length 1."""
    return array[
        tuple(
            slice_of_axis if length > 1 else slice(None)
            for slice_of_axis, length in zip(part, array.shape, strict=False)
        )
    ]
