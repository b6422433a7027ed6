"""The three forms of a number: every bit pattern comes through storage, compute form and words unchanged."""

from __future__ import annotations

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.codegen.number_formats import from_storage, from_words, to_storage, to_words
from gpuscan.elements import SCALARS, Scalar
from tests.harness.scans import make_problem, scan_with
from tests.oracle import Array, small_tiles, strategies_in_turn

# The operator with which a scan returns its input.
NEWEST = gs.operator(lambda l, r: r, name="newest")
# The operator with which every result has come through tile state.
OLDEST = gs.operator(lambda l, r: l, name="oldest")


def patterns(scalar: Scalar) -> Array:
    """Return every bit pattern of 8- and 16-bit numbers, and many of wider ones, with all special values."""
    if scalar.kind == "bool":
        return np.random.default_rng(0).random(5001) < 0.5
    if scalar.bits <= 16:
        bits = np.arange(2**scalar.bits, dtype=f"u{scalar.bits // 8}")
        return np.random.default_rng(0).permutation(np.resize(bits, 65_537)).view(scalar.dtype)
    special = [0, 1, 2**31, 2**32 - 1, 0x7F800000, 0xFF800000, 0x3F800000, 0x80000001, 0x7FF00000, 0xFFF00000]
    words = np.random.default_rng(0).integers(0, 2**32, 8002, dtype=np.uint32)
    words[:800] = np.resize(special, 800)
    return np.random.default_rng(1).permutation(words[:4001] if scalar.words == 1 else words).view(scalar.dtype)


def assert_same_bits(got: Array, wanted: Array, scalar: Scalar) -> None:
    """Assert equal bits. NaN may become another NaN, and WGSL lets a subnormal number become zero."""
    assert got.dtype == wanted.dtype
    got, wanted = np.ascontiguousarray(got), np.ascontiguousarray(wanted)
    unequal = bits_of(got) != bits_of(wanted)
    if scalar.kind in ("float", "complex"):
        parts = (got, wanted) if scalar.kind == "float" else (got.view(np.float32), wanted.view(np.float32))
        new, old = (part.astype(np.float64) for part in parts)
        flushed = (new == 0) & (np.abs(old) < 2.0**-126)
        excused = (np.isnan(new) & np.isnan(old)) | (flushed & (scalar.bits > 16 or scalar.name == "bfloat16"))
        unequal &= ~excused.reshape(*unequal.shape, -1).any(axis=-1)
    assert not unequal.any(), (wanted[unequal][:5], got[unequal][:5])


def bits_of(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


@pytest.mark.parametrize(("number", "name"), list(enumerate(SCALARS)))
def test_every_number_comes_through(device: gs.Device, number: int, name: str) -> None:
    scalar = SCALARS[name]
    x = patterns(scalar)
    if name == "float64" and not device.capabilities.float64:
        with pytest.raises(gs.UnsupportedDtypeError, match="float64"):
            gs.scan(x, NEWEST, device=device)
        return
    strategies = strategies_in_turn(device, number)
    for reverse, strategy in ((False, strategies[0]), (True, strategies[-1])):
        (got,) = scan_with(device, make_problem(x, NEWEST, reverse=reverse), strategy, tile=small_tiles(device)[-1])
        assert_same_bits(got, x, scalar)


@pytest.mark.parametrize(
    ("number", "name"), list(enumerate(["bool", "int8", "uint16", "float16", "int64", "complex64"]))
)
def test_every_number_comes_through_the_tile_state(device: gs.Device, number: int, name: str) -> None:
    """Scan rows with the first element as every result, which has to get to the row's last tile."""
    scalar = SCALARS[name]
    heads = patterns(scalar)[:40]
    x = np.zeros((40, 1000), scalar.dtype)
    x[:, 0] = heads
    problem = make_problem(x, OLDEST, axis=1)
    for strategy in strategies_in_turn(device, number):
        (got,) = scan_with(device, problem, strategy, tile=small_tiles(device)[0])
        assert_same_bits(got, np.broadcast_to(heads[:, np.newaxis], x.shape), scalar)


# ----- The expressions


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("name", SCALARS)
def test_forms_have_as_many_words_as_they_say(name: str, native: bool) -> None:
    scalar = SCALARS[name]
    assert len(to_words(scalar, native, "x")) == scalar.words
    for count in (scalar.per_word, 4 * scalar.per_word):
        stored = to_storage(scalar, native, [f"v{i}" for i in range(count)])
        assert len(stored) == count * scalar.bits // 32
        assert all(any(f"v{i}" in word for word in stored) for i in range(count))


def test_words_name_what_they_are_made_of() -> None:
    words = ["w[0u]", "w[1u]"]
    for scalar in SCALARS.values():
        for native in (False, True):
            text = from_words(scalar, native, words[: scalar.words])
            assert all(word in text for word in words[: scalar.words])


def test_packed_numbers_lie_in_their_own_bits() -> None:
    cases: list[tuple[str, int, str]] = [
        ("uint8", 5, "extractBits(b, 8u, 8u)"),
        ("int16", 3, "extractBits(bitcast<i32>(b), 16u, 16u)"),
        ("bool", 0, "(extractBits(a, 0u, 8u) != 0u)"),
        ("float16", 1, "half_to_float(extractBits(a, 16u, 16u))"),
        ("bfloat16", 2, "bfloat_to_float(extractBits(b, 0u, 16u))"),
        ("uint32", 1, "b"),
    ]
    for name, index, wanted in cases:
        assert from_storage(SCALARS[name], False, ["a", "b"], index) == wanted


def test_packing_masks_and_shifts() -> None:
    assert to_storage(SCALARS["uint16"], False, ["x", "y"]) == ["(x & 0xffffu) | ((y & 0xffffu) << 16u)"]
    assert to_storage(SCALARS["int32"], False, ["x"]) == ["bitcast<u32>(x)"]
    assert to_storage(SCALARS["uint64"], False, ["x"]) == ["x.x", "x.y"]
