{#- First dispatch of three_dispatch for columns: every tile's aggregate of each column.
    in:  the source
    out: tile totals -#}
{% include "parts/header.wgsl" %}
{% include "parts/element.wgsl" %}
{% include "parts/operator.wgsl" %}
{% include "parts/columns_load_store.wgsl" %}
{% include "parts/columns_tile.wgsl" %}
{% include "parts/columns_totals.wgsl" %}
{% include "parts/grid.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let tile = tile_of(invocation, workgroup, grid);
    if (tile >= params.tiles) {
        return;
    }
    let aggregate = reduce_tile(tile, invocation);
    if (invocation < COLUMNS) {
        write_total(tile, invocation, aggregate);
    }
}
