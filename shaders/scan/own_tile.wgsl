{#- The beginning of a main function: find the workgroup's tile, and end if the workgroup has nothing to do.
    Defines: tile. #}
    let tile = tile_of(invocation, workgroup, grid);
    if (tile >= params.tiles{{ " && tile != NO_TILE" if kernel.strategy == "lookahead" }}) {
        return;
    }
{% if kernel.stage == "scan" and kernel.strategy == "three_dispatch" and spec.keep_last_only and not spec.reduces_segments %}
    if (!has_end(tile)) {
        return;  // the tile stores nothing, and no other tile waits for it
    }
{% endif %}
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        report_subgroup_size();
        return;
    }
{% endif %}
