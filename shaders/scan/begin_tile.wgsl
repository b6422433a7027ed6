{#- The beginning of a main function: find the workgroup's tile, and end if the workgroup has nothing to do.
    Defines: tile. #}
{% from "shared/take_tile.wgsl" import number_tile, take_ticket with context %}
{% if kernel.posts %}
{{ take_ticket("tile", " - 1u" if kernel.strategy == "lookahead" else "") -}}
{% else %}
{{ number_tile() -}}
{% endif %}
{% if kernel.strategy == "lookahead" %}
    if (tile >= params.tiles && tile != NO_TILE) {  // ticket 0 looks ahead, and has NO_TILE
{% else %}
    if (tile >= params.tiles) {
{% endif %}
        return;
    }
{% if kernel.stage == "scan" and kernel.strategy == "three_dispatch" and spec.keep_last_only and not spec.reduces_segments %}
    if (!has_end(tile)) {
        return;  // the tile stores nothing, and no other tile waits for it
    }
{% endif %}
{% set may_be_late = kernel.wait_policy.at_once or (spec.everywhere and kernel.posts) %}
{% set may_be_exact = spec.everywhere and spec.combine.bounded %}
{% if may_be_late or may_be_exact %}
    if (invocation == 0u) {  // workgroup memory need not begin as zero
{% if may_be_late %}
        shared_late = 0u;
{% endif %}
{% if may_be_exact %}
        shared_exact = 0u;
{% endif %}
    }
{% endif %}
{% if may_be_exact %}
    workgroupBarrier();
{% endif %}
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        {{ "atomicStore(&state.subgroup_size, params.epoch)" if kernel.posts else "state.subgroup_size = params.epoch" }};
        return;
    }
{% endif %}
