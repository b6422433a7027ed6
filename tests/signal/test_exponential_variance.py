"""The exponentially weighted variance is pandas', and so are the ways to pass a smoothing factor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpuscan as gs
from gpuscan import signal
from tests.oracle import Array

pytestmark = pytest.mark.usefixtures("skip_without_adapters")


def with_gaps(size: int, seed: int = 0) -> Array:
    """Return samples with gaps that are short enough for pandas, which loses the digits of small weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(3, 2, size)
    x[rng.random(size) < 0.2] = np.nan
    x[:2] = np.nan
    x[size // 2] = np.inf
    return x.astype(np.float32)


def by_pandas(x: Array, adjust: bool, bias: bool, **factor: float) -> Array:
    columns = pd.DataFrame(x.astype(np.float64).reshape(len(x), -1))
    return columns.ewm(adjust=adjust, **factor).var(bias=bias).to_numpy().reshape(x.shape)


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_variances(device: gs.Device, adjust: bool, bias: bool) -> None:
    """Assert pandas' variances on every adapter, from fast to slow factors."""
    x = with_gaps(3001)
    for alpha in (0.5, 0.02, 0.9, 1.0):
        y = signal.ewm_var(device.asarray(x), alpha=alpha, adjust=adjust, bias=bias)
        assert isinstance(y, gs.Array)
        wanted = by_pandas(x, adjust, bias, alpha=alpha)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=3e-4, atol=1e-5)


@pytest.mark.parametrize("where", ["default", "numpy"])
def test_columns_of_numpy_arrays(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    if where == "numpy":
        monkeypatch.setenv("GPUSCAN_ADAPTER", "numpy")
    x = np.stack([with_gaps(500, seed) for seed in range(4)], axis=1)
    for adjust in (True, False):
        for bias in (True, False):
            wanted = by_pandas(x, adjust, bias, alpha=0.1)
            y = signal.ewm_var(x.astype(np.float64), alpha=0.1, axis=0, adjust=adjust, bias=bias)
            assert y.dtype == np.float64
            np.testing.assert_allclose(y, wanted, rtol=1e-9, atol=1e-12)
            y = signal.ewm_var(x, alpha=0.1, axis=0, adjust=adjust, bias=bias)
            assert y.dtype == np.float32
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_special_samples() -> None:
    """Assert what pandas gives of constants, of nothing but NaN, of one number, of integers and after long gaps."""
    gap = np.full(400, np.nan)
    gap[[0, 1, 399]] = 1, 3, 5
    for x in ([0.1] * 40, [np.nan] * 5, [np.nan, 3.0], [7.0], [1.0, np.inf, 2.0], [1, 2, 4], gap):
        for adjust in (True, False):
            for bias in (True, False):
                y = signal.ewm_var(np.array(x, np.float64), alpha=0.25, adjust=adjust, bias=bias)
                wanted = by_pandas(np.array(x), adjust, bias, alpha=0.25)
                np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-30)
    assert signal.ewm_var(np.arange(3), alpha=0.25).dtype == np.float64
    assert signal.ewm_var(np.zeros((2, 0), np.float32), alpha=0.25).shape == (2, 0)


@pytest.mark.parametrize(
    "factor", [{"com": 2.5}, {"com": 0}, {"com": 1}, {"span": 7}, {"span": 1}, {"halflife": 3.5}, {"halflife": 1}]
)
def test_ways_to_pass_the_factor(factor: dict[str, Any]) -> None:
    x = with_gaps(300)
    for adjust in (True, False):
        means = pd.Series(x.astype(np.float64)).ewm(adjust=adjust, **factor).mean()
        np.testing.assert_allclose(signal.ewm_mean(x.astype(np.float64), adjust=adjust, **factor), means, rtol=1e-12)
        wanted = by_pandas(x, adjust, False, **factor)
        y = signal.ewm_var(x.astype(np.float64), adjust=adjust, **factor)
        np.testing.assert_allclose(y, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("function", [signal.ewm_mean, signal.ewm_var])
def test_errors(function: Any) -> None:
    """Assert that factors that pandas refuses are refused, as ValueErrors too."""
    x = np.arange(4.0)
    wrong: tuple[dict[str, Any], ...] = (
        {},
        {"com": 1, "span": 2},
        {"alpha": 0.5, "halflife": 2},
        {"com": -0.1},
        {"span": 0.9},
        {"halflife": 0},
        {"alpha": 0},
        {"alpha": 1.1},
    )
    for factor in wrong:
        with pytest.raises(ValueError, match=r"must satisfy|mutually exclusive|one of"):
            pd.Series(x).ewm(**factor)
        with pytest.raises(ValueError, match="pass "):
            function(x, **factor)
    for factor in ({"span": "3"}, {"com": True}, {"halflife": np.timedelta64(1, "D")}, {"alpha": x}):
        with pytest.raises(TypeError, match="must be a number"):
            function(x, **factor)
    for samples in (x.astype(np.complex128), np.array(["a"])):
        with pytest.raises(TypeError):
            function(samples, alpha=0.5)
