"""The stages of the selective scan give what their CPU twins do, for every form of weights, in chunks and in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.selective_scan import SelectiveScan
from gpuscan.array_types import AnyArray
from gpuscan.engine import selective_scan as engine
from gpuscan.planning.heuristics import ARRAYS
from gpuscan.reference import selective_stages as stages
from tests.oracle import half_of

RNG = np.random.default_rng(0)


def selective_carries(steps: AnyArray, decays: AnyArray, ends: AnyArray) -> AnyArray:
    """Return the states before each chunk, as arrays/selective_carries.wgsl does.

    Args:
        steps: the sum of dt over each chunk, (chunk, row).
        decays: A, (row, state); rows beyond use the same decays again.
        ends: the states after each chunk that begins at 0, (chunk, row, state).
    """
    starts, h = np.zeros_like(ends), np.zeros_like(ends[0])
    whole = np.resize(decays, h.shape)
    for chunk, (step, end) in enumerate(zip(steps, ends, strict=True)):
        starts[chunk] = h
        h = np.exp(whole * step[:, np.newaxis]) * h + end
    return starts


def some(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def scan_of(batch: int, groups: int, channels: int, length: int, weights: str, states: int = 6) -> list[Any]:
    """Return arrays with decays of at most 1, and weights that are (f)ixed or (v)ary with time."""
    shape = batch, groups, channels, 1, length
    forms = {"f": (1, groups, channels, states, 1), "v": (batch, groups, 1, states, length)}
    return [
        some(*shape), np.abs(some(*shape)), -np.abs(some(1, groups, channels, states, 1)),
        *(some(*forms[form]) for form in weights),
    ]  # fmt: skip


def assert_scans(found: Any, arrays: list[Any]) -> None:
    wanted = stages.selective_scan(*(array.astype(np.float64) for array in arrays))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * np.abs(other).max())


@pytest.mark.parametrize(("chunk", "shape", "weights"), [
    (ARRAYS.max_selective_chunk, (2, 1, 70, 37), "vv"), (16, (2, 3, 5, 50), "vv"), (16, (1, 2, 5, 33), "fv"),
    (16, (1, 1, 1, 1), "vf"),
])  # fmt: skip
def test_selective_scan(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, chunk: int, shape: tuple[int, int, int, int], weights: str
) -> None:
    # Six states, four of them at a time, take two passes.
    few = 4 if weights == "fv" else ARRAYS.selective_states
    monkeypatch.setattr(engine, "ARRAYS", replace(ARRAYS, max_selective_chunk=chunk, selective_states=few))
    arrays = scan_of(*shape, weights)
    y, last = engine.selective_scan(*(device.asarray(array) for array in arrays))
    assert_scans((y._read(), last._read()), arrays)


def test_selective_gradients(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    for shape, weights in half_of(device, [((2, 1, 70, 37), "vv"), ((1, 2, 5, 17), "fv")]):
        few = 4 if weights == "fv" else ARRAYS.selective_states
        monkeypatch.setattr(engine, "ARRAYS", replace(ARRAYS, selective_states=few))
        arrays = scan_of(*shape, weights)
        grads = [some(*arrays[0].shape), some(*shape[:3], arrays[2].shape[3], 1)]
        found = engine.selective_gradients(engine.gradient_sources(device._context, *arrays, *grads))
        wanted = stages.selective_gradient(*(each.astype(np.float64) for each in (*arrays, *grads)))
        for one, other in zip(found, wanted, strict=True):
            total = gs.Array._of(device, one).numpy()
            total = total if total.shape == other.shape else total.sum(0)
            total = total if total.shape == other.shape else total.sum(0, keepdims=True)
            np.testing.assert_allclose(total, other, rtol=0, atol=2e-5 * np.abs(other).max())


def test_carries(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, steps, decays = some(3, 4, 5), np.abs(some(3, 4)), -np.abs(some(2, 5))
    bound = [device.asarray(array) for array in (steps, decays, ends)]
    with device._context.lock:
        device._context.submit([engine._carries_stage(*bound)], ends.nbytes, deferrable=False)
    np.testing.assert_allclose(bound[2].numpy(), selective_carries(steps, decays, ends), rtol=1e-5, atol=1e-6)


def test_pieces_and_batches(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scan several batches of batches, as `torch.func.vmap` makes them, few channels at a time."""
    monkeypatch.setattr("gpuscan.api.selective_scan.resolve_device", lambda asked: device)
    monkeypatch.setattr("gpuscan.api.selective_scan.ARRAYS", replace(ARRAYS, piece_bytes=4000))
    each = [scan_of(2, 4, 3, 37, "vf") for _ in range(2)]
    arrays = [np.stack(pair) for pair in zip(*each, strict=True)]
    assert_scans(SelectiveScan(*arrays).outputs(), arrays)
    monkeypatch.setattr("gpuscan.api.selective_scan.ARRAYS", replace(ARRAYS, piece_bytes=6000))
    y, last = SelectiveScan(*arrays).outputs()
    wanted = stages.selective_gradient(*[*arrays, y, last])
    for one, other in zip(SelectiveScan(*arrays).gradients(y, last), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * np.abs(other).max())
