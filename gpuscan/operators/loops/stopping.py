"""Loops that stop: from a condition on the carry on, the carry stays, as a ruined account or a finished episode does.

Law: ``h[t] = f[t](h[t-1])`` until a flag is set, and ``h[t] = r[t](h[t-1])`` from then on. The flag stays set. A loop
that never stops, ``u[t] = f[t](u[t-1])``, has the same numbers until the flag is set. So the loop runs as three scans:
u, as a step of its own class; the flag, which is the disjunction of all conditions on u so far; and
``h[t] = r[t](h[t-1])`` where the flag is set, else ``u[t]``.

The flag may be a bool of the carry, such as ``done = done | (h > limit)``. It may also be a condition on the carry
alone, as in ``np.where(h < limit, h + x, h)``. If this fails, the carry stays, so it fails at all later steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Node, reachable
from gpuscan.operators.loops.stage import NEGATED, StepPart
from gpuscan.operators.loops.step import Step
from gpuscan.operators.loops.whole_functions import assume

# The most conditions that are tried, and the most numbers that are added to a step.
_MAX_CONDITIONS = 16
_MAX_ADDED = 16


@dataclass(frozen=True, eq=False)
class _Stop:
    """How a part stops.

    Attributes:
        flag: the bool of the part that says it, by its number among the states; None if a condition says it.
        stopped: the value of the flag or the condition once the loop has stopped.
        early: True if the step that sets the flag counts as one after the stop.
        test: the condition on the states of the part, before the step; of a flag, its next value while it is not set.
        going: the results while the loop goes on.
        after: the results once it has stopped.
    """

    flag: int | None
    stopped: bool
    early: bool
    test: Node
    going: Sequence[Node]
    after: Sequence[Node]


def split_stops(part: StepPart) -> Iterator[Step]:
    """Return the steps in which the numbers of a part are computed by several scans; none if the part does not stop."""
    step = part.step
    if len(step.added) + len(part.states) > _MAX_ADDED:
        return
    for stop in [*_flags(part), *_conditions(part)]:
        yield _split(part, stop)


def _flags(part: StepPart) -> Iterator[_Stop]:
    """Return the bools of a part that stay at one value."""
    results = part.results
    for number, state in enumerate(part.states):
        if state.scalar != BOOL or len(part.states) == 1:
            continue
        for stopped in (True, False):
            after = _assume(part, results, state, stopped)
            if not (after[number].is_constant and after[number].equals(stopped)):
                continue
            going = _assume(part, results, state, not stopped)
            test = going[number]
            yield _Stop(number, stopped, False, test, going, after)
            # A step may choose by the new value of the flag. The step that sets it is then one after the stop.
            last = _assume(part, going, test, stopped)
            going = _assume(part, going, test, not stopped)
            sides = [(before, now) if stopped else (now, before) for before, now in zip(after, last, strict=True)]
            after = [part.graph.select(state, *pair) for pair in sides]
            yield _Stop(number, stopped, True, test, going, after)


def _conditions(part: StepPart) -> Iterator[_Stop]:
    """Return the conditions on the states of a part alone that stay at one value."""
    own = set(part.states)
    tests = [node for node in reachable(part.results) if node.scalar == BOOL and node.args and part.varies(node)]
    for test in tests[: -_MAX_CONDITIONS - 1 : -1]:
        inputs = {node for node in reachable([test]) if node.op == "input"}
        if not inputs <= own:
            continue
        for stopped in (False, True):
            after = _assume(part, part.results, test, stopped)
            read = {state: result for state, result in zip(part.states, after, strict=True) if state in inputs}
            if _stays(part, test, read, stopped):
                going = _assume(part, part.results, test, not stopped)
                yield _Stop(None, stopped, True, test, going, after)


def _assume(part: StepPart, results: Sequence[Node], test: Node, value: bool) -> list[Node]:
    """Return results where a condition has a value, and so have those that it consists of."""
    results = [assume(part.graph, result, test, value) for result in results]
    if test.op == "logical_not":
        return _assume(part, results, test.args[0], not value)
    if test.op == "select" and all(arg.is_constant for arg in test.args[1:]):
        return _assume(part, results, test.args[0], test.args[1].equals(value))
    if test.op in ("equal", "not_equal"):
        opposite = part.graph.apply(NEGATED[test.op], test.args, BOOL)
        return [assume(part.graph, result, opposite, not value) for result in results]
    return results


def _stays(part: StepPart, test: Node, read: Mapping[Node, Node], value: bool) -> bool:
    """Return True if a condition that has a value has the same value after a step.

    Args:
        part: the part.
        test: the condition.
        read: the states that it reads, and the results that take their place.
        value: the value.
    """
    if all(state is result for state, result in read.items()):
        return True
    if len(read) > 1:
        return False
    ((state, result),) = read.items()
    if result.op == "select":
        return all(_stays(part, test, {state: arg}, value) for arg in result.args[1:])
    (later,) = copy_nodes([test], part.graph, {state: result}) if result.is_constant else (test,)
    return later.is_constant and later.equals(value)


def _split(part: StepPart, stop: _Stop) -> Step:
    """Return the step with the numbers of a loop that never stops in addition to its own."""
    step, graph = part.step, part.graph
    numbers = [number for number in range(len(part.states)) if number != stop.flag]
    count = len(step.carry.fields) + len(step.added)
    added: list[int | None] = [part.state_indices[number] for number in numbers]
    endless = {
        part.states[number]: graph.input(0, count + position, 0, part.states[number].scalar)
        for position, number in enumerate(numbers)
    }
    going = dict(zip(numbers, _with(part, [stop.going[number] for number in numbers], endless), strict=True))
    (test,) = _with(part, [stop.test], endless)
    states = [*step.states, *endless.values()]
    added_results = list(going.values())
    flag = part.states[stop.flag] if stop.flag is not None else graph.input(0, count + len(numbers), 0, BOOL)
    is_set = test if stop.stopped else graph.apply("logical_not", (test,), BOOL)
    if stop.flag is None:
        has_stopped = graph.apply("logical_or", (flag, is_set), BOOL)
        states.append(flag)
        added_results.append(has_stopped)
        added.append(None)
        condition = has_stopped
    else:
        has_stopped = graph.apply("logical_or" if stop.stopped else "logical_and", (flag, test), BOOL)
        condition = has_stopped if stop.early else flag
        condition = condition if stop.stopped else graph.apply("logical_not", (condition,), BOOL)
    new = {number: graph.select(condition, stop.after[number], going[number]) for number in numbers}
    if stop.flag is not None:
        new[stop.flag] = has_stopped
    old_results = [step.results[index] for index in part.state_indices]
    replaced = {old: new[number] for number, old in enumerate(old_results) if old.op != "input"}
    results = _with(part, [*step.results, *step.outputs], replaced)
    outputs = results[len(step.results) :]
    for number, index in enumerate(part.state_indices):
        results[index] = new[number]
    return replace(
        step,
        states=tuple(states),
        results=(*results[: len(step.results)], *added_results),
        outputs=tuple(outputs),
        added=(*step.added, *added),
    )


def _with(part: StepPart, nodes: Sequence[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """Return nodes with others in the place of some."""
    inputs = {node: node for node in reachable(nodes) if node.op == "input"}
    return copy_nodes(nodes, part.graph, {**inputs, **replacements})
