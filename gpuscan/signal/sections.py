"""Filters as chains of second-order sections, and sections as state spaces.

All of it is in float64 on a few numbers, once for each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from gpuscan.api.array import Array, new_array
from gpuscan.api.launches import launchable_with
from gpuscan.api.map import map as map_arrays
from gpuscan.api.reduce import reduce
from gpuscan.array_types import AnyArray, AnyDType

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

# A pole within this distance of 1 makes a filter slow: its decay for each sample is stored as the difference from 1,
# because float32 holds 0.9999 only to 6e-8, which is 0.06 % of the distance.
NEAR_ONE = 1 / 64
# The relative error up to which the states of sections stand for the states of the whole filter.
STATE_TOLERANCE = 1e-8
# The greatest condition of the matrix between these states for which no error is looked for.
_MOST_CONDITION = 1e6
# States of a filter, the axis of the states first: in NumPy in float64, or on a device.
States: TypeAlias = Array | AnyArray


@dataclass(frozen=True)
class Section:
    """A section ``(b0 + b1/z + b2/z²) / (1 + a1/z + a2/z²)`` as a state space of one or two states.

    ``y[t] = c·s[t] + d x[t]`` and ``s[t+1] = m s[t] + v x[t]``. The states `s` are in the coordinates in which `m` is a
    rotation times a factor, or for two real poles a triangle, so that no terms cancel in products of `m`. In SciPy's
    form they do, the more the slower the filter is.

    Attributes:
        m, v, c, d: the matrices, of shapes (n, n), (n,), (n,) and ().
        from_direct: the matrix from the states of SciPy's form (transposed direct form II) to these.
        to_direct: its inverse.
        near_one: True if a pole is close to 1.
    """

    m: Floats
    v: Floats
    c: Floats
    d: float
    from_direct: Floats
    to_direct: Floats
    near_one: bool

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.c)


def state_count(b: Floats, a: Floats) -> int:
    """Return how many states a section needs."""
    return 2 if b[2] or a[2] else 1


def section_of(b: Floats, a: Floats, size: int) -> Section:
    """Return the state space of a section.

    Args:
        b, a: three coefficients each, with ``a[0] == 1``.
        size: the number of states, 1 or 2.
    """
    m = np.array([[-a[1], 1.0], [-a[2], 0.0]])[:size, :size]
    v = np.array([b[1] - a[1] * b[0], b[2] - a[2] * b[0]])[:size]
    c = np.array([1.0, 0.0])[:size]
    middle, apart = -a[1] / 2, a[1] ** 2 / 4 - a[2]
    spread = np.sqrt(abs(apart))
    to_states, to_direct = np.eye(size), np.eye(size)
    if apart < 0:
        to_states[1], to_direct[1] = (middle / spread, 1 / spread), (-middle, spread)
        m = np.array([[middle, spread], [-spread, middle]])
        distance = abs(1 - complex(middle, spread))
    else:
        # The pole of larger size by a sum without cancellation, the other one by their product.
        large = middle + np.copysign(spread, middle)
        small = a[2] / large if large else 0.0
        distance = min(abs(1 - large), abs(1 - small))
        if size == 2:
            to_states[1, 0], to_direct[1, 0] = small, -small
            m = np.array([[large, 1.0], [0.0, small]])
    return Section(m, to_states @ v, c, float(b[0]), to_states, to_direct, distance < NEAR_ONE)


# ----- From polynomials to sections


def sections_of(b: Floats, a: Floats) -> list[tuple[Floats, Floats]]:
    """Return sections with the filter ``b / a`` as their product; each is ``(b, a)`` with three coefficients.

    ``a[0]`` must be 1. Each pair of poles goes with the nearest zeros, and those closest to the unit circle come last,
    as in SciPy's `tf2sos`. The gain is spread evenly.
    """
    b, a = trim_zeros(b), trim_zeros(a)
    if len(b) <= 3 and len(a) <= 3:
        return [(pad_coefficients(b, 3), pad_coefficients(a, 3))]
    delays = int(np.argmax(b != 0)) if len(b) else 0
    gain = b[delays] if len(b) else 0.0
    poles = [*_factors(np.roots(a))]
    zeros = [*_factors(np.roots(b[delays:]), delays)] if len(b) else []
    poles.sort(key=lambda factor: factor.reach, reverse=True)
    count = max(len(poles), len(zeros))
    section_gain = abs(gain) ** (1 / count)
    sections = []
    for i in range(count):
        pole = poles[i] if i < len(poles) else ONE
        zero = min(zeros, key=pole.distance, default=ONE)
        if zero is not ONE:
            zeros.remove(zero)
        sections.append((zero.coefficients * section_gain, pole.coefficients))
    sections.reverse()
    first = sections[0]
    sections[0] = (first[0] * np.sign(gain), first[1])
    return sections


@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of a polynomial in 1/z, of second order or less.

    Attributes:
        coefficients: three of them.
        root: one of its roots; None if it has none.
    """

    coefficients: Floats
    root: complex | None

    @property
    def reach(self) -> float:
        """How far the root is from 0."""
        return 0.0 if self.root is None else abs(self.root)

    def distance(self, other: Factor) -> float:
        """Return the distance between the roots; a factor without a root is far from all."""
        if self.root is None or other.root is None:
            return np.inf
        return abs(self.root - other.root)


ONE = Factor(np.array([1.0, 0.0, 0.0]), None)


def _factors(roots: AnyArray, delays: int = 0) -> list[Factor]:
    """Return real factors of second order with these roots and `delays` factors 1/z; one may be of first order."""
    pairs = [root for root in roots if root.imag > 0]
    factors = [Factor(np.array([1.0, -2 * root.real, abs(root) ** 2]), root) for root in pairs]
    real = sorted((root.real for root in roots if root.imag == 0), key=abs, reverse=True)
    # Neighbours in size go together.
    linear = [(np.array([1.0, -root]), complex(root)) for root in real] + [(np.array([0.0, 1.0]), None)] * delays
    for (one, root), (other, _) in zip(linear[::2], linear[1::2], strict=False):
        factors.append(Factor(np.convolve(one, other), root))
    if len(linear) % 2:
        one, root = linear[-1]
        factors.append(Factor(pad_coefficients(one, 3), root))
    return factors


def pad_coefficients(coefficients: Floats, length: int) -> Floats:
    """Return the coefficients with zeros after them."""
    return np.concatenate([coefficients, np.zeros(length - len(coefficients))])


def trim_zeros(coefficients: Any) -> Any:
    """Return the coefficients without the zeros at the end. `np.trim_zeros` takes several times as long."""
    (nonzero,) = coefficients.nonzero()
    return coefficients[: nonzero[-1] + 1 if len(nonzero) else 0]


# ----- The states of a chain of sections, and the states of the whole filter


def state_matrix(sections: list[tuple[Floats, Floats]]) -> Floats:
    """Return the matrix from the states of all sections to the states of the whole filter, in SciPy's form for both.

    States `z` of a filter b / a add ``z(1/z) / a(1/z)`` to its output. So the states of section i become the polynomial
    of these states, times the denominators of all sections before it and the numerators of all sections after it.
    """
    columns = []
    for i, section in enumerate(sections):
        others = np.ones(1)
        for j, (b, a) in enumerate(sections):
            if j != i:
                others = np.convolve(others, a if j < i else b)
        columns += [np.convolve(others, unit) for unit in np.eye(state_count(*section))]
    length = max(len(column) for column in columns)
    matrix = np.stack([pad_coefficients(column, length) for column in columns], axis=1)
    # Rows beyond the states are zero, but for the rounding of roots.
    return matrix[: len(columns)]


class StatesMap(NamedTuple):
    """The map from the states of sections to the states that the caller knows, (*lead, states, *others).

    Attributes:
        matrix: the map, from all states to all states.
        lead: the lengths of the axes before the axis of the states.
        of_host: maps an array of NumPy, in the order of additions that results in NumPy have.
    """

    matrix: Floats
    lead: tuple[int, ...]
    of_host: Callable[[AnyArray], AnyArray]


class Sections:
    """A chain of sections.

    Args:
        tables: the coefficients of each section, as `sections_of` returns them.
        size: the number of states of each section (default: the fewest that are enough).
        order: the number of states of the whole filter, if these are asked for.

    Attributes:
        spaces: the sections.
        kinds: for each section the number of its states, and True if a pole is near 1.
    """

    def __init__(self, tables: list[tuple[Floats, Floats]], size: int | None = None, order: int = 0) -> None:
        self._tables, self._order = tables, order
        self.spaces = [section_of(b, a, size or state_count(b, a)) for b, a in tables]
        self.kinds = tuple([(space.size, bool(space.near_one)) for space in self.spaces])
        self._numbers: dict[AnyDType, tuple[tuple[Any, ...], ...]] = {}

    def numbers(self, dtype: AnyDType) -> tuple[tuple[Any, ...], ...]:
        """Return the numbers of each section in a dtype: `m` in rows, `c`, `v` and `d`; ``m - 1`` near 1."""
        if dtype not in self._numbers:
            self._numbers[dtype] = tuple([self._numbers_of(space, dtype) for space in self.spaces])
        return self._numbers[dtype]

    @staticmethod
    def _numbers_of(space: Section, dtype: AnyDType) -> tuple[Any, ...]:
        m = space.m - np.eye(space.size) if space.near_one else space.m
        return tuple([dtype.type(value) for value in (*m.ravel(), *space.c, *space.v, space.d)])

    def from_direct(self, states: States) -> States:
        """Return states in the coordinates of the sections, from SciPy's form for each section."""
        if isinstance(states, Array):
            return multiply(self._whole(lambda space: space.from_direct), states)
        return self._convert(states, lambda space: space.from_direct)

    @cached_property
    def to_direct(self) -> StatesMap:
        """The map from the coordinates of the sections to SciPy's form for each section."""
        count, size = len(self.spaces), self.spaces[0].size

        def of_host(states: AnyArray) -> AnyArray:
            return self._directly(states).reshape(count, size, *states.shape[1:])

        return StatesMap(self._whole(lambda space: space.to_direct), (count,), of_host)

    def _directly(self, states: AnyArray) -> AnyArray:
        return self._convert(states, lambda space: space.to_direct)

    def _convert(self, states: AnyArray, matrix_of: Callable[[Section], Floats]) -> AnyArray:
        parts, first = [], 0
        for space in self.spaces:
            matrix, others = matrix_of(space), states.shape[1:]
            flat = states[first : first + space.size].reshape(space.size, prod(others))
            parts.append(np.dot(matrix, flat).reshape(len(matrix), *others))
            first += space.size
        return np.concatenate(parts)

    def _whole(self, matrix_of: Callable[[Section], Floats]) -> Floats:
        """Return one matrix for the states of all sections."""
        count = sum(space.size for space in self.spaces)
        whole, first = np.zeros((count, count)), 0
        for space in self.spaces:
            part = slice(first, first + space.size)
            whole[part, part] = matrix_of(space)
            first += space.size
        return whole

    # ----- The states of a whole filter

    @cached_property
    def _matrix(self) -> Floats:
        return state_matrix(self._tables)

    @cached_property
    def _from_whole(self) -> Floats | None:
        """The inverse of the matrix of `to_whole`; None if it is not exact enough for all states."""
        scale = np.abs(self._matrix).max(axis=0)
        scale[scale == 0] = 1
        square = self._matrix.shape[0] == self._matrix.shape[1]
        if not square or not np.linalg.cond(self._matrix / scale) < _MOST_CONDITION:
            return None
        inverse: Floats = np.linalg.inv(self._matrix / scale) / scale[:, np.newaxis]
        return np.asarray(self._whole(lambda space: space.from_direct) @ inverse)

    def states_from(self, whole: States) -> States | None:
        """Return the states of the sections that stand for states of the whole filter; None if there are none."""
        if isinstance(whole, Array):
            if self._from_whole is not None and len(self._from_whole) == whole.shape[0]:
                return multiply(self._from_whole, whole)
            whole = np.asarray(whole, np.float64)
        matrix = self._matrix
        rows = len(matrix)
        wanted = np.zeros((max(rows, len(whole)), *whole.shape[1:]))
        wanted[: len(whole)] = whole
        if wanted[rows:].any():
            return None
        scale = np.abs(matrix).max(axis=0)
        scale[scale == 0] = 1
        flat = wanted[:rows].reshape(rows, -1)
        states = np.linalg.lstsq(matrix / scale, flat, rcond=None)[0]
        error = np.abs(matrix / scale @ states - flat).max(initial=0)
        if not error <= STATE_TOLERANCE * np.abs(flat).max(initial=0):
            return None
        return self.from_direct(np.asarray(states / scale[:, np.newaxis]).reshape(-1, *whole.shape[1:]))

    @cached_property
    def to_whole(self) -> StatesMap:
        """The map from the coordinates of the sections to the states of the whole filter."""
        order, rows = self._order, len(self._matrix)
        matrix = np.zeros((max(order, rows), self._matrix.shape[1]))
        matrix[:rows] = self._matrix @ self._whole(lambda space: space.to_direct)

        def of_host(states: AnyArray) -> AnyArray:
            whole = np.zeros((max(order, rows), *states.shape[1:]))
            whole[:rows] = np.tensordot(self._matrix, self._directly(states), 1)
            return whole[:order]

        return StatesMap(matrix[:order], (), of_host)


@launchable_with("matrix", data=["matrix"])
def multiply(matrix: Any, states: Array) -> Array:
    """Return the product of a matrix and states on a device, in float64 if the device has it."""
    dtype = np.dtype(np.float64) if states.device.capabilities.float64 else states.dtype
    rest = (1,) * (states.ndim - 1)
    factors = new_array(states.device, matrix.astype(dtype).reshape(*matrix.shape, *rest))
    products = map_arrays(lambda factor, state: factor * state, factors, states[np.newaxis])
    return reduce(products, axis=1)
