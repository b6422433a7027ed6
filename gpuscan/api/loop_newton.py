"""Loops by Newton's method: scans of the linearised step, until the carries satisfy the step (Lim et al. 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gpuscan.api.loop_arguments import LoopArguments
from gpuscan.api.loop_runs import LoopRun, Place
from gpuscan.api.outputs import execute
from gpuscan.api.reduce import reduce
from gpuscan.errors import LoopError, OperatorError
from gpuscan.operators.expression_graph import BOOL, Node
from gpuscan.operators.loops.form import Derivation
from gpuscan.operators.loops.linearisation import linearised
from gpuscan.problem.arguments import as_integer

# The default tolerance, in roundings of the carry's type.
_ROUNDINGS = 16
# After an iteration that made the residual larger, the matrices are multiplied by this; after a better one they
# recover.
_DAMPING = 0.5


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
    found = linearised(step)
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
        carry, ys = run.finished()
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
        arrays = run.finite(arrays)
        for place, array in enumerate(arrays):
            run.set_old(place, array)
            run.places[targets[place].index] = Place(array, fields[place], 0)
        (residuals,) = run.mapped([[error]], [replace(fields[0], scalar=found.scalar)])
        residual = float(np.asarray(reduce(residuals, "maximum", device=home or "numpy")))
        if residual <= limit:
            for place, array in enumerate(arrays):
                run.lasts[place] = run.last(array)
                run.places[step.results[place].index] = Place(array, fields[place], 0)
            carry, ys = run.finished()
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
