"""Find where the best result so far was reached: a running argmax, which keeps the first of equal results.

Run it: python examples/argmax_so_far.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs


def better(l: Any, r: Any) -> dict[str, Any]:
    """Return the greater of two results and its place; the left one if they are equal."""
    later = r.score > l.score
    return {"score": np.where(later, r.score, l.score), "place": np.where(later, r.place, l.place)}


def main() -> None:
    """Follow the best score of several runs along the time axis, and compare with a loop."""
    scores = np.random.default_rng(0).integers(0, 10_000, (8, 5_000)).astype(np.int32)
    places = np.broadcast_to(np.arange(scores.shape[1], dtype=np.int32), scores.shape)

    best = gs.scan({"score": scores, "place": places}, better, axis=1)

    for run, row in enumerate(scores):
        expected = 0
        for time, score in enumerate(row):
            expected = time if score > row[expected] else expected
            assert best["place"][run, time] == expected
        assert best["score"][run, -1] == row.max()
    print(f"Followed the best of {scores.shape[0]} runs over {scores.shape[1]:,} steps.")


if __name__ == "__main__":
    main()
