"""Posts that never come: a test build of the shader leaves out the post of every 2nd, 7th, or 64th tile."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wgpu

import gpuscan as gs
from gpuscan.device.reports import Outcome, Run
from gpuscan.device.timeouts import FIRST_PAUSE, TIMEOUT_WINDOW, TIMEOUTS_TO_PAUSE, WATCH_SECONDS
from gpuscan.planning.heuristics import heuristics_for
from gpuscan.planning.tile_shapes import TileShape
from tests.harness.builds import shorten_waits, withhold_posts
from tests.harness.devices import auto_strategy, count_timeouts, device_as_if, distrust, pass_time
from tests.harness.scans import SMALL_ARRAY_BYTES, make_problem, plan_with, scan_with, traits_of
from tests.oracle import AFFINE, assert_same, half_of, safe_strategies, small_tiles, tile_in_turn, ufunc_scan, words

PERIODS = [2, 7, 64]
# In these strategies a tile can do nothing but wait.
WAITING = ("lookahead", "lookback")
# Seconds within which a bounded wait ends even on a busy machine. An unbounded one never ends.
SECONDS = 60.0


@pytest.mark.parametrize(("period", "folds"), [(2, False), (7, False), (64, False), (7, True)])
def test_fallback_does_the_late_tiles_work_itself(device: gs.Device, period: int, folds: bool) -> None:
    """Assert that the bits equal the bits of three_dispatch, although other workgroups reduce the late tiles."""
    x = np.random.default_rng(0).standard_normal(60_000).astype(np.float32)
    rows = words(np.random.default_rng(1), 2, (7, 3001))
    for tile in half_of(device, small_tiles(device), int(folds)):
        problems = (
            [make_problem(x)]
            if period != 7
            else [make_problem(x), make_problem(rows, AFFINE, axis=1, exclusive=True, reverse=True)]
        )
        for problem in problems:
            wanted = scan_with(device, problem, "three_dispatch", tile=tile)
            got = scan_with(device, problem, "fallback", tile=tile, withheld=period, one_workgroup_folds=folds)
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, tile)


@pytest.mark.parametrize(("period", "folds"), [(0, False), (2, False), (7, False), (0, True), (2, True)])
def test_helpers_let_go_of_their_own_tile(device: gs.Device, period: int, folds: bool) -> None:
    """Assert that results are right if a whole subgroup looks at a block, as on GPUs."""
    size = device.capabilities.subgroup_size
    tile = TileShape(size or 32, size, 2 if size else 1, 4)
    rng = np.random.default_rng(4)
    x = rng.standard_normal(20_000).astype(np.float32)
    rows = words(rng, 2, (7, 1501))
    backwards = make_problem(rows, AFFINE, axis=1, exclusive=True, reverse=True)
    segments = make_problem(x, segments=[0, 3, 3, 8_000, 8_001, 20_000])
    for problem in (make_problem(x), segments if folds or period == 7 else backwards):
        traits = traits_of(plan_with(device, problem, "fallback", tile=tile))
        assert traits["scan"].looks_at_blocks == (size > 0)
        wanted = scan_with(device, problem, "three_dispatch", tile=tile)
        got = scan_with(device, problem, "fallback", tile=tile, withheld=period, one_workgroup_folds=folds)
        for result, field in zip(got, wanted, strict=True):
            assert_same(result, field)


@pytest.mark.parametrize(("strategy", "folds"), [("lookahead", None), ("lookback", False), ("lookback", True)])
def test_a_strategy_that_only_waits_gives_up(own_device: gs.Device, strategy: str, folds: bool | None) -> None:
    """Assert that the error says what to do instead, and that the device stays usable."""
    device = own_device
    x = np.random.default_rng(2).integers(0, 2**32, 60_000, dtype=np.uint32)
    problem = make_problem(x)
    for rotation, period in enumerate(PERIODS, bool(folds)):
        tile = tile_in_turn(device, rotation)
        begin = time.perf_counter()
        with pytest.raises(gs.ProgressTimeoutError, match="three_dispatch"):
            scan_with(device, problem, strategy, tile=tile, withheld=period, one_workgroup_folds=folds)
        assert time.perf_counter() - begin < SECONDS
        for other in ("three_dispatch", "fallback"):
            (got,) = scan_with(device, problem, other, tile=tile)
            assert_same(got, ufunc_scan("add", x), other)


def test_software_adapters_try_a_named_strategy_again(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first runs time out, as they may on cores that other programs use, and the next one succeed."""
    device = own_device
    retries = heuristics_for(device.capabilities.adapter_type).timeout_retries  # none on a GPU
    # A GPU would do a call of a smaller array again, by another way.
    x = np.random.default_rng(5).integers(0, 2**32, SMALL_ARRAY_BYTES // 4 + 1, dtype=np.uint32)
    outcome, timeouts = Run.outcome, 0

    def fail_at_first(run: Run, report: Sequence[int]) -> Outcome:
        nonlocal timeouts
        timeouts -= 1
        return Outcome.TIMEOUT if timeouts >= 0 else outcome(run, report)

    monkeypatch.setattr(Run, "outcome", fail_at_first)
    for source in (x, device.asarray(x)):
        timeouts = retries
        assert_same(np.asarray(gs.scan(source, strategy="fallback", device=device)), ufunc_scan("add", x))
        assert "fallback" not in count_timeouts(device)
    timeouts = retries + 1
    with pytest.raises(gs.ProgressTimeoutError, match="'fallback' was asked for"):
        gs.scan(x, strategy="fallback", device=device)
    assert count_timeouts(device)["fallback"] == 1
    # A scan in place has overwritten its input. A GPU that is idle soon had no timeout, and is not asked for one.
    if device.capabilities.adapter_type == "CPU" and "lookback" in safe_strategies(device):
        array, timeouts = device.asarray(x), 1
        with pytest.raises(gs.ProgressTimeoutError, match="'lookback' was asked for"):
            gs.scan(array, strategy="lookback", out=array)


def test_a_strategy_is_given_up_for_a_while(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that it takes several timeouts, that each pause is twice as long, and that the strategy comes back."""
    shorten_waits(monkeypatch)
    device, x = device_as_if(own_device, **TRUSTED), np.arange(5000, dtype=np.uint32)
    chosen = auto_strategy(device)
    assert chosen in WAITING

    def time_out() -> None:
        """Call `"auto"`, which goes on by other strategies."""
        (got,) = scan_with(device, make_problem(x), "auto", tile=small_tiles(device)[0], withheld=2)
        assert_same(got, ufunc_scan("add", x))

    for seconds in (FIRST_PAUSE, 2 * FIRST_PAUSE):
        for times in range(1, TIMEOUTS_TO_PAUSE):
            time_out()
            assert device.capabilities.distrusted == ()
            assert count_timeouts(device)[chosen] == times
        time_out()
        assert chosen in device.capabilities.distrusted
        assert auto_strategy(device) != chosen
        pass_time(device, seconds - 5)
        assert auto_strategy(device) != chosen
        pass_time(device, 6)
        assert auto_strategy(device) == chosen


def test_timeouts_far_apart_are_no_verdict(own_device: gs.Device) -> None:
    device, x = own_device, np.arange(5000, dtype=np.uint32)
    for _ in range(TIMEOUTS_TO_PAUSE + 1):
        with pytest.raises(gs.ProgressTimeoutError):
            scan_with(device, make_problem(x), "lookback", tile=small_tiles(device)[0], withheld=2)
        pass_time(device, TIMEOUT_WINDOW / (TIMEOUTS_TO_PAUSE - 1) + 1)
    assert device.capabilities.distrusted == ()


def test_timeouts_are_known_to_one_process_alone(own_device: gs.Device, adapter: wgpu.GPUAdapter) -> None:
    """Assert that neither the cache nor another device of the adapter learns that a strategy was given up."""
    folder = Path(os.environ["XDG_CACHE_HOME"])
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    assert before
    distrust(own_device, "lookback")
    assert own_device.capabilities.distrusted == ("lookback",)
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before
    assert gs.Device(adapter).capabilities.distrusted == ()


def test_device_arrays_after_a_timeout(own_device: gs.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that only the first timeout, for which no call waits, is an error, and that calls are trusted again."""
    shorten_waits(monkeypatch)
    withhold_posts(monkeypatch, tile=small_tiles(own_device)[0])
    device = device_as_if(own_device, **TRUSTED)
    x = np.arange(5000, dtype=np.uint32)
    a, out = device.asarray(x), device.empty(x.shape, x.dtype)
    gs.scan(a, strategy="fallback").numpy()  # so that the size of subgroups is known
    for _ in range(2):
        for _ in range(2):
            gs.scan(a, out=out)
        with pytest.raises(gs.ProgressTimeoutError, match="Compute them again"):
            device.synchronize()
        for _ in range(2 * TIMEOUTS_TO_PAUSE):
            assert_same(gs.scan(a, out=out).numpy(), ufunc_scan("add", x))
            device.synchronize()
        assert device.capabilities.distrusted
        pass_time(device, max(4 * FIRST_PAUSE, WATCH_SECONDS))


def test_auto_goes_on_by_another_path(own_device: gs.Device) -> None:
    device = own_device
    x = np.random.default_rng(3).integers(0, 2**32, 60_000, dtype=np.uint32)
    chosen = auto_strategy(device)
    (got,) = scan_with(device, make_problem(x), "auto", tile=small_tiles(device)[0], withheld=2)
    assert_same(got, ufunc_scan("add", x))
    assert device.capabilities.distrusted == ()
    assert auto_strategy(device) == chosen  # it is still trusted
    if chosen in WAITING:
        assert count_timeouts(device)
        assert set(count_timeouts(device)) <= set(WAITING)
    else:
        assert chosen in safe_strategies(device)


# Capabilities of the device that ``"auto"`` trusts most. Few polls a second keep its waits short.
TRUSTED: dict[str, Any] = {
    "adapter_type": "DiscreteGPU",
    "vendor": "NVIDIA",
    "progress_earlier": True,
    "progress_later": True,
    "starts_in_order": True,
    "spins_per_second": 2e4,
}
SHAPES = {"a few tiles": (2000,), "a few hundred": (40_000,), "thousands": (400_000,), "rows of several": (64, 30_000)}


@pytest.mark.parametrize("shape", SHAPES)
def test_auto_succeeds_whatever_it_starts_with(
    own_device: gs.Device, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assert that each attempt rules one strategy out, also if it is not the adapter's first choice."""
    shorten_waits(monkeypatch)
    device = device_as_if(own_device, **TRUSTED)
    x = np.random.default_rng(5).integers(0, 2**32, SHAPES[shape], dtype=np.uint32)
    tile = None if x.ndim == 2 else small_tiles(device)[0]
    (got,) = scan_with(device, make_problem(x, axis=x.ndim - 1), "auto", tile=tile, withheld=2)
    assert_same(got, ufunc_scan("add", x, axis=x.ndim - 1))
    assert count_timeouts(device)["lookback"] == 1
    assert device.capabilities.distrusted == ()
