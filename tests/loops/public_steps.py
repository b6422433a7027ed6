"""More steps behind public questions, each a function as its author would write it, with the kinds of its stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.loops.steps import Case

F = np.float32
I = np.int32
B = np.bool_
PUBLIC: list[Case] = []


def case(kinds: str, init: Any, inputs: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a step with the kinds of its stages, in the order in which they run."""

    def add(step: Callable[..., Any]) -> Callable[..., Any]:
        PUBLIC.append(Case(step.__name__, kinds, step, init, inputs))
        return step

    return add


@case("affine affine", (F(np.nan), I(0)), "gaps")
def fill_with_a_limit(c: Any, x: Any) -> Any:
    last, age = c
    missing = np.isnan(x)
    age = np.where(missing, age + 1, 0)
    last = np.where(missing, last, x)
    return (last, age), np.where(age <= 2, last, F(np.nan))


@case("affine", (I(-1), F(0)), "j x")
def sum_until_the_group_changes(c: Any, x: Any) -> Any:
    group, total = c
    total = np.where(x[0] == group, total + x[1], x[1])
    return (x[0], total), total


@case("clamp", I(0), "flag")
def count_streak(s: Any, win: Any) -> Any:
    return np.where(win, np.where(s > 0, s + 1, 1), np.where(s < 0, s - 1, -1))


@case("affine", F(0), "unit x")
def adaptive_mean(k: Any, x: Any) -> Any:
    k = k + x[0] * (x[1] - k)
    return k, k


@case("affine", (F(0), F(0)), "positive x")
def volume_by_direction(c: Any, x: Any) -> Any:
    price, volume = c
    volume = volume + np.where(x[0] > price, x[1], np.where(x[0] < price, -x[1], F(0)))
    return (x[0], volume), volume


@case("affine", (F(0), F(0), np.zeros(4, F)), "x")
def seasons(c: Any, x: Any) -> Any:
    level, trend, season = c
    later = F(0.3) * (x - season[0]) + F(0.7) * (level + trend)
    trend = F(0.1) * (later - level) + F(0.9) * trend
    season = np.append(season[1:], F(0.2) * (x - later) + F(0.8) * season[0])
    return (later, trend, season), later + trend + season[0]


@case("max-plus max-plus", (F(0), F(0)), "x")
def two_sided_cusum(c: Any, x: Any) -> Any:
    high, low = np.maximum(0, c[0] + x - F(0.25)), np.maximum(0, c[1] - x - F(0.25))
    return (high, low), (high > 3) | (low > 3)


@case("affine affine", (F(0), F(0)), "x")
def mean_and_variance_that_forget(c: Any, x: Any) -> Any:
    mean, variance = c
    difference = x - mean
    step = F(0.1) * difference
    mean = mean + step
    return (mean, F(0.9) * (variance + difference * step)), mean


@case("max-plus", F(0), "time positive")
def completion(c: Any, x: Any) -> Any:
    c = np.maximum(c, x[0].astype(F)) + x[1]
    return c, c


@case("affine affine extremum", (F(0), F(0), F(0)), "x")
def largest_second_moment(c: Any, g: Any) -> Any:
    m, v, top = c
    m, v = F(0.9) * m + F(0.1) * g, F(0.99) * v + F(0.01) * np.square(g)
    top = np.maximum(top, v)
    return (m, v, top), m / (np.sqrt(top) + F(1e-6))


@case("affine", F(0), "x unit flag")
def lambda_returns(g: Any, x: Any) -> Any:
    g = x[0] + F(0.99) * np.where(x[2], 0, F(0.1) * x[1] + F(0.9) * g)
    return g, g


@case("bitwise affine", (I(0), B(False)), "j")
def luhn(c: Any, digit: Any) -> Any:
    total, doubles = c
    total = total + np.where(doubles, np.where(digit > 4, 2 * digit - 9, 2 * digit), digit)
    return (total, ~doubles), total % 10 == 0


@case("affine bitwise", (I(0), B(True)), "text")
def balance_of_quotes(c: Any, character: Any) -> Any:
    depth, valid = c
    depth = depth + np.where(character == ord("a"), 1, np.where(character == ord("b"), -1, 0))
    return (depth, valid & (depth >= 0)), valid & (depth == 0)


@case("bitwise bitwise", (B(False), B(False)), "text")
def strings_with_escapes(c: Any, character: Any) -> Any:
    inside, escaped = c
    inside = inside ^ ((character == ord('"')) & ~escaped)
    return (inside, (character == ord("\\")) & ~escaped), inside


@case("max-plus affine", (I(0), np.uint32(0)), "bits")
def utf8(c: Any, word: Any) -> Any:
    left, point = c
    byte = word & np.uint32(255)
    follows = (byte & 0xC0) == 0x80
    begins = np.where(byte < 0x80, 0, np.where(byte >= 0xF0, 3, np.where(byte >= 0xE0, 2, 1)))
    point = np.where(follows, (point << 6) | (byte & 0x3F), byte & 0x1F).astype(np.uint32)
    return (np.where(follows, np.maximum(left - 1, 0), begins), point), point


@case("affine extremum", (I(-1), I(0), I(0)), "j")
def longest_run(c: Any, x: Any) -> Any:
    previous, run, best = c
    run = np.where((x > 4) == (previous > 4), run + 1, 1)
    return (x, run, np.maximum(best, run)), best


@case("finite-state", (B(False), I(0)), "flag")
def debounce(c: Any, x: Any) -> Any:
    stable, count = c
    count = np.where(x != stable, count + 1, 0)
    flips = count >= 3
    return (np.where(flips, x, stable), np.where(flips, 0, count)), stable


@case("min-plus affine", (np.uint32(0), np.uint32(0), B(False)), "bits")
def variable_length(c: Any, word: Any) -> Any:
    number, shift, more = c
    number = np.where(more, number, 0) + ((word & np.uint32(127)) << np.where(more, shift, 0))
    more = (word & 128) != 0
    return (number.astype(np.uint32), np.where(more, np.minimum(shift + 7, 28), 0), more), number


@case("max-plus extremum", (F(-np.inf), F(-np.inf)), "x")
def best_subarray(c: Any, x: Any) -> Any:
    here = np.maximum(x, c[0] + x)
    best = np.maximum(c[1], here)
    return (here, best), best


@case("max-plus", (I(0), I(0)), "j")
def robber(c: Any, x: Any) -> Any:
    return (c[1], np.maximum(c[1], c[0] + x)), c[1]


@case("min-plus", (F(0), F(0), F(0)), "x u positive")
def paint_houses(c: Any, x: Any) -> Any:
    red, green, blue = c
    return x[0] + np.minimum(green, blue), x[1] + np.minimum(red, blue), x[2] + np.minimum(red, green)


@case("affine affine affine", (I(0), I(0), I(0)), "text")
def subsequences(c: Any, x: Any) -> Any:
    a, ab, aba = c
    return a + (x == 97), ab + np.where(x == 98, a, 0), aba + np.where(x == 97, ab, 0)


@case("extremum affine affine", (F(-np.inf), F(0), F(0)), "x u")
def weigh_by_softmax(c: Any, x: Any) -> Any:
    top, total, weights = c
    score, value = x
    later = np.maximum(top, score)
    old, new = np.exp(top - later), np.exp(score - later)
    return (later, total * old + value * new, weights * old + new), (total * old + value * new) / (weights * old + new)


@case("extremum extremum", (F(-np.inf), F(-np.inf)), "x")
def two_largest(c: Any, x: Any) -> Any:
    return (np.maximum(c[0], x), np.maximum(c[1], np.minimum(c[0], x))), c[1]


@case("clamp", F(0), "positive unit")
def soil(s: Any, x: Any) -> Any:
    s = s + x[0]
    spill = np.maximum(s - 2, 0)
    s = s - spill
    return s - np.minimum(s, x[1]), spill


@case("affine affine", (F(1), F(0)), "positive")
def two_reservoirs(c: Any, rain: Any) -> Any:
    upper, lower = c
    flow = F(0.3) * upper
    return (upper + rain - flow, lower + flow - F(0.1) * lower), F(0.1) * lower


@case("affine affine affine", (F(0), F(0), F(0)), "x positive")
def dead_reckoning(c: Any, x: Any) -> Any:
    heading, east, north = c
    heading = heading + F(0.1) * x[0]
    return (heading, east + x[1] * np.cos(heading), north + x[1] * np.sin(heading)), heading


@case("affine affine", (F(0), F(0)), "flag positive")
def trades(c: Any, x: Any) -> Any:
    entry, profit = c
    profit = profit + np.where(x[0], x[1] - entry, F(0))
    return (np.where(x[0], x[1], entry), profit), profit


@case("extremum bitwise", (F(0), B(False)), "positive")
def trailing_stop(c: Any, price: Any) -> Any:
    stop, hit = c
    hit = hit | (price < stop)
    return (np.maximum(stop, price * F(0.5)), hit), hit


@case("affine extremum extremum", (F(0), F(0), I(0)), "x")
def bars_of_five(c: Any, x: Any) -> Any:
    low, high, count = c
    new = count % 5 == 0
    low, high = np.where(new, x, np.minimum(low, x)), np.where(new, x, np.maximum(high, x))
    return (low, high, count + 1), high - low


@case("extremum", (I(-1), I(0)), "i j")
def last_writer_wins(c: Any, x: Any) -> Any:
    takes = x[0] >= c[0]
    return np.where(takes, x[0], c[0]), np.where(takes, x[1], c[1])


@case("affine affine", (F(0), I(0)), "x")
def mean_that_begins_with_the_first(c: Any, x: Any) -> Any:
    mean, count = c
    mean = np.where(count == 0, x, F(0.9) * mean + F(0.1) * x)
    return (mean, count + 1), mean


@case("bitwise", B(False), "flag flag")
def carry_of_an_adder(c: Any, x: Any) -> Any:
    return (x[0] & x[1]) | (c & (x[0] ^ x[1])), x[0] ^ x[1] ^ c


@case("affine", (F(1), F(0), F(0), F(0)), "vector")
def quaternion(q: Any, w: Any) -> Any:
    a, b, c, d = q
    x, y = F(0.01) * w[0], F(0.01) * w[1]
    return a - b * x - c * y, b + a * x - d * y, c + a * y + d * x, d + b * y - c * x
