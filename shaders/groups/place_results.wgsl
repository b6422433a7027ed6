{#- Store the result of each element, which was moved when elements were sorted by the buckets of their labels.
    in:  locals: the results where the elements were moved to; moves: the position of each
    out: the destinations -#}
{% include "groups/table.wgsl" %}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import store_result with context %}
{% include "groups/locals.wgsl" %}
@group(0) @binding({{ kernel.binding_of("moves") }}) var<storage, read> moves: array<u32>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    if (params.total == 0u) {
        return;
    }
    let step_size = WORKGROUP_SIZE * STEPS;
    let begin = (workgroup.x + workgroup.y * grid.x) * step_size + invocation;
    for (var first = begin; first < params.row_length; first += grid.x * grid.y * step_size) {
{% for i in range(kernel.tile.chunk) %}
        let at{{ i }} = min(first + {{ i }}u * WORKGROUP_SIZE, params.row_length - 1u);
        let moved_to{{ i }} = moves[at{{ i }}];
{% endfor %}
{% for i in range(kernel.tile.chunk) %}
        let item{{ i }} = load_local(moved_to{{ i }});
{% endfor %}
{% for i in range(kernel.tile.chunk) %}
        if (first + {{ i }}u * WORKGROUP_SIZE < params.row_length) {
{{ (store_result("at%d" % i, "item%d" % i) | indent(8)).rstrip() }}
        }
{% endfor %}
    }
}
