{#- Run a loop step by step: each invocation takes one row, and keeps the numbers of the carry in registers.
    in:  the arrays of x, in C order (outer, length, inner); the carry before the first of these steps
    out: the arrays of y, in C order, in whole words; the carry after the last of these steps
    Values: text, a gpuscan.codegen.elementwise_text.LoopText; workgroup_size. -#}
{% set spec, kernel = text, text %}
{% set count = text.states | length %}
{% set branches = text.branches %}
struct Call {
    rows: u32,
    inner: u32,  // rows with interleaved elements
    length: u32,  // elements of a row
    first: u32,  // the first step of this dispatch
    steps: u32,  // steps of this dispatch
    reverse: u32,  // 1: from the end of a row
    epoch: u32,  // 0, which compilers do not know; see shared/arithmetic_fixed.wgsl
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> params: Call;
{% for scalar in text.states %}
@group(0) @binding({{ loop.index }}) var<storage, read_write> carry{{ loop.index0 }}: array<u32>;
{% endfor %}
{% for array in text.read %}
@group(0) @binding({{ count + loop.index }}) var<storage, read> source{{ array }}: array<u32>;
{% endfor %}
{% for array in text.written %}
@group(0) @binding({{ count + text.read | length + loop.index }}) var<storage, read_write> result{{ array }}: array<u32>;
{% endfor %}

{% include "arrays/function.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let row = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (row >= params.rows) {
        return;
    }
{% for scalar in text.states %}
    var state{{ loop.index0 }} = {{ text.state_at(loop.index0) }};
{% endfor %}
    let begin = row / params.inner * params.length * params.inner + row % params.inner;
    for (var step = params.first; step < params.first + params.steps; step++) {
        let at = begin + select(step, params.length - 1u - step, params.reverse == 1u) * params.inner;
        let next = apply(Arguments(
{% for index in text.used %}
            {{ text.load_number(index) }},
{% else %}
            0u,
{% endfor %}
        ));
{% for array, index, word in text.stores() %}
        result{{ array }}[{{ index }}] = {{ word }};
{% endfor %}
{% for scalar in text.states %}
        state{{ loop.index0 }} = {{ text.round_number(loop.index0, text.code.result.member("next", loop.index0)) }};
{% endfor %}
    }
{% for scalar in text.states %}
{% set index = loop.index0 %}
{% for word in text.words_of(index, "state" ~ index) %}
    carry{{ index }}[row * {{ scalar.words }}u + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
{% endfor %}
}
