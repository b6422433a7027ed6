"""Rendered shaders are for readers too: they have what the kernel uses, and not much more."""

from __future__ import annotations

from gpuscan.templates import leave_out_unused

SHADER = """\
enable f16;
const USED = 2u;  // unused_too
// Not used.
const UNUSED = 1u;

struct Params {
    length: u32,
    tiles: u32,
    inner: u32,  // rows
}
@group(0) @binding(0) var<uniform> params: Params;

// ----- Nothing is left here
alias Unused = u32;
fn unused(
    at: u32,
) -> u32 {
    return unused_too(at);
}

// ----- Two functions
fn unused_too(at: u32) -> u32 { return at; }

// Called by the other one.
fn inner_function(at: u32) -> u32 {
    return at * USED;
}
fn outer_function(at: u32) -> u32 {
    return inner_function(at);
}

// ----- Nothing here either
var<workgroup> unused_memory: array<u32, 4>;

@compute @workgroup_size(1)
fn main() {
    _ = outer_function(params.tiles);
}
"""

SHORT = """\
enable f16;
const USED = 2u;  // unused_too

struct Params {
    length: u32,
    tiles: u32,
}
@group(0) @binding(0) var<uniform> params: Params;

// ----- Two functions

// Called by the other one.
fn inner_function(at: u32) -> u32 {
    return at * USED;
}
fn outer_function(at: u32) -> u32 {
    return inner_function(at);
}

@compute @workgroup_size(1)
fn main() {
    _ = outer_function(params.tiles);
}
"""


def test_what_main_does_not_need_is_left_out() -> None:
    assert leave_out_unused(SHADER) == SHORT
    assert leave_out_unused(SHORT) == SHORT
