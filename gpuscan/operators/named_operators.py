"""The named operators, and what a user may pass as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpuscan.elements import Field
from gpuscan.errors import OperatorError
from gpuscan.operators.operator import Operator, function_of_ufunc, name_of
from gpuscan.operators.traced_ufuncs import FLOATS, INTEGERS, REALS

NUMBERS = REALS | {"complex"}
ORDERED = REALS | {"bool"}
BITS = INTEGERS | {"bool"}


def _lowest(field: Field) -> float | int:
    if field.scalar.kind == "float":
        return -np.inf
    return False if field.scalar.kind == "bool" else np.iinfo(field.scalar.dtype).min


def _highest(field: Field) -> float | int:
    if field.scalar.kind == "float":
        return np.inf
    return True if field.scalar.kind == "bool" else np.iinfo(field.scalar.dtype).max


def _highest_or_nan(field: Field) -> float:
    """Return the identity of fmin: a number wins over NaN, so NaN is the only value that never wins."""
    return np.nan if field.scalar.kind == "float" else _highest(field)


def _lowest_or_nan(field: Field) -> float:
    return np.nan if field.scalar.kind == "float" else _lowest(field)


class NamedOperator(Operator):
    """An operator of this module. It is pickled by its name, so that it stays the same one in another process."""

    def __reduce__(self) -> tuple[Callable[[str], Operator], tuple[str]]:
        return resolve, (self.name,)


def _builtin(
    ufunc: np.ufunc, kinds: frozenset[str], identity: Callable[[Field], object], element_axes: int = 0
) -> Operator:
    function = function_of_ufunc(ufunc)
    return NamedOperator(ufunc.__name__, function, identity=identity, kinds=kinds, element_axes=element_axes)


NAMED_OPERATORS: Mapping[np.ufunc, Operator] = {
    np.add: _builtin(np.add, NUMBERS, lambda field: 0),
    np.multiply: _builtin(np.multiply, NUMBERS, lambda field: 1),
    np.minimum: _builtin(np.minimum, ORDERED, _highest),
    np.maximum: _builtin(np.maximum, ORDERED, _lowest),
    np.bitwise_and: _builtin(np.bitwise_and, BITS, lambda field: ~np.zeros((), field.scalar.dtype)),
    np.bitwise_or: _builtin(np.bitwise_or, BITS, lambda field: 0),
    np.bitwise_xor: _builtin(np.bitwise_xor, BITS, lambda field: 0),
    np.logical_and: _builtin(np.logical_and, frozenset({"bool"}), lambda field: True),
    np.logical_or: _builtin(np.logical_or, frozenset({"bool"}), lambda field: False),
    np.logical_xor: _builtin(np.logical_xor, frozenset({"bool"}), lambda field: False),
    np.logaddexp: _builtin(np.logaddexp, FLOATS, lambda field: -np.inf),
    np.logaddexp2: _builtin(np.logaddexp2, FLOATS, lambda field: -np.inf),
    np.hypot: _builtin(np.hypot, FLOATS, lambda field: 0),
    np.fmin: _builtin(np.fmin, ORDERED, _highest_or_nan),
    np.fmax: _builtin(np.fmax, ORDERED, _lowest_or_nan),
    np.gcd: _builtin(np.gcd, INTEGERS, lambda field: 0),
    np.matmul: _builtin(np.matmul, NUMBERS, lambda field: np.eye(field.shape[0], dtype=field.scalar.dtype), 2),
}
_ALIASES = {"mul": "multiply", "min": "minimum", "max": "maximum"}
# What people call operators that have another name here, as NumPy calls the reductions, and Python the operators.
_MEANT = {"sum": "add", "cumsum": "add", "prod": "multiply", "product": "multiply", "cumprod": "multiply"}
_MEANT |= {"and": "logical_and", "all": "logical_and", "or": "logical_or", "any": "logical_or", "xor": "logical_xor"}
_MEANT |= {"+": "add", "plus": "add", "*": "multiply", "times": "multiply", "@": "matmul"}
_MEANT |= {"&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor"}
# NumPy's and Python's functions of a whole array, and the operators that do the same to two elements.
_OF_ARRAYS: Mapping[object, str] = {
    **dict.fromkeys((np.sum, np.cumsum, sum), "add"),
    **dict.fromkeys((np.prod, np.cumprod), "multiply"),
    **dict.fromkeys((np.max, np.amax, max), "maximum"),
    **dict.fromkeys((np.min, np.amin, min), "minimum"),
    **dict.fromkeys((np.all, all), "logical_and"),
    **dict.fromkeys((np.any, any), "logical_or"),
}
# The way to a running argmax, which needs an element of two fields.
_ARGUMENT_ADVICE = (
    "carry the value and its index: gs.scan({{'value': x, 'place': np.arange(len(x), dtype=np.int32)}}, better) with "
    "better = lambda l, r: {{key: np.where(r.value {sign} l.value, r[key], l[key]) for key in ('value', 'place')}}. "
    "examples/argmax_so_far.py is a whole program"
)
BUILTINS: Mapping[str, Operator] = {operator.name: operator for operator in NAMED_OPERATORS.values()}


# The name that stands for a ufunc of NumPy.
NAMES_OF_UFUNCS: Mapping[object, str] = {ufunc: operator.name for ufunc, operator in NAMED_OPERATORS.items()}


def resolve(op: Any) -> Operator:
    """Return the operator for a name, a NumPy ufunc, an `Operator` or a Python function.

    Raises:
        OperatorError: `op` is none of these; the message names the choices.
    """
    if isinstance(op, Operator):
        return op
    if (advice := _advice_for(op)) is not None:
        shown = repr(op) if isinstance(op, str) else f"{'np.' * (op.__module__ == 'numpy')}{op.__name__}"
        raise OperatorError(
            f"op={shown} was passed, which is a function of a whole array, but an operator combines two elements; "
            + advice
        )
    if isinstance(op, str):
        named = BUILTINS.get(_ALIASES.get(op, op))
        if named is None:
            meant = f"did you mean {_MEANT[op]!r}? You can also " if op in _MEANT else ""
            raise OperatorError(f"op={op!r} was passed, and no operator has that name; {meant}{_choices()}")
        return named
    if isinstance(op, np.ufunc):
        if op not in NAMED_OPERATORS:
            is_numpy = getattr(np, op.__name__, None) is op
            name = f"np.{op.__name__}" if is_numpy else str(op)
            advice = f". If it is associative, pass a function: lambda l, r: {name}(l, r)"
            raise OperatorError(
                f"op={name} was passed, which is no named operator; {_choices()}"
                + (advice if is_numpy and op.nin == 2 else "")
            )
        return NAMED_OPERATORS[op]
    if callable(op):
        return Operator(name_of(op), op)
    raise OperatorError(f"op={op!r} was passed, which is no operator; {_choices()}")


def _advice_for(op: object) -> str | None:
    """Return what to do instead of passing a function of a whole array as the operator; None for anything else."""
    for name, function, sign in (("argmax", np.argmax, ">"), ("argmin", np.argmin, "<")):
        if op is function or (isinstance(op, str) and op == name):
            return _ARGUMENT_ADVICE.format(sign=sign)
    try:
        operator_name = _OF_ARRAYS.get(op)
    except TypeError:
        # It cannot be hashed.
        return None
    return None if operator_name is None else f"pass {operator_name!r}"


def _choices() -> str:
    names = ", ".join([*BUILTINS, *_ALIASES])
    return f"choose {names}, the NumPy ufunc of such a name, a gs.Operator, or a function of (left, right)"
