"""Sorts of other libraries: NumPy's, PyTorch's (which gives the indices too), and CuPy's, which is CUB's radix sort."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpuscan.tools.bench.contender import Contender
from gpuscan.tools.bench.inputs import Inputs
from gpuscan.tools.bench.peers.subjects import CalledSubject, need, only
from gpuscan.tools.bench.peers.torch_arrays import SIGNED, sampler, to_torch, torch_subject


def _numpy(inputs: Inputs) -> CalledSubject:
    (keys,) = inputs.arrays
    made: list[Any] = []

    def run() -> None:
        made[:] = [np.sort(keys, axis=1, kind="stable")]

    return CalledSubject(run, lambda at: [made[0].reshape(-1)[at]], f"NumPy {np.__version__}")


def _torch(inputs: Inputs) -> CalledSubject:
    torch = need("torch")
    (keys,) = inputs.arrays
    only(keys.dtype.name not in SIGNED, f"PyTorch sorts no {keys.dtype}")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensor: Any = to_torch(keys, device)
    made: list[Any] = []

    def run() -> None:
        made[:] = [torch.sort(tensor, dim=1, stable=True).values]

    def free() -> None:
        nonlocal tensor
        tensor = None
        made.clear()

    return torch_subject(run, sampler(lambda: made, keys.dtype), free, device)


def _cupy(inputs: Inputs) -> CalledSubject:
    cupy = need("cupy")
    (keys,) = inputs.arrays
    only(cupy.cuda.is_available(), "no CUDA device")
    only(keys.dtype.name != "bfloat16", "CuPy has no bfloat16")
    array = cupy.asarray(keys)
    made: list[Any] = []

    def run() -> None:
        made[:] = [cupy.sort(array, axis=1)]
        cupy.cuda.get_current_stream().synchronize()

    def free() -> None:
        nonlocal array
        array = None
        made.clear()
        cupy.get_default_memory_pool().free_all_blocks()

    note = f"CuPy {cupy.__version__}"
    return CalledSubject(run, lambda at: [cupy.asnumpy(made[0].reshape(-1)[cupy.asarray(at)])], note, free)


# The contenders by the names of PEERS.
SORTS: Mapping[str, Contender] = {
    "cupy": Contender("cupy", "sort", _cupy),
    "torch": Contender("torch", "sort", _torch),
    "numpy": Contender("numpy", "sort", _numpy),
}
