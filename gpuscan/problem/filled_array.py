"""Arrays that a parameter of a call fills, such as an initial value that is a float."""

from __future__ import annotations

from math import prod
from typing import Any, TypeGuard

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.operators.parameters import FLOATS, Expression, Parameter, derive, reveal


class FilledArray:
    """An array of NumPy with the same parameter of the call in all places.

    Only what is written here leaves the parameter unknown. Everything else reads the array, which reveals it.

    Args:
        number: the parameter.
        shape: the array's shape.
        dtypes: the dtypes that the number is cast to, in this order.
    """

    def __init__(self, number: Parameter, shape: tuple[int, ...], *dtypes: AnyDType) -> None:
        self._number, self._dtypes = number, dtypes
        self.shape, self.dtype, self.ndim, self.size = shape, dtypes[-1], len(shape), prod(shape)

    def astype(self, dtype: AnyDType, copy: bool = True) -> FilledArray:
        """Return the array in another dtype."""
        return FilledArray(self._number, self.shape, *self._dtypes, np.dtype(dtype))

    def reshape(self, *shape: int) -> FilledArray:
        """Return the array in another shape. One length may be -1."""
        rest = self.size // max(1, -prod(shape))
        return FilledArray(self._number, tuple(rest if n == -1 else n for n in shape), *self._dtypes)

    @property
    def content(self) -> bytes | Expression:
        """The bytes of the array, filled up with zeros to whole words."""
        return derive(_bytes_of, self._number._expression, self.shape, self._dtypes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        return np.full(self.shape, _cast(reveal(self._number), self._dtypes), dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols ask whether there is such a thing
        return getattr(np.asarray(self), name)


def is_float_parameter(value: object) -> TypeGuard[Parameter]:
    """Return True for a parameter in the place of a float of Python or NumPy."""
    return type(value) is Parameter and value.kind in FLOATS


def cast_parameter(number: Parameter, *dtypes: AnyDType) -> Any:
    """Return a parameter cast to some dtypes, in this order, as a number of NumPy."""
    found = derive(_cast, number._expression, dtypes)
    return Parameter(found) if isinstance(found, Expression) else found


def _cast(number: object, dtypes: tuple[AnyDType, ...]) -> Any:
    array = np.asarray(number)
    for dtype in dtypes:
        array = array.astype(dtype)
    return array[()]


def _bytes_of(number: object, shape: tuple[int, ...], dtypes: tuple[AnyDType, ...]) -> bytes:
    content = np.full(shape, _cast(number, dtypes)).tobytes()
    return content + bytes(-len(content) % 4)
