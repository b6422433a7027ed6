"""What ``gpuscan tune`` does: search the fastest tile shapes on an adapter, and keep them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuscan import Device
from gpuscan.planning.tile_shapes import TileShape
from gpuscan.planning.tuned_tiles import Tuned, runs_on
from gpuscan.tools.bench.cases import ScanCase
from gpuscan.tools.bench.inputs import make_inputs
from gpuscan.tools.bench.scans import ScanSubject, default_tile
from gpuscan.tools.bench.timer import GpuTimer

# The share of a case's time that goes to trying every shape once. The finalists get the rest.
SCREENING = 0.6

# A shape replaces the default if it takes at most this share of the default's time.
WORTH = 0.97

# The number of fastest shapes that are measured again, for longer, together with the default.
FINALISTS = 3

# The operator and dtype that stand for elements of 1, 2 and 4 words of 32 bits.
REPRESENTATIVES = {1: ("add", "uint32"), 2: ("affine", "float32"), 4: ("matmul", "float32")}

# The sizes of the arrays in 32-bit words, on GPUs and on software adapters.
GPU_WORDS = tuple(1 << exponent for exponent in (18, 22, 26))
CPU_WORDS = tuple(1 << exponent for exponent in (16, 20))

QUICK_WARM_SECONDS, QUICK_REPEATS = 0.02, 5
FINAL_WARM_SECONDS, FINAL_REPEATS = 0.1, 9

# The 32-bit words of elements that an invocation may hold. With more its registers spill.
MAX_REGISTER_WORDS = 64


@dataclass(frozen=True)
class Found:
    """The fastest shape for one element and length.

    Attributes:
        case: what was measured.
        words: the 32-bit words of its element.
        default, best: the planner's shape and the fastest; the same if none is faster enough.
        default_seconds, best_seconds: the times of a scan with each.
        tried: the number of shapes that were measured.
    """

    case: ScanCase
    words: int
    default: TileShape
    best: TileShape
    default_seconds: float
    best_seconds: float
    tried: int


def search(device: Device, seconds: float, progress: Callable[[str], None] = lambda what: None) -> Iterator[Found]:
    """Yield the fastest shape for each representative element and length, in `seconds` overall."""
    end = time.perf_counter() + seconds
    cells = cases(device)
    for place, (words, case) in enumerate(cells):
        now = time.perf_counter()
        progress(f"{case.series}, {case.size}")
        yield _search_case(device, case, words, max(0.0, end - now) / (len(cells) - place))


def cases(device: Device) -> list[tuple[int, ScanCase]]:
    """Return the cases to search: every representative element at short and long lengths, with its words."""
    limit = device.capabilities.limits["max-storage-buffer-binding-size"]
    lengths = CPU_WORDS if device.capabilities.adapter_type == "CPU" else GPU_WORDS
    found = []
    for words, (op, dtype) in REPRESENTATIVES.items():
        for total in lengths:
            case = ScanCase(op, np.dtype(dtype), total // words)
            if case.moved_bytes // 2 <= limit:
                found.append((words, case))
    return found


def tuned_from(found: list[Found]) -> Tuned:
    """Return the mapping for the planner, with all lengths of each element for which a better shape was found."""
    changed = {f.words for f in found if f.best != f.default}
    return MappingProxyType({(f.words, f.case.length): f.best for f in found if f.words in changed})


def candidates(device: Device, default: TileShape, words: int) -> list[TileShape]:
    """Return the shapes to try for elements of `words` 32-bit words: the default first, the nearest to it next.

    All of them combine elements in the order of the default, so none of them changes a result.
    """
    usable = [
        shape
        for shape in default.same_order()
        if shape != default
        and shape.steps * shape.chunk * words <= MAX_REGISTER_WORDS
        and runs_on(shape, words, device.capabilities)
    ]
    return [default, *sorted(usable, key=lambda shape: abs(math.log2(shape.steps / default.steps)))]


def _search_case(device: Device, case: ScanCase, words: int, seconds: float) -> Found:
    begin = time.perf_counter()
    inputs = make_inputs(case)
    default = default_tile(device, inputs)
    subject = ScanSubject(device, GpuTimer(device, QUICK_WARM_SECONDS, QUICK_REPEATS), inputs, "auto", default)
    try:
        subject.seconds()  # raises the GPU's clocks
        times: dict[TileShape, float] = {}
        for shape in candidates(device, default, words):
            if times and time.perf_counter() > begin + SCREENING * seconds:
                break
            subject.retile(inputs, shape)
            taken = subject.seconds()
            if subject.error(inputs) <= inputs.tolerance:
                times[shape] = taken
        subject.timer = GpuTimer(device, FINAL_WARM_SECONDS, FINAL_REPEATS)
        finalists = sorted(times, key=times.__getitem__)[:FINALISTS]
        final: dict[TileShape, float] = {}
        for shape in dict.fromkeys([default, *finalists]):
            if len(final) > 1 and time.perf_counter() > begin + seconds:
                break
            subject.retile(inputs, shape)
            final[shape] = subject.seconds()
    finally:
        subject.close()
    best = min(final, key=final.__getitem__)
    if final[best] > WORTH * final[default]:
        best = default
    return Found(case, words, default, best, final[default], final[best], len(times))
