"""Operators: the built-in ones, the user's own, and the WGSL function that each becomes for an element."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from gpuscan.elements import Element, Field
from gpuscan.errors import OperatorError, UnsupportedDtypeError
from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.tracing import trace_map, trace_operator
from gpuscan.operators.user_wgsl import check_source, contained, has_loops
from gpuscan.operators.wgsl_arithmetic import low_bits_suffice
from gpuscan.operators.wgsl_emitter import arithmetic_functions, emit, helpers_of

Function = Callable[[Any, Any], Any]
LIGHT, LONG = 400, 1000  # characters of WGSL


@dataclass(frozen=True, eq=False)
class Operator:
    """An associative operator: ``f(f(a, b), c) == f(a, f(b, c))``. It need not commute, nor have an identity.

    Made by `gpuscan.operator` and `gpuscan.wgsl_operator`; the built-in ones go by their names.

    Attributes:
        name: what messages and shaders call it.
        function: NumPy-style ``(left, right) -> value``: traced for the GPU, called on arrays by ``device="numpy"``;
            None where the operator is the user's WGSL.
        wgsl: the user's ``fn combine(a: Element, b: Element) -> Element``.
        helpers: the user's further WGSL functions.
        identity: a value shaped as the element (of a built-in operator, a function of the field), or None.
        element_axes: trailing axes of the arrays that belong to the element.
        kinds: the kinds of number (`gpuscan.elements.Scalar.kind`) that a built-in operator combines.
    """

    name: str
    function: Function | None
    wgsl: str | None = None
    helpers: str = ""
    identity: Any = None
    element_axes: int = 0
    kinds: frozenset[str] | None = None

    def __call__(self, left: Any, right: Any) -> Any:
        """``f(left, right)`` on NumPy arrays or numbers: what the operator was made of.

        Raises:
            OperatorError: it is WGSL alone.
        """
        if self.function is None:
            raise OperatorError(f"operator {self.name!r} is WGSL alone, not for Python to call. Scan with it on a GPU")
        return self.function(left, right)

    def identity_for(self, element: Element) -> list[np.ndarray[Any, Any]] | None:
        """The identity, one array of each field's shape in its storage dtype; None where the operator has none.

        Raises:
            OperatorError: the identity that the user gave does not fit the element.
        """
        if self.identity is None:
            return None
        if self.kinds is not None:
            return [np.array(self.identity(field), dtype=field.scalar.dtype) for field in element.fields]
        try:
            leaves = element.structure.flatten(self.identity)
        except (TypeError, KeyError, ValueError, IndexError) as error:
            raise OperatorError(
                f"the identity {self.identity!r} of {self.name} does not fit an element of "
                f"{len(element.fields)} fields; give one value for each field"
            ) from error
        return [self._identity_field(leaf, field) for leaf, field in zip(leaves, element.fields, strict=True)]

    def _identity_field(self, value: Any, field: Field) -> np.ndarray[Any, Any]:
        given = np.asarray(value)
        with np.errstate(all="ignore"):
            try:
                exact = given.astype(field.scalar.dtype)
                filled = np.broadcast_to(exact, field.shape).copy()
            except (TypeError, ValueError, OverflowError) as error:
                raise OperatorError(
                    f"the identity {value!r} of {self.name} does not fit the field {field.name} "
                    f"({field.scalar.name}, shape {field.shape}): {error}"
                ) from error
        if field.scalar.kind not in ("float", "complex") and not np.array_equal(exact, given):
            raise OperatorError(
                f"the identity {value!r} of {self.name} is no {field.scalar.name}; "
                "give one that the type holds, or identity=None"
            )
        return filled

    def check(self, element: Element) -> None:
        """Refuses an element that a built-in operator does not combine.

        Raises:
            UnsupportedDtypeError: a TypeError that names the dtype to pass.
            OperatorError: the element has the wrong fields or shape.
        """
        if self.kinds is None:
            return
        if not element.single:
            raise OperatorError(
                f"{self.name!r} combines single values, and the element is a bundle of {len(element.fields)} fields; "
                "pass a function that combines each field, such as lambda l, r: (l[0] + r[0], l[1] * r[1])"
            )
        (field,) = element.fields
        if field.scalar.kind not in self.kinds:
            raise UnsupportedDtypeError(f"{self.name!r} of {field.scalar.name}: {self._advice(field.scalar.kind)}")
        if self.element_axes == 2 and (len(field.shape) != 2 or field.shape[0] != field.shape[1]):
            raise OperatorError(
                f"{self.name!r} combines square matrices, the last two axes of the array; found {field.shape}"
            )

    def _advice(self, kind: str) -> str:
        assert self.kinds is not None
        if kind == "bool" and "signed" in self.kinds:
            return 'pass dtype=np.int32 (or another number) to count in; "logical_or" and "logical_and" stay bool'
        if self.kinds == {"bool"}:
            return 'it combines bool; pass dtype=bool, or "bitwise_and" and its like for integers'
        if self.kinds == {"float"}:
            return "it combines floats; pass dtype=np.float32"
        if kind == "complex":
            return 'complex numbers have no order; of complex64 there are "add" and "multiply"'
        return f"it combines {', '.join(sorted(self.kinds))} numbers; pass an integer dtype such as dtype=np.int32"


# ---- the built-in operators

NUMBERS = frozenset({"signed", "unsigned", "float", "complex"})
ORDERED = frozenset({"bool", "signed", "unsigned", "float"})
BITS = frozenset({"bool", "signed", "unsigned"})


def _lowest(field: Field) -> Any:
    if field.scalar.kind == "float":
        return -np.inf
    return False if field.scalar.kind == "bool" else np.iinfo(field.scalar.dtype).min


def _highest(field: Field) -> Any:
    if field.scalar.kind == "float":
        return np.inf
    return True if field.scalar.kind == "bool" else np.iinfo(field.scalar.dtype).max


def _all_bits(field: Field) -> Any:
    return ~np.zeros((), dtype=field.scalar.dtype)


def _eye(field: Field) -> Any:
    return np.eye(field.shape[0], dtype=field.scalar.dtype)


def _builtin(
    ufunc: np.ufunc, kinds: frozenset[str], identity: Callable[[Field], Any], element_axes: int = 0
) -> Operator:
    def function(left: Any, right: Any) -> Any:
        return ufunc(left, right)

    return Operator(ufunc.__name__, function, identity=identity, kinds=kinds, element_axes=element_axes)


_UFUNCS: Mapping[np.ufunc, Operator] = {
    np.add: _builtin(np.add, NUMBERS, lambda field: 0),
    np.multiply: _builtin(np.multiply, NUMBERS, lambda field: 1),
    np.minimum: _builtin(np.minimum, ORDERED, _highest),
    np.maximum: _builtin(np.maximum, ORDERED, _lowest),
    np.bitwise_and: _builtin(np.bitwise_and, BITS, _all_bits),
    np.bitwise_or: _builtin(np.bitwise_or, BITS, lambda field: 0),
    np.bitwise_xor: _builtin(np.bitwise_xor, BITS, lambda field: 0),
    np.logical_and: _builtin(np.logical_and, frozenset({"bool"}), lambda field: True),
    np.logical_or: _builtin(np.logical_or, frozenset({"bool"}), lambda field: False),
    np.logical_xor: _builtin(np.logical_xor, frozenset({"bool"}), lambda field: False),
    np.logaddexp: _builtin(np.logaddexp, frozenset({"float"}), lambda field: -np.inf),
    np.matmul: _builtin(np.matmul, NUMBERS, _eye, element_axes=2),
}
_ALIASES = {"mul": "multiply", "min": "minimum", "max": "maximum"}
BUILTINS: Mapping[str, Operator] = {operator.name: operator for operator in _UFUNCS.values()}


def resolve(op: Any) -> Operator:
    """The operator that a name, a NumPy ufunc, an `Operator` or a Python function stands for.

    Raises:
        OperatorError: it stands for none; the message names the choices.
    """
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        found = BUILTINS.get(_ALIASES.get(op, op))
        if found is None:
            raise OperatorError(f"there is no operator named {op!r}; {_choices()}")
        return found
    if isinstance(op, np.ufunc):
        if op not in _UFUNCS:
            raise OperatorError(
                f"np.{op.__name__} is no built-in operator; {_choices()}. If it is associative, pass a function: "
                f"lambda l, r: np.{op.__name__}(l, r)"
            )
        return _UFUNCS[op]
    if callable(op):
        return Operator(_name_of(op), op)
    raise OperatorError(f"{op!r} is no operator; {_choices()}")


def _choices() -> str:
    names = ", ".join([*BUILTINS, *_ALIASES])
    return f"choose {names}, the NumPy ufunc of such a name, a gs.Operator, or a function of (left, right)"


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "the operator" if name == "<lambda>" else str(name)


@overload
def operator(
    function: Function, *, identity: Any = None, name: str | None = None, element_axes: int = 0
) -> Operator: ...
@overload
def operator(
    function: None = None, *, identity: Any = None, name: str | None = None, element_axes: int = 0
) -> Callable[[Function], Operator]: ...
def operator(
    function: Function | None = None, *, identity: Any = None, name: str | None = None, element_axes: int = 0
) -> Operator | Callable[[Function], Operator]:
    """An operator from a Python function of ``(left, right)``; also a decorator.

    The function must be associative, ``f(f(a, b), c) == f(a, f(b, c))``; it need not commute. It is plain NumPy code
    over arrays of elements, and is traced once into WGSL: arithmetic, comparisons, ``abs``, ``np.where``,
    ``np.minimum``, ``np.exp`` and their like. Values follow NumPy's promotion; each field of the result must have the
    type that it has in the arguments (float32 is taken for a float16 or bfloat16 field, and rounded when stored).
    ``if``, ``and`` and ``or`` on traced values are refused: write ``np.where``, ``&`` and ``|``.

    Integers wrap, ``//`` and ``%`` round down and give zero for a divisor of zero, shifts beyond the width shift every
    bit out, as NumPy's do. ``/`` of integers is float64 in NumPy: write ``.astype(np.float32)`` first. Ask for NaN by
    ``np.isnan``, and use ``np.minimum`` and ``np.maximum``, which hand it on: what ``<`` and ``==`` say of NaN is up
    to the shader compiler.

    Args:
        function: takes two elements and returns their combination, of the same fields. An element is what one
            position of the scanned array holds: a number, a tuple or dict of numbers for a bundle, and with
            `element_axes` an array, whose entries are ``left[..., i, j]``.
        identity: a value that combined with any element gives that element, shaped as the element; None where the
            operator has none. An exclusive scan needs it, or ``initial``.
        name: what messages and shaders call it; the function's own name where left out.
        element_axes: how many trailing axes of each array belong to the element.

    Returns:
        An `Operator` for the ``op`` of `gpuscan.scan` and its like.

    Raises:
        TypeError: the name is no str.
        OperatorError: the function is none. What it cannot be traced for is said when it is first used.

    Example:
        Composition of the affine maps ``x -> a x + b``, each a pair ``(a, b)``:

        >>> import numpy as np
        >>> from gpuscan.operators.operator import operator
        >>> affine = operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1.0, 0.0), name="affine")
        >>> affine.function((np.float32(2), np.float32(1)), (np.float32(3), np.float32(5)))
        (np.float32(6.0), np.float32(8.0))
    """
    check_name(name)
    if function is None:
        return lambda decorated: operator(decorated, identity=identity, name=name, element_axes=element_axes)
    if not callable(function) or isinstance(function, (Operator, np.ufunc)):
        raise OperatorError(f"gs.operator takes a Python function of (left, right); got {function!r}")
    check_axes(element_axes)
    return Operator(name or _name_of(function), function, identity=identity, element_axes=element_axes)


def wgsl_operator(
    source: str, *, identity: Any = None, name: str | None = None, helpers: str = "", element_axes: int = 0
) -> Operator:
    """An operator from WGSL: ``fn combine(a: Element, b: Element) -> Element``.

    ``Element`` is the compute form of one element: ``f32``, ``i32``, ``u32`` or ``bool`` for a number (8- and 16-bit
    ones widened; 64-bit integers are ``i64`` and ``u64`` where the adapter has them, else ``vec2<u32>`` of low and
    high word), with `element_axes` an ``array`` of those, the last axis closest together, and for a bundle a struct
    with the fields ``f0``, ``f1``, … or the bundle's own names. Functions, constants and structs of `source` and
    `helpers` may have any names: they are kept apart from gpuscan's own.

    Args:
        source: WGSL with the function ``combine``; it must be associative.
        identity: as for `gpuscan.operator`.
        name: what messages call it.
        helpers: WGSL functions that `source` calls.
        element_axes: how many trailing axes of each array belong to the element.

    Returns:
        An `Operator`. It has no Python function, so ``device="numpy"`` does not run it.

    Raises:
        TypeError: the name is no str.
        OperatorError: `source` has no ``combine`` or declares what an operator may not. What the compiler says is
            raised when the operator is first used, with the line numbers of `source`.

    Example:
        >>> from gpuscan.operators.operator import wgsl_operator
        >>> total = wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a + b; }", identity=0)
        >>> total.name
        'combine'
    """
    check_name(name)
    name = name or "combine"
    check_source(name, source, helpers)
    check_axes(element_axes)
    return Operator(name, None, wgsl=source, helpers=helpers, identity=identity, element_axes=element_axes)


def check_name(name: Any) -> None:
    """Raise TypeError where it is no name, nor left out."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"an operator's name must be a str, got {name!r}")


def check_axes(element_axes: Any) -> None:
    """Raise OperatorError where it is no count of axes."""
    if not isinstance(element_axes, int) or element_axes < 0:
        raise OperatorError(f"element_axes counts trailing axes, 0 or more; got {element_axes!r}")


# ---- code


@dataclass(frozen=True)
class Code:
    """A WGSL function.

    Attributes:
        source: its text.
        helpers: the functions of shaders/shared/arithmetic.wgsl that it needs, those that they need included.
        result: the element that it returns.
        foreign: it is the user's WGSL, to be kept apart from ours.
        loops: it has loops whose turns are counted.
        wraps_late: its narrow integers may be out of their range, given and returned, and are right in their low bits.
    """

    source: str
    helpers: tuple[str, ...]
    result: Element
    foreign: bool = False
    loops: bool = False
    wraps_late: bool = False

    @property
    def light(self) -> bool:
        """Whether it is ours and short, of WGSL's own operations, so that it may run twice where registers are few."""
        return not (self.helpers or self.foreign) and len(self.source) <= LIGHT

    @cached_property
    def long(self) -> bool:
        """Whether shaders in which it stands many times take long to compile."""
        return len(self.source) + sum(len(arithmetic_functions()[name]) for name in self.helpers) > LONG


def combine_code(operator: Operator, element: Element, native_int64: bool) -> Code:
    """``fn combine(a: Element, b: Element) -> Element`` of an operator.

    Raises:
        OperatorError: the function cannot be traced for this element; the message has the line of the user's code.
    """
    operator.check(element)
    if operator.wgsl is not None:
        text = contained(operator.name, operator.wgsl, operator.helpers)
        return Code(text, (), element, foreign=True, loops=has_loops(operator))
    assert operator.function is not None
    traced = trace_operator(operator.function, element, operator.name)
    signature = "fn combine(a: Element, b: Element) -> Element"
    arguments = (("a", element), ("b", element))
    late = low_bits_suffice(reachable([node for field in traced.fields for node in field]))
    source = emit(signature, arguments, traced.fields, element, "Element", native_int64, wrap=not late)
    return Code(source, helpers_of(source), element, wraps_late=late)


def map_code(
    function: Callable[[Any], Any],
    element: Element,
    name: str,
    native_int64: bool,
    *,
    argument_type: str = "Element",
    result_type: str,
) -> Code:
    """``fn name(x: argument_type) -> result_type`` of a map, such as the ``before`` and ``after`` of a scan.

    Args:
        function: takes an element and returns one, of any types and number of fields.
        element: what it takes.
        name: what the WGSL function is called.
        native_int64: whether WGSL has 64-bit integers on the device.
        argument_type: what the type of its argument is called.
        result_type: what the type of its result is called.

    Raises:
        OperatorError: as for `combine_code`.
    """
    traced = trace_map(function, element, name)
    signature = f"fn {name}(x: {argument_type}) -> {result_type}"
    source = emit(signature, (("x", element),), traced.fields, traced.element, result_type, native_int64)
    return Code(source, helpers_of(source), traced.element)
