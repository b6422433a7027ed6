"""``reproducible="everywhere"``: the same bits on every adapter, on Dawn and on NumPy, for every layout and call.

``python -m tests.api.test_everywhere`` writes the digests again if the bits are meant to change. They are a promise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api import linear_recurrence, scan_vjp
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device import context
from gpuscan.engine.preparation import critical_pairs
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.strategies import Strategy
from gpuscan.planning.tile_shapes import CANONICAL_CHUNK, CANONICAL_GROUP, SPAN, TileShape
from gpuscan.reference.elementary import elementary
from tests.harness.devices import as_gpu, auto_strategy, forget_plans
from tests.harness.scans import make_problem, scan_with
from tests.oracle import Array, affine, safe_strategies

# Takes the device, and what brings an array of NumPy to where the call takes it from.
Call = Callable[[Any, Callable[[Array], Any]], Any]

EVERYWHERE: dict[str, Any] = {"reproducible": "everywhere"}
DIGESTS = Path(__file__).parent / "everywhere_digests.json"

# Elements of the inputs: several tiles, and a prime number.
LENGTH = 5003
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, 1.1754944e-38, 3e38, -3e38, 1e-20, 2e-19], np.float32
)
OFFSETS = np.array([0, 3, 3, 40, 41, 42, 700, 1024, 1025, 4000, LENGTH])


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape or (LENGTH,)).astype(np.float32)


def special(seed: int, *shape: int) -> Array:
    """Return random numbers. About a third of them are special ones."""
    rng = np.random.default_rng(seed)
    x = normal(seed, *shape)
    return np.where(rng.integers(0, 3, x.shape) == 0, rng.choice(SPECIAL, x.shape), x)


def tiny(seed: int) -> Array:
    """Return numbers around the smallest normal one."""
    exponents = np.random.default_rng(seed).integers(-46, -34, LENGTH)
    return (normal(seed) * 10.0**exponents).astype(np.float32)


# ----- The calls that have a digest on file


def product_and_sum(left: Any, right: Any) -> Any:
    """Combine by steps that compilers fuse or reorder, and by `where` and `maximum`, which they may give other bits."""
    chosen = np.where(left[1] < right[1], left[1], right[1] + left[0])
    return left[0] * right[0] + left[0], chosen, np.maximum(left[2], -right[2])


def right_operand(left: Any, right: Any) -> Any:
    del left
    return right


def compute_identities(value: Any) -> Any:
    """Return what compilers simplify, although not all numbers allow it."""
    zero, one = np.float32(0), np.float32(1)
    return value - value, value * zero, value + zero, one - (one - value), (value + one) - one


def exponential(value: Any) -> Any:
    return np.exp(-np.abs(value)) / (1 + value * value)


def make_scan_call(x: Any, op: Any = "add", **options: Any) -> Call:
    return lambda device, at: gs.scan(move_arrays(at, x), op, device=device, **options, **EVERYWHERE)


def reduce_everywhere(x: Any, op: Any = "add", **options: Any) -> Call:
    return lambda device, at: gs.reduce(move_arrays(at, x), op, device=device, **options, **EVERYWHERE)


def move_arrays(at: Callable[[Array], Any], x: Any) -> Any:
    return tuple(at(each) for each in x) if isinstance(x, tuple) else at(x)


def calls() -> dict[str, Call]:
    """Return the calls by the names of their digests."""
    cuts = {"segments": OFFSETS}
    keys, groups = np.arange(LENGTH) // 61, np.random.default_rng(9).integers(-1, 40, LENGTH)
    block = special(3, 13, 77, 5)
    gates = np.random.default_rng(4).uniform(-1, 1, LENGTH).astype(np.float32)
    parts = (special(5) + 1j * normal(6)).astype(np.complex64)
    few = (normal(12), special(13), normal(14))
    return {
        "add float32": make_scan_call(normal(0)),
        "add float32 with subnormals": make_scan_call(tiny(1)),
        "add float32 with special numbers, segments": make_scan_call(special(2), **cuts),
        "add float32, exclusive, reversed, segments": make_scan_call(normal(0), **cuts, exclusive=True, reverse=True),
        "add float32, keys, initial": make_scan_call(tiny(1), keys=keys, initial=1e-40),
        "add float32, groups": make_scan_call(normal(0), groups=groups),
        "add float32, compensated": make_scan_call(100 * normal(0), compensated=True),
        "multiply float32 with special numbers, segments": make_scan_call(special(2), "multiply", **cuts),
        "maximum float32": make_scan_call(special(2), "maximum", **cuts),
        "fmin float32, reversed": make_scan_call(special(2), "fmin", reverse=True),
        "add float32, axis 0": make_scan_call(block, axis=0),
        "add float32, axis 1, exclusive, total": make_scan_call(block, axis=1, exclusive=True, return_total=True),
        "add float32, axis 2, reversed": make_scan_call(block, axis=2, reverse=True, initial=0.5),
        "add float16": make_scan_call(special(2).clip(-9, 9).astype(np.float16), **cuts),
        "add bfloat16": make_scan_call(normal(0).astype(ml_dtypes.bfloat16)),
        "add float16, short rows": make_scan_call(normal(0, 714, 7).astype(np.float16), axis=1),
        "multiply complex64, segments": make_scan_call(parts, "multiply", **cuts),
        "matmul float32": make_scan_call(normal(7, 700, 2, 2) / 2, "matmul"),
        "a function of a bundle": make_scan_call(few, product_and_sum, **cuts),
        "steps that compilers simplify": make_scan_call(special(2), right_operand, before=compute_identities),
        "exp and quotients in maps": make_scan_call(normal(0), before=exponential, after=lambda v: np.sqrt(np.abs(v))),
        "reduce float32": reduce_everywhere(normal(0)),
        "reduce float32, axis 1": reduce_everywhere(block, axis=1),
        "reduce float32, segments": reduce_everywhere(normal(0), **cuts, initial=2),
        "reduce float32, groups": reduce_everywhere(normal(0), groups=groups),
        "linear recurrence": lambda device, at: gs.linear_recurrence(
            at(gates), at(tiny(1)), device=device, initial=0.5, **EVERYWHERE
        ),
        "gradient of a linear recurrence": lambda device, at: linear_recurrence.gradients(
            at(gates), at(normal(0)), at(normal(8)), axis=0, initial=0.5, reverse=False, device=device, **EVERYWHERE
        ),
        "gradient of a product": lambda device, at: scan_vjp.gradients(
            at(few[0][:1000]), at(few[1][:1000]), at(few[2][:1000]), "multiply", axis=0, device=device, **EVERYWHERE
        ),
        "loop": lambda device, at: tuple(
            gs.loop(lambda h, x: np.clip(h + x, -3, 4), 0.0, at(normal(0)), device=device, **EVERYWHERE)
        ),
    }


CALLS = calls()


def as_they_are(x: Array) -> Array:
    return x


def digest(found: Any) -> str:
    """Return the digest of the dtypes, shapes and bits of one or several arrays."""
    hashed = hashlib.sha256()
    for array in found if isinstance(found, tuple) else (found,):
        if array is None:
            continue
        content = array.numpy() if isinstance(array, gs.Array) else np.asarray(array)
        hashed.update(f"{content.dtype} {content.shape} ".encode())
        hashed.update(np.ascontiguousarray(content).tobytes())
    return hashed.hexdigest()


def load_digests() -> dict[str, str]:
    found: dict[str, str] = json.loads(DIGESTS.read_text())
    return found


def write_digests() -> None:
    """Write the digests of what NumPy gives."""
    found = {name: digest(call("numpy", as_they_are)) for name, call in CALLS.items()}
    DIGESTS.write_text(json.dumps(found, indent=4) + "\n")


def test_digests_on_numpy() -> None:
    assert {name: digest(call("numpy", as_they_are)) for name, call in CALLS.items()} == load_digests()


@pytest.mark.parametrize("name", CALLS)
def test_digests_on_devices(device: gs.Device, name: str) -> None:
    """Assert that arrays of NumPy and on the device give the bits that every other device gives."""
    call, wanted = CALLS[name], load_digests()[name]
    assert digest(call(device, as_they_are)) == wanted
    assert digest(call(None, device.asarray)) == wanted


# ----- The canonical order


def in_canonical_order(values: Array, combine: Callable[[int, int], int]) -> list[int]:
    """Return the results by the definition in docs/numerics.md, for fewer elements than a span."""

    def total(begin: int, count: int) -> int:
        half = count // 2
        if count > CANONICAL_CHUNK:
            return combine(total(begin, half), total(begin + half, half))
        return reduce(combine, map(int, values[begin : begin + count]))

    def halves(begin: int, end: int) -> list[int]:
        """Return the totals of the halves, the largest first."""
        found = []
        while begin < end:
            count = 1 << ((end - begin).bit_length() - 1)
            found.append(total(begin, count))
            begin += count
        return found

    results = []
    for index in range(len(values)):
        chunk, group = (index // size * size for size in (CANONICAL_CHUNK, CANONICAL_CHUNK * CANONICAL_GROUP))
        parts = [halves(0, group), halves(group, chunk), list(map(int, values[chunk : index + 1]))]
        results.append(reduce(combine, [reduce(combine, part) for part in parts if part]))
    return results


@pytest.mark.parametrize("length", [1, 2, 5, 64, 255, 257, 1025, 2049])
def test_the_order_is_the_canonical_one(device: gs.Device, length: int) -> None:
    """Assert the order with an operator that is not associative. Any other order would give other results."""
    x = np.random.default_rng(length).integers(0, 2**32, length, np.uint32)

    def combine(left: Any, right: Any) -> Any:
        return left * np.uint32(3) + (right ^ (left >> np.uint32(7)))

    expected = in_canonical_order(x, lambda a, b: (a * 3 + (b ^ (a >> 7))) % 2**32)
    for where in (device, "numpy"):
        assert gs.scan(x, combine, device=where, **EVERYWHERE).tolist() == expected


SPANS = 2 * SPAN + 1025
# The places at which chunks of several spans begin.
CUTS = [1, 1, 1000, SPAN + 7]


@cache
def scan_of_spans() -> Array:
    return gs.scan(normal(1, SPANS), device="numpy", **EVERYWHERE)


def test_spans_are_folded_from_the_left() -> None:
    """Assert that the fold of a span is what is before the first group of the next one."""
    x, whole = normal(1, SPANS), scan_of_spans()
    first, second, rest = (gs.scan(part, device="numpy", **EVERYWHERE) for part in np.split(x, [SPAN, 2 * SPAN]))
    fold = total_of_span(x[:SPAN])
    both = fold + total_of_span(x[SPAN : 2 * SPAN])
    assert whole[:SPAN].tobytes() == first.tobytes()
    in_group = CANONICAL_CHUNK * CANONICAL_GROUP
    assert whole[SPAN : SPAN + 4].tobytes() == (fold + second[:4]).tobytes()
    assert whole[2 * SPAN : 2 * SPAN + 4].tobytes() == (both + rest[:4]).tobytes()
    before = fold + total_of_span(x[SPAN : SPAN + in_group])
    assert whole[SPAN + in_group] == before + x[SPAN + in_group]
    assert_chunks_of_spans("numpy")


def total_of_span(x: Array) -> Any:
    """Return the sum in halves, down to chunks, which are added from left to right."""
    sums = np.add.accumulate(x.reshape(-1, CANONICAL_CHUNK), axis=1)[:, -1]
    while len(sums) > 1:
        sums = sums[0::2] + sums[1::2]
    return sums[0]


def assert_chunks_of_spans(device: Any) -> None:
    parts = np.split(normal(1, SPANS), CUTS)
    chunks = list(gs.scan_chunks(iter(parts), device=device, **EVERYWHERE))
    assert np.concatenate(chunks).tobytes() == scan_of_spans().tobytes()
    assert [len(chunk) for chunk in chunks] == [len(part) for part in parts]


@pytest.mark.parametrize("how", ["in chunks", "whole", "in pieces"])
def test_spans_on_devices(device: gs.Device, how: str) -> None:
    x = normal(1, SPANS)
    if how == "whole":
        assert gs.scan(x, device=device, **EVERYWHERE).tobytes() == scan_of_spans().tobytes()
    elif how == "in pieces":
        (found,) = scan_with(device, make_problem(x, **EVERYWHERE), piece_bytes=4 * SPAN)
        assert found.tobytes() == scan_of_spans().tobytes()
    else:
        assert_chunks_of_spans(device)


@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_many_rows(device: gs.Device, axis: int) -> None:
    """Assert that slabs of rows, which begin where spans do, give the bits of the whole array."""
    x = normal(2, 5, SPAN // 2) if axis else normal(2, SPAN // 4, 5)
    problem = make_problem(x, axis=axis, **EVERYWHERE).as_reduction()
    (found,) = scan_with(device, problem, piece_bytes=4 * SPAN)
    assert found.tobytes() == gs.reduce(x, axis=axis, device="numpy", **EVERYWHERE).tobytes()


@pytest.mark.parametrize("options", [{"exclusive": True, "initial": 3}, {"initial": 3}, {"exclusive": True}])
def test_empty_chunks(device: gs.Device, options: dict[str, Any]) -> None:
    """Begin a stream with chunks without elements, and put more of them among the others."""
    x = np.arange(2, 9, dtype=np.float32) / 8
    wanted = gs.scan(x, device="numpy", **options, **EVERYWHERE)
    for cuts in ([0], [0, 0, 3, 3], [2, 7, 7]):
        for where in (device, "numpy"):
            chunks = gs.scan_chunks(np.split(x, cuts), device=where, **options, **EVERYWHERE)
            assert np.concatenate(list(chunks)).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("exclusive", [False, True])
def test_chunks_with_keys(device: gs.Device, exclusive: bool) -> None:
    x, keys, cuts = tiny(3), np.arange(LENGTH) // 100, [0, 10, 999, 999]
    options: dict[str, Any] = {"exclusive": exclusive, "initial": np.float32(1e-40), **EVERYWHERE}
    whole = gs.scan(x, keys=keys, device="numpy", **options)
    for where in (device, "numpy"):
        chunks = gs.scan_chunks(iter(np.split(x, cuts)), keys=iter(np.split(keys, cuts)), device=where, **options)
        assert np.concatenate(list(chunks)).tobytes() == whole.tobytes()


def test_shaders_of_gpus(device: gs.Device) -> None:
    """Assert that the shaders of GPUs, which branch where a CPU's compute both ways, give the same bits."""
    gpu = as_gpu(device)
    for name in ("add float32 with subnormals", "a function of a bundle"):
        assert digest(CALLS[name](gpu, as_they_are)) == load_digests()[name]


def sizes(seed: int, length: int) -> Array:
    """Return numbers around the sizes below which steps are exact ones, runs of usual numbers, and zeros."""
    rng = np.random.default_rng(seed)
    exponents = np.where(
        rng.integers(0, 40, length) == 0,
        rng.integers(-149, 127, length),
        rng.integers((-64, -106)[seed % 2], 3, length),
    )
    usual = np.repeat(rng.integers(0, 2, -(-length // 64)), 64)[:length] == 1
    x = rng.standard_normal(length) * np.exp2(np.where(usual, 0, exponents))
    return np.where(rng.integers(0, 9, length) == 0, 0, x).astype(np.float32)


def sum_with_constants(left: Any, right: Any) -> Any:
    """Combine in a way that is not associative. The canonical order is defined for it, too."""
    return left * np.float32(0.5) - (right - np.float32(2**-70)) * np.float32(1e-30)


def with_quotients(left: Any, right: Any) -> Any:
    """Combine by a quotient, for which no bounds are known."""
    return np.maximum(left * right, right) - np.abs(left) / (right * right + np.float32(1))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("operator", ["add", "multiply", affine, sum_with_constants, with_quotients])
def test_steps_around_the_smallest_usual_number(device: gs.Device, operator: Any, seed: int) -> None:
    length = (4096, 4097, 20_011)[seed]
    x = sizes(seed, length)
    if seed == 1 and operator is affine:
        device = as_gpu(device)
    if operator == "multiply":
        x = np.where(np.abs(x) > 0, x * np.float32(2) ** -np.round(np.log2(np.abs(x) + (x == 0)) * 0.97), x)
    given = (np.random.default_rng(seed).uniform(0.5, 1, length).astype(np.float32), x) if operator is affine else x
    cuts = {"segments": np.array([0, 5, 5, 700, length])}
    for options in ({}, {"reverse": True}, {**cuts, "exclusive": True} if isinstance(operator, str) else cuts):
        wanted = gs.scan(given, operator, device="numpy", **EVERYWHERE, **options)
        found = gs.scan(given, operator, device=device, **EVERYWHERE, **options)
        assert digest(found) == digest(wanted), options


@pytest.mark.parametrize(
    "operator",
    [
        lambda a, b: a - (a - b),
        lambda a, b: (a + b) - a,
        lambda a, b: (a - b) + b,
        lambda a, b: b + (a - b),
        lambda a, b: -a + (a + b),
        lambda a, b: a + (b - (a + b)) + b,
        lambda a, b: (a * b + a) - a * b,
    ],
)
def test_steps_that_algebra_would_cancel(device: gs.Device, operator: Any) -> None:
    """Assert that each step is rounded, although compilers might drop numbers that cancel if nothing were rounded."""
    x = (normal(16) * 10.0 ** np.random.default_rng(16).integers(-4, 4, LENGTH)).astype(np.float32)
    wanted = gs.scan(x, operator, device="numpy", **EVERYWHERE)
    for where in (device, as_gpu(device)):
        assert digest(gs.scan(x, operator, device=where, **EVERYWHERE)) == digest(wanted)


def no_smaller_than_a_constant(left: Any, right: Any) -> Any:
    return np.maximum(left + right, np.float32(1e-40))


def sum_of_what_is_passed_on(left: Any, right: Any) -> Any:
    return left[0] + left[1], left[2], right[2]


def sum_of_what_is_chosen(left: Any, right: Any) -> Any:
    return left[0] + right[1], np.where(left[0] < right[0], left[1], right[2]), right[2]


@pytest.mark.parametrize("operator", [no_smaller_than_a_constant, sum_of_what_is_passed_on, sum_of_what_is_chosen])
def test_adapters_that_flush_subnormals(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, operator: Any) -> None:
    """Assert that no quick step meets a subnormal number, which WGSL allows adapters to take for zero."""
    sums = 0

    def render_with_flushes(kernel: Kernel) -> str:
        nonlocal sums
        text = render_kernel(kernel)
        quick = "return a * f32_hidden(0x3f800000u) + b * bitcast<f32>(0x3f800000u ^ (params.epoch >> 17u));"
        if quick not in text:
            return text
        sums += 1
        flush = "fn flush(x: f32) -> f32 { return select(x, 0.0, (bitcast<u32>(x) & 0x7f800000u) == 0u); }"
        return text.replace(quick, "return flush(flush(a) + flush(b));") + flush

    monkeypatch.setattr(context, "render_kernel", render_with_flushes)
    rng = np.random.default_rng(8)
    subnormal = (rng.integers(-3, 4, LENGTH) * 1e-42).astype(np.float32)
    zero = np.zeros(LENGTH, np.float32)
    one_field = operator is no_smaller_than_a_constant
    given = -np.abs(normal(8)) if one_field else (zero, zero, subnormal)
    wanted = gs.scan(given, operator, device="numpy", **EVERYWHERE)
    assert digest(gs.scan(given, operator, device=own_device, **EVERYWHERE)) == digest(wanted)
    looked_back = scan_with(
        own_device, make_problem(given, operator, **EVERYWHERE), "lookback", tile=TileShape(128, 0, 2, 4)
    )
    assert digest(looked_back[0] if one_field else tuple(looked_back)) == digest(wanted)
    assert sums > 1


def test_signs_of_nan(device: gs.Device) -> None:
    """Assert that NaN of a step has the same sign everywhere. x86 and NVIDIA give NaN of ``inf - inf`` other signs."""

    def by_sign(left: Any, right: Any) -> Any:
        return np.where(np.signbit((left - left) + (right - right)), left + np.float32(1), right)

    x = np.where(np.arange(3000) % 7 == 3, np.inf, normal(3, 3000)).astype(np.float32)
    wanted = gs.scan(x, by_sign, device="numpy", **EVERYWHERE)
    assert digest(gs.scan(x, by_sign, device=device, **EVERYWHERE)) == digest(wanted)


@pytest.mark.parametrize(("op", "after"), [("add", np.signbit), ("multiply", lambda value: value.view(np.uint32))])
def test_maps_that_read_the_sign_of_nan(device: gs.Device, op: str, after: Any) -> None:
    """Assert that quick steps, which leave the sign of NaN open, are not taken before such a map."""
    x = normal(3, 3000)
    x[[40, 50, 77]] = np.inf, -np.inf, 0
    wanted = gs.scan(x, op, after=after, device="numpy", **EVERYWHERE)
    for where in (device, as_gpu(device)):
        assert digest(gs.scan(x, op, after=after, device=where, **EVERYWHERE)) == digest(wanted)


def test_loops_that_read_the_sign_of_nan(device: gs.Device) -> None:
    x = normal(3, 300)
    x[[40, 50]] = np.inf, -np.inf

    def step(h: Any, v: Any) -> Any:
        return h + v, np.signbit(h + v)

    wanted = gs.loop(step, 0.0, x, device="numpy", **EVERYWHERE)
    assert digest(tuple(gs.loop(step, 0.0, x, device=device, **EVERYWHERE))) == digest(tuple(wanted))


def test_calls_that_come_again(device: gs.Device) -> None:
    """Assert that programs of earlier calls serve arrays of other sizes, and none of the plain scan."""
    for length in (3000, 3000, 4500, 1700, 3000):
        x = normal(length, length)
        array = device.asarray(x)
        expected = gs.scan(x, device="numpy", **EVERYWHERE)
        assert gs.scan(array, **EVERYWHERE).numpy().tobytes() == expected.tobytes()
        assert gs.scan(array, reproducible=None).numpy().tobytes() == gs.scan(array).numpy().tobytes()
    programs = len(device._context.programs)
    gs.scan(array, np.add, axis=0, reproducible="everywhere")
    assert len(device._context.programs) == programs


def test_plans(device: gs.Device) -> None:
    x = tiny(3)
    plan = device.plan(LENGTH, np.float32, segments=OFFSETS, **EVERYWHERE)
    expected = gs.scan(x, segments=OFFSETS, device="numpy", **EVERYWHERE)
    assert plan(x).tobytes() == plan(device.asarray(x)).numpy().tobytes() == expected.tobytes()
    looks = auto_strategy(device) in ("lookback", "lookahead")
    assert plan.strategy == ("lookback" if looks else "three_dispatch")
    source, result = device.asarray(x), device.empty(LENGTH, np.float32)
    encoder = device.wgpu_device.create_command_encoder()
    plan.record(encoder, source, result)
    device.wgpu_device.queue.submit([encoder.finish()])
    assert result.numpy().tobytes() == expected.tobytes()


def test_every_strategy_gives_the_same_bits(device: gs.Device) -> None:
    x = normal(0)
    for strategy in ("auto", "three_dispatch", "fallback"):
        found = gs.scan(x, device=device, strategy=strategy, **EVERYWHERE)
        assert digest(found) == load_digests()["add float32"]


# ----- Look-back


HALF = np.array([0, 5, 100_000, SPAN - 1, SPAN + 70_000, 2 * SPAN + 4321])
LOOK_BACK_TILE = TileShape(256, 0, 2, 4)


def strategies_of_halves(device: gs.Device) -> list[Strategy]:
    """Return the strategies that the canonical order has: look-back where it is safe, and three dispatches."""
    return [name for name in safe_strategies(device) if name in ("lookback", "three_dispatch")]


@pytest.mark.parametrize(
    "options", [{}, {"exclusive": True, "initial": 0.5}, {"reverse": True}, {"segments": HALF}], ids=str
)
@pytest.mark.parametrize("smallest", [0, -149])
def test_look_back_over_several_spans(device: gs.Device, options: dict[str, Any], smallest: int) -> None:
    """Assert that a tile that looks back joins the halves, and the folds of spans, as NumPy does."""
    length = int(HALF[-1])
    rng = np.random.default_rng(length)
    x = rng.standard_normal(length).astype(np.float32)
    x[rng.integers(0, length, 40)] *= np.float32(2.0) ** smallest  # few tiles have small numbers
    wanted = gs.scan(x, device="numpy", **EVERYWHERE, **options)
    problem = make_problem(x, **EVERYWHERE, **options)
    for strategy in strategies_of_halves(device):
        found = scan_with(device, problem, strategy, tile=LOOK_BACK_TILE)[0]
        assert digest(found) == digest(wanted), strategy


@pytest.mark.parametrize("scheduler", ["random", "serial", "bursts"])
def test_look_back_under_hostile_schedulers(device: gs.Device, scheduler: str) -> None:
    x = normal(1, 300_000)
    wanted = digest(gs.scan(x, device="numpy", **EVERYWHERE))
    for strategy in strategies_of_halves(device):
        found = scan_with(device, make_problem(x, **EVERYWHERE), strategy, tile=LOOK_BACK_TILE, scheduler=scheduler)
        assert digest(found[0]) == wanted, strategy


def test_look_back_in_pieces(device: gs.Device) -> None:
    """Assert that the carry of a piece is the fold of its spans."""
    x = normal(2, 3 * SPAN + 1000)
    wanted = digest(gs.scan(x, device="numpy", **EVERYWHERE))
    for strategy in strategies_of_halves(device):
        problem = make_problem(x, **EVERYWHERE)
        found = scan_with(device, problem, strategy, tile=LOOK_BACK_TILE, piece_bytes=4 * SPAN)
        assert digest(found[0]) == wanted, strategy


def test_look_back_of_late_tiles_times_out(own_device: gs.Device) -> None:
    if "lookback" not in safe_strategies(own_device):
        pytest.skip("look-back is not safe here")
    x = normal(3, 40_000)
    with pytest.raises(gs.ProgressTimeoutError):
        scan_with(own_device, make_problem(x, **EVERYWHERE), "lookback", tile=LOOK_BACK_TILE, withheld=2)


# ----- Sums


@pytest.mark.parametrize("terms", ["uniform", "normal", "alternating", "one large term"])
def test_sums_are_as_close_as_those_of_numpy(terms: str) -> None:
    """Assert that running sums are no further off than `np.sum` of the same terms, or eight roundings."""
    x = np.random.default_rng(0).random(2**18).astype(np.float32) if terms != "normal" else normal(0, 2**18)
    if terms == "alternating":
        x[1::2] *= -1
    elif terms == "one large term":
        x[0] = len(x)
    exact = np.cumsum(x.astype(np.float64))
    places = np.linspace(1, len(x), 400).astype(int)
    of_numpy = np.array([np.sum(x[:place]) for place in places])
    found = gs.scan(x, device="numpy", **EVERYWHERE)
    error = np.abs(found - exact)[places - 1].max()
    assert error <= max(np.abs(of_numpy - exact[places - 1]).max(), 8 * 2.0**-24 * np.abs(exact).max())


# ----- Steps on floats


def test_sums_and_products_are_ieee_754s() -> None:
    """Assert it of the text of the shaders, run on NumPy, where subnormals are computed in integers."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (2, 100_000), np.uint32)
    small = (bits & 0x83FFFFFF).view(np.float32)  # below 2^-112: sums are subnormal
    scaled = ((bits & 0x80FFFFFF) | (rng.integers(50, 78, bits.shape) << 23).astype(np.uint32)).view(np.float32)
    for a, b in (critical_pairs(), bits.view(np.float32), small, scaled):
        with np.errstate(all="ignore"):
            for name, exact in (("sum", a + b), ("product", a * b), ("difference", a - b)):
                expected = np.where(np.isnan(exact), np.float32(np.nan), exact)
                assert np.array_equal(elementary(name, a, b).view(np.uint32), expected.view(np.uint32)), name


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("is_less", np.less),
        ("is_less_equal", np.less_equal),
        ("is_greater", np.greater),
        ("is_greater_equal", np.greater_equal),
        ("is_equal", np.equal),
        ("differs", np.not_equal),
    ],
)
def test_comparisons_are_ieee_754s(name: str, function: np.ufunc) -> None:
    a, b = critical_pairs()
    assert np.array_equal(elementary(name, a, b).astype(bool), function(a, b))


def test_an_adapter_that_rounds_otherwise_is_refused(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device._context, "wrong_floats", "products")
    forget_plans(device)  # programs of other tests, which have passed the check
    x = normal(0)
    with pytest.raises(gs.UnsupportedDtypeError, match=r"products of float32 differ.*device=\"numpy\""):
        gs.scan(x, device=device, **EVERYWHERE)
    with pytest.raises(gs.UnsupportedDtypeError, match="products"):
        device.plan(LENGTH, np.float32, **EVERYWHERE)
    assert gs.scan(x, device=device).shape == x.shape


# ----- What is refused


def test_gradients_of_logaddexp(device: gs.Device) -> None:
    x, grad = normal(1), normal(2)
    results = gs.scan(x, "logaddexp", device="numpy", **EVERYWHERE)
    wanted = gs.scan_vjp(x, results, grad, "logaddexp", **EVERYWHERE)
    found = gs.scan_vjp(device.asarray(x), device.asarray(results), device.asarray(grad), "logaddexp", **EVERYWHERE)
    assert isinstance(found, gs.Array)
    assert np.array_equal(found.numpy().view(np.uint32), np.asarray(wanted).view(np.uint32))


@pytest.mark.parametrize("shape", [(7,), (7, 3, 2), (3, 1, 7)])
def test_gradients_of_a_recurrence_with_an_initial_value_on_the_device(
    device: gs.Device, shape: tuple[int, ...]
) -> None:
    """Assert that initial values of any shape have the gradients that they have in NumPy."""
    rng = np.random.default_rng(5)
    for axis in range(len(shape)):
        others = shape[:axis] + shape[axis + 1 :]
        a, h, grad = (rng.standard_normal(shape).astype(np.float32) for _ in range(3))
        for start in {others, (), others[-1:]}:
            initial = np.asarray(rng.standard_normal(start), np.float32)
            on_device = [device.asarray(array) for array in (a, h, grad, initial)]
            for reverse in (False, True):
                wanted = gs.linear_recurrence_vjp(
                    a, h, grad, axis=axis, initial=initial, reverse=reverse, reproducible="everywhere"
                )
                found = gs.linear_recurrence_vjp(
                    *on_device[:3], axis=axis, initial=on_device[3], reverse=reverse, reproducible="everywhere"
                )
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(np.asarray(one), other)


def test_refusals(device: gs.Device) -> None:
    x = normal(0)
    foreign = gs.wgsl_operator("fn combine(a: Element, b: Element) -> Element { return a + b; }")
    with pytest.raises(ValueError, match=r"reproducible='always'.*\"everywhere\"|'everywhere'"):
        gs.scan(x, reproducible="always")
    wrong: Any = True
    with pytest.raises(ValueError, match="reproducible=True"):
        gs.reduce(x, reproducible=wrong)
    with pytest.raises(gs.OperatorError, match="WGSL"):
        gs.scan(x, foreign, device=device, **EVERYWHERE)
    with pytest.raises(gs.OperatorError, match="remainder of float32"):
        gs.scan(x, lambda left, right: np.remainder(left, 3) + right, device=device, **EVERYWHERE)
    with pytest.raises(gs.OperatorError, match=r"before= or after=.*fmod of float32"):
        gs.scan(x, before=lambda value: np.fmod(value, 3), device="numpy", **EVERYWHERE)
    with pytest.raises(gs.OperatorError, match="add of float64"):
        gs.scan(x.astype(np.float64), device="numpy", **EVERYWHERE)


def test_integers_take_the_plain_scan(device: gs.Device) -> None:
    """Assert that named operators of integers, which have one set of bits already, run as fast as without."""
    assert not make_problem(np.arange(9), **EVERYWHERE).everywhere
    assert make_problem(np.arange(9), before=lambda v: v * 2, **EVERYWHERE).everywhere
    x = np.arange(LENGTH, dtype=np.int16)
    assert digest(gs.scan(x, device=device, **EVERYWHERE)) == digest(gs.scan(x, device="numpy"))


if __name__ == "__main__":
    write_digests()
