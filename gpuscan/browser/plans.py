"""Plan a scan for browsers: by three dispatches for any GPU, and in a single pass for each size of subgroups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpuscan.elements import Element
from gpuscan.errors import UnsupportedDtypeError
from gpuscan.planning.capabilities import Capabilities
from gpuscan.planning.kernel_parts import Placement
from gpuscan.planning.plan import ScanPlan, find_unaligned_sizes, plan_scan
from gpuscan.planning.spec import ScanSpec, scan_spec
from gpuscan.problem.problem import Problem

# The least that every WebGPU device has: https://www.w3.org/TR/webgpu/#limits. There are no subgroups, because their
# size is not known when the shader is written, and no 64-bit types, because WebGPU has none.
ANY_BROWSER = Capabilities(
    summary="any browser with WebGPU",
    name="any",
    vendor="any",
    driver="",
    backend="browser",
    adapter_type="Unknown",
    implementation="browser",
    features=frozenset(),
    limits={
        "max-buffer-size": 1 << 28,
        "max-compute-invocations-per-workgroup": 256,
        "max-compute-workgroup-size-x": 256,
        "max-compute-workgroup-storage-size": 16384,
        "max-compute-workgroups-per-dimension": 65535,
        "max-storage-buffer-binding-size": 1 << 27,
        "max-storage-buffers-per-shader-stage": 8,
    },
    subgroup_sizes=(),
    subgroup_size=0,
    lanes_in_order=False,
    progress_earlier=False,
    progress_later=False,
    starts_in_order=False,
    packs_halves=False,
    started_while_spinning=0,
    litmus_workgroups=0,
    spins_per_second=1e7,
    loop_iterations=0,
    timestamps=False,
    timestamp_period=1.0,
    native_int64=False,
    int64_atomics=False,
    float64=False,
    shader_f16=False,
    mappable_storage=False,
)

# The sizes of subgroups that GPUs have. A page measures its visitor's, and takes the plan for it.
SUBGROUP_SIZES = (4, 8, 16, 32, 64)

# The most 32-bit words of an element.
MAX_WORDS = 4

# The most storage buffers of a shader. WebGPU promises 8, and most GPUs have 10 for a page that asks for them.
MAX_BUFFERS = 10

# Strategies that can run without a measurement of the GPU's scheduler.
THREE_DISPATCHES, SINGLE_PASS = "three_dispatch", "fallback"


@dataclass(frozen=True)
class Variant:
    """One plan of an exported scan.

    Attributes:
        plan: the plan.
        subgroup_size: the size of subgroups that it needs; 0 if it needs none.
        unaligned: the sizes of elements, in bytes, with which an array of the plan's lengths ends within a 32-bit word.
            Only reversed scans of narrow numbers have several plans that differ in this.
    """

    plan: ScanPlan
    subgroup_size: int
    unaligned: tuple[int, ...]


def with_subgroups(size: int) -> Capabilities:
    """Return what a browser can do on a GPU with subgroups of this size."""
    return replace(
        ANY_BROWSER,
        features=frozenset({"subgroups"}),
        subgroup_sizes=(size,),
        subgroup_size=size,
        lanes_in_order=True,
    )


def variants(problem: Problem, strategy: str) -> list[Variant]:
    """Return the plans of a scan of one array of up to the problem's length.

    Args:
        strategy: ``"auto"`` for three dispatches, and a single pass where there are subgroups, unless the bits must be
            the same everywhere; or a strategy, which then runs without subgroups.

    Raises:
        UnsupportedDtypeError: WebGPU has no such numbers, or some browser cannot hold the elements.
    """
    check_element(problem)
    plan_variants = []
    wanted = [(ANY_BROWSER, THREE_DISPATCHES if strategy == "auto" else strategy)]
    if strategy == "auto" and not problem.everywhere:
        wanted += [(with_subgroups(size), SINGLE_PASS) for size in SUBGROUP_SIZES]
    for capabilities, chosen in wanted:
        for spec in specs(scan_spec(problem, capabilities)):
            # Reversed arrays of any length end anywhere within a vector, so they are read word by word.
            placement = Placement(width=1) if spec.reverse else Placement()
            plan = plan_scan(spec, capabilities, chosen, "exported", placement=placement)
            plan_variants.append(Variant(plan, plan.tile.subgroup_size, find_unaligned_sizes(spec, spec.length)))
    check_buffers(plan_variants)
    return plan_variants


def specs(spec: ScanSpec) -> Iterator[ScanSpec]:
    """Yield the scan once for each way in which arrays of its lengths end within words."""
    if not spec.reverse:
        yield spec
        return
    seen = set()
    whole = -(-spec.length // 4) * 4
    for more in (0, 2, 1):
        longer = replace(spec, row_length=whole + more)
        sizes = find_unaligned_sizes(longer, longer.length)
        if sizes not in seen:
            seen.add(sizes)
            yield longer


# ----- What no browser runs


def check_element(problem: Problem) -> None:
    """Raise UnsupportedDtypeError if the elements or the array are too large for some browser."""
    for element in (problem.source, problem.element):
        check_floats(element)
    words = problem.destination.words
    stored = problem.destination if problem.compacts else problem.source
    if words > MAX_WORDS or stored.storage_bytes > 4 * MAX_WORDS:
        raise UnsupportedDtypeError(
            f"elements of {words} 32-bit words were asked for, and exports take at most {MAX_WORDS}. "
            "Export smaller elements"
        )
    largest = max(field.storage_bytes for field in problem.source.fields)
    limit = ANY_BROWSER.limits["max-storage-buffer-binding-size"]
    if problem.size * largest > limit:
        raise UnsupportedDtypeError(
            f"{problem.size} elements of {largest} bytes were asked for, and some browsers bind only {limit} bytes. "
            f"Export a length of at most {limit // largest}"
        )


def check_floats(element: Element) -> None:
    """Raise UnsupportedDtypeError if shaders would have to compute with floats of 64 bits."""
    if any(field.scalar.name == "float64" for field in element.fields):
        raise UnsupportedDtypeError("float64 was asked for, and WebGPU has no 64-bit floats. Export float32")


def check_buffers(plan_variants: list[Variant]) -> None:
    """Raise UnsupportedDtypeError if a stage binds more buffers than GPUs have."""
    most = storage_buffers(plan_variants)
    if most > MAX_BUFFERS:
        raise UnsupportedDtypeError(
            f"an export that binds {most} buffers at a time was asked for, and browsers bind at most {MAX_BUFFERS}. "
            "Export elements of fewer arrays, such as one array with trailing axes"
        )


def storage_buffers(plan_variants: list[Variant]) -> int:
    """Return the most storage buffers that a stage binds."""
    return max(len(stage.kernel.bindings) for variant in plan_variants for stage in variant.plan.stages)
