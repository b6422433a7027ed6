"""Find which steps with fixed bits have a quick form, and write how small the numbers of a result can be.

Sums, differences and products have quick forms, which have the bits of the exact ones if neither an operand nor the
result is subnormal. Kernels combine many elements at a time, so they do not look at each number. For each component of
these elements they keep two exponents: every number is 0 or at least ``2^least``, and is a multiple of ``2^step``. So a
product is 0 or at least the product of the least factors, and a sum is a multiple of the smaller step, which it keeps
when it is rounded. If no such bound is below 2^-126, no number is subnormal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuscan.elements import Element
from gpuscan.operators.expression_graph import Node
from gpuscan.operators.wgsl_arithmetic import has_quick_form

# Numbers that have such bounds have no more bits than a float32.
SIGNIFICAND_BITS = 24
# The exponent that stands for 0, which no sum of exponents exceeds.
ZERO_EXPONENT = 128
# What is no smaller than its arguments are.
_CHOICES = frozenset({"minimum", "maximum", "fmin", "fmax"})
_SAME_SIZE = frozenset({"negative", "absolute"})
# What tells NaN apart, which quick steps give other bits on other devices.
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


def find_quick_steps(
    nodes: Sequence[Node], fields: Sequence[Sequence[Node]], element: Element, spelled: Callable[[Node], str]
) -> QuickSteps:
    """Return the quick steps of a function of two elements, ``a`` and ``b``.

    A step takes its quick form if bounds of both operands are known. None does in a function that tells NaN apart.

    Args:
        nodes: the function's nodes, arguments before results.
        fields: the nodes of each component of each field of the result.
        element: the element that it takes and returns.
        spelled: returns the WGSL of a constant.
    """
    if any(node.op in _READS_NAN for node in nodes):
        return QuickSteps(frozenset())
    places = {place: index for index, place in enumerate(float_components(element))}
    known: dict[int, Bounds] = {}
    quick: set[int] = set()
    lines: list[str] = []
    lowest: list[str] = []

    def name(expression: str) -> str:
        lines.append(f"let e{len(lines)} = {expression};")
        return f"e{len(lines) - 1}"

    for node in nodes:
        bounds = [known.get(arg.index) for arg in node.args]
        if node.op == "input":
            argument, field, component = node.data
            if (field, component) in places:
                place = places[field, component]
                known[node.index] = Bounds(f"{'ab'[argument]}.least{place}", f"{'ab'[argument]}.step{place}")
        elif node.op == "constant" and node.scalar.kind == "float" and node.scalar.bits <= 32:
            least = name(f"exponent_of(f32_size({spelled(node)}))")
            known[node.index] = Bounds(least, name(f"{least} - {SIGNIFICAND_BITS - 1}"))
        elif has_quick_form(node):
            left, right = bounds
            if left is None or right is None:
                continue
            quick.add(node.index)
            if node.op == "multiply":
                least = name(f"min({left.least} + {right.least}, {ZERO_EXPONENT})")
                lowest += [left.least, right.least, least]
                known[node.index] = Bounds(least, name(f"{least} - {SIGNIFICAND_BITS - 1}"))
            else:
                step = name(f"min({left.step}, {right.step})")
                lowest.append(step)
                known[node.index] = Bounds(step, step)
        elif node.op in _CHOICES or node.op == "select":
            chosen = [each for each in bounds[-2:] if each is not None]
            if len(chosen) == 2:
                least, step = (
                    name(f"min({x}, {y})") for x, y in zip(*((b.least, b.step) for b in chosen), strict=True)
                )
                known[node.index] = Bounds(least, step)
        elif node.op in _SAME_SIZE and bounds[0] is not None:
            known[node.index] = bounds[0]
        elif node.op == "cast" and node.scalar.kind == "float" and node.scalar.bits <= 32:
            if bounds[0] is not None:
                known[node.index] = bounds[0]
            elif node.args[0].scalar.kind != "float" and node.args[0].scalar.kind != "complex":
                known[node.index] = Bounds("0", "0")  # whole numbers
    if not quick:
        return QuickSteps(frozenset())
    lines.append(f"*lowest = {smallest_of(lowest)};")
    results = [known.get(fields[field][component].index) for field, component in places]
    # What is not known is computed anew from the result, so that it may be anything here.
    exponents = [(each.least, each.step) if each else ("0", "0") for each in results]
    lines.append(f"return Bounds({', '.join(text for pair in exponents for text in pair)});")
    has_products = any(node.op == "multiply" for node in nodes if node.index in quick)
    return QuickSteps(frozenset(quick), tuple(lines), has_products, None in results)


def smallest_of(expressions: Sequence[str]) -> str:
    """Return the WGSL of the smallest of integers."""
    text = expressions[0]
    for each in dict.fromkeys(expressions[1:]):
        text = f"min({text}, {each})"
    return text


def bounds_code(steps: QuickSteps, numbers: Sequence[str]) -> str:
    """Return the WGSL functions that keep bounds of elements.

    Args:
        steps: the quick steps of the function that combines two elements.
        numbers: how WGSL spells each `float_components` of the element ``x``.
    """
    places = range(len(numbers))
    sizes = ", ".join(f"f32_size({number})" for number in numbers)
    smaller = ", ".join(f"min(a[{place}], b[{place}])" for place in places)
    members = "\n".join(f"    least{place}: i32,\n    step{place}: i32," for place in places)
    lower = ", ".join(f"min(a.{each}{place}, b.{each}{place})" for place in places for each in ("least", "step"))
    known = ", ".join(f"exponent_of(sizes[{i}]), exponent_of(sizes[{i}]) - {SIGNIFICAND_BITS - 1}i" for i in places)
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
    return Bounds({known});
}}

// The bounds of elements that are combined. Quick steps are right if `lowest`, of all that they add and multiply, is no
// smaller than -126.
fn combine_bounds(a: Bounds, b: Bounds, lowest: ptr<function, i32>) -> Bounds {{
{lines}
}}"""
