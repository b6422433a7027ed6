"""`lfilter` and `sosfilt`: recursive filters, by scans of affine maps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.map import map as map_arrays
from gpuscan.api.numpy_calls import read_results
from gpuscan.api.reduce import reduce
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray
from gpuscan.engine.convolution import convolve
from gpuscan.operators.operator import Operator, operator
from gpuscan.problem.arguments import as_array
from gpuscan.reference import stages
from gpuscan.signal.sections import Floats, Section, section_of, sections_of, state_count, state_matrix, trim_zeros
from gpuscan.signal.signals import Fields, Samples, Signal, last_samples, signal_of, states_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The most zeros that a filter may have beyond the number of its poles. With more, the numerator is convolved with the
# signal, because the computed roots of long polynomials are too far from exact.
MAX_FURTHER_ZEROS = 4
# The relative error up to which the states of sections stand for the states of the whole filter.
STATE_TOLERANCE = 1e-8


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
    if np.iscomplexobj(a) or np.iscomplexobj(b):
        if steady:
            first = np.asarray(x[(*[slice(None)] * axis, slice(0, 1))])
            zi = zi.reshape(-1, *[1] * (first.ndim - axis - 1)) * first
        result = (_with_complex_poles if np.iscomplexobj(a) else _sum_of_parts)(b, a, x, axis, zi)
        return result[0] if steady else result
    numerator, denominator = coefficients("b", b), _denominator(a)
    order = max(len(denominator), len(numerator)) - 1
    numerator, denominator = numerator / denominator[0], denominator / denominator[0]
    signal = signal_of(x, axis, None if steady else zi)
    start = zi if zi is None or steady else states_of(zi, signal, order)
    if not signal.size:
        return signal.answer(signal.samples, None if steady else start)
    poles, zeros = trim_zeros(denominator), trim_zeros(numerator)
    direct = len(poles) == 1
    if not direct and len(zeros) - len(poles) <= MAX_FURTHER_ZEROS:
        sections = sections_of(numerator, denominator)
        matrix = states = None
        if start is not None:
            matrix = state_matrix(sections)
            states = _section_states(matrix, start)
        if start is None or states is not None:
            y, ends = _through(signal, sections, states, steady)
            if ends is None or matrix is None:
                return signal.answer(y, None)
            size = max(order, len(matrix))
            whole = np.zeros((size, *ends.shape[1:]))
            whole[: len(matrix)] = np.tensordot(matrix, ends, 1)
            return signal.answer(y, whole[:order])
    x = signal.samples
    start = _scale_states(start, np.asarray(signal.first)) if steady else start
    y = _convolve_signal(signal, numerator, start)
    if len(poles) > 1:
        y, _ = _through(signal.with_samples(y), sections_of(np.ones(1), denominator), None)
    if start is None or steady:
        return signal.answer(y, None)
    return signal.answer(y, _direct_states(numerator, denominator, signal.length, signal.axis, x, y, start))


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
    sections = [(row[:3], row[3:]) for row in table]
    signal = signal_of(x, axis, None if steady else zi)
    start = zi if zi is None or steady else states_of(zi, signal, 2, len(sections))
    if not signal.size:
        return signal.answer(signal.samples, None if steady else start)
    if start is None:
        return signal.answer(_through(signal, sections, None)[0], None)
    y, ends = _through(signal, sections, start.reshape(-1, *start.shape[2:]), steady, size=2)
    if ends is None:
        return signal.answer(y, None)
    return signal.answer(y, ends.reshape(len(sections), 2, *ends.shape[1:]))


def section_table(sos: object) -> Floats:
    """Return the coefficients of sections, (sections, 6).

    Raises:
        ValueError: they have another shape, or a section is not normalized.
        TypeError: they are not real numbers.
    """
    table = _numbers("sos", np.atleast_2d(as_array(sos)))
    if table.ndim != 2 or table.shape[1] != 6 or not len(table):
        raise ValueError(
            f"sos of shape {table.shape} was passed, but it must be (sections, 6), with one section or more. Pass "
            'what scipy.signal.butter(..., output="sos") returns'
        )
    if not (table[:, 3] == 1).all():
        raise ValueError(
            "sos with a0 (sos[:, 3]) other than 1 was passed, but sections must be normalized. Divide each by its a0"
        )
    typed: Floats = table
    return typed


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
    start = states_of(zi, signal, order)
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
    array = _numbers(name, np.atleast_1d(as_array(given)), kinds)
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
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} with infinite numbers or NaN was passed; pass finite coefficients")
    return numbers


def _through(
    signal: Signal,
    sections: list[tuple[Floats, Floats]],
    states: Floats | None,
    steady: bool = False,
    *,
    size: int | None = None,
) -> tuple[Samples, Floats | None]:
    """Return the signal after all sections, and their last states; None without states.

    Args:
        signal: the signal.
        sections: the sections.
        states: the states of all sections in SciPy's form, one section's after the other's; None for zeros.
        steady: True if the states are to be multiplied by the first sample. No last states are computed then.
        size: the number of states of each section (default: the fewest that are enough).
    """
    spaces = [section_of(b, a, size or state_count(b, a)) for b, a in sections]
    signal = signal.on_device(len(spaces) + (states is not None and not steady))
    sample = signal.first if steady else None
    ends: list[tuple[Section, Sequence[Samples]]] = []
    first = 0
    for space in spaces:
        start = None
        if states is not None:
            start = np.tensordot(space.from_direct, states[first : first + space.size], 1)
            if sample is not None:
                start = _scale_states(start, sample)
            else:
                ends.append((space, end_states(space, signal, start)))
            first += space.size
        signal = signal.with_samples(filter_signal(space, signal, start))
    if not ends:
        return signal.samples, None
    samples: Any = signal.samples
    found: Any = [last_states for _, last_states in ends]
    if signal.device is not None and signal.given is None:
        # The caller gets both in NumPy, so they are read in one wait.
        samples, found = read_results(signal.device, (samples, found))
    elif signal.device is not None:
        found = read_results(signal.device, found)
    last = []
    for (space, _), last_states in zip(ends, found, strict=True):
        rows = [np.asarray(state, np.float64).reshape(signal.others) for state in last_states]
        last.append(np.tensordot(space.to_direct, np.stack(rows), 1))
    return samples, np.concatenate(last)


def _scale_states(states: Floats, sample: Samples) -> Any:
    """Return each state times a sample, where the sample is."""
    if not isinstance(sample, Array):
        return states.reshape(-1, *[1] * sample.ndim) * sample
    factors = tuple(map(sample.dtype.type, states))
    return map_arrays(lambda x: tuple([x * factor for factor in factors]), sample)


def _section_states(matrix: Floats, start: Floats) -> Floats | None:
    """Return the states of all sections that are equivalent to given states of the whole filter; None if none are."""
    rows = len(matrix)
    wanted = np.zeros((max(rows, len(start)), *start.shape[1:]))
    wanted[: len(start)] = start
    if wanted[rows:].any():
        return None
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1
    flat = wanted[:rows].reshape(rows, -1)
    states = np.linalg.lstsq(matrix / scale, flat, rcond=None)[0]
    error = np.abs(matrix / scale @ states - flat).max(initial=0)
    if not error <= STATE_TOLERANCE * np.abs(flat).max(initial=0):
        return None
    return np.asarray(states / scale[:, np.newaxis]).reshape(-1, *start.shape[1:])


def _convolve_signal(signal: Signal, b: Floats, start: Floats | None) -> Samples:
    """Return the sums ``b[0] x[t] + b[1] x[t-1] + …``, plus the states at the first samples."""
    signal = signal.on_device(2)
    samples, axis = signal.samples, signal.axis
    taps = b.astype(samples.dtype)
    extra = np.zeros((0, *signal.others)) if start is None else start
    first = np.moveaxis(np.broadcast_to(extra, (len(extra), *signal.others)), 0, axis).astype(samples.dtype)
    if isinstance(samples, Array):
        with samples._context.errors:
            return Array._of(samples.device, convolve(samples, axis, taps, first))
    return stages.convolve(samples, axis, taps, first)


def _direct_states(
    b: AnyArray, a: AnyArray, length: int, axis: int, x: Samples, y: Samples, start: AnyArray
) -> AnyArray:
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


def filter_signal(section: Section, signal: Signal, start: Sequence[Samples] | Floats | None) -> Samples:
    """Return the samples after the section.

    Args:
        section: the section.
        signal: the samples before it.
        start: the states before the first sample, in the section's coordinates: (states, *other axes); None for zeros.
    """
    filtered: Samples = scan(
        signal.samples,
        OPERATORS[section.size, section.near_one],
        axis=signal.axis,
        initial=_seed(section, start),
        before=_make_sample_map(section, signal),
        after=_output,
        device=signal.target,
    )
    return filtered


def end_states(section: Section, signal: Signal, start: Floats) -> Sequence[Samples]:
    """Return each of the states after the last sample, in the section's coordinates, where the samples are."""
    states: Sequence[Samples] = reduce(
        signal.samples,
        OPERATORS[section.size, section.near_one],
        axis=signal.axis,
        initial=_seed(section, start),
        before=_make_sample_map(section, signal),
        after=_states,
        device=signal.target,
    )
    return states


def _make_sample_map(section: Section, signal: Signal) -> Callable[[AnyArray], Fields]:
    """Return the map of one sample, from the sample."""
    number = signal.samples.dtype.type
    m = section.m - np.eye(section.size) if section.near_one else section.m
    # Tuples, so that filters with other coefficients launch the same program.
    same, outputs = tuple([number(value) for value in m.ravel()]), tuple([number(value) for value in section.c])
    inputs = tuple([number(value) for value in (*section.v, section.d)])

    def load_sample(x: AnyArray) -> Fields:
        *states, direct = (x * value for value in inputs)
        fixed, ends = ([np.full_like(x, value) for value in numbers] for numbers in (same, outputs))
        return (*fixed, *states, *ends, direct)

    return load_sample


def _seed(section: Section, start: Sequence[Samples] | Floats | None) -> Fields | None:
    """Return the element before the first sample: a map with the result `start`."""
    if start is None:
        return None
    m = np.zeros((section.size, section.size)) if section.near_one else np.eye(section.size)
    return (*m.ravel(), *start, *np.zeros(section.size + 1))


def _states(element: Fields) -> Fields:
    # An element of two states has nine numbers, one of one state has four.
    return (element[4], element[5]) if len(element) == 9 else (element[1],)


def _output(element: Fields) -> AnyArray:
    return element[-1]
