{#- Compaction: store the elements that a mask selects without gaps. Each chunk of the mask leaves its rank in workgroup
    memory. Once the tile's prefix is known, all invocations move the selected elements: from neighbouring offsets in
    storage to workgroup memory, and from there to neighbouring offsets. So few words are kept while the tile waits.
    A partition also moves the elements that are not selected. In workgroup memory they come after the selected ones.
    Where the selected elements are the heads of runs, results have the lengths of the runs as last words: in workgroup
    memory, these are the offsets of the heads in the tile. A run may go on in the next tiles: see
    arrays/join_runs.wgsl.
    in:  the sources; the first one is the mask, unless the mask says where segments begin
    out: the destinations; count: the number of selected elements; a partition also counts the elements not selected.
         With heads, count[1] is the number of tiles, and from word KEY_RUNS_AT on there are two words for each tile:
         the number of heads before it, and the number of elements before its first head -#}
// ----- Compaction
const MOVED = {{ text.moved }}u;  // neighbouring elements that an invocation takes

@group(0) @binding({{ kernel.binding_of("count") }}) var<storage, read_write> count: array<u32>;

// For each chunk: the mask's bits, and above them the number of the tile's elements that are selected before it.
var<workgroup> ranks: array<u32, TILE_SIZE / CHUNK>;

// Keep the mask's bits and the rank of a chunk. `sums` count from the beginning of the tile.
fn rank_chunk(offset: u32, mask: Chunk, sums: Chunk) {
    let bits = {% for position in range(kernel.tile.chunk) %}(mask[{{ position }}] << {{ position }}u){{ " | " if not loop.last }}{% endfor %};
    ranks[offset / CHUNK] = ((sums[CHUNK - 1u] - countOneBits(bits)) << 16u) | bits;
}

const RESULT_WORDS = {{ spec.destination.words }}u;
const PASS_SIZE = {{ kernel.moved_at_once }}u * WORKGROUP_SIZE * MOVED;  // elements

var<workgroup> staged: array<u32, {{ "(PASS_SIZE + 1u)" if spec.picks_heads else "PASS_SIZE" }} * RESULT_WORDS>;

// Return the number of the tile's elements that are selected before this one.
fn kept_before(offset: u32, kept: u32) -> u32 {
    return select(kept, ranks[min(offset, TILE_SIZE - 1u) / CHUNK] >> 16u, offset < TILE_SIZE);
}

// Store the tile's selected elements after the selected elements of the tiles before it.
fn move_tile(invocation: u32, tile: u32, before: u32, kept: u32) {
{% if spec.picks_heads %}
    // The offset of the next head after this pass, or of the end of the tile.
    var next = min(TILE_SIZE, params.length - tile * TILE_SIZE);
{% endif %}
    for (var first_offset = (TILE_SIZE + PASS_SIZE - 1u) / PASS_SIZE * PASS_SIZE; first_offset > 0u;) {
        first_offset -= PASS_SIZE;
        let start = kept_before(first_offset, kept);
        let kept_here = kept_before(first_offset + PASS_SIZE, kept) - start;
{% for part in range(kernel.moved_at_once) %}
        let offset{{ part }} = first_offset + ({{ part }}u * WORKGROUP_SIZE + invocation) * MOVED;
        let index{{ part }} = tile * TILE_SIZE + offset{{ part }};
{% for source, accesses in text.moved_sources %}
{% for i in range(accesses) %}
        let t{{ part }}{{ source.name }}_{{ i }} = {{ source.load_vector("index%d / MOVED * %du + %du" % (part, accesses, i)) }};
{% endfor %}
{% endfor %}
{% for position in range(text.moved) %}
        let t{{ part }}r{{ position }} = {{ text.load_moved_result(position, "t%d" % part, "offset%d" % part) }};
{% endfor %}
{% endfor %}
{% for part in range(kernel.moved_at_once) %}
        let rank{{ part }} = ranks[offset{{ part }} / CHUNK];
        let shift{{ part }} = offset{{ part }} % CHUNK;
        var at{{ part }} = ((rank{{ part }} >> 16u) + countOneBits(rank{{ part }} & ((1u << shift{{ part }}) - 1u)) - start) * RESULT_WORDS;
{% if spec.partitions %}
        var other{{ part }} = (kept_here + offset{{ part }} - first_offset) * RESULT_WORDS - at{{ part }};
{% endif %}
{% for position in range(text.moved) %}
{% if spec.partitions %}
        let is_picked{{ part }}_{{ position }} = extractBits(rank{{ part }}, shift{{ part }} + {{ position }}u, 1u) == 1u;
        let to{{ part }}_{{ position }} = select(other{{ part }}, at{{ part }}, is_picked{{ part }}_{{ position }});
{% for word in text.result_words("t%dr%d" % (part, position)) %}
        staged[to{{ part }}_{{ position }} + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
        at{{ part }} += select(0u, RESULT_WORDS, is_picked{{ part }}_{{ position }});
        other{{ part }} += select(RESULT_WORDS, 0u, is_picked{{ part }}_{{ position }});
{% else %}
        if (extractBits(rank{{ part }}, shift{{ part }} + {{ position }}u, 1u) == 1u) {
{% for word in text.result_words("t" ~ part ~ "r" ~ position) %}
            staged[at{{ part }} + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
            at{{ part }} += RESULT_WORDS;
        }
{% endif %}
{% endfor %}
{% endfor %}
{% if spec.picks_heads %}
        if (invocation == 0u) {
            staged[kept_here * RESULT_WORDS + RESULT_WORDS - 1u] = next;
        }
{% endif %}
        workgroupBarrier();
{% if spec.partitions %}
        let first = tile * TILE_SIZE + first_offset;
        let moved = min(PASS_SIZE, params.length - min(first, params.length));
        for (var i = kept_here + invocation; i < moved; i += WORKGROUP_SIZE) {
            let at = i * RESULT_WORDS;
            store_other(first - before - start + i - kept_here, {{ text.result_from_words("staged", "at + ") }});
        }
{% endif %}
        for (var i = invocation; i < kept_here; i += WORKGROUP_SIZE) {
            let at = i * RESULT_WORDS;
{% if spec.picks_heads %}
            var result = {{ text.result_from_words("staged", "at + ") }};
            {{ spec.result.member("result", 1) }} = staged[at + 2u * RESULT_WORDS - 1u] - staged[at + RESULT_WORDS - 1u];
            store_result(before + start + i, result);
{% else %}
            store_result(before + start + i, {{ text.result_from_words("staged", "at + ") }});
{% endif %}
        }
{% if spec.picks_heads %}
        next = select(next, staged[RESULT_WORDS - 1u], kept_here > 0u);
{% endif %}
        workgroupBarrier();
    }
{% if spec.picks_heads %}
    if (invocation == 0u) {
        count[{{ text.key_runs_at }}u + 2u * tile] = before;
        count[{{ text.key_runs_at }}u + 2u * tile + 1u] = next;
    }
{% endif %}
    if (invocation == 0u && tile + 1u == params.tiles) {
        count[0] = before + kept;
{% if spec.picks_heads %}
        count[1] = params.tiles;
{% endif %}
{% if spec.partitions %}
        count[{{ text.others_at }}] = params.length - before - kept;
{% endif %}
    }
}
