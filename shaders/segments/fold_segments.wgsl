{#- Second stage of a reduction of segments: each workgroup combines the elements of one tile segment by segment, and
    stores the results of the segments that begin and end in it. An invocation combines OWN neighbouring elements from
    left to right. They take few accesses, so it loads them itself, although its neighbours' are not next to them.
    in:  the sources, the offsets, heads, the first segments of tiles, the initial values
    out: the destinations; memory: what is left of segments that cross the ends of tiles -#}
{% from "shared/chunk_access.wgsl" import load_elements with context %}
{% from "scan/chunk_places.wgsl" import find_heads, find_indices, find_offsets with context %}
{% from "scan/subgroup_scan.wgsl" import scan_bands, subgroup_scan with context %}
{% from "segments/call.wgsl" import write_element with context %}
{% include "segments/call.wgsl" %}
alias Chunk = array<Item, CHUNK>;
alias Elements = array<Element, CHUNK>;
{% include "scan/tile_scan.wgsl" %}
{% if kernel.subgroups %}
{{ subgroup_scan("scan_subgroup", kernel.tile.subgroup_size, kernel.loops_over_lanes) }}
{% endif %}

const OWN = STEPS * CHUNK;  // neighbouring elements that an invocation combines

// The combinations at the ends of segments, each at the index of its last element. After the elements of each
// invocation there is a gap of one word, which spreads them over banks.
var<workgroup> staged: array<u32, TILE_SIZE * ELEMENT_WORDS + WORKGROUP_SIZE>;

fn slot_of(position: u32) -> u32 {
    return position * ELEMENT_WORDS + position / OWN;
}

fn staged_element(position: u32) -> Element {
    let at = slot_of(position);
    return {{ text.element_from_words("staged", "at + ") }};
}

fn stage_element(position: u32, value: Element) {
    let at = slot_of(position);
{{ write_element("staged") -}}
}

fn load_chunk(index: u32) -> Elements {
{{ find_heads() if spec.index_step -}}
{{ find_offsets() -}}
{{ find_indices() if spec.index_step -}}
{{ load_elements("first").rstrip() }}
    return Elements({% for position in range(kernel.tile.chunk) %}e{{ position }}{{ ", " if not loop.last }}{% endfor %});
}

// Return the last of some segments that begins at this position or before it.
fn segment_at(position: u32, first: u32, end: u32) -> u32 {
    var low = first;
    var high = end;
    while (high - low > 1u) {
        let middle = low + (high - low) / 2u;
        if (span_of(middle).start <= position) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Store the result of a segment that begins and ends in the tile.
fn store_whole(segment: u32, span: Span, begin: u32, end: u32) {
    if ((span.start < span.stop) & (span.start >= begin) & (span.stop <= end)) {
        store_segment(segment, staged_element(span.stop - 1u - begin));
    }
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let tile = workgroup.x + workgroup.y * grid.x;
    if (tile >= params.tiles) {
        return;
    }
    let begin = tile * TILE_SIZE;
    let end = min(begin + TILE_SIZE, params.length);
    let own = invocation * OWN;
    // 1. Load every chunk, so that all reads are under way together.
    let first = memory[first_of_tile(tile)];
    let last = max(first, memory[first_of_tile(tile + 1u)]);
    let marks = extractBits(heads[min(begin + own, params.length) >> 5u], own & 31u, OWN);
{% for step in range(kernel.tile.steps) %}
    let loaded{{ step }} = load_chunk(begin + own + {{ step }}u * CHUNK);
{% endfor %}
    // The numbers of the first segments with results that are stored below.
    let early = span_of(min(first + invocation, params.all_segments - 1u));

    // 2. Combine the own elements. Where a segment ends, keep the combination up to it.
    var sum = loaded0[0];
{% if kernel.loops_over_elements %}
{% for step in range(kernel.tile.steps) %}
{% for position in range(kernel.tile.chunk) %}
    stage_element(own + {{ step * kernel.tile.chunk + position }}u, loaded{{ step }}[{{ position }}]);
{% endfor %}
{% endfor %}
    for (var i = 1u; i < OWN; i++) {
        let next = staged_element(own + i);
        let both = combine(sum, next);
        let is_head = extractBits(marks, i, 1u) == 1u;
        if (is_head) {
            stage_element(own + i - 1u, sum);
        }
        sum = {{ text.pick_element("is_head", "next", "both") }};
    }
{% else %}
    if (marks < 2u) {  // all of them belong to one segment
{% for i in range(1, kernel.tile.steps * kernel.tile.chunk) %}
        sum = combine(sum, loaded{{ i // kernel.tile.chunk }}[{{ i % kernel.tile.chunk }}]);
{% endfor %}
    } else {
{% for i in range(1, kernel.tile.steps * kernel.tile.chunk) %}
        let next{{ i }} = loaded{{ i // kernel.tile.chunk }}[{{ i % kernel.tile.chunk }}];
        let both{{ i }} = combine(sum, next{{ i }});
        let is_head{{ i }} = extractBits(marks, {{ i }}u, 1u) == 1u;
        if (is_head{{ i }}) {
            stage_element(own + {{ i - 1 }}u, sum);
        }
        sum = {{ text.pick_element("is_head%d" % i, "next%d" % i, "both%d" % i) }};
{% endfor %}
    }
{% endif %}
    stage_element(own + OWN - 1u, sum);

    // 3. Learn what other invocations have of the segment that goes on here, and join it with where that ends.
    let item = Item(sum, select(0u, 1u, marks != 0u));
{% if kernel.subgroups %}
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
    let scanned = scan_subgroup(lane, item);
    let before = item_up(scanned, 1u);
{{ scan_bands("item_at(scanned, SUBGROUP_SIZE - 1u)").rstrip() }}
    let joined = pick(subgroup > 0u, join(tile_lead, before), before);
    let carry = pick(lane > 0u, joined, tile_lead);
{% else %}
    _ = scan_invocations(invocation, item);
    let carry = {{ text.from_shared("scratch[max(invocation, 1u) - 1u]") }};
{% endif %}
    if ((invocation > 0u) & ((marks & 1u) == 0u)) {
        let ends = own + min(countTrailingZeros(marks), OWN) - 1u;
        stage_element(ends, combine(carry.value, staged_element(ends)));
    }
    workgroupBarrier();

    // 4. Store the results of whole segments, and keep the parts of others.
    let count = last - first;
    if (count <= TILE_SIZE) {
        if (invocation < count) {
            store_whole(first + invocation, early, begin, end);
        }
        for (var i = invocation + WORKGROUP_SIZE; i < count; i += {{ kernel.results_at_once }}u * WORKGROUP_SIZE) {
{% for n in range(kernel.results_at_once) %}
            let number{{ n }} = i + {{ n }}u * WORKGROUP_SIZE;
            let span{{ n }} = span_of(first + min(number{{ n }}, count - 1u));
{% endfor %}
{% for n in range(kernel.results_at_once) %}
            if (number{{ n }} < count) {
                store_whole(first + number{{ n }}, span{{ n }}, begin, end);
            }
{% endfor %}
        }
    } else {  // most segments are empty, so each position is looked up instead of each segment
        for (var position = begin + invocation; position < end; position += WORKGROUP_SIZE) {
            let segment = segment_at(position, first, last);
            let span = span_of(segment);
            if (span.start == position) {
                store_whole(segment, span, begin, end);
            }
        }
    }
    if (invocation == 0u) {
        var rest = end - begin;
        var open = NO_SEGMENT;
        if (last > first) {
            rest = min(max(span_of(first).start, begin) - begin, rest);
            open = select(NO_SEGMENT, last - 1u, span_of(last - 1u).stop > end);
        }
        if (rest > 0u) {
            write_part(tile, 0u, staged_element(rest - 1u));
        }
        write_part(tile, 1u, staged_element(end - begin - 1u));
        memory[tile] = open;
    }
}
