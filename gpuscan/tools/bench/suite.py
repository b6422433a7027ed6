"""Runs contenders over cases, one at a time, and reports progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpuscan.tools.bench.cases import Case
from gpuscan.tools.bench.contender import Contender, measure
from gpuscan.tools.bench.inputs import make_inputs
from gpuscan.tools.bench.results import COPY, Measurement

# Called with a line before each contender runs.
Progress = Callable[[str], None]


def run_suite(
    cases: Sequence[Case],
    contenders: Callable[[Case], Iterable[Contender]],
    progress: Progress = lambda what: None,
    each: Callable[[Measurement], None] = lambda measurement: None,
) -> list[Measurement]:
    """Measure every contender on every case.

    Args:
        cases: what to measure.
        contenders: returns the contenders of a case, the copy first.
        progress: called with a line before each measurement.
        each: called with each measurement.
    """
    measurements = []
    for case in cases:
        entrants = list(contenders(case))
        progress(f"inputs of {case.series}, {case.size}")
        inputs = None
        try:
            inputs = make_inputs(case)
        except MemoryError:
            failed = [Measurement(case, e.library, e.name).failed("no memory for the inputs") for e in entrants]
        for entrant in entrants:
            progress(f"{case.series}, {case.size}: {entrant.library} {entrant.name}")
            found = failed.pop(0) if inputs is None else measure(entrant, inputs)
            measurements.append(found)
            each(found)
    return measurements


def failures(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the wrong results of gpuscan itself and of the copy."""
    return [m for m in measurements if m.wrong and m.library in ("gpuscan", COPY)]
