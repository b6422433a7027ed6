{#- First dispatch of a reduction in any order: compute the aggregate of every part of a row, or of each of its columns.
    in:  the sources
    out: the totals of the parts -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "rows/fold.wgsl" %}
{% include "rows/totals.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let number = workgroup.x + workgroup.y * grid.x;
{% if kernel.tile.columns %}
    if (number >= params.tiles) {
        return;
    }
    let span = span_of(number);
    reduce(span, invocation);
    for (var column = invocation; column < params.inner; column += LANES) {
        write_total(number * params.inner + column, total_of_column(column, span));
    }
{% else %}
    let part = number * PARTS + invocation / LANES;
    let aggregate = reduce(span_of(part), invocation);
    if (invocation % LANES == 0u && part < params.tiles) {
        write_total(part, aggregate);
    }
{% endif %}
}
