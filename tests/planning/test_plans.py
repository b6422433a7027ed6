"""Plans: dispatches that cover the array, bounded waits, and the same plan for the same question."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.errors import GpuscanError
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.heuristics import GPU
from gpuscan.planning.plan import LENGTH_LIMIT, grid_of, plan_scan
from gpuscan.planning.spec import ScanSpec
from gpuscan.planning.tile_shapes import TileShape
from tests.fakes import gpu, software, spec
from tests.planning.plan_inputs import ADAPTERS, SPECS

# ----- Dispatches


@given(st.integers(1, 2**31), st.sampled_from([65535, 1024, 7]))
def test_a_grid_covers_the_tiles(tiles: int, limit: int) -> None:
    tiles = min(tiles, limit * limit)
    x, y, z = grid_of(tiles, limit)
    assert x * y * z >= tiles
    assert max(x, y, z) <= limit
    assert x * y - tiles < y, "and hardly more"


def test_a_grid_that_no_device_dispatches() -> None:
    with pytest.raises(GpuscanError, match="65 workgroups were asked for; the device dispatches 8 by 8"):
        grid_of(65, 8)


@pytest.mark.parametrize(
    ("strategy", "stages"),
    [("three_dispatch", ["reduce", "scan_totals", "scan"]), ("lookback", ["scan"]), ("fallback", ["scan"])],
)
def test_stages_of_each_strategy(strategy: str, stages: list[str]) -> None:
    plan = plan_scan(spec(row_length=10**6), gpu(), strategy, "because")
    assert [stage.name for stage in plan.stages] == stages
    assert (plan.strategy, plan.reason, plan.length) == (strategy, "because", 10**6)
    assert plan.tiles * plan.tile.tile_size >= 10**6 > (plan.tiles - 1) * plan.tile.tile_size
    assert plan.stages[-1].grid == (plan.tiles, 1, 1)
    assert {stage.kernel.tile for stage in plan.stages} == {plan.tile}, "one shape, one order of combination"


@given(SPECS, ADAPTERS, st.sampled_from(["three_dispatch", "lookback", "fallback"]))
def test_a_plan_is_a_pure_function(asked: ScanSpec, adapter: Capabilities, strategy: str) -> None:
    plan, again = (plan_scan(asked, adapter, strategy, "") for _ in range(2))
    assert plan == again
    assert [hash(stage.kernel) for stage in plan.stages] == [hash(stage.kernel) for stage in again.stages]
    alone = plan.stages[-1].kernel.strategy == "alone"
    items = 1 if alone else 2 * plan.tiles if plan.posts else plan.tiles
    assert plan.state_bytes >= 4 * items * plan.stages[-1].kernel.item_words


def test_the_tile_shape_is_the_same_under_every_strategy() -> None:
    for length in (100, 10**5, 10**8):
        plans = [
            plan_scan(spec(row_length=length), gpu(), strategy, "")
            for strategy in ("three_dispatch", "lookback", "fallback")
        ]
        assert len({plan.tile for plan in plans}) == 1


def test_an_empty_array_still_has_a_tile() -> None:
    assert plan_scan(spec(row_length=0), gpu(), "lookback", "").tiles == 1


def test_arrays_past_32_bit_indices_are_refused() -> None:
    with pytest.raises(GpuscanError, match=rf"{LENGTH_LIMIT} elements.*scan_chunks"):
        plan_scan(spec(row_length=LENGTH_LIMIT), gpu(), "lookback", "")
    plan_scan(spec(row_length=LENGTH_LIMIT - 1), gpu(), "lookback", "")


def test_waits_are_bounded() -> None:
    for strategy in ("lookback", "fallback"):
        for adapter in (
            gpu(),
            gpu(spins_per_second=1.0),
            gpu(spins_per_second=1e12),
            software(),
        ):
            plan = plan_scan(spec(), adapter, strategy, "")
            assert plan.spin_rounds >= 1
            assert plan.stages[0].kernel.wait_policy.spins_per_round >= 1
            polls = plan.spin_rounds * plan.stages[0].kernel.wait_policy.spins_per_round
            if adapter.adapter_type == "CPU":
                assert polls < 65_535, "llvmpipe leaves loops there"
            else:
                assert polls <= max(GPU.min_lookback_spins, adapter.spins_per_second) * 2


def test_no_wait_of_a_gpu_times_out_at_once() -> None:
    trusted = gpu(progress_later=True, spins_per_second=1.0)
    for strategy in ("lookahead", "lookback"):
        seconds = plan_scan(spec(row_length=10**6), trusted, strategy, "").min_timeout_seconds
        assert 1e-4 < seconds < trusted.spins_per_second
        faster = gpu(progress_later=True, spins_per_second=1e9)
        assert plan_scan(spec(row_length=10**6), faster, strategy, "").min_timeout_seconds > seconds
        assert plan_scan(spec(row_length=10**6), software(), strategy, "").min_timeout_seconds == 0
    for strategy in ("fallback", "three_dispatch"):
        assert plan_scan(spec(row_length=10**6), trusted, strategy, "").min_timeout_seconds == 0


@pytest.mark.parametrize("strategy", ["lookahead", "lookback", "fallback", "three_dispatch"])
def test_one_tile_waits_for_none(strategy: str) -> None:
    plan = plan_scan(spec(row_length=100), gpu(progress_later=True), strategy, "")
    assert (plan.strategy, plan.tiles, plan.posts) == (strategy, 1, False)
    assert [(stage.name, stage.grid) for stage in plan.stages] == [("scan", (1, 1, 1))]
    assert "one tile" in plan.reason
    two = plan_scan(spec(row_length=plan.tile.tile_size + 1), gpu(progress_later=True), strategy, "")
    assert two.posts == (strategy != "three_dispatch")


# ----- Reading backwards


def test_vectors_only_where_the_last_element_ends_one() -> None:
    def width(*dtypes: str, length: int, reverse: bool = True) -> int:
        asked = spec(*dtypes, row_length=length, reverse=reverse)
        return plan_scan(asked, gpu(), "lookback", "").stages[-1].kernel.access.width

    assert [width("uint32", length=length) for length in (8, 10, 11)] == [4, 2, 1]
    assert width("uint32", length=11, reverse=False) == 4
    assert width("int8", length=17) == 1
    assert width("int8", "uint64", length=16) == 4


# ----- Kernels


@pytest.mark.parametrize("size", [0, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("strategy", ["three_dispatch", "lookback", "fallback"])
def test_templates_render_for_every_subgroup_size(size: int, strategy: str) -> None:
    """Render every template for all sizes: no variable is missing, and no line of Jinja is left."""
    adapter = gpu(subgroup_size=size, subgroup_sizes=(size,) if size else ())
    plan = plan_scan(spec("int16", "float32", rows=3, row_length=70_000, exclusive=True), adapter, strategy, "")
    for stage in plan.stages:
        text = render_kernel(stage.kernel)
        assert "{%" not in text
        assert "{{" not in text
        assert "fn main(" in text
        assert ("@builtin(subgroup_size)" in text) == (size > 0 and stage.name != "scan_totals")
        assert "enable subgroups" not in text
    kernel = plan.stages[-1].kernel
    dawn = replace(kernel, target=replace(kernel.target, enables_subgroups=True))
    assert ("enable subgroups;" in render_kernel(dawn)) == (size > 0)


def test_bindings_are_numbered_once() -> None:
    asked = spec("int16", "float32", rows=3, row_length=70_001, initial=True, carried=True)
    for strategy in ("three_dispatch", "lookback", "fallback"):
        for stage in plan_scan(asked, gpu(), strategy, "").stages:
            numbers = [array.binding for array in stage.kernel.bindings]
            assert len(set(numbers)) == len(numbers)
            assert 0 not in numbers, "the parameters' own"
            text = render_kernel(stage.kernel)
            assert sorted(numbers) == [n for n in range(max(numbers) + 1) if f"@binding({n}) var<storage" in text]


def test_block_is_no_wider_than_the_workgroup() -> None:
    assert [TileShape(size, 0, 1, 1).block for size in (8, 16, 32, 256)] == [8, 16, 32, 32]
