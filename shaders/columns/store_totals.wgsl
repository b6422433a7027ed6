{#- Last dispatch of a reduction down columns: reduce tiles that hold whole columns, or combine the totals of the tiles
    that hold parts of columns.
    in:  the sources and the initial values, or the tile totals
    out: the destinations -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "columns/load_store.wgsl" %}
{% include "columns/totals.wgsl" %}
{% include "columns/fold.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let chain = workgroup.x + workgroup.y * grid.x;
    if (chain >= chains_of_columns()) {
        return;
    }
    let total = {{ "reduce_tile" if kernel.strategy == "alone" else "combine_totals" }}(chain, invocation);
    if (invocation < COLUMNS) {
        store_totals(position_of(chain, invocation), total);
    }
}
