"""Contenders: something to measure. A failure becomes a measurement that gives the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import Measurement


class Unsupported(Exception):
    """The contender cannot run the case. The message gives the reason."""


class Subject(Protocol):
    """A contender with the inputs of one case loaded.

    Attributes:
        clock: what times it.
        note: the version, or a tile's shape.
    """

    clock: str
    note: str

    def seconds(self) -> float:
        """Return the median time of one run after a warm-up."""

    def error(self, inputs: Inputs) -> float:
        """Return the largest error of the results at the sampled elements, as `Inputs.error` does."""

    def close(self) -> None:
        """Release the memory of the device."""


@dataclass(frozen=True)
class Contender:
    """Something to measure.

    Attributes:
        library: ``"gpuscan"``, ``"copy"`` or a peer's name.
        name: the strategy or the function.
        prepare: loads the inputs of a case, or raises if it cannot.
    """

    library: str
    name: str
    prepare: Callable[[Inputs], Subject]


def measure(contender: Contender, inputs: Inputs) -> Measurement:
    """Time and check one contender on one case."""
    blank = Measurement(inputs.case, contender.library, contender.name)
    try:
        subject = contender.prepare(inputs)
        try:
            seconds = subject.seconds()
            error = subject.error(inputs)
            return Measurement(
                inputs.case,
                contender.library,
                contender.name,
                seconds=seconds,
                clock=subject.clock,
                error=error,
                right=error <= inputs.tolerance,
                note=subject.note,
            )
        finally:
            subject.close()
    except Unsupported as reason:
        return blank.failed(str(reason))
    except Exception as error:  # a peer may raise anything
        return blank.failed(f"{type(error).__name__}: {error}")
