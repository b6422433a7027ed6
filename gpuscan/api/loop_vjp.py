"""`gpuscan.loop_vjp`: the gradient of a loop, by a scan of the step's derivatives in the other direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array
from gpuscan.api.call_device import takes_numpy
from gpuscan.api.device import Device
from gpuscan.api.launches import launchable_with
from gpuscan.api.linear_recurrence import gradient_of_broadcast
from gpuscan.api.loop_arguments import LoopArguments, NodeArray, loop_arguments
from gpuscan.api.loop_scans import LoopRun, part_of, stack_numbers
from gpuscan.api.outputs import execute
from gpuscan.elements import Element, Field
from gpuscan.errors import abbreviate
from gpuscan.operators.adjoint import CONTINUOUS
from gpuscan.operators.expression_graph import Node
from gpuscan.operators.loops.linearisation import linearise
from gpuscan.problem.arguments import as_flag, native
from gpuscan.problem.broadcasting import sum_to_shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpuscan.api.annotations import F, Of, Step


@overload
def loop_vjp(
    f: Step, init: object, xs: Of[F], grad_ys: object, *, grad_carry: object = ..., axis: int = ..., reverse: bool = ...
) -> tuple[Any, NDArray[F]]: ...
@overload
def loop_vjp(
    f: Step,
    init: object,
    xs: object,
    grad_ys: object,
    *,
    grad_carry: object = ...,
    axis: int = ...,
    reverse: bool = ...,
) -> tuple[Any, Any]: ...
def loop_vjp(
    f: Step,
    init: object,
    xs: object,
    grad_ys: object,
    *,
    grad_carry: object = None,
    axis: int = 0,
    reverse: bool = False,
) -> tuple[object, object]:
    """Return the gradients of a loss with respect to the arguments of ``carry, ys = gpuscan.loop(f, init, xs)``.

    Let J[t] and Y[t] be the derivatives of the next carry and of y[t] with respect to the carry before step t. The
    gradient of the carry runs from the end, from ``G[n-1] = grad_carry``: ``G[t-1] = J[t]^T G[t] + Y[t]^T grad_ys[t]``.
    This is a scan of affine maps. gpuscan derives J and Y from the operations of the step, as `gpuscan.scan_vjp` does.
    The loop itself runs first.

    Args:
        f, init, xs, axis, reverse: as they were passed to `gpuscan.loop`.
        grad_ys: the gradient of the loss with respect to `ys`, in the structure and shapes of `ys`; None for zero.
        grad_carry: the gradient with respect to the last carry, in its structure; None for zero.

    Returns:
        ``(grad_init, grad_xs)``, in the structures of `init` and `xs`. The first is summed over the axes to which init
        was broadcast. The gradient of an array of integers or bools is None.

    Raises:
        LoopError: the step has no associative form.
        OperatorError: an operation has no derivative, or the carry has no floats.
        ValueError: the gradients do not have the shapes of the results.

    The recurrence follows reverse accumulation (Griewank and Walther, "Evaluating Derivatives", 2008).

    Example:
        >>> import numpy as np
        >>> import gpuscan as gs
        >>> x = np.array([1, 2, 3], np.float32)
        >>> grad_init, grad_xs = gs.loop_vjp(lambda h, x: 0.5 * h + x, 0.0, x, np.ones(3, np.float32))
        >>> grad_xs
        array([1.75, 1.5 , 1.  ], dtype=float32)
        >>> grad_init
        np.float32(0.875)
    """
    return gradients(f, init, xs, grad_ys, grad_carry=grad_carry, axis=axis, reverse=as_flag("reverse", reverse))


@takes_numpy("xs", "grad_ys", "grad_carry")
@launchable_with("init", data=["grad_ys", "grad_carry"], integers=["init"])
def gradients(
    f: Step,
    init: object,
    xs: object,
    grad_ys: object,
    *,
    grad_carry: object = None,
    axis: int = 0,
    reverse: bool = False,
    device: Device | str | int | None = None,
) -> tuple[Any, Any]:
    """Return what `loop_vjp` returns, computed on a device of choice."""
    arguments = loop_arguments(f, init, xs, axis=axis, device=device)
    return _Backward(arguments, reverse, grad_ys, grad_carry).run()


class _Backward:
    """The backward pass of one loop."""

    def __init__(self, arguments: LoopArguments, reverse: bool, grad_ys: object, grad_carry: object) -> None:
        self.arguments, self.reverse, step = arguments, reverse, arguments.step
        self.step = step
        self.linearised = linearise(step)
        self.forward = LoopRun(arguments, arguments.derivation(), reverse)
        self.given = self._gradients("grad_ys", grad_ys, step.output, arguments.shape)
        self.last = self._gradients("grad_carry", grad_carry, step.carry, arguments.others)

    def _gradients(
        self, name: str, value: object, element: Element | None, shape: tuple[int, ...]
    ) -> list[SomeArray | None]:
        """Return the arrays of a gradient; None for each that is not given.

        Raises:
            ValueError: they do not fit the results.
        """
        if element is None or value is None:
            if value is not None:
                raise ValueError(f"{name}={abbreviate(value)} was passed for a loop without outputs; pass None")
            return [None] * (0 if element is None else len(element.fields))
        structure = element.structure
        try:
            leaves = structure.flatten(value)
        except (TypeError, ValueError, KeyError, IndexError):
            raise ValueError(
                f"{name}={abbreviate(value)} was passed, but its structure is not that of the loop's results; pass one "
                "gradient for each array of them"
            ) from None
        gradients: list[SomeArray | None] = []
        for leaf, field in zip(leaves, element.fields, strict=True):
            if leaf is None or field.scalar.kind not in CONTINUOUS:
                gradients.append(None)
                continue
            array = as_some_array(leaf)
            if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
                raise TypeError(f"{name} of dtype {array.dtype} was passed; pass gradients, which are floats")
            array = (array if isinstance(array, Array) else native(array)).astype(field.scalar.dtype, copy=False)
            if tuple(array.shape) != (*shape, *field.shape):
                raise ValueError(
                    f"{name} of shape {tuple(array.shape)} was passed for results of shape {(*shape, *field.shape)}; "
                    f"pass "
                    "arrays of one shape"
                )
            gradients.append(array if isinstance(array, Array) else self.forward.move_to_device(array))
        return gradients

    def run(self) -> tuple[object, object]:
        """Return the gradients of init and of xs."""
        step, run, linearised = self.step, self.forward, self.linearised
        graph = step.graph
        run.all_states()
        # All that is computed now depends on the old carries, x, and the gradients.
        for node in step.results:
            if node.op != "input":
                run.node_arrays.pop(node.index, None)
        outputs: list[Node | None] = []
        for number, (array, field) in enumerate(
            zip(self.given, () if step.output is None else step.output.fields, strict=True)
        ):
            for component in range(field.count):
                if array is None:
                    outputs.append(None)
                    continue
                node = graph.input(5, number, component, field.scalar)
                run.node_arrays[node.index] = NodeArray(array, field, component)
                outputs.append(node)
        olds = [step.states[index] for index in linearised.state_indices]
        jacobian = linearised.jacobian()
        transposed = [list(row) for row in zip(*jacobian, strict=True)]
        shift = linearised.backwards([], outputs, olds)
        stage = linearised.affine_stage(transposed, shift)
        after = [graph.input(6, 0, index, linearised.scalar) for index in range(len(olds))]
        fields = [Field("f", linearised.scalar) for _ in olds]
        start = self._start()
        backward = part_of(run, run.node_arrays, run.shape)
        backward.reverse = not self.reverse
        problem = backward.problem(stage, [[node] for node in after], fields, after, start)
        arrays = execute(replace(problem, exclusive=True), self.arguments.device, "auto", None)
        for node, array, field in zip(after, arrays, fields, strict=True):
            run.node_arrays[node.index] = NodeArray(array, field, 0)
        grad_xs = self._of_inputs(after, outputs)
        grad_init = self._of_init(after, outputs, olds)
        return grad_init, grad_xs

    def _start(self) -> list[SomeArray]:
        """Return the gradient of each number of the last carry."""
        dtype = self.linearised.scalar.dtype
        numbers: list[SomeArray] = []
        for array, field in zip(self.last, self.step.carry.fields, strict=True):
            for at in np.ndindex(field.shape):
                if array is None:
                    numbers.append(np.zeros((), dtype))
                else:
                    number = array[(..., *at)] if field.shape else array
                    numbers.append(number.astype(dtype))
        return [numbers[index] for index in self.linearised.state_indices]

    def _of_inputs(self, after: Sequence[Node], outputs: Sequence[Node | None]) -> object:
        """Return the gradients of the arrays of x."""
        step, run = self.step, self.forward
        inputs = iter(step.inputs)
        groups: list[tuple[list[Node], Field]] = []
        field_numbers: list[int] = []
        for number, field in enumerate(step.source.fields):
            own = [next(inputs) for _ in range(field.count)]
            if field.scalar.kind in CONTINUOUS:
                groups.append((self.linearised.backwards(after, outputs, own), Field("f", field.scalar, field.shape)))
                field_numbers.append(number)
        leaves: list[SomeArray | None] = [None] * len(step.source.fields)
        if groups:
            arrays = run.map_nodes([nodes for nodes, _ in groups], [field for _, field in groups])
            for number, array in zip(field_numbers, arrays, strict=True):
                leaves[number] = array
        return step.source.structure.build_bundle(leaves)

    def _of_init(self, after: Sequence[Node], outputs: Sequence[Node | None], olds: Sequence[Node]) -> object:
        """Return the gradients with respect to the arrays of init, the carry before the first step."""
        step, run, others = self.step, self.forward, self.arguments.others
        numbers: dict[int, SomeArray]
        if 0 in self.arguments.shape:
            # The last carry is init itself.
            numbers = {
                state_index: start if isinstance(start, Array) else run.move_to_device(np.broadcast_to(start, others))
                for state_index, start in zip(self.linearised.state_indices, self._start(), strict=True)
            }
        else:
            first = slice(-1, None) if self.reverse else slice(0, 1)
            at = (slice(None),) * run.axis + (first,)
            node_arrays = {
                index: NodeArray(node_array.array[at], node_array.field, node_array.component)
                for index, node_array in run.node_arrays.items()
            }
            shape = (*run.shape[: run.axis], 1, *run.shape[run.axis + 1 :])
            nodes = self.linearised.backwards(after, outputs, olds)
            fields = [Field("f", self.linearised.scalar) for _ in olds]
            arrays = part_of(run, node_arrays, shape).map_nodes([[node] for node in nodes], fields)
            numbers = {
                state_index: array.reshape(others)
                for state_index, array in zip(self.linearised.state_indices, arrays, strict=True)
            }
        leaves: list[SomeArray | np.generic | None] = []
        start = 0
        for leaf, field in zip(self.arguments.init, step.carry.fields, strict=True):
            own = range(start, start + field.count)
            start += field.count
            if own[0] not in numbers:
                leaves.append(None)
                continue
            gradients = [numbers[state_index] for state_index in own]
            # A single number is rounded to its type after the sum.
            whole = stack_numbers(gradients, field, others) if field.shape else gradients[0]
            leaves.append(self._sum(whole, tuple(np.shape(leaf)), field))
        return step.carry.structure.build_bundle(leaves)

    def _sum(self, whole: object, shape: tuple[int, ...], field: Field) -> SomeArray | np.generic:
        """Return the gradient of an array of init, which was broadcast to the other axes."""
        dtype = field.scalar.dtype
        if isinstance(whole, Array):
            return gradient_of_broadcast(whole, shape, dtype, self.arguments.device, None)
        total = sum_to_shape(shape, np.asarray(whole)).astype(dtype, copy=False)
        return total if total.ndim else total[()]
