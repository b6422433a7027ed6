"""Derive the form of a loop: cut the carry into parts, and find the class of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuscan.errors import LoopError
from gpuscan.operators.expression_graph import Node, reachable
from gpuscan.operators.loops import affine, bitwise, extremum, finite_state, max_times, mobius, tropical
from gpuscan.operators.loops.finite_state import TooManyStatesError
from gpuscan.operators.loops.stage import LeavesClassError, Part, Stage
from gpuscan.operators.loops.step import Step
from gpuscan.operators.source_location import defined_at

# The classes, in the order in which they are tried. Each takes a part, and returns a stage or raises LeavesClassError.
CLASSES: tuple[Callable[[Part], Stage], ...] = (
    affine.derive,
    tropical.derive,
    extremum.derive,
    max_times.derive,
    bitwise.derive,
    mobius.derive,
    finite_state.derive,
)


@dataclass(frozen=True)
class LoopForm:
    """What a loop is run as; ``str(form)`` explains it.

    Attributes:
        kind: ``"affine"``, ``"max-plus"``, ``"min-plus"``, ``"max-times"``, ``"clamp"``, ``"extremum"``, ``"mobius"``,
            ``"bitwise"`` or ``"finite-state"``; ``"staged"`` for a carry of several parts.
        stages: the forms of the parts, in the order in which they run; the form itself if there is one part.
        state_shape: the trailing axes of `init` that belong to the carry: one shape, or one for each of its arrays.
        law: the map of one step as a formula.
        text: the explanation.
    """

    kind: str
    law: str
    state_shape: Any
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
        step: the step.
        stages: the stages of the parts that depend on themselves, in the order in which they run.
        direct: the numbers of the carry that depend on x and on other numbers alone.
    """

    step: Step
    stages: tuple[Stage, ...]
    direct: tuple[int, ...]


def derive(step: Step, initial: Sequence[np.ndarray[Any, Any] | None]) -> Derivation:
    """Return the stages of a step.

    Args:
        step: the step.
        initial: for each number of the carry, its values in `init`; None if they are on a device.

    Raises:
        LoopError: a part belongs to no class.
    """
    stages, direct = [], []
    groups = components(step)
    taken: set[int] = set()
    for group in groups:
        if group[0] in taken:
            continue
        part = Part(step, group, tuple(initial[place] for place in group))
        if not part.varies(part.results[0]):
            direct.append(group[0])
            continue
        if len(group) == 1:
            others = [other[0] for other in groups if len(other) == 1 and other != group and other[0] not in taken]
            followers = extremum.followers(part, others)
            group = (*group, *followers)
            taken.update(followers)
            part = Part(step, group, tuple(initial[place] for place in group))
        stages.append(_stage_of(part))
    return Derivation(step, tuple(stages), tuple(direct))


# Operations that maps of several classes are made of.
_COMMON = frozenset({"add", "subtract", "multiply", "divide", "negative", "maximum", "minimum", "select", "cast", "input"})


def _stage_of(part: Part) -> Stage:
    refusals: list[LeavesClassError] = []
    for derive_class in CLASSES:
        try:
            return derive_class(part)
        except LeavesClassError as error:
            refusals.append(error)
    raise _refusal(part, refusals)


def _refusal(part: Part, refusals: Sequence[LeavesClassError]) -> LoopError:
    """Return the error for a part that belongs to no class: it names the operation that led furthest."""
    many = next((each for each in refusals if isinstance(each, TooManyStatesError)), None)
    labels = [part.step.labels[place] for place in part.places]
    name = part.step.name
    what = labels[0] if len(labels) == 1 else f"{', '.join(labels[:-1])} and {labels[-1]}"
    if many is not None:
        count = f"{many.count}" if many.whole else f"more than {many.count - 1}"
        return LoopError(
            f"the associative form of {name} was asked for, but {what} takes {count} different values, and tables of "
            f"finite states have at most {finite_state.MAX_STATES}. Take fewer values, or pass method=\"sequential\""
            + part.graph.lines.get(many.node.index, "")
        )
    # Of the operations at which the classes gave up, an operation that no class knows, and of those the first.
    best = max(refusals, key=lambda each: (each.rank >= 0, each.node.op not in _COMMON, each.rank, -each.node.index))
    node = best.node
    why = best.why
    told = f"{spelled(node)} {why}" if best.why else f"it computes {spelled(node)} on the carry"
    advice = 'Write it with operations of one of the classes in gpuscan.loop\'s documentation, or pass method="sequential"'
    if any(n.scalar.kind == "float" for n in part.states):
        advice += ', or for a step with derivatives method="newton"'
    if len(labels) > 1:
        advice += ". A carry whose numbers depend on each other in one direction is taken apart by itself"
    place = part.graph.lines.get(node.index, "") or defined_at(part.step.function)
    return LoopError(
        f"the associative form of {name} was asked for, but {told}, which leads out of every class of maps that "
        f"compose ({what}). {advice}{place}"
    )


def spelled(node: Node) -> str:
    """Return an operation as a user knows it."""
    names = {
        "input": "a value", "select": "np.where with a condition that depends on the carry", "cast": f".astype(np.{node.scalar.name})"}
    if node.op == "view":
        return f".view(np.{node.scalar.name})"
    if node.op in ("multiply", "add", "divide", "subtract"):
        sign = {"multiply": "a product", "add": "a sum", "divide": "a quotient", "subtract": "a difference"}[node.op]
        return f"np.{node.op} ({sign})"
    return names.get(node.op, f"np.{node.op}")


# ----- Parts


def components(step: Step) -> list[tuple[int, ...]]:
    """Return the numbers of the carry that depend on each other, in the order in which they can be computed.

    These are the strongly connected components of the graph of dependencies (Tarjan 1972).
    """
    places = {node.index: place for place, node in enumerate(step.states)}
    uses = [
        sorted({places[node.index] for node in reachable([result]) if node.index in places}) for result in step.results
    ]
    order: dict[int, int] = {}
    lowest: dict[int, int] = {}
    stack: list[int] = []
    found: list[tuple[int, ...]] = []

    def visit(place: int) -> None:
        order[place] = lowest[place] = len(order)
        stack.append(place)
        for other in uses[place]:
            if other not in order:
                visit(other)
                lowest[place] = min(lowest[place], lowest[other])
            elif other in stack:
                lowest[place] = min(lowest[place], order[other])
        if lowest[place] == order[place]:
            at = stack.index(place)
            found.append(tuple(sorted(stack[at:])))
            del stack[at:]

    for place in range(len(uses)):
        if place not in order:
            visit(place)
    return found


def form_of(derivation: Derivation) -> LoopForm:
    """Return the description of a derivation."""
    step = derivation.step
    shapes = [tuple(each.shape) for each in step.carry.fields]
    shape = shapes[0] if step.carry.single else step.carry.structure.nested(shapes)
    labels = step.labels
    parts = []
    for stage in derivation.stages:
        names = ", ".join(labels[place] for place in stage.places)
        resets = " The state is reset where a flag is set." if stage.constant is not None else ""
        text = f"{names}: {stage.kind}, {stage.law}.{resets}"
        parts.append(LoopForm(stage.kind, stage.law, shape, (), text))
    if not parts:
        text = f"{step.name}: the carry does not depend on the one before it, so each step is computed by itself."
        return LoopForm("affine", "h[t] = b", shape, (), text)
    if len(parts) == 1 and not derivation.direct:
        return LoopForm(parts[0].kind, parts[0].law, shape, (), f"{step.name} runs as a scan. {parts[0].text}")
    direct = [
        LoopForm("affine", "h[t] = b", shape, (), f"{labels[place]}: computed from x and other numbers.")
        for place in derivation.direct
    ]
    kind = "staged" if len(parts) + len(direct) > 1 else parts[0].kind
    text = f"{step.name} runs as {len(parts)} scan{'s' if len(parts) > 1 else ''}, one after the other.\n" + "\n".join(
        f"  {part.text}" for part in (*parts, *direct)
    )
    return LoopForm(kind, "; ".join(part.law for part in parts), shape, tuple(parts + direct), text)
