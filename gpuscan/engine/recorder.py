"""Record the stages before a run into its command encoder, and keep them for later runs over the same buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.held_runs import Clear, Dispatch
from gpuscan.device.reports import Verdict
from gpuscan.device.transfer import padded
from gpuscan.engine.prepared_run import PreparedStages
from gpuscan.engine.record import record_stage

if TYPE_CHECKING:
    from gpuscan.device.bind_groups import Binding
    from gpuscan.device.context import DeviceContext


@dataclass(frozen=True)
class Recorder:
    """The commands of a run that is being recorded.

    Attributes:
        context: the device.
        encoder: the encoder, without an open pass.
        kept: what must not be freed before the commands are submitted.
        dispatches, made, clears, verdicts: what was recorded, as `PreparedStages` has it.
    """

    context: DeviceContext
    encoder: Any
    kept: list[object]
    dispatches: list[Dispatch] = field(default_factory=list)
    made: list[DeviceArray] = field(default_factory=list)
    clears: list[Clear] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def stage(self, template: str, bound: Sequence[Binding], workgroups: int, elements: int, **values: Any) -> None:
        """Record a stage over buffers of the pool, which the next call of a kind often gets again."""
        stage = record_stage(self.context, self.encoder, template, bound, workgroups, elements, True, **values)
        self.dispatches.append(stage)

    def empty(self, words: int) -> DeviceArray:
        """Return a new array of 32-bit words that the stages write."""
        self.made.append(empty(self.context, words, np.uint32))
        return self.made[-1]

    def clear(self, array: DeviceArray) -> None:
        """Record that an array is set to zero. No stage may have been recorded before."""
        self.clears.append((array.buffer, array.offset, padded(array.nbytes)))
        self.encoder.clear_buffer(*self.clears[-1])

    @property
    def prepared(self) -> list[PreparedStages]:
        """What was recorded, ready to be submitted again."""
        if not self.dispatches:
            return []
        return [PreparedStages(self.context, self.dispatches, self.made, self.clears, self.verdicts)]
