"""Write each operation of the expression graph in WGSL, for each compute type.

The *form* of a number is the type that WGSL computes it in: ``bool``, ``i32``, ``u32``, ``f32``, ``f64``, ``c64``
(complex64), ``i64`` and ``u64`` if the adapter has them, else ``wide_signed`` and ``wide_unsigned`` (two 32-bit words).
An operation that WGSL lacks, or defines otherwise than NumPy, is a function of shaders/shared/arithmetic.wgsl with the
name of its form and operation: ``f32_minimum``, ``wide_signed_less``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpuscan.elements import Scalar
from gpuscan.operators.expression_graph import Node, is_nan

# How tightly the outermost operation of a text binds.
ATOM, UNARY, PRODUCT, SUM, LOOSE = 5, 4, 3, 2, 1


class Text(NamedTuple):
    """A WGSL expression and how tightly it binds."""

    text: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """Return the text as an operand of an operation that needs at least this level."""
        return self.text if self.level >= level else f"({self.text})"

    @property
    def argument(self) -> str:
        """The text between commas, where a bare ``<`` and a later ``>`` would read as a template list."""
        return f"({self.text})" if self.level == LOOSE and ("<" in self.text or ">" in self.text) else self.text


INFIX = {
    "add": ("+", SUM),
    "subtract": ("-", SUM),
    "multiply": ("*", PRODUCT),
    "divide": ("/", PRODUCT),
    "less": ("<", LOOSE),
    "less_equal": ("<=", LOOSE),
    "greater": (">", LOOSE),
    "greater_equal": (">=", LOOSE),
    "equal": ("==", LOOSE),
    "not_equal": ("!=", LOOSE),
    "bitwise_and": ("&", LOOSE),
    "bitwise_or": ("|", LOOSE),
    "bitwise_xor": ("^", LOOSE),
    "logical_and": ("&", LOOSE),  # no short-circuits: SwiftShader takes long over branches in loops
    "logical_or": ("|", LOOSE),
    "logical_xor": ("!=", LOOSE),
}
# Comparisons of floats that do not hold if an operand is NaN.
_ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal"})
# Forms that have functions for these operations.
NOT_INFIX = {("not_equal", "f32"), ("not_equal", "f64"), ("divide", "f32")}
PREFIX = {"negative": "-", "invert": "~", "logical_not": "!"}
_INTEGER = {"minimum": "min", "maximum": "max", "absolute": "abs"}
_FLOAT = {"absolute": "abs", "floor": "floor", "ceil": "ceil"}
# Functions of float32 in shaders/shared/elementary.wgsl, which have the same bits on every device. The first ones take
# one number, and also have a form that rounds to odd (``f32_exp_odd``).
ROUNDS_TO_ODD = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("arcsin", "arccos", "arctan", "arcsinh", "arccosh", "arctanh", "cbrt", "erf"),
)
ELEMENTARY = (*ROUNDS_TO_ODD, "arctan2", "power", "hypot", "logaddexp", "sqrt", "divide")
BUILTIN = {
    "i32": {**_INTEGER, "sign": "sign"},
    "u32": {**_INTEGER, "bitwise_count": "countOneBits"},
    "i64": _INTEGER,
    "u64": _INTEGER,
    "f32": {
        **_FLOAT,
        "trunc": "trunc",
        "rint": "round",
    },
    "f64": {**_FLOAT, "sqrt": "sqrt"},
}
# Compilers and drivers change the bits of these steps on floats: they fuse products with sums, reorder sums, flush
# subnormals and choose the bits of NaN. The functions of shaders/shared/arithmetic_fixed.wgsl take their place.
FIXED = {
    "f32": {
        "add": "f32_sum",
        "subtract": "f32_difference",
        "multiply": "f32_product",
        "negative": "f32_opposite",
        "absolute": "f32_absolute",
        "trunc": "f32_truncate",
        "floor": "f32_round_down",
        "ceil": "f32_round_up",
        "rint": "f32_round_to_even",
        **{name: f"f32_is_{name}" for name in ("less", "less_equal", "greater", "greater_equal", "equal")},
        "not_equal": "f32_differs",
    },
    "c64": {"add": "c64_sum", "subtract": "c64_difference", "multiply": "c64_product", "negative": "c64_opposite"},
}
# Steps of these with a form that has the same bits if each operand is 0 or has an ordinary size.
QUICK = {"f32_sum": "f32_quick_sum", "f32_difference": "f32_quick_difference", "f32_product": "f32_quick_product"}
# Other operations on floats that have the same bits everywhere, since they work on bits or choose a number.
FIXED_ALREADY = {
    "f32": frozenset(
        {*ELEMENTARY, "minimum", "maximum", "fmin", "fmax", "isnan", "isinf", "isfinite", "signbit", "sign", "copysign"}
    ),
    "c64": frozenset({"real", "imag"}),
}
# Integers that drivers may round in other ways when they become float32. Functions of arithmetic_fixed.wgsl, such as
# ``u32_to_f32``, convert them where the bits are fixed. Integers of two words are always converted by bits.
ROUNDED_BY_BITS = frozenset({"u32", "i64", "u64"})
# Operations that are the same for signed and unsigned integers.
SIGNLESS = frozenset({"add", "subtract", "multiply", "negative", "left_shift"})
# Operations that need only the low bits of their arguments to give the low bits of their result.
LOW_BITS = frozenset({"add", "subtract", "multiply", "negative", "invert", "bitwise_and", "bitwise_or", "bitwise_xor"})
# Operations with results that may leave the range of a narrow integer.
WRAPS = SIGNLESS | {"absolute", "invert", "floor_divide", "power"}


def form_of(scalar: Scalar, native_int64: bool) -> str:
    if scalar.kind == "complex":
        return "c64"
    if scalar.bits == 64 and scalar.kind != "float" and not native_int64:
        return f"wide_{scalar.kind}"
    return scalar.wgsl(native_int64)


def call(function: str, *args: Text | str) -> Text:
    return Text(f"{function}({', '.join(arg if isinstance(arg, str) else arg.argument for arg in args)})")


def infix(symbol: str, level: int, left: Text, right: Text) -> Text:
    """Join two operands. WGSL allows bare operands in sums, products and comparisons only."""
    if symbol in ("<", "<=", ">", ">=", "==", "!="):
        return Text(f"{left.within(SUM)} {symbol} {right.within(SUM)}", LOOSE)
    if level == LOOSE:
        return Text(f"{left.within(UNARY)} {symbol} {right.within(UNARY)}", LOOSE)
    return Text(f"{left.within(level)} {symbol} {right.within(level + 1)}", level)


def wrap_integer(text: Text, scalar: Scalar) -> Text:
    """Return a result wrapped into the range of a narrow integer, as NumPy does."""
    if scalar.bits >= 32 or not scalar.is_integer:
        return text
    if scalar.kind == "signed":
        return call("extractBits", text, "0u", f"{scalar.bits}u")
    return infix("&", LOOSE, text, Text(hex((1 << scalar.bits) - 1) + "u"))


def literal(value: Any, scalar: Scalar, native_int64: bool) -> Text:
    """Return a constant. Infinities, NaN and subnormals come from their bits: WGSL has no literal for them."""
    form = form_of(scalar, native_int64)
    if form == "bool":
        return Text("true" if value else "false")
    if form == "c64":
        parts = [_float_literal(part, "f32").text for part in (np.float32(value.real), np.float32(value.imag))]
        return call("vec2<f32>", *parts)
    if form in ("f32", "f64"):
        return _float_literal(value, form)
    number = int(value)
    if form.startswith("wide"):
        return call("vec2<u32>", f"{number & 0xFFFFFFFF}u", f"{number >> 32 & 0xFFFFFFFF}u")
    if number == -(1 << (scalar.bits - 1)) and scalar.bits >= 32:
        # The literal of the lowest number would be the negation of one that does not exist.
        return Text("i32(-2147483648)") if form == "i32" else Text("(-9223372036854775807li - 1li)")
    suffix = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[form]
    return Text(f"{number}{suffix}", ATOM if number >= 0 else UNARY)


def number_from_words(words: str, scalar: Scalar, native_int64: bool) -> str:
    """Return the WGSL of an integer or a float64 of its words; narrow integers take a whole word."""
    form = form_of(scalar, native_int64)
    if form in ("u32", "wide_signed", "wide_unsigned"):
        return words
    if form in ("i32", "f64"):
        return f"bitcast<i32>({words})" if form == "i32" else f"f64_from_words({words})"
    return f"bitcast<{form}>(u64({words[:-1]}) | (u64({words[:-2]}{words[-1]}) << 32u))"


def _float_literal(value: Any, form: str) -> Text:
    number: Any = np.float64(value) if form == "f64" else np.float32(value)
    if np.isfinite(number) and (number == 0 or abs(number) >= np.finfo(number.dtype).tiny):
        # The shortest spelling of the largest float32 is greater than the number itself, and Tint refuses it.
        spelling = str(number) if abs(float(str(number))) <= float(np.finfo(number.dtype).max) else str(float(number))
        text = spelling + ("lf" if form == "f64" else "f")
        return Text(text, UNARY if text.startswith("-") else ATOM)
    if form == "f64":
        return call("f64_from_bits", f"{number.view(np.uint64):#x}lu")
    return call("f32_from_bits", f"{number.view(np.uint32):#x}u")


# Operations that choose one of their operands.
CHOICES = frozenset({"minimum", "maximum", "fmin", "fmax"})
# Operations that give the same bits for any order and grouping of the operands, for each kind of number.
# Of several NaN with different bits, minima and maxima may give any.
_ON_BITS = CHOICES | {"bitwise_and", "bitwise_or", "bitwise_xor"}
_ON_INTEGERS = _ON_BITS | {"add", "multiply", "gcd"}
ORDER_FREE = {
    "bool": _ON_BITS | {"logical_and", "logical_or", "logical_xor"},
    "signed": _ON_INTEGERS,
    "unsigned": _ON_INTEGERS,
    "float": CHOICES,
}


# Operations that give the same bits if the operands change places.
_COMMUTES = ORDER_FREE | {"float": CHOICES | {"add", "multiply"}, "complex": frozenset({"add"})}


# The operations of `ORDER_FREE` on 32-bit words that WGSL has as atomics, with the bits that change no other operand.
# All but minima and maxima also combine integers of two words, each with the same bits.
ATOMICS = {
    "add": ("atomicAdd", 0, 0),
    "minimum": ("atomicMin", 0xFFFFFFFF, 0x7FFFFFFF),
    "maximum": ("atomicMax", 0, 0x80000000),
    "bitwise_and": ("atomicAnd", 0xFFFFFFFF, 0xFFFFFFFF),
    "bitwise_or": ("atomicOr", 0, 0),
    "bitwise_xor": ("atomicXor", 0, 0),
}


def atomic_of(fields: Sequence[Sequence[Node]]) -> tuple[str, int] | None:
    """Return the atomic that combines each word of elements, and the bits of its identity; None if WGSL has none.

    A sum of two words also needs the carry from the low word to the high one.
    """
    numbers = [node for nodes in fields for node in nodes]
    scalar = numbers[0].scalar
    op = numbers[0].op
    if len(numbers) > 1 or not scalar.is_integer or not is_order_free(fields):
        return None
    if op not in ATOMICS or (scalar.words > 1 and op in CHOICES):
        return None
    name, unsigned, signed = ATOMICS[op]
    return name, signed if scalar.kind == "signed" else unsigned


# The words of the operands of operations that change no bit of the other one: -0.0, 1 and infinities. 16-bit floats are
# combined as float32.
_NEUTRAL_FLOATS = {"add": 0x80000000, "multiply": 0x3F800000, "minimum": 0x7F800000, "maximum": 0xFF800000}
NEUTRAL_WORDS = {
    "float16": _NEUTRAL_FLOATS,
    "bfloat16": _NEUTRAL_FLOATS,
    "float32": _NEUTRAL_FLOATS,
    # In the high word; the low word is 0.
    "float64": {"add": 0x80000000, "multiply": 0x3FF00000, "minimum": 0x7FF00000, "maximum": 0xFFF00000},
    "bool": {"logical_or": 0, "logical_xor": 0, "logical_and": 1},
}


def neutral_of(fields: Sequence[Sequence[Node]]) -> tuple[int, ...] | None:
    """Return the words of the operand that changes no bit of the other one; None if they are not known."""
    words: list[int] = []
    for field, nodes in enumerate(fields):
        for component, node in enumerate(nodes):
            own = _neutral_words(node)
            if own is None or not _takes_both(field, component, node, node.args):
                return None
            words += own
    return tuple(words)


def _neutral_words(node: Node) -> tuple[int, ...] | None:
    """Return the words of the number that changes no bit of the other operand of a node; None if they are not known."""
    scalar = node.scalar
    if scalar.name == "complex64":
        return (0x80000000, 0x80000000) if node.op == "add" else None
    if scalar.name in NEUTRAL_WORDS:
        high = NEUTRAL_WORDS[scalar.name].get(node.op)
        return None if high is None else (0,) * (scalar.words - 1) + (high,)
    if not scalar.is_integer or node.op not in ATOMICS:
        return None
    _, unsigned, signed = ATOMICS[node.op]
    # Only the high word of the greatest and the smallest signed number depends on the sign.
    return (unsigned,) * (scalar.words - 1) + (signed if scalar.kind == "signed" else unsigned,)


def is_order_free(fields: Sequence[Sequence[Node]]) -> bool:
    """Return True if the order and the grouping in which elements are combined change no bit of the result but NaN's.

    That is so if each number of the result is one operation of `ORDER_FREE`, on the two numbers in the same place.
    """
    return _combines_in_place(fields, ORDER_FREE)


def commutes(fields: Sequence[Sequence[Node]]) -> bool:
    """Return True if the operands can change places, which changes no bit of the result but NaN's."""
    return _combines_in_place(fields, _COMMUTES)


def _combines_in_place(fields: Sequence[Sequence[Node]], operations: Mapping[str, frozenset[str]]) -> bool:
    """Return True if each number of the result is one of these operations, on the two numbers in the same place."""
    numbers = ((field, component, node) for field, nodes in enumerate(fields) for component, node in enumerate(nodes))
    return all(_is_one_of(operations, *number) for number in numbers)


def _is_one_of(operations: Mapping[str, frozenset[str]], field: int, component: int, node: Node) -> bool:
    operation, arguments = node, node.args
    if (inner := _without_casts(node)).op == "gcd":  # of signed numbers it takes the magnitudes
        operation, arguments = inner, tuple(_without_casts(arg) for arg in inner.args)
    return operation.op in operations.get(node.scalar.kind, ()) and _takes_both(field, component, node, arguments)


def _takes_both(field: int, component: int, node: Node, arguments: Sequence[Node]) -> bool:
    """Return True if the arguments are the two numbers in a node's place."""
    pair = {("input", (argument, field, component), node.scalar) for argument in (0, 1)}
    return {(arg.op, arg.data, arg.scalar) for arg in arguments} == pair


def _without_casts(node: Node) -> Node:
    while node.op in ("cast", "absolute"):
        (node,) = node.args
    return node


def low_bits_suffice(nodes: Sequence[Node]) -> bool:
    """Return True if these nodes are all of narrow integers and need only the low bits of their arguments.

    Then nothing need be wrapped before it is stored.
    """
    return all(
        (node.op in LOW_BITS or not node.args) and node.scalar.is_integer and node.scalar.bits < 32 for node in nodes
    )


def without_fixed_bits(nodes: Sequence[Node]) -> str | None:
    """Return the name and type of an operation that has different bits on different devices; None if there is none.

    Args:
        nodes: the nodes of a function, as `reachable` returns them.
    """
    for node in nodes:
        kinds = {number.scalar.kind for number in (node, *node.args)} & {"float", "complex"}
        if not node.args or not kinds:
            continue
        source = node.args[0].scalar
        if any(number.scalar.name == "float64" for number in (node, *node.args)):
            return f"{node.op} of float64"
        if node.op in ("select", "complex", "view", "cast"):
            continue
        form = "c64" if source.kind == "complex" else "f32"
        if source.kind not in ("float", "complex") or node.op not in FIXED[form].keys() | FIXED_ALREADY[form]:
            return f"{node.op} of {source.name}"
    return None


def spell_node(node: Node, args: list[Text], native_int64: bool, wrap: bool, fixed: bool, quick: bool) -> Text:
    """Return the expression of a node, given the expressions of its arguments.

    Args:
        args: the expressions of its arguments.
        native_int64: True if WGSL has 64-bit integers on the device.
        wrap: True to keep narrow integers in their range.
        fixed: True if floats must have the same bits on every device.
        quick: True to use the forms of `QUICK`.
    """
    if node.op == "select":
        return call("select", args[2], args[1], _condition(node, args, native_int64, fixed))
    if node.op == "complex":
        return call("vec2<f32>", *args)
    source = node.args[0].scalar
    if node.op == "cast":
        return _cast(args[0], source, node.scalar, native_int64, fixed)
    if node.op == "view":
        return _view(args[0], source, node.scalar, native_int64)
    form = form_of(source, native_int64)
    if fixed and node.op in FIXED.get(form, ()):
        name = FIXED[form][node.op]
        return call(QUICK.get(name, name) if quick else name, *args)
    text = _operation(node, form, args)
    return wrap_integer(text, node.scalar) if node.op in WRAPS and wrap else text


def _condition(node: Node, args: list[Text], native_int64: bool, fixed: bool) -> Text:
    """Return the condition of a choice.

    Some drivers take ``select(b, a, a < b)`` for a minimum that is a if b is NaN. So the condition also tests the bits
    of b. If only a is NaN, such a minimum is b, as it should be.
    """
    condition, yes, no = node.args
    negated = condition.op == "logical_not"
    comparison, other = (condition.args[0], yes) if negated else (condition, no)
    form = form_of(node.scalar, native_int64)
    if node.scalar.kind != "float" or comparison.op not in _ORDERS or not any(arg is other for arg in comparison.args):
        return args[0]
    if (fixed and comparison.op in FIXED.get(form, ())) or (other.is_constant and not other.reveal(is_nan)):
        return args[0]
    unordered = call(f"{form}_isnan", args[1] if negated else args[2])
    return infix("|", LOOSE, args[0], unordered) if negated else infix("&", LOOSE, args[0], Text("!" + unordered.text))


def has_quick_form(node: Node) -> bool:
    """Return True if a step with fixed bits has a form in `QUICK`."""
    return bool(node.args) and form_of(node.args[0].scalar, True) == "f32" and FIXED["f32"].get(node.op) in QUICK


def _operation(node: Node, form: str, args: list[Text]) -> Text:
    op = node.op
    if form.startswith("wide"):
        return _wide_operation(node, form, args)
    if form == "c64":
        return _complex_operation(op, args)
    if op in ("floor_divide", "remainder", "fmod") and form.startswith("u"):
        if node.args[1].is_constant:
            return infix("/" if op == "floor_divide" else "%", PRODUCT, *args)
        op = "floor_divide" if op == "floor_divide" else "remainder"
    if op in ("left_shift", "right_shift") and node.args[1].is_constant:
        amount = Text(f"{int(node.args[1].value)}u")
        return infix("<<" if op == "left_shift" else ">>", LOOSE, args[0], amount)
    if op == "negative" and form.startswith("u"):
        return infix("-", SUM, Text("0u" if form == "u32" else "0lu"), args[0])
    if form == "f32" and op in ROUNDS_TO_ODD and node.scalar.bits == 16:
        return call(f"f32_{op}_odd", *args)
    if op in INFIX and (op, form) not in NOT_INFIX:
        return infix(*INFIX[op], *args)
    if op in PREFIX:
        return Text(PREFIX[op] + args[0].within(ATOM), UNARY)
    return call(BUILTIN.get(form, {}).get(op, f"{form}_{op}"), *args)


def _wide_operation(node: Node, form: str, args: list[Text]) -> Text:
    op = node.op
    if op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return infix(*INFIX[op], *args)
    if op == "invert":
        return Text("~" + args[0].within(ATOM), UNARY)
    if op in ("equal", "not_equal"):
        return call("all" if op == "equal" else "any", infix(*INFIX[op], *args))
    if op in ("less", "less_equal", "greater", "greater_equal"):
        swapped = args[::-1] if op in ("less_equal", "greater") else args
        less = call(f"{form}_less", *swapped)
        return Text("!" + less.text, UNARY) if op.endswith("equal") else less
    if op in SIGNLESS:
        return call(f"wide_{op}", *args)
    if op == "fmod" and form == "wide_unsigned":
        op = "remainder"
    return call(f"{form}_{op}", *args)


def _complex_operation(op: str, args: list[Text]) -> Text:
    if op in ("real", "imag"):
        return Text(args[0].within(ATOM) + (".x" if op == "real" else ".y"))
    if op == "negative":
        return Text("-" + args[0].within(ATOM), UNARY)
    return infix(*INFIX[op], *args) if op in ("add", "subtract") else call(f"c64_{op}", *args)


def _cast(value: Text, source: Scalar, target: Scalar, native_int64: bool, fixed: bool) -> Text:
    start, end = form_of(source, native_int64), form_of(target, native_int64)
    if target.kind == "bool":
        if source.kind == "float":
            return call(f"{start}_to_bool", value)
        return (
            call("any", f"{value.within(UNARY)} != vec2<u32>()")
            if start.startswith("wide")
            else infix("!=", LOOSE, value, literal(0, source, native_int64))
        )
    if source.kind == "bool":
        zero, one = literal(0, target, native_int64), literal(1, target, native_int64)
        return call(end, value) if end in ("i32", "u32", "f32") else call("select", zero, one, value)
    if target.kind == "float":
        by_bits = start.startswith("wide") or (fixed and start in ROUNDED_BY_BITS and end == "f32")
        text = value if start == end else call(f"{start}_to_f32" if by_bits else end, value)
        holds_all = source.kind != "float" and source.bits == 8
        return text if target.bits > 16 or holds_all else call(f"f32_round_to_{target.name}", text)
    if source.kind == "float":
        return _float_to_integer(value, start, target, end)
    return _integer_to_integer(value, source, start, target, end)


def _float_to_integer(value: Text, start: str, target: Scalar, end: str) -> Text:
    """Round towards zero. Narrow integers keep the low bits of an i32, as NumPy does it."""
    if target.bits < 32:
        whole = call(f"{start}_to_i32", value)
        return wrap_integer(whole if end == "i32" else call("u32", whole), target)
    return call(f"{start}_to_{end}", value)


def _integer_to_integer(value: Text, source: Scalar, start: str, target: Scalar, end: str) -> Text:
    """Return the low bits, extended by the sign of the source."""
    if start.startswith("wide") and end.startswith("wide"):
        return value
    if end.startswith("wide"):
        return call("wide_from_i32", value) if start == "i32" else call("vec2<u32>", value, "0u")
    if start.startswith("wide"):
        low = Text(value.within(ATOM) + ".x")
        return wrap_integer(low if end == "u32" else call("i32", low), target)
    if start == "i32" and end in ("i64", "u64"):
        text = call("i32_to_i64", value)
        text = text if end == "i64" else call("u64", text)
    elif (start, end) == ("u32", "i64"):  # naga would extend by the sign of the target
        text = call("i64", call("u64", value))
    elif (start, end) == ("u64", "i32"):
        text = call("i32", call("u32", value))
    elif (start, end) == ("i64", "u32"):
        text = call("u32", call("u64", value))
    else:
        text = value if start == end else call(end, value)
    holds_all = source.bits < target.bits and (source.kind == "unsigned" or target.kind == "signed")
    return text if holds_all else wrap_integer(text, target)


def _view(value: Text, source: Scalar, target: Scalar, native_int64: bool) -> Text:
    start, end = form_of(source, native_int64), form_of(target, native_int64)
    if "float" in (source.kind, target.kind) and target.bits == 16:
        bits = call(f"f32_to_{source.name}_bits", value) if source.kind == "float" else call("u32", value)
        if target.kind == "float":
            return call(f"f32_from_{target.name}_bits", bits)
        return bits if end == "u32" else wrap_integer(call("i32", bits), target)
    if start.startswith("wide") or start == end:
        return value
    return wrap_integer(call(end, value) if source.bits < 32 else call(f"bitcast<{end}>", value), target)
