{#- Step 3 of a tile: learn its prefix, as the strategy does (scan/prefix_*.wgsl).
    in:  `aggregate`
    out: `prefix` -#}
    // 3. Learn the prefix of the tile.
{% if scheduler == "random" %}
    idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{% if kernel.reloads_after_help %}
    if (at_hand != tile) {
        post_late(invocation, at_hand, aggregate);
        at_hand = tile;
        continue;
    }
    let late = try_prefix(invocation, tile, aggregate);
    if (late != NO_TILE) {
        at_hand = late;
        continue;
    }
    let prefix = prefix_found(tile);
{% elif kernel.strategy == "lookahead" %}
    let outcome = try_prefix(invocation, tile, aggregate);
    if (outcome == FOLD) {
        folds = true;
        continue;
    }
    if (outcome == LATE) {
        return;
    }
    let prefix = prefix_found(tile);
{% elif kernel.posts %}
    if (!await_prefix(invocation, tile, aggregate)) {
        return;
    }
    let prefix = prefix_found(tile);
{% else %}
    let prefix = learn_prefix(invocation, tile, aggregate);
{% endif %}
{% if scheduler == "random" %}
    idle(STORES, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}
