{#- The beginning of every stage of a scan or reduction of groups by a table. Rows are cut into sections. The table has
    a carry for each section and each label: one word of all of them side by side, then the next word of all of them, or
    the words of each of them side by side if kernel.interleaved. If carries are marked, a first word is 1 where there
    is one. Otherwise they begin with the identity, or the row's seed.
    If kernel.partitioned, elements were sorted by the buckets of their labels before. Then a section has only the
    carries of its own buckets: since buckets follow each other, the carry of a label is at the label, and one bucket
    further for each section before.
    Values: kernel, a gpuscan.planning.group_plan.GroupKernel; spec. -#}
{% include "shared/extensions.wgsl" %}
const WORKGROUP_SIZE = {{ kernel.tile.workgroup_size }}u;  // invocations

struct Params {
    row_length: u32,
    section_length: u32,  // elements of a section; the last one of a row may have fewer
    sections: u32,  // in a row
    total: u32,  // sections in all rows together
    groups: u32,  // labels of a row
    plane: u32,  // carries in the table
    labels_step: u32,  // labels from one row to the next: 0 if all rows have the same
    sharers: u32,  // workgroups that share a section if they combine by atomics: its elements in the table, or its labels
{% if kernel.partitioned %}
    bucket_bits: u32,  // a bucket has 2 ** bucket_bits labels
    bucket_step: u32,  // the offsets of a bucket
{% endif %}
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding({{ kernel.binding_of("table") }}) var<storage, read_write> table: array<{{ "atomic<u32>" if kernel.in_table else "u32" }}>;

{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}

{% if kernel.partitioned %}
// Return where the carry of a label and a section is.
fn carry_index(section: u32, label: u32) -> u32 {
    return (section << params.bucket_bits) + label;
}
{% endif %}

{% if kernel.copies or not kernel.marked %}
fn neutral() -> Item {
    return item_from_words(Words(
{% for word in range(kernel.item_words) %}
        {{ "0x%xu" % spec.combine.neutral[word] }},
{% endfor %}
    ));
}

{% endif %}
{% set marks = 1 if kernel.marked else 0 %}
{% macro carry_word(word) -%}
{{ "table[at * %du + %du]" % (kernel.item_words, word) if kernel.interleaved else "table[at + %du * params.plane]" % (word + marks) }}
{%- endmacro %}
{% set mask = " ^ 0x%xu" % spec.combine.atomic[1] if kernel.encoded else "" %}
{% if not kernel.in_table %}
fn read_carry(at: u32) -> Item {
    return item_from_words(Words(
{% for word in range(kernel.item_words) %}
        {{ carry_word(word) }}{{ mask }},
{% endfor %}
    ));
}

fn write_carry(at: u32, carry: Item) {
    let words = item_to_words(carry);
{% if kernel.marked %}
    table[at] = 1u;
{% endif %}
{% for word in range(kernel.item_words) %}
    {{ carry_word(word) }} = words[{{ word }}];
{% endfor %}
}
{% endif %}
