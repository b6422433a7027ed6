"""Step functions of loops that people write, with the class that each belongs to, and steps that belong to none.

They are the loops behind public questions ("use the previous row's result") and papers on filters, parsers, returns and
hydrology. A case is (name, kind, step, init, names of the inputs).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

F = np.float32
I = np.int32
N = 300


def inputs() -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays that steps read, by their names."""
    rng = np.random.default_rng(7)
    normal = rng.normal(size=(6, N)).astype(F)
    gaps = normal[0].copy()
    gaps[rng.random(N) < 0.3] = np.nan
    return {
        "x": normal[0],
        "u": normal[1],
        "positive": np.abs(normal[2]) + F(0.1),
        "unit": rng.random(N).astype(F),
        "gaps": gaps,
        "i": rng.integers(-9, 10, N).astype(I),
        "j": rng.integers(0, 10, N).astype(I),
        "small": rng.integers(-9, 10, N).astype(np.int8),
        "wide": rng.integers(-(10**12), 10**12, N),
        "bits": rng.integers(0, 2**32, N, dtype=np.uint32),
        "sign": np.random.default_rng(9).choice(
            np.array([-1, 0, 1, 1, -1, -1, -2], I), N, p=[0.2, 0.1, 0.2, 0.2, 0.2, 0.08, 0.02]
        ),
        "other": np.random.default_rng(8).integers(0, 2**32, N, dtype=np.uint32),
        "flag": rng.random(N) < 0.2,
        "text": rng.choice(np.frombuffer(b'ab,"\n\\', np.uint8), N),
        "time": np.arange(N).astype(I),
        "vector": np.stack([normal[3], normal[4]], axis=-1),
    }


class Case(NamedTuple):
    """A step: its name, its class or the operation that is refused, the function, init, and the names of its inputs."""

    name: str
    kind: str
    step: Callable[[Any, Any], Any]
    init: Any
    inputs: str


def welford(c: Any, x: Any) -> Any:
    n, mean, m2 = c
    n = n + 1
    later = mean + (x - mean) / n
    return n, later, m2 + (x - mean) * (x - later)


def forward(c: Any, x: Any) -> Any:
    stay, leave = F(np.log(0.9)), F(np.log(0.1))
    return np.logaddexp(c[0] + stay, c[1] + leave) + x[0], np.logaddexp(c[0] + leave, c[1] + stay) + x[1]


def first_best_of_a_day(c: Any, x: Any) -> Any:
    value, time, opens = x
    taken = (value > c[0]) | opens
    return np.where(taken, value, c[0]), np.where(taken, time, c[1])


def adam(c: Any, g: Any) -> Any:
    m, v, p = c
    m = F(0.9) * m + F(0.1) * g
    v = F(0.99) * v + F(0.01) * g * g
    return m, v, p - F(0.01) * m / (np.sqrt(v) + F(1e-6))


def kalman(c: Any, z: Any) -> Any:
    mean, variance = c
    predicted = variance + F(0.1)
    gain = predicted / (predicted + F(0.5))
    return (mean + gain * (z - mean), (1 - gain) * predicted)


def rsi(c: Any, change: Any) -> Any:
    up, down = c
    up = (up * 13 + np.maximum(change, 0)) / 14
    down = (down * 13 + np.maximum(-change, 0)) / 14
    return (up, down), 100 - 100 / (1 + up / (down + F(1e-6)))


def quotes(state: Any, c: Any) -> Any:
    """Follow CSV: 0 outside quotes, 1 inside, 2 after a backslash inside."""
    inside = np.where(c == ord("\\"), 2, np.where(c == ord('"'), 0, 1))
    after = np.where(state == 0, np.where(c == ord('"'), 1, 0), np.where(state == 1, inside, 1)).astype(I)
    return after, (state == 0) & (c == ord(","))


def spill(s: Any, x: Any) -> Any:
    """Fill a bucket, and return what does not fit."""
    full = s + x[0] - x[1]
    over = np.maximum(full - 3, 0)
    return full - over, over


def melt(s: Any, x: Any) -> Any:
    """Collect snow, then melt all of it or as much as the temperature allows."""
    melted = np.minimum(s + x[0], np.maximum(x[1], 0) * 2)
    return s + x[0] - melted, melted


def battery(s: Any, x: Any) -> Any:
    """Charge at most the free capacity, and discharge at most the stored charge."""
    flow = np.clip(x, -s, 5 - s)
    return s + flow, flow


def sell(s: Any, x: Any) -> Any:
    sold = np.minimum(s, x[1])
    left = s - sold
    return left + np.minimum(x[0], 20 - left), sold


def two_peaks(c: Any, x: Any) -> Any:
    one = np.where(x[2], c[0] * F(0.5), np.maximum(c[1] * F(0.3), x[0]))
    return one, np.where(x[2], np.maximum(c[0] * F(0.9), x[1]), c[1])


def macd(c: Any, x: Any) -> Any:
    fast = c["fast"] + F(2 / 13) * (x - c["fast"])
    slow = c["slow"] + F(2 / 27) * (x - c["slow"])
    return {"fast": fast, "slow": slow}, fast - slow


def largest_product(c: Any, x: Any) -> Any:
    high, low = c
    terms = high * x, low * x
    return (np.maximum(np.maximum(*terms), x), np.minimum(np.minimum(*terms), x)), high - low


def product_by_swap(c: Any, x: Any) -> Any:
    low, high = c
    low, high = np.where(x < 0, high, low), np.where(x < 0, low, high)
    return np.minimum(x, x * low), np.maximum(x, x * high)


def tab_stop(column: Any, c: Any) -> Any:
    if c == ord("\\"):
        return column + 8 - column % 8
    return 0 if c == ord("\n") else column + 1


def internet_checksum(s: Any, x: Any) -> Any:
    s = s + (x & 0xFFFF)
    return (s & 0xFFFF) + (s >> 16)


def checksum_of_bytes(s: Any, x: Any) -> Any:
    s = s + ((x[0].astype(np.uint32) << 8) | x[1])
    return s - 65535 if s > 65535 else s


def brackets(depth: Any, c: Any) -> Any:
    if c == ord("a"):
        depth += 1
    elif c == ord("b") and depth > 0:
        depth -= 1
    return depth


def up_and_down(n: Any, x: Any) -> Any:
    if x and n < 100:
        n += 1
    if not x and n > 0:
        n -= 1
    return n


def long_addition(carry: Any, x: Any) -> Any:
    total = carry + x[0] + x[1]
    return total // 10, total % 10


def health(h: Any, x: Any) -> Any:
    return h if h == 0 else min(max(h + x, 0), 100)


def backlash(h: Any, x: Any) -> Any:
    if h < x - F(0.5):
        return x - F(0.5)
    return x + F(0.5) if h > x + F(0.5) else h


def percolate(s: Any, x: Any) -> Any:
    s = s + x[0]
    run_off = F(0.2) * s
    lost = np.minimum(s - run_off, x[1])
    return s - run_off - lost, lost


def largest_by_two_keys(c: Any, x: Any) -> Any:
    better = (x[0] > c[0]) | ((x[0] == c[0]) & (x[1] < c[1]))
    return np.where(better, x[0], c[0]), np.where(better, x[1], c[1]), np.where(better, x[2], c[2])


def largest_by_conditions(c: Any, x: Any) -> Any:
    if x[2] or x[0] > c[0] or (x[0] == c[0] and x[1] >= c[1]):
        return x[0], x[1]
    return c


def bucket(s: Any, rain: Any) -> Any:
    s = np.minimum(s + rain, 9)
    flow = F(0.2) * s
    return s - flow, flow


def evaporate(s: Any, x: Any) -> Any:
    s = min(s + x[0], F(9))
    return s - s / (x[1] + 2) - F(0.1) * s


def log_sum_by_max(h: Any, x: Any) -> Any:
    return max(h, x) + np.log1p(np.exp(-abs(x - h)))


def log_sum(h: Any, x: Any) -> Any:
    h = h + x[1]
    m = np.maximum(h, x[0])
    return m + np.log(np.exp(h - m) + np.exp(x[0] - m))


CASES = [
    # Sums, filters, recurrences
    Case("running sum", "affine", lambda h, x: h + x, F(0), "x"),
    Case("running product", "affine", lambda h, x: h * x, F(1), "unit"),
    Case("moving average by decay", "affine", lambda h, x: F(0.9) * h + F(0.1) * x, F(0), "x"),
    Case("low pass by difference", "affine", lambda h, x: h + F(0.2) * (x - h), F(0), "x"),
    Case("discounted return", "affine", lambda g, r: r + F(0.99) * g, F(0), "x"),
    Case("generalised advantage", "affine", lambda a, x: (x[0] + F(0.95) * (1 - x[1]) * a).astype(F), F(0), "x flag"),
    Case("gated memory", "affine", lambda h, x: x[0] * h + (1 - x[0]) * x[1], F(0), "unit x"),
    Case("reset by a flag", "affine", lambda h, x: np.where(x[1], x[0], h + x[0]), F(0), "x flag"),
    Case("reset after a flag", "affine", lambda h, x: (np.where(x[1], 0, h + x[0]), h + x[0]), F(0), "x flag"),
    Case("streak", "affine", lambda n, x: np.where(x > 0, n + 1, 0), I(0), "x"),
    Case("last valid value", "affine", lambda h, x: np.where(np.isnan(x), h, x), F(0), "gaps"),
    Case("polynomial hash", "affine", lambda h, x: h * 31 + x, I(7), "i"),
    Case("hash of 64 bits", "affine", lambda h, x: h * 6364136223846793005 + x, np.int64(1), "wide"),
    Case("narrow sum wraps", "affine", lambda h, x: h + x, np.int8(0), "small"),
    Case("compound interest", "affine", lambda b, x: b * (1 + F(0.01) * x[0]) + x[1], F(100), "unit x"),
    Case("average of half", "affine", lambda h, x: (h + x) / 2, F(0), "x"),
    Case("binary number", "affine", lambda h, x: (h << 1) + x, I(0), "j"),
    Case("alternating sum", "affine", lambda h, x: x - h, F(0), "x"),
    Case("second order filter", "affine", lambda c, x: (F(1.5) * c[0] - F(0.7) * c[1] + x, c[0]), (F(0), F(0)), "x"),
    Case("Fibonacci modulo 2**32", "affine", lambda c, x: (c[1], c[0] + c[1] + x), (I(0), I(1)), "i"),
    Case(
        "holt",
        "affine",
        lambda c, x: (lambda level: (level, c[1] + F(0.1) * (level - c[0] - c[1])))(
            c[0] + c[1] + F(0.3) * (x - c[0] - c[1])
        ),
        (F(0), F(0)),
        "x",
    ),
    Case("rotation", "affine", lambda h, x: np.array([[0.8, -0.6], [0.6, 0.8]], F) @ h + x, np.zeros(2, F), "vector"),
    Case("complex oscillator", "affine", lambda h, x: np.complex64(0.6 + 0.7j) * h + x, np.complex64(0), "x"),
    Case("shift register", "affine", lambda h, x: np.array([x, h[0], h[1]]), np.zeros(3, I), "i"),
    Case("count of lines in bytes", "affine", lambda n, c: n + (c < 99), 0, "text"),
    Case("column in bytes", "affine", lambda n, c: np.where(c == 255, 0, n + 1), 0, "text"),
    # Maxima and minima
    Case("running maximum", "extremum", lambda h, x: np.maximum(h, x), F(-np.inf), "x"),
    Case("running minimum", "extremum", lambda h, x: np.minimum(h, x), I(99), "i"),
    Case("maximum without NaN", "extremum", lambda h, x: np.fmax(h, x), F(-9), "gaps"),
    Case("maximum by choice", "extremum", lambda h, x: np.where(x > h, x, h), F(-9), "gaps"),
    Case(
        "first place of the maximum",
        "extremum",
        lambda c, x: (np.where(x[0] > c[0], x[0], c[0]), np.where(x[0] > c[0], x[1], c[1])),
        (F(-9), I(-1)),
        "x time",
    ),
    Case(
        "last place of the minimum",
        "extremum",
        lambda c, x: (np.where(x[0] <= c[0], x[0], c[0]), np.where(x[0] <= c[0], x[1], c[1])),
        (I(99), I(-1)),
        "i time",
    ),
    Case(
        "best with two payloads",
        "extremum",
        lambda c, x: (
            np.where(x[0] > c[0], x[0], c[0]),
            np.where(x[0] > c[0], x[1], c[1]),
            np.where(x[0] > c[0], x[2], c[2]),
        ),
        (F(-9), I(-1), F(0)),
        "gaps time u",
    ),
    Case("drop from the peak", "extremum", lambda h, x: (np.maximum(h, x), np.maximum(h, x) - x), F(-9), "x"),
    Case("queue of waiting times", "max-plus", lambda w, x: np.maximum(w + x[0] - x[1], 0), F(0), "x u"),
    Case("largest sum of a stretch", "max-plus", lambda h, x: np.maximum(h, 0) + x, F(0), "x"),
    Case("Kadane by maximum", "max-plus", lambda h, x: np.maximum(h + x, x), I(0), "i"),
    Case("cusum", "max-plus", lambda s, x: np.maximum(0, s + x - F(0.5)), F(0), "x"),
    Case("cusum by where", "max-plus", lambda s, x: np.where(s + x > 0, s + x, 0), F(0), "x"),
    Case("completion time", "max-plus", lambda t, x: np.maximum(t, x[0]) + x[1], F(0), "x positive"),
    Case("decay by steps", "max-plus", lambda h, x: np.maximum(h - 1, x), I(0), "i"),
    Case("earliest start", "min-plus", lambda h, x: np.minimum(h + 2, x), I(99), "i"),
    Case("distance to a mark", "min-plus", lambda d, x: np.minimum(d + 1, np.where(x, 0, 9999)), I(9999), "flag"),
    Case("cap of savings", "min-plus", lambda h, x: np.minimum(h + x, 10), I(0), "j"),
    Case(
        "two tracks",
        "max-plus",
        lambda c, x: (np.maximum(c[0] + x[0], c[1] + x[1]), np.maximum(c[0] - x[1], c[1] - x[0])),
        (F(0), F(0)),
        "x u",
    ),
    Case("peak that decays", "max-times", lambda h, x: np.maximum(F(0.95) * h, x), F(0), "positive"),
    Case("peak by where", "max-times", lambda h, x: np.where(F(0.95) * h > x, F(0.95) * h, x), F(0), "positive"),
    Case("envelope", "max-times", lambda h, x: np.maximum(np.exp(-x[0]) * h, np.abs(x[1])), F(0), "positive x"),
    Case("high water mark", "max-times", lambda h, x: np.maximum(h, h * (1 + x)), F(1), "unit"),
    Case("wealth that never falls", "max-times", lambda h, x: np.maximum(h, h * (1 + x * F(0.1))), F(1), "x"),
    Case("two peaks that decay", "max-times", two_peaks, (F(-1), F(-1)), "u x flag"),
    Case(
        "delays of a maximum",
        "max-plus",
        lambda h, x: np.array([x, np.maximum(h[0] + 1, x), np.maximum(h[1] + x, 0)]),
        np.zeros(3, I),
        "i",
    ),
    # Extrema by a key, or by several in turn
    Case("largest move", "extremum", lambda h, x: np.where(np.abs(x) > np.abs(h), x, h), F(0), "gaps"),
    Case("nearest to 3", "extremum", lambda h, x: x if abs(x - 3) <= abs(h - 3) else h, I(99), "i"),
    Case("smallest square", "extremum", lambda h, x: h if h * h <= x * x else x, F(9), "gaps"),
    Case(
        "largest move and its time", "extremum", lambda c, x: max(c, x, key=lambda v: abs(v[0])), (F(0), I(0)), "x time"
    ),
    Case("the largest pair", "extremum", lambda c, x: max(c, x), (I(0), I(9)), "i j"),
    Case("the least pair", "extremum", lambda c, x: min(c, x), (F(0), I(9)), "gaps j"),
    Case("largest by two keys", "staged", largest_by_two_keys, (I(-9), I(0), F(0)), "i j x"),
    Case("largest by conditions", "extremum", largest_by_conditions, (I(-9), I(0)), "i j flag"),
    # Bounds that pass over missing values
    Case("peak over gaps", "max-times", lambda h, x: np.fmax(F(0.9) * h, np.abs(x)), F(0), "gaps"),
    Case("score over gaps", "max-plus", lambda h, x: np.fmax(h - 1, x), F(0), "gaps"),
    Case("limits over gaps", "clamp", lambda h, x: np.fmin(np.fmax(h / 2, x[0]), x[1]), F(0), "gaps u"),
    # Clamps
    Case("bucket that loses a share", "clamp", bucket, F(1), "positive"),
    Case("bucket that evaporates", "clamp", evaporate, F(1), "positive unit"),
    Case("first best of a day", "extremum", first_best_of_a_day, (F(-9), I(0)), "x time flag"),
    Case("spill of a bucket", "min-plus", spill, F(0), "positive unit"),
    Case("melt of snow", "max-plus", melt, F(0), "positive x"),
    Case("flow of a battery", "clamp", battery, F(0), "x"),
    Case("sales from stock", "clamp", sell, I(300), "j time"),
    Case("counter of flags as bytes", "clamp", lambda n, c: np.clip(n + np.where(c < 90, 1, -1), 0, 80), 0, "text"),
    Case("bucket with a lid", "clamp", lambda s, x: np.clip(s + x, 0, 3), F(0), "x"),
    Case("battery", "clamp", lambda s, x: (np.clip(s + x[0], 0, x[1]), s), F(0), "x positive"),
    Case("saturating counter", "clamp", lambda s, x: np.clip(s + np.where(x, 1, -1), 0, 3), I(0), "flag"),
    Case("clamp of integers", "clamp", lambda s, x: np.minimum(np.maximum(s + x, -5), 20), I(0), "i"),
    Case("clamp with resets", "clamp", lambda s, x: np.where(x[1], 1, np.clip(s + x[0], 0, 9)), I(0), "i flag"),
    Case("limits alone", "clamp", lambda s, x: np.clip(s, x[0] - x[1], x[0] + x[1]), F(0), "x positive"),
    Case("store that leaks", "clamp", lambda h, x: np.maximum(F(0.9) * h + x, 0), F(0), "x"),
    Case("store that leaks, with a lid", "clamp", lambda h, x: np.clip(F(0.9) * h + x, 0, 2), F(0), "x"),
    Case("leak by where", "clamp", lambda h, x: np.where(F(0.9) * h + x > 0, F(0.9) * h + x, 0), F(0), "x"),
    Case("leak over gaps", "clamp", lambda h, x: np.where(F(0.5) * h + x > 0, F(0.5) * h + x, 0), F(0), "gaps"),
    Case("gap in a leak", "clamp", lambda h, x: np.maximum(F(0.5) * h + x, 0), F(0), "gaps"),
    Case("factors of both signs", "clamp", lambda h, x: np.clip(x[0] * h + x[1], -1, 1), F(0), "x u"),
    Case("factors of any sign above a bound", "clamp", lambda h, x: np.maximum(h * x[0], x[1]), F(0), "x u"),
    Case("wealth up to a cap", "clamp", lambda w, r: np.minimum(w * (1 + r), 2), F(1), "u"),
    Case("growth between limits", "clamp", lambda h, x: np.clip(F(-1.25) * h + x, -1, 1), F(0), "x"),
    Case(
        "rectified unit with resets",
        "clamp",
        lambda h, x: np.where(x[1], 1, np.maximum(x[0] - h / 2, 0)),
        F(0),
        "x flag",
    ),
    Case("floor under a mean", "clamp", lambda h, x: np.maximum(h + F(0.1) * (x - h), F(0.05)), F(0), "positive"),
    Case("stock that may run out", "max-plus", lambda s, x: np.where(s < x, 0, s - x), I(900), "j"),
    Case("credit up to a limit", "min-plus", lambda s, x: np.where(s + x >= 9, 9, s + x), F(0), "positive"),
    Case("backlash", "clamp", backlash, F(0), "x"),
    Case("percolation", "clamp", percolate, F(3), "positive unit"),
    Case("store that spills", "clamp", lambda s, x: F(0.9) * s + x - np.maximum(F(0.9) * s + x - 4, 0), F(1), "x"),
    # Logarithms
    Case("log of a sum of weights", "log-plus", lambda h, x: np.logaddexp(h + x[0], x[1]), F(0), "u x"),
    Case("log of a sum that begins with nothing", "log-plus", lambda h, x: np.logaddexp(h, x), F(-np.inf), "x"),
    Case("forward algorithm", "log-plus", forward, (F(0), F(-1)), "x u"),
    Case("log of a sum with resets", "log-plus", lambda h, x: np.where(x[1], 0, np.logaddexp(h, x[0])), F(0), "x flag"),
    # Quotients
    Case("continued fraction", "mobius", lambda h, x: 1 / (x + h), F(0), "positive"),
    Case("parallel resistors", "mobius", lambda r, x: r * x / (r + x), F(100), "positive"),
    Case(
        "variance of a Kalman filter",
        "mobius",
        lambda p, r: p + F(0.1) - (p + F(0.1)) ** 2 / (p + F(0.1) + r),
        F(1),
        "positive",
    ),
    Case("growth with a limit", "mobius", lambda n, r: n * (1 + r) / (1 + r * n / 10), F(0.1), "positive"),
    Case("Kalman filter", "staged", kalman, (F(0), F(1)), "x"),
    # Changes of variable
    Case("root mean square", "affine", lambda h, x: (np.sqrt(F(0.9) * h * h + F(0.1) * x * x), h), F(-2), "x"),
    Case("norm that is kept", "affine", lambda h, x: np.where(x[1], h, (h**2 + x[0] ** 2) ** 0.5), F(1), "x flag"),
    Case("mean of squares", "affine", lambda h, x: np.sqrt((h * h + x * x) / 2), F(1), "x"),
    Case("root above a floor", "clamp", lambda h, x: np.maximum(np.sqrt(F(0.5) * h**2 + x**2), F(0.5)), F(1), "x"),
    Case("geometric mean", "affine", lambda h, x: np.exp(F(0.9) * np.log(h) + F(0.1) * np.log(x)), F(1), "positive"),
    Case("geometric mean by powers", "affine", lambda h, x: h ** F(0.9) * x ** F(0.1), F(2), "positive"),
    Case("mean with the value before", "affine", lambda h, x: np.sqrt(h * x), F(2), "positive"),
    Case("log of a sum of exponentials", "affine", lambda h, x: np.log(np.exp(h) + np.exp(x)), F(-1), "x"),
    # Bits
    Case("parity", "bitwise", lambda h, x: h ^ x, np.uint32(0), "bits"),
    Case("sticky bits", "bitwise", lambda h, x: (h | x) & np.uint32(0x00FF00FF), np.uint32(0), "bits"),
    Case("set and clear", "bitwise", lambda h, x: (h & ~x[0]) | (x[0] & x[1]), I(0), "i j"),
    Case("toggle", "bitwise", lambda h, x: np.where(x, ~h, h), np.bool_(False), "flag"),
    Case("latch", "bitwise", lambda h, x: x[0] | (h & ~x[1]), np.bool_(False), "flag flag"),
    Case("shift and input", "bitwise", lambda h, x: (h >> 1) ^ x, np.uint32(1), "bits"),
    # Remainders
    Case("sum modulo 500", "affine", lambda h, x: (h + x) % 500, I(0), "j"),
    Case("sum of a byte that begins outside", "affine", lambda h, x: ((h + x) & 255, h), I(1000), "i"),
    Case("decimal modulo 97", "affine", lambda h, x: (10 * h + x) % 97, I(0), "j"),
    # Functions of one integer
    Case("day of the year", "affine", lambda day, x: np.where(day == 365, 1, day + 1), I(360), "flag"),
    Case("day of the year by a remainder", "affine", lambda day, x: day % 365 + 1, I(1), "flag"),
    Case("checksum of the Internet", "affine", internet_checksum, np.uint32(0), "bits"),
    Case("checksum of pairs of bytes", "affine", checksum_of_bytes, np.uint32(0), "text text"),
    Case("tab stops", "affine", tab_stop, I(0), "text"),
    Case("tab stops by bits", "affine", lambda h, x: np.where(x > 3, (h | 7) + 1, h + 1), I(0), "j"),
    Case("alignment", "affine", lambda h, x: np.where(x[1], 0, (h + x[0] + 15) // 16 * 16), I(3), "j flag"),
    Case("remainder and input", "affine", lambda h, x: (h & 255) + x, I(1000), "i"),
    Case("half of a sum", "affine", lambda h, x: (h + x) // 2, I(10**9), "i"),
    Case("carry of an addition", "affine", long_addition, I(0), "j j"),
    Case("depth that stops at 0", "max-plus", brackets, I(0), "text"),
    Case("depth by bools", "max-plus", lambda d, x: d + (x > 5) - ((x < 5) & (d > 0)), I(0), "j"),
    Case("counter between two ends", "clamp", up_and_down, I(7), "flag"),
    Case("timer", "max-plus", lambda n, x: np.where(x, 200, n - (n > 0)), I(0), "flag"),
    Case("condition on both", "min-plus", lambda h, x: np.where(x[1] & (h > 2), 2, h) + x[0], F(0), "positive flag"),
    Case("bars since an event", "clamp", lambda n, x: np.where(x, 0, np.where(n < 0, -1, n + 1)), I(-1), "flag"),
    Case("bars since, by equality", "clamp", lambda n, x: np.where(x, 0, np.where(n == -1, n, n + 1)), I(-1), "flag"),
    Case("health", "clamp", health, I(50), "i"),
    Case("ruin", "clamp", lambda h, x: np.where(h <= 0, F(0), np.minimum(h + x, 9)), F(5), "x"),
    Case("knocked out", "clamp", lambda h, x: np.where(x[1], 0, np.where(h >= 3, F(3), h + x[0])), F(0), "x flag"),
    # Finite states
    Case("sum modulo 7", "finite-state", lambda h, x: (h + x) % 7, I(0), "j"),
    Case("multiples of 5 in binary", "finite-state", lambda h, x: (2 * h + x) % 5, I(0), "j"),
    Case(
        "hysteresis",
        "finite-state",
        lambda h, x: np.where(h == 1, np.where(x < -1, 0, 1), np.where(x > 1, 1, 0)).astype(I),
        I(0),
        "x",
    ),
    Case("CSV quotes", "finite-state", quotes, I(0), "text"),
    Case(
        "traffic light", "finite-state", lambda s, x: np.where(x, np.where(s == 2, 0, s + 1), s).astype(I), I(0), "flag"
    ),
    Case(
        "pattern aab",
        "finite-state",
        lambda s, x: np.where(x == 97, np.where(s == 0, 1, 2), np.where((x == 98) & (s == 2), 3, 0)).astype(I),
        I(0),
        "text",
    ),
    Case("forty states", "finite-state", lambda h, x: (3 * h + x) % 40, I(0), "j"),
    Case(
        "position with a side",
        "finite-state",
        lambda s, x: np.where(x > 1, 1, np.where(x < -1, -1, np.where((s == 1) & (x < 0), 0, s))).astype(I),
        I(0),
        "x",
    ),
    Case("sign of a sum", "finite-state", lambda h, x: np.sign(h + x), I(0), "i"),
    Case("rest with the sign", "finite-state", lambda h, x: np.fmod(h + x, 7), I(0), "i"),
    Case("rest below 0", "finite-state", lambda h, x: (h + x) % -7, I(5), "i"),
    Case("sign by a shift", "finite-state", lambda h, x: (h + x) >> 31, I(5), "i"),
    # Several parts
    Case("Welford", "staged", welford, (F(0), F(0), F(0)), "x"),
    Case("Adam", "staged", adam, (F(0), F(0), F(1)), "x"),
    Case("strength index", "staged", rsi, (F(0), F(0)), "x"),
    Case("MACD", "staged", macd, {"fast": F(0), "slow": F(0)}, "x"),
    Case("count and mean", "staged", lambda c, x: ((c[0] + 1, c[1] + x), c[1] / (c[0] + 1)), (F(0), F(0)), "x"),
    Case("maximum of a sum", "staged", lambda c, x: (c[0] + x, np.maximum(c[1], c[0] + x)), (I(0), I(-99)), "i"),
    Case("position and speed", "staged", lambda c, a: (c[0] + c[1], c[1] + a), (I(0), I(1)), "i"),
    Case(
        "counter since an event",
        "staged",
        lambda c, x: (np.where(x, 0, c[0] + 1), np.maximum(c[1], c[0])),
        (I(0), I(0)),
        "flag",
    ),
    # Sums of probabilities in logarithms, written out
    Case("logarithm of a sum by the maximum", "log-plus", log_sum, F(-np.inf), "x u"),
    Case(
        "logarithm of a sum by the distance",
        "log-plus",
        lambda h, x: np.log1p(np.exp(-np.abs(x - h))) + np.maximum(h, x),
        F(0),
        "x",
    ),
    Case("logarithm of a sum by max", "log-plus", log_sum_by_max, F(0), "x"),
    # The largest product of neighbours
    Case("largest product", "max-times", largest_product, (F(1), F(1)), "x"),
    Case("largest product by a swap", "max-times", product_by_swap, (I(-1), I(2)), "sign"),
    # Bits that move by amounts of the input
    Case("packer of bits", "bitwise", lambda h, c: (h << (c[1] & 7)) ^ (c[0] & 127), np.uint32(1), "bits other"),
    Case("unpacker of bits", "bitwise", lambda h, c: (h >> (c[1] % 40)) | c[0], np.uint32(1), "bits other"),
    Case(
        "bits in both directions",
        "bitwise",
        lambda h, c: (np.where(c[2], (h << (c[1] & 3)) | 1, ~(h >> (c[1] & 1)) & c[0]), h),
        np.uint32(77),
        "bits other flag",
    ),
    Case("signed bits to the left", "bitwise", lambda h, c: (h << (c[1] & 3)) ^ c[0], I(-1), "i j"),
    # Folds by a function
    Case("greatest common divisor", "fold", lambda h, x: np.gcd(h, 6 * x), I(0), "i"),
    Case(
        "common divisor since a flag",
        "fold",
        lambda h, c: np.where(c[1], c[0], np.gcd(c[0], h)),
        np.int64(0),
        "wide flag",
    ),
    Case("least common multiple", "fold", lambda h, x: np.lcm(np.abs(x) % 9 + 1, h), np.int64(1), "i"),
    Case("running norm", "fold", lambda h, x: (np.hypot(h, 2 * x), h), F(-1), "x"),
    Case("sum of powers of two", "fold", lambda h, x: np.logaddexp2(h, x), F(-np.inf), "x"),
]


def kahan(c: Any, x: Any) -> Any:
    y = x - c[1]
    total = c[0] + y
    return (total, (total - c[0]) - y), total


def neumaier(c: Any, x: Any) -> Any:
    total = c[0] + x
    error = np.where(np.abs(c[0]) >= np.abs(x), (c[0] - total) + x, (x - total) + c[0])
    return (total, c[1] + error), total + c[1] + error


def sum_and_error(c: Any, x: Any) -> Any:
    total = c[0] + x
    rest = total - c[0]
    return (total, (c[0] - (total - rest)) + (x - rest)), None


REFUSALS = [
    Case("recurrent network", "tanh", lambda h, x: np.tanh(F(0.5) * h + x), F(0), "x"),
    Case("logistic map", "multiply", lambda h, x: F(3.9) * h * (1 - h), F(0.3), "x"),
    Case("pendulum", "sin", lambda c, x: (c[0] + c[1], c[1] - np.sin(c[0])), (F(0.1), F(0)), "x"),
    Case("exponential growth", "exp", lambda h, x: np.exp(-h) + x, F(0), "x"),
    Case("square root", "sqrt", lambda h, x: np.sqrt(h + x), F(1), "positive"),
    Case("absolute value", "absolute", lambda h, x: np.abs(h - x), F(0), "x"),
    Case("rounding", "floor", lambda h, x: np.floor(h * F(0.9) + x), F(0), "x"),
    Case("leaky maximum", "maximum", lambda h, x: F(0.5) * np.maximum(h, x) + F(0.1) * h, F(0), "x"),
    Case("threshold on the carry", "where", lambda h, x: np.where(h > 1, h * F(0.5), h + x), F(0), "x"),
    Case("integrate and fire", "where", lambda v, x: np.where(v * F(0.9) + x > 1, 0, v * F(0.9) + x), F(0), "x"),
    Case("rotation and sum", "left_shift", lambda h, x: ((h << 7) | (h >> 25)) + x, np.uint32(1), "bits"),
    Case("conversion", "astype", lambda h, x: (h + x).astype(I).astype(F), F(0), "x"),
    Case("integer quotient of a product", "floor_divide", lambda h, x: (3 * h + x) // 2, I(0), "j"),
    Case("reorder of stock", r"computes np\.where", lambda s, x: np.where(s - x < 5, 20, s - x), I(20), "j"),
    Case("limited slope", r"computes np\.minimum", lambda h, x: h + np.clip(x - h, F(-0.1), F(0.1)), F(0), "x"),
    Case("conjugate", r"computes np\.conjugate", lambda h, x: np.conj(h) * x, np.complex64(1), "x"),
    Case("power", "power", lambda h, x: np.power(h, F(0.5)) + x, F(1), "positive"),
    Case("too many states", "500", lambda h, x: (h * h + x) % 500, I(0), "j"),
    Case("remainder after an overflow", "may overflow", lambda h, x: h * 1103515245 % 2147483647, I(1), "j"),
    Case("largest product below the least", "begins with a largest", largest_product, (F(0), F(1)), "x"),
    Case("Kahan sum", "np.subtract.*rounding errors", kahan, (F(0), F(0)), "x"),
    Case("Neumaier sum", "np.add.*rounding errors", neumaier, (F(0), F(0)), "x"),
    Case("sum and its error", "np.subtract.*rounding errors", sum_and_error, (F(0), F(0)), "x"),
    Case("product of two carries", "multiply", lambda c, x: (c[0] * c[1] + x, c[1] - F(0.1) * c[0]), (F(0), F(1)), "x"),
]
