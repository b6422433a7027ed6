"""Let the dispatches of a shader do nothing if a word on the GPU says so."""

from __future__ import annotations

# The binding of the switch, after all others.
SWITCH_BINDING = 63


def with_switch(text: str) -> str:
    """Return the WGSL of a shader that returns at once if the first word of a uniform buffer is not 0."""
    head, main, tail = text.partition("fn main(")
    parameters, brace, body = tail.partition(") {")
    switch = f"@group(0) @binding({SWITCH_BINDING}) var<uniform> is_off: vec4<u32>;"
    return f"{head}{main}{parameters}{brace}\n    if (is_off.x != 0u) {{\n        return;\n    }}{body}\n{switch}\n"
