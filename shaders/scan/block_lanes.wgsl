{#- Functions of the BLOCK lanes that look at BLOCK tiles at once: the first subgroup if it is wide enough, otherwise
    the first BLOCK invocations, through workgroup memory. In that case all invocations call, since the functions have
    barriers. -#}
{% from "scan/shared_scan.wgsl" import shared_scan with context %}
{% from "scan/subgroup_scan.wgsl" import subgroup_scan with context %}
// ----- Lanes of a block
{% if kernel.block_in_subgroup %}
{{ subgroup_scan("scan_block", kernel.tile.block, kernel.loops_over_block) }}
{% else %}
{{ shared_scan("scan_block", kernel.tile.block) }}
fn block_item(invocation: u32, item: Item, lane: u32) -> Item {
    scratch[invocation] = {{ text.to_shared("item") }};
    workgroupBarrier();
    let lane_item = {{ text.from_shared("scratch[lane]") }};
    workgroupBarrier();
    return lane_item;
}

var<workgroup> lane_conditions: array<u32, BLOCK>;
var<workgroup> first_lane: u32;

// Return the first lane of the block where the condition holds; BLOCK or more if there is none.
fn first_lane_where(invocation: u32, condition: bool) -> u32 {
    if (invocation < BLOCK) {
        lane_conditions[invocation] = select(0u, 1u, condition);
    }
    workgroupBarrier();
    if (invocation == 0u) {
        var lane = 0u;
        while (lane < BLOCK && lane_conditions[min(lane, BLOCK - 1u)] == 0u) {
            lane++;
        }
        first_lane = lane;
    }
    return workgroupUniformLoad(&first_lane);
}
{% endif %}
