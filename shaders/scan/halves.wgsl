{#- The canonical order of reproducible="everywhere" within a tile: first the scan of the left half, then the total of
    the left half joined with each item of the scan of the right half (Sklansky 1960). Halves begin at multiples of
    their size, so that every tile of a power of two gives the same bits.
    Where the operator has quick steps, items are joined by these. If an operand is so small that they may have other
    bits (shared/arithmetic_fixed.wgsl), the items are joined again by exact steps, in loops, because these are long. -#}
{% set chunk = kernel.tile.chunk %}
{% set quick, only_sums = spec.combine.quick, spec.combine.only_sums %}
{% set value = ".value" if kernel.segmented else "" %}
{#- True if quick steps have the bits of the exact ones: no operand is below 2^-62, but for zeros. -#}
{% set is_exact = "smallest >= 0x40ffffffu" %}
{#- The chunk `name` without its first item and with `item` at its end, so that loops need no index. -#}
{% macro turned(name, item) -%}
Chunk({% for position in range(1, chunk) %}{{ name }}[{{ position }}], {% endfor %}{{ item }})
{%- endmacro %}
{% macro exact_join(a, b) %}join({{ a }}, {{ b }}){% endmacro %}
{% macro quick_join(a, b) %}join_quickly({{ a }}, {{ b }}, &smallest){% endmacro %}
{#- Scan a chunk: `c<level>_<position>` are the items when halves of 2^level elements are joined. -#}
{% macro scan_levels(join) %}
{% for position in range(chunk) %}
    let c0_{{ position }} = chunk[{{ position }}];
{% endfor %}
{% set ns = namespace(half=1, level=0) %}
{% for _ in range(8) %}{% if ns.half < chunk %}
{% for position in range(chunk) %}
{% set at = "c%d_%d" % (ns.level, position) %}
    let c{{ ns.level + 1 }}_{{ position }} = {{ join("c%d_%d" % (ns.level, position // ns.half * ns.half - 1), at) if position // ns.half % 2 else at }};
{% if quick and not only_sums and position // ns.half % 2 and 2 * ns.half < chunk %}
    smallest = min(smallest, smallest_of(c{{ ns.level + 1 }}_{{ position }}{{ value }}));
{% endif %}
{% endfor %}
{% set ns.half = ns.half * 2 %}
{% set ns.level = ns.level + 1 %}
{% endif %}{% endfor %}
    let scanned = Chunk({% for position in range(chunk) %}c{{ ns.level }}_{{ position }}{{ ", " if not loop.last }}{% endfor %});
{% endmacro %}
{% macro chunks_in_halves() %}
{% if quick %}
{{ quick }}

fn smallest_in(chunk: Chunk) -> u32 {
    var smallest = smallest_of(chunk[0]{{ value }});
{% for position in range(1, chunk) %}
    smallest = min(smallest, smallest_of(chunk[{{ position }}]{{ value }}));
{% endfor %}
    return smallest;
}

{% if only_sums %}
// The smallest number of the invocation's chunk when it was checked. Sums of it and of numbers that were checked are
// multiples of the same power of 2, so they need no check.
var<private> own_smallest: u32;

{% endif %}
// Join two items in quick steps. `smallest` falls to the smallest operand that is not a number of the items.
fn join_quickly(a: Item, b: Item, smallest: ptr<function, u32>) -> Item {
{% if kernel.segmented %}
    let heads = a.head {{ "+" if spec.reduces_segments else "|" }} b.head;
    return pick(b.head != 0u, Item(b.value, heads), Item(quick_combine(a.value, b.value, smallest), heads));
{% else %}
    return quick_combine(a, b, smallest);
{% endif %}
}

fn scan_chunk_exactly(chunk: Chunk) -> Chunk {
    var scanned = chunk;
    for (var half = 1u; half < CHUNK; half *= 2u) {
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
    return scanned;
}

fn scan_chunk(chunk: Chunk) -> Chunk {
    var smallest = smallest_in(chunk);
{{ scan_levels(quick_join) -}}
{% if only_sums %}
    own_smallest = smallest;
{% endif %}
    if ({{ is_exact }}) {
        return scanned;
    }
    return scan_chunk_exactly(chunk);
}

fn join_pair(a: Item, b: Item) -> Item {
    var smallest = min(smallest_of(a{{ value }}), smallest_of(b{{ value }}));
    let joined = join_quickly(a, b, &smallest);
    if ({{ is_exact }}) {
        return joined;
    }
    return join(a, b);
}
{% else %}
fn scan_chunk(chunk: Chunk) -> Chunk {
{{ scan_levels(exact_join) -}}
    return scanned;
}

fn join_pair(a: Item, b: Item) -> Item {
    return join(a, b);
}
{% endif %}

// Join `lead` with every item of the chunk.
fn join_halves(lead: Item, chunk: Chunk) -> Chunk {
{% if quick %}
    var smallest = min(smallest_of(lead{{ value }}), {{ "own_smallest" if only_sums else "smallest_in(chunk)" }});
    let joined = Chunk({% for position in range(chunk) %}join_quickly(lead, chunk[{{ position }}], &smallest){{ ", " if not loop.last }}{% endfor %});
    if ({{ is_exact }}) {
        return joined;
    }
    var rest = chunk;
    for (var position = 0u; position < CHUNK; position++) {
        let item = join(lead, rest[0]);
        rest = {{ turned("rest", "item") }};
    }
{% if only_sums %}
    own_smallest = smallest_in(rest);
{% endif %}
    return rest;
{% else %}
    return Chunk({% for position in range(chunk) %}join(lead, chunk[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
{% endif %}
}
{%- endmacro %}
{#- Join the items of all invocations in halves. Afterwards `scratch` holds in place i the total of the largest half that
    ends with item i and begins at a multiple of its size (Fenwick 1994). What is before item i are the items in the places
    before i, before i without its lowest set bit, and so on, from the nearest one on. -#}
{% macro join_totals() %}
fn join_totals(invocation: u32, own: Item) {
    var item = own;
    scratch[invocation] = {{ text.to_shared("item") }};
    for (var half = 1u; half < WORKGROUP_SIZE; half *= 2u) {
        workgroupBarrier();
        if ((invocation + 1u) % (2u * half) == 0u) {
            item = join_pair({{ text.from_shared("scratch[invocation - half]") }}, item);
            scratch[invocation] = {{ text.to_shared("item") }};
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
