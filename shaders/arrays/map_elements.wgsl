{#- Applies a function to every element of some arrays of one shape, each of any strides. Each invocation computes CHUNK
    neighbouring results at a time, which are whole words.
    in:  the sources that the function reads
    out: the results, in C order
    Parameters: text, a gpuscan.codegen.elementwise_text.ElementwiseText; workgroup_size; steps: chunks of an invocation. -#}
{% set spec, kernel = text, text %}
struct Call {
    first: u32,  // the number of the first element, in C order
    count: u32,  // elements to compute
{% for axis in range(text.rank) %}
    size{{ axis }}: u32,
{% endfor %}
{% for index in text.used %}
    begin{{ index }}: u32,  // the place of the array's first element
{% for axis in range(text.rank) %}
    stride{{ index }}_{{ axis }}: u32,  // may be negative: arithmetic wraps
{% endfor %}
{% endfor %}
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const STEPS = {{ steps }}u;  // chunks that an invocation computes
const CHUNK = {{ text.chunk }}u;  // neighbouring elements

@group(0) @binding(0) var<uniform> call: Call;
{% for index in text.bound %}
@group(0) @binding({{ loop.index }}) var<storage, read> source{{ index }}: array<u32>;
{% endfor %}
{% for field in text.code.result.fields %}
@group(0) @binding({{ text.bound | length + loop.index }}) var<storage, read_write> result{{ loop.index0 }}: array<u32>;
{% endfor %}

struct Arguments {
{% for field in text.sources %}
    {{ field.name }}: {{ text.type_of(field) }},
{% else %}
    none: u32,
{% endfor %}
}
{% if text.code.result.single %}
alias Result = {{ text.type_of(text.code.result.fields[0]) }};
{% else %}
struct Result {
{% for field in text.code.result.fields %}
    {{ field.name }}: {{ text.type_of(field) }},
{% endfor %}
}
{% endif %}

{% include "shared/captured.wgsl" %}
{% set helpers = text.helpers %}
{% if helpers %}
{% include "shared/arithmetic.wgsl" %}
{% endif %}
{% set conversions, packs_halves = text.conversions, text.packs_halves %}
{% include "shared/small_floats.wgsl" %}

{{ text.code.source }}

// Return the result for the element of this number.
fn result_of(number: u32) -> Result {
    var rest = call.first + number;
{% for axis in range(text.rank - 1, 0, -1) %}
    let i{{ axis }} = rest % call.size{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
{% for index in text.used %}
    let at{{ index }} = call.begin{{ index }} + rest * call.stride{{ index }}_0{% for axis in range(1, text.rank) %} + i{{ axis }} * call.stride{{ index }}_{{ axis }}{% endfor %};
{% endfor %}
    return apply(Arguments(
{% for index in text.used %}
        {{ text.loaded(index) }},
{% else %}
        0u,
{% endfor %}
    ));
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    // Several chunks, so that several loads are under way. Neighbours take neighbouring chunks.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * STEPS) + invocation;
    for (var i = 0u; i < STEPS; i++) {
        compute_chunk(begin + i * WORKGROUP_SIZE);
    }
}

fn compute_chunk(chunk: u32) {
    let first = chunk * CHUNK;
    if (chunk > (call.count - 1u) / CHUNK) {
        return;
    }
{% for place in range(text.chunk) %}
    let r{{ place }} = result_of({{ "first" if place == 0 else "min(first + " ~ place ~ "u, call.count - 1u)" }});
{% endfor %}
{% for field in text.code.result.fields %}
{% set index, words = loop.index0, text.stored_words(loop.index0) %}
{% for word in words %}
    result{{ index }}[chunk * {{ words | length }}u + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
{% endfor %}
}
