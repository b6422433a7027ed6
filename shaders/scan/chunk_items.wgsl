{#- The body of the functions that make items of a chunk: its elements, combined with the initial value where a row
    begins, and their head flags. `knows_row_index` is as for `find_heads`. -#}
{% from "shared/chunk_access.wgsl" import load_elements, load_mask, load_sources with context %}
{% from "scan/chunk_places.wgsl" import find_heads, find_indices, find_rows, row_at, head_at, find_offsets, find_ends with context %}
{% macro chunk_items(knows_row_index=false) %}
{% set named = spec.initial or spec.compacts %}
{{ find_heads(knows_row_index) -}}
{% set first = "first" if kernel.reads_backwards else "index" %}
{{ find_offsets() if kernel.reads_backwards -}}
{{ find_indices() if spec.index_step -}}
{% if spec.field_offsets %}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = {{ head_at(position) }};
{% endfor %}
{% endif %}
{{ find_ends() if text.loads_following -}}
{% if spec.picks_heads %}
{% for position in range(kernel.tile.chunk) %}
    let e{{ position }} = select(0u, 1u, ({{ head_at(position) }}) & (index + {{ position }}u < params.length));
{% endfor %}
{% else %}
{{ load_mask(first) if spec.compacts else load_elements(first) if named else load_sources(first) -}}
{% endif %}
{% if spec.initial and kernel.segmented and not kernel.heads_begin_chunks %}
{{ find_rows() -}}
{# Selected, not branched: SwiftShader's compile time is exponential in the number of branches within a loop. #}
{% for position in range(kernel.tile.chunk) %}
    let head{{ position }} = {{ head_at(position) }};
    let seeded{{ position }} = combine(seed({{ row_at(position) }}), e{{ position }});
    e{{ position }} = {{ text.pick_element("head" ~ position, "seeded" ~ position, "e" ~ position) }};
{% endfor %}
{% elif spec.initial and kernel.heads_begin_chunks %}
    if (is_head(index)) {  // the only head in the chunk's row, and it begins a chunk
        e0 = combine(seed(row_of(index)), e0);
    }
{% elif spec.initial %}
    if (is_head(index)) {  // the only head there is, and it begins a chunk
        e0 = combine(seed(0u), e0);
    }
{% endif %}
{% macro element(position) %}{{ "e%d" % position if named else text.load_element(position, first) }}{% endmacro %}
{% if kernel.segmented %}
    return Chunk(
{% for position in range(kernel.tile.chunk) %}
        Item({{ element(position) }}, select(0u, {{ 2 ** position if text.packs_heads else 1 }}u, {{ head_at(position) }})),
{% endfor %}
    );
{% elif kernel.tile.chunk <= (16 if named else 4) %}
    return Chunk({% for position in range(kernel.tile.chunk) %}{{ element(position) }}{{ ", " if not loop.last }}{% endfor %});
{% else %}
    return Chunk(
{% for positions in range(kernel.tile.chunk) | batch(16 if named else 4) %}
        {%+ for position in positions %}{{ element(position) }}, {% endfor %}

{% endfor %}
    );
{% endif %}
{% endmacro %}
