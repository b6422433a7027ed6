"""`ewm_var`: pandas' exponentially weighted variance, as a scan that skips NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.call_device import takes_numpy
from gpuscan.api.launches import launchable_with
from gpuscan.api.scan import scan
from gpuscan.array_types import AnyArray
from gpuscan.operators.operator import operator
from gpuscan.problem.arguments import as_flag
from gpuscan.signal.exponential_mean import make_recursive, make_weighted_mean, real_signal, smoothing_factor
from gpuscan.signal.signals import Fields, Number, Samples

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gpuscan.api.annotations import VarianceOptions


@overload
def ewm_var(x: Array, **options: Unpack[VarianceOptions]) -> Array: ...
@overload
def ewm_var(x: ArrayLike, **options: Unpack[VarianceOptions]) -> AnyArray: ...
def ewm_var(
    x: object,
    *,
    alpha: float | None = None,
    com: float | None = None,
    span: float | None = None,
    halflife: float | None = None,
    axis: int = -1,
    adjust: bool = True,
    bias: bool = False,
) -> object:
    """Return the exponentially weighted variance, as pandas' ``x.ewm(alpha=alpha, …).var(bias=bias)`` does.

    Let ``w[t], w[t-1], …`` be the weights and ``m`` the mean of `ewm_mean`, and ``W`` the sum of the weights.
    The biased variance is ``v[t] = (w[t] (x[t] - m)² + w[t-1] (x[t-1] - m)² + …) / W``.
    The unbiased variance is ``v[t] W² / (W² - w[t]² - w[t-1]² - …)``.

    NaN and infinities are skipped as `ewm_mean` skips them. Before the first number the result is NaN. The unbiased
    variance is also NaN before the second number and, as in pandas, where all weights but the last are so small that
    rounding loses them.

    Args:
        x, alpha, com, span, halflife, axis, adjust: as in `ewm_mean`.
        bias: True for the biased variance.

    Returns:
        The variances, an array like `x`; its dtype is as in `ewm_mean`.

    Raises:
        ValueError, TypeError, UnsupportedDtypeError: as `ewm_mean` does.

    The scan combines the variances of adjacent ranges as in Chan, Golub & LeVeque, "Updating Formulae and a Pairwise
    Algorithm for Computing Sample Variances" (1979).

    Example:
        >>> import numpy as np
        >>> from gpuscan import signal
        >>> signal.ewm_var(np.array([2, np.nan, 4], np.float32), alpha=0.5, bias=True)
        array([0.  , 0.  , 0.64], dtype=float32)
    """
    alpha = smoothing_factor(alpha=alpha, com=com, span=span, halflife=halflife)
    adjusted, biased = as_flag("adjust", adjust), as_flag("bias", bias)
    signal = real_signal(x, axis)
    if not signal.samples.nbytes:
        return signal.answer(signal.samples, None)
    number = signal.samples.dtype.type
    decay = number(1 - alpha)
    result = _scan_weighted(signal.samples, signal.axis, decay, number(alpha), adjusted, biased, signal.target)
    return signal.answer(result, None)


@takes_numpy("samples")
@launchable_with("decay", "alpha")
def _scan_weighted(
    samples: Samples, axis: int, decay: Number, alpha: Number, adjusted: bool, biased: bool, device: Any = None
) -> Samples:
    """Return the variances. On a device it is one program for all decays."""
    before = (_make_weighting if adjusted else _recursive)(decay, alpha)
    operator_of = _join_intervals if adjusted else _compose_intervals
    after = _AFTER[adjusted, biased]
    variances: Samples = scan(samples, operator_of, axis=axis, before=before, after=after, device=device)
    return variances


# The share of W² up to which pandas, which subtracts the sum of w² from it in float64, has nothing left.
_LOST = 2.0**-53

# A group of weighted numbers is (weight, mean, squares, pairs): the sum of the weights, the mean, the weighted sum of
# squared distances from it, and twice the sum of the products of two weights, which is W² less the sum of w².


def _unite_groups(one: Fields, other: Fields) -> Fields:
    """Return the group of the numbers of two groups."""
    weight, mean, squares, pairs = one
    own_weight, own_mean, own_squares, own_pairs = other
    total = weight + own_weight
    divisor = np.where(total == 0, np.full_like(total, 1.0), total)
    way = own_mean - mean
    return (
        total,
        np.where(mean == own_mean, mean, (weight * mean + own_weight * own_mean) / divisor),
        squares + own_squares + way * way * (weight * own_weight / divisor),
        pairs + own_pairs + 2 * weight * own_weight,
    )


def _scale_group(group: Fields, factor: AnyArray) -> Fields:
    """Return the group with all weights multiplied by a factor."""
    weight, mean, squares, pairs = group
    return factor * weight, mean, factor * squares, factor * factor * pairs


def _variance(group: Fields, biased: bool) -> AnyArray:
    weight, mean, squares, pairs = group
    nothing = np.full_like(mean, np.nan)
    if biased:
        return np.where(weight == 0, nothing, squares / weight)
    return np.where(pairs > _LOST * weight * weight, squares / pairs * weight, nothing)


def _select(condition: AnyArray, chosen: Fields, others: Fields) -> Fields:
    return tuple(np.where(condition, one, other) for one, other in zip(chosen, others, strict=True))


# ----- Adjusted
# An element stands for an interval of samples. Its first four fields describe the group of its numbers, with weights
# relative to the weight of the last number. The other two fields are the decays before the last number and after it, as
# in `exponential_mean`.


def _make_weighting(decay: Number, alpha: Number) -> Callable[[AnyArray], Fields]:
    of_mean = make_weighted_mean(decay, alpha)

    def make_element(x: AnyArray) -> Fields:
        weight, mean, before, after = of_mean(x)
        zero = np.full_like(x, 0.0)
        return weight, mean, zero, zero, before, after

    return make_element


@operator(name="weighted variance")
def _join_intervals(left: Fields, right: Fields) -> Fields:
    *group, before, after = left
    *own_group, own_before, own_after = right
    none, alone = own_group[0] == 0, group[0] == 0
    gap = after * own_before
    both = _unite_groups(_scale_group(group, gap), own_group)
    return (
        *_select(none, group, _select(alone, own_group, both)),
        np.where(none, before, before * gap),
        np.where(none, after * own_after, own_after),
    )


def _make_adjusted_variance(biased: bool) -> Callable[[Fields], AnyArray]:
    return lambda element: _variance(element[:4], biased)


# ----- Not adjusted
# An element stands for an interval of samples, with the fields of `exponential_mean`: 1 if it has a number; the first
# number; the decay up to that, divided by alpha; the weight `keep` of all that is known with the first number; the
# group of the later numbers, with the weight 1 - keep; and the decay after the last number.


def _recursive(decay: Number, alpha: Number) -> Callable[[AnyArray], Fields]:
    return make_recursive(decay, decay / alpha, 4)


@operator(name="recursive variance")
def _compose_intervals(left: Fields, right: Fields) -> Fields:
    number, first, before, keep, *group, after = left
    own_number, own_first, own_before, own_keep, *own_group, own_after = right
    none, alone = own_number == 0, number == 0
    gap = after * own_before
    # The number at the beginning of the right interval has this weight, and all before it `inherited`.
    share = own_keep / (gap + 1)
    inherited = gap * share
    zero = np.full_like(first, 0.0)
    both = _unite_groups(_unite_groups(_scale_group(group, inherited), (share, own_first, zero, zero)), own_group)
    return (
        np.maximum(number, own_number),
        np.where(alone, own_first, first),
        np.where(alone, gap, before),
        np.where(none, keep, np.where(alone, own_keep, inherited * keep)),
        *_select(none, group, _select(alone, own_group, both)),
        np.where(none, after * own_after, own_after),
    )


def _recursive_variance(biased: bool) -> Callable[[Fields], AnyArray]:
    def variance(element: Fields) -> AnyArray:
        number, first, _, keep, *group, _ = element
        zero = np.full_like(first, 0.0)
        # Without a number, no weight is left.
        return _variance(_unite_groups((number * keep, first, zero, zero), group), biased)

    return variance


_AFTER = {
    (adjusted, biased): (_make_adjusted_variance if adjusted else _recursive_variance)(biased)
    for adjusted in (False, True)
    for biased in (False, True)
}
