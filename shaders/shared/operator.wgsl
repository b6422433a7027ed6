{#- The operator, and the join of items that follows from it. Values: spec.combine, spec.before, spec.after.
    `combine` must be associative. It need not commute, so `a` is always the left operand. -#}
{% include "shared/captured.wgsl" %}
{% set helpers = text.helpers %}
{% set native_int64 = text.native_int64 %}
{% set branches = not kernel.target.is_cpu_adapter %}
{% if helpers %}
{% include "shared/arithmetic.wgsl" %}
{% endif %}

// ----- Operator: {{ kernel.operator_label }}
{{ spec.combine.source }}
{% if spec.combine.loops %}
{% include "shared/loop_limit.wgsl" %}
{% endif %}

{% if kernel.segmented %}
// Combine two items with head flags (Blelloch 1990, segmented scans): a head in `b` cuts `a` off.
fn join(a: Item, b: Item) -> Item {
    let heads = a.head {{ "+" if spec.reduces_segments else "|" }} b.head;
    return pick(b.head != 0u, Item(b.value, heads), Item(combine(a.value, b.value), heads));
}
{% else %}
fn join(a: Item, b: Item) -> Item {
    return combine(a, b);
}
{% endif %}
