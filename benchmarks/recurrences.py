"""Linear recurrences as a case of `compare.py`: their inputs, gpuscan's own, and NumPy's a step at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.array_types import AnyArray as Array
from gpuscan.tools.bench.cases import PIECE, SAMPLES, Inputs, ScanCase
from gpuscan.tools.bench.contenders import Contender, DeviceSubject, Subject
from gpuscan.tools.bench.peers import wrap_call
from gpuscan.tools.bench.results import OURS
from gpuscan.tools.bench.timing import GpuTimer

# The batches and channels at which results are checked.
LANES_SAMPLED = 32


@dataclass(frozen=True)
class RecurrenceCase(ScanCase):
    """The linear recurrence ``h[t] = a[t] h[t-1] + b[t]`` along axis 1 of arrays (batch, sequence, channels).

    Attributes:
        shape: (batch, sequence, channels).
        backward: True to compute the gradients by `a` and `b` as well.
    """

    shape: tuple[int, int, int] = (1, 1, 1)
    backward: bool = False

    @property
    def element_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written: a, b and h; for the gradients also a, h and three gradients."""
        return (8 if self.backward else 3) * self.elements * self.dtype.itemsize

    @property
    def series(self) -> str:
        return f"linear recurrence {self.dtype}, {'forward and backward' if self.backward else 'forward'}"

    @property
    def size(self) -> str:
        return " × ".join(map(str, self.shape))

    def describe(self) -> dict[str, Any]:
        about = {"shape": list(self.shape), "axis": 1, "backward": self.backward}
        return {"op": self.op, "dtype": str(self.dtype)} | about

    def inputs(self) -> Inputs:
        """Return a, b and, for gradients, the gradient by h, with the results of steps in float64 at some elements."""
        rng = np.random.default_rng(0)
        batches, sequence, channels = self.shape

        def made(low: float, high: float) -> Array:
            array = np.empty(self.elements, self.dtype)
            for start in range(0, self.elements, PIECE):
                piece = array[start : start + PIECE]
                piece[:] = rng.uniform(low, high, len(piece))
            return array.reshape(self.shape)

        arrays = (made(0.9, 1.0), made(-1.0, 1.0), *((made(-1.0, 1.0),) if self.backward else ()))
        lanes = rng.integers(0, batches * channels, LANES_SAMPLED)
        lanes[-1] = batches * channels - 1
        lane = rng.integers(0, len(lanes), SAMPLES + 1)
        times = rng.integers(0, sequence, SAMPLES + 1)
        lane[-1], times[-1] = len(lanes) - 1, sequence - 1
        batch, channel = np.divmod(lanes, channels)
        indices = (batch[lane] * sequence + times) * channels + channel[lane]
        outputs = step_by_step(*(array[batch, :, channel].astype(np.float64) for array in arrays))
        return Inputs(arrays, indices, tuple(output[lane, times].astype(self.dtype) for output in outputs))


def recurrence_case(shape: tuple[int, int, int], dtype: np.dtype[Any], backward: bool = False) -> RecurrenceCase:
    return RecurrenceCase("linear_recurrence", dtype, shape[1], shape[0] * shape[2], shape, backward)


def step_by_step(a: Array, b: Array, grad_h: Array | None = None) -> tuple[Array, ...]:
    """Compute h step by step along the last axis, and with `grad_h` also the gradients by `a` and `b`."""
    h = np.empty_like(b)
    carry = np.zeros_like(b[..., 0])
    for t in range(b.shape[-1]):
        carry = a[..., t] * carry + b[..., t]
        h[..., t] = carry
    if grad_h is None:
        return (h,)
    grad_b = np.empty_like(b)
    carry = np.zeros_like(b[..., 0])
    for t in reversed(range(b.shape[-1])):
        carry = grad_h[..., t] + carry
        grad_b[..., t] = carry
        carry = a[..., t] * carry
    before = np.concatenate([np.zeros_like(h[..., :1]), h[..., :-1]], axis=-1)
    return h, grad_b * before, grad_b


def recurrence_contender(timer: GpuTimer, case: RecurrenceCase) -> Contender:
    """Return gpuscan's contender, on arrays of the device."""

    def prepare(inputs: Inputs) -> DeviceSubject:
        arrays = [timer.device.asarray(array) for array in inputs.arrays]
        results: list[gs.Array] = []

        def call() -> None:
            h = gs.linear_recurrence(arrays[0], arrays[1], axis=1)
            results[:] = [h]
            if len(arrays) == 3:
                grad_a, grad_b, _ = gs.linear_recurrence_vjp(arrays[0], h, arrays[2], axis=1)
                results[1:] = [grad_a, grad_b]

        return DeviceSubject(timer, case, call, arrays, results)

    return Contender(OURS, "linear_recurrence", prepare)


def numpy_contenders(case: RecurrenceCase) -> list[Contender]:
    return [] if case.backward else [Contender("numpy", "a step at a time", _numpy_steps)]


def _numpy_steps(inputs: Inputs) -> Subject:
    a, b = inputs.arrays
    h = np.empty_like(b)

    def run() -> None:
        h[:, 0] = b[:, 0]
        for t in range(1, h.shape[1]):
            np.multiply(a[:, t], h[:, t - 1], out=h[:, t])
            h[:, t] += b[:, t]

    return wrap_call(run, lambda at: [h.reshape(-1)[at]], f"NumPy {np.__version__}", lambda: None)
