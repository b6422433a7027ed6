"""`gpuscan.scan_vjp`: the gradient of a scan with any operator that has derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.device import Device
from gpuscan.api.home import home_of
from gpuscan.api.linear_recurrence import native, summed_to
from gpuscan.api.outputs import execute, in_form_of, is_on_device
from gpuscan.engine.device_arrays import scan_device
from gpuscan.engine.host_arrays import scan_host
from gpuscan.operators.adjoint import LAST, Adjoint, Reading, Slot, adjoint, cached_adjoint, shifted, sum_of
from gpuscan.operators.operator import Operator
from gpuscan.problem.arguments import OnDevice, fields_of, structure_and_leaves
from gpuscan.problem.problem import Problem, make_problem
from gpuscan.problem.segments import heads_of
from gpuscan.reference import scan as reference

Arrays = list[Any]


def scan_vjp(
    x: Any,
    y: Any,
    grad_y: Any,
    op: Any = "add",
    *,
    axis: int | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    segments: Any = None,
    keys: Any = None,
) -> Any:
    """Return the gradient of a function of a scan's results, for ``y = gpuscan.scan(x, op, ...)``.

    ``grad_x = sum over t of (dy[t] / dx)^T grad_y[t]``, the vector-Jacobian product. With ``A[t]`` and ``B[t]`` the
    derivatives of ``op(left, right)`` with respect to `left` and `right` at ``(y[t-1], x[t])``, it is a recurrence from
    the end: ``G[t] = grad_y[t] + A[t+1]^T G[t+1]`` and ``grad_x[t] = B[t]^T G[t]``. A and B are derived from the
    operator's own operations. Nothing is divided by an element, so a product of zeros has its right gradient.

    The derivative is that of the operations. Of two equal values, `np.minimum` and `np.maximum` give all of the
    gradient to the left operand, and so to the first of several equal extrema in a scan; `np.where` gives it to the
    value that it takes. Comparisons, rounding and conversions to integers have the derivative 0, `np.abs` has it at 0.
    The gradient of a complex number ``a + bi`` is ``dL/da + i dL/db`` of a real L, as in PyTorch; JAX's is its
    conjugate.

    Args:
        x: the input of the scan: an array, a `gpuscan.Array`, or a bundle, of floats or complex numbers.
        y: the results of the scan.
        grad_y: the gradient with respect to the results, like `y`.
        op: the operator: a name, a NumPy ufunc, a `gpuscan.operator`, or a Python function of (left, right).
        axis, exclusive, reverse, initial, segments, keys: as they were passed to `gpuscan.scan`.

    Returns:
        The gradient with respect to `x`, in the form of `x`. With `initial`, ``(grad_x, grad_initial)``: the second has
        the form and the shape of `initial`, is made of NumPy arrays, and is summed over the rows and segments to which
        one value was broadcast. float16 and bfloat16 are computed in float32 and rounded when they are stored.

    Raises:
        OperatorError: the operator has no derivative: it is WGSL, reads the bits of numbers, or combines integers or
            bools; or it cannot be traced.
        ValueError: the shapes or fields of `y` or `grad_y` differ from those of `x`, or an argument does not fit, as
            for `gpuscan.scan`.
        TypeError: the dtype of `y` or `grad_y` differs from that of `x`.

    The derivatives follow reverse accumulation (Griewank and Walther, "Evaluating Derivatives", 2008). The recurrence
    is a scan of affine maps (Blelloch 1990, section 1.4). Of their matrices only the entries that vary are stored.

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
    return gradients(x, y, grad_y, op, axis=axis, **options)


def gradients(
    x: Any,
    y: Any,
    grad_y: Any,
    op: Any,
    *,
    axis: int | None,
    exclusive: bool = False,
    reverse: bool = False,
    initial: Any = None,
    segments: Any = None,
    keys: Any = None,
    device: Device | str | int | None = None,
) -> Any:
    """Return what `scan_vjp` returns, computed on a device of choice."""
    forward = make_problem(
        x, op, axis=axis, exclusive=exclusive, reverse=reverse, initial=initial, segments=segments, keys=keys
    )
    kept = isinstance(op, (str, np.ufunc, Operator))
    derived = (cached_adjoint if kept else adjoint)(
        forward.operator, forward.element, exclusive=forward.exclusive, seeded=forward.seeds is not None
    )
    states, grads = _alike("y", y, forward), _alike("grad_y", grad_y, forward)
    leaves = [*forward.leaves, *states, *grads]
    home = home_of(leaves, device)
    if any(isinstance(leaf, OnDevice) for leaf in leaves):
        assert home is not None
        leaves = [leaf if isinstance(leaf, OnDevice) else home.asarray(leaf) for leaf in leaves]
    count = len(forward.leaves)
    bundles = {"x": leaves[:count], "y": leaves[count : 2 * count], "grad": leaves[2 * count :]}
    results, first = _Backward(forward, derived, home, segments, keys).run(bundles, initial)
    gradient = in_form_of(forward, x, results)
    return gradient if initial is None else (gradient, first)


def _alike(name: str, value: Any, forward: Problem) -> Arrays:
    """Return the arrays of `y` or `grad_y`, which must be like those of `x`.

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
    found: Arrays = []
    for leaf, like in zip(leaves, forward.leaves, strict=True):
        leaf = leaf if isinstance(leaf, OnDevice) else native(leaf)
        if leaf.shape != like.shape:
            raise ValueError(
                f"{name} of shape {leaf.shape} was passed for an x of shape {like.shape}; pass arrays of one shape"
            )
        if leaf.dtype != like.dtype:
            raise TypeError(
                f"{name} of dtype {leaf.dtype} was passed for an x of dtype {like.dtype}, but both must agree. Convert "
                "one of them with .astype"
            )
        found.append(leaf)
    return found


class _Backward:
    """The backward pass of one scan, on one device or on NumPy."""

    def __init__(self, forward: Problem, derived: Adjoint, home: Device | None, segments: Any, keys: Any) -> None:
        self.forward, self.derived, self.home = forward, derived, home
        self.heads = heads_of(segments, keys, forward.shape, forward.axis, not forward.reverse)

    def run(self, bundles: dict[str, Arrays], initial: Any) -> tuple[Arrays, Any]:
        """Return the arrays of grad_x, and the gradient of `initial` or None.

        Args:
            bundles: the arrays of ``"x"``, ``"y"`` and ``"grad"``.
            initial: as in `scan_vjp`.
        """
        forward, derived = self.forward, self.derived
        readings = [derived.step, *([] if derived.sums else [derived.gradient])]
        readings += [] if derived.sums or initial is None else [derived.first]
        bundles = bundles | self._before(bundles["y"], {slot.bundle for each in readings for slot in each.slots})
        whole = self._problem(derived.transitions.operator, derived.step, bundles, after=derived.later)
        recurrence = replace(whole, reverse=not forward.reverse, heads=self.heads)
        inclusive = derived.sums and not forward.exclusive
        results = self._run(recurrence if inclusive else self._exclusive(recurrence))
        if not derived.sums:
            bundles["later"] = results
            results = self._mapped(derived.gradient, bundles)
            whole = self._problem(sum_of(len(results)), derived.first, bundles) if initial is not None else whole
        return results, None if initial is None else self._of_initial(whole, initial)

    def _before(self, states: Arrays, wanted: set[str]) -> dict[str, Arrays]:
        """Return the state before each element, and whether there is one, as far as they are wanted."""
        forward = self.forward
        found: dict[str, Arrays] = {}
        values, begun = "previous" in wanted, "begun" in wanted
        if values and forward.exclusive:
            found["previous"], values = states, False
        if not values and not begun:
            return found
        if forward.heads is None and not any(isinstance(state, OnDevice) for state in states):
            return self._shifted(states if values else []) | found
        reading = shifted(forward.element.fields, values=values, begun=begun)
        problem = self._problem(LAST, Reading(tuple(Slot("y", i) for i in range(len(states))), reading), {"y": states})
        problem = self._exclusive(replace(problem, reverse=forward.reverse, heads=forward.heads))
        if values and forward.seeds is not None:
            problem = replace(problem, seeds=(*forward.seeds, *(problem.seeds or ())[len(states) :]))
        results = self._run(problem)
        if begun:
            found["begun"] = [results.pop()]
        if values:
            found["previous"] = results
        return found

    def _shifted(self, states: Arrays) -> dict[str, Arrays]:
        """Return what `_before` does, for NumPy arrays of whole rows: by copies."""
        forward, axis = self.forward, self.forward.axis
        later, earlier, first = ([slice(None)] * len(forward.shape) for _ in range(3))
        later[axis], earlier[axis], first[axis] = slice(1, None), slice(0, -1), slice(0, 1)
        if forward.reverse:
            later[axis], earlier[axis], first[axis] = slice(0, -1), slice(1, None), slice(-1, None)
        begun = np.ones(forward.shape, bool)
        begun[tuple(first)] = False
        others = [n if i != axis else 1 for i, n in enumerate(forward.shape)]
        previous = []
        for i, (state, field) in enumerate(zip(states, forward.element.fields, strict=False)):
            before = np.empty_like(state)
            before[tuple(later)] = state[tuple(earlier)]
            if forward.shape[axis]:
                before[tuple(first)] = 0 if forward.seeds is None else forward.seeds[i].reshape(*others, *field.shape)
            previous.append(before)
        return {"previous": previous, "begun": [begun]}

    def _mapped(self, reading: Reading, bundles: Mapping[str, Arrays]) -> Arrays:
        """Return a function of these arrays: a scan of one row that keeps each element."""
        problem = self._problem(LAST, reading, bundles)
        fields = problem.source.fields
        flat = tuple(leaf.reshape((problem.size, *f.shape)) for leaf, f in zip(problem.leaves, fields, strict=True))
        results = self._run(replace(problem, leaves=flat, shape=(problem.size,), axis=0))
        fields = problem.element.fields
        return [each.reshape((*problem.shape, *f.shape)) for each, f in zip(results, fields, strict=True)]

    def _problem(
        self, operator: Operator, reading: Reading, bundles: Mapping[str, Arrays], after: Any = None
    ) -> Problem:
        """Return the inclusive forward scan of a function of these arrays."""
        element = reading.map.element
        return Problem(
            operator=operator,
            leaves=tuple(bundles[slot.bundle][slot.field] for slot in reading.slots),
            source=reading.map.source,
            element=element,
            destination=element if after is None else after.element,
            shape=self.forward.shape,
            axis=self.forward.axis,
            before=reading.map,
            after=after,
        )

    def _exclusive(self, problem: Problem) -> Problem:
        """Return the exclusive scan of a problem, which begins with zeros."""
        fields = problem.element.fields
        seeds = tuple(np.zeros((problem.rows, *field.shape), field.scalar.dtype) for field in fields)
        return replace(problem, exclusive=True, seeds=seeds)

    def _run(self, problem: Problem) -> Arrays:
        return execute(problem, self.home, "auto", None)

    def _of_initial(self, problem: Problem, initial: Any) -> Any:
        """Return the gradient of `initial`: a problem's last results, summed over what `initial` is broadcast to."""
        forward = self.forward
        problem = replace(problem, heads=None, keep_last_only=True)
        fields = forward.element.fields
        others = tuple(n for i, n in enumerate(forward.shape) if i != forward.axis)
        if problem.empty:
            totals = [np.zeros((forward.rows, *field.shape), field.scalar.dtype) for field in fields]
        elif self.home is None:
            totals = reference.reduce_rows(problem)
        elif is_on_device(problem):
            totals = [each.read() for each in scan_device(self.home._executor, problem)]
        else:
            totals = scan_host(self.home._executor, problem)
        gradients = []
        for total, value, field in zip(totals, fields_of(initial, forward.element, "initial"), fields, strict=True):
            whole = total.reshape((*others, *field.shape))
            gradients.append(summed_to(whole, np.shape(value)).astype(field.scalar.dtype, copy=False))
        return forward.element.structure.unflatten(gradients)
