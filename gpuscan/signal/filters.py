"""`lfilter` and `sosfilt`: recursive filters, by scans of affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gpuscan.api.array import Array, as_some_array
from gpuscan.api.call_device import takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.map import map as map_arrays
from gpuscan.api.numpy_calls import read_results
from gpuscan.api.reduce import reduce
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.engine.convolution import convolve
from gpuscan.operators.operator import Operator, operator
from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.problem.arguments import as_array
from gpuscan.reference import stages
from gpuscan.signal.sections import Floats, Sections, StatesMap, multiply, sections_of, trim_zeros
from gpuscan.signal.signals import Fields, Number, Samples, Signal, last_samples, signal_of, states_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The most zeros that a filter may have beyond the number of its poles. With more, the numerator is convolved with the
# signal, because the computed roots of long polynomials are too far from exact.
MAX_FURTHER_ZEROS = 4


@overload
def lfilter(b: ArrayLike, a: ArrayLike, x: Array, axis: int = ..., zi: None = ...) -> Array: ...
@overload
def lfilter(b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = ..., zi: None = ...) -> AnyArray: ...
@overload
def lfilter(b: ArrayLike, a: ArrayLike, x: Array, axis: int = ..., zi: ArrayLike = ...) -> tuple[Array, Array]: ...
@overload
def lfilter(
    b: ArrayLike, a: ArrayLike, x: ArrayLike, axis: int = ..., zi: ArrayLike = ...
) -> tuple[AnyArray, AnyArray]: ...
def lfilter(b: ArrayLike, a: ArrayLike, x: object, axis: int = -1, zi: ArrayLike | None = None) -> object:
    """Return a signal filtered by a rational transfer function, as `scipy.signal.lfilter` does.

    ``a[0] y[t] = b[0] x[t] + b[1] x[t-1] + … - a[1] y[t-1] - a[2] y[t-2] - …``

    The filter is factored into second-order sections. Each section is one scan of affine maps of its two states. The
    sections have a form in which rounding errors stay small. So results in float32 are often much more accurate than
    SciPy's loop in float32. Filters that ring for a million samples keep two or three digits. New coefficients compile
    no new kernels.

    Args:
        b: the coefficients of the numerator, a 1-D sequence. Complex coefficients take two filters: one for their real
            parts, one for their imaginary parts.
        a: the coefficients of the denominator, a 1-D sequence; ``a[0]`` is not 0. Complex coefficients double the
            order: numerator and denominator are multiplied by the conjugate of the denominator.
        x: the signal: a NumPy array, anything `np.asarray` takes, or a `gpuscan.Array`.
        axis: the axis of the samples t.
        zi: the states before the first sample, in SciPy's form (transposed direct form II). It has the shape of `x`,
            but the length ``max(len(a), len(b)) - 1`` along the axis; other axes may have length 1.
            `scipy.signal.lfilter_zi` makes such states.

    Returns:
        The filtered signal y, an array like `x`; with `zi`, the pair ``(y, zf)``, where `zf` are the states after the
        last sample. A signal of float32 or complex64 keeps its dtype. In SciPy, the result has the dtype of the
        coefficients if it is wider; pass ``x.astype(np.float64)`` for that. Integers become float64, and 16-bit floats
        become float32. If `a`, `b` or `zi` is complex, the result is complex. float64 runs on the device if it has
        64-bit floats, else on NumPy.

    Raises:
        ValueError: ``a[0]`` is 0, the coefficients are not 1-D, or the axis or the shape of `zi` does not fit.
        TypeError: the coefficients or the signal are not numbers.
        UnsupportedDtypeError: a `gpuscan.Array` has a dtype that its adapter does not combine.

    Sources: Blelloch, "Prefix Sums and Their Applications" (1990), section 1.4, for recurrences of affine maps; Gold &
    Rader, "Effects of Parameter Quantization on the Poles of a Digital Filter" (1967), for the coupled form.

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> signal.lfilter([0.5], [1, -0.5], np.ones(4, np.float32))
        array([0.5   , 0.75  , 0.875 , 0.9375], dtype=float32)
    """
    return filter_from(b, a, x, axis, zi)


def filter_from(b: ArrayLike, a: ArrayLike, x: Any, axis: int, zi: Any, *, steady: bool = False) -> Any:
    """Return what `lfilter` does.

    With `steady`, `zi` are the states of the filter for a constant signal of 1, (states,). They are multiplied by the
    first sample, where it is, and the filtered signal alone is returned.
    """
    b, a = as_array(b), as_array(a)
    if "c" in (a.dtype.kind, b.dtype.kind):
        if steady:
            first = np.asarray(x[(*[slice(None)] * axis, slice(0, 1))])
            zi = zi.reshape(-1, *[1] * (first.ndim - axis - 1)) * first
        result = (_with_complex_poles if a.dtype.kind == "c" else _sum_of_parts)(b, a, x, axis, zi)
        return result[0] if steady else result
    transfer = _transfer_of(b, a)
    signal = signal_of(x, axis, None if steady else zi)
    has_ends = zi is not None and not steady
    start = states_of(zi, signal, transfer.order) if has_ends else zi
    if not signal.samples.nbytes:
        return signal.answer(signal.samples, np.asarray(start, np.float64) if has_ends else None)
    sections = transfer.sections
    if sections is not None:
        states = None if start is None else sections.states_from(start)
        if start is None or states is not None:
            y, ends = _through(signal, sections, states, steady, sections.to_whole if has_ends else None)
            return signal.answer(y, ends)
    if isinstance(start, Array):
        start = np.asarray(start, np.float64)
    x = signal.samples
    start = _scale_states(start, np.asarray(signal.first)) if steady else start
    y = _convolve_signal(signal, transfer.numerator, start)
    if transfer.poles is not None:
        y, _ = _through(signal.with_samples(y), transfer.poles, None)
    if not has_ends:
        return signal.answer(y, None)
    ends = _direct_states(transfer.numerator, transfer.denominator, signal.length, signal.axis, x, y, start)
    return signal.answer(y, ends)


@overload
def sosfilt(sos: object, x: Array, axis: int = ..., zi: None = ...) -> Array: ...
@overload
def sosfilt(sos: object, x: ArrayLike, axis: int = ..., zi: None = ...) -> AnyArray: ...
@overload
def sosfilt(sos: object, x: Array, axis: int = ..., zi: ArrayLike = ...) -> tuple[Array, Array]: ...
@overload
def sosfilt(sos: object, x: ArrayLike, axis: int = ..., zi: ArrayLike = ...) -> tuple[AnyArray, AnyArray]: ...
def sosfilt(sos: object, x: object, axis: int = -1, zi: ArrayLike | None = None) -> object:
    """Return a signal filtered by a chain of second-order sections, as `scipy.signal.sosfilt` does.

    Section i is ``y[t] = b0 x[t] + b1 x[t-1] + b2 x[t-2] - a1 y[t-1] - a2 y[t-2]``, with
    ``sos[i] = (b0, b1, b2, 1, a1, a2)``. The output of a section is the input of the next one. Each section is one scan
    of affine maps of its two states. New coefficients compile no new kernels.

    Args:
        sos: the sections, of shape (sections, 6), as `scipy.signal.butter(..., output="sos")` returns them.
        x: as in `lfilter`.
        axis: the axis of the samples t.
        zi: the states before the first sample, of shape (sections, …, 2, …): the shape of `x` with 2 along the axis.

    Returns:
        As `lfilter`: `y`, or with `zi` the pair ``(y, zf)``.

    Raises:
        ValueError: the shape of `sos` or `zi` is wrong, ``sos[:, 3]`` is not 1, or the axis is out of range.
        TypeError: as in `lfilter`.
        UnsupportedDtypeError: as in `lfilter`.

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> signal.sosfilt([[1, 0, 0, 1, -0.5, 0], [1, 1, 0, 1, 0, 0]], np.array([1, 0, 0, 0], np.float32))
        array([1.   , 1.5  , 0.75 , 0.375], dtype=float32)
    """
    return filter_by_sections(sos, x, axis, zi)


def filter_by_sections(sos: object, x: object, axis: int, zi: Any, *, steady: bool = False) -> Any:
    """Return what `sosfilt` does; with `steady` as `filter_from`, for `zi` of shape (sections, 2)."""
    table = section_table(sos)
    sections = sections_from(table.shape, table.tobytes(), None if zi is None else 2)
    signal = signal_of(x, axis, None if steady else zi)
    has_ends = zi is not None and not steady
    start = states_of(zi, signal, 2, len(table)) if has_ends else zi
    if not signal.samples.nbytes:
        return signal.answer(signal.samples, np.asarray(start, np.float64) if has_ends else None)
    if start is not None:
        start = sections.from_direct(start.reshape(-1, *start.shape[2:]))
    y, ends = _through(signal, sections, start, steady, sections.to_direct if has_ends else None)
    return signal.answer(y, ends)


def section_table(sos: object) -> Floats:
    """Return the coefficients of sections, (sections, 6).

    Raises:
        ValueError: they have another shape, or a section is not normalized.
        TypeError: they are not real numbers.
    """
    table = as_array(sos)
    table = _numbers("sos", table if table.ndim > 1 else table.reshape(1, -1))
    if table.ndim != 2 or table.shape[1] != 6 or not len(table):
        raise ValueError(
            f"sos of shape {table.shape} was passed, but it must be (sections, 6), with one section or more. Pass "
            'what scipy.signal.butter(..., output="sos") returns'
        )
    if not np.logical_and.reduce(table[:, 3] == 1):
        raise ValueError(
            "sos with a0 (sos[:, 3]) other than 1 was passed, but sections must be normalized. Divide each by its a0"
        )
    return table


@dataclass(frozen=True)
class _Transfer:
    """A filter of real coefficients.

    Attributes:
        numerator, denominator: its coefficients, divided by the first one of the denominator.
        order: the number of its states.
        sections: the filter as sections; None if the numerator is convolved with the signal.
    """

    numerator: Floats
    denominator: Floats
    order: int
    sections: Sections | None

    @cached_property
    def poles(self) -> Sections | None:
        """The denominator alone as sections; None if it is 1."""
        has_poles = len(trim_zeros(self.denominator)) > 1
        return Sections(sections_of(np.ones(1), self.denominator)) if has_poles else None


def _transfer_of(b: AnyArray, a: AnyArray) -> _Transfer:
    """Return the filter of these coefficients, from an earlier call if there was one.

    Raises:
        ValueError, TypeError: as `lfilter`.
    """
    if b.dtype.hasobject or a.dtype.hasobject:
        coefficients("a" if a.dtype.hasobject else "b", a if a.dtype.hasobject else b)
    return _find_transfer(b.dtype, b.shape, b.tobytes(), a.dtype, a.shape, a.tobytes())


@lru_cache(maxsize=64)
def _find_transfer(
    b_dtype: AnyDType, b_shape: tuple[int, ...], b: bytes, a_dtype: AnyDType, a_shape: tuple[int, ...], a: bytes
) -> _Transfer:
    numerator = coefficients("b", np.frombuffer(b, b_dtype).reshape(b_shape))
    denominator = _denominator(np.frombuffer(a, a_dtype).reshape(a_shape))
    order = max(len(denominator), len(numerator)) - 1
    numerator, denominator = numerator / denominator[0], denominator / denominator[0]
    poles, zeros = trim_zeros(denominator), trim_zeros(numerator)
    few_zeros = len(poles) > 1 and len(zeros) - len(poles) <= MAX_FURTHER_ZEROS
    sections = Sections(sections_of(numerator, denominator), order=order) if few_zeros else None
    return _Transfer(numerator, denominator, order, sections)


@lru_cache(maxsize=64)
def sections_from(shape: tuple[int, ...], table: bytes, size: int | None) -> Sections:
    """Return the sections of a table; with `size` states each if it is passed."""
    return Sections([(row[:3], row[3:]) for row in np.frombuffer(table).reshape(shape)], size)


def steady_sections(b: AnyArray, a: AnyArray, states: Floats) -> tuple[Sections, Floats] | None:
    """Return the sections of a filter, and the states of these that stand for states of the filter; None if none do.

    Args:
        b, a: real coefficients.
        states: the states of the filter.
    """
    sections = _transfer_of(b, a).sections
    found = None if sections is None else sections.states_from(states)
    return None if sections is None or found is None else (sections, np.asarray(found))


def _sum_of_parts(b: AnyArray, a: ArrayLike, x: object, axis: int, zi: ArrayLike | None) -> Any:
    """Return what `lfilter` does for a complex numerator. The states before the first sample go through one part."""
    if zi is None:
        real, imag = (filter_from(part, a, x, axis, None) for part in (b.real, b.imag))
        return real + 1j * imag
    nothing = np.zeros(zi.shape if isinstance(zi, Array) else np.shape(zi))
    (real, ends), (imag, more) = filter_from(b.real, a, x, axis, zi), filter_from(b.imag, a, x, axis, nothing)
    return real + 1j * imag, ends + 1j * more


def _with_complex_poles(b: ArrayLike, a: ArrayLike, x: object, axis: int, zi: ArrayLike | None) -> Any:
    """Return what `lfilter` does for a complex denominator: with its conjugate as a factor it is real."""
    numerator, denominator = coefficients("b", b, "biufc"), _denominator(a, "biufc")
    numerator, denominator = numerator / denominator[0], denominator / denominator[0]
    conjugate = np.conj(denominator) if denominator.imag.any() else np.ones(1)
    product = np.convolve(numerator, conjugate).astype(np.complex128)
    poles = np.convolve(denominator, conjugate).real
    if zi is None:
        return filter_from(product, poles, x, axis, None)
    order = max(len(denominator), len(numerator)) - 1
    signal = signal_of(x, axis, zi)
    start = np.asarray(states_of(zi, signal, order), np.float64)
    if signal.is_complex:
        start = start[..., 0] + 1j * start[..., 1]
    # States are what is added to the first samples of the convolution with b, so the factor goes to them as well.
    states = np.zeros((max(len(product), len(poles)) - 1, *start.shape[1:]), np.complex128)
    for first, factor in enumerate(conjugate):
        states[first : first + order] += factor * start
    y, _ = filter_from(product, poles, x, axis, np.moveaxis(states, 0, signal.axis))
    x = x if isinstance(x, Array) else np.asarray(x)
    ends = _direct_states(numerator, denominator, signal.length, signal.axis, x, y, start)
    ends = np.ascontiguousarray(np.moveaxis(ends, 0, signal.axis).astype(y.dtype))
    return y, ends if signal.given is None else signal.given.asarray(ends)


def _denominator(given: object, kinds: str = "biuf") -> AnyArray:
    """Return the coefficients of the denominator.

    Raises:
        ValueError: the first is 0.
    """
    a = coefficients("a", given, kinds)
    if a[0] == 0:
        raise ValueError(
            "a[0] of 0 was passed, but every output is divided by it. Remove the leading zeros of a, and as many "
            "samples of delay from b"
        )
    return a


def coefficients(name: str, given: object, kinds: str = "biuf") -> AnyArray:
    """Return the coefficients of a polynomial, as `_numbers`.

    Raises:
        ValueError: they are not a 1-D sequence, or not finite.
        TypeError: they are not numbers.
    """
    array = as_array(given)
    array = _numbers(name, array if array.ndim else array.reshape(1), kinds)
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} of shape {array.shape} was passed; pass a 1-D sequence of one coefficient or more")
    return array


def _numbers(name: str, array: AnyArray, kinds: str = "biuf") -> AnyArray:
    """Return coefficients in float64, or complex128 if they may be complex.

    Args:
        name: what the caller calls them.
        array: the coefficients.
        kinds: the kinds of dtypes that they may have.
    """
    if array.dtype.kind not in kinds:
        raise TypeError(
            f"{name} of dtype {array.dtype} was passed, but it has to be real. Pass {name}.real if the imaginary parts "
            "are 0, or use lfilter"
            if array.dtype.kind == "c"
            else f"{name} of dtype {array.dtype} was passed; pass real numbers"
        )
    numbers = np.asarray(array, np.complex128 if "c" in kinds else np.float64)
    if not np.logical_and.reduce(np.isfinite(numbers), axis=None):
        raise ValueError(f"{name} with infinite numbers or NaN was passed; pass finite coefficients")
    return numbers


def _through(
    signal: Signal,
    sections: Sections,
    states: Samples | None,
    steady: bool = False,
    to_caller: StatesMap | None = None,
) -> tuple[Samples, Samples | None]:
    """Return the signal after all sections, and their last states in the caller's form; None without states.

    Args:
        states: the states of all sections before the first sample, in the sections' coordinates: (states, *others).
            None for zeros.
        steady: True if the states are to be multiplied by the first sample.
        to_caller: the map from the last states of the sections to the caller's; None not to compute any.
    """
    has_ends = to_caller is not None
    signal = signal.on_device(len(sections.spaces) + has_ends)
    dtype, target = signal.samples.dtype, signal.target
    kinds, numbers = sections.kinds, sections.numbers(dtype)
    if not isinstance(signal.samples, Array):
        # States of NumPy are float64, and on a device they would have the dtype of the samples.
        run = _run_sections if states is None else run_sections
        samples, ends = run(signal.samples, signal.axis, kinds, numbers, states, steady, has_ends, target)
    elif signal.given is None or to_caller is None:
        states = None if states is None else states.astype(dtype, copy=False)
        samples, ends = _run_sections(signal.samples, signal.axis, kinds, numbers, states, steady, has_ends)
    else:
        assert states is not None
        states = states.astype(dtype, copy=False)
        return _run_with_states(signal.samples, signal.axis, kinds, numbers, states, to_caller.matrix, to_caller.lead)
    if ends is None or to_caller is None:
        return samples, None
    if signal.device is not None:
        # The caller gets both in NumPy, so they are read in one wait.
        samples, ends = read_results((samples, ends))
    return samples, to_caller.of_host(np.asarray(ends, np.float64))


def run_sections(
    samples: Samples,
    axis: int,
    kinds: Sequence[tuple[int, bool]],
    numbers: Sequence[Sequence[Number]],
    states: Samples | None,
    steady: bool,
    has_ends: bool,
    device: Device | str | None = None,
) -> tuple[Samples, Samples | None]:
    """Return what `_through` does. On a device it is one program for all filters of the same kinds of sections.

    Args:
        samples: the samples before the first section.
        axis: their axis.
        kinds, numbers: of the sections, as `Sections` has them.
        states, steady: as in `_through`.
        has_ends: True to return the last states.
        device: as in `scan`.
    """
    at_first: Any = (*[slice(None)] * axis, 0)
    sample = samples[at_first] if steady else None
    others = (*samples.shape[:axis], *samples.shape[axis + 1 :])
    ends: list[Samples] = []
    first = 0
    for (size, near_one), own in zip(kinds, numbers, strict=True):
        start = None if states is None else [states[first + state] for state in range(size)]
        if sample is not None:
            start = _scale_states(start, sample)
        options: Any = {"axis": axis, "before": _make_sample_map(size, own), "device": device}
        if start is not None:
            identity = np.zeros((size, size)) if near_one else np.eye(size)
            options["initial"] = (*identity.ravel(), *start, *np.zeros(size + 1))
        operator = OPERATORS[size, near_one]
        if has_ends:
            ends += reduce(samples, operator, after=_states, **options)
        samples = scan(samples, operator, after=_output, **options)
        first += size
    return samples, np.stack([as_some_array(state).reshape(others) for state in ends]) if has_ends else None


_run_sections = takes_numpy("samples")(launchable_with("numbers", "states", data=["states"])(run_sections))


@launchable_with("numbers", "states", "matrix", data=["states", "matrix"])
def _run_with_states(
    samples: Array,
    axis: int,
    kinds: Sequence[tuple[int, bool]],
    numbers: Sequence[Sequence[Number]],
    states: Any,
    matrix: Any,
    lead: tuple[int, ...],
) -> tuple[Array, Array]:
    """Return what `_through` does, on the device of the caller's samples.

    Args:
        samples, axis, kinds, numbers, states: as in `run_sections`.
        matrix, lead: the map to the caller's states, as `StatesMap` has it.
    """
    filtered, ends = run_sections(samples, axis, kinds, numbers, states, steady=False, has_ends=True)
    assert isinstance(filtered, Array)
    assert isinstance(ends, Array)
    whole = multiply(matrix, ends)
    whole = whole.reshape((*lead, -1, *whole.shape[1:]))
    axes = list(range(whole.ndim))
    axes.insert(len(lead) + axis, axes.pop(len(lead)))
    placed = whole.transpose(axes).astype(samples.dtype, copy=False)
    return filtered, placed if placed.is_contiguous else placed.copy()


def _scale_states(states: Any, sample: Samples) -> Any:
    """Return each state times a sample, where the sample is."""
    if not isinstance(sample, Array):
        return np.reshape(states, (-1, *[1] * sample.ndim)) * sample
    factors = tuple([state.number() if isinstance(state, ParameterArray) else state for state in states])
    return map_arrays(lambda x: tuple([x * factor for factor in factors]), sample)


def _convolve_signal(signal: Signal, b: Floats, start: Floats | None) -> Samples:
    """Return the sums ``b[0] x[t] + b[1] x[t-1] + …``, plus the states at the first samples."""
    signal = signal.on_device(2)
    samples, axis = signal.samples, signal.axis
    taps = b.astype(samples.dtype)
    if start is None:
        # On a device, the shape is a part of the key.
        others = (0,) * (samples.ndim - 1) if isinstance(samples, Array) else signal.others
        first = np.zeros((*others[:axis], 0, *others[axis:]), samples.dtype)
    else:
        first = np.moveaxis(np.broadcast_to(start, (len(start), *signal.others)), 0, axis).astype(samples.dtype)
    return (
        _convolve(samples, axis, taps, first)
        if isinstance(samples, Array)
        else stages.convolve(samples, axis, taps, first)
    )


@launchable_with("taps", "first", data=["taps", "first"])
def _convolve(samples: Array, axis: int, taps: Any, first: Any) -> Array:
    """Return what `convolve` does. It is one program for all coefficients."""
    with samples._context.errors:
        return Array._of(samples.device, convolve(samples, axis, taps, first))


def _direct_states(b: AnyArray, a: AnyArray, length: int, axis: int, x: Samples, y: Samples, start: Any) -> AnyArray:
    """Return the states after the last sample, from the last samples of the input and of the output."""
    order = len(start)
    states = np.zeros(start.shape, np.result_type(b, a, start))
    if order > length:
        states[: order - length] = start[length:]
    for coefficients, samples, sign in ((b, x, 1), (a, y, -1)):
        last = last_samples(samples, axis, min(order, length)).astype(states.dtype)
        for state in range(order):
            for i in range(state + 1, len(coefficients)):
                back = i - state
                if back <= length:
                    states[state] += sign * coefficients[i] * last[-back]
    return states


# ----- Sections as scans
#
# A second-order section as a scan: the affine map from the states before an interval of samples to those after it.
#
# An element is such a map for one sample or many, and also says what the last output in the interval is::
#
#     states' = m·states + v        y = c·states + d
#
# so it has nine numbers for two states: `m` (2 x 2, in rows), `v` (2), `c` (2) and `d`; and four for one state. Where a
# pole is close to 1, ``m - 1`` stands in place of `m`, since float32 rounds that less.


def _operator(size: int, near_one: bool) -> Operator:
    """Return the composition of two maps of `size` states; with ``m - 1`` in place of `m` if a pole is near 1."""
    indices = range(size)

    def times(matrix: Sequence[Fields], vector: Fields) -> list[AnyArray]:
        products = [sum(row[i] * vector[i] for i in indices[1:]) + row[0] * vector[0] for row in matrix]
        return [x + product for x, product in zip(vector, products, strict=True)] if near_one else products

    def compose_steps(left: Fields, right: Fields) -> Fields:
        (m, v, _, _), (own_m, own_v, own_c, own_d) = _parts(left, size), _parts(right, size)
        columns = [times(own_m, column) for column in zip(*m, strict=True)]
        if near_one:
            # The column of 1 + m, less that of 1.
            columns = [[own_m[i][j] + columns[j][i] for i in indices] for j in indices]
        rows = zip(*columns, strict=True)
        outputs = times(list(zip(*m, strict=True)), own_c)
        states = [x + y for x, y in zip(times(own_m, v), own_v, strict=True)]
        last = sum(own_c[i] * v[i] for i in indices[1:]) + own_c[0] * v[0] + own_d
        return (*(entry for row in rows for entry in row), *states, *outputs, last)

    return operator(compose_steps, name=f"{'slow ' if near_one else ''}section of {size}")


def _parts(element: Fields, size: int) -> tuple[list[Fields], Fields, Fields, AnyArray]:
    """Return the rows of `m`, and `v`, `c` and `d`."""
    square = size * size
    rows = [element[i * size : (i + 1) * size] for i in range(size)]
    return rows, element[square : square + size], element[square + size : -1], element[-1]


OPERATORS = {(size, near_one): _operator(size, near_one) for size in (1, 2) for near_one in (False, True)}


def _make_sample_map(size: int, numbers: Sequence[Number]) -> Callable[[AnyArray], Fields]:
    """Return the map of one sample, from the sample.

    Args:
        size: the number of states.
        numbers: the numbers of the section, as `Sections.numbers` has them. Calls with other numbers launch the same
            program.
    """
    square = size * size
    same, outputs, inputs = numbers[:square], numbers[square : square + size], numbers[square + size :]

    def load_sample(x: AnyArray) -> Fields:
        *states, direct = (x * value for value in inputs)
        fixed, ends = ([np.full_like(x, value) for value in part] for part in (same, outputs))
        return (*fixed, *states, *ends, direct)

    return load_sample


def _states(element: Fields) -> Fields:
    # An element of two states has nine numbers, one of one state has four.
    return (element[4], element[5]) if len(element) == 9 else (element[1],)


def _output(element: Fields) -> AnyArray:
    return element[-1]
