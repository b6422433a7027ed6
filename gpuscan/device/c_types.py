"""Parse the C types of wgpu-native all at once, since cffi takes as long for one as for all.

cffi parses each type that the package wgpu names, such as ``WGPUBufferDescriptor *``, at its first use, and each time
reads the names of all types again: 11 ms. A first scan needs more than forty types.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

# The types that opening a device, its probe and a first scan name, spelled as the package wgpu and `native_queue`
# spell them.
_TYPES = (
    "WGPUStringView *",
    "WGPUInstanceDescriptor *",
    "WGPUAdapter[]",
    "WGPUAdapterInfo *",
    "WGPUChainedStruct *",
    "WGPUChainedStruct * ",
    "WGPUNativeLimits *",
    "WGPULimits *",
    "char []",
    "WGPUQueueDescriptor *",
    "WGPUDeviceExtras *",
    "WGPUDeviceLostCallbackInfo *",
    "WGPUUncapturedErrorCallbackInfo *",
    "WGPUFeatureName[]",
    "WGPUDeviceDescriptor *",
    "WGPURequestDeviceCallbackInfo *",
    "WGPUBufferDescriptor *",
    "uint8_t []",
    "uintptr_t",
    "uint8_t *",
    "WGPUBufferBindingLayout *",
    "WGPUBindGroupLayoutEntry *",
    "WGPUBindGroupLayoutEntry[]",
    "WGPUBindGroupLayoutDescriptor *",
    "WGPUShaderSourceWGSL *",
    "WGPUShaderModuleDescriptor *",
    "WGPUBindGroupLayout[]",
    "WGPUPipelineLayoutDescriptor *",
    "WGPUComputeState *",
    "WGPUComputePipelineDescriptor *",
    "WGPUBindGroupEntry *",
    "WGPUBindGroupEntry[]",
    "WGPUBindGroupDescriptor *",
    "uint32_t[]",
    "uint32_t *",
    "WGPUCommandBuffer[1]",
    "WGPUSubmissionIndex *",
    "WGPUBufferMapCallbackInfo *",
    "WGPUPassTimestampWrites *",
    "WGPUComputePassDescriptor *",
    "WGPUComputePassDescriptor",
    # The names of some types in wgpu 0.31.
    "WGPUChainedStructOut *",
    "WGPUProgrammableStageDescriptor *",
    "WGPUComputePassTimestampWrites *",
    "WGPUQuerySetDescriptor *",
    "WGPUCommandEncoderDescriptor *",
    "WGPUCommandBufferDescriptor *",
    "WGPUCommandBuffer[]",
    "uint32_t []",
    "intptr_t",
    "void *",
    "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)",
    "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)",
    "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)",
    "void(WGPUMapAsyncStatus, WGPUStringView, void *, void *)",
)


def parse_ahead() -> None:
    """Parse the types that a first scan needs. In a cffi with other internals they are parsed one by one later."""
    with suppress(Exception):
        from wgpu.backends.wgpu_native import ffi

        _parse(ffi)


def _parse(ffi: Any) -> None:
    with ffi._lock:
        parser = ffi._parser
        # One type that is not there would spoil the others.
        declared = parser._declarations
        types = [each for each in _TYPES if all(f"typedef {name}" in declared for name in re.findall(r"WGPU\w+", each))]
        tree, _, _ = parser._parse(f"void __dummy({', '.join(types)});")
        parameters = tree.ext[-1].type.args.params
        for name, parameter in zip(types, parameters, strict=True):
            kind, _ = parser._get_type_and_quals(parameter.type)
            is_function = kind.is_raw_function
            kind = kind.as_function_pointer() if is_function else kind
            ffi._parsed_types[name] = ffi._get_cached_btype(kind), is_function
