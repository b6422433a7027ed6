{#- Second dispatch of three_dispatch for columns: each invocation walks down the tiles of its columns and puts each
    tile's prefix in the place of its aggregate. No tile uses the first one's. Loads of several tiles are under way at a
    time.
    in, out: the tile totals -#}
{% set loads = 8 %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "columns/chunk.wgsl" %}
{% include "columns/totals.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let at = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    let chain = at / COLUMNS;
    let lane = at % COLUMNS;
    let chains = chains_of_columns();
    if (chain >= chains) {
        return;
    }
    var carry = read_total(chain, lane);
    var tile = chain + chains;
    for (; tile + {{ loads - 1 }}u * chains < params.tiles; tile += {{ loads }}u * chains) {
{% for i in range(loads) %}
        let total{{ i }} = read_total(tile + {{ i }}u * chains, lane);
{% endfor %}
{% for i in range(loads) %}
        write_total(tile + {{ i }}u * chains, lane, carry);
        carry = join_chunks(carry, total{{ i }});
{% endfor %}
    }
    for (; tile < params.tiles; tile += chains) {
        let total = read_total(tile, lane);
        write_total(tile, lane, carry);
        carry = join_chunks(carry, total);
    }
}
