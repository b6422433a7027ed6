{#- The operator, and the join of items that it gives. Comes in: kernel.combine (its code), kernel.before,
    kernel.after. `combine` must be associative; it need not commute, so `a` is always the left operand. -#}
{% set helpers = kernel.helpers %}
{% if helpers %}
{% include "parts/arithmetic.wgsl" %}
{% endif %}

// ----- Operator: {{ kernel.operator_label }}
{{ kernel.combine.source }}
{% if kernel.combine.loops %}
{% include "parts/turns.wgsl" %}
{% endif %}

{% if kernel.segmented %}
// The operator lifted over head flags (Blelloch 1990, segmented scans): a head in `b` cuts `a` off.
fn join(a: Item, b: Item) -> Item {
    let joined = Item(combine(a.value, b.value), a.head | b.head);
    return pick(b.head != 0u, b, joined);
}
{% else %}
fn join(a: Item, b: Item) -> Item {
    return combine(a, b);
}
{% endif %}
