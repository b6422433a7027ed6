{#- The main function of a stage that combines stretches in any order, with an operator that WGSL has as an atomic. Each
    workgroup takes a stretch, and has some carries for each label in its memory. Neighbours use different carries.
    Values: spec.combine.atomic: the atomic, and the bits of its identity; kernel.copies: the carries for a label. -#}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_stretch, load_step with context %}
const COPIES = {{ kernel.copies }}u;
const PARKED = {{ kernel.capacity * kernel.copies }}u;  // the carry of elements that are not there

var<workgroup> carries: array<atomic<Element>, {{ kernel.capacity * kernel.copies + 1 }}>;
{% if kernel.marked %}
var<workgroup> is_known: array<atomic<u32>, {{ kernel.capacity * kernel.copies + 1 }}>;
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let stretch = workgroup.x + workgroup.y * grid.x;
    if (stretch >= params.total) {
        return;
    }
    for (var i = invocation; i < params.groups * COPIES; i += WORKGROUP_SIZE) {
        atomicStore(&carries[i], neutral());
{% if kernel.marked %}
        atomicStore(&is_known[i], 0u);
{% endif %}
    }
    workgroupBarrier();
{{ bounds_of_stretch() -}}
    for (var first = begin; first < end; first += STEPS * WORKGROUP_SIZE) {
{{ load_step("invocation") | indent(4) -}}
{% for i in range(kernel.tile.chunk) %}
        let is_there{{ i }} = next{{ i }} < end{{ " && label%d < params.groups" % i if kernel.checked }};
        let slot{{ i }} = select(PARKED, label{{ i }} * COPIES + invocation % COPIES, is_there{{ i }});
        {{ spec.combine.atomic[0] }}(&carries[slot{{ i }}], e{{ i }});
{% if kernel.marked %}
        atomicStore(&is_known[slot{{ i }}], 1u);
{% endif %}
{% endfor %}
    }
{% if kernel.checked %}
    report_labels();
{% endif %}
    workgroupBarrier();
    for (var label = invocation; label < params.groups; label += WORKGROUP_SIZE) {
        var carry = neutral();
{% if kernel.marked %}
        var known = 0u;
{% endif %}
        for (var copy = 0u; copy < COPIES; copy++) {
            carry = combine(carry, atomicLoad(&carries[label * COPIES + copy]));
{% if kernel.marked %}
            known |= atomicLoad(&is_known[label * COPIES + copy]);
{% endif %}
        }
        let at = stretch * params.groups + label;
        write_carry(at, carry);
{% if kernel.marked %}
        table[at] = known;
{% endif %}
    }
}
