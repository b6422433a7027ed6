"""Runs a traced function on arrays, element by element, on a GPU: a small kernel around its WGSL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import wgpu

from gpuscan.codegen import number_formats as forms
from gpuscan.elements import LEAF, Element, Field, Structure, element_of
from gpuscan.operators.code import Code, combine_code, map_code
from gpuscan.operators.operator import Operator
from gpuscan.templates import render


@cache
def open_device(adapter: wgpu.GPUAdapter) -> wgpu.GPUDevice:
    wanted = {"shader-int64", "shader-f64"} & set(adapter.features)
    return adapter.request_device_sync(required_features=sorted(wanted))


def has_int64(adapter: wgpu.GPUAdapter) -> bool:
    return "shader-int64" in adapter.features


def bundle(*arrays: np.ndarray[Any, Any]) -> Structure:
    return Structure("tuple", tuple(range(len(arrays))), (LEAF,) * len(arrays))


def words_of(array: np.ndarray[Any, Any], field: Field) -> np.ndarray[Any, Any]:
    """Return the compute form of an array as 32-bit words, one row for each element."""
    scalar = field.scalar
    if scalar.bits < 32:
        wide = {"bool": np.uint32, "signed": np.int32, "unsigned": np.uint32, "float": np.float32}[scalar.kind]
        array = array.astype(wide)
    return np.ascontiguousarray(array).view(np.uint32).reshape(-1, field.words)


def array_of(words: np.ndarray[Any, Any], field: Field, length: int, in_range: bool) -> np.ndarray[Any, Any]:
    """Return the array of such words: the inverse of `words_of`. `in_range` is that of `split_fields`."""
    scalar = field.scalar
    compute = scalar.dtype
    if scalar.bits < 32:
        compute = np.dtype(
            {"bool": np.uint32, "signed": np.int32, "unsigned": np.uint32, "float": np.float32}[scalar.kind]
        )
    numbers = np.ascontiguousarray(words).view(compute).reshape(length, *field.shape)
    with np.errstate(all="ignore"):
        stored_form = numbers.astype(scalar.dtype)
    if scalar.kind in ("signed", "unsigned") and in_range:
        np.testing.assert_array_equal(stored_form, numbers)
    return stored_form


def format_load(element: Element, type_name: str, buffer: str, native_int64: bool) -> str:
    """Return WGSL for an element read from row `i` of a buffer of words."""
    fields, at = [], 0
    for field in element.fields:
        numbers = []
        for _ in range(field.count):
            words = [f"{buffer}[i * {element.words}u + {at + k}u]" for k in range(field.scalar.words)]
            numbers.append(forms.from_words(field.scalar, native_int64, words))
            at += field.scalar.words
        fields.append(f"{field.wgsl(native_int64)}({', '.join(numbers)})" if field.shape else numbers[0])
    return fields[0] if element.single else f"{type_name}({', '.join(fields)})"


def format_words(element: Element, variable: str, native_int64: bool) -> list[str]:
    """Return the words of an element."""
    words: list[str] = []
    for index, field in enumerate(element.fields):
        member = element.member(variable, index)
        for component in range(field.count):
            number = f"{member}[{component}]" if field.shape else member
            words += forms.to_words(field.scalar, native_int64, number)
    return words


def declare_type(name: str, element: Element, native_int64: bool) -> str:
    if element.single:
        return f"alias {name} = {element.fields[0].wgsl(native_int64)};"
    members = "\n".join(f"    {field.name}: {field.wgsl(native_int64)}," for field in element.fields)
    return f"struct {name} {{\n{members}\n}}"


def shader(code: Code, call: str, types: Sequence[tuple[str, Element]], inputs: Sequence[str], native: bool) -> str:
    """Return a whole shader that stores the words of `call` for each element."""
    lines = [declare_type(name, element, native) for name, element in types]
    lines += [f"@group(0) @binding({k}) var<storage, read> {name}: array<u32>;" for k, name in enumerate(inputs)]
    lines.append(f"@group(0) @binding({len(inputs)}) var<storage, read_write> results: array<u32>;")
    lines.append(render("shared/arithmetic.wgsl", helpers=code.helpers, native_int64=native))
    lines.append(code.source)
    words = format_words(code.result, "result", native)
    stores = "\n".join(f"    results[i * {len(words)}u + {k}u] = {word};" for k, word in enumerate(words))
    lines.append(
        "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3<u32>) {\n"
        f"    let i = id.x;\n    if (i * {len(words)}u >= arrayLength(&results)) {{\n        return;\n    }}\n"
        f"    let result = {call};\n{stores}\n}}"
    )
    return "\n".join(lines)


def run(
    device: wgpu.GPUDevice, source: str, inputs: Sequence[np.ndarray[Any, Any]], length: int, words: int
) -> np.ndarray[Any, Any]:
    """Run the shader, and return the words that it stores, one row for each element."""
    usage = wgpu.BufferUsage
    buffers = [device.create_buffer_with_data(data=data, usage=usage.STORAGE) for data in inputs]
    buffers.append(device.create_buffer(size=length * words * 4, usage=usage.STORAGE | usage.COPY_SRC))
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": device.create_shader_module(code=source), "entry_point": "main"}
    )
    entries = [{"binding": k, "resource": {"buffer": each}} for k, each in enumerate(buffers)]
    group = device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries)
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, group)
    compute.dispatch_workgroups(-(-length // 64))
    compute.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(buffers[-1]), np.uint32).reshape(length, words)


def split_fields(rows: np.ndarray[Any, Any], element: Element, in_range: bool = True) -> list[np.ndarray[Any, Any]]:
    """Return the arrays of the fields. Narrow integers are held to their range if `in_range`, else cut to it."""
    arrays, at = [], 0
    for field in element.fields:
        arrays.append(array_of(rows[:, at : at + field.words], field, len(rows), in_range))
        at += field.words
    return arrays


def evaluate_map(
    device: wgpu.GPUDevice,
    function: Callable[..., Any],
    arrays: Sequence[np.ndarray[Any, Any]],
    *,
    native_int64: bool,
    axes: int = 0,
) -> Any:
    """Return ``function(arrays)`` (a tuple), computed on the GPU; `axes` trailing axes belong to the element."""
    length = len(arrays[0])
    shapes = [array.shape[array.ndim - axes :] for array in arrays]
    element = element_of([array.dtype for array in arrays], bundle(*arrays), shapes)
    code = map_code(function, element, "evaluated", native_int64, argument_type="Source", result_type="Result")
    source = shader(
        code,
        f"evaluated({format_load(element, 'Source', 'values', native_int64)})",
        [("Source", element), ("Result", code.result)],
        ["values"],
        native_int64,
    )
    rows = np.hstack([words_of(a.reshape(length, -1), f) for a, f in zip(arrays, element.fields, strict=True)])
    results = split_fields(run(device, source, [rows], length, code.result.words), code.result)
    return code.result.structure.unflatten(results)


def evaluate_combine(
    device: wgpu.GPUDevice,
    operator: Operator,
    element: Element,
    left: Sequence[np.ndarray[Any, Any]],
    right: Sequence[np.ndarray[Any, Any]],
    *,
    native_int64: bool,
) -> list[np.ndarray[Any, Any]]:
    """Return the operator's result on two lists of field arrays, computed on the GPU."""
    code = combine_code(operator, element, native_int64)
    call = ", ".join(format_load(element, "Element", buffer, native_int64) for buffer in ("lefts", "rights"))
    source = shader(code, f"combine({call})", [("Element", element)], ["lefts", "rights"], native_int64)
    length = len(left[0])
    rows = [
        np.hstack([words_of(a.reshape(length, -1), f) for a, f in zip(side, element.fields, strict=True)])
        for side in (left, right)
    ]
    return split_fields(run(device, source, rows, length, element.words), element, in_range=not code.wraps_late)
