"""Run the stages of a loop: each is a scan of maps, with the step's outputs computed in the store of the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array, new_array
from gpuscan.api.linear_recurrence import shift_elements
from gpuscan.api.loop_arguments import LoopArguments, NodeArray
from gpuscan.api.loop_steps import Sources, cut_inputs, find_loop_steps
from gpuscan.api.map import map_fields
from gpuscan.api.outputs import execute, reduce_rows
from gpuscan.api.reduce import reduce
from gpuscan.array_types import AnyArray
from gpuscan.device.device_array import upload_array
from gpuscan.device.reports import ValidationFlag
from gpuscan.device.strides import broadcast_strides
from gpuscan.elements import (
    Element,
    Field,
    Scalar,
    bundle_of,
    compute_dtype,
    element_of,
    scalar_of,
)
from gpuscan.engine.device_seeds import seeds_by_rows
from gpuscan.errors import LoopError
from gpuscan.operators.adjoint import LAST, map_of
from gpuscan.operators.evaluation import copy_nodes
from gpuscan.operators.expression_graph import BOOL, Graph, Node, reachable
from gpuscan.operators.loops.classes import Derivation
from gpuscan.operators.loops.finite_state import TableMaps
from gpuscan.operators.loops.stage import LoopStage, compute_nodes, operator_of
from gpuscan.operators.loops.step import Step
from gpuscan.operators.parameter_array import ParameterArray, broadcast_array, combine_arrays
from gpuscan.operators.trace import Map
from gpuscan.problem.broadcasting import broadcast_shapes
from gpuscan.problem.problem import Problem
from gpuscan.reference import scan as reference
from gpuscan.sizes import has_size


class LoopRun:
    """One run of a loop's stages.

    Args:
        derivation: the stages of the step.
        reverse: as in `gpuscan.loop`.
        fixed: True for the same bits on every device.
    """

    def __init__(self, arguments: LoopArguments, derivation: Derivation, reverse: bool, fixed: bool = False) -> None:
        self.arguments, self.derivation, self.reverse, self.fixed = arguments, derivation, reverse, fixed
        # The derivation may have added numbers to the user's step.
        self.step: Step = derivation.step
        self.device = arguments.device
        self.shape, self.axis = arguments.shape, arguments.axis
        # For the index of a node, the array that has its values: inputs of x, and numbers of the carry.
        self.node_arrays: dict[int, NodeArray] = {}
        numbers = iter(self.step.inputs)
        for array, field in zip(arguments.xs, self.step.source.fields, strict=True):
            for component in range(field.count):
                self.node_arrays[next(numbers).index] = NodeArray(array, field, component)
        self.spare = next(iter(self.node_arrays.values()))
        # The last value of each number of the carry, once it is known.
        self.lasts: dict[int, SomeArray | np.generic] = {}

    # ----- The plan

    def run(self) -> tuple[object, object]:
        """Return the last carry and the outputs, in the user's structures."""
        step, stages = self.step, self.derivation.stages
        recurrent = {state_index for stage in stages for state_index in stage.state_indices}
        old_of = {node.index: state_index for state_index, node in enumerate(step.states)}
        # A result that is not computed from the carry, or is a number that is there already, is no array to wait for.
        self.new_of = {
            step.results[state_index].index: state_index for state_index in recurrent if step.results[state_index].args
        }

        # The numbers of the carry for which an array is needed: of their new values, after each step, or of their old
        # values, before each step.
        new_needed: set[int] = set()
        old_needed: set[int] = set()

        def find_reads(nodes: Sequence[Node], new_of: Mapping[int, int]) -> tuple[set[int], set[int]]:
            """Return the numbers with new values that nodes read, and the numbers with old values that they read."""
            inputs = cut_inputs(nodes, new_of)
            return (
                {new_of[node.index] for node in inputs if node.index in new_of},
                {old_of[node.index] for node in inputs if node.index in old_of and node.index not in new_of},
            )

        def note_reads(nodes: Sequence[Node], new_of: Mapping[int, int]) -> set[int]:
            """Note what nodes read as needed, and return the numbers with old values that they read."""
            new_read, old_read = find_reads(nodes, new_of)
            new_needed.update(new_read)
            old_needed.update(old_read)
            return old_read

        for stage in stages:
            earlier = {
                index: state_index
                for index, state_index in self.new_of.items()
                if state_index not in stage.state_indices
            }
            note_reads([*stage.numbers, *([stage.constant] if stage.constant is not None else [])], earlier)
        for state_index in self.derivation.direct:
            note_reads([step.results[state_index]], self.new_of)
        new_read, old_read = find_reads(step.outputs, self.new_of)
        order = self._order()
        fused = self._find_fused(order, new_read, old_read)
        new_needed |= new_read - (set(fused.state_indices) if fused is not None else set())
        old_needed |= old_read
        pending = set(old_needed)
        while pending:
            # An old number that is computed directly needs the arrays that it is computed from.
            state_index = pending.pop()
            if state_index not in recurrent:
                known = set(old_needed)
                pending |= note_reads([step.results[state_index]], self.new_of) - known
        ys: list[SomeArray] = []
        for item in order:
            if isinstance(item, int):
                if item in old_needed:
                    (array,) = self.map_nodes([[step.results[item]]], [self.field_of(item)])
                    self.set_old(item, array)
                continue
            outputs = list(step.outputs) if item is fused else []
            wanted = [p for p in item.state_indices if p in new_needed or p in old_needed]
            results = self._stage(item, [p for p in wanted if p in new_needed], wanted, outputs, old_needed)
            if item is fused:
                ys = results
        if not step.outputs or step.output is None:
            return self._carry(), None
        return self.finish() if fused is None else (self._carry(), step.output.structure.build_bundle(ys))

    def all_states(self) -> None:
        """Compute the arrays of all old and new numbers of the carry."""
        self.new_of = {self.step.results[p].index: p for stage in self.derivation.stages for p in stage.state_indices}
        for item in self._order():
            if isinstance(item, int):
                (array,) = self.map_nodes([[self.step.results[item]]], [self.field_of(item)])
                self.set_old(item, array)
                self.keep_last(item, array)
            else:
                self._stage(item, item.state_indices, item.state_indices, [], set(item.state_indices))

    def _order(self) -> list[LoopStage | int]:
        """Return the stages and the numbers that are computed directly, each after what it depends on."""
        step = self.step
        state_indices = {node.index: state_index for state_index, node in enumerate(step.states)}
        items: list[LoopStage | int] = [*self.derivation.direct, *self.derivation.stages]
        provides = {item: set(item.state_indices) if isinstance(item, LoopStage) else {item} for item in items}
        ordered: list[LoopStage | int] = []
        done: set[int] = set()
        while items:
            for item in items:
                own = provides[item]
                uses = {
                    state_indices[node.index]
                    for node in reachable([step.results[state_index] for state_index in own])
                    if node.index in state_indices
                }
                if uses - own <= done:
                    ordered.append(item)
                    done |= own
                    items.remove(item)
                    break
            else:
                raise AssertionError("the parts of a loop depend on each other in a circle")
        return ordered

    def _find_fused(self, order: Sequence[LoopStage | int], new_read: set[int], old_read: set[int]) -> LoopStage | None:
        """Return the stage that computes the outputs when it stores its results; None if a separate map computes them.

        It is the last stage that the outputs need, and they need no old numbers of that stage.
        """
        for item in reversed(order):
            own = set(item.state_indices) if isinstance(item, LoopStage) else {item}
            if old_read & own:
                return None
            if new_read & own:
                return item if isinstance(item, LoopStage) else None
        return None

    def field_of(self, state_index: int) -> Field:
        return Field("f", self.step.states[state_index].scalar)

    # ----- Stages

    def _stage(
        self, stage: LoopStage, new: Sequence[int], wanted: Sequence[int], outputs: Sequence[Node], old_needed: set[int]
    ) -> list[SomeArray]:
        """Run a stage, keep the arrays of numbers that are wanted, and return the arrays of the outputs.

        Args:
            new: the numbers that are needed after the step.
            wanted: the numbers that are needed before or after the step.
            outputs: the nodes of the step's outputs, if this stage computes them.
            old_needed: the numbers that are needed before the step.
        """
        step = self.step
        if not stage.composition.keeps_start:
            # The old numbers are the new ones, shifted by one step, and begin with `init`.
            new = wanted
        groups: list[tuple[list[Node], Field]] = [([step.results[p]], self.field_of(p)) for p in new]
        output_groups = _group_by_field(outputs, step.output) if outputs and step.output is not None else []
        # Outputs that are new numbers themselves are not stored twice.
        stored_as: dict[int, int] = {}
        stored = list(groups)
        for number, (nodes, field) in enumerate(output_groups):
            same = next(
                (i for i, (others, f) in enumerate(groups) if others == nodes and f.scalar == field.scalar), None
            )
            if same is None or field.shape:
                stored_as[number] = len(stored)
                stored.append((nodes, field))
            else:
                stored_as[number] = same
        results: Sequence[SomeArray] = []
        if stored:
            problem = self.problem(stage, [nodes for nodes, _ in stored], [field for _, field in stored])
            results = execute(problem, self.device, "auto", None)
        for state_index, array in zip(new, results, strict=False):
            self.node_arrays[step.results[state_index].index] = NodeArray(array, self.field_of(state_index), 0)
            self.keep_last(state_index, array)
        for state_index in wanted:
            if state_index in old_needed and state_index in new:
                self.set_old(state_index, results[new.index(state_index)])
        olds = [state_index for state_index in wanted if state_index in old_needed and state_index not in new]
        if olds:
            problem = self.problem(stage, [[step.results[p]] for p in olds], [self.field_of(p) for p in olds])
            arrays = execute(replace(problem, exclusive=True), self.device, "auto", None)
            for state_index, array in zip(olds, arrays, strict=True):
                self.node_arrays[step.states[state_index].index] = NodeArray(array, self.field_of(state_index), 0)
        ys = [results[stored_as[number]] for number in range(len(output_groups))]
        for number, (nodes, field) in enumerate(output_groups):
            # The last carry is read from outputs that are new numbers.
            for component, node in enumerate(nodes):
                for state_index in stage.state_indices:
                    fits = field.scalar == step.states[state_index].scalar
                    if step.results[state_index] is node and state_index not in self.lasts and fits:
                        self.keep_last(state_index, _component(ys[number], field, component))
        return ys

    def problem(
        self,
        stage: LoopStage,
        nodes: Sequence[Sequence[Node]],
        fields: Sequence[Field],
        targets: Sequence[Node] | None = None,
        start: Sequence[SomeArray] | None = None,
    ) -> Problem:
        """Return the scan of a stage.

        Args:
            nodes: the results, for each field.
            fields: the fields of the results.
            targets: the nodes that have the values of the stage's maps (default: the new numbers of the carry).
            start: the values before the first step (default: the values in init).
        """
        step = self.step
        flat = [node for group in nodes for node in group]
        targets_given = targets is not None
        targets = [step.results[state_index] for state_index in stage.state_indices] if targets is None else targets
        own = {node.index: state_index for state_index, node in enumerate(targets)}
        carried = self._find_carried(flat, own)
        flagged = stage.constant is not None
        numbers = [*stage.numbers, *([stage.constant] if stage.constant is not None else []), *carried]
        # New numbers that are inputs as they are can be read like any other.
        nodes_of = step.graph.nodes
        node_arrays = {
            index: p for index, p in self.node_arrays.items() if index not in own or not nodes_of[index].args
        }
        sources = Sources(numbers, node_arrays, self.spare)
        graph = Graph()
        element = _element([node.scalar for node in numbers])
        loaded = copy_nodes(numbers, graph, sources.inputs(graph))
        before = map_of(graph, sources.element, [[node] for node in loaded], element)
        after = self._after(stage, element, carried, nodes, fields, targets)
        steps = None if targets_given else find_loop_steps(step, stage, before, sources, carried, nodes, fields)
        count = len(stage.numbers)
        rest = [(BOOL, False)] * flagged + [(node.scalar, 0) for node in carried]
        # A scan without maps runs in the same kernels as `gpuscan.scan`, which are faster for running extrema.
        has_maps = not (_is_identity(before) and _is_identity(after))
        problem = Problem(
            operator=operator_of(stage.composition, flagged, count, len(carried)),
            leaves=tuple(sources.arrays),
            source=sources.element if has_maps else element,
            element=element,
            destination=after.element if has_maps else element,
            shape=self.shape,
            axis=self.axis,
            reverse=self.reverse,
            seeds=self._seeds(stage, element, rest, start),
            initial=True,
            before=before if has_maps else None,
            after=after if has_maps else None,
            steps=steps if has_maps else None,
        )
        return seeds_by_rows(problem.as_reproducible(self.step.name) if self.fixed else problem)

    def _find_carried(self, nodes: Sequence[Node], own: Mapping[int, int]) -> list[Node]:
        """Return the numbers that results need in addition to the new numbers of a stage.

        They are the operands that are combined with what depends on these, or the arrays' numbers if those are fewer.
        """
        if not nodes:
            return []
        cut_nodes = {**dict.fromkeys(own), **{index: None for index in self.node_arrays if index not in own}}
        graph_nodes = _between(nodes, own)
        later = {node.index for node in graph_nodes}
        edges = {
            arg.index: arg
            for node in graph_nodes
            if node.index not in own
            for arg in node.args
            if arg.index not in later and not arg.is_constant
        }
        edges |= {node.index: node for node in nodes if node.index not in later and not node.is_constant}
        inputs = [node for node in cut_inputs(list(edges.values()), cut_nodes) if node.index not in own]
        return list(edges.values()) if len(edges) <= len(inputs) else inputs

    def _after(
        self,
        stage: LoopStage,
        element: Element,
        carried: Sequence[Node],
        nodes: Sequence[Sequence[Node]],
        fields: Sequence[Field],
        targets: Sequence[Node],
    ) -> Map:
        """Return the function that takes an element to the results."""
        graph = Graph()
        inputs = [graph.input(0, i, 0, field.scalar) for i, field in enumerate(element.fields)]
        count = len(stage.numbers)
        values = compute_nodes(graph, lambda *given: stage.composition.state(given), *inputs[:count])
        copies: dict[Node, Node] = {}
        for node, value in zip(carried, inputs[len(inputs) - len(carried) :], strict=True):
            copies[node] = value
        for node, value in zip(targets, values, strict=True):
            copies[node] = graph.cast(value, node.scalar)
        flat = iter(copy_nodes([node for group in nodes for node in group], graph, copies))
        by_field = [
            [graph.cast(next(flat), field.scalar) for _ in group] for group, field in zip(nodes, fields, strict=True)
        ]
        result = bundle_of(list(fields))
        return map_of(graph, element, by_field, result)

    # ----- Initial values

    def initial(self, state_index: int) -> SomeArray | ParameterArray:
        """Return the first value of a number of the carry. The derivation may have added the number."""
        values = self.arguments.first_values
        if state_index < len(values):
            return values[state_index]
        source = self.step.added[state_index - len(values)]
        return np.zeros((), bool) if source is None else self.initial(source)

    def _seeds(
        self,
        stage: LoopStage,
        element: Element,
        rest: Sequence[tuple[Scalar, object]],
        start: Sequence[SomeArray] | None,
    ) -> tuple[SomeArray, ...]:
        """Return the constant map of init for each row, in the fields of an element."""
        given = [self.initial(state_index) for state_index in stage.state_indices] if start is None else list(start)
        count = len(stage.numbers)
        rows = prod(self.arguments.others)
        # If the number of rows is a size, values are broadcast on the device.
        lies_in_rows = not has_size((rows,))
        if not lies_in_rows or any(isinstance(value, Array) for value in given):
            assert self.device is not None
            seeds: list[SomeArray] = list(self._seeds_on_device(stage, element, given))
        else:
            others = self.arguments.others
            dtypes = [field.scalar.dtype for field in element.fields[:count]]
            wide_dtypes = [compute_dtype(scalar_of(value.dtype)) for value in given]

            def start_of(*arrays: AnyArray) -> list[AnyArray]:
                wide = []
                for value, dtype in zip(arrays, wide_dtypes, strict=True):
                    whole = np.empty(others, dtype)
                    whole[...] = value
                    wide.append(whole.reshape(rows))
                numbers = stage.composition.start(wide)
                return [np.asarray(number).astype(dtype) for number, dtype in zip(numbers, dtypes, strict=True)]

            with np.errstate(all="ignore"):
                seeds = combine_arrays(start_of, given)
        shape = (rows,) if lies_in_rows else ()
        seeds += [np.full(shape, value, scalar.dtype) for scalar, value in rest]
        return tuple(seeds)

    def _seeds_on_device(self, stage: LoopStage, element: Element, given: Sequence[object]) -> Sequence[SomeArray]:
        assert self.device is not None
        context = self.device._context
        arrays = [
            Array._of(self.device, upload_array(context, number))
            if isinstance(number, ParameterArray)
            else self.device.asarray(number)
            for number in given
        ]
        source = bundle_of([Field("f", scalar_of(array.dtype)) for array in arrays])
        graph = Graph()
        inputs = [graph.input(0, i, 0, field.scalar) for i, field in enumerate(source.fields)]
        wide = [graph.cast(number, scalar_of(compute_dtype(number.scalar))) for number in inputs]
        count = len(stage.numbers)
        numbers = compute_nodes(graph, lambda *given: stage.composition.start(given), *wide)
        fields = [Field(f"f{i}", element.fields[i].scalar) for i in range(count)]
        nodes = [[graph.cast(number, field.scalar)] for number, field in zip(numbers, fields, strict=True)]
        function = map_of(graph, source, nodes, bundle_of(fields))
        shape = broadcast_shapes(*(array.shape for array in arrays))
        if self.fixed:
            rows = [np.broadcast_to(array, self.arguments.others).reshape(-1) for array in arrays]
            seeds = self._map_by_scan(function, rows, rows[0].shape, 0)
        else:
            seeds = map_fields(function, arrays, shape, self.device)
        # The states were searched from the values of init on the CPU, so only values on the device are checked.
        if isinstance(stage.composition, TableMaps) and not all(isinstance(number, np.ndarray) for number in given):
            self._check_states(stage.composition, source, arrays, shape)
        return seeds

    def _check_states(
        self, maps: TableMaps, source: Element, arrays: Sequence[SomeArray], shape: tuple[int, ...]
    ) -> None:
        """Search init for values that are not states. The result is read with the reports."""
        assert self.device is not None
        graph = Graph()
        inputs = [graph.input(0, i, 0, field.scalar) for i, field in enumerate(source.fields)]
        (outside,) = compute_nodes(graph, lambda *given: maps.is_outside(given), *inputs)
        function = map_of(graph, source, [[outside]], bundle_of([Field("f", outside.scalar)]))
        (words,) = map_fields(function, arrays, shape, self.device)
        any_outside = reduce(words.reshape((-1,)), "maximum")
        error = LoopError(
            f"a loop of {self.step.name} over {len(maps.states)} finite states was asked for, but init has a value "
            "on the device that is none of them. Pass init as a number or a NumPy array, so that its values are states"
        )
        context = self.device._context
        context.read_validation_flag_later(ValidationFlag(any_outside, lambda read: error if read[0] else None, ()))
        context.check_if_many()

    # ----- Arrays

    def set_old(self, state_index: int, array: SomeArray) -> None:
        """Keep the array of the old numbers: the new ones, shifted by one step."""
        field = self.field_of(state_index)
        others = self.arguments.others
        start = self.initial(state_index)
        old: SomeArray
        if isinstance(array, Array):
            # If the number of rows is a size, the value is broadcast on the device.
            seed: Any = start
            if not isinstance(start, Array) and not has_size(others):
                seed = broadcast_array(start, others).reshape(-1)
            old = shift_elements(array, (seed,), self.shape, self.axis, reverse=self.reverse, device=self.device)
        else:
            old = reference.shift(array, np.broadcast_to(start, others), self.axis, reverse=self.reverse)
        self.node_arrays[self.step.states[state_index].index] = NodeArray(old, field, 0)

    def map_nodes(self, nodes: Sequence[Sequence[Node]], fields: Sequence[Field]) -> Sequence[SomeArray]:
        """Return nodes as arrays, computed from the arrays that are there."""
        flat = [node for group in nodes for node in group]
        sources = Sources(flat, self.node_arrays, self.spare)
        graph = Graph()
        copies = iter(copy_nodes(flat, graph, sources.inputs(graph)))
        by_field = [[graph.cast(next(copies), f.scalar) for _ in g] for g, f in zip(nodes, fields, strict=True)]
        return self.elementwise(map_of(graph, sources.element, by_field, bundle_of(list(fields))), sources.arrays)

    def elementwise(self, function: Map, arrays: Sequence[SomeArray]) -> Sequence[SomeArray]:
        """Return a function of each element of arrays that share the leading shape."""
        if self.fixed or any(field.shape for field in (*function.source.fields, *function.element.fields)):
            # The kernel of maps takes one number of each array: a scan that keeps each element takes several.
            return self._map_by_scan(function, arrays, self.shape, self.axis)
        return map_fields(function, arrays, self.shape, self.device)

    def _map_by_scan(
        self, function: Map, arrays: Sequence[SomeArray], shape: tuple[int, ...], axis: int
    ) -> Sequence[SomeArray]:
        """Return a function of each element of arrays, by a scan that keeps each element."""
        problem = Problem(
            operator=LAST,
            leaves=tuple(arrays),
            source=function.source,
            element=function.element,
            destination=function.element,
            shape=shape,
            axis=axis,
            before=function,
        )
        return execute(problem.as_reproducible(self.step.name) if self.fixed else problem, self.device, "auto", None)

    def _map_outputs(self) -> list[SomeArray]:
        step = self.step
        assert step.output is not None
        groups = _group_by_field(step.outputs, step.output)
        outputs: dict[int, SomeArray] = {}
        rest = []
        for number, (nodes, field) in enumerate(groups):
            node_array = self.node_arrays.get(nodes[0].index) if len(nodes) == 1 and not field.shape else None
            own = node_array is not None and nodes[0].index in self.new_of and node_array.field.scalar == field.scalar
            if own and node_array is not None:
                outputs[number] = node_array.array
            else:
                rest.append(number)
        if rest:
            arrays = self.map_nodes([groups[i][0] for i in rest], [groups[i][1] for i in rest])
            for number, array in zip(rest, arrays, strict=True):
                outputs[number] = array
        return [outputs[number] for number in range(len(groups))]

    # ----- The last carry

    def keep_last(self, state_index: int, array: SomeArray) -> None:
        """Keep a copy of the last values along the axis, if there are any."""
        if self.shape[self.axis]:
            last = array[(slice(None),) * self.axis + (0 if self.reverse else -1,)]
            self.lasts[state_index] = last.copy()

    def finish(self) -> tuple[object, object]:
        """Return the last carry, and the outputs of the arrays that are there."""
        ys = None if self.step.output is None else self.step.output.structure.build_bundle(self._map_outputs())
        return self._carry(), ys

    def move_to_device(self, array: AnyArray) -> AnyArray | Array:
        """Return the array on the device if the arrays of the loop are on it, else the NumPy array itself."""
        if not self.arguments.on_device:
            return array
        assert self.device is not None
        return new_array(self.device, np.asarray(array, order="C"))

    def _carry(self) -> object:
        """Return the last carry, in the structure of init."""
        step = self.step
        count = sum(field.count for field in step.carry.fields)
        if 0 in self.shape:
            return self._initial_carry()
        for stage in self.derivation.stages:
            missing = [index for index in stage.state_indices if index not in self.lasts and index < count]
            if missing:
                for state_index, value in zip(missing, self._reduce(stage, missing), strict=True):
                    self.lasts[state_index] = value
        for state_index in self.derivation.direct:
            if state_index not in self.lasts and state_index < count:
                self.lasts[state_index] = self._direct_last(state_index)
        leaves, start = [], 0
        for field in step.carry.fields:
            numbers = [self.lasts[state_index] for state_index in range(start, start + field.count)]
            start += field.count
            leaves.append(stack_numbers(numbers, field, self.arguments.others))
        assert start == count
        return step.carry.structure.build_bundle(leaves)

    def _initial_carry(self) -> object:
        leaves = []
        for leaf, field in zip(self.arguments.init, self.step.carry.fields, strict=True):
            shape = (*self.arguments.others, *field.shape)
            if isinstance(leaf, Array):
                whole: SomeArray = leaf._view_at(shape, broadcast_strides(leaf.shape, leaf.strides, shape)).copy()
            else:
                whole = self.move_to_device(np.broadcast_to(leaf, shape).copy())
            leaves.append(whole if isinstance(whole, Array) or whole.ndim else whole[()])
        return self.step.carry.structure.build_bundle(leaves)

    def _direct_last(self, state_index: int) -> SomeArray:
        """Return the last value of a number that is computed from x and other numbers: a map of one step."""
        step = self.step
        node = step.results[state_index]
        needed = cut_inputs([node], self.node_arrays)
        one = slice(0, 1) if self.reverse else slice(-1, None)
        at = (slice(None),) * self.axis + (one,)
        inputs = {node.index: self.node_arrays[node.index] for node in needed}
        node_arrays = {index: replace(node_array, array=node_array.array[at]) for index, node_array in inputs.items()}
        shape = (*self.shape[: self.axis], 1, *self.shape[self.axis + 1 :])
        (last,) = part_of(self, node_arrays, shape).map_nodes([[node]], [self.field_of(state_index)])
        return last.reshape(self.arguments.others)

    def _reduce(self, stage: LoopStage, state_indices: Sequence[int]) -> list[SomeArray]:
        """Return the last values of numbers that no array has: a reduction of the stage's maps."""
        nodes = [[self.step.results[state_index]] for state_index in state_indices]
        problem = self.problem(stage, nodes, [self.field_of(state_index) for state_index in state_indices])
        if self.reverse:
            at = (slice(None),) * self.axis + (slice(None, None, -1),)
            problem = replace(problem, leaves=tuple(as_some_array(leaf)[at] for leaf in problem.leaves), reverse=False)
        return [last.reshape(self.arguments.others) for last in reduce_rows(problem.as_reduction(), self.device)]


def part_of(run: LoopRun, node_arrays: Mapping[int, NodeArray], shape: tuple[int, ...]) -> LoopRun:
    """Return a run of the same step over other arrays.

    Args:
        node_arrays: the arrays of nodes.
        shape: the shape that they share.
    """
    other = copy(run)
    other.node_arrays, other.shape = dict(node_arrays), shape
    if shape != run.shape:
        at = (slice(None),) * run.axis + (slice(0, 1),)
        other.spare = replace(run.spare, array=run.spare.array[at])
    return other


def stack_numbers(
    numbers: Sequence[SomeArray | np.generic], field: Field, others: tuple[int, ...]
) -> SomeArray | np.generic:
    """Return the numbers of a leaf of the carry as one array (*others, *shape of the field)."""
    if not field.shape:
        value = numbers[0]
        return value if isinstance(value, Array) else np.asarray(value, field.scalar.dtype)[()]
    shape = (*others, *field.shape)
    if isinstance(numbers[0], Array):
        return np.concatenate([number.reshape((*others, 1)) for number in numbers], axis=-1).reshape(shape)
    return np.stack([np.asarray(number) for number in numbers], axis=-1).reshape(shape)


def _between(nodes: Sequence[Node], own: Mapping[int, int]) -> list[Node]:
    """Return the nodes that the given ones need and that depend on nodes with these indices, those included."""
    dependent: dict[int, Node] = {}
    for node in reachable(nodes, own):
        if node.index in own or any(arg.index in dependent for arg in node.args):
            dependent[node.index] = node
    return list(dependent.values())


def _group_by_field(nodes: Sequence[Node], element: Element) -> list[tuple[list[Node], Field]]:
    """Return nodes field by field."""
    groups, rest = [], iter(nodes)
    for field in element.fields:
        groups.append(([next(rest) for _ in range(field.count)], replace(field, name="f")))
    return groups


def _component(array: SomeArray, field: Field, component: int) -> SomeArray:
    if not field.shape:
        return array
    return array[(..., *list(np.ndindex(field.shape))[component])]


def _element(scalars: Sequence[Scalar]) -> Element:
    """Return the element of these numbers, which is no bundle if there is one."""
    return (
        element_of([scalars[0].dtype]) if len(scalars) == 1 else bundle_of([Field("f", scalar) for scalar in scalars])
    )


def _is_identity(function: Map) -> bool:
    """Return True if a function gives the only number of its argument. One number of a vector is none."""
    (node, *others), fields = function.result.fields[0], (*function.source.fields, *function.element.fields)
    is_number = len(fields) == 2 and not any(field.shape for field in fields)
    return is_number and node.op == "input" and not others and fields[0].scalar == fields[1].scalar
