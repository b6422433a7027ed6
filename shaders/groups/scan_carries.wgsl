{#- Scan the carries of each label along the sections of its row, or reduce them to the results.
    in:  the table: for each section and label, the combination of its elements; the initial values
    out: kernel.stage "scan_carries":   the table: for each section and label, the combination of all before the section
         kernel.stage "reduce_carries": the destinations; if carries are marked, after the planes of the table 1 for
                                        each result that has elements, else 0
    Each invocation folds a part of the sections, by itself. It learns the parts before from workgroup memory. -#}
{% set reduces = kernel.stage == "reduce_carries" %}
{% from "shared/chunk_access.wgsl" import store_single with context %}
{% include "groups/table.wgsl" %}
{% include "shared/arrays.wgsl" %}
{% if reduces and kernel.marked %}
// A result's words for each row.
@group(0) @binding({{ kernel.binding_of("fills") }}) var<storage, read> fills: array<u32>;
{% endif %}

{% if kernel.partitioned %}
// Where the first element of each bucket was moved to, in rows of `bucket_step` words.
@group(0) @binding({{ kernel.binding_of("moves") }}) var<storage, read> offsets: array<u32>;
{% endif %}

const PARTS = {{ kernel.parts }}u;
const COLUMNS = WORKGROUP_SIZE / PARTS;  // labels of a workgroup

var<workgroup> totals: array<{{ text.shared_item }}, WORKGROUP_SIZE>;
{% if kernel.marked %}
var<workgroup> is_known: array<u32, WORKGROUP_SIZE>;
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    if (params.total == 0u) {
        return;
    }
    let strips = (params.groups + COLUMNS - 1u) / COLUMNS;
    let all = params.total / params.sections * strips;
    for (var number = workgroup.x + workgroup.y * grid.x; number < all; number += grid.x * grid.y) {
        let row = number / strips;
        let label = number % strips * COLUMNS + invocation % COLUMNS;
        let is_label = label < params.groups;
        let part = invocation / COLUMNS;
{% if kernel.partitioned %}
        // The sections that have elements of the label's bucket.
        let bucket = min(label, params.groups - 1u) >> params.bucket_bits;
        let bucket_begin = offsets[bucket * params.bucket_step];
        let last_bucket = (params.groups - 1u) >> params.bucket_bits;
        var bucket_end = params.row_length;
        if (bucket < last_bucket) {
            bucket_end = offsets[(bucket + 1u) * params.bucket_step];
        }
        let first_section = bucket_begin / params.section_length;
        let last_section = (bucket_end + params.section_length - 1u) / params.section_length;
        let sections = select(0u, last_section - first_section, bucket_begin < bucket_end);
        let part_length = (sections + PARTS - 1u) / PARTS;
        let begin = first_section + min(part * part_length, sections);
        let end = select(begin, min(begin + part_length, first_section + sections), is_label);
        let first = label;
        let step = 1u << params.bucket_bits;
{% else %}
        let part_length = (params.sections + PARTS - 1u) / PARTS;
        let begin = min(part * part_length, params.sections);
        let end = select(begin, min(begin + part_length, params.sections), is_label);
        let first = row * params.sections * params.groups + label;
        let step = params.groups;
{% endif %}
{% if kernel.marked %}
        var total: Item;
        var known = false;
{% else %}
        var total = neutral();
{% endif %}
        for (var section = begin; section < end; section += {{ kernel.carry_loads }}u) {
{% for i in range(kernel.carry_loads) %}
            let at{{ i }} = first + min(section + {{ i }}u, end - 1u) * step;
{% if kernel.marked %}
            let is_here{{ i }} = table[at{{ i }}] != 0u && section + {{ i }}u < end;
{% endif %}
            let carry{{ i }} = read_carry(at{{ i }});
{% endfor %}
{% for i in range(kernel.carry_loads) %}
{% if kernel.marked %}
            total = pick(is_here{{ i }}, pick(known, join(total, carry{{ i }}), carry{{ i }}), total);
            known = known || is_here{{ i }};
{% else %}
            total = join(total, pick(section + {{ i }}u < end, carry{{ i }}, neutral()));
{% endif %}
{% endfor %}
        }
        totals[invocation] = {{ text.to_shared("total") }};
{% if kernel.marked %}
        is_known[invocation] = select(0u, 1u, known);
{% endif %}
        workgroupBarrier();
{% if not kernel.marked %}
        var before = {{ "seed(row)" if spec.seeded else "neutral()" }};
{% elif spec.initial %}
        var before = seed(row);
        var led = true;
{% else %}
        var before: Item;
        var led = false;
{% endif %}
        for (var earlier = invocation % COLUMNS; earlier < invocation; earlier += COLUMNS) {
            let next = {{ text.from_shared("totals[earlier]") }};
{% if kernel.marked %}
            before = pick(is_known[earlier] != 0u, pick(led, join(before, next), next), before);
            led = led || is_known[earlier] != 0u;
{% else %}
            before = join(before, next);
{% endif %}
        }
{% if reduces %}
        if (part == PARTS - 1u && is_label) {
            let at = row * params.groups + label;
{% if kernel.marked %}
            let is_full = known || led;
            let whole = pick(known, pick(led, join(before, total), total), before);
            table[params.plane * {{ kernel.item_words + 1 }}u + at] = select(0u, 1u, is_full);
            let fill = row * {{ spec.destination.words }}u;
            var result = {{ text.result_from_words("fills", "fill + ") }};
            if (is_full) {
                result = {{ text.map_result("whole") }};
            }
{% else %}
            let whole = join(before, total);
            let result = {{ text.map_result("whole") }};
{% endif %}
{{ (store_single("at", "result") | indent(8)).rstrip() }}
        }
{% else %}
        for (var section = begin; section < end; section += {{ kernel.carry_loads }}u) {
{% for i in range(kernel.carry_loads) %}
            let at{{ i }} = first + min(section + {{ i }}u, end - 1u) * step;
{% if kernel.marked %}
            let is_here{{ i }} = table[at{{ i }}] != 0u;
{% endif %}
            let carry{{ i }} = read_carry(at{{ i }});
{% endfor %}
{% for i in range(kernel.carry_loads) %}
            if (section + {{ i }}u < end) {
{% if kernel.marked %}
                table[at{{ i }}] = 0u;
                if (led) {
                    write_carry(at{{ i }}, before);
                }
{% else %}
                write_carry(at{{ i }}, before);
{% endif %}
            }
{% if kernel.marked %}
            before = pick(is_here{{ i }}, pick(led, join(before, carry{{ i }}), carry{{ i }}), before);
            led = led || is_here{{ i }};
{% else %}
            before = join(before, carry{{ i }});
{% endif %}
{% endfor %}
        }
{% endif %}
        // The next labels need the memory of the totals.
        workgroupBarrier();
    }
}
