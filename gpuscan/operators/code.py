"""The WGSL function that an operator or a map becomes for an element."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache

import numpy as np

from gpuscan import templates
from gpuscan.array_types import AnyDType
from gpuscan.elements import Element, HashedOnce
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameters import Expression, concatenate, derive, present
from gpuscan.operators.trace import Result, trace_function, trace_operator
from gpuscan.operators.user_wgsl import enclose_source, has_loops
from gpuscan.operators.wgsl_arithmetic import (
    CHOICES,
    Text,
    atomic_of,
    commutes,
    has_quick_form,
    is_order_free,
    literal,
    low_bits_suffice,
    neutral_of,
    number_from_words,
    spell_node,
)
from gpuscan.sizes import concrete

# Characters of WGSL up to which a function is short enough to run twice where registers are few.
MAX_LIGHT_CHARACTERS = 400
# Characters of WGSL from which on shaders that repeat the function take long to compile.
MAX_SHORT_CHARACTERS = 1000
# Words of a function's constants up to which they are captured: an eighth of the smallest limit of a uniform buffer.
MAX_CAPTURED_WORDS = 2048


@dataclass(frozen=True)
class Code(HashedOnce):
    """A WGSL function.

    Attributes:
        source: its text.
        helpers: the names of the functions of shaders/shared/arithmetic.wgsl that it calls, directly or through others.
        result: the element that it returns.
        foreign: True for WGSL of the user's, which must be kept apart from gpuscan's.
        loops: True if it has loops, so that gpuscan counts their iterations.
        quick: with fixed bits, ``quick_combine``, which computes faster if its steps have quick forms, and functions
            that tell whether it may be used (see `find_quick_steps`); "" without such steps.
        quick_products, unknown_bounds: as `QuickSteps.has_products` and `QuickSteps.has_unknown`.
        wraps_late: True if its narrow integers may leave their range and are right in their low bits only. They are
            wrapped when they are stored.
        order_free: True if the order and the grouping in which elements are combined change no bit of the result
            but NaN's.
        commutes: True if the operands can change places, which changes no bit of the result but NaN's.
        atomic: the WGSL atomic that combines each word of elements of one integer, and the bits of its identity; None
            without. A sum of two words also needs the carry from the low word to the high one.
        neutral: the words of the operand that changes no bit of the other one; None if they are unknown.
        reads: for each field of the result, the fields of the only or the left operand that it depends on; None if they
            are unknown.
        reads_nan: True if it tells NaN of different bits apart (see `tells_nan_apart`).
        captured: float and complex constants of the user's function that the text has no values of, and integers that
            come from parameters. It reads them from `captured`, a uniform buffer (shaders/shared/captured.wgsl), so
            that a function with other constants has the same text and needs no compilation, and no compiler
            simplifies what is computed with them. Code that differs only in these values is equal. An expression
            computes them if they come from parameters.
        captured_floats: the number of vectors of four float32, which hold the float32 and complex64 constants.
        captured_words: the number of vectors of four words that follow, which hold the float64 and integer constants.
    """

    source: str
    helpers: tuple[str, ...]
    result: Element
    quick: str = ""
    quick_products: bool = False
    unknown_bounds: bool = False
    foreign: bool = False
    loops: bool = False
    wraps_late: bool = False
    order_free: bool = False
    commutes: bool = False
    atomic: tuple[str, int] | None = None
    neutral: tuple[int, ...] | None = None
    reads: tuple[tuple[int, ...], ...] | None = None
    reads_nan: bool = False
    captured: bytes | Expression = field(default=b"", compare=False)
    captured_floats: int = 0
    captured_words: int = 0

    __hash__ = HashedOnce.__hash__

    @property
    def bounded(self) -> bool:
        """True if quick steps give nothing smaller than the bounds of the elements, so that these are tested once."""
        return bool(self.quick) and not (self.quick_products or self.unknown_bounds)

    @property
    def light(self) -> bool:
        """True if the function is short enough to run twice where registers are few."""
        return not (self.helpers or self.foreign) and len(self.source) <= MAX_LIGHT_CHARACTERS

    def without_quick_steps(self) -> Code:
        """Return the same function with exact steps only."""
        return replace(self, quick="", quick_products=False, unknown_bounds=False)

    @cached_property
    def long(self) -> bool:
        """True if shaders that repeat the function take long to compile."""
        return self.characters > MAX_SHORT_CHARACTERS

    @cached_property
    def characters(self) -> int:
        """The characters of WGSL of the function and of all that it calls."""
        return len(self.source) + sum(len(arithmetic_functions()[name]) for name in self.helpers)

    @cached_property
    def quick_characters(self) -> int:
        """The same of the function that combines in quick steps, or of the only one."""
        if not self.quick:
            return self.characters
        return len(self.quick) + sum(len(arithmetic_functions()[name]) for name in helpers_of(self.quick))


def combine_code(
    operator: Operator, element: Element, native_int64: bool, *, captures: bool = False, fixed: bool = False
) -> Code:
    """Return ``fn combine(a: Element, b: Element) -> Element`` of an operator.

    Args:
        element: the element that it combines.
        native_int64: True if WGSL has 64-bit integers on the device.
        captures: True to capture the constants of a user's function; see `Code.captured`.
        fixed: True if floats must have the same bits on every device.

    Raises:
        OperatorError: the function cannot be traced for this element; the message has the line of the user's code.
    """
    operator.check(element)
    if operator.wgsl is not None:
        loops = has_loops(operator.name, operator.wgsl, operator.helpers)
        text = enclose_source(operator.name, operator.wgsl, operator.helpers, 4 * element.words)
        return Code(text, (), element, foreign=True, loops=loops)
    assert operator.function is not None
    traced = trace_operator(operator.function, element, operator.name)
    signature = "fn combine(a: Element, b: Element) -> Element"
    arguments = (("a", element), ("b", element))
    nodes = reachable([node for field_nodes in traced.fields for node in field_nodes])
    late = low_bits_suffice(nodes)
    captured = _Captured("combine", traced if captures and operator.kinds is None else None, native_int64)
    names = captured.names
    source = emit(
        signature, arguments, traced.fields, element, "Element", native_int64, wrap=not late, names=names, fixed=fixed
    )
    quick, steps = "", QuickSteps(frozenset())
    if fixed:
        quick, steps = _quick_code(arguments, traced, nodes, element, native_int64, names)
    return Code(
        source,
        helpers_of(source + quick),
        element,
        quick=quick,
        quick_products=steps.has_products,
        unknown_bounds=steps.has_unknown,
        wraps_late=late,
        order_free=is_order_free(traced.fields),
        commutes=commutes(traced.fields),
        atomic=atomic_of(traced.fields),
        neutral=neutral_of(traced.fields),
        reads=_fields_read(traced),
        reads_nan=tells_nan_apart(traced.fields),
        captured=captured.content,
        captured_floats=captured.floats,
        captured_words=captured.words,
    )


def map_code(
    function: Callable[..., object],
    element: Element,
    name: str,
    native_int64: bool,
    *,
    argument_type: str = "Element",
    result_type: str,
    captures: bool = False,
    fixed: bool = False,
) -> Code:
    """Return ``fn name(x: argument_type) -> result_type`` of a map, such as the ``before`` and ``after`` of a scan.

    Args:
        function: takes an element and returns one, of any types and number of fields.
        element: the element that it takes.
        name: the name of the WGSL function.
        native_int64: True if WGSL has 64-bit integers on the device.
        argument_type: the name of the type of its argument.
        result_type: the name of the type of its result.
        captures, fixed: as for `combine_code`.

    Raises:
        OperatorError: as for `combine_code`.
    """
    traced = trace_function(function, element, name).result
    signature = f"fn {name}(x: {argument_type}) -> {result_type}"
    captured = _Captured(name, traced if captures else None, native_int64)
    arguments, names = (("x", element),), captured.names
    source = emit(
        signature, arguments, traced.fields, traced.element, result_type, native_int64, names=names, fixed=fixed
    )
    return Code(
        source,
        helpers_of(source),
        traced.element,
        reads=_fields_read(traced),
        reads_nan=tells_nan_apart(traced.fields),
        captured=captured.content,
        captured_floats=captured.floats,
        captured_words=captured.words,
    )


def _fields_read(traced: Result) -> tuple[tuple[int, ...], ...]:
    """Return, for each field of a result, the fields of the first operand that it depends on."""
    return tuple(
        tuple(sorted({node.data[1] for node in reachable(nodes) if node.op == "input" and node.data[0] == 0}))
        for nodes in traced.fields
    )


def _quick_code(
    arguments: Sequence[tuple[str, Element]], traced: Result, nodes: Sequence[Node], element: Element,
    native_int64: bool, names: Mapping[int, str],
) -> tuple[str, QuickSteps]:  # fmt: skip
    """Return the functions by which kernels combine elements in quick steps, and what is known of these."""
    spelled = {
        node.index: names.get(node.index) or literal(node.value, node.scalar, native_int64).text
        for node in nodes
        if node.is_constant
    }
    steps = find_quick_steps(nodes, traced.fields, element, lambda node: spelled[node.index])
    if not steps.nodes:
        return "", steps
    combine = emit(
        "fn quick_combine(a: Element, b: Element) -> Element", arguments, traced.fields, element, "Element",
        native_int64, names=names, fixed=True, quick=steps.nodes,
    )  # fmt: skip
    numbers = [_number_of("x", element, *component) for component in float_components(element)]
    return f"{bounds_code(steps, numbers)}\n\n{combine}", steps


class _Captured:
    """The constants that a function reads from a buffer. There are none if they are very many.

    Attributes:
        names: how WGSL spells each of them, by the index of its node.
        content: the bytes of all of them, or the expression that gives these: float32 and complex64, then float64 and
            integers, each kind in whole vectors of 16 bytes.
        floats: the vectors of the first kind.
        words: the vectors of the second kind.
    """

    def __init__(self, function: str, traced: Result | None, native_int64: bool) -> None:
        fields = () if traced is None else traced.fields
        nodes = reachable([node for nodes in fields for node in nodes])
        constants = [node for node in nodes if node.is_constant and _is_captured(node)]
        if sum(node.scalar.words for node in constants) > MAX_CAPTURED_WORDS:
            constants = []
        # A complex number does not cross from one vector into the next if these come first.
        pairs = [node for node in constants if node.scalar.kind == "complex"]
        singles = [node for node in constants if node.scalar.kind == "float" and node.scalar.bits <= 32]
        wide = [node for node in constants if node.scalar.kind != "complex" and node.scalar.bits == 64]
        narrow = [node for node in constants if node.scalar.is_integer and node.scalar.bits <= 32]
        self.names = {node.index: _parts(f"captured.{function}", 2 * i, 2) for i, node in enumerate(pairs)}
        first = 2 * len(pairs)
        self.names |= {node.index: _parts(f"captured.{function}", first + i, 1) for i, node in enumerate(singles)}
        for i, node in enumerate(wide):
            words_of_number = _parts(f"captured.{function}_words", 2 * i, 2)
            self.names[node.index] = number_from_words(words_of_number, node.scalar, native_int64)
        for i, node in enumerate(narrow, 2 * len(wide)):
            word = _parts(f"captured.{function}_words", i, 1)
            self.names[node.index] = number_from_words(word, node.scalar, native_int64)
        floats, words = _in_vectors(pairs + singles), _in_vectors(wide + narrow)
        self.content = concatenate((*floats, *words))
        self.floats, self.words = _size_of(floats) // 16, _size_of(words) // 16


def _is_captured(node: Node) -> bool:
    """Return True for a constant that a shader reads from a buffer: a float, or an integer that is not revealed.

    An integer is revealed where a shader needs a literal, such as the number of bits of a shift.
    """
    if node.scalar.is_integer:
        return type(node.data) is Expression and not node.data.is_revealed
    return node.scalar.kind in ("float", "complex")


# Expressions of the same function are equal if they have the same object.
@lru_cache(maxsize=8)
def _word_of(dtype: AnyDType) -> Callable[[bytes], bytes]:
    """Return the function that makes a whole word of the bytes of a narrow integer."""
    return lambda number: np.frombuffer(number, dtype).astype(f"{dtype.kind}4").tobytes()


def _parts(array: str, first: int, count: int) -> str:
    """Return the WGSL of `count` numbers of an array of vectors, which do not cross from one into the next."""
    return f"{array}[{first // 4}].{'xyzw'[first % 4 :][:count]}"


def _in_vectors(constants: list[Node]) -> list[bytes | Expression]:
    """Return the numbers of constants, as they are computed with, and what fills the last vector of 16 bytes."""
    numbers = [
        derive(_word_of(node.scalar.dtype), node.data)
        if node.scalar.is_integer and node.scalar.bits < 32
        else node.data
        for node in constants
    ]
    return [*numbers, bytes(-_size_of(numbers) % 16)]


def _size_of(numbers: list[bytes | Expression]) -> int:
    """Return how many bytes numbers take. Other values of them take as many."""
    return sum(len(concrete(present(number))) for number in numbers)


# ----- Quick steps with fixed bits
#
# Sums, differences and products have quick forms, which have the bits of the exact ones if neither an operand nor the
# result is subnormal. Kernels combine many elements at a time, so they do not look at each number. For each component
# of these elements they keep two exponents: every number is 0 or at least ``2^least``, and is a multiple of ``2^step``.
# So a product is 0 or at least the product of the least factors, and a sum is a multiple of the smaller step, which it
# keeps when it is rounded. If no such bound is below 2^-126, no number is subnormal.


# The bits of a float32, which no number of a quick step exceeds.
SIGNIFICAND_BITS = 24
# The exponent that stands for 0, which no sum of exponents exceeds.
ZERO_EXPONENT = 128
# What is as large as its first argument.
_SAME_SIZE = frozenset({"negative", "absolute"})
# What reads the bits of NaN.
_READS_NAN = frozenset({"signbit", "copysign", "view"})


@dataclass(frozen=True)
class Bounds:
    """How small a number can be, as two expressions of WGSL: its exponents `least` and `step`."""

    least: str
    step: str


@dataclass(frozen=True)
class QuickSteps:
    """The quick steps of a function that combines two elements.

    Attributes:
        nodes: the indices of the nodes that take quick forms.
        lines: the statements that compute the bounds of the result, and `lowest`, the lowest of all exponents.
        has_products: True if some of the steps are products. If not, results are within the bounds of all elements.
        has_unknown: True if nothing is known about some number of the result.
    """

    nodes: frozenset[int]
    lines: tuple[str, ...] = ()
    has_products: bool = False
    has_unknown: bool = False


def float_components(element: Element) -> list[tuple[int, int]]:
    """Return the field and the component of each number of an element that kernels compute with as a float32."""
    return [
        (position, component)
        for position, field in enumerate(element.fields)
        for component in range(field.count)
        if field.scalar.kind == "float" and field.scalar.bits <= 32
    ]


def tells_nan_apart(fields: Sequence[Sequence[Node]]) -> bool:
    """Return True if a function, given by the nodes of its result, reads the bits of NaN.

    Quick steps give NaN other bits on other devices.
    """
    return any(node.op in _READS_NAN for node in reachable([node for nodes in fields for node in nodes]))


def find_quick_steps(
    nodes: Sequence[Node], fields: Sequence[Sequence[Node]], element: Element, spelled: Callable[[Node], str]
) -> QuickSteps:
    """Return the quick steps of a function of two elements, ``a`` and ``b``.

    A step takes its quick form if bounds of both operands are known. None does in a function that tells NaN apart, or
    in one of elements without floats, which kernels keep no bounds of.

    Args:
        nodes: the function's nodes, arguments before results.
        fields: the nodes of each component of each field of the result.
        element: the element that it takes and returns.
        spelled: returns the WGSL of a constant.
    """
    positions = {position: index for index, position in enumerate(float_components(element))}
    if not positions or tells_nan_apart(fields):
        return QuickSteps(frozenset())
    node_bounds: dict[int, Bounds] = {}
    quick: set[int] = set()
    lines: list[str] = []
    lowest: list[str] = []

    def name(expression: str) -> str:
        lines.append(f"let e{len(lines)} = {expression};")
        return f"e{len(lines) - 1}"

    for node in nodes:
        bounds = [node_bounds.get(arg.index) for arg in node.args]
        if node.op == "input":
            argument, field, component = node.data
            if (field, component) in positions:
                position = positions[field, component]
                node_bounds[node.index] = Bounds(
                    f"{'ab'[argument]}.least{position}", f"{'ab'[argument]}.step{position}"
                )
        elif node.op == "constant" and node.scalar.kind == "float" and node.scalar.bits <= 32:
            least = name(f"exponent_of(f32_size({spelled(node)}))")
            node_bounds[node.index] = Bounds(least, name(f"{least} - {SIGNIFICAND_BITS - 1}"))
        elif has_quick_form(node):
            left, right = bounds
            if left is None or right is None:
                continue
            quick.add(node.index)
            if node.op == "multiply":
                least = name(f"min({left.least} + {right.least}, {ZERO_EXPONENT})")
                lowest += [left.least, right.least, least]
                node_bounds[node.index] = Bounds(least, name(f"{least} - {SIGNIFICAND_BITS - 1}"))
            else:
                step = name(f"min({left.step}, {right.step})")
                lowest.append(step)
                node_bounds[node.index] = Bounds(step, step)
        elif node.op in CHOICES or node.op == "select":
            chosen = [number_bounds for number_bounds in bounds[-2:] if number_bounds is not None]
            if len(chosen) == 2:
                least, step = (
                    name(f"min({x}, {y})") for x, y in zip(*((b.least, b.step) for b in chosen), strict=True)
                )
                node_bounds[node.index] = Bounds(least, step)
        elif node.op in _SAME_SIZE and bounds[0] is not None:
            node_bounds[node.index] = bounds[0]
        elif node.op in ("trunc", "floor", "ceil", "rint"):
            node_bounds[node.index] = Bounds("0", "0")  # whole numbers
        elif node.op == "cast" and node.scalar.kind == "float" and node.scalar.bits <= 32:
            if bounds[0] is not None:
                node_bounds[node.index] = bounds[0]
            elif node.args[0].scalar.kind != "float" and node.args[0].scalar.kind != "complex":
                node_bounds[node.index] = Bounds("0", "0")  # whole numbers
    if not quick:
        return QuickSteps(frozenset())
    results = [node_bounds.get(fields[field][component].index) for field, component in positions]
    has_products = any(node.op == "multiply" for node in nodes if node.index in quick)
    if not has_products:
        # Elements of a sum are tested once, so later steps also rely on numbers that these steps choose or pass on.
        lowest += [number_bounds.step for number_bounds in results if number_bounds]
    lines.append(f"*lowest = {smallest_of(lowest)};")
    # The kernel computes unknown bounds from the result itself. These values are not read.
    exponents = [
        (number_bounds.least, number_bounds.step) if number_bounds else ("0", "0") for number_bounds in results
    ]
    lines.append(f"return Bounds({', '.join(text for pair in exponents for text in pair)});")
    return QuickSteps(frozenset(quick), tuple(lines), has_products, None in results)


def smallest_of(expressions: Sequence[str]) -> str:
    """Return the WGSL of the smallest of integers."""
    text = expressions[0]
    for expression in dict.fromkeys(expressions[1:]):
        text = f"min({text}, {expression})"
    return text


def bounds_code(steps: QuickSteps, numbers: Sequence[str]) -> str:
    """Return the WGSL functions that keep bounds of elements.

    Args:
        steps: the quick steps of the function that combines two elements.
        numbers: how WGSL spells each `float_components` of the element ``x``.
    """
    positions = range(len(numbers))
    sizes = ", ".join(f"f32_size({number})" for number in numbers)
    smaller = ", ".join(f"min(a[{position}], b[{position}])" for position in positions)
    members = "\n".join(f"    least{position}: i32,\n    step{position}: i32," for position in positions)
    lower = ", ".join(
        f"min(a.{bound}{position}, b.{bound}{position})" for position in positions for bound in ("least", "step")
    )
    initial_bounds = ", ".join(
        f"exponent_of(sizes[{i}]), exponent_of(sizes[{i}]) - {SIGNIFICAND_BITS - 1}i" for i in positions
    )
    lines = "\n".join(f"    {line}" for line in steps.lines)
    return f"""\
alias Sizes = array<u32, {len(numbers)}>;

fn sizes_of(x: Element) -> Sizes {{
    return Sizes({sizes});
}}

fn smaller_sizes(a: Sizes, b: Sizes) -> Sizes {{
    return Sizes({smaller});
}}

// Of each float of some elements: all are 0 or at least 2^least, and all are multiples of 2^step.
struct Bounds {{
{members}
}}

fn lower_bounds(a: Bounds, b: Bounds) -> Bounds {{
    return Bounds({lower});
}}

// The exponent of the power of 2 that is no larger than a number; 0 counts as 2^128.
fn exponent_of(size: u32) -> i32 {{
    return bitcast<i32>(size >> 24u) - 127i;
}}

fn bounds_of(sizes: Sizes) -> Bounds {{
    return Bounds({initial_bounds});
}}

// The bounds of elements that are combined. Quick steps are right if `lowest`, of all that they add and multiply, is no
// smaller than -126.
fn combine_bounds(a: Bounds, b: Bounds, lowest: ptr<function, i32>) -> Bounds {{
{lines}
}}"""


# ----- Expression graphs as WGSL
#
# Write an expression graph as one WGSL function.
#
# Every intermediate is a `let`, so that compilers keep it in a register. A short one that is used once stands inside
# the expression that uses it, so that ``add`` reads ``return a + b;``.


# Characters of an expression that may stand inside another one.
INLINE_WIDTH = 40
# Characters of a `return` on one line.
LINE_WIDTH = 100


def emit(
    signature: str, arguments: Sequence[tuple[str, Element]], fields: Sequence[Sequence[Node]], result: Element,
    result_type: str, native_int64: bool, wrap: bool = True, names: Mapping[int, str] | None = None,
    fixed: bool = False, quick: frozenset[int] = frozenset(),
) -> str:  # fmt: skip
    """Return the WGSL of a function.

    Args:
        signature: its text up to the body.
        arguments: the name and the element of each argument.
        fields: the nodes of each component of each field of the result.
        result: the element that it returns.
        result_type: the name of its type.
        native_int64: True if WGSL has 64-bit numbers on the device.
        wrap: keep narrow integers in their range after each operation.
        names: names of numbers that the shader has already, by the index of their node.
        fixed: True if floats must have the same bits on every device.
        quick: the indices of the nodes that take their quick form.
    """
    results = [node for field in fields for node in field]
    nodes = reachable(results)
    uses = Counter(arg.index for node in nodes for arg in node.args)
    uses.update(node.index for node in results)
    hidden = {arg.index for node in nodes if node.index in quick for arg in node.args if arg.is_constant}
    lines: list[str] = []
    texts: dict[int, Text] = {}
    for node in nodes:
        if node.scalar.name == "float64" and not native_int64:
            raise OperatorError(
                "the function computes in float64, and the adapter has no 64-bit numbers; "
                'write .astype(np.float32), or pass device="numpy"'
            )
        name = (names or {}).get(node.index)
        text = Text(name) if name else _text(node, texts, arguments, native_int64, wrap, fixed, node.index in quick)
        leaf = node.op in ("input", "constant")
        if node.index in hidden:
            lines.append(f"let v{len(lines)} = f32_hidden(bitcast<u32>({text.text}));")
            text = Text(f"v{len(lines) - 1}")
        elif not (leaf or _is_return(node, uses, results)) and (uses[node.index] > 1 or len(text.text) > INLINE_WIDTH):
            lines.append(f"let v{len(lines)} = {text.text};")
            text = Text(f"v{len(lines) - 1}")
        texts[node.index] = text
    lines.append(f"return {_construct_result(fields, texts, result, result_type, native_int64)};")
    return signature + " {\n" + "\n".join(f"    {line}" for line in lines) + "\n}"


def _is_return(node: Node, uses: Counter[int], results: Sequence[Node]) -> bool:
    """Return True if the node is the whole result, so that it needs no name of its own."""
    return len(results) == 1 and node is results[0] and uses[node.index] == 1


def _text(
    node: Node, texts: dict[int, Text], arguments: Sequence[tuple[str, Element]], native_int64: bool, wrap: bool,
    fixed: bool, quick: bool,
) -> Text:  # fmt: skip
    if node.op == "constant":
        return literal(node.value, node.scalar, native_int64)
    if node.op == "input":
        argument, field, component = node.data
        name, element = arguments[argument]
        return Text(_number_of(name, element, field, component))
    return spell_node(node, [texts[arg.index] for arg in node.args], native_int64, wrap, fixed, quick)


def _number_of(name: str, element: Element, field: int, component: int) -> str:
    """Return how WGSL spells a number of an element with this name."""
    return element.member(name, field) + (f"[{component}]" if element.fields[field].shape else "")


def _construct_result(
    fields: Sequence[Sequence[Node]], texts: dict[int, Text], result: Element, result_type: str, native_int64: bool
) -> str:
    parts = []
    for result_field, nodes in zip(result.fields, fields, strict=True):
        bare = result.single and not result_field.shape
        numbers = [texts[node.index].text if bare else texts[node.index].argument for node in nodes]
        array_type = result_type if result.single else result_field.wgsl(native_int64)
        parts.append(_call(array_type, numbers) if result_field.shape else numbers[0])
    return parts[0] if result.single else _call(result_type, parts)


def _call(function: str, arguments: Sequence[str]) -> str:
    """Return a call, over several lines if it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= LINE_WIDTH and "\n" not in line:
        return line
    inner = ",\n".join(arguments).replace("\n", "\n        ")
    return f"{function}(\n        {inner},\n    )"


# ----- Functions that the shaders share
#
# The functions of shaders/shared/arithmetic.wgsl: arithmetic with NumPy's meaning where WGSL has none or another.


class _Everything:
    """Contains every name: renders all of arithmetic.wgsl."""

    def __contains__(self, name: object) -> bool:
        return True


@cache
def arithmetic_functions() -> dict[str, str]:
    """Return the text of each function of shaders/shared/arithmetic.wgsl by its name, in the order of the file."""
    text = templates.render("shared/arithmetic.wgsl", helpers=_Everything(), native_int64=False, branches=False)
    bodies = re.findall(r"^fn (\w+)(.*?^\})", text, flags=re.MULTILINE | re.DOTALL)
    return {name: "fn " + name + body for name, body in bodies}


@cache
def _direct(name: str) -> frozenset[str]:
    return _find_called_functions(arithmetic_functions()[name]) - {name}


def _find_called_functions(source: str) -> frozenset[str]:
    # WGSL's own functions have no underscore in their names, so most operators need no look at the library.
    named = frozenset(re.findall(r"\b\w+_\w+(?=\()", source))
    return named & arithmetic_functions().keys() if named else named


# The most iterations of one loop in arithmetic.wgsl: the greatest common divisor of 64-bit integers takes 92.
_MOST_ITERATIONS = 96


def loop_iterations(source: str) -> int:
    """Return the most iterations that the functions of arithmetic.wgsl make when a WGSL text runs once."""
    return sum(source.count(f"{name}(") * _iterations_of(name) for name in _find_called_functions(source))


@cache
def _iterations_of(name: str) -> int:
    body = arithmetic_functions()[name].removeprefix(f"fn {name}")
    called = loop_iterations(body)
    return _MOST_ITERATIONS * (1 + called) if re.search(r"\b(for|while) \(|\bloop \{", body) else called


def helpers_of(source: str) -> tuple[str, ...]:
    """Return the names of the functions of arithmetic.wgsl that a WGSL text calls, directly or through others."""
    needed: set[str] = set()
    waiting = set(_find_called_functions(source))
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= _direct(name) - needed
    return tuple(name for name in arithmetic_functions() if name in needed) if needed else ()
