"""Run a loop step by step on a device: one invocation for each row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from gpuscan.codegen.elementwise_text import LoopText, elementwise_code
from gpuscan.device.device_array import DeviceArray, empty, upload_array
from gpuscan.device.steps import Binding
from gpuscan.device.transfer import round_up
from gpuscan.elements import Field, Scalar, word_dtype
from gpuscan.engine.element_copy import duplicate, write_elements
from gpuscan.engine.elementwise import broadcast, check_numbers, in_dtype
from gpuscan.engine.plan_steps import are_owned, submit_stage
from gpuscan.engine.preparation import check_fixed_floats
from gpuscan.errors import GpuscanError, smaller
from gpuscan.operators.code import loop_iterations
from gpuscan.operators.parameter_array import ParameterArray
from gpuscan.problem.packed_fields import STORAGE_LIMIT
from gpuscan.sizes import spans

if TYPE_CHECKING:
    from gpuscan.device.context import DeviceContext
    from gpuscan.operators.trace import Map

# Steps of one dispatch. A GPU takes up to a microsecond for each, and drivers end a dispatch after a second or more.
_STEPS = 1 << 16
# The most steps of a loop that may wait for other calls, so that a submission takes less than a second.
_MAX_DEFERRED_STEPS = 1 << 12


def run_loop(
    context: DeviceContext,
    step: Map,
    init: Sequence[object],
    states: Sequence[Scalar],
    xs: Sequence[DeviceArray],
    fields: Sequence[Field],
    outputs: Sequence[Field],
    shape: tuple[int, ...],
    axis: int,
    reverse: bool,
    fixed: bool,
) -> tuple[list[DeviceArray], list[DeviceArray]]:
    """Return the last numbers of the carry, each of the shape of the other axes, and the arrays of y.

    Args:
        step: a function of a tuple: the numbers of the carry, then of x. It returns the numbers of the next carry, then
            of y in whole words.
        init: the first numbers of the carry, which broadcast to the other axes.
        states: their types.
        xs: the arrays of x.
        outputs: the fields of y.
        shape: the shape that the arrays of x share.
        axis: the axis of the loop.
        reverse: True to run from the end.
        fixed: True for the same bits on every device.

    Raises:
        UnsupportedDtypeError: `fixed` is True, and the device rounds floats in another way.
        GpuscanError: there are more arrays than the device binds, or one is larger than it binds.
    """
    check_numbers(context, step)
    if fixed:
        check_fixed_floats(context)
    others = shape[:axis] + shape[axis + 1 :]
    with context.errors, context.lock:
        code, used = elementwise_code(step, context.capabilities.native_int64, fixed)
        inputs = [(i, c, field.count) for i, field in enumerate(fields) for c in range(field.count)]
        results = [(i, c, field.count) for i, field in enumerate(outputs) for c in range(field.count)]
        capabilities = context.capabilities
        text = LoopText(
            code,
            step.source,
            used,
            capabilities.native_int64,
            capabilities.packs_halves and not fixed,  # WGSL's own unpacking may change the bits of NaN
            tuple(states),
            tuple(inputs),
            tuple(results),
            capabilities.adapter_type != "CPU",
        )
        carries = [_in_words(context, value, scalar, others) for value, scalar in zip(init, states, strict=True)]
        given = [xs[index] for index in text.read]
        sources = [array if array._is_writable_in_vectors else duplicate(array) for array in given]
        wide = code.result.fields[len(states) :]
        starts = np.cumsum([0, *(field.count for field in outputs)])
        targets = [
            empty(context, (*shape, *field.shape), word_dtype(wide[start].scalar))
            for field, start in zip(outputs, starts, strict=False)
        ]
        if prod(shape):
            _submit(context, text, carries, sources, targets, shape, axis, reverse)
        final = [in_dtype(array, scalar.dtype) for array, scalar in zip(carries, states, strict=True)]
        ys = [in_dtype(array, field.scalar.dtype) for array, field in zip(targets, outputs, strict=True)]
    return final, ys


def _submit(
    context: DeviceContext,
    text: LoopText,
    carries: Sequence[DeviceArray],
    sources: Sequence[DeviceArray],
    targets: Sequence[DeviceArray],
    shape: tuple[int, ...],
    axis: int,
    reverse: bool,
) -> None:
    arrays = [*carries, *sources, *targets]
    limit = context.capabilities.limits[STORAGE_LIMIT]
    captured = [context.uniform(text.code.captured)] if text.captured_functions else []
    if len(arrays) > limit:
        raise GpuscanError(
            f"a loop over {len(arrays)} arrays (carry, xs and ys) was asked for, but {context.capabilities.summary} "
            f"binds {limit} at most. Keep fewer numbers in the carry, or pack x and y into arrays with trailing axes"
        )
    if max(array.nbytes for array in arrays) > context.binding_limit:
        raise GpuscanError(
            f"a loop over an array of {max(array.nbytes for array in arrays)} bytes was asked for, which exceeds what "
            f"{context.capabilities.summary} binds. {smaller(prod(shape) // shape[axis])}"
        )
    bound = [Binding(array.buffer, array.offset, round_up(array.nbytes, 4)) for array in arrays]
    deferrable = shape[axis] <= _MAX_DEFERRED_STEPS and are_owned(*arrays)
    rows, inner = prod(shape) // shape[axis], prod(shape[axis + 1 :])
    for first, steps in spans(shape[axis], _steps_of_a_dispatch(context, text)):
        numbers = [rows, inner, shape[axis], first, steps, int(reverse), 0]
        submit_stage(
            context, "arrays/run_loop.wgsl", numbers, [*bound, *captured], rows, rows * steps, deferrable, text=text
        )


def _steps_of_a_dispatch(context: DeviceContext, text: LoopText) -> int:
    """Return the most steps of a dispatch. Some drivers end all loops of an invocation after a number of iterations."""
    limit = context.capabilities.loop_iterations
    return min(_STEPS, max(1, limit // (1 + loop_iterations(text.code.source)))) if limit else _STEPS


def _in_words(context: DeviceContext, value: object, scalar: Scalar, shape: tuple[int, ...]) -> DeviceArray:
    """Return the first numbers of the carry, one for each row, in whole words and in memory of their own."""
    dtype = word_dtype(scalar)
    if not isinstance(value, DeviceArray):
        given = value if isinstance(value, ParameterArray) else np.asarray(value)
        value = upload_array(context, given.astype(dtype))
    rows = empty(context, shape, dtype)
    write_elements(broadcast(in_dtype(value, dtype), shape), rows)
    return rows
