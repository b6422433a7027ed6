"""PyTorch's side of NumPy arrays and CUDA events, for the peers that build on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpuscan.tools.bench.contender import Unsupported
from gpuscan.tools.bench.peers.subjects import HOLD_BYTES, CalledSubject, QueuedSubject, Sampler, need

# PyTorch scans no unsigned integers wider than 8 bits; where wrapping sums are meant, signed ones have the same bits.
SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}


def to_torch(array: np.ndarray[Any, Any], device: str) -> Any:
    """Copy an array to a tensor on the device.

    Raises:
        Unsupported: PyTorch has no such dtype.
    """
    torch = need("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(device)
    try:
        return torch.from_numpy(array).to(device)
    except TypeError as error:
        raise Unsupported(f"PyTorch has no {array.dtype}") from error


def sampler(results: Callable[[], Sequence[Any]], dtype: np.dtype[Any]) -> Sampler:
    """Picks elements of tensors in memory order, as NumPy arrays of `dtype`."""
    torch = need("torch")

    def sample(at: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        picked = []
        for result in results():
            values = result.detach().reshape(-1)[torch.from_numpy(at).to(result.device)].cpu()
            if values.dtype == torch.bfloat16:
                picked.append(values.view(torch.int16).numpy().view(dtype))
            else:
                picked.append(values.numpy().view(dtype))
        return picked

    return sample


def torch_subject(run: Callable[[], object], sample: Sampler, free: Callable[[], None], device: str) -> CalledSubject:
    """Return a subject on a device, timed by events on CUDA and by the wall clock elsewhere."""
    torch = need("torch")
    note = f"PyTorch {torch.__version__}"
    if device == "cpu":
        return CalledSubject(run, sample, f"{note}, CPU", free)
    held = [torch.empty(HOLD_BYTES, dtype=torch.uint8, device=device) for _ in range(2)]

    def record() -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def release() -> None:
        held.clear()
        free()
        torch.cuda.empty_cache()

    return QueuedSubject(
        run=run,
        sample=sample,
        note=note,
        free=release,
        hold=lambda: held[0].copy_(held[1]),
        record=record,
        elapsed=lambda begin, end: float(begin.elapsed_time(end)) * 1e-3,
        wait=torch.cuda.synchronize,
    )
