{#- Between storage and registers: one invocation's chunk of CHUNK neighbouring elements at a time.
    in:  the sources and the initial values
    out: the destinations
    Reads past the end give some value (WGSL's bounds rule), which never reaches an element before the end. Writes past
    the end are skipped. -#}
{% include "shared/arrays.wgsl" %}
{% include "scan/rows.wgsl" %}

// ----- Load and store
alias Chunk = array<Item, {{ kernel.tile.chunk }}>;

{% if kernel.takes_steps %}
{% include "scan/loop_steps.wgsl" %}
{% elif kernel.loads_words_first %}
{% include "scan/load_words.wgsl" %}
{% else %}
{% from "scan/chunk_items.wgsl" import chunk_items with context %}
{% from "scan/chunk_places.wgsl" import counts_along with context %}
fn load_chunk(index: u32{{ ", row_index0: u32" if counts_along }}) -> Chunk {
{{ chunk_items(counts_along) -}}
}

{% endif %}
{% if kernel.destinations and spec.compacts %}
{% include "scan/compact.wgsl" %}
{% elif kernel.destinations %}
{% if spec.lists_key_runs %}
const KEY_RUNS_AT = {{ text.key_runs_at }}u;

// The number of segments, and from KEY_RUNS_AT on, the index at which each of them begins.
@group(0) @binding({{ kernel.binding_of("count") }}) var<storage, read_write> count: array<u32>;

{% endif %}
{% include "scan/store_chunk.wgsl" %}
{% endif %}
