{#- Macros that name where a chunk's elements are, for the functions that load and store a chunk.
    `index` is the chunk's first element in logical order: the order of the scan. -#}
{% set rows_within = kernel.several_rows and not kernel.heads_begin_chunks %}
{#- True if the index in its row goes on from chunk to chunk. Where neighbours are loaded, too, that takes registers which
    an H200 lacks: gradients of products in rows take 85 us in place of 76. -#}
{% set counts_along = rows_within and not spec.field_offsets %}

{#- Find where rows begin in the chunk: `marks0`, … are bits from the first element on, since chunks do not cross words
    of bits; `row_index0`, … are elements' indices in their rows, and `ends0`, … say whether an element ends its
    row. `knows_row_index` is True if the function takes `row_index0`. -#}
{% macro find_heads(knows_row_index=false) %}
{% if spec.key %}
{% for word in range((kernel.tile.chunk + 31) // 32) %}
    let marks{{ word }} = heads_from(index + {{ 32 * word }}u);
{% endfor %}
{% elif spec.has_segment_bits %}
    let marks0 = heads[index >> 5u] >> (index & 31u);
{% for word in range(1, (kernel.tile.chunk + 31) // 32) %}
    let marks{{ word }} = heads[(index >> 5u) + {{ word }}u];
{% endfor %}
{% elif rows_within %}
{% if not knows_row_index %}
    let row_index0 = (index + params.row_offset) % params.row_length;
{% endif %}
    let ends0 = row_index0 + 1u == params.row_length;
{% for position in range(1, kernel.tile.chunk) %}
{# No remainder for each element: a GPU takes 20 times as long for those. #}
    let row_index{{ position }} = select(row_index{{ position - 1 }} + 1u, 0u, ends{{ position - 1 }});
    let ends{{ position }} = row_index{{ position }} + 1u == params.row_length;
{% endfor %}
{% endif %}
{% endmacro %}

{#- Name the rows of the chunk's elements: `row0`, `row1`, …. They are counted on from the first one. A division for
    each element would take a GPU 20 times as long. -#}
{% macro find_rows() %}
{% if rows_within %}
    let row0 = row_of(index);
{% for position in range(1, kernel.tile.chunk) %}
    let row{{ position }} = row{{ position - 1 }} + select(0u, 1u, ends{{ position - 1 }});
{% endfor %}
{% endif %}
{% endmacro %}

{#- The row of this element of the chunk. -#}
{% macro row_at(position) %}{{ "row%d" % position if rows_within else "row_of(index + %du)" % position }}{% endmacro %}

{#- True if a row or segment begins at `index`, the index of the element after the chunk. -#}
{% macro head_after(index) -%}
{{ "is_head(%s)" % index if spec.key else "extractBits(heads[%s >> 5u], %s & 31u, 1u) == 1u" % (index, index) }}
{%- endmacro %}

{#- True if a row or segment begins with this element of the chunk. -#}
{% macro head_at(position) -%}
{%- if spec.has_segment_bits -%}
extractBits(marks{{ position // 32 }}, {{ position % 32 }}u, 1u) == 1u
{%- elif kernel.heads_begin_chunks and position > 0 -%}
false
{%- elif rows_within -%}
row_index{{ position }} == 0u
{%- else -%}
is_head(index + {{ position }}u)
{%- endif -%}
{%- endmacro %}

{#- True if a row ends with this element of the chunk. `next` is the index of the element after it. -#}
{% macro end_at(position, next) -%}
{{ "ends" ~ position if rows_within else "is_head(" ~ next ~ ")" }}
{%- endmacro %}

{#- Say for each element of the chunk whether a row ends with it: `last0`, `last1`, … -#}
{% macro find_ends() %}
{% for position in range(kernel.tile.chunk) %}
{% set next = "index + %du" % (position + 1) %}
{% if kernel.heads_begin_chunks and not loop.last %}
    let last{{ position }} = false;
{% else %}
    let last{{ position }} = {{ next }} == params.length || {{ end_at(position, next) }};
{% endif %}
{% endfor %}
{% endmacro %}

{#- Name where the chunk begins in storage, `first`; or where its elements are, `at0`, `at1`, …, if each is accessed by
    itself. Element i of one reversed row is at `length - 1 - i`. Each of several rows is reversed by itself, so
    that they share tiles as they do forwards: element i, the p-th of its row, is at `i + row_length - 1 - 2 * p`.
    Offsets past the end are arbitrary, because their elements are not kept. -#}
{% macro find_offsets() %}
{% if not kernel.reads_backwards %}
    let first = index;
{% elif not kernel.several_rows %}
    let first = params.length - CHUNK - index;
{% elif not kernel.single_elements %}
    let first = index + params.row_length - CHUNK - 2u * (index % params.row_length);
{% else %}
    let at0 = index + params.row_length - 1u - 2u * row_index0;
{% for position in range(1, kernel.tile.chunk) %}
{# Element `position`, or the first one of the next row. #}
    let at{{ position }} = select(at{{ position - 1 }} - 1u, at{{ position - 1 }} + 2u * params.row_length - 1u, ends{{ position - 1 }});
{% endfor %}
{% endif %}
{% endmacro %}

{#- Name the indices of the chunk's elements along the axis, `index0`, `index1`, …: their indices in their rows. If the
    scan begins at the ends of the rows, these are the numbers of elements after them in their rows. -#}
{% macro find_indices() %}
{% set wraps = kernel.access.several_rows and not kernel.heads_begin_chunks %}
{% if not rows_within %}
    let along0 = {{ "(index + params.row_offset) % params.row_length" if kernel.several_rows or wraps else "index + params.row_offset" }};
{% for position in range(1, kernel.tile.chunk) %}
    let along{{ position }} = {{ "select(along%d + 1u, 0u, along%d + 1u == params.row_length)" % (position - 1, position - 1) if wraps else "along%d + 1u" % (position - 1) }};
{% endfor %}
{% endif %}
{% for position in range(kernel.tile.chunk) %}
    let index{{ position }} = i32({{ "params.row_length - 1u - " if spec.index_step < 0 }}{{ "row_index" if rows_within else "along" }}{{ position }});
{% endfor %}
{% endmacro %}
