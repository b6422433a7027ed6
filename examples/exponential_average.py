"""Smooth several signals with an exponential average: a linear recurrence along the time axis.

Run it: python examples/exponential_average.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs


def main() -> None:
    """Compute h[t] = decay * h[t-1] + (1 - decay) * x[t] on the GPU, and compare with a loop over time."""
    times, channels = 2_000, 64
    x = np.random.default_rng(0).normal(size=(times, channels)).astype(np.float32)
    decay = np.linspace(0.5, 0.99, channels, dtype=np.float32)

    # A broadcast array gives every step the same gate without storing it for each.
    smooth = gs.linear_recurrence(np.broadcast_to(decay, x.shape), (1 - decay) * x, axis=0)

    expected = np.zeros(channels)
    for t in range(times):
        expected = decay * expected + (1 - decay) * x[t]
        assert np.allclose(smooth[t], expected, atol=1e-5), f"different at time {t}"
    print(f"Smoothed {channels} signals of {times:,} steps.")


if __name__ == "__main__":
    main()
