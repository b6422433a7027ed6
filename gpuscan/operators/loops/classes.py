"""Derive the form of a loop: cut the carry into parts, and find the class of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuscan.errors import LoopError
from gpuscan.operators.expression_graph import MAX_OPERATIONS, Graph, Node, TooManyOperationsError, reachable
from gpuscan.operators.loops import (
    absorbing,
    affine,
    bitwise,
    conjugates,
    extremum,
    finite_state,
    first_affine,
    first_value,
    folds,
    hulls,
    linear_bits,
    max_times,
    mobius,
    modular,
    phases,
    polynomials,
    projective,
    roundings,
    shifted_bits,
    sloped_clamp,
    stopping,
    tropical,
    whole_functions,
)
from gpuscan.operators.loops.finite_state import TooManyStatesError
from gpuscan.operators.loops.stage import SIGNS, LeavesClassError, LoopStage, StepPart
from gpuscan.operators.loops.step import Step, nodes_on
from gpuscan.operators.parameter_array import HostArray
from gpuscan.operators.source_location import quote_definition


def _derive_conjugate(part: StepPart) -> LoopStage:
    """Return the stage of a step that belongs to a class after a change of variable.

    Raises:
        LeavesClassError: it does not.
    """
    for outer in conjugates.OUTERS:
        with suppress(LeavesClassError):
            inner = conjugates.change_variable(part, outer)
            for derive_class in (affine.derive, tropical.derive, extremum.derive, sloped_clamp.derive):
                with suppress(LeavesClassError):
                    return conjugates.conjugate(derive_class(inner), outer)
    raise LeavesClassError(part.results[0], rank=-1)


class _NoClassError(LoopError):
    """A part of a step belongs to no class."""

    def __init__(self, part: StepPart, message: str) -> None:
        super().__init__(message)
        self.part = part


# The classes, in the order in which they are tried. Each takes a part, and returns a stage or raises LeavesClassError.
CLASSES: tuple[Callable[[StepPart], LoopStage], ...] = (
    affine.derive,
    tropical.derive,
    tropical.derive_log_plus,
    extremum.derive,
    max_times.derive,
    hulls.derive,
    sloped_clamp.derive,
    bitwise.derive,
    shifted_bits.derive,
    mobius.derive,
    projective.derive,
    modular.derive,
    phases.derive,
    roundings.derive,
    linear_bits.derive,
    finite_state.derive,
    first_value.derive,
    first_affine.derive,
    folds.derive,
    absorbing.derive,
    _derive_conjugate,
)


@dataclass(frozen=True)
class LoopForm:
    """The associative form in which a loop runs; ``str(form)`` explains it.

    Attributes:
        kind: ``"affine"``, ``"max-plus"``, ``"min-plus"``, ``"log-plus"``, ``"max-times"``, ``"clamp"``,
            ``"extremum"``, ``"mobius"``, ``"bitwise"``, ``"fold"`` or ``"finite-state"``; ``"staged"`` for several
            parts.
        stages: the forms of the parts, in the order in which they run; the form itself if there is one part.
        state_shape: the shape of the trailing axes of `init` that belong to the carry; for a bundle, one for each
            array.
        law: the step as a formula.
        text: what ``str(form)`` returns.
    """

    kind: str
    law: str
    state_shape: object
    parts: tuple[LoopForm, ...] = ()
    text: str = field(default="", repr=False)

    @property
    def stages(self) -> tuple[LoopForm, ...]:
        return self.parts or (self,)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Derivation:
    """The stages of a step.

    Attributes:
        step: the step, which may have more numbers than the one that was given.
        stages: the stages of the parts that depend on themselves, in the order in which they run.
        direct: the numbers of the carry that depend on x and on other numbers alone.
        given: the step that was given; None for the same one.
    """

    step: Step
    stages: tuple[LoopStage, ...]
    direct: tuple[int, ...]
    given: Step | None = None


def derive(step: Step, initial: Sequence[HostArray | None]) -> Derivation:
    """Return the stages of a step.

    Args:
        initial: for each number of the carry, its values in `init`; None if they are on a device.

    Raises:
        LoopError: a part belongs to no class, or the step computes with its own rounding errors.
    """
    _check_roundings(step)
    try:
        return _derive_whole(step, initial)
    except _NoClassError as error:
        derivation = _derive_stopping(error.part, initial)
        if derivation is None:
            raise LoopError(str(error)) from None
        return replace(derivation, given=step)


def _derive_stopping(part: StepPart, initial: Sequence[HostArray | None]) -> Derivation | None:
    """Return the stages of a step with a part that stops; None if it never stops, or has no form until then."""
    known, before = list(initial), len(part.graph.nodes)
    try:
        for step in stopping.split_stops(part):
            added = step.added[len(step.added) - (len(step.states) - len(known)) :]
            values = [np.zeros((), bool) if source is None else known[source] for source in added]
            with suppress(LoopError):
                return derive(step, [*known, *values])
    except TooManyOperationsError:
        part.graph.forget_since(before)
    return None


def _derive_whole(step: Step, initial: Sequence[HostArray | None]) -> Derivation:
    stages: list[LoopStage] = []
    direct: list[int] = []
    taken: set[int] = set()
    for group in components(step, _leaves(step)):
        if group[0] in taken:
            continue
        parts = components(step, [(index,) for index in group])
        if len(parts) > 1:
            # The numbers of one array are maps with a sparse matrix, if they are of one class.
            try:
                stages.append(_stage_of(_part(step, group, initial), taken))
                continue
            except LoopError:
                pass
        for index, part in enumerate(parts):
            if part[0] in taken:
                continue
            current = _part(step, part, initial)
            if not current.varies(current.results[0]) and len(part) == 1:
                direct.append(part[0])
                continue
            if len(part) == 1:
                rest = [other[0] for other in parts[index + 1 :] if len(other) == 1]
                others = [n for n in range(len(step.states)) if n not in taken and n != part[0]]
                current = _with_followers(step, part, rest or others, initial, taken)
            stages.append(_stage_of(current, taken))
    return Derivation(step, tuple(stages), tuple(direct))


def _check_roundings(step: Step) -> None:
    """Check that no sum of floats is 0 but for rounding errors, as the terms of a compensated sum are (Kahan 1965).

    A scan rounds in another order, so it has other errors.

    Raises:
        LoopError: such a sum depends on the carry.
    """
    wanted = [*step.results, *step.outputs]
    varying = nodes_on(wanted, {node.index for node in step.states})
    for node in reachable(wanted):
        if node.op not in ("add", "subtract") or node.scalar.kind != "float" or node.index not in varying:
            continue
        first, second = node.args
        if first is second or not polynomials.cancels(step.graph, node):
            continue
        source_line = step.graph.lines.get(node.index, "") or quote_definition(step.function)
        spelled = spell(step.graph, node)
        raise LoopError(
            f"the associative form of {step.name} was asked for, but {spelled} is 0 except for rounding "
            'errors, and a scan has other ones. Pass method="sequential" to gpuscan.loop, or for a compensated sum '
            f"call gpuscan.scan with compensated=True{source_line}"
        )


def _leaves(step: Step) -> list[tuple[int, ...]]:
    """Return the numbers of each array of the carry, which are taken together if they can be."""
    leaves, start = [], 0
    for carry_field in step.carry.fields:
        leaves.append(tuple(range(start, start + carry_field.count)))
        start += carry_field.count
    return [*leaves, *((index,) for index in range(start, len(step.states)))]


def _part(step: Step, state_indices: Sequence[int], initial: Sequence[HostArray | None]) -> StepPart:
    return StepPart(step, tuple(state_indices), tuple(initial[index] for index in state_indices))


def _with_followers(step: Step, part: Sequence[int], others: Sequence[int], initial: Any, taken: set[int]) -> StepPart:
    """Return the part with the numbers that are replaced together with it, if it is an extremum."""
    single = _part(step, part, initial)
    return _part(step, (*part, *extremum.followers(single, [n for n in others if n not in taken])), initial)


# Operations that maps of several classes are made of.
_COMMON = frozenset(
    {"add", "subtract", "multiply", "divide", "negative", "maximum", "minimum", "select", "cast", "input"}
)


def _stage_of(part: StepPart, taken: set[int]) -> LoopStage:
    """Return the stage of a part, and note that its numbers are taken."""
    refusals: list[LeavesClassError] = []
    too_long = ""
    # The results have nodes of their own, which no class may remove.
    graph, _ = part.graph, part.results
    current: StepPart | None = part
    while current is not None:
        for derive_class in CLASSES:
            before = len(graph.nodes)
            try:
                stage = derive_class(current)
                taken.update(part.state_indices)
                return stage
            except LeavesClassError as error:
                refusals += [error] if current is part else []
            except TooManyOperationsError:
                graph.forget_since(before)
                too_long = f"the form has more than {MAX_OPERATIONS:,} operations"
            except RecursionError:
                too_long = too_long or "its operations follow each other in a chain that is too long to derive a form"
        # A part that no class takes is tried once more, with other operations of the same value.
        before = len(graph.nodes)
        try:
            current = None if too_long or current is not part else whole_functions.find_shapes(part)
        except TooManyOperationsError:
            graph.forget_since(before)
            current = None
    raise _too_long(part, too_long) if too_long else _NoClassError(part, str(_refusal(part, refusals)))


def _weight(part: StepPart, node: Node) -> int:
    """Return how likely it is that an operation leads out of the classes: 2 if few of them know it, 0 for a sum."""
    if node.op not in _COMMON:
        return 2
    tested = node.args[:1] if node.op == "select" else node.args if node.op in ("multiply", "divide") else ()
    return int(bool(tested) and all(map(part.varies, tested)))


def _name_numbers(part: StepPart) -> str:
    """Return the numbers of a part as messages name them."""
    labels = [part.step.labels[index] for index in part.state_indices]
    return labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"


def _too_long(part: StepPart, why: str) -> LoopError:
    """Return the error for a part with too many operations: it names the last one."""
    node = part.results[0]
    source_line = part.graph.lines.get(node.index, "") or quote_definition(part.step.function)
    what = _name_numbers(part)
    last = spell(part.graph, node)
    return LoopError(
        f"the associative form of {part.step.name} was asked for, but {what} ends with {last}, and {why}. "
        f'Write the step with fewer operations, or pass method="sequential" to gpuscan.loop{source_line}'
    )


def _refusal(part: StepPart, refusals: Sequence[LeavesClassError]) -> LoopError:
    """Return the error for a part that belongs to no class: it names the operation that led furthest."""
    many = next((refusal for refusal in refusals if isinstance(refusal, TooManyStatesError)), None)
    several = len(part.state_indices) > 1
    name, what = part.step.name, _name_numbers(part)
    if many is not None and many.whole:
        return LoopError(
            f"the associative form of {name} was asked for, but {what} {'take' if several else 'takes'} "
            f"{many.count} different values, and tables of "
            f'finite states have at most {finite_state.MAX_STATES}. Take fewer values, or pass method="sequential" to '
            "gpuscan.loop" + (part.graph.lines.get(many.node.index, "") or quote_definition(part.step.function))
        )
    # Of the operations at which the classes gave up, an operation that no class knows, and of those the first.
    refusals = [refusal for refusal in refusals if refusal is not many]
    best = max(
        refusals,
        key=lambda refusal: (refusal.rank >= 0, _weight(part, refusal.node), refusal.rank, -refusal.node.index),
    )
    node = best.node
    why = best.why
    if _weight(part, node) == 0 and best.rank <= 0:
        # Sums belong to many classes. What they are taken of leads out.
        heavier = [other for other in reachable(part.results) if part.varies(other) and _weight(part, other)]
        node, why = (heavier[0], "") if heavier else (node, why)
    # A ufunc may also be written as choices.
    is_where = node.op == "select" and part.graph.names.get(node.index, "where") in ("", "where", "if")
    chooses = is_where and part.varies(node.args[0])
    spelled = spell(part.graph, node) + (" with a condition that depends on the carry" if chooses else "")
    told = f"{spelled} {why}" if why else f"it computes {spelled}{'' if chooses else ' on the carry'}"
    advice = "Write it with operations of one of the classes in gpuscan.loop's documentation, or pass "
    decides = node.op in SIGNS and any(
        node in reachable(other.args[:1]) for other in reachable(part.results) if other.op == "select"
    )
    if chooses or decides:
        advice = (
            "A choice by the carry has a form if it is a bound, as np.maximum, np.minimum and np.clip are, or if the "
            f"carry takes at most {finite_state.MAX_STATES} values"
        )
        if any(n.scalar.is_integer for n in part.states):
            advice += ", or if a counter wraps or stops and a mask or the dtype of x, such as x & 127, bounds its steps"
        advice += ". Write it so, or pass "
    advice += 'method="sequential" to gpuscan.loop'
    if any(n.scalar.kind == "float" for n in part.states):
        advice += ', or for a step with derivatives method="newton"'
    if any(n.scalar.is_integer for n in part.states) and any(values is None for values in part.initial):
        advice += ". If init is a number or a NumPy array, more forms are possible, since its range is known"
    if several:
        advice += ". A carry is split into parts if its numbers depend on each other in one direction only"
    source_line = part.graph.lines.get(node.index, "") or quote_definition(part.step.function)
    return LoopError(
        f"the associative form of {name} was asked for, but {told}, which leads out of every class of maps that "
        f"compose ({what}). {advice}{source_line}"
    )


def spell(graph: Graph, node: Node) -> str:
    """Return an operation as a user knows it."""
    names = {
        "input": "a value",
        "select": "np.where",
        "cast": f".astype(np.{node.scalar.name})",
        "complex": "a complex number of its parts (such as np.conj)",
    }
    called = graph.names.get(node.index)
    if called == "if":
        return "a choice of Python (if, and, or, min, max; traced as np.where)"
    if called and called != node.op:
        return f"np.{called}"
    if node.op == "view":
        return f".view(np.{node.scalar.name})"
    if node.op in ("multiply", "add", "divide", "subtract"):
        sign = {"multiply": "a product", "add": "a sum", "divide": "a quotient", "subtract": "a difference"}[node.op]
        return f"np.{node.op} ({sign})"
    return names.get(node.op, f"np.{node.op}")


# ----- Parts


def components(step: Step, units: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the numbers of the carry that depend on each other, in the order in which they can be computed.

    These are the strongly connected components of the graph of dependencies (Tarjan 1972).

    Args:
        units: groups of numbers that are taken together.
    """
    unit_of = {index: unit for unit, indices in enumerate(units) for index in indices}
    unit_of_node = {node.index: unit_of[index] for index, node in enumerate(step.states) if index in unit_of}
    uses = [
        sorted(
            {
                unit_of_node[node.index]
                for node in reachable([step.results[p] for p in unit])
                if node.index in unit_of_node
            }
        )
        for unit in units
    ]
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    groups: list[tuple[int, ...]] = []

    def visit(vertex: int) -> None:
        order[vertex] = lowest[vertex] = len(order)
        stack.append(vertex)
        for used in uses[vertex]:
            if used not in order:
                visit(used)
                lowest[vertex] = min(lowest[vertex], lowest[used])
            elif used in stack:
                lowest[vertex] = min(lowest[vertex], order[used])
        if lowest[vertex] == order[vertex]:
            start = stack.index(vertex)
            groups.append(tuple(sorted(index for unit in stack[start:] for index in units[unit])))
            del stack[start:]

    for index in range(len(uses)):
        if index not in order:
            visit(index)
    return groups


def form_of(derivation: Derivation) -> LoopForm:
    """Return the description of a derivation."""
    step = derivation.step
    shapes = [tuple(field.shape) for field in step.carry.fields]
    shape = shapes[0] if step.carry.single else step.carry.structure.build_bundle(shapes)
    labels = step.labels
    parts = []
    for stage in derivation.stages:
        names = ", ".join(labels[index] for index in stage.state_indices)
        resets = " The state is reset where a flag is set." if stage.constant is not None else ""
        text = f"{names}: {stage.class_name}, {stage.law}.{resets}"
        parts.append(LoopForm(stage.class_name, stage.law, shape, (), text))
    if not parts:
        text = f"{step.name}: the carry does not depend on the one before it, so each step is computed by itself."
        return LoopForm("affine", "h[t] = b", shape, (), text)
    if len(parts) == 1 and not derivation.direct:
        return LoopForm(parts[0].kind, parts[0].law, shape, (), f"{step.name} runs as a scan. {parts[0].text}")
    direct = [
        LoopForm("affine", "h[t] = b", shape, (), f"{labels[index]}: computed from x and other numbers.")
        for index in derivation.direct
    ]
    kind = "staged" if len(parts) + len(direct) > 1 else parts[0].kind
    count = "one scan" if len(parts) == 1 else f"{len(parts)} scans, in this order"
    text = f"{step.name} runs as {count}:\n" + "\n".join(f"  {part.text}" for part in (*parts, *direct))
    return LoopForm(kind, "; ".join(part.law for part in parts), shape, tuple(parts + direct), text)
