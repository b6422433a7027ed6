"""The WGSL function that an operator or a map becomes for an element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpuscan.elements import Element
from gpuscan.operators.arithmetic_library import arithmetic_functions, helpers_of
from gpuscan.operators.expression_graph import reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import trace_map, trace_operator
from gpuscan.operators.user_wgsl import contained, has_loops
from gpuscan.operators.wgsl_arithmetic import is_order_free, low_bits_suffice
from gpuscan.operators.wgsl_emitter import emit

# Characters of WGSL up to which a function is short enough to run twice where registers are few.
MAX_LIGHT_CHARACTERS = 400
# Characters of WGSL from which on shaders that repeat the function take long to compile.
MAX_SHORT_CHARACTERS = 1000


@dataclass(frozen=True)
class Code:
    """A WGSL function.

    Attributes:
        source: its text.
        helpers: the names of the functions of shaders/shared/arithmetic.wgsl that it calls, directly or through others.
        result: the element that it returns.
        foreign: True for WGSL of the user's, which must be kept apart from gpuscan's.
        loops: True if it has loops, so that gpuscan counts their iterations.
        wraps_late: True if its narrow integers may leave their range and are right in their low bits only. They are
            wrapped when they are stored.
        order_free: True if the order and the grouping in which elements are combined change no bit of the result
            but NaN's.
    """

    source: str
    helpers: tuple[str, ...]
    result: Element
    foreign: bool = False
    loops: bool = False
    wraps_late: bool = False
    order_free: bool = False

    @property
    def light(self) -> bool:
        """True if the function is short enough to run twice where registers are few."""
        return not (self.helpers or self.foreign) and len(self.source) <= MAX_LIGHT_CHARACTERS

    @cached_property
    def long(self) -> bool:
        """True if shaders that repeat the function take long to compile."""
        return len(self.source) + sum(len(arithmetic_functions()[name]) for name in self.helpers) > MAX_SHORT_CHARACTERS


def combine_code(operator: Operator, element: Element, native_int64: bool) -> Code:
    """Return ``fn combine(a: Element, b: Element) -> Element`` of an operator.

    Raises:
        OperatorError: the function cannot be traced for this element; the message has the line of the user's code.
    """
    operator.check(element)
    if operator.wgsl is not None:
        loops = has_loops(operator.name, operator.wgsl, operator.helpers)
        text = contained(operator.name, operator.wgsl, operator.helpers, 4 * element.words)
        return Code(text, (), element, foreign=True, loops=loops)
    assert operator.function is not None
    traced = trace_operator(operator.function, element, operator.name)
    signature = "fn combine(a: Element, b: Element) -> Element"
    arguments = (("a", element), ("b", element))
    late = low_bits_suffice(reachable([node for field in traced.fields for node in field]))
    source = emit(signature, arguments, traced.fields, element, "Element", native_int64, wrap=not late)
    return Code(source, helpers_of(source), element, wraps_late=late, order_free=is_order_free(traced.fields))


def map_code(
    function: Callable[[Any], Any],
    element: Element,
    name: str,
    native_int64: bool,
    *,
    argument_type: str = "Element",
    result_type: str,
) -> Code:
    """Return ``fn name(x: argument_type) -> result_type`` of a map, such as the ``before`` and ``after`` of a scan.

    Args:
        function: takes an element and returns one, of any types and number of fields.
        element: the element that it takes.
        name: the name of the WGSL function.
        native_int64: True if WGSL has 64-bit integers on the device.
        argument_type: the name of the type of its argument.
        result_type: the name of the type of its result.

    Raises:
        OperatorError: as for `combine_code`.
    """
    traced = trace_map(function, element, name)
    signature = f"fn {name}(x: {argument_type}) -> {result_type}"
    source = emit(signature, (("x", element),), traced.fields, traced.element, result_type, native_int64)
    return Code(source, helpers_of(source), traced.element)
