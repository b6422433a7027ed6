{#- The canonical order of reproducible="everywhere" within a tile: first the scan of the left half, then the total of
    the left half joined with each item of the scan of the right half (Sklansky 1960). Halves begin at multiples of
    their size, so that every tile of a power of two gives the same bits. -#}
{#- Scan the elements of a chunk: `c<level>_<position>` are the items when halves of 2^level elements are joined. -#}
{% macro scan_chunk_in_halves() %}
fn scan_chunk(chunk: Chunk) -> Chunk {
{% for position in range(kernel.tile.chunk) %}
    let c0_{{ position }} = chunk[{{ position }}];
{% endfor %}
{% set ns = namespace(half=1, level=0) %}
{% for _ in range(8) %}{% if ns.half < kernel.tile.chunk %}
{% for position in range(kernel.tile.chunk) %}
{% set at = "c%d_%d" % (ns.level, position) %}
    let c{{ ns.level + 1 }}_{{ position }} = {{ "join(c%d_%d, %s)" % (ns.level, position // ns.half * ns.half - 1, at) if position // ns.half % 2 else at }};
{% endfor %}
{% set ns.half = ns.half * 2 %}
{% set ns.level = ns.level + 1 %}
{% endif %}{% endfor %}
    return Chunk({% for position in range(kernel.tile.chunk) %}c{{ ns.level }}_{{ position }}{{ ", " if not loop.last }}{% endfor %});
}
{%- endmacro %}
{#- Scan the chunks of a workgroup. Afterwards `scratch` holds the last item of each chunk, after a barrier. -#}
{% macro scan_in_halves() %}
fn scan_workgroup(invocation: u32, loaded: Chunk) -> Chunk {
    var chunk = scan_chunk(loaded);
    scratch[invocation] = {{ text.to_shared("chunk[CHUNK - 1u]") }};
    workgroupBarrier();
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        let lead = {{ text.from_shared("scratch[max(invocation / half * half, 1u) - 1u]") }};
        chunk = join_chunk((invocation & half) != 0u, lead, chunk);
        workgroupBarrier();
        scratch[invocation] = {{ text.to_shared("chunk[CHUNK - 1u]") }};
        workgroupBarrier();
    }
    return chunk;
}
{%- endmacro %}
{#- The total of a tile is the last item of its scan: the total of the left half joined with the total of the right half. -#}
{% macro reduce_in_halves() %}
fn reduce_tile(tile: u32, invocation: u32) -> Item {
    var item = scan_chunk(load_chunk(first_of(tile, invocation)))[CHUNK - 1u];
    scratch[invocation] = {{ text.to_shared("item") }};
    workgroupBarrier();
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        if ((invocation + 1u) % (2u * half) == 0u) {
            item = join({{ text.from_shared("scratch[invocation - half]") }}, item);
        }
        workgroupBarrier();
        scratch[invocation] = {{ text.to_shared("item") }};
        workgroupBarrier();
    }
    return {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
}
{%- endmacro %}
