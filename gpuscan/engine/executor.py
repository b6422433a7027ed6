"""Run a scan on a device: the one loop that fills, records, submits, reads reports and writes results back.

A scan of 100 elements, of a file, of an array on the device, of a queue of chunks, of columns: each is a sequence of
parts, read from sources and written to sinks. The loop keeps a few parts in flight, so that uploads, shaders and
downloads overlap. When a part's report says that something went wrong, the loop reacts, and runs the part and those
after it again by another plan.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Unpack

from gpuscan.device.context import DeviceContext, strategy_key
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.interrupts import defer_interrupts
from gpuscan.device.program import encode
from gpuscan.device.reports import Outcome, Run, loop_limit_error
from gpuscan.device.steps import Binding
from gpuscan.device.timeouts import handle_timeout
from gpuscan.device.transfer import start_call
from gpuscan.engine.endpoints import DeviceSink, DeviceSource
from gpuscan.engine.job import Flight, Job, SharedBuffers
from gpuscan.engine.part_buffers import PartBuffers
from gpuscan.engine.plan_steps import Buffers, are_owned, find_piece_position, steps_of_plan
from gpuscan.engine.subgroup_check import check_subgroup_size
from gpuscan.planning.plan import choose_tile, plan_scan
from gpuscan.planning.transfer_heuristics import TRANSFERS
from gpuscan.recent_values import RecentValues
from gpuscan.sizes import has_size

if TYPE_CHECKING:
    from gpuscan.engine.job import Layout, PlacedOptions, PlanOptions
    from gpuscan.planning.partition import Part
    from gpuscan.planning.plan import ScanPlan
    from gpuscan.planning.spec import ScanSpec

_log = logging.getLogger("gpuscan")
# How many plans, and how many layouts, are kept.
_MAX_PLANS = 512
# For this many arrays the number of different labels is kept.
_MAX_LABEL_COUNTS = 64


class Executor:
    """Runs scans on one device.

    Attributes:
        planner: makes the plans, and keeps them.
    """

    def __init__(self, context: DeviceContext) -> None:
        self.context = context
        self.planner = Planner(context)
        # How many labels arrays had when they were read, by their place in memory.
        self.label_counts: RecentValues[tuple[object, ...], int] = RecentValues(_MAX_LABEL_COUNTS)
        # Bytes a second from NumPy to NumPy, once they are measured.
        self.speed: float | None = None

    # ----- The loop

    def run(self, job: Job, parts: Iterable[Part]) -> Generator[Part, None, None]:
        """Scan the parts; yield each, in order, once its results are where they belong."""
        context, in_flight = self.context, deque[Flight]()
        idle: list[PartBuffers] = []
        all_buffers: list[PartBuffers] = []
        shared_buffers = SharedBuffers(context, job)
        write_backs = WriteBacks()
        clean = waits = False
        largest: Part | None = None

        def await_parts(most: int) -> Iterator[Part]:
            """Yield the parts that are done, until at most `most` are being written back."""
            for flight in write_backs.await_flights(most):
                if flight.buffers is not None:
                    flight.buffers.unmap()
                    idle.append(flight.buffers)
                yield flight.part

        try:
            for number, part in enumerate(parts):
                # The results of a part that is done are written while this one is filled.
                while in_flight and (len(in_flight) == TRANSFERS.parts_in_flight or in_flight[0].is_ready()):
                    self._finish_oldest(job, shared_buffers, in_flight, write_backs)
                yield from await_parts(TRANSFERS.parts_writing_back)
                buffers = None
                # Buffers are needed to read results, or a report that may tell of a failure.
                if shared_buffers.has_host_arrays or self.needs_report(self._plan_of(job, part)):
                    if not waits and context.run_log.validation_flags:
                        # Before the call writes anything: the errors may be of earlier calls.
                        context.check()
                    waits = True
                    # A later part may be larger: the slabs at the ends of rows are narrow.
                    largest = part if largest is None or part.length > largest.length else largest
                    if not idle:
                        all_buffers.append(self._buffers(job, largest))
                        idle.append(all_buffers[-1])
                    buffers = idle.pop()
                flight = Flight(number, part, buffers)
                self._submit_part(job, shared_buffers, flight)
                in_flight.append(flight)
                while in_flight and in_flight[0].buffers is None:  # nothing to wait for
                    self._finish_oldest(job, shared_buffers, in_flight, write_backs)
                    yield from await_parts(TRANSFERS.parts_writing_back)
            while in_flight:
                self._finish_oldest(job, shared_buffers, in_flight, write_backs)
                yield from await_parts(TRANSFERS.parts_writing_back if in_flight else 0)
            clean = True
        finally:
            write_backs.close()
            for buffers in all_buffers:
                buffers.close(clean=clean)
        if waits and context.run_log.validation_flags:
            context.check()
        else:
            context.check_if_many()

    def _plan_of(self, job: Job, part: Part) -> ScanPlan:
        options: PlanOptions = {**job.options}
        if part.tile is not None and options.get("tile") is None:
            options["tile"] = part.tile
        if not part.is_slab and part.length != part.spec.length:
            options["piece"] = part.length
        without = tuple(job.failed)
        return self.planner.plan(part.spec, job.strategy, without=without, placement=job.placement, **options)

    def _buffers(self, job: Job, part: Part) -> PartBuffers:
        """Return buffers that hold any part of the job that is no larger than this one."""
        inputs = [
            part.length * endpoint.element_bytes for endpoint in job.sources if not isinstance(endpoint, DeviceSource)
        ]
        outputs = [
            part.results * endpoint.element_bytes for endpoint in job.sinks if not isinstance(endpoint, DeviceSink)
        ]
        heads = 0 if job.heads is None else job.heads.upload_bytes(part)
        return PartBuffers(self.context, inputs, outputs, heads)

    def _submit_part(self, job: Job, shared_buffers: SharedBuffers, flight: Flight) -> None:
        """Upload the part, record its run, and submit it."""
        context, part, buffers = self.context, flight.part, flight.buffers
        plan = self._plan_of(job, part)
        if job.placement is not None and job.placement.in_place:
            # A run in place that fails because of its subgroup size would have overwritten its input.
            while not check_subgroup_size(self.context, plan):
                plan = self._plan_of(job, part)
        sources, upload_sizes, kept = self._bind_sources(job, part, buffers)
        destinations, read_sizes, temporaries = self._bind_sinks(job, part, buffers, sources)
        with context.lock:
            bound = Buffers(
                sources,
                destinations,
                shared_buffers.seeds(part, kept),
                shared_buffers.carry(flight.number) if part.spec.carried else None,
                shared_buffers.carry(flight.number + 1) if part.spec.carry_out else None,
                None if job.heads is None else job.heads.binding(part, buffers, kept),
                None if job.count is None else job.count._binding(),
                shared_buffers.captured,
                shared_buffers.views,
            )
            position = (
                find_piece_position(part.start, part.spec.row_length) if part.start and not part.is_slab else None
            )
            # Pieces of a segmented reduction store into one array.
            clear = part.is_slab or part.start == 0 or not part.spec.reduces_segments
            run, steps = steps_of_plan(context, plan, bound, piece_position=position, clear=clear)
            flight.run = run
            if buffers is None:
                nbytes = sum(memory.size or 0 for memory in sources)
                context.submit(steps, nbytes, deferrable=are_owned(*shared_buffers.arrays))
                if plan.posts:
                    context.read_report_later(run, plan.min_timeout_seconds)
            else:
                encoder = context.queue.encoder()
                buffers.record_uploads(encoder, upload_sizes)
                encode(context, encoder, steps)
                buffers.record_readback(encoder, run.state, read_sizes)
                context.queue.submit(encoder)
            for sink, memory in temporaries:
                sink.finish(part, memory)
        if buffers is not None:
            buffers.map_for_reading(read_sizes)
            if not part.last:
                buffers.map_for_writing()

    @staticmethod
    def _bind_sources(
        job: Job, part: Part, buffers: PartBuffers | None
    ) -> tuple[list[Binding], list[int], list[object]]:
        """Return what the shader reads, the bytes of each upload, and what has to stay alive until the submission.

        Elements in the CPU's memory are written to the part's buffers.
        """
        bindings: list[Binding] = []
        sizes: list[int] = []
        kept: list[object] = []
        for source in job.sources:
            if isinstance(source, DeviceSource):
                binding, alive = source.binding(part)
                kept.append(alive)
            else:
                assert buffers is not None
                number, nbytes = len(sizes), part.length * source.element_bytes
                buffers.write(number, nbytes, lambda memory, s=source: s.fill(part, memory))  # type: ignore[misc]
                binding = buffers.source(number, nbytes)
                sizes.append(nbytes)
            bindings.append(binding)
        return bindings, sizes, kept

    @staticmethod
    def _bind_sinks(
        job: Job, part: Part, buffers: PartBuffers | None, sources: list[Binding]
    ) -> tuple[list[Binding], list[int], list[tuple[DeviceSink, DeviceArray]]]:
        """Return what the shader writes, the bytes of each read-back, and the temporary arrays that sinks copy from."""
        bindings: list[Binding] = []
        sizes: list[int] = []
        temporaries: list[tuple[DeviceSink, DeviceArray]] = []
        if job.placement is not None and job.placement.in_place:
            return sources, sizes, temporaries
        for sink in job.sinks:
            if isinstance(sink, DeviceSink):
                binding, temporary = sink.binding(part)
                if temporary is not None:
                    temporaries.append((sink, temporary))
            else:
                assert buffers is not None
                nbytes = part.results * sink.element_bytes
                binding = buffers.result(len(sizes), nbytes)
                sizes.append(nbytes)
            bindings.append(binding)
        return bindings, sizes, temporaries

    def _finish_oldest(
        self, job: Job, shared_buffers: SharedBuffers, in_flight: deque[Flight], write_backs: WriteBacks
    ) -> None:
        """Wait for the oldest part and begin to write it back. If it failed, run it and the later parts again."""
        while True:
            flight = in_flight[0]
            if flight.buffers is None:
                break
            outcome = self._outcome(flight)
            if outcome is Outcome.DONE:
                break
            for other in list(in_flight)[1:]:
                if other.buffers is not None:
                    other.buffers.wait()
                    other.buffers.unmap()
            flight.buffers.unmap()
            assert flight.run is not None
            repeated = [each.run for each in in_flight]
            pending = self.context.run_log.pending
            pending[:] = [run for run in pending if not any(run is each for each in repeated)]
            self._react(job, flight.run, outcome)
            for each in in_flight:
                self._submit_part(job, shared_buffers, each)
        in_flight.popleft()
        write_backs.begin(
            flight, lambda: self._write_back(job, flight), alone=flight.part.last or not job.writes_back_apart
        )

    @staticmethod
    def _write_back(job: Job, flight: Flight) -> None:
        """Write the results of a part where they belong."""
        if flight.buffers is None:
            return
        part, read = flight.part, 0
        for sink in job.sinks:
            if not isinstance(sink, DeviceSink):
                sink.write_back(part, flight.buffers.read(read, part.results * sink.element_bytes))
                read += 1

    def _outcome(self, flight: Flight) -> Outcome:
        assert flight.buffers is not None
        assert flight.run is not None
        report = flight.buffers.wait()
        plan = flight.run.plan
        outcome = flight.run.outcome(report) if plan.reports else Outcome.DONE
        if outcome is Outcome.DONE:
            self.context.run_log.note(plan, outcome)
        return outcome

    def _react(self, job: Job, run: Run, outcome: Outcome) -> None:
        """React to a run that failed, so that the job's next plan is another one.

        Raises:
            OperatorError: a loop of the operator did not end.
            ProgressTimeoutError: the strategy timed out and was asked for by name.
        """
        self.context.run_log.note(run.plan, outcome)
        if outcome is Outcome.LOOP_LIMIT:
            raise loop_limit_error(run.plan)
        if outcome is Outcome.TIMEOUT:
            in_place = job.placement is not None and job.placement.in_place
            handle_timeout(self.context, run.plan.strategy, job.strategy, job.failed, may_try_again=not in_place)

    # ----- Reports

    def needs_report(self, plan: ScanPlan) -> bool:
        """Return True if a run of the plan can fail in a way that a caller has to wait for.

        These are timeouts, unless the vendor's workgroups are known to make progress and none has timed out lately; a
        wrong size of subgroups, until a report has shown the planned one; and loops in a user's WGSL.
        """
        return plan.loops or not self.context.run_log.is_verified(plan) or self.may_time_out(plan)

    def may_time_out(self, plan: ScanPlan) -> bool:
        """Return True if a tile of the plan may wait longer than its bound."""
        return plan.posts and self.context.may_time_out(plan.strategy)


# ----- Writing results back
#
# Write results to the CPU's arrays on another thread, while the thread of the call fills the next part.


@cache
def _threads() -> ThreadPoolExecutor:
    """Return the threads that write results, which all devices share."""
    return ThreadPoolExecutor(TRANSFERS.max_write_backs, thread_name_prefix="gpuscan-write-back")


if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_threads.cache_clear)


class WriteBacks:
    """The parts of one call with results that are being written, oldest first."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Flight, Future[None]]] = deque()

    def begin(self, flight: Flight, write_back: Callable[[], None], *, alone: bool) -> None:
        """Write the results of a part on another thread, or on this one if it has nothing else to do (`alone`)."""
        if alone:
            done: Future[None] = Future()
            write_back()
            done.set_result(None)
            self._under_way.append((flight, done))
        else:
            # The thread keeps what it called for a moment after the result is set, so it must not keep the part alive.
            todo = [write_back]
            with defer_interrupts():
                self._under_way.append((flight, start_call(_threads(), lambda: todo.pop()())))

    def await_flights(self, most: int) -> Iterator[Flight]:
        """Wait until at most `most` parts are being written, and yield the parts that are done."""
        while self._under_way and (len(self._under_way) > most or self._under_way[0][1].done()):
            flight, future = self._under_way[0]
            future.result()
            self._under_way.popleft()
            yield flight

    def close(self) -> None:
        """Wait for all parts, also after an error or an interrupt, because the memory that they read is freed next."""
        futures = [future for _, future in self._under_way]
        while not all(future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)


# ----- Plans that are kept


class Planner:
    """The plans and the layouts of one device's scans."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._plans: RecentValues[tuple[object, ...], ScanPlan] = RecentValues(_MAX_PLANS)
        self._layouts: RecentValues[tuple[object, ...], Layout] = RecentValues(_MAX_PLANS)

    def plan(
        self, spec: ScanSpec, strategy: str, *, without: tuple[str, ...] = (), **options: Unpack[PlacedOptions]
    ) -> ScanPlan:
        """Return the plan for a scan, and keep it for later calls with the same specification.

        Args:
            strategy: as in `gpuscan.scan`; ``"auto"`` also looks at the number of tiles.
            without: strategies that timed out in this call, which ``"auto"`` leaves out.
            options: further arguments of `plan_scan`.
        """
        context = self._context
        if context.has_sizes and has_size((spec.rows, spec.row_length, spec.inner)):
            # A recorded program takes the place of the plan.
            return self._new_plan(spec, strategy, without, options)
        context.end_pauses()
        key = (spec, *strategy_key(strategy), context.capabilities.distrusted, without, *options.items())
        with context.lock:
            plan = self._plans.find(key)
            if plan is None or context.run_log.has_wrong_subgroup_size(plan):
                plan = self._plans.keep(key, self._new_plan(spec, strategy, without, options))
            return plan

    def _new_plan(self, spec: ScanSpec, strategy: str, without: tuple[str, ...], options: PlacedOptions) -> ScanPlan:
        context = self._context
        options = options.copy()
        chosen, reason = context.strategy(strategy, without=without)
        capabilities = context.capabilities_without(without)
        if options.get("tile") is None:
            subgroups, piece = options.get("subgroups", True), options.get("piece")
            options["tile"] = choose_tile(spec, context.capabilities, context.tuned, subgroups, piece)
        plan = plan_scan(spec, capabilities, chosen, reason, **options)
        better, why = context.strategy(strategy, plan.tiles, without)
        if plan.strategy == chosen != better:
            plan = plan_scan(spec, capabilities, better, why, **options)
        plan = self.bindable_plan(spec, plan, **options)
        if context.run_log.has_wrong_subgroup_size(plan):
            return self._new_plan(spec, strategy, without, options | {"subgroups": False, "tile": None})
        _log.debug("%s of %d elements by %s: %s", spec.operator_name, plan.length, plan.strategy, plan.reason)
        return plan

    def bindable_plan(self, spec: ScanSpec, plan: ScanPlan, **options: Unpack[PlacedOptions]) -> ScanPlan:
        """Return the plan, or a plan by ``three_dispatch`` if its tile state exceeds a binding."""
        limit = self._context.binding_limit
        if not plan.posts or plan.state_bytes <= limit:
            return plan
        reason = f"{plan.reason}; but its tile state of {plan.state_bytes} bytes exceeds the binding limit of {limit}"
        return plan_scan(spec, self._context.capabilities, "three_dispatch", reason, **options)

    def layout(self, layout_key: object | None, strategy: str, make: Callable[[], Layout]) -> Layout:
        """Return how scans with this layout key are cut and planned, from an earlier call where there was one.

        Args:
            layout_key: `Problem.cache_key`, and everything else that decides the layout; None to keep nothing.
            strategy: as in `gpuscan.scan`.
            make: makes the layout.
        """
        if layout_key is None:
            return make()
        context = self._context
        context.end_pauses()
        key = (layout_key, *strategy_key(strategy))
        with context.lock:
            layout = self._layouts.find(key)
            if layout is None or layout.capabilities is not context.capabilities:
                layout = self._layouts.keep(key, make())
            return layout
