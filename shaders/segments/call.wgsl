{#- The beginning of the stages of a reduction of segments. Rows are one after the other, and so are their segments: all
    are cut by the same offsets. Tiles of TILE_SIZE elements do not mind where rows end.
    Memory: for each tile, the segment that begins in it and goes on after it, or NO_SEGMENT; two elements for each
    tile: the combination before its first segment begins, and from where its last one begins; for each tile and for the
    end, the number of the first segment that begins there or later.
    Heads: a bit for each element that begins a segment, and for the index after the last element.
    Values: kernel, a gpuscan.planning.segment_plan.SegmentKernel; spec. -#}
{% include "shared/extensions.wgsl" %}
const WORKGROUP_SIZE = {{ kernel.tile.workgroup_size }}u;  // invocations
{% if kernel.subgroups %}
const SUBGROUP_SIZE = {{ kernel.tile.subgroup_size }}u;  // lanes
{% endif %}
const STEPS = {{ kernel.tile.steps }}u;  // chunks an invocation loads
const CHUNK = {{ kernel.tile.chunk }}u;  // neighbouring elements in a chunk
const TILE_SIZE = {{ kernel.segment_tile }}u;  // elements
const ELEMENT_WORDS = {{ spec.element.words }}u;
const NO_SEGMENT = 0xffffffffu;

struct Params {
    length: u32,  // elements of all rows together
    row_length: u32,
    row_offset: u32,  // 0: the first element begins a row
    first_row: u32,  // 0
    segments: u32,  // of a row
    all_segments: u32,
    tiles: u32,
    searches: u32,  // workgroups of the first stage that find the first segments of tiles
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding({{ kernel.binding_of("memory") }}) var<storage, read_write> memory: array<u32>;
@group(0) @binding({{ kernel.binding_of("offsets") }}) var<storage, read> offsets: array<u32>;
{% if kernel.stage != "join_segments" %}
@group(0) @binding({{ kernel.binding_of("heads") }}) var<storage, {{ "read_write" if kernel.marks else "read" }}> heads: array<{{ "atomic<u32>" if kernel.marks else "u32" }}>;
{% endif %}
{% if kernel.checked %}
@group(0) @binding({{ kernel.binding_of("validation_flag") }}) var<storage, read_write> validation_flag: ValidationFlag;
{% endif %}

{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "shared/arrays.wgsl" %}
{% from "shared/offsets.wgsl" import offset_functions %}
{{ offset_functions(kernel.offset, kernel.checked, kernel.needs_full) }}

struct Span {
    start: u32,
    stop: u32,  // the index after the last element
}

// Return the offsets of a segment, by its number among the segments of all rows.
fn offsets_of(segment: u32) -> Span {
{% if kernel.access.several_rows %}
    let index = segment % params.segments;
{% else %}
    let index = segment;
{% endif %}
    return Span(offset_at(index), offset_at(index + 1u));
}

// Return where a segment with these offsets is. Wrong offsets end with their row.
fn span_by(segment: u32, offsets_in_row: Span) -> Span {
{% if kernel.access.several_rows %}
    let begin = segment / params.segments * params.row_length;
{% else %}
    let begin = 0u;
{% endif %}
    return Span(begin + min(offsets_in_row.start, params.row_length), begin + min(offsets_in_row.stop, params.row_length));
}

fn span_of(segment: u32) -> Span {
    return span_by(segment, offsets_of(segment));
}

// Store the result of a segment.
fn store_segment(segment: u32, value: Element) {
{% if spec.initial %}
    let all = combine(seed({{ "segment / params.segments" if kernel.access.several_rows else "0u" }}), value);
{% else %}
    let all = value;
{% endif %}
    store_result(segment, {{ text.map_result("all") }});
}

{# Write the words of an element to an array of words. -#}
{% macro write_element(array) %}
{% for word in text.element_words("value") %}
    {{ array }}[at + {{ loop.index0 }}u] = {{ word }};
{% endfor %}
{% endmacro %}
// Return where one of the two elements of a tile is in memory.
fn part_of(tile: u32, is_last: u32) -> u32 {
    return params.tiles + (2u * tile + is_last) * ELEMENT_WORDS;
}

fn read_part(tile: u32, is_last: u32) -> Element {
    let at = part_of(tile, is_last);
    return {{ text.element_from_words("memory", "at + ") }};
}

fn write_part(tile: u32, is_last: u32, value: Element) {
    let at = part_of(tile, is_last);
{{ write_element("memory") -}}
}

// Return where the number of the first segment of a tile is in memory.
fn first_of_tile(tile: u32) -> u32 {
    return params.tiles * (1u + 2u * ELEMENT_WORDS) + tile;
}
