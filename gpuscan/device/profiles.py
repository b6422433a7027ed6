"""Measure GPU time: a span for each stage that runs while a profile is open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Never

import numpy as np

from gpuscan.device.backends import webgpu
from gpuscan.device.error_translation import translate_errors
from gpuscan.device.transfer import download
from gpuscan.html_table import html_table

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.error_translation import ContextLike
    from gpuscan.device.steps import Dispatch


@dataclass(frozen=True)
class Span:
    """The time of one dispatch.

    Attributes:
        stage: the name of the stage. The stages of a scan are ``"scan"``, ``"reduce"``, ``"scan_totals"`` and
            ``"carry"``. Others are ``"mark_segments"``, ``"mark_keys"``, ``"repeat_heads"``, ``"gather"``,
            ``"copy_elements"``, ``"copy_tiles"``, ``"length"``, ``"fold_segments"``, ``"join_segments"``, and the
            stages of sorts (shaders/sort/).
        strategy: the strategy of the plan; ``""`` for a stage that is no part of a scan.
        elements: the number of elements that the dispatch works on.
        gpu_seconds: the time that it took; None if the adapter has no timestamps, and until a recorded encoder is
            submitted.
        begin: the GPU time at which it began, in seconds from an unknown origin; None if `gpu_seconds` is None.
    """

    stage: str
    strategy: str
    elements: int
    gpu_seconds: float | None
    begin: float | None


class Batch:
    """The stages that are recorded together, and the buffer for their timestamps.

    Attributes:
        stages: the name, the strategy and the number of elements of each stage.
    """

    def __init__(self, device: ContextLike, stages: Sequence[Dispatch]) -> None:
        usage = webgpu().BufferUsage
        self._device = device
        self.stages = [(stage.name, stage.strategy, stage.elements) for stage in stages]
        self._queries: wgpu.GPUQuerySet | None = None
        self._spans: list[Span] | None = None
        if device.capabilities.timestamps:
            count = 2 * len(stages)
            wgpu_device = device.wgpu_device
            self._queries = wgpu_device.create_query_set(type="timestamp", count=count)
            self._resolved = wgpu_device.create_buffer(size=8 * count, usage=usage.QUERY_RESOLVE | usage.COPY_SRC)

    def writes(self, stage: int) -> dict[str, object] | None:
        """Return WebGPU's `timestampWrites` for the pass of a stage, by its number; None without timestamps."""
        if self._queries is None:
            return None
        return {
            "query_set": self._queries,
            "beginning_of_pass_write_index": 2 * stage,
            "end_of_pass_write_index": 2 * stage + 1,
        }

    def resolve(self, encoder: wgpu.GPUCommandEncoder) -> None:
        """Record, after the stages, a command that writes their timestamps to a buffer.

        That buffer is never mapped. A caller may submit the encoder at any time, and wgpu-native ends the process in a
        submission that uses a mapped buffer.
        """
        if self._queries is not None:
            encoder.resolve_query_set(self._queries, 0, 2 * len(self.stages), self._resolved, 0)

    def spans(self) -> list[Span]:
        """Return the stages' spans, once the GPU is done."""
        if self._spans is not None:
            return self._spans
        # A thread that records holds the lock until it has submitted the run.
        with translate_errors(self._device), self._device.lock:
            if self._spans is None:
                ticks = self._ticks()
                spans = self._make_spans(ticks)
                if self._queries is not None and None in ticks:
                    return spans  # The run was not submitted yet, so a later call reads the timestamps again.
                self._spans = spans
            return self._spans

    def _ticks(self) -> Sequence[int | None]:
        """Return the timestamps. They are None without timestamps, and before the encoder is submitted."""
        ticks = np.zeros(2 * len(self.stages), np.uint64)
        if self._queries is not None:
            download(self._device.queue, self._device.pool, self._resolved, 0, ticks)
        # A new buffer is all zeros.
        return ticks.tolist() if ticks.any() else [None] * len(ticks)

    def _make_spans(self, ticks: Sequence[int | None]) -> list[Span]:
        tick = self._device.capabilities.timestamp_period * 1e-9
        spans = []
        for stage, begin, end in zip(self.stages, ticks[::2], ticks[1::2], strict=True):
            seconds = None if begin is None or end is None else (end - begin) * tick
            at = None if begin is None else begin * tick
            spans.append(Span(*stage, seconds, at))
        return spans


class Profile:
    """The stages that ran on a device inside a ``with device.profile() as p:``."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    @property
    def spans(self) -> list[Span]:
        """A span for each stage, in the order recorded; waits for the GPU."""
        return [span for batch in list(self.batches) for span in batch.spans()]

    @property
    def gpu_seconds(self) -> float | None:
        """The total time of the spans; None if the time of one is not known."""
        seconds = [span.gpu_seconds for span in self.spans]
        return None if None in seconds else sum(s for s in seconds if s is not None)

    def __repr__(self) -> str:
        return f"gpuscan.Profile({sum(len(batch.stages) for batch in self.batches)} dispatches)"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Profile was to be pickled or copied, but it belongs to a device of this process. Pickle or copy "
            "profile.spans instead"
        )

    def _repr_html_(self) -> str:
        def time(seconds: float | None) -> str:
            return "not known" if seconds is None else f"{seconds * 1e6:,.1f} µs"

        rows = [(span.stage, span.strategy, f"{span.elements:,}", time(span.gpu_seconds)) for span in self.spans]
        title = f"{len(rows)} dispatches, {time(self.gpu_seconds)} on the GPU"
        return html_table(title, rows, ("stage", "strategy", "elements", "GPU time"))


class Profiles:
    """The profiles that are open on a device. They may nest and overlap. Each of them gets every span.

    Attributes:
        active: True if a profile is open.
    """

    def __init__(self, device: ContextLike) -> None:
        self._device = device
        self._open: list[Profile] = []
        self.active = False

    def open(self) -> Profile:
        """Open a new profile and return it."""
        self._settle()
        profile = Profile()
        self._open.append(profile)
        self.active = True
        return profile

    def close(self, profile: Profile) -> None:
        """Give the profile no more spans."""
        try:
            self._settle()
        finally:
            self._open.remove(profile)
            self.active = bool(self._open)

    def _settle(self) -> None:
        """Submit the held runs, which belong to the profiles that are open."""
        if self._device.queue.held:
            with translate_errors(self._device), self._device.lock:
                self._device.queue.settle()

    def batch(self, stages: Sequence[Dispatch]) -> Batch:
        """Return a batch for stages that are being recorded, and add it to every open profile."""
        batch = Batch(self._device, stages)
        for profile in list(self._open):
            profile.batches.append(batch)
        return batch
