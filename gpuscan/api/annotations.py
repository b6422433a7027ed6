"""The types in the signatures of the public functions. Only type checkers import this module.

A function that returns what it is given has overloads: a `gpuscan.Array` gives an `Array`, a NumPy array one of its
dtype, a bundle the same bundle. Options that all overloads share are the keys of a dictionary type. Where a function of
the caller decides what comes out, the result is Any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from gpuscan.api.array import Array
from gpuscan.api.call_device import Devices, Distributed
from gpuscan.api.device import Device
from gpuscan.array_types import AnyArray, ArrayOperators
from gpuscan.operators.operator import Operator
from gpuscan.planning.strategies import Strategy

# ----- Arrays

L = TypeVar("L", covariant=True)


class ListOf(Protocol[L]):
    """A list. Other than `list[Bundle]`, `ListOf[Bundle]` is also a list of one type of bundles, such as arrays."""

    def __iter__(self) -> Iterator[L]: ...
    def reverse(self) -> None: ...


# What functions of arrays take and return, nested as the caller likes. Type checkers may infer that a dict or a list of
# arrays of several dtypes has objects as its values.
Bundle: TypeAlias = (
    "Array | Distributed | AnyArray | tuple[Bundle, ...] | ListOf[Bundle] | list[object] | Mapping[str, object]"
)
# Several arrays of any dtypes.
Several: TypeAlias = tuple[Any, ...] | dict[str, Any] | ListOf[Array | AnyArray] | list[object]
# An array that is in NumPy, a number, or a list of numbers.
Plain: TypeAlias = AnyArray | complex | np.generic | Sequence[complex]
# Bundles that come out as they went in, and what a call writes to.
B = TypeVar("B", bound=Bundle)
C = TypeVar("C", bound=Bundle)
# The type of the numbers of a NumPy array, and the one that `dtype=` asks for.
S = TypeVar("S", bound=np.generic)
T = TypeVar("T", bound=np.generic)
# Floats and complex numbers, which keep their dtype when they are summed.
F = TypeVar("F", bound=np.inexact[Any])
DTypeOf: TypeAlias = type[T] | np.dtype[T]
# A NumPy array with numbers of a type, in any shape.
Of: TypeAlias = np.ndarray[Any, np.dtype[S]]
Axes: TypeAlias = int | tuple[int, ...] | None

# ----- Functions of the caller

# The operator of a scan.
Operation: TypeAlias = str | np.ufunc | Operator | Callable[..., object]

# The step of a loop: the carry and an element to the next carry, or to a pair of it and an output.
Step: TypeAlias = Callable[[Any, Any], object]
# A function that is fused into a kernel.
Mapped: TypeAlias = Callable[..., object]


class Value(ArrayOperators):
    """What a function of the caller gets while it is traced: a NumPy array, to all appearances, or a bundle of them."""

    def __getitem__(self, index: object, /) -> Value: ...  # type: ignore[empty-body]
    def __iter__(self) -> Iterator[Value]: ...  # type: ignore[empty-body]
    def __array__(self) -> AnyArray: ...  # type: ignore[empty-body]
    def __getattr__(self, name: str, /) -> Any: ...


# The arguments of a function that the caller has given types.
P = TypeVar("P")
Q = TypeVar("Q")

# ----- Options that the overloads of a function share


class Cuts(TypedDict, total=False):
    """Where the rows of a scan restart, and what they begin with."""

    initial: object
    segments: ArrayLike | None
    keys: object


class ScanOptions(Cuts, total=False):
    """The options of `gpuscan.scan` that do not decide the type of its result."""

    axis: int | None
    exclusive: bool
    reverse: bool
    groups: object
    compensated: bool
    device: Devices
    strategy: Strategy
    reproducible: str | None


class ScanInKind(ScanOptions, total=False):
    """The options of a scan that returns a result like its input, except for the dtype."""

    out: None
    before: None
    after: None


class PlainScan(ScanInKind, total=False):
    """The same, without the total."""

    return_total: Literal[False]


class ScanInto(ScanOptions, total=False):
    """The options of a scan that writes to `out`."""

    dtype: DTypeLike | None
    before: Mapped | None
    after: Mapped | None
    return_total: Literal[False]


class MappedScan(ScanOptions, total=False):
    """The options of a scan with a function of the caller, which decides what its results are."""

    dtype: DTypeLike | None
    out: None
    return_total: Literal[False]


class AnyScan(ScanOptions, total=False):
    """All options of a scan but for `return_total`."""

    dtype: DTypeLike | None
    out: Bundle | None
    before: Mapped | None
    after: Mapped | None


class EveryScan(AnyScan, total=False):
    """All options of a scan."""

    return_total: bool


class ChunkOptions(TypedDict, total=False):
    """The options of `gpuscan.scan_chunks` that do not decide the type of its results."""

    exclusive: bool
    initial: object
    segments: ArrayLike | None
    keys: Iterable[object] | None
    compensated: bool
    device: Devices
    strategy: Strategy
    reproducible: str | None


class PlainChunks(ChunkOptions, total=False):
    """The options of a scan of chunks with results like the chunks, except for the dtype."""

    before: None
    after: None


class MappedChunks(ChunkOptions, total=False):
    """The options of a scan of chunks with a function of the caller, which decides what the results are."""

    dtype: DTypeLike | None


class ReduceOptions(TypedDict, total=False):
    """The options of `gpuscan.reduce` that never decide the type of its result."""

    initial: object
    num_groups: SupportsIndex | None
    device: Devices
    reproducible: str | None


class ReduceInto(ReduceOptions, total=False):
    """All options of a reduction but for `out`."""

    axis: Axes
    keepdims: bool
    segments: ArrayLike | None
    groups: object
    dtype: DTypeLike | None
    before: Mapped | None
    after: Mapped | None


class AnyReduction(ReduceInto, total=False):
    """All options of a reduction."""

    out: None


class PlainReduction(ReduceOptions, total=False):
    """The options of a reduction that returns results like its input, except for the dtype."""

    axis: Axes
    keepdims: bool
    segments: ArrayLike | None
    groups: object
    out: None
    before: None
    after: None


class WholeReduction(ReduceOptions, total=False):
    """The options of a reduction to one element."""

    axis: None
    keepdims: Literal[False]
    segments: None
    groups: None
    out: None
    before: None
    after: None


class MapOptions(TypedDict, total=False):
    """The options of `gpuscan.map` without an array to write to."""

    out: None
    device: Device | str | int | None


class SortOptions(TypedDict, total=False):
    """The options of `gpuscan.sort` and `gpuscan.argsort`."""

    axis: int | None
    descending: bool
    stable: bool
    device: Device | str | int | None


class CumulativeOptions(TypedDict, total=False):
    """The options of the array API's cumulative functions."""

    axis: int | None
    include_initial: bool
    device: Devices


class NewSums(CumulativeOptions, total=False):
    """The same without an array to write to."""

    out: None


class RecurrenceOptions(TypedDict, total=False):
    """The options of `gpuscan.linear_recurrence`."""

    axis: int
    initial: ArrayLike | None
    reverse: bool
    device: Devices
    reproducible: str | None


class RecurrenceGradientOptions(TypedDict, total=False):
    """The options of `gpuscan.linear_recurrence_vjp`, but for `initial`."""

    axis: int
    reverse: bool
    reproducible: str | None


class ScanGradientOptions(TypedDict, total=False):
    """The options of `gpuscan.scan_vjp`, but for `initial`."""

    axis: int | None
    exclusive: bool
    reverse: bool
    segments: ArrayLike | None
    keys: object
    reproducible: str | None


class DecayOptions(TypedDict, total=False):
    """The options of `gpuscan.signal.ewm_mean`."""

    alpha: float | None
    com: float | None
    span: float | None
    halflife: float | None
    axis: int
    adjust: bool


class VarianceOptions(DecayOptions, total=False):
    """The options of `gpuscan.signal.ewm_var`."""

    bias: bool


class QuantileOptions(TypedDict, total=False):
    """The options of `gpuscan.quantile` and `gpuscan.median`, but for the axes."""

    keepdims: bool
    device: Devices
