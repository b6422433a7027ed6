{#- What lookback and fallback share: the look-back, and its outcome for the whole workgroup. -#}
{% from "scan/by_lanes.wgsl" import by_lanes with context %}
{% if kernel.wait_policy.one_workgroup_folds %}
{% include "scan/look_back_by_fold.wgsl" %}
{% else %}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/look_back_in_row.wgsl" if kernel.tile.per_row else "scan/look_back.wgsl" %}
// ----- Prefix of a tile
var<workgroup> shared_late: u32;  // the tile that the look-back waits for, or NO_TILE
var<workgroup> shared_prefix: {{ text.shared_item }};

// Look back once, by the lanes of a block, for the whole workgroup. Return NO_TILE or the late tile.
fn share_look_back(invocation: u32, tile: u32, aggregate: Item) -> u32 {
{% call by_lanes() %}
    var prefix = aggregate;
    let late = look_back(invocation, tile, aggregate, &prefix);
    if (invocation == 0u) {
        shared_late = late;
        shared_prefix = {{ text.to_shared("prefix") }};
    }
{% endcall %}
    workgroupBarrier();
    return workgroupUniformLoad(&shared_late);
}
{% endif %}
