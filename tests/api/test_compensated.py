"""Compensated sums of float32 carry the rounding errors along: each result is the exact sum, rounded once."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.problem.compensated_sum import add_pairs, as_pairs, make_pair_map, two_sum
from tests.harness.devices import count_plans_and_pipelines
from tests.harness.scans import make_problem, scan_with
from tests.oracle import Array, assert_same, half_of, one_of, small_tiles, strategies_on


def exact(x: Array, **options: Any) -> Array:
    """Return the sums in extended precision."""
    return np.cumsum(np.asarray(x, np.longdouble), **options)


TERMS = {
    "whole numbers": lambda rng, n: rng.integers(-(2**23), 2**23, n),
    "whole numbers of one sign": lambda rng, n: rng.integers(2**22, 2**23, n),
    "uniform": lambda rng, n: rng.random(n),
    "normal": lambda rng, n: rng.standard_normal(n),
    "of all sizes": lambda rng, n: rng.standard_normal(n) * 2.0 ** rng.integers(-30, 30, n),
    "one large term": lambda rng, n: np.r_[1e8, rng.random(n - 1)],
    "one large term that goes again": lambda rng, n: np.r_[1e8, rng.random(n - 2), -1e8],
}


@pytest.fixture(params=[*TERMS.values()], ids=[*TERMS])
def x(request: pytest.FixtureRequest) -> Array:
    return np.asarray(request.param(np.random.default_rng(0), 20_000)).astype(np.float32)


def test_each_sum_is_the_exact_one_rounded_once(device: gs.Device, x: Array) -> None:
    """Assert that every strategy, with small tiles and the planner's, and NumPy round the exact sum once."""
    wanted = exact(x)
    rounded = wanted.astype(np.float32)
    unit = np.spacing(np.abs(rounded))
    results = [gs.scan(x, compensated=True, device=d) for d in (device, "numpy")]
    arguments = as_pairs(x, "add", {"initial": None, "dtype": None, "before": None, "after": None})
    for rotation, tile in enumerate(small_tiles(device)):
        of_tile = [
            scan_with(device, make_problem(arguments[0], arguments[1], **arguments[2]), strategy, tile=tile)[0]
            for strategy in half_of(device, strategies_on(device), rotation)
        ]
        for result in of_tile[1:]:
            assert_same(result, of_tile[0], tile)
        results.append(of_tile[0])
    # Half a unit, and what 2^-46 of the largest sum on the way may add.
    slack = 2.0**-42 * np.max(np.abs(wanted))
    for result in results:
        assert result.dtype == np.float32
        assert np.all(np.abs(result - wanted) <= 0.5 * unit + slack)
    plain = gs.scan(x, device=device)
    assert np.max(np.abs(plain - wanted)) > np.max(np.abs(rounded - wanted)) + slack  # else there was nothing to show


def test_pairs_are_a_thousand_times_closer(device: gs.Device, x: Array) -> None:
    """Assert that pairs are a thousand times closer than plain sums, also if terms cancel."""
    wanted = exact(x)
    high, low = gs.scan(x, add_pairs, before=make_pair_map(None), device=device)
    error = np.max(np.abs(high.astype(np.longdouble) + low - wanted))
    plain = np.max(np.abs(gs.scan(x, device=device) - wanted))
    assert plain > 0
    assert error * 1000 <= plain
    assert np.max(np.abs(gs.scan(x, device=device) - wanted)) <= np.max(np.abs(np.cumsum(x) - wanted))


def test_every_strategy_gives_the_same_bits(device: gs.Device) -> None:
    x = (np.random.default_rng(1).standard_normal(70_000) * 1e3).astype(np.float32)
    first, *others = (gs.scan(x, compensated=True, strategy=s, device=device) for s in strategies_on(device))
    for other in others:
        assert_same(other, first)


def test_options(device: gs.Device) -> None:
    """Assert exact sums of whole numbers: exclusive, reverse, initial, an inner axis and segments."""
    rng = np.random.default_rng(2)
    x = rng.integers(2**22, 2**23, (3, 100, 5)).astype(np.float32)
    for axis in (0, 1, 2, -1):
        got = gs.scan(x, axis=axis, compensated=True, device=device)
        assert_same(got, exact(x, axis=axis).astype(np.float32))
    row = x.reshape(-1)
    forward, backward = exact(row), exact(row[::-1])[::-1]
    options: list[tuple[dict[str, Any], Array]] = [
        ({"exclusive": True}, forward - row),
        ({"reverse": True}, backward),
        ({"initial": 2**26 + 8}, forward + 2**26 + 8),
        ({"initial": 3, "exclusive": True, "reverse": True}, backward - row + 3),
        ({"before": lambda v: v * 2, "after": lambda v: -v}, -2 * forward),
    ]
    for asked, wanted in chain(*one_of(device, [options[::2], options[1::2]], 0)):
        assert_same(gs.scan(row, compensated=True, device=device, **asked), wanted.astype(np.float32), asked)
    cuts = [0, 1, 1, 400, 1401, len(row)]
    wanted = np.concatenate([exact(row[a:b]) for a, b in pairwise(cuts)]).astype(np.float32)
    keys = np.repeat(np.arange(5), np.diff(cuts))
    assert_same(gs.scan(row, segments=cuts, compensated=True, device=device), wanted)
    assert_same(gs.scan(row, keys=keys, compensated=True, device=device), wanted)
    assert_same(gs.scan(row, segments=cuts, compensated=True, device="numpy"), wanted)


def test_every_way_in(device: gs.Device) -> None:
    """Scan other dtypes by dtype=, with out, arrays on the device, chunks and plans."""
    x = np.random.default_rng(3).integers(2**22, 2**23, 9000)
    wanted = exact(x).astype(np.float32)
    for dtype in ("int32", "float64", "float32"):
        assert_same(gs.scan(x.astype(dtype), dtype=np.float32, compensated=True, device=device), wanted)
    narrow = np.full(100_000, 60_001, np.uint16)  # converted on the GPU
    sums = exact(narrow).astype(np.float32)
    assert_same(gs.scan(narrow, dtype=np.float32, compensated=True, device=device), sums)
    x = x.astype(np.float32)
    out = np.empty_like(x)
    assert gs.scan(x, compensated=True, out=out, device=device) is out
    assert_same(out, wanted)
    held = device.asarray(x)
    assert_same(gs.scan(held, compensated=True).numpy(), wanted)
    assert_same(gs.scan(held, compensated=True, out=held).numpy(), wanted)
    plan = device.plan(x.shape, x.dtype, compensated=True)
    assert_same(plan(x), wanted)
    assert_same(plan(device.asarray(x)).numpy(), wanted)
    for where in (device, "numpy"):
        chunks = iter(np.split(x, [1, 10, 10, 4000]))
        parts = list(gs.scan_chunks(chunks, compensated=True, device=where))
        assert [len(part) for part in parts] == [1, 9, 0, 3990, 5000]
        assert_same(np.concatenate(parts), wanted)
    assert list(gs.scan_chunks([], compensated=True, device=device)) == []
    parts = list(gs.scan_chunks([narrow[:7], narrow[7:]], dtype=np.float32, compensated=True, device=device))
    assert_same(np.concatenate(parts), sums)


def test_infinity_and_nan_are_those_of_plain_sums(device: gs.Device) -> None:
    for special in ([np.inf], [-np.inf], [np.nan], [np.inf, -np.inf], [3e38, 3e38, 3e38], [np.inf, np.nan]):
        x = np.ones(300, np.float32)
        x[100 : 100 + len(special)] = special
        for where in (device, "numpy"):
            got = gs.scan(x, compensated=True, device=where)
            np.testing.assert_array_equal(got, np.cumsum(x))
    assert_same(gs.scan(np.zeros(0, np.float32), compensated=True, device=device), np.zeros(0, np.float32))


@pytest.mark.parametrize("where", ["device", "numpy"])
def test_only_sums_of_float32(device: gs.Device, where: str) -> None:
    x = np.ones(10, np.float32)
    chosen: Any = device if where == "device" else "numpy"
    cases: list[tuple[Any, Any, dict[str, Any]]] = [
        (x, "maximum", {}),
        (x, np.multiply, {}),
        (x, lambda l, r: l + r, {}),
        (x.astype(np.int32), "add", {}),
        (x.astype(np.float16), "add", {}),
        (x.astype(np.complex64), "add", {}),
        (x, "add", {"dtype": np.int32}),
        (x, "add", {"before": lambda v: v.astype(np.int32)}),
        (x, "add", {"before": lambda v: (v, v)}),
        ((x, x), "add", {}),
        ({"a": x}, "add", {"dtype": np.float32}),
    ]
    for given, op, options in cases:
        with pytest.raises(ValueError, match=r"compensated=True was passed for .*float32"):
            gs.scan(given, op, compensated=True, device=chosen, **options)
    with pytest.raises(ValueError, match="initial"):
        gs.scan(x, compensated=True, initial=[1, 2, 3], device=chosen)


def test_kernels_are_found_again(device: gs.Device) -> None:
    """Assert that maps are the same functions from call to call, so that nothing compiles twice."""
    x = np.ones(5000, np.float32)
    gs.scan(x, compensated=True, device=device)
    kept = count_plans_and_pipelines(device)
    for _ in range(3):
        gs.scan(x, compensated=True, device=device)
    assert count_plans_and_pipelines(device) == kept


def test_two_sum_is_exact() -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(1000) * 2.0 ** rng.integers(-20, 20, 1000) for _ in range(2))
    a, b = a.astype(np.float32), b.astype(np.float32)
    total, rest = two_sum(a, b)
    assert_same(total, a + b)
    np.testing.assert_array_equal(total.astype(np.float64) + rest, a.astype(np.float64) + b)
    assert np.any(rest != 0)
