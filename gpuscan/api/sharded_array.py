"""Arrays that stay on several devices between calls."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Never

import numpy as np

import gpuscan
from gpuscan.api.array import Array
from gpuscan.api.home import listed_devices
from gpuscan.api.reduced_axes import reduced_axes
from gpuscan.engine.device_speeds import relative_speeds
from gpuscan.engine.shards import reduce_shards, scan_apart, scan_shards
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.partition import shares
from gpuscan.planning.strategies import check_strategy
from gpuscan.problem.arguments import as_array, as_flag, initial_rows, resolve_axis
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.results import assembled, over_arrays


class ShardedArray:
    """An array in shards on several devices: each device holds a stretch of one axis.

    `gpuscan.scan` and `gpuscan.reduce` take it, also in bundles of arrays that are sharded alike, and its elements stay
    where they are: between devices only the carries pass through the CPU. `ShardedArray.from_numpy` makes one.

    Attributes:
        shape, dtype, nbytes: as NumPy defines them.
        axis: the axis that is divided.
        shards: the `gpuscan.Array` of each device, in order.
        devices: the devices of the shards.

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
        length = sum(shard.shape[axis] for shard in shards)
        first = shards[0]
        self.shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
        self.dtype = first.dtype
        self.nbytes = sum(shard.nbytes for shard in shards)
        self.devices = tuple(shard.device for shard in shards)

    @classmethod
    def from_numpy(cls, x: Any, devices: Any, axis: int = 0) -> ShardedArray:
        """Copy an array to several devices, a stretch of an axis to each, in proportion to their speed.

        Args:
            x: anything `np.asarray` takes, with at least one axis.
            devices: a list of devices, as `device=` of `gpuscan.scan` takes it.
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
        array = as_array(x)
        found = listed_devices(devices if isinstance(devices, (list, tuple)) else [devices])
        axis = resolve_axis(axis, array.shape)
        parts = shares(array.shape[axis], relative_speeds([device._executor for device in found]))
        places = [(part.device, slice(part.start, part.stop)) for part in parts] or [(0, slice(None))]
        before = (slice(None),) * axis
        return cls(tuple(found[device].asarray(array[(*before, place)]) for device, place in places), axis)

    def scan(self, op: Any = "add", **options: Any) -> Any:
        """Return ``gpuscan.scan(self, op, **options)``."""
        return scan_sharded(self, op, **options)

    def reduce(self, op: Any = "add", **options: Any) -> Any:
        """Return ``gpuscan.reduce(self, op, **options)``."""
        return reduce_sharded(self, op, **options)

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a NumPy copy of the whole array.

        Raises:
            ProgressTimeoutError, DeviceLostError: as `gpuscan.Array.numpy`, of any device.
        """
        futures = [shard.read_async() for shard in self.shards]
        parts = [future.result() for future in futures]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, self.axis)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("copy=False was passed, but NumPy cannot see an array on devices without a copy")
        result = self.numpy()
        return result if dtype is None else result.astype(dtype, copy=False)

    def synchronize(self) -> None:
        """Wait until every device has done everything that was submitted."""
        for device in self.devices:
            device.synchronize()

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        parts = ", ".join(f"{shard.shape[self.axis]} on {shard.device!r}" for shard in self.shards)
        return f"gpuscan.ShardedArray({self.dtype} {self.shape}, axis {self.axis}: {parts})"

    def __reduce__(self) -> Never:
        raise TypeError(
            "a gpuscan.ShardedArray was to be pickled, but it is in the memory of GPUs. Pickle array.numpy() instead"
        )


# ----- Bundles


def sharded_leaves(x: Any) -> list[ShardedArray]:
    """Return the sharded arrays of a bundle, depth first; none if it has none.

    Raises:
        TypeError: some of its arrays are sharded, and others are not.
        ValueError: they are sharded in different ways.
    """
    others: list[Any] = []
    found: list[ShardedArray] = []

    def note(leaf: Any) -> None:
        (found if isinstance(leaf, ShardedArray) else others).append(leaf)

    if isinstance(x, ShardedArray):
        return [x]
    if isinstance(x, (tuple, dict)):
        with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
            over_arrays(note, x)
    if not found:
        return []
    if others:
        raise TypeError(
            f"a bundle of a gpuscan.ShardedArray and {type(others[0]).__name__} was passed, but its arrays must be "
            "together. Shard all of them with gpuscan.ShardedArray.from_numpy(x, devices, axis)"
        )
    ways = {(each.axis, tuple((id(s.device), s.shape[each.axis]) for s in each.shards)) for each in found}
    if len(ways) > 1:
        raise ValueError(
            "a bundle of arrays that are sharded in different ways was passed. Make all of them by "
            "gpuscan.ShardedArray.from_numpy with the same devices and axis"
        )
    return found


def shard_of(x: Any, number: int) -> Any:
    """Return the same bundle of one device's shards."""
    return over_arrays(lambda leaf: leaf.shards[number], x)


def refuse(name: str, value: Any) -> None:
    """Raise TypeError for an option that sharded arrays do not have."""
    if value is not None and value is not False:
        raise TypeError(
            f"{name}= was passed with a gpuscan.ShardedArray, which does not take it. Leave it out, or pass NumPy "
            "arrays and device=[...]"
        )


# ----- Calls


def scan_sharded(
    x: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    dtype: Any = None,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    strategy: str = "auto",
    **others: Any,
) -> Any:
    """Return the scan of a bundle of sharded arrays, sharded as they are.

    Raises:
        TypeError: an option was passed that sharded arrays do not take.
        ValueError, GpuscanError: as `gpuscan.scan`.
    """
    for name, value in others.items():
        refuse(name, value)
    check_strategy(strategy)
    (first, *_) = sharded_leaves(x)
    options: dict[str, Any] = {"axis": axis, "exclusive": exclusive, "reverse": reverse, "dtype": dtype}
    options |= {"before": before, "after": after, "initial": initial}
    problems = _problems(x, op, first, options)
    executors = [shard.device._executor for shard in first.shards]
    together = problems[0].axis == first.axis
    found = (scan_shards if together else scan_apart)(executors, problems, strategy)
    arrays = []
    for place in range(len(found[0])):
        shards = (Array.of(s.device, part[place]) for s, part in zip(first.shards, found, strict=True))
        arrays.append(ShardedArray(tuple(shards), first.axis))
    return problems[0].destination.structure.nested(arrays)


def reduce_sharded(
    x: Any,
    op: Any = "add",
    *,
    axis: Any = None,
    initial: Any = None,
    dtype: Any = None,
    before: Callable[[Any], Any] | None = None,
    after: Callable[[Any], Any] | None = None,
    **others: Any,
) -> Any:
    """Return the reduction of a bundle of sharded arrays.

    Along the divided axis the result is NumPy's; along another one it is sharded.

    Raises:
        TypeError: an option was passed that sharded arrays do not take.
        ValueError, GpuscanError: as `gpuscan.reduce`.
    """
    for name, value in others.items():
        refuse(name, value)
    (first, *_) = sharded_leaves(x)
    if 0 in first.shape:
        # Without elements, nothing is gained by computing on the devices.
        whole = over_arrays(ShardedArray.numpy, x)
        return gpuscan.reduce(whole, op, axis=axis, initial=initial, dtype=dtype, before=before, after=after)
    operator = resolve(op)
    axes = reduced_axes(shard_of(x, 0), operator, axis)
    if not axes.axes:
        raise ValueError("axis=() was passed with a gpuscan.ShardedArray; pass one axis or several, or none for all")
    if len(axes.axes) > 1:
        # The last axis first: this combines the elements in C order.
        last = reduce_sharded(x, op, axis=axes.axes[-1], dtype=dtype, before=before)
        return gpuscan.reduce(last, op, axis=axes.axes[:-1], initial=initial, after=after)
    options = {"axis": axes.axis, "initial": initial, "dtype": dtype, "before": before, "after": after}
    problems = [replace(problem, keep_last_only=True) for problem in _problems(x, op, first, options)]
    executors = [shard.device._executor for shard in first.shards]
    structure = problems[0].destination.structure
    fields = problems[0].destination.fields
    if axes.axis == first.axis:
        shape = axes.result_shape(False)
        found = reduce_shards(executors, problems)
        shaped = [part.reshape((*shape, *f.shape))[()] for part, f in zip(found, fields, strict=True)]
        return assembled(structure, shaped, axes=len(shape))
    place = first.axis - (first.axis > axes.axis)
    parts = scan_apart(executors, problems, "auto")
    arrays = []
    for number, field in enumerate(fields):
        shards = []
        for shard, problem, part in zip(first.shards, problems, parts, strict=True):
            lead = (n for i, n in enumerate(problem.shape) if i != problem.axis)
            shards.append(Array.of(shard.device, part[number].viewed((*lead, *field.shape))))
        arrays.append(ShardedArray(tuple(shards), place))
    return structure.nested(arrays)


def _problems(x: Any, op: Any, first: ShardedArray, options: dict[str, Any]) -> list[Problem]:
    """Return the call as a problem for each device: its shards, and the initial values of its rows.

    Raises:
        TypeError: `before` takes an index.
        ValueError: the arrays are divided along an axis of the element; or as `make_problem`.
    """
    initial, exclusive = options.pop("initial"), options.pop("exclusive", False)
    if initial is None:
        options["exclusive"] = exclusive
    found = [make_problem(shard_of(x, number), op, **options) for number in range(len(first.shards))]
    if found[0].indexed:
        raise TypeError(
            "before= was passed as a function of an element and its index with a gpuscan.ShardedArray, whose shards do "
            "not know where they begin. Pass a function of one element, and the indices as one more array of a bundle"
        )
    if first.axis >= len(found[0].shape):
        raise ValueError(
            f"a gpuscan.ShardedArray that is divided along axis {first.axis} was passed, but that axis belongs to the "
            "element. Divide it along another axis"
        )
    if initial is None:
        return found
    started = []
    begin, axis = 0, found[0].axis
    others = [n for i, n in enumerate((*first.shape[: len(found[0].shape)],)) if i != axis]
    for problem in found:
        seeds = initial_rows(initial, problem.element, tuple(others))
        if axis != first.axis:
            end = begin + problem.shape[first.axis]
            rows = (*(slice(None),) * (first.axis - (first.axis > axis)), slice(begin, end))
            fields = problem.element.fields
            wide = [seed.reshape((*others, *f.shape))[rows] for seed, f in zip(seeds, fields, strict=True)]
            seeds = tuple(each.reshape(-1, *f.shape) for each, f in zip(wide, fields, strict=True))
            begin = end
        started.append(replace(problem, seeds=seeds, initial=True, exclusive=as_flag("exclusive", exclusive)))
    return started
