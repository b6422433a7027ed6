{% from "scan/chunk_places.wgsl" import counts_along with context %}
{#- Inclusive scan over the first `size` lanes of a subgroup (Kogge & Stone 1973). All lanes take the same path. As a
    loop, it contains the operator once, and the shader compiles sooner. -#}
{% macro subgroup_scan(name, size, rolled=false) %}
fn {{ name }}(lane: u32, own: Item) -> Item {
{% if text.votes_on_heads and not rolled %}
    let heads = subgroupBallot(own.head != 0u).x & (0xffffffffu >> (31u - lane));  // up to this lane
    let reach = lane - firstLeadingBit(heads | 1u);  // lanes before this one that no head cuts off
    var value = own.value;
{% if spec.reduces_segments %}
    var count = own.head;
{% endif %}
{% set ns = namespace(distance=1) %}
{% for _ in range(8) %}{% if ns.distance < size %}
    let joined{{ ns.distance }} = combine(value_up(value, {{ ns.distance }}u), value);
    value = {{ text.pick_element("reach >= %du" % ns.distance, "joined%d" % ns.distance, "value") }};
{% if spec.reduces_segments %}
    count += select(0u, subgroupShuffleUp(count, {{ ns.distance }}u), lane >= {{ ns.distance }}u);
{% endif %}
{% set ns.distance = ns.distance * 2 %}
{% endif %}{% endfor %}
    return Item(value, {{ "count" if spec.reduces_segments else "select(0u, 1u, heads != 0u)" }});
}
{% else %}
    var item = own;
{% if rolled %}
    for (var distance = 1u; distance < {{ size }}u; distance *= 2u) {
        item = {{ joined("item", "distance") }};
    }
{% else %}
{% set ns = namespace(distance=1) %}
{% for _ in range(8) %}{% if ns.distance < size %}
    item = {{ joined("item", ns.distance ~ "u") }};
{% set ns.distance = ns.distance * 2 %}
{% endif %}{% endfor %}
{% endif %}
    return item;
}
{% endif %}
{% endmacro %}
{% macro joined(item, distance) -%}
pick(lane >= {{ distance }}, join(item_up({{ item }}, {{ distance }}), {{ item }}), {{ item }})
{%- endmacro %}
{#- Where an invocation's chunk of this step begins. -#}
{% macro chunk_start(step) %}first{% if step %} + {{ step }}u * STEP_SIZE{% endif %}{% endmacro %}
{#- An array of what the caller gives for each step. -#}
{% macro each_step(type) -%}
array<{{ type }}, STEPS>(
{%- for steps in range(kernel.tile.steps) | batch(4) -%}
{{ "\n        " if kernel.tile.steps > 4 }}{% for step in steps %}{{ caller(step) }}{{ ", " if step + 1 < kernel.tile.steps }}{% endfor %}
{%- endfor -%}
{{ ",\n    " if kernel.tile.steps > 4 }})
{%- endmacro %}
{#- Load every chunk, so that all reads are under way together: `loaded`. Where rows begin within chunks, `along0` and on
    are the indices of the chunks' first elements in their rows. Only the first one takes a remainder, which takes a GPU
    20 times as long as an addition. -#}
{% macro load_steps() %}
{% set form = "Sources" if kernel.takes_steps else "Loaded" if kernel.loads_words_first else "Chunk" %}
{% set load = {"Sources": "load_sources", "Loaded": "load", "Chunk": "load_chunk"}[form] %}
{% set counts = form == "Chunk" and counts_along %}
{% if counts %}
    let along0 = (first + params.row_offset) % params.row_length;
{% for step in range(1, kernel.tile.steps) %}
{% if step == 1 %}
    let along_step = STEP_SIZE % params.row_length;
{% endif %}
    let past{{ step }} = along{{ step - 1 }} + along_step;
    let along{{ step }} = select(past{{ step }}, past{{ step }} - params.row_length, past{{ step }} >= params.row_length);
{% endfor %}
{% endif %}
    let loaded = {% call(step) each_step(form) %}{{ load }}({{ chunk_start(step) }}{{ ", invocation" if kernel.exchanges_chunks }}{{ ", along%d" % step if counts }}){% endcall %};
{% endmacro %}
{#- The chunk of a step, once it is loaded. -#}
{% macro chunk_of(step) -%}
{{ "chunk_of(%s, loaded[%d]%s)" % (chunk_start(step), step, ", invocation" if kernel.exchanges_chunks else "") if kernel.loads_words_first else "loaded[%d]" % step }}
{%- endmacro %}
{#- Scan the chunk of every step: `local` has the scans of the chunks. `lanes0` and on are the scans of their totals
    over the subgroup's lanes. If this is a loop, it is one loop for all steps, so that no step waits for another. If
    the loop's own steps are taken, a chunk has a total only. -#}
{% macro scan_steps() %}
{% if kernel.takes_steps %}
    let whole = {% call(step) each_step("Item") %}compose_chunk({{ chunk_start(step) }}, loaded[{{ step }}]){% endcall %};
{% else %}
    let local = {% call(step) each_step("Chunk") %}scan_chunk({{ chunk_of(step) }}){% endcall %};
{% endif %}
{% for step in range(kernel.tile.steps) %}
{% set total = ("whole[%d]" if kernel.takes_steps else "local[%d][CHUNK - 1u]") % step %}
{% if kernel.loops_over_lanes %}
    var lanes{{ step }} = {{ total }};
{% else %}
    let lanes{{ step }} = scan_lanes(lane, {{ total }});
{% endif %}
{% endfor %}
{% if kernel.loops_over_lanes %}
    for (var distance = 1u; distance < SUBGROUP_SIZE; distance *= 2u) {
{% for step in range(kernel.tile.steps) %}
        lanes{{ step }} = {{ joined("lanes" ~ step, "distance") }};
{% endfor %}
    }
{% endif %}
{% endmacro %}
{#- The index of the first element of an invocation's first chunk. -#}
{% macro first_of(tile) -%}
{{ "start_of(%s)" % tile if kernel.tile.per_row else "%s * TILE_SIZE" % tile }} + {{ "subgroup * (SUBGROUP_SIZE * STEPS * CHUNK) + lane * CHUNK" if kernel.subgroups else "invocation * CHUNK" }}
{%- endmacro %}
{#- Scan the totals of the bands of a workgroup. `total` is the total of a band of this subgroup that ends with step
    {0}. `aggregate` is the total of the tile, and `tile_lead` what precedes the band in the tile, unless it is the
    first. Where a subgroup has several bands, these are `tile_lead0` and on. -#}
{% macro scan_bands(total) %}
{% set several, through_scratch = kernel.tile.bands > 1, not kernel.totals_fit_subgroup %}
{% macro own(band) %}subgroup{{ " * %du + %du" % (kernel.tile.bands, band) if several }}{% endmacro %}
{% macro sums_up_to(band) -%}
{% if through_scratch or kernel.loops_over_lanes -%}
{{ text.from_shared("%s[%s]" % ("scratch" if through_scratch else "band_totals", band)) }}
{%- else -%}
item_at(sums, {{ band }})
{%- endif %}
{%- endmacro %}
{% if kernel.tile.bands_per_workgroup == 1 %}
    let aggregate = {{ total.format(kernel.tile.steps - 1) }};
    let tile_lead = aggregate;
{% else %}
{% for band in range(kernel.tile.bands) %}
    band_totals[select(BANDS, {{ own(band) }}, lane == 0u)] = {{ text.to_shared(total.format((band + 1) * kernel.tile.band_steps - 1)) }};
{% endfor %}
    workgroupBarrier();
{% if through_scratch %}
    _ = scan_totals(invocation, {{ text.from_shared("band_totals[min(invocation, BANDS - 1u)]") }});
{% elif kernel.loops_over_lanes %}
    if (subgroup == 0u) {  // the others would compute the same, which takes longer than to wait
        let sums = scan_totals(lane, {{ text.from_shared("band_totals[min(lane, BANDS - 1u)]") }});
        band_totals[min(lane, BANDS)] = {{ text.to_shared("sums") }};
    }
    workgroupBarrier();
{% else %}
    let sums = scan_totals(lane, {{ text.from_shared("band_totals[min(lane, BANDS - 1u)]") }});
{% endif %}
    let aggregate = {{ sums_up_to("BANDS - 1u") }};
{% for band in range(kernel.tile.bands) %}
    let tile_lead{{ band if several }} = {{ sums_up_to(own(band - 1) if band else "max(%s, 1u) - 1u" % own(0)) }};{{ "  // before this subgroup; the first has none" if band == 0 }}
{% endfor %}
{% if through_scratch %}
    workgroupBarrier();
{% endif %}
{% endif %}
{% endmacro %}
