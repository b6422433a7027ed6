"""A plan that users hold: one kind of scan, compiled once, run many times, here or in a program of the user's own."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.compact import Picked
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device.bind_groups import Binding
from gpuscan.device.buffer_pool import ALIGNMENT, Allocation
from gpuscan.device.foreign_buffers import check_buffer, check_encoder, recording
from gpuscan.device.guards import guarded
from gpuscan.device.submission import submit
from gpuscan.device.transfer import padded
from gpuscan.engine.attempts import bindable, plan_for, retry, unfit
from gpuscan.engine.device_arrays import fits_whole, may_wait_in_vain, parts, settle
from gpuscan.engine.host_arrays import check_dtypes, seed_words, work_of
from gpuscan.engine.record import Length, Run, record
from gpuscan.engine.segment_heads import mark
from gpuscan.engine.subgroup_check import proves, sizes_vary, unproven
from gpuscan.errors import GpuscanError, StrategyError
from gpuscan.planning.kernel_parts import Placement
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.problem.field_packing import STORAGE_LIMIT, binds_too_many
from gpuscan.problem.problem import pose

if TYPE_CHECKING:
    import wgpu

    from gpuscan.api.device import Device
    from gpuscan.elements import Element, Structure

RECORDED_MOST = 256  # runs whose reports are looked at, whenever they are submitted
STATES_MOST = 8  # buffers that those reports lie in; a new one comes where a larger one is wanted, or memory was freed
Place = tuple[Any, int]  # a wgpu buffer, and where in it, in bytes


class Plan:
    """One kind of scan on one device: made by `Device.plan`.

    Attributes:
        strategy: how a tile learns its prefix.
        reason: why this strategy.
        wgsl: the WGSL text of each stage, by the stage's name.
    """

    def __init__(
        self,
        device: Device,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        op: Any,
        strategy: str,
        options: dict[str, Any],
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self._op = op
        self._options = options = {name: copied(option) for name, option in options.items()}
        self._asked = strategy
        self._held: list[Array] = []  # that runs read beside the caller's
        stand_in = np.broadcast_to(np.zeros((), self.dtype), shape)
        self._problem = pose(stand_in, op, **options)
        # Maps as they were traced: a call that goes by `scan` gives what the others give.
        self._options |= {"before": self._problem.before, "after": self._problem.after}
        check_dtypes(device, self._problem.source, self._problem.element, self._problem.destination)
        if not self._problem.source.storage_bytes:
            raise GpuscanError(
                f"a plan for {self.dtype} of shape {self.shape} was asked for, whose elements have no numbers; "
                "gpuscan.scan gives such an array back"
            )
        if binds_too_many(device, self._problem):
            raise GpuscanError(
                f"a plan from {len(self._problem.source.fields)} arrays to {len(self._problem.destination.fields)} was "
                f"asked for; {device.capabilities.summary} binds {device.capabilities.limits[STORAGE_LIMIT]} buffers "
                "at most. Use trailing axes of the element for fields of one dtype, or gpuscan.scan, which packs them"
            )
        self._work = work_of(device, self._problem)
        with guarded(device):
            self._make()
            for stage in self._plan.stages:
                device.pipeline(stage.kernel)

    def _make(self) -> None:
        """Plan by what is known of the device now."""
        self._capabilities = self.device.capabilities
        self._plan = plan_for(self.device, self._work, self._asked, placement=Placement())
        self.strategy, self.reason = self._plan.strategy, self._plan.reason
        self._plans = {(self.strategy, Placement()): self._plan}

    def _keep_up(self) -> None:
        """Plan anew where the device has come to distrust something since, or the size of subgroups was another."""
        if self.device.capabilities is not self._capabilities or unfit(self.device, self._plan):
            self._make()

    def __repr__(self) -> str:
        return f"gpuscan.Plan({self._op!r}, {self.dtype} {self.shape}, {self.strategy} on {self.device!r})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Plan is compiled for a device of this process and cannot be pickled or copied. Make one where "
            "it is needed, device.plan(...), and pass arrays on as NumPy's, array.numpy()"
        )

    @property
    def wgsl(self) -> dict[str, str]:
        return {stage.name: render_kernel(stage.kernel) for stage in self._plan.stages}

    # ----- Run

    def __call__(self, array: Any, out: Any = None) -> Any:
        """The scan of an array of the plan's shape and dtype: a `gpuscan.Array`'s stays on the device.

        Raises:
            ValueError, TypeError: the array has another shape or dtype.
        """
        if not isinstance(array, Array):
            array = np.asarray(array)
        if array.shape != self.shape:
            raise ValueError(f"an array of shape {array.shape} was passed to a plan for shape {self.shape}")
        if array.dtype != self.dtype and array.dtype.newbyteorder("=") != self.dtype.newbyteorder("="):
            raise TypeError(f"an array of dtype {array.dtype} was passed to a plan for dtype {self.dtype}")
        if isinstance(array, Array) and out is None and array.device is self.device:
            result = self._result
            if result is not None and fits_whole(array):
                return self._run(array, *result)
        from gpuscan.api.scan import scan

        return scan(array, self._op, out=out, device=self.device, strategy=self._asked, **self._options)

    @cached_property
    def _result(self) -> tuple[tuple[int, ...], np.dtype[Any], int] | None:
        """Shape, dtype and bytes of the one array that a call stores as it lies; None where it is not so."""
        problem, limit = self._problem, self.device.capabilities.limits["max-storage-buffer-binding-size"]
        one = len(problem.source.fields) == len(problem.destination.fields) == 1
        if not one or problem.axis != len(problem.shape) - 1 or problem.size == 0:
            return None
        (field,) = problem.destination.fields
        stored = problem.size * field.storage_bytes
        if max(stored, problem.size * problem.source.storage_bytes) > limit:
            return None
        return (*problem.shape, *field.shape), field.scalar.dtype, stored

    def _run(self, array: Array, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> Array:
        device = self.device
        with guarded(device), device.lock:
            array.check()
            self._keep_up()
            plan, again = self._plan, False
            owner = device.allocate(nbytes)
            result = Array(device, owner.buffer, shape, dtype, 0, owner)
            while True:
                encoder = device.wgpu_device.create_command_encoder()
                run = record(device, plan, encoder, parts([array]), parts([result]), self._seeds, beside=self._beside)
                submit(device.wgpu_device, encoder.finish())
                outcome = settle(device, [run])
                if outcome == "done":
                    return result
                retry(device, outcome, plan.strategy, self._asked)
                if outcome == "width" or again:
                    from gpuscan.api.scan import scan

                    return scan(array, self._op, device=device, strategy=self._asked, **self._options)  # type: ignore[no-any-return]
                again = True
                self._keep_up()
                plan = self._plan

    @cached_property
    def _seeds(self) -> Binding | None:
        words = seed_words(self.device, self._problem)
        if words is None:
            return None
        seeds = self.device.asarray(words)
        self._held.append(seeds)
        return Binding(seeds.buffer, 0, padded(seeds.nbytes, ALIGNMENT))

    @cached_property
    def _beside(self) -> dict[str, Binding]:
        if self._problem.heads is None:
            return {}
        marks = mark(self.device, self._problem.heads)
        self._held.append(marks)
        return {"heads": parts([marks])[0]}

    def _planned(self, strategy: str, placement: Placement) -> ScanPlan:
        key = (strategy, placement)
        if key not in self._plans:
            options: dict[str, Any] = {"tile": self._plan.tile, "placement": placement}
            plan = plan_scan(self._work, self.device.capabilities, strategy, self.reason, **options)
            self._plans[key] = bindable(self.device, self._work, plan, **options)
        return self._plans[key]

    def _fitting(self, strategy: str, placement: Placement) -> ScanPlan:
        """The plan to record: nobody does it again where subgroups have another size than it counts on."""
        device, plan = self.device, self._planned(strategy, placement)
        self._check_in_place(plan)
        if unfit(device, plan) or (sizes_vary(device.capabilities) and not proves(device, plan)):
            plan = plan_scan(
                self._work, device.capabilities, strategy, self.reason, placement=placement, subgroups=False
            )
            self._plans[strategy, placement] = plan
            self._check_in_place(plan)
        return plan

    def _check_in_place(self, plan: ScanPlan) -> None:
        kernel = plan.stages[-1].kernel
        if kernel.access.in_place and kernel.cleared:
            raise ValueError(
                f"dst is src, of reversed rows of {self._problem.row_length} elements of {self.dtype}, which share "
                "32-bit words; they cannot be scanned in place. Record into another dst"
            )

    # ----- In a program of the user's own

    def record(self, encoder: wgpu.GPUCommandEncoder, src: Any, dst: Any, *, length: Any = None) -> None:
        """Record the scan into a command encoder. Nothing of it is submitted, read back, or waited for.

        ``dst[i] = src[0] op … op src[i]``. Not a byte past the array's end is written. Under ``"auto"`` a strategy
        is taken that cannot give up on this adapter; what a strategy that was asked for by name reports is raised by
        the next `Device.synchronize`. The commands hold for one submission, as all of WebGPU's do. Where drivers choose
        the size of subgroups for each shader, the first `record` of a kind runs one tile of its own to learn it.

        Args:
            encoder: of ``device.wgpu_device``, with no pass open.
            src: where the array lies: a wgpu buffer of usage STORAGE, ``(buffer, offset)``, or a `gpuscan.Array`; of a
                bundle, a dict, tuple or list of one for each field. Offsets are multiples of the limit
                "min-storage-buffer-offset-alignment".
            dst: where to write, in the same forms. It may be `src`, but must not overlap it otherwise.
            length: where the number of elements lies that are to be scanned, a 32-bit word: a buffer, ``(buffer,
                offset)`` or an array. More than the plan's shape has are not. For 1-D plans.

        Raises:
            ValueError: a place is too small, off the alignment, of another device, without the usage, or overlaps;
                an array's buffer was destroyed or is mapped (a bare one may be, until the commands are submitted);
                a bundle has other fields than the plan's; the plan cannot take its length from the GPU; `dst` is `src`
                of reversed rows that share words; or the encoder is finished or has an open pass, which Dawn tells only
                where it is finished.
            TypeError: a place or the encoder is none, or an array has another dtype than the plan's.
            StrategyError: the strategy that was asked for cannot scan in place.
            GpuscanError: the array is larger than the device binds, or its columns share words.
        """
        device, problem = self.device, self._problem
        check_encoder(device.wgpu_device, encoder)
        if problem.inner > 1 and not problem.in_columns:
            raise GpuscanError(
                f"a plan for {self.dtype} of shape {self.shape} along axis {problem.axis} was to be recorded, where "
                "neighbours along the last axes share 32-bit words. Make those axes whole words, or call the plan, "
                "which brings rows together"
            )
        with guarded(device), device.lock:
            self._keep_up()
            sources = self._places("src", src, problem.source)
            destinations = self._places("dst", dst, problem.destination)
            count = None if length is None else self._length(length)
            placement, bound = self._placement(sources, destinations, dynamic=count is not None)
            if problem.empty:
                return  # nothing to write
            strategy = self._strategy_for(placement)
            plan = self._fitting(strategy, placement)
            sides = bound[: len(sources)], bound[len(sources) :], self._seeds
            beside = self._beside
            with recording(device.wgpu_device):
                run = record(device, plan, encoder, *sides, length=count, beside=beside)
            for array in (*arrays_in((src, dst, length)), *self._held):
                array.recorded()
            if plan.posts or plan.loops or unproven(device, plan):
                self._note(run)

    def _note(self, run: Run) -> None:
        """Have the run's report looked at from now on; what is looked at, and held for it, does not grow."""
        recorded = self.device.recorded
        grown = bool(recorded) and recorded[-1].state is not run.state
        recorded.append(run)
        del recorded[:-RECORDED_MOST]
        if grown:
            states = list({id(each.state): None for each in reversed(recorded)})[:STATES_MOST]
            recorded[:] = [each for each in recorded if id(each.state) in states]

    def _strategy_for(self, placement: Placement) -> str:
        chosen = self.device.strategy(self._asked, self._plan.tiles)[0]
        if placement.in_place and chosen == "fallback" and self._asked == "fallback":
            raise StrategyError(
                'strategy "fallback" was asked for with dst the same as src: it reads a late tile again, which may '
                'have been overwritten. Use another dst, or a plan with strategy="auto"'
            )
        if self._asked != "auto":
            return chosen
        plan = self._planned(chosen, placement)
        may_fail = plan.posts and chosen != "fallback" and may_wait_in_vain(self.device, plan)
        return "three_dispatch" if placement.in_place or may_fail else chosen

    def _places(self, name: str, given: Any, element: Element) -> list[Place]:
        """Buffer and offset of each field's array, checked."""
        capabilities = self.device.capabilities
        alignment = capabilities.limits["min-storage-buffer-offset-alignment"]
        limit = capabilities.limits["max-storage-buffer-binding-size"]
        places = []
        for value, field in zip(by_field(name, given, element), element.fields, strict=True):
            buffer, offset = place_of(value, name)
            check_buffer(self.device.wgpu_device, buffer, name)
            if isinstance(value, Array) and value.dtype != field.scalar.dtype:
                raise TypeError(f"{name} is an array of dtype {value.dtype}; the plan has {field.scalar.dtype} there")
            if isinstance(value, Array):
                value.check()
            nbytes = self._problem.size * field.storage_bytes
            if offset < 0 or offset % alignment:
                raise ValueError(
                    f"{name} begins at byte {offset}; {capabilities.summary} binds at multiples of {alignment}. Move it"
                )
            if nbytes > limit:
                raise GpuscanError(
                    f"{name} has {nbytes} bytes; {capabilities.summary} binds at most {limit}. Record it in pieces, or "
                    "pass the array to gpuscan.scan, which does"
                )
            if isinstance(value, Array) and extent(value) < nbytes:
                raise ValueError(
                    f"{name} is an array of {value.nbytes} bytes; the plan for shape {self.shape} needs {nbytes}. Pass "
                    "one that holds the whole shape, also with length="
                )
            if offset + padded(nbytes) > buffer.size:
                raise ValueError(
                    f"{name} needs {padded(nbytes)} bytes, whole words, from byte {offset} on; its buffer has "
                    f"{buffer.size}"
                )
            places.append((buffer, offset))
        return places

    def _length(self, given: Any) -> Length:
        problem = self._problem
        narrow = any(f.storage_bytes % 4 for f in (*problem.source.fields, *problem.destination.fields))
        if problem.segmented or (problem.reverse and narrow):
            raise ValueError(
                "length= was passed to a plan of several rows or segments, or of a reversed scan of 8- or 16-bit "
                "elements; it is for 1-D plans, and reversed ones of 32-bit elements or wider. Record a plan of the "
                "length itself"
            )
        buffer, offset = place_of(given, "length")
        if isinstance(given, Array):
            given.check()
            if given.dtype not in (np.uint32, np.int32):
                raise TypeError(f"length= is a 32-bit word; an array of {given.dtype} was passed. Pass a uint32")
            if given.nbytes < 4:
                raise ValueError("length= is a 32-bit word; an array of 0 bytes was passed. Pass a uint32")
        check_buffer(self.device.wgpu_device, buffer, "length")
        if offset < 0 or offset % 4 or offset + 4 > buffer.size:
            raise ValueError(f"length= is a 32-bit word at byte {offset} of a buffer of {buffer.size}: it lies off it")
        return Length(buffer, offset)

    def _placement(
        self, sources: list[Place], destinations: list[Place], *, dynamic: bool
    ) -> tuple[Placement, list[Binding]]:
        """How wide the accesses may be, and the bindings."""
        problem = self._problem
        fields = (*problem.source.fields, *problem.destination.fields)
        width, exact = ALIGNMENT // 4, False
        for number, ((buffer, offset), field) in enumerate(zip((*sources, *destinations), fields, strict=True)):
            nbytes = problem.size * field.storage_bytes
            stored = number >= len(sources)
            while width > 1 and (
                offset + padded(nbytes, 4 * width) > buffer.size
                or (stored and (field.storage_bytes if dynamic else nbytes) % (4 * width))
            ):
                width //= 2
            exact = exact or (stored and (field.storage_bytes if dynamic else nbytes) % 4 != 0)
        if exact and problem.reverse:
            raise ValueError(
                f"a reversed scan of {problem.size} elements of {self.dtype} was asked for, which end within a 32-bit "
                "word; record plans of whole words, or pass the array to gpuscan.scan"
            )
        bindings = [
            Binding(buffer, offset, max(4, padded(problem.size * field.storage_bytes, 4 * width)))
            for (buffer, offset), field in zip((*sources, *destinations), fields, strict=True)
        ]
        before, after = bindings[: len(sources)], bindings[len(sources) :]
        in_place = problem.source.fields == problem.destination.fields and all(
            a.buffer is b.buffer and a.offset == b.offset for a, b in zip(before, after, strict=True)
        )
        shared = not in_place and any(a.buffer is b.buffer for a in before for b in after)
        if shared and any(overlap(a, b) for a in before for b in after):
            raise ValueError("dst overlaps src in one buffer; they must be the same or lie apart")
        if any(overlap(a, b) for number, a in enumerate(after) for b in after[:number]):
            raise ValueError("two fields of dst overlap in one buffer; they must lie apart")
        return Placement(width=width, exact=exact, shared=shared, in_place=in_place), bindings


def by_field(name: str, given: Any, element: Element) -> list[Any]:
    """What was given for each field of a bundle, by its keys where that is a dict, else in order.

    Raises:
        TypeError: it is no bundle.
        ValueError: it has other fields.
    """
    count = len(element.fields)
    in_order = isinstance(given, (tuple, list)) and len(given) == count
    if in_order and element.structure.kind != "leaf":
        return list(given)
    return [given] if count == 1 and not isinstance(given, dict) else nested(name, given, element.structure)


def nested(name: str, given: Any, structure: Structure) -> list[Any]:
    """The leaves of what nests as the structure does; a place may be a pair, so that what is a leaf is not opened."""
    if structure.kind == "leaf":
        return [given]
    keys = ", ".join(map(repr, structure.keys))
    if isinstance(given, dict):
        if set(given) != set(structure.keys):
            raise ValueError(
                f"{name} has the keys {', '.join(map(repr, given))}; the plan takes one place for each of {keys}"
            )
        parts = [given[key] for key in structure.keys]
    elif isinstance(given, (tuple, list)):
        if len(given) != len(structure.keys):
            raise ValueError(f"{name} has {len(given)} places; the plan takes one for each of the fields {keys}")
        parts = list(given)
    else:
        raise TypeError(
            f"{name} was {type(given).__name__}; the plan takes a dict, tuple or list with a place for each of the "
            f"fields {keys}"
        )
    return [leaf for child, part in zip(structure.children, parts, strict=True) for leaf in nested(name, part, child)]


def place_of(value: Any, name: str) -> Place:
    """The buffer and offset of a buffer, a pair of both, or an array."""
    if isinstance(value, Array):
        return value.buffer, value.offset
    if isinstance(value, tuple):
        if len(value) != 2 or not hasattr(value[1], "__index__"):
            raise TypeError(f"{name} {value!r} was passed; a place in a buffer is (buffer, offset in bytes)")
        return value[0], operator.index(value[1])
    return value, 0


def extent(array: Array) -> int:
    """The bytes that are the array's; of one whose length only the GPU knows, those of the longest it can be."""
    if isinstance(array, Picked) and isinstance(array._owner, Allocation):
        return array._owner.nbytes
    return int(array.nbytes)


def arrays_in(places: Any) -> Iterator[Array]:
    """The arrays among places, however they nest."""
    if isinstance(places, Array):
        yield places
    elif isinstance(places, (tuple, list, dict)):
        for place in places.values() if isinstance(places, dict) else places:
            yield from arrays_in(place)


def copied(option: Any) -> Any:
    """An option of a plan as it is now, whatever the caller does with its arrays later."""
    if isinstance(option, Array):
        return option.numpy()
    if isinstance(option, tuple) and hasattr(option, "_fields"):
        return type(option)(*map(copied, option))
    if isinstance(option, (tuple, list)):
        return type(option)(map(copied, option))
    if isinstance(option, dict):
        return {key: copied(value) for key, value in option.items()}
    return option.copy() if isinstance(option, np.ndarray) else option


def overlap(a: Binding, b: Binding) -> bool:
    """Whether two parts share bytes."""
    if a.buffer is not b.buffer or a.size is None or b.size is None:
        return False
    return a.offset < b.offset + b.size and b.offset < a.offset + a.size
