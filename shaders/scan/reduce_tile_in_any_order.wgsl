{#- The aggregate of a tile, of an operator that gives the same bits in any order. Each invocation combines its chunks
    element by element, then the elements of the one remaining chunk, and only then invocations exchange items.
    Elements past the end of the row are ignored. They come last in every order that is used here: in each chunk, among
    the lanes and among the subgroups. So no identity is needed instead of them. -#}
{% from "scan/subgroup_scan.wgsl" import chunk_of, first_of, joined, load_steps, chunk_start with context %}
// Combine each position of `sums` with the same position of a chunk that begins `left` elements before the end.
fn combine_chunks(sums: Chunk, chunk: Chunk, left: u32) -> Chunk {
    let both = Chunk({% for position in range(kernel.tile.chunk) %}join(sums[{{ position }}], chunk[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
    if (left >= CHUNK) {
        return both;
    }
    return Chunk({% for position in range(kernel.tile.chunk) %}pick(left > {{ position }}u, both[{{ position }}], sums[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
}

// Return how many of `count` parts of `size` elements begin before the end, and at least 1.
fn parts_before_end(left: u32, size: u32, count: u32) -> u32 {
    return clamp((left + size - 1u) / size, 1u, count);
}

// Return the aggregate of a tile to every invocation.
fn reduce_tile(tile: u32, invocation: u32) -> Item {
{% if kernel.subgroups %}
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
    let first = {{ first_of("tile") }};
    let end = {{ "end_of(tile)" if kernel.tile.per_row else "params.length" }};
{{ load_steps() -}}
{% for step in range(kernel.tile.steps) %}
    let sums{{ step }} = {{ "combine_chunks(sums%d, %s, end - min(%s, end))" % (step - 1, chunk_of(step), chunk_start(step)) if step else chunk_of(0) }};
{% endfor %}
    let own = scan_chunk(sums{{ kernel.tile.steps - 1 }});
    let left = end - min(first, end);
    var total = own[CHUNK - 1u];
    if (left < CHUNK) {
{% for position in range(kernel.tile.chunk - 2, -1, -1) %}
        total = pick(left <= {{ position + 1 }}u, own[{{ position }}], total);
{% endfor %}
    }
{% if kernel.subgroups %}
    let begin = first - lane * CHUNK;  // of the subgroup's elements
    let lanes = parts_before_end(end - min(begin, end), CHUNK, SUBGROUP_SIZE);
{% if kernel.loops_over_lanes %}
    for (var distance = 1u; distance < SUBGROUP_SIZE; distance *= 2u) {
        total = {{ joined("total", "distance") }};
    }
    let sum = item_at(total, lanes - 1u);
{% else %}
    let sum = item_at(scan_lanes(lane, total), lanes - 1u);
{% endif %}
{% if kernel.tile.subgroups_per_workgroup == 1 %}
    return sum;
{% else %}
    band_totals[select(BANDS, subgroup, lane == 0u)] = {{ text.to_shared("sum") }};
    workgroupBarrier();
    let tile_begin = begin - subgroup * (SUBGROUP_SIZE * STEPS * CHUNK);
    let subgroups = parts_before_end(end - tile_begin, SUBGROUP_SIZE * STEPS * CHUNK, BANDS);
    var aggregate = {{ text.from_shared("band_totals[0]") }};
    for (var other = 1u; other < subgroups; other++) {
        aggregate = join(aggregate, {{ text.from_shared("band_totals[other]") }});
    }
    return aggregate;
{% endif %}
{% else %}
    _ = scan_invocations(invocation, total);
    let invocations = parts_before_end(end - (first - invocation * CHUNK), CHUNK, WORKGROUP_SIZE);
    let aggregate = {{ text.from_shared("scratch[invocations - 1u]") }};
    workgroupBarrier();
    return aggregate;
{% endif %}
}
