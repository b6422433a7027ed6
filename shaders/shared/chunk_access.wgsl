{#- Macros for the statements that load and store one field's share of a chunk: neighbouring elements of one invocation.
    Each takes an `access` (gpuscan/codegen/load_store.py), which holds plain values: the array's name, the width of an
    access in words, the number of accesses in a chunk. The numbers inside the words are expressions of `text`. -#}

{#- ----- Indices -#}

{#- The index of the vector that holds element `first`. Read backwards, `first` may be below zero, so it is shifted as a
    signed number. -#}
{% macro vector_index(access, first) -%}
{%- set words = first if access.index_factor == 1 else first ~ " * " ~ access.index_factor ~ "u" -%}
{%- if access.index_shift == 0 -%}
{{ words }}
{%- elif kernel.reads_backwards -%}
bitcast<u32>(bitcast<i32>({{ words }}) >> {{ access.index_shift }}u)
{%- elif access.index_factor > 1 -%}
({{ words }}) >> {{ access.index_shift }}u
{%- else -%}
{{ words }} >> {{ access.index_shift }}u
{%- endif -%}
{%- endmacro %}

{#- The number of vectors that hold elements before the end. -#}
{% macro vector_count(access) -%}
{%- set words = "params.length" if access.index_factor == 1 else "params.length * " ~ access.index_factor ~ "u" -%}
{%- if access.index_shift == 0 -%}
{{ words }}
{%- else -%}
({{ words }} + {{ 2 ** access.index_shift - 1 }}u) / {{ 2 ** access.index_shift }}u
{%- endif -%}
{%- endmacro %}

{#- The index of an invocation's first access: the index of its chunk. If the lanes of a subgroup exchange chunks, it is
    the index of the lane among its subgroup's vectors. -#}
{% macro first_access(access, first) -%}
{%- if access.exchanged -%}
({{ vector_index(access, first) }}) - {{ "(SUBGROUP_SIZE - 1u - lane)" if kernel.reads_backwards else "lane" }} * {{ access.accesses }}u + lane
{%- else -%}
{{ vector_index(access, first) }}
{%- endif -%}
{%- endmacro %}

{#- The index of access `i`, given `first`, the index of the first access. -#}
{% macro nth_access(access, first, i) -%}
{{ first }}{% if i %} + {{ i }}u{{ " * SUBGROUP_SIZE" if access.exchanged }}{% endif %}

{%- endmacro %}

{#- The bits of a word before the first element of an unaligned chunk that begins at element `first`. For one reversed
    row it is the same for all chunks, and never 0. -#}
{% macro bit_shift(access, first="") -%}
((({{ first if kernel.in_columns else "params.length" }}) * {{ access.field.storage_bytes }}u) & 3u) * 8u
{%- endmacro %}

{#- ----- Loads -#}

{#- Load the vectors of a chunk that begins at element `first`, as `source0_0`, `source0_1`, … -#}
{% macro load_vectors(access, first) %}
{% if kernel.loads_words_first %}
{% for i in range(access.accesses) %}
    let {{ access.name }}_{{ i }} = loaded[{{ i }}];
{% endfor %}
{% else %}
{% set at = access.name ~ "_at" if access.accesses > 1 else vector_index(access, first) %}
{% if access.accesses > 1 %}
    let {{ at }} = {{ vector_index(access, first) }};
{% endif %}
{% for i in range(access.accesses) %}
    let {{ access.name }}_{{ i }} = {{ access.load_vector(at ~ (" + %du" % i if i else "")) }};
{% endfor %}
{% endif %}
{% if access.unaligned %}
    let {{ access.name }}_shift = {{ bit_shift(access, first) }};
{% endif %}
{% endmacro %}

{#- Load the vectors of all sources of a chunk that begins at element `first` in storage. For columns, `previous` and
    `following` are where the rows before and after begin. -#}
{% macro load_sources(first, previous="", following="") %}
{% for source in text.loaded_sources if not kernel.single_elements %}
{{ load_vectors(source, {-1: previous, 0: first, 1: following}[source.offset] if kernel.in_columns else first) -}}
{% endfor %}
{% endmacro %}

{#- The same, and name the elements of the chunk `e0`, `e1`, … in logical order. -#}
{% macro load_elements(first, previous="", following="") %}
{{ load_sources(first, previous, following) -}}
{% for position in range(kernel.tile.chunk) %}
    {{ "var" if spec.initial and not kernel.takes_steps else "let" }} e{{ position }} = {{ text.load_element(position, first) }};
{% endfor %}
{% endmacro %}

{#- Load a chunk of a mask, and name its elements `e0`, `e1`, …: 1 for what it selects. -#}
{% macro load_mask(first) %}
{% for source in (text.sources if spec.before else text.sources[:1]) %}
{{ load_vectors(source, first) -}}
{% endfor %}
{% for position in range(kernel.tile.chunk) %}
    let e{{ position }} = select(0u, {{ text.mask_number(position) }}, {{ first }} + {{ position }}u < params.length);
{% endfor %}
{% endmacro %}

{#- Load the neighbour field of the element after each element of a chunk, as `next0`, `next1`, … For columns, `first`
    is where the row after begins. -#}
{% macro load_next(first) %}
{% if not kernel.single_elements %}
{{ load_vectors(text.neighbour_source, first) -}}
{% endif %}
{% for position in range(kernel.tile.chunk) %}
    let next{{ position }} = {{ text.next_value(position, first) }};
{% endfor %}
{% endmacro %}

{#- ----- Stores -#}

{#- Store the results `r0`, `r1`, … of a chunk that begins at element `first` in storage, but nothing past the end. -#}
{% macro store_results(first, result="r{0}") %}
{% for access in text.destinations %}
{% set stored = "stored" ~ loop.index0 %}
{% set words = text.pack_words(access, result) %}
    let {{ stored }}_at = {{ first_access(access, first) }};
    let {{ stored }}_end = {{ vector_count(access) }};
{% if access.unaligned %}
{{ store_unaligned(access, stored, words, first) -}}
{% elif access.exchanged %}
    let {{ stored }} = to_storage(invocation, {{ "Loaded" if text.sources[0].exchanged else "Exchanged" }}({% for vector in words | batch(access.width) %}{{ as_vector(access, vector) }}{{ ", " if not loop.last }}{% endfor %}));
{% for i in range(access.accesses) %}
{{ store_vector(access, stored, i, stored ~ "[" ~ i ~ "]") -}}
{% endfor %}
{% else %}
{% for vector in words | batch(access.width) %}
{{ store_vector(access, stored, loop.index0, as_vector(access, vector)) -}}
{% endfor %}
{% endif %}
{% endfor %}
{% endmacro %}

{% macro as_vector(access, words) -%}
{{ words[0] if access.width == 1 else access.vector ~ "(" ~ words | join(", ") ~ ")" }}
{%- endmacro %}

{#- Store vector `i` of a chunk, unless it is past the end. Where the bytes after the array belong to someone else, the
    last word keeps those. -#}
{% macro store_vector(access, stored, i, vector) %}
{% set at = nth_access(access, stored ~ "_at", i) %}
{% if kernel.access.exact and access.field.storage_bytes % 4 %}
{% set tail = "((params.length * " ~ access.field.storage_bytes ~ "u) & 3u)" %}
{% set mask = "((1u << (8u * " ~ tail ~ ")) - 1u)" %}
    if ({{ at }} + 1u == {{ stored }}_end && {{ tail }} > 0u) {
        {{ access.name }}[{{ at }}] = ({{ access.name }}[{{ at }}] & ~{{ mask }}) | (({{ vector }}) & {{ mask }});
    } else if ({{ at }} < {{ stored }}_end) {
        {{ access.name }}[{{ at }}] = {{ vector }};
    }
{% else %}
    if ({{ at }} < {{ stored }}_end) {
        {{ access.refer_to_vector(at) }} = {{ vector }};
    }
{% endif %}
{% endmacro %}

{#- Store the words of a chunk that begins at element `first`, within a word. It shares its first and last word with
    other chunks. Lanes of a subgroup exchange what they have of a word, so that one of them stores it. Other words get
    their bits by two atomic operations, which keep the bits of others, whenever those are stored. -#}
{% macro store_unaligned(access, stored, words, first) %}
{% set count, exchanges = words | length, kernel.subgroups and not (kernel.tile.per_row or spec.everywhere) %}
{% set before, after = ("edges.before", "edges.after") if kernel.in_columns else (stored ~ "_lower", stored ~ "_upper") %}
    let {{ stored }}_shift = {{ bit_shift(access, first) }};
    let {{ stored }}_rest = 31u - {{ stored }}_shift;  // a shift by 32 bits would be none, so the rest is shifted twice
{% for word in words %}
    let {{ stored }}_{{ loop.index0 }} = {{ word }};
    let {{ stored }}_mask{{ loop.index0 }} = {{ "mask_of_word(edges.size * %du, %du)" % (8 * access.field.storage_bytes, 32 * loop.index0) if kernel.in_columns else "0xffffffffu" }};
{% endfor %}
{% if exchanges and kernel.in_columns %}
    let {{ stored }}_before = subgroupShuffleUp({{ stored }}_{{ count - 1 }}, 1u);
{% elif exchanges %}
{# A row is read backwards, so the next lane has what is before in memory, and stores no part of its last word. #}
    let {{ stored }}_lane = (index / CHUNK) % SUBGROUP_SIZE;
    let {{ stored }}_before = subgroupShuffleDown({{ stored }}_{{ count - 1 }}, 1u);
    let {{ before }} = select(0xffffffffu, 0u, {{ stored }}_lane == SUBGROUP_SIZE - 1u);
    let {{ after }} = select(0u, 0xffffffffu, {{ stored }}_lane == 0u);
{% endif %}
{% for i in range(count + 1) %}
{% set at = "%s_at + %du" % (stored, i) %}
{% set low, low_mask = ("%s_%d" % (stored, i), "%s_mask%d" % (stored, i)) if i < count else ("", "") %}
{% set high, high_mask = ("%s_%d" % (stored, i - 1), "%s_mask%d" % (stored, i - 1)) if i else ("%s_before" % stored, before) if exchanges else ("", "") %}
    let {{ stored }}_word{{ i }} = {{ word_across(stored, high, low) }};
    let {{ stored }}_part{{ i }} = {{ word_across(stored, high_mask, low_mask) }}{{ " & " ~ after if i == count and exchanges }};
    if ({{ "exists" if kernel.in_columns else "(%s < %s_end)" % (at, stored) }} & ({{ stored }}_part{{ i }} != 0u)) {
        if ({{ stored }}_part{{ i }} == 0xffffffffu) {
            atomicStore(&{{ access.refer_to_vector(at) }}, {{ stored }}_word{{ i }});
        } else {
            atomicAnd(&{{ access.refer_to_vector(at) }}, ~{{ stored }}_part{{ i }});
            atomicOr(&{{ access.refer_to_vector(at) }}, {{ stored }}_word{{ i }} & {{ stored }}_part{{ i }});
        }
    }
{% endfor %}
{% endmacro %}

{#- The word that ends with the highest bits of `high` and begins with the lowest of `low`; either may be missing. -#}
{% macro word_across(stored, high, low) -%}
{% if low %}({{ low }} << {{ stored }}_shift){% endif %}{{ " | " if low and high }}{% if high %}(({{ high }} >> 1u) >> {{ stored }}_rest){% endif %}
{%- endmacro %}

{#- Store one result by itself at element `at`, wherever that begins within a word; if `others`, in the destinations of
    the elements that a partition does not select. -#}
{% macro store_single(at, result, others=False) %}
{% for access in text.destinations_of(others=others) %}
{% for number in text.result_numbers(access, result) %}
{% set words = text.storage_words(access, number) %}
{% if access.field.scalar.packed %}
{% set index = "(%s * %du + %du)" % (at, access.field.count, loop.index0) %}
    atomicOr(&{{ access.name }}[{{ index }} / {{ access.field.scalar.per_word }}u], ({{ words[0] }}) << ({{ index }} % {{ access.field.scalar.per_word }}u * {{ access.field.scalar.bits }}u));
{% else %}
{% set start = "%s * %du + %du" % (at, access.field.words, loop.index0 * words | length) %}
{% for word in words %}
    {{ access.refer_to_vector(start ~ " + " ~ loop.index0 ~ "u") }} = {{ word }};
{% endfor %}
{% endif %}
{% endfor %}
{% endfor %}
{% endmacro %}
