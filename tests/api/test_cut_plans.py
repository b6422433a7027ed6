"""Plans with segments, keys and groups give what scans give, along any axis, called and recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.oracle import assert_same, draw_offsets

SHAPES = [((700,), 0), ((5, 301), 1), ((2, 150, 4), 1)]


def cuts_of(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> list[dict[str, Any]]:
    n = shape[axis]
    offsets = draw_offsets(rng, n, 1 + n // 9)
    labels = 2 * rng.integers(-3, 4, n)
    return [{"segments": offsets}, {"keys": rng.random(shape) < 0.2}, {"groups": labels}, {"groups": np.sort(labels)}]


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_every_cut(device: gs.Device, shape: tuple[int, ...], axis: int) -> None:
    """Call plans on arrays of NumPy and of the device, and record the plans that move no elements."""
    rng = np.random.default_rng(len(shape) + axis)
    x = rng.integers(0, 2**32, shape, dtype=np.uint32)
    there = device.asarray(x)
    options: dict[str, Any] = {"axis": axis, "reverse": axis == 1, "exclusive": True, "initial": np.uint32(7)}
    for number, cuts in enumerate(cuts_of(rng, shape, axis)):
        wanted = gs.scan(x, device="numpy", **cuts, **options)
        given: dict[str, Any] = {name: device.asarray(cut) if name != "segments" else cut for name, cut in cuts.items()}
        moves = number == 2
        for kept in (cuts, given) if number < 3 else (cuts,):
            plan = device.plan(shape, np.uint32, **{name: cut.copy() for name, cut in kept.items()}, **options)
            for _ in range(2):
                assert_same(plan(there), wanted, (cuts, plan))
            assert_same(plan(x), wanted, cuts)
            out = np.empty_like(x)
            assert plan(x, out=out) is out
            assert_same(out, wanted, cuts)
            result = device.asarray(np.full_like(x, 0xABCD))
            encoder = device.wgpu_device.create_command_encoder()
            if moves:
                with pytest.raises(gs.GpuscanError, match="with groups was to be recorded, but its labels"):
                    plan.record(encoder, there, result)
                continue
            plan.record(encoder, there, result)
            device.wgpu_device.queue.submit([encoder.finish()])
            assert_same(result, wanted, cuts)
        assert_same(there, x)


def test_a_plan_keeps_its_labels(device: gs.Device) -> None:
    """Assert that a plan has its own labels, and that maps get the indices of elements before they are moved."""
    labels, there = np.array([1, 0, 1, 0, 1]), device.asarray(np.array([1, 0, 1, 0, 1]))
    x = np.arange(5, dtype=np.int32)
    plans = [device.plan(5, np.int32, groups=each, before=lambda v, i: v * 10 + i) for each in (labels, there)]
    labels[:] = 0
    gs.scan(there, out=there)
    for plan in plans:
        assert_same(plan(x), np.array([0, 11, 22, 44, 66], np.int32))
        assert {"scan", "scan_groups"} & set(plan.wgsl)
    assert_same(
        device.plan((0, 3), np.int32, axis=0, groups=np.zeros((0, 3), int))(x[:0].repeat(3).reshape(0, 3)).shape, (0, 3)
    )


def test_cuts_that_plans_refuse(device: gs.Device) -> None:
    with pytest.raises(ValueError, match="segments"):
        device.plan(10, np.int32, segments=[0, 5])
    with pytest.raises(ValueError, match="keys= and groups= were both passed"):
        device.plan(4, np.int32, keys=np.zeros(4), groups=np.zeros(4, int))
    with pytest.raises(TypeError, match="groups of dtype float32"):
        device.plan(4, np.int32, groups=device.asarray(np.zeros(4, np.float32)))
    with pytest.raises(ValueError, match=r"groups of shape \(3,\)"):
        device.plan((2, 4), np.int32, axis=1, groups=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"groups on .* were passed to a plan on"):
        device.plan(4, np.int32, groups=gs.Device(device._context.adapter).asarray(np.zeros(4, np.int32)))
