"""The steps of a loop itself, which a kernel takes within a chunk, after it has scanned the maps of these steps."""

from __future__ import annotations

from dataclasses import dataclass

from gpuscan.operators.trace import Map


@dataclass(frozen=True)
class LoopSteps:
    """What a kernel needs to run a loop within a chunk of neighbouring elements.

    The maps of the steps are then composed once for each chunk. The state before a chunk follows from these
    compositions, and the states within it from the loop's own step.

    Attributes:
        before: the problem's `before`, which gives the map of a step. Steps of a problem that has another one, since it
            was rewritten, are not taken.
        state: takes an element, which is a constant map, to the numbers of the state.
        take: takes the numbers of a state and of a source to the numbers of the next state.
        finish: takes the numbers of the next state and of the source to a result.
        first: takes a source to its map in the form in which a chunk composes maps; None if that is an element.
        extend: takes such a map and a source to their composition; None to combine elements.
        settle: takes such a map to an element; None if it is one.
    """

    before: Map
    state: Map
    take: Map
    finish: Map
    first: Map | None = None
    extend: Map | None = None
    settle: Map | None = None
