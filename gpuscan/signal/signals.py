"""The signal of a filter: real samples on NumPy or on a device, and the form in which the caller wants the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.device import Device, resolve_device
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.errors import DeviceMemoryError
from gpuscan.problem.arguments import as_array, resolve_axis

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Samples: TypeAlias = Array | AnyArray
Number: TypeAlias = np.float32 | np.float64
# The fields of an element of an operator. While the operator is traced, they only act as arrays.
Fields: TypeAlias = Sequence[AnyArray]
# The dtype that signals of other dtypes are filtered in; all others become float64, as in SciPy.
WIDER = {"float16": np.float32, "bfloat16": np.float32, "complex64": np.float32}


@dataclass(frozen=True)
class Signal:
    """Samples to filter along an axis.

    Attributes:
        samples: float32 or float64, a NumPy array or a `gpuscan.Array`; a complex signal has one more axis of two.
        axis: the axis that time runs along, 0 or more.
        device: the device to filter on; None for NumPy.
        given: the device that the caller's array is on; None for NumPy.
        is_complex: True if the caller's signal is complex.
    """

    samples: Samples
    axis: int
    device: Device | None
    given: Device | None
    is_complex: bool

    @property
    def length(self) -> int:
        """The number of samples along the axis."""
        return int(self.samples.shape[self.axis])

    @property
    def others(self) -> tuple[int, ...]:
        """The shape without the axis."""
        return tuple(n for i, n in enumerate(self.samples.shape) if i != self.axis)

    @property
    def first(self) -> Samples:
        """The first samples along the axis."""
        index: Any = (*[slice(None)] * self.axis, 0)
        return self.samples[index]

    @property
    def target(self) -> Device | str:
        """What scans take as `device`."""
        return "numpy" if self.device is None else self.device

    def with_samples(self, samples: Samples) -> Signal:
        """Return the same signal with other samples."""
        return replace(self, samples=samples)

    def on_device(self, passes: int) -> Signal:
        """Return the signal in the memory of its device, if several passes read it and it fits there."""
        if passes < 2 or self.device is None or isinstance(self.samples, Array):
            return self
        try:
            return self.with_samples(self.device.asarray(self.samples))
        except DeviceMemoryError:
            return self

    def answer(self, samples: Samples, states: Samples | None) -> Samples | tuple[Samples, Samples]:
        """Return the result in the caller's form: `y`, or ``(y, zf)``.

        Args:
            samples: the filtered samples.
            states: the last states; None without `zi`. An array of NumPy has the axis of the states before all others,
                and an array on the device has it where the caller wants it.
        """
        if self.given is None and isinstance(samples, Array):
            samples = samples.numpy()
        if states is None and not self.is_complex:
            return samples
        dtype = samples.dtype
        if self.is_complex:
            pair = np.dtype(np.complex64 if dtype == np.float32 else np.complex128)
            shape = samples.shape[:-1]
            samples = samples._view_as(shape, pair) if isinstance(samples, Array) else _as_pairs(samples, pair)
        if states is None:
            return samples
        if isinstance(states, Array):
            pair = np.dtype(np.complex64 if dtype == np.float32 else np.complex128)
            return samples, states._view_as(states.shape[:-1], pair) if self.is_complex else states
        lead = states.ndim - len(self.others) - 1
        ends = np.ascontiguousarray(np.moveaxis(states, lead, lead + self.axis).astype(dtype))
        if self.is_complex:
            ends = _as_pairs(ends, np.dtype(np.complex64 if dtype == np.float32 else np.complex128))
        return samples, ends if self.given is None else self.given.asarray(ends)


def signal_of(x: object, axis: int, zi: ArrayLike | None = None) -> Signal:
    """Return the caller's signal as real samples; as a complex signal if the states `zi` are complex.

    Raises:
        TypeError: the samples are not numbers, or wider than float64 and complex128.
        ValueError: the axis is out of range.
    """
    if not isinstance(x, Array):
        x = as_array(x)
        if x.dtype.kind not in "biufc" and x.dtype.name != "bfloat16":
            raise TypeError(f"a signal of dtype {x.dtype} was passed; pass an array of numbers")
        wider = "complex128" if x.dtype.kind == "c" else "float64"
        if x.dtype.itemsize > np.dtype(wider).itemsize:
            raise TypeError(
                f"a signal of dtype {x.dtype} was passed, and filters compute in {wider} at most; convert it with "
                f".astype(np.{wider})"
            )
        if not x.dtype.isnative:
            x = x.astype(x.dtype.newbyteorder("="))
    shape = x.shape
    axis = resolve_axis(axis, shape)
    states_are_complex = zi is not None and (zi if isinstance(zi, Array) else as_array(zi)).dtype.kind == "c"
    if states_are_complex and x.dtype.kind != "c":
        narrow = x.dtype == np.float32 or x.dtype.name in WIDER
        x = x.astype(np.complex64 if narrow else np.complex128)
    dtype = x.dtype
    is_complex = dtype.kind == "c"
    if is_complex:
        part = np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
        if isinstance(x, Array):
            x = (x if x.is_contiguous else x.copy())._view_as((*shape, 2), part)
        else:
            x = np.ascontiguousarray(x)[..., None].view(part)
    elif dtype not in (np.float32, np.float64):
        x = x.astype(WIDER.get(dtype.name, np.float64))
    given = x.device if isinstance(x, Array) else None
    assert given is None or isinstance(given, Device)
    device = given or resolve_device(None)
    if given is None and device is not None and x.dtype == np.float64 and not device.capabilities.float64:
        device = None
    return Signal(x, axis, device, given, is_complex)


def states_of(zi: object, signal: Signal, order: int, sections: int | None = None) -> Samples:
    """Return the caller's states with the axis of states first, or second after the axis of sections.

    Arrays of NumPy become float64. An array on the device of the signal stays there.

    Raises:
        ValueError: the shape does not fit.
    """
    stays = isinstance(zi, Array) and zi.device is signal.given and zi.size and zi.dtype.kind == "f"
    given: Any = zi if stays and not signal.is_complex else zi.numpy() if isinstance(zi, Array) else as_array(zi)
    if signal.is_complex:
        given = np.ascontiguousarray(given, np.complex128)[..., None].view(np.float64)
    lead = () if sections is None else (sections,)
    wanted = list(signal.samples.shape)
    wanted[signal.axis] = order
    full = (*lead, *wanted)
    fits = given.ndim == len(full) and all(
        have == want or (have == 1 and i != len(lead) + signal.axis and sections is None)
        for i, (have, want) in enumerate(zip(given.shape, full, strict=True))
    )
    if not fits:
        shown, own_shape = (full[:-1], given.shape[:-1]) if signal.is_complex else (full, given.shape)
        raise ValueError(
            f"zi of shape {own_shape} was passed for a filter with states of shape {shown}; pass an array of that shape"
        )
    axes = list(range(given.ndim))
    axes.insert(len(lead), axes.pop(len(lead) + signal.axis))
    if not isinstance(given, Array):
        given = (given if given.shape == full else np.broadcast_to(given, full)).astype(np.float64)
    states: Samples = given.transpose(axes)
    return states


def last_samples(samples: Samples, axis: int, count: int) -> AnyArray:
    """Return the last samples along an axis, with that axis first; only they are read from a device."""
    last = samples[(*[slice(None)] * axis, slice(samples.shape[axis] - count, None))]
    return np.moveaxis(np.asarray(last), axis, 0)


def _as_pairs(samples: AnyArray, dtype: AnyDType) -> AnyArray:
    return np.ascontiguousarray(samples).view(dtype)[..., 0]
