"""Filters as chains of second-order sections, and sections as state spaces.

All of it is in float64 on a few numbers, once for each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.array_types import AnyArray

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

# A pole within this distance of 1 makes a filter slow: its decay for each sample is stored as the difference from 1,
# because float32 holds 0.9999 only to 6e-8, which is 0.06 % of the distance.
NEAR_ONE = 1 / 64


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
    padded: Floats = np.concatenate([coefficients, np.zeros(length - len(coefficients))])
    return padded


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
