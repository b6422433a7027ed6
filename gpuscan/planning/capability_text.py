"""Say in words what the probe found about an adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscan.elements import SCALARS

if TYPE_CHECKING:
    from gpuscan.planning.capabilities import Capabilities


def described(capabilities: Capabilities) -> dict[str, str]:
    """Return what each kind of finding is, in words."""
    return {
        "driver": f"{capabilities.driver or 'unknown'} ({capabilities.vendor})",
        "backend": f"{capabilities.backend}, {capabilities.adapter_type}, {capabilities.implementation}",
        "subgroups": _subgroups(capabilities),
        "progress": _progress(capabilities),
        "elements": ", ".join(element_types(capabilities)),
        "64 bits": "native integers" if capabilities.native_int64 else "integers in two 32-bit words",
        "limits": _limits(capabilities),
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
    started, asked = capabilities.started_while_spinning, capabilities.litmus_workgroups
    count = f"all {asked}" if capabilities.progress_later else f"only {started} of {asked}"
    return (
        f"started workgroups {earlier} while others wait; {count} workgroups could start while the first one waited; "
        f"they start {order}"
    )


def _limits(capabilities: Capabilities) -> str:
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
