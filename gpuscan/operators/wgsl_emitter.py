"""Write an expression graph as one WGSL function.

Every intermediate is a `let`, so that compilers keep it in a register. A short one that is used once stands inside the
expression that uses it, so that ``add`` reads ``return a + b;``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gpuscan.elements import Element
from gpuscan.errors import OperatorError
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.wgsl_arithmetic import Text, literal, spelled

# Characters of an expression that may stand inside another one.
INLINE_WIDTH = 40
# Characters of a `return` on one line.
LINE_WIDTH = 100


def emit(
    signature: str, arguments: Sequence[tuple[str, Element]], fields: Sequence[Sequence[Node]], result: Element,
    result_type: str, native_int64: bool, wrap: bool = True, names: Mapping[int, str] | None = None,
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
                "the function computes in float64, and the adapter has no 64-bit numbers; "
                'write .astype(np.float32), or pass device="numpy"'
            )
        name = (names or {}).get(node.index)
        text = Text(name) if name else _text(node, texts, arguments, native_int64, wrap)
        leaf = node.op in ("input", "constant")
        if not leaf and (uses[node.index] > 1 or len(text.text) > INLINE_WIDTH) and not _is_return(node, uses, results):
            lines.append(f"let v{len(lines)} = {text.text};")
            text = Text(f"v{len(lines) - 1}")
        texts[node.index] = text
    lines.append(f"return {_constructed(fields, texts, result, result_type, native_int64)};")
    return signature + " {\n" + "\n".join(f"    {line}" for line in lines) + "\n}"


def _is_return(node: Node, uses: Counter[int], results: Sequence[Node]) -> bool:
    """Return True if the node is the whole result, so that it needs no name of its own."""
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
    """Return a call, over several lines if it is long."""
    line = f"{function}({', '.join(arguments)})"
    if len(line) <= LINE_WIDTH and "\n" not in line:
        return line
    inner = ",\n".join(arguments).replace("\n", "\n        ")
    return f"{function}(\n        {inner},\n    )"
