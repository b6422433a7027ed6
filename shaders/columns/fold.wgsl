{% from "shared/chunk_access.wgsl" import store_results with context %}
{% from "shared/combine_between.wgsl" import combine_between with context %}
{#- The reduction of a tile of columns: each invocation combines its rows, one below the other, and the first group of
    invocations combines what the groups have. The order is from top to bottom.
    Values: kernel.loads_at_once. -#}
// ----- Reduction of a tile
var<workgroup> group_totals: array<{{ "SharedChunk" if kernel.has_bools else "Chunk" }}, WORKGROUP_SIZE>;

// Combine the totals of the first `groups` groups. The first group gets the result.
fn join_groups(lane: u32, group: u32, total: Chunk, groups: u32) -> Chunk {
    var aggregate = total;
{% if kernel.tile.groups > 1 %}
    group_totals[group * COLUMNS + lane] = {{ text.to_shared("total", "chunk_to_shared") }};
    workgroupBarrier();
    if (group == 0u) {
        for (var below = 1u; below < groups; below++) {
            aggregate = join_chunks(aggregate, {{ text.from_shared("group_totals[below * COLUMNS + lane]", "chunk_from_shared") }});
        }
    }
{% endif %}
    return aggregate;
}

{% if kernel.stage == "reduce" or kernel.strategy == "alone" %}

// Return a tile's aggregate of each column to its first group.
fn reduce_tile(tile: u32, invocation: u32) -> Chunk {
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    let position = position_of(tile, lane);
    let tile_end = min(position.first_row + rows_of_tile(), params.row_length);
    let rows = (rows_of_tile() + GROUPS - 1u) / GROUPS;
    let begin = position.first_row + group * rows;
    let end = min(begin + rows, tile_end);
{% call(row) combine_between() %}load_row(position, {{ row }}){% endcall %}
    return join_groups(lane, group, total, (tile_end - position.first_row + rows - 1u) / rows);
}
{% else %}

// Combine the totals of a chain's tiles. The first group gets the result.
fn combine_totals(chain: u32, invocation: u32) -> Chunk {
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    let chains = chains_of_columns();
    let tiles = params.tiles / chains;
    let tiles_of_group = (tiles + GROUPS - 1u) / GROUPS;
    let begin = group * tiles_of_group;
    let end = min(begin + tiles_of_group, tiles);
{% call(tile) combine_between() %}read_total(({{ tile }}) * chains + chain, lane){% endcall %}
    return join_groups(lane, group, total, (tiles + tiles_of_group - 1u) / tiles_of_group);
}
{% endif %}
{% if kernel.stage == "scan" %}
{#- The combination of one column of a chunk. -#}
{% macro whole_result(column) -%}
{{ "combine(seed(result + %du), total[%d])" % (column, column) if spec.initial else "total[%d]" % column }}
{%- endmacro %}

// Store the results of an invocation's columns.
fn store_totals(position: Position, total: Chunk) {
    let result = position.outer * params.inner + position.column;
    let exists = result < params.length / params.row_length;
{% if kernel.access.whole_results %}
    if (!exists) {
        return;
    }
{% for column in range(kernel.tile.chunk) %}
    let whole{{ column }} = {{ whole_result(column) }};
    let r{{ column }} = {{ text.map_result("whole%d" % column) }};
{% endfor %}
{{ store_results("result") -}}
{% else %}
{% for column in range(kernel.tile.chunk) %}
    if (exists && position.column + {{ column }}u < params.inner) {
        let whole = {{ whole_result(column) }};
        store_result(result + {{ column }}u, {{ text.map_result("whole") }});
    }
{% endfor %}
{% endif %}
}
{% endif %}
