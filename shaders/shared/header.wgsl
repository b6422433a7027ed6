{#- The beginning of every stage: language extensions, the constants of the plan, and the parameters of the call. -#}
{% include "shared/extensions.wgsl" %}
const WORKGROUP_SIZE = {{ kernel.tile.workgroup_size }}u;  // invocations
{% if kernel.subgroups %}
const SUBGROUP_SIZE = {{ kernel.tile.subgroup_size }}u;  // lanes
{% endif %}
const STEPS = {{ kernel.tile.steps }}u;  // chunks an invocation takes
const CHUNK = {{ kernel.tile.chunk }}u;  // neighbouring elements in a chunk
const TILE_SIZE = {{ kernel.tile.tile_size }}u;  // elements
const BLOCK = {{ kernel.tile.block }}u;  // tiles that are scanned together

struct Params {
    length: u32,  // elements in all rows together
    tiles: u32,
    epoch: u32,  // tag of this run's posts, 1 to 65535
    spin_rounds: u32,  // polls of a late post, in rounds of {{ kernel.wait_policy.spins_per_round }}
    row_length: u32,  // elements from one row's head to the next's
    first_row: u32,  // of the seeds: the row that element 0 belongs to
    row_offset: u32,  // elements of that row before element 0
    inner: u32,  // rows that are interleaved in memory; 1 if none are
}
@group(0) @binding(0) var<uniform> params: Params;
