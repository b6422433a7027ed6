"""Scan a stream of chunks that never has to fit in memory at once: the balance of an account over time.

Run it: python examples/stream_of_chunks.py
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import gpuscan as gs

CHUNKS, LENGTH = 20, 100_000


def bookings(seed: int) -> Iterator[np.ndarray]:
    """Yield one chunk of bookings after the other, in cents."""
    rng = np.random.default_rng(seed)
    for _ in range(CHUNKS):
        yield rng.integers(-10_000, 10_000, LENGTH, dtype=np.int64)


def main() -> None:
    """Find the lowest balance of the stream, and compare with NumPy on the whole array."""
    opening = 1_000_000
    lowest = min(int(balances.min()) for balances in gs.scan_chunks(bookings(seed=0), initial=opening))

    whole = np.concatenate(list(bookings(seed=0)))
    assert lowest == opening + np.cumsum(whole).min()
    print(f"The lowest balance after any of {CHUNKS * LENGTH:,} bookings was {lowest / 100:,.2f}.")


if __name__ == "__main__":
    main()
