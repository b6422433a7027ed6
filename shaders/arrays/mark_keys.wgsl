{#- Mark the heads of the segments that keys define. Each invocation compares KEYS neighbouring keys, each with the key
    before it in the order of the scan. Every word is then assembled from the bits of its invocations.
    in:  keys, of a piece of the array; others: the keys that come before these in the order of the scan
    out: heads: one bit for each element. The bits of rows are in the order of the scan. A reversed scan begins at the
         end of the last row. The bits of columns are in the order of memory.
    Values: workgroup_size; keys: how many an invocation compares; scalar: the type of the keys; in_columns: True if
        neighbours in memory are of different rows; vectors: True if keys are words that are loaded four at a time, from
        a multiple of four on, for a scan that is not reversed. -#}
{% from "shared/keys.wgsl" import declare_keys, key_in %}
struct Piece {
    length: u32,  // elements of this piece
    words: u32,  // of heads
    reverse: u32,  // 1 where the scan goes from the rows' ends
    // Elements between the beginning of a row and the piece; of columns: elements of the array before the piece.
    offset: u32,
    row_length: u32,
    inner: u32,  // rows that are interleaved in memory
    first: u32,  // the position of the piece's first element in `keys`, in the order of memory
    other: u32,  // the position in `others` of the key before that element, or after it where the scan is reversed
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const KEYS = {{ keys }}u;  // that an invocation compares
const SHARES = 32u / KEYS;  // invocations to a word

@group(0) @binding(0) var<uniform> piece: Piece;
@group(0) @binding(1) var<storage, read> keys: array<{{ "vec4<u32>" if vectors else "u32" }}>;
@group(0) @binding(2) var<storage, read> others: array<u32>;
@group(0) @binding(3) var<storage, read_write> heads: array<u32>;

{{ declare_keys(scalar) }}
{% if not vectors %}
fn key_at(position: u32) -> Key {
    return {{ key_in("keys", scalar, "position") }};
}
{% endif %}

fn other_at(position: u32) -> Key {
    return {{ key_in("others", scalar, "position") }};
}

{% if keys < 32 %}
var<workgroup> shares: array<u32, {{ workgroup_size }}>;
{% endif %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let group = workgroup.x + workgroup.y * grid.x;
    let first = (group * WORKGROUP_SIZE + invocation) * KEYS;
    var share = 0u;
{% if in_columns %}
    let first_row = select(0u, piece.row_length - 1u, piece.reverse == 1u);
    var column = (piece.offset + first) % piece.inner;
    var row = (piece.offset + first) / piece.inner % piece.row_length;
    for (var i = 0u; i < KEYS; i++) {
        let at = min(first + i, piece.length - 1u);
        let head = row == first_row || differ(key_at(piece.first + at), other_at(piece.other + at));
        share |= select(0u, 1u << i, head && first + i < piece.length);
        column += 1u;
        row = select(row, row + 1u, column == piece.inner);
        row = select(row, 0u, row == piece.row_length);
        column = select(column, 0u, column == piece.inner);
    }
{% elif vectors %}
    let start = min(first, piece.length - 1u);
    let last = (piece.first + piece.length - 1u) / 4u;
    var before = other_at(piece.other + start);
{% for vector in range(keys // 4) %}
    let keys{{ vector }} = keys[min((piece.first + first) / 4u + {{ vector }}u, last)];
{% for lane in range(4) %}
    share |= select(0u, {{ "0x%xu" % (1 * 2 ** (4 * vector + lane)) }}, differ(Key(keys{{ vector }}[{{ lane }}]), {{ "Key(keys%d[%d])" % (vector, lane - 1) if lane else "before" }}));
{% endfor %}
    before = Key(keys{{ vector }}.w);
{% endfor %}
    let at = (piece.offset + first) % piece.row_length;  // in the row, in the order of the scan
    for (var head = select(piece.row_length - at, 0u, at == 0u); head < KEYS; head += piece.row_length) {
        share |= 1u << head;
    }
    let count = piece.length - min(first, piece.length);
    share &= select((1u << (count & 31u)) - 1u, 0xffffffffu, count >= KEYS);
{% else %}
    let end = piece.length - 1u;
    let start = min(first, end);
    var at = (piece.offset + first) % piece.row_length;  // in the row, in the order of the scan
    var before = other_at(piece.other + select(start, end - start, piece.reverse == 1u));
    for (var i = 0u; i < KEYS; i++) {
        let index = min(first + i, end);
        let key = key_at(piece.first + select(index, end - index, piece.reverse == 1u));
        share |= select(0u, 1u << i, (at == 0u || differ(key, before)) && first + i < piece.length);
        before = key;
        at = select(at + 1u, 0u, at + 1u == piece.row_length);
    }
{% endif %}
{% if keys == 32 %}
    if (first < piece.length) {
        heads[first / 32u] = share;
    }
}
{% else %}
    shares[invocation] = share << (invocation % SHARES * KEYS);
    workgroupBarrier();
    let word = group * (WORKGROUP_SIZE / SHARES) + invocation;
    if (invocation < WORKGROUP_SIZE / SHARES && word < piece.words) {
        var bits = 0u;
        for (var i = 0u; i < SHARES; i++) {
            bits |= shares[invocation * SHARES + i];
        }
        heads[word] = bits;
    }
}
{% endif %}
