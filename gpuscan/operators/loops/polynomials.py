"""Normal forms of expressions: polynomials of nodes with rational coefficients, which show when terms cancel."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from gpuscan.operators.derivatives import Calculus
from gpuscan.operators.expression_graph import Graph, Node

# A product of nodes, by their indices, each with its power.
Monomial: TypeAlias = tuple[tuple[int, int], ...]
# The coefficient of each product. Products with the coefficient 0 have no entry.
Polynomial: TypeAlias = Mapping[Monomial, Fraction]

# Polynomials with more terms are not expanded: the node is taken as it is.
_MAX_TERMS = 24
# The operations that are expanded.
_EXPANDED = frozenset({"add", "subtract", "multiply", "divide", "negative"})

# The polynomials of the nodes of each graph, for `simplify`.
_known: WeakKeyDictionary[Graph, dict[Node, Polynomial]] = WeakKeyDictionary()


def polynomial_of(node: Node) -> Polynomial:
    """Return the polynomial that a node of floats computes, of the nodes that are no sums or products."""
    return _expand(node, {})


def difference(one: Node, other: Node) -> Polynomial:
    """Return the polynomial that the difference of two nodes computes, without roundings and overflows."""
    return add(polynomial_of(one), polynomial_of(other), -1)


def _expand(node: Node, polynomials: dict[Node, Polynomial]) -> Polynomial:
    """Return the polynomial of a node. `polynomials` also gets the polynomials of its arguments."""
    waiting = [node]
    while waiting:
        last = waiting[-1]
        missing = [arg for arg in last.args if arg not in polynomials] if last.op in _EXPANDED else []
        waiting += missing
        if not missing:
            polynomials[last] = _of(last, polynomials)
            waiting.pop()
    return polynomials[node]


def _of(node: Node, polynomials: Mapping[Node, Polynomial]) -> Polynomial:
    atom: Polynomial = {((node.index, 1),): Fraction(1)}
    if node.is_constant:
        if type(node.data) is not bytes:
            return atom
        value = node.value
        if node.scalar.kind == "complex" or not np.isfinite(value):
            return atom
        return {(): Fraction(value.item())} if value else {}
    if node.op in ("add", "subtract", "multiply"):
        left, right = (polynomials[arg] for arg in node.args)
        if node.op == "multiply":
            polynomial = multiply(left, right) if len(left) * len(right) <= _MAX_TERMS else None
        else:
            polynomial = add(left, right, 1 if node.op == "add" else -1)
        return atom if polynomial is None or len(polynomial) > _MAX_TERMS else polynomial
    if node.op == "divide":
        dividend, divisor = (polynomials[arg] for arg in node.args)
        if set(divisor) == {()}:
            return multiply(dividend, {(): 1 / divisor[()]})
    if node.op == "negative":
        return add({}, polynomials[node.args[0]], -1)
    return atom


def add(left: Polynomial, right: Polynomial, sign: int = 1) -> Polynomial:
    """Return ``left + sign * right``."""
    total = dict(left)
    for monomial, value in right.items():
        total[monomial] = total.get(monomial, Fraction(0)) + sign * value
        if not total[monomial]:
            del total[monomial]
    return total


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    """Return the product."""
    total: Polynomial = {}
    for one, a in left.items():
        for other, b in right.items():
            powers = dict(one)
            for index, power in other:
                powers[index] = powers.get(index, 0) + power
            total = add(total, {tuple(sorted(powers.items())): a * b})
    return total


def cancels(graph: Graph, node: Node) -> bool:
    """Return True if the two terms of a sum cancel, and are not 0 themselves."""
    polynomials = _known.setdefault(graph, {})
    return not _expand(node, polynomials) and all(polynomials[arg] for arg in node.args)


def simplify(graph: Graph, node: Node) -> Node:
    """Return a node of the same value: 0, a number or a single product if the terms of a sum cancel to that."""
    if node.is_constant or node.op not in ("add", "subtract") or node.scalar.kind in ("bool", "complex"):
        return node
    polynomial = _expand(node, _known.setdefault(graph, {}))
    if len(polynomial) > 1:
        return node
    if not polynomial:
        return graph.constant(0, node.scalar)
    ((monomial, factor),) = polynomial.items()
    if node.scalar.kind != "float" and factor.denominator != 1:
        return node
    value = factor.numerator if node.scalar.kind != "float" else float(factor)
    if node.scalar.kind != "float" and not (-(2**31) <= value < 2**31):
        return node
    calculus = Calculus(graph)
    product = graph.constant(value, node.scalar)
    for index, power in monomial:
        for _ in range(power):
            product = calculus.times(product, graph.nodes[index])
    return product
