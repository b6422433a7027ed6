"""CPU twins of the stages of counts, searches and selections, each of the name of its template."""

from __future__ import annotations

import numpy as np

from gpuscan.reference import sort as reference
from tests.oracle import Array

# Stands for a place that a tile with too few keys has not.
NO_INDEX = 0xFFFFFFFF


def count(values: Array, bins: int, edges: Array | None = None) -> tuple[Array, tuple[int, int]]:
    """Return the counts of labels below `bins`, or of numbers by bins; and the largest label, and 1 if one is negative.

    Args:
        values: the labels, or the numbers.
        bins: the number of bins.
        edges: the least number of each bin, and the greatest of the last one; None for labels.
    """
    if edges is not None:
        inside = (values >= edges[0]) & (values <= edges[-1])
        labels = np.searchsorted(edges[:-1], values[inside], side="right") - 1
        return np.bincount(labels, minlength=bins).astype(np.uint32), (0, 0)
    numbers = values.astype(np.int64)
    counts = np.bincount(numbers[(numbers >= 0) & (numbers < bins)], minlength=bins)
    return counts.astype(np.uint32), (int(numbers.max()), int((numbers < 0).any()))


def divide_bins(values: Array, bins: int, part_bins: int, tile: int) -> list[list[Array]]:
    """Return for each tile and each part of the bins the places of the labels' bins in the part, in order.

    Args:
        values: the labels.
        bins: the number of bins.
        part_bins: the bins of a part.
        tile: the labels of a tile.
    """
    numbers = values.astype(np.int64)
    divided = []
    for begin in range(0, len(numbers), tile):
        own = numbers[begin : begin + tile]
        own = own[(own >= 0) & (own < bins)]
        parts = range(-(-bins // part_bins))
        divided.append([np.sort(own[own // part_bins == part] % part_bins) for part in parts])
    return divided


def count_parts(places: list[list[Array]], bins: int, part_bins: int) -> Array:
    """Return the counts of all bins, given the places that `divide_bins` returns."""
    counts = np.zeros(bins, np.uint32)
    for tile in places:
        for part, own in enumerate(tile):
            np.add.at(counts, part * part_bins + own, 1)
    return counts


def search(ordered: Array, searched: Array, *, right: bool) -> Array:
    """Return the place of each key among sorted ones: after equal keys, or before them."""
    return np.searchsorted(ordered, searched, side="right" if right else "left").astype(np.uint32)


def select(keys: Array, candidates: Array, kept: int, tile: int, *, descending: bool) -> Array:
    """Return the places of the first `kept` keys of each tile, in the order of the places: (rows, tiles, kept).

    Args:
        keys: rows of keys.
        candidates: for each row the places of the keys that take part, or `NO_INDEX`.
        kept: the keys of each tile.
        tile: the candidates in a tile.
        descending: True if the greatest key comes first.
    """
    rows, length = candidates.shape
    tiles = -(-length // tile)
    places = np.full((rows, tiles, kept), NO_INDEX, np.uint32)
    for row in range(rows):
        for number in range(tiles):
            own = candidates[row, number * tile : (number + 1) * tile]
            own = own[own != NO_INDEX]
            order = reference.argsort(keys[row, own], 0, descending)[:kept]
            selected = own[np.sort(order)]
            places[row, number, : len(selected)] = selected
    return places
