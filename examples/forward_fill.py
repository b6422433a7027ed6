"""Fill the missing values of a table with the last ones before them, column by column, as pandas' ffill does.

Run it: python examples/forward_fill.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import gpuscan as gs


def latest(l: Any, r: Any) -> Any:
    """Return the later value, unless it is missing."""
    return np.where(np.isnan(r), l, r)


def main() -> None:
    """Fill a table along time, forwards and backwards, and compare with a loop."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(3_000, 12)).astype(np.float32)
    table[rng.random(table.shape) < 0.6] = np.nan

    forward = gs.scan(table, latest, axis=0)
    backward = gs.scan(table, latest, axis=0, reverse=True)

    expected = np.full(table.shape[1], np.nan, np.float32)
    for row, filled in zip(table, forward, strict=True):
        expected = np.where(np.isnan(row), expected, row)
        np.testing.assert_array_equal(filled, expected)
    np.testing.assert_array_equal(backward, gs.scan(table[::-1], latest, axis=0)[::-1])
    print(f"Filled {np.count_nonzero(np.isnan(table)):,} of {table.size:,} values.")


if __name__ == "__main__":
    main()
