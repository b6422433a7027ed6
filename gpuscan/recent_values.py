"""Keep the values that were used last."""

from __future__ import annotations

from collections import OrderedDict
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class RecentValues(OrderedDict[K, V]):
    """A cache; the least recently used value goes first. The caller holds a lock if several threads use it.

    Args:
        most: how many values are kept.

    Example:
        >>> squares = RecentValues(2)
        >>> [squares.keep(n, n * n) for n in (1, 2)], squares.find(1), squares.keep(3, 9)
        ([1, 4], 1, 9)
        >>> list(squares)
        [1, 3]
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def find(self, key: K) -> V | None:
        """Return the value of a key, which is used now; None if there is none."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> V:
        """Keep a value, and return it."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._most:
            self.popitem(last=False)
        return value
