"""Single stages of sorts, and sorts in tiles of a given shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gpuscan as gs
from gpuscan.device.device_array import upload_array
from gpuscan.engine.plan_steps import stage_dispatch
from gpuscan.engine.sorting import sort_device
from gpuscan.planning import key_heuristics
from tests.oracle import Array


def run_stage(
    device: gs.Device,
    name: str,
    call: Sequence[int] | None,
    inputs: Sequence[Array],
    sizes: Sequence[int | Array],
    workgroups: int,
    *,
    order: Sequence[Any] = (),
    **values: Any,
) -> list[Array]:
    """Run one stage; return its outputs as 32-bit words.

    Args:
        device: the device.
        name: the stage's template in the folder sort, or with the name of another folder.
        call: the words of its parameters, if it has any.
        inputs: the arrays that it reads.
        sizes: the words of each output, which holds junk before, or zeros if it is shorter than 4; or its content.
        workgroups: the number of workgroups.
        order: the bindings behind the parameters: the number of an input from 1 on, or ``"out"`` for the next output.
            By default the inputs come first.
        values: the variables of the template.
    """
    context = device._context
    arrays = [upload_array(context, np.ascontiguousarray(each)) for each in inputs]
    outputs = [
        upload_array(
            context, np.full(size, 0xA5A5A5A5 if size > 3 else 0, np.uint32) if isinstance(size, int) else size
        )
        for size in sizes
    ]
    following = iter(outputs)
    bound = [arrays[n - 1] if n != "out" else next(following) for n in order] if order else [*arrays, *outputs]
    words = np.array(call or (), np.uint32)
    parameters = [] if call is None else [context.uniform(np.pad(words, (0, -len(words) % 4)).tobytes())]
    bindings = [*parameters, *(array._binding() for array in bound)]
    offset = 0 if name == "scatter_digits" and values.get("kernel") else None
    template = f"{name}.wgsl" if "/" in name else f"sort/{name}.wgsl"
    stage = stage_dispatch(context, template, bindings, workgroups, 1, offset, **values)
    with context.lock:
        context.submit([stage], 0, deferrable=True)
    return [output._read() for output in outputs]


def sort_in_tiles(device: gs.Device, keys: Array, descending: bool, **options: Any) -> tuple[Array, Array]:
    """Return the keys in order along the last axis, and their indices, from a sort by tiles of a given shape."""
    array = upload_array(device._context, keys)
    found = sort_device(
        device._executor, array, keys.ndim - 1, descending=descending, with_keys=True, with_indices=True, **options
    )
    return found.keys._read(), found.payload._read()


def use_little_workgroup_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sorts of software adapters count digits of 4 bits, and sort rows of up to 256 elements in one workgroup.

    Dawn sets workgroup memory to zero, which SwiftShader unrolls word by word: a sort takes it 0.5 s instead of 3 to 6
    to compile.
    """
    rows: dict[str, Any] = {"log_row_items": 2, "log_row_capacity": 8, "max_row_length": 256}
    small = replace(key_heuristics.SORTS_CPU, radix_bits=4, serial_radix_bits=4, **rows)
    monkeypatch.setattr(key_heuristics, "SORTS_CPU", small)
