"""Shared parts of the peers: imports that report a missing library, and subjects made of functions."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuscan.tools.bench.contender import Unsupported
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.timer import REPEATS, WALL, WARM_SECONDS, repeats_for, wall_seconds

CUDA_EVENTS = "CUDA events"

# The number and the bytes of the copies that keep the GPU busy while the timed calls are queued.
HOLDS = 8
HOLD_BYTES = 256 << 20

Sampler = Callable[[np.ndarray[Any, Any]], Sequence[Any]]


def need(module: str) -> Any:
    """Import a module and return it.

    Raises:
        Unsupported: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(f"{error.name} is not installed") from error


@dataclass
class CalledSubject:
    """A function that returns when its work is done, timed by the wall clock.

    Attributes:
        run: does the work once and keeps the results.
        sample: returns the results at some elements, one array for each output.
        note: as `Subject.note`.
        free: releases the library's memory.
    """

    run: Callable[[], object]
    sample: Sampler
    note: str = ""
    free: Callable[[], object] = field(default=lambda: None)
    clock: str = WALL

    def seconds(self) -> float:
        return wall_seconds(self.run)

    def error(self, inputs: Inputs) -> float:
        return inputs.error([np.asarray(values) for values in self.sample(inputs.indices)])

    def close(self) -> None:
        self.free()


@dataclass
class QueuedSubject(CalledSubject):
    """A function that queues work on a CUDA stream, timed by events.

    Copies keep the GPU busy while the calls are queued, so that no call waits for Python.

    Attributes:
        hold: queues a copy of `HOLD_BYTES`.
        record: makes an event and records it.
        elapsed: returns the seconds between two events.
        wait: waits until the stream is empty.
    """

    hold: Callable[[], object] = field(default=lambda: None)
    record: Callable[[], Any] = field(default=lambda: None)
    elapsed: Callable[[Any, Any], float] = field(default=lambda begin, end: 0.0)
    wait: Callable[[], object] = field(default=lambda: None)
    clock: str = CUDA_EVENTS

    def seconds(self) -> float:
        self._batch(1)  # compiles
        repeats = repeats_for(self._batch(1)[0], REPEATS)
        end = time.perf_counter() + WARM_SECONDS
        while True:
            times = self._batch(repeats)
            if time.perf_counter() > end:
                return statistics.median(times)

    def _batch(self, repeats: int) -> list[float]:
        for _ in range(HOLDS):
            self.hold()
        events = []
        for _ in range(repeats):
            begin = self.record()
            self.run()
            events.append((begin, self.record()))
        self.wait()
        return [self.elapsed(begin, end) for begin, end in events]


def only(condition: bool, reason: str) -> None:
    """Raise Unsupported with the reason unless the condition holds."""
    if not condition:
        raise Unsupported(reason)
