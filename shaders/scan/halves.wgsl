{#- The canonical order of reproducible="everywhere" within a tile: first the scan of the left half, then the total of
    the left half joined with each item of the scan of the right half (Sklansky 1960). Halves begin at multiples of
    their size, so that every tile of a power of two gives the same bits.
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
{#- The smallest sizes of some items, given their WGSL. -#}
{% macro sizes_in(items) -%}
{% set ns = namespace(text="") %}
{% for item in items %}
{% set ns.text = "smaller_sizes(%s, sizes_of(%s%s))" % (ns.text, item, value) if ns.text else "sizes_of(%s%s)" % (item, value) %}
{% endfor %}
{{- ns.text -}}
{%- endmacro %}
{#- The items `name` where halves of `half` elements are joined by the function `join`. -#}
{% macro level(name, half, join) -%}
Items({% for position in range(items) %}{{ "%s(%s[%d], %s[%d])" % (join, name, position // half * half - 1, name, position) if position // half % 2 else "%s[%d]" % (name, position) }}{{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{#- Return the scans of the chunks, without a test of any bounds. -#}
{% macro return_levels(join) %}
    let s1 = own;
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < chunk %}
    let s{{ 2 * ns.half }} = {{ level("s%d" % ns.half, ns.half, join) }};
{% set ns.half = ns.half * 2 %}
{% endif %}{% endfor %}
    return s{{ chunk }};
{% endmacro %}
{% macro chunks_in_halves() %}
// The items of an invocation: its chunks, in the order of the steps.
alias Items = array<Item, {{ items }}>;
alias Leads = array<Item, {{ steps }}>;  // an item for each of these chunks

{% if quick %}
{{ quick }}

{% if bounded %}
// True if the invocation joins by exact steps.
var<private> exact: bool;
var<workgroup> shared_exact: u32;  // 1 if all invocations have to, since a number of the tile is small
{% else %}
// Of the items of the invocation.
var<private> own_bounds: Bounds;
{% endif %}

fn sizes_in(items: Items) -> Sizes {
    var sizes = sizes_of(items[0]{{ value }});
{% for position in range(1, items) %}
    sizes = smaller_sizes(sizes, sizes_of(items[{{ position }}]{{ value }}));
{% endfor %}
    return sizes;
}

{% if bounded %}
// Return whether items of these sizes may meet a subnormal.
fn are_small(sizes: Sizes) -> bool {
    var lowest = 0i;
    _ = combine_bounds(bounds_of(sizes), bounds_of(sizes), &lowest);
    return lowest < -126i;
}
{% else %}
// Return whether items of these sizes can be joined with the items of the invocation by quick steps.
fn can_join_quickly(leads: Sizes) -> bool {
    var lowest = 0i;
    own_bounds = lower_bounds(own_bounds, combine_bounds(bounds_of(leads), own_bounds, &lowest));
    return lowest >= -126i;
}
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
// Scan chunks in which halves of `begin` elements are to be joined next. The items come to index 0 in turn, so that
// loops need no index.
fn scan_chunks_exactly(own: Items, begin: u32) -> Items {
    var scanned = own;
    for (var half = begin; half < CHUNK; half *= 2u) {
        var lead = scanned[0];
        for (var position = 0u; position < {{ items }}u; position++) {
            var item = scanned[0];
            if ((position & half) != 0u) {
                item = join(lead, item);
            }
            lead = pick((position & (2u * half - 1u)) == half - 1u, item, lead);
            scanned = {{ items_of(turned + ["item"]) }};
        }
    }
{% if not bounded %}
    own_bounds = bounds_of(sizes_in(scanned));
{% endif %}
    return scanned;
}

fn scan_chunks(own: Items) -> Items {
{% if not bounded %}
    var scanned = own;
    var half = 1u;  // halves up to this size are scanned
    own_bounds = bounds_of(sizes_in(own));
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < chunk %}
{% set leads = [] %}
{% for lead in range(ns.half - 1, items, 2 * ns.half) %}{{ leads.append("scanned[%d]" % lead) or "" }}{% endfor %}
    if (half == {{ ns.half }}u && can_join_quickly({{ sizes_in(leads) }})) {
        scanned = {{ level("scanned", ns.half, "join_quickly") }};
        half = {{ 2 * ns.half }}u;
{% if spec.combine.unknown_bounds %}
        own_bounds = bounds_of(sizes_in(scanned));
{% endif %}
    }
{% set ns.half = ns.half * 2 %}
{% endif %}{% endfor %}
    if (half < CHUNK) {
        scanned = scan_chunks_exactly(scanned, half);
    }
    return scanned;
{% else %}
    exact = are_small(sizes_in(own));
    if (exact) {
        return scan_chunks_exactly(own, 1u);
    }
{{ return_levels("join_quickly") -}}
{% endif %}
}

fn join_pair(a: Item, b: Item) -> Item {
{% if bounded %}
    return join(a, b);
{% else %}
    var lowest = 0i;
    _ = combine_bounds(bounds_of(sizes_of(a{{ value }})), bounds_of(sizes_of(b{{ value }})), &lowest);
    if (lowest >= -126i) {
        return join_quickly(a, b);
    }
    return join(a, b);
{% endif %}
}
{% else %}
fn scan_chunks(own: Items) -> Items {
{{ return_levels("join") -}}
}

fn join_pair(a: Item, b: Item) -> Item {
    return join(a, b);
}
{% endif %}

{#- The items, where each item of some steps is joined with the lead of its chunk. -#}
{% macro joined(join, chosen) %}Items({% for position in range(items) %}{{ "%s(leads[%d], own[%d])" % (join, position // chunk, position) if position // chunk in chosen else "own[%d]" % position }}{{ ", " if not loop.last }}{% endfor %}){% endmacro %}
{#- The items, where the chunks of some steps are joined with their leads by exact steps. -#}
{% macro joined_exactly(chosen) -%}
{% set bits = namespace(of=0) %}{% for step in chosen %}{% set bits.of = bits.of + 2 ** step %}{% endfor %}
join_exactly(leads, own{{ ", 0x%xu" % bits.of if steps > 1 }})
{%- endmacro %}
{#- Functions that join the chunks of some steps with their leads. -#}
{% macro joining(name, chosen) %}
{% if bounded %}
fn {{ name }}(leads: Leads, own: Items) -> Items {
    return {{ joined("join_quickly", chosen) }};
}

fn {{ name }}_exactly(leads: Leads, own: Items) -> Items {
    return {{ joined_exactly(chosen) }};
}
{% else %}
fn {{ name }}(leads: Leads, own: Items) -> Items {
{% if not quick %}
    return {{ joined("join", chosen) }};
{% else %}
{% set chosen_leads = [] %}
{% for step in chosen %}{{ chosen_leads.append("leads[%d]" % step) or "" }}{% endfor %}
    if (can_join_quickly({{ sizes_in(chosen_leads) }})) {
{% if spec.combine.unknown_bounds %}
        let joined = {{ joined("join_quickly", chosen) }};
        own_bounds = bounds_of(sizes_in(joined));
        return joined;
{% else %}
        return {{ joined("join_quickly", chosen) }};
{% endif %}
    }
    return {{ joined_exactly(chosen) }};
{% endif %}
}
{% endif %}
{% endmacro %}
{% if quick %}

// Join the lead of each chunk{{ "" if steps == 1 else " with a bit set in `chunks`" }} with the items of the chunk.
// Items and leads come to index 0 in turn, so that loops need no index.
fn join_exactly(leads: Leads, own: Items{{ ", chunks: u32" if steps > 1 }}) -> Items {
    var rest = own;
    var lead = leads;
{% set together = [chunk, 1 if kernel.target.is_cpu_adapter else 4] | min %}
    for (var position = 0u; position < {{ items }}u; position += {{ together }}u) {
{% for position in range(together) %}
        {{ "var" if steps > 1 else "let" }} item{{ position }} = {{ "rest[%d]" % position if steps > 1 else "join(lead[0], rest[%d])" % position }};
{% endfor %}
{% if steps > 1 %}
        if (((chunks >> (position / CHUNK)) & 1u) != 0u) {
{% for position in range(together) %}
            item{{ position }} = join(lead[0], item{{ position }});
{% endfor %}
        }
        if ((position & (CHUNK - 1u)) == CHUNK - {{ together }}u) {
            lead = Leads({% for step in range(1, steps) %}lead[{{ step }}], {% endfor %}lead[0]);
        }
{% endif %}
        rest = Items({% for position in range(together, items) %}rest[{{ position }}], {% endfor %}{% for position in range(together) %}item{{ position }}{{ ", " if not loop.last }}{% endfor %});
    }
{% if not bounded %}
    own_bounds = bounds_of(sizes_in(rest));
{% endif %}
    return rest;
}
{% endif %}

// Join the lead of each chunk with every item of the chunk.
{{ joining("join_halves", range(steps)) -}}
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < steps %}
{% set chosen = [] %}
{% for step in range(steps) %}{{ chosen.append(step) or "" if step // ns.half % 2 }}{% endfor %}

// The same for the chunks of steps that are right halves of {{ 2 * ns.half }} steps.
{{ joining("join_%d_steps" % ns.half, chosen) -}}
{% set ns.half = ns.half * 2 %}
{% endif %}{% endfor %}
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

// Scan the chunks of an invocation, and join the totals of all chunks of the workgroup.
fn scan_own(invocation: u32, loaded: Items) -> Items {
    let own = scan_chunks(loaded);
    join_totals(invocation, own);
    return own;
}

{% macro join_levels(suffix) %}
    var own = scanned;
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        if ((invocation & half) != 0u) {
            own = join_halves{{ suffix }}(Leads({% for step in range(steps) %}{{ text.from_shared("scratch[((%s) & (0u - half)) - 1u]" % chunk_slot(step)) }}{{ ", " if not loop.last }}{% endfor %}), own);
        }
    }
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < steps %}
    own = join_{{ ns.half }}_steps{{ suffix }}(Leads({% for step in range(steps) %}{{ text.from_shared("scratch[%du * WORKGROUP_SIZE - 1u]" % ([step // ns.half * ns.half, 1] | max)) }}{{ ", " if not loop.last }}{% endfor %}), own);
{% set ns.half = ns.half * 2 %}
{% endif %}{% endfor %}
    return own;
{% endmacro %}
{% if bounded %}
fn scan_workgroup_exactly(invocation: u32, scanned: Items) -> Items {
{{ join_levels("_exactly") -}}
}

fn scan_workgroup_quickly(invocation: u32, scanned: Items) -> Items {
{{ join_levels("") -}}
}

{% endif %}
// Join the scanned chunks with what is before them in the tile.
fn scan_workgroup(invocation: u32, scanned: Items) -> Items {
{% if bounded %}
    if (exact) {
        return scan_workgroup_exactly(invocation, scanned);
    }
    return scan_workgroup_quickly(invocation, scanned);
{% else %}
{{ join_levels("") -}}
{% endif %}
}
{%- endmacro %}
{#- The total of a tile is the last item of its scan: the total of the left half joined with the total of the right
    half. -#}
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
