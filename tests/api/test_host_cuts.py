"""Arrays on a device cut by labels, keys and offsets of NumPy: these are uploaded, and calls launch programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from tests.api.test_launches import N
from tests.harness.builds import assert_launches
from tests.harness.calls import EACH_STAGE, FIRST, Counted
from tests.harness.devices import count_programs
from tests.oracle import assert_same

# An operator without an identity.
LATER_OF_ONE = gs.operator(lambda left, right: right, name="later of one")

# Calls of an array on a device that is cut by labels or keys.
CUTS: dict[str, Callable[[Any, Any], Any]] = {
    "scan of groups": lambda a, x: gs.scan(a, groups=x),
    "scan of groups in rows": lambda a, x: gs.scan(a.reshape(-1, N), axis=1, groups=x[:N]),
    "reduce groups": lambda a, x: gs.reduce(a, groups=x, num_groups=13),
    "reduce all groups": lambda a, x: gs.reduce(a, groups=x),
    "keys": lambda a, x: gs.scan(a, keys=x),
}


@pytest.mark.parametrize("kind", CUTS)
@pytest.mark.parametrize("n", [2 * N, 3 * N])
def test_cuts_of_numpy(device: gs.Device, kind: str, n: int) -> None:
    """Assert that other labels and keys of NumPy launch one program, with the bits and errors of equal lists."""
    call, rng = CUTS[kind], np.random.default_rng(0)
    n = max(n, N) if "rows" in kind else n
    a = device.asarray(rng.standard_normal(n).astype(np.float32))
    cuts = [np.r_[rng.integers(0, 12, n - 1), 12].astype(dtype) for dtype in (np.int64, np.uint8) for _ in range(16)]
    cuts = cuts if kind != "scan of groups in rows" else [np.roll(cut, 1) for cut in cuts]
    for cut in cuts:
        call(a, cut)
    expected = [(cut, outcome_of(call, a, cut.tolist())) for cut in (cuts[0], cuts[-1])]
    for cut, wanted in expected:
        with assert_launches(device):
            found = call(a, cut[::-1][::-1])
        assert_same(found.numpy(), wanted, kind)
    # The upload of an array takes as many calls as a launch.
    calls = min(Counted().of(partial(call, a, cut)) for cut in cuts[-3:])
    assert calls <= 3 * FIRST + 2 * EACH_STAGE, calls
    for cut in (
        *(np.arange(n) % 3 - least for least in (0, 1, 2)),  # with missing labels, and with wrong ones
        np.sort(cuts[0]),
        np.sort(cuts[0])[::-1],
        cuts[0] + 1000,
        cuts[0] * 2**40,
        cuts[0] > 5,
        cuts[0].astype(">i4"),
        cuts[0].astype(np.float32),
        cuts[0][:-1],
        np.resize(cuts[0], (n, 1)),
    ):
        wanted, got = (outcome_of(call, a, each) for each in (cut.tolist(), cut))
        if isinstance(wanted, np.ndarray):
            assert_same(got, wanted, kind)
        else:
            assert got == wanted


def outcome_of(call: Callable[[Any, Any], Any], a: Any, cut: Any) -> Any:
    """Return the result of a call in NumPy, or its error as text."""
    try:
        return call(a, cut).numpy()
    except (ValueError, TypeError, gs.GpuscanError) as error:
        return repr(error)


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("op", ["add", "maximum", LATER_OF_ONE])
@pytest.mark.parametrize("segments", [600])
def test_offsets_of_numpy(device: gs.Device, reduces: bool, op: Any, segments: int) -> None:
    """Assert that other offsets of NumPy launch one program, with the bits and errors of equal lists."""
    rng = np.random.default_rng(0)
    a = device.asarray(rng.standard_normal(2 * N).astype(np.float32))

    def call(a: Any, offsets: Any) -> Any:
        return gs.reduce(a, op, segments=offsets) if reduces else gs.scan(a, op, segments=offsets)

    cuts = [
        np.r_[0, np.sort(rng.choice(np.arange(1, 2 * N), segments, replace=False)), 2 * N].astype(dtype)
        for dtype in (np.int64, np.uint16)
        for _ in range(12)
    ]
    for cut in cuts:
        call(a, cut)
    expected = [(cut, outcome_of(call, a, cut.tolist())) for cut in (cuts[0], cuts[-1])]
    known = count_programs(device)
    for cut, wanted in expected:
        assert_same(call(a, cut).numpy(), wanted)
    assert count_programs(device) == known
    stages = 3 if reduces else 1
    calls = min(Counted().of(partial(call, a, cut)) for cut in cuts[:3])
    assert calls <= 3 * FIRST + stages * EACH_STAGE, calls
    empty = cuts[0].copy()
    empty[2] = empty[1]
    for cut in (
        empty,
        cuts[0][::-1],
        cuts[0][:-1],
        cuts[0][1:],
        cuts[0] * 1.0,
        cuts[0].astype(">i4"),
        cuts[0][:, None],
    ):
        wanted, got = (outcome_of(call, a, each) for each in (cut.tolist(), cut))
        if isinstance(wanted, np.ndarray):
            assert_same(got, wanted)
        else:
            assert got == wanted
