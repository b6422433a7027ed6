"""Read what the GPU reports about runs, and keep the runs with unread reports.

Every run of a plan leaves a report in the first words of its tile state. A report word that equals the run's epoch
says that something went wrong; see `Outcome`.
"""

from __future__ import annotations

import enum
import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from gpuscan.array_types import Bytes
from gpuscan.device.timeouts import Timeouts, timeout_error
from gpuscan.device.transfer import read_together, round_up
from gpuscan.errors import GpuscanError, OperatorError, ProgressTimeoutError
from gpuscan.planning.kernel import Kernel
from gpuscan.planning.kernel_parts import LOOP_LIMIT_WORD, STATE_HEADER_WORDS, STATUS_WORD, SUBGROUP_SIZE_WORD

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.error_translation import ContextLike
    from gpuscan.device.queue import Queue
    from gpuscan.planning.plan import ScanPlan

_log = logging.getLogger("gpuscan")
# The report is the header of the tile state, in bytes.
REPORT_BYTES = 4 * STATE_HEADER_WORDS
# How many kernels a device remembers as verified or mismatched before it starts over.
_MAX_KERNELS = 1024
# How many runs may go unread before their reports are looked at.
MAX_PENDING_RUNS = 256
# How many encoded runs have their reports looked at. A caller may submit them at any time, or never.
MAX_ENCODED_RUNS = 256
# How many tile-state buffers those reports may keep alive.
MAX_ENCODED_STATES = 8


class Outcome(enum.Enum):
    """The ways in which a run of a plan can end."""

    # The results are there.
    DONE = enum.auto()
    # A tile waited longer than its bound for another tile.
    TIMEOUT = enum.auto()
    # The compiler gave the shader subgroups of another size than the plan was made for.
    WRONG_SUBGROUP_SIZE = enum.auto()
    # A loop in a user's WGSL exceeded its iteration limit.
    LOOP_LIMIT = enum.auto()


class Run(NamedTuple):
    """One run of a plan, and the place of its report.

    Attributes:
        plan: the plan that ran.
        state: the buffer that begins with the report, `REPORT_BYTES` long.
        epoch: the number of the run. Its report carries it; reports of earlier runs carry other numbers.
    """

    plan: ScanPlan
    state: wgpu.GPUBuffer
    epoch: int

    @property
    def strategy(self) -> str:
        """How tiles learned their prefixes."""
        return self.plan.strategy

    def has_timed_out(self, report: Sequence[int]) -> bool:
        """Return True if a tile waited longer than its bound."""
        return self.plan.posts and report[STATUS_WORD] == self.epoch

    def outcome(self, report: Sequence[int]) -> Outcome:
        """Return how the run ended. If several things went wrong, return the one that explains the others."""
        if self.has_exceeded_loop_limit(report):
            return Outcome.LOOP_LIMIT
        if report[SUBGROUP_SIZE_WORD] == self.epoch:
            return Outcome.WRONG_SUBGROUP_SIZE
        if self.has_timed_out(report):
            return Outcome.TIMEOUT
        return Outcome.DONE

    def has_exceeded_loop_limit(self, report: Sequence[int]) -> bool:
        """Return True if a loop of the operator's WGSL exceeded its iteration limit."""
        return self.plan.loops and report[LOOP_LIMIT_WORD] == self.epoch


class SortRun(NamedTuple):
    """A sort in which tiles waited for each other, and the place of its report, as in `Run`.

    Attributes:
        strategy: how tiles learned where their elements belong.
        state: the buffer that begins with the report.
        epoch: the number of the sort.
    """

    strategy: str
    state: wgpu.GPUBuffer
    epoch: int

    def has_timed_out(self, report: Sequence[int]) -> bool:
        """Return True if a tile waited longer than its bound."""
        return report[STATUS_WORD] == self.epoch


class Words(Protocol):
    """An array of 32-bit words on a device."""

    buffer: wgpu.GPUBuffer
    offset: int
    nbytes: int


class ValidationFlag(NamedTuple):
    """What a kernel has found out about an argument of a call, unread.

    Attributes:
        array: the 32-bit words that the kernel wrote.
        reader: returns the error that `arguments` and the words tell of; None if the argument is right.
        arguments: the other arguments of `reader`.
    """

    array: Words
    reader: Callable[..., Exception | None]
    arguments: tuple[object, ...]

    def error(self, words: list[int]) -> Exception | None:
        """Return the error that the words tell of; None if the argument is right."""
        return self.reader(*self.arguments, words)

    @property
    def byte_range(self) -> tuple[wgpu.GPUBuffer, int, int]:
        """The buffer of the words, their first byte, and the number of their bytes."""
        return self.array.buffer, self.array.offset, self.array.nbytes


def loop_limit_error(plan: ScanPlan) -> OperatorError:
    """Return the error for an operator with a loop that exceeded its iteration limit."""
    kernel = plan.stages[-1].kernel
    where = "all combinations of one invocation" if kernel.target.is_cpu_adapter else "one combination"
    return OperatorError(
        f"a scan with the operator {kernel.spec.operator_name!r} was asked for, but a loop in its WGSL did not end "
        f"within {kernel.heuristics.max_loop_iterations:,} iterations in {where}. Make the loop end sooner for every "
        "pair of elements"
    )


def read_report(device: ContextLike, state: wgpu.GPUBuffer) -> list[int]:
    """Return the report in a tile state, once everything submitted so far is done."""
    (words,) = read_together(device.queue, device.pool, [(state, 0, REPORT_BYTES)])
    numbers: list[int] = words.view(np.uint32).tolist()
    return numbers


class RunLog:
    """The runs of one device with unread reports, and what reports have shown about kernels.

    Attributes:
        pending: runs that were submitted without waiting for them.
        safe_until: the time, by `time.perf_counter`, until which an idle GPU shows that no pending run has failed.
        encoded: runs that callers recorded into their own encoders, newest last.
        validation_flags: what kernels have found out about arguments, by their ids.
        report_may_be_overwritten: True after a timeout that may have hidden an earlier one.
        keeps_failures: True while reads leave the errors that are not of the call that reads to the next read.
        kept_failures: these errors. They are of encoded runs.
        verified_kernels: kernels that have run with subgroups of the planned size.
        mismatched_kernels: kernels that have run with subgroups of another size.
        timeouts: the timeouts of each strategy.
    """

    def __init__(self) -> None:
        self.pending: list[Run | SortRun] = []
        self.safe_until = math.inf
        self.encoded: list[Run] = []
        self.validation_flags: dict[int, ValidationFlag] = {}
        self.report_may_be_overwritten = False
        self.keeps_failures = False
        self.kept_failures: list[Exception] = []
        self.verified_kernels: set[Kernel] = set()
        self.mismatched_kernels: set[Kernel] = set()
        self.timeouts = Timeouts()

    # ----- What is known of kernels

    @property
    def known_kernels(self) -> int:
        """How many kernels have reported their subgroups."""
        return len(self.verified_kernels) + len(self.mismatched_kernels)

    def is_verified(self, plan: ScanPlan) -> bool:
        """Return True if every subgroup of the plan was seen to have the planned size."""
        return all(not stage.kernel.subgroups or stage.kernel in self.verified_kernels for stage in plan.stages)

    def has_wrong_subgroup_size(self, plan: ScanPlan) -> bool:
        """Return True if a run has shown subgroups of another size than the plan's."""
        mismatched = self.mismatched_kernels
        return bool(mismatched) and not mismatched.isdisjoint(stage.kernel for stage in plan.stages)

    def note(self, plan: ScanPlan, outcome: Outcome) -> None:
        """Keep what a run has shown."""
        if outcome is Outcome.TIMEOUT:
            # The report may have overwritten an unread one, which would hide that the earlier run timed out, too.
            runs = (*self.pending, *self.encoded)
            self.report_may_be_overwritten = self.report_may_be_overwritten or any(
                isinstance(run, Run) and run.plan.posts and run.strategy != "fallback" for run in runs
            )
            return
        if outcome is Outcome.LOOP_LIMIT or not plan.tile.subgroup_size:
            return
        if outcome is Outcome.WRONG_SUBGROUP_SIZE:
            _log.info("the compiler gave a shader subgroups of another size than the probe saw; it is built without")
        kernels = self.verified_kernels if outcome is Outcome.DONE else self.mismatched_kernels
        if len(kernels) > _MAX_KERNELS:
            kernels.clear()
        kernels.update(stage.kernel for stage in plan.stages if stage.kernel.subgroups)

    # ----- Unread reports

    def add_pending(self, runs: Iterable[Run | SortRun], safe_until: float) -> None:
        """Keep runs until their reports are read.

        Args:
            runs: the runs, which were submitted or deferred.
            safe_until: the time, by `time.perf_counter`, until which an idle GPU shows that none of them has failed.
        """
        self.pending += runs
        self.safe_until = min(self.safe_until, safe_until)

    def add_validation_flag(self, validation_flag: ValidationFlag) -> None:
        """Keep a validation flag until it is read. Runs over the same buffers share one, which keeps what is wrong."""
        self.validation_flags[id(validation_flag)] = validation_flag

    def forget_pending(self) -> None:
        """Forget the pending runs, because none of them has failed."""
        self.pending.clear()
        self.safe_until = math.inf

    @property
    def has_unread_calls(self) -> bool:
        """True if a call may have failed and no read has said so. Encoded runs are submitted by callers at any time."""
        return bool(self.pending or self.validation_flags or self.report_may_be_overwritten or self.kept_failures)

    @property
    def may_be_timely(self) -> bool:
        """True if the GPU's being idle by now would show that nothing unread can tell of a failure."""
        if self.encoded or self.validation_flags or self.report_may_be_overwritten or self.kept_failures:
            return False
        return time.perf_counter() < self.safe_until

    def is_done_in_time(self, queue: Queue) -> bool:
        """Wait for a short while; return True if the GPU is done too soon for any unread run to have failed."""
        if self.may_be_timely and queue.is_soon_idle() and self.may_be_timely:
            self.forget_pending()
            return True
        return False

    def add_encoded(self, run: Run) -> None:
        """Look at an encoded run's report from now on; older runs are forgotten, so that the log stays small."""
        grown = bool(self.encoded) and self.encoded[-1].state is not run.state
        self.encoded.append(run)
        del self.encoded[:-MAX_ENCODED_RUNS]
        if grown:
            states = list({id(older.state): None for older in reversed(self.encoded)})[:MAX_ENCODED_STATES]
            self.encoded[:] = [older for older in self.encoded if id(older.state) in states]

    def read(
        self, device: ContextLike, more: Sequence[tuple[wgpu.GPUBuffer, int, int]] = ()
    ) -> tuple[list[Exception], list[str], list[Bytes]]:
        """Read the unread reports, and in the same wait some more bytes.

        A timeout may have left wrong values in other arrays, so it comes before errors that concern one run alone.

        Args:
            device: the device of the runs.
            more: buffer, first byte and number of bytes of what else is to be read.

        Returns:
            The errors, timeouts first; the strategies that timed out; and the further bytes.
        """
        validation_flags, runs = list(self.validation_flags.values()), [*self.pending, *self.encoded]
        states = {id(run.state): (run.state, 0, REPORT_BYTES) for run in runs}
        wanted = [*states.values(), *[validation_flag.byte_range for validation_flag in validation_flags], *more]
        content = read_together(device.queue, device.pool, wanted) if wanted else []
        self.validation_flags.clear()
        reports = {key: words.view(np.uint32).tolist() for key, words in zip(states, content, strict=False)}
        failures: list[Exception] = []
        if not self.keeps_failures:
            if self.report_may_be_overwritten:
                failures.append(timeout_error(device, "scan", len(runs), "may have given up"))
                self.report_may_be_overwritten = False
            failures += self.kept_failures
            self.kept_failures = []
        failed: list[str] = []
        for number, run in enumerate(runs):
            report = reports[id(run.state)]
            if run.epoch not in report[STATUS_WORD : LOOP_LIMIT_WORD + 1]:
                continue
            is_kept = self.keeps_failures and number >= len(self.pending)
            into = self.kept_failures if is_kept else failures
            is_wrong_size = isinstance(run, Run) and report[SUBGROUP_SIZE_WORD] == run.epoch
            if run.has_timed_out(report) and not is_wrong_size:
                what = "sort" if isinstance(run, SortRun) else "scan"
                failed.append(run.strategy)
                into.append(timeout_error(device, f"{what} by strategy {run.strategy!r}", len(runs), "gave up"))
                if self.keeps_failures and not is_kept and any(other.state is run.state for other in self.encoded):
                    self.report_may_be_overwritten = True
            if isinstance(run, SortRun):
                continue
            self.encoded[:] = [other for other in self.encoded if other is not run]
            if is_wrong_size:
                self.note(run.plan, Outcome.WRONG_SUBGROUP_SIZE)
                into.append(_wrong_subgroup_size_error(device, run.plan))
            if run.has_exceeded_loop_limit(report):
                into.append(loop_limit_error(run.plan))
        self.forget_pending()
        rest = content[len(states) :]
        for validation_flag, words in zip(validation_flags, rest[: len(validation_flags)], strict=True):
            error = validation_flag.error(words.view(np.uint32).tolist())
            if error is not None:
                failures.append(error)
                # Later runs may write the same words.
                encoder = device.queue.encoder()
                encoder.clear_buffer(
                    validation_flag.array.buffer, validation_flag.array.offset, round_up(validation_flag.array.nbytes)
                )
                device.queue.submit(encoder)
        failures.sort(key=lambda error: not isinstance(error, ProgressTimeoutError))
        return failures, failed, rest[len(validation_flags) :]


def _wrong_subgroup_size_error(device: ContextLike, plan: ScanPlan) -> GpuscanError:
    return GpuscanError(
        f"a plan was recorded for subgroups of {plan.tile.subgroup_size}, but on {device.capabilities.summary} the "
        "driver compiled its shaders with another size, so it wrote nothing or too little. Record the plan again: it "
        "now does without subgroups"
    )
