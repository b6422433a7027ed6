"""The part of `gpuscan.Device` that arrays and plans use, and that makes neither of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Never

from gpuscan.api.launches import Numbered
from gpuscan.device.context import DeviceContext
from gpuscan.engine.executor import Executor

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.buffer_pool import MemoryUsage
    from gpuscan.device.profiles import Profile
    from gpuscan.planning.capabilities import Capabilities


class OpenedDevice(Numbered):
    """Base of `gpuscan.Device`: capabilities, waiting, profiles and memory."""

    def __init__(self, adapter: object, *, unsafe: bool, required_limits: Mapping[str, int] | None) -> None:
        self._context = DeviceContext(adapter, unsafe=unsafe, required_limits=required_limits)
        self._executor = Executor(self._context)

    def __repr__(self) -> str:
        return f"gpuscan.Device({self.capabilities.summary!r})"

    def _repr_html_(self) -> str:
        return self.capabilities._repr_html_()

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Device was to be pickled or copied, but it belongs to this process. Open one where it is "
            "needed, gpuscan.Device(device.capabilities.summary), and pass arrays on as NumPy's, array.numpy()"
        )

    @property
    def capabilities(self) -> Capabilities:
        """What the probe found out about the adapter: a frozen dataclass."""
        return self._context.capabilities

    @property
    def wgpu_device(self) -> wgpu.GPUDevice:
        """The `wgpu.GPUDevice` that runs the shaders."""
        return self._context.wgpu_device

    # ----- Waiting

    def flush(self) -> None:
        """Submit deferred work to the GPU, without waiting for it.

        gpuscan defers up to 16 short scans of arrays on the device, and submits them together. It does so by itself
        before any other work of this device, such as a read, `synchronize`, or your own commands to `wgpu_device`. Call
        this only to let the GPU begin while your program does something else.
        """
        self._context.flush()

    def synchronize(self) -> None:
        """Wait until the GPU has finished all work, and raise the errors that it has reported.

        Raises:
            ProgressTimeoutError: a scan of arrays on the device has timed out since the last check.
            ValueError: offsets or labels on the device, passed as `segments` or `groups` since then, are wrong.
            IndexError: an index on the device, used since then, is outside its axis.
            DeviceLostError: the GPU was lost.
        """
        self._context.synchronize()

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        """The threads that wait for arrays on their way to the host."""
        return ThreadPoolExecutor(2, thread_name_prefix="gpuscan-read")

    def profile(self) -> AbstractContextManager[Profile]:
        """Measure, by timestamps of the GPU, how long each stage takes that runs inside the ``with``.

        The context manager returns a profile: ``spans`` lists the stages, each with ``stage``, ``strategy``,
        ``elements`` and ``gpu_seconds``, and ``gpu_seconds`` is their sum. Both wait for the GPU. A time is None if the
        adapter has no timestamps. Profiles may nest and overlap.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> device = gs.default_device()
            >>> with device.profile() as p:
            ...     _ = gs.scan(np.ones(100, np.float32), device=device)
            >>> p.spans[-1].stage
            'scan'
        """
        return self._profile()

    @contextmanager
    def _profile(self) -> Iterator[Profile]:
        profile = self._context.profiles.open()
        try:
            yield profile
        finally:
            self._context.profiles.close(profile)

    # ----- Memory

    def memory_usage(self) -> MemoryUsage:
        """Return how much memory of the device gpuscan uses, and how much it has reserved.

        Buffers that gpuscan keeps for later calls count as reserved, but not as in use.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> device = gs.Device()
            >>> x = device.asarray(np.zeros(1 << 16, np.float32))
            >>> device.memory_usage().bytes_in_use >= x.nbytes
            True
        """
        usage = self._context.memory_usage()
        owners = self._context.program_owners
        own_bytes = sum(owner.buffer.size for owner in owners)
        return replace(usage, bytes_in_use=usage.bytes_in_use - own_bytes, allocations=usage.allocations - len(owners))

    def memory_cleanup(self) -> None:
        """Return memory that no array uses to the GPU."""
        self._context.memory_cleanup()
