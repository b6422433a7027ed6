"""Gated linear attention and the gated delta rule, and their gradients, in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, in_dtype
from gpuscan.api.call_device import find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.pieces import PartSlices, Pending, cut_axes, in_flight
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.transfer import start_call
from gpuscan.engine.element_copy import bindable, contiguous
from gpuscan.engine.linear_attention import DeviceAttention, largest_numbers
from gpuscan.errors import UnsupportedDtypeError, abbreviate
from gpuscan.operators.parameter_array import ParameterArray, is_float_parameter
from gpuscan.operators.parameters import Parameter
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.problem.arguments import OnDevice, as_flag
from gpuscan.reference.attention_stages import HostAttention
from gpuscan.sizes import apply

# The index of the first state among the arrays of a call.
_FIRST_STATE = 5
T = TypeVar("T")
U = TypeVar("U")


@takes_numpy("q", "k", "v", "g", "beta", "initial_state")
@launchable_with("scale", data=["q", "k", "v", "g", "beta", "initial_state"])
def gated_delta_rule(
    q: object,
    k: object,
    v: object,
    g: object,
    beta: object,
    *,
    scale: float | None = None,
    initial_state: object = None,
    output_final_state: bool = False,
    device: Device | str | int | None = None,
) -> Any:
    """Return the outputs of the gated delta rule: linear attention that replaces what the state holds for a key.

    For each batch and head, with states S of shape (D_k, D_v) and column vectors q, k, v and o:
    ``S[t] = exp(g[t]) (I - beta[t] k[t] k[t]^T) S[t-1] + beta[t] k[t] v[t]^T`` and ``o[t] = scale S[t]^T q[t]``.

    Args:
        q, k: queries and keys, of shape (B, T, H, D_k): batch, time, head, and numbers of a key. Keys should have a
            norm of at most 1, or the states may grow.
        v: values, of shape (B, T, H, D_v).
        g: the logarithms of the decays, at most 0, of shape (B, T, H). A decay of -inf sets the state to 0.
        beta: the writing strengths, from 0 to 1, of shape (B, T, H).
        scale: the factor of the outputs (default: ``D_k ** -0.5``).
        initial_state: the state before the first step, of shape (B, H, D_k, D_v) (default: 0).
        output_final_state: True to return the state after the last step as well.
        device: as in `gpuscan.scan`.

    Returns:
        The outputs o, in the shape and dtype of `v`, on the device if an argument is there; with `output_final_state`
        the pair ``(o, state)``. The state has the shape (B, H, D_k, D_v) and is float32, or float64 for float64.

    Raises:
        ValueError: the shapes do not fit, or an axis has length 0.
        TypeError: an array is not of floats.
        UnsupportedDtypeError: float64 was passed for a device; ``device="numpy"`` computes in float64.

    float16 and bfloat16 are converted to float32. 32 steps at a time are computed as products of matrices (Yang et al.,
    "Gated Delta Networks", 2024). flash-linear-attention has the same arguments.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> k = np.eye(2, dtype=np.float32)[[0, 1, 0]].reshape(1, 3, 1, 2)      # keys: first, second, first
        >>> v = np.array([5, 7, 9], np.float32).reshape(1, 3, 1, 1)
        >>> g, beta = np.zeros((1, 3, 1), np.float32), np.ones((1, 3, 1), np.float32)
        >>> o, state = gs.gated_delta_rule(k, k, v, g, beta, scale=1.0, output_final_state=True)
        >>> state[0, 0, :, 0]                                                   # 9 has replaced 5
        array([9., 7.], dtype=float32)
    """
    call = _Call.of(q, k, v, g, beta, scale, initial_state, device, {})
    return call.outputs(as_flag("output_final_state", output_final_state))


@takes_numpy("q", "k", "v", "g", "beta", "grad_o", "initial_state", "grad_final_state")
@launchable_with("scale", data=["q", "k", "v", "g", "beta", "grad_o", "initial_state", "grad_final_state"])
def gated_delta_rule_vjp(
    q: object,
    k: object,
    v: object,
    g: object,
    beta: object,
    grad_o: object,
    *,
    scale: float | None = None,
    initial_state: object = None,
    grad_final_state: object = None,
    device: Device | str | int | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of a loss with respect to the arguments of `gated_delta_rule`.

    With ``A[t] = exp(g[t]) (I - beta[t] k[t] k[t]^T)``, the gradient with respect to the state S[t] is
    ``G[t] = scale q[t] grad_o[t]^T + A[t+1] G[t+1]``, beginning with `grad_final_state`. The gradients of the arguments
    of step t follow from G[t] by the chain rule: ``grad_v[t] = beta[t] G[t]^T k[t]`` and
    ``grad_q[t] = scale S[t] grad_o[t]``, for example. The states are computed again from the arguments.

    Args:
        q, k, v, g, beta, scale, initial_state, device: as they were passed to `gpuscan.gated_delta_rule`.
        grad_o: the gradient of the loss with respect to the outputs, in the shape of `v`.
        grad_final_state: the gradient with respect to the last state, of shape (B, H, D_k, D_v) (default: 0).

    Returns:
        ``(grad_q, grad_k, grad_v, grad_g, grad_beta, grad_initial_state)``, each in the shape and dtype of its
        argument, on the device if an argument is there. The last is None without `initial_state`.

    Raises:
        ValueError, TypeError, UnsupportedDtypeError: as `gpuscan.gated_delta_rule` does.

    The gradients are computed in chunks, as in Yang et al., "Gated Delta Networks" (2024).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> k = np.eye(2, dtype=np.float32)[[0, 1, 0]].reshape(1, 3, 1, 2)
        >>> v = np.array([5, 7, 9], np.float32).reshape(1, 3, 1, 1)
        >>> g, beta = np.zeros((1, 3, 1), np.float32), np.ones((1, 3, 1), np.float32)
        >>> last = np.array([1, 0], np.float32).reshape(1, 1, 2, 1)     # the loss is the first number of the last state
        >>> grads = gs.gated_delta_rule_vjp(k, k, v, g, beta, np.zeros_like(v), grad_final_state=last)
        >>> grads[2].ravel()                                            # 9 has replaced 5, so 5 has no gradient
        array([0., 0., 1.], dtype=float32)
    """
    call = _Call.of(
        q, k, v, g, beta, scale, initial_state, device, {"grad_o": grad_o, "grad_final_state": grad_final_state}
    )
    return call.gradients()


@takes_numpy("q", "k", "v", "g", "initial_state")
@launchable_with("scale", data=["q", "k", "v", "g", "initial_state"])
def gated_linear_attention(
    q: object,
    k: object,
    v: object,
    g: object,
    *,
    scale: float | None = None,
    initial_state: object = None,
    output_final_state: bool = False,
    device: Device | str | int | None = None,
) -> Any:
    """Return the outputs of gated linear attention.

    For each batch and head, with states S of shape (D_k, D_v) and column vectors q, k, v and o:
    ``S[t] = exp(g[t]) S[t-1] + k[t] v[t]^T`` and ``o[t] = scale S[t]^T q[t]``. If `g` has the shape (B, T, H, D_k), row
    i of S has the decay ``exp(g[t, i])``.

    Mamba-2 is the case ``q = C, k = B, v = dt x, g = dt A, scale=1``. In RetNet, `g` does not depend on time. Without
    decays, `g` is 0.

    Args:
        q, k, v, scale, initial_state, output_final_state, device: as in `gpuscan.gated_delta_rule`.
        g: the logarithms of the decays, at most 0, of shape (B, T, H) or (B, T, H, D_k).

    Returns:
        As `gpuscan.gated_delta_rule`.

    Raises:
        ValueError, TypeError, UnsupportedDtypeError: as `gpuscan.gated_delta_rule` does.

    The outputs are computed in chunks of steps: Dao & Gu, "Transformers are SSMs" (2024), section 6; Yang et al.,
    "Gated Linear Attention Transformers" (2024), section 4.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> ones = np.ones((1, 4, 1, 1), np.float32)
        >>> g = np.full((1, 4, 1), np.log(0.5), np.float32)
        >>> gs.gated_linear_attention(ones, ones, ones, g).ravel()
        array([1.   , 1.5  , 1.75 , 1.875], dtype=float32)
    """
    call = _Call.of(q, k, v, g, None, scale, initial_state, device, {})
    return call.outputs(as_flag("output_final_state", output_final_state))


@takes_numpy("q", "k", "v", "g", "grad_o", "initial_state", "grad_final_state")
@launchable_with("scale", data=["q", "k", "v", "g", "grad_o", "initial_state", "grad_final_state"])
def gated_linear_attention_vjp(
    q: object,
    k: object,
    v: object,
    g: object,
    grad_o: object,
    *,
    scale: float | None = None,
    initial_state: object = None,
    grad_final_state: object = None,
    device: Device | str | int | None = None,
) -> tuple[Any, ...]:
    """Return the gradients of a loss with respect to the arguments of `gated_linear_attention`.

    The gradient with respect to the state S[t] is ``G[t] = scale q[t] grad_o[t]^T + exp(g[t+1]) G[t+1]``, beginning
    with `grad_final_state`. Then ``grad_q[t] = scale S[t] grad_o[t]``, ``grad_k[t] = G[t] v[t]`` and
    ``grad_v[t] = G[t]^T k[t]``. ``grad_g[t]`` is the sum of ``exp(g[t]) G[t] * S[t-1]`` over the numbers of the state
    that have the decay ``g[t]``. The states are computed again from the arguments.

    Args:
        q, k, v, g, scale, initial_state, device: as they were passed to `gpuscan.gated_linear_attention`.
        grad_o: the gradient of the loss with respect to the outputs, in the shape of `v`.
        grad_final_state: the gradient with respect to the last state, of shape (B, H, D_k, D_v) (default: 0).

    Returns:
        ``(grad_q, grad_k, grad_v, grad_g, grad_initial_state)``, each in the shape and dtype of its argument, on the
        device if an argument is there. The last is None without `initial_state`.

    Raises:
        ValueError, TypeError, UnsupportedDtypeError: as `gpuscan.gated_delta_rule` does.

    The derivation is in Yang et al., "Gated Linear Attention Transformers" (2024), appendix C.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> ones = np.ones((1, 3, 1, 1), np.float32)
        >>> g = np.full((1, 3, 1), np.log(0.5), np.float32)
        >>> grads = gs.gated_linear_attention_vjp(ones, ones, ones, g, ones)
        >>> grads[2].ravel()
        array([1.75, 1.5 , 1.  ], dtype=float32)
    """
    call = _Call.of(
        q, k, v, g, None, scale, initial_state, device, {"grad_o": grad_o, "grad_final_state": grad_final_state}
    )
    grads = call.gradients()
    return (*grads[:4], grads[5])


class Shaped(Protocol):
    """An array of NumPy, of gpuscan or of another framework."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The length along each axis."""

    @property
    def ndim(self) -> int:
        """The number of axes."""


class _Arrays(NamedTuple, Generic[T]):
    """The arrays of a call; None for an array that was not passed."""

    q: T
    k: T
    v: T
    g: T
    beta: T | None
    initial_state: T | None
    grad_o: T | None
    grad_final_state: T | None

    def map(self, function: Callable[[T, bool], U]) -> _Arrays[U]:
        """Return a function of each array, and of True for the states, which have no axis of time."""
        return _Arrays._make(
            None if array is None else function(array, name.endswith("_state"))
            for name, array in zip(self._fields, self, strict=True)
        )


@dataclass(frozen=True, eq=False)
class _Call:
    """The checked arrays of a call, in its dtype of computation.

    Attributes:
        arrays: the arrays.
        dtypes: the dtype of each array when it was passed.
        scale: the factor of the outputs.
        device: the device; None for NumPy.
        on_device: True if an argument is there.
    """

    arrays: _Arrays[SomeArray]
    dtypes: _Arrays[AnyDType]
    scale: float | Parameter
    device: Device | None
    on_device: bool

    @classmethod
    def of(
        cls,
        q: object,
        k: object,
        v: object,
        g: object,
        beta: object,
        scale: float | None,
        initial: object,
        device: Device | str | int | None,
        grads: Mapping[str, object],
    ) -> _Call:
        """Check the arguments of a call."""
        named: dict[str, object] = {"q": q, "k": k, "v": v, "g": g, "beta": beta, "initial_state": initial, **grads}
        given = {name: as_some_array(array) for name, array in named.items() if array is not None}
        check_shapes(given)
        if grads and "grad_o" not in given:
            raise TypeError("grad_o=None was passed; pass the gradient with respect to the outputs")
        call_device = find_call_device(given.values(), device)
        dtype = _common_dtype(given, call_device)
        optional = ("beta", "initial_state", "grad_o", "grad_final_state")
        arrays = _Arrays(given["q"], given["k"], given["v"], given["g"], *map(given.get, optional))
        factor = apply(_default_scale, arrays.k.shape[3]) if scale is None else _as_scale(scale)
        on_device = any(isinstance(array, OnDevice) for array in given.values())
        wide = arrays.map(lambda array, _: in_dtype(array, dtype))
        return cls(wide, arrays.map(lambda array, _: array.dtype), factor, call_device, on_device)

    def outputs(self, with_state: bool) -> SomeArray | tuple[SomeArray, SomeArray]:
        """Return the outputs, and if asked for the last state."""
        o: SomeArray
        state: SomeArray
        if self.device is None:
            o, state = self._on_host().outputs()
        else:
            shapes = [self.arrays.v.shape, self._state_shape]
            o, state = self._in_parts(lambda attention, _: attention.outputs(), shapes, [False, True])
        o = in_dtype(o, self.dtypes.v)
        return (o, state) if with_state else o

    def gradients(self) -> tuple[SomeArray | None, ...]:
        """Return the gradients with respect to q, k, v, g, beta and the first state; None for those not passed."""
        grads: list[SomeArray | None]
        if self.device is None:
            given = self.arrays.map(_as_numpy)
            assert given.grad_o is not None
            grads = [*self._on_host().gradients(given.grad_o, given.grad_final_state)]
        else:
            own = dict(enumerate(self.arrays[:6]))
            shape_of = {index: array.shape for index, array in own.items() if array is not None}

            def compute_gradients(attention: DeviceAttention, inputs: _Arrays[DeviceArray]) -> Sequence[DeviceArray]:
                assert inputs.grad_o is not None
                results = attention.gradients(inputs.grad_o, inputs.grad_final_state)
                return [result for index in shape_of if (result := results[index]) is not None]

            are_states = [index == _FIRST_STATE for index in shape_of]
            results = self._in_parts(compute_gradients, list(shape_of.values()), are_states)
            of_index = dict(zip(shape_of, results, strict=True))
            grads = [of_index.get(index) for index in own]
        return tuple(
            None if grad is None or dtype is None else in_dtype(grad, dtype)
            for grad, dtype in zip(grads, self.dtypes, strict=False)
        )

    @property
    def _state_shape(self) -> tuple[int, ...]:
        batches, _, heads, keys = self.arrays.k.shape
        return batches, heads, keys, self.arrays.v.shape[3]

    def _on_host(self) -> HostAttention:
        given = self.arrays.map(_as_numpy)
        return HostAttention(given.q, given.k, given.v, given.g, given.beta, float(self.scale), given.initial_state)

    def _in_parts(
        self,
        compute: Callable[[DeviceAttention, _Arrays[DeviceArray]], Sequence[DeviceArray]],
        shapes: Sequence[tuple[int, ...]],
        are_states: Sequence[bool],
    ) -> Sequence[SomeArray]:
        """Return what is computed on the device, for as many batches and heads at a time as it binds.

        Batches of NumPy's arrays are computed in pieces, so that one is uploaded while results of another are read.

        Args:
            compute: gives the results of an attention, from it and all arrays.
            shapes: the shapes of the results.
            are_states: which of them have no axis of time.
        """
        device = self.device
        assert device is not None
        parts = list(self._parts(device._context.binding_limit // 4))
        whole: list[SomeArray] = []

        def compute_part(part: PartSlices) -> list[Pending]:
            inputs = self.arrays.map(partial(self._make_bindable, part if len(parts) > 1 else None))
            attention = DeviceAttention(
                inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta, self.scale, inputs.initial_state
            )
            results = [Array._of(device, result) for result in compute(attention, inputs)]
            if len(parts) == 1:
                whole.extend(results if self.on_device else [result.numpy() for result in results])
                return []
            if not whole:
                make = device.empty if self.on_device else np.empty
                whole.extend(make(shape, np.float32) for shape in shapes)
            targets = [(into, _within(part, is_state)) for into, is_state in zip(whole, are_states, strict=True)]
            if not self.on_device:
                reads = [partial(_read, result, into[at]) for result, (into, at) in zip(results, targets, strict=True)]
                return [start_call(device._readers, read).result for read in reads]
            for result, (into, at) in zip(results, targets, strict=True):
                into[at] = result
            return []

        for _, pending in in_flight(compute_part, parts):
            for wait in pending:
                wait()
        return whole

    def _parts(self, limit: int) -> Iterator[PartSlices]:
        """Return parts of the batches and heads, so small that a device can bind each of their arrays."""
        batches, heads, keys, values = self._state_shape
        length = self.arrays.k.shape[1]
        one = largest_numbers(keys, values, length, self.arrays.g.ndim == 4)
        if not self.on_device and limit >= one * heads:
            # Whole batches are contiguous, so they are copied at the speed of the bus.
            most = max(1, ARRAYS.piece_bytes // (4 * length * heads * max(keys, values)))
            limit = min(limit, most * one * heads)
        return cut_axes((batches, heads), one, limit)

    def _make_bindable(self, part: PartSlices | None, array: SomeArray, is_state: bool) -> DeviceArray:
        """Return an array, or a part of it, on the device, where a shader can bind it."""
        if part is not None:
            array = array[_within(part, is_state)]
        assert self.device is not None
        on_device = array if isinstance(array, DeviceArray) else self.device.asarray(array)
        return bindable(contiguous(on_device))


def _read(result: Array, into: SomeArray) -> AnyArray:
    """Read a result into a part of an array of NumPy."""
    assert isinstance(into, np.ndarray)
    if into.flags.c_contiguous:
        return result._read(into)
    into[...] = result.numpy()
    return into


def _as_numpy(array: SomeArray, _: bool) -> AnyArray:
    """Return an array of NumPy as it is."""
    return np.asarray(array)


def _within(part: PartSlices, is_state: bool) -> tuple[slice, ...]:
    batch, head = part
    return (batch, head) if is_state else (batch, slice(None), head)


def _as_scale(scale: object) -> float | Parameter:
    """Return a factor that the caller passed as a number of Python, or as a parameter of the call.

    Raises:
        TypeError: it is no real number.
    """
    if is_float_parameter(scale):
        return scale
    if isinstance(scale, ParameterArray):
        scale = np.asarray(scale)
    try:
        number = None if isinstance(scale, (str, bytes)) else float(scale)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None:
        raise TypeError(f"scale={abbreviate(scale)} was passed, but it is the factor of the outputs; pass a float")
    return number


def _default_scale(keys: int) -> float:
    scale: float = keys**-0.5
    return scale


def _common_dtype(arrays: dict[str, SomeArray], device: Device | None) -> AnyDType:
    """Return the dtype to compute in: float32, or float64 on NumPy if an array has it.

    Raises:
        TypeError: an array is not of floats.
        UnsupportedDtypeError: float64 was passed for a device.
    """
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("=")
        if dtype == np.float64:
            if device is not None:
                raise UnsupportedDtypeError(
                    f"{name} of dtype float64 was passed for {device!r}, but attention is computed in float32 there. "
                    f'Pass {name}.astype(np.float32), or device="numpy" for NumPy arrays'
                )
        elif dtype.name not in ("float16", "bfloat16", "float32"):
            raise TypeError(
                f"{name} of dtype {array.dtype} was passed, but attention takes floats; pass {name}.astype(np.float32)"
            )
    wide = any(array.dtype.newbyteorder("=") == np.float64 for array in arrays.values())
    return np.dtype(np.float64 if wide else np.float32)


def check_shapes(arrays: Mapping[str, Shaped | None]) -> None:
    """Raise ValueError unless the shapes of the arrays that were passed fit."""
    for name in ("k", "v"):
        array = arrays.get(name)
        if array is None or array.ndim != 4 or not all(array.shape):
            shape = None if array is None else tuple(array.shape)
            raise ValueError(
                f"{name} of shape {shape} was passed; pass an array (batch, time, head, numbers) with no length 0"
            )
    k, v = arrays["k"], arrays["v"]
    assert k is not None
    assert v is not None
    batches, length, heads, keys = k.shape
    steps, state = (batches, length, heads), (batches, heads, keys, v.shape[3])
    gates: list[tuple[int, ...]] = [steps] if arrays.get("beta") is not None else [steps, (*steps, keys)]
    allowed: dict[str, list[tuple[int, ...]]] = {
        "q": [k.shape], "v": [(*steps, v.shape[3])], "g": gates, "beta": [steps], "initial_state": [state],
        "grad_o": [v.shape], "grad_final_state": [state],
    }  # fmt: skip
    for name, shapes in allowed.items():
        array = arrays.get(name)
        if array is None and name in ("q", "g"):
            raise TypeError(f"{name}=None was passed; pass an array of shape {tuple(shapes[0])}")
        if array is not None and tuple(array.shape) not in [tuple(shape) for shape in shapes]:
            wanted = " or ".join(str(tuple(shape)) for shape in shapes)
            raise ValueError(
                f"{name} of shape {tuple(array.shape)} was passed for keys of shape {tuple(k.shape)} and values of "
                f"shape {tuple(v.shape)}; pass an array of shape {wanted}"
            )
