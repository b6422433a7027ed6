"""Triton: `associative_scan` over rows that fit one program, and a recurrence that steps along the sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuscan.tools.bench.cases import RecurrenceCase, ScanCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import CalledSubject, need, only
from gpuscan.tools.bench.peers.torch_arrays import SIGNED, sampler, to_torch, torch_subject

# Elements that one program scans at once.
LONGEST_ROW = 32_768

# Channels and warps of a program. The fastest pair is measured.
COLUMN_SHAPES = ((32, 1), (64, 1), (64, 2), (128, 1), (128, 4))


def contenders(case: ScanCase | RecurrenceCase) -> list[Contender]:
    if isinstance(case, ScanCase):
        return [Contender("triton", "associative_scan", _rows)] if case.op == "add" and case.rows > 1 else []
    if case.backward:
        return []
    return [
        Contender("triton", "a step at a time", FastestColumns),
        Contender("triton", "associative_scan along the last axis", _transposed),
    ]


def _cuda() -> tuple[Any, Any]:
    need("triton")
    torch = need("torch")
    only(torch.cuda.is_available(), "no CUDA device")
    return torch, need("peers.triton_kernels")


def _rows(inputs: Inputs) -> CalledSubject:
    torch, kernels = _cuda()
    case = inputs.case
    assert isinstance(case, ScanCase)
    only(case.length <= LONGEST_ROW, f"a row of {case.length} elements is too long for one program")
    (array,) = inputs.arrays
    x = to_torch(array.view(SIGNED.get(case.dtype.name, case.dtype)), "cuda")
    y = torch.empty_like(x)
    width = 1 << (case.length - 1).bit_length()
    return _launching(lambda: kernels.row_sums[(case.rows,)](x, y, case.length, width, num_warps=8), [x, y], 1, inputs)


class FastestColumns:
    """The recurrence step by step, in the fastest of several shapes of program."""

    def __init__(self, inputs: Inputs) -> None:
        torch, kernels = _cuda()
        batch, sequence, channels = _shape(inputs)
        a, b = (to_torch(array, "cuda") for array in inputs.arrays)
        h = torch.empty_like(b)

        def subject(block: int, warps: int) -> CalledSubject:
            grid = (batch, -(-channels // block))

            def launch() -> None:
                kernels.column_recurrence[grid](a, b, h, sequence, channels, block, num_warps=warps)

            return _launching(launch, [a, b, h], 2, inputs)

        self._subjects = {shape: subject(*shape) for shape in COLUMN_SHAPES}
        first = self._subjects[COLUMN_SHAPES[0]]
        self.clock, self.note = first.clock, first.note

    def seconds(self) -> float:
        times = {shape: subject.seconds() for shape, subject in self._subjects.items()}
        (block, warps), fastest = min(times.items(), key=lambda entry: entry[1])
        self.note += f", {block} channels and {warps} warps a program"
        return fastest

    def error(self, inputs: Inputs) -> float:
        return self._subjects[COLUMN_SHAPES[-1]].error(inputs)

    def close(self) -> None:
        for subject in self._subjects.values():
            subject.close()


def _transposed(inputs: Inputs) -> CalledSubject:
    torch, kernels = _cuda()
    batch, sequence, channels = _shape(inputs)
    only(sequence <= LONGEST_ROW, f"a sequence of {sequence} elements is too long for one program")
    a, b = (to_torch(array, "cuda").transpose(1, 2).contiguous() for array in inputs.arrays)
    h = torch.empty_like(b)
    width = 1 << (sequence - 1).bit_length()

    def launch() -> None:
        kernels.row_recurrence[(batch * channels,)](a, b, h, sequence, width, num_warps=8)

    return _launching(launch, [a, b, h], 2, inputs, transposed=True)


def _shape(inputs: Inputs) -> tuple[int, int, int]:
    assert isinstance(inputs.case, RecurrenceCase)
    return inputs.case.shape


def _launching(
    launch: Callable[[], object], tensors: list[Any], output: int, inputs: Inputs, *, transposed: bool = False
) -> CalledSubject:
    def results() -> list[Any]:
        return [tensors[output].transpose(1, 2).contiguous() if transposed else tensors[output]]

    return torch_subject(launch, sampler(results, inputs.case.dtype), tensors.clear, "cuda")
