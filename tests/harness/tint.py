"""Compile every shader of the tests by Tint as well: Chrome's compiler refuses texts that naga takes."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
from typing import Any

import pytest
import wgpu.backends.wgpu_native

# Types and literals of 64 bits, which naga adds to WGSL and Tint does not know.
WIDE_TYPES = re.compile(r"\b([iu]64|f64|[0-9][0-9a-fx.]*l[fiu])\b")
# WebGPU wants the first line for subgroups, and naga refuses it. The second one stands in gpuscan's texts for WebGPU.
SUBGROUP_LINES = "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n"


class TintCheck:
    """The texts that naga compiled in this process, and what Tint says of them.

    Attributes:
        noted: the labels of the texts that Tint has not compiled yet, by the text.
    """

    def __init__(self) -> None:
        self.noted: dict[str, str] = {}

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """Note each text that wgpu's devices compile from now on, with its label."""
        kind = wgpu.backends.wgpu_native.GPUDevice
        compile_module = kind.create_shader_module

        @functools.wraps(compile_module)
        def compile_and_note(device: Any, *, label: str = "", code: Any, **options: Any) -> Any:
            module = compile_module(device, label=label, code=code, **options)
            if isinstance(code, str):
                self.note(label, code)
            return module

        patch.setattr(kind, "create_shader_module", compile_and_note)

    def note(self, label: str, text: str) -> None:
        """Note a text for `find_refusals`, unless it needs types that only naga has."""
        if not WIDE_TYPES.search(text):
            self.noted.setdefault(text, label)

    def find_refusals(self) -> list[str]:
        """Compile what was noted, and return Tint's message about each text that it refuses."""
        if not self.noted or importlib.util.find_spec("wgpudawn") is None:  # tests/device/test_dawn.py needs it
            return []
        device, error = dawn_compiler()
        found = []
        for text, label in self.noted.items():
            try:
                device.create_shader_module(code=SUBGROUP_LINES + text if "subgroup" in text else text)
            except error as refusal:
                found.append(f"{label}: {str(refusal)[:1000]}\n{text}")
        self.noted.clear()
        return found


@functools.cache
def dawn_compiler() -> tuple[Any, type[Exception]]:
    """Return a device of Dawn's, with subgroups if an adapter has them, and the class of its errors."""
    with pytest.MonkeyPatch.context() as patch:
        if "XDG_RUNTIME_DIR" not in os.environ:
            patch.setenv("XDG_RUNTIME_DIR", "/")  # keeps a Wayland loader from complaining
        package = importlib.import_module("wgpudawn")
        wanted = {"subgroups"}
        adapters = sorted(package.gpu.enumerate_adapters_sync(), key=lambda each: len(wanted - set(each.features)))
        assert adapters, "Dawn finds no adapter here"
        features = sorted(wanted & set(adapters[0].features))
        return adapters[0].request_device_sync(required_features=features), package.GPUError
