"""Checksums, hashes and shift registers: affine maps modulo a constant, and linear maps of bits. All are exact."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.operators.loops.bit_matrices import decompose, multiply
from tests.loops import oracle

I, J, U, V = np.int32, np.int64, np.uint32, np.uint64
BYTES = np.random.default_rng(4).integers(0, 256, 3000).astype(np.uint8)
NUMBERS = np.random.default_rng(5).integers(-50, 50, 3000).astype(I)
FLAGS = BYTES < 20


def check(step: Any, init: Any, xs: Any, kind: str, lengths: Any = (0, 1, 2, 600), device: Any = "numpy") -> None:
    for length in lengths:
        cut = tuple(x[:length] for x in xs) if isinstance(xs, tuple) else xs[:length]
        for reverse in (False, True):
            found = gs.loop(step, init, cut, reverse=reverse, device=device)
            assert found.form is not None
            assert found.form.kind == kind, str(found.form)
            wanted = oracle.run(step, init, cut, reverse=reverse)
            if length:
                oracle.check(found, wanted)


def adler(c: Any, x: Any) -> Any:
    a = (c[0] + x) % 65521
    b = (c[1] + a) % 65521
    return (a, b), (b << 16) | a


def crc(bits: int, polynomial: int, c: Any, byte: Any) -> Any:
    c = c ^ byte
    for _ in range(bits):
        c = np.where(c & 1, (c >> 1) ^ polynomial, c >> 1)
    return c


def xorshift(s: Any, places: tuple[int, int, int]) -> Any:
    s = s ^ (s << places[0])
    s = s ^ (s >> places[1])
    return s ^ (s << places[2])


def register(s: Any, _: Any) -> Any:
    bit = (s ^ (s >> 2) ^ (s >> 3) ^ (s >> 5)) & 1
    return (s >> 1) | (bit << 15), bit


def shift_words(c: Any, x: Any) -> Any:
    mixed = c[0] ^ (c[0] << 11)
    return (c[1], c[1] ^ (c[1] >> 19) ^ mixed ^ (mixed >> 8) ^ x), c[0] + c[1]


def shift_bits(c: Any, x: Any) -> Any:
    return np.append(c[1:], c[0] ^ c[3] ^ x)


MODULAR = {
    "adler": (adler, (U(1), U(0)), BYTES),
    "fletcher": (lambda c, x: (((c[0] + x) % 255, (c[1] + (c[0] + x) % 255) % 255), c[1]), (I(0), I(0)), BYTES),
    "hash": (lambda h, x: (h * 31 + x) % 1_000_000_007, J(0), BYTES),
    "generator": (lambda s, x: s * 48271 % 2_147_483_647, J(1), BYTES),
    "Fibonacci": (lambda c, x: ((c[1], (c[0] + c[1]) % 10007), c[0]), (J(0), J(1)), BYTES),
    "reset": (lambda h, x: np.where(x[1], 7, (h - x[0]) % 1009), I(0), (NUMBERS, FLAGS)),
    "reset within": (lambda h, x: (np.where(x[1], 5, 3 * h) + x[0]) % 1009, I(0), (NUMBERS, FLAGS)),
    "begins outside": (lambda h, x: (3 * h + x) % 101, I(-5), NUMBERS),
    "bytes": (lambda h, x: ((h.astype(I) * 3 + x) % 251).astype(np.uint8), np.uint8(3), BYTES),
    "large modulus": (lambda h, x: (h + x) % 10**15, J(0), BYTES),
}
COUNTERS = {
    "to 99": (lambda n, x: np.where(n == 99, 0, n + 1), I(7), FLAGS),
    "at least 99": (lambda n, x: np.where(n >= 99, 0, n + 1), I(99), FLAGS),
    "below 99": (lambda n, x: np.where(n < 99, n + 1, 0), I(0), FLAGS),
    "next is 100": (lambda n, x: np.where(n + 1 == 100, 0, n + 1), I(0), FLAGS),
    "where a flag is set": (lambda n, x: np.where(x, np.where(n >= 119, 0, n + 1), n), np.uint8(3), FLAGS),
    "with resets": (lambda n, x: np.where(x, 5, np.where(n == 99, 0, n + 1)), I(0), FLAGS),
    "down": (lambda n, x: np.where(n > 0, n - 1, 99), I(50), FLAGS),
    "down from 0": (lambda n, x: np.where(n == 0, 99, n - 1), I(50), FLAGS),
}
LINEAR = {
    "two words": (shift_words, (U(1), U(2)), BYTES),
    "an array of bits": (shift_bits, np.arange(9) % 2 > 0, FLAGS),
    "bits as integers": (shift_bits, np.arange(9, dtype=I) % 2, FLAGS),
    "a word and a flag": (lambda c, x: (((c[0] << 1) | c[1]) ^ x, (c[0] >> 7) > 0), (np.uint8(1), np.True_), BYTES),
    "CRC-32": (lambda c, x: crc(8, 0xEDB88320, c, x), U(0xFFFFFFFF), BYTES),
    "CRC-16": (lambda c, x: crc(8, 0xA001, c, x), np.uint16(0), BYTES),
    "xorshift": (lambda s, x: xorshift(s, (13, 17, 5)), U(2463534242), BYTES),
    "xorshift of 64 bits": (lambda s, x: xorshift(s, (13, 7, 17)), V(88172645463325252), BYTES),
    "register": (register, np.uint16(0xACE1), BYTES),
    "register of an int": (register, I(0xACE1), BYTES),
    "reseeded": (lambda s, x: register(np.where(x, 0xACE1, s), x), I(1), FLAGS),
    "clock": (lambda s, x: np.where(x, register(s, x)[0], s), I(0xACE1), BYTES > 20),
    "reset": (lambda s, x: np.where(x[0], x[1], (s >> 1) ^ x[1]), U(3), (FLAGS, BYTES)),
    "scrambler": (lambda s, x: ((s << 1) | ((((s >> 22) ^ (s >> 17)) & 1) ^ x)) & 0x7FFFFF, U(31), FLAGS),
    "rotation": (lambda h, x: ((h << 5) | (h >> 27)) ^ x, U(1), BYTES),
    "arithmetic shift": (lambda h, x: (h >> 1) ^ x, np.int16(-3), NUMBERS.astype(np.int16)),
    "swap": (lambda s, x: (((s & 0x00FF00FF) << 8) | ((s >> 8) & 0x00FF00FF)) ^ x, U(0), BYTES),
    "minus a bit": (lambda s, x: (s >> 1) ^ ((0 - (s & 1)) & U(0x80200003)), U(1), BYTES),
    "quotient": (lambda s, x: (s // 2 + (s % 2) * 0x80000000) ^ x, U(7), BYTES),
}


@pytest.mark.parametrize("start", [0, 50, 500, -70, 2**30])
@pytest.mark.parametrize(
    "step",
    [
        lambda h, x: (h + x) % 100 + 5,
        lambda h, x: (h + x) % 100 - 5,
        lambda h, x: (h + 1) % 365 + 1,
        lambda h, x: np.where(x > 20, h, (h + x) % 100),
        lambda h, x: np.where(x > 0, h, (h + x) % 100_000),
    ],
)
def test_remainders_of_any_first_number_are_exact(step: Any, start: int) -> None:
    check(step, I(start), NUMBERS, "affine")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_small_remainders_of_sums_that_wrap_are_exact(dtype: Any) -> None:
    x = np.random.default_rng(2).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 600, dtype)
    with np.errstate(over="ignore"):
        check(lambda h, x: (h + x) % 7, dtype(3), x, "finite-state")
        check(lambda h, x: (h + x + x) % 50, dtype(3), x, "finite-state")
    check(lambda h, x: (h + (x & 15)) % 60, dtype(3), x, "finite-state")


@pytest.mark.parametrize("start", [3, 2**63 + 7])
def test_remainders_of_uint64_are_exact_or_refused(start: int) -> None:
    x = np.random.default_rng(9).integers(0, 2**63, 600, dtype=V)
    check(lambda h, x: (h + x) % V(1_000_003), V(start), x, "affine")
    check(lambda h, x: ((h + x) % V(1000), h), V(start), x, "affine")
    check(lambda h, x: (h + (x & V(99))) // V(8) * V(8), V(start), x, "affine")
    with pytest.raises(gs.LoopError, match=r"np\.remainder"):
        gs.loop_form(lambda h, x: np.where(x < V(5), x, h % V(97) + V(20)), V(start), x)


def test_quotients_and_remainders_of_sums_that_wrap_are_those_of_the_loop() -> None:
    x = np.random.default_rng(9).integers(0, 2**32, 600, dtype=U)
    check(lambda h, x: (h + x) >> 2, U(3), x, "affine")
    check(lambda h, x: (h + x) // 8 * 8, U(3), x, "affine")
    check(lambda h, x: (h + x + x) % 97, U(3), x, "affine")
    check(lambda h, x: (3 * h + 5 * x) % 65521, U(3), x, "affine")


def test_a_product_with_a_remainder_keeps_no_first_number_outside() -> None:
    def step(h: Any, x: Any) -> Any:
        return np.where(x > 0, h, (h * 3 + x) % 100_000)

    check(step, I(500), NUMBERS, "affine")
    with pytest.raises(gs.LoopError, match=r"np\.remainder is not taken of a first state that may be outside of 0"):
        gs.loop_form(step, I(-1), NUMBERS)


@pytest.mark.parametrize("name", MODULAR)
def test_a_remainder_is_exact(name: str) -> None:
    step, init, xs = MODULAR[name]
    check(step, init, xs, "staged" if name in ("adler", "fletcher") else "affine")


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_that_wraps_is_exact(name: str) -> None:
    step, init, xs = COUNTERS[name]
    check(step, init, xs, "affine")


def count_if(n: Any, x: Any) -> Any:
    if x:
        n = n + 1
    if n == 1000:
        n = 0
    return n


def modulate(c: Any, x: Any) -> Any:
    c = c + x
    bit = c >= 256
    return c - 256 * bit, bit


SUMS: dict[str, tuple[Any, Any, Any]] = {
    "a flag": (lambda n, x: np.where(n + x == 1000, 0, n + x), I(990), FLAGS),
    "conditions of Python": (count_if, I(990), FLAGS),
    "bytes": (lambda n, x: np.where(n + x > 299, n + x - 300, n + x), I(7), BYTES),
    "the bit of a modulator": (modulate, I(0), BYTES),
    "a mask": (lambda n, x: np.where(n + (x & 63) >= 100, n + (x & 63) - 100, n + (x & 63)), I(0), NUMBERS),
    "end-around": (lambda n, x: np.where(n + x > 300, n + x - 300, n + x), I(0), BYTES),
    "end-around by one less": (lambda n, x: np.where(n + x >= 300, n + x - 299, n + x), I(0), BYTES),
    "no wrap beyond the end": (lambda n, x: np.where(n == 99, 0, n + 1), I(100), FLAGS),
    "a reset": (lambda n, x: np.where(x > 250, 7, np.where(n + x >= 900, n + x - 900, n + x)), I(0), BYTES),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_that_wraps_is_exact(name: str) -> None:
    check(*SUMS[name], "affine")


def test_a_sum_that_may_not_be_a_remainder_is_refused() -> None:
    steps: list[tuple[Any, Any]] = [
        (lambda n, x: np.where(n + x >= 200, n + x - 200, n + x), BYTES),  # x may be more than 200
        (lambda n, x: np.where(n + x >= 300, n + x - 300, n + x), NUMBERS),  # x may be negative
    ]
    for step, xs in steps:
        with pytest.raises(gs.LoopError):
            gs.loop_form(step, I(0), xs)


@pytest.mark.parametrize("name", LINEAR)
def test_a_linear_map_of_bits_is_exact(name: str) -> None:
    step, init, xs = LINEAR[name]
    check(step, init, xs, "bitwise")


@pytest.mark.parametrize("name", ["adler", "hash", "begins outside"])
def test_a_remainder_is_exact_on_a_device(name: str, device: gs.Device) -> None:
    step, init, xs = MODULAR[name]
    check(step, init, xs, "staged" if name == "adler" else "affine", (2049,), device)


@pytest.mark.parametrize("name", ["CRC-16", "clock", "reset"])
def test_a_linear_map_of_bits_is_exact_on_a_device(name: str, device: gs.Device) -> None:
    step, init, xs = LINEAR[name]
    check(step, init, xs, "bitwise", (2049,), device)


def test_a_first_value_on_a_device_may_be_any_number(device: gs.Device) -> None:
    for step, init in ((MODULAR["begins outside"][0], I(1000)), (LINEAR["arithmetic shift"][0], I(-77))):
        found = gs.loop(step, device.asarray(init), device.asarray(NUMBERS))
        oracle.check((found.carry.numpy(), found.ys.numpy()), oracle.run(step, init, NUMBERS))


@pytest.mark.parametrize("size", [1, 2, 5, 17, 32, 64])
def test_a_matrix_of_bits_is_decomposed(size: int) -> None:
    rng = np.random.default_rng(size)
    random = [int.from_bytes(rng.bytes(8), "little") % 2**size for _ in range(size)]
    shift = [1 << (place + 1) if place + 1 < size else 0 for place in range(size)]
    for columns in (
        random,
        shift,
        [0] * size,
        [1 << place for place in range(size)],
        [column & 5 for column in random],
    ):
        chains = decompose(columns)
        assert sum(len(chain.vectors) for chain in chains) == size
        for chain in chains:
            following = multiply(columns, chain.vectors[-1])
            taken = (v for place, v in enumerate(chain.vectors) if chain.feedback >> place & 1)
            assert following == reduce(int.__xor__, taken, 0)
