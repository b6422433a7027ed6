"""Count, search and select on a device. Nothing here goes through the CPU, and nothing waits for the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import DeviceArray, empty
from gpuscan.device.steps import Clear
from gpuscan.device.transfer import round_up
from gpuscan.elements import scalar_of
from gpuscan.engine.element_copy import bindable, contiguous
from gpuscan.engine.plan_steps import are_owned, stage_dispatch, uniform_of
from gpuscan.errors import DeviceMemoryError
from gpuscan.operators.parameter_array import HostArray, arrays_hold, words_of_array
from gpuscan.operators.parameters import Expression
from gpuscan.planning.counting_plan import SelectPlan, plan_count
from gpuscan.planning.key_heuristics import counting_heuristics_for

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.device.steps import Binding, Step


def _as_bindable(array: DeviceArray, what: str) -> DeviceArray:
    """Return the array itself if shaders can bind it, else a contiguous copy.

    Args:
        what: what is done with the array, for messages.

    Raises:
        DeviceMemoryError: it exceeds a binding.
    """
    context = array._context
    limit = context.binding_limit
    if array.nbytes > limit or array.size >= 2**31:
        raise DeviceMemoryError(
            f"an array of {array.nbytes} bytes was to be {what} on {context.capabilities.summary}, which binds at most "
            f"{limit} bytes. Take a part of it at a time, or a copy on the CPU: array.numpy()"
        )
    array._check("STORAGE")
    return bindable(contiguous(array))


def _submit(
    context: DeviceContext,
    name: str,
    numbers: Sequence[int | Expression],
    arrays: Sequence[DeviceArray],
    workgroups: int,
    clears: Sequence[DeviceArray] = (),
    /,
    **values: object,
) -> None:
    """Submit a stage of this module, after clears of some arrays. The caller holds the lock."""
    bound: list[Binding] = [uniform_of(context, numbers), *(array._binding() for array in arrays)]
    stage = stage_dispatch(context, f"counting/{name}.wgsl", bound, workgroups, arrays[0].size, **values)
    steps: list[Step] = [*(Clear(array.buffer, array.offset, round_up(array.nbytes)) for array in clears), stage]
    context.submit(steps, sum(array.nbytes for array in arrays), deferrable=are_owned(*arrays))


# ----- Counts


@dataclass(frozen=True)
class Edges:
    """The edges of bins, for numbers of one dtype.

    Attributes:
        numbers: (bins + 1,) of the dtype: the least number of each bin, and the greatest of the last one.
        usable: the number of bins that a number of the dtype can belong to; they are the first ones. Parameters of the
            call give an expression.
        floats: two numbers of float32: the bins per unit if all are about as wide, else 0; and the largest distance, in
            bins, from an edge to where this scale puts it.
    """

    numbers: DeviceArray
    usable: int | Expression
    floats: HostArray


def count_labels(labels: DeviceArray, bins: int) -> tuple[DeviceArray, DeviceArray]:
    """Return how often each label below `bins` occurs, and two words: the largest label, and 1 if one is negative.

    Args:
        labels: integers or bools, one or more of them.
        bins: 1 or more.
    """
    context = labels._context
    with context.errors, context.lock:
        validation_flag = empty(context, (2,), np.uint32)
        return _count(_as_bindable(labels, "counted"), bins, validation_flag), validation_flag


def count_bins(values: DeviceArray, edges: Edges) -> DeviceArray:
    """Return how many numbers belong to each bin.

    Args:
        values: numbers, one or more of them.
        edges: the edges of the bins.
    """
    context = values._context
    with context.errors, context.lock:
        return _count(_as_bindable(values, "counted"), edges.numbers.size - 1, None, edges)


def _has_scale(floats: AnyArray) -> bool:
    return bool(floats[0] > 0)


def _count(
    values: DeviceArray, bins: int, validation_flag: DeviceArray | None, edges: Edges | None = None
) -> DeviceArray:
    context, scalar = values._context, scalar_of(values.dtype)
    plan = plan_count(scalar, values.size, bins, context.capabilities, edged=edges is not None)
    counts = empty(context, (bins,), np.uint32)
    uniform = edges is not None and scalar.bits < 64 and arrays_hold(_has_scale, edges.floats)
    floats = [0, 0] if edges is None else words_of_array(edges.floats)
    numbers = [values.size, bins, plan.share, bins if edges is None else edges.usable, *floats]
    template_values: dict[str, object] = {
        "scalar": scalar,
        "edged": edges is not None,
        "cached": plan.cached,
        "uniform": uniform,
    }
    flag_or_edges = validation_flag if edges is None else edges.numbers
    assert flag_or_edges is not None
    cleared = [counts] if validation_flag is None else [counts, validation_flag]
    parts = plan.divided
    if parts is None:
        template_values |= {"workgroup_size": plan.workgroup, "copies": plan.copies, "slots": plan.slots}
        _submit(context, "count", numbers, [values, counts, flag_or_edges], plan.workgroups, cleared, **template_values)
        return counts
    bin_offsets = empty(context, (parts.tiles * parts.tile // 2,), np.uint32)
    ranges = empty(context, (parts.tiles * parts.parts,), np.uint32)
    totals = empty(context, (parts.parts,), np.uint32)
    part_values: dict[str, object] = {"parts": parts.parts, "part_bins": parts.part_bins}
    template_values |= {
        "workgroup_size": parts.workgroup,
        "vectors": parts.vectors,
        "copies": parts.copies,
        **part_values,
    }
    arrays = [values, bin_offsets, flag_or_edges, ranges, totals]
    _submit(context, "divide_bins", numbers, arrays, parts.tiles, [*cleared, totals], **template_values)
    part_values |= {
        "workgroup_size": parts.counting_workgroup,
        "lanes": parts.lanes,
        "tile": parts.tile,
        "at_once": parts.at_once,
    }
    unit = -(-values.size // (parts.workgroups - parts.parts))
    numbers = [parts.tiles, bins, unit]
    _submit(context, "count_parts", numbers, [bin_offsets, ranges, totals, counts], parts.workgroups, **part_values)
    return counts


# ----- Searches


def search(
    ordered: DeviceArray,
    searched: DeviceArray | int,
    *,
    right: bool = False,
    length: DeviceArray | None = None,
) -> DeviceArray:
    """Return where keys belong among sorted keys, as uint32 in the shape of the keys that are searched.

    Args:
        ordered: (n,): keys in the order of a sort.
        searched: keys of the same dtype, in any order and shape; or a number n, for the numbers from 0 to n - 1 as
            uint32.
        right: True for the index after equal keys, False for the index before them.
        length: the number of sorted keys, as one word on the device; without it they all count.

    Raises:
        DeviceMemoryError: an array exceeds a binding.
    """
    context = ordered._context
    own = isinstance(searched, int)
    shape = (searched,) if isinstance(searched, int) else searched.shape
    with context.errors, context.lock:
        indices = empty(context, shape, np.uint32)
        if not indices.size:
            return indices
        if not ordered.size:
            context.submit(
                [Clear(indices.buffer, indices.offset, round_up(indices.nbytes))], indices.nbytes, deferrable=True
            )
            return indices
        h = counting_heuristics_for(context.capabilities.adapter_type)
        # A binding has one word or more.
        arrays = [_as_bindable(ordered, "searched"), _as_bindable(indices, "searched")]
        if isinstance(searched, DeviceArray):
            arrays.append(_as_bindable(searched, "searched"))
        if length is not None:
            arrays.append(length)
        scalar = scalar_of(ordered.dtype)
        workgroup = min(h.search_workgroup, context.capabilities.limits["max-compute-invocations-per-workgroup"])
        values = {
            "scalar": scalar,
            "workgroup_size": workgroup,
            "items": h.search_items,
            "top": h.search_top // scalar.words,
            "right": right,
            "counted": length is not None,
            "own": own,
        }
        workgroups = -(-indices.size // (workgroup * h.search_items))
        _submit(context, "search", [indices.size, ordered.size], arrays, workgroups, **values)
        context.check_if_many()
        return indices


# ----- Selections


def select(
    keys: DeviceArray, rows: int, kept: int, plan: SelectPlan, *, descending: bool
) -> tuple[DeviceArray, DeviceArray]:
    """Return the first keys of each row in the order of a sort, and their indices, both in the order of the indices.

    Args:
        keys: the keys, row by row. Each row has one key or more.
        kept: how many keys of each row to return.
        plan: the rounds of the selection.
        descending: True if the greatest key comes first.

    Returns:
        The keys, as one or two words each, and the indices in their rows, as uint32: (rows * kept).

    Raises:
        DeviceMemoryError: the keys exceed a binding.
    """
    context, scalar = keys._context, scalar_of(keys.dtype)
    row_length = keys.size // rows
    with context.errors, context.lock:
        bindable_keys = _as_bindable(keys, "searched for the first keys")
        selected = empty(context, (rows * kept * scalar.words,), np.uint32)
        bounds = empty(context, (rows,), np.uint32)
        candidates: list[DeviceArray] = []
        bounded = len(plan.rounds) > 1
        for number, selection in enumerate((*plan.sample, *plan.rounds)):
            first, final = number in (0, len(plan.sample)), selection is plan.rounds[-1]
            candidates = [] if first else candidates
            key_indices = empty(context, (rows * selection.tiles * kept,), np.uint32)
            arrays = [
                bindable_keys,
                key_indices,
                *candidates,
                *([bounds] if bounded else []),
                *([selected] if final else []),
            ]
            values = {
                "scalar": scalar,
                "descending": descending,
                "workgroup_size": plan.workgroup,
                "items": selection.items,
                "first": first,
                "bounded": bounded,
                "final": final,
            }
            numbers = [rows, selection.length, selection.tiles, kept, row_length, selection.stride]
            cleared = [bounds] if bounded and number == 0 else []
            _submit(context, "select", numbers, arrays, rows * selection.tiles, cleared, **values)
            candidates = [key_indices]
        return selected, candidates[0]
