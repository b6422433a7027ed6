"""Bundles of more fields than an adapter can bind give the same results as on any other adapter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.problem.packed_fields import STORAGE_LIMIT, binds_too_many, pack_arrays, unpack_results
from tests.harness.devices import device_as_if
from tests.harness.scans import make_problem
from tests.oracle import assert_same

# The storage buffers that WebGPU promises.
LEAST = 8


@pytest.fixture
def narrow(device: gs.Device) -> gs.Device:
    """Let the device bind only `LEAST` buffers."""
    return device_as_if(device, limits=dict(device.capabilities.limits) | {STORAGE_LIMIT: LEAST})


def fields(count: int, length: Any = 1001) -> tuple[Any, ...]:
    """Return fields of two widths, with floats among them; sums of float16 stay exact."""
    rng = np.random.default_rng(0)
    dtypes = ("uint32", "int16", "float32", "int32", "uint16", "float16")
    return tuple(rng.integers(0, 2, length).astype(dtypes[i % len(dtypes)]) for i in range(count))


def sums(left: Any, right: Any) -> Any:
    return tuple(a + b for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(("number", "count"), list(enumerate([4, 5, 9, 16])))
def test_many_fields(narrow: gs.Device, number: int, count: int) -> None:
    """Run all numbers of fields, each with one of the four kinds of options."""
    x = fields(count)
    assert binds_too_many(make_problem(x, sums), narrow.capabilities.limits[STORAGE_LIMIT])
    all_options: list[dict[str, Any]] = [
        {},
        {"segments": [0, 9, 1001]},
        {"reverse": True},
        {"exclusive": True, "initial": tuple(range(count))},
    ]
    for options in [all_options[number]]:
        wanted = gs.scan(x, sums, device="numpy", **options)
        out = tuple(np.zeros_like(field) for field in x)
        on_device = tuple(narrow.asarray(field) for field in x)
        for got in (
            gs.scan(x, sums, device=narrow, **options),
            gs.scan(x, sums, device=narrow, out=out, **options),
            gs.scan(on_device, sums, **options),
        ):
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, options)


def test_axes_reductions_and_chunks(narrow: gs.Device) -> None:
    x = fields(7, (40, 30))
    for axis in (0, 1):
        for result, field in zip(gs.scan(x, sums, axis=axis, device=narrow), x, strict=True):
            assert_same(result, np.cumsum(field, axis=axis, dtype=field.dtype))
        for result, field in zip(gs.reduce(x, sums, axis=axis, device=narrow), x, strict=True):
            assert_same(result, np.sum(field, axis=axis, dtype=field.dtype))
    row = fields(7)
    parts = list(gs.scan_chunks([tuple(f[:300] for f in row), tuple(f[300:] for f in row)], sums, device=narrow))
    for i, field in enumerate(row):
        assert_same(np.concatenate([part[i] for part in parts]), np.cumsum(field, dtype=field.dtype))


def test_matrices_flags_and_maps(narrow: gs.Device) -> None:
    """Pack fields with trailing axes among others, fused maps, and a constant result."""
    rng = np.random.default_rng(1)
    matrices = rng.integers(0, 4, (500, 2, 2), dtype=np.uint32)
    x = (matrices, *(rng.integers(0, 4, (500, 2, 2)).astype(np.uint32) for _ in range(4)))
    op = gs.operator(lambda l, r: (l[0] @ r[0], *(a + b for a, b in zip(l[1:], r[1:], strict=True))), element_axes=2)
    got = gs.scan(x, op, device=narrow)
    wanted = gs.scan(x, op, device="numpy")
    for result, field in zip(got, wanted, strict=True):
        assert_same(result, field)
    flags = tuple(rng.random(500) < 0.1 for _ in range(6))
    either = gs.scan(
        flags,
        lambda l, r: tuple(a | b for a, b in zip(l, r, strict=True)),
        after=lambda v: (*(~each for each in v), np.float32(2)),
        device=narrow,
    )
    for result, flag in zip(either, flags, strict=False):
        assert_same(result, ~np.logical_or.accumulate(flag))
    assert_same(either[-1], np.full(500, 2, np.float32))


# Numbers of every width, and complex ones: narrow ones between wide ones, so that words have gaps.
WIDTHS = ("int8", "uint64", "int16", "float16", "complex64", "bool", "int64", "float32", "uint8", "int32")


def of_all_widths(length: int) -> tuple[Any, ...]:
    """Return fields of all widths, with exact sums."""
    rng = np.random.default_rng(2)
    return tuple(rng.integers(0, 2, length).astype(dtype) for dtype in WIDTHS)


def either(left: Any, right: Any) -> Any:
    """Add numbers; combine bools by "or"."""
    return tuple(a | b if np.dtype(d) == bool else a + b for a, b, d in zip(left, right, WIDTHS, strict=True))


@pytest.mark.parametrize(
    "options",
    [
        {"keys": np.arange(301) // 50, "initial": (1, 2**63 + 5, -3, 0.5, 1 - 2j, False, -(2**40), 0.25, 200, -1)},
        {"reverse": True},
    ],
)
def test_fields_of_all_widths(narrow: gs.Device, options: dict[str, Any]) -> None:
    """Assert that two arrays carry all fields, with room for initial values and segments."""
    x = of_all_widths(301)
    wanted = gs.scan(x, either, device="numpy", **options)
    for got in (
        gs.scan(x, either, device=narrow, **options),
        gs.scan(tuple(narrow.asarray(field) for field in x), either, **options),
    ):
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field, options)


def test_groups_in_rows(narrow: gs.Device) -> None:
    """Assert that a GPU without subgroups sorts the labels of each row, and has a result for each group."""
    gpu = device_as_if(narrow, adapter_type="DiscreteGPU", subgroup_size=0)
    labels = np.random.default_rng(0).integers(0, 3, 50)
    for x in (fields(4, (3, 50)), fields(5, (3, 50, 2))):
        on_device = tuple(gpu.asarray(field) for field in x)
        wanted = gs.reduce(x, sums, axis=1, groups=labels, device="numpy")
        for result, field in zip(gs.reduce(on_device, sums, axis=1, groups=labels), wanted, strict=True):
            assert_same(result, field)


def test_a_plan_packs_nothing(narrow: gs.Device) -> None:
    with pytest.raises(gs.GpuscanError, match="one dtype"):
        narrow.plan((10,), "u4,u4,u4,u4,u4", sums)


def test_a_device_below_the_minimum_of_webgpu(device: gs.Device) -> None:
    tiny = device_as_if(device, limits=dict(device.capabilities.limits) | {STORAGE_LIMIT: 3})
    with pytest.raises(gs.GpuscanError, match=r"from 5 arrays to 5 .* binds 3 buffers at most.*larger limit"):
        gs.scan(fields(5), sums, device=tiny)


def test_packed_and_unpacked() -> None:
    x = of_all_widths(10)
    problem = make_problem(x, either)
    for result, field in zip(unpack_results(problem, pack_arrays(problem.source, x, 1)), x, strict=True):
        assert_same(result, field)
