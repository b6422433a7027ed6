"""Maps that are linear in the bits of integers: h -> M h ^ b, as shift registers and cyclic redundancy checks have.

Law: ``h[t] = M h[t-1] ^ b[t]`` over the field of two elements, where M is one matrix for all steps. Shifts, ``^``, and
``&`` and ``|`` with constants are such maps, and so is ``np.where(bit, h ^ k, h)`` with a bit of h and a constant k.
``np.where`` with a condition on x may also keep the state, or reset it. The state may be several numbers, which have up
to 64 bits in all.

A composition of n steps is ``M**n h ^ b``. A map is (g, b) with g a polynomial such that ``g(M)`` is that power of M,
modulo the minimal polynomial of M. Composition, first (g1, b1), then (g2, b2): ``(g2 g1, g2(M) b1 ^ b2)``. Identity:
(1, 0). Proof: ``g2(M) (g1(M) h ^ b1) ^ b2 = (g2 g1)(M) h ^ (g2(M) b1 ^ b2)``, since M is linear and polynomials of M
commute.

The bits of b are coordinates in which M is a shift with feedback: the space of states is the sum of subspaces, each
spanned by the vectors ``v, M v, M**2 v, ...`` of one v (the rational canonical form of M). So ``g(M) b`` is Horner's
rule, with a shift and the feedback of each subspace for each bit of g.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from gpuscan.elements import Scalar, scalar_of
from gpuscan.operators.expression_graph import BOOL, Node, reachable
from gpuscan.operators.loops.bit_matrices import Basis, decompose
from gpuscan.operators.loops.intervals import Intervals
from gpuscan.operators.loops.stage import (
    Composition,
    LeavesClassError,
    LoopStage,
    NodeForms,
    Numbers,
    StepPart,
    compute_nodes,
)
from gpuscan.operators.named_operators import BITS
from gpuscan.operators.traced_array import Number

UINT32, UINT64 = scalar_of(np.dtype(np.uint32)), scalar_of(np.dtype(np.uint64))
# Of fewer bits, the tables of `finite_state` are simpler.
_LEAST_BITS = 7
# The most combinations of conditions on x for which the matrix is found.
_MAX_CASES = 8


def _all_ones(scalar: Scalar) -> int:
    return 1 if scalar == BOOL else int(2**scalar.bits) - 1


# ----- Compositions


@dataclass(frozen=True)
class LinearBits(Composition):
    """Maps (g, b).

    Attributes:
        dtype: the name of the dtype of g and b.
        state_dtypes: the name of the dtype of each number of the state.
        degree: the degree of the minimal polynomial.
        polynomial: that polynomial without its highest term.
        bottoms: the lowest bit of each subspace, as one number.
        feedbacks: the highest bit of each subspace, and the bits that follow from it by a multiplication with M.
        encoding: for each number of the state, and bits of it, the coordinates.
        decoding: for each number of the state, and for each coordinate, the bits of the number.
    """

    dtype: str
    state_dtypes: tuple[str, ...]
    degree: int
    polynomial: int
    bottoms: int
    feedbacks: tuple[tuple[int, int], ...]
    encoding: tuple[tuple[tuple[int, int], ...], ...]
    decoding: tuple[tuple[int, ...], ...]

    @property
    def power(self) -> int:
        """The polynomial that stands for M."""
        return 2 if self.degree > 1 else self.polynomial

    def combine(self, left: Numbers, right: Numbers) -> list[Number]:
        (g1, b1), (g2, b2) = left, right
        product: Number = np.zeros_like(g1)
        moved: Number = np.zeros_like(b1)
        for bit in reversed(range(self.degree)):
            chosen = _spread(g2, bit)
            if bit < self.degree - 1:
                product, moved = self._advance_power(product), self._advance(moved)
            product, moved = product ^ (chosen & g1), moved ^ (chosen & b1)
        return [product, moved ^ b2]

    def _advance_power(self, g: Number) -> Number:
        kept = g & _like(g, 2 ** (self.degree - 1) - 1)
        return (kept << _like(g, 1)) ^ (_spread(g, self.degree - 1) & _like(g, self.polynomial))

    def _advance(self, b: Number) -> Number:
        """Return M b."""
        product = (b << _like(b, 1)) & _like(b, _all_ones(scalar_of(b.dtype)) ^ self.bottoms)
        for top, bits in self.feedbacks:
            if bits:
                product = product ^ (_spread(b, top) & _like(b, bits))
        return product

    def encode(self, *state: Number) -> Number:
        """Return the coordinates of a state."""
        parts = [
            _matrix_product(number.astype(np.dtype(self.dtype)), columns)
            for number, columns in zip(state, self.encoding, strict=True)
        ]
        return reduce(np.bitwise_xor, parts)

    def start(self, state: Numbers) -> list[Number]:
        coordinates = self.encode(*state)
        return [np.zeros_like(coordinates), coordinates]

    def state(self, numbers: Numbers) -> list[Number]:
        return [
            _matrix_product(numbers[1], list(enumerate(bits))).astype(np.dtype(dtype))
            for bits, dtype in zip(self.decoding, self.state_dtypes, strict=True)
        ]


def _like(number: Number, value: int) -> Number:
    return np.full_like(number, value)


def _spread(number: Number, bit: int) -> Number:
    """Return all ones where a bit is set, else 0."""
    return _like(number, 0) - ((number >> _like(number, bit)) & _like(number, 1))


def _matrix_product(number: Number, columns: Sequence[tuple[int, int]]) -> Number:
    product = np.zeros_like(number)
    for bit, column in columns:
        if column:
            product = product ^ (_spread(number, bit) & _like(number, column))
    return product


# ----- Forms


@dataclass(frozen=True, eq=False)
class _Form:
    """A number as a linear function of the bits of the state.

    Attributes:
        columns: for bits of the state, what each adds.
        shift: what does not depend on the state; None for 0.
        constant: a constant that is added as well.
    """

    columns: Mapping[int, int]
    shift: Node | None
    constant: int


class _OpenConditionError(Exception):
    """The form depends on a condition on x."""

    def __init__(self, condition: Node) -> None:
        super().__init__()
        self.condition = condition


class _Forms(NodeForms[_Form]):
    """The forms of nodes, given the bits that the state may have, and decisions on conditions."""

    def __init__(self, part: StepPart, used: int, decided: Mapping[int, bool]) -> None:
        super().__init__(part)
        self.used, self.decided = used, decided
        self._intervals = Intervals()
        self._bits: dict[int, int] = {}

    def _derive(self, node: Node) -> _Form:
        part, op, args = self.part, node.op, node.args
        ones = _all_ones(node.scalar)
        if node.is_constant:
            return _Form({}, None, int(node.value) & ones)
        if not part.varies(node):
            return _Form({}, node, 0)
        if node.scalar.kind not in BITS:
            raise LeavesClassError(node, rank=-1)
        if op == "input":
            start = _starts(part)[part.number_of(node)]
            return _Form({start + bit: 1 << bit for bit in _places(self.used >> start & ones)}, None, 0)
        if op in ("bitwise_xor", "logical_xor"):
            return self._sum(node, self.of(args[0]), self.of(args[1]))
        if op == "not_equal" and args[0].scalar == BOOL:
            return self._sum(node, self.of(args[0]), self.of(args[1]))
        if op in ("invert", "logical_not"):
            return self._sum(node, self.of(args[0]), _Form({}, None, ones))
        if op in ("bitwise_or", "add"):
            return self._join(node)
        if op in ("bitwise_and", "remainder") and args[1].is_constant:
            value = int(args[1].value)
            if op == "bitwise_and" or (value > 0 and value & (value - 1) == 0):
                return self._mask(node, self.of(args[0]), value & ones if op == "bitwise_and" else value - 1)
        if op == "bitwise_and" and args[0].is_constant:
            return self._mask(node, self.of(args[1]), int(args[0].value) & ones)
        if op in ("left_shift", "right_shift") and args[1].is_constant:
            return self._move(node, op, int(args[1].value))
        if op in ("multiply", "floor_divide"):
            return self._scale(node)
        if op == "negative" or (op == "subtract" and args[0].equals(0)):
            return self._spread(node, args[-1], ones)
        if op in ("cast", "view"):
            return self._cast(node)
        if op in ("not_equal", "equal", "greater"):
            return self._compare(node)
        if op == "select":
            return self._choose(node)
        raise LeavesClassError(node, rank=-1)

    def bits_of(self, form: _Form) -> int:
        """Return the bits that a number may have."""
        bits = form.constant
        for column in form.columns.values():
            bits |= column
        return bits if form.shift is None else bits | self._bits_of_node(form.shift)

    def _bits_of_node(self, node: Node) -> int:
        """Return the bits that a number that does not depend on the state may have."""
        bits = self._bits.get(node.index)
        if bits is None:
            bits = self._bits[node.index] = self._find_bits(node)
        return bits

    def _find_bits(self, node: Node) -> int:
        ones, args = _all_ones(node.scalar), node.args
        if node.is_constant:
            return int(node.value) & ones
        if node.scalar == BOOL:
            return 1
        low, high = self._intervals[node]
        bound = 2 ** high.bit_length() - 1 if low is not None and high is not None and low >= 0 else ones
        of = self._bits_of_node
        if node.op in ("bitwise_xor", "bitwise_or"):
            return (of(args[0]) | of(args[1])) & bound
        if node.op == "bitwise_and":
            return of(args[0]) & of(args[1]) & bound
        if node.op == "select":
            return (of(args[1]) | of(args[2])) & bound
        if node.op in ("left_shift", "right_shift") and args[1].is_constant:
            places = int(args[1].value)
            if node.op == "left_shift":
                return of(args[0]) << places & ones & bound
            if node.scalar.kind == "unsigned" or not of(args[0]) >> (node.scalar.bits - 1) & 1:
                return of(args[0]) >> places & bound
        if node.op == "cast" and (args[0].scalar == BOOL or args[0].scalar.kind == "unsigned"):
            return of(args[0]) & ones & bound
        return bound

    # ----- Operations

    def _sum(self, node: Node, one: _Form, other: _Form) -> _Form:
        columns = dict(one.columns)
        for bit, column in other.columns.items():
            columns[bit] = columns.get(bit, 0) ^ column
        op = "logical_xor" if node.scalar == BOOL else "bitwise_xor"
        shift = one.shift or other.shift
        if one.shift is not None and other.shift is not None:
            shift = None if one.shift is other.shift else self.graph.apply(op, (one.shift, other.shift), node.scalar)
        return _Form({p: c for p, c in columns.items() if c}, shift, one.constant ^ other.constant)

    def _map(self, form: _Form, function: Callable[[int], int], shift: Node | None) -> _Form:
        columns = {bit: function(column) for bit, column in form.columns.items()}
        return _Form({p: c for p, c in columns.items() if c}, shift, function(form.constant))

    def _join(self, node: Node) -> _Form:
        """Return the form of ``|`` or ``+`` of numbers with no bit in common, or of ``|`` with a constant."""
        one, other = (self.of(arg) for arg in node.args)
        if not self.bits_of(one) & self.bits_of(other):
            return self._sum(node, one, other)
        for form, added in ((one, other), (other, one)):
            if node.op == "bitwise_or" and not added.columns and added.shift is None:
                kept = self._mask(node, form, _all_ones(node.scalar) ^ added.constant)
                return self._sum(node, kept, added)
        raise LeavesClassError(
            node, "joins numbers that may have bits in common", rank=0 if node.op == "bitwise_or" else -1
        )

    def _mask(self, node: Node, form: _Form, mask: int) -> _Form:
        shift = form.shift
        if shift is not None and self._bits_of_node(shift) & ~mask:
            shift = self.graph.apply(
                "bitwise_and", (shift, self.graph.constant(_from_bits(mask, node.scalar), node.scalar)), node.scalar
            )
        return self._map(form, lambda bits: bits & mask, shift)

    def _move(self, node: Node, op: str, places: int) -> _Form:
        form, ones = self.of(node.args[0]), _all_ones(node.scalar)
        if not 0 <= places < node.scalar.bits:
            raise LeavesClassError(node)
        shift = form.shift
        if shift is not None:
            shift = self.graph.apply(op, (shift, self.graph.constant(places, node.scalar)), node.scalar)
        sign = 1 << (node.scalar.bits - 1) if node.scalar.kind == "signed" else 0

        def move(bits: int) -> int:
            if op == "left_shift":
                return bits << places & ones
            filled = ones ^ ones >> places if bits & sign else 0
            return bits >> places | filled

        return self._map(form, move, shift)

    def _scale(self, node: Node) -> _Form:
        """Return the form of a product or a quotient with a power of two, or of a bit and a constant."""
        first, second = node.args
        factor, number = (first, second) if first.is_constant and node.op == "multiply" else (second, first)
        if not factor.is_constant or not node.scalar.is_integer:
            raise LeavesClassError(node, rank=-1)
        value = int(factor.value)
        if value > 0 and value & (value - 1) == 0:
            return self._move_of(node, number, value.bit_length() - 1)
        form, ones = self.of(number), _all_ones(node.scalar)
        if node.op == "floor_divide" or self.bits_of(form) & ~1:
            raise LeavesClassError(node, rank=-1)
        shift = None if form.shift is None else self.graph.apply("multiply", (form.shift, factor), node.scalar)
        return self._map(form, lambda bit: value & ones if bit else 0, shift)

    def _move_of(self, node: Node, number: Node, places: int) -> _Form:
        op = "left_shift" if node.op == "multiply" else "right_shift"
        by = self.graph.constant(places, node.scalar)
        moved = self.graph.apply(op, (number, by), node.scalar)
        return self._move(moved, op, places) if places else self.of(number)

    def _spread(self, node: Node, arg: Node, ones: int) -> _Form:
        """Return the form of ``-bit``."""
        form = self.of(arg)
        if self.bits_of(form) & ~1:
            raise LeavesClassError(node, rank=-1)
        shift = None if form.shift is None else self.graph.apply("negative", (form.shift,), node.scalar)
        return self._map(form, lambda bit: ones if bit else 0, shift)

    def _cast(self, node: Node) -> _Form:
        (arg,) = node.args
        if arg.scalar.kind not in BITS:
            raise LeavesClassError(node, rank=-1)
        form, ones = self.of(arg), _all_ones(node.scalar)
        if node.scalar == BOOL:
            return self._bit(node, form)
        shift = None if form.shift is None else self.graph.cast(form.shift, node.scalar)
        sign = 1 << (arg.scalar.bits - 1) if arg.scalar.kind == "signed" else 0
        extended = ones & ~_all_ones(arg.scalar)
        return self._map(form, lambda bits: (bits | extended if bits & sign else bits) & ones, shift)

    def _bit(self, node: Node, form: _Form) -> _Form:
        """Return the form of ``number != 0`` for a number with one bit."""
        bits = self.bits_of(form)
        if bits & (bits - 1):
            raise LeavesClassError(node, "asks for several bits of the carry at once")
        shift = None if form.shift is None else self.graph.cast(form.shift, BOOL)
        return self._map(form, bool, shift)

    def _compare(self, node: Node) -> _Form:
        number, limit = node.args
        if limit.is_constant and number.scalar.is_integer:
            form, value = self.of(number), int(limit.value) & _all_ones(number.scalar)
            bits = self.bits_of(form)
            unsigned = number.scalar.kind == "unsigned" or not bits >> (number.scalar.bits - 1)
            if value == 0 and (node.op != "greater" or unsigned):
                is_nonzero = self._bit(node, form)
                return is_nonzero if node.op != "equal" else self._sum(node, is_nonzero, _Form({}, None, 1))
            if value == bits and node.op != "greater":
                is_nonzero = self._bit(node, form)
                return is_nonzero if node.op == "equal" else self._sum(node, is_nonzero, _Form({}, None, 1))
        raise LeavesClassError(node, rank=-1)

    def _choose(self, node: Node) -> _Form:
        condition, yes, no = node.args
        if not self.part.varies(condition):
            if condition.index in self.decided:
                return self.of(yes if self.decided[condition.index] else no)
            one, other = self.of(yes), self.of(no)
            if dict(one.columns) != dict(other.columns):
                raise _OpenConditionError(condition)
            sides = [self.whole(form, node.scalar) for form in (one, other)]
            return _Form(one.columns, self.graph.select(condition, *sides), 0)
        bit, one, other = self.of(condition), self.of(yes), self.of(no)
        if dict(one.columns) != dict(other.columns) or one.shift is not other.shift:
            raise LeavesClassError(node, rank=-1)
        added = one.constant ^ other.constant
        shift = None
        if bit.shift is not None:
            number, zero = (self.graph.constant(_from_bits(value, node.scalar), node.scalar) for value in (added, 0))
            shift = self.graph.select(bit.shift, number, zero)
        chosen = self._map(bit, lambda is_set: added if is_set else 0, shift)
        return self._sum(node, other, chosen)

    def whole(self, form: _Form, scalar: Scalar) -> Node:
        """Return what a form is for a state of 0, as one node."""
        constant = self.graph.constant(_from_bits(form.constant, scalar), scalar)
        if form.shift is None or form.constant == 0:
            return constant if form.shift is None else form.shift
        op = "logical_xor" if scalar == BOOL else "bitwise_xor"
        return self.graph.apply(op, (form.shift, constant), scalar)


def _from_bits(bits: int, scalar: Scalar) -> int | bool:
    """Return the number of a type that has these bits."""
    if scalar == BOOL:
        return bool(bits)
    return bits - 2**scalar.bits if scalar.kind == "signed" and bits >> (scalar.bits - 1) else bits


# ----- Stages


def _starts(part: StepPart) -> list[int]:
    """Return where each number begins in the bits of the whole state."""
    widths = [_all_ones(node.scalar).bit_length() for node in part.states]
    return [sum(widths[:number]) for number in range(len(widths))]


@dataclass(frozen=True, eq=False)
class _Case:
    """The map where some conditions on x are met, and others not.

    Attributes:
        columns: the matrix; None if the map is constant.
        shifts: for each number, what does not depend on the state.
        bits: the bits that the results may have.
    """

    columns: Mapping[int, int] | None
    shifts: tuple[Node, ...]
    bits: int


# A case, or a condition with the trees of cases where it is met and where it is not.
_Tree = _Case | tuple[Node, "_Tree", "_Tree"]


def _cases(part: StepPart, used: int, decided: Mapping[int, bool]) -> _Tree:
    forms = _Forms(part, used, decided)
    try:
        forms_of_results = [forms.of(result) for result in part.results]
    except _OpenConditionError as error:
        if 2 ** (len(decided) + 1) > _MAX_CASES:
            raise LeavesClassError(part.results[0], "chooses between too many maps") from None
        at = error.condition.index
        met, unmet = (_cases(part, used, {**decided, at: value}) for value in (True, False))
        return error.condition, met, unmet
    columns: dict[int, int] = {}
    bits = 0
    for form, start in zip(forms_of_results, _starts(part), strict=True):
        bits |= forms.bits_of(form) << start
        for bit, column in form.columns.items():
            columns[bit] = columns.get(bit, 0) | column << start
    shifts = [forms.whole(form, node.scalar) for form, node in zip(forms_of_results, part.results, strict=True)]
    return _Case(columns or None, tuple(shifts), bits)


def _leaves(tree: _Tree) -> list[_Case]:
    return [tree] if isinstance(tree, _Case) else [case for side in tree[1:] for case in _leaves(side)]


def derive(part: StepPart) -> LoopStage:
    """Return the stage of maps that are linear in the bits of the state.

    Raises:
        LeavesClassError: the state is no integer, or an operation is not linear.
    """
    graph, kinds = part.graph, {node.scalar.kind for node in part.states}
    if (kinds == {"bool"} and len(part.states) == 1) or not kinds <= BITS:
        raise LeavesClassError(part.results[0], rank=-1)
    used, grown = -1, _initial_bits(part)
    while used != grown:
        used = grown
        leaves = _leaves(tree := _cases(part, used, {}))
        grown = reduce(int.__or__, (case.bits for case in leaves), used)
    if used.bit_count() > UINT64.bits:
        mixing = [node for node in reachable(part.results) if node.op == "bitwise_xor" and part.varies(node)]
        why = f"mixes bits of several numbers, {used.bit_count()} in all, and {UINT64.bits} are the most"
        raise LeavesClassError((mixing or part.results)[0], why, rank=1)
    if used.bit_count() < _LEAST_BITS:
        raise LeavesClassError(part.results[0], rank=-1)
    identity = {bit: 1 << bit for bit in _places(used)}
    matrices = [case.columns for case in leaves if case.columns is not None and dict(case.columns) != identity]
    if any(dict(matrix) != dict(matrices[0]) for matrix in matrices):
        raise LeavesClassError(part.results[0], "chooses between different linear maps")
    matrix = matrices[0] if matrices else identity
    composition = _composition(part, matrix, _places(used))
    word = scalar_of(np.dtype(composition.dtype))

    def number(case: _Case) -> tuple[Node, Node, Node]:
        """Return g, b, and a flag that says that the map is constant."""
        (b,) = compute_nodes(graph, composition.encode, *case.shifts)
        own = case.columns is not None and dict(case.columns) != identity
        g = graph.constant(composition.power if own else 1, word)
        return g, b, graph.constant(case.columns is None, BOOL)

    def numbers(tree: _Tree) -> tuple[Node, ...]:
        if isinstance(tree, _Case):
            return number(tree)
        condition, yes, no = tree[0], numbers(tree[1]), numbers(tree[2])
        return tuple(graph.select(condition, *pair) for pair in zip(yes, no, strict=True))

    g, b, constant = numbers(tree)
    flag = None if constant.is_constant and not constant.value else constant
    law = f"h[t] = M h[t-1] ^ b, a linear map of {used.bit_count()} bits"
    return LoopStage("bitwise", law, part.state_indices, (g, b), flag, composition)


def _initial_bits(part: StepPart) -> int:
    """Return the bits of the values in `init`; all if these are not known."""
    total = 0
    for number, (node, start) in enumerate(zip(part.states, _starts(part), strict=True)):
        bits = ones = _all_ones(node.scalar)
        initial = part.initial[number] if part.initial else None
        if initial is not None:
            bits = reduce(int.__or__, (int(value) & ones for value in np.asarray(initial).ravel().tolist()), 0)
        total |= bits << start
    return total


def _places(bits: int) -> list[int]:
    return [bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def _composition(part: StepPart, matrix: Mapping[int, int], used: Sequence[int]) -> LinearBits:
    """Return the composition of maps with a matrix on some bits of the state."""
    rank = {bit: number for number, bit in enumerate(used)}

    def gather(bits: int) -> int:
        return sum(1 << number for bit, number in rank.items() if bits >> bit & 1)

    columns = [gather(matrix.get(bit, 0)) for bit in used]
    chains = decompose(columns)
    if not chains:
        raise LeavesClassError(part.results[0], rank=-1)
    basis, vectors = Basis(), [vector for chain in chains for vector in chain.vectors]
    for vector in vectors:
        basis.add(vector)
    bottoms, feedbacks, start = 0, [], 0
    for chain in chains:
        size = len(chain.vectors)
        bottoms |= 1 << start
        feedbacks.append((start + size - 1, chain.feedback << start))
        start += size
    starts, masks = _starts(part), [_all_ones(node.scalar) for node in part.states]
    coordinates = {bit: basis.coordinates(1 << number)[1] for bit, number in rank.items()}
    bits_of = [sum(1 << used[n] for n in range(len(used)) if vector >> n & 1) for vector in vectors]
    return LinearBits(
        dtype="uint32" if len(used) <= UINT32.bits else "uint64",
        state_dtypes=tuple(node.scalar.name for node in part.states),
        degree=len(chains[0].vectors),
        polynomial=chains[0].feedback,
        bottoms=bottoms,
        feedbacks=tuple(feedbacks),
        encoding=tuple(
            tuple(
                (bit - start, column)
                for bit, column in coordinates.items()
                if bit >= start and mask >> (bit - start) & 1
            )
            for start, mask in zip(starts, masks, strict=True)
        ),
        decoding=tuple(
            tuple(bits >> start & mask for bits in bits_of) for start, mask in zip(starts, masks, strict=True)
        ),
    )
