{#- Between storage and registers: one invocation's chunk of CHUNK neighbouring elements at a time.
    Reads past the end give some value (WGSL's bounds rule), which never reaches an element before the end; writes
    past the end are left out. Where the array is read backwards, logical element i lies at length - 1 - i. -#}
{% include "parts/arrays.wgsl" %}
// ----- Load and store
alias Chunk = array<Item, {{ kernel.tile.chunk }}>;

{% if kernel.segmented %}
fn row_of(index: u32) -> u32 {
    return params.first_row + (index + params.row_offset) / params.row_length;
}

fn is_head(index: u32) -> bool {
    return (index + params.row_offset) % params.row_length == 0u;
}
{% elif kernel.seeded or kernel.shifts %}
fn row_of(index: u32) -> u32 {
    return 0u;
}

fn is_head(index: u32) -> bool {
    return index == 0u && params.row_offset == 0u;
}
{% endif %}

fn load_chunk(index: u32) -> Chunk {
{% if kernel.reverse %}
    let first = params.length - CHUNK - index;  // wraps below zero past the end, where nothing is kept
{% else %}
    let first = index;
{% endif %}
{% if kernel.shifts %}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = is_head(index + {{ position }}u);
{% endfor %}
{% endif %}
{% for line in kernel.load_lines("first") %}
    {{ line }}
{% endfor %}
{% if kernel.initial and kernel.segmented %}
{# Picked, not branched: SwiftShader takes a time exponential in the number of branches within a loop to compile. #}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = is_head(index + {{ position }}u);
    let seeded{{ position }} = combine(seed(row_of(index + {{ position }}u)), e{{ position }});
    e{{ position }} = {{ kernel.pick_element("head" ~ position, "seeded" ~ position, "e" ~ position) }};
{% endfor %}
{% elif kernel.initial %}
    if (is_head(index)) {  // the only head there is, and it begins a chunk
        e0 = combine(seed(0u), e0);
    }
{% endif %}
    return Chunk(
{% for position in range(kernel.tile.chunk) %}
{% if kernel.segmented %}
        Item(e{{ position }}, select(0u, 1u, is_head(index + {{ position }}u))),
{% else %}
        e{{ position }},
{% endif %}
{% endfor %}
    );
}

{% if kernel.destinations %}

fn store_chunk(index: u32, chunk: Chunk) {
{% if kernel.held %}
{% if kernel.reverse %}
    let first = params.length - CHUNK - index;
{% else %}
    let first = index;
{% endif %}
{% for position in range(kernel.tile.chunk) %}
    let last{{ position }} = index + {{ position + 1 }}u == params.length || is_head(index + {{ position + 1 }}u);
    let tail{{ position }} = {{ "tail(row_of(index + " ~ position ~ "u))" if kernel.tails else kernel.held.wgsl(kernel.native_int64) ~ "()" }};
{% endfor %}
{% for line in kernel.next_lines("first") %}
    {{ line }}
{% endfor %}
{% endif %}
{% for position in range(kernel.tile.chunk) %}
{% set item = "chunk[" ~ position ~ "]" ~ (".value" if kernel.segmented else "") %}
{% if kernel.exclusive and kernel.seeded %}
    var e{{ position }} = {{ item }};
    if (is_head(index + {{ position }}u)) {
        e{{ position }} = seed(row_of(index + {{ position }}u));
    }
    let r{{ position }} = {{ kernel.mapped_result("e" ~ position, position) }};
{% else %}
    let r{{ position }} = {{ kernel.mapped_result(item, position) }};
{% endif %}
{% endfor %}
{% for line in kernel.store_lines("index") %}
    {{ line }}
{% endfor %}
}
{% endif %}
