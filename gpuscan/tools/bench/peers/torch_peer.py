"""PyTorch: `cumsum`, `cumprod`, `cummax`, `cummin` (which give the places too) and `logcumsumexp`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuscan.tools.bench.cases import Case, ScanCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import CalledSubject, need, only
from gpuscan.tools.bench.peers.torch_arrays import SIGNED, sampler, to_torch, torch_subject

FUNCTIONS = {
    "add": "cumsum",
    "multiply": "cumprod",
    "maximum": "cummax",
    "minimum": "cummin",
    "logaddexp": "logcumsumexp",
}
WRAPS = ("add", "multiply")


def contenders(case: Case) -> list[Contender]:
    if not isinstance(case, ScanCase) or case.op not in FUNCTIONS:
        return []
    return [Contender("torch", FUNCTIONS[case.op], _subject)]


def _subject(inputs: Inputs) -> CalledSubject:
    torch = need("torch")
    case = inputs.case
    assert isinstance(case, ScanCase)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    array = inputs.arrays[0]
    signed = SIGNED.get(case.dtype.name)
    if signed is not None:
        only(case.op in WRAPS, f"PyTorch has no {FUNCTIONS[case.op]} of {case.dtype}")
        array = array.view(np.dtype(signed))
    tensor: Any = to_torch(array, device)
    function = getattr(torch, FUNCTIONS[case.op])
    keeps_dtype = {"dtype": tensor.dtype} if case.op in WRAPS else {}
    made: list[Any] = []

    def run() -> None:
        result = function(tensor, dim=1, **keeps_dtype)
        made[:] = [result.values if case.op in ("maximum", "minimum") else result]

    def free() -> None:
        nonlocal tensor
        tensor = None
        made.clear()

    return torch_subject(run, sampler(lambda: made, case.dtype), free, device)
