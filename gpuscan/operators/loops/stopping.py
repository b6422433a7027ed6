"""Loops that stop: from a condition on the carry on, the carry stays, as a ruined account or a finished episode does.

Law: ``h[t] = f[t](h[t-1])`` until a flag is set, and ``h[t] = r[t](h[t-1])`` from then on. The flag stays set. A loop
that never stops, ``u[t] = f[t](u[t-1])``, has the same numbers until the flag is set. So the loop runs as three scans:
u, as a step of its own class; the flag, which is the disjunction of all conditions on u so far; and
``h[t] = r[t](h[t-1])`` where the flag is set, else ``u[t]``. A condition on the input may let all three begin again.

The flag may be a bool of the carry, such as ``done = done | (h > limit)``. It may also be a condition on the carry
alone, as in ``np.where(h < limit, h + x, h)``. If this fails, the carry stays, so it fails at all later steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Node, reachable
from gpuscan.operators.loops.stage import NEGATED, StepPart
from gpuscan.operators.loops.step import Step, nodes_on
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


@dataclass(frozen=True, eq=False)
class _Reset:
    """The steps at which a part begins again, whether it has stopped or not.

    Attributes:
        condition: the condition on the input.
        value: its value at these steps.
        results: the results at these steps, which depend on no state of the part.
    """

    condition: Node
    value: bool
    results: Sequence[Node]


def split_stops(part: StepPart) -> Iterator[Step]:
    """Return the steps in which the numbers of a part are computed by several scans; none if the part does not stop."""
    if len(part.step.added) + len(part.states) > _MAX_ADDED:
        return
    for stop in [*_flags(part, part.results), *_conditions(part, part.results)]:
        yield _split(part, stop, None)
    reset = _find_reset(part)
    if reset is not None:
        results = _assume(part, part.results, reset.condition, not reset.value)
        for stop in [*_flags(part, results), *_conditions(part, results)]:
            yield _split(part, stop, reset)


def _find_reset(part: StepPart) -> _Reset | None:
    """Return when a part begins again; None if it does not."""
    states = set(part.states)
    nodes = [node for node in reachable(part.results) if node.scalar == BOOL and not part.varies(node)]
    for condition in [node for node in nodes if not node.is_constant][:_MAX_CONDITIONS]:
        for value in (True, False):
            results = _assume(part, part.results, condition, value)
            if states.isdisjoint(reachable(results)):
                return _Reset(condition, value, results)
    return None


def _flags(part: StepPart, results: Sequence[Node]) -> Iterator[_Stop]:
    """Return the bools of a part that stay at one value."""
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


def _conditions(part: StepPart, results: Sequence[Node]) -> Iterator[_Stop]:
    """Return the conditions on the states of a part alone that stay at one value."""
    own = set(part.states)
    varying = nodes_on(results, {state.index for state in part.states})
    tests = [node for node in reachable(results) if node.scalar == BOOL and node.args and node.index in varying]
    for test in tests[: -_MAX_CONDITIONS - 1 : -1]:
        inputs = {node for node in reachable([test]) if node.op == "input"}
        if not inputs <= own:
            continue
        for stopped in (False, True):
            after = _assume(part, results, test, stopped)
            read = {state: result for state, result in zip(part.states, after, strict=True) if state in inputs}
            if _stays(part, test, read, stopped):
                going = _assume(part, results, test, not stopped)
                yield _Stop(None, stopped, True, test, going, after)


def _assume(part: StepPart, results: Sequence[Node], test: Node, value: bool) -> list[Node]:
    """Return results simplified by the value of a condition. The parts of the condition then have values, too."""
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
        test: the condition.
        read: the states that it reads, and the results that take their place.
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


def _split(part: StepPart, stop: _Stop, reset: _Reset | None) -> Step:
    """Return the step with the numbers of a loop that never stops in addition to its own."""
    step, graph = part.step, part.graph

    def restart(node: Node, value: Node) -> Node:
        """Return a node, and a value where the part begins again."""
        if reset is None:
            return node
        return graph.select(reset.condition, *((value, node) if reset.value else (node, value)))

    numbers = [number for number in range(len(part.states)) if number != stop.flag]
    first = [reset.results[number] if reset else part.states[number] for number in range(len(part.states))]
    count = len(step.carry.fields) + len(step.added)
    endless = {
        part.states[number]: graph.input(0, count + position, 0, part.states[number].scalar)
        for position, number in enumerate(numbers)
    }
    nodes = _with(part, [stop.test, *(stop.going[number] for number in numbers)], endless)
    going = {number: restart(node, first[number]) for number, node in zip(numbers, nodes[1:], strict=True)}
    added: list[tuple[Node, Node, int | None]] = [
        (state, going[number], part.state_indices[number])
        for number, state in zip(numbers, endless.values(), strict=True)
    ]
    if stop.flag is None:
        flag = graph.input(0, count + len(numbers), 0, BOOL)
        now = nodes[0] if stop.stopped else graph.apply("logical_not", nodes[:1], BOOL)
        has_stopped = restart(graph.apply("logical_or", (flag, now), BOOL), graph.constant(False, BOOL))
        added.append((flag, has_stopped, None))
    else:
        flag = part.states[stop.flag]
        both = graph.apply("logical_or" if stop.stopped else "logical_and", (flag, nodes[0]), BOOL)
        has_stopped = restart(both, first[stop.flag])
    condition = has_stopped if stop.early else flag
    # A condition of the step is a flag of its own, which is set once the loop has stopped.
    is_set = stop.stopped or stop.flag is None
    pairs = {number: (stop.after[number], going[number])[:: 1 if is_set else -1] for number in numbers}
    new = {number: restart(graph.select(condition, *pair), first[number]) for number, pair in pairs.items()}
    if stop.flag is not None:
        new[stop.flag] = has_stopped
    old_results = [step.results[index] for index in part.state_indices]
    replaced = {old: new[number] for number, old in enumerate(old_results) if old.op != "input"}
    rewritten = _with(part, [*step.results, *step.outputs], replaced)
    results = rewritten[: len(step.results)]
    for number, index in enumerate(part.state_indices):
        results[index] = new[number]
    return replace(
        step,
        states=(*step.states, *(state for state, _, _ in added)),
        results=(*results, *(result for _, result, _ in added)),
        outputs=tuple(rewritten[len(step.results) :]),
        added=(*step.added, *(source for _, _, source in added)),
    )


def _with(part: StepPart, nodes: Sequence[Node], replacements: Mapping[Node, Node]) -> list[Node]:
    """Return nodes with others in the place of some."""
    inputs = {node: node for node in reachable(nodes) if node.op == "input"}
    return copy_nodes(nodes, part.graph, {**inputs, **replacements})
