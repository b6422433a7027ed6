"""The public `Plan`: one scan, compiled once and run many times, here or in a caller's own wgpu program."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Never, TypeVar, overload

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.groups import execute_groups, heads_of_groups, without_missing
from gpuscan.api.launches import Numbered, launchable
from gpuscan.api.numpy_calls import takes_numpy_on
from gpuscan.api.opened_device import OpenedDevice
from gpuscan.api.outputs import check_out, execute, in_form_of, is_on_device
from gpuscan.api.unknown_length_array import UnknownLengthArray
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.device.buffer_pool import ALIGNMENT
from gpuscan.device.caller_buffers import check_buffer, check_encoder, encoding
from gpuscan.device.device_array import DeviceArray, device_arrays_in, empty, upload_array
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import round_up
from gpuscan.engine.element_copy import copy_elements, duplicate, transpose_view
from gpuscan.engine.group_tables import TabledGroups, count_labels, plan_table
from gpuscan.engine.groups import SortedLabels, holds_missing, in_label_order, sort_labels
from gpuscan.engine.plan_steps import Buffers, Length, encode_plan, encode_submissions
from gpuscan.engine.preparation import check_elements, seed_words
from gpuscan.engine.segment_heads import segment_heads
from gpuscan.engine.subgroup_check import check_subgroup_size, sizes_vary
from gpuscan.errors import GpuscanError, StrategyError
from gpuscan.html_table import html_table
from gpuscan.planning.column_tiles import takes_vectors
from gpuscan.planning.kernel_parts import Placement
from gpuscan.planning.plan import ScanPlan, plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.problem.arguments import Leaf, as_array, native, structure_and_leaves
from gpuscan.problem.cache import find_or_make_problem
from gpuscan.problem.column_vectors import as_vectors
from gpuscan.problem.groups import check_labels, missing_error, missing_labels, number_labels, with_indices
from gpuscan.problem.log_sums import as_log_sums
from gpuscan.problem.packed_fields import STORAGE_LIMIT, binds_too_many
from gpuscan.problem.results import holds_arrays

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.context import DeviceContext
    from gpuscan.elements import Element, Structure
    from gpuscan.engine.job import PlacedOptions
    from gpuscan.planning.kernel import Kernel
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.problem.problem import Problem, ProblemOptions


# What a call of a plan writes to.
Target = TypeVar("Target")
# The options of a plan that stay on the device if they are there.
_CUTS = ("segments", "keys")


class Plan(Numbered):
    """A compiled scan for arrays of one shape and dtype on one device, made by `Device.plan`.

    Attributes:
        device, shape, dtype: the device, and the shape and dtype of the arrays to scan.
        strategy: the scan algorithm.
        reason: why this algorithm was chosen.
        wgsl: the WGSL text of each stage, by the stage's name.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> plan = gs.default_device().plan(3, np.float32, "maximum")
        >>> plan(np.array([2, 1, 4], np.float32))
        array([2., 2., 4.], dtype=float32)
    """

    def __init__(
        self,
        device: OpenedDevice,
        shape: tuple[int, ...],
        dtype: AnyDType,
        op: object,
        strategy: str,
        options: ProblemOptions,
        groups: object = None,
    ) -> None:
        self.device = device
        self.shape = shape
        self.dtype = dtype
        self._op = op
        self._asked = strategy
        context = device._context
        # An array of this shape that takes no memory.
        stand_in: AnyArray = np.ndarray(shape, dtype, np.zeros((), dtype), strides=(0,) * len(shape))
        for name, cut in (("segments", options["segments"]), ("keys", options["keys"]), ("groups", groups)):
            if isinstance(cut, Array) and cut.device is not device:
                raise ValueError(
                    f"{name} on {cut.device!r} were passed to a plan on {device!r}, but a scan runs where its arrays "
                    f"are; bring them there with device.asarray({name}.numpy())"
                )
        for name, option in options.items():
            if option is not None and type(option) is not bool:
                options[name] = copy_option(option, on_device=name in _CUTS)  # type: ignore[literal-required]
        self._problem = find_or_make_problem(stand_in, op, **options).drop_arrays()
        check_elements(context, self._problem)
        # Labels that are not in order: few, with the shape of their table, or sorted.
        self._labels: SortedLabels | TabledGroups | None = None
        # If labels are missing: a bool for each, or on the device the labels.
        self._missing: AnyArray | DeviceArray | None = None
        if groups is not None:
            self._cut_by(groups)
        if not self._problem.source.storage_bytes:
            raise GpuscanError(
                f"a plan for {dtype} of shape {shape} was asked for, but its elements have no numbers, so there is "
                "nothing to scan; gpuscan.scan returns such an array as it is"
            )
        limit = context.capabilities.limits[STORAGE_LIMIT]
        if self._labels is None and binds_too_many(self._problem, limit):
            raise GpuscanError(
                f"a plan from {len(self._problem.source.fields)} arrays to {len(self._problem.destination.fields)} was "
                f"asked for, but {context.capabilities.summary} binds {limit} buffers at most. Use trailing axes of "
                "the element for fields of one dtype, or gpuscan.scan, which packs them"
            )
        scanned = self._problem
        if isinstance(self._labels, TabledGroups):
            self._spec: ScanSpec = self._labels.spec
        else:
            scanned = as_log_sums(scanned)
            if self._labels is not None:
                scanned = in_label_order(with_indices(scanned), self._labels)
            elif takes_vectors(scanned, context.capabilities):
                scanned = as_vectors(scanned)
            self._spec = scan_spec(scanned, context.capabilities, captures=True)
        # The problem that the kernels of the plan solve.
        self._scanned = scanned
        with context.errors:
            self._make()
            for kernel in self._kernels:
                context.pipeline(kernel)

    @property
    def _kernels(self) -> tuple[Kernel, ...]:
        """The shaders of the stages."""
        if isinstance(self._labels, TabledGroups):
            return self._labels.table.kernels
        return tuple(stage.kernel for stage in self._plan.stages)

    def _cut_by(self, groups: object) -> None:
        """Keep the labels, or the heads of groups if the elements of each are neighbours already."""
        problem = self._problem
        labels = check_labels(groups, problem.shape, problem.axis)
        if problem.empty:
            return
        executor = self.device._executor
        if isinstance(labels, Array):
            self._missing = duplicate(labels) if holds_missing(executor, labels) else None
        else:
            self._missing = missing_labels(labels)
        if self._missing is not None and (error := missing_error(problem)) is not None:
            raise error
        heads = None
        if isinstance(labels, np.ndarray):
            labels = number_labels(labels)
            heads = heads_of_groups(problem, labels.copy())
        if heads is not None:
            self._problem = replace(problem, heads=heads).drop_arrays()
            return
        few = count_labels(executor, problem, copy_option(labels, on_device=True), reads=True)
        by_table = None if few is None else plan_table(executor, problem, few)
        self._labels = by_table or sort_labels(executor, problem, labels)

    def _make(self) -> None:
        """Plan by what is known about the device now."""
        self._capabilities = self.device.capabilities
        self._plan = self.device._executor.planner.plan(self._spec, self._asked, placement=Placement())
        self.strategy, self.reason = self._plan.strategy, self._plan.reason
        self._plans = {(self.strategy, Placement()): self._plan}

    def _keep_up(self) -> None:
        """Plan again if a strategy has timed out on the device, or if subgroups had another size."""
        wrong = self.device._context.run_log.has_wrong_subgroup_size(self._plan)
        if self.device.capabilities is not self._capabilities or wrong:
            self._make()

    def __repr__(self) -> str:
        return f"gpuscan.Plan({self._op!r}, {self.dtype} {self.shape}, {self.strategy} on {self.device!r})"

    def _repr_html_(self) -> str:
        if isinstance(self._labels, TabledGroups):
            table = self._labels.table
            how = {
                "sections": f"{table.rows * table.sections:,} of {table.section_length:,} elements, "
                f"{table.groups:,} labels",
                "stages": ", ".join(f"{kernel.stage} {table.workgroups(kernel)}" for kernel in table.kernels),
            }
        else:
            how = {
                "strategy": f"{self.strategy}: {self.reason}",
                "tiles": f"{self._plan.tiles:,} of {self._plan.tile.tile_size:,} elements",
                "stages": ", ".join(f"{stage.name} {stage.grid}" for stage in self._plan.stages),
            }
        rows = {"array": f"{self.dtype} {self.shape}", **how, "device": self.device.capabilities.summary}
        return html_table(f"Plan of {self._problem.operator.name}", rows.items())

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.Plan was to be pickled or copied, but it is compiled for a device of this process. Make one "
            "where it is needed, device.plan(...), and pass arrays on as NumPy's, array.numpy()"
        )

    @property
    def wgsl(self) -> dict[str, str]:
        """The WGSL text of each stage, by the stage's name."""
        return {kernel.stage: render_kernel(kernel) for kernel in self._kernels}

    @overload
    def __call__(self, array: object, out: None = None) -> Any: ...
    @overload
    def __call__(self, array: object, out: Target) -> Target: ...
    def __call__(self, array: object, out: object = None) -> object:
        """Return the scan of an array: a NumPy array for a NumPy array, a `gpuscan.Array` for a `gpuscan.Array`.

        Args:
            array: an array of the plan's shape and dtype.
            out: the array to write the result to, of the result's shape and dtype.

        Raises:
            ValueError, TypeError: the array or `out` has another shape or dtype, or is on another device.
        """
        return self._compute(array, out) if isinstance(array, Array) else self._compute(array, out, device=self.device)

    @takes_numpy_on(lambda device: device, "array")
    @launchable
    def _compute(self, array: object, out: object = None, *, device: OpenedDevice | None = None) -> object:
        del device  # where small arrays of NumPy are uploaded
        for own in self._own_arrays:
            # No one else can write to them.
            self.device._context.note_constant(own.buffer, own._owner)
        if isinstance(array, dict) or (isinstance(array, (tuple, list)) and holds_arrays(array)):
            raise TypeError(
                f"a {type(array).__name__} of arrays was passed to a plan, which takes one array of dtype "
                f"{self.dtype}. Pass a structured array, or the bundle to gpuscan.scan, which keeps what it compiled, "
                "or to Plan.record"
            )
        if not isinstance(array, Array):
            array = as_array(array)
        if array.shape != self.shape:
            raise ValueError(
                f"an array of shape {array.shape} was passed to a plan for shape {self.shape}; make another plan: "
                f"device.plan({array.shape}, ...)"
            )
        if array.dtype != self.dtype and array.dtype.newbyteorder("=") != self.dtype.newbyteorder("="):
            raise TypeError(
                f"an array of dtype {array.dtype} was passed to a plan for dtype {self.dtype}; convert it with .astype"
            )
        if isinstance(array, Array) and array.device is not self.device:
            raise ValueError(
                f"an array on {array.device!r} was passed to a plan on {self.device!r}, but a scan runs where its "
                "arrays are; make a plan on that device"
            )
        _, leaves = structure_and_leaves(array)
        problem = self._problem.with_leaves(tuple(native(leaf) for leaf in leaves))
        outputs = check_out(problem, out, self.device if is_on_device(problem) else None)
        written = outputs if self._missing is None else None
        if self._labels is None:
            results = execute(problem, self.device, self._asked, written)
        else:
            results = execute_groups(problem, self._labels, self.device, self._asked, written)
        if self._missing is not None:
            results = without_missing(problem, results, self._missing, self.device, outputs)
        self._keep_up()
        return in_form_of(problem, array, results) if out is None else out

    @property
    def _own_arrays(self) -> list[DeviceArray]:
        """The arrays on the device that the plan keeps: copies of the caller's, and sorted labels."""
        heads, labels = self._problem.heads, self._labels
        arrays: list[Leaf | None] = [*(self._problem.seeds or ())]
        if heads is not None:
            arrays.append(heads.cut.array)
        if labels is not None:
            arrays += labels.labels, labels.payload if isinstance(labels, SortedLabels) else None
        return [array for array in (*arrays, self._missing) if isinstance(array, DeviceArray)]

    # ----- Recording into a caller's program

    def record(self, encoder: wgpu.GPUCommandEncoder, src: object, dst: object, *, length: object = None) -> None:
        """Record the scan into a command encoder: ``dst = scan(src)`` when the GPU executes the commands.

        The encoder is not submitted, and nothing is read back. Like all commands of WebGPU, these can be submitted only
        once. No byte after the end of the results is written.

        With ``strategy="auto"``, the plan uses a strategy that cannot time out on this adapter. If a strategy that you
        named times out, the next `Device.synchronize` raises the error. If the driver chooses the size of subgroups for
        each shader, the first call for a shader runs one tile to learn the size.

        If the plan has ``reproducible="everywhere"`` and an axis that is not the last one, the commands bring the
        elements of each row together first. The plan keeps memory for a copy of the input and of the results.

        Args:
            encoder: an encoder of ``device.wgpu_device`` without an open pass.
            src: the input: a wgpu buffer of usage STORAGE, a pair ``(buffer, offset)``, or a `gpuscan.Array`; for a
                bundle, a dict, tuple or list with one of these for each field. Offsets are in bytes, and multiples of
                the limit "min-storage-buffer-offset-alignment".
            dst: the results, in the same forms. It may be equal to `src`, but must not overlap it otherwise.
            length: for 1-D plans, the number of elements to scan, as a 32-bit word on the device: a buffer, a pair
                ``(buffer, offset)``, or an array. The plan never scans more elements than its shape has.

        Raises:
            ValueError: a buffer is too small, not aligned, on another device, without the usage, or overlaps another;
                the buffer of an array is mapped or was destroyed (other buffers are checked only when the commands are
                submitted); a bundle has other fields than the plan; the plan cannot take its length from the GPU;
                `dst` is `src`, and reversed rows share words; or the encoder is finished or has an open pass. Dawn
                and wgpu 0.31 report an open pass only when the encoder is finished.
            TypeError: a buffer or the encoder has the wrong type, or an array has another dtype than the plan.
            StrategyError: the strategy that you named cannot scan in place.
            GpuscanError: the array is larger than one buffer binding of the device, or its columns share words; or the
                plan has groups, and their labels are not in ascending order.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> device = gs.default_device()
            >>> plan = device.plan(4, np.uint32)
            >>> x = device.asarray(np.array([1, 2, 3, 4], np.uint32))
            >>> encoder = device.wgpu_device.create_command_encoder()
            >>> plan.record(encoder, x, x)
            >>> device.wgpu_device.queue.submit([encoder.finish()])
            >>> x.numpy()
            array([ 1,  3,  6, 10], dtype=uint32)
        """
        context, problem = self.device._context, self._problem
        check_encoder(context.wgpu_device, encoder)
        if self._labels is not None or self._missing is not None:
            raise GpuscanError(
                f"a plan for {self.dtype} of shape {self.shape} with groups was to be recorded, but its labels are not "
                "ascending, or some are missing, so elements are moved or replaced before and after the scan. Call "
                "the plan, or sort the elements by label and record a plan with keys"
            )
        with context.errors, context.lock:
            self._keep_up()
            sources = find_buffers(context, problem, "src", src, problem.source)
            destinations = find_buffers(context, problem, "dst", dst, problem.destination)
            count = None if length is None else length_of(context, problem, length)
            placement, bindings = placement_of(problem, sources, destinations, dynamic=count is not None)
            if problem.empty:
                return
            rows = self._rows
            if rows is not None:
                placement, bindings = Placement(), [array._binding() for array in rows]
            plan = self._recordable_plan(placement)
            seeds, heads, captured = self._auxiliary
            buffers = Buffers(
                bindings[: len(sources)],
                bindings[len(sources) :],
                seeds=None if seeds is None else seeds._binding(),
                heads=None if heads is None else heads._binding(),
                captured=captured,
            )
            recorder = context.queue.encoder_over(encoder)
            with encoding(context.wgpu_device):
                if rows is not None:
                    with encode_submissions(context, recorder):
                        self._gather_rows(sources, rows[: len(sources)])
                run = encode_plan(context, plan, recorder, buffers, length=count)
                if rows is not None:
                    with encode_submissions(context, recorder):
                        self._scatter_rows(rows[len(sources) :], destinations)
            auxiliary = [array for array in (seeds, heads, *(rows or ())) if array is not None]
            for array in (*device_arrays_in((src, dst, length)), *auxiliary):
                array._keep_for_encoded_commands()
            if plan.posts or plan.loops or not context.run_log.is_verified(plan):
                context.run_log.add_encoded(run)

    @cached_property
    def _auxiliary(self) -> tuple[DeviceArray | None, DeviceArray | None, Binding | None]:
        """The seeds, the segment bits and the captured constants, which recorded runs read as well."""
        context, problem = self.device._context, self._scanned
        words = seed_words(problem, self._spec, context)
        seeds = None if words is None else upload_array(context, words)
        in_columns = self._spec.inner > 1
        heads = None if problem.heads is None else segment_heads(context, problem.heads, in_columns=in_columns)
        constants = self._spec.captured
        return seeds, heads, context.uniform(constants) if constants else None

    @cached_property
    def _rows(self) -> list[DeviceArray] | None:
        """Arrays for the input and the results with the elements of each row together; None if they are together."""
        problem = self._scanned
        if problem.inner == self._spec.inner:
            return None
        context, shape = self.device._context, (problem.rows, problem.row_length)
        fields = (*problem.source.fields, *problem.destination.fields)
        return [empty(context, (*shape, *f.shape), f.scalar.dtype) for f in fields]

    def _gather_rows(self, buffers: Sequence[BufferAndOffset], rows: Sequence[DeviceArray]) -> None:
        """Copy the input to arrays in which the elements of each row are together."""
        problem = self._scanned
        for (buffer, offset), array, field in zip(buffers, rows, problem.source.fields, strict=True):
            given = DeviceArray(array._context, buffer, array.shape, array.dtype, offset)
            copy_elements(transpose_view(given, problem.row_length, problem.inner, field.storage_bytes), array)

    def _scatter_rows(self, rows: Sequence[DeviceArray], buffers: Sequence[BufferAndOffset]) -> None:
        """Copy results in which the elements of each row are together to where they belong."""
        problem = self._scanned
        for (buffer, offset), array, field in zip(buffers, rows, problem.destination.fields, strict=True):
            result = DeviceArray(array._context, buffer, array.shape, array.dtype, offset)
            copy_elements(transpose_view(array, problem.inner, problem.row_length, field.storage_bytes), result)

    def _find_plan(self, strategy: str, placement: Placement) -> ScanPlan:
        plan = self._plans.get((strategy, placement))
        if plan is None:
            options: PlacedOptions = {"tile": self._plan.tile, "placement": placement}
            plan = plan_scan(self._spec, self.device.capabilities, strategy, self.reason, **options)
            plan = self.device._executor.planner.bindable_plan(self._spec, plan, **options)
            self._plans[strategy, placement] = plan
        return plan

    def _recordable_plan(self, placement: Placement) -> ScanPlan:
        """Return the plan to record, with a verified subgroup size: a recorded run cannot be repeated."""
        context = self.device._context
        strategy, plan = self._plan_that_ends(placement)
        self._check_in_place(plan)
        wrong = context.run_log.has_wrong_subgroup_size(plan)
        if wrong or (sizes_vary(context.capabilities) and not check_subgroup_size(context, plan)):
            options: PlacedOptions = {"placement": placement, "subgroups": False}
            plan = plan_scan(self._spec, context.capabilities, strategy, self.reason, **options)
            self._plans[strategy, placement] = plan
            self._check_in_place(plan)
        return plan

    def _check_in_place(self, plan: ScanPlan) -> None:
        kernel = plan.stages[-1].kernel
        if kernel.access.in_place and any(kernel.shares_words(field) for field in kernel.spec.destination.fields):
            raise ValueError(
                f"dst was passed as src, but parts of a scan of {self.dtype} of shape {self.shape} along axis "
                f"{self._problem.axis} share 32-bit words, so that it cannot be done in place. Record into another dst"
            )

    def _plan_that_ends(self, placement: Placement) -> tuple[str, ScanPlan]:
        """Return a strategy and its plan: one that cannot fail, unless the caller asked for another by name."""
        context = self.device._context
        chosen = context.strategy(self._asked, self._plan.tiles)[0]
        if placement.in_place and chosen == "fallback" and self._asked == "fallback":
            raise StrategyError(
                'strategy "fallback" was asked for with dst the same as src, but it may read a late tile again after '
                'the tile was overwritten. Use another dst, or a plan with strategy="auto"'
            )
        plan = self._find_plan(chosen, placement)
        if self._asked != "auto":
            return chosen, plan
        may_fail = chosen != "fallback" and self.device._executor.may_time_out(plan)
        if chosen != "three_dispatch" and (placement.in_place or may_fail):
            return "three_dispatch", self._find_plan("three_dispatch", placement)
        return chosen, plan


def copy_option(option: object, *, on_device: bool = False) -> Any:
    """Return an option of a plan as it is now, so that later changes of the caller's arrays do not matter.

    Args:
        on_device: True if an array on a device stays there.
    """
    if isinstance(option, Array):
        return duplicate(option) if on_device else option.numpy()
    if isinstance(option, tuple) and hasattr(option, "_fields"):
        return type(option)(*map(copy_option, option))
    if isinstance(option, (tuple, list)):
        return type(option)(map(copy_option, option))
    if isinstance(option, dict):
        return {key: copy_option(value) for key, value in option.items()}
    return option.copy() if isinstance(option, np.ndarray) else option


# ----- What a recorded plan reads and writes
#
# Check the buffers that a recorded plan reads and writes: buffers, pairs of buffer and offset, or arrays.


# A wgpu buffer, and the byte where an array begins in it.
BufferAndOffset = tuple["wgpu.GPUBuffer", int]


def find_buffers(
    context: DeviceContext, problem: Problem, name: str, given: object, element: Element
) -> list[BufferAndOffset]:
    """Return buffer and offset of each field's array.

    Raises:
        ValueError, TypeError, GpuscanError: as `Plan.record` raises them.
    """
    capabilities = context.capabilities
    alignment, limit = context.offset_alignment, context.binding_limit
    buffers = []
    for value, field in zip(by_field(name, given, element), element.fields, strict=True):
        buffer, offset = find_buffer(value, name)
        if not isinstance(value, Array) or value._owner is None or value._context is not context:
            check_buffer(context.wgpu_device, buffer, name)
        if isinstance(value, Array):
            if value._dtype != field.scalar.dtype:
                raise TypeError(f"{name} is an array of dtype {value.dtype}; the plan has {field.scalar.dtype} there")
            value._check()
            if value._strides is not None:
                raise ValueError(
                    f"{name} is a view of shape {value.shape} and strides {value.strides}; a recorded plan reads and "
                    "writes contiguous arrays. Pass one, such as array.copy()"
                )
        nbytes = problem.size * field.storage_bytes
        if offset < 0 or offset % alignment:
            raise ValueError(
                f"{name} was passed at byte {offset} of its buffer, but {capabilities.summary} binds at multiples of "
                f"{alignment}. Move it to such a byte"
            )
        if nbytes > limit:
            raise GpuscanError(
                f"{name} has {nbytes} bytes; {capabilities.summary} binds at most {limit}. Record it in pieces, or "
                "pass the array to gpuscan.scan, which does"
            )
        if isinstance(value, Array) and extent(value) < nbytes:
            raise ValueError(
                f"{name} is an array of {value.nbytes} bytes; the plan for shape {problem.shape} needs {nbytes}. Pass "
                "one that holds the whole shape, also with length="
            )
        if offset + round_up(nbytes) > buffer.size:
            raise ValueError(
                f"{name} needs {round_up(nbytes)} bytes, whole words, from byte {offset} on; "
                f"its buffer has {buffer.size}"
            )
        buffers.append((buffer, offset))
    return buffers


def length_of(context: DeviceContext, problem: Problem, given: object) -> Length:
    """Return where the length is that the GPU knows.

    Raises:
        ValueError, TypeError: as `Plan.record` raises them.
    """
    narrow = any(f.storage_bytes % 4 for f in (*problem.source.fields, *problem.destination.fields))
    if problem.segmented or (problem.reverse and narrow):
        raise ValueError(
            "length= was passed to a plan of several rows or segments, or of a reversed scan of 8- or 16-bit "
            "elements; it is for 1-D plans, and reversed ones of 32-bit elements or wider. Record a plan of the "
            "length itself"
        )
    buffer, offset = find_buffer(given, "length")
    if isinstance(given, Array):
        given._check()
        if given.dtype not in (np.uint32, np.int32):
            raise TypeError(f"length= is a 32-bit word; an array of {given.dtype} was passed. Pass a uint32")
        if given.nbytes < 4:
            raise ValueError("length= is a 32-bit word; an array of 0 bytes was passed. Pass a uint32")
    check_buffer(context.wgpu_device, buffer, "length")
    if offset < 0 or offset % 4 or offset + 4 > buffer.size:
        raise ValueError(
            f"length= was passed at byte {offset} of a buffer of {buffer.size} bytes; it must be a 32-bit word in the "
            "buffer, at a multiple of 4 bytes"
        )
    return Length(buffer, offset)


def placement_of(
    problem: Problem, sources: list[BufferAndOffset], destinations: list[BufferAndOffset], *, dynamic: bool
) -> tuple[Placement, list[Binding]]:
    """Return how the arrays share buffers and how wide accesses may be, and the bindings.

    Args:
        problem: the scan to record.
        sources, destinations: the checked buffers and offsets.
        dynamic: True if only the GPU knows the length.

    Raises:
        ValueError: as `Plan.record` raises it.
    """
    fields = (*problem.source.fields, *problem.destination.fields)
    width, exact = ALIGNMENT // 4, False
    for number, ((buffer, offset), field) in enumerate(zip((*sources, *destinations), fields, strict=True)):
        nbytes, capacity = problem.size * field.storage_bytes, buffer.size - offset
        stored = number >= len(sources)
        while width > 1 and (
            -(-nbytes // (4 * width)) * 4 * width > capacity
            or (stored and (field.storage_bytes if dynamic else nbytes) % (4 * width))
        ):
            width //= 2
        exact = exact or (stored and (field.storage_bytes if dynamic else nbytes) % 4 != 0)
    if exact and problem.reverse:
        raise ValueError(
            f"a reversed scan of {problem.size} elements of {problem.source.fields[0].scalar.dtype} was to be "
            "recorded, but they end inside a 32-bit word. Record plans of whole words, or pass the array to "
            "gpuscan.scan"
        )
    bindings = [
        Binding(buffer, offset, max(4, round_up(problem.size * field.storage_bytes, 4 * width)))
        for (buffer, offset), field in zip((*sources, *destinations), fields, strict=True)
    ]
    before, after = bindings[: len(sources)], bindings[len(sources) :]
    in_place = problem.source.fields == problem.destination.fields and sources == destinations
    shares_buffers = not in_place and not {id(a.buffer) for a in before}.isdisjoint([id(b.buffer) for b in after])
    if shares_buffers and any(a.overlaps(b) for a in before for b in after):
        raise ValueError(
            "dst was passed where it overlaps src in one buffer; pass the same buffer and offset for both, or ranges "
            "that do not overlap"
        )
    if len(after) > 1 and any(a.overlaps(b) for number, a in enumerate(after) for b in after[:number]):
        raise ValueError("two fields of dst overlap in one buffer; pass ranges that do not overlap")
    return Placement(width=width, exact=exact, shared=shares_buffers, in_place=in_place), bindings


def by_field(name: str, given: object, element: Element) -> list[object]:
    """Return the buffer for each field of a bundle: by key if they were passed as a dict, else in order.

    Raises:
        TypeError: the buffers are not a bundle.
        ValueError: they have other fields.
    """
    count = len(element.fields)
    if isinstance(given, (tuple, list)) and len(given) == count and element.structure.container != "leaf":
        return list(given)
    return [given] if count == 1 and not isinstance(given, dict) else flatten_arguments(name, given, element.structure)


def flatten_arguments(name: str, given: object, structure: Structure) -> list[object]:
    """Return the buffers for the leaves of the structure. A leaf may be a pair, so it is not taken apart."""
    if structure.container == "leaf":
        return [given]
    keys = ", ".join(map(repr, structure.keys))
    if isinstance(given, dict):
        if set(given) != set(structure.keys):
            raise ValueError(
                f"{name} has the keys {', '.join(map(repr, given))}; the plan takes a buffer for each of {keys}"
            )
        parts = [given[key] for key in structure.keys]
    elif isinstance(given, (tuple, list)):
        if len(given) != len(structure.keys):
            raise ValueError(f"{name} has {len(given)} buffers; the plan takes one for each of the fields {keys}")
        parts = list(given)
    else:
        raise TypeError(
            f"{name} was {type(given).__name__}; the plan takes a dict, tuple or list with a buffer for each of the "
            f"fields {keys}"
        )
    return [
        leaf
        for child, part in zip(structure.children, parts, strict=True)
        for leaf in flatten_arguments(name, part, child)
    ]


def find_buffer(value: object, name: str) -> BufferAndOffset:
    """Return buffer and offset, given a buffer, a pair of both, or an array."""
    if isinstance(value, Array):
        return value.buffer, value.offset
    if isinstance(value, tuple):
        if len(value) != 2 or not hasattr(value[1], "__index__"):
            raise TypeError(f"{name} {value!r} was passed; pass a buffer, an array, or (buffer, offset in bytes)")
        return value[0], operator.index(value[1])
    return value, 0


def extent(array: Array) -> int:
    """Return the bytes of the array; if only the GPU knows its length, the bytes of its longest form."""
    if isinstance(array, UnknownLengthArray) and array._owner is not None:
        return array._owner.nbytes
    return int(array.nbytes)
