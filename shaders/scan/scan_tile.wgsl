{#- Step 2 of a tile: scan its chunks in registers, then the totals of lanes, steps and subgroups. The order of
    combination is that of scan/tile_scan.wgsl.
    in:  `loaded`
    out: `aggregate`, of the tile; `tile_lead`, what precedes the band (or invocation) in the tile, if `led`; where a
         subgroup has several bands, `tile_lead0` and on instead;
         `chunk0`, …, scanned within the band, or where they are joined later, `local` and `lead0`, … -#}
{% set band_steps = kernel.tile.band_steps %}
    // 2. Scan in registers.
{% if kernel.subgroups %}
{{ scan_steps() -}}
{% if kernel.tile.chunk == 1 %}{# an element's own scan is that over the lanes #}
{% for step in range(kernel.tile.steps) %}
{% set follows = step % band_steps > 0 %}
    let sums{{ step }} = {{ "join(carry" ~ (step - 1) ~ ", lanes" ~ step ~ ")" if follows else "lanes" ~ step }};
    let chunk{{ step }} = Chunk(sums{{ step }});
    let carry{{ step }} = item_at(sums{{ step }}, SUBGROUP_SIZE - 1u);
{% if spec.exclusive %}
    let lead{{ step }} = {{ "pick(lane > 0u, item_up(sums" ~ step ~ ", 1u), carry" ~ (step - 1) ~ ")" if follows else "item_up(sums" ~ step ~ ", 1u)" }};
{% endif %}
{% endfor %}
{% else %}
{% set joins_now = not kernel.keeps_storage_form and not kernel.tile.single_lead %}
{% for step in range(kernel.tile.steps) %}
{% set before, lanes, begins = "carry%d" % (step - 1), "lanes%d" % step, step % band_steps == 0 %}
{% set lead = "item_up(%s, 1u)" % lanes if begins else "pick(lane > 0u, join(%s, item_up(%s, 1u)), %s)" % (before, lanes, before) %}
{% if spec.exclusive or not joins_now %}
    let lead{{ step }} = {{ lead }};
{% set lead = "lead%d" % step %}
{% endif %}
{% if joins_now %}
    let chunk{{ step }} = join_chunk({{ "lane > 0u" if begins else "true" }}, {{ lead }}, local[{{ step }}]);
{% endif %}
{% set whole = "item_at(%s, SUBGROUP_SIZE - 1u)" % lanes %}
    let carry{{ step }} = {{ whole if begins else "join(%s, %s)" % (before, whole) }};
{% endfor %}
{% endif %}
{% if text.packs_heads %}
    let chunk_heads = packed_heads(array<u32, STEPS>({% for step in range(kernel.tile.steps) %}local[{{ step }}][CHUNK - 1u].head{{ ", " if not loop.last }}{% endfor %}));
    let lead_heads = {% for step in range(kernel.tile.steps) %}{{ "" if loop.first else " | " }}select(0u, {{ "0x%x" % 2 ** step }}u, lead{{ step }}.head != 0u){% endfor %};
{% endif %}
{{ scan_bands("carry{0}") -}}
{% if kernel.tile.bands == 1 %}
    let led = subgroup > 0u;
{% endif %}
{% elif spec.everywhere %}
{% if kernel.strategy == "three_dispatch" %}
    for (var level = invocation; level < TILE_LEADS; level += WORKGROUP_SIZE) {
        let half = read_total(max((tile >> level) << level, 1u) - 1u);
{% if spec.carried %}
        let carried = level == TILE_LEADS - 1u && tile < {{ kernel.tiles_per_span }}u;
        tile_leads[level] = {{ text.to_shared("pick(carried, carry_in(), half)") }};
{% else %}
        tile_leads[level] = {{ text.to_shared("half") }};
{% endif %}
    }
{% endif %}
    let own = scan_chunks({{ loaded_items() }});
    join_totals(invocation, own);
{% if kernel.posts %}
    let aggregate = {{ text.from_shared("scratch[CHUNKS - 1u]") }};
{{ post_aggregate() -}}
{% endif %}
    let leads_in_group = lead_chunks(invocation);
{% if kernel.posts %}
    if (!await_leads(invocation, tile)) {
{% if scheduler == "serial" %}
        leave();
{% endif %}
        return;
    }
{% endif %}
{% else %}
{% if kernel.takes_steps %}
    _ = scan_invocations(invocation, compose_chunk(first, loaded[0]));
{% else %}
    let chunk0 = scan_chunk(loaded[0]);
    _ = scan_invocations(invocation, chunk0[CHUNK - 1u]);
{% endif %}
    let aggregate = {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
    let tile_lead = {{ text.from_shared("scratch[max(invocation, 1u) - 1u]") }};
    let led = invocation > 0u;
    workgroupBarrier();
{% endif %}
