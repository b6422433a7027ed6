"""Normalise the rows of a ragged batch by softmax: one pass finds the greatest number and the denominator of each row.

Run it: python examples/ragged_softmax.py
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

import gpuscan as gs


def join_parts(l: Any, r: Any) -> tuple[Any, Any]:
    """Combine the greatest number, and the sum of exponentials relative to it, of two parts of a row."""
    greatest = np.maximum(l[0], r[0])
    return greatest, l[1] * np.exp(l[0] - greatest) + r[1] * np.exp(r[0] - greatest)


def main() -> None:
    """Compute the softmax of 3,000 rows of 1 to 40 numbers, and compare each with NumPy."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 40, 3_000, dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    scores = rng.normal(0, 30, offsets[-1]).astype(np.float32)

    greatest, total = gs.reduce(scores, join_parts, axis=0, segments=offsets, before=lambda v: (v, np.ones_like(v)))
    weights = np.exp(scores - np.repeat(greatest, lengths)) / np.repeat(total, lengths)

    for start, stop in pairwise(offsets):
        row = np.exp(scores[start:stop].astype(np.float64) - scores[start:stop].max())
        assert np.allclose(weights[start:stop], row / row.sum(), rtol=1e-4, atol=1e-7)
    print(f"Normalised {len(lengths):,} rows of {len(scores):,} numbers.")


if __name__ == "__main__":
    main()
