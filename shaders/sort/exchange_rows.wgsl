{#- Sort short rows, as many in a workgroup as fit, by exchanges in workgroup memory: a bitonic sort (Batcher, "Sorting
    networks and their applications", 1968). All comparisons put the smaller element first, so that what is behind the
    end of a row stays there. An invocation has ITEMS elements in registers, at positions that differ in a few
    neighbouring bits, and makes all exchanges that these bits allow. Then elements move to other invocations, through
    workgroup memory. With a payload, or in 8 and 16 bits, elements are compared by their position in the row, too, so
    that the sort is stable.
    in:  input: the keys, UNITS in a word; words: a word for each key, if payload is "words", or two, if it is "pairs"
    out: keys: sorted; with `edges`, zeros before; payloads: the index of each key in its row, or its word
    Values: the values of sort/given_keys.wgsl; log_capacity, log_items: the elements of a workgroup, and ITEMS, as
        powers of 2; levels, exchanges: the positions of a row, as a power of 2, and the exchanges that merge halves, as
        planning/sort_plan.py has them, or 0 and none to find these in a loop; edges: True if workgroups share words of
        the result; columns: True if a row's elements are not neighbours; with_keys: True to store the keys; payload:
        "none", "index", "words" or "pairs". -#}
{% set items = 2 ** log_items %}
{% set words = 2 if scalar.bits == 64 else 1 %}
{% set exact = scalar.kind in ("signed", "unsigned") %}
{% set narrow = scalar.bits < 32 %}
{% set restores = scalar.kind == "float" and not narrow and payload == "none" %}
{% set parts = 1 if narrow else words + (payload != "none") | int %}
{% set log_workgroup = log_capacity - log_items %}
{% set row_levels = "%du" % levels if levels else "call.levels" %}
struct Call {
    row_length: u32,
    inner: u32,  // from one element of a row to the next
    rows: u32,  // in all
    levels: u32,  // a row has 2^levels slots in workgroup memory
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
@group(0) @binding({{ 3 if with_keys else 2 }}) var<storage, read_write> payloads: array<Payload>;
{% endif %}
{% if payload in ("words", "pairs") %}
@group(0) @binding({{ 4 if with_keys else 3 }}) var<storage, read> words: array<Payload>;
{% endif %}

// One of the words of each element, while elements move from one invocation to another.
var<workgroup> scratch: array<u32, CAPACITY>;

// Return where the element of a position is kept, so that the positions that a subgroup takes at a time are in
// different banks of workgroup memory. swizzle(a ^ b) is swizzle(a) ^ swizzle(b).
fn swizzle(position: u32) -> u32 {
    return position ^ ((position >> LOG_ITEMS) & 31u);
}

// Return the position of an element of the workgroup from its number in the order of loads and stores.
fn position_of(number: u32, log_rows: u32) -> u32 {
{% if columns %}
    return ((number & ((1u << log_rows) - 1u)) << {{ row_levels }}) | (number >> log_rows);
{% else %}
    return number;
{% endif %}
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
{% if not exact %}

// The order of 0.0 and -0.0.
const ZERO = {{ "Key(0u, SIGN)" if words == 2 else "SIGN" }}{{ " ^ Key(MASK, MASK)" if descending and words == 2 else " ^ MASK" if descending }};
const NAN = {{ "Key(MASK, MASK)" if words == 2 else "MASK" }};  // the order of every NaN
{% endif %}

// Return the key of an order. Of floats, it is one of several where the order is ZERO or NAN.
fn key_of(order: Key) -> Key {
{% if scalar.kind == "float" %}
    let number = {{ "~order" if descending else "order" }}{{ " & MASK" if words == 1 }};
{% if words == 2 %}
    return select(~number, number ^ Key(0u, SIGN), number.y >= SIGN);
{% else %}
    return select(~number & MASK, number ^ SIGN, number >= SIGN);
{% endif %}
{% else %}
    return order_of(order);
{% endif %}
}
{% if not restores %}

// Return the key of an order and of the position in its row where the key was.
fn sorted_key(order: Key, start: u32, origin: u32) -> Key {
{% if scalar.kind == "bool" %}
    return key_at(element_of(start, origin));  // any byte but 0 is true
{% else %}
{% if scalar.kind == "float" %}
    if (all(order == ZERO) | all(order == NAN)) {
        return key_at(element_of(start, origin));
    }
{% endif %}
    return key_of(order);
{% endif %}
}
{% endif %}
{% if restores %}

var<workgroup> differs: atomic<u32>;  // 1 if an order does not give some key back
var<workgroup> shared_differs: u32;
{% endif %}
{% macro origin(i) -%}
{{ "item%d_0 & 0xffffu" % i if narrow else "item%d_%d" % (i, parts - 1) if parts > words else "0u" }}
{%- endmacro %}
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
{% macro move_items() %}
{#- Move the items from the positions of `position` and `step` to those of `next_position` and `next_step`, a word at a
    time. #}
        {
            let from0 = position;
            let to0 = next_position;
{% for bit in range(log_items) %}
{% for i in range(2 ** bit, 2 ** (bit + 1)) %}
            let from{{ i }} = from{{ i - 2 ** bit }} ^ step{{ bit }};
            let to{{ i }} = to{{ i - 2 ** bit }} ^ next_step{{ bit }};
{% endfor %}
{% endfor %}
{% for part in range(parts) %}
{% if part %}
            workgroupBarrier();
{% endif %}
{% for i in range(items) %}
            scratch[from{{ i }}] = item{{ i }}_{{ part }};
{% endfor %}
            workgroupBarrier();
{% for i in range(items) %}
            item{{ i }}_{{ part }} = scratch[to{{ i }}];
{% endfor %}
{% endfor %}
        }
        position = next_position;
{% for bit in range(log_items) %}
        step{{ bit }} = next_step{{ bit }};
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
    let row{{ i }} = number{{ i }} >> {{ row_levels }};
    let at{{ i }} = number{{ i }} & (pitch - 1u);
{% endif %}
    let is_there{{ i }} = (first_row + row{{ i }} < call.rows) & (at{{ i }} < call.row_length);
    let start{{ i }} = start_of(first_row + row{{ i }});
{% endfor %}
{% endmacro %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let pitch = 1u << {{ row_levels }};
    let log_rows = {{ log_capacity }}u - {{ row_levels }};
    let rows = 1u << log_rows;
    let first_row = (workgroup.x + workgroup.y * grid.x) * rows;
    if (first_row >= call.rows) {
        return;
    }
{{ for_each_element() -}}
{% if restores %}
    if (invocation == 0u) {
        atomicStore(&differs, 0u);
    }
    workgroupBarrier();
    // If keys of the same order differ, a second round sorts by their old positions: first the keys before zeros, then
    // the zeros, then the keys between zeros and NaNs, and then the NaNs.
    for (var round = 0u; round < 2u; round++) {
    var differs_here = false;
{% endif %}
{% for i in range(items) %}
    let key{{ i }} = key_at(select(0u, element_of(start{{ i }}, at{{ i }}), is_there{{ i }}));
{% endfor %}
    // Elements are at the positions `position`, and where bits of their number say so, at the positions of `step` from
    // it.
    var position = swizzle(position_of(invocation, log_rows));
{% for bit in range(log_items) %}
    var step{{ bit }} = swizzle(position_of({{ 2 ** bit }}u * WORKGROUP_SIZE, log_rows));
{% endfor %}
    let first_position = position;
{% for bit in range(log_items) %}
    let first_step{{ bit }} = step{{ bit }};
{% endfor %}
{% for i in range(items) %}
    var order{{ i }} = order_of(key{{ i }});
{% if restores %}
    if (round == 0u) {
        differs_here = differs_here | (is_there{{ i }} & any(key_of(order{{ i }}) != key{{ i }}));
    } else {
        let rank_class = select(select(select(2u, 0u, precedes(order{{ i }}, ZERO)), 1u, all(order{{ i }} == ZERO)), 3u, all(order{{ i }} == NAN));
        order{{ i }} = {{ "Key(0u, (rank_class << 16u) | at%d)" % i if words == 2 else "(rank_class << 16u) | at%d" % i }};
    }
{% endif %}
{% if narrow %}
    var item{{ i }}_0 = select(NOTHING, (order{{ i }} << 16u) | at{{ i }}, is_there{{ i }});
{% else %}
    var item{{ i }}_0 = select(NOTHING, order{{ i }}{{ ".y" if words == 2 }}, is_there{{ i }});
{% if words == 2 %}
    var item{{ i }}_1 = select(NOTHING, order{{ i }}.x, is_there{{ i }});
{% endif %}
{% if parts > words %}
    var item{{ i }}_{{ parts - 1 }} = select(NOTHING, at{{ i }}, is_there{{ i }});
{% endif %}
{% endif %}
{% endfor %}
    // Sort ITEMS neighbours in registers (Batcher's odd-even merge sort).
    {
        let next_position = swizzle(invocation << LOG_ITEMS);
{% for bit in range(log_items) %}
        let next_step{{ bit }} = swizzle({{ 2 ** bit }}u);
{% endfor %}
{{ move_items().rstrip() }}
    }
    if (((invocation << LOG_ITEMS) & (pitch - 1u)) < call.row_length) {
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
    }
    // Merge sorted halves of 2^level elements.
{% for bit, top, mirrors in exchanges %}
    {
        let lowest = ((invocation >> {{ bit }}u) << {{ bit + log_items }}u) | (invocation & {{ 2 ** bit - 1 }}u);
        let next_position = swizzle(lowest);
{% for item_bit in range(log_items) %}
        let next_step{{ item_bit }} = swizzle({{ 2 ** (bit + item_bit) }}u){{ " ^ swizzle(%du)" % (2 ** bit - 1) if mirrors and item_bit == top }};
{% endfor %}
{{ move_items().rstrip() }}
        if ((lowest & (pitch - 1u)) < call.row_length) {
{% for item_bit in range(top, -1, -1) %}
{{ exchange_halves(2 ** (item_bit + 1), mirrors and item_bit == top) -}}
{% endfor %}
        }
    }
{% endfor %}
{% if not levels %}
    for (var level = LOG_ITEMS + 1u; level <= call.levels; level++) {
        var bits = level;  // the positions of the elements to exchange still differ in these lowest bits
        while (bits > 0u) {
            let bit = min((bits - 1u) / LOG_ITEMS * LOG_ITEMS, {{ log_workgroup }}u);
            let top = bits - 1u - bit;
            // At first, the smallest element is compared with the greatest one of the other half, and so on.
            let mirrors = bits == level;
            let mask = (1u << bit) - 1u;
            let lowest = ((invocation >> bit) << (bit + LOG_ITEMS)) | (invocation & mask);
            let mirrored = select(0u, swizzle(mask), mirrors);
            let next_position = swizzle(lowest);
{% for bit in range(log_items) %}
            let next_step{{ bit }} = swizzle({{ 2 ** bit }}u << bit) ^ select(0u, mirrored, top == {{ bit }}u);
{% endfor %}
{{ move_items().rstrip() }}
            if ((lowest & (pitch - 1u)) < call.row_length) {
{% for bit in range(log_items - 1, -1, -1) %}
{% if bit %}
                if (mirrors & (top == {{ bit }}u)) {
{{ exchange_halves(2 ** (bit + 1), True).rstrip() }}
                } else if (top >= {{ bit }}u) {
{{ exchange_halves(2 ** (bit + 1), False).rstrip() }}
                }
{% else %}
{{ exchange_halves(2, False) -}}
{% endif %}
{% endfor %}
            }
            bits = bit;
        }
    }
{% endif %}
    {
        let next_position = first_position;
{% for bit in range(log_items) %}
        let next_step{{ bit }} = first_step{{ bit }};
{% endfor %}
{{ move_items().rstrip() }}
    }
{% if payload != "none" or (with_keys and unit == 4) %}
{% for i in range(items) %}
    if (is_there{{ i }}) {
        let to = element_of(start{{ i }}, at{{ i }});
{% if restores %}
        if (round == 0u) {
            keys[to] = key_of({{ "Key(item%d_1, item%d_0)" % (i, i) if words == 2 else "item%d_0" % i }});
        } else if ((item{{ i }}_0 & 0x10000u) != 0u) {
            keys[to] = key_at(element_of(start{{ i }}, item{{ i }}_0 & 0xffffu));
        }
{% elif with_keys and unit == 4 %}
        keys[to] = sorted_key({{ "Key(item%d_1, item%d_0)" % (i, i) if words == 2 else "item%d_0 >> 16u" % i if narrow else "item%d_0" % i }}, start{{ i }}, {{ origin(i) }});
{% endif %}
{% if payload == "index" %}
        payloads[to] = {{ origin(i) }};
{% elif payload != "none" %}
        payloads[to] = words[element_of(start{{ i }}, {{ origin(i) }})];
{% endif %}
    }
{% endfor %}
{% endif %}
{% if restores %}
    if (differs_here) {
        atomicStore(&differs, 1u);
    }
    workgroupBarrier();
    if (invocation == 0u) {
        shared_differs = atomicLoad(&differs);
    }
    if (workgroupUniformLoad(&shared_differs) == 0u) {
        break;
    }
    }
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
            let item = scratch[swizzle((row << {{ row_levels }}) | at)];
            let key = sorted_key(item >> 16u, start_of(first_row + row), item & 0xffffu);
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
