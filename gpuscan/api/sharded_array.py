"""Arrays that stay on several devices between calls, and the scans and reductions of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Any, Never, Unpack

import numpy as np

from gpuscan.api.array import Array, SomeArray
from gpuscan.api.call_device import Devices, Distributed, WholeArray, resolve_devices
from gpuscan.api.device import Device
from gpuscan.api.outputs import check_out_array, check_separate
from gpuscan.api.reduce import reduce
from gpuscan.api.reduced_axes import ReducedAxes, find_axes
from gpuscan.api.reductions import of_segments
from gpuscan.api.scan import scan
from gpuscan.api.shard_problems import (
    are_divided_alike,
    cut_shards,
    edges_of,
    in_order,
    make_shard_problems,
    shards_of,
    whole_shape,
    without_elements,
)
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray
from gpuscan.engine.executor_group import naming, relative_speeds
from gpuscan.engine.shards import reduce_segments, reduce_shards, scan_apart, scan_shards
from gpuscan.errors import abbreviate
from gpuscan.operators.named_operators import resolve
from gpuscan.operators.traced_array import name_of_function
from gpuscan.planning.partition import cut_into_shards
from gpuscan.planning.strategies import check_strategy, strategy_asked_for
from gpuscan.problem.arguments import as_array, as_flag, as_input_array, check_one_cut, fields_of, resolve_axis
from gpuscan.problem.problem import Problem, ProblemOptions, ReductionOptions
from gpuscan.problem.problem_parts import slice_heads
from gpuscan.problem.results import assemble_arrays, over_arrays, parts_of
from gpuscan.problem.segments import Offsets, heads_of
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from gpuscan.api.annotations import AnyReduction, EveryScan, Operation


class ShardedArray(np.lib.mixins.NDArrayOperatorsMixin, Distributed):
    """An array that is divided along an axis into shards on several devices. `ShardedArray.from_numpy` makes one.

    `gpuscan.scan` and `gpuscan.reduce` take it, also in bundles of arrays that are divided in the same way. The
    elements stay on their devices. Only the combination of all elements before a shard, one element for each row,
    passes through the CPU. With ``reproducible="everywhere"``, all elements pass through the CPU to the first device.

    Attributes:
        shape, dtype, nbytes, ndim: as NumPy defines them.
        axis: the axis that is divided.
        shards: the shards in order, each a `gpuscan.Array`. The first device may have two: the first and the last.
        devices: the devices, each once.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = gs.ShardedArray.from_numpy(np.arange(6, dtype=np.int32), [gs.default_device()])
        >>> gs.scan(x).numpy()
        array([ 0,  1,  3,  6, 10, 15], dtype=int32)
        >>> int(gs.reduce(x, "maximum"))
        5
    """

    def __init__(self, shards: tuple[Array, ...], axis: int) -> None:
        self.shards, self.axis = shards, axis
        self.nbytes, length, devices = 0, 0, {}
        for shard in shards:
            self.nbytes += shard.nbytes
            length += shard.shape[axis]
            devices[id(shard.device)] = shard.device
        shape = shards[0].shape
        self.shape = (*shape[:axis], length, *shape[axis + 1 :])
        self.ndim, self.dtype = len(shape), shards[0].dtype
        self.devices = tuple(devices.values())
        self.whole = WholeArray(self.shape, self.dtype)

    @classmethod
    def from_numpy(cls, x: object, devices: Devices, axis: int = 0) -> ShardedArray:
        """Divide an array along an axis, and copy each shard to a device.

        The lengths of the shards are in proportion to the speeds of the devices. An axis of 2^24 elements or more is
        divided for scans along it: the first device gets the first shard and the last one, so that all devices finish
        at the same time; see docs/scaling.md. Shorter axes have one shard for each device. Arrays of equal length on
        the same devices are divided at the same indices.

        Args:
            x: anything `np.asarray` takes, with at least one axis.
            devices: a list of devices, as for the `device` of `gpuscan.scan`.
            axis: the axis to divide.

        Raises:
            ValueError: the axis is out of range, or the list is empty or names a device twice.
            AdapterNotFoundError, UnsupportedDtypeError, DeviceMemoryError: of any device.

        Example:
            >>> import numpy as np
            >>> import gpuscan as gs
            >>> x = gs.ShardedArray.from_numpy(np.ones((4, 2), np.float32), [gs.default_device()], axis=1)
            >>> [shard.shape for shard in x.shards]
            [(4, 2)]
        """
        array = as_input_array(x)
        resolved = resolve_devices(devices if isinstance(devices, (list, tuple)) else [devices], "devices")
        axis = resolve_axis(axis, array.shape)
        parts = cut_into_shards(array.shape[axis], relative_speeds([device._executor for device in resolved]))
        ranges = [(part.device, part.start, part.stop) for part in parts]
        return _divide(array, resolved, axis, ranges or [(0, 0, array.shape[axis])])

    def scan(self, op: Operation = "add", **options: Unpack[EveryScan]) -> Any:
        """Return ``gpuscan.scan(self, op, **options)``."""
        return scan(self, op, **options)

    def reduce(self, op: Operation = "add", **options: Unpack[AnyReduction]) -> Any:
        """Return ``gpuscan.reduce(self, op, **options)``."""
        return reduce(self, op, **options)

    def _scan_bundle(
        self,
        x: object,
        op: Operation,
        options: ProblemOptions,
        *,
        out: object,
        compensated: object,
        return_total: object,
        strategy: str,
        refused: Mapping[str, object],
    ) -> object:
        """Return the scan of a bundle of sharded arrays, divided as they are.

        Args:
            x, op, out, compensated, return_total, strategy: as in `gpuscan.scan`.
            options: the other options of `gpuscan.scan`.
            refused: options that sharded arrays do not take.

        Raises:
            TypeError: an option was passed that sharded arrays do not take.
            ValueError, GpuscanError: as `gpuscan.scan`.
        """
        _refuse(refused)
        check_strategy(strategy)
        check_one_cut(segments=options["segments"], keys=options["keys"])
        # Shards are on several devices, so all of them get offsets from the CPU.
        segments = None if options["segments"] is None else as_array(options["segments"])
        pairs, with_total = as_flag("compensated", compensated), as_flag("return_total", return_total)
        leaves = find_sharded_leaves(x)
        first = leaves[0]
        uncut = options.copy()
        del uncut["segments"], uncut["keys"]
        problems = make_shard_problems(x, op, leaves, uncut, pairs)
        shards = cut_shards(problems, first, segments, options["keys"])
        outputs, apart = None, False
        if out is not None:
            outputs = check_sharded_out(problems[0], out, first)
        if problems[0].everywhere:
            more = {"compensated": pairs, "return_total": with_total, "strategy": strategy}
            return _scan_as_one(x, op, first, problems[0], options | more, out, outputs)
        if outputs is not None:
            # An error on one device must not leave the input half overwritten by the others.
            may_fail = strategy_asked_for(strategy) not in ("auto", "three_dispatch")
            apart = may_fail and overlap(leaves, outputs)
            if not apart:
                targets = [[output.shards[number] for output in outputs] for number in range(len(shards))]
                shards = [replace(shard, out=target) for shard, target in zip(shards, targets, strict=True)]
        problem = shards[0].problem
        in_results = not problem.exclusive and problem.heads is None and 0 not in first.shape
        total = None
        if with_total and not in_results:
            # Before the results are written, perhaps over the input.
            del uncut["exclusive"]
            total = _total(x, op, leaves, uncut, pairs)
        if problem.axis == first.axis and len(shards) > 1 and 0 not in first.shape:
            scanned = in_order(scan_shards(in_order(shards, problem.reverse), strategy), problem.reverse)
        else:
            scanned = scan_apart(shards, strategy)
        results = _join_shards(scanned, first, first.axis)
        if apart:
            write_results(tuple(results), tuple(outputs or ()))
        result = problem.destination.structure.build_bundle(results) if out is None else out
        if not with_total:
            return result
        return result, _last_results(problem, results if outputs is None else outputs) if in_results else total

    def _reduce_bundle(
        self,
        x: object,
        op: Operation,
        axis: object,
        options: ReductionOptions,
        *,
        keepdims: object,
        out: object,
        refused: dict[str, object],
    ) -> object:
        """Return the reduction of a bundle of sharded arrays.

        Along the divided axis the result is NumPy's; along another one it is sharded.

        Args:
            x, op, axis, keepdims, out: as in `gpuscan.reduce`.
            options: `initial`, `dtype`, `before`, `after` and `segments` of `gpuscan.reduce`.
            refused: options that sharded arrays do not take.

        Raises:
            TypeError: an option was passed that sharded arrays do not take.
            ValueError, GpuscanError: as `gpuscan.reduce`.
        """
        _refuse(refused)
        keepdims = as_flag("keepdims", keepdims)
        axes = find_axes(without_elements(x), resolve(op), axis)
        result = _reduction(x, op, axes, options)
        if keepdims and options["segments"] is None:
            (first, *_) = find_sharded_leaves(x)
            result = over_arrays(lambda part: with_axes(part, axes.axes, first.axis), result)
        if out is None:
            return result
        write_results(result, out)
        return out

    def numpy(self) -> AnyArray:
        """Return a NumPy copy of the whole array.

        Raises:
            ProgressTimeoutError, DeviceLostError: as `gpuscan.Array.numpy`, of any device.
        """
        futures = [shard.read_async() for shard in self.shards]
        parts = [future.result() for future in futures]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy is False:
            raise ValueError("copy=False was passed, but NumPy cannot see an array on devices without a copy")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: object, **options: object) -> Never:
        raise _not_of_shards(ufunc)

    def __array_function__(self, function: object, types: object, args: object, options: object) -> Never:
        raise _not_of_shards(function)

    def synchronize(self) -> None:
        """Wait until all devices have finished their work, and raise the errors that they have reported."""
        for device in self.devices:
            device.synchronize()

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        size = prod(self.shape)
        if size != 1:
            raise ValueError(
                f"the truth of a gpuscan.ShardedArray of shape {self.shape} was asked for, but it has {size} elements. "
                'Reduce it first: gpuscan.reduce(array, "logical_and") or "logical_or"'
            )
        return bool(self.numpy())

    def __repr__(self) -> str:
        parts = ", ".join(f"{shard.shape[self.axis]} on {shard.device!r}" for shard in self.shards)
        return f"gpuscan.ShardedArray({self.dtype} {self.shape}, axis {self.axis}: {parts})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.ShardedArray was to be pickled or copied, but it is in the memory of GPUs. Pickle or copy "
            "array.numpy() instead"
        )


def _not_of_shards(function: object) -> TypeError:
    """Return the error for a function of NumPy, which would copy all elements to the CPU."""
    return TypeError(
        f"{name_of_function(function)} was called on a gpuscan.ShardedArray, but only gpuscan.scan and "
        "gpuscan.reduce take one. Call one of these, or pass array.numpy(), a copy on the CPU"
    )


# ----- Bundles


def find_sharded_leaves(x: object) -> list[ShardedArray]:
    """Return the sharded arrays of a bundle, depth first; none if it has none.

    Raises:
        TypeError: some of its arrays are sharded, and others are not.
        ValueError: they are sharded in different ways.
    """
    if isinstance(x, ShardedArray):
        return [x]
    leaves: list[object] = []
    if isinstance(x, (tuple, dict, list)):
        with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
            if parts_of(x) is not None:
                over_arrays(leaves.append, x)
    sharded = [leaf for leaf in leaves if isinstance(leaf, ShardedArray)]
    if not sharded:
        return []
    others = [leaf for leaf in leaves if not isinstance(leaf, ShardedArray)]
    if others:
        raise TypeError(
            f"a bundle of a gpuscan.ShardedArray and {type(others[0]).__name__} was passed, but its arrays must be "
            "together. Shard all of them with gpuscan.ShardedArray.from_numpy(x, devices, axis)"
        )
    if any(not are_divided_alike(leaf, sharded[0]) for leaf in sharded[1:]):
        raise ValueError(
            "a bundle of arrays that are sharded in different ways was passed. Make all of them by "
            "gpuscan.ShardedArray.from_numpy with the same devices and axis"
        )
    return sharded


# ----- Scans and reductions


def _reduction(x: object, op: Operation, axes: ReducedAxes, options: ReductionOptions) -> object:
    """Return the reduction of a bundle of sharded arrays without the axes."""
    leaves = find_sharded_leaves(x)
    first = leaves[0]
    if 0 in first.shape:
        # Without elements, nothing is gained by computing on the devices.
        given: dict[str, Any] = {**options, "axis": axes.axes}
        return reduce(over_arrays(ShardedArray.numpy, x), op, **given)
    segments = None if options["segments"] is None else as_array(options["segments"])
    if not axes.axes or (len(axes.axes) > 1 and segments is not None):
        what = "segments= was" if axes.axes else "axis=() was"
        raise ValueError(
            f"{what} passed with a gpuscan.ShardedArray of shape {first.shape} and axis={axes.axes}; pass one axis"
            + ("" if axes.axes else " or several, or none for all")
        )
    uncut: ProblemOptions = {**options, "axis": axes.axes[-1], "exclusive": False, "reverse": False}
    del uncut["segments"]
    if options["reproducible"] and make_shard_problems(x, op, leaves, uncut | {"initial": None})[0].everywhere:
        return _reduce_as_one(x, op, first, axes, options)
    if len(axes.axes) > 1:
        # The last axis first: this combines the elements in C order.
        last = _reduction(x, op, replace(axes, axes=axes.axes[-1:]), options | {"initial": None, "after": None})
        return reduce(last, op, axis=axes.axes[:-1], initial=options["initial"], after=options["after"])
    problems = make_shard_problems(x, op, leaves, uncut)
    if segments is None:
        return _reduce_rows(problems, first)
    shards = cut_shards(problems, first, segments, None)
    if axes.axis != first.axis:
        shards = [replace(shard, problem=of_segments(shard.problem)) for shard in shards]
        results = _join_shards(scan_apart(shards, "auto"), first, first.axis)
        return shards[0].problem.destination.structure.build_bundle(results)
    return _reduce_segments(problems, first, segments)


def _scan_as_one(
    x: object,
    op: Operation,
    first: ShardedArray,
    problem: Problem,
    options: Mapping[str, Any],
    out: object,
    outputs: Sequence[ShardedArray] | None,
) -> object:
    """Return the scan in the canonical order, which does not depend on shards: the first device scans all elements.

    Args:
        x, op: as in `gpuscan.scan`.
        first: the first sharded array of `x`.
        problem: the scan of any shard.
        options: the other options of `gpuscan.scan`.
        out: as in `gpuscan.scan`.
        outputs: its arrays, depth first.
    """
    keys = options["keys"]
    keys = keys.numpy() if isinstance(keys, ShardedArray) else keys
    given = {**options, "keys": keys, "device": first.devices[0]}
    scanned = scan(over_arrays(ShardedArray.numpy, x), op, **given)
    total = None
    if options["return_total"]:
        scanned, total = scanned
    result = over_arrays(lambda part: _divide_alike(part, first, first.axis), scanned)
    if outputs is not None:
        write_results(tuple(fields_of(result, problem.destination, "out")), tuple(outputs))
        result = out
    if not options["return_total"]:
        return result
    return result, _without_axes(total, first, (problem.axis,))


def _reduce_as_one(
    x: object, op: Operation, first: ShardedArray, axes: ReducedAxes, options: ReductionOptions
) -> object:
    """Return the reduction in the canonical order: the first device reduces all elements."""
    given: dict[str, Any] = {**options, "axis": axes.axes, "device": first.devices[0]}
    result = reduce(over_arrays(ShardedArray.numpy, x), op, **given)
    if options["segments"] is None:
        return _without_axes(result, first, axes.axes)
    divided = first.axis not in axes.axes
    return over_arrays(lambda part: _divide_alike(part, first, first.axis), result) if divided else result


def _without_axes(result: object, first: ShardedArray, axes: tuple[int, ...]) -> object:
    """Return NumPy results of a reduction of these axes, sharded if the divided axis is none of them."""
    if first.axis in axes:
        return result
    axis = first.axis - sum(other < first.axis for other in axes)
    return over_arrays(lambda part: _divide_alike(part, first, axis), result)


def _divide_alike(array: Any, first: ShardedArray, axis: int) -> ShardedArray:
    """Return a NumPy array, divided along an axis at the indices at which a sharded array is divided."""
    devices: list[Any] = list(first.devices)
    shards = zip(first.shards, edges_of(first), strict=True)
    return _divide(array, devices, axis, [(devices.index(shard.device), *edges) for shard, edges in shards])


def _divide(
    array: AnyArray, devices: Sequence[Device], axis: int, ranges: Sequence[tuple[int, int, int]]
) -> ShardedArray:
    """Copy each range of an axis to its device.

    Args:
        ranges: for each shard the number of its device, its first index, and the one after its last.
    """
    shards = []
    for device, begin, end in ranges:
        with naming(devices[device]._executor, device):
            shards.append(devices[device].asarray(array[(*(slice(None),) * axis, slice(begin, end))]))
    return ShardedArray(tuple(shards), axis)


def _refuse(options: Mapping[str, object]) -> None:
    """Raise TypeError for an option that sharded arrays do not take."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise TypeError(
                f"{name}= was passed with a gpuscan.ShardedArray, which does not take it. Leave it out, or pass NumPy "
                "arrays and device=[...]"
            )


# ----- Results


def _join_shards(parts: Sequence[Sequence[DeviceArray]], first: ShardedArray, axis: int) -> list[ShardedArray]:
    """Return the arrays that each shard's results, one for each field, are the shards of."""
    results = []
    for number in range(len(parts[0])):
        shards = []
        for shard, part in zip(first.shards, parts, strict=True):
            array = part[number]
            shards.append(array if isinstance(array, Array) else Array._of(shard.device, array))
        results.append(ShardedArray(tuple(shards), axis))
    return results


def _last_results(problem: Problem, results: Sequence[ShardedArray]) -> object:
    """Return the last result of each row in the order of the scan: NumPy's along the divided axis, else sharded."""
    structure, axis = problem.destination.structure, problem.axis
    last_index = (slice(None),) * axis + (0 if problem.reverse else -1,)
    if results[0].axis == axis:
        last = 0 if problem.reverse else -1
        numbers = [result.shards[last][last_index].copy().numpy()[()] for result in results]
        return assemble_arrays(structure, numbers, axes=len(problem.shape) - 1)
    first = results[0]
    lasts = [[result.shards[number][last_index].copy() for result in results] for number in range(len(first.shards))]
    return structure.build_bundle(_join_shards(lasts, first, first.axis - (first.axis > axis)))


def _total(x: object, op: Operation, leaves: Sequence[ShardedArray], options: ProblemOptions, pairs: bool) -> object:
    """Return the reduction of each row in the order of the scan: a pass of its own over the elements."""
    if 0 in leaves[0].shape:
        reduction_options: dict[str, Any] = {name: value for name, value in options.items() if name != "reverse"}
        return reduce(over_arrays(ShardedArray.numpy, x), op, **reduction_options)
    return _reduce_rows(make_shard_problems(x, op, leaves, options, pairs), leaves[0])


def _reduce_rows(problems: Sequence[Problem], first: ShardedArray) -> object:
    """Return the reduction of each row: NumPy's along the divided axis, else sharded."""
    problem = problems[0]
    divided = problem.axis == first.axis
    shards = shards_of([p.as_reduction() for p in problems], first, [False] * len(problems))
    structure, fields = problem.destination.structure, problem.destination.fields
    shape = tuple(n for i, n in enumerate(whole_shape(problem, first)) if i != problem.axis)
    if divided:
        reduced = reduce_shards(in_order(shards, problem.reverse), reference.to_storage)
        shaped = [part.reshape((*shape, *f.shape))[()] for part, f in zip(reduced, fields, strict=True)]
        return assemble_arrays(structure, shaped, axes=len(shape))
    parts = scan_apart(shards, "auto")
    viewed = []
    for shard_problem, part in zip(problems, parts, strict=True):
        lead = tuple(n for i, n in enumerate(shard_problem.shape) if i != shard_problem.axis)
        viewed.append([array._view_as((*lead, *f.shape)) for array, f in zip(part, fields, strict=True)])
    return structure.build_bundle(_join_shards(viewed, first, first.axis - (first.axis > problem.axis)))


def _reduce_segments(problems: Sequence[Problem], first: ShardedArray, segments: object) -> object:
    """Return the reduction of segments along the divided axis, as NumPy arrays.

    Raises:
        ValueError: a segment is empty, and there is neither `initial` nor an identity; or as `heads_of`.
    """
    shape, axis = whole_shape(problems[0], first), problems[0].axis
    heads = heads_of(segments, None, shape, axis, False)
    whole = of_segments(replace(problems[0], shape=shape, heads=heads))
    assert heads is not None
    offsets, fields = heads.cut.array, whole.destination.fields
    results = [np.empty((*whole.results_shape, *f.shape), f.scalar.dtype) for f in fields]
    full = np.flatnonzero(offsets[:-1] < offsets[1:])
    empty = np.flatnonzero(offsets[:-1] == offsets[1:])
    others = [n for i, n in enumerate(shape) if i != axis]
    for result, fill, f in zip(results, whole.fill or (), fields, strict=whole.fill is not None):
        np.moveaxis(result, axis, 0)[empty] = fill.reshape((*others, *f.shape))
    heads = replace(heads, cut=Offsets(np.unique(offsets)))
    own = [
        replace(problem, heads=slice_heads(heads, axis, low, high), keep_last_only=True)
        for problem, (low, high) in zip(problems, edges_of(first), strict=True)
    ]
    shards = shards_of(own, first, [begin not in offsets for begin, _ in edges_of(first)])
    segment_numbers = [full[(offsets[full] < high) & (offsets[full + 1] > low)] for low, high in edges_of(first)]
    reduce_segments(shards, results, segment_numbers)
    return assemble_arrays(whole.destination.structure, results, axes=len(shape))


# ----- Arrays passed as out


def check_sharded_out(problem: Problem, out: object, first: ShardedArray) -> list[ShardedArray]:
    """Return the arrays of `out`, depth first.

    Raises:
        TypeError: one is no sharded array, or has another dtype.
        ValueError: one has another shape or is divided in another way, or two share memory.
    """
    arrays: list[ShardedArray] = []
    for array, field in zip(fields_of(out, problem.destination, "out"), problem.destination.fields, strict=True):
        if not isinstance(array, ShardedArray):
            raise TypeError(
                f"out of type {type(array).__name__} was passed, but the input is a gpuscan.ShardedArray; pass one "
                "that is divided as the input is"
            )
        shape = (*whole_shape(problem, first), *field.shape)
        if array.shape != shape or not are_divided_alike(array, first):
            raise ValueError(
                f"out={array!r} was passed for a result of shape {shape} that is divided as {first!r} is; pass an out "
                "of that shape with the same parts"
            )
        for shard in array.shards:
            check_out_array(shard, shard.shape, field.scalar.dtype, shard.device)
        arrays.append(array)
    for number in range(len(first.shards)):
        check_separate([array.shards[number] for array in arrays])
    return arrays


def overlap(arrays: Sequence[ShardedArray], others: Sequence[ShardedArray]) -> bool:
    """Return True if two arrays of equal parts share memory."""
    shards = [zip(a.shards, b.shards, strict=True) for a, b in product(arrays, others)]
    return any(one._shares_memory(other) for one, other in chain.from_iterable(shards))


def with_axes(
    part: AnyArray | ShardedArray | np.generic, axes: tuple[int, ...], divided: int
) -> ShardedArray | AnyArray:
    """Return a result of a reduction with its axes again, with length 1; `divided` is the axis of the input's parts."""
    if isinstance(part, ShardedArray):
        return ShardedArray(tuple(np.expand_dims(shard, axes) for shard in part.shards), divided)  # type: ignore[misc]
    return np.expand_dims(part, axes)


def write_results(result: object, out: object) -> None:
    """Write results that have arrays of their own to the arrays of `out`, which are checked first.

    Raises:
        TypeError: an array has another type or dtype than its result.
        ValueError: the arrays nest in another way, one has another shape or is divided in another way, or two share
            memory.
    """
    pairs = list(_pairs(result, out))
    shards: list[tuple[SomeArray | np.generic, SomeArray]] = []
    for part, target in pairs:
        if not isinstance(part, ShardedArray):
            check_out_array(target, np.shape(part), part.dtype, None)
            shards.append((part, target))
            continue
        if not isinstance(target, ShardedArray) or target.shape != part.shape or not are_divided_alike(target, part):
            raise ValueError(
                f"out={abbreviate(target)} was passed for a result of shape {part.shape} that is divided between "
                "devices as the input is; pass a gpuscan.ShardedArray of that shape with the same parts"
            )
        for own, target_shard in zip(part.shards, target.shards, strict=True):
            check_out_array(target_shard, own.shape, own.dtype, own.device)
            shards.append((own, target_shard))
    check_separate([target for _, target in shards])
    for part, target in shards:
        target[...] = part


def _pairs(result: object, out: object) -> Iterator[tuple[Any, Any]]:
    """Yield each array of a bundle of results with the one of `out` that it is written to."""
    parts, targets = parts_of(result), parts_of(out)
    if parts is None:
        yield result, out
        return
    if isinstance(result, dict) and isinstance(out, dict) and result.keys() == out.keys():
        targets = [out[key] for key in result]
    elif isinstance(result, dict) or isinstance(out, dict):
        targets = None
    if targets is None or len(targets) != len(parts):
        raise ValueError(
            f"out {abbreviate(out)} was passed for a result of {len(parts)} arrays, but its structure is another one; "
            "pass an array for each, in the structure of the input"
        )
    for part, target in zip(parts, targets, strict=True):
        yield from _pairs(part, target)
