"""Functions that close over floats: other values give other results, and no shader is compiled for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.harness.devices import kept_plans_and_pipelines
from tests.oracle import assert_same

VALUES = (0.25, 3.0, -1.5)
X = np.random.default_rng(0).integers(-8, 8, 3001).astype(np.float32)


def clipped(x: Any, value: float, **options: Any) -> Any:
    """Scan with constants in the operator and in both maps."""
    return gs.scan(
        x,
        lambda l, r: np.minimum(np.maximum(l, r), value * 2),
        before=lambda v: np.where(v > value, v * 0.5, v),
        after=lambda v: (v + value, v < value),
        **options,
    )


def clipped_by_numpy(x: Any, value: float) -> Any:
    """Return the same, computed by NumPy."""
    loaded = np.where(x > np.float32(value), x * np.float32(0.5), x)
    combined = np.minimum(np.maximum.accumulate(loaded), np.float32(value * 2))
    combined[0] = loaded[0]
    return combined + np.float32(value), combined < np.float32(value)


@pytest.mark.parametrize("where", ["numpy", "device", "reduce", "chunks", "operator", "default"])
def test_other_values_compile_nothing(device: gs.Device, where: str) -> None:
    """Assert right results for each value, and that only the first value compiles shaders."""

    def run(value: float) -> Any:
        if where == "numpy":
            return clipped(X, value, device=device)
        if where == "device":
            return tuple(each.numpy() for each in clipped(device.asarray(X), value))
        if where == "reduce":
            return gs.reduce(X, lambda l, r: np.maximum(l, r) * 1.0 + value * 0.0, device=device)
        if where == "chunks":
            chunks = np.array_split(X, 3)
            return np.concatenate(list(gs.scan_chunks(chunks, "maximum", before=lambda v: v * value, device=device)))
        if where == "default":  # of a parameter, which the function does not close over
            return gs.scan(X, lambda l, r, c=value: np.maximum(l, r * 1.0) - c * 0.0, device=device)
        return gs.scan(X, gs.operator(lambda l, r: np.maximum(l, r * 1.0) - value * 0.0), device=device)

    compiled = []
    for value in VALUES:
        got = run(value)
        compiled.append(kept_plans_and_pipelines(device)[1])
        if where in ("numpy", "device"):
            for one, wanted in zip(got, clipped_by_numpy(X, value), strict=True):
                assert_same(one, wanted)
        elif where == "chunks":
            assert_same(got, np.maximum.accumulate(X * np.float32(value)))
        else:
            assert_same(got, X.max() if where == "reduce" else np.maximum.accumulate(X))
    assert compiled[0] == compiled[-1]


def test_special_values(device: gs.Device) -> None:
    """Assert that infinities, NaN, the largest number and negative zero arrive as they are."""
    for value in (float("inf"), float("-inf"), float("nan"), 3.4028235e38, -0.0):
        got = gs.scan(X, "maximum", before=lambda v, value=value: np.where(v > 6, value, v - 100.0), device=device)
        assert_same(got, np.maximum.accumulate(np.where(X > 6, np.float32(value), X - 100)))


def test_sixteen_bit_floats_and_many_constants(device: gs.Device) -> None:
    """Constants of float16 elements are captured as float32; a table of constants is captured as well."""
    x = X.astype(np.float16)
    for scale in (0.5, 2.0):
        assert_same(
            gs.scan(x, "maximum", before=lambda v, s=scale: v * s, device=device),
            np.maximum.accumulate(x * np.float16(scale)),
        )
    for seed in range(2):
        table = np.random.default_rng(seed).integers(1, 9, 21).astype(np.float32)
        got = gs.scan(X, "minimum", before=lambda v, t=table: sum(v * c for c in t), device=device)
        assert_same(got, np.minimum.accumulate(X * table.sum()))


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
