"""Count the Python calls of a call, and say how many there may be."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gpuscan as gs
from gpuscan.device.native_queue import NativeQueue
from tests.oracle import Array

# Python calls of a repeated call of one stage and one result, of each further stage, and of each further result.
FIRST, EACH_STAGE, EACH_RESULT = 60, 20, 15
# More calls of one that reads its result.
READ = 40
# The same of a call of a length that was not seen before, where calls of some other lengths were.
NEW_FIRST, NEW_EACH_STAGE, NEW_EACH_RESULT = 220, 110, 50
# The code that waits for a buffer, and polls meanwhile.
_WAIT = NativeQueue.wait_for_map.__code__


@dataclass
class Counted:
    """Python calls that a function makes, also in threads that it starts."""

    calls: int = 0

    def of(self, call: Callable[[], Any]) -> int:
        """Return how many there are, but for those while it waits: a wait polls the GPU as long as that takes.

        No garbage is collected, since its finalizers may make hundreds of calls.
        """
        waiting: set[int] = set()

        def count_one(frame: Any, event: str, argument: Any) -> None:
            del argument
            thread = threading.get_ident()
            if frame.f_code is _WAIT and event in ("call", "return"):
                (waiting.add if event == "call" else waiting.discard)(thread)
            self.calls += event == "call" and thread not in waiting

        collects = gc.isenabled()
        gc.disable()
        threading.setprofile(count_one)
        sys.setprofile(count_one)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            if collects:
                gc.enable()
        return self.calls


def count_stages(device: gs.Device, call: Callable[..., Any], *given: Any) -> int:
    """Return how many stages a call runs on a device; 1 if it runs none."""
    with device.profile() as profile:
        call(*given)
    return max(1, len(profile.spans))


def results_of(value: Any) -> list[Array]:
    """Return the arrays of a result as NumPy's, depth first."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [array for part in value for array in results_of(part)]
    return [np.asarray(value)]


def assign(array: Any, index: Any, value: Any) -> Any:
    """Return the array after an assignment."""
    array[index] = value
    return array
