"""`ewm_mean`: pandas' exponentially weighted mean, as a scan that skips NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.call_device import takes_numpy
from gpuscan.api.launches import launchable_with
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray
from gpuscan.errors import abbreviate
from gpuscan.operators.operator import Operator, operator
from gpuscan.problem.arguments import as_flag
from gpuscan.signal.signals import Fields, Number, Samples, Signal, signal_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gpuscan.api.annotations import DecayOptions


@overload
def ewm_mean(x: Array, **options: Unpack[DecayOptions]) -> Array: ...
@overload
def ewm_mean(x: ArrayLike, **options: Unpack[DecayOptions]) -> AnyArray: ...
def ewm_mean(
    x: object,
    *,
    alpha: float | None = None,
    com: float | None = None,
    span: float | None = None,
    halflife: float | None = None,
    axis: int = -1,
    adjust: bool = True,
) -> object:
    """Return the exponentially weighted mean, as pandas' ``x.ewm(alpha=alpha, adjust=adjust).mean()`` does.

    With ``adjust=True``, ``y[t] = (x[t] + q x[t-1] + q² x[t-2] + …) / (1 + q + q² + …)`` with ``q = 1 - alpha``; with
    ``adjust=False``, ``y[t] = q y[t-1] + alpha x[t]`` and ``y[0] = x[0]``. NaN is skipped as pandas skips it by
    default (``ignore_na=False``): it adds nothing, the weights of earlier samples decay all the same, and the result
    there is the mean so far. Infinities are skipped too. Before the first number the result is NaN.

    Args:
        x: the samples: a NumPy array, anything `np.asarray` takes, or a `gpuscan.Array`.
        alpha: the smoothing factor, ``0 < alpha <= 1``. A new one compiles no new kernel.
        com, span, halflife: instead of `alpha`, the center of mass, ``alpha = 1 / (1 + com)`` with ``com >= 0``; the
            span, ``alpha = 2 / (1 + span)`` with ``span >= 1``; or the number of samples after which a weight is half
            as large, ``alpha = 1 - 0.5 ** (1 / halflife)`` with ``halflife > 0``.
        axis: the axis of the samples t.
        adjust: True to divide by the sum of the weights of the samples so far.

    Returns:
        The means, an array like `x`. float32 stays float32, integers become float64, and 16-bit floats become float32.
        float64 runs on the device if it has 64-bit floats, else on NumPy.

    Raises:
        ValueError: none of `alpha`, `com`, `span` and `halflife` is passed, or several are; or one of them, or the
            axis, is out of range.
        TypeError: one of them is not a real number, `adjust` is not a bool, or the samples are not real numbers.
        UnsupportedDtypeError: a `gpuscan.Array` has a dtype that its adapter does not combine.

    The mean is a linear recurrence (Blelloch, "Prefix Sums and Their Applications", 1990, section 1.4).

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> signal.ewm_mean(np.array([2, np.nan, 4], np.float32), alpha=0.5)
        array([2. , 2. , 3.6], dtype=float32)
    """
    alpha = smoothing_factor(alpha=alpha, com=com, span=span, halflife=halflife)
    adjusted = as_flag("adjust", adjust)
    signal = real_signal(x, axis)
    if not signal.samples.nbytes:
        return signal.answer(signal.samples, None)
    number = signal.samples.dtype.type
    decay, half = number(1 - alpha), alpha == 0.5
    result = _scan_weighted(signal.samples, signal.axis, decay, number(alpha), adjusted, half, signal.target)
    return signal.answer(result, None)


@takes_numpy("samples")
@launchable_with("decay", "alpha")
def _scan_weighted(
    samples: Samples, axis: int, decay: Number, alpha: Number, adjusted: bool, half: bool, device: Any = None
) -> Samples:
    """Return the means. On a device it is one program for all decays."""
    before = (make_weighted_mean if adjusted else _recursive)(decay, alpha)
    operator_of, after = (_join_intervals, _mean) if adjusted else (_RECURSIVE[half], _last)
    means: Samples = scan(samples, operator_of, axis=axis, before=before, after=after, device=device)
    return means


def smoothing_factor(**given: float | None) -> float:
    """Return the factor that one of `alpha`, `com`, `span` and `halflife` stands for.

    Raises:
        ValueError: none is passed, or several are, or it is out of range.
        TypeError: it is not a real number.
    """
    given_factors = {name: value for name, value in given.items() if value is not None}
    if len(given_factors) != 1:
        shown = " and ".join(f"{name}=" for name in given_factors)
        raise ValueError(
            (f"{shown} were passed together" if given_factors else "no smoothing factor was passed")
            + f"; pass one of {', '.join(f'{name}=' for name in given)}"
        )
    ((name, value),) = given_factors.items()
    where, is_right, factor = _FACTORS[name]
    is_number = isinstance(value, (int, float, np.integer, np.floating))
    if not is_number or isinstance(value, (bool, np.timedelta64)):
        raise TypeError(f"{name}={abbreviate(value)} was passed, but it must be a number {where}")
    if not is_right(float(value)):
        raise ValueError(f"{name}={value!r} was passed, but it must be {where}")
    return factor(float(value))


# For each way to pass a factor: its range in words with an example, a test of it, and the factor as pandas computes it.
_FACTORS: dict[str, tuple[str, Callable[[float], bool], Callable[[float], float]]] = {
    "alpha": ("above 0 and at most 1; pass alpha=0.5", lambda alpha: 0 < alpha <= 1, lambda alpha: alpha),
    "com": ("0 or more; pass com=1", lambda com: 0 <= com < np.inf, lambda com: 1 / (1 + com)),
    "span": ("1 or more; pass span=3", lambda span: 1 <= span < np.inf, lambda span: 1 / (1 + (span - 1) / 2)),
    "halflife": (
        "above 0; pass halflife=1",
        lambda halflife: 0 < halflife < np.inf,
        lambda halflife: -math.expm1(-math.log(2) / halflife),
    ),
}


def real_signal(x: object, axis: int) -> Signal:
    """Return the caller's samples.

    Raises:
        TypeError: they are not real numbers.
        ValueError: the axis is out of range.
    """
    signal = signal_of(x, axis)
    if signal.is_complex:
        raise TypeError("complex samples were passed, but pandas' means are of real numbers; pass x.real and x.imag")
    return signal


# ----- Adjusted
# An element stands for an interval of samples. Its fields:
# - the sum of the weights of its numbers, relative to the weight of the last number; 0 if it has no number;
# - their mean;
# - the decay from the beginning of the interval to the last number;
# - the decay after the last number; if there is no number, the decay of the whole interval.


def make_weighted_mean(decay: Number, alpha: object) -> Callable[[AnyArray], Fields]:
    """Return the function that makes an element of each sample; it needs no `alpha`."""
    del alpha

    def make_element(x: AnyArray) -> Fields:
        some, one, zero = np.isfinite(x), np.full_like(x, 1.0), np.full_like(x, 0.0)
        steps = np.full_like(x, decay)
        return (
            *(np.where(some, one, zero), np.where(some, x, zero)),
            *(np.where(some, steps, one), np.where(some, one, steps)),
        )

    return make_element


@operator(name="weighted mean")
def _join_intervals(left: Fields, right: Fields) -> Fields:
    weight, mean, before, after = left
    own_weight, own_mean, own_before, own_after = right
    none, alone = own_weight == 0, weight == 0
    old = weight * (after * own_before)
    total = np.where(none, weight + 1, old + own_weight)
    both = np.where(mean == own_mean, mean, (old * mean + own_weight * own_mean) / total)
    return (
        np.where(none, weight, old + own_weight),
        np.where(none, mean, np.where(alone, own_mean, both)),
        np.where(none, before, before * (after * own_before)),
        np.where(none, after * own_after, own_after),
    )


def _mean(element: Fields) -> AnyArray:
    weight, mean, _, _ = element
    return np.where(weight == 0, np.full_like(mean, np.nan), mean)


# ----- Not adjusted
# The mean after some samples is ``keep · m + rest · mean``, where m is the mean after the first number among them, and
# rest = 1 - keep. m itself is ``(d · m' + alpha · first) / (d + alpha)``, where m' is the mean before and d the decay
# since the number before. For alpha = 0.5, pandas has ``m = d · m' + (1 - d) · first`` in its place.
# An element stands for an interval of samples. Its fields:
# - 1 if it has a number, else 0;
# - the first number;
# - the decay from the beginning of the interval to that number, divided by alpha;
# - keep, rest and mean;
# - the decay after the last number; if there is no number, the decay of the whole interval.


def _recursive(decay: Number, alpha: Number) -> Callable[[AnyArray], Fields]:
    return make_recursive(decay, decay if alpha == 0.5 else decay / alpha, 2)


def make_recursive(decay: Number, step: Number, later: int) -> Callable[[AnyArray], Fields]:
    """Return the function that makes an element of each sample.

    Args:
        decay: the decay for each sample.
        step: the decay up to the sample, divided by alpha.
        later: the number of fields that describe the later numbers of an interval. A sample has none.
    """

    def make_element(x: AnyArray) -> Fields:
        some, one, zero = np.isfinite(x), np.full_like(x, 1.0), np.full_like(x, 0.0)
        first = np.where(some, one, zero), np.where(some, x, zero), np.full_like(x, step), one
        return (*first, *[zero] * later, np.where(some, one, np.full_like(x, decay)))

    return make_element


def _recursion(half: bool) -> Operator:
    """Return the operator; `half` for pandas' other weights where alpha is 0.5."""

    def compose_intervals(left: Fields, right: Fields) -> Fields:
        number, first, before, keep, rest, mean, after = left
        own_number, own_first, own_before, own_keep, own_rest, own_mean, own_after = right
        none, alone = own_number == 0, number == 0
        gap = after * own_before
        share = own_keep * (1 - gap) if half else own_keep / (gap + 1)
        inherited = gap * own_keep if half else gap * share
        old = inherited * rest
        total = old + share + own_rest
        both = (old * mean + share * own_first + own_rest * own_mean) / total
        return (
            np.maximum(number, own_number),
            np.where(alone, own_first, first),
            np.where(alone, gap, before),
            np.where(none, keep, np.where(alone, own_keep, inherited * keep)),
            np.where(none, rest, np.where(alone, own_rest, total)),
            np.where(none, mean, np.where(alone, own_mean, both)),
            np.where(none, after * own_after, own_after),
        )

    return operator(compose_intervals, name="recursive mean")


_RECURSIVE = {half: _recursion(half) for half in (False, True)}


def _last(element: Fields) -> AnyArray:
    number, first, _, keep, rest, mean, _ = element
    return np.where(number == 0, np.full_like(mean, np.nan), (keep * first + rest * mean) / (keep + rest))
