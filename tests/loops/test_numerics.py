"""What composing steps does to overflow, NaN, infinities and cancellation, for each class; see docs/numerics.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

F = np.float32


def check(step: Any, init: Any, xs: Any, kind: str, **options: Any) -> Any:
    found = gs.loop(step, init, xs, device="numpy")
    assert found.form is not None
    assert found.form.kind == kind
    oracle.check(found, oracle.run(step, init, xs), **options)
    return found


def test_products_of_factors_of_affine_maps_neither_overflow_nor_vanish() -> None:
    growth = np.full(300, 2, F)
    check(lambda h, a: a * h, F(0), growth, "affine")  # 2**300 times 0
    check(lambda h, a: a * h, F(1e-30), growth[:150], "affine")
    check(lambda h, a: a * h, F(np.inf), 1 / growth, "affine")  # 2**-300 times infinity
    swings = np.concatenate([growth[:120], 1 / growth[:240], growth[:240], 1 / growth[:120]])
    check(lambda h, a: a * h, F(3), swings, "affine")
    large = np.array([1e30, 1e30, 1e-38, 1e-22, 0, 1e38], F)
    check(lambda h, a: a * h + 1, F(0), large, "affine")


def test_a_reset_lets_nothing_of_the_steps_before_it_through() -> None:
    x = np.array([1, np.nan, 2, np.inf, -np.inf, 3, 4, 5], F)
    reset = np.array([0, 0, 1, 0, 0, 1, 0, 0], bool)
    for kind, step in {
        "affine": lambda h, x: np.where(x[1], 1, F(0.5) * h + x[0]),
        "max-plus": lambda h, x: np.where(x[1], 1, np.maximum(h + x[0], 0)),
        "clamp": lambda h, x: np.where(x[1], 1, np.clip(h + x[0], 0, 9)),
        "max-times": lambda h, x: np.where(x[1], 1, np.maximum(h * F(0.5), x[0])),
        "sloped clamp": lambda h, x: np.where(x[1], 1, np.clip(x[0] - h / 2, -3, 9)),
        "mobius": lambda h, x: np.where(x[1], 1, 1 / (h + x[0])),
        "extremum": lambda h, x: np.where(x[1], 1, np.maximum(h, x[0])),
    }.items():
        found = check(step, F(1), (x, reset), kind.split()[-1])
        assert np.isfinite(found[0]), kind


def test_what_both_terms_of_a_spill_contain_is_not_subtracted() -> None:
    flows = np.array([1, 2, -np.inf, 4, 5], F)
    found = check(lambda s, x: s + x - np.maximum(s + x - 3, 0), F(1), flows, "min-plus")
    assert found[0] == -np.inf


def test_a_slope_that_grows_beyond_every_float_is_on_the_right_side_of_its_bounds() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=3000).astype(F)
    for factor in (2.5, -8.0, 1e30):
        constant = F(factor)
        check(lambda h, x, factor=constant: np.clip(factor * h + x, -1, 1), F(0), x, "clamp")
    factors = np.where(rng.random(3000) < 0.5, F(1e30), F(1e-30))
    check(lambda h, x: np.clip(x[0] * h + x[1], -1, 1), F(0), (factors, x), "clamp")


def test_nan_stays_in_its_row() -> None:
    x = np.ones((40, 3), F)
    x[5, 1] = np.nan
    for step in (
        lambda h, x: F(0.5) * h + x,
        lambda h, x: np.maximum(h + x, 0),
        lambda h, x: np.clip(h + x, 0, 9),
        lambda h, x: np.clip(x - h / 2, 0, 9),
        lambda h, x: 1 / (h + x),
    ):
        found = gs.loop(step, F(1), x, device="numpy")
        assert np.isfinite(found[1][:, ::2]).all()
        assert np.isfinite(found[1][:5]).all()
        assert np.isnan(found[1][5:, 1]).all()


def test_a_choice_passes_over_nan_as_the_loop_does() -> None:
    x = np.array([1, np.nan, 5, 2, np.nan, 9, 0], F)
    check(lambda h, x: np.where(x > h, x, h), F(0), x, "extremum")
    check(lambda h, x: np.where(h >= x, h, x), F(0), x, "extremum")
    check(lambda h, x: np.where(h - 1 > x, h - 1, x), F(0), x, "max-plus")
    check(lambda h, x: np.where(x > h - 1, x, h - 1), F(0), x, "max-plus")
    check(lambda h, x: np.where(h * F(0.5) > x, h * F(0.5), x), F(0), x, "max-times")
    check(lambda h, x: np.fmin(h, x), F(3), x, "extremum")


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers_do_not_overflow_where_the_loop_does_not(dtype: Any) -> None:
    far = np.iinfo(dtype).max // 2
    steps = np.array([-far, -far, -far, far, far, -far, -far, far], dtype)
    check(lambda h, x: np.maximum(h + x, 0), dtype(0), steps, "max-plus")
    check(lambda h, x: np.minimum(h - x, 5), dtype(0), steps[::-1].copy(), "min-plus")
    check(lambda h, x: np.clip(h + x, -3, 7), dtype(0), steps, "clamp")


def test_unsigned_integers_are_clamped_below_zero_differences() -> None:
    x = np.array([5, 0, 2, 250, 1, 3], np.uint8)
    check(lambda h, x: np.minimum(np.maximum(h, x) - x, 200), np.uint8(9), x, "clamp")


def test_products_of_mobius_matrices_stay_in_range() -> None:
    rng = np.random.default_rng(3)
    x = np.exp(rng.normal(size=5000) * 20).astype(F)
    check(lambda h, x: 1 / (h + x), F(1), x, "mobius", rtol=1e-4)
    r = np.exp(rng.normal(size=5000) * 3).astype(F)
    check(lambda p, r: (p + F(0.1)) * r / (p + F(0.1) + r), F(1e-20), r, "mobius", rtol=1e-4)


def test_long_sums_are_within_rounding() -> None:
    x = np.random.default_rng(5).normal(size=20_000).astype(F)
    a = F(0.999)
    exact = oracle.run(lambda h, x: 0.999 * h + x, 0.0, x.astype(float))
    found = gs.loop(lambda h, x: a * h + x, F(0), x, device="numpy")
    assert np.abs(found[1] - exact[1][0]).max() < 1e-3
