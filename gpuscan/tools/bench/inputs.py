"""The inputs of a case, and the expected results at its last element and 1,000 random ones.

Floats are small integers and signs, so that their sums and products are exact in any order of combination: a result is
right to the bit, or wrong. The inputs of running maxima and similar operators keep rising. Over plain random numbers
the maximum stops changing after a few elements, and a constant result would seem right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gpuscan.tools.bench.cases import Case, RecurrenceCase, ScanCase, SortCase

Array = np.ndarray[Any, Any]

# The elements, rows and lanes (batch and channel) at which results are checked.
SAMPLES = 1000
ROWS_SAMPLED = 8
LANES_SAMPLED = 32

# The number of elements that are made at a time.
PIECE = 1 << 22

# The 2 x 2 matrices with one entry of 1 or -1 in each row and column. Their products are matrices of the same kind.
SIGNED_PERMUTATIONS = np.array(
    [[[s, 0], [0, t]] for s in (1, -1) for t in (1, -1)] + [[[0, s], [t, 0]] for s in (1, -1) for t in (1, -1)]
)


@dataclass(frozen=True)
class Inputs:
    """A case with its arrays.

    Attributes:
        case: what is measured.
        arrays: one (rows, length, *element shape) for each field; or a, b and the gradient by h of a recurrence.
        indices: the sampled elements in memory order. The array's last element is the last of them.
        expected: the values of each output at the indices.
    """

    case: Case
    arrays: tuple[Array, ...]
    indices: Array
    expected: tuple[Array, ...]

    def error(self, outputs: list[Array]) -> float:
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
        return 0.0 if dtype.kind in "biu" else float(np.sqrt(_epsilon(dtype)))


def make_inputs(case: Case, seed: int = 0) -> Inputs:
    """Return random inputs, and NumPy's results in the widest type."""
    rng = np.random.default_rng(seed)
    if isinstance(case, SortCase):
        return _sort(case, rng)
    return _recurrence(case, rng) if isinstance(case, RecurrenceCase) else _scan(case, rng)


# ----- Sorts


def _sort(case: SortCase, rng: np.random.Generator) -> Inputs:
    shape = (case.rows, case.length)
    if case.dtype.kind in "biu":
        keys = _bits(case.dtype, case.elements, rng).reshape(shape)
    else:
        keys = rng.standard_normal(shape, np.float32).astype(case.dtype)
    indices = np.append(np.sort(rng.integers(0, case.elements, SAMPLES)), case.elements - 1)
    return Inputs(case, (keys,), indices, (np.sort(keys, axis=1).reshape(-1)[indices],))


# ----- Scans


def _scan(case: ScanCase, rng: np.random.Generator) -> Inputs:
    ops = ("multiply", "add") if case.fields == 2 else (case.op,)
    arrays = tuple(_filled(op, case, rng) for op in ops)
    chosen = np.sort(rng.choice(case.rows, min(case.rows, ROWS_SAMPLED), replace=False))
    chosen[-1] = case.rows - 1
    indices, columns = [], []
    for row in chosen:
        places = np.sort(rng.integers(0, case.length, -(-SAMPLES // len(chosen))))
        places = np.append(places, case.length - 1)
        indices.append(row * case.length + places)
        columns.append(prefixes_at(case.operator.function, tuple(a[row] for a in arrays), places))
    expected = tuple(np.concatenate(parts).astype(case.dtype) for parts in zip(*columns, strict=True))
    return Inputs(case, arrays, np.concatenate(indices), expected)


def prefixes_at(function: Callable[[Any, Any], Any] | None, x: tuple[Array, ...], places: Array) -> tuple[Array, ...]:
    """Return the scan of a bundle at some indices, in 64 bits.

    The blocks are scanned together, a column at a time, and then their totals one after the other.
    """
    assert function is not None  # every operator of a case has one
    length = len(x[0])
    width = max(1, int(length**0.5))

    def combine(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
        result = function(left, right) if len(x) > 1 else (function(left[0], right[0]),)
        return tuple(np.asarray(part) for part in result)

    with np.errstate(all="ignore"):
        local: list[tuple[Array, ...]] = [()] * len(places)
        running = tuple(_wide(field[::width]).copy() for field in x)
        for column in range(width):
            if column:
                right = tuple(_wide(field[column::width]) for field in x)
                count = len(right[0])
                parts = combine(tuple(field[:count] for field in running), right)
                for field, part in zip(running, parts, strict=True):
                    field[:count] = part
            for sample in np.flatnonzero(places % width == column):
                local[sample] = tuple(field[places[sample] // width].copy() for field in running)
        prefixes = [tuple(field[0] for field in running)]
        for block in range(1, len(running[0])):
            prefixes.append(combine(prefixes[-1], tuple(field[block] for field in running)))
        found = [
            value if place < width else combine(prefixes[place // width - 1], value)
            for place, value in zip(places, local, strict=True)
        ]
    return tuple(np.array(values) for values in zip(*found, strict=True))


def _wide(array: Array) -> Array:
    """Return floats in 64 bits. Integers keep their type, because they wrap."""
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _filled(op: str, case: ScanCase, rng: np.random.Generator) -> Array:
    array = np.empty((case.rows, case.length, *case.element_shape), case.dtype)
    flat = array.reshape(case.elements, *case.element_shape)
    for start in range(0, case.elements, PIECE):
        stop = min(start + PIECE, case.elements)
        position = (np.arange(start, stop) % case.length) / case.length
        flat[start:stop] = _values(op, case.dtype, position, rng)
    return array


def _values(op: str, dtype: np.dtype[Any], position: Array, rng: np.random.Generator) -> Array:
    """Return elements for positions from 0 to 1 along their row."""
    count, kind = len(position), dtype.kind
    floats = kind not in "biu"
    if op == "add":
        if floats:
            reach = 4 if dtype.itemsize > 2 else 1
            values = rng.integers(-reach, reach + 1, count)
            return values + 1j * rng.integers(-reach, reach + 1, count) if kind == "c" else values
        return _bits(dtype, count, rng)
    if op == "multiply":
        return rng.choice(_roots(kind), count) if floats else _bits(dtype, count, rng) | dtype.type(1)
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


def _roots(kind: str) -> Array:
    return np.array([1, -1, 1j, -1j]) if kind == "c" else np.array([1, -1])


def _bits(dtype: np.dtype[Any], count: int, rng: np.random.Generator) -> Array:
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)


# ----- Recurrences


def _recurrence(case: RecurrenceCase, rng: np.random.Generator) -> Inputs:
    def made(low: float, high: float) -> Array:
        array = np.empty(case.elements, case.dtype)
        for start in range(0, case.elements, PIECE):
            piece = array[start : start + PIECE]
            piece[:] = rng.uniform(low, high, len(piece))
        return array.reshape(case.shape)

    arrays = (made(0.9, 1.0), made(-1.0, 1.0), *((made(-1.0, 1.0),) if case.backward else ()))
    lanes = rng.integers(0, case.batch * case.channels, LANES_SAMPLED)
    lanes[-1] = case.batch * case.channels - 1
    lane = rng.integers(0, len(lanes), SAMPLES + 1)
    times = rng.integers(0, case.sequence, SAMPLES + 1)
    lane[-1], times[-1] = len(lanes) - 1, case.sequence - 1
    batch, channel = np.divmod(lanes, case.channels)
    indices = (batch[lane] * case.sequence + times) * case.channels + channel[lane]
    taken = [array[batch, :, channel].astype(np.float64) for array in arrays]  # (lanes, sequence)
    outputs = recurrence_reference(*taken)
    expected = tuple(output[lane, times].astype(case.dtype) for output in outputs)
    return Inputs(case, arrays, indices, expected)


def recurrence_reference(a: Array, b: Array, grad_h: Array | None = None) -> tuple[Array, ...]:
    """Compute h step by step along the last axis, and with `grad_h` also the gradients by `a` and `b`."""
    h = np.empty_like(b)
    carry = np.zeros_like(b[..., 0])
    for t in range(b.shape[-1]):
        carry = a[..., t] * carry + b[..., t]
        h[..., t] = carry
    if grad_h is None:
        return (h,)
    grad_b = np.empty_like(b)
    carry = np.zeros_like(b[..., 0])
    for t in reversed(range(b.shape[-1])):
        carry = grad_h[..., t] + carry
        grad_b[..., t] = carry
        carry = a[..., t] * carry
    before = np.concatenate([np.zeros_like(h[..., :1]), h[..., :-1]], axis=-1)
    return h, grad_b * before, grad_b


# ----- Numbers


@cache
def _epsilon(dtype: np.dtype[Any]) -> float:
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps)
