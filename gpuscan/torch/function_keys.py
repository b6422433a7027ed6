"""Recognise functions that compute the same, so that they are traced once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, ModuleType
from typing import Any

import numpy as np
import torch  # noqa: TID253 (only users of torch import this package)

# Packages with functions that never change.
_FIXED = frozenset({"torch", "numpy", "math", "cmath", "operator", "builtins", "_operator"})
_NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(...))
_CONSTANTS = (torch.dtype, torch.device, np.dtype, np.generic)


class _UnknownError(Exception):
    """A function reads something that may change without notice."""


def function_key(function: Any, *, numbers: bool = True) -> Hashable | None:
    """Return a value that is equal for functions that compute the same; None if that cannot be told.

    The value describes the function's code and all that it reads: functions in the same way, and numbers. A function
    that reads other objects, such as tensors, has no key, since these can change.

    Args:
        function: the function.
        numbers: False to return None for a function that reads numbers, too.
    """
    try:
        return _key(function, numbers, [])
    except _UnknownError:
        return None


def has_closure(function: Any) -> bool:
    """Return True for a function that closes over variables."""
    code = getattr(function, "__code__", None)
    return code is not None and len(code.co_freevars) > 0


def _key(value: Any, numbers: bool, within: list[Any]) -> Hashable:
    """Return the key of a function or of a value that it reads.

    Args:
        value: the function or value.
        numbers: as in `function_key`.
        within: the functions that this one is called in.
    """
    if isinstance(value, _NUMBERS) and numbers:
        return type(value), repr(value)
    if isinstance(value, _CONSTANTS) and numbers:
        return type(value), repr(value)
    if isinstance(value, ModuleType) and value.__name__.partition(".")[0] in _FIXED:
        return value
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_key(each, numbers, within) for each in value)
    if isinstance(value, (MethodDescriptorType, np.ufunc, type)):
        return value
    # A method of an object has that object as its __self__, a function its module or class.
    if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type, type(None))):
        return value
    package = (getattr(value, "__module__", None) or "").partition(".")[0]
    if package in _FIXED and isinstance(value, FunctionType) and value.__closure__ is None:
        return value
    if not isinstance(value, FunctionType):
        raise _UnknownError
    if any(value is each for each in within):
        return "recursive", [value is each for each in within].index(True)
    inner = [*within, value]
    reads = [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    for cell in value.__closure__ or ():
        try:
            reads.append(cell.cell_contents)
        except ValueError:  # nothing has been assigned yet
            raise _UnknownError from None
    known = value.__globals__
    names = sorted({name for name in _names(value.__code__) if name in known})
    return (
        value.__code__,
        *(_key(each, numbers, inner) for each in reads),
        *((name, _key(known[name], numbers, inner)) for name in names),
    )


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the functions in it may read from the module."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
