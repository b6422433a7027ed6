{#- The prefix by look-back. A wait that outlasts its bound is reported, and the tile writes nothing. -#}
{% include "parts/single_pass.wgsl" %}

fn learn_prefix(invocation: u32, tile: u32, aggregate: Item) -> Prefix {
    if (invocation == 0u) {
        post_aggregate(tile, aggregate);
    }
    var block: u32;
    var carry: Item;
{% if kernel.block_in_subgroup %}
    if (invocation < SUBGROUP_SIZE) {
        begin_walk(invocation, tile, &block, &carry);
    }
{% else %}
    begin_walk(invocation, tile, &block, &carry);
{% endif %}
    var known = {{ "true" if kernel.carried else "block > 0u" }};
    let learned = walk(invocation, tile, aggregate, &block, &carry, &known) == NO_TILE;
    if (!learned && invocation == 0u) {
        report_timeout();
    }
    return Prefix(learned, shared_known != 0u, shared_prefix);
}
