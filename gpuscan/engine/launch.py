"""Launch the program of an earlier call, or compute a call in the long way and keep its program.

A call is a key: equal keys submit the same stages over other arrays. `gpuscan.api.launches` makes the keys of public
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuscan.device.device_array import DeviceArray
from gpuscan.device.guards import guarded
from gpuscan.device.program import Recording

if TYPE_CHECKING:
    from gpuscan.device.buffer_pool import Allocation
    from gpuscan.device.context import DeviceContext


def launch(
    context: DeviceContext, key: Hashable, arrays: Sequence[Any], compute: Callable[[], Any], out: Any = None
) -> Any:
    """Return the result of a call: by the program of an earlier call of the same key, or computed and recorded.

    Args:
        context: the device of the arrays.
        key: equal for calls that submit the same over other arrays.
        arrays: the arrays on the device that the call reads or writes.
        compute: computes the result in the long way.
        out: what the call returns if it returns it as it was passed.
    """
    with guarded(context), context.lock:
        if context.capabilities.distrusted:
            context.take_strategies_back()
        known = context.programs.find(key) if context.queue.recording is None else None
        if known is not None:
            program, form = known
            outputs = program.launch(context, [array.buffer for array in arrays])
    if known is None:
        return _record(context, key, arrays, compute, out)
    context.check_if_many()
    return _made(form, arrays, outputs, out)


def _record(context: DeviceContext, key: Hashable, arrays: Sequence[Any], compute: Callable[[], Any], out: Any) -> Any:
    """Return what a call computes, and keep its program if it has one."""
    with context.lock:
        if context.queue.recording is not None:
            # The call is a part of another one, which is being recorded.
            return compute()
        recording = context.queue.recording = Recording([array.buffer for array in arrays])
        try:
            result = compute()
        finally:
            context.queue.recording = None
        if recording.active:
            form = _Form(recording, arrays, out)
            with suppress(_NoFormError):
                made = form.of(result)
                program = recording.program(form.outputs)
                if program is not None:
                    context.programs.keep(key, (program, made))
    return result


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
