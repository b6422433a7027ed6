"""Every built-in operator on every element type: tails, reversed packed arrays, wrapping and NaN, by exact folds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.capability_probe import HALVES, Litmus, ProbeBench
from gpuscan.elements import SCALARS, scalar_of
from gpuscan.operators.named_operators import BUILTINS
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem, plan_with, scan_with, traits_of
from tests.harness.stages import twin_of
from tests.laws import Law, any_bits, dtype_of, fold_rows, whole
from tests.oracle import Array, assert_same, small_tiles, strategies_on

# float64 has tests of its own.
DTYPES = [name for name in SCALARS if name != "float64"]
INTEGERS = [name for name, scalar in SCALARS.items() if scalar.kind in ("signed", "unsigned")]
PACKED = [name for name, scalar in SCALARS.items() if scalar.packed]
NARROW_FLOATS = ["float16", "bfloat16"]
# A length of several tiles of 32 invocations that ends within a 32-bit word of every packed type.
LENGTH = 1037
# Lengths with every remainder by a word and by a tile.
PARTS = [1, 2, 3, 5, 127, 128, 130, 1035, LENGTH]

# The result of each operator for two Python numbers.
EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda l, r: l + r,
    "multiply": lambda l, r: l * r,
    "minimum": min,
    "maximum": max,
    "bitwise_and": lambda l, r: l & r,
    "bitwise_or": lambda l, r: l | r,
    "bitwise_xor": lambda l, r: l ^ r,
    "logical_and": lambda l, r: l and r,
    "logical_or": lambda l, r: l or r,
    "logical_xor": lambda l, r: l != r,
}


def takes(name: str, dtype: str) -> bool:
    """Return True if the operator combines numbers of this dtype."""
    return SCALARS[dtype].kind in (BUILTINS[name].kinds or ())


def draw(rng: np.random.Generator, name: str, dtype: str, length: int) -> Array:
    """Draw integers of all bit patterns, or floats with exact sums and products."""
    kind = SCALARS[dtype].kind
    if kind in ("signed", "unsigned"):
        numbers = any_bits(rng, dtype, (length,))
        return numbers | np.ones((), dtype) if name == "multiply" else numbers  # an even one soon makes all zero
    if name == "multiply":
        units = [1, -1, 1j, -1j] if kind == "complex" else [1, -1, 2, 0.5] if dtype == "float32" else [1, -1]
        return np.array(units, dtype_of(dtype))[rng.integers(0, len(units), length)]
    if name == "add":  # sums of a narrow float stay within 128
        return whole(rng, dtype, (length,), -1, 1) if dtype in NARROW_FLOATS else whole(rng, dtype, (length,))
    if kind == "bool":
        return rng.random(length) < {"logical_and": 0.98, "bitwise_and": 0.98, "minimum": 0.98}.get(name, 0.3)
    return whole(rng, dtype, (length,), -100, 100)


def law_of(name: str, dtype: str) -> Law:
    """Return the operator in Python's own numbers."""
    exact = EXACT[name]

    def combine(l: Any, r: Any) -> Any:
        return (exact(l[0], r[0]),)

    return Law(name, (dtype,), combine, combine, lambda rng, shape: (), None)


def fold(name: str, x: Array, **options: Any) -> Array:
    """Scan one row, number by number."""
    return fold_rows(law_of(name, x.dtype.name), (x[np.newaxis],), **options)[0][0]


def tile_for(device: gs.Device, problem: Any, index: int = 0) -> TileShape:
    """Return a small tile with chunks of whole 32-bit words."""
    least = max(max(1, 4 // f.storage_bytes) for f in (*problem.source.fields, *problem.destination.fields))
    return replace(small_tiles(device)[index], chunk=least)


def single(device: gs.Device, problem: Any, strategy: str, index: int = 0) -> Array:
    """Scan one row of one field with a small tile."""
    (got,) = scan_with(device, problem, strategy, tile=tile_for(device, problem, index))
    return got


def assert_equal(got: Array, wanted: Array, note: Any = "") -> None:
    """Assert equal dtype, shape and value, NaN to NaN. The sign of a zero may differ."""
    __tracebackhide__ = True
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), note
    if got.dtype.name == "bfloat16":
        got, wanted = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_array_equal(got, wanted, err_msg=str(note))


# ----- Every operator, every type


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operator_with_every_tail(device: gs.Device, dtype: str) -> None:
    """Scan wrapped integers of all bits and exact floats, at lengths that end anywhere in a word, chunk and tile.

    The first operator of each type goes over many tiles by a single pass where there is one, the others over one tile.
    """
    rng = np.random.default_rng(1)
    single_pass = strategies_on(device)[DTYPES.index(dtype) % 2 - 2]
    names = [name for name in EXACT if takes(name, dtype)]
    for name in names:
        x = draw(rng, name, dtype, LENGTH)
        wanted, size = fold(name, x), tile_for(device, make_problem(x, name)).tile_size
        if name == names[0]:
            tested = itertools.product([single_pass], PARTS)
        else:
            tested = itertools.product(["three_dispatch"], [1, 2, 3, 5, size - 1, size])
        for strategy, length in tested:
            got = single(device, make_problem(x[:length], name), strategy)
            assert_equal(got, wanted[:length], (name, strategy, length))
        assert_equal(gs.scan(x, getattr(np, name), device="numpy"), wanted, name)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_64_bit_integers_as_two_words(device: gs.Device, dtype: str) -> None:
    """Run every operator on two-word integers, also on adapters that have 64-bit integers."""
    rng = np.random.default_rng(2)
    less = device_as_if(device, native_int64=False)
    for name in filter(lambda name: takes(name, dtype), EXACT):
        x = draw(rng, name, dtype, LENGTH)
        problem = make_problem(x, name, reverse=True, exclusive=True)
        got = single(less, problem, "three_dispatch")
        start = BUILTINS[name].identity(problem.element.fields[0])
        wanted = fold(name, x, reverse=True, exclusive=True, seeds=(np.array([start], dtype),))
        assert_same(got, wanted, name)
    element = make_problem(np.ones(3, dtype)).element
    assert element.fields[0].wgsl(less.capabilities.native_int64) == "vec2<u32>"


def test_which_adapters_have_64_bit_integers(device: gs.Device) -> None:
    """Assert that the tests above run both forms of 64-bit integers."""
    words = {"SwiftShader", "OpenGL"}
    expected = not any(word in device.capabilities.summary for word in words)
    if device.capabilities.adapter_type == "CPU":
        assert device.capabilities.native_int64 == expected


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_types_read_backwards(device: gs.Device, dtype: str) -> None:
    """Scan in reverse with every remainder, so that chunks start at every place in a word.

    Only a signed byte and a half float take all lengths, since software adapters compile a shader for each.
    """
    rng = np.random.default_rng(3)
    name = "maximum" if dtype == "bool" else "add"
    asked = [(1033, False), (1034, True), (1035, False), (1035, True), (1036, True), (1, False)]
    if dtype not in ("int8", "float16"):
        asked = asked[2:3]
    for (length, exclusive), strategy in zip(asked, itertools.cycle(strategies_on(device)), strict=False):
        x = draw(rng, name, dtype, length)
        seed = draw(rng, name, dtype, 1)
        problem = make_problem(x, name, reverse=True, exclusive=exclusive, initial=seed[0])
        wanted = fold(name, x, reverse=True, exclusive=exclusive, seeds=(seed,))
        assert_same(single(device, problem, strategy), wanted, (length, exclusive))


@pytest.mark.parametrize("dtype", PACKED)
def test_packed_rows_and_columns(device: gs.Device, dtype: str) -> None:
    """Scan rows of odd lengths, which begin anywhere in a word, and an odd number of columns."""
    rng = np.random.default_rng(4)
    name = "maximum" if dtype == "bool" else "add"
    x = draw(rng, name, dtype, 5 * 67 * 7).reshape(5, 67, 7)
    for axis, reverse in itertools.product(range(3), (False, True)) if dtype in ("int8", "float16") else [(1, True)]:
        rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
        (wanted,) = fold_rows(law_of(name, x.dtype.name), (rows,), reverse=reverse)
        others = [n for i, n in enumerate(x.shape) if i != axis]
        wanted = np.moveaxis(wanted.reshape(*others, x.shape[axis]), -1, axis)
        assert_same(gs.scan(x, name, axis=axis, reverse=reverse, device=device), wanted, (axis, reverse))


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "bfloat16", "float32", "complex64"])
def test_matmul_of_every_type(device: gs.Device, dtype: str) -> None:
    """Assert exact products: integers wrap, and the floats are signed permutations."""
    rng = np.random.default_rng(5)
    if scalar_of(dtype_of(dtype)).kind in ("signed", "unsigned"):
        x = any_bits(rng, dtype, (32, 2, 2))
    else:
        signs = [1, -1, 1j, -1j] if dtype == "complex64" else [1, -1]
        x = (np.eye(2)[rng.permuted(np.tile([0, 1], (32, 1)), axis=1)] * rng.choice(signs, (32, 2, 1))).astype(
            dtype_of(dtype)
        )

    def product(l: Any, r: Any) -> Any:
        return (l[0] @ r[0],)

    law = Law("matmul", (dtype,), product, product, lambda rng, shape: (), None, (2, 2))
    (wanted,) = fold_rows(law, (x[np.newaxis],))
    assert_equal(single(device, make_problem(x, "matmul"), "three_dispatch"), wanted[0])
    assert_equal(gs.scan(x, "matmul", device="numpy"), wanted[0])


def test_dtypes_that_an_operator_does_not_take(device: gs.Device) -> None:
    """Assert that the TypeError names the operator and the dtype, and that nothing is run."""
    for name, dtype in itertools.product(EXACT, DTYPES):
        if not takes(name, dtype):
            with pytest.raises(gs.UnsupportedDtypeError, match=rf"'{name}' of {dtype}"):
                gs.scan(np.ones(3, dtype_of(dtype)), name, device=device)


# ----- Floats


def special_rows(dtype: str) -> Array:
    """Return rows of small whole numbers with two special values in each."""
    rng = np.random.default_rng(6)
    x = whole(rng, "float32", (32, 32), -4, 4)  # one tile of a software adapter
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    for row, column in itertools.product(range(32), range(2)):
        x[row, rng.integers(0, 32)] = special[(row + 3 * column) % 5]
    return x.astype(dtype_of(dtype))


@pytest.mark.parametrize("dtype", [*NARROW_FLOATS, "float32"])
@pytest.mark.parametrize("name", ["add", "minimum", "maximum", "multiply"])
def test_special_values(device: gs.Device, dtype: str, name: str) -> None:
    """Assert that NaN propagates, and that infinities and zeros are NumPy's, in every float type."""
    x = special_rows(dtype)
    if name == "multiply":
        x = np.sign(x.astype(np.float32)).astype(x.dtype) * np.where(np.isinf(x.astype(np.float32)), x, x.dtype.type(1))
    wide = getattr(np, name).accumulate(x.astype(np.float32), axis=1)
    assert_equal(gs.scan(x, name, axis=1, device=device), wide.astype(x.dtype), name)


def test_complex_numbers_with_nan_and_infinity(device: gs.Device) -> None:
    """Assert that a NaN in one part of a complex sum does not reach the other part."""
    x = np.ones(200, np.complex64)
    x[50], x[100], x[150] = complex(np.nan, 1), complex(1, np.inf), complex(1, -np.inf)
    got = gs.scan(x, device=device)
    np.testing.assert_array_equal(np.isnan(got.real), np.arange(200) >= 50)
    np.testing.assert_array_equal(np.isnan(got.imag), np.arange(200) >= 150)
    np.testing.assert_array_equal(np.isinf(got.imag), (np.arange(200) >= 100) & (np.arange(200) < 150))


def test_narrow_floats_are_combined_in_float32(device: gs.Device) -> None:
    """Assert that each result is rounded once: a float16 sum of ones continues past 2,048, up to 65,504."""
    ones = np.ones(5000, np.float16)
    assert_same(gs.scan(ones, device=device), np.arange(1, 5001).astype(np.float16))
    large = np.full(3, 40_000, np.float16)
    assert_same(gs.scan(large, device=device), np.array([40_000, np.inf, np.inf], np.float16))
    back = np.array([40_000, 40_000, -40_000], np.float16)
    assert_same(gs.scan(back, device=device), np.array([40_000, np.inf, 40_000], np.float16))
    assert_same(gs.scan(np.ones(999, dtype_of("bfloat16")), device=device), np.arange(1, 1000).astype("bfloat16"))


def test_halves_by_instructions(device: gs.Device) -> None:
    """Assert that instructions that pack halves give the bits of arithmetic if the probe finds them exact.

    All patterns, which nothing is added to, and sums of many of them.
    """
    litmus = Litmus(workgroups=1, workgroup_size=64, chain_seconds=0, later_seconds=0, pauses=0)
    bench = ProbeBench(device.wgpu_device, litmus, enable_subgroups=device.capabilities.enable_subgroups)
    exact = bench.run({"halves": (0, 0)})[0]["halves_alike"] == HALVES
    x = np.random.default_rng(12).permutation(HALVES).astype(np.uint16).view(np.float16)
    lanes = device.capabilities.subgroup_size
    tile = TileShape(max(32, lanes), lanes, 3, 8) if lanes else TileShape(32, 0, 1, 8)
    for shape in ((HALVES, 1), (HALVES // 64, 64)):
        problem, got = make_problem(x.reshape(shape), axis=1), []
        for packs in (False, True):
            other = device_as_if(device, packs_halves=packs)
            traits = traits_of(plan_with(other, problem, "three_dispatch", tile=tile))
            assert traits["scan"].keeps_storage == (packs and lanes > 0)
            got += scan_with(other, problem, "three_dispatch", tile=tile)
        if exact:
            assert_same(got[1], got[0])
        if shape[1] == 1:
            assert_same(got[0], x.reshape(shape))


@pytest.mark.parametrize("packs", [False, True])
def test_nan_of_float16_has_the_bits_of_numpy(device: gs.Device, packs: bool) -> None:
    """Assert that sign and payload are kept. WGSL's own packing makes 0x7fff of each on an H100 and on SwiftShader."""
    bits = np.arange(0x7FC00000, 0x80000000, 8191, dtype=np.uint32)
    x = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    got = device_as_if(device, packs_halves=packs).asarray(x).astype(np.float16).numpy()
    assert np.array_equal(got.view(np.uint16), x.astype(np.float16).view(np.uint16))


@pytest.mark.parametrize("dtype", [*NARROW_FLOATS, "float32"])
def test_logaddexp(device: gs.Device, dtype: str) -> None:
    """Assert results within a few roundings of float64's. NaN and infinity propagate."""
    x = np.random.default_rng(7).normal(0, 3, 1037).astype(dtype_of(dtype))
    x[5:9] = -np.inf
    wanted = np.logaddexp.accumulate(x.astype(np.float64))
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6}[dtype]
    exclusive = dtype != "float32"  # software adapters take seconds to compile each of the two
    got = gs.scan(x, "logaddexp", exclusive=exclusive, device=device).astype(np.float64)
    aim = np.concatenate([[-np.inf], wanted[:-1]]) if exclusive else wanted
    np.testing.assert_allclose(got, aim, rtol=tolerance, atol=tolerance)
    x[500], x[800] = np.inf, np.nan
    got = gs.scan(x, "logaddexp", exclusive=exclusive, device=device).astype(np.float64)
    assert np.isposinf(got[500 + exclusive : 800 + exclusive]).all()
    assert np.isnan(got[800 + exclusive :]).all()


FLOAT64_ADVICE = r"float64 was asked for.*no 64-bit floats.*dtype=np\.float32.*device=\"numpy\""


def float64_cases() -> Iterator[tuple[str, Array, Array]]:
    """Yield operators, arrays with exact results, and the results."""
    rng = np.random.default_rng(8)
    numbers = rng.integers(-(2**40), 2**40, LENGTH).astype(np.float64)
    yield "add", numbers, np.add.accumulate(numbers)
    units = np.array([1.0, -1.0, 2.0, 0.5])[rng.integers(0, 4, LENGTH)]
    yield "multiply", units, np.multiply.accumulate(units)
    numbers[700] = np.nan
    yield "minimum", numbers, np.minimum.accumulate(numbers)
    yield "maximum", numbers, np.maximum.accumulate(numbers)


def test_float64_is_native_or_refused(device: gs.Device) -> None:
    """Assert that float64 has all of its bits if the adapter has it, or else that the error's advice works.

    The operators take turns with the strategies.
    """
    strategies = itertools.cycle(strategies_on(device))
    for (name, x, wanted), strategy in zip(float64_cases(), strategies, strict=False):
        if device.capabilities.float64:
            np.testing.assert_array_equal(single(device, make_problem(x, name), strategy), wanted, (name, strategy))
        else:
            with pytest.raises(gs.UnsupportedDtypeError, match=FLOAT64_ADVICE):
                gs.scan(x, name, device=device)
            narrow = gs.scan(x.astype(np.float32), name, dtype=np.float32, device=device)
            assert narrow.dtype == np.float32
        np.testing.assert_array_equal(gs.scan(x, name, device="numpy"), wanted)


def test_float64_made_by_a_map_is_refused_too(device: gs.Device) -> None:
    """Assert that the error comes before a shader is compiled, for each of the three types."""
    x = np.arange(5, dtype=np.float32)
    for name in ("before", "after"):
        maps: dict[str, Any] = {name: lambda value: value.astype(np.float64)}
        if device.capabilities.float64:
            assert_same(gs.scan(x, device=device, **maps), np.add.accumulate(x).astype(np.float64))
        else:
            with pytest.raises(gs.UnsupportedDtypeError, match=FLOAT64_ADVICE):
                gs.scan(x, device=device, **maps)


# ----- Bits


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_inexact_floats_have_the_bits_of_numpys_twin(device: gs.Device, dtype: str) -> None:
    """Assert that sums that round have the bits of the CPU twin of the stages."""
    rng = np.random.default_rng(9)
    x = rng.standard_normal(LENGTH)
    x = (x + 1j * rng.standard_normal(LENGTH) if dtype == "complex64" else x).astype(dtype_of(dtype))
    problem = make_problem(x, "add")
    (wanted,) = twin_of(problem, tile_for(device, problem))
    for strategy in strategies_on(device):
        assert_same(single(device, problem, strategy), wanted, strategy)
