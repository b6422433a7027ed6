{#- First dispatch of three_dispatch: compute the aggregate of every tile (Merrill & Grimshaw 2009, reduce-then-scan).
    in:  the sources
    out: the tile totals: the aggregate of each tile -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% include "scan/totals.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_size) subgroup_size: u32" if kernel.subgroups else "") }} {
{% include "scan/begin_tile.wgsl" %}
    let aggregate = reduce_tile(tile, invocation);
    if (invocation == 0u) {
        write_total(tile, aggregate);
    }
}
