"""The derivatives of a step: the affine maps of Newton's method and of the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuscan.elements import Scalar, scalar_of
from gpuscan.errors import OperatorError
from gpuscan.operators.adjoint import CONTINUOUS, cotangents, pattern_of
from gpuscan.operators.derivatives import Calculus
from gpuscan.operators.expression_graph import FLOAT32, Node
from gpuscan.operators.loops.affine import PlusTimes
from gpuscan.operators.loops.semirings import MatrixMaps
from gpuscan.operators.loops.stage import LoopStage
from gpuscan.operators.loops.step import Step

FLOAT64 = scalar_of(np.dtype(np.float64))


@dataclass(frozen=True, eq=False)
class Linearisation:
    """A step that is differentiated in its own graph.

    Attributes:
        step: the step.
        state_indices: the numbers of the carry that are floats. The others have no derivative.
        scalar: the type of derivatives.
    """

    step: Step
    state_indices: tuple[int, ...]
    scalar: Scalar

    @property
    def calculus(self) -> Calculus:
        return Calculus(self.step.graph)

    def jacobian(self) -> list[list[Node]]:
        """Return the derivative of each new number with respect to each old one."""
        calculus, step = self.calculus, self.step
        olds = [step.states[index] for index in self.state_indices]
        rows = []
        for index in self.state_indices:
            result = step.results[index]
            seed = calculus.like(1, calculus.wide(result))
            derivatives = cotangents(step.graph, [(result, seed)], olds, step.name)
            rows.append([self._number(node) for node in derivatives])
        return rows

    def _number(self, node: Node | None) -> Node:
        if node is None:
            return self.step.graph.constant(0, self.scalar)
        return self.step.graph.cast(node, self.scalar)

    def backwards(self, states: Sequence[Node], outputs: Sequence[Node | None], inputs: Sequence[Node]) -> list[Node]:
        """Return the cotangents of inputs, given the cotangents of the new carry and of y.

        Args:
            states: for each of `state_indices`, the cotangent of the new number; empty for none.
            outputs: for each number of y, its cotangent; None if it has none.
            inputs: old numbers, or numbers of x.
        """
        step, calculus = self.step, self.calculus
        pairs = []
        for index, cotangent in zip(self.state_indices, states, strict=False):
            result = step.results[index]
            pairs.append((result, step.graph.cast(cotangent, calculus.wide(result).scalar)))
        for node, given in zip(step.outputs, outputs, strict=True):
            if given is not None and node.scalar.kind in CONTINUOUS:
                pairs.append((node, step.graph.cast(given, calculus.wide(node).scalar)))
        gradients = cotangents(step.graph, pairs, inputs, step.name)
        return [
            calculus.like(0, calculus.wide(node_of_input)) if node is None else node
            for node, node_of_input in zip(gradients, inputs, strict=True)
        ]

    def affine_stage(self, rows: Sequence[Sequence[Node]], shift: Sequence[Node]) -> LoopStage:
        """Return the affine maps with this matrix and shift as a stage."""
        graph = self.step.graph
        entries = [["0" if e.equals(0) else "1" if e.equals(1) else e.index for e in row] for row in rows]
        pattern = pattern_of(entries, "0", "1")
        stored: dict[int, Node] = {}
        for row, classes in zip(rows, pattern, strict=True):
            for entry, class_number in zip(row, classes, strict=True):
                if class_number >= 0:
                    stored.setdefault(class_number, entry)
        numbers = (
            *(stored[class_number] for class_number in range(len(stored))),
            *(graph.cast(node, self.scalar) for node in shift),
        )
        return LoopStage("affine", PlusTimes.law, self.state_indices, numbers, None, MatrixMaps(PlusTimes, pattern))


def linearise(step: Step) -> Linearisation:
    """Return the step for derivatives.

    Raises:
        OperatorError: the carry has no floats, or complex numbers.
    """
    if any(node.scalar.kind == "complex" for node in step.states):
        raise OperatorError(
            f"the derivative of {step.name} was asked for, but its carry is complex; keep its real and imaginary parts "
            "as two floats"
        )
    state_indices = tuple(index for index, node in enumerate(step.states) if node.scalar.kind == "float")
    if not state_indices:
        raise OperatorError(
            f"the derivative of {step.name} was asked for, but its carry has no floats; pass an init of float32"
        )
    wide = any(step.states[index].scalar == FLOAT64 for index in state_indices)
    return Linearisation(step, state_indices, FLOAT64 if wide else FLOAT32)
