"""Maps on load that also take the index of each element along the axis."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.elements import LEAF, SCALARS, Element, Field, Structure, field_names

# Indices of an axis with at most this many elements fit int32.
MAX_INT32_LENGTH = 2**31 - 1

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class IndexedMap:
    """A function of an element and its index, as a function of a pair of both.

    Args:
        function: the function, with the pair as its only parameter.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, pair: object) -> object:
        return self._function(pair)

    def then(self, function: Callable[..., object]) -> IndexedMap:
        """Return this map followed by a function of its results."""
        return IndexedMap(lambda pair: function(self(pair)))


def as_map(before: object) -> Any:
    """Return a function of two parameters as an `IndexedMap`, and everything else as it is."""
    if before is None or isinstance(before, (IndexedMap, np.ufunc)) or not callable(before):
        return before
    try:
        parameters = inspect.signature(before).parameters.values()
    except (TypeError, ValueError):
        return before  # a function without a signature
    required = [
        parameter for parameter in parameters if parameter.kind in _POSITIONAL and parameter.default is parameter.empty
    ]
    return IndexedMap(lambda pair: before(*pair)) if len(required) == 2 else before


def compose_maps(before: Callable[..., object], function: Callable[..., object]) -> Callable[..., object]:
    """Return `before` followed by a function of its results; an indexed map stays one."""
    before = as_map(before)
    return before.then(function) if isinstance(before, IndexedMap) else lambda value: function(before(value))


def with_index(element: Element, length: int) -> Element:
    """Return the pair of an element and its index along an axis of this length."""
    structure = Structure("tuple", (0, 1), (element.structure, LEAF))
    scalar = SCALARS["int32" if length <= MAX_INT32_LENGTH else "int64"]
    fields = (*element.fields, Field("", scalar, ()))
    renamed = (replace(field, name=name) for field, name in zip(fields, field_names(structure), strict=True))
    return Element(tuple(renamed), structure)
