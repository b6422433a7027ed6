"""Prepare a scan on a device: check its dtypes, make the words of its seeds, and choose its tile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuscan.array_types import AnyArray
from gpuscan.elements import words_of
from gpuscan.errors import GpuscanError, smaller
from gpuscan.planning.column_tiles import column_tile
from gpuscan.planning.partition import largest_field
from gpuscan.planning.tuned_tiles import best_tile
from gpuscan.planning.workgroup_memory import check_element
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.planning.tile_shapes import ColumnTile, TileShape
    from gpuscan.problem.problem import Problem


def check_elements(context: DeviceContext, problem: Problem) -> None:
    """Raise UnsupportedDtypeError if the device has no such numbers, or no room for such wide elements.

    Operators of wide elements take minutes to trace, so this comes first.
    """
    check_element(problem.element, context.capabilities)
    if problem.indexed and problem.row_length > MAX_INT32_LENGTH:
        raise GpuscanError(
            f"before= was passed as a function of an element and its index, along an axis of {problem.row_length}, but "
            f"indices on a device are 32-bit. Scan at most {MAX_INT32_LENGTH} elements at a time, or pass "
            'device="numpy"'
        )
    if context.capabilities.float64:
        return
    elements = (problem.source, problem.element, problem.destination)
    if any(field.scalar.name == "float64" for element in elements for field in element.fields):
        raise context.float64_error(
            "float64 was asked for", 'dtype=np.float32 to combine in 32 bits, or device="numpy" to run on the CPU'
        )


def seed_words(problem: Problem, spec: ScanSpec, context: DeviceContext | None) -> AnyArray | None:
    """Return the 32-bit words of the rows' initial values or identities, in the order of the scan; None without.

    Args:
        problem: the problem.
        spec: the scan of the problem.
        context: the device that has to bind all of them; None if it binds a part at a time.

    Raises:
        GpuscanError: they exceed a binding.
    """
    if problem.seeds is None:
        return None
    words = words_of(problem.seed_element, problem.seeds)
    if spec.reverse and spec.has_segment_bits and spec.inner == 1:
        # Rows that are scanned as one are reversed as one, so that the last row comes first.
        words = words[::-1]
    if context is not None:
        check_seeds(problem.rows, words.nbytes, context)
    return words


def check_seeds(rows: int, nbytes: int, context: DeviceContext) -> None:
    """Raise GpuscanError if the words of the rows' initial values or identities exceed a binding."""
    if nbytes > context.binding_limit:
        raise GpuscanError(
            f"a scan of {rows} rows was asked for, but their initial values, or identities, take "
            f"{nbytes} bytes, and {context.capabilities.summary} binds at most {context.binding_limit}. "
            f"{smaller(rows)}"
        )


def row_too_long(context: DeviceContext, spec: ScanSpec) -> GpuscanError:
    """Return the error for a row that exceeds a binding and that the scan can cut nowhere."""
    return GpuscanError(
        f"a row of {spec.row_length} elements was passed, but {context.capabilities.summary} takes at most "
        f"{context.binding_limit // largest_field(spec)} of them at a time. Cut the row, or compute on NumPy: pass "
        'NumPy arrays, and device="numpy" or GPUSCAN_ADAPTER=numpy in the environment'
    )


def tile_on(context: DeviceContext, spec: ScanSpec, subgroups: bool = True) -> TileShape:
    """Return the tile for rows on this device: the one that `gpuscan tune` found, else the planner's."""
    return best_tile(spec, context.capabilities, context.tuned, subgroups)


def whole_tile(context: DeviceContext, spec: ScanSpec) -> TileShape | ColumnTile:
    """Return the tile of the whole array, which its parts keep so that the bits stay the same."""
    return column_tile(spec, context.capabilities) if spec.inner > 1 else tile_on(context, spec)
