"""Rendered shaders are for readers too: they have what the kernel uses, and not much more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuscan.codegen.kernel_text import render_kernel
from gpuscan.operators.code import combine_code
from gpuscan.operators.named_operators import resolve
from gpuscan.planning.plan import plan_scan
from gpuscan.templates import leave_out_unused
from tests.fakes import gpu, spec

# The most lines, without blank ones, of a sum of 2^20 float32 on a discrete GPU with subgroups of 32.
MOST_LINES = {"fallback": 340, "lookback": 260, "lookahead": 370, "three_dispatch": 420}


@pytest.mark.parametrize("strategy", MOST_LINES)
def test_a_plain_scan_is_short(strategy: str) -> None:
    asked = spec(row_length=2**20)
    add = combine_code(resolve("add"), asked.element, native_int64=True)
    plan = plan_scan(replace(asked, operator_name="add", combine=add), gpu(), strategy, "")
    lines = [line for stage in plan.stages for line in render_kernel(stage.kernel).splitlines() if line]
    assert len(lines) <= MOST_LINES[strategy]


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
