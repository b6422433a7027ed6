"""The exponentially weighted mean is pandas', with NaN skipped as pandas skips it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import gpuscan as gs
from gpuscan import signal
from tests.harness.devices import count_plans_and_pipelines
from tests.oracle import Array

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


def with_gaps(size: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=size)
    x[rng.random(size) < 0.3] = np.nan
    x[:2] = np.nan
    x[size // 3 : size // 2] = np.nan
    return x.astype(np.float32)


def by_pandas(x: Array, alpha: float, adjust: bool) -> Array:
    columns = pd.DataFrame(x.astype(np.float64).reshape(len(x), -1))
    return columns.ewm(alpha=alpha, adjust=adjust).mean().to_numpy().reshape(x.shape)


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("alpha", [0.5, 0.02, 1.0])
def test_means(device: gs.Device, alpha: float, adjust: bool) -> None:
    """Assert pandas' means on every adapter; alpha = 0.5 has weights of its own in pandas."""
    x = with_gaps(3001)
    y = signal.ewm_mean(device.asarray(x), alpha=alpha, adjust=adjust)
    assert isinstance(y, gs.Array)
    np.testing.assert_allclose(y.numpy(), by_pandas(x, alpha, adjust), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("where", ["default", "numpy"])
@pytest.mark.parametrize("adjust", [True, False])
def test_columns_of_numpy_arrays(monkeypatch: pytest.MonkeyPatch, adjust: bool, where: str) -> None:
    if where == "numpy":
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    x = np.stack([with_gaps(500, seed) for seed in range(6)], axis=1)
    for alpha in (1e-4, 0.9):
        wanted = by_pandas(x, alpha, adjust)
        y = signal.ewm_mean(x, alpha=alpha, axis=0, adjust=adjust)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("adjust", [True, False])
def test_special_samples(adjust: bool) -> None:
    """Assert what pandas gives of constants, of nothing but NaN, of one number, of integers and of float64."""
    for x in ([0.1] * 40, [np.nan] * 5, [np.nan, 3.0], [7.0], [1.0, np.inf, 2.0], [1, 2, 4]):
        for dtype in (np.float64, np.float32):
            given = np.array(x, dtype)
            wanted = pd.Series(given.astype(np.float64)).ewm(alpha=0.25, adjust=adjust).mean()
            y = signal.ewm_mean(given, alpha=0.25, adjust=adjust)
            assert y.dtype == dtype
            np.testing.assert_allclose(y, wanted, rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert signal.ewm_mean(np.arange(3), alpha=0.25).dtype == np.float64
    assert signal.ewm_mean(np.zeros((2, 0), np.float32), alpha=0.25).shape == (2, 0)


def test_long_gaps_underflow_nothing() -> None:
    """Assert that a mean stays while its weight would fall below what float32 holds."""
    x = np.full(4000, np.nan, np.float32)
    x[[0, 1, 3000]] = 1, 3, 5
    for adjust in (True, False):
        wanted = by_pandas(x, 0.7, adjust)
        np.testing.assert_allclose(signal.ewm_mean(x, alpha=0.7, adjust=adjust), wanted, rtol=1e-6)


def test_other_factors_compile_nothing(device: gs.Device) -> None:
    x = device.asarray(with_gaps(3001))
    compiled = []
    for alpha in (0.1, 0.2, 0.4):
        signal.ewm_mean(x, alpha=alpha)
        compiled.append(count_plans_and_pipelines(device)[1])
    assert compiled[0] == compiled[-1]


def test_errors() -> None:
    x = np.ones(3, np.float32)
    for alpha in (0, -0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"above 0 and at most 1; pass alpha=0\.5"):
            signal.ewm_mean(x, alpha=alpha)
    for other in ("0.5", 1j, True):
        with pytest.raises(TypeError, match="must be a number above 0"):
            signal.ewm_mean(x, alpha=other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="adjust='no' was passed"):
        signal.ewm_mean(x, alpha=0.5, adjust="no")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="complex samples"):
        signal.ewm_mean(x.astype(np.complex64), alpha=0.5)
    with pytest.raises(ValueError, match="axis=1 was passed"):
        signal.ewm_mean(x, alpha=0.5, axis=1)
