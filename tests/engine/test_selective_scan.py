"""The stages of the selective scan give what their CPU twins do, for every form of weights, in chunks and in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.selective_scan import SelectiveScan
from gpuscan.engine import selective_scan as engine
from gpuscan.planning.array_heuristics import ARRAYS
from gpuscan.reference import stages

RNG = np.random.default_rng(0)


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
    (ARRAYS.max_selective_chunk, (2, 1, 70, 37), "vv"), (16, (2, 1, 70, 37), "vv"), (16, (1, 3, 2, 16), "vv"),
    (16, (2, 2, 5, 50), "fv"), (16, (1, 1, 9, 33), "ff"), (16, (1, 1, 1, 1), "vf"),
])  # fmt: skip
def test_selective_scan(
    device: gs.Device, monkeypatch: pytest.MonkeyPatch, chunk: int, shape: tuple[int, ...], weights: str
) -> None:
    # Six states in registers for four at a time take two passes.
    few = replace(ARRAYS, max_selective_chunk=chunk, selective_states=4)
    monkeypatch.setattr(engine, "ARRAYS", few)
    arrays = scan_of(*shape, weights)
    y, last = engine.selective_scan(*(device.asarray(array) for array in arrays))
    assert_scans((y.read(), last.read()), arrays)


def test_carries(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, steps, decays = some(3, 4, 5), np.abs(some(3, 4)), -np.abs(some(2, 5))
    bound = [device.asarray(array) for array in (steps, decays, ends)]
    engine.combine_chunks(*bound)
    np.testing.assert_allclose(bound[2].numpy(), stages.selective_carries(steps, decays, ends), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", ["vf", "ff"])
def test_pieces_and_batches(device: gs.Device, monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    """Scan several batches of batches, as `torch.func.vmap` makes them, few channels at a time."""
    monkeypatch.setattr("gpuscan.api.selective_scan.resolve_device", lambda asked: device)
    monkeypatch.setattr("gpuscan.api.selective_scan.ARRAYS", replace(ARRAYS, selective_piece_bytes=1000))
    each = [scan_of(2, 4, 3, 37, weights) for _ in range(2)]
    arrays = [np.stack(pair) for pair in zip(*each, strict=True)]
    assert_scans(SelectiveScan(*arrays).outputs(), arrays)
