{#- The source and destination arrays and the seeds, and the maps fused into load and store.
    Comes in: kernel.arrays, kernel.before, kernel.after. -#}
// ----- Arrays
{% for array in kernel.arrays %}
@group(0) @binding({{ array.binding }}) var<storage, {{ array.access }}> {{ array.name }}: array<{{ array.vector }}>;
{% endfor %}
{% if kernel.seeded or kernel.tails %}
@group(0) @binding({{ kernel.seed_binding }}) var<storage, read> seeds: array<u32>;  // an element's words for each row
{% endif %}

{% if kernel.float_conversions %}
{% set conversions, packs_halves = kernel.float_conversions, kernel.packs_halves %}
{% include "parts/small_floats.wgsl" %}
{% endif %}
{% if kernel.before %}
// The map that is fused into the load.
{{ kernel.before.source }}
{% endif %}
{% if kernel.after %}
// The map that is fused into the store.
{{ kernel.after.source }}
{% endif %}
{% if kernel.seeded %}
// What comes before a row's first element: `initial`, or the identity of an exclusive scan.
fn seed(row: u32) -> Element {
    let at = row * {{ kernel.element.words }}u;
    return {{ kernel.seed_expression() }};
}
{% endif %}
{% if (kernel.ends or kernel.moves) and kernel.destinations %}
// One result alone.
fn store_result(at: u32, result: Result) {
{% for line in kernel.result_lines("at", "result") %}
    {{ line }}
{% endfor %}
}
{% endif %}
{% if kernel.tails %}
// What comes after a row's last element, of the field that is held.
fn tail(row: u32) -> {{ kernel.held.wgsl(kernel.native_int64) }} {
    let at = row * {{ kernel.held.words }}u;
    return {{ kernel.tail_expression() }};
}
{% endif %}
