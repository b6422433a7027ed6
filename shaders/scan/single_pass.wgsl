{#- What lookback and fallback share: the numbers of tiles, the look-back, and its outcome for the whole workgroup. -#}
{% from "scan/by_lanes.wgsl" import by_lanes with context %}
{% if kernel.wait_policy.one_workgroup_folds %}
{% include "scan/look_back_by_fold.wgsl" %}
{% else %}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/look_back_in_row.wgsl" if kernel.tile.per_row else "scan/look_back.wgsl" %}
{% include "scan/prefix_result.wgsl" %}

var<workgroup> shared_late: u32;  // the tile that the look-back waits for, or NO_TILE
var<workgroup> shared_known: u32;
var<workgroup> shared_prefix: {{ text.shared_item }};

// Look back once, by the lanes of a block, for the whole workgroup. Return NO_TILE or the late tile.
fn share_look_back(invocation: u32, tile: u32, aggregate: Item) -> u32 {
{{ by_lanes("look_back_and_share(invocation, tile, aggregate)") }}
    workgroupBarrier();
    return workgroupUniformLoad(&shared_late);
}

fn look_back_and_share(invocation: u32, tile: u32, aggregate: Item) {
    var prefix = aggregate;
    var known = false;
    let late = look_back(invocation, tile, aggregate, &prefix, &known);
    if (invocation == 0u) {
        shared_late = late;
        shared_known = select(0u, 1u, known);
        shared_prefix = {{ text.to_shared("prefix") }};
    }
}

fn prefix_found(tile: u32) -> Prefix {
    return Prefix(shared_known != 0u, {{ text.from_shared("shared_prefix") }});
}
{% endif %}

fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    return ticket_of(invocation, workgroup, grid);
}
