"""NumPy's ufuncs as expression nodes: which are known, for which kinds of number, and how to rewrite the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuscan.elements import Scalar, scalar_of
from gpuscan.operators.expression_graph import BOOL, FLOAT32, Graph, Node

Nodes = Sequence[Node]
Rewrite = Callable[[Graph, Nodes, Scalar], Node]

# Whole exponents up to which a power of a float is a repeated product.
MAX_EXPONENT = 4
# Exponents up to which a power of a complex number is a repeated product. NumPy goes to 100.
MAX_COMPLEX_EXPONENT = 100

# Kinds of number: see `Scalar.kind`.
INTEGERS = frozenset({"signed", "unsigned"})
FLOATS = frozenset({"float"})
REALS = INTEGERS | FLOATS

# The operations that `gpuscan.operators.wgsl_arithmetic` spells, and for which kinds of number. float64 has fewer.
SPELLED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "negative"), REALS | {"complex"}),
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), REALS),
    **dict.fromkeys(("floor_divide", "remainder"), REALS),
    **dict.fromkeys(("minimum", "maximum", "power", "fmod"), REALS),
    **dict.fromkeys(("absolute", "sign"), frozenset({"signed", "float"})),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"), INTEGERS),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), frozenset({"bool"})),
    **dict.fromkeys(("real", "imag"), frozenset({"complex"})),
    **dict.fromkeys(("gcd", "bitwise_count"), frozenset({"unsigned"})),
    **dict.fromkeys(("divide", "exp", "log", "sqrt"), FLOATS | {"complex"}),
    **dict.fromkeys(("fmin", "fmax", "isnan", "isinf", "isfinite", "signbit", "copysign"), FLOATS),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", "log1p", "expm1", "logaddexp"), FLOATS),
    **dict.fromkeys(("sin", "cos", "tanh", "sinh", "cosh"), FLOATS | {"complex"}),
    **dict.fromkeys(("exp2", "log2", "log10", "tan", "hypot"), FLOATS),
    **dict.fromkeys(("arcsin", "arccos", "arctan", "arctan2", "arcsinh", "arccosh", "arctanh", "cbrt", "erf"), FLOATS),
}
NOT_FLOAT64 = frozenset("power sin cos tan arcsin arccos arctan arctan2 cbrt erf floor_divide remainder fmod".split())


class NoSuchForm(Exception):
    """The ufunc has no WGSL form on this kind of number; the message is the type that it was asked for."""


def build(graph: Graph, name: str, args: Nodes, result: Scalar) -> Node:
    """Return the node of the ufunc `name` on `args`, which were cast to the types of its loop.

    Raises:
        NoSuchForm: it has none. The caller knows the user's line and reports it.
    """
    scalar = args[0].scalar
    rewrite = REWRITES.get((name, scalar.kind)) or REWRITES.get((name, "any"))
    if rewrite is not None:
        return rewrite(graph, args, result)
    if scalar.name == "float64" and name in FLOAT64_FORMS:
        return FLOAT64_FORMS[name](graph, args, result)
    if scalar.kind not in SPELLED.get(name, ()) or (scalar.name == "float64" and name in NOT_FLOAT64):
        raise NoSuchForm(scalar.name)
    return graph.apply(name, args, result)


def _same(graph: Graph, args: Nodes, result: Scalar) -> Node:
    return graph.cast(args[0], result)


def _answer(value: bool) -> Rewrite:
    return lambda graph, args, result: graph.constant(value, BOOL)


def _rename(name: str) -> Rewrite:
    return lambda graph, args, result: build(graph, name, args, result)


def _as_bool(name: str) -> Rewrite:
    return lambda graph, args, result: graph.apply(name, [graph.cast(arg, BOOL) for arg in args], BOOL)


def _times(factor: float) -> Rewrite:
    return lambda graph, args, result: graph.apply("multiply", (args[0], graph.constant(factor, result)), result)


def _bool_order(*, swap: bool, joined: str) -> Rewrite:
    """Order bools: a < b is !a && b, and a <= b is !a || b; > and >= swap the sides."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        low, high = reversed(args) if swap else args
        return graph.apply(joined, (graph.apply("logical_not", (low,), BOOL), high), BOOL)

    return rewrite


def _nan_aware(name: str) -> Rewrite:
    """Make ``x != x`` and ``x == x`` a test of the bits: compilers may assume that there is no NaN."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        if args[0] is not args[1]:
            return graph.apply(name, args, BOOL)
        is_nan = graph.apply("isnan", args[:1], BOOL)
        return is_nan if name == "not_equal" else graph.apply("logical_not", (is_nan,), BOOL)

    return rewrite


def _square(graph: Graph, args: Nodes, result: Scalar) -> Node:
    return build(graph, "multiply", (args[0], args[0]), result)


def _reciprocal(graph: Graph, args: Nodes, result: Scalar) -> Node:
    return graph.apply("divide", (graph.constant(1, result), args[0]), result)


def _integer_division(name: str) -> Rewrite:
    """Make ``//`` and ``%`` by a constant zero a zero, as NumPy has it: WGSL refuses such a division."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        if args[1].equals(0):
            return graph.constant(0, result)
        return graph.apply(name, args, result)

    return rewrite


def _shift(name: str) -> Rewrite:
    """Shift every bit out if a constant amount is negative or not below the width: WGSL refuses such constants."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        value, amount = args
        if amount.is_constant and not 0 <= int(amount.value) < result.bits:
            if name == "left_shift" or result.kind == "unsigned":
                return graph.constant(0, result)
            return graph.apply(name, (value, graph.constant(result.bits - 1, result)), result)
        return graph.apply(name, args, result)

    return rewrite


def _integer_power(graph: Graph, args: Nodes, result: Scalar) -> Node:
    base, exponent = args
    if exponent.is_constant:
        if exponent.value < 0:
            raise NoSuchForm(f"{result.name} with a negative exponent")
        return _multiply_repeatedly(graph, base, int(exponent.value), result)
    return graph.apply("power", args, result)


def _float_power(graph: Graph, args: Nodes, result: Scalar) -> Node:
    """Multiply or take a root for the exponents for which NumPy does; else call the power function."""
    base, exponent = args
    value = exponent.reveal(_short_exponent) if exponent.is_constant and not base.is_constant else None
    if value is not None:
        return _multiply_or_root(graph, base, value, result)
    if result.bits == 64:
        raise NoSuchForm(result.name)
    return graph.apply("power", args, result)


def _short_exponent(value: Any) -> float | None:
    """Return a real exponent for which a power is a root or a short product; None for any other."""
    number = float(value)
    return number if number == 0.5 or (number.is_integer() and abs(number) <= MAX_EXPONENT) else None


def _short_complex_exponent(value: Any) -> float | None:
    """Return what `_short_exponent` does, for a power of a complex number."""
    real = float(value.real)
    short = real == 0.5 or (real.is_integer() and abs(real) <= MAX_COMPLEX_EXPONENT)
    return real if short and not value.imag else None


def _multiply_or_root(graph: Graph, base: Node, exponent: float, result: Scalar) -> Node:
    """Return a power as a root, a product, or the reciprocal of a product."""
    if exponent == 0.5:
        return graph.apply("sqrt", (base,), result)
    product = _multiply_repeatedly(graph, base, int(abs(exponent)), result)
    return product if exponent >= 0 else _reciprocal(graph, (product,), result)


def _multiply_repeatedly(graph: Graph, base: Node, exponent: int, result: Scalar) -> Node:
    product: Node | None = None
    while exponent:
        if exponent & 1:
            product = base if product is None else graph.apply("multiply", (product, base), result)
        exponent >>= 1
        if exponent:
            base = graph.apply("multiply", (base, base), result)
    return graph.constant(1, result) if product is None else product


def _conjugate(graph: Graph, args: Nodes, result: Scalar) -> Node:
    real, imag = graph.parts(args[0])
    return graph.complex(real, graph.apply("negative", (imag,), FLOAT32))


def _any_part(name: str, joined: str) -> Rewrite:
    """Ask both parts of a complex number, and join the answers."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        return graph.apply(joined, [graph.apply(name, (part,), BOOL) for part in graph.parts(args[0])], BOOL)

    return rewrite


def _compare_parts(name: str, joined: str) -> Rewrite:
    """Compare both parts of complex numbers, and join the answers: compilers compare vectors as if no part were NaN."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        pairs = zip(*(graph.parts(arg) for arg in args), strict=True)
        return graph.apply(joined, [build(graph, name, pair, BOOL) for pair in pairs], BOOL)

    return rewrite


def _round_parts(graph: Graph, args: Nodes, result: Scalar) -> Node:
    return graph.complex(*(graph.apply("rint", (part,), FLOAT32) for part in graph.parts(args[0])))


def _complex_power(graph: Graph, args: Nodes, result: Scalar) -> Node:
    """Multiply repeatedly where the exponent is a whole constant, as NumPy does; else use ``exp(b log(a))``."""
    base, exponent = args
    value = exponent.reveal(_short_complex_exponent) if exponent.is_constant else None
    if value is not None:
        return _multiply_or_root(graph, base, value, result)
    zero, nan = graph.constant(0, result), graph.constant(complex(math.nan, math.nan), result)
    angle = graph.apply("multiply", (exponent, graph.apply("log", (base,), result)), result)
    rises = graph.apply("greater", (graph.parts(exponent)[0], graph.constant(0, FLOAT32)), BOOL)
    of_zero = graph.select(rises, zero, nan)
    power = graph.select(build(graph, "equal", (base, zero), BOOL), of_zero, graph.apply("exp", (angle,), result))
    return graph.select(build(graph, "equal", (exponent, zero), BOOL), graph.constant(1, result), power)


def _magnitude(graph: Graph, node: Node) -> Node:
    """Return the magnitude of an integer as an unsigned integer of the same width, so that none overflows."""
    if node.scalar.kind == "unsigned":
        return node
    return graph.cast(graph.apply("absolute", (node,), node.scalar), _make_unsigned(node.scalar))


def _make_unsigned(scalar: Scalar) -> Scalar:
    return scalar_of(np.dtype(f"uint{scalar.bits}"))


def _gcd(graph: Graph, args: Nodes, result: Scalar) -> Node:
    return graph.cast(graph.apply("gcd", [_magnitude(graph, arg) for arg in args], _make_unsigned(result)), result)


def _lcm(graph: Graph, args: Nodes, result: Scalar) -> Node:
    """Return |a| / gcd(a, b) * |b|. A quotient by zero is zero, as NumPy has it for two zeros."""
    unsigned = _make_unsigned(result)
    left, right = (_magnitude(graph, arg) for arg in args)
    divisor = graph.apply("gcd", (left, right), unsigned)
    quotient = graph.apply("floor_divide", (left, divisor), unsigned)
    return graph.cast(graph.apply("multiply", (quotient, right), unsigned), result)


def _bitwise_count(graph: Graph, args: Nodes, result: Scalar) -> Node:
    """Count the bits of the magnitude, as NumPy does."""
    return graph.apply("bitwise_count", (_magnitude(graph, args[0]),), result)


def _logaddexp2(graph: Graph, args: Nodes, result: Scalar) -> Node:
    """Return ``high + log1p(2 ** (low - high)) / log(2)``. Infinities and NaN are the maximum.

    Quotients of float32 have fixed bits. A product might be fused with the sum.
    """
    f = _Real(graph, result)
    high, low = (graph.apply(name, args, result) for name in ("maximum", "minimum"))
    high_is_finite, low_is_finite = (graph.apply("isfinite", (arg,), BOOL) for arg in (high, low))
    # 2 ** -2000 is 0. Compilers may assume that no difference is infinite.
    exponent = graph.select(low_is_finite, f("subtract", low, high), graph.constant(-2000, result))
    more = f("divide", f("log1p", f("exp2", exponent)), math.log(2))
    # Devices may flush a subnormal term of a sum.
    is_zero = graph.apply("equal", (high, graph.constant(0, result)), BOOL)
    total = graph.select(is_zero, more, f("add", high, more))
    return graph.select(high_is_finite, total, high)


def _compare_mixed(name: str) -> Rewrite:
    """Compare int64 with uint64 exactly, as NumPy does: by the sign first, then as uint64."""

    def rewrite(graph: Graph, args: Nodes, result: Scalar) -> Node:
        left, right = args
        if left.scalar == right.scalar:
            return graph.apply(name, args, BOOL)
        signed = left if left.scalar.kind == "signed" else right
        unsigned = scalar_of(np.dtype(np.uint64))
        negative = graph.apply("less", (signed, graph.constant(0, signed.scalar)), BOOL)
        left_is_less = name == "not_equal" or (name.startswith("less") == (signed is left) and name != "equal")
        as_unsigned = graph.apply(name, [graph.cast(arg, unsigned) for arg in args], BOOL)
        return graph.select(negative, graph.constant(left_is_less, BOOL), as_unsigned)

    return rewrite


REWRITES: Mapping[tuple[str, str], Rewrite] = {
    **{("positive", kind): _same for kind in (*REALS, "complex")},
    **{(name, kind): _same for name in ("floor", "ceil", "trunc", "rint") for kind in (*INTEGERS, "bool")},
    **{("conjugate", kind): _same for kind in REALS},
    **{("absolute", kind): _same for kind in ("bool", "unsigned")},
    **{(name, kind): _answer(False) for name in ("isnan", "isinf") for kind in (*INTEGERS, "bool")},
    **{("isfinite", kind): _answer(True) for kind in (*INTEGERS, "bool")},
    **{
        (name, kind): _as_bool(name)
        for name in ("logical_and", "logical_or", "logical_xor", "logical_not")
        for kind in (*REALS, "complex")
    },
    **{("fmin", kind): _rename("minimum") for kind in (*INTEGERS, "bool")},
    **{("fmax", kind): _rename("maximum") for kind in (*INTEGERS, "bool")},
    ("add", "bool"): _rename("logical_or"),
    ("multiply", "bool"): _rename("logical_and"),
    ("maximum", "bool"): _rename("logical_or"),
    ("minimum", "bool"): _rename("logical_and"),
    ("bitwise_or", "bool"): _rename("logical_or"),
    ("bitwise_and", "bool"): _rename("logical_and"),
    ("bitwise_xor", "bool"): _rename("logical_xor"),
    ("invert", "bool"): _rename("logical_not"),
    ("not_equal", "bool"): _rename("logical_xor"),
    ("equal", "bool"): lambda graph, args, _: graph.apply(
        "logical_not", (graph.apply("logical_xor", args, BOOL),), BOOL
    ),
    ("less", "bool"): _bool_order(swap=False, joined="logical_and"),
    ("greater", "bool"): _bool_order(swap=True, joined="logical_and"),
    ("less_equal", "bool"): _bool_order(swap=False, joined="logical_or"),
    ("greater_equal", "bool"): _bool_order(swap=True, joined="logical_or"),
    ("equal", "float"): _nan_aware("equal"),
    ("not_equal", "float"): _nan_aware("not_equal"),
    **{
        (name, kind): _compare_mixed(name)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
        for kind in INTEGERS
    },
    **{(name, kind): _integer_division(name) for name in ("floor_divide", "remainder", "fmod") for kind in INTEGERS},
    **{(name, kind): _shift(name) for name in ("left_shift", "right_shift") for kind in INTEGERS},
    **{("power", kind): _integer_power for kind in INTEGERS},
    ("power", "float"): _float_power,
    ("square", "any"): _square,
    ("reciprocal", "float"): _reciprocal,
    ("sign", "unsigned"): lambda graph, args, result: graph.apply(
        "minimum", (args[0], graph.constant(1, result)), result
    ),
    ("fabs", "float"): _rename("absolute"),
    ("deg2rad", "float"): _times(math.pi / 180),
    ("radians", "float"): _times(math.pi / 180),
    ("rad2deg", "float"): _times(180 / math.pi),
    ("degrees", "float"): _times(180 / math.pi),
    ("logaddexp2", "float"): _logaddexp2,
    ("conjugate", "complex"): _conjugate,
    ("absolute", "complex"): lambda graph, args, result: graph.apply("hypot", graph.parts(args[0]), result),
    ("isnan", "complex"): _any_part("isnan", "logical_or"),
    ("isinf", "complex"): _any_part("isinf", "logical_or"),
    ("isfinite", "complex"): _any_part("isfinite", "logical_and"),
    ("equal", "complex"): _compare_parts("equal", "logical_and"),
    ("not_equal", "complex"): _compare_parts("not_equal", "logical_or"),
    ("rint", "complex"): _round_parts,
    ("reciprocal", "complex"): _reciprocal,
    ("power", "complex"): _complex_power,
    **{("gcd", kind): _gcd for kind in INTEGERS},
    **{("lcm", kind): _lcm for kind in INTEGERS},
    **{("bitwise_count", kind): _bitwise_count for kind in INTEGERS},
}


# Every ufunc that a traced function may call: NumPy's, and `scipy.special.erf`.
KNOWN = frozenset(
    name
    for name in (*SPELLED, *(name for name, _ in REWRITES))
    if name == "erf" or isinstance(getattr(np, name, None), np.ufunc)
)


# ----- Forms for float64
#
# Functions of float64 that WGSL and shaders/shared/ have for float32 alone, by exp, expm1, log and log1p.


Form = Callable[[Graph, Nodes, Scalar], Node]


class _Real:
    """Arithmetic on nodes of one float type, for formulas."""

    def __init__(self, graph: Graph, scalar: Scalar) -> None:
        self._graph, self._scalar = graph, scalar

    def __call__(self, name: str, *args: Node | float) -> Node:
        """Return the node of a ufunc of nodes and numbers."""
        nodes = [arg if isinstance(arg, Node) else self._graph.constant(arg, self._scalar) for arg in args]
        return self._graph.apply(name, nodes, self._scalar)

    def less(self, x: Node, limit: float) -> Node:
        """Return the node of ``x < limit``."""
        return self._graph.apply("less", (x, self._graph.constant(limit, self._scalar)), BOOL)


def _logarithm(base: int) -> Form:
    factor = 1 / math.log(base)
    return lambda graph, args, result: _Real(graph, result)("multiply", factor, _Real(graph, result)("log", args[0]))


def _tanh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    less_one = f("expm1", f("multiply", 2, f("minimum", f("absolute", x), 25)))
    return f("copysign", f("divide", less_one, f("add", less_one, 2)), x)


def _sinh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    less_one = f("expm1", f("minimum", size, 25))
    near = f("multiply", 0.5, f("add", less_one, f("divide", less_one, f("add", less_one, 1))))
    root = f("exp", f("multiply", 0.5, size))
    far = f("multiply", f("multiply", 0.5, root), root)
    return f("copysign", graph.select(f.less(size, 25), near, far), x)


def _cosh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    root = f("exp", f("multiply", 0.5, f("absolute", x)))
    half = f("multiply", 0.5, root)
    return f("add", f("multiply", half, root), f("divide", f("divide", 0.5, root), root))


def _arcsinh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    near = f("minimum", size, 1e8)
    square = f("multiply", near, near)
    bend = f("divide", square, f("add", 1, f("sqrt", f("add", square, 1))))
    small = f("log1p", f("add", near, bend))
    far = f("add", f("log", f("maximum", size, 1)), math.log(2))
    return f("copysign", graph.select(f.less(size, 1e8), small, far), x)


def _arccosh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    above = f("minimum", f("subtract", x, 1), 1e8)
    small = f("log1p", f("add", above, f("sqrt", f("multiply", above, f("add", above, 2)))))
    large = f("add", f("log", f("maximum", x, 1)), math.log(2))
    defined = graph.select(f.less(x, 1e8), small, large)
    return graph.select(f.less(x, 1), graph.constant(math.nan, result), defined)


def _arctanh(graph: Graph, args: Nodes, result: Scalar) -> Node:
    f, (x,) = _Real(graph, result), args
    size = f("absolute", x)
    ratio = f("divide", f("multiply", 2, size), f("subtract", 1, size))
    return f("copysign", f("multiply", 0.5, f("log1p", ratio)), x)


# The form of each function. They are close to 1e-13.
FLOAT64_FORMS: Mapping[str, Form] = {
    "log2": _logarithm(2),
    "log10": _logarithm(10),
    "tanh": _tanh,
    "sinh": _sinh,
    "cosh": _cosh,
    "arcsinh": _arcsinh,
    "arccosh": _arccosh,
    "arctanh": _arctanh,
}
