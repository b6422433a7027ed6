{#- First dispatch of three_dispatch: compute the aggregate of every tile (Merrill & Grimshaw 2009, reduce-then-scan).
    in:  the sources
    out: the tile totals: the aggregate of each tile -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% include "scan/totals.wgsl" %}
{% include "shared/grid.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if kernel.subgroups %}
    @builtin(subgroup_size) subgroup_size: u32,
{% endif %}
) {
{% include "scan/own_tile.wgsl" %}
    let aggregate = reduce_tile(tile, invocation);
    if (invocation == 0u) {
        write_total(tile, aggregate);
    }
}
