{#- First dispatch of three_dispatch for columns: compute the aggregate of each column of every tile.
    in:  the sources
    out: the tile totals -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "columns/load_store.wgsl" %}
{% include "columns/fold.wgsl" if kernel.reduces_columns else "columns/tile.wgsl" %}
{% include "columns/totals.wgsl" %}

{% from "shared/main.wgsl" import main %}
{% from "shared/take_tile.wgsl" import number_tile with context %}
{{ main() }} {
{{ number_tile().rstrip() }}
    if (tile >= params.tiles) {
        return;
    }
    let aggregate = reduce_tile(tile, invocation);
    if (invocation < COLUMNS) {
        write_total(tile, invocation, aggregate);
    }
}
