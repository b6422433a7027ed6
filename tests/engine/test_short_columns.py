"""Scans along a short axis that is not the last. One workgroup holds whole columns.

The tests compare with NumPy, on devices that choose tiles as a GPU does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuscan as gs
from tests.harness.devices import as_gpu, poison
from tests.oracle import assert_same, limit_examples, one_of
from tests.strategies import numbers

# Around the rows that one, two, … invocations take of a column, and around the longest column of a workgroup.
LENGTHS = [1, 2, 9, 10, 11, 33, 44, 45, 89, 170, 192, 193, 352, 353]


@pytest.mark.parametrize("rotation", range(5))
def test_lengths_around_what_invocations_take(device: gs.Device, rotation: int) -> None:
    """Assert that columns of several arrays side by side are apart, for numbers of all widths."""
    gpu = as_gpu(device)
    for length in one_of(device, LENGTHS[rotation::5], rotation):
        rng = np.random.default_rng(length)
        for dtype, shape in (("int32", (length, 301)), ("uint8", (5, length, 7)), ("int64", (30, length, 3))):
            x = numbers(rng, dtype, shape)
            axis = len(shape) - 2
            array = gpu.asarray(x)
            poison(gpu, x.nbytes)
            assert_same(gs.scan(array, axis=axis).numpy(), np.cumsum(x, axis=axis, dtype=dtype), dtype)


def test_one_stage(device: gs.Device) -> None:
    """Assert that the totals of tiles are not scanned, since there are none."""
    gpu = as_gpu(device)
    array = gpu.asarray(np.ones((170, 4001), np.float32))
    with gpu.profile() as spans:
        got = gs.scan(array, axis=0).numpy()
    assert {span.stage for span in spans.spans} == {"scan"}
    assert_same(got, np.cumsum(np.ones((170, 4001), np.float32), axis=0))


@limit_examples(20)
@given(data=st.data())
def test_random_options(device: gs.Device, data: st.DataObject) -> None:
    """Scan random shapes with keys, seeds, in reverse and exclusively, by an operator that does not commute."""
    gpu = as_gpu(device)
    length, inner = data.draw(st.integers(1, 130)), data.draw(st.integers(2, 90))
    outer = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    x = rng.integers(-(2**31), 2**31, (outer, length, inner)).astype(np.int32)
    options: dict[str, Any] = {"axis": 1, "reverse": data.draw(st.booleans())}
    if data.draw(st.booleans()):
        options |= {"exclusive": True, "initial": 5}
    if data.draw(st.booleans()):
        options["keys"] = rng.integers(0, 2, (outer, length, inner)).astype(np.uint32)
    wanted = gs.scan(x, device="numpy", **options)
    on_device = options | ({"keys": gpu.asarray(options["keys"])} if "keys" in options else {})
    assert_same(gs.scan(gpu.asarray(x), **on_device).numpy(), wanted, options)
    pair = (x, np.flip(x, 1).copy())
    affine = gs.operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]))
    for name in ("exclusive", "initial"):
        options.pop(name, None)
        on_device.pop(name, None)
    wanted_pair = gs.scan(pair, affine, device="numpy", **options)
    got = gs.scan(tuple(map(gpu.asarray, pair)), affine, **on_device)
    for result, field in zip(got, wanted_pair, strict=True):
        assert_same(result.numpy(), field, options)


def test_gradients_and_recurrences(device: gs.Device) -> None:
    """Assert that invocations that also keep the next row give the gradients of float64."""
    gpu = as_gpu(device)
    rng = np.random.default_rng(1)
    for length in one_of(device, (2, 10, 61, 130), 0):
        a, b, weights = (rng.normal(size=(length, 203)).astype(np.float32) for _ in range(3))
        states = gs.linear_recurrence(gpu.asarray(a), gpu.asarray(b), axis=0)
        state, wanted = np.zeros(203), []
        for factor, term in zip(a.astype(float), b.astype(float), strict=True):
            state = factor * state + term
            wanted.append(state)
        np.testing.assert_allclose(states.numpy(), wanted, rtol=1e-4, atol=1e-4)
        grads = gs.linear_recurrence_vjp(gpu.asarray(a), states, gpu.asarray(weights), axis=0)
        whole, terms = np.zeros(203), []
        for row in range(length - 1, -1, -1):
            whole = weights[row] + (a[row + 1].astype(float) * whole if row + 1 < length else 0)
            terms.append(whole)
        np.testing.assert_allclose(grads[1].numpy(), terms[::-1], rtol=1e-3, atol=1e-3)
