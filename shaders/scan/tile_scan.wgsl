{#- Functions on one invocation's chunk, and the scan over invocations, in the fixed order of combination that every
    stage shares: left to right in a chunk, a Kogge-Stone tree over lanes, left to right over the steps of a band, a
    Kogge-Stone tree over bands. A subgroup takes one band, or several neighbouring ones. Without subgroups: left to
    right in a chunk, a Kogge-Stone tree over the workgroup. -#}
{% from "scan/shared_scan.wgsl" import shared_scan with context %}
{% from "scan/halves.wgsl" import chunks_in_halves, scan_in_halves, reduce_in_halves with context %}
{% from "scan/subgroup_scan.wgsl" import subgroup_scan with context %}
{% include "scan/item_exchange.wgsl" %}
// ----- Scan of a tile
// Elements from an invocation's chunk to its next one.
const STEP_SIZE = {{ "SUBGROUP" if kernel.subgroups else "WORKGROUP" }}_SIZE * CHUNK;
{% if kernel.subgroups %}
{% if not kernel.loops_over_lanes %}
{{ subgroup_scan("scan_lanes", kernel.tile.subgroup_size) }}
{% endif %}
{% set bands = kernel.tile.bands_per_workgroup %}
{% if bands > 1 %}
const BANDS = {{ bands }}u;  // in a workgroup
// The last one takes values that are not read.
var<workgroup> band_totals: array<{{ text.shared_item }}, {{ bands + 1 }}>;
{% if kernel.totals_fit_subgroup %}
{{ subgroup_scan("scan_totals", bands, kernel.loops_over_lanes) }}
{% else %}
{{ shared_scan("scan_totals", bands) }}
{% endif %}
{% endif %}
{% elif not spec.everywhere %}
{{ shared_scan("scan_invocations", kernel.tile.workgroup_size) }}
{% endif %}

{% if spec.everywhere %}
{{ chunks_in_halves() }}
{% else %}
fn scan_chunk(chunk: Chunk) -> Chunk {
    let s0 = chunk[0];
{% for position in range(1, kernel.tile.chunk) %}
    let s{{ position }} = join(s{{ position - 1 }}, chunk[{{ position }}]);
{% endfor %}
    return Chunk({% for position in range(kernel.tile.chunk) %}s{{ position }}{{ ", " if not loop.last }}{% endfor %});
}
{% endif %}

// Join `lead` with every item of the chunk, if it is known that there is a lead.
fn join_chunk(known: bool, lead: Item, chunk: Chunk) -> Chunk {
    return Chunk(
{% for positions in range(kernel.tile.chunk) | batch(2) %}
        {%+ for position in positions %}pick(known, join(lead, chunk[{{ position }}]), chunk[{{ position }}]), {% endfor %}

{% endfor %}
    );
}

{% if text.packs_heads %}
{% set per_word = 32 // kernel.tile.chunk %}
{% set head_words = (kernel.tile.steps + per_word - 1) // per_word %}
alias Heads = array<u32, {{ head_words }}>;

// Return the head flags of all chunks as bits of few words, since each flag would take a register.
fn packed_heads(chunks: array<u32, STEPS>) -> Heads {
    return Heads(
{% for word in range(head_words) %}
        {% for step in range(word * per_word, [kernel.tile.steps, (word + 1) * per_word] | min) %}{{ " | " if not loop.first }}(chunks[{{ step }}] << {{ (step - word * per_word) * kernel.tile.chunk }}u){% endfor %},
{% endfor %}
    );
}

// Return the same bits, but compilers cannot know that. They would keep the flags that the bits were made of.
fn kept(bits: u32) -> u32 {
    return bits ^ (params.epoch >> 16u);  // epochs have 16 bits
}

// Join `lead` with what precedes each element of a scanned chunk, unless a head before the element cuts the lead off.
// `heads` has a bit for each element, which is returned with the item.
fn join_before_heads(known: bool, lead: Element, chunk: Chunk, heads: u32) -> Chunk {
    let all = select(0u, min(countTrailingZeros(heads), CHUNK) + 1u, known);
{% for position in range(kernel.tile.chunk) %}
    let own{{ position }} = chunk[{{ position }}].value;
    let both{{ position }} = combine(lead, own{{ position }});
{% endfor %}
    return Chunk(
{% for position in range(kernel.tile.chunk) %}
        Item({{ text.pick_element("all > %du" % position, "both%d" % position, "own%d" % position) }}, extractBits(heads, {{ position }}u, 1u)),
{% endfor %}
    );
}

{% endif %}
{% if kernel.tile.per_row %}
fn tiles_per_row() -> u32 {
    return (params.row_length + TILE_SIZE - 1u) / TILE_SIZE;
}

fn start_of(tile: u32) -> u32 {
    let tiles = tiles_per_row();
    return tile / tiles * params.row_length + tile % tiles * TILE_SIZE;
}

// Return the index after the last element of the tile's row.
fn end_of(tile: u32) -> u32 {
    return (tile / tiles_per_row() + 1u) * params.row_length;
}

{% endif %}
{% if spec.everywhere %}
{{ reduce_in_halves() if kernel.reduces else scan_in_halves() }}
{% elif kernel.reduces %}

{% include "scan/reduce_tile_in_any_order.wgsl" if kernel.reduces_in_any_order else "scan/reduce_tile.wgsl" %}
{% endif %}
