"""Steps that look up what they need in NumPy arrays: automata, codecs and checksums."""

from __future__ import annotations

import zlib
from functools import partial, reduce
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.loops import oracle

I = np.int32
BYTES = np.random.default_rng(8).integers(0, 256, 3000).astype(np.uint8)
SYMBOLS = (BYTES % 3).astype(I)
NEXT = np.array([[1, 0, 2], [1, 2, 0], [0, 2, 1], [3, 3, 0]], I)
SIZES = np.array([7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 21], I)
CHANGES = np.array([-1, -1, 2, 4], I)
CRC = np.array(
    [reduce(lambda c, _: (c >> 1) ^ (0xEDB88320 if c & 1 else 0), range(8), i) for i in range(256)], np.uint32
)
SQUARES = np.arange(256, dtype=np.uint32) ** 2 % 251


def decode(c: Any, code: Any) -> Any:
    """Decode a code of adaptive differences (IMA ADPCM, with fewer steps)."""
    value, index = c
    size = SIZES[index]
    change = (size >> 2) + np.where(code & 1, size >> 1, 0) + np.where(code & 2, size, 0)
    value = np.clip(value + np.where(code & 4, -change, change), -128, 127)
    return (value, np.clip(index + CHANGES[code & 3], 0, 11)), value


CASES: dict[str, tuple[str, Any, Any, Any]] = {
    "automaton": ("finite-state", lambda s, x: NEXT[s, x], I(0), SYMBOLS),
    "automaton by rows": ("finite-state", lambda s, x: NEXT[s][x], I(0), SYMBOLS),
    "transposed": ("finite-state", lambda s, x: NEXT.T[x, s], I(0), SYMBOLS),
    "with output": ("finite-state", lambda s, x: (NEXT[s, x], NEXT[s, 0] == 1), I(3), SYMBOLS),
    "Python number of init": ("finite-state", lambda s, x: NEXT.astype(np.int64)[s, x], 0, SYMBOLS),
    "codec": ("staged", decode, (I(0), I(0)), (BYTES & 7).astype(I)),
    "entry of the carry": ("affine", lambda h, x: np.roll(h, 1) + h[x], np.arange(3, dtype=I), SYMBOLS),
    "entry by both": ("affine", lambda h, x: h + np.array([h[x], h[-1], h[x - 3]]), np.arange(3, dtype=I), SYMBOLS),
    "weights": ("affine", lambda h, x: h + SIZES[x], I(0), SYMBOLS),
    "from the end": ("affine", lambda h, x: h + SIZES[x - 2], I(0), SYMBOLS),
    "rows of a matrix": ("affine", lambda h, x: h + NEXT[x], np.zeros(3, I), SYMBOLS),
    "linear table": ("bitwise", lambda c, b: (c >> 8) ^ CRC[(c ^ b) & 0xFF], np.uint32(0xFFFFFFFF), BYTES),
    "table of x": ("affine", lambda h, x: h * np.uint32(3) + SQUARES[x], np.uint32(0), BYTES),
}


@pytest.mark.parametrize("name", CASES)
def test_a_look_up_is_traced(name: str) -> None:
    kind, step, init, xs = CASES[name]
    oracle.check_loop(step, init, xs[:500], kind)


@pytest.mark.parametrize("name", ["automaton", "codec", "linear table"])
def test_a_look_up_is_traced_on_a_device(name: str, device: gs.Device) -> None:
    _, step, init, xs = CASES[name]
    oracle.check(gs.loop(step, init, xs, device=device), oracle.run(step, init, xs))


def test_a_table_that_a_function_closes_over_may_change() -> None:
    def look_up(table: Any, s: Any, x: Any) -> Any:
        return table[s, x]

    def automaton(table: Any) -> Any:
        return gs.loop(lambda s, x: table[s, x], I(0), SYMBOLS, device="numpy")

    for table in (NEXT, NEXT[:3, ::-1].copy()):
        found = automaton(table)
        oracle.check(found, oracle.run(partial(look_up, table), I(0), SYMBOLS))


def with_a_recursive_function() -> Any:
    table = NEXT[:, 0].copy()

    def apply(s: Any, times: int) -> Any:
        return s if times == 0 else apply(table[s], times - 1)

    return lambda s, x: np.where(x == 0, s, apply(s, 3))


def with_a_variable_of_no_value() -> Any:
    table = NEXT.copy()

    def step(s: Any, x: Any, debug: bool = False) -> Any:
        if debug:
            print(never)
        return table[s, x]

    if table.ndim > 2:
        never = 0
    return step


def with_an_inner_function(s: Any, x: Any) -> Any:
    def look_up(i: Any) -> Any:
        return NEXT[i, x]

    return look_up(s)


@pytest.mark.parametrize("step", [with_a_recursive_function(), with_a_variable_of_no_value(), with_an_inner_function])
def test_a_table_is_found_in_functions_of_a_step(step: Any) -> None:
    oracle.check_loop(step, I(0), SYMBOLS[:500])


def test_a_checksum_by_a_table_is_that_of_zlib() -> None:
    found = gs.loop(CASES["linear table"][1], np.uint32(0xFFFFFFFF), BYTES, device="numpy")
    assert int(~found.carry) == zlib.crc32(BYTES.tobytes())


def test_a_look_up_that_cannot_be_traced_is_refused_at_its_line() -> None:
    large = np.zeros(5000, I)
    with pytest.raises(gs.OperatorError, match=r"look-up in 5000 entries(.|\n)*test_tables\.py"):
        gs.loop_form(lambda h, x: h + large[x], I(0), SYMBOLS)
    with pytest.raises(gs.OperatorError, match=r"integer for each axis(.|\n)*test_tables\.py"):
        gs.loop_form(lambda h, x: h + NEXT[x, :], np.zeros(3, I), SYMBOLS)
