{#- Sort short rows, as many in a workgroup as fit, by exchanges in workgroup memory: a bitonic sort (Batcher, "Sorting
    networks and their applications", 1968), whose comparisons all put the smaller element first, so that what is behind
    the end of a row stays there. An invocation takes ITEMS elements into registers at a time, at places that differ in
    a few neighbouring bits, and makes all exchanges that these bits allow. Elements are compared by their place, too,
    where equal keys may differ, so that the sort is stable.
    in:  input: the keys, UNITS in a word; words: a word for each key, if payload is "words", or two words, if it is "pairs"
    out: keys: sorted; with `edges`, zeros before; places: the index of each key in its row, or its word
    Values: scalar; descending; log_capacity, log_items: the places in a workgroup's memory, and ITEMS, as powers of 2; unit: bytes
        of a key in the arrays, 4 also if there are two words; edges: True if workgroups share words of the result;
        columns: True if a row's elements are not neighbours; with_keys: True to store the keys; payload: "none",
        "index", "words" or "pairs". -#}
{% set items = 2 ** log_items %}
{% set words = 2 if scalar.bits == 64 else 1 %}
{% set exact = scalar.kind in ("signed", "unsigned") %}
{% set narrow = scalar.bits < 32 %}
{% set parts = 1 if narrow else words + (0 if exact and payload == "none" else 1) %}
{% set log_workgroup = log_capacity - log_items %}
struct Call {
    row_length: u32,
    inner: u32,  // from one element of a row to the next
    rows: u32,  // in all
    levels: u32,  // a row has 2^levels places in workgroup memory
}

const WORKGROUP_SIZE = {{ 2 ** log_workgroup }}u;
const CAPACITY = {{ 2 ** log_capacity }}u;
const LOG_ITEMS = {{ log_items }}u;
const NOTHING = 0xffffffffu;  // in every part: comes after every element

{% include "sort/given_keys.wgsl" %}

alias Payload = {{ "vec2<u32>" if payload == "pairs" else "u32" }};

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> input: array<Given>;
{% if with_keys %}
@group(0) @binding(2) var<storage, read_write> keys: array<{{ "atomic<u32>" if edges else "Given" }}>;
{% endif %}
{% if payload != "none" %}
@group(0) @binding({{ 3 if with_keys else 2 }}) var<storage, read_write> places: array<Payload>;
{% endif %}
{% if payload in ("words", "pairs") %}
@group(0) @binding({{ 4 if with_keys else 3 }}) var<storage, read> words: array<Payload>;
{% endif %}

// The words that elements are compared by, the highest first: the order of the key, and the place in the row.
{% for part in range(parts) %}
var<workgroup> part{{ part }}: array<u32, CAPACITY>;
{% endfor %}

// Return where the element of a place is kept, so that the places that a subgroup takes at a time are in different banks
// of workgroup memory. swizzle(a ^ b) is swizzle(a) ^ swizzle(b).
fn swizzle(place: u32) -> u32 {
    return place ^ (extractBits(place, 5u, 1u) * 5u) ^ (extractBits(place, 6u, 1u) * 26u)
        ^ (extractBits(place, 7u, 1u) * 12u) ^ (extractBits(place, 8u, 1u) * 24u);
}

// Return the first element of a row.
fn start_of(row: u32) -> u32 {
{% if columns %}
    return row / call.inner * (call.inner * call.row_length) + row % call.inner;
{% else %}
    return row * call.row_length;
{% endif %}
}

// Return the element of a row, counted in all rows.
fn element_of(start: u32, at: u32) -> u32 {
    return start + at{{ " * call.inner" if columns }};
}

// Return the key of an element at a place in workgroup memory.
fn sorted_key(place: u32, start: u32) -> Key {
    let order = {{ "part0[place] >> 16u" if narrow else "Key(part1[place], part0[place])" if words == 2 else "part0[place]" }};
{% if exact %}
    return order_of(order);  // turns an order back into the key
{% elif scalar.kind == "bool" %}
    return key_at(element_of(start, origin_at(place)));
{% else %}
    // 0.0 and -0.0 have the same order, and so have all NaNs.
    if (all(order == order_of(Key())) | all(order == {{ "Key(MASK, MASK)" if words == 2 else "MASK" }})) {
        return key_at(element_of(start, origin_at(place)));
    }
    let number = {{ "~order" if descending else "order" }}{{ " & MASK" if words == 1 }};
{% if words == 2 %}
    return select(~number, number ^ Key(0u, SIGN), number.y >= SIGN);
{% else %}
    return select(~number & MASK, number ^ SIGN, number >= SIGN);
{% endif %}
{% endif %}
}
{% if parts > words or narrow %}

// Return the index in its row of an element at a place in workgroup memory.
fn origin_at(place: u32) -> u32 {
    return {{ "part0[place] & 0xffffu" if narrow else "part%d[place]" % (parts - 1) }};
}
{% endif %}
{% macro exchange(i, j) %}
{% if parts == 1 %}
        {
            let first = min(item{{ i }}_0, item{{ j }}_0);
            item{{ j }}_0 = max(item{{ i }}_0, item{{ j }}_0);
            item{{ i }}_0 = first;
        }
{% else %}
        {
            let swaps = {{ comes_before(j, i) }};
{% for part in range(parts) %}
            let first{{ part }} = select(item{{ i }}_{{ part }}, item{{ j }}_{{ part }}, swaps);
            item{{ j }}_{{ part }} = select(item{{ j }}_{{ part }}, item{{ i }}_{{ part }}, swaps);
            item{{ i }}_{{ part }} = first{{ part }};
{% endfor %}
        }
{% endif %}
{% endmacro %}
{% macro comes_before(i, j) %}
{% if parts == 3 -%}
(item{{ i }}_0 < item{{ j }}_0) | ((item{{ i }}_0 == item{{ j }}_0) & ((item{{ i }}_1 < item{{ j }}_1) | ((item{{ i }}_1 == item{{ j }}_1) & (item{{ i }}_2 < item{{ j }}_2))))
{%- else -%}
(item{{ i }}_0 < item{{ j }}_0) | ((item{{ i }}_0 == item{{ j }}_0) & (item{{ i }}_1 < item{{ j }}_1))
{%- endif %}
{% endmacro %}
{% macro exchange_halves(span, mirrors) %}
{#- Exchange the items of each `span` neighbours with those of its other half. #}
{% for begin in range(0, items, span) %}
{% for i in range(span // 2) %}
{{ exchange(begin + i, begin + (span - 1 - i if mirrors else span // 2 + i)) -}}
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro take_items() %}
{% for bit in range(log_items) %}
{% for i in range(2 ** bit, 2 ** (bit + 1)) %}
        let place{{ i }} = place{{ i - 2 ** bit }} ^ step{{ bit }};
{% endfor %}
{% endfor %}
{% for part in range(parts) %}
{% for i in range(items) %}
        var item{{ i }}_{{ part }} = part{{ part }}[place{{ i }}];
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro put_items() %}
{% for part in range(parts) %}
{% for i in range(items) %}
        part{{ part }}[place{{ i }}] = item{{ i }}_{{ part }};
{% endfor %}
{% endfor %}
{% endmacro %}
{% macro for_each_element() %}
{#- The row in the workgroup and the index in the row of each element that an invocation loads or stores. #}
{% for i in range(items) %}
    let number{{ i }} = invocation + {{ i }}u * WORKGROUP_SIZE;
{% if columns %}
    let row{{ i }} = number{{ i }} & (rows - 1u);
    let at{{ i }} = number{{ i }} >> log_rows;
{% else %}
    let row{{ i }} = number{{ i }} >> call.levels;
    let at{{ i }} = number{{ i }} & (pitch - 1u);
{% endif %}
    let is_there{{ i }} = (first_row + row{{ i }} < call.rows) & (at{{ i }} < call.row_length);
    let start{{ i }} = start_of(first_row + row{{ i }});
{% endfor %}
{% endmacro %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let pitch = 1u << call.levels;
    let log_rows = {{ log_capacity }}u - call.levels;
    let rows = 1u << log_rows;
    let first_row = (workgroup.x + workgroup.y * grid.x) * rows;
    if (first_row >= call.rows) {
        return;
    }
{{ for_each_element() -}}
{% for i in range(items) %}
    let key{{ i }} = key_at(select(0u, element_of(start{{ i }}, at{{ i }}), is_there{{ i }}));
{% endfor %}
{% for i in range(items) %}
    let slot{{ i }} = swizzle((row{{ i }} << call.levels) | at{{ i }});
    let order{{ i }} = order_of(key{{ i }});
{% if narrow %}
    part0[slot{{ i }}] = select(NOTHING, (order{{ i }} << 16u) | at{{ i }}, is_there{{ i }});
{% else %}
    part0[slot{{ i }}] = select(NOTHING, order{{ i }}{{ ".y" if words == 2 }}, is_there{{ i }});
{% if words == 2 %}
    part1[slot{{ i }}] = select(NOTHING, order{{ i }}.x, is_there{{ i }});
{% endif %}
{% if parts > words %}
    part{{ parts - 1 }}[slot{{ i }}] = select(NOTHING, at{{ i }}, is_there{{ i }});
{% endif %}
{% endif %}
{% endfor %}
    workgroupBarrier();
    // Sort ITEMS neighbours in registers (Batcher's odd-even merge sort).
    if (((invocation << LOG_ITEMS) & (pitch - 1u)) < call.row_length) {
        let place0 = swizzle(invocation << LOG_ITEMS);
{% for bit in range(log_items) %}
        let step{{ bit }} = swizzle({{ 2 ** bit }}u);
{% endfor %}
{{ take_items() -}}
{% for log_p in range(log_items) %}
{% set p = 2 ** log_p %}
{% for log_k in range(log_p, -1, -1) %}
{% set k = 2 ** log_k %}
{% for j in range(k % p, items - k, 2 * k) %}
{% for i in range([k, items - j - k] | min) %}
{% if (i + j) // (2 * p) == (i + j + k) // (2 * p) %}
{{ exchange(i + j, i + j + k) -}}
{% endif %}
{% endfor %}
{% endfor %}
{% endfor %}
{% endfor %}
{{ put_items() -}}
    }
    // Merge sorted halves of 2^level elements.
    for (var level = LOG_ITEMS + 1u; level <= call.levels; level++) {
        var bits = level;  // the places of the elements to exchange still differ in these lowest bits
        while (bits > 0u) {
            workgroupBarrier();
            let bit = min((bits - 1u) / LOG_ITEMS * LOG_ITEMS, {{ log_workgroup }}u);
            let top = bits - 1u - bit;
            // At first, the smallest element is compared with the greatest one of the other half, and so on.
            let mirrors = bits == level;
            let mask = (1u << bit) - 1u;
            let place = ((invocation >> bit) << (bit + LOG_ITEMS)) | (invocation & mask);
            let mirrored = select(0u, swizzle(mask), mirrors);
            if ((place & (pitch - 1u)) < call.row_length) {
                let place0 = swizzle(place);
{% for bit in range(log_items) %}
                let step{{ bit }} = swizzle({{ 2 ** bit }}u << bit) ^ select(0u, mirrored, top == {{ bit }}u);
{% endfor %}
{{ take_items() -}}
{% for bit in range(log_items - 1, -1, -1) %}
{% if bit %}
                if (mirrors & (top == {{ bit }}u)) {
{{ exchange_halves(2 ** (bit + 1), True) -}}
                } else if (top >= {{ bit }}u) {
{{ exchange_halves(2 ** (bit + 1), False) -}}
                }
{% else %}
{{ exchange_halves(2, False) -}}
{% endif %}
{% endfor %}
{{ put_items() -}}
            }
            bits = bit;
        }
    }
    workgroupBarrier();
{% if payload != "none" or (with_keys and unit == 4) %}
{% for i in range(items) %}
    if (is_there{{ i }}) {
        let to = element_of(start{{ i }}, at{{ i }});
{% if with_keys and unit == 4 %}
        keys[to] = sorted_key(slot{{ i }}, start{{ i }});
{% endif %}
{% if payload == "index" %}
        places[to] = origin_at(slot{{ i }});
{% elif payload != "none" %}
        places[to] = words[element_of(start{{ i }}, origin_at(slot{{ i }}))];
{% endif %}
    }
{% endfor %}
{% endif %}
{% if with_keys and unit < 4 %}
    // Assemble words from keys that are neighbours in the result.
    let begin = start_of(first_row);
    let end = start_of(min(first_row + rows, call.rows));
    for (var word = begin / UNITS + invocation; word * UNITS < end; word += WORKGROUP_SIZE) {
        let head = max(word * UNITS, begin);
        var row = (head - begin) / call.row_length;
        var at = (head - begin) % call.row_length;
        var bits = 0u;
        for (var to = head; to < min((word + 1u) * UNITS, end); to++) {
            let key = sorted_key(swizzle((row << call.levels) | at), start_of(first_row + row));
            bits |= key << (to % UNITS * {{ 8 * unit }}u);
            at++;
            if (at == call.row_length) {
                at = 0u;
                row++;
            }
        }
{% if edges %}
        if ((word * UNITS < begin) | ((word + 1u) * UNITS > end)) {
            atomicOr(&keys[word], bits);
        } else {
            atomicStore(&keys[word], bits);
        }
{% else %}
        keys[word] = bits;
{% endif %}
    }
{% endif %}
}
