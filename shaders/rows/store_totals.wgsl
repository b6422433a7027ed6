{#- Last dispatch of a reduction in any order: reduce whole rows, or combine the totals of their parts.
    in:  the sources and the initial values, or the totals of the parts
    out: the destinations -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "rows/fold.wgsl" %}
{% include "rows/totals.wgsl" %}

fn store_total(result: u32, total: Item) {
    let whole = {{ "combine(seed(result), total)" if spec.initial else "total" }};
    store_result(result, {{ text.map_result("whole") }});
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let number = workgroup.x + workgroup.y * grid.x;
{% if kernel.tile.columns %}
    if (number >= count_rows()) {
        return;
    }
    let span = span_of(number);
    reduce(span, invocation);
    for (var column = invocation; column < params.inner; column += LANES) {
        store_total(number * params.inner + column, total_of_column(column, span));
    }
{% else %}
    let row = number * PARTS + invocation / LANES;
    let total = reduce(span_of(row), invocation);
    if (invocation % LANES == 0u && row < count_rows()) {
        store_total(row, total);
    }
{% endif %}
}
