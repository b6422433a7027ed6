"""Compute the running mean and variance of each group of a stream, by Welford's method, with labels in any order.

Run it: python examples/group_statistics.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs


def pool_samples(l: Any, r: Any) -> dict[str, Any]:
    """Return count, mean and sum of squared deviations of two samples together (Chan, Golub & LeVeque 1979)."""
    count = l.count + r.count
    step, share = r.mean - l.mean, r.count / count
    return {"count": count, "mean": l.mean + step * share, "m2": l.m2 + r.m2 + step * step * share * l.count}


def main() -> None:
    """Scan the values of each group by themselves, where they are, and compare with NumPy."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 40, 20_000).astype(np.uint32)
    values = rng.normal(labels, 2).astype(np.float32)

    one = {"count": np.ones_like(values), "mean": values, "m2": np.zeros_like(values)}
    running = gs.scan(one, pool_samples, groups=labels)
    for label in range(40):
        own, place = values[labels == label], labels == label
        for length in (1, 2, 100, len(own)):
            mean, m2 = (running[name][place][length - 1] for name in ("mean", "m2"))
            assert np.isclose(mean, own[:length].mean(), atol=1e-4)
            assert np.isclose(m2 / length, own[:length].var(), rtol=1e-3, atol=1e-4)
    print(f"Followed 40 groups in {len(values):,} values.")


if __name__ == "__main__":
    main()
