{#- Rows and segments: which row an element belongs to, and where rows begin in a chunk.
    in:  heads, where a buffer says where segments begin; or keys, where a segment is a run of equal keys -#}
// ----- Rows
{% if spec.key %}
{% include "scan/key_heads.wgsl" %}
{% elif spec.has_segment_bits %}
@group(0) @binding({{ kernel.binding_of("heads") }}) var<storage, read> heads: array<u32>;  // one bit for each element
{% endif %}
{% if spec.has_segment_bits %}

fn row_of(index: u32) -> u32 {
{% if kernel.access.several_rows %}
    return params.first_row + (index + params.row_offset) / params.row_length;
{% else %}
    return 0u;
{% endif %}
}
{% elif kernel.segmented or kernel.tile.per_row %}
fn row_of(index: u32) -> u32 {
    return params.first_row + (index + params.row_offset) / params.row_length;
}

fn is_head(index: u32) -> bool {
    return (index + params.row_offset) % params.row_length == 0u;
}
{% elif spec.seeded or spec.field_offsets or spec.keep_last_only %}
fn row_of(index: u32) -> u32 {
    return 0u;
}

fn is_head(index: u32) -> bool {
    return index == 0u && params.row_offset == 0u;
}
{% endif %}
{% if spec.keep_last_only and not spec.reduces_segments and kernel.destinations %}

// True if a row ends within the tile.
fn has_end(tile: u32) -> bool {
{% if kernel.tile.per_row %}
    return (tile + 1u) % tiles_per_row() == 0u;
{% else %}
    let start = tile * TILE_SIZE;
    return params.row_length - 1u - (start + params.row_offset) % params.row_length < min(TILE_SIZE, params.length - start);
{% endif %}
}
{% endif %}
