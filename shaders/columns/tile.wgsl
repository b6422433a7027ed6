{#- The scan over a tile's groups of rows, in the fixed order of every stage: down an invocation's rows, then down the
    groups, each from left to right. -#}
// ----- Scan of a tile
var<workgroup> group_totals: array<{{ "SharedChunk" if kernel.has_bools else "Chunk" }}, WORKGROUP_SIZE>;

// The prefix of a group in its columns (the first has none), and the whole tile.
struct GroupSums {
    lead: Chunk,
    aggregate: Chunk,
}

fn scan_groups(lane: u32, group: u32, total: Chunk) -> GroupSums {
    group_totals[group * COLUMNS + lane] = {{ text.to_shared("total", "chunk_to_shared") }};
    workgroupBarrier();
    var lead = {{ text.from_shared("group_totals[lane]", "chunk_from_shared") }};
    var aggregate = lead;
    for (var above = 1u; above < GROUPS; above++) {
        lead = pick_chunk(above == group, aggregate, lead);
        aggregate = join_chunks(aggregate, {{ text.from_shared("group_totals[above * COLUMNS + lane]", "chunk_from_shared") }});
    }
    return GroupSums(lead, aggregate);
}
{% if kernel.reduces %}

// Return a tile's aggregate of each column, by the same tree as its scan.
fn reduce_tile(tile: u32, invocation: u32) -> Chunk {
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    let position = position_of(tile, lane);
    let first = position.first_row + group * ROWS;
    var total = load_row(position, first);
    for (var row = 1u; row < ROWS; row++) {
        total = join_chunks(total, load_row(position, first + row));
    }
    return scan_groups(lane, group, total).aggregate;
}
{% endif %}
