{#- One pass over the array that stores nothing but the last result of each row, of an operator that gives the same bits
    in any order. No element is scanned: a tile has its aggregate, and only the tile that ends a row needs its prefix.
    in:  the source, the seeds where there are any, the tile state
    out: the destination
    strategies: as in scan.wgsl -#}
{% from "scan/prefix_result.wgsl" import await_prefix, name_prefix with context %}
{% from "shared/posts.wgsl" import post_aggregate with context %}
{% set scheduler = kernel.test_build.scheduler if kernel.posts else "" %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% include "scan/prefix_%s.wgsl" % (kernel.strategy if kernel.posts else "three_dispatch") %}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_size) subgroup_size: u32" if kernel.subgroups else "") }} {
{% include "scan/begin_tile.wgsl" %}
{% if scheduler == "random" %}
    idle(LOADS, tile, {{ "invocation / SUBGROUP_SIZE" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}
{% if kernel.strategy == "lookahead" %}
    var aggregate = Item();
    if (tile != NO_TILE) {
        aggregate = reduce_tile(tile, invocation);
{% if scheduler == "random" %}
        idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{{ (post_aggregate() | indent(4, true)).rstrip() }}
        if (!has_end(tile){{ " && awaited(tile) == tile" if spec.carry_out }}) {  // its prefix is not needed
{% if scheduler == "serial" %}
            leave();
{% endif %}
            return;
        }
    }
{% else %}
    let aggregate = reduce_tile(tile, invocation);
{% if scheduler == "random" %}
    idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{% if kernel.posts %}
{{ post_aggregate() -}}
{% endif %}
{% endif %}
{{ await_prefix() -}}
{{ name_prefix().rstrip() }}
    if (invocation == 0u && has_end(tile)) {
        let total = pick(has_prefix, join(prefix, aggregate), aggregate);
        let begin = {{ "start_of(tile)" if kernel.tile.per_row else "tile * TILE_SIZE" }};
        store_result(row_of(begin), {{ text.map_result("total") }});
    }
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
