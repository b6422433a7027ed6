"""Draw from a weighted distribution: a running sum of the weights, and a binary search in it for each draw.

Run it: python examples/weighted_sampling.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs


def main() -> None:
    """Draw a million of 5,000 entries by their weights, and compare how often each is drawn with its weight."""
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 1_000, 5_000).astype(np.uint32)

    # Integers are summed exactly, so no entry of weight 0 can be drawn by a rounding error.
    sums = gs.cumulative_sum(weights)
    draws = np.searchsorted(sums, rng.integers(0, sums[-1], 1_000_000, dtype=np.uint64), side="right")

    counts = np.bincount(draws, minlength=len(weights))
    expected = weights * (len(draws) / sums[-1])
    assert not counts[weights == 0].any()
    assert np.all(np.abs(counts - expected) <= 6 * np.sqrt(expected + 1))
    print(f"Drew {len(draws):,} of {len(weights):,} entries.")


if __name__ == "__main__":
    main()
