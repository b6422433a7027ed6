"""Makes a contender ready, times it and checks what it gave; whatever goes wrong becomes a row that says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.results import Measurement


class Unsupported(Exception):
    """A contender does not do this case; the message says why."""


class Subject(Protocol):
    """A contender that is ready to run over one case's inputs.

    Attributes:
        clock: what times it.
        note: what a reader should know, such as the version.
    """

    clock: str
    note: str

    def seconds(self) -> float:
        """The median time of one run, warm."""

    def error(self, inputs: Inputs) -> float:
        """The largest error of the results at the sampled elements, as `Inputs.error` gives it."""

    def close(self) -> None:
        """Give back what the device holds for it."""


@dataclass(frozen=True)
class Contender:
    """Something to measure.

    Attributes:
        library: ``"gpuscan"``, ``"copy"`` or a peer's name.
        name: which of the library's ways, such as a strategy or a function.
        prepare: makes it ready for a case; raises where it cannot.
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
