{#- Between storage and registers for columns: one chunk, a row of neighbouring columns, at a time. Reads of rows or columns
    that do not exist give some value, which never reaches an existing one. -#}
{% include "columns/chunk.wgsl" %}
{% include "shared/arrays.wgsl" %}
{% from "shared/chunk_access.wgsl" import load_elements, load_next, store_results with context %}

// The place of an invocation's columns.
struct Place {
    outer: u32,  // of the outer arrays
    column: u32,  // the chunk's first
    first_row: u32,  // the tile's, in the order of the scan
    chain: u32,
    tile_row: u32,
}

fn place_of(tile: u32, lane: u32) -> Place {
    let strips = strips_of_inner();
    let chains = chains_of_columns();
    let chain = tile % chains;
    let tile_row = tile / chains;
    return Place(chain / strips, ((chain % strips) * COLUMNS + lane) * CHUNK, tile_row * (GROUPS * ROWS), chain, tile_row);
}

fn element_index(place: Place, row: u32) -> u32 {
{% if spec.reverse %}
    let at = params.row_length - 1u - row;
{% else %}
    let at = row;
{% endif %}
    return (place.outer * params.row_length + at) * params.inner + place.column;
}

fn load_row(place: Place, row: u32) -> Chunk {
    let first = element_index(place, row);
{% if spec.field_offsets %}
    let before_first = element_index(place, row - 1u);
{% for column in range(kernel.tile.chunk) %}
    let head{{ column }} = row == 0u;
{% endfor %}
{% endif %}
{{ load_elements("first", "before_first") -}}
{% if spec.initial %}
    if (row == 0u) {
        let seed_row = place.outer * params.inner + place.column;
{% for column in range(kernel.tile.chunk) %}
        e{{ column }} = combine(seed(seed_row + {{ column }}u), e{{ column }});
{% endfor %}
    }
{% endif %}
    return Chunk({% for column in range(kernel.tile.chunk) %}e{{ column }}{{ ", " if not loop.last }}{% endfor %});
}
{% if kernel.destinations %}

fn store_row(place: Place, row: u32, chunk: Chunk) {
    if (row >= params.row_length || place.column >= params.inner) {
        return;
    }
{% if spec.keep_last_only %}
    if (row + 1u < params.row_length) {
        return;
    }
{% endif %}
    let index = element_index(place, row);
{% if spec.neighbour_field %}
    let after_index = element_index(place, row + 1u);
{% for column in range(kernel.tile.chunk) %}
    let last{{ column }} = row + 1u == params.row_length;
    let tail{{ column }} = {{ "tail(place.outer * params.inner + place.column + " ~ column ~ "u)" if spec.has_tail_values else text.type_of(spec.neighbour_field) ~ "()" }};
{% endfor %}
{{ load_next("after_index") -}}
{% endif %}
{% for column in range(kernel.tile.chunk) %}
{% if spec.exclusive %}
    var e{{ column }} = chunk[{{ column }}];
    if (row == 0u) {
        e{{ column }} = seed(place.outer * params.inner + place.column + {{ column }}u);
    }
    let r{{ column }} = {{ text.mapped_result("e" ~ column, column) }};
{% else %}
    let r{{ column }} = {{ text.mapped_result("chunk[" ~ column ~ "]", column) }};
{% endif %}
{% endfor %}
{% if spec.keep_last_only %}
{% for column in range(kernel.tile.chunk) %}
    store_result(place.outer * params.inner + place.column + {{ column }}u, r{{ column }});
{% endfor %}
{% else %}
{{ store_results("index") -}}
{% endif %}
}
{% endif %}
