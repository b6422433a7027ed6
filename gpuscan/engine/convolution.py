"""Convolve arrays on a device with a few numbers: the part of a filter that is not recursive."""

from __future__ import annotations

from math import prod

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import round_up
from gpuscan.engine.element_copy import bindable, contiguous
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.errors import GpuscanError
from gpuscan.operators.parameter_array import HostArray
from gpuscan.sizes import spans

# The kernel counts samples in 32 bits.
_MAX_SAMPLES = 2**32 - 1
# Bindings begin at multiples of this many bytes, so that up to as many bytes before a piece are bound with it.
_ALIGNMENT = 256


def convolve(
    samples: DeviceArray,
    axis: int,
    taps: HostArray | DeviceArray,
    first: HostArray | DeviceArray,
    piece_bytes: int | None = None,
) -> DeviceArray:
    """Submit ``y[t] = first[t] + taps[0] x[t] + taps[1] x[t-1] + …`` along an axis; samples before the first are 0.

    Args:
        samples: an array of float32 or float64, which is not empty.
        taps: the numbers, 1-D, in the dtype of the samples.
        first: values to add to the first samples, in that dtype: the shape of `samples`, with another length along the
            axis.
        piece_bytes: bytes of the result that are computed at a time (default: the most that the device binds).

    Raises:
        UnsupportedDtypeError: the adapter has no 64-bit floats.
        GpuscanError: there are more taps than the device binds with the samples that they reach.
    """
    context, size = samples._context, samples.dtype.itemsize
    if size == 8 and not context.capabilities.float64:
        raise context.float64_error("float64 was passed", "the array as array.astype(np.float32)")
    inner, length, count = prod(samples.shape[axis + 1 :]), samples.shape[axis], samples.size
    reach = (min(taps.size, length) - 1) * inner
    piece_bytes = (piece_bytes or context.binding_limit) // _ALIGNMENT * _ALIGNMENT
    piece = (piece_bytes - size * reach) // _ALIGNMENT * _ALIGNMENT // size - _ALIGNMENT // size
    piece = count if size * count <= piece_bytes else piece
    if piece <= 0 or count > _MAX_SAMPLES or max(taps.nbytes, first.nbytes) > context.binding_limit:
        raise GpuscanError(
            f"a filter of {taps.size} coefficients over {count} samples was asked for, but "
            f"{context.capabilities.summary} binds at most {context.binding_limit} bytes. Pass fewer rows, "
            "or the .numpy() of the signal, and set GPUSCAN_ADAPTER=numpy in the environment"
        )
    source = bindable(contiguous(samples))
    result = empty(context, samples.shape, samples.dtype)
    # A buffer has at least one number.
    uploads = taps, first if first.size else np.zeros(1, first.dtype)
    coefficients, added = (
        bindable(contiguous(numbers)) if isinstance(numbers, DeviceArray) else upload_array(context, numbers)
        for numbers in uploads
    )
    for start, own in spans(count, piece):
        low = max(0, start - reach) * size // _ALIGNMENT * _ALIGNMENT // size
        stop = start + own
        numbers = [own, start, low, length, inner, taps.size, first.shape[axis]]
        bound = [
            Binding(source.buffer, source.offset + low * size, round_up((stop - low) * size)),
            coefficients._binding(),
            added._binding(),
            Binding(result.buffer, result.offset + start * size, round_up(own * size)),
        ]
        number_type = "f64" if size == 8 else "f32"
        with context.lock:
            submit_stage(
                context, "arrays/convolve.wgsl", numbers, bound, own, own, are_owned(source), number=number_type
            )
    return result
