{#- Between storage and registers for columns: one chunk, a row of neighbouring columns, at a time. Reads of rows or
    columns that are not there give some value, which never reaches one that is. -#}
{% include "parts/columns_chunk.wgsl" %}
{% include "parts/arrays.wgsl" %}

// Where an invocation's columns lie.
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
{% if kernel.reverse %}
    let at = params.row_length - 1u - row;
{% else %}
    let at = row;
{% endif %}
    return (place.outer * params.row_length + at) * params.inner + place.column;
}

fn load_row(place: Place, row: u32) -> Chunk {
    let first = element_index(place, row);
{% if kernel.shifts %}
    let before_first = element_index(place, row - 1u);
{% for column in range(kernel.tile.chunk) %}
    let head{{ column }} = row == 0u;
{% endfor %}
{% endif %}
{% for line in kernel.load_lines("first", "before_first") %}
    {{ line }}
{% endfor %}
{% if kernel.initial %}
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
{% if kernel.ends %}
    if (row + 1u < params.row_length) {
        return;
    }
{% endif %}
    let index = element_index(place, row);
{% if kernel.held %}
    let after_index = element_index(place, row + 1u);
{% for column in range(kernel.tile.chunk) %}
    let last{{ column }} = row + 1u == params.row_length;
    let tail{{ column }} = {{ "tail(place.outer * params.inner + place.column + " ~ column ~ "u)" if kernel.tails else kernel.held.wgsl(kernel.native_int64) ~ "()" }};
{% endfor %}
{% for line in kernel.next_lines("after_index") %}
    {{ line }}
{% endfor %}
{% endif %}
{% for column in range(kernel.tile.chunk) %}
{% if kernel.exclusive %}
    var e{{ column }} = chunk[{{ column }}];
    if (row == 0u) {
        e{{ column }} = seed(place.outer * params.inner + place.column + {{ column }}u);
    }
    let r{{ column }} = {{ kernel.mapped_result("e" ~ column, column) }};
{% else %}
    let r{{ column }} = {{ kernel.mapped_result("chunk[" ~ column ~ "]", column) }};
{% endif %}
{% endfor %}
{% if kernel.ends %}
{% for column in range(kernel.tile.chunk) %}
    store_result(place.outer * params.inner + place.column + {{ column }}u, r{{ column }});
{% endfor %}
{% else %}
{% for line in kernel.store_lines("index") %}
    {{ line }}
{% endfor %}
{% endif %}
}
{% endif %}
