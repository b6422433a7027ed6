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
        """The findings of the probe about the adapter, as a frozen record."""
        return self._context.capabilities

    @property
    def wgpu_device(self) -> wgpu.GPUDevice:
        """The `wgpu.GPUDevice` that runs the shaders."""
        return self._context.wgpu_device

    # ----- Waiting

    def flush(self) -> None:
        """Submit pending work.

        Up to 16 short scans of arrays on the device are held back, to be submitted together. They are submitted before
        anything else of this device, such as a read, `synchronize`, or your own commands to `wgpu_device`. So call this
        only to let the GPU begin while your program does something else.
        """
        self._context.flush()

    def synchronize(self) -> None:
        """Wait until the GPU has done everything that was submitted.

        Raises:
            ProgressTimeoutError: a scan of arrays on the device timed out since the last check.
            ValueError: offsets on the device, which were passed as `segments` since then, are wrong.
            DeviceLostError: the GPU went away.
        """
        self._context.synchronize()

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        """The threads that wait for arrays on their way to the host."""
        return ThreadPoolExecutor(2, thread_name_prefix="gpuscan-read")

    def profile(self) -> AbstractContextManager[Profile]:
        """Time the stages that run inside the ``with``, by timestamps of the GPU. Profiles may nest and overlap.

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
        """Return what gpuscan holds on the device.

        What it keeps for later scans, such as the state that tiles share, counts as reserved and not as in use.
        """
        usage = self._context.memory_usage()
        owners = {*self._executor.kept_arrays.owners, *self._context.program_owners}
        kept = sum(owner.buffer.size for owner in owners)
        return replace(usage, bytes_in_use=usage.bytes_in_use - kept, allocations=usage.allocations - len(owners))

    def memory_cleanup(self) -> None:
        """Give free memory back to the GPU."""
        self._context.memory_cleanup()
