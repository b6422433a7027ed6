"""Epochs and parameters of runs: no two runs that share a buffer have one epoch, and each finds its own parameters."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpuscan.device.tile_state import (
    EPOCH_WORD,
    LAST_EPOCH,
    MAX_AHEAD,
    MAX_DESCRIPTORS,
    RunDescriptor,
    TileState,
    TileStateSizeError,
    describe_run,
)

STRIDE = 64
MOST = 1 << 21


class FakeDevice:
    """Buffers that are made, and what was written to them."""

    limits = {"min-uniform-buffer-offset-alignment": STRIDE, "max-storage-buffer-binding-size": MOST}  # noqa: RUF012

    def write(self, buffer: Any, offset: int, data: np.ndarray[Any, Any]) -> None:
        place = slice(offset // 4, (offset + data.nbytes) // 4)
        assert not buffer.words[place].any()  # Recorded commands may still use the old contents.
        buffer.words[place] = data.reshape(-1)

    def create_buffer(self, size: int, usage: int) -> Any:
        return SimpleNamespace(size=size, words=np.zeros(size // 4, np.uint32))


def plan(length: int = 1000, posts: bool = True, state_bytes: int = 100) -> Any:
    return SimpleNamespace(
        length=length, tiles=3, spin_rounds=7, row_length=1000, inner=1, posts=posts, state_bytes=state_bytes
    )


def kind(length: int = 1000, posts: bool = True, state_bytes: int = 100) -> RunDescriptor:
    return describe_run(plan(length, posts, state_bytes), (1, 0, 0))


@pytest.fixture
def state() -> TileState:
    device: Any = FakeDevice()
    return TileState(device, device.write)


def test_a_run_finds_its_parameters(state: TileState) -> None:
    """Assert that a run finds its parameters, whatever other runs started in between."""
    rng = np.random.default_rng(0)
    for _ in range(3000):
        wanted = plan(length=int(rng.integers(1, 100)))
        begun = state.begin(describe_run(wanted, (wanted.length, 5, 6)))
        words = begun.params.buffer.words[begun.offset // 4 :][:8]
        assert words.tolist() == [wanted.length, 3, begun.epoch, 7, wanted.length, 5, 6, 1]
        assert begun.offset % STRIDE == 0


def test_no_two_runs_on_a_buffer_have_one_epoch(state: TileState) -> None:
    """Assert that epochs may start again while reserved ones are still unused."""
    seen: dict[int, set[int]] = defaultdict(set)
    buffers = []  # kept, so that no two have one id
    rng = np.random.default_rng(1)
    for run in range(3 * LAST_EPOCH):
        begun = state.begin(kind(length=int(rng.integers(1, 40)), posts=run % 5 > 0))
        if id(begun.state) not in seen:
            buffers.append(begun.state)
        assert 1 <= begun.epoch <= LAST_EPOCH
        assert begun.epoch not in seen[id(begun.state)]
        seen[id(begun.state)].add(begun.epoch)
    assert len(buffers) >= 6  # each end of the epochs makes a buffer of either kind


def test_runs_of_one_kind_are_written_ahead(state: TileState) -> None:
    """Assert that parameters are written ahead, but not at first: many arrays are scanned only once."""
    made = [state.begin(kind()).params.buffer for _ in range(1 + 16 + 2 * MAX_AHEAD)]
    sizes = [made[i].size // STRIDE for i in (1, 16, 17, 17 + MAX_AHEAD)]
    assert sizes == [16, 16, MAX_AHEAD, MAX_AHEAD]
    assert len({id(buffer) for buffer in made}) == 4
    epochs = made[-1].words.reshape(MAX_AHEAD, -1)[:, EPOCH_WORD]
    assert np.array_equal(np.diff(epochs), np.ones(MAX_AHEAD - 1))


def test_a_run_of_several_dispatches(state: TileState) -> None:
    """Assert that each dispatch finds its own parameters, with the first epoch of the run, and that runs share none."""
    seen: set[int] = set()
    words = tuple((5, step, 0) for step in range(4))
    for _ in range(40):
        begun = state.begin(RunDescriptor(words, 2, "counts", 100, epochs=4))
        for step in range(4):
            place = (begun.offset + step * begun.stride) // 4
            assert begun.params.buffer.words[place : place + 3].tolist() == [5, step, begun.epoch]
        assert seen.isdisjoint(range(begun.epoch, begun.epoch + 4))
        seen.update(range(begun.epoch, begun.epoch + 4))


def test_memory_is_bounded_and_given_back(state: TileState) -> None:
    for length in range(5000):
        state.begin(kind(length=length))
        state.begin(kind(length=length))
    assert state.nbytes <= (1 << 16) + (16 * MAX_DESCRIPTORS + MAX_AHEAD) * STRIDE
    grown = state.begin(kind(state_bytes=1 << 20)).state
    assert grown.size == 1 << 20
    state.release()
    assert state.nbytes == 0
    assert state.begin(kind()).epoch == 1


def test_buffers_grow_up_to_what_can_be_bound(state: TileState) -> None:
    """Assert that buffers grow twofold, or up to the limit, and that a larger plan is refused without harm."""
    sizes = [1 << 19, (1 << 19) + 4, (1 << 20) + 4, MOST]
    assert [state.begin(kind(state_bytes=n)).state.size for n in sizes] == [1 << 19, 1 << 20, MOST, MOST]
    before = state.begin(kind())
    with pytest.raises(TileStateSizeError, match=f"{MOST + 4} bytes of tile state .* the device binds at most {MOST}"):
        state.check(plan(state_bytes=MOST + 4))
    after = state.begin(kind())
    assert after.state is before.state
    assert after.epoch == before.epoch + 1
