"""accelerated-scan: linear recurrences over (batch, channels, sequence), with autograd."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpuscan.tools.bench.cases import Inputs
from gpuscan.tools.bench.contenders import Contender, Subject
from gpuscan.tools.bench.peers import need, only, to_torch, torch_sampler, torch_subject
from recurrences import RecurrenceCase

# The modules of the library: one is written in Triton, one in CUDA C++.
MODULES = ("scalar", "warp")


def contenders(case: RecurrenceCase) -> list[Contender]:
    return [Contender("accelerated-scan", module, partial(_subject, module, case)) for module in MODULES]


def _subject(module: str, case: RecurrenceCase, inputs: Inputs) -> Subject:
    torch = need("torch")
    scan = need(f"accelerated_scan.{module}").scan
    only(torch.cuda.is_available(), "no CUDA device")
    a, b, *gradient = (to_torch(array, "cuda").transpose(1, 2).contiguous() for array in inputs.arrays)
    if case.backward:
        a.requires_grad_()
        b.requires_grad_()
    made: list[Any] = []

    def run() -> None:
        h = scan(a, b)
        made[:] = [h, *(torch.autograd.grad(h, (a, b), gradient[0]) if case.backward else ())]

    sample = torch_sampler(lambda: [result.transpose(1, 2).contiguous() for result in made], case.dtype)
    return torch_subject(run, sample, made.clear, "cuda")
