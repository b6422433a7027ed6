"""accelerated-scan: linear recurrences over (batch, channels, sequence), with autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuscan.tools.bench.cases import Case, RecurrenceCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import CalledSubject, need, only
from gpuscan.tools.bench.peers.torch_arrays import sampler, to_torch, torch_subject

# The modules of the library: one is written in Triton, one in CUDA C++.
MODULES = ("scalar", "warp")


def contenders(case: Case) -> list[Contender]:
    if isinstance(case, RecurrenceCase):
        return [Contender("accelerated-scan", module, partial(_subject, module)) for module in MODULES]
    return []


def _subject(module: str, inputs: Inputs) -> CalledSubject:
    torch = need("torch")
    scan = need(f"accelerated_scan.{module}").scan
    only(torch.cuda.is_available(), "no CUDA device")
    case = inputs.case
    assert isinstance(case, RecurrenceCase)
    a, b, *gradient = (to_torch(array, "cuda").transpose(1, 2).contiguous() for array in inputs.arrays)
    if case.backward:
        a.requires_grad_()
        b.requires_grad_()
    made: list[Any] = []

    def run() -> None:
        h = scan(a, b)
        made[:] = [h, *(torch.autograd.grad(h, (a, b), gradient[0]) if case.backward else ())]

    sample = sampler(lambda: [result.transpose(1, 2).contiguous() for result in made], case.dtype)
    return torch_subject(run, sample, made.clear, "cuda")
