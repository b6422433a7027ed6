{#- The source and destination arrays and the initial values, and the maps that are fused into load and store.
    Values: kernel.arrays, spec.before, spec.after. -#}
{% from "shared/chunk_access.wgsl" import store_single with context %}
// ----- Arrays
{% for array in kernel.arrays %}
@group(0) @binding({{ array.binding }}) var<storage, {{ array.access }}> {{ array.name }}: array<{{ text.array_type(array) }}>;
{% endfor %}
{% if spec.seeded or spec.has_tail_values %}
// An element's words for each row.
@group(0) @binding({{ kernel.binding_of("seeds") }}) var<storage, read> seeds: array<u32>;
{% endif %}

{% if text.viewed %}
{% include "shared/views.wgsl" %}

{% endif %}
{% if text.float_conversions %}
{% set conversions, packs_halves = text.float_conversions, kernel.target.packs_halves %}
{% include "shared/small_floats.wgsl" %}
{% endif %}
{% if spec.before %}
// The map that is fused into the load.
{{ spec.before.source }}
{% endif %}
{% if spec.after %}
// The map that is fused into the store.
{{ spec.after.source }}
{% endif %}
{% if spec.steps %}
// The steps of the loop.
{% for name, code in spec.steps.named %}
{{ code.source }}
{% endfor %}
{% endif %}
{% if spec.seeded %}
// Return the value that precedes a row's first element: `initial`, or the identity of an exclusive scan.
fn seed(row: u32) -> Element {
    let at = row * {{ spec.element.words }}u;
    return {{ text.seed_from_words("seeds", "at + ") }};
}
{% endif %}
{% if (spec.keep_last_only or spec.compacts) and kernel.destinations %}
// Store one result by itself.
fn store_result(at: u32, result: Result) {
{{ store_single("at", "result") -}}
}
{% if spec.partitions %}

fn store_other(at: u32, result: Result) {
{{ store_single("at", "result", others=True) -}}
}
{% endif %}
{% endif %}
{% if spec.has_tail_values %}
// Return the value of the neighbour field that follows a row's last element.
fn tail(row: u32) -> {{ text.type_of(spec.neighbour_field) }} {
    let at = row * {{ spec.neighbour_field.words }}u;
    return {{ text.field_from_words(spec.neighbour_field, "seeds", "at + ") }};
}
{% endif %}
