"""Bundles of any arrays: map, fill and flatten them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def mapped(nest: Any, function: Callable[[Any], Any]) -> Any:
    """Return a bundle of the same kind with the results of a function of its leaves."""
    if isinstance(nest, dict):
        return {key: mapped(part, function) for key, part in nest.items()}
    if isinstance(nest, tuple):
        parts = [mapped(part, function) for part in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else tuple(parts)
    return function(nest)


def filled(nest: Any, leaves: Sequence[Any]) -> Any:
    """Return the bundle with these leaves in place of their numbers."""
    return mapped(nest, lambda place: leaves[place])


def flattened(nest: Any, value: Any) -> Iterator[Any]:
    """Yield the leaves of a value that nests as the bundle does.

    Raises:
        TypeError, ValueError, KeyError, IndexError: it nests in another way.
    """
    if isinstance(nest, dict):
        if len(value) != len(nest):
            raise ValueError
        for key, part in nest.items():
            yield from flattened(part, value[key])
    elif isinstance(nest, tuple):
        for part, inside in zip(nest, value, strict=True):
            yield from flattened(part, inside)
    else:
        yield value
