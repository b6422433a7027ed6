"""The other methods of loops: step by step, and by Newton's method.

Newton's method scans the linearised step, until the carries satisfy the step (Lim et al. 2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from gpuscan.api.array import Array
from gpuscan.api.loop_arguments import LoopArguments, Place
from gpuscan.api.loop_runs import LoopRun, stack_numbers
from gpuscan.api.outputs import execute
from gpuscan.api.reduce import reduce
from gpuscan.elements import Field, bundle_of, compute_dtype, element_of, scalar_of, tuple_of, word_dtype
from gpuscan.engine.sequential_loop import run_loop
from gpuscan.errors import LoopError, OperatorError
from gpuscan.operators.adjoint import map_of
from gpuscan.operators.evaluation import copied
from gpuscan.operators.expression_graph import BOOL, Graph, Node
from gpuscan.operators.loops.form import Derivation
from gpuscan.operators.loops.linearisation import linearise
from gpuscan.operators.loops.step import Step
from gpuscan.operators.trace import Map, traced
from gpuscan.problem.arguments import as_integer

# The default tolerance, in roundings of the carry's type.
_ROUNDINGS = 16
# After an iteration that made the residual larger, the matrices are multiplied by this; after a better one they
# recover.
_DAMPING = 0.5


# ----- Step by step


def run_sequentially(arguments: LoopArguments, reverse: bool) -> tuple[Any, Any]:
    """Return the last carry and the outputs of the loop itself, which takes one invocation for each row."""
    step, home = arguments.step, arguments.home
    outputs = [] if step.output is None else list(step.output.fields)
    numbers: list[Any] = []
    for leaf, field in zip(arguments.init, step.carry.fields, strict=True):
        numbers += [leaf[(..., *at)] if field.shape else leaf for at in np.ndindex(field.shape)]
    function = _step_of_numbers(step, whole_words=home is not None)
    if home is None:
        final, ys = _run_on_numpy(arguments, function, numbers, reverse)
    else:
        arrays = [home.asarray(x) for x in arguments.xs]
        states = [node.scalar for node in step.states]
        given = (arrays, step.source.fields, outputs, arguments.shape, arguments.axis, reverse)
        final, ys = run_loop(home._context, function, numbers, states, *given)
        found: list[Any] = [Array.of(home, each) for each in (*final, *ys)]
        if not arguments.on_device:
            found = [each.numpy() for each in found]
        final, ys = found[: len(final)], found[len(final) :]
    leaves, start = [], 0
    for field in step.carry.fields:
        leaves.append(stack_numbers(final[start : start + field.count], field, arguments.others))
        start += field.count
    return step.carry.structure.nested(leaves), None if step.output is None else step.output.structure.nested(ys)


def _step_of_numbers(step: Step, *, whole_words: bool) -> Map:
    """Return the step as a function of the numbers of the carry and of x, to those of the next carry and of y."""
    graph = Graph()
    given = [*step.states, *step.inputs]
    source = bundle_of([Field("f", node.scalar) for node in given])
    places = {node: graph.input(0, i, 0, node.scalar) for i, node in enumerate(given)}
    nodes = copied([*step.results, *step.outputs], graph, places)
    scalars = [
        field.scalar for field in (() if step.output is None else step.output.fields) for _ in range(field.count)
    ]
    wanted = [node.scalar for node in step.states] + [scalar_of(word_dtype(s)) if whole_words else s for s in scalars]
    fields = [Field("f", scalar) for scalar in wanted]
    by_field = [[graph.cast(node, scalar)] for node, scalar in zip(nodes, wanted, strict=True)]
    return map_of(graph, source, by_field, bundle_of(fields))


def _run_on_numpy(
    arguments: LoopArguments, function: Map, numbers: Sequence[Any], reverse: bool
) -> tuple[list[Any], list[Any]]:
    step, axis = arguments.step, arguments.axis
    others = arguments.others
    states = [node.scalar for node in step.states]
    carry = [np.broadcast_to(value, others).astype(compute_dtype(s)) for value, s in zip(numbers, states, strict=True)]
    xs = [
        np.moveaxis(x, axis, 0)[(..., *at)].astype(compute_dtype(field.scalar), copy=False)
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
        found = function((*carry, *(x[t] for x in xs)))
        carry = [
            np.asarray(value).astype(s.dtype).astype(compute_dtype(s)) for value, s in zip(found, states, strict=False)
        ]
        for part, value in zip(parts, found[len(states) :], strict=True):
            part[t] = value
    return [value.astype(s.dtype) for value, s in zip(carry, states, strict=True)], ys


# ----- Newton's method


def run_newton(
    arguments: LoopArguments, reverse: bool, tolerance: float | None, max_iterations: int
) -> tuple[Any, Any, int]:
    """Return the last carry, the outputs, and the number of iterations.

    With carries h of an iteration, the next ones are the scan of ``h'[t] = f(h[t-1], x[t]) + A[t] (h'[t-1] - h[t-1])``,
    where A is the derivative of f, or a part of it after an iteration that did not help (Gonzalez et al. 2024).
    Whatever A is, each iteration makes at least one more carry right.

    Raises:
        LoopError: the residual did not fall below the tolerance.
        OperatorError: the carry has numbers that are no floats, or an operation has no derivative.
    """
    step, home = arguments.step, arguments.home
    if any(node.scalar.kind != "float" for node in step.states):
        raise OperatorError(
            f"Newton's method was asked for {step.name}, but its carry has numbers without a derivative; keep floats "
            f"only, "
            'or pass method="sequential"'
        )
    count = as_integer(max_iterations)
    if count is None or count < 1:
        raise ValueError(f"max_iterations={max_iterations!r} was passed; pass an integer of 1 or more")
    found = linearise(step)
    epsilon = max(float(np.finfo(_float_of(node.scalar.dtype)).eps) for node in step.states)
    limit = _ROUNDINGS * epsilon if tolerance is None else float(tolerance)
    run = LoopRun(arguments, Derivation(step, (), ()), reverse)
    run.new_of = {}
    graph, calculus = step.graph, found.calculus
    # A number that scales the matrices, as an input of its own kind.
    damping = graph.input(3, 0, 0, found.scalar)
    rows = [[calculus.times(entry, damping) for entry in row] for row in found.jacobian()]
    olds = [graph.cast(node, found.scalar) for node in step.states]
    shift: list[Node] = []
    for row, result in zip(rows, step.results, strict=True):
        total = graph.cast(result, found.scalar)
        for entry, old in zip(row, olds, strict=True):
            product = calculus.times(entry, old)
            if not product.equals(0):
                total = calculus.call("subtract", total, product)
        shift.append(total)
    stage = found.affine_stage(rows, shift)
    targets = [graph.input(4, 0, place, node.scalar) for place, node in enumerate(step.states)]
    fields = [run.field_of(place) for place in range(len(step.states))]
    error = _residual(run, targets, found.scalar)
    if arguments.length == 0:
        carry, ys = run.finish()
        return carry, ys, 0
    for place in range(len(step.states)):
        run.set_old(place, run.on_home(np.zeros(arguments.shape, fields[place].scalar.dtype)))
    best, factor = np.inf, 1.0
    for iteration in range(1, count + 1):
        run.places[damping.index] = Place(
            run.on_home(np.full(arguments.shape, factor, found.scalar.dtype)),
            replace(fields[0], scalar=found.scalar),
            0,
        )
        problem = run.problem(stage, [[node] for node in targets], fields, targets)
        arrays = execute(problem, home, "auto", None)
        # Infinities and NaN become 0 for the next iteration to begin with.
        arrays = [run.elementwise(_finite(array.dtype), [array])[0] for array in arrays]
        for place, array in enumerate(arrays):
            run.set_old(place, array)
            run.places[targets[place].index] = Place(array, fields[place], 0)
        (residuals,) = run.map_nodes([[error]], [replace(fields[0], scalar=found.scalar)])
        residual = float(np.asarray(reduce(residuals, "maximum", device=home or "numpy")))
        if residual <= limit:
            for place, array in enumerate(arrays):
                run.lasts[place] = run.last(array)
                run.places[step.results[place].index] = Place(array, fields[place], 0)
            carry, ys = run.finish()
            return carry, ys, iteration
        factor = min(1.0, factor / _DAMPING) if residual < best else max(factor * _DAMPING, 1 / 64)
        best = min(best, residual) if np.isfinite(residual) else best
    raise LoopError(
        f"Newton's method did not converge: after {count} iterations for {step.name}, the residual is {residual:.3g}, "
        f"and "
        f'{limit:.3g} was asked for. Pass a larger max_iterations or tolerance, or method="sequential"'
    )


def _float_of(dtype: Any) -> Any:
    return np.float32 if np.dtype(dtype).name == "bfloat16" else dtype


def _residual(run: LoopRun, targets: list[Node], scalar: Any) -> Node:
    """Return the largest distance of a carry from what the step gives, relative to the carry; infinity for NaN."""
    step, graph = run.step, run.step.graph
    largest: Node | None = None
    for target, result in zip(targets, step.results, strict=True):
        ours, theirs = graph.cast(target, scalar), graph.cast(result, scalar)
        distance = graph.apply("absolute", (graph.apply("subtract", (ours, theirs), scalar),), scalar)
        same = graph.apply("equal", (ours, theirs), BOOL)
        both = [graph.apply("isnan", (each,), BOOL) for each in (ours, theirs)]
        same = graph.apply("logical_or", (same, graph.apply("logical_and", (both[0], both[1]), BOOL)), BOOL)
        size = graph.apply("maximum", (graph.apply("absolute", (theirs,), scalar), graph.constant(1, scalar)), scalar)
        relative = graph.apply("divide", (distance, size), scalar)
        relative = graph.select(graph.apply("isnan", (relative,), BOOL), graph.constant(np.inf, scalar), relative)
        relative = graph.select(same, graph.constant(0, scalar), relative)
        largest = relative if largest is None else graph.apply("maximum", (largest, relative), scalar)
    assert largest is not None
    return largest


@cache
def _finite(dtype: np.dtype[Any]) -> Map:
    element = element_of([dtype], tuple_of(1))
    return traced(
        lambda numbers: (np.where(np.isfinite(numbers[0]), numbers[0], np.zeros_like(numbers[0])),), element, ""
    )
