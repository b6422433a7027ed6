{#- One pass over the array: load a tile, scan it, learn its prefix, store.
    in:  the source, the seeds where there are any, the tile state
    out: the destination
    strategy lookahead:      the prefix from the first workgroup, which folds all tiles' aggregates
    strategy lookback:       the prefix by decoupled look-back (Merrill & Garland 2016); of many tiles, folded by one
    strategy fallback:       the same; a late tile is reduced by whoever waits (Smith, Levien & Owens 2025)
    strategy three_dispatch: the prefix was computed before, by reduce.wgsl and scan_totals.wgsl
    strategy alone:          nothing comes before a tile, which holds a whole row -#}
{% set scheduler = kernel.scheduler if kernel.posts else "" %}
{% from "scan/subgroup_scan.wgsl" import place, scan_steps with context %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/load_store.wgsl" %}
{% include "scan/tile_scan.wgsl" %}
{% include "scan/prefix_" ~ kernel.strategy ~ ".wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if kernel.subgroups %}
    @builtin(subgroup_size) subgroup_size: u32,
{% endif %}
) {
    let tile = tile_of(invocation, workgroup, grid);
    if (tile >= params.tiles) {
        return;
    }
{% if spec.keep_last_only and kernel.strategy == "three_dispatch" %}
    if (!has_end(tile)) {
        return;  // nothing to store, and no one waits for it
    }
{% endif %}
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        report_width();
        return;
    }
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
{% if scheduler == "random" %}
    idle(LOADS, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}

{% set for_staging = ", invocation" if kernel.exchanges_chunks else "" %}
{% set tile_scanned %}
    // 1. Load every chunk, so that all reads are under way together.
    let first = first_of({{ "at_hand" if kernel.reloads_after_help else "tile" }}, invocation);
{% for step in range(kernel.tile.steps) %}
    let loaded{{ step }} = {{ "load" if kernel.loads_words_first else "load_chunk" }}({{ place(step) }}{{ for_staging }});
{% endfor %}

    // 2. Scan in registers.
{% if kernel.subgroups %}
{% call(step) scan_steps() %}{{ "chunk_of(" ~ place(step) ~ ", loaded" ~ step ~ for_staging ~ ")" if kernel.loads_words_first else "loaded" ~ step }}{% endcall %}
{% if kernel.tile.chunk == 1 %}{# an element's own scan is that over the lanes #}
{% for step in range(kernel.tile.steps) %}
    let sums{{ step }} = {{ "join(carry" ~ (step - 1) ~ ", lanes" ~ step ~ ")" if step else "lanes0" }};
    let chunk{{ step }} = Chunk(sums{{ step }});
    let carry{{ step }} = item_at(sums{{ step }}, SUBGROUP_SIZE - 1u);
{% if spec.exclusive %}
    let lead{{ step }} = {{ "pick(lane > 0u, item_up(sums" ~ step ~ ", 1u), carry" ~ (step - 1) ~ ")" if step else "item_up(sums0, 1u)" }};
{% endif %}
{% endfor %}
{% else %}
{% set joins_now = not kernel.keeps_storage_form and not kernel.tile.single_lead %}
    let lead0 = item_up(lanes0, 1u);
{% if joins_now %}
    let chunk0 = join_chunk(lane > 0u, lead0, local0);
{% endif %}
    let carry0 = item_at(lanes0, SUBGROUP_SIZE - 1u);
{% for step in range(1, kernel.tile.steps) %}
    let lead{{ step }} = pick(lane > 0u, join(carry{{ step - 1 }}, item_up(lanes{{ step }}, 1u)), carry{{ step - 1 }});
{% if joins_now %}
    let chunk{{ step }} = join_chunk(true, lead{{ step }}, local{{ step }});
{% endif %}
    let carry{{ step }} = join(carry{{ step - 1 }}, item_at(lanes{{ step }}, SUBGROUP_SIZE - 1u));
{% endfor %}
{% endif %}
    let sums = scan_subgroups(invocation, carry{{ kernel.tile.steps - 1 }});
    let aggregate = sums.aggregate;
    let tile_lead = sums.lead;
    let led = subgroup > 0u;
{% else %}
    let chunk0 = scan_chunk(loaded0);
    _ = scan_invocations(invocation, chunk0[CHUNK - 1u]);
    let aggregate = {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
    let tile_lead = {{ text.from_shared("scratch[max(invocation, 1u) - 1u]") }};
    let led = invocation > 0u;
    workgroupBarrier();
{% endif %}

{% if spec.compacts %}
{% for step in range(kernel.tile.steps) %}
    rank_chunk({{ place(step) }} - tile * TILE_SIZE, loaded{{ step }}, join_chunk(led, tile_lead, chunk{{ step }}));
{% endfor %}
    workgroupBarrier();
{% endif %}

    // 3. Learn what comes before the tile.
{% if scheduler == "random" %}
    idle(POSTS, tile, 0u, LONGEST_POST_DELAY);
{% endif %}
{% if kernel.reloads_after_help %}
    if (at_hand != tile) {
        post_late(invocation, at_hand, aggregate);
        at_hand = tile;
        continue;
    }
    let late = try_prefix(invocation, tile, aggregate);
    if (late != NO_TILE) {
        at_hand = late;
        continue;
    }
    let prefix = prefix_found(tile);
{% elif kernel.posts %}
    if (!await_prefix(invocation, tile, aggregate)) {
        return;
    }
    let prefix = prefix_found(tile);
{% else %}
    let prefix = learn_prefix(invocation, tile, aggregate);
{% endif %}
{% if scheduler == "random" %}
    idle(STORES, tile, {{ "subgroup" if kernel.subgroups else "invocation" }}, LONGEST_DELAY);
{% endif %}
{% if spec.compacts %}
    move_tile(invocation, tile, pick(prefix.known, prefix.item, 0u), aggregate);
{% else %}
    let lead = pick(prefix.known, pick(led, join(prefix.item, tile_lead), prefix.item), tile_lead);
    let known = prefix.known || led;

    // 4. Store every element once.
{% if kernel.tile.per_row %}
    let end = end_of(tile);
{% endif %}
{% macro store(at, chunk) %}
{% if kernel.tile.per_row %}
    if ({{ at }} < end) {
        store_chunk({{ at }}, {{ chunk }});
    }
{% else %}
    store_chunk({{ at }}, {{ chunk }}{{ for_staging }});
{% endif %}
{% endmacro %}
{% macro shifted(before, chunk) %}Chunk({{ before }}{% for position in range(kernel.tile.chunk - 1) %}, {{ chunk }}[{{ position }}]{% endfor %}){% endmacro %}
{% for step in range(kernel.tile.steps) %}
{% if kernel.keeps_storage_form %}
    let scanned{{ step }} = scan_chunk(chunk_of({{ place(step) }}, again(loaded{{ step }})));
    let chunk{{ step }} = join_chunk({{ "true" if step else "lane > 0u" }}, lead{{ step }}, scanned{{ step }});
{% endif %}
{% if kernel.tile.single_lead %}{# what comes before the chunk in its tile and before the tile, then the elements #}
    let joined{{ step }} = pick(known, join(lead, lead{{ step }}), lead{{ step }});
    let before{{ step }} = {{ "joined" ~ step if step else "pick(lane > 0u, joined0, lead)" }};
{% set led = "true" if step else "known || lane > 0u" %}
{% if spec.exclusive %}
    var result{{ step }} = join_chunk({{ led }}, before{{ step }}, {{ shifted("before" ~ step, "local" ~ step) }});
    result{{ step }}[0] = before{{ step }};
{% else %}
    let result{{ step }} = join_chunk({{ led }}, before{{ step }}, local{{ step }});
{% endif %}
{{ store(place(step), "result" ~ step) -}}
{% elif spec.exclusive %}
{% set before = "lead" ~ step if kernel.subgroups else "lead" %}
    let shifted{{ step }} = {{ shifted(before, "chunk" ~ step) }};
    var result{{ step }} = join_chunk(known, lead, shifted{{ step }});
{% if step == 0 %}
{% if kernel.subgroups %}
    result0[0] = pick(lane == 0u, lead, result0[0]);
{% else %}
    result0[0] = lead;
{% endif %}
{% endif %}
{{ store(place(step), "result" ~ step) -}}
{% else %}
{{ store(place(step), "join_chunk(known, lead, chunk" ~ step ~ ")") -}}
{% endif %}
{% endfor %}
{% endif %}
{% endset %}
{% if kernel.reloads_after_help %}
    // Each turn but the last is for a late tile, whose aggregate is all that is wanted: no element is held meanwhile.
    var at_hand = tile;
    loop {
{{ tile_scanned | indent(4, true) }}
{%- if kernel.target.driver_ends_loops %}
        at_hand = NO_TILE;
{% endif %}
        break;
    }
{% if kernel.target.driver_ends_loops %}
    if (at_hand != NO_TILE) {  // the loop was left by force, if only for some invocations
        report_timeout();
    }
{% endif %}
{% else %}
{{ tile_scanned -}}
{% endif %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
