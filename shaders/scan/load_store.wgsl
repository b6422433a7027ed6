{#- Between storage and registers: one invocation's chunk of CHUNK neighbouring elements at a time.
    in:  the sources and the initial values
    out: the destinations
    Reads past the end give some value (WGSL's bounds rule), which never reaches an element before the end. Writes past
    the end are skipped. -#}
{% include "shared/arrays.wgsl" %}
// ----- Load and store
{% if text.heads_in_bits %}
struct Chunk {
    values: array<Element, {{ kernel.tile.chunk }}>,
    heads: u32,  // a bit for each element: 1 if a row begins with it. The first bit is also 1 if one begins in what precedes
{% if spec.reduces_segments %}
    before: u32,  // heads before the chunk; one less where only they have set the first bit
{% endif %}
}

fn last_of(chunk: Chunk) -> Item {
    return Item(chunk.values[CHUNK - 1u], {{ text.head_in_chunk(kernel.tile.chunk - 1) }});
}
{% else %}
alias Chunk = array<Item, {{ kernel.tile.chunk }}>;
{% endif %}

{% include "scan/rows.wgsl" %}

{% if kernel.loads_words_first %}
{% include "scan/load_words.wgsl" %}
{% else %}
{% include "scan/load_chunk.wgsl" %}
{% endif %}
{% if kernel.destinations and spec.compacts %}
{% include "scan/compact.wgsl" %}
{% elif kernel.destinations %}
{% if spec.lists_runs %}
const RUNS_AT = {{ text.runs_at }}u;

// The number of segments, and from RUNS_AT on, the index at which each of them begins.
@group(0) @binding({{ kernel.binding_of("count") }}) var<storage, read_write> count: array<u32>;

{% endif %}
{% include "scan/store_chunk.wgsl" %}
{% endif %}
