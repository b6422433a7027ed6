"""Follow a hidden number through noise: a Kalman filter, written as a loop and run as two scans.

The variance of the estimate is a Möbius map of the one before it, and with the variances known, the mean is an affine
map of the one before it. gpuscan finds this out from the step.

Run it: python examples/kalman_filter.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs

STEPS, SERIES = 400, 64
DRIFT, NOISE = np.float32(0.01), np.float32(1)


def step(carry: Any, measured: Any) -> tuple[Any, Any]:
    """Return the next mean and variance, and the mean as the output."""
    mean, variance = carry
    variance = variance + DRIFT
    gain = variance / (variance + NOISE)
    mean = mean + gain * (measured - mean)
    return (mean, (1 - gain) * variance), mean


def main() -> None:
    """Filter some series at once, and compare with the loop."""
    rng = np.random.default_rng(0)
    truth = np.cumsum(rng.normal(0, np.sqrt(DRIFT), (STEPS, SERIES)), axis=0)
    measured = (truth + rng.normal(0, np.sqrt(NOISE), truth.shape)).astype(np.float32)
    init = np.float32(0), np.float32(1)
    _, means = gs.loop(step, init, measured)

    carry: Any = init
    for t in range(STEPS):
        carry, expected = step(carry, measured[t])
        assert np.allclose(means[t], expected, atol=1e-4), f"different at step {t}"
    before, after = (np.sqrt(np.mean((x - truth) ** 2)) for x in (measured, means))
    assert after < before / 2
    print(f"{gs.loop_form(step, init, measured)}\nThe error fell from {before:.2f} to {after:.2f}.")


if __name__ == "__main__":
    main()
