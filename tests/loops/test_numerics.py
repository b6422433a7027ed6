"""What composing steps does to overflow, NaN, infinities and cancellation, for each class; see docs/numerics.md."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import scalar_of
from gpuscan.operators.expression_graph import Graph
from gpuscan.operators.loops.semirings import scale_node, scale_number
from tests.loops import oracle
from tests.loops.oracle import check_loop
from tests.oracle import assert_same

F = np.float32


def test_products_of_factors_of_affine_maps_neither_overflow_nor_vanish() -> None:
    growth = np.full(300, 2, F)
    check_loop(lambda h, a: a * h, F(0), growth, "affine")  # 2**300 times 0
    check_loop(lambda h, a: a * h, F(1e-30), growth[:150], "affine")
    check_loop(lambda h, a: a * h, F(np.inf), 1 / growth, "affine")  # 2**-300 times infinity
    swings = np.concatenate([growth[:120], 1 / growth[:240], growth[:240], 1 / growth[:120]])
    check_loop(lambda h, a: a * h, F(3), swings, "affine")
    large = np.array([1e30, 1e30, 1e-38, 1e-22, 0, 1e38], F)
    check_loop(lambda h, a: a * h + 1, F(0), large, "affine")


@pytest.mark.parametrize("dtype", [F, np.float64])
def test_a_factor_of_0_keeps_no_exponent(dtype: Any) -> None:
    factors = np.tile(np.array([3] * 40 + [0], dtype), 75)
    check_loop(lambda h, a: a * h + 1, dtype(0), factors, "affine")
    check_loop(lambda h, a: a * h, dtype(1), factors, "affine")
    check_loop(lambda h, a: np.maximum(np.abs(a) * h, 1), dtype(0), factors, "max-times")
    check_loop(lambda h, a: np.maximum(np.abs(a[0]) * h, a[1]), dtype(1), (factors, np.ones(3075, dtype)), "max-times")
    found = gs.loop(lambda h, a: a * h + 1, F(0), factors.astype(F), device="numpy", reproducible="everywhere")
    assert np.isfinite(found[1]).all()


def test_a_factor_of_0_keeps_no_exponent_on_every_adapter(device: gs.Device) -> None:
    factors = np.tile(np.array([3] * 40 + [0], F), 75)
    for step in (lambda h, a: a * h + 1, lambda h, a: a * h):
        oracle.check(gs.loop(step, F(1), device.asarray(factors)), oracle.run(step, F(1), factors))


def strewn(values: Any, seed: int, size: int = 60) -> Any:
    """Return random numbers with some of these values among them."""
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=size).astype(F)
    places = rng.random(size) < 0.15
    numbers[places] = rng.choice(values, places.sum())
    return numbers


@pytest.mark.parametrize("seed", range(20))
def test_an_infinite_factor_of_a_product_gives_what_the_loop_gives(seed: int) -> None:
    check_loop(lambda h, x: h * x, F(1), np.array([1, 1, np.inf, 1, 1, 1], F), "affine")
    check_loop(lambda h, x: h * x, F(1), strewn([np.inf, -np.inf], seed), "affine")
    mixed = strewn([np.inf, -np.inf, 0, np.nan], seed)
    check_loop(lambda h, x: h * x, F(1), mixed, "affine")
    check_loop(lambda h, x: np.where(x > 1, x, h * x), F(1), mixed, "affine")
    check_loop(lambda h, x: np.where(x > 1, h * np.abs(x), np.where(x < -1, F(2), h / 2)), F(1), mixed, "affine")


@pytest.mark.parametrize("seed", range(20))
def test_an_infinite_term_goes_no_further_than_a_bound(seed: int) -> None:
    x = strewn([np.inf, -np.inf], seed)
    check_loop(lambda h, x: np.clip(h + x, -1, 1), F(0), np.array([0.2, np.inf, -np.inf, 0.5], F), "clamp")
    check_loop(lambda h, x: np.clip(h + x, -1, 1), F(0), x, "clamp")
    check_loop(lambda h, x: np.maximum(h + x, 0), F(0), x, "max-plus")
    check_loop(lambda h, x: np.minimum(h + x, 0), F(0), x, "min-plus")
    check_loop(lambda h, x: np.clip(h * F(0.5) + x, -1, 1), F(0), x, "clamp")
    check_loop(lambda h, x: np.clip(x - h * F(0.5), -1, 1), F(0), x, "clamp")
    check_loop(lambda h, x: np.maximum(h * F(0.5) + x, -1), F(0), x, "clamp")
    check_loop(lambda h, x: np.minimum(h * F(0.5) + x, 1), F(0), x, "clamp")


def test_infinities_on_every_adapter(device: gs.Device) -> None:
    x = strewn([np.inf, -np.inf], 0, 1000)
    for step in (lambda h, x: np.clip(h + x, -1, 1), lambda h, x: np.clip(h * F(0.5) + x, -1, 1)):
        oracle.check(gs.loop(step, F(0), device.asarray(x)), oracle.run(step, F(0), x))
    positive = np.abs(x) + F(0.1)
    positive[500] = np.nan
    oracle.check(
        gs.loop(lambda h, x: 1 / (h + x), F(0), device.asarray(positive)),
        oracle.run(lambda h, x: 1 / (h + x), F(0), positive),
    )
    factors = np.where(np.isinf(x), np.abs(x), np.exp2(np.sign(x)))
    for step in (lambda h, x: h * x, lambda h, x: np.where(x < 1, F(1), h * x)):
        oracle.check(gs.loop(step, F(1), device.asarray(factors)), oracle.run(step, F(1), factors))


@pytest.mark.parametrize("seed", range(5))
def test_a_term_of_a_maximum_that_is_absent_stays_so(seed: int) -> None:
    x = strewn([0], seed)
    check_loop(lambda h, x: np.maximum(h * np.abs(x), np.where(x > 1, x, -np.inf)), F(1), x, "max-times")
    check_loop(lambda h, x: np.minimum(h * np.abs(x), np.where(x > 1, -x, np.inf)), F(1), x, "max-times")


JOINED: dict[str, Any] = {
    "maximum": lambda c, x: np.maximum(c * F(0.5), np.maximum(2 * c, x)),
    "minimum": lambda c, x: np.minimum(c, np.minimum(F(1.5) * c, np.abs(x))),
    "pair": lambda c, x: (np.maximum(c[0] / 2, np.maximum(c[1], x)), np.maximum(c[0], c[1] * F(0.7))),
}


@pytest.mark.parametrize("name", JOINED)
def test_a_maximum_of_two_terms_of_the_carry_asks_for_one_that_is_never_negative(name: str) -> None:
    step = JOINED[name]
    x = np.random.default_rng(0).normal(size=40).astype(F)
    check_loop(step, (F(1), F(2)) if name == "pair" else F(1), x, "max-times")
    for value in (F(-1), np.array([1, -1], F), F(np.nan)):
        init = (F(1), value) if name == "pair" else value
        xs = x if value.ndim == 0 else np.stack([x, x], axis=1)
        with pytest.raises(gs.LoopError, match="joins two terms of a carry that may be negative"):
            gs.loop_form(step, init, xs)


def test_a_repeated_call_with_another_init_is_refused_too(device: gs.Device) -> None:
    x = device.asarray(np.ones(40, F))
    step = JOINED["maximum"]
    assert float(gs.loop(step, F(1), x)[1].numpy()[2]) == 8
    for init in (F(-1), device.asarray(F(1))):
        with pytest.raises(gs.LoopError, match="joins two terms"):
            gs.loop(step, init, x)


def test_the_same_term_of_the_carry_may_be_joined_twice() -> None:
    x = np.random.default_rng(0).normal(size=40).astype(F)
    check_loop(lambda c, x: np.maximum(c / 2, np.maximum(c / 2, x)), F(-3), x, "max-times")


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
        found = check_loop(step, F(1), (x, reset), kind.split()[-1])
        assert np.isfinite(found[0]), kind


def test_what_both_terms_of_a_spill_contain_is_not_subtracted() -> None:
    flows = np.array([1, 2, -np.inf, 4, 5], F)
    found = check_loop(lambda s, x: s + x - np.maximum(s + x - 3, 0), F(1), flows, "min-plus")
    assert found[0] == -np.inf


def test_a_slope_that_grows_beyond_every_float_is_on_the_right_side_of_its_bounds() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=3000).astype(F)
    for factor in (2.5, -8.0, 1e30):
        constant = F(factor)
        check_loop(lambda h, x, factor=constant: np.clip(factor * h + x, -1, 1), F(0), x, "clamp")
    factors = np.where(rng.random(3000) < 0.5, F(1e30), F(1e-30))
    check_loop(lambda h, x: np.clip(x[0] * h + x[1], -1, 1), F(0), (factors, x), "clamp")


def test_nan_of_an_input_that_is_added_and_subtracted_stays() -> None:
    x = np.array([1, np.nan, 2, 3], F)
    check_loop(lambda h, x: (h + x[0]) - x[0], F(1), (x, x), "affine")
    check_loop(lambda h, x: np.where(x[0] > 1, 1, (F(0.5) * h + x[0]) - x[0]), F(1), (x, x), "affine")


@pytest.mark.parametrize(
    "step", [lambda h, x: h + x, lambda h, x: np.maximum(h + x, -1), lambda h, x: np.maximum(F(0.9) * h + x, -1)]
)
def test_a_state_that_overflows_stays_infinite(step: Any) -> None:
    x = np.array([3e38, 3e38, -3e38, 1, -3e38, 2, 3, -3e38] * 20, F)
    check_loop(step, F(0), x)


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
    check_loop(lambda h, x: np.where(x > h, x, h), F(0), x, "extremum")
    check_loop(lambda h, x: np.where(h >= x, h, x), F(0), x, "extremum")
    check_loop(lambda h, x: np.where(h - 1 > x, h - 1, x), F(0), x, "max-plus")
    check_loop(lambda h, x: np.where(x > h - 1, x, h - 1), F(0), x, "max-plus")
    check_loop(lambda h, x: np.where(h * F(0.5) > x, h * F(0.5), x), F(0), x, "max-times")
    check_loop(lambda h, x: np.fmin(h, x), F(3), x, "extremum")


def first_best(c: Any, x: Any) -> Any:
    taken = ~(x[0] <= c[0])
    return np.where(taken, x[0], c[0]), np.where(taken, x[1], c[1])


def first_best_of_some(c: Any, x: Any) -> Any:
    taken = ~((x[0] <= c[0]) | x[1])
    return np.where(taken, x[0], c[0]), np.where(taken, x[2], c[1])


NEGATED: dict[str, Any] = {
    "not less or equal": lambda h, x: np.where(~(x <= h), x, h),
    "not greater or equal": lambda h, x: np.where(~(h >= x), x, h),
    "not less": lambda h, x: np.where(~(x < h), x, h),
    "not greater": lambda h, x: np.where(~(x > h), x, h),
    "kept if less": lambda h, x: np.where(x < h, h, x),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", NEGATED)
def test_a_negated_comparison_replaces_nan(name: str, seed: int) -> None:
    step = NEGATED[name]
    x = strewn([np.nan, np.inf, -np.inf], seed)
    check_loop(step, F(0), np.array([1, np.nan, 0.5], F), "extremum")
    check_loop(step, F(np.nan), x, "extremum")
    check_loop(step, F(0), x, "extremum")


@pytest.mark.parametrize("seed", range(5))
def test_a_negated_comparison_replaces_nan_and_its_payload(seed: int) -> None:
    x, flags = strewn([np.nan], seed), np.random.default_rng(seed).random(60) < 0.3
    times = np.arange(60, dtype=np.int32)
    check_loop(first_best, (F(0), np.int32(-1)), (x, times), "extremum")
    check_loop(first_best_of_some, (F(0), np.int32(-1)), (x, flags, times), "extremum")


def test_a_negated_comparison_replaces_nan_on_every_adapter(device: gs.Device) -> None:
    x = strewn([np.nan], 1, 1000)
    for step in (NEGATED["not less or equal"], NEGATED["not greater"]):
        oracle.check(gs.loop(step, F(0), device.asarray(x)), oracle.run(step, F(0), x))


@pytest.mark.parametrize("seed", range(5))
def test_quotients_keep_nan_beside_infinities(seed: int) -> None:
    x = strewn([np.inf, -np.inf], seed)
    late = x.copy()
    late[30] = np.nan
    with_zeros = strewn([np.inf, 0], seed)
    for step in (lambda h, x: 1 / (h + x), lambda h, x: (h + 2) / (x - h)):
        check_loop(step, F(1), x, "mobius", rtol=1e-2)
        check_loop(step, F(1), late, "mobius", rtol=1e-2)
        check_loop(step, F(np.nan), x, "mobius")
    check_loop(lambda h, x: 1 / (h + x), F(np.inf), np.abs(x), "mobius")
    check_loop(lambda h, x: 1 / (h + x), F(1), with_zeros, "mobius", rtol=1e-2)
    resets = (late, np.random.default_rng(seed).random(60) < 0.2)
    check_loop(lambda h, x: np.where(x[1], 1, 1 / (h + x[0])), F(1), resets, "mobius", rtol=1e-2)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integers_do_not_overflow_where_the_loop_does_not(dtype: Any) -> None:
    far = np.iinfo(dtype).max // 2
    steps = np.array([-far, -far, -far, far, far, -far, -far, far], dtype)
    check_loop(lambda h, x: np.maximum(h + x, 0), dtype(0), steps, "max-plus")
    check_loop(lambda h, x: np.minimum(h - x, 5), dtype(0), steps[::-1].copy(), "min-plus")
    check_loop(lambda h, x: np.clip(h + x, -3, 7), dtype(0), steps, "clamp")


@pytest.mark.parametrize("start", [0, 2**40])
@pytest.mark.parametrize("length", [1, 5, 700])
def test_int64_states_beyond_small_bounds_keep_all_bits(start: int, length: int) -> None:
    x = np.random.default_rng(length).integers(-(2**50), 2**50, length)
    check_loop(lambda h, x: np.maximum(h + x, 0), np.int64(start), x, "max-plus")
    check_loop(lambda h, x: np.minimum(h + x, 9), np.int64(start), x, "min-plus")
    check_loop(lambda h, x: np.clip(h + (x >> 40), -100, 100), np.int64(start), x, "clamp")


def test_unsigned_integers_are_clamped_below_zero_differences() -> None:
    x = np.array([5, 0, 2, 250, 1, 3], np.uint8)
    check_loop(lambda h, x: np.minimum(np.maximum(h, x) - x, 200), np.uint8(9), x, "clamp")


def test_products_of_mobius_matrices_stay_in_range() -> None:
    rng = np.random.default_rng(3)
    x = np.exp(rng.normal(size=5000) * 20).astype(F)
    check_loop(lambda h, x: 1 / (h + x), F(1), x, "mobius", rtol=1e-4)
    r = np.exp(rng.normal(size=5000) * 3).astype(F)
    check_loop(lambda p, r: (p + F(0.1)) * r / (p + F(0.1) + r), F(1e-20), r, "mobius", rtol=1e-4)


def test_long_sums_are_within_rounding() -> None:
    x = np.random.default_rng(5).normal(size=20_000).astype(F)
    a = F(0.999)
    exact = oracle.run(lambda h, x: 0.999 * h + x, 0.0, x.astype(float))
    found = gs.loop(lambda h, x: a * h + x, F(0), x, device="numpy")
    assert np.abs(found[1] - exact[1][0]).max() < 1e-3


# Steps of several numbers, the kind of their class, and init. The input is (x, y, flag).
COUPLED: dict[str, tuple[Any, str, Any]] = {
    "delays": (lambda h, x: np.array([x[0], h[0], h[1]]), "affine", np.zeros(3, F)),
    "delays and a mean": (
        lambda h, x: np.array([x[0], h[0], h[1], h[3] * F(0.5) + h[2]]),
        "affine",
        np.zeros(4, F),
    ),
    "numbers that change places": (lambda h, x: np.array([h[1], h[0] + x[0]]), "affine", np.zeros(2, F)),
    "two means and their sum": (
        lambda h, x: np.array([h[0] * F(0.5) + x[0], h[1] * F(0.5) + x[1], h[0] * F(0.5) + h[2] * F(0.3)]),
        "affine",
        np.zeros(3, F),
    ),
    "one of two is reset": (
        lambda h, x: (np.where(x[2], x[1], h[1] * F(0.5) + h[0] * F(0.2) + x[0]), h[0] * F(0.5) + F(0.1)),
        "affine",
        (F(0), F(0)),
    ),
    "change of places by a flag": (
        lambda c, x: (np.where(x[2], c[1], c[0] / 2) + x[0], np.where(x[2], c[0] / 2, c[1])),
        "affine",
        (F(0), F(0)),
    ),
    "delays of a maximum": (
        lambda h, x: np.array([x[0], np.maximum(h[0] + 1, x[1]), np.maximum(h[1] + x[0], 0)]),
        "max-plus",
        np.zeros(3, F),
    ),
    "delays of a log of a sum": (
        lambda h, x: np.array([x[0], np.logaddexp(h[0] + 1, 0), np.logaddexp(h[1] + 2, 0)]),
        "log-plus",
        np.zeros(3, F),
    ),
}


def inputs_of_three(seed: int, size: int = 60) -> Any:
    values = [np.nan] if seed % 2 else [np.nan, np.inf]
    x, y = (strewn(values, seed + each, size) for each in (0, 1000))
    late = np.random.default_rng(seed).random(size) < 0.7
    # Few numbers are not finite, so that some states are finite again.
    return np.where(late, np.nan_to_num(x, posinf=1), x), np.nan_to_num(y, posinf=1), np.roll(late, 3)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", COUPLED)
def test_nan_of_a_number_reaches_those_alone_that_depend_on_it(name: str, seed: int) -> None:
    step, kind, init = COUPLED[name]
    check_loop(step, init, inputs_of_three(seed), kind)


def test_nan_stays_in_its_numbers_on_every_adapter(device: gs.Device) -> None:
    xs = inputs_of_three(1, 500)
    for name in ("delays and a mean", "one of two is reset", "delays of a maximum"):
        step, _, init = COUPLED[name]
        oracle.check(gs.loop(step, init, tuple(map(device.asarray, xs))), oracle.run(step, init, xs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scaled_constants(dtype: Any) -> None:
    """Assert that a constant is scaled to the same factor and exponent, bit by bit, as a number that is known late."""
    tiny, largest = np.finfo(dtype).smallest_subnormal, np.finfo(dtype).max
    values = [0.0, -0.0, 0.5, -3.0, 2.0**32, 2.0**-32, 2.0**31, 2.0**-33, 1e30, -1e-30, 2.0**100, tiny, -largest]
    values += [2.0**300, 2.0**-300, 2.0**600, np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        for value in map(dtype, values):
            graph = Graph()
            nodes = scale_node(graph, graph.constant(value, scalar_of(np.dtype(dtype))))
            for node, wanted in zip(nodes, scale_number(np.array(value)), strict=True):
                assert_same(np.asarray(node.value), np.asarray(wanted), value)


GROWTH: dict[str, Any] = {
    "interest": lambda h, x: h + F(0.004) * h,
    "interest and payments": lambda h, x: h + F(0.004) * h + x,
    "factor": lambda h, x: F(1.004) * h,
    "factor above 1 that leaves its range soon": lambda h, x: F(1.2) * h if x < 1 else h,
    "slow decay": lambda h, x: h + F(1e-4) * (x - h),
    "reset": lambda h, x: np.where(x > 0.999, x, h - F(1e-4) * h),
    "kept": lambda h, x: np.where(x > 0.5, h, F(1.004) * h + x),
}


@pytest.mark.parametrize("name", GROWTH)
def test_powers_of_a_constant_near_1_are_as_accurate_as_the_loop(name: str, device: gs.Device) -> None:
    """Without care, each step has the same rounding error, so that they add up to 2e-4."""
    n = 450 if "leaves" in name else 3000
    x = np.random.default_rng(4).random(n).astype(F)
    wanted, h = [], np.float64(1)
    for value in x.astype(np.float64):
        h = GROWTH[name](h, value)
        wanted.append(h)
    np.testing.assert_allclose(gs.loop(GROWTH[name], F(1), x, device=device).ys, wanted, rtol=1e-5)
