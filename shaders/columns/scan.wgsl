{#- One pass over an array (outer, n, inner) that is scanned along n, so that neighbours in memory are columns: load a
    tile of some rows and columns, scan it down the rows, learn each column's prefix, store.
    in:  the sources, the initial values, the tile state
    out: the destinations
    The strategies are the same as in scan/scan.wgsl. Every column is a scan by itself, so lanes exchange nothing
    sideways. -#}
{% set scheduler = kernel.test_build.scheduler if kernel.posts else "" %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "columns/load_store.wgsl" %}
{% include "columns/tile.wgsl" %}
{% include "columns/prefix_%s.wgsl" % kernel.strategy if kernel.posts else "columns/totals.wgsl" %}

{% from "columns/prefix_result.wgsl" import name_prefix with context %}
{% from "shared/main.wgsl" import main with context %}
{{ main("@builtin(subgroup_size) subgroup_size: u32" if kernel.subgroups else "") }} {
{% include "scan/begin_tile.wgsl" %}
    let lane = invocation % COLUMNS;
    let group = invocation / COLUMNS;
    let position = position_of(tile, lane);
    let first = position.first_row + group * ROWS;
{% if scheduler == "random" %}
    idle(LOADS, tile, invocation, LONGEST_DELAY);
{% endif %}

    // 1. Load every row, so that all reads are under way together.
{% if text.packs_column_heads and spec.cuts_columns_alike %}
    let heads_down = heads_from(first);
{% endif %}
{% for row in range(kernel.tile.rows) %}
    let loaded{{ row }} = {{ "load_marked_row(position, first + %du, extractBits(heads_down, %du, 1u))" % (row, row) if text.packs_column_heads and spec.cuts_columns_alike else "load_row(position, first + %du)" % row }};
{% endfor %}
{% if text.packs_column_heads %}
{% macro packed_heads(column) -%}
{% if spec.cuts_columns_alike %}heads_down{% else %}{% for row in range(kernel.tile.rows) %}(loaded{{ row }}[{{ column }}].head << {{ row }}u){{ " | " if not loop.last }}{% endfor %}{% endif %}
{%- endmacro %}
    // The head flags of the rows are bits of one word while the tile waits, where flags of their own take a register
    // each.
    let packed = PackedHeads(
{% for column in range(kernel.tile.chunk) %}
        {{ packed_heads(column) }},
{% endfor %}
    );
{% endif %}
{% if spec.neighbour_field %}
{% for row in range(kernel.tile.rows) %}
    let following{{ row }} = load_following(position, first + {{ row }}u);
{% endfor %}
{% endif %}
{% if kernel.posts %}
    let early = glance_above(tile, lane, group);  // with the rows, since the tile above has often posted by then
{% endif %}

    // 2. Scan down the rows in registers, then over the groups of rows.
    let local0 = loaded0;
{% for row in range(1, kernel.tile.rows) %}
    let local{{ row }} = join_chunks(local{{ row - 1 }}, loaded{{ row }});
{% endfor %}
    let sums = scan_groups(lane, group, local{{ kernel.tile.rows - 1 }});

    // 3. Learn the prefix of each column of the tile.
{% if scheduler == "random" %}
    idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{% if kernel.posts %}
    if (!learn_prefix(invocation, tile, sums.aggregate, early)) {
        return;
    }
{% endif %}
{{ name_prefix() -}}
{% if scheduler == "random" %}
    idle(STORES, tile, invocation, LONGEST_DELAY);
{% endif %}
    let lead = pick_chunk(has_prefix, pick_chunk(group > 0u, join_chunks(prefix, sums.lead), prefix), sums.lead);
    let known = has_prefix || group > 0u;

    // 4. Store every element once.
{% if kernel.access.unaligned_sizes %}
    let edges = edges_of(position, invocation);
{% endif %}
{% macro local(row) -%}
{{ "with_heads(local%d, packed, %du)" % (row, 2 ** (row + 1) - 1) if text.packs_column_heads else "local%d" % row }}
{%- endmacro %}
{% for row in range(kernel.tile.rows) %}
{% set following = (", following%d" % row if spec.neighbour_field else "") ~ (", edges" if kernel.access.unaligned_sizes else "") %}
{% if spec.exclusive %}
{% if row == 0 %}
    store_row(position, first, lead{{ following }});
{% else %}
    store_row(position, first + {{ row }}u, pick_chunk(known, join_chunks(lead, {{ local(row - 1) }}), {{ local(row - 1) }}){{ following }});
{% endif %}
{% else %}
    store_row(position, first + {{ row }}u, pick_chunk(known, join_chunks(lead, {{ local(row) }}), {{ local(row) }}){{ following }});
{% endif %}
{% endfor %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
