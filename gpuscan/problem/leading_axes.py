"""Split the axes of a bundle's arrays into the axes that they share, and the axes of the element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from gpuscan.elements import Structure, element_of
from gpuscan.errors import OperatorError
from gpuscan.operators.source_location import MissingAxisError
from gpuscan.operators.trace import trace_function, trace_operator
from gpuscan.problem.indexed_maps import IndexedMap, as_map, with_index

if TYPE_CHECKING:
    from gpuscan.operators.operator import Operator
    from gpuscan.problem.arguments import Leaf

Shape = tuple[int, ...]

# Numbers of an element up to which other splits of the axes are tried.
_MAX_TRIED_NUMBERS = 1024


def split_axes(
    structure: Structure,
    leaves: Sequence[Leaf],
    own: Sequence[int],
    operator: Operator,
    before: Callable[..., object] | None = None,
    *,
    scans: bool = True,
) -> tuple[Shape, list[Shape]]:
    """Return the shape that all leaves share, and the trailing axes of each leaf that belong to the element.

    An array has as many trailing axes as the operator declares, or as a structured dtype has of its own, whichever are
    more. Arrays with fewer axes than others have fewer trailing ones. Without a declaration the arrays share all axes
    that they have in common. If the operator's function cannot be traced for these elements, they share fewer: the
    elements of ``lambda l, r: l @ r`` are matrices.

    Args:
        structure: how the arrays nest.
        own: how many trailing axes each array has from a structured dtype.
        before: the map on load, or None.
        scans: True if the arrays need an axis to scan along; a reduction takes single elements too.

    Raises:
        ValueError: a leaf has no axis to scan along, or the shapes differ.
        OperatorError: the function cannot be traced, whatever axes belong to the element.
    """
    choices = _choices(leaves, own, operator)
    if not choices or choices[0] < scans:
        raise _refusal(structure, leaves, own, operator)
    splits = [(leaves[0].shape[:lead], [leaf.shape[lead:] for leaf in leaves]) for lead in choices]
    if operator.function is None or operator.kinds is not None:
        return splits[0]
    # GPUs have no room for wider elements.
    splits[1:] = [split for split in splits[1:] if sum(map(prod, split[1])) <= _MAX_TRIED_NUMBERS]
    if len(splits) == 1:
        return splits[0]
    refusals = []
    for split in splits:
        refusal = _refusal_of_trace(structure, leaves, split[1], operator, before)
        if refusal is None:
            return split
        refusals.append(refusal)
    raise next((refusal for refusal in refusals if not isinstance(refusal, MissingAxisError)), refusals[-1])


def _choices(leaves: Sequence[Leaf], own: Sequence[int], operator: Operator) -> list[int]:
    """Return how many leading axes the arrays may share, the most first; none if they do not fit each other."""
    leads = [leaf.ndim - max(operator.element_axes, axes) for leaf, axes in zip(leaves, own, strict=True)]
    if len(set(leads)) == 1 and leads[0] >= 0 and _all_equal([leaf.shape[: leads[0]] for leaf in leaves]):
        declared = len(leaves) > 1 or operator.element_axes or any(own)
        return leads[:1] if declared else [leads[0], *range(leads[0] - 1, 0, -1)]
    most = min(leaf.ndim - axes for leaf, axes in zip(leaves, own, strict=True))
    shared_axes = min(most, count_shared_axes([leaf.shape for leaf in leaves]))
    if operator.element_axes:
        return [max(leads)] if 0 < max(leads) <= shared_axes else []
    return list(range(shared_axes, 0, -1)) if len(leaves) > 1 else []


def count_shared_axes(shapes: Sequence[Shape]) -> int:
    """Return how many leading axes are the same in all shapes."""
    count = 0
    for lengths in zip(*shapes, strict=False):
        if not _all_equal(lengths):
            break
        count += 1
    return count


def _all_equal(values: Sequence[object]) -> bool:
    """Return True if all values are equal. They need no hash, which lengths of a recorded call do not have."""
    return all(value == values[0] for value in values[1:])


def _refusal_of_trace(
    structure: Structure, leaves: Sequence[Leaf], trailing: list[Shape], operator: Operator, before: object
) -> OperatorError | None:
    """Return the error of tracing the operator's function for elements of these shapes; None if it can be traced."""
    assert operator.function is not None
    try:
        element = element_of([leaf.dtype for leaf in leaves], structure, trailing)
        load = as_map(before)
        source = with_index(element, 0) if isinstance(load, IndexedMap) else element
        element = element if load is None else trace_function(load, source, "before").element
        trace_operator(operator.function, element, operator.name)
    except OperatorError as error:
        return error
    return None


def _refusal(structure: Structure, leaves: Sequence[Leaf], own: Sequence[int], operator: Operator) -> ValueError:
    """Return the error for arrays that share no axis."""
    if structure.container != "leaf" and any(leaf.ndim == 0 for leaf in leaves):
        return ValueError(
            "a tuple or dict of single numbers was passed, but a tuple or dict is a bundle of arrays of one shape, "
            "and one of its arrays has no axis to scan along. Pass np.array([...]) for one array of these numbers"
        )
    if len(leaves) > 1 and count_shared_axes([leaf.shape for leaf in leaves]) == 0:
        shapes = ", ".join(str(leaf.shape) for leaf in leaves)
        return ValueError(
            f"a bundle of arrays of the shapes {shapes} was passed, but its arrays must have one shape, or at least "
            "one length along the first axis. Broadcast them with np.broadcast_arrays first"
        )
    axes = max(max(operator.element_axes, count) for count in own)
    short, count = next(
        (leaf, max(operator.element_axes, count))
        for leaf, count in zip(leaves, own, strict=True)
        if leaf.ndim <= max(operator.element_axes, count)
    )
    extra = f" and {axes} trailing axes of the element" if axes else ""
    advice = (
        "x[np.newaxis] to scan a single element" if short.ndim == count else f"an array of {count + 1} axes or more"
    )
    return ValueError(
        f"an array of shape {short.shape} was passed, but {operator.described} needs at least one axis to "
        f"scan along{extra}. Pass {advice}"
    )
