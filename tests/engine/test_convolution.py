"""The stage arrays/convolve.wgsl gives what its CPU twin does, in pieces too."""

from __future__ import annotations

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.engine.convolution import convolve
from gpuscan.reference import stages


@pytest.mark.parametrize(("shape", "axis", "taps", "firsts"), [
    ((1000,), 0, 5, 4), ((7, 300), 1, 12, 0), ((150, 6), 0, 1, 3), ((2, 70, 5), 1, 90, 2)
])  # fmt: skip
def test_convolve(device: gs.Device, shape: tuple[int, ...], axis: int, taps: int, firsts: int) -> None:
    rng = np.random.default_rng(0)
    # The sums of small integers are exact.
    x, numbers = rng.integers(-9, 9, shape).astype(np.float32), rng.integers(-9, 9, taps).astype(np.float32)
    lead = [firsts if i == axis else n for i, n in enumerate(shape)]
    first = rng.integers(-9, 9, lead).astype(np.float32)
    wanted = stages.convolve(x, axis, numbers, first)
    source = device.asarray(x)
    for piece_bytes in (None, 2048):
        got = convolve(source, axis, numbers, first, piece_bytes)
        np.testing.assert_array_equal(got._read(), wanted)
    backwards = device.asarray(np.ascontiguousarray(np.flip(x, axis)))[(*[slice(None)] * axis, slice(None, None, -1))]
    np.testing.assert_array_equal(convolve(backwards, axis, numbers, first)._read(), wanted)


def test_errors(device: gs.Device) -> None:
    x = device.asarray(np.ones(3000, np.float32))
    with pytest.raises(gs.GpuscanError, match="a filter of 2000 coefficients over 3000 samples"):
        convolve(x, 0, np.ones(2000, np.float32), np.ones(0, np.float32), 4096)
