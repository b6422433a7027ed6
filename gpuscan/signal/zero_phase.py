"""`filtfilt` and `sosfiltfilt`: filters that run forwards and backwards, so that they shift nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.launches import launchable, launchable_with
from gpuscan.array_types import AnyArray
from gpuscan.errors import abbreviate
from gpuscan.problem.arguments import as_array, as_integer
from gpuscan.signal.filters import (
    coefficients,
    filter_by_sections,
    filter_from,
    run_sections,
    section_table,
    sections_from,
    steady_sections,
)
from gpuscan.signal.sections import Floats, Sections
from gpuscan.signal.signals import Number, Samples, signal_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_PAD_TYPES = ("odd", "even", "constant", None)


@overload
def filtfilt(
    b: ArrayLike,
    a: ArrayLike,
    x: Array,
    axis: int = ...,
    padtype: str | None = ...,
    padlen: int | None = ...,
    method: str = ...,
    irlen: int | None = ...,
) -> Array: ...
@overload
def filtfilt(
    b: ArrayLike,
    a: ArrayLike,
    x: ArrayLike,
    axis: int = ...,
    padtype: str | None = ...,
    padlen: int | None = ...,
    method: str = ...,
    irlen: int | None = ...,
) -> AnyArray: ...
def filtfilt(
    b: ArrayLike,
    a: ArrayLike,
    x: object,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    method: str = "pad",
    irlen: int | None = None,
) -> object:
    """Return a signal filtered forwards and then backwards, as `scipy.signal.filtfilt` does.

    ``y = flip(lfilter(b, a, flip(lfilter(b, a, x))))``. Before that, `x` is extended at both ends, and each pass begins
    in the filter's steady state for its first sample. The result has no delay. The filter's gain is applied twice.

    Args:
        b, a: the coefficients, as in `lfilter`.
        x: the signal, as in `lfilter`.
        axis: the axis of the samples t.
        padtype: how the signal is extended at its end sample e: ``"odd"`` (``2 e - x``, mirrored), ``"even"`` (``x``,
            mirrored), ``"constant"`` (e), or None for no extension.
        padlen: the number of samples to add at each end (default: ``3 * max(len(a), len(b))``).
        method: ``"pad"``. gpuscan does not have SciPy's ``"gust"``.
        irlen: accepted because SciPy has it; ``method="pad"`` does not use it.

    Returns:
        The filtered signal, an array like `x`. Its dtype is as in `lfilter`: float32 stays float32.

    Raises:
        ValueError: the signal is not longer than `padlen`, `padtype` or `method` is unknown, or as `lfilter` raises it.
        TypeError: `padlen` is not an integer, or as `lfilter` raises it.
        LinAlgError: the filter has a pole at 1, and so no steady state.
        NotImplementedError: `method` is ``"gust"``.
        UnsupportedDtypeError: as in `lfilter`.

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> x = np.array([0, 0, 0, 8, 0, 0, 0], np.float32)
        >>> signal.filtfilt([0.5, 0.5], [1], x, padlen=2)
        array([0., 0., 2., 4., 2., 0., 0.], dtype=float32)
    """
    del irlen
    if method == "gust":
        raise NotImplementedError(
            'method="gust" was passed, but gpuscan only extends the signal, method="pad". Call scipy.signal.filtfilt, '
            "on the .numpy() of an array on a device"
        )
    if method != "pad":
        raise ValueError(f'method={abbreviate(method)} was passed; pass "pad"')
    given = as_array(b), as_array(a)
    kinds = "biufc" if "c" in (given[0].dtype.kind, given[1].dtype.kind) else "biuf"
    numerator, denominator = coefficients("b", given[0], kinds), coefficients("a", given[1], kinds)
    taps = max(len(numerator), len(denominator))
    states, sections = _steady_filter(kinds, numerator.tobytes(), denominator.tobytes())

    return _both_ways(
        lambda samples, axis: filter_from(*given, samples, axis, states, steady=True),
        sections,
        states.dtype.kind == "c",
        x,
        axis,
        padtype,
        padlen,
        taps,
    )


@overload
def sosfiltfilt(
    sos: object, x: Array, axis: int = ..., padtype: str | None = ..., padlen: int | None = ...
) -> Array: ...
@overload
def sosfiltfilt(
    sos: object, x: ArrayLike, axis: int = ..., padtype: str | None = ..., padlen: int | None = ...
) -> AnyArray: ...
def sosfiltfilt(
    sos: object, x: object, axis: int = -1, padtype: str | None = "odd", padlen: int | None = None
) -> object:
    """Return a signal filtered by sections forwards and then backwards, as `scipy.signal.sosfiltfilt` does.

    This is `filtfilt` with `sosfilt` instead of `lfilter`: ``y = flip(sosfilt(sos, flip(sosfilt(sos, x))))``.

    Args:
        sos: the sections, as in `sosfilt`.
        x, axis, padtype: as in `filtfilt`.
        padlen: the number of samples to add at each end (default: ``3 * (2 * len(sos) + 1 - z)``, where z is the number
            of zeros or of poles at the origin, whichever is less).

    Returns:
        The filtered signal, an array like `x`.

    Raises:
        ValueError, TypeError, LinAlgError, UnsupportedDtypeError: as `filtfilt` and `sosfilt` do.

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> x = np.array([0, 0, 0, 8, 0, 0, 0], np.float32)
        >>> signal.sosfiltfilt([[0.5, 0.5, 0, 1, 0, 0]], x, padlen=2)
        array([0., 0., 2., 4., 2., 0., 0.], dtype=float32)
    """
    table = section_table(sos)
    taps = 2 * len(table) + 1 - min((table[:, 2] == 0).sum(), (table[:, 5] == 0).sum())
    whole, sections = _steady_sections(table.shape, table.tobytes())
    return _both_ways(
        lambda samples, axis: filter_by_sections(table, samples, axis, whole, steady=True),
        sections,
        False,
        x,
        axis,
        padtype,
        padlen,
        int(taps),
    )


# Sections, and their states, in their coordinates.
_Started: TypeAlias = tuple[Sections, Floats]


@lru_cache(maxsize=64)
def _steady_filter(kinds: str, b: bytes, a: bytes) -> tuple[AnyArray, _Started | None]:
    """Return the steady states of a filter, and its sections with these states; None for a filter without sections."""
    dtype = np.complex128 if "c" in kinds else np.float64
    numerator, denominator = np.frombuffer(b, dtype), np.frombuffer(a, dtype)
    states = _steady_states(numerator, denominator)
    return states, None if "c" in kinds else steady_sections(numerator, denominator, states)


@lru_cache(maxsize=64)
def _steady_sections(shape: tuple[int, ...], content: bytes) -> tuple[Floats, _Started]:
    """Return the steady states of sections, (sections, 2), and the sections with these states."""
    states, gain = [], 1.0
    table = np.frombuffer(content).reshape(shape)
    for row in table:
        states.append(gain * _steady_states(row[:3], row[3:]))
        # The steady state of a section is that for the gain of those before it.
        gain *= row[:3].sum() / row[3:].sum()
    sections = sections_from(shape, content, 2)
    whole = np.array(states)
    return whole, (sections, np.asarray(sections.from_direct(whole.reshape(-1))))


def _both_ways(
    run: Callable[[Samples, int], Samples],
    started: _Started | None,
    is_complex: bool,
    x: object,
    axis: int,
    padtype: str | None,
    padlen: int | None,
    taps: int,
) -> Samples:
    """Return a signal that is extended, filtered forwards and backwards, and cut to its length.

    Args:
        run: filters samples along an axis, from the steady state for the first one.
        started: the sections of the filter in the steady state; None if it has none.
        is_complex: True if the filter has complex coefficients.
        x, axis, padtype, padlen: as in `filtfilt`.
        taps: a third of the default of `padlen`.
    """
    signal = signal_of(x, axis)
    length = signal.length
    edge = _edge(padtype, padlen, taps, length)
    if signal.is_complex:
        samples = x if isinstance(x, Array) else np.asarray(x)
    else:
        # The passes of complex coefficients may need a dtype that no device has.
        samples = (signal if is_complex else signal.on_device(2)).samples
    axis = signal.axis
    if started is not None and isinstance(samples, Array) and not signal.is_complex:
        sections, states = started
        dtype = samples.dtype
        both = _run_both_ways(
            samples, axis, padtype, edge, sections.kinds, sections.numbers(dtype), states.astype(dtype)
        )
        return both if signal.given is not None else both.numpy()
    once = run(_extend_samples(samples, axis, padtype, edge), axis)
    twice = run(once[_along(axis, slice(None, None, -1))], axis)
    inner = twice[_along(axis, slice(None, None, -1))][_along(axis, slice(edge, edge + length))]
    if isinstance(inner, Array):
        return inner.copy() if signal.given is not None else inner.numpy()
    return np.ascontiguousarray(inner)


@launchable_with("numbers", "states")
def _run_both_ways(
    samples: Array,
    axis: int,
    padtype: str | None,
    edge: int,
    kinds: Sequence[tuple[int, bool]],
    numbers: Sequence[Sequence[Number]],
    states: Any,
) -> Array:
    """Return what `_both_ways` does for samples on a device. It is one program for all filters of these kinds.

    Args:
        padtype, edge: how many samples are added at each end, and which.
        kinds, numbers, states: of the sections, as `run_sections` takes them.
    """
    length = samples.shape[axis]
    filtered: Any = _extend_samples(samples, axis, padtype, edge)
    for _ in range(2):
        filtered, _ = run_sections(filtered, axis, kinds, numbers, states, steady=True, has_ends=False)
        filtered = filtered[_along(axis, slice(None, None, -1))]
    inner: Array = filtered[_along(axis, slice(edge, edge + length))]
    return inner.copy()


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * axis, part)


def _edge(padtype: object, padlen: object, taps: int, length: int) -> int:
    """Return how many samples are added at each end.

    Raises:
        ValueError: there are too few samples, `padlen` is negative, or `padtype` is unknown.
        TypeError: `padlen` is not an integer.
    """
    if padtype not in _PAD_TYPES:
        raise ValueError(f'padtype={abbreviate(padtype)} was passed; pass "odd", "even", "constant" or None')
    edge = 3 * taps if padlen is None else as_integer(padlen)
    if edge is None:
        raise TypeError(f"padlen={abbreviate(padlen)} was passed, but it is a number of samples; pass an integer")
    if edge < 0:
        raise ValueError(f"padlen={edge} was passed, but no fewer than 0 samples can be added; pass 0 or more")
    edge = 0 if padtype is None else edge
    if length <= edge:
        raise ValueError(
            f"a signal of {length} samples was passed, but it must be longer than padlen, which is {edge}. Pass a "
            "longer signal, or a smaller padlen"
        )
    return edge


@launchable
def _extend_samples(samples: Any, axis: int, padtype: str | None, edge: int) -> Any:
    """Return the samples with this many more at each end."""
    if not edge:
        return samples
    first, last = (samples[_along(axis, part)] for part in (slice(0, 1), slice(-1, None)))
    if padtype == "constant":
        shape = (*samples.shape[:axis], edge, *samples.shape[axis + 1 :])
        ends = [np.broadcast_to(end, shape) for end in (first, last)]
    else:
        ends = [samples[_along(axis, slice(edge, 0, -1))], samples[_along(axis, slice(-2, -edge - 2, -1))]]
    if padtype == "odd":
        ends = [2 * first - ends[0], 2 * last - ends[1]]
    return np.concatenate([ends[0], samples, ends[1]], axis)


def _steady_states(b: AnyArray, a: AnyArray) -> Floats:
    """Return the states, in SciPy's form, in which the filter's answer to ones is constant: `scipy.signal.lfilter_zi`.

    Raises:
        LinAlgError: there are none.
    """
    size = max(len(a), len(b))
    b, a = (np.pad(part / a[0], (0, size - len(part))) for part in (b, a))
    # The states are s = A s + B for the transposed direct form II.
    matrix = np.eye(size - 1, dtype=a.dtype) - np.eye(size - 1, k=1)
    matrix[:, :1] += a[1:, np.newaxis]
    try:
        states: Floats = np.linalg.solve(matrix, b[1:] - a[1:] * b[0])
    except np.linalg.LinAlgError:
        raise np.linalg.LinAlgError(
            "a filter with a pole at 1 was passed, which has no steady state for the passes to begin in. Filter with "
            "lfilter, or remove the pole"
        ) from None
    return states
