"""Kernels that take the loop's own steps within a chunk, after a scan of the maps of these steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.api.loop_arguments import loop_arguments
from gpuscan.api.loop_scans import LoopRun
from gpuscan.operators.loops.affine import PlusTimes
from gpuscan.operators.loops.semirings import ScaledMaps, multiply_scaled, scale_number
from gpuscan.planning.spec import ScanSpec, scan_spec
from tests.harness.devices import device_as_if
from tests.loops import oracle

F = np.float32
RNG = np.random.default_rng(8)
LENGTH = 3001
A = RNG.uniform(-1, 1, LENGTH).astype(F)
B = RNG.normal(size=LENGTH).astype(F)
I, J = RNG.integers(-9, 9, (2, LENGTH)).astype(np.int32)


def affine(h: Any, x: Any) -> Any:
    return x[0] * h + x[1]


def resetting(h: Any, x: Any) -> Any:
    h = np.where(x[2] > 7, x[1], x[0] * h + x[1])
    return h, h * x[1]


def clamp(h: Any, x: Any) -> Any:
    return np.clip(h + x, -20, 20)


def kalman(carry: Any, z: Any) -> Any:
    mean, variance = carry
    variance = variance + F(0.1)
    gain = variance / (variance + F(0.5))
    mean = mean + gain * (z - mean)
    return (mean, (1 - gain) * variance), mean


LOOPS: dict[str, tuple[Any, Any, Any]] = {
    "affine": (affine, F(0.5), (A, B)),
    "reset": (resetting, F(0.5), (A, B, I)),
    "number before the step": (lambda h, x: (F(0.9) * h + x, h), F(0.5), B),
    "clamp": (clamp, np.int32(3), I),
    "moving bounds": (lambda h, x: np.minimum(np.maximum(h + x[0], -x[1]), 100), np.int32(3), (I, J)),
    "max-plus": (lambda h, x: np.maximum(h + x[0], x[1]), np.int32(3), (I, J)),
    "remainder": (lambda h, x: (h + x) % 7, np.int32(0), I),
    "finite states": (lambda h, x: (3 * h + x) % 7, np.int32(0), I),
    "matrix": (lambda c, x: ((F(0.6) * c[0] - F(0.3) * c[1] + x, c[0]), c[0]), (F(1), F(0)), B),
    "quotient": (kalman, (F(0), F(1)), B),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_over_many_chunks_equals_its_steps(name: str, device: gs.Device) -> None:
    step, init, xs = LOOPS[name]
    arrays = tuple(map(device.asarray, xs)) if isinstance(xs, tuple) else device.asarray(xs)
    for reverse in (False, True):
        oracle.check(gs.loop(step, init, arrays, reverse=reverse), oracle.run(step, init, xs, reverse=reverse))


@pytest.mark.parametrize("shape", [(3, LENGTH // 3), (40, 75)])
@pytest.mark.parametrize("as_gpu", [False, True])
def test_rows_begin_with_their_own_values(shape: tuple[int, int], as_gpu: bool) -> None:
    device = gs.default_device()
    device = device_as_if(device, adapter_type="DiscreteGPU") if as_gpu else device
    a, b = (each[: shape[0] * shape[1]].reshape(shape) for each in (A, B))
    init = np.arange(shape[0], dtype=F)
    found = gs.loop(affine, init, (device.asarray(a), device.asarray(b)), axis=1)
    carry, ys = oracle.run(affine, init, (a.T, b.T))
    np.testing.assert_allclose(found.ys, ys[0].T, rtol=3e-4, atol=1e-3)
    np.testing.assert_allclose(found.carry, carry, rtol=3e-4, atol=1e-3)


def spec_of(step: Any, init: Any, xs: Any, fixed: bool = False) -> ScanSpec:
    """Return the spec of the only scan of a loop."""
    device = gs.default_device()
    arguments = loop_arguments(step, init, xs, axis=0, device=device)
    derivation = arguments.derivation()
    run = LoopRun(arguments, derivation, False, fixed)
    (stage,) = derivation.stages
    problem = run.problem(stage, [[arguments.step.results[0]]], [run.field_of(0)])
    return scan_spec(problem, device._context.capabilities)


def test_steps_are_taken_where_maps_are_wider_or_longer_than_sources() -> None:
    assert spec_of(affine, F(0), (A, B)).steps is not None
    assert spec_of(clamp, np.int32(0), I).steps is not None
    assert spec_of(lambda h, x: h + x, F(0), B).steps is None
    assert spec_of(lambda h, x: x[0] * h + x[1], np.int32(0), (I, J)).steps is None
    # Numbers that fill a chunk are kept as they are stored.
    assert spec_of(clamp, np.int32(0), I.astype(np.int8)).steps is None


def test_steps_are_not_taken_where_another_result_was_promised() -> None:
    # A running product is right after the loop's own product has become 0.
    assert spec_of(lambda h, x: x * h, F(1), A).steps is None
    assert spec_of(affine, F(0), (A, B), fixed=True).steps is None
    assert spec_of(lambda h, x: F(0.5) * h + x, np.float16(0), A.astype(np.float16)).steps is None


FACTORS = [0.0, -0.0, 1.0, -1.0, 0.3, 2.0**-126, -(2.0**127), 3e38, 1e-45, 1e20, -1e-20]


@pytest.mark.parametrize("seed", range(20))
@np.errstate(all="ignore")
def test_maps_of_a_chunk_are_the_compositions_of_its_maps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps = ScaledMaps(PlusTimes)
    plain = [(F(rng.choice(FACTORS)), F(rng.normal())) for _ in range(rng.integers(1, 20))]
    elements = [[*map(np.asarray, scale_number(np.asarray(a))), np.asarray(b)] for a, b in plain]
    chunk: Any = maps.first([np.asarray(each) for each in plain[0]])
    whole: Any = elements[0]
    for each, element in zip(plain[1:], elements[1:], strict=True):
        chunk, whole = maps.extend(chunk, [np.asarray(part) for part in each]), maps.combine(whole, element)
    settled: Any = maps.settle(chunk)
    factor, exponent, shift = settled
    np.testing.assert_allclose(shift, whole[2], rtol=1e-5)
    assert factor == 0 or 2.0**-32 <= abs(factor) <= 2.0**32
    for number in (F(1), F(1e-30), F(1e30)):
        wanted = multiply_scaled(whole[0], whole[1], np.asarray(number))
        np.testing.assert_allclose(multiply_scaled(factor, exponent, np.asarray(number)), wanted, rtol=1e-5, atol=1e-37)
