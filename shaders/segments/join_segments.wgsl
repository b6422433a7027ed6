{#- Third stage of a reduction of segments: join the parts of segments that cross the ends of tiles.
    in:  the offsets, memory, the initial values
    out: the destinations -#}
{% from "segments/call.wgsl" import write_element with context %}
{% include "segments/call.wgsl" %}

const TILES = {{ kernel.joined_tiles }}u;  // that a workgroup looks at
const FEW = {{ kernel.few_parts }}u;  // parts that one invocation joins

var<workgroup> many: array<u32, TILES>;  // the tiles with a segment of more parts
var<workgroup> counted: atomic<u32>;
var<workgroup> segment_count: u32;
var<workgroup> staged: array<u32, WORKGROUP_SIZE * ELEMENT_WORDS>;

fn staged_element(position: u32) -> Element {
    let at = position * ELEMENT_WORDS;
    return {{ text.element_from_words("staged", "at + ") }};
}

fn stage_element(position: u32, value: Element) {
    let at = position * ELEMENT_WORDS;
{{ write_element("staged") -}}
}

// Combine the first parts of `count` tiles, in their order.
fn join_parts(first: u32, count: u32) -> Element {
    var sum = read_part(first, 0u);
    var i = 1u;
{% if not spec.combine.long %}
    for (; i + 4u <= count; i += 4u) {  // four reads are under way together
{% for at in range(4) %}
        let part{{ at }} = read_part(first + i + {{ at }}u, 0u);
{% endfor %}
        sum = combine(combine(combine(combine(sum, part0), part1), part2), part3);
    }
{% endif %}
    for (; i < count; i++) {
        sum = combine(sum, read_part(first + i, 0u));
    }
    return sum;
}

// Return the last tile of a segment.
fn last_tile(segment: u32) -> u32 {
    return min((span_of(segment).stop - 1u) / TILE_SIZE, params.tiles - 1u);
}

fn join_tiles(invocation: u32, first: u32) {
    let tile = first + invocation;
    if (invocation == 0u) {
        atomicStore(&counted, 0u);
    }
    workgroupBarrier();
    if ((invocation < TILES) & (tile < params.tiles)) {
        let segment = memory[tile];
        if (segment != NO_SEGMENT) {
            let parts = last_tile(segment) - tile;
            if (parts > FEW) {
                many[atomicAdd(&counted, 1u)] = tile;
            } else {
                store_segment(segment, combine(read_part(tile, 1u), join_parts(tile + 1u, parts)));
            }
        }
    }
    workgroupBarrier();
    if (invocation == 0u) {
        segment_count = atomicLoad(&counted);
    }
    let count = workgroupUniformLoad(&segment_count);
    for (var i = 0u; i < count; i++) {
        let begin = many[i];
        let segment = memory[begin];
        let parts = last_tile(segment) - begin;
        let share = (parts + WORKGROUP_SIZE - 1u) / WORKGROUP_SIZE;
        let own = invocation * share;
        let sharers = (parts + share - 1u) / share;
        if (own < parts) {
            stage_element(invocation, join_parts(begin + 1u + own, min(share, parts - own)));
        }
        workgroupBarrier();
        for (var distance = 1u; distance < WORKGROUP_SIZE; distance *= 2u) {
            if ((invocation % (2u * distance) == 0u) & (invocation + distance < sharers)) {
                stage_element(invocation, combine(staged_element(invocation), staged_element(invocation + distance)));
            }
            workgroupBarrier();
        }
        if (invocation == 0u) {
            store_segment(segment, combine(read_part(begin, 1u), staged_element(0u)));
        }
        workgroupBarrier();
    }
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    join_tiles(invocation, (workgroup.x + workgroup.y * grid.x) * TILES);
}
