"""Find the maximum drawdown of each price series: the deepest fall from a peak, as a part of the peak, in one pass.

Run it: python examples/maximum_drawdown.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs


def join_stretches(l: Any, r: Any) -> dict[str, Any]:
    """Combine two stretches of a series: the deepest fall is in one of them, or from the left peak to the right low."""
    across = 1 - r.low / l.high
    return {
        "high": np.maximum(l.high, r.high),
        "low": np.minimum(l.low, r.low),
        "fall": np.maximum(np.maximum(l.fall, r.fall), across),
    }


def main() -> None:
    """Reduce ten years of prices of 200 series to one number each, and compare with a running maximum in NumPy."""
    steps = np.random.default_rng(0).normal(0.0003, 0.01, (200, 2_520))
    prices = np.exp(np.cumsum(steps, axis=1)).astype(np.float32)

    falls = gs.reduce(
        prices,
        join_stretches,
        axis=1,
        before=lambda p: {"high": p, "low": p, "fall": np.zeros_like(p)},
        after=lambda s: s.fall,
    )

    peaks = np.maximum.accumulate(prices, axis=1)
    assert np.allclose(falls, (1 - prices / peaks).max(axis=1), atol=1e-6)
    print(f"The worst of {len(falls)} series fell by {falls.max():.0%}.")


if __name__ == "__main__":
    main()
