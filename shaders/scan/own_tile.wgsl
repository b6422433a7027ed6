{#- The beginning of a main function: find the workgroup's tile, and end if the workgroup has nothing to do.
    Defines: tile. #}
{% if kernel.strategy == "lookahead" %}
    let tile = ticket_of(invocation, workgroup, grid) - 1u;  // ticket 0 looks ahead, and has NO_TILE
{% else %}
    let tile = {{ "ticket_of" if kernel.posts else "tile_of" }}(invocation, workgroup, grid);
{% endif %}
    if (tile >= params.tiles{{ " && tile != NO_TILE" if kernel.strategy == "lookahead" }}) {
        return;
    }
{% if kernel.stage == "scan" and kernel.strategy == "three_dispatch" and spec.keep_last_only and not spec.reduces_segments %}
    if (!has_end(tile)) {
        return;  // the tile stores nothing, and no other tile waits for it
    }
{% endif %}
{% if kernel.wait_policy.at_once %}
    if (invocation == 0u) {
        shared_late = 0u;  // workgroup memory need not begin as zero
    }
{% endif %}
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        report_subgroup_size();
        return;
    }
{% endif %}
