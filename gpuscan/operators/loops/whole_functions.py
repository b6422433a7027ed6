"""Recognise functions of one integer by their values, however a step spells them.

A step of integers may write the same function in many ways. A counter that stops at 0 is ``np.maximum(h - 1, 0)`` or
``np.where(h > 0, h - 1, h)``. The next tab stop is ``(h // 8 + 1) * 8``, ``h + 8 - h % 8`` or ``(h | 7) + 1``. So the
function is computed for all integers of a window, and compared with the functions that classes know:

========== ===============================================
clamp      ``min(max(t + a, low), high)``
below      b for t up to m, and ``t + a`` for other t
above      b for t from m on, and ``t + a`` for other t
wrap       ``(t + a) mod m``, in the range from b to b + m
carry      ``t`` up to m, and ``t - m`` above it
align      ``m floor((t + a) / m) + b``
rest       ``(t + a) mod m + b``
quotient   ``floor((t + a) / m) + b``
========== ===============================================

Here t is the state, or a sum of the state and a number of the input. The window shows the function for all integers:

- If t has two known bounds, the window has all integers between them. The bounds of the state are found by induction:
  they hold for `init`, and the step does not leave them.
- Sums with constants, extrema, and choices by comparisons are straight lines between the constants. The window reaches
  beyond all of these.
- Quotients and remainders by constants, masks and shifts repeat with a period, up to a constant that is added in each
  period. The window has two periods.

Sums are taken not to overflow, as the contract of integers says. A condition on the input, such as in
``np.where(flag & (h > 0), h - 1, h)``, is tried in both ways first, so that each function is one of integers alone.

Of floats, only these conditions and terms that cancel are written in another way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import compute_dtype
from gpuscan.operators.evaluation import compute_node, copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, is_nan, reachable
from gpuscan.operators.loops.affine import Inner
from gpuscan.operators.loops.canonical import pass_over_nan
from gpuscan.operators.loops.intervals import Interval, Intervals, combine, union
from gpuscan.operators.loops.stage import SIGNS, Shape, StepPart
from gpuscan.operators.loops.step import nodes_on
from gpuscan.operators.parameter_array import arrays_hold

# The most conditions on the input that are tried in both ways.
_MAX_CONDITIONS = 4
# The most integers in a window.
_MAX_WINDOW = 2**20
# Stands for a bound that a clamp does not have.
_FAR = 2**62
# Operations that are straight lines between constants.
_STRAIGHT = frozenset(
    {"add", "subtract", "negative", "select", "minimum", "maximum", "cast", *SIGNS}
    | {"logical_and", "logical_or", "logical_not"}
)


def find_shapes(part: StepPart) -> Inner | None:
    """Return the part with functions of one integer recognised; None if it has none."""
    if len(part.state_indices) > 1:
        return None
    tree = _decide(part, part.results[0], _MAX_CONDITIONS)
    if not part.states[0].scalar.is_integer:
        result = _join(part.graph, tree, {leaf: _cancel(part.graph, leaf) for leaf in _leaves(tree)})
        result = _replace_fmax(part, result)
        return None if result is part.results[0] else _with(part, result, {}, (None, None))
    functions = _Functions(part, _leaves(tree))
    shapes = functions.shapes()
    replacements = {leaf: functions.rewrite(leaf, shapes) for leaf in _leaves(tree)}
    result = _join(part.graph, tree, replacements)
    # The rewritten leaves share the nodes that have a shape.
    shapes = {node: shape for node, shape in shapes.items() if shape.kind not in _WRITTEN}
    if result is part.results[0] and not shapes and functions.bounds == (None, None):
        return None
    return _with(part, result, shapes, functions.bounds)


def _with(part: StepPart, result: Node, shapes: Mapping[Node, Shape], bounds: Interval) -> Inner:
    return Inner(part.step, part.state_indices, part.initial, shapes, bounds, result=result)


# ----- Conditions on the input

# A node, or a condition on the input with the trees where it is met and where it is not.
_Tree: TypeAlias = "Node | tuple[Node, _Tree, _Tree]"


def _decide(part: StepPart, node: Node, depth: int) -> _Tree:
    """Return a node as a tree of decisions on the conditions on the input that it depends on."""
    condition = _condition(part, node) if depth else None
    if condition is None:
        return node
    yes, no = (_decide(part, assume(part.graph, node, condition, value), depth - 1) for value in (True, False))
    return condition, yes, no


def _condition(part: StepPart, node: Node) -> Node | None:
    """Return a condition on the input that a node depends on; None if there is none."""
    nodes = reachable([node])
    varying = nodes_on([node], {part.states[0].index})
    args = [arg for inner in nodes if inner.index in varying for arg in inner.args]
    free = [arg for arg in args if arg.index not in varying and not arg.is_constant]
    # Conditions of numbers, such as the one in ``h + np.where(flag, 1, -1)``, come after the others.
    chosen = [arg.args[0] for arg in free if arg.op in ("select", "cast")]
    return next((arg for arg in (*free, *chosen) if arg.scalar == BOOL), None)


def assume(graph: Graph, node: Node, condition: Node, value: bool) -> Node:
    """Return a node where a condition is met or not."""
    known: dict[Node, Node] = {condition: graph.constant(value, BOOL)}
    for inner in reachable([node]):
        if inner in known or not any(arg in known for arg in inner.args):
            continue
        args = [known.get(arg, arg) for arg in inner.args]
        known[inner] = _simplify(graph, inner, args)
    return known.get(node, node)


def _simplify(graph: Graph, node: Node, args: Sequence[Node]) -> Node:
    """Return a node with other arguments, without operations that constants make trivial."""
    if node.op in ("logical_and", "logical_or", "add", "multiply", "subtract"):
        for constant, other in (args, args[::-1]) if node.op != "subtract" else (args[::-1],):
            if node.op in ("logical_and", "logical_or") and constant.is_constant:
                return other if constant.equals(node.op == "logical_and") else constant
            if node.scalar.is_integer and constant.is_constant:
                if node.op == "multiply" and constant.equals(0):
                    return constant
                if constant.equals(node.op == "multiply"):
                    return other
    (copy,) = copy_nodes([node], graph, dict(zip(node.args, args, strict=True)))
    return copy


def _leaves(tree: _Tree) -> list[Node]:
    if isinstance(tree, Node):
        return [tree]
    return list(dict.fromkeys(leaf for side in tree[1:] for leaf in _leaves(side)))


def _join(graph: Graph, tree: _Tree, replacements: Mapping[Node, Node]) -> Node:
    if isinstance(tree, Node):
        return replacements.get(tree, tree)
    return graph.select(tree[0], *(_join(graph, side, replacements) for side in tree[1:]))


def _cancel(graph: Graph, result: Node) -> Node:
    """Return a result with ``np.maximum(u - c, 0)`` for ``u - np.minimum(u, c)``, and the like."""
    new: dict[Node, Node] = {}
    for node in reachable([result]):
        args = [new.get(arg, arg) for arg in node.args]
        if node.op == "subtract" and args[1].op in ("minimum", "maximum"):
            number, extremum = args
            zero = graph.constant(0, node.scalar)
            opposite = "minimum" if extremum.op == "maximum" else "maximum"
            for one, other in (extremum.args, extremum.args[::-1]):
                if one is number:
                    rest = graph.apply("subtract", (number, other), node.scalar)
                    new[node] = graph.apply(opposite, (rest, zero), node.scalar)
                elif one is zero and other.op == "subtract" and other.args[0] is number:
                    new[node] = graph.apply(opposite, (number, other.args[1]), node.scalar)
        if node not in new and args != list(node.args):
            (new[node],) = copy_nodes([node], graph, dict(zip(node.args, args, strict=True)))
    return new.get(result, result)


def _replace_fmax(part: StepPart, result: Node) -> Node:
    """Return a result with ``np.maximum(u, v)`` for ``np.fmax(u, v)``, where u is never NaN, and the same with fmin."""
    graph, varying = part.graph, nodes_on([result], {part.states[0].index})
    numbers = _find_numbers(part, result)
    new: dict[Node, Node] = {}
    for node in reachable([result]):
        args = [new.get(arg, arg) for arg in node.args]
        for at, other in ((0, 1), (1, 0)) if node.op in ("fmax", "fmin") else ():
            is_limit = node.args[other].index not in varying
            if node not in new and node.args[at] in numbers and (is_limit or node.args[other] in numbers):
                name = "maximum" if node.op == "fmax" else "minimum"
                limit = pass_over_nan(graph, args[other], name) if is_limit else args[other]
                new[node] = graph.apply(name, (args[at], limit), node.scalar)
        if node not in new and args != list(node.args):
            (new[node],) = copy_nodes([node], graph, dict(zip(node.args, args, strict=True)))
    return new.get(result, result)


def _find_numbers(part: StepPart, result: Node) -> set[Node]:
    """Return the nodes that are never NaN if `init` is not, by induction; none if the result may be."""
    (initial,) = part.initial or (None,)
    if initial is None or not arrays_hold(_has_no_nan, initial):
        return set()
    numbers = {part.states[0]}
    for node in reachable([result]):
        if _is_number(node, numbers):
            numbers.add(node)
    return numbers if result in numbers else set()


def _has_no_nan(values: AnyArray) -> np.bool_:
    return ~np.any(np.isnan(values))


def _is_number(node: Node, numbers: Set[Node]) -> bool:
    """Return True if a node is not NaN, where some nodes are not."""
    op, args, known = node.op, node.args, [arg in numbers for arg in node.args]
    if node.scalar.kind != "float":
        return True
    if node.is_constant:
        return not node.reveal(is_nan)
    if op in ("fmax", "fmin"):
        return any(known)
    if op == "select":
        condition, _, no = args
        return known[1] and (known[2] or (condition.op == "isnan" and condition.args[0] is no))
    if op in ("maximum", "minimum", "negative", "absolute", "sign", "cast"):
        return all(known)
    if op in ("add", "subtract", "multiply", "divide"):
        # Infinities cancel, and an infinity times 0 is NaN.
        is_harmless = _is_finite if op in ("add", "subtract") else _is_finite_factor
        constants = [arg for arg in (args[1:] if op == "divide" else args) if arg.is_constant]
        return all(known) and any(constant.reveal(is_harmless) for constant in constants)
    return False


def _is_finite(value: Any) -> bool:
    return bool(np.isfinite(value))


def _is_finite_factor(value: Any) -> bool:
    return bool(np.isfinite(value) and value != 0)


# ----- Functions of one integer


@dataclass(frozen=True, eq=False)
class _Curve:
    """The values of a function at the integers from `start` on.

    Attributes:
        start, values: the first integer, and the values.
        is_open: True for each end if the function goes on in a straight line there.
    """

    start: int
    values: AnyArray
    is_open: tuple[bool, bool] = (False, False)

    @property
    def slopes(self) -> AnyArray:
        return np.diff(self.values)

    @property
    def numbers(self) -> AnyArray:
        return np.arange(self.start, self.start + len(self.values))

    @property
    def image(self) -> Interval:
        """The least and the greatest value; None if there is none."""
        slopes = self.slopes
        falls = (self.is_open[0] and slopes[0] > 0) or (self.is_open[1] and slopes[-1] < 0)
        rises = (self.is_open[0] and slopes[0] < 0) or (self.is_open[1] and slopes[-1] > 0)
        return None if falls else int(self.values.min()), None if rises else int(self.values.max())


class _Functions:
    """The functions of one integer in the results of a part.

    Args:
        part: the part, of one integer.
        results: the results for each combination of conditions on the input.

    Attributes:
        bounds: the least and the greatest state.
    """

    def __init__(self, part: StepPart, results: Sequence[Node]) -> None:
        self.part, self.results = part, results
        self._order = reachable(results)
        varying = nodes_on(results, {part.states[0].index})
        self._varying = [node for node in self._order if node.index in varying]
        self._free = Intervals()
        # For each node that depends on the state, its t.
        self._totals: dict[Node, Node] = {}
        for node in self._varying:
            totals = {self._totals[arg] for arg in node.args if arg in self._totals}
            # A function of a comparison of the state and the input is none of one integer.
            constant = all(arg in self._totals or arg.is_constant for arg in node.args)
            is_one = len(totals) == 1 and constant and all(total.scalar.is_integer for total in totals)
            self._totals[node] = totals.pop() if is_one else node
        used = {arg for node in self._varying for arg in node.args if self._totals.get(arg) is not self._totals[node]}
        self.outermost = [
            node
            for node in self._varying
            if (node in used or node in results) and self._totals[node] is not node and node.scalar.is_integer
        ]
        self.bounds = self._find_bounds()

    def shapes(self) -> dict[Node, Shape]:
        """Return the shapes of the outermost functions."""
        ranges = self._ranges(self.bounds)
        shapes = {}
        for node in self.outermost:
            total = self._totals[node]
            shape = self._shape(node, total, ranges[total])
            if shape is not None:
                shapes[node] = shape
        return shapes

    # ----- Ranges

    def _find_bounds(self) -> Interval:
        """Return bounds of the state that hold for `init`, and that the step does not leave."""
        (initial,) = self.part.initial or (None,)
        if initial is None or not np.size(initial):
            return None, None
        bounds: Interval = int(np.min(initial)), int(np.max(initial))
        constants = {int(node.value) for node in self._order if node.is_constant and node.scalar.is_integer}
        steps = sorted({value + d for value in (0, *constants) for d in (-1, 0, 1)})
        while True:
            ranges = self._ranges(bounds)
            images = [
                ranges[node] if node in ranges else _without_limits(self._free[node], node) for node in self.results
            ]
            wider = union([bounds, *images])
            if wider == bounds:
                return bounds
            # A bound moves to the next constant, so that the search ends.
            low, high = wider
            if low != bounds[0] and low is not None:
                low = next((value for value in reversed(steps) if value <= low), None)
            if high != bounds[1] and high is not None:
                high = next((value for value in steps if value >= high), None)
            bounds = low, high

    def _ranges(self, bounds: Interval) -> dict[Node, Interval]:
        """Return the least and the greatest value of each node that depends on the state, as far as it is needed."""
        ranges: dict[Node, Interval] = {self.part.states[0]: bounds}
        for node in self._varying:
            total = self._totals[node]
            if node in ranges or not node.scalar.is_integer:
                continue
            if total is not node:
                if node in self.outermost:
                    curve = self._curve(node, total, ranges[total])
                    ranges[node] = (None, None) if curve is None else curve.image
                continue
            args = [ranges.get(arg) or _without_limits(self._free[arg], arg) for arg in node.args]
            is_cast = node.op == "cast" and node.args[0].scalar.is_integer
            ranges[node] = _in_type(args[0], node) if is_cast else combine(node.op, args)
        return ranges

    # ----- Windows

    def _between(self, node: Node, total: Node) -> list[Node]:
        """Return the nodes that compute a function of t."""
        return reachable([node, total], [total.index])

    def _values(self, node: Node, total: Node, numbers: AnyArray) -> AnyArray:
        """Return a function of t for some integers, as the step computes it."""
        values: dict[Node, Any] = {total: numbers.astype(compute_dtype(total.scalar))}
        with np.errstate(all="ignore"):
            for inner in self._between(node, total):
                if inner is not total:
                    values[inner] = compute_node(inner, [values[arg] for arg in inner.args])
        return np.broadcast_to(values[node], numbers.shape).astype(np.int64)

    def _curve(self, node: Node, total: Node, domain: Interval) -> _Curve | None:
        """Return the values of a function for all t in a range; None if they are too many."""
        nodes = self._between(node, total)
        if total.scalar.name == "uint64" or any(inner.op == "view" for inner in nodes):
            return None
        low, high = _in_type(domain, total)
        if low is not None and high is not None and high - low < _MAX_WINDOW:
            return _Curve(low, self._values(node, total, np.arange(low, high + 1)))
        constants = [int(inner.value) for inner in nodes if inner.is_constant and inner.scalar != BOOL]
        reach = 2 * sum(map(abs, constants)) + 4
        if any(inner.op not in _STRAIGHT for inner in nodes if inner is not total and not inner.is_constant):
            return None
        if any(inner.op == "cast" and inner.scalar.bits < 32 for inner in nodes) or 2 * reach >= _MAX_WINDOW:
            return None
        # Of a range beyond all constants, the window has a few integers at its end.
        start = -reach if low is None else max(low, -reach)
        end = max(reach, start + 4) if high is None else min(high, max(reach, start + 4))
        start = min(start, end - 4)
        is_open = low is None or low < start, high is None or high > end
        return _Curve(start, self._values(node, total, np.arange(start, end + 1)), is_open)

    def _shape(self, node: Node, total: Node, domain: Interval) -> Shape | None:
        curve = self._curve(node, total, domain)
        shape = curve and (_clamp(curve) or _wrap(curve) or _end(curve))
        if not shape:
            period = self._period(node, total)
            if period is None:
                return None
            start = 0 if total.scalar.kind == "unsigned" else -period
            curve = _Curve(start, self._values(node, total, np.arange(start, start + 2 * period + 1)))
            shape = _rounding(curve, period)
        return Shape(shape[0], total, *shape[1:]) if shape else None

    def _period(self, node: Node, total: Node) -> int | None:
        """Return a number of integers after which a function repeats, up to a constant; None if none is known."""
        period = 1
        nodes = [inner for inner in self._between(node, total) if inner is not total and not inner.is_constant]
        for inner in nodes:
            own = _own_period(inner)
            if own is None or total.scalar.bits < 32:
                return None
            period *= own
        return period if period <= _MAX_WINDOW // 4 else None

    # ----- Results

    def rewrite(self, result: Node, shapes: Mapping[Node, Shape]) -> Node:
        """Return a result with clamps written as extrema."""
        graph = self.part.graph
        new: dict[Node, Node] = {}
        for node in reachable([result]):
            shape = shapes.get(node)
            if shape is not None and shape.kind in _WRITTEN:
                new[node] = self._write(node, shape, new.get(shape.total, shape.total))
            elif node not in shapes and any(arg in new for arg in node.args):
                (new[node],) = copy_nodes([node], graph, {arg: new.get(arg, arg) for arg in node.args})
        return new.get(result, result)

    def _write(self, node: Node, shape: Shape, total: Node) -> Node:
        """Return a function of t as operations that classes know."""
        graph, number, scalar = self.part.graph, total, node.scalar
        if shape.offset:
            amount = graph.constant(abs(shape.offset), number.scalar)
            number = graph.apply("add" if shape.offset > 0 else "subtract", (number, amount), number.scalar)
        number = graph.cast(number, scalar)
        low, high = shape.base, shape.modulus
        if shape.kind != "clamp":
            limit = graph.constant(high, total.scalar)
            ends = graph.apply("less_equal" if shape.kind == "below" else "greater_equal", (total, limit), BOOL)
            return graph.select(ends, graph.constant(low, scalar), number)
        if low == high:
            return graph.constant(low, scalar)
        if low > -_FAR:
            number = graph.apply("maximum", (number, graph.constant(low, scalar)), scalar)
        return number if high >= _FAR else graph.apply("minimum", (number, graph.constant(high, scalar)), scalar)


def _own_period(node: Node) -> int | None:
    """Return after how many integers an operation repeats, up to a constant; None if it does not."""
    constant = next((arg for arg in reversed(node.args) if arg.is_constant), None)
    if node.op in ("add", "subtract", "negative", "invert") or (node.op == "cast" and node.scalar.bits >= 32):
        return 1
    if constant is None or not constant.scalar.is_integer:
        return None
    value = int(constant.value)
    if node.op == "multiply" or (node.op == "left_shift" and node.args[1] is constant):
        return 1
    if node.op in ("floor_divide", "remainder") and node.args[1] is constant and value > 0:
        return value
    if node.op == "right_shift" and node.args[1] is constant and 0 <= value < 20:
        return int(2**value)
    if node.op in ("bitwise_and", "bitwise_or"):
        # A mask of the lowest bits, or of all others.
        places = 2**node.scalar.bits
        ones = min(value + 1, places - value) if value >= 0 else -value
        is_mask = ones & (ones - 1) == 0 and (node.op == "bitwise_and" or 0 <= value < places // 2)
        return ones if is_mask else None
    return None


# Shapes that are written as operations that classes know.
_WRITTEN = ("clamp", "below", "above")


# ----- What curves are


def _clamp(curve: _Curve) -> tuple[str, int, int, int] | None:
    """Return the offset, the upper bound and the lower bound of a clamp."""
    slopes, values = curve.slopes, curve.values
    rising = np.flatnonzero(slopes)
    if not len(rising):
        return "clamp", 0, int(values[0]), int(values[0])
    first, last = int(rising[0]), int(rising[-1])
    if np.any(slopes[first : last + 1] != 1):
        return None
    low = int(values[0]) if first else -_FAR
    high = int(values[-1]) if last < len(slopes) - 1 else _FAR
    return "clamp", int(values[first]) - curve.start - first, high, low


def _wrap(curve: _Curve) -> tuple[str, int, int, int] | None:
    """Return the offset, the modulus and the base of a sum that wraps."""
    slopes, values, numbers = curve.slopes, curve.values, curve.numbers
    falling = np.flatnonzero(slopes < 0)
    if any(curve.is_open) or not len(falling):
        return None
    at = int(falling[0])
    modulus, base = 1 - int(slopes[at]), int(values[at + 1])
    offset = int(values[at + 1] - numbers[at + 1])
    if np.array_equal(values, base + (numbers + offset - base) % modulus):
        return "wrap", offset % modulus, modulus, base
    if base == 1 and np.array_equal(values, np.where(numbers > modulus, numbers - modulus, numbers)):
        return ("carry", 0, modulus, 0) if numbers[0] >= 0 and numbers[-1] <= 2 * modulus else None
    return None


def _rounding(curve: _Curve, period: int) -> tuple[str, int, int, int] | None:
    """Return the offset, the modulus and the base of a function that repeats."""
    slopes, values, numbers = curve.slopes, curve.values, curve.numbers
    growth = int(values[period] - values[0])
    steps = np.flatnonzero(slopes < 0) if growth == 0 else np.flatnonzero(slopes > 0)
    if growth < 0 or not len(steps):
        return None
    at = int(steps[0])
    if growth == 0:
        kind, modulus = "rest", 1 - int(slopes[at])
    elif growth == period:
        kind, modulus = "align", int(slopes[at])
    else:
        kind, modulus = "quotient", period // growth
    if modulus < 2:
        return None
    offset = -int(numbers[at + 1]) % modulus
    floor = (numbers + offset) // modulus
    known = {"rest": (numbers + offset) % modulus, "align": modulus * floor, "quotient": floor}[kind]
    rest = values - known
    return (kind, offset, modulus, int(rest[0])) if np.all(rest == rest[0]) else None


def _end(curve: _Curve) -> tuple[str, int, int, int] | None:
    """Return the offset, the threshold and the value of a function that is constant beyond a threshold."""
    slopes, values, numbers = curve.slopes, curve.values, curve.numbers
    for kind, jumps in (("below", np.flatnonzero(slopes)[:1]), ("above", np.flatnonzero(slopes)[-1:])):
        at = int(jumps[0])
        fixed, others = (slice(None, at + 1), slice(at + 1, None))[:: 1 if kind == "below" else -1]
        offsets = values[others] - numbers[others]
        goes_on = len(offsets) > 1 or not curve.is_open[kind == "below"]
        if np.all(values[fixed] == values[fixed][0]) and np.all(offsets == offsets[0]) and goes_on:
            limit = numbers[at if kind == "below" else at + 1]
            return kind, int(offsets[0]), int(limit), int(values[fixed][0])
    return None


# ----- Intervals


def _without_limits(interval: Interval, node: Node) -> Interval:
    """Return an interval without a bound where the limit of a wide type is the only one."""
    if not node.scalar.is_integer or node.is_constant:
        return interval
    limits = np.iinfo(node.scalar.dtype)
    low, high = interval
    if node.scalar.bits < 32:
        return low, high
    return (
        None if low == limits.min and node.scalar.kind == "signed" else low,
        None if high == limits.max else high,
    )


def _in_type(interval: Interval, node: Node) -> Interval:
    """Return an interval for a number that wraps around in its type, if that is narrow or has no negative numbers."""
    limits = np.iinfo(node.scalar.dtype)
    (low, high), is_narrow = interval, node.scalar.bits < 32
    wraps = is_narrow and (low is None or high is None or low < limits.min or high > limits.max)
    if wraps or (node.scalar.kind == "unsigned" and (low is None or low < 0)):
        return int(limits.min), int(limits.max) if is_narrow else None
    return interval
