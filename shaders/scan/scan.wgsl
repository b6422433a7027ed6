{#- One pass over the array: load a tile, scan it, learn its prefix, store.
    in:  the sources, the initial values, the tile state
    out: the destinations
    strategy lookahead:      the first workgroup folds the aggregates of all tiles and posts their prefixes
    strategy lookback:       decoupled look-back (Merrill & Garland 2016); of many tiles, one waiting workgroup folds
    strategy fallback:       the same, but a waiting workgroup reduces a late tile itself (Smith, Levien & Owens 2025)
    strategy three_dispatch: reduce.wgsl and scan_totals.wgsl have computed the prefix before
    strategy alone:          a tile holds a whole row and has no prefix -#}
{% set scheduler = kernel.test_build.scheduler if kernel.posts else "" %}
{% from "scan/halves.wgsl" import chunk_slot, loaded_items with context %}
{% from "shared/posts.wgsl" import post_aggregate with context %}
{% from "scan/prefix_result.wgsl" import await_prefix, look_for_prefix, name_prefix, share_look_back with context %}
{% from "scan/subgroup_scan.wgsl" import first_of, load_steps, chunk_start, scan_bands, scan_steps with context %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% if spec.everywhere %}
{% include "scan/carry_in.wgsl" %}
{% if kernel.posts %}
{% include "shared/tile_state.wgsl" %}
{% else %}
{% include "scan/totals.wgsl" %}
{% endif %}
{% if kernel.strategy != "alone" %}

const TILE_LEADS = {{ kernel.tile_leads }}u;
var<workgroup> tile_leads: array<{{ text.shared_item }}, TILE_LEADS>;  // totals of halves, and the fold of all spans
{% endif %}
{% if kernel.posts %}
{% include "scan/look_back_in_halves.wgsl" %}
{% endif %}
{% else %}
{% include "scan/prefix_%s.wgsl" % (kernel.strategy if kernel.posts else "three_dispatch") %}
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_size) subgroup_size: u32" if kernel.subgroups else "") }} {
{% include "scan/begin_tile.wgsl" %}
{% if kernel.subgroups %}
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
{% if scheduler == "random" %}
    idle(LOADS, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}

{% set for_exchange = ", invocation" if kernel.exchanges_chunks else "" %}
{% set tile_scanned %}
    // 1. Load every chunk, so that all reads are under way together.
    let first = {{ first_of("at_hand" if kernel.reloads_after_help else "tile") }};
{{ load_steps() }}

{% include "scan/scan_tile.wgsl" %}

{% if spec.compacts %}
{% for step in range(kernel.tile.steps) %}
    rank_chunk({{ chunk_start(step) }} - tile * TILE_SIZE, loaded[{{ step }}], join_chunk(led, tile_lead, chunk{{ step }}));
{% endfor %}
    workgroupBarrier();
{% endif %}

{% if spec.everywhere %}
{% include "scan/store_halves.wgsl" %}
{% else %}
    // 3. Learn the prefix of the tile.
{% if scheduler == "random" %}
    idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{% if kernel.posts %}
{{ post_aggregate("at_hand" if kernel.reloads_after_help else "tile") -}}
{% endif %}
{% if kernel.reloads_after_help %}
    if (at_hand != tile) {
        storageBarrier();
        at_hand = tile;
        continue;
    }
{{ share_look_back().rstrip() }}
    if (late != NO_TILE) {
        at_hand = late;
        continue;
    }
{% elif kernel.strategy == "lookahead" %}
    let outcome = {{ look_for_prefix() }};
    if (outcome == FOLD) {
        folds = true;
        continue;
    }
    if (outcome == LATE) {
        report_timeout();
        return;
    }
{% else %}
{{ await_prefix() -}}
{% endif %}
{{ name_prefix() -}}
{% if scheduler == "random" %}
    idle(STORES, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}
{% include "scan/store_tile.wgsl" %}
{% endif %}
{% endset %}
{% if kernel.repeats_tile %}
{% if kernel.reloads_after_help %}
    // Each iteration but the last computes the aggregate of a late tile. No element of the own tile is kept meanwhile.
    var at_hand = tile;
{% else %}
    // A workgroup that has to fold drops its tile, and loads it again. No element is kept meanwhile.
    var folds = tile == NO_TILE;
{% endif %}
{% if kernel.target.driver_ends_loops %}
    var ended = false;
{% endif %}
    loop {
{% if not kernel.reloads_after_help %}
        if (folds) {
            if (!fold_for_all(invocation, tile)) {
{% if scheduler == "serial" %}
                leave();
{% endif %}
                return;
            }
            folds = false;
        }
{% endif %}
{{ tile_scanned | indent(4, true) }}
{%- if kernel.target.driver_ends_loops %}
        ended = true;
{% endif %}
        break;
    }
{% if kernel.target.driver_ends_loops %}
    if (!ended) {  // the driver ended the loop, perhaps only for some invocations
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
