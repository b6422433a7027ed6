"""Describe what the executor runs: the job that the parts of one scan share, and the buffers of each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.reports import Run
from gpuscan.device.steps import Binding
from gpuscan.engine.array_views import bind_views
from gpuscan.engine.element_copy import duplicate, slice_axis
from gpuscan.engine.endpoints import DeviceSink, DeviceSource, HostSink, HostSource
from gpuscan.engine.head_bits import HeadBits
from gpuscan.engine.part_buffers import PartBuffers
from gpuscan.engine.preparation import check_seeds
from gpuscan.planning.transfer_heuristics import TRANSFERS

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.capabilities import Capabilities
    from gpuscan.planning.kernel_parts import InjectedFaults, Placement
    from gpuscan.planning.partition import Part
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.planning.tile_shapes import Tile


class PlanOptions(TypedDict, total=False):
    """Further arguments of `plan_scan`, for one call or one part of it."""

    tile: Tile | None
    subgroups: bool
    piece: int | None
    one_workgroup_folds: bool | None
    test_build: InjectedFaults


class PlacedOptions(PlanOptions, total=False):
    """The same, and where the arrays are in their buffers."""

    placement: Placement | None


@dataclass(frozen=True)
class Job:
    """The state that the parts of one scan share.

    Attributes:
        spec: the whole scan.
        strategy: the strategy that was asked for.
        sources, sinks: where each field comes from and goes to.
        seeds: 32-bit words of the initial value or identity of each row: (rows, words). On the device if the caller's
            initial values are there.
        heads: where the bits come from that say where rows and segments begin; None without.
        count: the array for the number of elements that a mask picks, or for the list of runs.
        placement: the way in which arrays share buffers.
        options: further arguments of `plan_scan`, such as a tile.
        writes_back_apart: True to write results on another thread, where no code of the caller runs between two parts.
        failed: the strategies that timed out in this job; ``"auto"`` goes on without them.
    """

    spec: ScanSpec
    strategy: str
    sources: Sequence[HostSource | DeviceSource]
    sinks: Sequence[HostSink | DeviceSink]
    seeds: AnyArray | DeviceArray | None = None
    heads: HeadBits | None = None
    count: DeviceArray | None = None
    placement: Placement | None = None
    options: PlanOptions = field(default_factory=PlanOptions)
    writes_back_apart: bool = False
    failed: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """The way in which scans with the same layout key are cut into parts.

    Attributes:
        spec: the whole scan.
        parts: its parts; empty if they are made one by one.
        capabilities: the device's capabilities when the layout was made.
        settled_length: the least length of a row of chunks from which on its tile is always the same.
    """

    spec: ScanSpec
    parts: tuple[Part, ...]
    capabilities: Capabilities
    settled_length: int = 0


class Flight:
    """A part in flight."""

    def __init__(self, number: int, part: Part, buffers: PartBuffers | None) -> None:
        self.number, self.part, self.buffers = number, part, buffers
        self.run: Run | None = None

    def is_ready(self) -> bool:
        """Return True if the part is known to be done."""
        return self.buffers is not None and self.buffers.is_ready()


class SharedBuffers:
    """Buffers that all parts of one job use: carries, seeds and captured constants."""

    def __init__(self, context: DeviceContext, job: Job) -> None:
        self._context, self._job = context, job
        self._carries: list[DeviceArray] = []
        self._seeds: DeviceArray | None = None
        self._captured: Binding | None = None
        self._views: Binding | None = None
        self.has_host_arrays = not all(
            isinstance(endpoint, (DeviceSource, DeviceSink)) for endpoint in (*job.sources, *job.sinks)
        )

    def carry(self, number: int) -> Binding:
        """Return the buffer of the carry that comes before part `number`.

        Parts in flight may run again, so their carries are kept.
        """
        if not self._carries:
            words = self._job.spec.item_words
            self._carries = [empty(self._context, (words,), np.uint32) for _ in range(TRANSFERS.parts_in_flight + 2)]
        return self._carries[number % len(self._carries)]._binding()

    def seeds(self, part: Part, kept: list[object]) -> Binding | None:
        """Return the seeds that the part binds: the seeds of a slab's rows, or else of all rows."""
        words = self._job.seeds
        if words is None:
            return None
        if not part.is_slab:
            if self._seeds is None:
                check_seeds(words.shape[0], words.nbytes, self._context)
                self._seeds = words if isinstance(words, DeviceArray) else upload_array(self._context, words)
            return self._seeds._binding()
        inner = self._job.spec.inner
        matrices = (words.shape[0] // inner, inner, words.shape[-1])
        if isinstance(words, DeviceArray):
            assert part.outer is not None
            assert part.columns is not None
            some = slice_axis(words._view_as(matrices), 0, part.outer.start, part.outer.stop)
            own = duplicate(slice_axis(some, 1, part.columns.start, part.columns.stop))
        else:
            own = upload_array(self._context, np.ascontiguousarray(words.reshape(matrices)[part.outer, part.columns]))
        kept.append(own)
        return own._binding()

    @property
    def captured(self) -> Binding | None:
        """The constants that the user's functions captured."""
        if self._captured is None and self._job.spec.captured_functions:
            self._captured = self._context.uniform(self._job.spec.captured)
        return self._captured

    @property
    def views(self) -> Binding | None:
        """What the kernel knows of the arrays that are views."""
        job = self._job
        if self._views is None and job.placement is not None and job.placement.views:
            self._views = bind_views(self._context, [endpoint.view for endpoint in (*job.sources, *job.sinks)])  # type: ignore[union-attr]
        return self._views

    @property
    def arrays(self) -> list[DeviceArray | None]:
        """The arrays on the device that the job reads or writes for its caller."""
        job = self._job
        arrays = [
            endpoint.array
            for endpoint in (*job.sources, *job.sinks)
            if isinstance(endpoint, (DeviceSource, DeviceSink))
        ]
        return [*arrays, job.count, job.heads.array if job.heads is not None else None]
