{#- What the single-pass strategies share: tickets, lanes, the walk, and the walk's result for the whole workgroup. -#}
{% include "parts/tile_state.wgsl" %}
{% include "parts/block_lanes.wgsl" %}
{% include "parts/look_back.wgsl" %}
{% include "parts/prefix_result.wgsl" %}

var<workgroup> shared_late: u32;  // the tile that the walk waits for, or NO_TILE
var<workgroup> shared_known: u32;
var<workgroup> shared_prefix: Item;

// One turn of the walk, by the lanes of a block; its outcome for the whole workgroup.
fn walk(
    invocation: u32,
    tile: u32,
    aggregate: Item,
    block: ptr<function, u32>,
    carry: ptr<function, Item>,
    known: ptr<function, bool>,
) -> u32 {
{% if kernel.block_in_subgroup %}
    if (invocation < SUBGROUP_SIZE) {
        share_walk(invocation, continue_walk(invocation, tile, aggregate, block, carry, known), *known, *carry);
    }
{% else %}
    share_walk(invocation, continue_walk(invocation, tile, aggregate, block, carry, known), *known, *carry);
{% endif %}
    workgroupBarrier();
    return workgroupUniformLoad(&shared_late);
}

fn share_walk(invocation: u32, late: u32, known: bool, carry: Item) {
    if (invocation == 0u) {
        shared_late = late;
        shared_known = select(0u, 1u, known);
        shared_prefix = carry;
    }
}

fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    return take_ticket(invocation, grid);
}
{% if kernel.subgroups %}

fn report_width() {
    atomicStore(&state[WIDTH], params.epoch);
}
{% endif %}
