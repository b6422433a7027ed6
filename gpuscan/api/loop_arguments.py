"""Check the arguments of a loop, choose which axes belong to the carry, and trace its step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias, TypeGuard

import numpy as np

from gpuscan.api.array import Array, SomeArray, as_some_array
from gpuscan.api.call_device import find_call_device
from gpuscan.api.device import Device
from gpuscan.api.launches import Numbered
from gpuscan.array_types import AnyDType
from gpuscan.elements import LEAF, Element, Field, Structure, container_of, element_of, nest_children, scalar_of
from gpuscan.errors import OperatorError, abbreviate
from gpuscan.operators.function_keys import function_key
from gpuscan.operators.loops.classes import Derivation, derive
from gpuscan.operators.loops.step import Step, keeps_weak, trace_step
from gpuscan.operators.operator import Function
from gpuscan.operators.parameter_array import ParameterArray, check_init, fill_array, is_number_parameter
from gpuscan.operators.parameters import Parameter, Switch, reveal
from gpuscan.operators.source_location import MissingAxisError
from gpuscan.problem.arguments import native, resolve_axis, structure_and_leaves
from gpuscan.problem.broadcasting import broadcast_shapes
from gpuscan.recent_values import RecentValues

# The most numbers of a carry, for which matrices still fit a shader.
MAX_NUMBERS = 64
# How many steps are kept with their derivations.
_MAX_STEPS = 128

# Values of init of up to this many bytes are a part of the key of a derivation.
_MAX_KEY_BYTES = 1024

# The most combinations of dtypes that are tried for the Python numbers of init.
_MAX_TRIES = 32

_derivations: RecentValues[Hashable, Derivation] = RecentValues(_MAX_STEPS)
_steps: RecentValues[Hashable, Step] = RecentValues(_MAX_STEPS)


class FixedStep(Numbered):
    """A step that computes the same at each call, so that it is traced once.

    Args:
        function: the step.
        name: the step as messages name it.
    """

    def __init__(self, function: Function, name: str) -> None:
        self._function, self.__name__ = function, name

    def __call__(self, carry: object, x: object) -> object:
        return self._function(carry, x)


@dataclass(frozen=True, eq=False)
class LoopArguments:
    """A loop that a user asked for, checked and traced.

    Attributes:
        step: the step.
        init: for each leaf of the carry, an array of shape (*lead, *shape of the leaf); lead broadcasts to `others`.
        xs: the arrays of x.
        shape: the leading shape that the arrays of x share, with the axis of the loop.
        axis: the axis, 0 or more.
        device: the device; None for NumPy.
        on_device: True if the results stay on the device.
        key: equal for loops with the same step; None if that cannot be told.
    """

    step: Step
    init: tuple[SomeArray | ParameterArray, ...]
    xs: tuple[SomeArray, ...]
    shape: tuple[int, ...]
    axis: int
    device: Device | None
    on_device: bool
    key: Hashable

    @property
    def others(self) -> tuple[int, ...]:
        """The other axes of x."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def length(self) -> int:
        return self.shape[self.axis]

    @cached_property
    def first_values(self) -> list[SomeArray | ParameterArray]:
        """The first value of each number of the carry, from `init`, in a shape that broadcasts to the other axes."""
        return [
            leaf[(..., *at)] if field.shape else leaf
            for leaf, field in zip(self.init, self.step.carry.fields, strict=True)
            for at in np.ndindex(field.shape)
        ]

    def derivation(self) -> Derivation:
        """Return the stages of the step.

        Raises:
            LoopError: it has no associative form.
        """
        on_host = [leaf for leaf in self.init if not isinstance(leaf, Array)]
        is_known = not any(isinstance(leaf, ParameterArray) for leaf in on_host)
        if self.key is None or not is_known or any(leaf.nbytes > _MAX_KEY_BYTES for leaf in on_host):
            return self._derive()
        key = (self.key, *(leaf.tobytes() if isinstance(leaf, np.ndarray) else None for leaf in self.init))
        derivation = _derivations.find(key)
        if derivation is not None and self.step in (derivation.step, derivation.given):
            return derivation
        return _derivations.keep(key, self._derive())

    def _derive(self) -> Derivation:
        # Values on a device are not known.
        return derive(self.step, [None if isinstance(value, Array) else value for value in self.first_values])


@dataclass(frozen=True)
class NodeArray:
    """A number of an array that stages read.

    Attributes:
        array: the array, (*shape, *shape of the field).
        field: its field.
        component: which number of the field.
    """

    array: SomeArray
    field: Field
    component: int


def loop_arguments(
    f: Function,
    init: object,
    xs: object,
    *,
    axis: int,
    device: Device | str | int | None,
    anywhere: bool = False,
) -> LoopArguments:
    """Return the arguments of a loop, checked and traced.

    Args:
        f, init, xs, axis, device: as in `gpuscan.loop`.
        anywhere: True if nothing will run, so that the device does not matter.

    Raises:
        TypeError, ValueError, OperatorError: as `gpuscan.loop` does.
    """
    if not callable(f):
        raise TypeError(f"f={abbreviate(f)} was passed to a loop; pass a function of (carry, x)")
    if _contains(init, lambda part: part is None):
        raise TypeError("an init with None was passed to a loop; pass the first carry: numbers or arrays")
    if _contains(xs, lambda part: part is None):
        raise TypeError(
            "xs with None was passed to a loop, which takes its length from xs; for n steps without inputs, pass "
            "np.arange(n)"
        )
    structure, given_xs = structure_and_leaves(xs)
    leaves = [native(as_some_array(leaf)) for leaf in given_xs]
    tries = _carries(init)
    refusals: list[Exception] = []
    # The arguments if a sum over the entries of a carry means a sum over one number, or if vectors are no rows of
    # matrices.
    single: LoopArguments | None = None
    vectors: LoopArguments | None = None
    for carry, given in tries:
        shapes = [_shape_of(leaf) for leaf in given]
        splits = _splits([leaf.shape for leaf in leaves], shapes, axis)
        rows = splits
        if any(map(any, (split[2] for split in splits))) and _takes_numbers(f, structure, leaves, carry, given):
            # The function takes numbers, so all axes of init are rows if they can be. Otherwise there are no rows.
            rows = [split for split in splits if not any(split[2])]
            splits = rows or [split for split in splits if len(split[0]) == 1]
        for split in splits:
            try:
                arrays = [*leaves, *(leaf for leaf in given if isinstance(leaf, Array))]
                call_device = None if anywhere else find_call_device(arrays, device)
                arguments = _with_split(f, structure, leaves, carry, given, split, axis, call_device)
                graph = arguments.step.graph
                if graph.contracts_numbers:
                    single = single or arguments
                elif graph.meets_vectors:
                    vectors = vectors or arguments
                elif (whole := _whole_split(splits, split, shapes)) is None:
                    return arguments
                else:
                    # A function that sums x at a step may mean the numbers of all rows. This is tried first.
                    with suppress(OperatorError, TypeError):
                        return _with_split(f, structure, leaves, carry, given, whole, axis, call_device)
                    return arguments
            except (OperatorError, TypeError) as error:
                refusals += [error] if rows else []
    doubtful = vectors or single
    if doubtful is not None:
        return doubtful
    if not refusals:
        raise _no_split([leaf.shape for leaf in leaves], [_shape_of(leaf) for leaf in tries[0][1]], axis)
    raise next((refusal for refusal in refusals if not isinstance(refusal, MissingAxisError)), refusals[0])


def _no_split(xs: Sequence[tuple[int, ...]], init: Sequence[tuple[int, ...]], axis: int) -> ValueError:
    shape = _find_leading_shape(xs)
    if not shape:
        shown = ", ".join(map(str, xs))
        return ValueError(
            f"xs of the shapes {shown} were passed to a loop, but its arrays must share at least one leading axis, "
            "along which the loop runs. Pass arrays of one length, or x[np.newaxis] for a single step"
        )
    resolved_axis = resolve_axis(axis, tuple(shape))
    others = tuple(shape[:resolved_axis] + shape[resolved_axis + 1 :])
    return ValueError(
        f"init of the shape {', '.join(map(str, init))} was passed for xs of the leading shape {tuple(shape)}, but "
        f"init must broadcast to {others}, the shape without the axis of the loop. Pass one carry, or one for each "
        f"row. A carry has from 1 to {MAX_NUMBERS} numbers"
    )


def _contains(value: object, condition: Callable[[object], bool]) -> bool:
    """Return True if a condition holds for a bundle or for a part of it."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    return condition(value) or any(_contains(part, condition) for part in parts)


def _takes_numbers(
    f: Callable[..., object],
    structure: Structure,
    leaves: Sequence[SomeArray],
    carry: Structure,
    given: Sequence[Initial],
) -> bool:
    """Return True if the step can be traced with a carry and an x of single numbers."""
    leading_axes = len(_find_leading_shape([leaf.shape for leaf in leaves]))
    source = element_of([leaf.dtype for leaf in leaves], structure, [leaf.shape[leading_axes:] for leaf in leaves])
    try:
        step = _trace(f, carry, given, [()] * len(given), source, [_is_weak(value) for value in given])
    except OperatorError:
        return False
    except TypeError:
        return True
    return not step.graph.contracts_numbers


# ----- init

# A leaf of init: an array, or a Python number, which takes the dtype that the step gives it.
Initial: TypeAlias = SomeArray | ParameterArray | int | float | complex | Parameter
# The types of the arrays among them.
_ARRAYS = (Array, np.ndarray, ParameterArray)


def _is_weak(value: object) -> TypeGuard[int | float | complex | Parameter]:
    return _number_type_of(value) in (int, float, complex)


def _number_type_of(value: object) -> type:
    return value.number_type if type(value) is Parameter else type(value)


def _shape_of(value: Initial) -> tuple[int, ...]:
    return value.shape if isinstance(value, _ARRAYS) else ()


def _carries(init: object) -> list[tuple[Structure, list[Initial]]]:
    """Return the ways to read init: a list of numbers is a bundle first, and an array otherwise."""
    ways = [_flatten(init, lists=True)]
    if _contains(init, lambda part: isinstance(part, list)):
        ways.append(_flatten(init, lists=False))
    return ways


def _flatten(value: object, *, lists: bool) -> tuple[Structure, list[Initial]]:
    """Return the structure of init and its leaves. Python numbers stay what they are."""
    outer = container_of(value) if isinstance(value, (dict, tuple)) or (lists and isinstance(value, list)) else None
    if outer is not None:
        container, parts = outer
        if not parts:
            raise ValueError("an init of no arrays was passed to a loop; pass a carry of one number or more")
        return nest_children(container, [_flatten(part, lists=lists) for part in parts])
    if _is_weak(value):
        return LEAF, [value]
    if is_number_parameter(value):
        return LEAF, [fill_array(value, (), np.dtype(value.number_type))]
    leaf = value if isinstance(value, ParameterArray) else native(as_some_array(value))
    scalar_of(leaf.dtype)
    return LEAF, [leaf]


# ----- Axes

Split = tuple[tuple[int, ...], list[tuple[int, ...]], list[tuple[int, ...]]]


def _find_leading_shape(shapes: Sequence[tuple[int, ...]]) -> list[int]:
    leading_shape = []
    for lengths in zip(*shapes, strict=False):
        if any(length != lengths[0] for length in lengths):
            break
        leading_shape.append(lengths[0])
    return leading_shape


def _splits(xs: Sequence[tuple[int, ...]], init: Sequence[tuple[int, ...]], axis: int) -> list[Split]:
    """Return the ways to divide the axes: each a leading shape, the trailing axes of each x, and of each leaf of init.

    The way with the fewest trailing axes of init comes first, and with them the ways in which the arrays of x have at
    most as many.
    """
    leading_shape = _find_leading_shape(xs)
    if not leading_shape:
        return []
    resolved_axis = resolve_axis(axis, tuple(leading_shape))
    splits: list[Split] = []
    for own in range(max(map(len, init)) + 1):
        # With a carry of several numbers, x has as many axes of its own if it can; then fewer; then more, as matrices
        # that a vector is multiplied by have.
        most = len(leading_shape)
        equal = most if own == 0 else max(1, most - own)
        for lead in (*range(equal, most + 1), *range(equal - 1, 0, -1)):
            states = [init_shape[max(0, len(init_shape) - own) :] for init_shape in init]
            splits += _check_split(tuple(leading_shape[:lead]), xs, init, states, resolved_axis)

    def differ(split: Split) -> bool:
        leads = {len(shape) - len(state) for shape, state in zip(init, split[2], strict=True)}
        return any(split[2]) and len(leads) > 1

    # A vector and a matrix are taken as one carry first, then as one for each row of both, and as vectors for each row
    # of the matrix only if that fails.
    one = [split for split in splits if not differ(split)]
    for lead in range(2, len(leading_shape) + 1):
        states = [init_shape[lead - 1 :] for init_shape in init]
        if min(map(len, init)) >= lead - 1 and len(set(map(len, states))) > 1:
            one += _check_split(tuple(leading_shape[:lead]), xs, init, states, resolved_axis)
    return one + list(filter(differ, splits))


def _whole_split(splits: Sequence[Split], split: Split, init: Sequence[tuple[int, ...]]) -> Split | None:
    """Return the split with the fewest rows, if a split has more rows that init may not have; None otherwise.

    That is so if x has more axes of its own than init, or if init has no rows at all. If the step can be traced with
    the fewest rows, it is what `jax.lax.scan` computes.
    """
    shape, trailing, states = split
    wider = [other for other in splits if len(other[0]) < len(shape) and any(other[2])]
    has_rows = any(len(whole) > len(state) for whole, state in zip(init, states, strict=True))
    if not wider or (has_rows and max(map(len, trailing)) <= max(map(len, states))):
        return None
    return min(wider, key=lambda other: (len(other[0]), max(map(len, other[2]))))


def _check_split(
    shape: tuple[int, ...],
    xs: Sequence[tuple[int, ...]],
    init: Sequence[tuple[int, ...]],
    states: list[tuple[int, ...]],
    axis: int,
) -> list[Split]:
    """Return the split with this leading shape and these states in a list; an empty one if init does not fit it."""
    if axis >= len(shape):
        return []
    others = shape[:axis] + shape[axis + 1 :]
    for init_shape, state in zip(init, states, strict=True):
        lead = init_shape[: len(init_shape) - len(state)]
        try:
            if broadcast_shapes(lead, others) != others:
                return []
        except ValueError:
            return []
    if not all(0 < prod(state) <= MAX_NUMBERS for state in states):
        return []
    return [(shape, [init_shape[len(shape) :] for init_shape in xs], states)]


# ----- The step


def _with_split(
    f: Callable[..., object],
    structure: Structure,
    leaves: Sequence[SomeArray],
    carry: Structure,
    given: Sequence[Initial],
    split: Split,
    axis: int,
    device: Device | None,
) -> LoopArguments:
    shape, trailing, states = split
    source = element_of([leaf.dtype for leaf in leaves], structure, trailing)
    weak = [_is_weak(value) for value in given]
    key = _step_key(f, carry, given, source, states)
    traced = None if key is None else _steps.find(key)
    if traced is None:
        traced = _trace(f, carry, given, states, source, weak)
        if key is not None:
            traced = _steps.keep(key, traced)
    step = traced
    on_device = any(isinstance(value, Array) for value in (*leaves, *given))
    arrays: list[SomeArray | ParameterArray] = []
    for value, field in zip(given, step.carry.fields, strict=True):
        if isinstance(value, Array):
            arrays.append(value)
        elif on_device and is_number_parameter(value):
            first, dtype = np.asarray(value.present).dtype, field.scalar.dtype
            number = check_init(value, dtype) if first.kind in "iu" and dtype.kind in "iu" else value
            arrays.append(fill_array(number, (), first, dtype))
        elif on_device and isinstance(value, ParameterArray):
            arrays.append(value.astype(field.scalar.dtype))
        else:
            known, dtype = np.asarray(reveal(value)), field.scalar.dtype
            if known.dtype != dtype and known.dtype.kind in "iuO" and dtype.kind in "iu":
                check_init(known.item(), dtype)
            arrays.append(known.astype(dtype))
    moved = [device.asarray(leaf) if on_device and device is not None else leaf for leaf in leaves]
    resolved_axis = resolve_axis(axis, tuple(_find_leading_shape([leaf.shape for leaf in leaves])))
    return LoopArguments(step, tuple(arrays), tuple(moved), shape, resolved_axis, device, on_device, key)


def _step_key(
    f: object, carry: Structure, given: Sequence[Initial], source: Element, states: list[tuple[int, ...]]
) -> Hashable:
    key = f if isinstance(f, FixedStep) else None if isinstance(f, Switch) else function_key(f)
    if key is None:
        return None
    types = tuple(
        (None, value.dtype) if isinstance(value, _ARRAYS) else (_number_type_of(value), None) for value in given
    )
    whole = (key, carry, types, source, tuple(states))
    try:
        hash(whole)
    except TypeError:
        return None
    return whole


def _trace(
    f: Callable[..., object],
    carry: Structure,
    given: Sequence[Initial],
    states: Sequence[tuple[int, ...]],
    source: Element,
    weak: Sequence[bool],
) -> Step:
    """Return the step with the first dtypes for the Python numbers of init that fit."""
    choices = [[value.dtype] if isinstance(value, _ARRAYS) else _dtypes(value, source) for value in given]
    # A counter would wrap in integers that cannot hold all values of int32.
    narrow = [
        is_weak and dtypes[0].kind in "iu" and not np.can_cast(np.int32, dtypes[0])
        for dtypes, is_weak in zip(choices, weak, strict=True)
    ]
    if any(narrow):
        first = [np.int32 if is_narrow else dtypes[0] for is_narrow, dtypes in zip(narrow, choices, strict=True)]
        weak_states = keeps_weak(
            f, carry, [scalar_of(np.dtype(number_type)) for number_type in first], states, source, weak
        )
        for index, stays in enumerate(weak_states):
            if narrow[index] and stays:
                choices[index] = list(dict.fromkeys([np.dtype(np.int32), *choices[index]]))
    refusals: list[Exception] = []
    for dtypes in itertools.islice(itertools.product(*choices), _MAX_TRIES):
        try:
            return trace_step(f, carry, [scalar_of(np.dtype(dtype)) for dtype in dtypes], states, source)
        except (OperatorError, TypeError) as error:
            refusals.append(error)
    raise refusals[-1] if len(refusals) < _MAX_TRIES else refusals[0]


def _dtypes(value: object, source: Element) -> list[AnyDType]:
    """Return the dtypes that a Python number of init may take, the likeliest first."""
    number_type = _number_type_of(value)
    own = [field.scalar for field in source.fields]

    def of(*kinds: str) -> list[AnyDType]:
        return [scalar.dtype for scalar in own if scalar.kind in kinds]

    integers, floats = of("signed", "unsigned"), of("float")
    dtypes: list[AnyDType]
    if number_type is complex:
        dtypes = [np.dtype(np.complex64)]
    elif number_type is float:
        dtypes = [*floats, np.dtype(np.float32), *of("complex")]
        # NumPy combines floats with integers of 32 bits or more as float64.
        dtypes += [] if floats else [np.dtype(np.float64)]
    else:
        # NumPy's own integers, as in tables, are int64.
        dtypes = [*integers, np.dtype(np.int32), np.dtype(np.int64), *floats, np.dtype(np.float32), *of("complex")]
    return list(dict.fromkeys(dtypes))
