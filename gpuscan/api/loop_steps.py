"""Give a scan the steps of the loop that it runs, and the arrays that nodes of the step are computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuscan.api.array import SomeArray
from gpuscan.api.loop_arguments import NodeArray
from gpuscan.elements import Element, Field, bundle_of
from gpuscan.operators.adjoint import map_of
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import Graph, Node, reachable
from gpuscan.operators.loops.stage import LoopStage, compute_nodes, trace_node
from gpuscan.operators.loops.step import Step
from gpuscan.operators.trace import Map
from gpuscan.operators.traced_array import Traced
from gpuscan.problem.problem import LoopSteps


class Sources:
    """The arrays that some nodes are computed from.

    Args:
        node_arrays: the arrays of some nodes, by the index of the node. The nodes are computed from these alone.
        spare: an array to read if the nodes need none.
    """

    def __init__(self, nodes: Sequence[Node], node_arrays: Mapping[int, NodeArray], spare: NodeArray) -> None:
        self.arrays: list[SomeArray] = []
        self.fields: list[Field] = []
        needed = {node: node_arrays[node.index] for node in cut_inputs(nodes, node_arrays)}
        self._of: dict[Node, tuple[int, NodeArray]] = {}
        for node, node_array in needed.items():
            self._of[node] = (self._number(node_array), node_array)
        if not self.arrays:
            self._number(spare)
        self.element = bundle_of(self.fields)

    def _number(self, node_array: NodeArray) -> int:
        for number, array in enumerate(self.arrays):
            if array is node_array.array:
                return number
        self.arrays.append(node_array.array)
        self.fields.append(node_array.field)
        return len(self.arrays) - 1

    def have(self, nodes: Sequence[Node], others: Sequence[Node]) -> bool:
        """Return True if nodes can be computed from these arrays and from other nodes."""
        given = {node.index: None for node in (*self._of, *others)}
        return all(node.index in given for node in cut_inputs(nodes, given))

    def inputs(self, graph: Graph, first: int = 0) -> dict[Node, Node]:
        """Return for each node the node of another graph that replaces it.

        Args:
            graph: the other graph.
            first: the number of the input that is the first array.
        """
        inputs = {}
        for node, (number, node_array) in self._of.items():
            value = graph.input(0, first + number, node_array.component, node_array.field.scalar)
            inputs[node] = graph.cast(value, node.scalar)
        return inputs


def cut_inputs(nodes: Sequence[Node], stops: Mapping[int, object]) -> list[Node]:
    """Return the first nodes with an array, and the inputs without one, that nodes are computed from."""
    return [node for node in reachable(nodes, stops) if node.index in stops or node.op == "input"]


def find_loop_steps(
    step: Step,
    stage: LoopStage,
    before: Map,
    sources: Sources,
    carried: Sequence[Node],
    nodes: Sequence[Sequence[Node]],
    fields: Sequence[Field],
) -> LoopSteps | None:
    """Return the stage's steps as the user wrote them; None if a scan has to combine maps at each element."""
    maps = stage.composition
    olds, news = ([numbers[index] for index in stage.state_indices] for numbers in (step.states, step.results))
    rounded = any(node.scalar.kind == "float" and node.scalar.bits == 16 for node in olds)
    if not maps.takes_steps or rounded or not sources.have(news, olds):
        return None
    state = bundle_of([Field("f", node.scalar) for node in olds])
    both = bundle_of([*state.fields, *sources.element.fields])
    count = len(olds)

    def function(wanted: Sequence[Node], states: Sequence[Node], result: Element) -> Map:
        """Return nodes as a function of a state and a source. The known nodes are the numbers of the state."""
        graph = Graph()
        inputs = sources.inputs(graph, count)
        inputs |= {node: graph.input(0, i, 0, node.scalar) for i, node in enumerate(states)}
        copies = iter(copy_nodes(wanted, graph, inputs))
        by_field = [[graph.cast(next(copies), f.scalar) for _ in range(f.count)] for f in result.fields]
        return map_of(graph, both, by_field, result)

    graph = Graph()
    numbers = [graph.input(0, i, 0, f.scalar) for i, f in enumerate(before.element.fields[: len(stage.numbers)])]
    values = compute_nodes(graph, lambda *given: maps.state(given), *numbers)
    opened = [[graph.cast(value, f.scalar)] for value, f in zip(values, state.fields, strict=True)]
    flat = [node for group in nodes for node in group]
    composing = _composing(stage, sources, before.element, carried) if stage.plain else ()
    return LoopSteps(
        before,
        map_of(graph, before.element, opened, state),
        function(news, olds, state),
        function(flat, news, bundle_of(list(fields))),
        *composing,
    )


def _composing(stage: LoopStage, sources: Sources, element: Element, carried: Sequence[Node]) -> tuple[Map, Map, Map]:
    """Return how maps are composed within a chunk: `LoopSteps.first`, `LoopSteps.extend` and `LoopSteps.settle`."""
    maps, count = stage.composition, len(stage.numbers)
    flags = [] if stage.constant is None else [stage.constant]
    wanted = [*stage.plain, *flags, *carried]

    def left_of(graph: Graph) -> list[Traced]:
        return [trace_node(graph, graph.input(0, i, 0, field.scalar)) for i, field in enumerate(element.fields)]

    def right_of(graph: Graph, first: int) -> tuple[list[Traced], list[Traced]]:
        """Return the plain numbers of a step, and the flag and the carried numbers of its element."""
        numbers = [trace_node(graph, node) for node in copy_nodes(wanted, graph, sources.inputs(graph, first))]
        return numbers[: len(stage.plain)], numbers[len(stage.plain) :]

    def function(graph: Graph, source: Sequence[Field], numbers: Sequence[Any]) -> Map:
        pairs = zip(numbers, element.fields, strict=True)
        return map_of(graph, bundle_of(source), [[graph.cast(n.nodes[()], f.scalar)] for n, f in pairs], element)

    graph = Graph()
    plain, rest = right_of(graph, 0)
    first = function(graph, sources.element.fields, [*maps.first(plain), *rest])
    graph = Graph()
    left = left_of(graph)
    plain, rest = right_of(graph, len(left))
    numbers = maps.extend(left[:count], plain)
    if flags:
        numbers = [np.where(rest[0], *pair) for pair in zip(maps.first(plain), numbers, strict=True)]
        rest[0] = left[count] | rest[0]
    extend = function(graph, [*element.fields, *sources.element.fields], [*numbers, *rest])
    graph = Graph()
    left = left_of(graph)
    settle = function(graph, element.fields, [*maps.settle(left[:count]), *left[count:]])
    return first, extend, settle
