"""`gpuscan.loop`: a sequential step, written as for `jax.lax.scan`, run as a scan, step by step, or by Newton's method.

Newton's method scans the linearised step, until the carries satisfy the step (Lim et al. 2024).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import repeat
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from gpuscan.api.array import Array, SomeArray
from gpuscan.api.call_device import takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.loop_arguments import LoopArguments, NodeArray, loop_arguments
from gpuscan.api.loop_scans import LoopRun, stack_numbers
from gpuscan.api.outputs import execute
from gpuscan.api.reduce import reduce
from gpuscan.array_types import AnyArray, AnyDType
from gpuscan.device.device_array import device_arrays_in
from gpuscan.elements import (
    Field,
    Scalar,
    bundle_of,
    compute_dtype,
    element_of,
    numpy_dtype,
    scalar_of,
    tuple_of,
    word_dtype,
)
from gpuscan.engine.sequential_loop import run_loop
from gpuscan.errors import LoopError, OperatorError, abbreviate
from gpuscan.operators.adjoint import map_of
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node
from gpuscan.operators.loops.classes import Derivation, LoopForm, form_of
from gpuscan.operators.loops.linearisation import linearise
from gpuscan.operators.loops.mobius import MobiusMaps
from gpuscan.operators.loops.modular import Modular
from gpuscan.operators.loops.roundings import QuotientMaps, RoundedMaps
from gpuscan.operators.loops.semirings import MatrixMaps, ProductMaps
from gpuscan.operators.loops.stage import LoopStage
from gpuscan.operators.loops.step import Step
from gpuscan.operators.operator import Function
from gpuscan.operators.trace import Map, trace_function
from gpuscan.problem.arguments import as_flag, as_integer, check_choice
from gpuscan.problem.fixed_bits import check_fixed_step, is_everywhere, trace_with_one_nan
from gpuscan.problem.results import over_arrays, parts_of
from gpuscan.reference.everywhere import compute_fixed_map

Method: TypeAlias = Literal["auto", "sequential", "newton"]
_METHODS: tuple[str, ...] = get_args(Method)
# The default tolerance, in roundings of the carry's type.
_ROUNDINGS = 16
# After an iteration that made the residual larger, the matrices are multiplied by this; after a better one they
# recover.
_DAMPING = 0.5
# How many numbers are looked at in one go, which stay in a cache.
_LOOKED_AT = 1 << 15
# The classes that are exact for all integers, since integers wrap. Remainders and quotients of sums that wrap are not.
_EXACT = frozenset({"affine", "extremum", "bitwise", "fold", "finite-state"})
_ROUNDED = (QuotientMaps, RoundedMaps)
# How far a carry may be from what the step gives, in units of the square root of a rounding.
_TOLERANCE = 4
# The largest relative rounding of floats, by their size in bytes: of two bytes, that of bfloat16.
_RELATIVE_ROUNDINGS = {2: 2.0**-8, 4: 2.0**-23, 8: 2.0**-52}

# What a loop ran as, or a function that finds it out.
LateForm: TypeAlias = LoopForm | Callable[[], LoopForm] | None


class LoopResult(tuple[Any, Any]):
    """The pair ``(carry, ys)`` that `gpuscan.loop` returns.

    Attributes:
        iterations: the number of iterations of Newton's method; None for other methods.
    """

    iterations: int | None
    _form: LateForm

    def __new__(cls, carry: object, ys: object, form: LateForm = None, iterations: int | None = None) -> LoopResult:
        self = super().__new__(cls, (carry, ys))
        self._form, self.iterations = form, iterations
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Copies and pickles call the class again. A function that derives the form later cannot be pickled.
        return type(self), (self.carry, self.ys, self.form, self.iterations)

    @property
    def carry(self) -> Any:
        """The carry after the last step."""
        return self[0]

    @property
    def ys(self) -> Any:
        """The outputs of the steps."""
        return self[1]

    @property
    def form(self) -> LoopForm | None:
        """The `LoopForm` that was run; None for other methods than ``"auto"``."""
        if callable(self._form):
            self._form = self._form()
        return self._form


def loop(
    f: Function,
    init: object,
    xs: object,
    *,
    axis: int = 0,
    reverse: bool = False,
    method: Method = "auto",
    tolerance: float | None = None,
    max_iterations: int = 100,
    device: Device | str | int | None = None,
    reproducible: str | None = None,
) -> LoopResult:
    """Run a sequential loop as a scan: ``carry, y[t] = f(carry, x[t])`` for each t, beginning with `init`.

    Write `f` for one step, as for `jax.lax.scan`. gpuscan traces it, and derives an associative function that combines
    two steps into one. This is possible if the step, as a function of the carry, belongs to one of these classes:

    ================  =================================================================================================
    ``form.kind``     the step as a function of the carry h; a, b, low and high may be computed from x in any way
    ================  =================================================================================================
    ``affine``        ``a * h + b``, also with matrices; integers wrap, or are modulo a constant: ``(a * h + b) % m``;
                      phases of floats, ``(h + b) % m``; integers that are rounded: ``(h + a) // m + b``, tab stops
                      ``(h // m + 1) * m``, ``h % m + b``; sums with end-around carry
    ``max-plus``      ``np.maximum(h + a, b)``; ``min-plus`` with ``np.minimum``
    ``log-plus``      ``np.logaddexp(h + a, b)``
    ``max-times``     ``np.maximum(a * h, b)`` for a that is provably not negative; the largest and the least product of
                      adjacent elements, ``np.maximum(np.maximum(a * hi, a * lo), b)`` and the same with ``np.minimum``
    ``clamp``         ``np.clip(h + a, low, high)``; for floats also ``np.clip(a * h + b, low, high)``, with one
                      bound or two; clamps that stay at a bound: ``np.where(h <= 0, 0, np.minimum(h + a, high))``
    ``extremum``      ``np.maximum(h, b)``, or ``np.where(v > best, ...)`` with values that belong to the best one; by
                      a key, ``np.where(np.abs(v) > np.abs(h), v, h)``, or by several in turn, ``max(carry, x)`` of
                      tuples; the first value that is not missing, ``np.where(np.isnan(h), v, h)`` or
                      ``np.where(h < 0, v, h)``
    ``mobius``        ``(a * h + b) / (c * h + d)``; of several numbers ``(A @ h + b) / (c @ h + d)``, or ``A @ h``
                      divided by its sum, its maximum or its Euclidean norm
    ``bitwise``       ``(h & m) ^ x``, ``|``, ``~``, ``h << x``, bools; also shifts as in a CRC or in feedback
    ``fold``          ``np.gcd``, ``np.lcm``, ``np.hypot`` or ``np.logaddexp2`` of h and b
    ``finite-state``  any function, if h takes at most 64 values
    ``staged``        several of these, for parts of the carry that depend on each other in one direction
    ================  =================================================================================================

    A step may also have:

    - ``np.where`` with a condition on x: it chooses between maps of a class, or resets the carry. After a reset, no
      value of an earlier step reaches a later step, not even NaN.
    - Python's ``if``, ``and``, ``or``, ``not``, ``min`` and ``max``: they are traced as ``np.where`` is, up to 256 ways
      through f.
    - An affine loop that begins with its first input: ``np.where(np.isnan(h), x, a * h + b)``.
    - A stop at a condition on the carry, which keeps the carry from then on: ``np.where(h < limit, h + b, h)``; or a
      flag that stays: ``done = done | (h > limit)``.
    - A change of variable that leads to a class: ``np.sqrt(a * h**2 + b)``, ``np.exp(a * np.log(h) + b)``.
    - Other spellings: ``s - np.minimum(s, x)`` is ``np.maximum(s - x, 0)``. A clamp to constants may have one
      ``np.where`` for each bound. A shift register, ``(s << 1) | flag``, is affine. A function of one integer is
      recognised by its values: ``if h > 0: h -= 1`` is ``np.maximum(h - 1, 0)``.
    - Arrays that f closes over, such as the transition table of an automaton. Integers of the carry and of x may index
      them.

    Args:
        f: the step: takes the carry and x, each one element of `init` and of `xs`, and returns ``(carry, y)``. It may
            also return a carry alone, or ``(carry, None)``. Usually an element is one number, and there is a loop of
            its own for each index of the other axes. If `f` indexes its carry or multiplies it as a matrix, the last
            axes of `init` belong to the carry, but no more of them than `f` needs; in ``x @ h``, both are matrices if
            they have the axes for it. As with `jax.lax.scan`, `f` gets all numbers of `xs` at a step in two cases: it
            indexes or sums x but not the carry, as in ``h + x.sum(axis=0)``; or all axes of `init` belong to the carry.
            The next carry must then have the shape of `init`. ``form.state_shape`` is the shape of the carry.
        init: the first carry: an array, a number, or a bundle of these. It is broadcast over the other axes of `xs`. A
            Python number gets the dtype of `xs`, except that a counter that does not depend on `xs` is at least int32.
        xs: an array or a bundle of arrays, of shape (…, n, …) for n steps.
        axis: the axis of the loop, one of the leading axes that all arrays of `xs` share.
        reverse: True to run from the end. The outputs keep the order of the input.
        method: ``"auto"`` runs the derived form. If NumPy arrays have infinities or numbers near the limits of their
            dtype, gpuscan checks that each carry follows from the one before. If one does not, the loop itself runs.
            ``"sequential"`` runs any step as a loop, with one invocation of the GPU for each element of the other axes.
            ``"newton"`` iterates scans of the linearised step, for steps of floats.
        tolerance: for ``"newton"``, the largest residual, relative to the carry (default: 16 times the machine epsilon
            of the carry's dtype).
        max_iterations: for ``"newton"``, the largest number of iterations.
        device, reproducible: as in `gpuscan.scan`. `reproducible` cannot be combined with ``method="newton"``.

    Returns:
        A pair ``(carry, ys)``. The last carry has the other axes of `xs`. The outputs are ``ys[t] = y[t]``, in the
        structure of y, with the axes of `xs`. They are None if y is None, and the carries after each step if f returns
        the carry alone. The pair also has the attributes ``form``, the `LoopForm` that was run, and ``iterations``, the
        number of iterations of Newton's method. The arrays are of type `gpuscan.Array` if any input is.

    Raises:
        LoopError: the step has no associative form, and the message names the operation in the way; or Newton's method
            did not converge.
        OperatorError: the step cannot be traced; or with `reproducible`, it has an operation that gives different bits
            on different devices.
        TypeError: the carry that f returns does not fit the dtype of `init`, or has another structure.
        ValueError: the shapes or the axis do not fit, or `method`, `tolerance` or `max_iterations` has a wrong value.

    Sources: Ladner & Fischer, "Parallel Prefix Computation" (1980), for finite states; Blelloch, "Prefix Sums and Their
    Applications" (1990), for affine maps; Lim et al., "Parallelizing non-linear sequential models over the sequence
    length" (2024), for Newton's method.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([3, 5, -9, 4, 2], np.float32)
        >>> carry, level = gs.loop(lambda level, flow: np.clip(level + flow, 0, 6), 0.0, x)
        >>> level
        array([3., 6., 0., 4., 6.], dtype=float32)
        >>> gs.loop_form(lambda level, flow: np.clip(level + flow, 0, 6), 0.0, x).kind
        'clamp'
    """
    reverse = as_flag("reverse", reverse)
    check_choice("method", method, _METHODS)
    if tolerance is not None or type(max_iterations) is not int or max_iterations < 1:
        tolerance, max_iterations = _check_limits(tolerance, max_iterations)
    fixed = reproducible is not None and is_everywhere(reproducible)
    if fixed and method == "newton":
        raise OperatorError(
            'reproducible="everywhere" was passed with method="newton", which stops as soon as rounding errors are '
            'small, and these differ between devices. Pass method="auto" or "sequential", or leave reproducible out'
        )
    if method == "newton":
        carry, ys, iterations = run_newton(f, init, xs, axis, reverse, device, tolerance, max_iterations)
        return LoopResult(carry, ys, None, iterations)
    options: dict[str, Any] = {"axis": axis, "reverse": reverse, "method": method, "device": device, "fixed": fixed}
    carry, ys, doubtful = _launch_loop(f, init, xs, **options)
    if doubtful is not None and not device_arrays_in(carry):
        start = _in_dtypes_of(carry, init)
        if has_doubtful(doubtful, _arrays_in(start, xs, carry, ys)):
            carry, ys, _ = _run(f, init, xs, **options)
    if method == "sequential":
        return LoopResult(carry, ys)
    shaped = over_arrays(_without_contents, xs)
    return LoopResult(carry, ys, lambda: loop_form(f, init, shaped, axis=axis, reverse=reverse))


def _check_limits(tolerance: object, max_iterations: object) -> tuple[float | None, int]:
    """Return the limits of Newton's method.

    Raises:
        TypeError: the tolerance is no number.
        ValueError: the tolerance is negative or NaN, or `max_iterations` is no integer of 1 or more.
    """
    count = as_integer(max_iterations)
    if count is None or count < 1:
        raise ValueError(f"max_iterations={abbreviate(max_iterations)} was passed; pass an integer of 1 or more")
    if tolerance is None:
        return None, count
    if not isinstance(tolerance, (int, float, np.integer, np.floating)) or isinstance(tolerance, bool):
        raise TypeError(f"tolerance={abbreviate(tolerance)} was passed; pass a number of 0 or more, or None")
    if not tolerance >= 0:
        raise ValueError(f"tolerance={tolerance} was passed; pass a number of 0 or more, or None")
    return float(tolerance), count


def loop_form(f: Function, init: object, xs: object, *, axis: int = 0, reverse: bool = False) -> LoopForm:
    """Return the associative form of a loop that `gpuscan.loop` would run, without running it.

    Args:
        f, init, xs, axis, reverse: as in `gpuscan.loop`. Only the shapes and dtypes of `xs` are read.

    Returns:
        A `LoopForm`: ``str(form)`` explains it, ``form.kind`` names its class, and ``form.stages`` lists its parts.

    Raises:
        LoopError, OperatorError, TypeError, ValueError: as `gpuscan.loop` does.

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> form = gs.loop_form(lambda h, x: np.where(x > 0, 0.5 * h + x, 0), 0.0, np.ones(4, np.float32))
        >>> print(form)
        the step runs as a scan. carry: affine, h[t] = a h[t-1] + b. The state is reset where a flag is set.
    """
    as_flag("reverse", reverse)
    return form_of(loop_arguments(f, init, xs, axis=axis, device="numpy", anywhere=True).derivation())


def _run(
    f: Callable[..., object], init: object, xs: object, *, axis: int = 0, reverse: bool = False, method: str = "auto",
    device: Device | str | int | None = None, fixed: bool = False,
) -> tuple[object, object, str | None]:  # fmt: skip
    """Return the last carry, the outputs, and the numbers that would make them doubtful, unless these were looked for.

    Arrays on a device are not searched for such numbers.
    """
    arguments = loop_arguments(f, init, xs, axis=axis, device=device)
    if fixed:
        check_fixed_step(arguments.step.name, [*arguments.step.results, *arguments.step.outputs])
    if method == "sequential":
        return *run_sequentially(arguments, reverse, fixed), None
    derivation = arguments.derivation()
    carry, ys = LoopRun(arguments, derivation, reverse, fixed).run()
    doubtful = None if fixed or 0 in arguments.shape else doubtful_numbers(derivation)
    if doubtful is None or arguments.on_device:
        return carry, ys, doubtful
    if not has_doubtful(doubtful, [*arguments.init, *arguments.xs, *_arrays_in(carry, ys)]):
        return carry, ys, None
    return *(check_results(arguments, derivation, reverse) or run_sequentially(arguments, reverse)), None


_launch_loop = takes_numpy("xs", long=("init",))(launchable_with("init", data=["xs"], integers=["init"])(_run))


def _arrays_in(*values: object) -> list[object]:
    """Return the arrays of some bundles."""
    arrays, waiting = [], [*values]
    for value in waiting:
        parts = parts_of(value) if isinstance(value, (tuple, list, dict)) else None
        if parts is not None:
            waiting += parts
        elif value is not None:
            arrays.append(value)
    return arrays


def _without_contents(array: object) -> object:
    """Return an array of NumPy of the same shape and dtype, which takes no memory. Others stay."""
    if type(array) is not np.ndarray:
        return array
    return np.ndarray(array.shape, array.dtype, bytes(array.itemsize), strides=(0,) * array.ndim)


def _in_dtypes_of(carry: Any, init: Any) -> object:
    """Return the first carry as arrays of the dtypes of the last one."""
    # A list of numbers is a bundle here, and no array.
    parts = carry if isinstance(carry, list) else parts_of(carry)
    if parts is None:
        return np.asarray(init).astype(carry.dtype)
    return tuple([_in_dtypes_of(*pair) for pair in zip(parts, parts_of(init) or init, strict=True)])


# ----- Step by step


def run_sequentially(arguments: LoopArguments, reverse: bool, fixed: bool = False) -> tuple[object, object]:
    """Return the last carry and the outputs of the loop itself, which takes one invocation for each row.

    They have the same bits on every device if `fixed` is True.
    """
    step, device = arguments.step, arguments.device
    outputs = [] if step.output is None else list(step.output.fields)
    numbers: list[Any] = []
    for leaf, field in zip(arguments.init, step.carry.fields, strict=True):
        numbers += [leaf[(..., *at)] if field.shape else leaf for at in np.ndindex(field.shape)]
    function = _step_of_numbers(step, whole_words=device is not None)
    if fixed:
        function = trace_with_one_nan(function, function.source) or function
    if device is None:
        final, ys = _run_on_numpy(arguments, function, numbers, reverse, fixed)
    else:
        arrays = [device.asarray(x) for x in arguments.xs]
        states = [node.scalar for node in step.states]
        given = (arrays, step.source.fields, outputs, arguments.shape, arguments.axis, reverse, fixed)
        parts = run_loop(device._context, function, numbers, states, *given)
        final, ys = ([Array._of(device, array) for array in part] for part in parts)
        if not arguments.on_device:
            final, ys = ([array.numpy() for array in part] for part in (final, ys))
    leaves, start = [], 0
    for field in step.carry.fields:
        leaves.append(stack_numbers(final[start : start + field.count], field, arguments.others))
        start += field.count
    return step.carry.structure.build_bundle(
        leaves
    ), None if step.output is None else step.output.structure.build_bundle(ys)


def _step_of_numbers(step: Step, *, whole_words: bool) -> Map:
    """Return the step as a function that takes the numbers of carry and x, and returns the numbers of carry and y."""
    graph = Graph()
    given = [*step.states, *step.inputs]
    source = bundle_of([Field("f", node.scalar) for node in given])
    inputs = {node: graph.input(0, i, 0, node.scalar) for i, node in enumerate(given)}
    nodes = copy_nodes([*step.results, *step.outputs], graph, inputs)
    scalars = [
        field.scalar for field in (() if step.output is None else step.output.fields) for _ in range(field.count)
    ]
    wanted = [node.scalar for node in step.states] + [scalar_of(word_dtype(s)) if whole_words else s for s in scalars]
    fields = [Field("f", scalar) for scalar in wanted]
    by_field = [[graph.cast(node, scalar)] for node, scalar in zip(nodes, wanted, strict=True)]
    return map_of(graph, source, by_field, bundle_of(fields))


def _run_on_numpy(
    arguments: LoopArguments, function: Map, numbers: Sequence[SomeArray], reverse: bool, fixed: bool
) -> tuple[Sequence[SomeArray], Sequence[SomeArray]]:
    step, axis = arguments.step, arguments.axis
    others = arguments.others
    states = [node.scalar for node in step.states]
    carry = [np.broadcast_to(value, others).astype(compute_dtype(s)) for value, s in zip(numbers, states, strict=True)]
    xs = [
        np.moveaxis(np.asarray(x), axis, 0)[(..., *at)].astype(compute_dtype(field.scalar), copy=False)
        for x, field in zip(arguments.xs, step.source.fields, strict=True)
        for at in np.ndindex(field.shape)
    ]
    outputs = [] if step.output is None else list(step.output.fields)
    ys = [np.empty((*arguments.shape, *field.shape), field.scalar.dtype) for field in outputs]
    parts = [
        np.moveaxis(y, axis, 0)[(..., *at)]
        for y, field in zip(ys, outputs, strict=True)
        for at in np.ndindex(field.shape)
    ]
    length = arguments.length
    for t in reversed(range(length)) if reverse else range(length):
        given = (*carry, *(x[t] for x in xs))
        results = compute_fixed_map(function, given) if fixed else function(given)
        carry = [
            np.asarray(value).astype(s.dtype).astype(compute_dtype(s))
            for value, s in zip(results, states, strict=False)
        ]
        for part, value in zip(parts, results[len(states) :], strict=True):
            part[t] = value
    return [value.astype(s.dtype) for value, s in zip(carry, states, strict=True)], ys


# ----- Newton's method


class _Newton:
    """Newton's method for one loop.

    An iteration computes new carries h' from the carries h of the iteration before it, by the scan
    ``h'[t] = f(h[t-1], x[t]) + A[t] (h'[t-1] - h[t-1])``. A is the derivative of f. After an iteration that did not
    help, only a part of the derivative is used (Gonzalez et al. 2024). Whatever A is, each iteration makes at least one
    more carry right.

    Raises:
        OperatorError: an operation has no derivative.
    """

    def __init__(self, arguments: LoopArguments, reverse: bool) -> None:
        self._arguments = arguments
        step = arguments.step
        linearised = linearise(step)
        run = self._run = LoopRun(arguments, Derivation(step, (), ()), reverse)
        run.new_of = {}
        graph, calculus = step.graph, linearised.calculus
        # A number that scales the matrices, as an input of a field of its own.
        self._damping = graph.input(3, 0, 0, linearised.scalar)
        rows = [[calculus.times(entry, self._damping) for entry in row] for row in linearised.jacobian()]
        olds = [graph.cast(node, linearised.scalar) for node in step.states]
        shift: list[Node] = []
        for row, result in zip(rows, step.results, strict=True):
            total = graph.cast(result, linearised.scalar)
            for entry, old in zip(row, olds, strict=True):
                product = calculus.times(entry, old)
                if not product.equals(0):
                    total = calculus.call("subtract", total, product)
            shift.append(total)
        self._stage = linearised.affine_stage(rows, shift)
        self._targets = [graph.input(4, 0, index, node.scalar) for index, node in enumerate(step.states)]
        self._fields = [run.field_of(index) for index in range(len(step.states))]
        self._own_field = replace(self._fields[0], scalar=linearised.scalar)
        self._error = _residual(run, self._targets, linearised.scalar)

    def iterate(self, carries: Sequence[SomeArray], damping: SomeArray) -> tuple[list[SomeArray], SomeArray]:
        """Return the carries after one more iteration, and their greatest distance from what the step gives."""
        run, targets = self._run, self._targets
        for index, array in enumerate(carries):
            run.set_old(index, array)
        factors = np.broadcast_to(damping, self._arguments.shape).astype(self._own_field.scalar.dtype)
        run.node_arrays[self._damping.index] = NodeArray(factors, self._own_field, 0)
        problem = run.problem(self._stage, [[node] for node in targets], self._fields, targets)
        arrays = execute(problem, self._arguments.device, "auto", None)
        # Infinities and NaN become 0 for the next iteration to begin with.
        arrays = [run.elementwise(_finite(array.dtype), [array])[0] for array in arrays]
        for index, array in enumerate(arrays):
            run.set_old(index, array)
            run.node_arrays[targets[index].index] = NodeArray(array, self._fields[index], 0)
        (residuals,) = run.map_nodes([[self._error]], [self._own_field])
        return list(arrays), reduce(residuals, "maximum", device=self._arguments.device or "numpy")

    def finish(self, carries: Sequence[SomeArray]) -> tuple[object, object]:
        """Return the last carry and the outputs, from the carries after each step."""
        run = self._run
        for index, array in enumerate(carries):
            run.set_old(index, array)
            if 0 not in self._arguments.shape:
                run.keep_last(index, array)
            run.node_arrays[run.step.results[index].index] = NodeArray(array, self._fields[index], 0)
        return run.finish()


@launchable_with("init", data=["xs"])
def _iterate(
    f: Callable[..., object], init: object, xs: object, carries: Any, damping: Any, *,
    axis: int, reverse: bool, device: Device | str | int | None,
) -> tuple[list[SomeArray], SomeArray]:  # fmt: skip
    """Return what `_Newton.iterate` does. On a device it is a program."""
    return _Newton(loop_arguments(f, init, xs, axis=axis, device=device), reverse).iterate(carries, damping)


@launchable_with("init", data=["xs"])
def _finish(
    f: Callable[..., object], init: object, xs: object, carries: Any, *,
    axis: int, reverse: bool, device: Device | str | int | None,
) -> tuple[object, object]:  # fmt: skip
    """Return what `_Newton.finish` does. On a device it is a program."""
    return _Newton(loop_arguments(f, init, xs, axis=axis, device=device), reverse).finish(carries)


def run_newton(
    f: Callable[..., object], init: object, xs: object, axis: int, reverse: bool,
    device: Device | str | int | None, tolerance: float | None, max_iterations: int,
) -> tuple[object, object, int]:  # fmt: skip
    """Return the last carry, the outputs, and the number of iterations.

    Raises:
        LoopError: the residual did not fall below the tolerance.
        OperatorError: the carry has numbers that are no floats, or an operation has no derivative.
    """
    arguments = loop_arguments(f, init, xs, axis=axis, device=device)
    step = arguments.step
    if any(node.scalar.kind != "float" for node in step.states):
        raise OperatorError(
            f"Newton's method was asked for {step.name}, but its carry has numbers without a derivative; keep floats "
            'only, or pass method="sequential"'
        )
    # If an iteration can be a program, the method is prepared where that is recorded.
    is_program = arguments.on_device and arguments.key is not None and 0 not in arguments.shape
    newton = None if is_program else _Newton(arguments, reverse)
    epsilon = max(float(np.finfo(numpy_dtype(node.scalar.dtype)).eps) for node in step.states)
    limit = _ROUNDINGS * epsilon if tolerance is None else tolerance
    options: Any = {"axis": axis, "reverse": reverse, "device": device}
    place = arguments.device.asarray if arguments.device and arguments.on_device else np.asarray
    carries = [place(np.zeros(arguments.shape, node.scalar.dtype)) for node in step.states]
    if newton is not None and 0 in arguments.shape:
        return *newton.finish(carries), 0
    # The numbers that scale the derivatives are powers of 2, which all floats have.
    dampings: dict[float, SomeArray] = {}
    best, factor = np.inf, 1.0
    for iteration in range(1, max_iterations + 1):
        if factor not in dampings:
            dampings[factor] = place(np.array(factor, np.float32))
        if newton is None:
            carries, error = _iterate(f, init, xs, carries, dampings[factor], **options)
        else:
            carries, error = newton.iterate(carries, dampings[factor])
        residual = float(np.asarray(error))
        if residual <= limit:
            results = _finish(f, init, xs, carries, **options) if newton is None else newton.finish(carries)
            return *results, iteration
        factor = min(1.0, factor / _DAMPING) if residual < best else max(factor * _DAMPING, 1 / 64)
        best = min(best, residual) if np.isfinite(residual) else best
    raise LoopError(
        f"Newton's method did not converge: after {max_iterations} iterations for {step.name}, the residual is "
        f"{residual:.3g}, and {limit:.3g} was asked for. Pass a larger max_iterations or tolerance, or "
        'method="sequential"'
    )


def _residual(run: LoopRun, targets: list[Node], scalar: Scalar) -> Node:
    """Return the largest distance of a carry from what the step gives, relative to the carry; infinity for NaN."""
    step, graph = run.step, run.step.graph
    largest: Node | None = None
    for target, result in zip(targets, step.results, strict=True):
        ours, theirs = graph.cast(target, scalar), graph.cast(result, scalar)
        distance = graph.apply("absolute", (graph.apply("subtract", (ours, theirs), scalar),), scalar)
        same = graph.apply("equal", (ours, theirs), BOOL)
        both = [graph.apply("isnan", (values,), BOOL) for values in (ours, theirs)]
        same = graph.apply("logical_or", (same, graph.apply("logical_and", (both[0], both[1]), BOOL)), BOOL)
        size = graph.apply("maximum", (graph.apply("absolute", (theirs,), scalar), graph.constant(1, scalar)), scalar)
        relative = graph.apply("divide", (distance, size), scalar)
        relative = graph.select(graph.apply("isnan", (relative,), BOOL), graph.constant(np.inf, scalar), relative)
        relative = graph.select(same, graph.constant(0, scalar), relative)
        largest = relative if largest is None else graph.apply("maximum", (largest, relative), scalar)
    assert largest is not None
    return largest


@cache
def _finite(dtype: AnyDType) -> Map:
    element = element_of([dtype], tuple_of(1))
    return trace_function(
        lambda numbers: (np.where(np.isfinite(numbers[0]), numbers[0], np.zeros_like(numbers[0])),), element, ""
    )


# ----- Checks of derived forms
#
# Compositions reorder sums and products. If a number is infinite, NaN or close to the limits of its type, an
# intermediate number of a composition may be none that the loop has: 0 times infinity, or a product out of range. Then
# the carries are put into the step: the carry before each step has to give the carry after it.


def doubtful_numbers(derivation: Derivation) -> str | None:
    """Return which numbers compositions may treat in another way than the loop; None if there are no such numbers.

    They are ``"all"``, ``"extreme"`` ones, or ``"extreme or zero"`` ones. A number is extreme if it is infinite, NaN or
    near the limits of its dtype.
    """
    if not any(_is_checked(derivation.step, stage) for stage in derivation.stages):
        return None
    if any(_is_odds(stage) for stage in derivation.stages):
        return "all"
    # The sign of a zero decides the sign of an infinity, which a quotient of sums of products does not have.
    return "extreme or zero" if any(stage.class_name == "mobius" for stage in derivation.stages) else "extreme"


def has_doubtful(doubtful: str, arrays: Sequence[object]) -> bool:
    """Return True if arrays of NumPy have numbers that `doubtful_numbers` names."""
    return doubtful == "all" or not all(map(_is_moderate, map(np.asarray, arrays), repeat(doubtful == "extreme")))


def _is_checked(step: Step, stage: LoopStage) -> bool:
    scalars = [step.states[index].scalar for index in stage.state_indices]
    maps = stage.composition
    is_rounded = isinstance(maps, _ROUNDED) or (isinstance(maps, MatrixMaps) and issubclass(maps.semiring, Modular))
    is_exact = stage.class_name in _EXACT and not is_rounded
    return any(scalar.kind in ("float", "complex") for scalar in scalars) or not is_exact


def _is_odds(stage: LoopStage) -> bool:
    return isinstance(stage.composition, MobiusMaps) and stage.composition.odds


def _is_moderate(array: AnyArray, zeros: bool) -> bool:
    """Return True if all numbers are finite and far from the limits of their type, and no float is 0 if none may be."""
    dtype_kind = array.dtype.kind
    if dtype_kind == "b":
        return True
    if dtype_kind in "iu":
        limit = np.iinfo(array.dtype).max // 4
        return array.itemsize < 4 or not array.size or bool(array.max() <= limit and array.min() >= -limit)
    if dtype_kind == "c":
        return _is_moderate(array.real, zeros) and _is_moderate(array.imag, zeros)
    wide = compute_dtype(scalar_of(array.dtype))
    power = 40 if wide == np.float32 else 300
    low, high = wide.type(2.0**-power), wide.type(2.0**power)
    flat = array.reshape(-1)
    for start in range(0, flat.size, _LOOKED_AT):
        size = np.abs(flat[start : start + _LOOKED_AT].astype(wide, copy=False))
        fits = size >= low
        if zeros:
            fits |= size == 0
        # NaN is in no range.
        if not np.logical_and.reduce(fits & (size <= high)):
            return False
    return True


def check_results(arguments: LoopArguments, derivation: Derivation, reverse: bool) -> tuple[object, object] | None:
    """Return the last carry and the outputs, if the step takes each carry of the derived form to the next one."""
    step = derivation.step
    run = LoopRun(arguments, derivation, reverse)
    run.all_states()
    node_arrays = dict(run.node_arrays)
    for node in step.results:
        if node.op != "input":
            run.node_arrays.pop(node.index, None)
    for stage in derivation.stages:
        wanted = run.map_nodes(
            [[step.results[p]] for p in stage.state_indices], [run.field_of(p) for p in stage.state_indices]
        )
        for index, expected in zip(stage.state_indices, wanted, strict=True):
            actual, old = (np.asarray(node_arrays[nodes[index].index].array) for nodes in (step.results, step.states))
            if not _are_close(actual, np.asarray(expected), old, stage):
                return None
    run.node_arrays = node_arrays
    return run.finish()


def _are_close(actual: AnyArray, expected: AnyArray, old: AnyArray, stage: LoopStage) -> bool:
    if actual.dtype.kind in "biu":
        return bool(np.array_equal(actual, expected))
    if actual.dtype.kind == "c":
        return _are_close(actual.real, expected.real, old.real, stage) and _are_close(
            actual.imag, expected.imag, old.imag, stage
        )
    tolerance = _TOLERANCE * _RELATIVE_ROUNDINGS[actual.dtype.itemsize] ** 0.5
    actual, expected, old = (array.astype(np.float64) for array in (actual, expected, old))
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(expected), np.where(np.isfinite(old), np.abs(old), 0))
        close = np.isfinite(actual) & (np.abs(actual - expected) <= tolerance * size)
    if not isinstance(stage.composition, ProductMaps):
        # Only a product is right after the loop's own number has become infinite.
        close &= np.isfinite(expected)
    close |= (actual == expected) | np.isnan(actual) & np.isnan(expected)
    if stage.class_name == "mobius":
        close &= (expected != 0) | (actual != 0) | (np.signbit(actual) == np.signbit(expected))
    if _is_odds(stage):
        # A probability that the loop has rounded to 1 may stay there for good.
        close &= (old != 1) | (actual == expected)
    return bool(np.all(close))
