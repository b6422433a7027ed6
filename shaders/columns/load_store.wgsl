{#- Between storage and registers for columns: one chunk, a row of neighbouring columns, at a time. Reads of rows or
    columns that do not exist give some value, which never reaches an existing one.
    in:  the sources, the initial values, and heads, where a buffer says where segments begin; or keys, where a segment
         is a run of equal keys
    out: the destinations -#}
{% include "columns/chunk.wgsl" %}
{% include "shared/arrays.wgsl" %}
{% from "shared/chunk_access.wgsl" import load_elements, load_next, store_results with context %}
{% from "shared/keys.wgsl" import declare_keys, key_in %}

// The position of an invocation's columns.
struct Position {
    outer: u32,  // of the outer arrays
    column: u32,  // the chunk's first
    first_row: u32,  // the tile's, in the order of the scan
    chain: u32,
    tile_row: u32,
}

{% if kernel.reduces_columns %}
// The rows of a tile. All tiles but the last ones have as many.
fn rows_of_tile() -> u32 {
    let tiles = params.tiles / chains_of_columns();
    return (params.row_length + tiles - 1u) / tiles;
}

{% endif %}
// Return the chunk of a lane. The column of a lane without one is params.inner.
fn position_of(tile: u32, lane: u32) -> Position {
    let chains = chains_of_columns();
    let chain = tile % chains;
    let tile_row = tile / chains;
    let line = chain * COLUMNS + lane;
    let outer = line / lines_of_inner();
    let column = select(params.inner, (line - outer * lines_of_inner()) * CHUNK, outer < count_outer_arrays());
    return Position(outer, column, tile_row * {{ "rows_of_tile()" if kernel.reduces_columns else "(GROUPS * ROWS)" }}, chain, tile_row);
}

fn element_index(position: Position, row: u32) -> u32 {
{% if spec.reverse %}
    let at = params.row_length - 1u - row;
{% else %}
    let at = row;
{% endif %}
    return (position.outer * params.row_length + at) * params.inner + position.column;
}

{% if spec.key %}
// One key for each element.
@group(0) @binding({{ kernel.binding_of("heads") }}) var<storage, read> keys: array<{{ text.keys.vector }}>;
{{ declare_keys(spec.key) }}
fn key_at(position: u32) -> Key {
    return {{ key_in("keys", spec.key, "position", text.keys.width) }};
}

// Return the bits of a chunk, from its first column on: 1 where the key differs from the key of the row before.
fn heads_of(position: Position, row: u32) -> u32 {
    let first = element_index(position, row);
    let before = element_index(position, row - 1u);
    var bits = 0u;
{% for column in range(kernel.tile.chunk) %}
    bits |= select(0u, {{ "0x%xu" % (2 ** column) }}, differ(key_at(first + {{ column }}u), key_at(before + {{ column }}u)) | (row == 0u));
{% endfor %}
    return bits;
}

{% elif spec.has_segment_bits %}
{% if spec.cuts_columns_alike %}
// One bit for each position in a column, in the order of the scan.
{% else %}
// One bit for each element.
{% endif %}
@group(0) @binding({{ kernel.binding_of("heads") }}) var<storage, read> heads: array<u32>;

// Return the bits of a chunk, from its first column on.
fn heads_of(position: Position, row: u32) -> u32 {
{% if spec.cuts_columns_alike %}
    return (heads[row >> 5u] >> (row & 31u)) & 1u;
{% else %}
    let first = element_index(position, row);
{% if kernel.access.unaligned_sizes %}
    let low = heads[first >> 5u];
    let high = heads[(first >> 5u) + 1u];
    return (low >> (first & 31u)) | ((high << (31u - (first & 31u))) << 1u);
{% else %}
    return heads[first >> 5u] >> (first & 31u);
{% endif %}
{% endif %}
}

{% endif %}
{% if text.packs_column_heads %}
// The head flags of an invocation's rows in each column: a bit for each row.
alias PackedHeads = array<u32, {{ kernel.tile.chunk }}>;

// Return a chunk with a head flag wherever the bits of these rows have one.
fn with_heads(chunk: Chunk, packed: PackedHeads, rows: u32) -> Chunk {
    return Chunk(
{% for column in range(kernel.tile.chunk) %}
        Item(chunk[{{ column }}].value, select(0u, 1u, (packed[{{ column }}] & rows) != 0u)),
{% endfor %}
    );
}
{% if spec.cuts_columns_alike %}

// Return the bits of ROWS rows, starting with this one.
fn heads_from(row: u32) -> u32 {
    let low = heads[row >> 5u];
    let high = heads[(row + ROWS - 1u) >> 5u];
    let shift = row & 31u;
    return (low >> shift) | select(high << (32u - shift), 0u, shift == 0u);
}
{% endif %}

{% endif %}
{#- 1 if a segment begins with this column of a chunk, else 0. -#}
{% macro head_of(column) -%}
{{ "marks" if spec.cuts_columns_alike else "extractBits(marks, %du, 1u)" % column }}
{%- endmacro %}
{% if spec.has_segment_bits %}
fn load_row(position: Position, row: u32) -> Chunk {
    return load_marked_row(position, row, heads_of(position, row));
}

// Load a row where these bits say in which of its columns a segment begins.
fn load_marked_row(position: Position, row: u32, marks: u32) -> Chunk {
{% else %}
fn load_row(position: Position, row: u32) -> Chunk {
{% endif %}
    let first = element_index(position, row);
{% if spec.field_offsets %}
    let before_first = element_index(position, row - 1u);
{% for column in range(kernel.tile.chunk) %}
    let head{{ column }} = row == 0u;
{% endfor %}
{% endif %}
{% if text.loads_following %}
    let after_first = element_index(position, row + 1u);
{% for column in range(kernel.tile.chunk) %}
    let last{{ column }} = row + 1u == params.row_length;
{% endfor %}
{% endif %}
{% for column in range(kernel.tile.chunk if spec.index_step else 0) %}
    let index{{ column }} = i32({{ "params.row_length - 1u - row" if spec.index_step < 0 else "row" }});
{% endfor %}
{{ load_elements("first", "before_first", "after_first") -}}
{% if spec.initial and spec.has_segment_bits %}
    let seed_row = position.outer * params.inner + position.column;
{% for column in range(kernel.tile.chunk) %}
    let seeded{{ column }} = combine(seed(seed_row + {{ column }}u), e{{ column }});
    e{{ column }} = {{ text.pick_element(head_of(column) ~ " == 1u", "seeded%d" % column, "e%d" % column) }};
{% endfor %}
{% elif spec.initial and not kernel.reduces_columns %}
    if (row == 0u) {
        let seed_row = position.outer * params.inner + position.column;
{% for column in range(kernel.tile.chunk) %}
        e{{ column }} = combine(seed(seed_row + {{ column }}u), e{{ column }});
{% endfor %}
    }
{% endif %}
{% if kernel.segmented %}
    return Chunk({% for column in range(kernel.tile.chunk) %}Item(e{{ column }}, {{ head_of(column) }}){{ ", " if not loop.last }}{% endfor %});
{% else %}
    return Chunk({% for column in range(kernel.tile.chunk) %}e{{ column }}{{ ", " if not loop.last }}{% endfor %});
{% endif %}
}
{% if kernel.destinations and not kernel.reduces_columns %}
{% if spec.neighbour_field %}

// The neighbour field of the row after, which goes to `after` with the results.
alias Following = array<{{ text.type_of(spec.neighbour_field) }}, {{ kernel.tile.chunk }}>;

fn load_following(position: Position, row: u32) -> Following {
    let after_index = element_index(position, row + 1u);
{% for column in range(kernel.tile.chunk) %}
    let last{{ column }} = row + 1u == params.row_length;
    let tail{{ column }} = {{ "tail(position.outer * params.inner + position.column + " ~ column ~ "u)" if spec.has_tail_values else text.type_of(spec.neighbour_field) ~ "()" }};
{% endfor %}
{{ load_next("after_index").rstrip() }}
    return Following({% for column in range(kernel.tile.chunk) %}next{{ column }}{{ ", " if not loop.last }}{% endfor %});
}
{% endif %}

{% if kernel.access.unaligned_sizes %}

// What an invocation stores of the words that its chunks share with neighbours. It is the same in each row.
struct Edges {
    size: u32,  // the columns of the chunk that exist
    before: u32,  // the bits of the lane before that this lane stores
    after: u32,  // the bits of its own that this lane stores in the word after its last whole word
}

fn edges_of(position: Position, invocation: u32) -> Edges {
    let size = min(CHUNK, max(params.inner, position.column) - position.column);
{% if kernel.subgroups %}
    let lane = invocation % COLUMNS;
    let subgroup_lane = invocation % SUBGROUP_SIZE;
    let has_left = (lane > 0u) & (subgroup_lane > 0u) & (size > 0u) & (position.column > 0u);
    let is_last = (lane + 1u == COLUMNS) | (subgroup_lane + 1u == SUBGROUP_SIZE) | (position.column + CHUNK >= params.inner);
    return Edges(size, select(0u, 0xffffffffu, has_left), select(0u, 0xffffffffu, is_last));
{% else %}
    return Edges(size, 0u, 0xffffffffu);
{% endif %}
}

// Return which bits of the word that begins `before` bits into a chunk are among its first `bits` bits.
fn mask_of_word(bits: u32, before: u32) -> u32 {
    let count = max(bits, before) - before;
    return select((1u << (count & 31u)) - 1u, 0xffffffffu, count >= 32u);
}
{% endif %}

fn store_row(position: Position, row: u32, chunk: Chunk{{ ", following: Following" if spec.neighbour_field }}{{ ", edges: Edges" if kernel.access.unaligned_sizes }}) {
{% if kernel.access.unaligned_sizes %}
    let exists = row < params.row_length;
{% else %}
    if (row >= params.row_length || position.column >= params.inner) {
        return;
    }
{% endif %}
{% if spec.reduces_segments %}
    let next = row + 1u;
    let goes_on = next < params.row_length && extractBits(heads[next >> 5u], next & 31u, 1u) == 0u;
    if (goes_on{{ " || !exists" if kernel.access.unaligned_sizes }}) {
        return;
    }
    let rows = params.length / params.row_length;
{% endif %}
    let index = element_index(position, row);
{% if spec.neighbour_field %}
{% for column in range(kernel.tile.chunk) %}
    let next{{ column }} = following[{{ column }}];
{% endfor %}
{% endif %}
{% if spec.exclusive and spec.has_segment_bits %}
    let marks = heads_of(position, row);
{% endif %}
{% for column in range(kernel.tile.chunk) %}
{% set item = "chunk[%d]" % column ~ (".value" if kernel.segmented else "") %}
{% if spec.exclusive %}
    var e{{ column }} = {{ item }};
    if ({{ head_of(column) ~ " == 1u" if spec.has_segment_bits else "row == 0u" }}) {
        e{{ column }} = seed(position.outer * params.inner + position.column + {{ column }}u);
    }
    let r{{ column }} = {{ text.map_result("e" ~ column, column) }};
{% else %}
    let r{{ column }} = {{ text.map_result(item, column) }};
{% endif %}
{% endfor %}
{% if spec.reduces_segments %}
{% for column in range(kernel.tile.chunk) %}
{% if kernel.access.unaligned_sizes %}
    if ({{ column }}u < edges.size)
{% endif %}
    {
        store_result((chunk[{{ column }}].head - 1u) * rows + position.outer * params.inner + position.column + {{ column }}u, r{{ column }});
    }
{% endfor %}
{% else %}
{{ store_results("index") -}}
{% endif %}
}
{% endif %}
