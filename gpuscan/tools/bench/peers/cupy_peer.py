"""CuPy: `cumsum` and `cumprod`."""

from __future__ import annotations

import numpy as np

from gpuscan.tools.bench.cases import Case, ScanCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import HOLD_BYTES, QueuedSubject, need, only

FUNCTIONS = {"add": "cumsum", "multiply": "cumprod"}


def contenders(case: Case) -> list[Contender]:
    if not isinstance(case, ScanCase) or case.op not in FUNCTIONS:
        return []
    return [Contender("cupy", FUNCTIONS[case.op], _subject)]


def _subject(inputs: Inputs) -> QueuedSubject:
    cupy = need("cupy")
    case = inputs.case
    assert isinstance(case, ScanCase)
    only(cupy.cuda.is_available(), "no CUDA device")
    only(case.dtype.name != "bfloat16", "CuPy has no bfloat16")
    array = cupy.asarray(inputs.arrays[0])
    result = cupy.empty_like(array)
    function = getattr(cupy, FUNCTIONS[case.op])
    held = cupy.empty((2, HOLD_BYTES), np.uint8)

    def record() -> object:
        event = cupy.cuda.Event()
        event.record()
        return event

    def free() -> None:
        nonlocal array, result, held
        array = result = held = None
        cupy.get_default_memory_pool().free_all_blocks()

    return QueuedSubject(
        run=lambda: function(array, axis=1, dtype=case.dtype, out=result),
        sample=lambda at: [cupy.asnumpy(result.reshape(-1)[cupy.asarray(at)])],
        note=f"CuPy {cupy.__version__}",
        free=free,
        hold=lambda: cupy.copyto(held[0], held[1]),
        record=record,
        elapsed=lambda begin, end: float(cupy.cuda.get_elapsed_time(begin, end)) * 1e-3,
        wait=cupy.cuda.get_current_stream().synchronize,
    )
