"""Describe what the probe found about an adapter, and convert it to and from JSON, and to words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Never, TypeVar

from gpuscan.elements import SCALARS, HashedOnce
from gpuscan.html_table import html_table

# The type of a value that is read from a file.
T = TypeVar("T")

# The largest subgroup size, in lanes, that is accepted from a file.
MAX_LANES = 1024

# The fewest and the most polls in a second that are accepted from a file.
MIN_SPINS, MAX_SPINS = 1.0, 1e13
# The shortest and the longest tick of a timestamp, in nanoseconds, that are accepted from a file.
MIN_TICK, MAX_TICK = 1e-6, 1e9


class Limits(dict[str, int]):
    """A dict that is read-only. Unlike a view of a dict it can be copied and pickled; `dict(limits)` can be changed."""

    def _refuse(self, *_: object, **__: object) -> Never:
        raise TypeError("limits are what a device was made with, and read-only; change a copy: dict(limits)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type[Limits], tuple[dict[str, int]]]:
        return Limits, (dict(self),)


@dataclass(frozen=True)
class Capabilities(HashedOnce):
    """The findings of the probe about one adapter.

    Attributes:
        summary: the adapter in one line: name, type and backend, and a number if the machine has several like it.
        name: the GPU's name, as the driver gives it.
        vendor: who made the GPU (``"NVIDIA"``, ``"AMD"``, ``"Intel"``, ``"Apple"``, …), else what the driver says.
        driver: the driver and its version.
        backend: ``"Vulkan"``, ``"Metal"``, ``"D3D12"`` or ``"OpenGL"``.
        adapter_type: ``"DiscreteGPU"``, ``"IntegratedGPU"``, ``"VirtualGPU"``, ``"CPU"`` or ``"Unknown"``.
        implementation: the name and version of the WebGPU implementation, such as ``"wgpu-native 29.0.1.1"``.
        features: the WebGPU features that the device was made with.
        limits: the WebGPU limits that the device was made with; read-only.
        subgroup_sizes: the sizes of subgroups that the probe saw; ``()`` without subgroups.
        subgroup_size: the size to build shaders for; 0 to build them without subgroups, because there are none, the
            probe saw several sizes, or lanes are not in order. A compiler may still choose another size for another
            shader (Intel's takes 8, 16 or 32), so a shader has to check its size.
        lanes_in_order: True if lane i of a subgroup is the invocation of local index i mod the subgroup size.
        progress_earlier: True if workgroups that have started keep making progress (litmus 1), as look-back needs it.
        progress_later: True if later workgroups start while an earlier one waits (litmus 2). Then look-ahead is fast.
        started_while_spinning: how many of the ``litmus_workgroups`` had started when litmus 2 ended.
        litmus_workgroups: workgroups in each litmus test.
        starts_in_order: True if workgroups start in the order of their numbers (litmus 3), so that a workgroup may wait
            for one with a lower number. CPU adapters are not tested, and have False.
        packs_halves: True if WGSL's packing of 16-bit floats is exact and rounds as NumPy does, so that shaders may use
            it. CPU adapters are not tested, and have False.
        spins_per_second: polls of an atomic that one waiting invocation makes in a second.
        loop_iterations: the iterations, of all its loops together, after which the driver silently ends every loop of
            an invocation (llvmpipe: 65,535); 0 if the probe saw no such limit.
        timestamps: True if the adapter has timestamp queries, and their times agree with the wall clock.
        timestamp_period: the nanoseconds in a tick.
        native_int64: True if shaders may have 64-bit integers.
        int64_atomics: True if shaders may have 64-bit atomics with every operation.
        float64: True if shaders may have 64-bit floats.
        shader_f16: True if shaders may have 16-bit floats.
        mappable_storage: True if storage buffers can be mapped without being slower.
        distrusted: strategies that timed out here several times, so that ``"auto"`` leaves them out for a while.
    """

    summary: str
    name: str
    vendor: str
    driver: str
    backend: str
    adapter_type: str
    implementation: str
    features: frozenset[str]
    limits: Mapping[str, int]
    subgroup_sizes: tuple[int, ...]
    subgroup_size: int
    lanes_in_order: bool
    progress_earlier: bool
    progress_later: bool
    started_while_spinning: int
    litmus_workgroups: int
    starts_in_order: bool
    packs_halves: bool
    spins_per_second: float
    loop_iterations: int
    timestamps: bool
    timestamp_period: float
    native_int64: bool
    int64_atomics: bool
    float64: bool
    shader_f16: bool
    mappable_storage: bool
    distrusted: tuple[str, ...] = ()

    __hash__ = HashedOnce.__hash__

    def __post_init__(self) -> None:
        object.__setattr__(self, "limits", Limits(self.limits))

    @property
    def enable_subgroups(self) -> bool:
        """True if a shader with subgroups begins with ``enable subgroups;``. WebGPU requires it, naga refuses it."""
        return "subgroups" in self.features

    def _repr_html_(self) -> str:
        return html_table(self.summary, describe_capabilities(self).items())

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON has them: strings, numbers, lists and objects."""
        return {attribute.name: _jsonable(getattr(self, attribute.name)) for attribute in fields(self)}

    @classmethod
    def from_json(cls, data: object) -> Capabilities:
        """Read what `to_json` wrote.

        Raises:
            ValueError: a field is missing, unknown, of a wrong type, or has a value that no device has.
        """
        if not isinstance(data, dict):
            raise ValueError(f"capabilities are an object of fields, not {type(data).__name__}")
        names = {attribute.name for attribute in fields(cls)}
        if data.keys() != names:
            raise ValueError(f"capabilities have other fields than these: {sorted(data.keys() ^ names)}")
        values = {}
        for attribute in fields(cls):
            try:
                values[attribute.name] = _READERS[str(attribute.type)](data[attribute.name])
            except (TypeError, OverflowError) as error:
                raise ValueError(f"capabilities field {attribute.name}: {error}") from None
        read = cls(**values)
        if not read._plausible():
            raise ValueError("capabilities have values that no device has")
        return read

    def _plausible(self) -> bool:
        sizes = self.subgroup_sizes
        return (
            all(0 < size <= MAX_LANES and size & (size - 1) == 0 for size in sizes)
            and self.subgroup_size in (0, *sizes)
            and 0 <= self.started_while_spinning <= self.litmus_workgroups < 1 << 32
            and 0 <= self.loop_iterations < 1 << 32
            and MIN_SPINS <= self.spins_per_second < MAX_SPINS
            and MIN_TICK <= self.timestamp_period <= MAX_TICK
        )


def _jsonable(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return value


# ----- Reading: each takes a value that JSON gave and returns it as the field has it, or raises TypeError


def _exactly(wanted_type: type[T]) -> Callable[..., T]:
    def read(value: object) -> T:
        if type(value) is not wanted_type:  # not isinstance: True is an int
            raise TypeError(f"expected {wanted_type.__name__}, found {value!r}")
        return value

    return read


def _float(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
        raise TypeError(f"expected a positive number, found {value!r}")
    return float(value)


def _list_of(item_type: type[T]) -> Callable[..., list[T]]:
    def read(value: object) -> list[T]:
        return [_exactly(item_type)(item) for item in _exactly(list)(value)]

    return read


def _limits(value: object) -> dict[str, int]:
    return {_exactly(str)(name): _exactly(int)(limit) for name, limit in _exactly(dict)(value).items()}


_READERS: Mapping[str, Callable[..., Any]] = {
    "str": _exactly(str),
    "int": _exactly(int),
    "bool": _exactly(bool),
    "float": _float,
    "frozenset[str]": lambda value: frozenset(_list_of(str)(value)),
    "tuple[int, ...]": lambda value: tuple(_list_of(int)(value)),
    "tuple[str, ...]": lambda value: tuple(_list_of(str)(value)),
    "Mapping[str, int]": _limits,
}


# ----- In words


def describe_capabilities(capabilities: Capabilities) -> dict[str, str]:
    """Return what each kind of finding is, in words."""
    return {
        "driver": f"{capabilities.driver or 'unknown'} ({capabilities.vendor})",
        "backend": f"{capabilities.backend}, {capabilities.adapter_type}, {capabilities.implementation}",
        "subgroups": _subgroups(capabilities),
        "progress": _progress(capabilities),
        "elements": ", ".join(element_types(capabilities)),
        "64 bits": "native integers" if capabilities.native_int64 else "integers in two 32-bit words",
        "limits": _limits_text(capabilities),
        "timing": f"timestamps {'work' if capabilities.timestamps else 'do not work'}, "
        f"{capabilities.spins_per_second / 1e6:.1f} million polls a second",
    }


def element_types(capabilities: Capabilities) -> list[str]:
    """Return the names of the element types that the adapter has."""
    return [name for name in SCALARS if name != "float64" or capabilities.float64]


def _subgroups(capabilities: Capabilities) -> str:
    if not capabilities.subgroup_sizes:
        return "none, so lanes meet in workgroup memory"
    sizes = " or ".join(map(str, capabilities.subgroup_sizes))
    order = "in order" if capabilities.lanes_in_order else "not in order"
    return f"{sizes} lanes, {order}" + ("" if capabilities.subgroup_size else ": not used")


def _progress(capabilities: Capabilities) -> str:
    """Say what the two progress tests saw."""
    earlier = "keep running" if capabilities.progress_earlier else "can stall"
    order = "in the order of their numbers" if capabilities.starts_in_order else "in any order"
    started, total = capabilities.started_while_spinning, capabilities.litmus_workgroups
    count = f"all {total}" if capabilities.progress_later else f"only {started} of {total}"
    return (
        f"started workgroups {earlier} while others wait; {count} workgroups could start while the first one waited; "
        f"they start {order}"
    )


def _limits_text(capabilities: Capabilities) -> str:
    limits = capabilities.limits
    return (
        f"{_size(limits['max-buffer-size'])} a buffer, {_size(limits['max-storage-buffer-binding-size'])} a binding, "
        f"{limits['max-storage-buffers-per-shader-stage']} storage buffers, "
        f"{limits['max-compute-invocations-per-workgroup']} invocations and "
        f"{_size(limits['max-compute-workgroup-storage-size'])} of memory a workgroup"
    )


def _size(count: int) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << exponent:
            return f"{count / (1 << exponent):.3g} {unit}"
    return f"{count} B"
