"""Check what a derived form computed against the step, if the data are such that compositions may lose something.

Compositions reorder sums and products. If a number is infinite, NaN or close to the limits of its type, an intermediate
number of a composition may be none that the loop has: 0 times infinity, or a product out of range. Then the carries are
put into the step: the carry before each step has to give the carry after it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.loop_arguments import LoopArguments
from gpuscan.api.loop_runs import LoopRun
from gpuscan.array_types import AnyArray
from gpuscan.elements import compute_dtype, scalar_of
from gpuscan.operators.loops.classes import Derivation
from gpuscan.operators.loops.mobius import MobiusMaps
from gpuscan.operators.loops.stage import Stage

# How many numbers are looked at in one go, which stay in a cache.
_CHUNK = 1 << 15
# The kinds of stages that are exact for all integers, since integers wrap.
_EXACT = frozenset({"affine", "extremum", "bitwise", "finite-state"})
# How far a carry may be from what the step gives, in units of the square root of a rounding.
_TOLERANCE = 4
# The roundings of floats by their sizes in bytes. For two bytes they are those of bfloat16.
_ROUNDINGS = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}


def may_be_wrong(arguments: LoopArguments, derivation: Derivation, results: list[object]) -> bool:
    """Return True if the data or the results have numbers that compositions may treat in another way than the loop.

    Args:
        arguments: the loop.
        derivation: its stages.
        results: the arrays of the last carry and of the outputs.
    """
    if 0 in arguments.shape or arguments.on_device or not any(_is_checked(arguments, s) for s in derivation.stages):
        return False
    if any(_is_odds(stage) for stage in derivation.stages):
        return True
    # The sign of a zero decides the sign of an infinity, which a quotient of sums of products does not have.
    zeros = not any(stage.kind == "mobius" for stage in derivation.stages)
    given: list[object] = [*arguments.init, *arguments.xs, *results]
    return any(isinstance(each, Array) or not _is_moderate(np.asarray(each), zeros) for each in given)


def _is_checked(arguments: LoopArguments, stage: Stage) -> bool:
    scalars = [arguments.step.states[place].scalar for place in stage.places]
    return any(scalar.kind in ("float", "complex") for scalar in scalars) or stage.kind not in _EXACT


def _is_odds(stage: Stage) -> bool:
    return isinstance(stage.composition, MobiusMaps) and stage.composition.odds


def _is_moderate(array: AnyArray, zeros: bool) -> bool:
    """Return True if all numbers are finite and far from the limits of their type, and no float is 0 if none may be."""
    kind = array.dtype.kind
    if kind == "b":
        return True
    if kind in "iu":
        limit = np.iinfo(array.dtype).max // 4
        return array.itemsize < 4 or not array.size or bool(array.max() <= limit and array.min() >= -limit)
    if kind == "c":
        return _is_moderate(array.real, zeros) and _is_moderate(array.imag, zeros)
    wide = compute_dtype(scalar_of(array.dtype))
    low, high = (wide.type(2.0**power) for power in ((-40, 40) if wide == np.float32 else (-300, 300)))
    for part in _chunks(array):
        size = np.abs(part.astype(wide, copy=False))
        fits = size >= low
        if zeros:
            fits |= size == 0
        # NaN is in no range.
        if not bool(np.all(fits & (size <= high))):
            return False
    return True


def _chunks(array: AnyArray) -> Iterator[AnyArray]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK]


def check_results(arguments: LoopArguments, derivation: Derivation, reverse: bool) -> tuple[object, object] | None:
    """Return the last carry and the outputs, if the step takes each carry of the derived form to the next one."""
    step = arguments.step
    run = LoopRun(arguments, derivation, reverse)
    run.all_states()
    known = dict(run.places)
    for node in step.results:
        if node.op != "input":
            run.places.pop(node.index, None)
    for stage in derivation.stages:
        wanted = run.map_nodes([[step.results[p]] for p in stage.places], [run.field_of(p) for p in stage.places])
        for place, each in zip(stage.places, wanted, strict=True):
            found, old = (np.asarray(known[nodes[place].index].array) for nodes in (step.results, step.states))
            if not _are_close(found, np.asarray(each), old, stage):
                return None
    run.places = known
    return run.finish()


def _are_close(found: AnyArray, wanted: AnyArray, old: AnyArray, stage: Stage) -> bool:
    if found.dtype.kind in "biu":
        return bool(np.array_equal(found, wanted))
    if found.dtype.kind == "c":
        return _are_close(found.real, wanted.real, old.real, stage) and _are_close(
            found.imag, wanted.imag, old.imag, stage
        )
    tolerance = _TOLERANCE * _ROUNDINGS[found.dtype.itemsize] ** 0.5
    found, wanted, old = (each.astype(np.float64) for each in (found, wanted, old))
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(wanted), np.where(np.isfinite(old), np.abs(old), 0))
        close = np.isfinite(found) & (np.abs(found - wanted) <= tolerance * size)
    close |= (found == wanted) | np.isnan(found) & np.isnan(wanted)
    if stage.kind == "mobius":
        close &= (wanted != 0) | (found != 0) | (np.signbit(found) == np.signbit(wanted))
    if _is_odds(stage):
        # A probability that the loop has rounded to 1 may stay there for good.
        close &= (old != 1) | (found == wanted)
    return bool(np.all(close))
