"""`gpuscan.scan_vjp`: the gradient of a scan with any operator that has derivatives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.call_device import find_call_device, takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.host_cuts import upload_scan_cuts
from gpuscan.api.launches import launchable_with
from gpuscan.api.linear_recurrence import gradient_of_broadcast
from gpuscan.api.outputs import execute, in_form_of, is_on_device, reduce_rows
from gpuscan.elements import Element, Field, bundle_of
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.operators.adjoint import LAST, Adjoint, Slot, adjoint, cached_adjoint, sum_of, with_flag
from gpuscan.operators.operator import Operator
from gpuscan.operators.parameter_array import is_number_parameter
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import (
    Leaf,
    OnDevice,
    as_input_array,
    as_numpy_arrays,
    fields_of,
    native,
    structure_and_leaves,
)
from gpuscan.problem.broadcasting import sum_to_shape
from gpuscan.problem.fixed_bits import EVERYWHERE, is_everywhere
from gpuscan.problem.indexed_maps import with_index
from gpuscan.problem.packed_fields import STORAGE_LIMIT, binds_too_many
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.segments import heads_of
from gpuscan.reference import scan as reference

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from gpuscan.api.annotations import B, Bundle, Operation, ScanGradientOptions, Value


Arrays = list[SomeArray]

# The array that tells the first elements of rows and segments.
FLAG = Slot("has_previous")


@overload
def scan_vjp(
    x: B,
    y: Bundle,
    grad_y: Bundle | ArrayLike,
    op: Operation = ...,
    *,
    initial: None = ...,
    **options: Unpack[ScanGradientOptions],
) -> B: ...
@overload
def scan_vjp(
    x: B,
    y: Bundle,
    grad_y: Bundle | ArrayLike,
    op: Operation = ...,
    *,
    initial: object,
    **options: Unpack[ScanGradientOptions],
) -> tuple[B, Any]: ...
@overload
def scan_vjp(
    x: object,
    y: object,
    grad_y: object,
    op: Operation = ...,
    *,
    initial: object = ...,
    **options: Unpack[ScanGradientOptions],
) -> Any: ...
def scan_vjp(
    x: object,
    y: object,
    grad_y: object,
    op: object = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    segments: object = None,
    keys: Any = None,
    reproducible: str | None = None,
) -> object:
    """Return the gradient of a loss with respect to the input of a scan: the vector-Jacobian product of the scan.

    For ``y = gpuscan.scan(x, op, ...)``, let ``A[t]`` and ``B[t]`` be the derivatives of ``op(left, right)`` with
    respect to `left` and `right` at ``(y[t-1], x[t])``. The recurrence ``G[t] = grad_y[t] + A[t+1]^T G[t+1]`` runs from
    the end, and ``grad_x[t] = B[t]^T G[t]``. gpuscan derives A and B from the operations of the operator. It divides by
    no element, so products with zeros have the right gradient.

    Of two equal values, `np.minimum` and `np.maximum` give the whole gradient to the left operand. In a scan, that is
    the first of several equal extrema. `np.where` gives it to the value that it takes. Comparisons, rounding and
    conversions to integers have the derivative 0, and so has `np.abs` at 0. The gradient of a complex number ``a + bi``
    is ``dL/da + i dL/db`` for the loss L, as in PyTorch; JAX's gradient is the conjugate. For derivatives of
    derivatives, use `gpuscan.torch.associative_scan` or `gpuscan.jax.associative_scan`.

    Args:
        x: the input of the scan: an array, a `gpuscan.Array`, or a bundle, of floats or complex numbers.
        y: the results of the scan.
        grad_y: the gradient of the loss with respect to `y`, in the shapes and dtypes of `y`.
        op, axis, exclusive, reverse, initial, segments, keys: as they were passed to `gpuscan.scan`.
        reproducible: as in `gpuscan.scan`, for the bits of the gradient.

    Returns:
        The gradient with respect to `x`: an array or bundle like `x`. With `initial`, the pair
        ``(grad_x, grad_initial)``. The second has the shape of `initial`, is on the device if `x` is, and is summed
        over the rows and segments to which `initial` was broadcast. float16 and bfloat16 are computed in float32 and
        rounded when they are stored.

    Raises:
        OperatorError: the operator has no derivative, because it is WGSL, reads the bits of numbers, or combines
            integers or bools; or it cannot be traced.
        ValueError: `y` or `grad_y` has other shapes or fields than `x`, or an argument does not fit, as for
            `gpuscan.scan`.
        TypeError: `y` or `grad_y` has another dtype than `x`.

    The derivatives follow reverse accumulation (Griewank and Walther, "Evaluating Derivatives", 2008). The recurrence
    is a scan of affine maps (Blelloch 1990, section 1.4). Entries of their matrices that never vary are not stored.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([2, 3, 0, 5], np.float32)
        >>> y = gs.scan(x, "multiply")
        >>> gs.scan_vjp(x, y, np.ones(4, np.float32), "multiply")
        array([ 4.,  2., 36.,  0.], dtype=float32)
        >>> gs.scan_vjp(x, gs.scan(x, "maximum"), np.ones(4, np.float32), lambda l, r: np.maximum(l, r))
        array([1., 2., 0., 1.], dtype=float32)
    """
    options = {"exclusive": exclusive, "reverse": reverse, "initial": initial, "segments": segments, "keys": keys}
    return gradients(x, y, grad_y, op, axis=axis, reproducible=reproducible, **options)


@takes_numpy("x", "y", "grad_y")
@launchable_with("initial", data=["y", "grad_y", "initial"], upload=upload_scan_cuts, integers=["initial"])
def gradients(
    x: object,
    y: object,
    grad_y: object,
    op: object = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: object = None,
    segments: object = None,
    keys: Any = None,
    reproducible: str | None = None,
    device: Device | str | int | None = None,
) -> Any:
    """Return what `scan_vjp` returns, computed on a device of choice."""
    options = {"exclusive": exclusive, "reverse": reverse, "initial": initial, "segments": segments, "keys": keys}
    forward = make_problem(x, op, axis=axis, seeds_on_device=True, **options)
    is_cacheable = isinstance(op, (str, np.ufunc, Operator))
    derived = (cached_adjoint if is_cacheable else adjoint)(
        forward.operator,
        forward.element,
        exclusive=forward.exclusive,
        seeded=forward.seeds is not None,
        initial=initial is not None,
    )
    states, grads = _alike("y", y, forward), _alike("grad_y", grad_y, forward)
    leaves = [*map(as_some_array, forward.leaves), *states, *grads]
    call_device = find_call_device([*leaves, *forward.arrays], device)
    forward = seeds_by_rows(forward)
    if any(isinstance(leaf, OnDevice) for leaf in leaves):
        assert call_device is not None
        leaves = [leaf if isinstance(leaf, OnDevice) else call_device.asarray(leaf) for leaf in leaves]
    count = len(forward.leaves)
    bundles = {"x": leaves[:count], "y": leaves[count : 2 * count], "grad": leaves[2 * count :]}
    fixed = is_everywhere(reproducible)
    results, first = _Backward(forward, derived, call_device, segments, keys, fixed).run(bundles, initial)
    gradient = in_form_of(forward, x, results)
    return gradient if initial is None else (gradient, first)


def _alike(name: str, value: object, forward: Problem) -> Arrays:
    """Return the arrays of `y` or `grad_y`, after a check that they fit the arrays of `x`.

    Raises:
        ValueError: the bundle has other fields, or an array has another shape.
        TypeError: an array has another dtype.
    """
    structure, leaves = structure_and_leaves(value)
    if structure.leaf_count != len(forward.leaves) or list(structure.paths()) != list(forward.source.structure.paths()):
        raise ValueError(
            f"{name} of {structure.leaf_count} arrays was passed for an x of {len(forward.leaves)}, but both must have "
            f"the same fields. Pass {name} as gpuscan.scan returns the result for x"
        )
    checked: Arrays = []
    for leaf, like in zip(leaves, forward.leaves, strict=True):
        array = leaf if isinstance(leaf, Array) else native(as_input_array(leaf))
        if array.shape != like.shape:
            raise ValueError(
                f"{name} of shape {array.shape} was passed for an x of shape {like.shape}; pass arrays of one shape"
            )
        if array.dtype != like.dtype:
            raise TypeError(
                f"{name} of dtype {array.dtype} was passed for an x of dtype {like.dtype}, but both must agree. "
                "Convert one of them with .astype"
            )
        checked.append(array)
    return checked


@lru_cache(maxsize=256)
def _flag_by_index(derived: Adjoint) -> tuple[Element, Map]:
    """Return the element and the map of `derived.before` without its flag, which the element's index tells instead."""
    flag_slot = derived.slots.index(FLAG)
    fields = derived.before.source.fields
    source = bundle_of([*fields[:flag_slot], *fields[flag_slot + 1 :]])

    def before(pair: tuple[tuple[Value, ...], Value]) -> object:
        values, index = pair
        return derived.before((*values[:flag_slot], index != 0, *values[flag_slot:]))

    return source, trace_function(before, with_index(source, 1), "before")


class _Backward:
    """The backward pass of one scan, on one device or on NumPy."""

    def __init__(
        self, forward: Problem, derived: Adjoint, device: Device | None, segments: object, keys: object, fixed: bool
    ) -> None:
        self.forward, self.derived, self.device, self.fixed = forward, derived, device, fixed
        self.heads = heads_of(segments, keys, forward.shape, forward.axis, not forward.reverse)

    def run(self, bundles: dict[str, Arrays], initial: object) -> tuple[Arrays, object]:
        """Return the arrays of grad_x, and the gradient of `initial` or None.

        Args:
            bundles: the arrays of ``"x"``, ``"y"`` and ``"grad"``.
            initial: as in `scan_vjp`.
        """
        forward, derived, slots = self.forward, self.derived, self.derived.slots
        problem = Problem(
            operator=derived.operator,
            leaves=(),
            source=derived.before.source,
            element=derived.before.element,
            destination=derived.after.element,
            shape=forward.shape,
            axis=forward.axis,
            reverse=not forward.reverse,
            before=derived.before,
            after=derived.after,
            heads=self.heads,
        )
        reads = self._reads_neighbours(problem, bundles)
        if reads and FLAG in slots and forward.seeds is None and not forward.reverse:
            source, before = _flag_by_index(derived)
            slots = tuple(slot for slot in slots if slot != FLAG)
            problem = replace(problem, source=source, before=before, indexed=True)
        wanted = {slot.bundle for slot in slots}
        ends = reads and "previous" in wanted and "has_previous" not in wanted and forward.seeds is None
        bundles = bundles | ({"previous": bundles["y"]} if ends else self._before(bundles["y"], wanted))
        problem = replace(problem, leaves=tuple(bundles[slot.bundle][slot.field] for slot in slots))
        ahead = [slot.ahead for slot in slots]
        if reads:
            # In the order of this scan, the element ahead comes before an element, and the previous one after it.
            offsets = tuple(-1 if slot.ahead else int(ends and slot.bundle == "previous") for slot in slots)
            start = [tuple(value.ravel()) for value in derived.start]
            row_ends = tuple(start[slot.field] if slot.bundle == "previous" else () for slot in slots)
            problem = replace(problem, field_offsets=offsets if any(offsets) else (), row_ends=row_ends if ends else ())
        elif any(ahead):
            problem = self._with_neighbours(problem, ahead)
        results = self._run(problem.as_reproducible() if self.fixed else problem)
        count = len(forward.leaves)
        return results[:count], None if initial is None else self._of_initial(results[count:], initial)

    # ----- Neighbours of elements

    def _reads_neighbours(self, problem: Problem, bundles: dict[str, Arrays]) -> bool:
        """Return True if the kernel can read neighbours: of arrays on the device, in whole rows, without segments."""
        if self.fixed or self.device is None or problem.heads is not None or not isinstance(bundles["x"][0], OnDevice):
            return False
        context = self.device._context
        row = problem.row_length * max(field.storage_bytes for field in problem.source.fields)
        limit = context.capabilities.limits[STORAGE_LIMIT]
        # A part takes four columns of narrow numbers or more.
        return 4 * row <= context.binding_limit and not binds_too_many(problem, limit)

    def _with_neighbours(self, problem: Problem, ahead: Sequence[bool]) -> Problem:
        """Return the problem with arrays of the values ahead, and zero at the ends of rows and segments."""
        leaves = list(map(as_some_array, problem.leaves))
        indices = [index for index, is_ahead in enumerate(ahead) if is_ahead]
        fields = [problem.source.fields[index] for index in indices]
        zeros = [np.zeros((problem.rows, *field.shape), field.scalar.dtype) for field in fields]
        shifted = self._shift_arrays([leaves[index] for index in indices], fields, zeros, ahead=True)
        for index, leaf in zip(indices, shifted, strict=True):
            leaves[index] = leaf
        return replace(problem, leaves=tuple(leaves))

    def _before(self, states: Arrays, wanted: set[str]) -> dict[str, Arrays]:
        """Return the bundles ``"previous"``, the states before the elements, and ``"has_previous"``, if wanted."""
        forward = self.forward
        fields = forward.element.fields
        before: dict[str, Arrays] = {}
        if not wanted & {"has_previous", "previous"}:
            return before
        seeds: Sequence[Leaf] | None = forward.seeds
        if seeds is None:
            seeds = [np.broadcast_to(value, (forward.rows, *value.shape)) for value in self.derived.start]
        if "has_previous" in wanted:
            count = len(states) if "previous" in wanted else 0
            *before["previous"], begun_flags = self._shift_arrays(states, fields, seeds[:count], flag=True)
            before["has_previous"] = [begun_flags]
        elif "previous" in wanted:
            before["previous"] = self._shift_arrays(states, fields, seeds)
        return before

    def _shift_arrays(
        self,
        arrays: Arrays,
        fields: Sequence[Field],
        seeds: Sequence[Leaf],
        *,
        flag: bool = False,
        ahead: bool = False,
    ) -> Arrays:
        """Return for each element the values of the one before it, or ahead of it, in the order of the forward scan.

        Args:
            seeds: the values at the first elements of rows and segments, for each row. With a flag, there may be fewer
                of them: then only as many arrays are shifted.
            flag: True to get an array of bools as well, which is False at the first elements.
            ahead: True for the values of the elements ahead.
        """
        forward = self.forward
        reverse = forward.reverse != ahead
        if forward.heads is None and not any(isinstance(array, OnDevice) for array in arrays):
            shape, axis = forward.shape, forward.axis
            triples = zip(as_numpy_arrays(arrays), fields, as_numpy_arrays(seeds), strict=False)
            others = shape[:axis] + shape[axis + 1 :]
            pairs = [(array, seed.reshape((*others, *field.shape))) for array, field, seed in triples]
            pairs += [(np.ones(shape, bool), np.array(False))] if flag else []
            return [reference.shift(array, first, axis, reverse=reverse) for array, first in pairs]
        arrays, fields = arrays[: max(1, len(seeds))], fields[: max(1, len(seeds))]
        element = bundle_of(fields)
        before = with_flag(fields, len(seeds)) if flag else None
        result = element if before is None else before.element
        return self._run(
            Problem(
                operator=LAST,
                leaves=tuple(arrays),
                source=element,
                element=result,
                destination=result,
                shape=forward.shape,
                axis=forward.axis,
                exclusive=True,
                reverse=reverse,
                seeds=(*seeds, *([np.zeros(forward.rows, bool)] if flag else [])),
                before=before,
                heads=self.heads if ahead else forward.heads,
            )
        )

    # ----- Runs

    def _run(self, problem: Problem) -> Arrays:
        return list(execute(problem, self.device, "auto", None))

    def _of_initial(self, firsts: Arrays, initial: object) -> object:
        """Return the gradient of `initial`: what the first elements give, summed over what it is broadcast to."""
        forward, element = self.forward, self.derived.firsts
        fields = forward.element.fields
        others = tuple(n for i, n in enumerate(forward.shape) if i != forward.axis)
        problem = Problem(
            operator=sum_of(len(firsts)),
            leaves=tuple(firsts),
            source=element,
            element=element,
            destination=element,
            shape=forward.shape,
            axis=forward.axis,
            keep_last_only=True,
        )
        if self.fixed:
            problem = problem.as_reproducible()
        totals: Sequence[SomeArray]
        if problem.empty:
            totals = [np.zeros((forward.rows, *field.shape), field.scalar.dtype) for field in fields]
        else:
            totals = reduce_rows(problem, self.device)
        gradients: Arrays = []
        for total, value, field in zip(totals, fields_of(initial, forward.element, "initial"), fields, strict=True):
            whole, dtype = total.reshape((*others, *field.shape)), field.scalar.dtype
            shape = () if is_number_parameter(value) else np.shape(value)
            if self.fixed:
                where = self.device or "numpy"
                gradients.append(gradient_of_broadcast(whole, shape, dtype, where, None, EVERYWHERE))
            elif self.device is not None and is_on_device(problem):
                whole = whole if isinstance(whole, Array) else new_array(self.device, whole)
                gradients.append(gradient_of_broadcast(whole, shape, dtype, self.device, None))
            else:
                gradients.append(sum_to_shape(shape, np.asarray(whole)).astype(dtype, copy=False))
        return forward.element.structure.build_bundle(gradients)
