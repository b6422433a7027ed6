"""Associative operators as values: made from a Python function, from WGSL, or named (`named_operators`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Element, Field
from gpuscan.errors import OperatorError, UnsupportedDtypeError, abbreviate
from gpuscan.operators.user_wgsl import check_source

Function = Callable[[Any, Any], object]
# What messages call a lambda, which has no name of its own.
UNNAMED = "the operator"


@dataclass(frozen=True, eq=False)
class Operator:
    """An associative operator: ``f(f(a, b), c) == f(a, f(b, c))``. It need not commute, nor have an identity.

    `gpuscan.operator` and `gpuscan.wgsl_operator` make operators. Calling one calls its function.

    Attributes:
        name: the name in messages and shaders.
        function: NumPy code, ``(left, right) -> value``. It is traced for the GPU and called on arrays by
            ``device="numpy"``. None for an operator in WGSL.
        wgsl: the WGSL source of ``fn combine(a: Element, b: Element) -> Element``; None for a Python function.
        helpers: the WGSL functions that `wgsl` calls.
        identity: the identity, in the shape of an element; None if there is none. For a named operator, a function of
            the field.
        element_axes: the number of trailing axes of each array that belong to the element.
        kinds: the kinds of numbers (`gpuscan.elements.Scalar.kind`) that a named operator combines; None for others.

    Example:
        >>> import gpuscan as gs
        >>> add = gs.operator(lambda l, r: l + r, identity=0, name="sum")
        >>> add(3, 4), add.identity
        (7, 0)
    """

    name: str
    function: Function | None
    wgsl: str | None = None
    helpers: str = ""
    identity: Any = None
    element_axes: int = 0
    kinds: frozenset[str] | None = None

    @property
    def described(self) -> str:
        """The operator as messages name it: by its name, if it has one."""
        return UNNAMED if self.name == UNNAMED else f"the operator {self.name!r}"

    def __call__(self, left: object, right: object) -> Any:
        """Return ``f(left, right)`` on NumPy arrays or numbers.

        Raises:
            OperatorError: the operator is WGSL alone.
        """
        if self.function is None:
            raise OperatorError(f"{self.described} was called; it is WGSL alone, so scan with it on a GPU")
        return self.function(left, right)

    def identity_for(self, element: Element) -> list[AnyArray] | None:
        """Return the identity as one array for each field, in its shape and storage dtype; None if there is none.

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
                f"identity={self.identity!r} of {self.described} does not fit an element of "
                f"{len(element.fields)} fields; give one value for each field"
            ) from error
        return [self._identity_field(leaf, field) for leaf, field in zip(leaves, element.fields, strict=True)]

    def _identity_field(self, value: object, field: Field) -> AnyArray:
        given = np.asarray(value)
        with np.errstate(all="ignore"):
            try:
                exact = given.astype(field.scalar.dtype)
                filled = np.broadcast_to(exact, field.shape).copy()
            except (TypeError, ValueError, OverflowError) as error:
                raise OperatorError(
                    f"identity {abbreviate(value)} of {self.described} does not fit the field {field.name} "
                    f"({field.scalar.name}, shape {field.shape}): {error}; give a value of that type and shape"
                ) from error
        if field.scalar.kind not in ("float", "complex") and not np.array_equal(exact, given):
            raise OperatorError(
                f"identity {abbreviate(value)} of {self.described} is no {field.scalar.name}; "
                "give one that the type holds, or identity=None"
            )
        return filled

    def check(self, element: Element) -> None:
        """Refuse an element that a named operator does not combine.

        Raises:
            UnsupportedDtypeError: a TypeError that names the dtype to pass.
            OperatorError: the element has the wrong fields or shape.
        """
        if self.kinds is None:
            return
        if not element.single:
            fields = "1 field" if len(element.fields) == 1 else f"{len(element.fields)} fields"
            raise OperatorError(
                f"{self.name!r} combines single values, and the element is a bundle of {fields}; pass a function that "
                f"combines each field, such as lambda l, r: {_sums_of_fields(element.structure.keys)}"
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
        if kind == "complex":
            ordered = self.kinds > {"float"}
            why = "complex numbers have no order" if ordered else "it does not combine complex numbers"
            return f'{why}; "add" and "multiply" combine them, or scan their parts, x.real and x.imag'
        if self.kinds == {"float"}:
            return "it combines floats; pass dtype=np.float32"
        return f"it combines {', '.join(sorted(self.kinds))} numbers; pass an integer dtype such as dtype=np.int32"


def _sums_of_fields(keys: Sequence[str | int]) -> str:
    """Return Python code that adds the first fields with these keys, as an example in a message."""
    sums = [f"l[{key!r}] + r[{key!r}]" for key in keys]
    if isinstance(keys[0], str):
        sums = [f"{key!r}: {each}" for key, each in zip(keys, sums, strict=True)]
    shown = ", ".join([*sums[:3], "..."] if len(sums) > 3 else sums)
    return f"{{{shown}}}" if isinstance(keys[0], str) else f"({shown}{',' * (len(sums) == 1)})"


def name_of(function: Callable[..., object]) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return UNNAMED if name == "<lambda>" else str(name)


@overload
def operator(
    function: Function, *, identity: object = None, name: str | None = None, element_axes: int = 0
) -> Operator: ...
@overload
def operator(
    function: None = None, *, identity: object = None, name: str | None = None, element_axes: int = 0
) -> Callable[[Function], Operator]: ...
def operator(
    function: Function | None = None, *, identity: object = None, name: str | None = None, element_axes: int = 0
) -> Operator | Callable[[Function], Operator]:
    """Make an operator from a Python function of ``(left, right)``; also a decorator.

    The function must be associative, ``f(f(a, b), c) == f(a, f(b, c))``; it need not commute. Write NumPy code:
    arithmetic, comparisons, ``abs``, ``np.where``, ``np.minimum``, ``np.exp`` and others (docs/operators.md has a
    list). gpuscan traces it into WGSL. Values follow NumPy's promotion. Each field of the result must have the dtype
    that it has in the arguments; a float16 or bfloat16 field may also be float32, which is rounded when it is stored.
    ``if``, ``and`` and ``or`` on traced values raise an error: write ``np.where``, ``&`` and ``|``.

    An operator is traced once for each type of element, and then keeps the values that the function closes over. To
    use their present values in each call, pass the function itself to `gpuscan.scan`, or make a new operator. Another
    float value compiles no new shader. With ``device="numpy"`` the function itself runs, and reads them each time.

    Integers follow NumPy: they wrap, ``//`` and ``%`` round down and give zero for a divisor of zero, and a shift by
    the width or more shifts every bit out. ``/`` of integers is float64 in NumPy: write ``.astype(np.float32)`` first.
    Test for NaN with ``np.isnan``, and use ``np.minimum`` and ``np.maximum``, which propagate it. The result of ``<``
    and ``==`` with NaN depends on the shader compiler.

    Args:
        function: takes two elements and returns their combination, with the same fields. An element is one number of
            the scanned array, a tuple or dict of numbers for a bundle, or with `element_axes` an array with the entries
            ``left[..., i, j]``. It may be a NumPy ufunc, which then has only the identity that you pass here.
        identity: the element e with ``f(e, a) == a == f(a, e)`` for every element a; None if there is none. An
            exclusive scan needs it, or ``initial``.
        name: the name in messages and shaders (default: the function's own name).
        element_axes: the number of trailing axes of each array that belong to the element. If it is 0 and the function
            cannot be traced for single numbers, as ``l @ r``, it is the least number for which it can be traced.

    Returns:
        An `Operator` to pass as the ``op`` of `gpuscan.scan` and other functions.

    Raises:
        TypeError: `name` is not a str.
        OperatorError: `function` is not a function of two values. Code that cannot be traced is reported at the first
            use.

    Example:
        Composition of the affine maps ``x -> a x + b``, each a pair ``(a, b)``:

        >>> import numpy as np
        >>> import gpuscan as gs
        >>> affine = gs.operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1.0, 0.0), name="affine")
        >>> gs.scan((np.full(3, 2, np.float32), np.ones(3, np.float32)), affine)
        (array([2., 4., 8.], dtype=float32), array([1., 3., 7.], dtype=float32))
    """
    check_name(name)
    if function is None:
        return lambda decorated: operator(decorated, identity=identity, name=name, element_axes=element_axes)
    if not callable(function) or isinstance(function, Operator):
        raise OperatorError(
            f"gs.operator was called with {abbreviate(function)}, but it makes an operator of a function of (left, "
            "right). Pass a function; names and operators are passed to gpuscan.scan as they are"
        )
    if isinstance(function, np.ufunc) and (function.nin, function.nout) != (2, 1):
        raise OperatorError(
            f"gs.operator was called with np.{function.__name__}, which takes {function.nin} and returns "
            f"{function.nout} values. Pass a function that takes two elements and returns one"
        )
    check_axes(element_axes)
    combine = function_of_ufunc(function) if isinstance(function, np.ufunc) else function
    return Operator(name or name_of(function), combine, identity=identity, element_axes=element_axes)


def function_of_ufunc(ufunc: np.ufunc) -> Function:
    return lambda left, right: ufunc(left, right)


def wgsl_operator(
    source: str, *, identity: object = None, name: str | None = None, helpers: str = "", element_axes: int = 0
) -> Operator:
    """Make an operator from WGSL: ``fn combine(a: Element, b: Element) -> Element``.

    ``Element`` is the WGSL type of one element. For a number it is ``f32``, ``i32``, ``u32`` or ``bool``; 8- and 16-bit
    numbers are widened to these. 64-bit integers are ``i64`` and ``u64`` if the adapter has them, else ``vec2<u32>`` of
    the low and the high word. With `element_axes` it is an ``array`` of such numbers in C order. For a bundle it is a
    struct with the fields ``f0``, ``f1``, ... or the bundle's own names. Functions, constants and structs of `source`
    and `helpers` may have any ASCII names, which do not collide with gpuscan's own.

    Args:
        source: WGSL with the function ``combine``; it must be associative.
        identity: as for `gpuscan.operator`.
        name: the name in messages.
        helpers: WGSL functions that `source` calls.
        element_axes: the number of trailing axes of each array that belong to the element.

    Returns:
        An `Operator`. It has no Python function, so ``device="numpy"`` raises an OperatorError.

    Raises:
        TypeError: `name` is not a str.
        OperatorError: `source` has no ``combine``, or declares something that an operator may not. Errors of the
            compiler are raised at the first use, with the line numbers of `source`.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> add = gs.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a + b; }", identity=0)
        >>> gs.scan(np.array([3, 1, 4], np.int32), add)
        array([3, 4, 8], dtype=int32)
    """
    check_name(name)
    name = name or "combine"
    if not isinstance(source, str) or not isinstance(helpers, str):
        raise OperatorError(f"the operator {name!r} was given WGSL that is not text; pass a str")
    check_source(name, source, helpers)
    check_axes(element_axes)
    return Operator(name, None, wgsl=source, helpers=helpers, identity=identity, element_axes=element_axes)


def check_name(name: object) -> None:
    """Raise TypeError unless the name is a str or None."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"an operator's name must be a str, got {name!r}; pass text")


def check_axes(element_axes: object) -> None:
    """Raise OperatorError unless `element_axes` is a count."""
    if not isinstance(element_axes, int) or element_axes < 0:
        raise OperatorError(f"element_axes counts trailing axes, got {element_axes!r}; pass 0 or more")
