"""Compute the nodes of an expression graph: with NumPy on whole arrays of elements, or as nodes of another graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray as Array
from gpuscan.array_types import AnyDType
from gpuscan.elements import Element, compute_dtype
from gpuscan.operators.expression_graph import Graph, Node, numpy_function, reachable
from gpuscan.operators.traced_array import Traced


def evaluate_fields(
    fields: Sequence[Sequence[Node]], source: Element, result: Element, leaves: Sequence[Array]
) -> list[Array]:
    """Return the fields of a function's result as arrays (*axes, *shape of the field).

    Args:
        fields: the nodes of each component of each field of the result.
        source: the element of the function's only argument.
        result: the element of its result.
        leaves: the argument: for each field an array (*axes, *shape of the field) in compute form.
    """
    return compute_fields(fields, [source], result, [leaves], compute_with_numpy)


def compute_fields(
    fields: Sequence[Sequence[Node]],
    sources: Sequence[Element],
    result: Element,
    arguments: Sequence[Sequence[Array]],
    compute: Callable[..., object],
) -> list[Array]:
    """Return what `evaluate_fields` returns, of a function of several arguments.

    Args:
        fields, result: as for `evaluate_fields`.
        sources: the element of each argument.
        arguments: the leaves of each argument.
        compute: takes a node that is an operation, and its arguments, and returns its result.
    """
    axes = arguments[0][0].shape[: arguments[0][0].ndim - len(sources[0].fields[0].shape)]
    numbers = [
        [
            leaf.reshape(*axes, field.count) if field.shape else leaf[..., np.newaxis]
            for leaf, field in zip(leaves, source.fields, strict=True)
        ]
        for leaves, source in zip(arguments, sources, strict=True)
    ]
    values: dict[int, Any] = {}
    with np.errstate(all="ignore"):
        for node in reachable([node for field in fields for node in field]):
            if node.op == "input":
                argument, field, component = node.data
                values[node.index] = numbers[argument][field][..., component]
            else:
                values[node.index] = compute_node(node, [values[arg.index] for arg in node.args], compute)
    arrays = []
    for nodes, part in zip(fields, result.fields, strict=True):
        parts = [np.broadcast_to(values[node.index], axes) for node in nodes]
        arrays.append(np.stack(parts, axis=-1).reshape(*axes, *part.shape) if part.shape else np.array(parts[0]))
    return arrays


def compute_with_numpy(node: Node, *args: Any) -> Any:
    """Return the result of a node that is an operation."""
    return numpy_function(node.op)(*args)


def compute_node(node: Node, args: Sequence[Any], compute: Callable[..., Any] = compute_with_numpy) -> Any:
    """Return the value of a node that is no input from the values of its arguments. `compute` does operations."""
    if node.op == "constant":
        return node.value
    if node.op == "select":
        return np.where(*args)
    if node.op == "complex":
        return join_parts(*args)
    if node.op == "cast":
        number = np.asarray(args[0])
        if node.scalar.is_integer and node.args[0].scalar.kind == "float":
            number = _to_integers(number, node.scalar.dtype)
        return number.astype(node.scalar.dtype, copy=False).astype(compute_dtype(node.scalar), copy=False)
    if node.op == "view":
        stored = np.asarray(args[0]).astype(node.args[0].scalar.dtype)
        return stored.view(node.scalar.dtype).astype(compute_dtype(node.scalar), copy=False)
    return compute(node, *args)


def join_parts(real: Array, imag: Array) -> Array:
    """Return complex numbers of these parts, with their bits unchanged."""
    number = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), np.complex64)
    number.real, number.imag = real, imag
    return number


def _to_integers(numbers: Array, dtype: AnyDType) -> Array:
    """Return floats, rounded towards zero, as the integers that kernels make of them.

    CPUs differ in NaN and in what is out of range, and NumPy's loops differ on one CPU.
    """
    wide = np.dtype(f"{dtype.kind}{max(dtype.itemsize, 4)}")
    limit = 2.0 ** (8 * wide.itemsize - 1)
    inside = (numbers >= -limit) & (numbers < limit)
    signed = np.where(inside, numbers, -limit).astype(f"i{wide.itemsize}").astype(wide)
    if dtype != wide or dtype.kind == "i":
        return signed.astype(dtype)
    positive = np.where((numbers >= 0) & (numbers < 2 * limit), numbers, 0).astype(wide)
    return np.where(numbers < 0, signed, positive)


def trace_again(
    fields: Sequence[Sequence[Node]], source: Element, result: Element, leaves: Sequence[Traced]
) -> list[Traced]:
    """Return the fields of a function's result as nodes of the graph of `leaves`; arguments as in `evaluate_fields`."""
    del source
    graph = leaves[0].graph
    flat = [node for nodes in fields for node in nodes]
    inputs = {node: leaves[node.data[1]].nodes.flat[node.data[2]] for node in reachable(flat) if node.op == "input"}
    copies = iter(copy_nodes(flat, graph, inputs))
    traced = []
    for field in result.fields:
        nodes = np.empty(field.count, dtype=object)
        nodes[:] = [next(copies) for _ in range(field.count)]
        traced.append(Traced(graph, nodes.reshape(field.shape), field.scalar))
    return traced


def copy_nodes(nodes: Sequence[Node], graph: Graph, replacements: Mapping[Node, Node]) -> list[Node]:
    """Return the same nodes in another graph.

    Args:
        nodes: the nodes to copy, with all that they depend on.
        graph: the other graph, which grows.
        replacements: nodes of the other graph to use in place of some nodes. Every input needs one.
    """
    copies = {node.index: other for node, other in replacements.items()}
    for node in reachable(nodes, copies):
        if node.index not in copies:
            copies[node.index] = _again(graph, node, [copies[arg.index] for arg in node.args])
    return [copies[node.index] for node in nodes]


def _again(graph: Graph, node: Node, args: list[Node]) -> Node:
    if node.op == "constant":
        return graph.constant_again(node)
    if node.op == "select":
        return graph.select(*args)
    if node.op == "cast":
        return graph.cast(args[0], node.scalar)
    if node.op == "view":
        return graph.view(args[0], node.scalar)
    if node.op == "complex":
        return graph.complex(*args)
    return graph.apply(node.op, args, node.scalar)
