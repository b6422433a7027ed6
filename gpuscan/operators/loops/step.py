"""Trace the step of a loop, ``carry, y = f(carry, x)``, as one expression graph.

A step may look up numbers in NumPy arrays that it closes over, such as the transition table of an automaton. NumPy
needs a Python integer as the index, and a traced value has none. So the function is traced again with each array
replaced by a `Table`, which returns a choice between its entries. If a table is linear in the bits of its index, as the
table of a CRC is, the entry is computed from these bits instead.

A step may have Python conditions on traced values: ``if``, ``and``, ``or``, ``not``, ``min`` and ``max``. Python asks
the value for its truth, and then follows one path through the function. So the function is called once for each path,
and the results of the paths are joined by ``np.where``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.elements import Element, Field, Scalar, Structure, element_of, field_names, scalar_of
from gpuscan.errors import OperatorError, abbreviate
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, reachable
from gpuscan.operators.loops.intervals import Intervals
from gpuscan.operators.operator import Function, name_of
from gpuscan.operators.parameters import Switch, reveal
from gpuscan.operators.source_location import operator_error, quote_definition, running_line
from gpuscan.operators.trace import TableIndexError, call_twice, structure_of
from gpuscan.operators.traced_array import COMPARISONS, Traced, constant, find_scalar, is_weak, join_numbers

# The most entries of a table that a traced value may index. Each becomes a choice in the traced expression.
_MAX_ENTRIES = 1024
# The most paths that are followed through a function. Eight independent conditions have 2**8 = 256 paths.
_MAX_WAYS = 256
# The most conditions on one path. It stops a `while` loop on a traced value, which could ask for ever.
_MAX_CONDITIONS = 64

# Floats of these bits hold all integers up to here; of 16 bits, bfloat16 does.
_LARGEST_EXACT = {16: 2**8, 32: 2**24, 64: 2**53}

_EQUALITIES = ("equal", "not_equal")

# A condition, its answer, and the line of the user's code that asked for it.
_Answer = tuple[Node, bool, str]


@dataclass(frozen=True, eq=False)
class Step:
    """The step of a loop as a graph. Its inputs are the numbers of the carry (argument 0) and of x (argument 1).

    Attributes:
        graph: the graph, which derivations add nodes to.
        function: the user's function.
        name: the function as messages name it.
        carry: the element of the carry.
        source: the element of x.
        states: the input node of each number of the carry.
        inputs: the input node of each number of x.
        results: the number of the next carry that takes the place of each of `states`.
        output: the element of y; None if f returns no y.
        outputs: the nodes of y, number by number.
        returns_carry: True if f returns the carry alone.
        added: the numbers that a derivation has added to the carry. Each is the index of the number with the same first
            value, or None for a flag that is not set at first.
    """

    graph: Graph
    function: Callable[..., Any]
    name: str
    carry: Element
    source: Element
    states: tuple[Node, ...]
    inputs: tuple[Node, ...]
    results: tuple[Node, ...]
    output: Element | None
    outputs: tuple[Node, ...]
    returns_carry: bool
    added: tuple[int | None, ...] = ()

    @property
    def labels(self) -> list[str]:
        """The name of each number of the carry for messages."""
        if self.carry.single and not self.carry.fields[0].shape:
            return self._with_added(["carry"])
        names = []
        for path, field in zip(self.carry.structure.paths(), self.carry.fields, strict=True):
            name = "carry" + "".join(f"[{key!r}]" for key in path)
            names += [name + "".join(f"[{i}]" for i in at) for at in np.ndindex(field.shape)]
        return self._with_added(names)

    def _with_added(self, names: list[str]) -> list[str]:
        for source in self.added:
            names.append("whether it stopped" if source is None else f"{names[source]} without a stop")
        return names

    def key(self) -> tuple[Hashable, ...]:
        """Return a key that is equal for steps that compute the same."""
        indices = tuple(node.index for node in (*self.states, *self.results, *self.outputs))
        return *self.graph.describe_nodes(), indices, self.carry, self.source, self.output, self.returns_carry


def trace_step(
    function: Callable[..., object],
    structure: Structure,
    scalars: Sequence[Scalar],
    shapes: Sequence[tuple[int, ...]],
    source: Element,
) -> Step:
    """Trace the step of a loop.

    Args:
        function: takes the carry and x.
        structure: how the carry nests.
        scalars: the kind of number of each of its leaves.
        source: the element of x.

    Raises:
        OperatorError: the function cannot be traced.
        TypeError: a leaf of the carry that it returns does not fit the dtype of the carry.
    """
    name = name_of(function)
    name = "the step" if name == "the operator" else name
    carry = element_of([scalar.dtype for scalar in scalars], structure, shapes)

    try:
        graph, value = call_twice(_follow_branches(function), [carry, source], name, whole=True)
    except TableIndexError:
        known = function
        if type(function) is Switch:
            # What a table says decides how the step is traced.
            function.parameters.reveal_all()
            known = function.__wrapped__
        tables = _with_tables(known)
        if tables is None:
            raise
        graph, value = call_twice(_follow_branches(tables), [carry, source], name, whole=True)
    graph.notes_lines = False
    states, inputs = (_inputs_of(graph, argument, element) for argument, element in enumerate((carry, source)))
    returned, rest, alone = _split(structure, value, name, function)
    results: list[Node] = []
    for position, (leaf, field) in enumerate(zip(structure.flatten(returned), carry.fields, strict=True)):
        results += _carry_nodes(graph, leaf, field, position, name, function)
    output, outputs = None, []
    if alone:
        output, outputs = carry, list(results)
    elif rest is not None:
        output, outputs = _output(graph, rest, name, function)
    return Step(graph, function, name, carry, source, states, inputs, tuple(results), output, tuple(outputs), alone)


def keeps_weak(
    function: Callable[..., object],
    structure: Structure,
    scalars: Sequence[Scalar],
    shapes: Sequence[tuple[int, ...]],
    source: Element,
    weak: Sequence[bool],
) -> list[bool]:
    """Return for each leaf of the carry whether the step keeps it weakly typed, if it begins as a Python number.

    It does so if the leaf is computed from Python numbers alone, so that no dtype of x decides its dtype.

    Args:
        function, structure, scalars, shapes, source: as in `trace_step`.
        weak: which leaves are Python numbers.
    """
    carry = element_of([scalar.dtype for scalar in scalars], structure, shapes)

    @functools.wraps(function, updated=())
    def starting(state: object, x: object) -> object:
        leaves = zip(structure.flatten(state), weak, strict=True)
        numbers = [Traced(leaf.graph, leaf.nodes, leaf.scalar, weak=is_weak or leaf.weak) for leaf, is_weak in leaves]
        return _follow_branches(function)(structure.build_bundle(numbers), x)

    name = name_of(function)
    try:
        _, value = call_twice(starting, [carry, source], name, whole=True)
        leaves = structure.flatten(_split(structure, value, name, function)[0])
    except (OperatorError, TypeError):
        return [False] * len(weak)
    return [leaf.weak if isinstance(leaf, Traced) else is_weak(leaf) for leaf in leaves]


def _inputs_of(graph: Graph, argument: int, element: Element) -> tuple[Node, ...]:
    return tuple(
        graph.input(argument, index, component, field.scalar)
        for index, field in enumerate(element.fields)
        for component in range(field.count)
    )


def _same(structure: Structure, other: Structure) -> bool:
    """Return True if two structures are the same. Lists count as tuples, and the order of a dict's keys is ignored."""
    containers = {"list": "tuple", "structured": "dict"}
    one, two = (containers.get(either.container, either.container) for either in (structure, other))
    if one != two or len(structure.children) != len(other.children) or structure.factory is not other.factory:
        return False
    if one == "dict":
        if set(structure.keys) != set(other.keys):
            return False
        order = [other.keys.index(key) for key in structure.keys]
        return all(_same(child, other.children[i]) for child, i in zip(structure.children, order, strict=True))
    return all(_same(*pair) for pair in zip(structure.children, other.children, strict=True))


def _structure(value: object) -> Structure:
    return structure_of(value)[0]


def _split(
    structure: Structure, value: object, name: str, function: Callable[..., object]
) -> tuple[object, object, bool]:
    """Return the carry, y or None, and True if the function returned the carry alone."""
    if value is None:
        raise TypeError(
            f"{name} returns None; return the carry, or a pair of the carry and y{quote_definition(function)}"
        )
    if _same(structure, _structure(value)):
        return value, None, True
    if isinstance(value, (tuple, list)) and len(value) == 2 and _same(structure, _structure(value[0])):
        return value[0], value[1], False
    raise TypeError(
        f"{name} returns {_describe_structure(_structure(value))}, but the carry is {_describe_structure(structure)}. "
        f"Return a carry with the structure of init, or a pair of such a carry and y{quote_definition(function)}"
    )


def _describe_structure(structure: Structure) -> str:
    if structure.container == "leaf":
        return "one value"
    if structure.container in ("dict", "structured"):
        return "a dict of " + ", ".join(map(str, structure.keys))
    what = structure.factory.__name__ if structure.factory is not None else structure.container
    children = ", ".join(map(_describe_structure, structure.children))
    return f"a {what} of {len(structure.children)} ({children})"


def _carry_nodes(
    graph: Graph, leaf: object, field: Field, position: int, name: str, function: Callable[..., object]
) -> list[Node]:
    """Return the numbers of a leaf of the carry that the step returned, in the dtype of the carry."""
    shown = f"carry number {position} that {name} returns"
    leaf = join_numbers(leaf)
    if not isinstance(leaf, Traced):
        scalar = field.scalar
        given = reveal(leaf)
        if not is_weak(leaf):
            scalar = find_scalar(np.asarray(given).dtype)
            if scalar.name == "float64" and field.scalar.kind == "float" and not isinstance(given, np.generic):
                scalar = field.scalar
        elif isinstance(given, (float, complex)) and field.scalar.kind not in ("float", "complex"):
            scalar = scalar_of(np.dtype(np.float32))
        leaf = constant(graph, leaf, scalar)
    if leaf.weak and _is_wider(leaf.scalar, field.scalar):
        leaf = leaf.astype(field.scalar.dtype)
    if not _fits(leaf.scalar, field.scalar):
        message = (
            f"{shown} is {leaf.scalar.name}, but init is {field.scalar.name}. Pass an init of {leaf.scalar.name}, or "
            f"write .astype(np.{field.scalar.name}) on it{quote_definition(function)}"
        )
        raise TypeError(message)
    # Only constants are broadcast to the shape of the carry. A computed number of another shape is an error: for
    # example, the function may have taken a row of x for a matrix.
    if all(node.is_constant for node in leaf.nodes.ravel()) and len(leaf.shape) <= len(field.shape):
        with suppress(ValueError):  # another shape is refused below
            leaf = Traced(graph, np.broadcast_to(leaf.nodes, field.shape), leaf.scalar)
    if leaf.shape != field.shape:
        raise OperatorError(
            f"{shown} has the shape {tuple(leaf.shape)}, but the carry has {field.shape}; return that shape"
            + quote_definition(function)
        )
    nodes = list(leaf.nodes.ravel())
    if leaf.scalar != field.scalar and leaf.scalar.kind != "float":
        nodes = [graph.cast(node, field.scalar) for node in nodes]
    return nodes


def _is_wider(weak: Scalar, field: Scalar) -> bool:
    """Return True if a Python number of the kind of `weak` can be converted to the type of the field."""
    kinds = ("signed", "float", "complex")
    own = "signed" if field.kind == "unsigned" else field.kind
    return own in kinds and kinds.index(weak.kind) <= kinds.index(own)


def _fits(scalar: Scalar, field: Scalar) -> bool:
    """Return True if a number of one type may be the next value of a carry of another."""
    if scalar == field:
        return True
    if field.kind == "float" and field.bits == 16 and scalar.name == "float32":
        return True  # 16-bit floats are combined in float32
    return bool(np.can_cast(scalar.dtype, field.dtype, "safe")) and scalar.kind != "bool"


def _output(graph: Graph, value: object, name: str, function: Callable[..., object]) -> tuple[Element, list[Node]]:
    """Return the element of y, and its nodes."""
    structure, leaves = structure_of(value)
    traced: list[Traced] = []
    for leaf in map(join_numbers, leaves):
        given = reveal(leaf)
        if isinstance(leaf, Traced):
            traced.append(leaf)
        elif is_weak(leaf):
            number_type = {int: np.int32, float: np.float32, complex: np.complex64}[type(given)]
            traced.append(constant(graph, leaf, scalar_of(np.dtype(number_type))))
        elif isinstance(given, (bool, np.generic, np.ndarray)):
            traced.append(constant(graph, given, find_scalar(np.asarray(given).dtype)))
        else:
            raise OperatorError(
                f"{name} returns {given!r} as y, which is no number; return numbers, or None for no y"
                + quote_definition(function)
            )
    names = field_names(structure)
    fields = tuple(Field(label, leaf.scalar, tuple(leaf.shape)) for label, leaf in zip(names, traced, strict=True))
    return Element(fields, structure), [node for leaf in traced for node in leaf.nodes.ravel()]


# ----- Conditions of Python


def _follow_branches(function: Function) -> Function:
    """Return a function that computes the same of traced values, and may also use them as Python conditions.

    It calls the given function once for each path, and joins the results by choices.
    """

    @functools.wraps(function, updated=())
    def following(state: object, x: object) -> object:
        graph = structure_of(state)[1][0].graph
        ways = 0

        def follow(given: Sequence[_Answer]) -> object:
            """Return the result for all paths on which the first conditions have the given answers.

            Call the function with the answer True for all further conditions. Then, from the last of these to the
            first, follow the paths on which it is False, and choose between both results.
            """
            nonlocal ways
            ways += 1
            taken: list[_Answer] = []

            def answer(condition: Node) -> bool:
                known = next((value for node, value, _ in taken if node is condition), None)
                if known is not None:
                    return known
                if ways > _MAX_WAYS or len(taken) == _MAX_CONDITIONS:
                    raise operator_error(
                        f"the function has more than {_MAX_WAYS} ways through its conditions (if, while, and, or, not, "
                        f"min, max) on values that are known only on the GPU, or {_MAX_CONDITIONS} of them on one way. "
                        "Write np.where(condition, a, b), & | ~, np.minimum, np.maximum"
                    )
                value = given[len(taken)][1] if len(taken) < len(given) else True
                taken.append((condition, value, running_line()))
                return value

            graph.answer = answer
            try:
                structure, leaves = structure_of(function(*(_copy_containers(given) for given in (state, x))))
                value = structure.build_bundle(list(map(join_numbers, leaves)))
            finally:
                graph.answer = None
            for at in reversed(range(len(given), len(taken))):
                condition, _, line = taken[at]
                other = follow([*taken[:at], (condition, False, line)])
                before = len(graph.nodes)
                value = _choose(graph, condition, value, other, line)
                for node in graph.nodes[before:]:
                    graph.lines[node.index], graph.names[node.index] = line, "if"
            return value

        return follow([])

    return following


def _copy_containers(value: object) -> object:
    """Return a bundle with copies of its dicts and lists, since the function may change them."""
    structure, leaves = structure_of(value)
    return structure.unflatten(leaves)


def _choose(graph: Graph, condition: Node, yes: object, no: object, line: str) -> Any:
    """Return a bundle of choices between the numbers of two bundles."""
    if yes is no:
        return yes
    if isinstance(yes, dict) and isinstance(no, dict) and set(yes) == set(no):
        return {key: _choose(graph, condition, part, no[key], line) for key, part in yes.items()}
    if isinstance(yes, (tuple, list)) and isinstance(no, (tuple, list)) and len(yes) == len(no):
        parts = [_choose(graph, condition, *pair, line) for pair in zip(yes, no, strict=True)]
        return type(yes)(*parts) if hasattr(yes, "_fields") else type(yes)(parts)
    for value, where in ((yes, "holds"), (no, "does not hold")):
        if value is None or isinstance(value, (dict, tuple, list)):
            other = no if value is yes else yes
            raise OperatorError(
                f"the function returns {_describe(value)} where a condition {where}, and {_describe(other)} otherwise. "
                f"Return the same structure on both ways{line}"
            )
    if not isinstance(yes, Traced) and not isinstance(no, Traced) and type(yes) is type(no) and repr(yes) == repr(no):
        return yes
    nodes = np.empty((), dtype=object)
    nodes[()] = condition
    where_function: Any = np.where
    chosen = where_function(Traced(graph, nodes, BOOL), yes, no)
    for at in np.ndindex(chosen.shape):
        chosen.nodes[at] = _choose_inside(graph, chosen.nodes[at])
    return chosen


def _choose_inside(graph: Graph, choice: Node) -> Node:
    """Rewrite ``f(u) if u < v else f(v)``, for any comparison, as ``f(u if u < v else v)``.

    Without this, the paths through ``max(low, min(h, high))`` would be joined only at its end, and the inner `min`
    would not be found. Return other choices unchanged, also choices by equality, which are no extrema: they choose by
    another number where the first ones are equal.
    """
    # A choice between equal numbers is the number itself.
    if choice.op != "select" or choice.args[0].op not in COMPARISONS or choice.args[0].op in _EQUALITIES:
        return choice
    condition, yes, no = choice.args
    yes, no = (_spread_conversions(graph, node) for node in (yes, no))
    for u, v in (condition.args, condition.args[::-1]):
        for here, there, a, b in ((no, yes, v, u), (yes, no, u, v)):
            # Try whether `here` is f(a) and `there` is f(b).
            if any(a in node.args for node in reachable([here]) if node.op in _EQUALITIES):
                continue
            before = len(graph.nodes)
            if _replace(graph, here, a, b) is there:
                return _replace(graph, here, a, graph.select(condition, *((b, a) if here is no else (a, b))))
            graph.forget_since(before)
    return choice


def _spread_conversions(graph: Graph, node: Node) -> Node:
    """Return a node with floats in place of integers that become floats, where all numbers are exact in both.

    In ``max(h + x, 0) * flag``, Python takes the integer 0 on one path, so the product is one of integers there.
    """
    nodes = reachable([node])
    casts = [each for each in nodes if each.op == "cast" and each.scalar.kind == "float"]
    floats = {cast: _as_floats(graph, cast) for cast in casts if cast.args[0].scalar.is_integer}
    if not floats:
        return node
    return copy_nodes([node], graph, {**{each: each for each in nodes if each.op == "input"}, **floats})[0]


def _as_floats(graph: Graph, cast: Node) -> Node:
    """Return a conversion of integers to floats as an expression of floats; the same if a number may be inexact."""
    inner = reachable(cast.args)
    intervals, largest = Intervals(), _LARGEST_EXACT[cast.scalar.bits]
    floats: dict[Node, Node] = {}
    for node in inner:
        low, high = intervals[node] if node.scalar.is_integer else (0, 0)
        if low is None or high is None or max(-low, high) > largest:
            return cast
        if node.scalar == BOOL:
            continue
        if node.op in ("add", "subtract", "multiply", "negative"):
            floats[node] = graph.apply(node.op, [floats[arg] for arg in node.args], cast.scalar)
        elif node.is_constant:
            floats[node] = graph.cast(node, cast.scalar)
        elif node.op == "cast":
            floats[node] = floats.get(node.args[0]) or graph.cast(node.args[0], cast.scalar)
        else:
            return cast
    return floats[cast.args[0]]


def _replace(graph: Graph, node: Node, old: Node, new: Node) -> Node:
    """Return a copy of a node in which `new` replaces `old`, a node that it depends on."""
    inputs = {each: each for each in reachable([node]) if each.op == "input"}
    return copy_nodes([node], graph, {**inputs, old: new})[0]


def _describe(value: object) -> str:
    if isinstance(value, (dict, tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return "a number" if isinstance(value, Traced) else abbreviate(value)


# ----- Dependencies


def nodes_on(nodes: Sequence[Node], inputs: set[int]) -> set[int]:
    """Return the indices of these inputs, and of all nodes that depend on them and that the given nodes need."""
    indices = set(inputs)
    for node in reachable(nodes):  # arguments come before the nodes that use them
        if any(arg.index in indices for arg in node.args):
            indices.add(node.index)
    return indices


# ----- Tables


class Table(AnyArray):
    """A NumPy array that traced values may index."""

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if not any(isinstance(part, Traced) for part in parts):
            return super().__getitem__(index)
        if any(not isinstance(part, (int, np.integer)) and not _is_index(part) for part in parts):
            raise operator_error("a look-up takes an integer for each axis; write table[i, j] with single integers")
        if len(parts) > self.ndim:
            raise operator_error(f"a look-up with {len(parts)} integers was asked for in a table of {self.ndim} axes")
        return _look_up(np.asarray(self), parts)


def _is_index(part: object) -> bool:
    return isinstance(part, Traced) and not part.shape and part.scalar.is_integer


def _look_up(table: AnyArray, parts: tuple[Any, ...]) -> Any:
    """Return ``table[parts]`` as choices between the entries for traced integers among the parts."""
    index, rest = parts[0], parts[1:]
    if not isinstance(index, Traced):
        return _look_up(table[index], rest) if rest else table[index]
    if table.shape[0] > _MAX_ENTRIES or not table.size:
        raise operator_error(f"a look-up in {table.shape[0]} entries was asked for; at most {_MAX_ENTRIES} are traced")
    low = _least(index)
    if low is None or low < 0:
        index = np.where(index < 0, index + table.shape[0], index)
    elif not rest and table.ndim == 1 and _is_linear(table):
        return _sum_bits(table, index)
    entries = [_look_up(entry, rest) if rest else _constant(index, entry) for entry in table]
    entry_at_index = entries[-1]
    for position in reversed(range(len(entries) - 1)):
        entry_at_index = np.where(index == position, entries[position], entry_at_index)
    return entry_at_index


def _least(index: Traced) -> int | None:
    """Return a lower bound of an index; None if none is known."""
    (node,) = index.nodes.ravel()
    return 0 if index.scalar.kind == "unsigned" else Intervals()[node][0]


def _constant(index: Traced, entry: object) -> Traced:
    return constant(index.graph, entry, find_scalar(np.asarray(entry).dtype))


def _is_linear(table: AnyArray) -> bool:
    """Return True if ``table[i ^ j] == table[i] ^ table[j] ^ table[0]`` for all i and j."""
    size = len(table)
    if table.dtype.kind not in "ui" or size < 16 or size & (size - 1):
        return False
    columns = [table[1 << bit] ^ table[0] for bit in range(size.bit_length() - 1)]
    positions = np.arange(size)
    by_bits = [np.where(positions >> bit & 1, column, 0) for bit, column in enumerate(columns)]
    return bool(np.all(functools.reduce(np.bitwise_xor, by_bits, np.full_like(table, table[0])) == table))


def _sum_bits(table: AnyArray, index: Traced) -> Traced:
    """Return the entry of a table that is linear in the bits of the index."""
    entry = _constant(index, table[0])
    for bit in range(len(table).bit_length() - 1):
        is_set = (index >> bit) & 1
        entry = entry ^ np.where(is_set, _constant(index, table[1 << bit] ^ table[0]), table.dtype.type(0))
    return entry


def _with_tables(function: Callable[..., object]) -> Callable[..., object] | None:
    """Return a copy of a function with a `Table` for each array that it closes over; None if it closes over none.

    Functions that it closes over are copied in the same way, if they close over something themselves.
    """
    table_count = 0
    # A function can close over itself, so each one is copied once.
    copies: dict[FunctionType, FunctionType] = {}

    def replace(value: object) -> Any:
        nonlocal table_count
        if type(value) is np.ndarray and value.dtype.kind in "buif":
            table_count += 1
            return value.view(Table)
        return copy_function(value) if type(value) is FunctionType and value.__closure__ else value

    def copy_function(given: FunctionType) -> FunctionType:
        if given in copies:
            return copies[given]
        variables = dict(given.__globals__)
        cells = tuple([CellType() for _ in given.__closure__ or ()])
        copy = copies[given] = FunctionType(given.__code__, variables, given.__name__, None, cells)
        variables.update({name: replace(variables[name]) for name in _global_names(given.__code__) & variables.keys()})
        for cell, given_cell in zip(cells, given.__closure__ or (), strict=True):
            with suppress(ValueError):  # the variable has no value yet, so the copy's has none either
                cell.cell_contents = replace(given_cell.cell_contents)
        if given.__defaults__ is not None:
            copy.__defaults__ = tuple(map(replace, given.__defaults__))
        if given.__kwdefaults__ is not None:
            copy.__kwdefaults__ = {name: replace(value) for name, value in given.__kwdefaults__.items()}
        copy.__qualname__ = given.__qualname__
        return copy

    if type(function) is not FunctionType:
        return None
    copy = copy_function(function)
    return copy if table_count else None


def _global_names(code: CodeType) -> set[str]:
    """Return the names of the global variables of a function and of those defined in it, and of all attributes."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))
