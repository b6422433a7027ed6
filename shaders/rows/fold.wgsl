{#- The reduction of a part of a row by an operator that commutes. Lanes load neighbouring chunks of whole words, so a
    row may begin and end within a word. The elements before a part's first whole chunk and after its last one are
    loaded one by one. The order of combination depends on the lengths and on where a row begins within a chunk, so it is
    the same in each run.
    With kernel.tile.columns a row is an array (row_length, inner), and each of its columns is reduced by itself.
    in:  the sources, or the totals of parts -#}
{% include "shared/arrays.wgsl" %}
{% from "shared/chunk_access.wgsl" import load_elements with context %}
{% from "shared/combine_between.wgsl" import combine_between with context %}
{% set from_sources = kernel.stage == "reduce" or kernel.strategy != "three_dispatch" %}
{% set chunk = kernel.tile.chunk if from_sources else 1 %}
{% macro combine_chunks(stride) %}
{% if from_sources %}
{% call(index) combine_between(stride) %}load_chunk({{ index }}){% endcall %}
{% else %}
{% call(index) combine_between(stride) %}Chunk(read_total({{ index }})){% endcall %}
{% endif %}
{% endmacro %}
// ----- Parts of rows
const LANES = {{ kernel.tile.lanes }}u;  // invocations that share a part
const PARTS = WORKGROUP_SIZE / LANES;  // parts that a workgroup takes

// Neighbouring elements, or a total.
alias Chunk = array<Item, {{ chunk }}>;

fn join_chunks(a: Chunk, b: Chunk) -> Chunk {
    return Chunk({% for position in range(chunk) %}join(a[{{ position }}], b[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
}

fn pick_chunk(condition: bool, yes: Chunk, no: Chunk) -> Chunk {
    return Chunk({% for position in range(chunk) %}pick(condition, yes[{{ position }}], no[{{ position }}]){{ ", " if not loop.last }}{% endfor %});
}

// The elements, or totals, from `start` to before `stop`. The chunks from `first` to before `end` are whole.
struct Span {
    start: u32,
    stop: u32,
    first: u32,
    end: u32,
    before: u32,  // elements before the first whole chunk
    after: u32,  // elements after the last one
}

fn span_between(start: u32, stop: u32) -> Span {
    let first = (start + {{ chunk - 1 }}u) / {{ chunk }}u;
    let end = max(stop / {{ chunk }}u, first);
    let before = min(first * {{ chunk }}u, stop) - start;
    return Span(start, stop, first, end, before, stop - min(stop, max(end * {{ chunk }}u, start + before)));
}

fn count_rows() -> u32 {
    return params.length / (params.row_length * params.inner);
}
{% set inner = "params.inner" if kernel.tile.columns else "1u" %}
{% if from_sources %}

// Return the elements of a part. All parts of a row but the last one have the same length: whole chunks, and whole rows
// of columns.
fn span_of(part: u32) -> Span {
    let parts = params.tiles / count_rows();
    let row = part / parts;
    let size = params.row_length * {{ inner }};
    let unit = {{ "params.inner * (CHUNK / min(1u << countTrailingZeros(params.inner), CHUNK))" if kernel.tile.columns else "CHUNK" }};
    let length = ((size + parts - 1u) / parts + unit - 1u) / unit * unit;
    let start = row * size + (part - row * parts) * length;
    return span_between(start, select(min(start + length, (row + 1u) * size), start, part >= params.tiles));
}

fn load_chunk(at: u32) -> Chunk {
    let first = at * CHUNK;
{{ load_elements("first").rstrip() }}
    return Chunk({% for position in range(chunk) %}e{{ position }}{{ ", " if not loop.last }}{% endfor %});
}
{% if chunk > 1 %}

// Return the index of element `i` outside the whole chunks.
fn index_outside(span: Span, i: u32) -> u32 {
    return select(span.stop - span.after + i - span.before, span.start + i, i < span.before);
}

fn load_single(at: u32) -> Item {
    return {{ text.load_single("at") }};
}
{% endif %}
{% else %}

// Return the totals of a row's parts.
fn span_of(row: u32) -> Span {
    let totals = params.tiles / count_rows() * {{ inner }};
    return span_between(row * totals, select((row + 1u) * totals, row * totals, row >= count_rows()));
}
{% endif %}

var<workgroup> lane_totals: array<{{ text.shared_item }}, {{ kernel.tile.workgroup_size * (chunk if kernel.tile.columns else 1) }}>;

{% if kernel.tile.columns %}
// Lanes that are this many lanes apart take elements of the same columns.
fn period_of_lanes() -> u32 {
    return params.inner / min(1u << countTrailingZeros(params.inner), {{ chunk }}u);
}

// Combine the chunks of a span. Then workgroup memory has the totals of a chunk for each lane of the first period.
fn reduce(span: Span, lane: u32) {
    let period = period_of_lanes();
    let stride = LANES / period * period;
    let end = span.end;
    let begin = select(span.first + lane, end, lane >= stride);
{{ combine_chunks("stride").rstrip() }}
    let group = lane / period;
    var groups = stride / period;
    loop {
        let half = (groups + 1u) / 2u;
        if (group >= select(half, 0u, groups == 1u) && group < groups) {
{% for position in range(chunk) %}
            lane_totals[lane * {{ chunk }}u + {{ position }}u] = {{ text.to_shared("total[%d]" % position) }};
{% endfor %}
        }
        workgroupBarrier();
        if (groups == 1u) {
            break;
        }
        let other = lane + half * period;
        if (group < groups - half && other < end - span.first) {
            total = join_chunks(total, Chunk({% for position in range(chunk) %}{{ text.from_shared("lane_totals[other * %du + %du]" % (chunk, position)) }}{{ ", " if not loop.last }}{% endfor %}));
        }
        groups = half;
    }
}

// Return the aggregate of a column, after `reduce`.
fn total_of_column(column: u32, span: Span) -> Item {
    var total: Item;
    var known = false;
    let first_column = (span.first * {{ chunk }}u - span.start) % params.inner;
    let totals = min(period_of_lanes(), span.end - span.first) * {{ chunk }}u;
    for (var at = (column + params.inner - first_column) % params.inner; at < totals; at += params.inner) {
        let item = {{ text.from_shared("lane_totals[at]") }};
        total = pick(known, join(total, item), item);
        known = true;
    }
{% if chunk > 1 %}
    for (var i = 0u; i < span.before + span.after; i++) {
        let at = index_outside(span, i);
        if ((at - span.start) % params.inner == column) {
            let item = load_single(at);
            total = pick(known, join(total, item), item);
            known = true;
        }
    }
{% endif %}
    return total;
}
{% else %}
// Return the aggregate of a span to its first lane.
fn reduce(span: Span, invocation: u32) -> Item {
    let lane = invocation % LANES;
    let begin = span.first + lane;
    let end = span.end;
{{ combine_chunks("LANES").rstrip() }}
    var own = total[0];
{% for position in range(1, chunk) %}
    own = join(own, total[{{ position }}]);
{% endfor %}
{% if chunk > 1 %}
    var known = begin < end;
    for (var i = lane; i < span.before + span.after; i += LANES) {
        let item = load_single(index_outside(span, i));
        own = pick(known, join(own, item), item);
        known = true;
    }
{% endif %}
    return join_lanes(invocation, own, max(end - span.first, span.before + span.after));
}

// Combine the values that the first `count` lanes of a part have. The first lane gets the result.
fn join_lanes(invocation: u32, value: Item, count: u32) -> Item {
    let lane = invocation % LANES;
    var own = value;
    for (var distance = LANES / 2u; distance > 0u; distance /= 2u) {
        if (lane >= distance && lane < 2u * distance) {
            lane_totals[invocation] = {{ text.to_shared("own") }};
        }
        workgroupBarrier();
        if (lane < distance && lane + distance < count) {
            own = join(own, {{ text.from_shared("lane_totals[invocation + distance]") }});
        }
    }
    return own;
}
{% endif %}
