{#- Load a chunk in two steps: its words, as storage has them, and the items that they stand for. In between the words
    take few registers, or are exchanged between the lanes of a subgroup. -#}
{% from "shared/chunk_access.wgsl" import first_access, nth_access with context %}
{% from "scan/chunk_items.wgsl" import chunk_items with context %}
{% from "scan/chunk_places.wgsl" import find_offsets with context %}
{% set source = text.sources[0] %}
alias Loaded = array<{{ source.vector }}, {{ source.accesses }}>;  // a chunk in its storage form

{% if kernel.exchanges_chunks %}
{% include "scan/chunk_exchange.wgsl" %}

// Load vectors of the chunks of a subgroup, so that lanes access neighbours.
fn load(index: u32, invocation: u32) -> Loaded {
    let lane = invocation % SUBGROUP_SIZE;
{% else %}
fn load(index: u32) -> Loaded {
{% endif %}
{{ find_offsets() -}}
{# The index of the first vector that this invocation loads. #}
    let at = {{ first_access(source, "first") }};
    return Loaded({% for i in range(source.accesses) %}{{ source.load_vector(nth_access(source, "at", i)) }}{{ ", " if not loop.last }}{% endfor %});
}

{% if kernel.keeps_storage_form %}
// The same chunk, but compilers cannot know that. They would keep the items that they made of it before, for which
// there are too few registers.
fn again(loaded: Loaded) -> Loaded {
    let nothing = params.epoch >> 16u;  // epochs have 16 bits
    return Loaded({% for i in range(source.accesses) %}loaded[{{ i }}] ^ {{ source.vector }}(nothing){{ ", " if not loop.last }}{% endfor %});
}
{% endif %}

{% if source.exchanged %}
fn chunk_of(index: u32, shared_out: Loaded, invocation: u32) -> Chunk {
    let loaded = from_storage(invocation, shared_out);
{% elif kernel.exchanges_chunks %}
fn chunk_of(index: u32, loaded: Loaded, invocation: u32) -> Chunk {
{% else %}
fn chunk_of(index: u32, loaded: Loaded) -> Chunk {
{% endif %}
{{ chunk_items() -}}
}
