"""Prepare a scan on a device: check its dtypes, make the words of its seeds, and choose its tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import empty, upload_array
from gpuscan.elements import words_of
from gpuscan.engine.plan_steps import Buffers, steps_of_plan
from gpuscan.errors import GpuscanError, UnsupportedDtypeError, smaller
from gpuscan.planning.column_tiles import column_tile
from gpuscan.planning.partition import largest_field
from gpuscan.planning.plan import choose_tile, plan_scan
from gpuscan.planning.spec import scan_spec
from gpuscan.planning.tuned_tiles import best_tile
from gpuscan.planning.workgroup_memory import check_element
from gpuscan.problem.fixed_bits import EVERYWHERE
from gpuscan.problem.indexed_maps import MAX_INT32_LENGTH
from gpuscan.problem.log_sums import as_log_sums
from gpuscan.problem.problem import make_problem

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.planning.spec import ScanSpec
    from gpuscan.planning.tile_shapes import Tile, TileShape
    from gpuscan.problem.problem import Problem


def check_elements(context: DeviceContext, problem: Problem) -> None:
    """Raise UnsupportedDtypeError if the device has no such numbers, or no room for such wide elements.

    Operators of wide elements take minutes to trace, so this comes first.
    """
    check_element(problem.element, context.capabilities)
    if problem.everywhere:
        check_fixed_floats(context)
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


def prepare_problem(context: DeviceContext, problem: Problem) -> Problem:
    """Return the problem as the device combines it: logarithms of sums by pairs, other problems as they are.

    Raises:
        GpuscanError: as `check_elements` does.
    """
    check_elements(context, problem)
    return as_log_sums(problem)


# ----- Steps on floats with the same bits everywhere


def check_fixed_floats(context: DeviceContext) -> None:
    """Raise UnsupportedDtypeError if sums or products of float32 have other bits on the device than IEEE 754's.

    The kernels compute subnormals in integers and keep compilers from fusing steps, so no driver is known that fails.
    The first call for a device runs them on critical numbers.
    """
    with context.lock:
        if context.wrong_floats is None:
            with context.errors, context.pause_recording():
                context.wrong_floats = _wrong_floats(context)
        if context.wrong_floats:
            raise UnsupportedDtypeError(
                f'reproducible="everywhere" was passed, but on {context.capabilities.summary} {context.wrong_floats} '
                'of float32 differ from those of IEEE 754. Leave reproducible out, or pass device="numpy"'
            )


def _wrong_floats(context: DeviceContext) -> str:
    """Return the steps on floats that have wrong bits on the device, as a message names them; "" if there are none."""
    pairs = critical_pairs()
    problem = make_problem(tuple(pairs), _keep_right, axis=0, before=_steps, reproducible=EVERYWHERE)
    plan = plan_scan(
        scan_spec(problem, context.capabilities), context.capabilities, "three_dispatch", "a check of floats"
    )
    sources = [upload_array(context, array) for array in pairs]
    results = [empty(context, pairs[0].shape, np.float32) for _ in problem.destination.fields]
    _, steps = steps_of_plan(
        context, plan, Buffers([array._binding() for array in sources], [array._binding() for array in results])
    )
    context.submit(steps, 0, deferrable=False)
    with np.errstate(all="ignore"):
        expected = _steps(pairs)
    names = ("sums", "products", "sums of products")
    triples = zip(names, results, expected, strict=True)
    return " and ".join([name for name, result, own in triples if not _same_bits(result._read(), own)])


def _keep_right(left: object, right: object) -> object:
    """Return the right operand: a scan with this operator changes nothing."""
    del left
    return right


def _steps(pair: Sequence[AnyArray]) -> tuple[AnyArray, ...]:
    """Return a sum, a product, and a sum of a product that a compiler might round once instead of twice."""
    product = pair[0] * pair[1]
    return pair[0] + pair[1], product, product + pair[1]


def _same_bits(results: AnyArray, expected: AnyArray) -> bool:
    one_nan = np.where(np.isnan(expected), np.float32(np.nan), expected)
    return np.array_equal(results.view(np.uint32), one_nan.view(np.uint32))


@cache
def critical_pairs() -> tuple[AnyArray, AnyArray]:
    """Return pairs of float32 to find out how a device rounds sums and products.

    They are all pairs of some special numbers, and 1,024 random pairs of all exponents. In half of the random pairs the
    two exponents are similar, so that many sums round. In the other half the product is close to the smallest normal
    number.
    """
    large = [1, 1 + 2.0**-23, 1 / 3, 2.0**104, 3.4e38, np.inf, np.nan]
    small = [0, 2.0**-24, 3 * 2.0**-24, 2.0**-75, 1e-23, 2.0**-103, 2.0**-126, 2.0**-126 - 2.0**-149, 2.0**-149]
    positive = np.array(large + small, np.float32)
    special = np.concatenate([positive, -positive])
    left, right = (grid.ravel() for grid in np.meshgrid(special, special))
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (2, 1024), np.uint32)
    exponent = (bits[0] >> 23 & 255).astype(np.int64)
    # Every second partner has a similar exponent. The product with the others is near the smallest normal number.
    partner = np.where(np.arange(1024) % 2, exponent, 127 - exponent) + rng.integers(-26, 27, 1024)
    other = (bits[1] & 0x807FFFFF) | (partner.clip(0, 255).astype(np.uint32) << 23)
    return np.concatenate([left, bits[0].view(np.float32)]), np.concatenate([right, other.view(np.float32)])


# ----- Seeds and tiles


def seed_words(problem: Problem, spec: ScanSpec, context: DeviceContext | None) -> AnyArray | None:
    """Return the 32-bit words of the rows' initial values or identities, in the order of the scan; None without.

    Args:
        context: the device that has to bind all of them; None if it binds a part at a time.

    Raises:
        GpuscanError: they exceed a binding.
    """
    seeds = problem.numpy_seeds
    if seeds is None:
        return None
    words = words_of(problem.seed_element, seeds)
    if spec.backwards_as_one:
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


def spans_too_long(context: DeviceContext, spec: ScanSpec) -> GpuscanError:
    """Return the error for rows that cannot be cut into pieces for `reproducible="everywhere"`.

    A piece is a whole number of rows, must end where a span ends, and must fit in a binding.
    """
    return GpuscanError(
        f'reproducible="everywhere" was passed for {spec.rows} rows of {spec.row_length} elements, but '
        f"{context.capabilities.summary} cannot bind a number of whole rows that is a multiple of 2^20 elements. Pass "
        'fewer rows at a time, leave reproducible out, or pass NumPy arrays and device="numpy"'
    )


def tile_on(context: DeviceContext, spec: ScanSpec, subgroups: bool = True) -> TileShape:
    """Return the tile for rows on this device: the one that `gpuscan tune` found, else the planner's."""
    return best_tile(spec, context.capabilities, context.tuned, subgroups)


def slab_tile(context: DeviceContext, spec: ScanSpec) -> Tile:
    """Return the tile for slabs of whole rows or columns. All slabs have the same tile, so that bits do not change."""
    if spec.inner > 1:
        return column_tile(spec, context.capabilities)
    return choose_tile(spec, context.capabilities, context.tuned)
