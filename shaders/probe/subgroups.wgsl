// Which subgroup sizes do shaders really get, and do lanes follow local_invocation_index?
//
// In:  results, zeroed; a few workgroups.
// Out: results.subgroup_sizes: the bitwise or of all sizes.
//      results.lanes_out_of_order: the number of invocations i in another lane than i mod the size, by the lane's
// number or      by a shuffle.
{% if enable_subgroups %}enable subgroups;  // WebGPU asks for the line; naga has the feature on, and refuses it
{% endif %}
{% include "probe/results.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let first = subgroupShuffle(local_index, 0u);
    let in_order = lane == local_index % subgroup_size && first + lane == local_index;
    atomicOr(&results.subgroup_sizes, subgroup_size);
    if (!in_order) {
        atomicAdd(&results.lanes_out_of_order, 1u);
    }
}
