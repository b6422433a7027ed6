{#- Find heads by comparing keys: an element is a head if its key differs from the one before it, or if it begins a row.
    in:  keys, one for each element in the order of memory
    Values: text.keys, which is how the keys of neighbours are loaded. -#}
{% from "shared/keys.wgsl" import declare_keys, key_in, key_of with context %}
{% set keys = text.keys %}
// One key for each element.
@group(0) @binding({{ kernel.binding_of("heads") }}) var<storage, read> keys: array<{{ keys.vector }}>;
{{ declare_keys(spec.key) }}
// Return the key of an element, which is counted in the order of the scan.
fn key_at(index: u32) -> Key {
{% if spec.reverse %}
    let position = params.length - 1u - index;
{% else %}
    let position = index;
{% endif %}
    return {{ key_in("keys", spec.key, "position", keys.width) }};
}

// Return the bits of {{ keys.count }} elements: 1 where a row or segment begins. All lanes take the same path.
fn heads_from(index: u32) -> u32 {
    let before = key_at(max(index, 1u) - 1u);
{% if keys.accesses %}
    let at = {{ keys.first("index") }};
{% for i in range(keys.accesses) %}
    let keys{{ i }} = keys[at + {{ i }}u];
{% endfor %}
{% endif %}
{% for position in range(keys.count) %}
{% if keys.accesses %}
    let key{{ position }} = {{ key_of(spec.key, keys.words, position) }};
{% else %}
    let key{{ position }} = key_at(index + {{ position }}u);
{% endif %}
{% endfor %}
    let row_index0 = {{ "(index + params.row_offset) % params.row_length" if kernel.access.several_rows else "index + params.row_offset" }};
    var bits = select(0u, 1u, differ(key0, before) | (row_index0 == 0u));
{% for position in range(1, keys.count) %}
{% set bit = "0x%xu" % (2 ** position) %}
{% if kernel.access.several_rows %}
    let row_index{{ position }} = select(row_index{{ position - 1 }} + 1u, 0u, row_index{{ position - 1 }} + 1u == params.row_length);
    bits |= select(0u, {{ bit }}, differ(key{{ position }}, key{{ position - 1 }}) | (row_index{{ position }} == 0u));
{% else %}
    bits |= select(0u, {{ bit }}, differ(key{{ position }}, key{{ position - 1 }}));
{% endif %}
{% endfor %}
    return bits;
}
{% if spec.reduces_segments and kernel.destinations %}

fn is_head(index: u32) -> bool {
{% if kernel.access.several_rows %}
    return ((index + params.row_offset) % params.row_length == 0u) | differ(key_at(index), key_at(max(index, 1u) - 1u));
{% else %}
    return (index + params.row_offset == 0u) | differ(key_at(index), key_at(max(index, 1u) - 1u));
{% endif %}
}
{% endif %}
