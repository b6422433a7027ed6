{#- Decide by the largest label how groups are scanned: by a table of all labels, by a table once elements are sorted by
    the buckets of their labels, or by a sort. Rows are cut into as many sections as the table has room for.
    in:  largest: the largest label, taken for an unsigned number
    out: choice: for each of the two tables the parameters of its stages, as in groups/table.wgsl; the step that sorts
         by buckets, as in sort/params.wgsl; and words that are 0 if labels are to be sorted, and if elements are to be
         sorted by buckets. validation_flag: 1 if a label is missing
    Values: label_bits: the bits of a label; radix_bits: of a bucket's number; checked: True to look for missing
        labels. -#}
struct Call {
    row_length: u32,
    rows: u32,
    labels_step: u32,
    unit: u32,  // a section has whole units, but for the last one of a row
    max_carries: u32,  // that the table has room for
    wanted_carries: u32,  // about
    sections: u32,  // of all rows, about, unless there are more carries than are wanted
    least_sections: u32,  // of all rows, about, even if there are
    max_section_length: u32,  // elements of a section
    max_labels: u32,  // of a table of all labels
    max_partitioned: u32,  // of a table by buckets
    bucket_step: u32,
}

const RADIX_BITS = {{ radix_bits }}u;
// The indices of the words of `choice`.
const PARTITIONED = 64u;  // the table by buckets
const STEP = 128u;
const IS_SCANNED = 192u;
const IS_WHOLE = 256u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> largest: array<u32>;
@group(0) @binding(2) var<storage, read_write> choice: array<u32>;
{% if checked %}
@group(0) @binding(3) var<storage, read_write> validation_flag: array<u32>;
{% endif %}

// Write the parameters of a table with about `about` sections of all rows, and room for `most` sections of each row.
// Return false if that is too few.
fn write_table(first: u32, groups: u32, about: u32, most: u32, bucket_bits: u32) -> bool {
    if (most == 0u) {
        return false;
    }
    let wanted = clamp(about / call.rows, 1u, most);
    let shortest = (call.row_length + wanted - 1u) / wanted;
    let section_length = (shortest + call.unit - 1u) / call.unit * call.unit;
    if (section_length > call.max_section_length) {
        return false;
    }
    let sections = (call.row_length + section_length - 1u) / section_length;
    choice[first] = call.row_length;
    choice[first + 1u] = section_length;
    choice[first + 2u] = sections;
    choice[first + 3u] = sections * call.rows;
    choice[first + 4u] = groups;
    choice[first + 5u] = sections * call.rows * groups;
    choice[first + 6u] = call.labels_step;
    choice[first + 7u] = 1u;
    choice[first + 8u] = bucket_bits;
    choice[first + 9u] = call.bucket_step;
    return true;
}

@compute @workgroup_size(1)
fn main() {
    for (var i = 0u; i < 16u; i++) {
        choice[i] = 0u;
        choice[PARTITIONED + i] = 0u;
        choice[STEP + i] = 0u;
    }
    choice[IS_SCANNED] = 0u;
    choice[IS_WHOLE] = 1u;
    let low = {{ "largest[0] & 0xffffu" if label_bits == 16 else "largest[0]" }};
    let high = {{ "largest[1]" if label_bits == 64 else "0u" }};
{% if checked %}
    if ({{ "low == 0xffffu" if label_bits == 16 else "low == 0xffffffffu && high == 0xffffffffu" if label_bits == 64 else "low == 0xffffffffu" }}) {
        validation_flag[0] = 1u;
    }
{% endif %}
    if (high != 0u || low >= max(call.max_labels, call.max_partitioned)) {
        return;
    }
    let groups = low + 1u;
    if (groups <= call.max_labels) {
        let fitting = max(call.wanted_carries / groups, call.least_sections);
        if (write_table(0u, groups, min(call.sections, fitting), call.max_carries / groups / call.rows, 0u)) {
            choice[IS_SCANNED] = 1u;
            return;
        }
    }
    if (groups > call.max_partitioned) {
        return;
    }
    let bits = 32u - countLeadingZeros(low);
    let bucket_bits = select(0u, bits - RADIX_BITS, bits > RADIX_BITS);
    let slots = call.max_carries >> bucket_bits;
    let buckets = (low >> bucket_bits) + 1u;
    if (slots > buckets && write_table(PARTITIONED, groups, call.sections, slots - buckets, bucket_bits)) {
        choice[IS_SCANNED] = 1u;
        choice[IS_WHOLE] = 0u;
        choice[STEP] = 1u;
        choice[STEP + 2u] = 1u;
        choice[STEP + 3u] = 1u;
        choice[STEP + 4u] = 1u;
        choice[STEP + 5u] = ((1u << RADIX_BITS) - 1u) | (bucket_bits << 16u);
    }
}
