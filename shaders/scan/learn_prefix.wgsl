{#- Step 3 of a tile: learn its prefix, as the strategy does (scan/prefix_*.wgsl).
    in:  `aggregate`, which is posted for other tiles
    out: `prefix`, `has_prefix` #}
{% from "scan/prefix_result.wgsl" import await_prefix, name_prefix, share_look_back with context %}
{% from "shared/posts.wgsl" import post_aggregate with context %}
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
{{ share_look_back() -}}
    if (late != NO_TILE) {
        at_hand = late;
        continue;
    }
{% elif kernel.strategy == "lookahead" %}
    let outcome = try_prefix(invocation, tile);
    if (outcome == FOLD) {
        folds = true;
        continue;
    }
    if (outcome == LATE) {
        return;
    }
{% else %}
{{ await_prefix() -}}
{% endif %}
{{ name_prefix() -}}
{% if scheduler == "random" %}
    idle(STORES, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}
