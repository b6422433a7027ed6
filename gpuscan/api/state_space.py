"""`gpuscan.selective_scan`, its gradient, and one step of it: mamba's functions for arrays of NumPy and of a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.api.array import SomeArray, arrays_on_device, as_some_array, in_dtype
from gpuscan.api.call_device import find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.map import map as map_arrays
from gpuscan.api.reduce import reduce
from gpuscan.api.selective_scan import DeviceScan, SelectiveScan, softplus, softplus_gradient
from gpuscan.api.selective_states import product, twice_real_product
from gpuscan.array_types import AnyDType
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.problem.arguments import OnDevice, as_flag, as_numpy_arrays

if TYPE_CHECKING:
    from gpuscan.api.annotations import Value


@takes_numpy("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
@launchable_with(data=["u", "delta", "A", "B", "C", "D", "z", "delta_bias"])
def selective_scan(
    u: object,
    delta: object,
    A: object,  # noqa: N803 (mamba's name)
    B: object,  # noqa: N803
    C: object,  # noqa: N803
    D: object = None,  # noqa: N803
    z: object = None,
    delta_bias: object = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    *,
    device: Device | str | int | None = None,
) -> Any:
    """Return the outputs of mamba's selective state space, with the signature of mamba's `selective_scan_fn`.

    For each batch, channel and state: ``h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]``, with
    ``dt = softplus(delta + delta_bias)``. The output is ``y[t] = (sum over states of C[t] h[t] + D u[t]) silu(z[t])``.
    For complex states, the sum is twice its real part. The formulas omit optional arguments that are not passed. States
    are computed in float32, or in float64 for float64.

    Args:
        u: the input, of shape (batch, dim, length).
        delta: the step sizes, of shape (batch, dim, length).
        A: the decay rates, of shape (dim, N), real or complex.
        B: the weights of the input: of shape (dim, N), or varying with time (batch, N, length), or with groups of
            channels as well (batch, groups, N, length). If A is complex, so are B and C.
        C: the weights of the states in the output, in one of these shapes.
        D: the weights of the input in the output, of shape (dim,); or None.
        z: the gates of the output, of the shape of `u`; or None.
        delta_bias: numbers to add to `delta`, of shape (dim,); or None.
        delta_softplus: True to apply softplus to the step sizes.
        return_last_state: True to return the states after the last step as well.
        device: as in `gpuscan.scan`.

    Returns:
        The output y, of the shape and dtype of `u`, on the device if an argument is there; with `return_last_state` the
        pair ``(y, states)``, with states of shape (batch, dim, N).

    Raises:
        ValueError: the shapes do not fit, or there is no time step.
        TypeError: an array is not of floats.
        UnsupportedDtypeError: float64 arrays are on a device that has no 64-bit floats.

    For real float32 states, one kernel computes the outputs and keeps the states in registers. Other states take N
    times the memory of the input. See Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces"
    (2023), algorithm 2.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> u = np.ones((1, 2, 3), np.float32)
        >>> A, B = -np.ones((2, 4), np.float32), np.full((2, 4), 0.25, np.float32)
        >>> gs.selective_scan(u, 0.5 * u, A, B, np.ones((2, 4), np.float32))[0, 0].round(3)
        array([0.5  , 0.803, 0.987], dtype=float32)
    """
    call = _Call.of({"u": u, "delta": delta, "A": A, "B": B, "C": C, "D": D, "z": z, "delta_bias": delta_bias}, device)
    y, last = call.compute_scan(as_flag("delta_softplus", delta_softplus))
    y = call.gate_outputs(y)
    with_state = as_flag("return_last_state", return_last_state)
    return (y, last.reshape(call.shape[0], call.shape[1], -1)) if with_state else y


@takes_numpy("u", "delta", "A", "B", "C", "grad_y", "D", "z", "delta_bias", "grad_last_state")
@launchable_with(data=["u", "delta", "A", "B", "C", "grad_y", "D", "z", "delta_bias", "grad_last_state"])
def selective_scan_vjp(
    u: object,
    delta: object,
    A: object,  # noqa: N803
    B: object,  # noqa: N803
    C: object,  # noqa: N803
    grad_y: object,
    D: object = None,  # noqa: N803
    z: object = None,
    delta_bias: object = None,
    delta_softplus: bool = False,
    *,
    grad_last_state: object = None,
    device: Device | str | int | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of a loss with respect to the arguments of `selective_scan`.

    For real states, the gradient with respect to the state h[t] is
    ``G[t] = C[t] silu(z[t]) grad_y[t] + exp(dt[t+1] A) G[t+1]``, beginning with `grad_last_state`. The gradients of the
    arguments follow by the chain rule: ``grad_u[t] = dt[t] (sum over states of B[t] G[t]) + D silu(z[t]) grad_y[t]``,
    for example. The states are computed again from the arguments.

    Args:
        u, delta, A, B, C, D, z, delta_bias, delta_softplus, device: as they were passed to `gpuscan.selective_scan`.
        grad_y: the gradient of the loss with respect to the outputs, in the shape of `u`.
        grad_last_state: the gradient with respect to the last states, of shape (batch, dim, N) (default: 0).

    Returns:
        ``(grad_u, grad_delta, grad_A, grad_B, grad_C, grad_D, grad_z, grad_delta_bias)``, each in the shape and dtype
        of its argument, on the device if an argument is there; None for an argument that is None. The gradient of a
        complex number ``a + bi`` is ``dL/da + i dL/db``.

    Raises:
        ValueError, TypeError, UnsupportedDtypeError: as `gpuscan.selective_scan` does.

    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), appendix D.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> u = np.ones((1, 1, 3), np.float32)
        >>> A, ones = np.log(np.full((1, 1), 0.5, np.float32)), np.ones((1, 1), np.float32)
        >>> grads = gs.selective_scan_vjp(u, u, A, ones, ones, u)
        >>> grads[0]
        array([[[1.75, 1.5 , 1.  ]]], dtype=float32)
    """
    named = {"u": u, "delta": delta, "A": A, "B": B, "C": C, "D": D, "z": z, "delta_bias": delta_bias}
    call = _Call.of(named | {"grad_y": grad_y, "grad_last_state": grad_last_state}, device)
    return call.gradients(as_flag("delta_softplus", delta_softplus))


@launchable_with(data=["x", "dt", "A", "B", "C", "D", "z", "dt_bias"])
def selective_state_update(
    state: Any,
    x: object,
    dt: object,
    A: object,  # noqa: N803
    B: object,  # noqa: N803
    C: object,  # noqa: N803
    D: object = None,  # noqa: N803
    z: object = None,
    dt_bias: object = None,
    dt_softplus: bool = False,
) -> Any:
    """Take one step of a selective scan, for inference: write the next states to `state`, and return the output.

    The next states are ``exp(dt A) state + dt B x``, with ``dt = softplus(dt + dt_bias)``. The output is
    ``y = (sum over the next states of C state + D x) silu(z)``. The formulas omit optional arguments that are not
    passed. Complex states give twice the real part of the sum, as in `selective_scan`. mamba's `selective_state_update`
    has the same signature. If `state` is a NumPy array, NumPy computes the step.

    Args:
        state: the states, of shape (batch, dim, N), or (batch, heads, dim, N) for Mamba-2. They are changed in place.
        x: the input, of shape (batch, dim) or (batch, heads, dim).
        dt: the step sizes, of the shape of `x`.
        A: the decay rates, of shape (dim, N) or (heads, dim, N).
        B: the weights of the input, of shape (batch, N), or (batch, groups, N) with groups that divide the heads.
        C: the weights of the states in the output, in the shape of `B`.
        D: the weights of the input in the output, of shape (dim,) or (heads, dim); or None.
        z: the gates of the output, of the shape of `x`; or None.
        dt_bias: numbers to add to `dt`, in the shape of `D`; or None.
        dt_softplus: True to apply softplus to the step sizes.

    Returns:
        The output, in the shape and dtype of `x`, on the device if `state` is there.

    Raises:
        ValueError: the shapes do not fit.
        TypeError: `state` is neither a NumPy array that can be written nor a `gpuscan.Array`.

    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), section 3.3.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> state, ones = np.zeros((1, 2, 4), np.float32), np.ones((1, 2), np.float32)
        >>> A, B = -np.ones((2, 4), np.float32), np.full((1, 4), 0.25, np.float32)
        >>> [gs.selective_state_update(state, ones, 0.5 * ones, A, B, 4 * B)[0, 0].round(3) for _ in range(2)]
        [np.float32(0.5), np.float32(0.803)]
    """
    on_device = isinstance(state, OnDevice)
    if not on_device and not (isinstance(state, np.ndarray) and state.flags.writeable):
        raise TypeError(
            f"state of type {type(state).__name__} was passed, which cannot be written; pass a NumPy array or a "
            "gpuscan.Array"
        )
    given = {"x": x, "dt": dt, "A": A, "B": B, "C": C, "D": D, "z": z, "dt_bias": dt_bias}
    arrays = {name: as_some_array(array) for name, array in given.items() if array is not None}
    for name in ("x", "dt", "A", "B", "C"):
        if name not in arrays:
            raise TypeError(f"{name}=None was passed; pass an array")
    check_update_shapes(tuple(state.shape), {name: tuple(array.shape) for name, array in arrays.items()})
    if on_device:
        device = find_call_device([state, *arrays.values()], None)
        assert device is not None
        arrays = {name: device.asarray(array) for name, array in arrays.items()}
    dtype, wide = arrays["x"].dtype, np.result_type(state.dtype, np.float32)
    real = np.zeros(0, wide).real.dtype  # only states and their weights may be complex
    arrays = {name: in_dtype(array, wide if name in ("A", "B", "C") else real) for name, array in arrays.items()}
    inputs, step, decays, b, c = (arrays[name] for name in ("x", "dt", "A", "B", "C"))
    d, gate, bias = map(arrays.get, ("D", "z", "dt_bias"))
    groups = state.shape[1] if state.ndim == 4 else 1

    def of_states(weights: SomeArray) -> SomeArray:
        """Return B or C with the axes of the states."""
        if weights.ndim == 3 and weights.shape[1] not in (1, groups):
            weights = _repeat_groups(weights, groups // weights.shape[1])
        if weights.ndim == 3:
            return weights[:, :, np.newaxis]
        return weights[:, np.newaxis, np.newaxis] if state.ndim == 4 else weights[:, np.newaxis]

    step = step if bias is None else step + bias
    step = _apply(softplus, step) if as_flag("dt_softplus", dt_softplus) else step
    before = in_dtype(state, wide)
    after = _apply(_next_state, before, inputs[..., np.newaxis], step[..., np.newaxis], decays, of_states(b))
    state[...] = in_dtype(after, state.dtype)
    y = _sum(_apply(product if wide == real else twice_real_product, after, of_states(c)), (-1,)).reshape(inputs.shape)
    y = _apply(_plus_product, y, inputs, d) if d is not None else y
    return in_dtype(_apply(_multiply_by_gate, y, gate) if gate is not None else y, dtype)


@dataclass(frozen=True, eq=False)
class _Call:
    """The checked arrays of a scan, all of NumPy or all on a device.

    Attributes:
        arrays: the arrays that were passed, by their names, in the dtype of computation.
        dtypes: their own dtypes.
        device: the device of the scan; None for NumPy.
        wide: the dtype of the computation.
    """

    arrays: dict[str, SomeArray]
    dtypes: dict[str, AnyDType]
    device: Device | None
    wide: AnyDType

    @classmethod
    def of(cls, named: Mapping[str, object], device: Device | str | int | None) -> _Call:
        given = {name: as_some_array(array) for name, array in named.items() if array is not None}
        for name in ("u", "delta", "A", "B", "C", *(["grad_y"] if "grad_y" in named else [])):
            if name not in given:
                raise TypeError(f"{name}=None was passed; pass an array")
        for name, array in given.items():
            if array.dtype.kind in "biuOSU":
                raise TypeError(f"{name} of dtype {array.dtype} was passed, but it must be of floats")
        u, decays = given["u"], given["A"]
        check_scan_shapes({name: tuple(array.shape) for name, array in given.items() if not name.startswith("grad")})
        states = *u.shape[:2], decays.shape[1]
        for name, shape in (("grad_y", u.shape), ("grad_last_state", states)):
            if name in given and tuple(given[name].shape) != tuple(shape):
                raise ValueError(
                    f"{name} of shape {tuple(given[name].shape)} was passed; pass an array of shape {tuple(shape)}"
                )
        call_device = find_call_device(given.values(), device)
        wide = np.result_type(u.dtype.newbyteorder("="), np.float32)
        if any(isinstance(array, OnDevice) for array in given.values()):
            assert call_device is not None
            given = {name: call_device.asarray(array) for name, array in given.items()}
        elif wide == np.float64 and device is None and call_device is not None and not call_device.capabilities.float64:
            call_device = None
        if wide == np.float64 and call_device is not None and not call_device.capabilities.float64:
            raise UnsupportedDtypeError(
                f"u of float64 was passed for {call_device!r}, which has no 64-bit floats; pass u.astype(np.float32)"
            )
        dtypes = {name: array.dtype for name, array in given.items()}
        arrays = {name: array if array.dtype.kind == "c" else in_dtype(array, wide) for name, array in given.items()}
        return cls(arrays, dtypes, call_device, wide)

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, dim, length)."""
        return tuple(self.arrays["u"].shape)

    def compute_scan(self, of_softplus: bool) -> tuple[SomeArray, SomeArray]:
        """Return y without D and z, in the shape of u and the dtype of computation, and the last states."""
        y, last = self._scan(of_softplus).outputs()
        return y.reshape(self.shape), last

    def gate_outputs(self, y: SomeArray) -> SomeArray:
        """Return the outputs of the call, from the outputs of the scan."""
        u, d, z = self.arrays["u"], self.arrays.get("D"), self.arrays.get("z")
        if d is not None:
            y = _apply(_plus_product, y, u, d[:, np.newaxis])
        return in_dtype(y if z is None else _apply(_multiply_by_gate, y, z), self.dtypes["u"])

    def gradients(self, of_softplus: bool) -> tuple[SomeArray | None, ...]:
        """Return the gradients with respect to the inputs, in their order; None for an input that was not passed."""
        arrays, scan = self.arrays, self._scan(of_softplus)
        u, grad = arrays["u"], arrays["grad_y"]
        d, z, bias, last = map(arrays.get, ("D", "z", "delta_bias", "grad_last_state"))
        of_arguments: dict[str, SomeArray | None] = dict.fromkeys(("u", "delta", "A", "B", "C", "D", "z", "delta_bias"))
        if z is not None:
            y = scan.outputs()[0].reshape(self.shape)
            y = y if d is None else _apply(_plus_product, y, u, d[:, np.newaxis])
            of_arguments["z"] = _apply(_grad_gate, grad, y, z)
            grad = _apply(_multiply_by_gate, grad, z)
        shape = (*self._lead, arrays["A"].shape[1], 1)
        if last is None:
            last = np.zeros(shape, scan.A.dtype)
            last = last if self.device is None or not isinstance(u, OnDevice) else self.device.asarray(last)
        grads = grad.reshape(scan.u.shape), in_dtype(last, scan.A.dtype).reshape(shape)
        of_u: SomeArray
        of_step: SomeArray
        if isinstance(scan, DeviceScan):
            of_u, of_step, of_decay, *of_weights = scan.gradients(*arrays_on_device(grads))
        else:
            of_u, of_step, of_decay, *of_weights = scan.gradients(*as_numpy_arrays(grads))
        of_u, of_step = of_u.reshape(self.shape), of_step.reshape(self.shape)
        if d is not None:
            of_u = _apply(_plus_product, of_u, grad, d[:, np.newaxis])
            of_arguments["D"] = _sum(grad * u, (0, 2))
        if of_softplus and isinstance(scan, DeviceScan):
            shifted = arrays["delta"] if bias is None else arrays["delta"] + bias[:, np.newaxis]
            of_step = _apply(softplus_gradient, of_step, shifted)
        if bias is not None:
            of_arguments["delta_bias"] = _sum(of_step, (0, 2))
        of_arguments |= {"u": of_u, "delta": of_step, "A": of_decay}
        for name, grad_weights in zip("BC", of_weights, strict=True):
            own = arrays[name]
            if own.ndim == 4 and own.shape[1] != grad_weights.shape[1]:
                share = grad_weights.shape[1] // own.shape[1]
                grad_weights = _sum(grad_weights.reshape(own.shape[0], own.shape[1], share, *own.shape[2:]), (2,))
            of_arguments[name] = grad_weights
        return tuple(
            None
            if grad_of_argument is None
            else in_dtype(grad_of_argument.reshape(arrays[name].shape), self.dtypes[name])
            for name, grad_of_argument in of_arguments.items()
        )

    @property
    def _lead(self) -> tuple[int, int, int]:
        """Batches, groups of channels that share B and C, and channels of a group."""
        weights = [self.arrays[name] for name in "BC"]
        groups = lcm(*(array.shape[1] for array in weights if array.ndim == 4))
        return self.shape[0], groups, self.shape[1] // groups

    def _scan(self, of_softplus: bool) -> DeviceScan | SelectiveScan:
        u, delta, decays, b, c = (self.arrays[name] for name in ("u", "delta", "A", "B", "C"))
        bias = self.arrays.get("delta_bias")
        step = delta if bias is None else delta + bias[:, np.newaxis]
        step = _apply(softplus, step) if of_softplus and isinstance(u, OnDevice) else step
        batches, groups, channels = self._lead
        number = np.result_type(decays.dtype.newbyteorder("="), self.wide)

        def weights(array: SomeArray) -> SomeArray:
            array = in_dtype(array, number)
            if array.ndim == 2:
                return array.reshape(1, groups, channels, -1, 1)
            if array.ndim == 3:
                return array.reshape(batches, 1, 1, *array.shape[1:])
            if array.shape[1] not in (1, groups):
                array = _repeat_groups(array, groups // array.shape[1])
            return array.reshape(batches, -1, 1, *array.shape[2:])

        own = batches, groups, channels, 1, self.shape[2]
        arrays = (
            u.reshape(own),
            step.reshape(own),
            in_dtype(decays, number).reshape(1, groups, channels, -1, 1),
            weights(b),
            weights(c),
        )
        if isinstance(u, OnDevice):
            assert self.device is not None
            inputs, steps, own_decays, own_b, own_c = arrays_on_device(arrays)
            return DeviceScan(inputs, steps, own_decays, own_b, own_c, self.device)
        device = "numpy" if self.device is None else self.device
        return SelectiveScan(*as_numpy_arrays(arrays), device=device, softplus=of_softplus)


# ----- The same of arrays of NumPy and of a device


def _apply(function: Callable[..., Any], *arrays: SomeArray) -> SomeArray:
    """Return a function of every element."""
    on_device = any(isinstance(array, OnDevice) for array in arrays)
    result: SomeArray = map_arrays(function, *arrays) if on_device else function(*arrays)
    return result


def _sum(array: SomeArray, axes: tuple[int, ...]) -> SomeArray:
    return reduce(array, axis=axes) if isinstance(array, OnDevice) else array.sum(axes)


def _repeat_groups(weights: SomeArray, times: int) -> SomeArray:
    """Return weights with each group several times."""
    shape = *weights.shape[:2], times, *weights.shape[2:]
    repeated: SomeArray = np.broadcast_to(weights[:, :, np.newaxis], shape)
    return repeated.reshape(shape[0], shape[1] * times, *shape[3:])


def _plus_product(y: Value, u: Value, d: Value) -> Value:
    return y + u * d


def _multiply_by_gate(y: Value, z: Value) -> Value:
    return y * (z / (1 + np.exp(-z)))


def _grad_gate(grad: Value, y: Value, z: Value) -> Value:
    share = 1 / (1 + np.exp(-z))
    return grad * y * share * (1 + z * (1 - share))


def _next_state(state: Value, x: Value, dt: Value, decay: Value, weight: Value) -> object:
    return np.exp(dt * decay) * state + dt * weight * x


# ----- Shapes, also of tensors


def check_scan_shapes(shapes: dict[str, tuple[int, ...]], in_pairs: Sequence[str] = ()) -> None:
    """Raise ValueError unless the shapes of the arguments that were passed to a selective scan fit.

    Args:
        shapes: the shapes by the names of the arguments.
        in_pairs: the weights that, if they vary with time, have real and imaginary parts in turn.
    """
    u, decays = shapes["u"], shapes["A"]
    if len(u) != 3:
        raise ValueError(f"u of shape {u} was passed; pass an array (batch, dim, length)")
    batch, dim, length = u
    if not length:
        raise ValueError(f"u of shape {u} was passed, which has no time step; pass one or more")
    if len(decays) != 2 or decays[0] != dim:
        raise ValueError(f"A of shape {decays} was passed for {dim} channels; pass an array ({dim}, N)")
    for name in ("delta", "z"):
        if shapes.get(name, u) != u:
            raise ValueError(f"{name} of shape {shapes[name]} was passed for u of shape {u}; pass one shape")
    for name in ("D", "delta_bias"):
        if shapes.get(name, (dim,)) != (dim,):
            raise ValueError(f"{name} of shape {shapes[name]} was passed; pass an array ({dim},)")
    states = decays[1]
    for name in ("B", "C"):
        shape, times = shapes[name], length * (2 if name in in_pairs else 1)
        grouped = len(shape) == 4 and shape[1] > 0 and dim % shape[1] == 0
        allowed = [(dim, states), (batch, states, times), *([(batch, shape[1], states, times)] if grouped else [])]
        if shape not in allowed:
            raise ValueError(
                f"{name} of shape {shape} was passed; pass an array ({dim}, {states}), ({batch}, {states}, {times}), "
                f"or ({batch}, groups, {states}, {times}) with groups that divide {dim}"
            )


def check_update_shapes(state: tuple[int, ...], shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise ValueError unless the shapes of the arguments of a step of a selective scan fit."""
    if len(state) not in (3, 4):
        raise ValueError(f"state of shape {state} was passed; pass (batch, dim, N) or (batch, heads, dim, N)")
    batch, *channels, states = state
    lead, groups = (batch, *channels), shapes["B"][1] if len(shapes["B"]) == 3 else 0
    has_groups = len(state) == 4 and groups > 0 and state[1] % groups == 0
    weights = (batch, groups, states) if has_groups else (batch, states)
    wanted = {
        "x": lead, "dt": lead, "A": (*channels, states), "B": weights, "C": weights, "D": tuple(channels), "z": lead,
        "dt_bias": tuple(channels),
    }  # fmt: skip
    for name, shape in shapes.items():
        if shape != wanted[name]:
            raise ValueError(
                f"{name} of shape {shape} was passed for a state of shape {state}; pass an array of shape "
                f"{wanted[name]}"
            )
