"""The copy as a contender: every scan is compared with it."""

from __future__ import annotations

import numpy as np

from gpuscan import Device
from gpuscan.tools.bench.buffers import gather, place, release
from gpuscan.tools.bench.contender import Contender, Unsupported
from gpuscan.tools.bench.copy_kernel import VECTOR_BYTES, copy_recording
from gpuscan.tools.bench.inputs import SAMPLES, Inputs
from gpuscan.tools.bench.results import COPY
from gpuscan.tools.bench.timer import GpuTimer


def copy_contender(device: Device, timer: GpuTimer) -> Contender:
    """Return a contender that copies half the case's bytes, and so moves the bytes that a scan moves."""
    return Contender(COPY, "kernel", lambda inputs: CopySubject(device, timer, inputs.case.moved_bytes // 2))


def copy_seconds(timer: GpuTimer, moved_bytes: int) -> float:
    """Return the median GPU time of a copy that reads and writes `moved_bytes` together."""
    half = max(VECTOR_BYTES, moved_bytes // 2 // VECTOR_BYTES * VECTOR_BYTES)
    buffers = [place(timer.device, None, half), place(timer.device, None, half)]
    taken = timer.seconds(copy_recording(timer.device, buffers[0], buffers[1], half // VECTOR_BYTES))
    release(buffers)
    return taken


class CopySubject:
    """Two buffers and the kernel that copies one to the other. It checks the copy, not the case's results."""

    note = ""

    def __init__(self, device: Device, timer: GpuTimer, nbytes: int) -> None:
        self.clock = timer.clock
        self._device = device
        self._timer = timer
        self._vectors = max(1, -(-nbytes // VECTOR_BYTES))
        limit = device.capabilities.limits["max-buffer-size"]
        if self._vectors * VECTOR_BYTES > limit:
            raise Unsupported(f"{nbytes} bytes do not fit a buffer of {limit}")
        self._words = np.random.default_rng(0).integers(0, 2**32, 4 * self._vectors, dtype=np.uint32)
        self._buffers = [place(device, self._words), place(device, None, self._words.nbytes)]

    def seconds(self) -> float:
        recording = copy_recording(self._device, self._buffers[0], self._buffers[1], self._vectors)
        return self._timer.seconds(recording)

    def error(self, inputs: Inputs) -> float:
        """Return 0.0 if sampled words of the copy equal the source, else infinity."""
        at = np.append(np.random.default_rng(1).integers(0, len(self._words), SAMPLES), len(self._words) - 1)
        got = gather(self._device, self._buffers[1], at, np.dtype(np.uint32))
        return 0.0 if np.array_equal(got, self._words[at]) else float("inf")

    def close(self) -> None:
        release(self._buffers)
