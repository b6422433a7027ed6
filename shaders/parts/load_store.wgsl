{#- Between storage and registers: one invocation's chunk of CHUNK neighbouring elements at a time.
    Reads past the end give some value (WGSL's bounds rule), which never reaches an element before the end; writes
    past the end are left out. Where rows are read backwards: see `place_lines` in gpuscan/chunk_access.py. -#}
{% include "parts/arrays.wgsl" %}
// ----- Load and store
alias Chunk = array<Item, {{ kernel.tile.chunk }}>;

{% if kernel.marked %}
@group(0) @binding({{ kernel.heads_binding }}) var<storage, read> heads: array<u32>;  // a bit for each element

fn row_of(index: u32) -> u32 {
    return 0u;
}
{% elif kernel.segmented or kernel.tile.per_row %}
fn row_of(index: u32) -> u32 {
    return params.first_row + (index + params.row_offset) / params.row_length;
}

fn is_head(index: u32) -> bool {
    return (index + params.row_offset) % params.row_length == 0u;
}
{% elif kernel.seeded or kernel.shifts or kernel.ends %}
fn row_of(index: u32) -> u32 {
    return 0u;
}

fn is_head(index: u32) -> bool {
    return index == 0u && params.row_offset == 0u;
}
{% endif %}

{% if kernel.ends and kernel.destinations %}
// Whether a row ends within the tile.
fn has_end(tile: u32) -> bool {
{% if kernel.tile.per_row %}
    return (tile + 1u) % tiles_per_row() == 0u;
{% else %}
    let start = tile * TILE_SIZE;
    return params.row_length - 1u - (start + params.row_offset) % params.row_length < min(TILE_SIZE, params.length - start);
{% endif %}
}

{% endif %}
{# Where rows begin in a chunk. Marks: from the bit of its first element on, since chunks do not straddle words of bits. #}
{% set rows_within = kernel.several_rows and not kernel.single_head %}
{% macro find_heads() %}
{% if kernel.marked %}
    let marks0 = heads[index >> 5u] >> (index & 31u);
{% for word in range(1, (kernel.tile.chunk + 31) // 32) %}
    let marks{{ word }} = heads[(index >> 5u) + {{ word }}u];
{% endfor %}
{% elif rows_within %}
{% for line in kernel.row_lines("index") %}
    {{ line }}
{% endfor %}
{% endif %}
{% endmacro %}
{% macro places() %}
{% for line in kernel.place_lines("index") %}
    {{ line }}
{% endfor %}
{% endmacro %}
{% macro head_at(position) %}
{% if kernel.marked %}
extractBits(marks{{ position // 32 }}, {{ position % 32 }}u, 1u) == 1u
{%- elif kernel.single_head and position > 0 %}
false
{%- elif rows_within %}
place{{ position }} == 0u
{%- else %}
is_head(index + {{ position }}u)
{%- endif %}
{% endmacro %}
{% set for_staging = ", invocation: u32" if kernel.stages_chunks else "" %}
{% if kernel.loads_apart %}
alias Loaded = array<{{ kernel.sources[0].vector }}, {{ kernel.chunk_words }}>;  // a chunk as it lies in storage

{% if kernel.stages_chunks %}
{% include "parts/staging.wgsl" %}
{% endif %}
fn load(index: u32{{ for_staging }}) -> Loaded {
{% if kernel.stages_chunks %}
    let lane = invocation % SUBGROUP_SIZE;
{% endif %}
{{ places() }}
{% for line in kernel.word_lines("first") %}
    {{ line }}
{% endfor %}
}

{% if kernel.keeps_storage %}
// The same, but compilers cannot tell: else they would keep what they made of it before, for which registers are few.
fn again(loaded: Loaded) -> Loaded {
    let nothing = params.epoch >> 16u;  // epochs have 16 bits
    return Loaded({% for word in range(kernel.chunk_words) %}loaded[{{ word }}] ^ {{ kernel.sources[0].vector }}(nothing){{ ", " if not loop.last }}{% endfor %});
}
{% if kernel.reduces %}

fn load_chunk(index: u32) -> Chunk {
    return chunk_of(index, load(index));
}
{% endif %}
{% endif %}

fn chunk_of(index: u32, {{ "shared_out" if kernel.stages_chunks else "loaded" }}: Loaded{{ for_staging }}) -> Chunk {
{% if kernel.stages_chunks %}
    let loaded = from_storage(invocation, shared_out);
{% endif %}
{% else %}
fn load_chunk(index: u32) -> Chunk {
{% endif %}
{{ find_heads() }}
{{ places() }}
{% if kernel.shifts %}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = {{ head_at(position) }};
{% endfor %}
{% endif %}
{% for line in kernel.load_lines("first") %}
    {{ line }}
{% endfor %}
{% if kernel.initial and kernel.segmented and not kernel.single_head %}
{# Picked, not branched: SwiftShader takes a time exponential in the number of branches within a loop to compile. #}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = {{ head_at(position) }};
    let seeded{{ position }} = combine(seed(row_of(index + {{ position }}u)), e{{ position }});
    e{{ position }} = {{ kernel.pick_element("head" ~ position, "seeded" ~ position, "e" ~ position) }};
{% endfor %}
{% elif kernel.initial %}
    if (is_head(index)) {  // the only head there is{{ " in the row" if kernel.single_head }}, and it begins a chunk
        e0 = combine(seed({{ "row_of(index)" if kernel.single_head else "0u" }}), e0);
    }
{% endif %}
    return Chunk(
{% for position in range(kernel.tile.chunk) %}
{% if kernel.segmented %}
        Item(e{{ position }}, select(0u, 1u, {{ head_at(position) }})),
{% else %}
        e{{ position }},
{% endif %}
{% endfor %}
    );
}

{% if kernel.destinations and kernel.moves %}
{% include "parts/moves.wgsl" %}
{% elif kernel.destinations %}

fn store_chunk(index: u32, chunk: Chunk{{ for_staging }}) {
{% if kernel.stages_chunks %}
    let lane = invocation % SUBGROUP_SIZE;
{% endif %}
{% if kernel.exclusive or (rows_within and (kernel.held or kernel.ends or kernel.scattered)) %}
{{ find_heads() }}
{% endif %}
{% if kernel.held or kernel.backwards %}
{{ places() }}
{% endif %}
{% if kernel.held %}
{% for position in range(kernel.tile.chunk) %}
    let last{{ position }} = {{ "false" if kernel.single_head and not loop.last else "index + " ~ (position + 1) ~ "u == params.length || " ~ ("ends" ~ position if rows_within else "is_head(index + " ~ (position + 1) ~ "u)") }};
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
    if ({{ head_at(position) }}) {
        e{{ position }} = seed(row_of(index + {{ position }}u));
    }
    let r{{ position }} = {{ kernel.mapped_result("e" ~ position, position) }};
{% else %}
    let r{{ position }} = {{ kernel.mapped_result(item, position) }};
{% endif %}
{% endfor %}
{% if kernel.ends %}
{% for position in range(kernel.tile.chunk - 1 if kernel.single_head else 0, kernel.tile.chunk) %}
    let next{{ position }} = index + {{ position + 1 }}u;
    if (next{{ position }} == params.length || (next{{ position }} < params.length && {{ "ends" ~ position if rows_within else "is_head(next" ~ position ~ ")" }})) {
        store_result(row_of(index + {{ position }}u), r{{ position }});
    }
{% endfor %}
{% else %}
{% for line in kernel.store_lines("index") %}
    {{ line }}
{% endfor %}
{% endif %}
}
{% endif %}
