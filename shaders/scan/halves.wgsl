{#- The canonical order of reproducible="everywhere" within a tile (docs/numerics.md). Chunks are scanned from left to
    right. Their totals are joined in halves, which begin at multiples of their size, so that every tile of a power of
    two gives the same bits. What is before a chunk is joined with each of its items.
    Where the operator has quick steps, many items are joined by these at a time if bounds of their numbers tell that no
    step meets a subnormal (see "Quick steps" in gpuscan/operators/code.py). Otherwise they are joined by exact steps,
    in loops, because these are long. -#}
{% from "scan/subgroup_scan.wgsl" import first_of, load_steps with context %}
{% set chunk, steps = kernel.tile.chunk, kernel.tile.steps %}
{% set items = chunk * steps %}
{% set quick = spec.combine.quick %}
{% set bounded = spec.combine.bounded %}
{% set value = ".value" if kernel.segmented else "" %}
{#- Some items, given their WGSL. -#}
{% macro items_of(texts) %}Items({{ texts | join(", ") }}){% endmacro %}
{#- The bounds of the numbers of some items, given as WGSL with commas between them. -#}
{% macro bounds_in(items) -%}
{% set ns = namespace(text="") %}
{% for item in items.split(", ") %}
{% set ns.text = "smaller_sizes(%s, sizes_of(%s%s))" % (ns.text, item, value) if ns.text else "sizes_of(%s%s)" % (item, value) %}
{% endfor %}
{{- "bounds_of(%s)" % ns.text -}}
{%- endmacro %}
{#- The item at a position of each chunk. -#}
{% macro at_position(position) -%}
{% for step in range(steps) %}scanned[{{ step * chunk + position }}]{{ ", " if not loop.last }}{% endfor %}
{%- endmacro %}
{#- The elements of an array of leads. -#}
{% macro each_of(name) -%}
{% for step in range(steps) %}{{ name }}[{{ step }}]{{ ", " if not loop.last }}{% endfor %}
{%- endmacro %}
{#- Return the scans of the chunks by the function `join`. -#}
{% macro return_chunks(join) %}
{% for index in range(items) %}
    let s{{ index }} = {{ "%s(s%d, own[%d])" % (join, index - 1, index) if index % chunk else "own[%d]" % index }};
{% endfor %}
    return Items({% for index in range(items) %}s{{ index }}{{ ", " if not loop.last }}{% endfor %});
{% endmacro %}
{#- For each step, its element of the first array joined with that of the second one. -#}
{% macro both(join) -%}
Leads({% for step in range(steps) %}{{ join }}(leads[{{ step }}], totals[{{ step }}]){{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{#- The items, each joined with the lead of its chunk. -#}
{% macro led(join) -%}
Items({% for index in range(items) %}{{ join }}(leads[{{ index // chunk }}], own[{{ index }}]){{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{% macro chunks_in_halves() %}
// The items of an invocation: its chunks, in the order of the steps.
alias Items = array<Item, {{ items }}>;
alias Leads = array<Item, {{ steps }}>;  // an item for each of these chunks

{% if quick %}
{{ quick }}

fn sizes_in(items: Items) -> Sizes {
    var sizes = sizes_of(items[0]{{ value }});
{% for position in range(1, items) %}
    sizes = smaller_sizes(sizes, sizes_of(items[{{ position }}]{{ value }}));
{% endfor %}
    return sizes;
}

// Return whether numbers within these bounds can be joined by quick steps.
fn are_quick(a: Bounds, b: Bounds) -> bool {
    var lowest = 0i;
    _ = combine_bounds(a, b, &lowest);
    return lowest >= -126i;
}

{% if bounded %}
// True if the invocation joins by exact steps.
var<private> exact: bool;
var<workgroup> shared_exact: u32;  // 1 if all invocations have to, since a number of the tile is small

// Return whether items of these sizes may meet a subnormal.
fn are_small(sizes: Sizes) -> bool {
    return !are_quick(bounds_of(sizes), bounds_of(sizes));
}
{% else %}
// Of the items of the invocation.
var<private> own_bounds: Bounds;
{% endif %}

fn join_quickly(a: Item, b: Item) -> Item {
{% if kernel.segmented %}
    let heads = a.head {{ "+" if spec.reduces_segments else "|" }} b.head;
    return pick(b.head != 0u, Item(b.value, heads), Item(quick_combine(a.value, b.value), heads));
{% else %}
    return quick_combine(a, b);
{% endif %}
}

{% set turned = [] %}
{% for position in range(1, items) %}{{ turned.append("scanned[%d]" % position) or "" }}{% endfor %}
// Scan the chunks from the element `begin` on. The elements before it are scanned. The items come to index 0 in turn, so
// that loops need no index.
fn scan_chunks_exactly(own: Items, begin: u32) -> Items {
    var scanned = own;
    var lead = own[0];
    for (var index = 0u; index < {{ items }}u; index++) {
        var item = scanned[0];
        if (index % CHUNK >= begin) {
            item = join(lead, item);
        }
        lead = item;
        scanned = {{ items_of(turned + ["item"]) }};
    }
{% if not bounded %}
    own_bounds = bounds_of(sizes_in(scanned));
{% endif %}
    return scanned;
}

fn scan_chunks(own: Items) -> Items {
{% if bounded %}
    exact = are_small(sizes_in(own));
    if (exact) {
        return scan_chunks_exactly(own, 1u);
    }
{{ return_chunks("join_quickly") -}}
{% else %}
    var scanned = own;
    var begin = 1u;  // elements before this one are scanned
    let bounds = bounds_of(sizes_in(own));
    own_bounds = bounds;
{% for position in range(1, chunk) %}
    if (begin == {{ position }}u) {
        var lowest = 0i;
        let joined = combine_bounds({{ bounds_in(at_position(position - 1)) }}, bounds, &lowest);
        if (lowest >= -126i) {
{% for step in range(steps) %}
{% set index = step * chunk + position %}
            scanned[{{ index }}] = join_quickly(scanned[{{ index - 1 }}], scanned[{{ index }}]);
{% endfor %}
            own_bounds = lower_bounds(own_bounds, {{ bounds_in(at_position(position)) if spec.combine.unknown_bounds else "joined" }});
            begin = {{ position + 1 }}u;
        }
    }
{% endfor %}
    if (begin < CHUNK) {
        scanned = scan_chunks_exactly(scanned, begin);
    }
    return scanned;
{% endif %}
}

fn join_pair(a: Item, b: Item) -> Item {
    if ({{ "!exact" if bounded else "are_quick(%s, %s)" % (bounds_in("a"), bounds_in("b")) }}) {
        return join_quickly(a, b);
    }
    return join(a, b);
}
{% if not kernel.reduces %}

// Join each lead with a total after it.
fn join_leads(leads: Leads, totals: Leads) -> Leads {
    if ({{ "!exact" if bounded else "are_quick(%s, %s)" % (bounds_in(each_of("leads")), bounds_in(each_of("totals"))) }}) {
        return {{ both("join_quickly") }};
    }
{% if steps == 1 %}
    return {{ both("join") }};
{% else %}
    var rest = leads;
    var others = totals;
    for (var step = 0u; step < STEPS; step++) {
        let item = join(rest[0], others[0]);
        rest = Leads({% for step in range(1, steps) %}rest[{{ step }}], {% endfor %}item);
        others = Leads({% for step in range(1, steps) %}others[{{ step }}], {% endfor %}others[0]);
    }
    return rest;
{% endif %}
}

// Join the lead of each chunk with every item of the chunk.
fn join_chunks(leads: Leads, own: Items) -> Items {
    if ({{ "!exact" if bounded else "are_quick(%s, own_bounds)" % bounds_in(each_of("leads")) }}) {
        return {{ led("join_quickly") }};
    }
    var rest = own;
    var lead = leads;
{% set together = [chunk, 1 if kernel.target.is_cpu_adapter else 4] | min %}
    for (var position = 0u; position < {{ items }}u; position += {{ together }}u) {
{% for position in range(together) %}
        let item{{ position }} = join(lead[0], rest[{{ position }}]);
{% endfor %}
{% if steps > 1 %}
        if ((position & (CHUNK - 1u)) == CHUNK - {{ together }}u) {
            lead = Leads({% for step in range(1, steps) %}lead[{{ step }}], {% endfor %}lead[0]);
        }
{% endif %}
        rest = Items({% for position in range(together, items) %}rest[{{ position }}], {% endfor %}{% for position in range(together) %}item{{ position }}{{ ", " if not loop.last }}{% endfor %});
    }
    return rest;
}
{% endif %}
{% else %}
fn scan_chunks(own: Items) -> Items {
{{ return_chunks("join") -}}
}

fn join_pair(a: Item, b: Item) -> Item {
    return join(a, b);
}
{% if not kernel.reduces %}

fn join_leads(leads: Leads, totals: Leads) -> Leads {
    return {{ both("join") }};
}

fn join_chunks(leads: Leads, own: Items) -> Items {
    return {{ led("join") }};
}
{% endif %}
{% endif %}
{%- endmacro %}
{#- Join the first `count` items of an array in workgroup memory, `most` in number, by quick steps, four at a time. -#}
{% macro join_fours(name, count, most) %}
{% set ns = namespace(half=1) %}
{% for _ in range(20) %}{% if ns.half < most %}
{% set radix = 2 if 4 * ns.half > most else 4 %}
{% set joined = radix * ns.half %}
    for (var end = (invocation + 1u) * {{ joined }}u - 1u; end < {{ count }}; end += {{ joined }}u * WORKGROUP_SIZE) {
{% if radix == 4 %}
        let left = join_quickly({{ text.from_shared("%s[end - %du]" % (name, 3 * ns.half)) }}, {{ text.from_shared("%s[end - %du]" % (name, 2 * ns.half)) }});
        let right = join_quickly({{ text.from_shared("%s[end - %du]" % (name, ns.half)) }}, {{ text.from_shared("%s[end]" % name) }});
        let both = join_quickly(left, right);
        {{ name }}[end - {{ 2 * ns.half }}u] = {{ text.to_shared("left") }};
        {{ name }}[end] = {{ text.to_shared("both") }};
{% else %}
        let both = join_quickly({{ text.from_shared("%s[end - %du]" % (name, ns.half)) }}, {{ text.from_shared("%s[end]" % name) }});
        {{ name }}[end] = {{ text.to_shared("both") }};
{% endif %}
    }
    workgroupBarrier();
{% set ns.half = joined %}
{% endif %}{% endfor %}
{% endmacro %}
{#- Join the totals of all chunks in halves. Afterwards `scratch` holds at index i the total of the largest half that
    ends with chunk i and begins at a multiple of its size (Fenwick 1994). What is before chunk i are the items in the
    indices before i, before i without its lowest set bit, and so on, from the nearest one on. -#}
{% macro join_totals() %}
fn join_totals(invocation: u32, own: Items) {
{% for step in range(steps) %}
    scratch[{{ chunk_slot(step) }}] = {{ text.to_shared("own[%d]" % (step * chunk + chunk - 1)) }};
{% endfor %}
{% if bounded %}
    if (exact) {
        shared_exact = 1u;
    }
    let small = workgroupUniformLoad(&shared_exact) != 0u;
    exact = small;
    if (!small) {
        join_totals_quickly(invocation);
        return;
    }
{% endif %}
    for (var half = 1u; half < CHUNKS; half *= 2u) {
        workgroupBarrier();
        // Neighbours join, so that few subgroups do.
{% if steps == 1 %}
        let last = (2u * invocation + 2u) * half - 1u;
        if (last < CHUNKS) {
{% else %}
        for (var last = (2u * invocation + 2u) * half - 1u; last < CHUNKS; last += 2u * half * WORKGROUP_SIZE) {
{% endif %}
            let item = join_pair({{ text.from_shared("scratch[last - half]") }}, {{ text.from_shared("scratch[last]") }});
            scratch[last] = {{ text.to_shared("item") }};
        }
    }
    workgroupBarrier();
}
{% if bounded %}

// The same by quick steps.
fn join_totals_quickly(invocation: u32) {
{{ join_fours("scratch", "CHUNKS", steps * kernel.tile.workgroup_size) -}}
}
{% endif %}
{%- endmacro %}
{#- The number of an invocation's chunk in its tile. -#}
{% macro chunk_slot(step) %}{{ "%du * WORKGROUP_SIZE + " % step if step }}invocation{% endmacro %}
{#- The items of the chunks in `loaded`. -#}
{% macro loaded_items() -%}
Items({% for position in range(items) %}{{ "loaded[%d][%d]" % (position // chunk, position % chunk) }}{{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{#- Scan the items of a workgroup. -#}
{% macro scan_in_halves() %}
const CHUNKS = STEPS * WORKGROUP_SIZE;  // of a tile
{{ join_totals() }}

// Neighbouring chunks, which the canonical order joins by themselves.
const GROUP = {{ kernel.chunks_per_group }}u;
var<workgroup> group_leads: array<{{ text.shared_item }}, CHUNKS / GROUP>;  // what is before each group

// Return what is before each chunk in its group. The first chunk of a group gets any item.
fn lead_chunks(invocation: u32) -> Leads {
    var leads = Leads();
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        if ((invocation & half) != 0u) {
            let last = (invocation & (0u - half)) - 1u;
            let totals = Leads({% for step in range(steps) %}{{ text.from_shared("scratch[last%s]" % (" + %du * WORKGROUP_SIZE" % step if step else "")) }}{{ ", " if not loop.last }}{% endfor %});
            let joined = join_leads(leads, totals);
            let is_first = invocation % GROUP < 2u * half;
            leads = Leads({% for step in range(steps) %}pick(is_first, totals[{{ step }}], joined[{{ step }}]){{ ", " if not loop.last }}{% endfor %});
        }
    }
    return leads;
}
{% if kernel.strategy != "alone" %}

// Return what is before the tile: the fold of all spans before, joined with the halves before the tile.
fn lead_tile(tile: u32) -> Item {
    var known = {{ "true" if spec.carried else "tile >= %du" % kernel.tiles_per_span }};
    var lead = {{ text.from_shared("tile_leads[TILE_LEADS - 1u]") }};
    for (var rest = tile % {{ kernel.tiles_per_span }}u; rest != 0u; rest &= (1u << firstLeadingBit(rest)) - 1u) {
        let half = {{ text.from_shared("tile_leads[firstLeadingBit(rest)]") }};
        lead = pick(known, join_pair(lead, half), half);
        known = true;
    }
    return lead;
}
{% endif %}

// Return what is before each chunk. The first chunk of all gets any item.
fn lead_all(tile: u32, invocation: u32, known: bool, leads_in_group: Leads) -> Leads {
    for (var group = invocation; group < CHUNKS / GROUP; group += WORKGROUP_SIZE) {
        var lead = {{ text.from_shared("scratch[0]") if kernel.strategy == "alone" else "lead_tile(tile)" }};
        var has_lead = known;
        for (var rest = group; rest != 0u; rest &= (1u << firstLeadingBit(rest)) - 1u) {
            let level = firstLeadingBit(rest);
            let half = {{ text.from_shared("scratch[((group >> level) << level) * GROUP - 1u]") }};
            lead = pick(has_lead, join_pair(lead, half), half);
            has_lead = true;
        }
        group_leads[group] = {{ text.to_shared("lead") }};
    }
    workgroupBarrier();
    var leads = Leads({% for step in range(steps) %}{{ text.from_shared("group_leads[(%s) / GROUP]" % chunk_slot(step)) }}{{ ", " if not loop.last }}{% endfor %});
    let joined = join_leads(leads, leads_in_group);
    let is_first = invocation % GROUP == 0u;
{% for step in range(steps) %}
    leads[{{ step }}] = pick(is_first, leads[{{ step }}], {{ "pick(known || invocation >= GROUP, joined[0], leads_in_group[0])" if step == 0 else "joined[%d]" % step }});
{% endfor %}
    return leads;
}
{%- endmacro %}
{#- The total of a tile is the total of its left half joined with the total of its right half. -#}
{% macro reduce_in_halves() %}
const CHUNKS = STEPS * WORKGROUP_SIZE;  // of a tile
{{ join_totals() }}

fn reduce_tile(tile: u32, invocation: u32) -> Item {
    let first = {{ first_of("tile") }};
{{ load_steps().rstrip() }}
    join_totals(invocation, scan_chunks({{ loaded_items() }}));
    return {{ text.from_shared("scratch[CHUNKS - 1u]") }};
}
{%- endmacro %}
