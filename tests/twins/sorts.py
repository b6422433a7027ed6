"""CPU twins of the stages of sorts, each of the name of its template under ``shaders/sort/``."""

from __future__ import annotations

import numpy as np

from tests.oracle import Array


def exchange_rows(order: Array) -> Array:
    """Return the indices that sort each row (rows, row_length), by the exchanges of a bitonic sort."""
    rows, length = order.shape
    places = np.broadcast_to(np.arange(length), (rows, length)).copy()
    order, numbers = order.copy(), np.arange(length)
    for level in range(1, (length - 1).bit_length() + 1):
        for bit in range(level, 0, -1):
            # The first exchange mirrors each half.
            other = numbers ^ ((1 << level) - 1 if bit == level else 1 << (bit - 1))
            left = np.flatnonzero((numbers < other) & (other < length))
            right = other[left]
            is_equal = order[:, right] == order[:, left]
            swaps = (order[:, right] < order[:, left]) | (is_equal & (places[:, right] < places[:, left]))
            for array in (order, places):
                first = np.where(swaps, array[:, right], array[:, left])
                array[:, right] = np.where(swaps, array[:, left], array[:, right])
                array[:, left] = first
    return places


def differences(order: Array) -> tuple[int, bool]:
    """Return the bits in which any key differs from the first one of its row, and whether any row is out of order."""
    return int(np.bitwise_or.reduce(order ^ order[:, :1], axis=None)), bool((order[:, 1:] < order[:, :-1]).any())


def plan_steps(differences: int, falls: bool, digits: int, radix_bits: int) -> list[tuple[int, int, int]]:
    """Return the steps as (digit, source, destination); 0 is the input, 1 the result, 2 the temporary array."""
    mask = (1 << radix_bits) - 1
    needed = [digit for digit in range(digits) if falls and differences >> (digit * radix_bits) & mask] or [0]
    steps, destination = [], 1
    for digit in reversed(needed):
        steps.append((digit, 0 if digit == needed[0] else 3 - destination, destination))
        destination = 3 - destination
    return steps[::-1]


def count_digits(order: Array, digit: int, radix_bits: int, tile_size: int) -> Array:
    """Return how many keys of each tile have each value of a digit: (rows, digit values, tiles of a row)."""
    rows, length = order.shape
    values = _digits(order, digit, radix_bits)
    counts = np.zeros((rows, 1 << radix_bits, -(-length // tile_size)), np.uint32)
    row, at = np.indices(order.shape)
    np.add.at(counts, (row, values, at // tile_size), 1)
    return counts


def histogram(order: Array, digits: int, radix_bits: int) -> Array:
    """Return how many keys of each row have each value of each digit: (rows, digits, digit values)."""
    counts = [count_digits(order, digit, radix_bits, order.shape[1]) for digit in range(digits)]
    return np.stack([digit_counts[..., 0] for digit_counts in counts], axis=1)


def scan_histograms(counts: Array, row_length: int) -> Array:
    """Return where the keys with each value of a digit begin in all rows: (rows, digits, digit values)."""
    begins = np.arange(len(counts))[:, np.newaxis, np.newaxis] * row_length
    bases: Array = (np.cumsum(counts, axis=-1) - counts + begins).astype(np.uint32)
    return bases


def repeat_keys(bases: Array, row_length: int) -> Array:
    """Return the order of the key at each place of each row, given where each order begins: (rows, row_length)."""
    places = np.arange(len(bases) * row_length).reshape(len(bases), row_length)
    rows = [np.searchsorted(begins, row, side="right") - 1 for begins, row in zip(bases, places, strict=True)]
    return np.stack(rows)


def look_back(counts: Array) -> Array:
    """Return the counts of the tiles before each tile of a row: (rows, digit values, tiles of a row)."""
    before: Array = (np.cumsum(counts, axis=-1) - counts).astype(np.uint32)
    return before


def scatter_digits(order: Array, digit: int, radix_bits: int, offsets: Array, tile_size: int) -> Array:
    """Return the place in all rows of each key, given where the first key of each tile with each digit belongs."""
    values = _digits(order, digit, radix_bits)
    places = np.empty(order.shape, np.uint32)
    taken = offsets.copy()
    for row, column in np.ndindex(*order.shape):
        bucket = row, values[row, column], column // tile_size
        places[row, column] = taken[bucket]
        taken[bucket] += 1
    return places


def _digits(order: Array, digit: int, radix_bits: int) -> Array:
    return (order.astype(np.uint64) >> np.uint64(digit * radix_bits)).astype(np.int64) & ((1 << radix_bits) - 1)
