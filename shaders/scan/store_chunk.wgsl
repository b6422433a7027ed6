{#- Store the results of a chunk. An exclusive scan stores the initial value where a row begins. -#}
{% from "shared/chunk_access.wgsl" import load_next, store_results, store_single with context %}
{% from "scan/chunk_places.wgsl" import rows_within, find_heads, find_rows, row_at, head_after, head_at, end_at, find_offsets, find_ends with context %}
{% set selects_seeds = spec.exclusive and not text.packs_heads %}
{% set needs_heads = selects_seeds or spec.reduces_segments or (rows_within and (spec.neighbour_field or spec.keep_last_only or kernel.single_elements)) %}
{% if kernel.stores_one_total %}
// Return the item at an index in a chunk.
fn item_in(chunk: Chunk, index: u32) -> Item {
    var item = chunk[0];
{% for position in range(1, kernel.tile.chunk) %}
    item = pick(index == {{ position }}u, chunk[{{ position }}], item);
{% endfor %}
    return item;
}
{% else %}
{% macro own_item(position) %}chunk[{{ position }}]{{ ".value" if kernel.segmented }}{% endmacro %}
{% macro last_result(position) %}{{ text.map_result(own_item(position), position) }}{% endmacro %}
{% if kernel.exchanges_chunks %}
fn store_chunk(index: u32, chunk: Chunk, invocation: u32) {
    let lane = invocation % SUBGROUP_SIZE;
{% else %}
fn store_chunk(index: u32, chunk: {{ "Results" if kernel.takes_steps else "Chunk" }}) {
{% endif %}
{{ find_heads() if needs_heads -}}
{% set needs_rows = spec.has_tail_values or selects_seeds or (spec.keep_last_only and not spec.reduces_segments) %}
{{ find_rows() if needs_heads and needs_rows -}}
{{ find_offsets() if spec.neighbour_field or kernel.reads_backwards -}}
{% if spec.neighbour_field %}
{{ find_ends() -}}
{% for position in range(kernel.tile.chunk) %}
{% if spec.has_tail_values %}
    let tail{{ position }} = tail({{ row_at(position) }});
{% else %}
    let tail{{ position }} = {{ text.type_of(spec.neighbour_field) }}();
{% endif %}
{% endfor %}
{{ load_next("first") -}}
{% endif %}
{% if text.packs_heads %}
    let start = seed(0u);
{% endif %}
{# Of a reduction few elements are stored, so that only these are mapped. A plain scan stores the items. #}
{% set plain = text.map_result("x") == "x" and not (spec.exclusive or kernel.single_elements or kernel.takes_steps) %}
{% for position in range(0 if spec.keep_last_only or plain else kernel.tile.chunk) %}
{% set item = own_item(position) %}
{% if kernel.takes_steps %}
    let r{{ position }} = chunk[{{ position }}];
{% elif text.packs_heads %}
    let own{{ position }} = {{ item }};
    let head{{ position }} = chunk[{{ position }}].head == 1u;
    let e{{ position }} = {{ text.pick_element("head%d" % position, "start", "own%d" % position) }};
    let r{{ position }} = {{ text.map_result("e%d" % position, position) }};
{% elif spec.exclusive %}
    var e{{ position }} = {{ item }};
    if ({{ head_at(position) }}) {
        e{{ position }} = seed({{ row_at(position) }});
    }
    let r{{ position }} = {{ text.map_result("e%d" % position, position) }};
{% else %}
    let r{{ position }} = {{ text.map_result(item, position) }};
{% endif %}
{% endfor %}
{% if spec.reduces_segments %}
{# A segment ends where the next one begins, and with the array, but not with a piece that another piece follows. #}
{% for position in range(kernel.tile.chunk) %}
    let next{{ position }} = index + {{ position + 1 }}u;
    let ends{{ position }} = {{ "next%d == params.length || " % position if not spec.carry_out }}{{ head_at(position + 1) if not loop.last else head_after("next%d" % position) }};
    if (next{{ position }} <= params.length && ends{{ position }}) {
        store_result(chunk[{{ position }}].head - 1u, {{ last_result(position) }});
    }
{% if spec.lists_key_runs %}
    if (next{{ position }} <= params.length && {{ head_at(position) }}) {
        count[KEY_RUNS_AT + chunk[{{ position }}].head - 1u] = index + {{ position }}u + params.row_offset;
    }
{% if not spec.carry_out %}
    if (next{{ position }} == params.length) {
        count[0] = chunk[{{ position }}].head;
    }
{% endif %}
{% endif %}
{% endfor %}
{% elif spec.keep_last_only %}
{# Where heads begin chunks, only a chunk's last element can end a row. #}
{% for position in range(kernel.tile.chunk - 1 if kernel.heads_begin_chunks else 0, kernel.tile.chunk) %}
    let next{{ position }} = index + {{ position + 1 }}u;
    if (next{{ position }} == params.length || (next{{ position }} < params.length && {{ end_at(position, "next%d" % position) }})) {
        store_result({{ row_at(position) }}, {{ last_result(position) }});
    }
{% endfor %}
{% elif kernel.single_elements %}
{% for position in range(kernel.tile.chunk) %}
    if (index + {{ position }}u < params.length) {
{{ (store_single("at%d" % position, "r%d" % position) | indent(4, true)).rstrip() }}
    }
{% endfor %}
{% else %}
{{ store_results("first" if kernel.reads_backwards else "index", own_item("{0}") if plain else "r{0}") -}}
{% endif %}
}
{% endif %}
