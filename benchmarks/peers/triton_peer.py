"""Triton: `associative_scan` over rows that fit one program, and a recurrence that steps along the sequence."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpuscan.tools.bench.cases import Inputs, ScanCase
from gpuscan.tools.bench.contenders import Contender, Subject
from gpuscan.tools.bench.peers import SIGNED, need, only, to_torch, torch_sampler, torch_subject
from recurrences import RecurrenceCase

# Elements that one program scans at once.
LONGEST_ROW = 32_768

# Channels and warps of a program. The fastest pair is measured.
COLUMN_SHAPES = ((32, 1), (64, 1), (64, 2), (128, 1), (128, 4))


def contenders(case: ScanCase) -> list[Contender]:
    if not isinstance(case, RecurrenceCase):
        rows = case.op == "add" and case.rows > 1
        return [Contender("triton", "associative_scan", partial(_rows, case))] if rows else []
    if case.backward:
        return []
    return [
        Contender("triton", "a step at a time", partial(_fastest_columns, case)),
        Contender("triton", "associative_scan along the last axis", partial(_scan_transposed, case)),
    ]


def _cuda() -> tuple[Any, Any]:
    need("triton")
    torch = need("torch")
    only(torch.cuda.is_available(), "no CUDA device")
    return torch, need("peers.triton_kernels")


def _rows(case: ScanCase, inputs: Inputs) -> Subject:
    torch, kernels = _cuda()
    only(case.length <= LONGEST_ROW, f"a row of {case.length} elements is too long for one program")
    (array,) = inputs.arrays
    x = to_torch(array.view(SIGNED.get(case.dtype.name, case.dtype)), "cuda")
    y = torch.empty_like(x)
    width = 1 << (case.length - 1).bit_length()
    return _launching(lambda: kernels.row_sums[(case.rows,)](x, y, case.length, width, num_warps=8), [x, y], 1, case)


def _fastest_columns(case: RecurrenceCase, inputs: Inputs) -> Subject:
    """Return the recurrence step by step, in the fastest of several shapes of program."""
    torch, kernels = _cuda()
    batch, sequence, channels = case.shape
    a, b = (to_torch(array, "cuda") for array in inputs.arrays)
    tensors = [a, b, torch.empty_like(b)]

    def subject_of(block: int, warps: int) -> Subject:
        grid = (batch, -(-channels // block))

        def launch() -> None:
            kernels.column_recurrence[grid](*tensors, sequence, channels, block, num_warps=warps)

        return _launching(launch, tensors, 2, case)

    subjects = {shape: subject_of(*shape) for shape in COLUMN_SHAPES}
    subject = subjects[COLUMN_SHAPES[-1]]
    last_seconds = subject.seconds

    def seconds() -> float:
        times = {shape: candidate.seconds() for shape, candidate in list(subjects.items())[:-1]}
        times[COLUMN_SHAPES[-1]] = last_seconds()
        (block, warps), fastest = min(times.items(), key=lambda entry: entry[1])
        subject.note += f", {block} channels and {warps} warps a program"
        return fastest

    subject.seconds = seconds
    return subject


def _scan_transposed(case: RecurrenceCase, inputs: Inputs) -> Subject:
    torch, kernels = _cuda()
    batch, sequence, channels = case.shape
    only(sequence <= LONGEST_ROW, f"a sequence of {sequence} elements is too long for one program")
    a, b = (to_torch(array, "cuda").transpose(1, 2).contiguous() for array in inputs.arrays)
    h = torch.empty_like(b)
    width = 1 << (sequence - 1).bit_length()

    def launch() -> None:
        kernels.row_recurrence[(batch * channels,)](a, b, h, sequence, width, num_warps=8)

    return _launching(launch, [a, b, h], 2, case, transposed=True)


def _launching(
    launch: Callable[[], object], tensors: list[Any], output: int, case: ScanCase, *, transposed: bool = False
) -> Subject:
    def results() -> list[Any]:
        return [tensors[output].transpose(1, 2).contiguous() if transposed else tensors[output]]

    return torch_subject(launch, torch_sampler(results, case.dtype), tensors.clear, "cuda")
