"""Small arrays, whose kind of scan is prepared once: later calls give what the first did, and follow what changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.device import Device
from gpuscan.api.scan import SMALL_BYTES
from gpuscan.elements import SCALARS
from gpuscan.engine import host_arrays as runner
from gpuscan.engine import small
from tests.oracle import assert_same, poison, strategies_in_turn, ufunc_scan


@pytest.mark.parametrize(
    ("number", "dtype"), list(enumerate(["uint32", "int64", "float32", "int16", "bool", "bfloat16"]))
)
def test_calls_after_the_first(device: Device, number: int, dtype: str) -> None:
    """Other contents, the same kind: buffers are full of what came before. Every second kind is read backwards."""
    reverse = number % 2 == 1
    op = "logical_or" if dtype == "bool" else "add"
    for strategy in ["auto", *strategies_in_turn(device, number // 2)]:
        for seed in range(4):
            x = np.random.default_rng(seed).integers(0, 2, (3, 333)).astype(SCALARS[dtype].dtype)
            poison(device, *(size for _, size in classes(device, x)))
            if dtype == "bfloat16":
                x[:, ::20] = 0  # sums of 8 bits are exact in it
                x[:, 256:] = 0
            wanted = ufunc_scan(op, x[:, ::-1] if reverse else x, axis=1)
            got = gs.scan(x, op, axis=1, reverse=reverse, device=device, strategy=strategy)
            assert_same(got, wanted[:, ::-1] if reverse else wanted, (strategy, seed))
    assert device.pool.usage().bytes_in_use == 0


def classes(device: Device, x: np.ndarray[Any, Any]) -> list[tuple[int, int]]:
    """The buffers that a scan of `x` takes."""
    prepared = small.prepare(device, x, "logical_or" if x.dtype == bool else "add", "auto", 1, False, False, None)
    assert prepared is not None
    return prepared._classes


def test_it_is_prepared_once(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(77, dtype=np.float32)
    first = gs.scan(x, "maximum", device=device)
    monkeypatch.setattr(small, "pose", None)
    assert_same(gs.scan(x, "maximum", device=device), first)


def test_sizes_about_the_limit(device: Device) -> None:
    for length in (SMALL_BYTES // 4 - 1, SMALL_BYTES // 4, SMALL_BYTES // 4 + 1):
        x = np.random.default_rng(1).integers(0, 2**32, length, dtype=np.uint32)
        for _ in range(2):
            assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))


def test_what_goes_the_long_way(device: Device) -> None:
    """Options, layouts and elements that are not prepared for, twice each."""
    x = np.random.default_rng(2).integers(0, 99, (6, 8), dtype=np.int32)
    record = np.zeros(5, [("a", "i4"), ("b", "f4")])
    for _ in range(2):
        assert_same(gs.scan(x, axis=0, device=device), np.cumsum(x, axis=0, dtype=np.int32))
        assert_same(gs.scan(x.T, axis=1, device=device), np.cumsum(x.T, axis=1, dtype=np.int32))
        assert_same(gs.scan(x, axis=1, exclusive=True, device=device)[:, 1:], np.cumsum(x, 1, np.int32)[:, :-1])
        assert_same(gs.scan(x, axis=1, dtype=np.float32, device=device), np.cumsum(x, axis=1, dtype=np.float32))
        assert_same(gs.scan(x.astype(">i4"), axis=1, device=device), np.cumsum(x, axis=1, dtype=np.int32))
        assert_same(gs.scan(np.ones(3, np.uint8), device=device), np.arange(1, 4, dtype=np.uint8))
        assert gs.scan(x[:, :0], axis=1, device=device).shape == (6, 0)
        with pytest.raises(gs.OperatorError):
            gs.scan(record, "add", device=device)


def test_a_function_is_traced_at_every_call(device: Device) -> None:
    """What it closes over may have changed."""
    x = np.ones(2, np.int32)
    factor = 2

    def scaled(l: Any, r: Any) -> Any:
        return l + factor * r

    assert_same(gs.scan(x, scaled, device=device), np.array([1, 3], np.int32))
    factor = 3
    assert_same(gs.scan(x, scaled, device=device), np.array([1, 4], np.int32))


def test_a_run_that_gives_up_is_done_another_way(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.arange(500, dtype=np.uint32)
    before = device.capabilities
    monkeypatch.setattr(small.SmallScan, "run", lambda *_: None)
    assert_same(gs.scan(x, device=device), np.cumsum(x, dtype=np.uint32))
    assert device.capabilities is before


def test_distrust_and_the_environment_are_followed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strategy that is no longer chosen is not run from what was prepared with it."""
    x = np.arange(501, dtype=np.uint32)
    planned: list[str] = []

    def noted(*asked: Any) -> Any:
        planned.append(asked[2])
        return runner.planned(*asked)

    monkeypatch.setattr(small, "planned", noted)
    monkeypatch.setattr(device, "small_scans", {})
    for calls in (1, 1):
        gs.scan(x, device=device)
        assert len(planned) == calls
    monkeypatch.setattr(device, "capabilities", replace(device.capabilities, distrusted=("lookback",)))
    for calls in (2, 2):
        gs.scan(x, device=device)
        assert len(planned) == calls
    monkeypatch.setenv("GPUSCAN_STRATEGY", "three_dispatch")
    for calls in (3, 3):
        gs.scan(x, device=device)
        assert len(planned) == calls


def test_errors(device: Device) -> None:
    """They are those of the long way, and leave nothing behind."""
    x = np.arange(9, dtype=np.int32)
    with pytest.raises(gs.StrategyError, match="'sideways'"):
        gs.scan(x, strategy="sideways", device=device)
    with pytest.raises(ValueError, match="axis 3"):
        gs.scan(x, axis=3, device=device)
    gs.scan(x, axis=0, device=device)
    for axis in (False, 0.0):  # equal to an axis for which a scan is prepared
        with pytest.raises(TypeError, match="axis must be an integer"):
            gs.scan(x, axis=axis, device=device)
    with pytest.raises(gs.OperatorError, match="nonsense"):
        gs.scan(x, "nonsense", device=device)
    with pytest.raises(TypeError):
        gs.scan(x > 3, "add", device=device)
    assert device.pool.usage().bytes_in_use == 0
