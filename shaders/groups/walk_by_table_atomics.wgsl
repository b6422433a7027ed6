{#- The main function of a stage that combines sections in any order, with an operator that WGSL has as an atomic, if
    workgroup memory has no room for all labels. Workgroups that share a section combine its elements in the table. The
    table holds the bits of a carry xored with the bits of the identity, so that cleared memory holds identities.
    Neighbours with the same label would wait for each other. So if many lanes have the label of the first lane, the
    subgroup combines their elements.
    Values: spec.combine.atomic: the atomic, and the bits of its identity. -#}
{% include "groups/labels.wgsl" %}
{% from "groups/labels.wgsl" import bounds_of_section, load_step with context %}
{% from "groups/atomics.wgsl" import combine_words with context %}
{% include "shared/lanes.wgsl" %}
{# Xored with ones, a minimum is a maximum, and "and" is "or". #}
{% set name = {"atomicMin": "Max", "atomicMax": "Max", "atomicAnd": "Or", "atomicOr": "Or", "atomicXor": "Xor", "atomicAdd": "Add"}[spec.combine.atomic[0]] %}
const MANY = 4u;  // lanes with one label

{% set words = kernel.item_words %}
{% set targets = [] %}
{% for word in range(words) %}
{% if targets.append("table[at + %du * params.plane]" % (word + (1 if kernel.marked else 0))) %}{% endif %}
{% endfor %}

alias Bits = {{ "vec2<u32>" if words == 2 else "u32" }};

fn add_carry(at: u32, bits: Bits, is_there: bool) {
    if (is_there) {
{{ combine_words(name, targets, ["bits.x", "bits.y"] if words == 2 else ["bits"]) | indent(4) -}}
{% if kernel.marked %}
        atomicStore(&table[at], 1u);
{% endif %}
    }
}

// Return the combination of the words of all lanes.
fn combine_lanes(bits: Bits) -> Bits {
{% if name == "Add" and words == 2 %}
    // The sums of half words do not wrap.
    let first = subgroupAdd(bits.x & 0xffffu);
    let second = subgroupAdd(bits.x >> 16u) + (first >> 16u);
    return Bits((first & 0xffffu) | (second << 16u), subgroupAdd(bits.y) + (second >> 16u));
{% else %}
    return subgroup{{ name }}(bits);
{% endif %}
}

{% from "shared/main.wgsl" import main %}
{{ main("@builtin(subgroup_invocation_id) lane: u32") }} {
    let number = workgroup.x + workgroup.y * grid.x;
    // Workgroups that run at a time have different sections.
    let section = number % params.total;
    let part = number / params.total;
{{ bounds_of_section().rstrip() }}
    let carries = section * params.groups;
    let step_size = STEPS * WORKGROUP_SIZE;
    for (var first = begin + part * step_size; first < end; first += params.sharers * step_size) {
{{ load_step("invocation") | indent(4) -}}
{% for i in range(kernel.tile.chunk) %}
        var is_there{{ i }} = (next{{ i }} < end){{ " & (label%d < params.groups)" % i if kernel.checked }};
        var bits{{ i }} = Bits({{ text.element_words("e%d" % i) | join(", ") }}) ^ Bits({{ "0x%xu" % spec.combine.atomic[1] }});
        let is_alike{{ i }} = is_there{{ i }} && label{{ i }} == subgroupBroadcastFirst(label{{ i }});
        let alike{{ i }} = subgroupBallot(is_alike{{ i }});
        if (count_bits(alike{{ i }}) > MANY) {
            let all = combine_lanes(select(Bits(), bits{{ i }}, is_alike{{ i }}));
            bits{{ i }} = select(bits{{ i }}, all, is_alike{{ i }});
            is_there{{ i }} = is_there{{ i }} && (!is_alike{{ i }} || lane == lowest_lane(alike{{ i }}));
        }
        add_carry(carries + label{{ i }}, bits{{ i }}, is_there{{ i }});
{% endfor %}
    }
{% if kernel.checked %}
    report_labels();
{% endif %}
}
