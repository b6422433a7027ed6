"""Tiles are handed out by ticket, or by number if workgroups start in order. The bits are the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.problem.problem import Problem
from tests.harness.devices import device_as_if, hands_out_tiles_by_number
from tests.harness.scans import make_problem, plan_with, scan_with, traits_of
from tests.oracle import AFFINE, assert_same, small_tiles, some, strategies_on, tile_in_turn, words
from tests.strategies import numbers

KINDS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "floats": lambda rng: make_problem(rng.standard_normal(50_001).astype(np.float32)),
    "two words": lambda rng: make_problem(words(rng, 2, (30_007,)), AFFINE, exclusive=True, reverse=True),
    "rows": lambda rng: make_problem(words(rng, 2, (7, 3001)), AFFINE, axis=1),
    "columns": lambda rng: make_problem(numbers(rng, "uint32", (3, 2000, 33)), axis=1),
    "segments": lambda rng: make_problem(numbers(rng, "int32", (30_000,)), segments=[0, 3, 3, 8_000, 8_001, 30_000]),
}


@pytest.mark.parametrize(("number", "kind"), list(enumerate(KINDS)))
def test_the_bits_are_those_of_three_dispatch(own_device: gs.Device, number: int, kind: str) -> None:
    """Assert that fallback is also right by number on adapters that start workgroups in any order."""
    problem = KINDS[kind](np.random.default_rng(1))
    by_ticket = [s for s in ("lookahead", "lookback", "fallback") if s in strategies_on(own_device)]
    in_order = by_ticket if hands_out_tiles_by_number(own_device) else ["fallback"]
    tile = None if kind == "columns" else tile_in_turn(own_device, number)
    wanted = scan_with(own_device, problem, "three_dispatch", tile=tile)
    for by_number in (False, True):
        folds = (None, True)[(number // 2 + by_number) % 2]
        device = device_as_if(own_device, starts_in_order=by_number, vendor="NVIDIA")
        for strategy in some(device, in_order if by_number else by_ticket):
            got = scan_with(device, problem, strategy, tile=tile, one_workgroup_folds=folds)
            for result, field in zip(got, wanted, strict=True):
                assert_same(result, field, (strategy, tile, by_number, folds))
        assert device.capabilities.distrusted == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_tiles_first(device: gs.Device, kind: str) -> None:
    """Assert that three_dispatch takes the last tiles first on a GPU, and the first ones on a software adapter."""
    problem = KINDS[kind](np.random.default_rng(1))
    for tile in [None] if kind == "columns" else small_tiles(device):
        results = []
        for adapter_type, from_the_end in (("CPU", False), ("DiscreteGPU", True)):
            other = device_as_if(device, adapter_type=adapter_type)
            traits = traits_of(plan_with(other, problem, "three_dispatch", tile=tile))
            assert traits["scan"].starts_at_the_end == from_the_end
            results.append(scan_with(other, problem, "three_dispatch", tile=tile))
        for forwards, backwards in zip(*results, strict=True):
            assert_same(backwards, forwards, tile)
