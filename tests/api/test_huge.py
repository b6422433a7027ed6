"""The largest arrays that an adapter takes in reasonable time: 2^28 elements on a GPU, 2^20 on the CPU."""

from __future__ import annotations

import numpy as np

import gpuscan as gs
from tests.harness.scans import make_problem, scan_with
from tests.oracle import assert_same, pick_strategies


def test_exact_sums(device: gs.Device) -> None:
    length = 1 << (20 if device.capabilities.adapter_type == "CPU" else 28)
    x = np.random.default_rng(0).integers(0, 2**32, length, dtype=np.uint32)
    wanted = np.cumsum(x, dtype=np.uint32)
    for strategy in pick_strategies(device, 0):
        (got,) = scan_with(device, make_problem(x), strategy)
        assert_same(got, wanted, strategy)


def test_one_submission(device: gs.Device) -> None:
    """Scan a huge array that stays on the device, in one sequence of dispatches."""
    length = 1 << (20 if device.capabilities.adapter_type == "CPU" else 28)
    x = np.random.default_rng(1).integers(0, 2**32, length, dtype=np.uint32)
    wanted = np.cumsum(x, dtype=np.uint32)
    held = device.asarray(x)
    for strategy in pick_strategies(device, 1):
        plan = device.plan(length, np.uint32, strategy=strategy)
        assert_same(plan(held).numpy(), wanted, strategy)
