{#- Apply a function to every element of some arrays of one shape, each of any strides. Each invocation computes CHUNK
    neighbouring results at a time, which are whole words.
    in:  the sources that the function reads
    out: the results, in C order
    Values: text, a gpuscan.codegen.elementwise_text.ElementwiseText; workgroup_size; steps: chunks of an
        invocation. -#}
{% set spec, kernel = text, text %}
struct Call {
    first: u32,  // the number of the first element, in C order
    count: u32,  // elements to compute
{% for axis in range(text.rank) %}
    size{{ axis }}: u32,
{% endfor %}
{% for index in text.used %}
    begin{{ index }}: u32,  // the index of the array's first element, or vector
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
@group(0) @binding({{ loop.index }}) var<storage, read> source{{ index }}: array<{{ text.source_type(index) }}>;
{% endfor %}
{% for field in text.code.result.fields %}
@group(0) @binding({{ text.bound | length + loop.index }}) var<storage, read_write> result{{ loop.index0 }}: array<{{ text.array_type(field) }}>;
{% endfor %}

{% include "arrays/function.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
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
{% for index in text.loaded_vectors %}
{% set accesses = text.accesses_of(index) %}
{% for i in range(accesses) %}
    let vector{{ index }}_{{ i }} = {{ text.array_of(index) }}[call.begin{{ index }} + chunk * {{ accesses }}u + {{ i }}u];
{% endfor %}
{% endfor %}
{% for position in range(text.chunk) %}
{% if text.strided %}
    var rest{{ position }} = call.first + {{ "first" if position == 0 else "min(first + " ~ position ~ "u, call.count - 1u)" }};
{% for axis in range(text.rank - 1, 0, -1) %}
    let i{{ position }}_{{ axis }} = rest{{ position }} % call.size{{ axis }};
    rest{{ position }} /= call.size{{ axis }};
{% endfor %}
{% for index in text.strided %}
    let at{{ index }}_{{ position }} = call.begin{{ index }} + rest{{ position }} * call.stride{{ index }}_0{% for axis in range(1, text.rank) %} + i{{ position }}_{{ axis }} * call.stride{{ index }}_{{ axis }}{% endfor %};
{% endfor %}
{% endif %}
    let r{{ position }} = apply(Arguments(
{% for index in text.used %}
        {{ text.load_number(index, position) }},
{% else %}
        0u,
{% endfor %}
    ));
{% endfor %}
{% for field in text.code.result.fields %}
{% set index, vectors = loop.index0, text.pack_vectors(loop.index0) %}
{% if vectors | length == 1 %}
    result{{ index }}[chunk] = {{ vectors[0] }};
{% else %}
{% set bytes = 4 * text.width_of(field) %}
    let end{{ index }} = (call.count * {{ field.storage_bytes }}u + {{ bytes - 1 }}u) / {{ bytes }}u;
{% for vector in vectors %}
    if (chunk * {{ vectors | length }}u + {{ loop.index0 }}u < end{{ index }}) {
        result{{ index }}[chunk * {{ vectors | length }}u + {{ loop.index0 }}u] = {{ vector }};
    }
{% endfor %}
{% endif %}
{% endfor %}
}
