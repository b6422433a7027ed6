{#- The canonical order of reproducible="everywhere" within a tile: first the scan of the left half, then the total of
    the left half joined with each item of the scan of the right half (Sklansky 1960). Halves begin at multiples of
    their size, so that every tile of a power of two gives the same bits.
    Where the operator has quick steps, many items are joined by these at a time if bounds of their numbers tell that no
    step meets a subnormal (see "Quick steps" in gpuscan/operators/code.py). Otherwise they are joined by exact steps, in
    loops, because these are long. -#}
{% set chunk = kernel.tile.chunk %}
{% set quick = spec.combine.quick %}
{% set value = ".value" if kernel.segmented else "" %}
{#- The chunk `name` without its first item and with `item` at its end, so that loops need no index. -#}
{% macro turned(name, item) -%}
Chunk({% for position in range(1, chunk) %}{{ name }}[{{ position }}], {% endfor %}{{ item }})
{%- endmacro %}
{#- The smallest sizes of some items, given their WGSL. -#}
{% macro sizes_in(items) -%}
{% set ns = namespace(text="") %}
{% for item in items %}
{% set ns.text = "smaller_sizes(%s, sizes_of(%s%s))" % (ns.text, item, value) if ns.text else "sizes_of(%s%s)" % (item, value) %}
{% endfor %}
{{- ns.text -}}
{%- endmacro %}
{#- The chunk `name` where halves of `half` elements are joined by the function `join`. -#}
{% macro level(name, half, join) -%}
Chunk({% for position in range(chunk) %}{{ "%s(%s[%d], %s[%d])" % (join, name, position // half * half - 1, name, position) if position // half % 2 else "%s[%d]" % (name, position) }}{{ ", " if not loop.last }}{% endfor %})
{%- endmacro %}
{#- Return the scan of the chunk, without a test of any bounds. -#}
{% macro return_levels(join) %}
    let s1 = chunk;
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < chunk %}
    let s{{ 2 * ns.half }} = {{ level("s%d" % ns.half, ns.half, join) }};
{% set ns.half = ns.half * 2 %}
{% endif %}{% endfor %}
    return s{{ chunk }};
{% endmacro %}
{% macro chunks_in_halves() %}
{% if quick %}
{{ quick }}

// Of the items of the invocation's chunk.
var<private> own_bounds: Bounds;

fn sizes_in(chunk: Chunk) -> Sizes {
    var sizes = sizes_of(chunk[0]{{ value }});
{% for position in range(1, chunk) %}
    sizes = smaller_sizes(sizes, sizes_of(chunk[{{ position }}]{{ value }}));
{% endfor %}
    return sizes;
}

// Return whether items of these sizes can be joined with items of the chunk by quick steps.
fn can_join_quickly(leads: Sizes) -> bool {
    var lowest = 0i;
    own_bounds = lower_bounds(own_bounds, combine_bounds(bounds_of(leads), own_bounds, &lowest));
    return lowest >= -126i;
}

fn join_quickly(a: Item, b: Item) -> Item {
{% if kernel.segmented %}
    let heads = a.head {{ "+" if spec.reduces_segments else "|" }} b.head;
    return pick(b.head != 0u, Item(b.value, heads), Item(quick_combine(a.value, b.value), heads));
{% else %}
    return quick_combine(a, b);
{% endif %}
}

// Scan a chunk in which halves of `begin` elements are to be joined next.
fn scan_chunk_exactly(chunk: Chunk, begin: u32) -> Chunk {
    var scanned = chunk;
    for (var half = begin; half < CHUNK; half *= 2u) {
        var lead = scanned[0];
        for (var position = 0u; position < CHUNK; position++) {
            var item = scanned[0];
            if ((position & half) != 0u) {
                item = join(lead, item);
            }
            lead = pick((position & (2u * half - 1u)) == half - 1u, item, lead);
            scanned = {{ turned("scanned", "item") }};
        }
    }
    own_bounds = bounds_of(sizes_in(scanned));
    return scanned;
}

fn scan_chunk(chunk: Chunk) -> Chunk {
{% if spec.combine.quick_products or spec.combine.unknown_bounds %}
    var scanned = chunk;
    var half = 1u;  // halves up to this size are scanned
    own_bounds = bounds_of(sizes_in(chunk));
{% set ns = namespace(half=1) %}
{% for _ in range(8) %}{% if ns.half < chunk %}
{% set leads = [] %}
{% for lead in range(ns.half - 1, chunk, 2 * ns.half) %}{{ leads.append("scanned[%d]" % lead) or "" }}{% endfor %}
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
        scanned = scan_chunk_exactly(scanned, half);
    }
    return scanned;
{% else %}
    own_bounds = bounds_of(sizes_in(chunk));
    var lowest = 0i;
    _ = combine_bounds(own_bounds, own_bounds, &lowest);
    if (lowest < -126i) {
        return scan_chunk_exactly(chunk, 1u);
    }
{{ return_levels("join_quickly") -}}
{% endif %}
}

fn join_pair(a: Item, b: Item) -> Item {
    var lowest = 0i;
    _ = combine_bounds(bounds_of(sizes_of(a{{ value }})), bounds_of(sizes_of(b{{ value }})), &lowest);
    if (lowest >= -126i) {
        return join_quickly(a, b);
    }
    return join(a, b);
}
{% else %}
fn scan_chunk(chunk: Chunk) -> Chunk {
{{ return_levels("join") -}}
}

fn join_pair(a: Item, b: Item) -> Item {
    return join(a, b);
}
{% endif %}

// Join `lead` with every item of the chunk.
fn join_halves(lead: Item, chunk: Chunk) -> Chunk {
{% macro joined(join) %}Chunk({% for position in range(chunk) %}{{ join }}(lead, chunk[{{ position }}]){{ ", " if not loop.last }}{% endfor %}){% endmacro %}
{% if not quick %}
    return {{ joined("join") }};
{% else %}
    if (can_join_quickly(sizes_of(lead{{ value }}))) {
{% if spec.combine.unknown_bounds %}
        let joined = {{ joined("join_quickly") }};
        own_bounds = bounds_of(sizes_in(joined));
        return joined;
{% else %}
        return {{ joined("join_quickly") }};
{% endif %}
    }
    var rest = chunk;
{% set together = [chunk, 1 if kernel.target.is_cpu_adapter else 4] | min %}
    for (var position = 0u; position < CHUNK; position += {{ together }}u) {
        rest = Chunk({% for position in range(together, chunk) %}rest[{{ position }}], {% endfor %}{% for position in range(together) %}join(lead, rest[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
    }
    own_bounds = bounds_of(sizes_in(rest));
    return rest;
{% endif %}
}
{%- endmacro %}
{#- Join the items of all invocations in halves. Afterwards `scratch` holds in place i the total of the largest half that
    ends with item i and begins at a multiple of its size (Fenwick 1994). What is before item i are the items in the places
    before i, before i without its lowest set bit, and so on, from the nearest one on. -#}
{% macro join_totals() %}
fn join_totals(invocation: u32, own: Item) {
    scratch[invocation] = {{ text.to_shared("own") }};
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        workgroupBarrier();
        let last = (2u * invocation + 2u) * half - 1u;  // neighbours join, so that few subgroups do
        if (last < WORKGROUP_SIZE) {
            let item = join_pair({{ text.from_shared("scratch[last - half]") }}, {{ text.from_shared("scratch[last]") }});
            scratch[last] = {{ text.to_shared("item") }};
        }
    }
    workgroupBarrier();
}
{%- endmacro %}
{#- Scan the chunks of a workgroup. -#}
{% macro scan_in_halves() %}
{{ join_totals() }}

fn scan_workgroup(invocation: u32, loaded: Chunk) -> Chunk {
    var chunk = scan_chunk(loaded);
    join_totals(invocation, chunk[CHUNK - 1u]);
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        if ((invocation & half) != 0u) {
            chunk = join_halves({{ text.from_shared("scratch[invocation / half * half - 1u]") }}, chunk);
        }
    }
{% if spec.exclusive or spec.compacts %}
    workgroupBarrier();
    scratch[invocation] = {{ text.to_shared("chunk[CHUNK - 1u]") }};
    workgroupBarrier();
{% endif %}
    return chunk;
}
{%- endmacro %}
{#- The total of a tile is the last item of its scan: the total of the left half joined with the total of the right half. -#}
{% macro reduce_in_halves() %}
{{ join_totals() }}

fn reduce_tile(tile: u32, invocation: u32) -> Item {
    join_totals(invocation, scan_chunk(load_chunk(first_of(tile, invocation)))[CHUNK - 1u]);
    return {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
}
{%- endmacro %}
