"""An expression graph → the text of one WGSL function.

Every intermediate is a `let`, so that compilers keep it in a register. What is used once and is short stands inside
the expression that uses it, so that ``add`` reads ``return a + b;``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache

from gpuscan import templates
from gpuscan.elements import Element
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.wgsl_arithmetic import Text, literal, spelled

INLINE_WIDTH = 40  # characters of an expression that may stand inside another
LINE_WIDTH = 100  # characters of a `return` on one line


def emit(
    signature: str, arguments: Sequence[tuple[str, Element]], fields: Sequence[Sequence[Node]], result: Element,
    result_type: str, native_int64: bool, wrap: bool = True,
) -> str:  # fmt: skip
    """The function `signature` whose arguments are named elements, returning the `fields` (nodes of each component).

    `wrap` brings narrow integers into their range after each operation.
    """
    results = [node for field in fields for node in field]
    nodes = reachable(results)
    uses = Counter(arg.index for node in nodes for arg in node.args)
    uses.update(node.index for node in results)
    lines: list[str] = []
    texts: dict[int, Text] = {}
    for node in nodes:
        if node.scalar.name == "float64" and not native_int64:
            raise OperatorError(
                "the operator computes in float64, which asks for an adapter with 64-bit numbers; "
                'write .astype(np.float32), or pass device="numpy"'
            )
        text = _text(node, texts, arguments, native_int64, wrap)
        leaf = node.op in ("input", "constant")
        if not leaf and (uses[node.index] > 1 or len(text.text) > INLINE_WIDTH) and not _is_return(node, uses, results):
            lines.append(f"let v{len(lines)} = {text.text};")
            text = Text(f"v{len(lines) - 1}")
        texts[node.index] = text
    lines.append(f"return {_constructed(fields, texts, result, result_type, native_int64)};")
    return signature + " {\n" + "\n".join(f"    {line}" for line in lines) + "\n}"


def _is_return(node: Node, uses: Counter[int], results: Sequence[Node]) -> bool:
    """Whether the node is the whole of what is returned, so that it needs no name of its own."""
    return len(results) == 1 and node is results[0] and uses[node.index] == 1


def _text(
    node: Node, texts: dict[int, Text], arguments: Sequence[tuple[str, Element]], native_int64: bool, wrap: bool
) -> Text:
    if node.op == "constant":
        return literal(node.value, node.scalar, native_int64)
    if node.op == "input":
        argument, field, component = node.data
        name, element = arguments[argument]
        return Text(element.member(name, field) + (f"[{component}]" if element.fields[field].shape else ""))
    return spelled(node, [texts[arg.index] for arg in node.args], native_int64, wrap)


def _constructed(
    fields: Sequence[Sequence[Node]], texts: dict[int, Text], result: Element, result_type: str, native_int64: bool
) -> str:
    parts = []
    for field, nodes in zip(result.fields, fields, strict=True):
        bare = result.single and not field.shape
        numbers = [texts[node.index].text if bare else texts[node.index].argument for node in nodes]
        array_type = result_type if result.single else field.wgsl(native_int64)
        parts.append(_call(array_type, numbers) if field.shape else numbers[0])
    return parts[0] if result.single else _call(result_type, parts)


def _call(function: str, arguments: Sequence[str]) -> str:
    """A call, over several lines where it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= LINE_WIDTH and "\n" not in line:
        return line
    inner = ",\n".join(arguments).replace("\n", "\n        ")
    return f"{function}(\n        {inner},\n    )"


# ---- the functions of arithmetic.wgsl that a text calls


class _Everything:
    """Contains every name: renders all of arithmetic.wgsl."""

    def __contains__(self, name: object) -> bool:
        return True


@cache
def arithmetic_functions() -> dict[str, str]:
    """The text of each function of shaders/shared/arithmetic.wgsl by its name, in the order of the file."""
    text = templates.render("shared/arithmetic.wgsl", helpers=_Everything())
    bodies = re.findall(r"^fn (\w+)(.*?^\})", text, flags=re.MULTILINE | re.DOTALL)
    return {name: "fn " + name + body for name, body in bodies}


@cache
def _direct(name: str) -> frozenset[str]:
    return _called(arithmetic_functions()[name]) - {name}


def _called(source: str) -> frozenset[str]:
    # Their names have underscores, which those of WGSL's own functions have not: most operators need no look at them.
    named = frozenset(re.findall(r"\b\w+_\w+(?=\()", source))
    return named & arithmetic_functions().keys() if named else named


def helpers_of(source: str) -> tuple[str, ...]:
    """The functions of arithmetic.wgsl that a WGSL text needs, and those that they need, in the order of the file."""
    needed: set[str] = set()
    waiting = set(_called(source))
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= _direct(name) - needed
    return tuple(name for name in arithmetic_functions() if name in needed) if needed else ()
