{#- A chunk is one row of the CHUNK neighbouring columns that an invocation takes. Tiles are numbered row by row: all
    tiles of the first rows, then all of the next, so that a tile starts long after the one above it. -#}
// ----- Columns
const COLUMNS = {{ kernel.tile.columns }}u;  // invocations side by side
const GROUPS = {{ kernel.tile.groups }}u;  // invocations one below the other
const ROWS = {{ kernel.tile.rows }}u;  // rows that an invocation takes

alias Chunk = array<Item, {{ kernel.tile.chunk }}>;

fn join_chunks(a: Chunk, b: Chunk) -> Chunk {
    return Chunk(
{% for column in range(kernel.tile.chunk) %}
        join(a[{{ column }}], b[{{ column }}]),
{% endfor %}
    );
}

fn pick_chunk(condition: bool, yes: Chunk, no: Chunk) -> Chunk {
    return Chunk(
{% for column in range(kernel.tile.chunk) %}
        pick(condition, yes[{{ column }}], no[{{ column }}]),
{% endfor %}
    );
}

// The chunks of a row. The lanes of a tile take neighbouring chunks, also of several outer arrays.
fn lines_of_inner() -> u32 {
    return (params.inner + CHUNK - 1u) / CHUNK;
}

fn count_outer_arrays() -> u32 {
    return params.length / (params.row_length * params.inner);
}

// A chain of tiles runs down each COLUMNS neighbouring chunks.
fn chains_of_columns() -> u32 {
    return (count_outer_arrays() * lines_of_inner() + COLUMNS - 1u) / COLUMNS;
}
{% if kernel.has_bools %}

// Bools are stored in workgroup memory as words: see Kernel.has_bools.
alias SharedChunk = array<Words, {{ kernel.tile.chunk }}>;

fn chunk_to_shared(chunk: Chunk) -> SharedChunk {
    return SharedChunk({% for column in range(kernel.tile.chunk) %}item_to_words(chunk[{{ column }}]){{ ", " if not loop.last }}{% endfor %});
}

fn chunk_from_shared(held: SharedChunk) -> Chunk {
    return Chunk({% for column in range(kernel.tile.chunk) %}item_from_words(held[{{ column }}]){{ ", " if not loop.last }}{% endfor %});
}
{% endif %}
