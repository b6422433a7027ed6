{#- The loop itself within a chunk, where the operator composes maps of its steps. The maps of a chunk are composed for
    its total alone. Once the state before the chunk is known, the loop's own step takes it from element to element. So
    no element is combined twice, and an invocation keeps the sources, which are often fewer words than their maps. -#}
{% from "shared/chunk_access.wgsl" import load_elements with context %}
{% from "scan/chunk_places.wgsl" import find_heads, find_rows, row_at, head_at, find_offsets with context %}
{% set value = "lead.value" if kernel.segmented else "lead" %}
{% set heads_within = kernel.segmented and not kernel.heads_begin_chunks %}
{% macro first_map(x) -%}
{{ "loop_first" if spec.steps.first else "before" }}({{ x }})
{%- endmacro %}
{% macro extend_map(map, x) -%}
{% if spec.steps.extend %}loop_extend({{ text.with_source("Extended", spec.element, map, x) }}){% else %}combine({{ map }}, before({{ x }})){% endif %}
{%- endmacro %}
alias Sources = array<Source, {{ kernel.tile.chunk }}>;
{% if kernel.destinations %}
alias Results = array<Result, {{ kernel.tile.chunk }}>;
{% endif %}

fn load_sources(index: u32) -> Sources {
{{ find_heads() if kernel.single_elements -}}
{{ find_offsets() if kernel.reads_backwards -}}
{{ load_elements("first" if kernel.reads_backwards else "index").rstrip() }}
    return Sources({% for position in range(kernel.tile.chunk) %}e{{ position }}{{ ", " if not loop.last }}{% endfor %});
}

// Return the composition of the maps of a chunk's steps, which begins with the seed where a row begins.
fn compose_chunk(index: u32, sources: Sources) -> Item {
{% if heads_within %}
{{ find_heads() -}}
{{ find_rows() -}}
{% endif %}
{% for position in range(kernel.tile.chunk) %}
    let x{{ position }} = sources[{{ position }}];
{% endfor %}
    var map = {{ first_map("x0") }};
{% if heads_within %}
    var head = 0u;
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = {{ head_at(position) }};
    let seed{{ position }} = seed({{ row_at(position) }});
{% if position %}
    let before{{ position }} = {{ text.pick_element("head%d" % position, "seed%d" % position, "map") }};
    map = {{ extend_map("before%d" % position, "x%d" % position) }};
{% else %}
    let map_from_seed = {{ extend_map("seed0", "x0") }};
    map = {{ text.pick_element("head0", "map_from_seed", "map") }};
{% endif %}
    head = select(head, 1u, head{{ position }});
{% endfor %}
{% else %}
    if (is_head(index)) {  // the only head in the chunk's row, and it begins a chunk
        let start = seed(row_of(index));
        map = {{ extend_map("start", "x0") }};
    }
{% for position in range(1, kernel.tile.chunk) %}
    map = {{ extend_map("map", "x%d" % position) }};
{% endfor %}
{% endif %}
{% set total = "loop_settle(map)" if spec.steps.settle else "map" %}
    return {{ "Item(%s, %s)" % (total, "head" if heads_within else "select(0u, 1u, is_head(index))") if kernel.segmented else total }};
}
{% if kernel.destinations %}

// Return the results of a chunk, given the state before it. Where a row begins, the state before it is its seed.
fn take_steps(index: u32, lead: Item, sources: Sources) -> Results {
{% if heads_within %}
{{ find_heads() -}}
{{ find_rows() -}}
{% endif %}
    var now = loop_state({{ value }});
{% if not heads_within %}
    if (is_head(index)) {
        now = loop_state(seed(row_of(index)));
    }
{% endif %}
{% for position in range(kernel.tile.chunk) %}
    let x{{ position }} = sources[{{ position }}];
{% if heads_within %}
    let head{{ position }} = {{ head_at(position) }};
    let start{{ position }} = loop_state(seed({{ row_at(position) }}));
    now = {{ text.pick_state("head%d" % position, "start%d" % position, "now") }};
{% endif %}
{% if spec.exclusive %}
    let r{{ position }} = loop_finish({{ text.with_source("Stepped", text.state, "now", "x%d" % position) }});
{% endif %}
    now = loop_take({{ text.with_source("Stepped", text.state, "now", "x%d" % position) }});
{% if not spec.exclusive %}
    let r{{ position }} = loop_finish({{ text.with_source("Stepped", text.state, "now", "x%d" % position) }});
{% endif %}
{% endfor %}
    return Results({% for position in range(kernel.tile.chunk) %}r{{ position }}{{ ", " if not loop.last }}{% endfor %});
}
{% endif %}
