"""Launch the program of an earlier call, or compute a call in the long way and keep its program.

A call is a key: equal keys submit the same stages over other arrays. `gpuscan.api.launches` makes the keys of public
functions. Floats that the user's functions close over are no part of it. The program computes its constants from them.
If the call was computed in a way that depends on some of them, then there is a program for each of their values.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.device.device_array import DeviceArray
from gpuscan.device.guards import guarded
from gpuscan.device.program import Program, Recording
from gpuscan.operators.parameters import FAILED, Computation, Expression, Parameters, parameters_of

if TYPE_CHECKING:
    from gpuscan.device.buffer_pool import Allocation
    from gpuscan.device.context import DeviceContext


def launch(
    context: DeviceContext,
    key: Hashable,
    arrays: Sequence[Any],
    compute: Callable[[Parameters | None], Any],
    out: Any = None,
    floats: Sequence[float] = (),
    functions: Hashable = None,
) -> Any:
    """Return the result of a call: by the program of an earlier call of the same key, or computed and recorded.

    Args:
        context: the device of the arrays.
        key: equal for calls that submit the same over other arrays, for some floats.
        arrays: the arrays on the device that the call reads or writes.
        compute: computes the result in the long way, with parameters in the place of the floats if there are some.
        out: what the call returns if it returns it as it was passed.
        floats: the floats that the functions of the call close over.
        functions: the keys of these functions, without the floats.
    """
    with guarded(context), context.lock:
        if context.capabilities.distrusted:
            context.take_strategies_back()
        known = _find(context, key, floats) if context.queue.recording is None else None
        if known is not None:
            (program, form, _), contents = known
            outputs = program.launch(context, [array.buffer for array in arrays], contents)
    if known is None:
        return _record(context, key, arrays, compute, out, floats, functions)
    context.check_if_many()
    return _made(form, arrays, outputs, out)


class _Variants:
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


class _Kept(NamedTuple):
    """The program of a call.

    Attributes:
        program: the program.
        form: what results are made of.
        compute: computes the contents of the program's changing uniforms; None if it has none.
    """

    program: Program
    form: Any
    compute: Computation | None


def _find(context: DeviceContext, key: Hashable, floats: Sequence[float]) -> tuple[_Kept, Sequence[bytes]] | None:
    """Return the program of a call, and the contents of its changing uniforms; None if there is no program."""
    known = context.programs.find(key)
    if type(known) is _Variants:
        known = context.programs.find(known.key(floats))
    if known is None or known.compute is None:
        return None if known is None else (known, ())
    contents = known.compute(floats)
    return None if FAILED in contents else (known, contents)


def _record(
    context: DeviceContext,
    key: Hashable,
    arrays: Sequence[Any],
    compute: Callable[[Parameters | None], Any],
    out: Any,
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
            form = _Form(recording, arrays, out)
            with suppress(_NoFormError):
                made = form.of(result)
                program = recording.program(form.outputs)
                if program is not None:
                    _keep(context, key, recording, program, made)
    return result


def _keep(context: DeviceContext, key: Hashable, recording: Recording, program: Program, form: Any) -> None:
    """Keep a program, also for other floats than those that it was recorded with."""
    parameters, programs = recording.parameters, context.programs
    if parameters is not None:
        variants = programs.get(key)
        known = variants.expressions if isinstance(variants, _Variants) else ()
        revealed = {each.structure: each for each in (*known, *parameters.revealed.values())}
        if len(revealed) > len(known):
            variants = programs.keep(key, _Variants(tuple(revealed.values())))
        if isinstance(variants, _Variants):
            key = variants.key(parameters.floats)
    compute = Computation(recording.contents) if recording.contents else None
    programs.keep(key, _Kept(program, form, compute))


# ----- Results


class _Result(NamedTuple):
    """An array of a result.

    Attributes:
        place: the index of its memory among the outputs; or -1 - the index of an argument that it is a view of.
        shape, dtype, offset, strides: as in `DeviceArray`; the strides are None in C order.
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


class _Out(NamedTuple):
    """What the caller passed as `out`, which the function returns."""


class _Nested(NamedTuple):
    """A tuple, list or dict of results."""

    kind: Any
    keys: tuple[Any, ...] | None
    parts: tuple[Any, ...]


class _NoFormError(Exception):
    """A call returns what no program computes."""


class _Form:
    """The form of a result, while it is found."""

    def __init__(self, recording: Recording, arguments: Sequence[Any], out: Any) -> None:
        self._recording, self._arguments, self._out = recording, arguments, out
        self.outputs: list[Any] = []

    def of(self, value: Any) -> Any:
        """Return what `_made` makes the results of later calls of.

        Raises:
            _NoFormError: the value is no array that the call made, and no bundle of those.
        """
        if value is None:
            return None
        if value is self._out:
            return _Out()
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


def _made(form: Any, arrays: Sequence[Any], outputs: Sequence[Allocation], out: Any) -> Any:
    """Return a result of this form, over the arrays of a call and the memory that it took."""
    kind = type(form)
    if kind is _Result:
        place, shape, dtype, offset, strides = form
        owner = outputs[place] if place >= 0 else arrays[-1 - place].owner
        assert owner is not None
        return arrays[0].made(owner, shape, dtype, offset, strides)
    if kind is _Nested:
        parts = [_made(part, arrays, outputs, out) for part in form.parts]
        return form.kind(parts if form.keys is None else zip(form.keys, parts, strict=True))
    if kind is _Out:
        return out
    if kind is _Same:
        return arrays[form.place]
    if kind is _PickedResult:
        memory, count = (_made(each, arrays, outputs, out) for each in (form.memory, form.length))
        return form.like.over(memory, count)
    return None
