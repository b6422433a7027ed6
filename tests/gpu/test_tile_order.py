"""Who has which tile: by ticket or, where workgroups start in the order of their numbers, by number. Same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpuscan.api.device import Device
from gpuscan.engine import host_arrays as runner
from gpuscan.planning import strategies
from gpuscan.planning.plan import plan_scan
from gpuscan.problem.problem import Problem
from tests.oracle import AFFINE, assert_same, posed, small_tiles, strategies_on, tile_in_turn, words
from tests.strategies import numbers

KINDS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "floats": lambda rng: posed(rng.standard_normal(50_001).astype(np.float32)),
    "two words": lambda rng: posed(words(rng, 2, (30_007,)), AFFINE, exclusive=True, reverse=True),
    "rows": lambda rng: posed(words(rng, 2, (7, 3001)), AFFINE, axis=1),
    "columns": lambda rng: posed(numbers(rng, "uint32", (3, 2000, 33)), axis=1),
    "segments": lambda rng: posed(numbers(rng, "int32", (30_000,)), segments=[0, 3, 3, 8_000, 8_001, 30_000]),
}


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_the_bits_are_those_of_three_dispatch(own_device: Device, number: int, kind: str) -> None:
    """Fallback rests on neither, so it is right by number wherever workgroups start in any order."""
    device = own_device
    problem = KINDS[kind](np.random.default_rng(1))
    by_ticket = [s for s in ("lookahead", "lookback", "fallback") if s in strategies_on(device)]
    in_order = by_ticket if strategies.starts_in_order(device.capabilities) else ["fallback"]
    tile = None if kind == "columns" else tile_in_turn(device, number)
    wanted = runner.run(device, problem, "three_dispatch", tile=tile)
    for by_number in (False, True):
        many = (None, True)[(number // 2 + by_number) % 2]
        device.capabilities = replace(device.capabilities, starts_in_order=by_number, vendor="NVIDIA")
        for strategy in in_order if by_number else by_ticket:
            got = runner.run(device, problem, strategy, tile=tile, one_workgroup_folds=many)
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, (strategy, tile, by_number, many))
    assert device.capabilities.distrusted == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_tiles_first(own_device: Device, kind: str) -> None:
    """Under three_dispatch a GPU's tiles go from the end, a software adapter's from the begin."""
    device = own_device
    problem = KINDS[kind](np.random.default_rng(1))
    for tile in [None] if kind == "columns" else small_tiles(device):
        results = []
        for adapter_type, from_the_end in (("CPU", False), ("DiscreteGPU", True)):
            device.capabilities = replace(device.capabilities, adapter_type=adapter_type)
            plan = plan_scan(runner.work_of(device, problem), device.capabilities, "three_dispatch", "", tile=tile)
            assert plan.stages[-1].kernel.from_the_end == from_the_end
            results.append(runner.run(device, problem, "three_dispatch", tile=tile))
        for forwards, backwards in zip(*results, strict=True):
            assert_same(backwards, forwards, tile)
