"""The expression graph of a traced function: each node is one number, has a type, and exists once.

Vectors and matrices are arrays of nodes (`gpuscan.operators.traced_array.Traced`). A node's operation is the
name of the NumPy ufunc that it computes (``add``, ``floor_divide``, …), or one of

- ``input``: a number of an argument; `Node.data` is ``(argument, field, component)``;
- ``constant``: `Node.data` is the number's bytes, in the dtype that it is combined in, or an expression that gives them
  (`gpuscan.operators.parameters`);
- ``select``: ``(condition, if_true, if_false)``;
- ``cast``: conversion of the value to `Node.scalar`, as ``astype`` does it;
- ``view``: the same bits read as `Node.scalar`;
- ``complex``: ``(real, imaginary)``, two float32, as one complex64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.elements import Scalar, compute_dtype, scalar_of
from gpuscan.errors import OperatorError
from gpuscan.operators.parameters import (
    Expression,
    Parameter,
    bytes_in,
    derive,
    integer_bytes_in,
    of_bytes,
    present,
    reveal,
)
from gpuscan.operators.source_location import running_line

# What a function of a number returns.
T = TypeVar("T")

BOOL = scalar_of(np.dtype(bool))
FLOAT32 = scalar_of(np.dtype(np.float32))
COMPLEX64 = scalar_of(np.dtype(np.complex64))


# Operations of one traced function. A product of 16 x 16 matrices has 7,936, and takes minutes to compile on a CPU
# adapter.
MAX_OPERATIONS = 10_000


def numpy_function(op: str) -> Callable[..., Any]:
    """Return the function of NumPy arrays that computes an operation: a ufunc, or the error function."""
    return _erf if op == "erf" else getattr(np, op)


def _erf(x: object) -> object:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(np.asarray(x).dtype)


class TooManyOperationsError(OperatorError):
    """The function is too long for a GPU's compiler. NumPy has no such limit."""


class Node:
    """One number: an operation, its arguments and the type of the result. Only a `Graph` makes nodes."""

    __slots__ = ("args", "data", "index", "op", "scalar")

    def __init__(self, index: int, op: str, args: tuple[Node, ...], scalar: Scalar, data: Any) -> None:
        self.index = index
        self.op = op
        self.args = args
        self.scalar = scalar
        self.data = data

    @property
    def is_constant(self) -> bool:
        return self.op == "constant"

    @property
    def value(self) -> Any:
        """The number of a constant, as a NumPy scalar; of a 16-bit float it is a float32. It is revealed."""
        return np.frombuffer(reveal(self.data), compute_dtype(self.scalar))[0]

    @property
    def integer(self) -> Any:
        """The integer of a constant. In the place of one that is not the same in all calls stands a `Parameter`."""
        integer = derive(of_bytes(int, (compute_dtype(self.scalar),)), self.data)
        return Parameter(integer) if type(integer) is Expression else integer

    def equals(self, number: float) -> bool:
        """Return True for a constant of this value. This reveals only whether the two are equal."""
        return self.is_constant and self.reveal(_equal_to(number))

    def reveal(self, function: Callable[..., T], *others: Node) -> T:
        """Return what a function gives for the values of this constant and others. Only this result is revealed."""
        nodes = (self, *others)
        sources = tuple([compute_dtype(node.scalar) for node in nodes])
        with np.errstate(all="ignore"):
            result: T = reveal(derive(of_bytes(function, sources), *[node.data for node in nodes]))
        return result


@lru_cache(maxsize=16)
def _equal_to(number: float) -> Callable[[object], bool]:
    return lambda value: bool(value == number)


@lru_cache(maxsize=64)
def _cast_to(dtype: AnyDType) -> Callable[[object], AnyArray]:
    return lambda value: np.asarray(value).astype(dtype)


@lru_cache(maxsize=64)
def _view_as(stored: AnyDType, dtype: AnyDType) -> Callable[[object], AnyArray]:
    return lambda value: np.asarray(value).astype(stored).view(dtype)


def is_nan(value: object) -> bool:
    """Return True for a number that is NaN."""
    return bool(value != value)


class Graph:
    """Makes each node once: the same operation on the same arguments gives the same node.

    Args:
        with_floats: True to make constants of the values that expressions have now.
        whole: True if traced values stand for whole arrays, without scanned axes before them. So they can be indexed
            and multiplied as such, and each node's line of the user's code is noted.

    Attributes:
        whole: as above.
        lines: for the index of a node, the line that made it.
        names: for the index of a node, the ufunc that the line called.
        notes_lines: True while the user's code runs, which makes nodes.
        contracts_numbers: True if a function of all entries, such as np.sum, met a single number.
        meets_vectors: True if a function of matrices met vectors: a product two of them, neither of them constant, or a
            transposition one.
        wide: the kinds of the inputs of 64 bits, such as ``"signed"`` for int64.
        answer: while each way through the user's function is traced, what Python gets as the truth of a condition.
    """

    def __init__(self, *, with_floats: bool = False, whole: bool = False) -> None:
        self._with_floats = with_floats
        self.whole = whole
        self.lines: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.contracts_numbers = False
        self.meets_vectors = False
        self.wide: set[str] = set()
        self.notes_lines = True
        self.answer: Callable[[Node], bool] | None = None
        self._name = ""
        self.nodes: list[Node] = []
        self._known: dict[object, Node] = {}
        self._operations = 0

    def _node(self, op: str, args: tuple[Node, ...], scalar: Scalar, data: object = None) -> Node:
        key = (op, tuple(arg.index for arg in args), scalar, data)
        node = self._known.get(key)
        if node is None:
            self._operations += bool(args)
            if self._operations > MAX_OPERATIONS:
                raise TooManyOperationsError(
                    f"the function does more than {MAX_OPERATIONS:,} operations on numbers, and GPU compilers would "
                    "take many minutes for it; use smaller elements, fewer steps, a loop in gs.wgsl_operator, or "
                    'device="numpy"' + running_line()
                )
            node = Node(len(self.nodes), op, args, scalar, data)
            if self.whole and self.notes_lines and op != "input":
                self.lines[node.index] = running_line()
                self.names[node.index] = self._name
            self.nodes.append(node)
            self._known[key] = node
        return node

    @contextmanager
    def as_part_of(self, name: str) -> Iterator[None]:
        """Note that nodes made in the block are parts of this ufunc."""
        self._name = name
        try:
            yield
        finally:
            self._name = ""

    def forget_since(self, count: int) -> None:
        """Remove all nodes but the first `count`, which none of these needs."""
        for node in self.nodes[count:]:
            self._known.popitem()
            self._operations -= bool(node.args)
            self.lines.pop(node.index, None)
            self.names.pop(node.index, None)
        del self.nodes[count:]

    def describe_nodes(self) -> list[object]:
        """Return all nodes in a form that can be compared with that of another graph."""
        return list(self._known)

    def input(self, argument: int, field: int, component: int, scalar: Scalar) -> Node:
        if scalar.bits == 64 and scalar.kind != "complex":
            self.wide.add(scalar.kind)
        return self._node("input", (), scalar, (argument, field, component))

    def constant(self, value: object, scalar: Scalar) -> Node:
        """Return the node of a constant. `value` is converted as ``astype`` does it, to the type's compute form."""
        dtype = compute_dtype(scalar)
        value = value._expression if type(value) is Parameter else value
        is_python_integer = type(value) is Expression and type(value.value) is int and dtype.kind in "iu"
        with np.errstate(all="ignore"):
            to_bytes = integer_bytes_in(dtype) if is_python_integer else bytes_in(dtype)
            return self._node("constant", (), scalar, derive(to_bytes, value))

    def constant_again(self, node: Node) -> Node:
        """Return the node of a constant of another graph."""
        return self._node("constant", (), node.scalar, present(node.data) if self._with_floats else node.data)

    def compute(self, function: Callable[..., object], args: Sequence[Node], scalar: Scalar) -> Node:
        """Return the constant that NumPy computes from constants."""
        with np.errstate(all="ignore"):
            data = [arg.data for arg in args]
            if all(type(value) is bytes for value in data):
                return self.constant(function(*(arg.value for arg in args)), scalar)
            sources = tuple(compute_dtype(arg.scalar) for arg in args)
            return self.constant(derive(of_bytes(function, sources), *data), scalar)

    def apply(self, op: str, args: Sequence[Node], scalar: Scalar) -> Node:
        """Return the node of the ufunc `op` on `args`, which have the types of its loop. NumPy computes constants."""
        if all(arg.is_constant for arg in args):
            return self.compute(numpy_function(op), args, scalar)
        return self._node(op, tuple(args), scalar)

    def cast(self, node: Node, scalar: Scalar) -> Node:
        if node.scalar == scalar:
            return node
        if node.is_constant:
            return self.compute(_cast_to(scalar.dtype), (node,), scalar)
        if scalar == COMPLEX64:
            return self.complex(self.cast(node, FLOAT32), self.constant(0, FLOAT32))
        if node.scalar == COMPLEX64:
            both = [self.cast(part, BOOL) for part in self.parts(node)] if scalar == BOOL else []
            return self.apply("logical_or", both, BOOL) if both else self.cast(self.parts(node)[0], scalar)
        return self._node("cast", (node,), scalar)

    def view(self, node: Node, scalar: Scalar) -> Node:
        if node.scalar == scalar:
            return node
        if node.is_constant:
            return self.compute(_view_as(node.scalar.dtype, scalar.dtype), (node,), scalar)
        return self._node("view", (node,), scalar)

    def parts(self, node: Node) -> tuple[Node, Node]:
        """Return the real and the imaginary part of a complex64."""
        if node.op == "complex":
            return node.args[0], node.args[1]
        return self.apply("real", (node,), FLOAT32), self.apply("imag", (node,), FLOAT32)

    def complex(self, real: Node, imag: Node) -> Node:
        if real.is_constant and imag.is_constant:
            return self.constant(np.array([real.value, imag.value]).view(np.complex64)[0], COMPLEX64)
        return self._node("complex", (real, imag), COMPLEX64)

    def select(self, condition: Node, if_true: Node, if_false: Node) -> Node:
        if condition.is_constant:
            return if_true if condition.reveal(bool) else if_false
        if if_true is if_false:
            return if_true
        return self._node("select", (condition, if_true, if_false), if_true.scalar)


def needs_widening(nodes: Iterable[Node]) -> bool:
    """Return True if one of these 16-bit floats is computed from arguments without a cast.

    In NumPy, such a number is a float32.
    """
    seen = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.op == "input":
            return True
        if node.index not in seen and node.op not in ("cast", "view"):
            seen.add(node.index)
            waiting.extend(arg for arg in node.args if arg.scalar == node.scalar)
    return False


def reachable(results: Sequence[Node], stops: Container[int] = ()) -> list[Node]:
    """Return every node that the results need. Arguments stand before the nodes that use them.

    Args:
        stops: the indices of nodes at which the walk ends.
    """
    nodes: dict[int, Node] = {}
    waiting = list(results)
    while waiting:
        node = waiting.pop()
        if node.index not in nodes:
            nodes[node.index] = node
            waiting.extend(() if node.index in stops else node.args)
    return [nodes[index] for index in sorted(nodes)]
