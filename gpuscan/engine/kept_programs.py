"""Launch the program of an earlier call, or compute a call in the long way and keep its program.

Each call has a key. Calls of equal keys submit the same stages over other arrays. `gpuscan.api.launches` makes the keys
of public functions. Floats that the user's functions close over are not a part of the key: the program computes its
constants from them. If a decision in gpuscan's code depends on such a float, each outcome has a program of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from gpuscan.array_types import AnyDType
from gpuscan.device.buffer_pool import SizedAllocation
from gpuscan.device.device_array import DeviceArray
from gpuscan.device.program import Program, ProgramTemplate, Recording
from gpuscan.operators.computation import FAILED, Computation
from gpuscan.operators.parameters import (
    ONCE_CHANGED,
    ClosedArray,
    Expression,
    Parameters,
    bits_of,
    derive,
    parameters_of,
)
from gpuscan.sizes import SizeTrace, apply, concrete

if TYPE_CHECKING:
    import wgpu

    from gpuscan.device.buffer_pool import Allocation
    from gpuscan.device.context import DeviceContext
    from gpuscan.device.deferred_runs import HeldRun

# What a call returns.
R = TypeVar("R")
# `map` with it makes no Python calls.
_buffer_of = attrgetter("buffer")

# The most programs for any sizes that are kept for one kind of call.
_MAX_TEMPLATES = 64
# How many calls of a key in a row are recorded, although no program can do what they do. After these, only every
# `_RETRY`-th call is recorded.
_MAX_FAILURES = 3
_RETRY = 64
# The most values that choose among the programs of a key. Of more, the programs that were known are not used again.
_MAX_REVEALED = 256
# How many programs in a row are recorded for any sizes, although no call of other sizes can use them.
_MAX_UNUSED = 16


def launch_or_record(
    context: DeviceContext,
    key: Hashable,
    sizes: tuple[int, ...],
    arrays: Sequence[DeviceArray],
    compute: Callable[[Parameters | None, Sequence[DeviceArray], Iterator[object]], tuple[R, object]],
    out: object,
    floats: Sequence[object],
    functions: Hashable,
    arguments: object = None,
) -> R:
    """Return the result of a call: by the program of an earlier call of the same key, or computed and recorded.

    Args:
        key: equal for calls that submit the same over other arrays, for some sizes and some floats.
        sizes: of each array the lengths, the offset, the bytes of its memory, and the strides if there are any; then
            the sizes of other arguments.
        arrays: the arrays on the device that the call reads or writes.
        compute: computes the result in the long way over these arrays, with parameters instead of the floats if
            there are some, and with these sizes of other arguments; returns it, and what it was passed as `out`.
        out: what the call returns if it returns it as it was passed.
        floats: the floats that the functions of the call close over, and its operands: floats and short arrays.
        functions: the keys of these functions, without the floats.
        arguments: the arguments of a call that writes to none of them, so that its run is held if the result is a mask.
            The held run has them and the shape of the result. None for other calls.
    """
    if context.queue.recording is None:
        # Before the call writes anything, since these errors are of earlier calls.
        context.check_if_many()
    with context.errors, context.lock:
        if context.capabilities.distrusted:
            context.end_pauses()
        call_program = _find(context, key, sizes, floats) if context.queue.recording is None else None
        if call_program is not None:
            (program, form, _), contents = call_program
            call = None
            if arguments is not None and type(form) is _Result and form.dtype == np.bool_:
                call = arguments, form.shape
            outputs = program.launch(context, list(map(_buffer_of, arrays)), contents, call)
    if call_program is None:
        return _record(context, key, sizes, arrays, compute, out, floats, functions)
    made: R = _made(form, arrays, outputs, out)
    return made


def launch_before(context: DeviceContext, held_run: HeldRun, call: object, launch: Callable[[], R]) -> R | None:
    """Call a function so that its runs come before the held runs. Return its result; None if that is impossible.

    Args:
        held_run: a held run. The caller refers to its result, and so to what it reads.
        call: the call of the run.
        launch: the function. It writes to no array that there is, and reads no results of held runs.
    """
    queue = context.queue
    # No one else may find the held runs missing. Others take these locks in this order, too.
    with context.lock, context.pool.lock, queue.lock:
        if held_run.call is not call or queue.recording is not None:
            # Another thread submitted the held runs; or this call is a part of one that is being recorded. The program
            # of that call will be launched with other masks.
            return None
        held, held_run.used = queue.held, True
        try:
            queue.held = []
            return launch()
        finally:
            if queue.held:
                queue.settle()
            queue.held = held


class _Failures:
    """Counts the calls of a key since one was recorded that no program can do.

    Some calls always wait for the GPU, or return an object that no program can make. Others do so only sometimes. So
    calls of such a key are recorded again now and then.
    """

    # Every entry of the kept programs has the memory that it keeps alive. This one keeps none.
    owners: tuple[object, ...] = ()

    def __init__(self) -> None:
        self._count = 1

    def allow_attempt(self) -> bool:
        """Count one more call, and return True if it shall be recorded."""
        self._count += 1
        return self._count <= _MAX_FAILURES or self._count % _RETRY == 0

    def forgive(self) -> None:
        """Let the next call be recorded as well."""
        self._count -= 1


class _Variants:
    """Chooses among several programs of one key by the values on which decisions in gpuscan's code depend.

    Args:
        expressions: compute these values from the numbers of a call.
        integers: the integers and the arrays of closures of all calls so far, which are among these values; None once
            they have changed. Most calls of a key always have the same, so they are parameters of a program only after
            that.
    """

    def __init__(self, expressions: Iterable[Expression] = (), integers: tuple[object, ...] | None = None) -> None:
        self.expressions, self.integers = tuple(expressions), integers
        self.owners: tuple[object, ...] = ()
        self._compute = Computation(self.expressions).values

    def key(self, floats: Sequence[object]) -> Hashable:
        """Return the key of the program for these floats: this object, and the values."""
        return self, *self._compute(floats)


class _Family:
    """The programs of a key for arrays of any sizes.

    Attributes:
        templates: the programs. A program is right for all sizes for which gpuscan's code takes the same decisions. The
            last one was used most recently.
    """

    def __init__(self) -> None:
        self.templates: list[ProgramTemplate] = []
        # The number of templates that were added since a call of other sizes used one.
        self._unused = 0

    @property
    def owners(self) -> list[object]:
        """The memory of the constants of the programs."""
        return [owner for template in self.templates for owner in template.owners]

    @property
    def is_open(self) -> bool:
        """True if a call of new sizes shall be recorded for any sizes. Some calls need a program for each size."""
        return self._unused < _MAX_UNUSED

    def keep(self, template: ProgramTemplate) -> None:
        """Keep a program that was recorded for any sizes."""
        self._unused += 1
        self.templates.append(template)
        del self.templates[:-_MAX_TEMPLATES]

    def find(self, context: DeviceContext, sizes: Sequence[int]) -> _Kept | None:
        """Return the program for these sizes; None if there is none."""
        for number in range(len(self.templates) - 1, -1, -1):
            filled = self.templates[number].program(context, sizes)
            if filled is not None:
                self._unused = 0
                self.templates.append(self.templates.pop(number))
                return _Kept(*filled)
        return None


class _Kept(NamedTuple):
    """The program of a call.

    Attributes:
        program: the program.
        form: how the results are made of the program's outputs.
        compute: computes the contents of the program's changing constants; None if it has none.
    """

    program: Program
    form: _ResultForm
    compute: Computation | None

    @property
    def owners(self) -> Sequence[object]:
        """The memory of the constants of the program."""
        return self.program.owners


def _find(
    context: DeviceContext, key: Hashable, sizes: tuple[int, ...], floats: Sequence[object]
) -> tuple[_Kept, Sequence[bytes]] | None:
    """Return the program of a call, and the contents of its changing constants; None if there is no program."""
    programs = context.programs
    if floats and type(variants := programs.find(key)) is _Variants:
        key = variants.key(floats)
    call_program = programs.find((key, sizes))
    if call_program is None:
        family = programs.find(key)
        if family is None or (call_program := family.find(context, sizes)) is None:
            return None
        programs.keep((key, sizes), call_program)
    if call_program.compute is None:
        return call_program, ()
    contents = call_program.compute.values(floats)
    return None if FAILED in contents else (call_program, contents)


def _key_for(context: DeviceContext, key: Hashable, floats: Sequence[object]) -> Hashable:
    """Return the key under which the programs for these floats are kept."""
    variants = context.programs.find(key)
    return variants.key(floats) if type(variants) is _Variants else key


def _record(
    context: DeviceContext,
    key: Hashable,
    sizes: tuple[int, ...],
    arrays: Sequence[DeviceArray],
    compute: Callable[[Parameters | None, Sequence[DeviceArray], Iterator[object]], tuple[R, object]],
    out: object,
    floats: Sequence[object],
    functions: Hashable,
) -> R:
    """Compute a call in the long way and return its result. Keep its program, if a program can do what it does."""
    failures = context.programs.find((_Failures, key))
    if failures is not None and not failures.allow_attempt():
        # The public functions that this one calls can still launch programs.
        return compute(None, arrays, iter(()))[0]
    with context.lock:
        if context.queue.recording is not None:
            # The call is a part of another one, which is being recorded.
            return compute(None, arrays, iter(()))[0]
        parameters = _parameters_for(context, key, floats, functions) if floats else None
        # Most calls of a key have the same sizes, so the first one is recorded for its sizes alone. Calls of further
        # sizes are recorded for any sizes.
        family = context.programs.find(_key_for(context, key, floats))
        trace = SizeTrace(sizes) if sizes and isinstance(family, _Family) and family.is_open else None
        given, further_sizes = (arrays, iter(())) if trace is None else _with_sizes(context, arrays, trace)
        recording = Recording([array.buffer for array in arrays], parameters, trace)
        kernels = context.run_log.known_kernels
        context.queue.recording, context.has_sizes = recording, trace is not None
        try:
            result, passed = compute(parameters, given, further_sizes)
        finally:
            context.queue.recording, context.has_sizes = None, False
        template = None
        if recording.active:
            form = _Form(recording, given, passed)
            with suppress(_NoFormError):
                made = form.of(result)
                template = recording.program(form.outputs, made)
        if template is not None:
            # The call is done. Its program may have no room for its constants.
            with suppress(MemoryError):
                _keep(context, key, sizes, recording, template)
            context.programs.pop((_Failures, key), None)
        elif context.run_log.known_kernels > kernels:
            # The first launch of a kernel waits to see how large its subgroups are. Calls of other lengths may have
            # other kernels.
            if failures is not None:
                failures.forgive()
        elif failures is None:
            context.programs.keep((_Failures, key), _Failures())
        if trace is None:
            return result
        whole: R = _without_sizes(result, dict(zip(map(id, (*given, passed)), (*arrays, out), strict=True)))
        return whole


def _parameters_for(context: DeviceContext, key: Hashable, floats: Sequence[object], functions: Hashable) -> Parameters:
    """Return the parameters of a call that is to be recorded: its floats, and what else has changed."""
    programs = context.programs
    parameters, variants = parameters_of(functions, floats), programs.get(key)
    integers: list[Any] = [
        derive(bits_of, leaf) if type(value) is ClosedArray else leaf
        for leaf, value in zip(parameters.leaves, floats, strict=True)
        if type(value) in ONCE_CHANGED
    ]
    if not integers:
        return parameters
    values = tuple([leaf.value for leaf in integers])
    if not isinstance(variants, _Variants):
        variants = programs.keep(key, _Variants(integers, values))
    elif variants.integers not in (None, values):
        variants = programs.keep(key, _Variants())
    return parameters if variants.integers is None else parameters_of(functions, floats, integers=False)


def _keep(
    context: DeviceContext, key: Hashable, sizes: tuple[int, ...], recording: Recording, template: ProgramTemplate
) -> None:
    """Keep a program for later calls. They may have other floats and other sizes than the recorded call."""
    parameters, programs = recording.parameters, context.programs
    if parameters is not None:
        variants = programs.get(key)
        known = variants if isinstance(variants, _Variants) else _Variants()
        revealed = {expression.structure: expression for expression in known.expressions} | parameters.revealed
        if len(revealed) > len(known.expressions):
            if len(revealed) > _MAX_REVEALED:
                revealed = parameters.revealed
            variants = programs.keep(key, _Variants(revealed.values(), known.integers))
        if isinstance(variants, _Variants):
            key = variants.key(parameters.floats)
    family = programs.find(key) or programs.keep(key, _Family())
    if recording.sizes is not None:
        family.keep(template)
    filled = template.program(context, sizes)
    if filled is not None:
        programs.keep((key, sizes), _Kept(*filled))


# ----- Sizes


def _with_sizes(
    context: DeviceContext, arrays: Sequence[Any], trace: SizeTrace
) -> tuple[list[DeviceArray], Iterator[object]]:
    """Return arrays over the same memory with traced sizes in place of the numbers, and the other traced sizes."""
    leaves = iter(trace.sizes())
    sized_arrays = []
    for array in arrays:
        shape = tuple(islice(leaves, len(array._shape)))
        offset, nbytes = next(leaves), next(leaves)
        strides = None if array._strides is None else tuple(islice(leaves, len(array._strides)))
        usage = array._owner.usage_and_size[0]
        owner = SizedAllocation(array._owner, nbytes, (usage, apply(context.pool.size_of, nbytes)))
        sized_arrays.append(array._made(owner, shape, array._dtype, offset, strides))
    return sized_arrays, leaves


def _without_sizes(result: Any, arguments: Mapping[int, object]) -> Any:
    """Return a result with the numbers of this call in place of the traced sizes.

    Args:
        result: what the function has returned.
        arguments: the arrays and the `out` of the caller, by the ids of the objects that the function got for them.
    """
    if id(result) in arguments:
        return arguments[id(result)]
    if isinstance(result, DeviceArray):
        result._end_sizes()
        return result
    result_type = type(result)
    if isinstance(result, (tuple, list)):
        parts = [_without_sizes(part, arguments) for part in result]
        return result_type._make(parts) if hasattr(result_type, "_make") else result_type(parts)
    if result_type is dict:
        return {name: _without_sizes(part, arguments) for name, part in result.items()}
    return concrete(result)


# ----- Results


class _Result(NamedTuple):
    """An array of a result.

    Attributes:
        slot: the index of its memory among the outputs of the program. For a view of an argument, it is ``-1 - i``,
            where i is the index of the argument.
        shape, dtype, offset, strides: as in `DeviceArray`; the strides are None in C order.
    """

    slot: int
    shape: tuple[int, ...]
    dtype: AnyDType
    offset: int
    strides: tuple[int, ...] | None


class _UnknownLengthResult(NamedTuple):
    """An array of a length that only the device knows.

    Attributes:
        make: makes the array.
        dtype, trailing: its dtype, and the axes of one entry.
        memory, length: its memory, and its length on the device.
    """

    make: Callable[..., DeviceArray]
    dtype: AnyDType
    trailing: tuple[int, ...]
    memory: _Result
    length: _Result


class _Same(NamedTuple):
    """An argument that the function returns, by its index among the arrays."""

    slot: int


class _Out(NamedTuple):
    """What the caller passed as `out`, which the function returns."""


class _Text(NamedTuple):
    """A text, which all calls of a key return."""

    value: str


class _Nested(NamedTuple):
    """A tuple, list or dict of results."""

    make: Callable[..., object]
    keys: tuple[object, ...] | None
    parts: tuple[_ResultForm, ...]


# How a result of a later call is made of the outputs of the program. None stands for the result None.
_ResultForm: TypeAlias = _Result | _UnknownLengthResult | _Same | _Out | _Text | _Nested | None


class _NoFormError(Exception):
    """A call returns an object that no program can make."""


class _Form:
    """Finds the form of a result.

    Attributes:
        outputs: the buffers that the call has made and that its result needs.
    """

    def __init__(self, recording: Recording, arguments: Sequence[DeviceArray], out: object) -> None:
        self._recording, self._arguments, self._out = recording, arguments, out
        self.outputs: list[wgpu.GPUBuffer] = []

    def of(self, value: object) -> _ResultForm:
        """Return the form of a value, from which `_made` makes the results of later calls.

        Raises:
            _NoFormError: the value has an object other than arrays in the call's memory, its arguments and texts.
        """
        if value is None:
            return None
        if value is self._out:
            return _Out()
        if type(value) is str:
            return _Text(value)
        for index, argument in enumerate(self._arguments):
            if value is argument:
                return _Same(index)
        value_type = type(value)
        if isinstance(value, DeviceArray):
            if not value._knows_length:
                array: Any = value
                memory, count = self._of_array(value, (), value.dtype), array.count
                length = self._of_array(count, count.shape, count.dtype)
                return _UnknownLengthResult(type(array), array.dtype, array._trailing, memory, length)
            return self._of_array(value, value.shape, value.dtype)
        if isinstance(value, (tuple, list)):
            make = value_type._make if hasattr(value_type, "_make") else value_type
            return _Nested(make, None, tuple(map(self.of, value)))
        if type(value) is dict:
            return _Nested(dict, tuple(value), tuple(map(self.of, value.values())))
        raise _NoFormError

    def _of_array(self, array: DeviceArray, shape: tuple[int, ...], dtype: AnyDType) -> _Result:
        """Return the form of an array, and note its buffer among the outputs."""
        slot = self._recording.slot_of(array.buffer)
        if slot is None:
            raise _NoFormError
        if slot.role == "argument":
            number = -1 - slot.index
        else:
            number = next((i for i, output in enumerate(self.outputs) if output is array.buffer), len(self.outputs))
            if number == len(self.outputs):
                self.outputs.append(array.buffer)
        return _Result(number, shape, np.dtype(dtype), array.offset, array._strides)


def _made(form: _ResultForm, arrays: Sequence[DeviceArray], outputs: Sequence[Allocation], out: object) -> Any:
    """Return a result of this form.

    Args:
        arrays: the arrays of the call.
        outputs: the memory that the program has written.
        out: what the caller passed as `out`.
    """
    if isinstance(form, _Result):
        slot, shape, dtype, offset, strides = form
        owner = outputs[slot] if slot >= 0 else arrays[-1 - slot]._owner
        assert owner is not None
        return arrays[0]._made(owner, shape, dtype, offset, strides)
    if isinstance(form, _Nested):
        parts = []
        for part in form.parts:
            if type(part) is _Result and part.slot >= 0:
                _, shape, dtype, offset, strides = part
                parts.append(arrays[0]._made(outputs[part.slot], shape, dtype, offset, strides))
            else:
                parts.append(_made(part, arrays, outputs, out))
        return form.make(parts if form.keys is None else zip(form.keys, parts, strict=True))
    if isinstance(form, _Out):
        return out
    if isinstance(form, _Text):
        return form.value
    if isinstance(form, _Same):
        return arrays[form.slot]
    if isinstance(form, _UnknownLengthResult):
        memory, count = (_made(part, arrays, outputs, out) for part in (form.memory, form.length))
        return form.make(memory, form.dtype, form.trailing, count)
    return None
