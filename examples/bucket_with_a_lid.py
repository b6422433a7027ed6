"""Follow the level of a bucket that overflows and runs dry: a loop with a clamp, run as a scan.

The level after each hour is ``min(max(level + inflow - outflow, 0), capacity)``. Models of reservoirs, batteries and
queues have this step, and it is no cumulative sum: what spills is gone.

Run it: python examples/bucket_with_a_lid.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs

HOURS, CAPACITY = 20_000, np.float32(5)


def step(level: np.float32, change: np.float32) -> tuple[np.float32, np.float32]:
    """Return the next level, and what spills."""
    full = level + change
    return np.clip(full, 0, CAPACITY), np.maximum(full - CAPACITY, 0)


def main() -> None:
    """Compute the spills of some years of hours, and compare with the loop."""
    rng = np.random.default_rng(0)
    change = (rng.exponential(0.5, HOURS) - rng.uniform(0, 1, HOURS)).astype(np.float32)
    level, spilled = gs.loop(step, np.float32(1), change)

    later, expected = np.float32(1), np.empty_like(change)
    for hour in range(HOURS):
        later, expected[hour] = step(later, change[hour])
    assert np.allclose(spilled, expected, atol=1e-4)
    assert np.isclose(level, later, atol=1e-4)
    print(f"{spilled.sum():,.0f} litres spilled in {np.count_nonzero(spilled):,} of {HOURS:,} hours.")


if __name__ == "__main__":
    main()
