{#- Read keys of any size from the array `input` as the caller has it.
    Values: the values of sort/keys.wgsl; unit: bytes of a key in the array, 4 also if it takes two words. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
{% include "sort/keys.wgsl" %}

const UNITS = {{ 4 // unit }}u;  // keys in a word of the input
alias Given = {{ "Key" if unit == 4 else "u32" }};

fn key_at(at: u32) -> Key {
    return {{ unit_of("input", "at") }};
}
