"""Launch the program of an earlier call, or compute a call in the long way and keep its program.

A call is a key: equal keys submit the same stages over other arrays. `gpuscan.api.launches` makes the keys of public
functions. Floats that the user's functions close over are no part of it. The program computes its constants from them.
If the call was computed in a way that depends on some of them, then there is a program for each of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.device.device_array import DeviceArray
from gpuscan.device.guards import guarded
from gpuscan.device.program import Recording
from gpuscan.operators.parameters import FAILED, Computation, Expression, Parameters, parameters_of

if TYPE_CHECKING:
    from gpuscan.device.buffer_pool import Allocation
    from gpuscan.device.context import DeviceContext


def launch(
    context: DeviceContext,
    key: Hashable,
    arrays: Sequence[Any],
    compute: Callable[[Parameters | None], Any],
    floats: Sequence[float] = (),
    functions: Hashable = None,
) -> Any:
    """Return the result of a call: by the program of an earlier call of the same key, or computed and recorded.

    Args:
        context: the device of the arrays.
        key: equal for calls that submit the same over other arrays, for some floats.
        arrays: the arrays on the device that the call reads or writes.
        compute: computes the result in the long way, with parameters in the place of the floats if there are some.
        floats: the floats that the functions of the call close over.
        functions: the keys of these functions, without the floats.
    """
    try:
        known = context.programs.get(key)
    except TypeError:  # a part of the key cannot be hashed
        return compute(None)
    contents: Sequence[bytes] = ()
    if floats:
        if type(known) is Variants:
            known = context.programs.get(known.key(floats))
        if known is not None and known[2] is not None:
            contents = known[2](floats)
            if FAILED in contents:
                known = None
    if known is None or context.queue.recording is not None:
        return _recorded(context, key, arrays, compute, floats, functions)
    program, form, _ = known
    with guarded(context), context.lock:
        outputs = program.launch(context, [array.buffer for array in arrays], contents)
    context.check_if_many()
    return _made(form, arrays, outputs)


def _recorded(
    context: DeviceContext,
    key: Hashable,
    arrays: Sequence[Any],
    compute: Callable[[Parameters | None], Any],
    floats: Sequence[float],
    functions: Hashable,
) -> Any:
    """Return what a call computes, and keep its program if it has one."""
    with context.lock:
        if context.queue.recording is not None:
            # The call is a part of another one, which is being recorded.
            return compute(None)
        parameters = parameters_of(functions, floats) if floats else None
        recording = context.queue.recording = Recording([array.buffer for array in arrays], parameters)
        try:
            result = compute(parameters)
        finally:
            context.queue.recording = None
        if recording.active:
            keep_program(context, key, recording, arrays, result)
    return result


class Variants:
    """Which of the programs of a key a call needs: there is one for each combination of some values.

    Args:
        expressions: give the values from the floats of the call.
    """

    def __init__(self, expressions: Sequence[Expression]) -> None:
        self.expressions = tuple(expressions)
        self._compute = Computation(expressions)

    def key(self, floats: Sequence[float]) -> Hashable:
        """Return the key of the program for these floats."""
        return self, *self._compute(floats)


def keep_program(
    context: DeviceContext, key: Hashable, recording: Recording, arrays: Sequence[Any], result: Any
) -> None:
    """Keep the program of a recorded call, unless its result is nothing that a program computes."""
    form = _Form(recording, arrays)
    try:
        made = form.of(result)
    except _NoFormError:
        return
    program = recording.program(form.outputs)
    if program is None:
        return
    compute = Computation(recording.contents) if recording.contents else None
    parameters, programs = recording.parameters, context.programs
    if parameters is not None:
        variants = programs.get(key)
        known = variants.expressions if isinstance(variants, Variants) else ()
        revealed = {each.structure: each for each in (*known, *parameters.revealed.values())}
        if len(revealed) > len(known):
            variants = programs.keep(key, Variants(tuple(revealed.values())))
        if isinstance(variants, Variants):
            key = variants.key(parameters.floats)
    programs.keep(key, (program, made, compute))


# ----- Results


class _Result(NamedTuple):
    """An array of a result.

    Attributes:
        place: the index of its memory among the outputs; or -1 - the index of an argument that it is a view of.
        shape, dtype, offset, strides: those of the array; the strides are None in C order.
    """

    place: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    strides: tuple[int, ...] | None


class _PickedResult(NamedTuple):
    """An array of a length that only the device knows.

    Attributes:
        like: the array of the first call.
        memory, length: its memory, and its length on the device.
    """

    like: Any
    memory: _Result
    length: _Result


class _Same(NamedTuple):
    """An argument that the function returns, by its index among the arrays."""

    place: int


class _Nested(NamedTuple):
    """A tuple, list or dict of results."""

    kind: Any
    keys: tuple[Any, ...] | None
    parts: tuple[Any, ...]


class _NoFormError(Exception):
    """A call returns what no program computes."""


class _Form:
    """The form of a result, while it is found."""

    def __init__(self, recording: Recording, arguments: Sequence[Any]) -> None:
        self._recording, self._arguments = recording, arguments
        self.outputs: list[Any] = []

    def of(self, value: Any) -> Any:
        """Return what `_made` makes the results of later calls of.

        Raises:
            _NoFormError: the value is no array that the call made, and no bundle of those.
        """
        if value is None:
            return None
        for index, argument in enumerate(self._arguments):
            if value is argument:
                return _Same(index)
        kind = type(value)
        if isinstance(value, DeviceArray):
            if not value.knows_length:
                picked: Any = value
                memory, count = self._of_array(value, (), value.dtype), picked.count
                return _PickedResult(picked.without_memory(), memory, self._of_array(count, count.shape, count.dtype))
            return self._of_array(value, value.shape, value.dtype)
        if isinstance(value, (tuple, list)):
            make = kind._make if hasattr(kind, "_make") else kind
            return _Nested(make, None, tuple(map(self.of, value)))
        if kind is dict:
            return _Nested(dict, tuple(value), tuple(map(self.of, value.values())))
        raise _NoFormError

    def _of_array(self, array: Any, shape: tuple[int, ...], dtype: Any) -> _Result:
        slot = self._recording.slot_of(array.buffer)
        if slot is None:
            raise _NoFormError
        if slot.kind == "argument":
            place = -1 - slot.index
        else:
            place = next((i for i, each in enumerate(self.outputs) if each is array.buffer), len(self.outputs))
            if place == len(self.outputs):
                self.outputs.append(array.buffer)
        return _Result(place, shape, np.dtype(dtype), array.offset, array._strides)


def _made(form: Any, arrays: Sequence[Any], outputs: Sequence[Allocation]) -> Any:
    """Return a result of this form, over the arrays of a call and the memory that it took."""
    kind = type(form)
    if kind is _Result:
        place, shape, dtype, offset, strides = form
        owner = outputs[place] if place >= 0 else arrays[-1 - place].owner
        assert owner is not None
        return arrays[0].made(owner, shape, dtype, offset, strides)
    if kind is _Nested:
        parts = [_made(part, arrays, outputs) for part in form.parts]
        return form.kind(parts if form.keys is None else zip(form.keys, parts, strict=True))
    if kind is _Same:
        return arrays[form.place]
    if kind is _PickedResult:
        memory, count = (_made(each, arrays, outputs) for each in (form.memory, form.length))
        return form.like.over(memory, count)
    return None
