"""NumPy: `ufunc.accumulate`, and a recurrence that steps along the sequence over all other axes at once."""

from __future__ import annotations

import numpy as np

from gpuscan.tools.bench.cases import RecurrenceCase, ScanCase
from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import CalledSubject


def contenders(case: ScanCase | RecurrenceCase) -> list[Contender]:
    if isinstance(case, RecurrenceCase):
        return [] if case.backward else [Contender("numpy", "a step at a time", _recurrence)]
    if case.fields > 1 or case.element_shape:
        return []
    return [Contender("numpy", f"{case.operator.name}.accumulate", _accumulate)]


def _accumulate(inputs: Inputs) -> CalledSubject:
    case = inputs.case
    assert isinstance(case, ScanCase)
    ufunc = getattr(np, case.operator.name)
    (array,) = inputs.arrays
    result = np.empty_like(array)

    def run() -> None:
        ufunc.accumulate(array, axis=1, dtype=array.dtype, out=result)

    return CalledSubject(run, lambda at: [result.reshape(-1)[at]], f"NumPy {np.__version__}")


def _recurrence(inputs: Inputs) -> CalledSubject:
    a, b = inputs.arrays
    h = np.empty_like(b)

    def run() -> None:
        h[:, 0] = b[:, 0]
        for t in range(1, h.shape[1]):
            np.multiply(a[:, t], h[:, t - 1], out=h[:, t])
            h[:, t] += b[:, t]

    return CalledSubject(run, lambda at: [h.reshape(-1)[at]], f"NumPy {np.__version__}")
