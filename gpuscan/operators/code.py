"""The WGSL function that an operator or a map becomes for an element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from gpuscan.elements import Element, HashedOnce
from gpuscan.operators.arithmetic_library import arithmetic_functions, helpers_of
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.operator import Operator
from gpuscan.operators.trace import Result, trace_map, trace_operator
from gpuscan.operators.user_wgsl import contained, has_loops
from gpuscan.operators.wgsl_arithmetic import atomic_of, is_order_free, low_bits_suffice, neutral_of
from gpuscan.operators.wgsl_emitter import emit

# Characters of WGSL up to which a function is short enough to run twice where registers are few.
MAX_LIGHT_CHARACTERS = 400
# Characters of WGSL from which on shaders that repeat the function take long to compile.
MAX_SHORT_CHARACTERS = 1000
# Constants of a function up to which they are captured: an eighth of the smallest limit of a uniform buffer.
MAX_CAPTURED = 2048


@dataclass(frozen=True)
class Code(HashedOnce):
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
        atomic: the WGSL atomic that combines elements of one integer, and the bits of its identity; None without.
        neutral: the bits of the operand that changes no bit of the other one; None if it is no single word, or unknown.
        captured: float constants of the user's function that the text has no values of. It reads them from
            `captured`, a uniform buffer (shaders/shared/captured.wgsl), so that a function with other constants
            has the same text and needs no compilation. Code that differs only in these values is equal.
    """

    source: str
    helpers: tuple[str, ...]
    result: Element
    foreign: bool = False
    loops: bool = False
    wraps_late: bool = False
    order_free: bool = False
    atomic: tuple[str, int] | None = None
    neutral: int | None = None
    captured: tuple[float, ...] = field(default=(), compare=False)
    captured_count: int = 0

    __hash__ = HashedOnce.__hash__

    @property
    def captured_bytes(self) -> bytes:
        """The captured constants, in whole vec4<f32>."""
        values = np.array(self.captured, np.float32)
        return np.pad(values, (0, -len(values) % 4)).tobytes()

    @property
    def light(self) -> bool:
        """True if the function is short enough to run twice where registers are few."""
        return not (self.helpers or self.foreign) and len(self.source) <= MAX_LIGHT_CHARACTERS

    @cached_property
    def long(self) -> bool:
        """True if shaders that repeat the function take long to compile."""
        return len(self.source) + sum(len(arithmetic_functions()[name]) for name in self.helpers) > MAX_SHORT_CHARACTERS


def combine_code(operator: Operator, element: Element, native_int64: bool, *, captures: bool = False) -> Code:
    """Return ``fn combine(a: Element, b: Element) -> Element`` of an operator.

    Args:
        operator: the operator.
        element: the element that it combines.
        native_int64: True if WGSL has 64-bit integers on the device.
        captures: True to capture the float constants of a user's function; see `Code.captured`.

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
    captured = _captured(traced) if captures and operator.kinds is None else []
    names = _names("combine", captured)
    source = emit(signature, arguments, traced.fields, element, "Element", native_int64, wrap=not late, names=names)
    return Code(
        source,
        helpers_of(source),
        element,
        wraps_late=late,
        order_free=is_order_free(traced.fields),
        atomic=atomic_of(traced.fields),
        neutral=neutral_of(traced.fields),
        captured=tuple(float(node.value) for node in captured),
        captured_count=len(captured),
    )


def map_code(
    function: Callable[[Any], Any],
    element: Element,
    name: str,
    native_int64: bool,
    *,
    argument_type: str = "Element",
    result_type: str,
    captures: bool = False,
) -> Code:
    """Return ``fn name(x: argument_type) -> result_type`` of a map, such as the ``before`` and ``after`` of a scan.

    Args:
        function: takes an element and returns one, of any types and number of fields.
        element: the element that it takes.
        name: the name of the WGSL function.
        native_int64: True if WGSL has 64-bit integers on the device.
        argument_type: the name of the type of its argument.
        result_type: the name of the type of its result.
        captures: as for `combine_code`.

    Raises:
        OperatorError: as for `combine_code`.
    """
    traced = trace_map(function, element, name)
    signature = f"fn {name}(x: {argument_type}) -> {result_type}"
    captured = _captured(traced) if captures else []
    names = _names(name, captured)
    source = emit(signature, (("x", element),), traced.fields, traced.element, result_type, native_int64, names=names)
    values = tuple(float(node.value) for node in captured)
    return Code(source, helpers_of(source), traced.element, captured=values, captured_count=len(captured))


def _captured(traced: Result) -> list[Node]:
    """Return the nodes of the float constants, which shaders compute with as float32; none if there are very many."""
    nodes = reachable([node for field in traced.fields for node in field])
    found = [node for node in nodes if node.is_constant and node.scalar.kind == "float" and node.scalar.bits <= 32]
    return found if len(found) <= MAX_CAPTURED else []


def _names(function: str, captured: list[Node]) -> dict[int, str]:
    """Return how WGSL names the captured constants of a function, by the index of their node."""
    return {node.index: f"captured.{function}[{i // 4}].{'xyzw'[i % 4]}" for i, node in enumerate(captured)}
