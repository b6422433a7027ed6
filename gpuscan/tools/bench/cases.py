"""The cases to measure, their inputs, and the expected results at the last element and 1,000 random ones.

Floats are small integers and signs, so that their sums and products are exact in any order of combination: a result is
right to the bit, or wrong. The inputs of running maxima and similar operators keep rising. Over plain random numbers
the maximum stops changing after a few elements, and a constant result would seem right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

import gpuscan as gs
from gpuscan.array_types import AnyArray as Array
from gpuscan.array_types import AnyDType
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator, operator

T = TypeVar("T")

AFFINE = operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")

# The name of a sort among the operators of the command line.
SORT = "sort"
# The side of the matrices that matmul multiplies.
MATRIX_SIDE = 2

# The number of elements at which results are checked.
SAMPLES = 1000

# The number of elements that are made at a time.
PIECE = 1 << 22

# The 2 x 2 matrices with one entry of 1 or -1 in each row and column. Their products are matrices of the same kind.
SIGNED_PERMUTATIONS = np.array(
    [[[s, 0], [0, t]] for s in (1, -1) for t in (1, -1)] + [[[0, s], [t, 0]] for s in (1, -1) for t in (1, -1)]
)


@dataclass(frozen=True)
class Inputs:
    """The arrays of a case.

    Attributes:
        arrays: what contenders load: one (rows, length, *element shape) for each field of a scan.
        indices: the sampled elements in memory order. The array's last element is the last of them.
        expected: the values of each output at the indices.
    """

    arrays: tuple[Array, ...]
    indices: Array
    expected: tuple[Array, ...]

    def error(self, outputs: Sequence[Array]) -> float:
        """Return the largest difference, relative to the expected value or to 1; 0.0 if all values are exact."""
        worst = 0.0
        for got, wanted in zip(outputs, self.expected, strict=True):
            got = np.asarray(got).reshape(wanted.shape)
            differs = got != wanted
            if not differs.any():
                continue
            if wanted.dtype.kind in "biu":
                return float("inf")
            wide = np.result_type(np.float64, wanted.dtype) if wanted.dtype.kind in "fc" else np.dtype(np.float64)
            g, w = got[differs].astype(wide), wanted[differs].astype(wide)
            share = float(np.max(np.abs(g - w) / np.maximum(1, np.abs(w))))
            worst = max(worst, share if np.isfinite(share) else float("inf"))
        return worst

    @property
    def tolerance(self) -> float:
        """The largest error that rounding explains."""
        dtype = self.expected[0].dtype
        if dtype.kind in "biu":
            return 0.0
        return float(np.sqrt(2.0**-7 if dtype.name == "bfloat16" else np.finfo(dtype).eps))


@dataclass(frozen=True)
class ScanCase:
    """A scan or a sort along the rows of an array (rows, length).

    Attributes:
        op: an operator's name, or ``"sort"``; ``"affine"`` composes maps ``x -> a x + b``, each a bundle (a, b).
        dtype: the type of every field.
        length: the number of elements of a row.
        rows: the number of rows. Each is scanned separately.
    """

    op: str
    dtype: AnyDType
    length: int
    rows: int = 1

    @property
    def operator(self) -> Operator:
        return AFFINE if self.op == AFFINE.name else resolve(self.op)

    @property
    def fields(self) -> int:
        return 2 if self.op == AFFINE.name else 1

    @property
    def element_shape(self) -> tuple[int, ...]:
        return () if self.op == SORT else (MATRIX_SIDE,) * self.operator.element_axes

    @property
    def elements(self) -> int:
        return self.rows * self.length

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written if every element moves twice."""
        return 2 * self.elements * self.fields * int(np.prod(self.element_shape)) * self.dtype.itemsize

    @property
    def series(self) -> str:
        """What cases of other sizes have in common."""
        rows = f", {self.rows} rows" if self.rows > 1 else ""
        return f"{self.op} {self.dtype}{rows}"

    @property
    def size(self) -> str:
        return power_or_number(self.elements)

    def describe(self) -> dict[str, object]:
        return {"op": self.op, "dtype": str(self.dtype), "length": self.length, "rows": self.rows}

    def arrays(self, seed: int = 0) -> tuple[Array, ...]:
        """Return random arrays, one for each field."""
        rng = np.random.default_rng(seed)
        ops = ("multiply", "add") if self.fields == 2 else (self.op,)
        return tuple(self._fill(op, rng) for op in ops)

    def inputs(self) -> Inputs:
        """Return random arrays, the same every time, and the results that `gpuscan` computes on NumPy.

        Raises:
            MemoryError: the arrays do not fit.
        """
        arrays = self.arrays()
        indices = np.append(np.random.default_rng(1).integers(0, self.elements, SAMPLES), self.elements - 1)
        if self.op == SORT:
            results: Array | tuple[Array, ...] = gs.sort(arrays[0], axis=1, device="numpy")
        else:
            results = gs.scan(bundle(arrays), self.operator, axis=1, device="numpy")
        outputs = results if isinstance(results, tuple) else (results,)
        shape = (self.elements, *self.element_shape)
        return Inputs(arrays, indices, tuple(output.reshape(shape)[indices] for output in outputs))

    def _fill(self, op: str, rng: np.random.Generator) -> Array:
        array = np.empty((self.rows, self.length, *self.element_shape), self.dtype)
        flat = array.reshape(self.elements, *self.element_shape)
        for start in range(0, self.elements, PIECE):
            stop = min(start + PIECE, self.elements)
            position = (np.arange(start, stop) % self.length) / self.length
            flat[start:stop] = _values(op, self.dtype, position, rng)
        return array


def bundle(arrays: Sequence[T]) -> T | tuple[T, ...]:
    """Return the arrays as `gpuscan.scan` takes them: one, or a tuple of several."""
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def power_or_number(number: int) -> str:
    """Return ``2^20`` for a power of two from 1,024 on, else the digits."""
    if number >= 1024 and number & (number - 1) == 0:
        return f"2^{number.bit_length() - 1}"
    return f"{number:,}"


def takes(op: str, dtype: AnyDType) -> bool:
    """Return True if the operator combines elements of the dtype, or if a sort orders them."""
    if op == SORT:
        return dtype.kind != "c"
    case = ScanCase(op, dtype, 1)
    if case.fields > 1 and dtype.kind == "b":
        return False  # affine maps would add truth values
    try:
        x = bundle([np.zeros((1, *case.element_shape), dtype)] * case.fields)
        gs.scan(x, case.operator, axis=0, device="numpy")
    except (TypeError, ValueError):
        return False
    return True


def _values(op: str, dtype: AnyDType, position: Array, rng: np.random.Generator) -> Array:
    """Return elements for positions from 0 to 1 along their row."""
    count, kind = len(position), dtype.kind
    floats = kind not in "biu"
    if op == SORT:
        return rng.standard_normal(count, np.float32) if floats else _bits(dtype, count, rng)
    if op == "add":
        if floats:
            reach = 4 if dtype.itemsize > 2 else 1
            values = rng.integers(-reach, reach + 1, count)
            return values + 1j * rng.integers(-reach, reach + 1, count) if kind == "c" else values
        return _bits(dtype, count, rng)
    if op == "multiply":
        roots = [1, -1, 1j, -1j] if kind == "c" else [1, -1]
        return rng.choice(roots, count) if floats else _bits(dtype, count, rng) | dtype.type(1)
    if op == "matmul":
        if floats:
            return SIGNED_PERMUTATIONS[rng.integers(0, len(SIGNED_PERMUTATIONS), count)]
        return _bits(dtype, 4 * count, rng).reshape(count, 2, 2)
    if kind == "b" and op not in ("logical_xor", "bitwise_xor"):
        turned = (position > 0.5) & _bits(dtype, count, rng)
        return turned if op in ("logical_or", "bitwise_or", "maximum", "fmax") else ~turned
    if op in ("minimum", "maximum", "fmin", "fmax"):
        top = {1: 100.0, 2: 30_000.0}.get(dtype.itemsize, 1e6)
        rising = np.floor((0.9 * position + 0.1 * rng.random(count)) * top)
        return (rising if op in ("maximum", "fmax") else top - rising).astype(dtype)
    if op in ("bitwise_or", "bitwise_and"):
        bits = 8 * dtype.itemsize
        one = np.where(rng.random(count) < 0.5, np.uint64(1) << (position * bits).astype(np.uint64), np.uint64(0))
        masks = one.astype(f"u{dtype.itemsize}")
        return (masks if op == "bitwise_or" else ~masks).view(dtype)
    if op in ("logaddexp", "logaddexp2", "hypot"):
        return rng.uniform(-1, 1, count)
    if op == "gcd":  # 1 or 3 times a power of two that falls along the row
        powers = ((1 - position) * (8 * dtype.itemsize - 3)).astype(np.uint64)
        return ((rng.integers(0, 2, count, dtype=np.uint64) * 2 + 1) << powers).astype(dtype)
    return _bits(dtype, count, rng)


def _bits(dtype: AnyDType, count: int, rng: np.random.Generator) -> Array:
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
