{#- The main function of a stage that combines sections in any order, with an operator that WGSL has as an atomic. Each
    workgroup takes a section, and has some carries for each label in its memory. Neighbours use different carries. If
    there are too many labels, several workgroups take a section, each for some of the labels.
    Values: spec.combine.atomic: the atomic, and the bits of its identity; kernel.copies: the carries for a label. -#}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_section, load_step with context %}
{% from "groups/atomics.wgsl" import combine_words with context %}
{# A single word has the type of its element, since minima and maxima depend on the sign. #}
{% set words = kernel.item_words %}
{% set slots = kernel.capacity * kernel.copies + 1 %}
const COPIES = {{ kernel.copies }}u;
const PARKED = {{ kernel.capacity * kernel.copies }}u;  // the carry of elements that are not there

{% for word in range(words) %}
var<workgroup> carries{{ word }}: array<atomic<{{ "Element" if words == 1 else "u32" }}>, {{ slots }}>;
{% endfor %}
{% if kernel.marked %}
var<workgroup> is_known: array<atomic<u32>, {{ slots }}>;
{% endif %}

{% if words == 1 %}
fn clear_carry(slot: u32) {
    atomicStore(&carries0[slot], neutral());
}

fn carry_at(slot: u32) -> Item {
    return atomicLoad(&carries0[slot]);
}

fn add_to_carry(slot: u32, element: Element) {
    {{ spec.combine.atomic[0] }}(&carries0[slot], element);
}
{% else %}
fn clear_carry(slot: u32) {
    let words = item_to_words(neutral());
{% for word in range(words) %}
    atomicStore(&carries{{ word }}[slot], words[{{ word }}]);
{% endfor %}
}

fn carry_at(slot: u32) -> Item {
    return item_from_words(Words(
{% for word in range(words) %}
        atomicLoad(&carries{{ word }}[slot]),
{% endfor %}
    ));
}

fn add_to_carry(slot: u32, element: Element) {
    let words = item_to_words(element);
{{ combine_words(spec.combine.atomic[0][6:], ["carries0[slot]", "carries1[slot]"], ["words[0]", "words[1]"]) -}}
}
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
{% if kernel.splits_labels %}
    // Workgroups that run at a time share a section, so that a cache has its elements.
    let number = workgroup.x + workgroup.y * grid.x;
    let section = number / params.sharers;
    let first_label = number % params.sharers * {{ kernel.capacity }}u;
    let own_labels = min(params.groups - min(first_label, params.groups), {{ kernel.capacity }}u);
{% else %}
    let section = workgroup.x + workgroup.y * grid.x;
    let own_labels = params.groups;
{% endif %}
    if (section >= params.total) {
        return;
    }
    for (var i = invocation; i < own_labels * COPIES; i += WORKGROUP_SIZE) {
        clear_carry(i);
{% if kernel.marked %}
        atomicStore(&is_known[i], 0u);
{% endif %}
    }
    workgroupBarrier();
{{ bounds_of_section().rstrip() }}
    for (var first = begin; first < end; first += STEPS * WORKGROUP_SIZE) {
{{ load_step("invocation") | indent(4) -}}
{% for i in range(kernel.tile.chunk) %}
        let own_label{{ i }} = label{{ i }}{{ " - first_label" if kernel.splits_labels }};
        let is_there{{ i }} = (next{{ i }} < end){{ " & (own_label%d < own_labels)" % i if kernel.checked }};
        let slot{{ i }} = select(PARKED, own_label{{ i }} * COPIES + invocation % COPIES, is_there{{ i }});
        add_to_carry(slot{{ i }}, e{{ i }});
{% if kernel.marked %}
        atomicStore(&is_known[slot{{ i }}], 1u);
{% endif %}
{% endfor %}
    }
{% if kernel.checked %}
    report_labels();
{% endif %}
    workgroupBarrier();
    for (var label = invocation; label < own_labels; label += WORKGROUP_SIZE) {
        var carry = neutral();
{% if kernel.marked %}
        var known = 0u;
{% endif %}
        for (var copy = 0u; copy < COPIES; copy++) {
            carry = combine(carry, carry_at(label * COPIES + copy));
{% if kernel.marked %}
            known |= atomicLoad(&is_known[label * COPIES + copy]);
{% endif %}
        }
        let at = section * params.groups + {{ "first_label + " if kernel.splits_labels }}label;
        write_carry(at, carry);
{% if kernel.marked %}
        table[at] = known;
{% endif %}
    }
}
