{#- The labels and the arrays of a stage that combines the elements of sections, one by one.
    Values: kernel.label; spec. -#}
{% from "shared/chunk_access.wgsl" import store_single with context %}
{% include "shared/arrays.wgsl" %}
@group(0) @binding({{ kernel.labels_binding }}) var<storage, read> labels: array<u32>;
{% if kernel.checked %}
{% from "shared/indices.wgsl" import index_at with context %}

struct ValidationFlag {
    above: atomic<u32>,  // the largest label that is not below the number of labels; 0 if there is none
    below: atomic<u32>,  // the same for labels below -1, counted down from 0
}
@group(0) @binding({{ kernel.binding_of("validation_flag") }}) var<storage, read_write> validation_flag: ValidationFlag;

const NO_LABEL = 0xffffffffu;
// What the invocation has to add to the validation flag.
var<private> above = 0u;
var<private> below = 0u;

{{ index_at("labels", kernel.label) }}
{% endif %}

const STEPS = {{ kernel.tile.chunk }}u;  // elements that an invocation loads at a time

{% if kernel.checked %}
// Return the label at a position of a row, or NO_LABEL if the label is missing or wrong.
fn label_at(row: u32, position: u32) -> u32 {
    let label = index_at(row * params.labels_step + position);
    let is_right = !label.negative & (label.size < params.groups);
    above = max(above, select(label.size, 0u, is_right | label.negative));
    below = max(below, select(0u, label.size, label.negative));
    return select(NO_LABEL, label.size, is_right);
}

// Add what the invocation has found to the validation flag.
fn report_labels() {
    if (above > 0u) {
        atomicMax(&validation_flag.above, above);
    }
    if (below > 1u) {
        atomicMax(&validation_flag.below, below);
    }
}
{% else %}
// Return the label at a position of a row, by its bits, which are less than the number of labels.
fn label_at(row: u32, position: u32) -> u32 {
    let at = row * params.labels_step + position;
{% if kernel.label.packed %}
    let bits = extractBits(labels[at / {{ kernel.label.per_word }}u], at % {{ kernel.label.per_word }}u * {{ kernel.label.bits }}u, {{ kernel.label.bits }}u);
    return {{ "min(bits, 1u)" if kernel.label.kind == "bool" else "bits" }};
{% else %}
    return labels[at * {{ kernel.label.words }}u];
{% endif %}
}
{% endif %}

// Return a position along the axis, by the element's number in the order of the scan.
fn position_of(number: u32) -> u32 {
    return {{ "params.row_length - 1u - number" if spec.reverse else "number" }};
}

{# The row of `section`, and the numbers of its first element in the row and of the one after its last. -#}
{% macro bounds_of_section() %}
    let row = section / params.sections;
    let begin = section % params.sections * params.section_length;
    let end = min(begin + params.section_length, params.row_length);
{% endmacro %}

{#- Load the elements with the numbers `number0`, … in the row: `e0`, … with the labels `label0`, … -#}
{% macro load_elements() %}
{% for i in range(kernel.tile.chunk) %}
    let position{{ i }} = position_of(number{{ i }});
    let label{{ i }} = label_at(row, position{{ i }});
    let at{{ i }} = row * params.row_length + position{{ i }};
{% if spec.index_step %}
    let index{{ i }} = i32(position{{ i }});
{% endif %}
    let e{{ i }} = {{ text.load_element(i, "") }};
{% endfor %}
{% endmacro %}
{#- Load the elements that the invocation at `position` takes in the workgroup's step from `first` on. Their numbers in
    the row are `next0`, …; where they are not below `end`, the last element is loaded. -#}
{% macro load_step(position) %}
{% for i in range(kernel.tile.chunk) %}
    let next{{ i }} = first + {{ i }}u * WORKGROUP_SIZE + {{ position }};
    let number{{ i }} = min(next{{ i }}, end - 1u);
{% endfor %}
{{ load_elements() -}}
{% endmacro %}
{#- Store `result` at `at`, as `after` maps it. -#}
{% macro store_result(at, result) %}
    let r_{{ result }} = {{ text.map_result(result) }};
{{ store_single(at, "r_" ~ result) -}}
{% endmacro %}
