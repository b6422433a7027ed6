"""Numbers that ``reproducible="everywhere"`` converts: to other types, and to whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.api.test_everywhere import EVERYWHERE, LENGTH, digest, special
from tests.harness.devices import as_gpu, device_as_if


def last(left: Any, right: Any) -> Any:
    del left
    return right


@pytest.mark.parametrize("function", [np.rint, np.floor, np.ceil, np.trunc])
def test_rounding_to_whole_numbers(device: gs.Device, function: Any) -> None:
    halves = np.arange(-41, 42, dtype=np.float32) / 2
    large = np.float32(2) ** np.arange(20, 26, dtype=np.float32)[:, np.newaxis] + np.array([-1.5, -1, -0.5, 0, 0.5, 1])
    x = np.concatenate([halves, large.astype(np.float32).ravel(), -large.astype(np.float32).ravel(), special(3)])
    x = np.concatenate([x, np.nextafter(halves, np.float32(99)), np.nextafter(halves, np.float32(-99))])
    found = gs.scan(x, last, before=function, device=device, **EVERYWHERE)
    wanted = function(x)
    assert np.array_equal(
        np.where(np.isnan(x), 0, found).view(np.uint32), np.where(np.isnan(x), 0, wanted).view(np.uint32)
    )
    assert np.array_equal(np.isnan(found), np.isnan(x))
    # Sums of whole numbers take quick steps.
    sums = gs.scan(x[: len(halves)], lambda left, right: function(left) + right, device=device, **EVERYWHERE)
    assert np.array_equal(sums, gs.scan(x[: len(halves)], lambda a, b: function(a) + b, device="numpy", **EVERYWHERE))


@pytest.mark.parametrize("source", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("target", [np.float32, np.float16])
def test_integers_are_rounded_to_the_nearest_float(
    device: gs.Device, source: type[np.integer], target: type[np.floating]
) -> None:
    limits = np.iinfo(source)
    rng = np.random.default_rng(limits.bits)
    x = rng.integers(limits.min, limits.max, 3000, source, endpoint=True) >> rng.integers(0, limits.bits, 3000, source)
    halves = [
        2**24 + 1,
        2**24 + 3,
        2**25 + 2,
        2**31 - 64,
        2**31 - 65,
        2**31 - 1,
        limits.min,
        limits.max,
        limits.max // 2,
    ]
    x = np.concatenate([x, np.array(halves, source)])
    with np.errstate(over="ignore"):
        wanted = x.astype(target)
    for where in (device, as_gpu(device), "numpy"):
        assert digest(gs.scan(x, last, before=lambda v: v.astype(target), device=where, **EVERYWHERE)) == digest(wanted)


@pytest.mark.parametrize("target", [np.int8, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_floats_become_the_same_integers(device: gs.Device, target: type[np.integer]) -> None:
    """Assert it of numbers that the integers cannot hold: CPUs and GPUs convert these in different ways."""
    powers = np.float32(2) ** np.array([-1, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 100], np.float32)
    x = np.concatenate([special(6), powers * np.float32(1.25), np.nextafter(powers, np.float32(0)), powers])
    x = np.concatenate([x, -x])

    def convert(value: Any) -> Any:
        # NaN of a difference has another sign on x86 than on other processors.
        return (
            value.astype(target),
            (value - value).astype(target),
            np.where(np.isnan(value), -value, value).astype(target),
        )

    found = gs.scan(x, last, before=convert, device="numpy", **EVERYWHERE)
    for where in (device, as_gpu(device)):
        assert digest(gs.scan(x, last, before=convert, device=where, **EVERYWHERE)) == digest(found)
    limits = np.iinfo(target)
    inside = (x >= max(limits.min, -(2.0**62))) & (x < 2.0 ** (limits.bits - (limits.min < 0)))
    assert np.array_equal(found[0][inside], x[inside].astype(target))
    assert np.all(found[0][np.isnan(x)] == (limits.min if limits.bits >= 32 else 0))


def test_integers_that_are_combined_as_floats(device: gs.Device) -> None:
    x = np.random.default_rng(2).integers(-9, 9, LENGTH).astype(np.int32)

    def combine(left: Any, right: Any) -> Any:
        return left + (right.astype(np.float32) * np.float32(0.3) + left.astype(np.float32)).astype(np.int32) % 7

    wanted = digest(gs.scan(x, combine, device="numpy", **EVERYWHERE))
    for where in (device, as_gpu(device)):
        assert digest(gs.scan(x, combine, device=where, **EVERYWHERE)) == wanted


def test_signs_of_nan_are_read_as_they_are(device: gs.Device) -> None:
    """Assert it of float16 where WGSL's packing is exact. An H200 unpacks every NaN to the same bits."""
    x = np.array([0x7E00, 0xFE00, 0x7E01, 0xFDFF, 0x7FFF, 0xFFFF], np.uint16).view(np.float16)
    options: dict[str, Any] = {"before": lambda v: np.where(np.signbit(v), v.dtype.type(-1), v.dtype.type(1))}
    packing = device_as_if(device, packs_halves=True)
    assert np.array_equal(gs.scan(x, device=packing, **options, **EVERYWHERE), [1, 0, 1, 0, 1, 0])
    plan = packing.plan(len(x), np.float16, **options, **EVERYWHERE)
    assert all("unpack2x16float" not in text for text in dict(plan.wgsl).values())
