"""Pieces of long arrays cover the array, in order, and all but the last are whole tiles."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscan.planning.partition import ramped_pieces
from tests.fakes import spec


@settings(max_examples=60)
@given(st.integers(1, 50_000), st.integers(1, 40), st.integers(1, 60), st.integers(0, 900))
def test_pieces_that_grow_and_shrink(elements: int, unit: int, units: int, first: int) -> None:
    length = unit * units
    parts = list(ramped_pieces(spec("uint32", row_length=elements), length, unit, first))
    starts = [0]
    for part in parts:
        assert part.start == starts[-1]
        assert 0 < part.length <= length
        assert part.last or part.length % unit == 0
        starts.append(part.start + part.length)
    assert starts[-1] == elements
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]


def test_the_first_and_the_last_piece_are_short() -> None:
    parts = ramped_pieces(spec("uint32", row_length=1_000), 64, 4, 18)
    assert [part.length for part in parts] == [16, 32, *[60] * 14, 64, 32, 16]
    assert [part.length for part in ramped_pieces(spec("uint32", row_length=150), 64, 4, 18)] == [64, 64, 22]
