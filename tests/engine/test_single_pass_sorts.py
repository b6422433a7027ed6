"""Sorts in a single pass for each digit: their stages, hostile schedulers, and posts that never come."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.elements import scalar_of
from gpuscan.planning import heuristics, key_heuristics
from gpuscan.planning.kernel_parts import STATE_HEADER_WORDS, InjectedFaults
from gpuscan.planning.sort_plan import DigitKernel, TileSort, plan_sort
from gpuscan.planning.strategies import choose_sort_strategy, unsafe_reason
from gpuscan.reference.sort import orders
from tests.api.test_sort import assert_sorted, keys_of, order_of
from tests.engine.test_sorting import RADIX_BITS, tile_call, tile_values, ways
from tests.harness.builds import shorten_waits
from tests.harness.devices import count_timeouts, device_as_if
from tests.harness.sorts import run_stage, sort_in_tiles
from tests.twins import sorts as twins

RADIX = 1 << RADIX_BITS
WORD = scalar_of(np.dtype(np.uint32))
TILE = 256
STRATEGIES = ("lookback", "fallback")
SCHEDULERS = ("random", "serial", "bursts")
# Seconds within which a bounded wait ends even on a busy machine. An unbounded one never ends.
SECONDS = 60.0
# Capabilities of an adapter on which waits may time out, so that each sort reads its own report at once.
UNTRUSTED: dict[str, Any] = {"adapter_type": "CPU", "vendor": "Mesa", "progress_earlier": True}
# Capabilities of a GPU on which waits are known to end. Few polls a second keep them short.
TRUSTED: dict[str, Any] = {
    "adapter_type": "DiscreteGPU",
    "vendor": "NVIDIA",
    "progress_earlier": True,
    "spins_per_second": 2e4,
}


def kernel_on(device: gs.Device, by_subgroups: bool) -> DigitKernel:
    """Return the kernel that a sort has on the device under fallback, which is safe everywhere."""
    plan = plan_sort(
        WORD, 1, 99 * TILE, device.capabilities, strategy="fallback", subgroups=by_subgroups, tile_size=TILE
    )
    assert isinstance(plan, TileSort)
    assert plan.kernel is not None
    return plan.kernel


def assert_sorts(device: gs.Device, keys: np.ndarray[Any, Any], **options: Any) -> None:
    """Assert that a sort by small tiles leaves keys and indices in NumPy's stable order."""
    found, places = sort_in_tiles(device, keys, False, tile_size=TILE, **options)
    assert_sorted(found, keys)
    np.testing.assert_array_equal(places, order_of(keys))


def safe_strategies(device: gs.Device) -> list[str]:
    """Return the strategies of single passes that the probe found safe."""
    return [strategy for strategy in STRATEGIES if unsafe_reason(strategy, device.capabilities) is None]


def prefer(monkeypatch: pytest.MonkeyPatch, *strategies: str) -> None:
    """Let "auto" try these strategies of sorts in this order."""
    for table in ("SORTS_GPU", "SORTS_CPU"):
        changed = replace(getattr(key_heuristics, table), strategy_order=strategies)
        monkeypatch.setattr(key_heuristics, table, changed)


# ----- Stages


def test_histograms(device: gs.Device) -> None:
    """Assert that the counts of all digits, the differences and the places of digits are the twins'."""
    for dtype, digits in ((np.float32, 4), (np.int64, 8)):
        keys = keys_of(dtype, (3, 700))
        order = orders(keys)
        values: dict[str, Any] = {"digits": digits, "radix_bits": RADIX_BITS, "workgroup_size": 32}
        call = tile_call(3, 700, 100, 0)
        scalar: dict[str, Any] = {"scalar": scalar_of(keys.dtype), "unit": 4, "descending": False}
        counts = twins.histogram(order, digits, RADIX_BITS)
        nothing = np.zeros(4 + counts.size, np.uint32)
        (found,) = run_stage(
            device,
            "histogram",
            call,
            [keys.view(np.uint32)],
            [nothing],
            3 * 3,
            tiles_per_workgroup=3,
            copies=2,
            **scalar,
            **values,
        )
        bits, falls = twins.differences(order)
        assert found[:3].tolist() == [bits & 0xFFFFFFFF, bits >> 32, int(falls)]
        np.testing.assert_array_equal(found[4:], counts.reshape(-1))
        (plan,) = run_stage(device, "scan_histograms", call, [found], [6 * digits + counts.size], 3 * digits, **values)
        np.testing.assert_array_equal(plan[6 * digits :], twins.scan_histograms(counts, 700).reshape(-1))


def test_one_pass(device: gs.Device) -> None:
    """Assert that a pass leaves the elements where the twins put them, and posts the twins' counts and sums."""
    rows, length, digit, epoch = 2, 2600, 3, 7
    keys = keys_of(np.float32, (rows, length))
    order = orders(keys)
    counts = twins.count_digits(order, digit, RADIX_BITS, TILE)
    bases = twins.scan_histograms(twins.histogram(order, 4, RADIX_BITS), length)
    offsets = bases[:, digit, :, np.newaxis] + twins.look_back(counts)
    expected = twins.scatter_digits(order, digit, RADIX_BITS, offsets, TILE)
    plan = np.zeros(24 + bases.size, np.uint32)
    plan[6 * digit : 6 * digit + 6] = (1, 0, 1, 1, 1, 0xFF)
    plan[24:] = bases.reshape(-1)
    call, tiles = tile_call(rows, length, TILE, digit), counts.shape[-1]
    call[6:] = epoch - digit, 1  # the tag of posts is the sum of epoch and step
    for by_subgroups in ways(device):
        kernel = kernel_on(device, by_subgroups)
        values = tile_values(device, keys, by_subgroups)
        blocks = tiles // kernel.block
        state = np.zeros(STATE_HEADER_WORDS + (rows * (tiles + 2 * blocks) + 2) * RADIX, np.uint32)
        moved, _, state, places, _ = run_stage(
            device,
            "scatter_digits",
            call,
            [plan, keys.view(np.uint32)],
            [rows * length, rows * length, state, rows * length, rows * length],
            call[4],
            order=[1, 2, "out", "out", "out", "out", "out"],
            with_keys=True,
            payload="index",
            kernel=kernel,
            keeps_destinations=False,
            items=-(-TILE // values["workgroup_size"]),
            batches=2,
            **values,
        )
        assert state[:2].tolist() == [0, 0]  # the ticket is at zero again, and nothing timed out
        np.testing.assert_array_equal(moved[expected], keys.view(np.uint32))
        np.testing.assert_array_equal(places[expected], np.broadcast_to(np.arange(length), (rows, length)))
        posts = state[STATE_HEADER_WORDS:].reshape(-1, RADIX)
        assert (posts[: rows * (tiles + 2 * blocks)] >> 16 == epoch).all()
        values_posted = posts & 0xFFFF
        posted = values_posted[: rows * tiles].reshape(rows, tiles, RADIX)
        np.testing.assert_array_equal(posted, counts.transpose(0, 2, 1))
        sums = values_posted[rows * tiles :][: 2 * rows * blocks].reshape(rows, blocks, 2, RADIX)
        ends = np.cumsum(counts, axis=-1)[..., kernel.block - 1 :: kernel.block]
        np.testing.assert_array_equal(sums[:, :, 0] + (sums[:, :, 1] << 16), ends.transpose(0, 2, 1))


# ----- Whole sorts


def test_sizes(device: gs.Device) -> None:
    """Assert that sorts are right around the edges of subgroups, tiles and blocks, for one row and for several."""
    for strategy in safe_strategies(device):
        # The other ways are taken under hostile schedulers.
        by_subgroups = ways(device)[-1 if strategy == "lookback" else 0]
        lanes = min(device.capabilities.subgroup_sizes, default=1)
        for shape in ((lanes + 1,), (TILE - 1,), (TILE,), (TILE + 1,), (8 * TILE + lanes - 1,), (3, 4500)):
            keys = keys_of(np.float32, shape, seed=shape[-1])
            assert_sorts(device, keys, strategy=strategy, subgroups=by_subgroups)


def test_digits_that_do_not_differ(device: gs.Device) -> None:
    """Assert that sorts are right where digits are skipped, and where keys are in order already."""
    rng = np.random.default_rng(0)
    for keys in (rng.integers(0, 5, 3000) << 8, np.full(3000, 7), np.arange(3000), rng.integers(0, 2, 3000)):
        assert_sorts(device, keys.astype(np.float32), strategy="fallback")


# ----- Posts that never come, and hostile schedulers


@pytest.mark.parametrize("period", [2, 7, 64])
def test_fallback_counts_late_tiles_itself(device: gs.Device, period: int) -> None:
    """Assert that the result is right although the posts of every 2nd, 7th or 64th tile never come."""
    keys, faults = keys_of(np.float32, (2, 36 * TILE + 3)), InjectedFaults(withheld_period=period)
    assert_sorts(device, keys, strategy="fallback", subgroups=False, test_build=faults)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_hostile_schedulers(device: gs.Device, scheduler: str) -> None:
    """Assert that sorts are right in bounded time where workgroups idle, run one at a time, or start in bursts."""
    keys = keys_of(np.float32, (2, 12 * TILE + 5))
    for strategy in safe_strategies(device):
        # Lanes that idle may diverge, which matters where subgroups vote. Posts are withheld as well under fallback.
        by_subgroups = ways(device)[-1 if strategy == "fallback" else 0]
        faults = InjectedFaults(3 if strategy == "fallback" else 0, scheduler)
        begin = time.perf_counter()
        assert_sorts(device, keys, strategy=strategy, subgroups=by_subgroups, test_build=faults)
        assert time.perf_counter() - begin < SECONDS


@pytest.mark.parametrize("asked", ["by name", "by auto", "where waits are trusted"])
def test_waits_that_time_out(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Assert that waits end, and that the outcome is that of scans."""
    device = device_as_if(own_device, **(TRUSTED if asked == "where waits are trusted" else UNTRUSTED))
    keys = keys_of(np.float32, (20 * TILE,))
    options: dict[str, Any] = {"subgroups": False, "test_build": InjectedFaults(withheld_period=2)}
    begin = time.perf_counter()
    if asked == "by name":
        with pytest.raises(gs.ProgressTimeoutError, match="'lookback' was asked for"):
            assert_sorts(device, keys, strategy="lookback", **options)
        assert count_timeouts(device) == {"lookback": 1}
        monkeypatch.setenv("GPUSCAN_STRATEGY", "lookahead")  # sorts take look-back in its place
        with pytest.raises(gs.ProgressTimeoutError, match="'lookback' was asked for"):
            assert_sorts(device, keys, **options)
    elif asked == "by auto":
        prefer(monkeypatch, "lookback", "fallback", "three_dispatch")
        for times in (1, 2, 3):
            assert choose_sort_strategy(device.capabilities) == "lookback"
            assert_sorts(device, keys, **options)
            assert count_timeouts(device) == ({"lookback": times} if times < 3 else {})
        assert device.capabilities.distrusted == ("lookback",)
        assert choose_sort_strategy(device.capabilities) == "fallback"
    else:
        shorten_waits(monkeypatch)
        # The scans inside a sort would time out as well where the waits are that short and the machine is busy.
        monkeypatch.setattr(heuristics, "GPU", replace(heuristics.GPU, strategy_order=("three_dispatch",)))
        prefer(monkeypatch, "lookback", "three_dispatch")
        sort_in_tiles(device, keys, False, tile_size=TILE, **options)
        with pytest.raises(gs.ProgressTimeoutError, match="a sort by strategy 'lookback'"):
            device.synchronize()
        assert count_timeouts(device) == {"lookback": 1}
        assert_sorts(device, keys, **options)  # waits for its report now, and goes on by three dispatches
        assert count_timeouts(device) == {"lookback": 2}
    assert time.perf_counter() - begin < SECONDS


# ----- Strategies


def test_choice(device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that the choice follows the order, and what the probe found."""
    capabilities = replace(device.capabilities, vendor="NVIDIA", adapter_type="DiscreteGPU", distrusted=())
    able = replace(capabilities, progress_earlier=True)
    assert choose_sort_strategy(able) == choose_sort_strategy(device.capabilities) == "three_dispatch"
    prefer(monkeypatch, "lookback", "fallback", "three_dispatch")
    assert choose_sort_strategy(able) == "lookback"
    assert choose_sort_strategy(replace(able, distrusted=("lookback",))) == "fallback"
    assert choose_sort_strategy(replace(able, vendor="Qualcomm")) == "fallback"
    assert choose_sort_strategy(replace(able, progress_earlier=False)) == "fallback"


def test_plans(device: gs.Device) -> None:
    """Assert that single passes fit the device, and that other sorts take three dispatches."""
    most = device.capabilities.limits["max-compute-workgroup-storage-size"]
    small = replace(
        device.capabilities, limits=dict(device.capabilities.limits) | {"max-storage-buffer-binding-size": 1 << 24}
    )
    for name in ("bool", "float32", "uint64"):
        scalar = scalar_of(np.dtype(name))
        for strategy in STRATEGIES:
            plan = plan_sort(scalar, 3, 10**7, device.capabilities, strategy=strategy)
            assert isinstance(plan, TileSort)
            assert plan.strategy == strategy
            assert plan.tile_size < 1 << 16
            assert (
                plan.tile_size // plan.workgroup * plan.tiles_per_workgroup < 65_535
            )  # iterations, after which llvmpipe ends loops
            assert 4 * plan.copies * (plan.digits << plan.radix_bits) <= max(most // 2, 8192)
            few = plan_sort(scalar, 1000, 3 * plan.tile_size, device.capabilities, strategy=strategy)
            assert isinstance(few, TileSort)
            assert few.strategy == "three_dispatch"
            large = plan_sort(scalar, 3, 10**7, small, strategy=strategy, tile_size=256)
            assert isinstance(large, TileSort)
            assert large.strategy == "three_dispatch"
