{#- Step 4 of a tile: join what precedes each chunk, and store every element once.
    in:  `prefix`, `has_prefix`, and what step 2 gives -#}
{% if spec.compacts %}
    move_tile(invocation, tile, pick(has_prefix, prefix, 0u), aggregate);
{% else %}
{% if kernel.tile.bands > 1 %}
{% for own in range(kernel.tile.bands) %}
{% set own_lead = "tile_lead%d" % own %}
{% if own %}
    let band_lead{{ own }} = pick(has_prefix, join(prefix, {{ own_lead }}), {{ own_lead }});
{% else %}
    let band_lead0 = pick(has_prefix, pick(subgroup > 0u, join(prefix, {{ own_lead }}), prefix), {{ own_lead }});
    let known = has_prefix || subgroup > 0u;
{% endif %}
{% endfor %}
{% else %}
    let lead = pick(has_prefix, pick(led, join(prefix, tile_lead), prefix), tile_lead);
    let known = has_prefix || led;
{% endif %}

    // 4. Store every element once.
{% if kernel.tile.per_row %}
    let end = end_of(tile);
{% endif %}
{% if kernel.stores_one_total %}
    var total = lead;
    var has_total = false;
{% endif %}
{% macro store(at, chunk) %}
{% if kernel.stores_one_total %}
    if (params.length - 1u - ({{ at }}) < CHUNK) {
        total = item_in({{ chunk }}, params.length - 1u - ({{ at }}));
        has_total = true;
    }
{% elif kernel.tile.per_row %}
    if ({{ at }} < end) {
        store_chunk({{ at }}, {{ chunk }});
    }
{% else %}
    store_chunk({{ at }}, {{ chunk }}{{ for_exchange }});
{% endif %}
{% endmacro %}
{% if text.packs_heads %}
{% for word in range((kernel.tile.steps * kernel.tile.chunk + 31) // 32) %}
    let kept_heads{{ word }} = kept(chunk_heads[{{ word }}]);
{% endfor %}
    let kept_leads = kept(lead_heads);
{% endif %}
{% macro shifted(before, chunk) %}Chunk({{ before }}{% for position in range(kernel.tile.chunk - 1) %}, {{ chunk }}[{{ position }}]{% endfor %}){% endmacro %}
{% for step in range(kernel.tile.steps) %}
{% set begins = step % kernel.tile.band_steps == 0 %}{# a band #}
{% set own = step // kernel.tile.band_steps %}
{% set lead = "band_lead" ~ own if kernel.tile.bands > 1 else "lead" %}
{% set known = "true" if own else "known" %}
{% if kernel.keeps_storage_form %}
    let scanned{{ step }} = scan_chunk(chunk_of({{ chunk_start(step) }}, again(loaded[{{ step }}])));
    let chunk{{ step }} = join_chunk({{ "lane > 0u" if begins else "true" }}, lead{{ step }}, scanned{{ step }});
{% endif %}
{% if text.packs_heads %}
{% set per_word = 32 // kernel.tile.chunk %}
{% set led = "true" if step else "known || lane > 0u" %}
    let heads{{ step }} = extractBits(kept_heads{{ step // per_word }}, {{ step % per_word * kernel.tile.chunk }}u, {{ kernel.tile.chunk }}u);
    let both{{ step }} = combine({{ lead }}.value, lead{{ step }}.value);
    let joins{{ step }} = {{ known }} && extractBits(kept_leads, {{ step }}u, 1u) == 0u;
    let joined{{ step }} = {{ text.pick_element("joins%d" % step, "both%d" % step, "lead%d.value" % step) }};
{% if begins %}
    let before{{ step }} = {{ text.pick_element("lane > 0u", "joined%d" % step, "%s.value" % lead) }};
{% else %}
    let before{{ step }} = joined{{ step }};
{% endif %}
    var result{{ step }} = join_before_heads({{ led }}, before{{ step }}, {{ shifted("Item(before%d, 0u)" % step, "local[%d]" % step) }}, heads{{ step }});
    result{{ step }}[0].value = before{{ step }};
{{ store(chunk_start(step), "result" ~ step) -}}
{% elif kernel.tile.single_lead %}{# join the prefixes of the chunk and of the tile first, then each element #}
    let joined{{ step }} = pick({{ known }}, join({{ lead }}, lead{{ step }}), lead{{ step }});
    let before{{ step }} = {{ "pick(lane > 0u, joined" ~ step ~ ", " ~ lead ~ ")" if begins else "joined" ~ step }};
{% set led = "true" if step else "known || lane > 0u" %}
{% if kernel.takes_steps %}
    let result{{ step }} = take_steps({{ chunk_start(step) }}, before{{ step }}, loaded[{{ step }}]);
{% elif spec.exclusive %}
    var result{{ step }} = join_chunk({{ led }}, before{{ step }}, {{ shifted("before" ~ step, "local[%d]" % step) }});
    result{{ step }}[0] = before{{ step }};
{% else %}
    let result{{ step }} = join_chunk({{ led }}, before{{ step }}, local[{{ step }}]);
{% endif %}
{{ store(chunk_start(step), "result" ~ step) -}}
{% elif kernel.takes_steps %}
{{ store("first", "take_steps(first, lead, loaded[0])") -}}
{% elif spec.exclusive %}
{% set before = "lead" ~ step if kernel.subgroups else "lead" %}
    let shifted{{ step }} = {{ shifted(before, "chunk" ~ step) }};
    var result{{ step }} = join_chunk({{ known }}, {{ lead }}, shifted{{ step }});
{% if begins %}
{% if kernel.subgroups %}
    result{{ step }}[0] = pick(lane == 0u, {{ lead }}, result{{ step }}[0]);
{% else %}
    result0[0] = lead;
{% endif %}
{% endif %}
{{ store(chunk_start(step), "result" ~ step) -}}
{% else %}
{{ store(chunk_start(step), "join_chunk(" ~ known ~ ", " ~ lead ~ ", chunk" ~ step ~ ")") -}}
{% endif %}
{% endfor %}
{% if kernel.stores_one_total %}
    if (has_total) {
        store_result(row_of(params.length - 1u), {{ text.map_result("total") }});
    }
{% endif %}
{% endif %}
