"""Arrays that stay on several devices between calls."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Never

import numpy as np

import gpuscan
from gpuscan.api.array import Array
from gpuscan.api.home import listed_devices
from gpuscan.engine.device_speeds import relative_speeds
from gpuscan.engine.device_team import naming
from gpuscan.planning.partition import stretches
from gpuscan.problem.arguments import as_array, resolve_axis
from gpuscan.problem.results import over_arrays, parts_of


class ShardedArray:
    """An array in shards on several devices: each shard is a stretch of one axis, on one device.

    `gpuscan.scan` and `gpuscan.reduce` take it, also in bundles of arrays that are sharded alike, and its elements stay
    where they are: between devices only the carries pass through the CPU. `ShardedArray.from_numpy` makes one.

    Attributes:
        shape, dtype, nbytes, ndim: as NumPy defines them.
        axis: the axis that is divided.
        shards: the `gpuscan.Array` of each stretch, in order. The first device may have two: the first and the last.
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

    # What other functions than `scan` and `reduce` refuse it by, instead of copying it to NumPy.
    is_sharded = True

    def __init__(self, shards: tuple[Array, ...], axis: int) -> None:
        self.shards, self.axis = shards, axis
        length = sum(shard.shape[axis] for shard in shards)
        first = shards[0]
        self.shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
        self.ndim = len(self.shape)
        self.dtype = first.dtype
        self.nbytes = sum(shard.nbytes for shard in shards)
        self.devices = tuple({id(shard.device): shard.device for shard in shards}.values())

    @classmethod
    def from_numpy(cls, x: Any, devices: Any, axis: int = 0) -> ShardedArray:
        """Copy an array to several devices, each stretch of an axis to one of them, in proportion to their speed.

        An axis of 2^24 places or more will be the scan's. The first device then gets the first stretch and the last
        one, so that all devices end together; see docs/scaling.md. Shorter axes are divided into one stretch for each
        device. Arrays of equal length on the same devices are divided alike.

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
        parts = stretches(array.shape[axis], relative_speeds([device._executor for device in found]))
        cuts = [(part.device, slice(part.start, part.stop)) for part in parts] or [(0, slice(None))]
        before = (slice(None),) * axis
        shards = []
        for device, cut in cuts:
            with naming(found[device]._executor, device):
                shards.append(found[device].asarray(array[(*before, cut)]))
        return cls(tuple(shards), axis)

    def scan(self, op: Any = "add", **options: Any) -> Any:
        """Return ``gpuscan.scan(self, op, **options)``."""
        return gpuscan.scan(self, op, **options)

    def reduce(self, op: Any = "add", **options: Any) -> Any:
        """Return ``gpuscan.reduce(self, op, **options)``."""
        return gpuscan.reduce(self, op, **options)

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
    if isinstance(x, (tuple, dict, list)):
        with suppress(RecursionError):  # `problem/arguments.py` refuses bundles that nest so deep
            if parts_of(x) is not None:
                over_arrays(note, x)
    if not found:
        return []
    if others:
        raise TypeError(
            f"a bundle of a gpuscan.ShardedArray and {type(others[0]).__name__} was passed, but its arrays must be "
            "together. Shard all of them with gpuscan.ShardedArray.from_numpy(x, devices, axis)"
        )
    if any(not divided_alike(each, found[0]) for each in found[1:]):
        raise ValueError(
            "a bundle of arrays that are sharded in different ways was passed. Make all of them by "
            "gpuscan.ShardedArray.from_numpy with the same devices and axis"
        )
    return found


def divided_alike(one: ShardedArray, other: ShardedArray) -> bool:
    """Return True if two arrays are divided along the same axis, into stretches of equal length on the same devices."""
    if one.axis != other.axis or len(one.shards) != len(other.shards):
        return False
    pairs = zip(one.shards, other.shards, strict=True)
    return all(a.device is b.device and a.shape[one.axis] == b.shape[one.axis] for a, b in pairs)


def shard_of(x: Any, number: int) -> Any:
    """Return the same bundle of the shards of this number."""
    return over_arrays(lambda leaf: leaf.shards[number], x)
