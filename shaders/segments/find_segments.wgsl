{#- First stage of a reduction of segments. The first workgroups find where the segments of each tile begin. The others
    look at all segments: they mark where segments begin, store the results of empty ones and check the offsets.
    in:  the offsets, the results of empty segments of each row
    out: heads, cleared before; the first segments of tiles in memory; the destinations; the validation flag -#}
{% include "segments/call.wgsl" %}
{% if kernel.fills %}
@group(0) @binding({{ kernel.binding_of("fills") }}) var<storage, read> fills: array<u32>;
{% endif %}

// Return the number of the first segment that begins at this position or later.
fn find_segment(position: u32) -> u32 {
{% if kernel.access.several_rows %}
    let row = position / params.row_length;
{% else %}
    let row = 0u;
{% endif %}
    let wanted = position - row * params.row_length;
    var low = 0u;
    var high = params.segments;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        if (offset_at(middle) < wanted) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return row * params.segments + low;
}

fn mark(position: u32) {
    atomicOr(&heads[position >> 5u], 1u << (position & 31u));
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let number = workgroup.x + workgroup.y * grid.x;
    if (number < params.searches) {
        let tile = number * WORKGROUP_SIZE + invocation;
        if (tile < params.tiles) {
            memory[first_of_tile(tile)] = find_segment(tile * TILE_SIZE);
        } else if (tile == params.tiles) {
            memory[first_of_tile(tile)] = params.all_segments;
            mark(params.length);
        }
        return;
    }
    let first = (number - params.searches) * (WORKGROUP_SIZE * {{ kernel.segments_each }}u) + invocation;
{% for i in range(kernel.segments_each) %}
    let segment{{ i }} = first + {{ i }}u * WORKGROUP_SIZE;
    let offsets{{ i }} = offsets_of(min(segment{{ i }}, params.all_segments - 1u));
{% endfor %}
{% for i in range(kernel.segments_each) %}
    if (segment{{ i }} < params.all_segments) {
        let span{{ i }} = span_by(segment{{ i }}, offsets{{ i }});
        if (span{{ i }}.start < span{{ i }}.stop) {
            mark(span{{ i }}.start);
        }
{% if kernel.fills %}
        else {
            let at = {{ "segment%d / params.segments * %du" % (i, spec.result.words) if kernel.access.several_rows else "0u" }};
            store_result(segment{{ i }}, {{ text.result_from_words("fills", "at + ") }});
        }
{% endif %}
{% if kernel.checked %}
        if (segment{{ i }} < params.segments) {
            check_offsets(segment{{ i }}, offsets{{ i }}.start, offsets{{ i }}.stop, params.row_length, params.segments);
        }
{% endif %}
    }
{% endfor %}
}
