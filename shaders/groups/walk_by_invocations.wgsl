{#- The main function of stages that combine sections, without subgroups: each invocation walks along a section of its
    own, with its carries in the table. -#}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_section, load_elements, store_result with context %}
{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let section = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (section >= params.total) {
        return;
    }
{{ bounds_of_section().rstrip() }}
    for (var first = begin; first < end; first += STEPS) {
{% for i in range(kernel.tile.chunk) %}
        let number{{ i }} = min(first + {{ i }}u, end - 1u);
{% endfor %}
{{ load_elements() | indent(4) -}}
{% for i in range(kernel.tile.chunk) %}
        if ((first + {{ i }}u < end){{ " & (label%d < params.groups)" % i if kernel.checked }}) {
            let carry_at = section * params.groups + label{{ i }};
            let known = table[carry_at] != 0u;
            let carry = read_carry(carry_at);
            let result = pick(known, join(carry, e{{ i }}), e{{ i }});
            write_carry(carry_at, result);
{% if kernel.stores_results %}
{% if spec.exclusive %}
            let start = seed(row);
            let stored = pick(known, carry, start);
{% else %}
            let stored = result;
{% endif %}
{{ store_result("at%d" % i, "stored") | indent(8) -}}
{% endif %}
        }
{% endfor %}
    }
{% if kernel.checked %}
    report_labels();
{% endif %}
}
