"""Count, rank and encode the words of a text on the GPU: frequencies, the most frequent words, and their lengths.

Run it: python examples/rank_words.py
"""

from __future__ import annotations

import numpy as np

import gpuscan as gs


def main() -> None:
    """Compare each step with NumPy."""
    rng = np.random.default_rng(0)
    # The number of each word of a text: a few words are frequent (Zipf's law).
    words = (rng.zipf(1.3, 50_000) % 5000).astype(np.int32)

    values, counts = gs.unique_counts(words)
    assert np.array_equal(values, np.unique(words))
    assert np.array_equal(gs.bincount(words)[values], counts)

    most, places = gs.top_k(counts, 10)
    assert np.array_equal(most, np.sort(counts)[::-1][:10])
    assert values[places[0]] == np.argmax(np.bincount(words))

    frequent, rare = gs.partition_by(words, np.isin(words, values[places]))
    assert frequent.size == most.sum()
    assert frequent.size + rare.size == words.size

    assert gs.median(counts) == np.median(counts)
    assert np.array_equal(gs.quantile(counts, [0.5, 0.99]), np.quantile(counts, [0.5, 0.99]))
    histogram, edges = gs.histogram(counts, bins=20)
    assert np.array_equal(histogram, np.histogram(counts, bins=20)[0])
    assert np.array_equal(edges, np.histogram(counts, bins=20)[1])

    encoded = gs.run_length_encode(gs.sort(words))
    assert np.array_equal(gs.repeat(*encoded), np.sort(words))
    assert np.array_equal(gs.searchsorted(encoded.values, words), gs.unique_inverse(words).inverse_indices)
    print(f"Ranked {values.size:,} words of a text of {words.size:,}.")


if __name__ == "__main__":
    main()
