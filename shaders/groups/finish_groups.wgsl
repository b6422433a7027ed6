{#- Join the carry of each element's section and label with what combine_tiles.wgsl has computed within the section.
    in:  locals, the labels; the table: for each section and label, the combination of what is before the section
    out: the destinations; if kernel.partitioned, locals -#}
{% include "groups/table.wgsl" %}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import store_result with context %}
{% include "groups/locals.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    if (params.total == 0u) {
        return;
    }
    let length = params.total / params.sections * params.row_length;
    let step_size = WORKGROUP_SIZE * STEPS;
    let begin = (workgroup.x + workgroup.y * grid.x) * step_size + invocation;
    for (var first = begin; first < length; first += grid.x * grid.y * step_size) {
{% for i in range(kernel.tile.chunk) %}
        let at{{ i }} = min(first + {{ i }}u * WORKGROUP_SIZE, length - 1u);
        let row{{ i }} = at{{ i }} / params.row_length;
        let position{{ i }} = at{{ i }} - row{{ i }} * params.row_length;
        let label{{ i }} = label_at(row{{ i }}, position{{ i }});
        let local{{ i }} = load_local(at{{ i }});
{% endfor %}
{% for i in range(kernel.tile.chunk) %}
{% if kernel.partitioned %}
        let carry{{ i }} = read_carry(carry_index(at{{ i }} / params.section_length, label{{ i }}));
{% else %}
        let carry{{ i }} = read_carry((row{{ i }} * params.sections + position_of(position{{ i }}) / params.section_length) * params.groups + label{{ i }});
{% endif %}
{% endfor %}
{% for i in range(kernel.tile.chunk) %}
        let joined{{ i }} = join(carry{{ i }}, local{{ i }});
        if (first + {{ i }}u * WORKGROUP_SIZE < length) {
{% if kernel.partitioned %}
            store_local(at{{ i }}, item_to_words(joined{{ i }}));
{% else %}
{{ store_result("at%d" % i, "joined%d" % i) | indent(8) -}}
{% endif %}
        }
{% endfor %}
    }
}
