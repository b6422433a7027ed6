"""The cases to measure: one operator, dtype and shape, one linear recurrence, or one sort."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuscan.operators.named_operators import resolve
from gpuscan.operators.operator import Operator, operator

AFFINE = operator(lambda l, r: (l[0] * r[0], r[0] * l[1] + r[1]), identity=(1, 0), name="affine")

# The name of a sort among the operators of the command line.
SORT = "sort"
# The side of the matrices that matmul multiplies.
MATRIX_SIDE = 2


@dataclass(frozen=True)
class ScanCase:
    """A scan along the rows of an array (rows, length).

    Attributes:
        op: an operator's name; ``"affine"`` is the composition of maps ``x -> a x + b``, a bundle (a, b).
        dtype: the type of every field.
        length: the number of elements of a row.
        rows: the number of rows. Each is scanned separately.
    """

    op: str
    dtype: np.dtype[Any]
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
        return (MATRIX_SIDE,) * self.operator.element_axes

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

    def describe(self) -> dict[str, Any]:
        return {"op": self.op, "dtype": str(self.dtype), "length": self.length, "rows": self.rows}


@dataclass(frozen=True)
class RecurrenceCase:
    """The linear recurrence ``h[t] = a[t] h[t-1] + b[t]`` along axis 1 of arrays (batch, sequence, channels).

    Attributes:
        dtype: the type of `a`, `b` and `h`.
        backward: True to compute the gradients by `a` and `b` as well.
    """

    batch: int
    sequence: int
    channels: int
    dtype: np.dtype[Any]
    backward: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.batch, self.sequence, self.channels

    @property
    def elements(self) -> int:
        return self.batch * self.sequence * self.channels

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written: a, b and h; for the gradients also a, h and three gradients."""
        return (8 if self.backward else 3) * self.elements * self.dtype.itemsize

    @property
    def series(self) -> str:
        return f"linear recurrence {self.dtype}, {'forward and backward' if self.backward else 'forward'}"

    @property
    def size(self) -> str:
        return f"{self.batch} × {self.sequence} × {self.channels}"

    def describe(self) -> dict[str, Any]:
        return {
            "op": "linear_recurrence",
            "dtype": str(self.dtype),
            "shape": list(self.shape),
            "axis": 1,
            "backward": self.backward,
        }


@dataclass(frozen=True)
class SortCase:
    """A sort along the rows of an array (rows, length).

    Attributes:
        dtype: the type of the keys.
        length: the number of keys in a row.
        rows: the number of rows. Each is sorted separately.
    """

    dtype: np.dtype[Any]
    length: int
    rows: int = 1

    @property
    def elements(self) -> int:
        return self.rows * self.length

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written if every key moves twice."""
        return 2 * self.elements * self.dtype.itemsize

    @property
    def series(self) -> str:
        return f"{SORT} {self.dtype}{f', {self.rows} rows' if self.rows > 1 else ''}"

    @property
    def size(self) -> str:
        return power_or_number(self.elements)

    def describe(self) -> dict[str, Any]:
        return {"op": SORT, "dtype": str(self.dtype), "length": self.length, "rows": self.rows}


Case = ScanCase | RecurrenceCase | SortCase


def power_or_number(number: int) -> str:
    """Return ``2^20`` for a power of two from 1,024 on, else the digits."""
    if number >= 1024 and number & (number - 1) == 0:
        return f"2^{number.bit_length() - 1}"
    return f"{number:,}"
