{#- One pass over the array: load a tile, scan it, learn its prefix, store.
    in:  the source, the seeds where there are any, the tile state
    out: the destination
    strategy lookahead:      the prefix from the first workgroup, which folds all tiles' aggregates
    strategy lookback:       the prefix by decoupled look-back (Merrill & Garland 2016); of many tiles, folded by one
    strategy fallback:       the same; a late tile is reduced by whoever waits (Smith, Levien & Owens 2025)
    strategy three_dispatch: the prefix was computed before, by reduce.wgsl and scan_totals.wgsl
    strategy alone:          nothing comes before a tile, which holds a whole row -#}
{% set scheduler = kernel.scheduler if kernel.posts else "" %}
{% from "scan/subgroup_scan.wgsl" import place, scan_steps with context %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% include "scan/prefix_" ~ kernel.strategy ~ ".wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if kernel.subgroups %}
    @builtin(subgroup_size) subgroup_size: u32,
{% endif %}
) {
    let tile = tile_of(invocation, workgroup, grid);
    if (tile >= params.tiles) {
        return;
    }
{% if spec.keep_last_only and kernel.strategy == "three_dispatch" %}
    if (!has_end(tile)) {
        return;  // nothing to store, and no one waits for it
    }
{% endif %}
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        report_width();
        return;
    }
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
{% if scheduler == "random" %}
    idle(LOADS, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}

{% set for_exchange = ", invocation" if kernel.exchanges_chunks else "" %}
{% set tile_scanned %}
{% include "scan/load_tile.wgsl" %}

{% include "scan/scan_tile.wgsl" %}

{% if spec.compacts %}
{% for step in range(kernel.tile.steps) %}
    rank_chunk({{ place(step) }} - tile * TILE_SIZE, loaded{{ step }}, join_chunk(led, tile_lead, chunk{{ step }}));
{% endfor %}
    workgroupBarrier();
{% endif %}

{% include "scan/learn_prefix.wgsl" %}
{% include "scan/store_tile.wgsl" %}
{% endset %}
{% if kernel.reloads_after_help %}
    // Each turn but the last is for a late tile, whose aggregate is all that is wanted: no element is held meanwhile.
    var at_hand = tile;
    loop {
{{ tile_scanned | indent(4, true) }}
{%- if kernel.target.driver_ends_loops %}
        at_hand = NO_TILE;
{% endif %}
        break;
    }
{% if kernel.target.driver_ends_loops %}
    if (at_hand != NO_TILE) {  // the loop was left by force, if only for some invocations
        report_timeout();
    }
{% endif %}
{% else %}
{{ tile_scanned -}}
{% endif %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
