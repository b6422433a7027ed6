"""Functions that close over floats: other values give other results, and no shader is compiled for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.devices import count_plans_and_pipelines
from tests.oracle import assert_same

X = np.random.default_rng(0).integers(-8, 8, 3001).astype(np.float32)


@pytest.mark.parametrize("where", ["numpy", "chunks"])
def test_other_values_compile_nothing(device: gs.Device, where: str) -> None:
    """Assert right results for each value of scans of NumPy's arrays, and that only the first compiles shaders."""
    compiled = []
    for value in (0.25, 3.0, -1.5):
        if where == "numpy":
            got = gs.scan(X, "maximum", before=lambda v, k=value: v * k, device=device)
        else:
            chunks = gs.scan_chunks(np.array_split(X, 3), "maximum", before=lambda v, k=value: v * k, device=device)
            got = np.concatenate(list(chunks))
        compiled.append(count_plans_and_pipelines(device)[1])
        assert_same(got, np.maximum.accumulate(X * np.float32(value)))
    assert compiled[0] == compiled[-1]


def test_recorded_plans_read_their_own_constants(device: gs.Device) -> None:
    """Assert that two plans with the same shaders keep their own constants, recorded and called."""
    plans = [device.plan(X.shape, X.dtype, "maximum", before=lambda v, c=value: v * c) for value in (2.0, -3.0)]
    source = device.asarray(X)
    results = [device.asarray(np.full(X.shape, np.nan, np.float32)) for _ in plans]
    encoder = device.wgpu_device.create_command_encoder()
    for plan, result in zip(plans, results, strict=True):
        plan.record(encoder, source, result)
    device.wgpu_device.queue.submit([encoder.finish()])
    for plan, result, value in zip(plans, results, (2, -3), strict=True):
        wanted = np.maximum.accumulate(X * np.float32(value))
        assert_same(result.numpy(), wanted)
        assert_same(plan(X), wanted)


# ----- Literals that compilers would simplify


def arithmetic(x: Any, k: Any) -> tuple[Any, ...]:
    """Return sums, products and quotients of a number and a literal."""
    return x * k, k * x, x / k, k / x, x + k, x - k, k - x, x * k * 10.0, x / k / 10.0


def comparisons(x: Any, k: Any) -> tuple[Any, ...]:
    """Return comparisons of a number with a literal, and a choice of one of them."""
    found = (np.equal(x, k), np.where(x == 1, x, np.full_like(x, k)))
    return found if x.dtype.kind == "c" else (*found, x < k, x <= k, x > k, x >= k)


def real_functions(x: Any, k: Any) -> tuple[Any, ...]:
    """Return what functions of real numbers give for a number and a literal."""
    x = x.real
    return tuple(f(x, k.real) for f in (np.minimum, np.maximum, np.fmin, np.fmax, np.copysign, np.hypot))


def close(got: Any, wanted: Any) -> Any:
    """Return, for each number, True if it is NumPy's up to rounding and subnormals."""
    if wanted.dtype.kind == "c":
        return close(got.real, wanted.real) & close(got.imag, wanted.imag)
    if wanted.dtype.kind != "f":
        return got == wanted
    limits = np.finfo(wanted.dtype)
    near = np.abs(got - wanted) <= 8 * limits.eps * np.abs(wanted) + limits.tiny
    return (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(wanted) & near)


def literals_of(dtype: np.dtype[Any]) -> list[Any]:
    """Return numbers that compilers treat in a special way, and a few others."""
    limits = np.finfo(dtype)
    found: list[Any] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5, float(limits.tiny)]
    found += [float(limits.max) / 10, float(limits.smallest_subnormal)]
    return [*found, 1j, 2 + 3j, complex(0, np.inf)] if dtype.kind == "c" else [*found, float(limits.max)]


def floats_of(device: gs.Device) -> list[str]:
    """Return the names of the float and complex types that a device computes with."""
    return ["float16", "float32", "complex64"] + ["float64"] * device.capabilities.float64


@pytest.mark.parametrize("function", [arithmetic, comparisons, real_functions])
@np.errstate(all="ignore")
def test_literals_are_computed_with_as_numbers(device: gs.Device, function: Any) -> None:
    """Assert NumPy's results of every operation with every literal, where adapters may flush subnormals."""
    for dtype in floats_of(device):
        tiny = np.finfo(dtype).tiny
        x = np.array([0, -0.0, 1, -2, 5, 0.1, 1e3, -3.5, np.inf, -np.inf, np.nan], dtype)
        if x.dtype.kind == "c":
            x = np.array([0, 1, -2 + 1j, 5j, 0.1 - 3j, 1e3, -1e30 + 1e30j, complex(0, np.inf)], dtype)
        computed = x.astype(np.float32) if dtype == "float16" else x  # float16 is rounded when it is stored
        for k in literals_of(x.dtype):
            found = gs.map(lambda v, k=k: function(v, k), device.asarray(x))
            flushed = [function(computed, each) for each in ((k, k * 0) if 0 < abs(k) < tiny else (k,))]
            for place, (got, *wanted) in enumerate(zip(found, *flushed, strict=True)):
                same = np.any([close(got.numpy(), each.astype(got.dtype)) for each in wanted], axis=0)
                assert same.all(), (dtype, place, k, x[~same], got.numpy()[~same], wanted[0][~same])


@np.errstate(all="ignore")
def test_a_quotient_by_zero(device: gs.Device) -> None:
    """Assert that operators and maps of scans, NumPy's functions and means of nothing divide as NumPy does."""
    for x in (np.array([1, 0, -2, 5], name) for name in floats_of(device)):
        on_device = device.asarray(x)
        assert close((on_device / 0.0).numpy(), x / 0.0).all()
        quotient: Any = np.divide(0.0, on_device)
        assert close(quotient.numpy(), 0.0 / x).all()
        scanned = gs.scan(on_device, before=lambda v: 1.0 / (v / 0.0), after=lambda v: v / 0.0)
        assert close(scanned.numpy(), np.cumsum(1.0 / (x / 0.0)) / 0.0).all()
        combined = gs.scan(on_device, lambda l, r: (l + r) / 0.0)
        assert close(combined[:2].numpy(), np.array([x[0], (x[0] + x[1]) / 0.0])).all()
        if x.dtype.kind == "f":
            assert np.isnan(on_device[:0].mean().numpy())
            # Compilers may compute with both sides of a choice.
            flags = device.asarray(np.array([False, True]))
            quotient = gs.map(lambda b, v: b.astype(v.dtype) / v, flags, device.asarray(np.zeros(2, x.dtype)))
            assert close(quotient.numpy(), np.array([np.nan, np.inf], x.dtype)).all()
