"""Differentiate an expression graph in reverse mode: from the cotangents of results to those of inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gpuscan.errors import OperatorError
from gpuscan.operators.derivatives import DERIVATIVES, Calculus
from gpuscan.operators.expression_graph import COMPLEX64, Graph, Node, reachable
from gpuscan.operators.traced_ufuncs import NoSuchForm

CONTINUOUS = ("float", "complex")


def dependent(nodes: Sequence[Node], inputs: Collection[Node]) -> set[int]:
    """Return the indices of the nodes that the given ones need and that depend on the inputs."""
    found = {node.index for node in inputs}
    for node in reachable(nodes):
        if any(arg.index in found for arg in node.args):
            found.add(node.index)
    return found


def is_analytic(nodes: Sequence[Node], inputs: Collection[Node]) -> bool:
    """Return True if all numbers are complex, and no real or imaginary part is taken of what depends on the inputs."""
    if any(node.scalar != COMPLEX64 for node in (*nodes, *inputs)):
        return False
    depends = dependent(nodes, inputs)
    return all(node.op not in ("real", "imag", "complex") for node in reachable(nodes) if _passes_on(node, depends))


def _passes_on(node: Node, depends: set[int]) -> bool:
    return node.scalar.kind in CONTINUOUS and any(arg.index in depends for arg in node.args)


def cotangents(
    graph: Graph,
    results: Sequence[tuple[Node, Node]],
    inputs: Sequence[Node],
    described: str,
    known_values: Mapping[int, Node] | None = None,
) -> list[Node | None]:
    """Return the cotangent of each input; None where it is 0 for all values.

    Args:
        graph: the graph, which grows.
        results: each result and its cotangent.
        inputs: the nodes to differentiate with respect to.
        described: the function as messages name it.
        known_values: for the index of a node, another node with the same value, which derivatives read in its place.

    Raises:
        OperatorError: an operation has no derivative.
    """
    calculus = Calculus(graph)
    nodes = [node for node, _ in results]
    depends = dependent(nodes, inputs)
    found: dict[int, Node] = {}

    def collect(node: Node, cotangent: Node) -> None:
        known = found.get(node.index)
        found[node.index] = cotangent if known is None else calculus.add(known, cotangent)

    for node, cotangent in results:
        if node.index in depends:
            collect(node, cotangent)
    for node in reversed(reachable(nodes)):
        known = found.get(node.index)
        if known is not None and node.args:
            value = (known_values or {}).get(node.index, node)
            _pass_on(calculus, node, calculus.wide(value), known, depends, collect, described)
    return [found.get(node.index) for node in inputs]


def _pass_on(
    calculus: Calculus,
    node: Node,
    y: Node,
    cotangent: Node,
    depends: set[int],
    collect: Callable[[Node, Node], None],
    described: str,
) -> None:
    """Give each argument of a node its share of the node's cotangent; `y` has the node's value."""
    if node.op == "cast":
        (arg,) = node.args
        if arg.scalar.kind in CONTINUOUS:
            collect(arg, calculus.graph.cast(cotangent, calculus.wide(arg).scalar))
        return
    rules = DERIVATIVES.get(node.op)
    if rules is None:
        bits = "it reads the bits of numbers" if node.op == "view" else "it has no derivative"
        raise OperatorError(
            f"the gradient of {described} was asked for, which computes {node.op!r} of its arguments, and {bits}. "
            "Write the operator with operations on floats, or with np.where"
        )
    args = tuple(calculus.wide(arg) for arg in node.args)
    for arg, rule in zip(node.args, rules, strict=True):
        if rule is None or arg.index not in depends or arg.scalar.kind not in CONTINUOUS:
            continue
        try:
            share = rule(calculus, args, y, cotangent)
        except NoSuchForm as error:
            raise OperatorError(
                f"the gradient of {described} was asked for, but the derivative of np.{node.op} has no form for "
                f"{error}. Pass arrays of float32"
            ) from None
        collect(arg, share)
