{#- Sort short rows, as many in a workgroup as fit, by merges in workgroup memory. Each invocation sorts runs of RUN
    elements in registers, by exchanges of neighbours. Then sorted runs of RUN, 2 RUN, 4 RUN, … elements are merged in
    pairs: each invocation searches for the place in both runs where its RUN results begin, and merges these one by one
    (Green, McColl & Bader, "GPU Merge Path", 2012). Equal elements of the left run come first, so the sort is stable.
    in:  input: the keys; words: a word for each key, if payload is "words", or two words, if it is "pairs"
    out: keys: sorted; places: the index of each key in its row, or its word
    Values: scalar; descending; workgroup_size; capacity: keys in a workgroup; with_keys: True to store the keys; payload:
        "none", "index", "words" or "pairs". -#}
{% set run = 8 %}
struct Call {
    length: u32,  // of all rows together
    row_length: u32,
    rows: u32,  // that a workgroup sorts
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const CAPACITY = {{ capacity }}u;
const RUN = {{ run }}u;  // results that an invocation merges at a time

{% include "sort/keys.wgsl" %}

alias Payload = {{ "vec2<u32>" if payload == "pairs" else "u32" }};

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> input: array<Key>;
{% if with_keys %}
@group(0) @binding(2) var<storage, read_write> keys: array<Key>;
{% endif %}
{% if payload != "none" %}
@group(0) @binding({{ 3 if with_keys else 2 }}) var<storage, read_write> places: array<Payload>;
{% endif %}
{% if payload in ("words", "pairs") %}
@group(0) @binding({{ 4 if with_keys else 3 }}) var<storage, read> words: array<Payload>;
{% endif %}

// Two halves: each round merges from one half to the other.
var<workgroup> orders: array<Key, {{ 2 * capacity }}>;
var<workgroup> origins: array<u32, {{ 2 * capacity }}>;  // where each key was in the workgroup's part of the input

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let begin = (workgroup.x + workgroup.y * grid.x) * call.rows * call.row_length;
    if (begin >= call.length) {
        return;
    }
    let count = min(call.length - begin, call.rows * call.row_length);
    for (var i = invocation; i < count; i += WORKGROUP_SIZE) {
        orders[i] = order_of(input[begin + i]);
    }
    workgroupBarrier();
    let runs_of_row = (call.row_length + RUN - 1u) / RUN;
    let runs = count / call.row_length * runs_of_row;
    for (var task = invocation; task < runs; task += WORKGROUP_SIZE) {
        let place = task % runs_of_row * RUN;
        let first = task / runs_of_row * call.row_length + place;
        let there = min(RUN, call.row_length - place);
{% for i in range(run) %}
        var order{{ i }} = orders[min(first + {{ i }}u, count - 1u)];
        var origin{{ i }} = first + {{ i }}u;
{% endfor %}
{% for round in range(run) %}
{% for i in range(round % 2, run - 1, 2) %}
        let swaps{{ round }}_{{ i }} = ({{ i + 1 }}u < there) & precedes(order{{ i + 1 }}, order{{ i }});
        let order{{ round }}_{{ i }} = order{{ i }};
        let origin{{ round }}_{{ i }} = origin{{ i }};
        order{{ i }} = select(order{{ i }}, order{{ i + 1 }}, swaps{{ round }}_{{ i }});
        origin{{ i }} = select(origin{{ i }}, origin{{ i + 1 }}, swaps{{ round }}_{{ i }});
        order{{ i + 1 }} = select(order{{ i + 1 }}, order{{ round }}_{{ i }}, swaps{{ round }}_{{ i }});
        origin{{ i + 1 }} = select(origin{{ i + 1 }}, origin{{ round }}_{{ i }}, swaps{{ round }}_{{ i }});
{% endfor %}
{% endfor %}
{% for i in range(run) %}
        if ({{ i }}u < there) {
            orders[CAPACITY + first + {{ i }}u] = order{{ i }};
            origins[CAPACITY + first + {{ i }}u] = origin{{ i }};
        }
{% endfor %}
    }
    var half = CAPACITY;
    for (var width = RUN; width < call.row_length; width *= 2u) {
        workgroupBarrier();
        for (var task = invocation; task < runs; task += WORKGROUP_SIZE) {
            let place = task % runs_of_row * RUN;
            let row = half + task / runs_of_row * call.row_length;
            let pair = place - place % (2u * width);
            let middle = min(pair + width, call.row_length);
            let end = min(pair + 2u * width, call.row_length);
            // Of the results before `place`, `low` come from the left run.
            let before = place - pair;
            var low = max(before, end - middle) - (end - middle);
            var high = min(before, middle - pair);
            while (low < high) {
                let at = (low + high) / 2u;
                if (precedes(orders[row + middle + before - 1u - at], orders[row + pair + at])) {
                    high = at;
                } else {
                    low = at + 1u;
                }
            }
            var left = row + pair + low;
            var right = row + middle + before - low;
            let left_end = row + middle;
            let right_end = row + end;
            var order_left = orders[min(left, left_end - 1u)];
            var order_right = orders[min(right, right_end - 1u)];
            let goal = CAPACITY - half + (row - half) + place;
            let there = min(RUN, end - place);
{% for i in range(run) %}
            if ({{ i }}u < there) {
                let takes_left = (right >= right_end) | ((left < left_end) & !precedes(order_right, order_left));
                orders[goal + {{ i }}u] = select(order_right, order_left, takes_left);
                origins[goal + {{ i }}u] = origins[select(right, left, takes_left)];
                left += select(0u, 1u, takes_left);
                right += select(1u, 0u, takes_left);
                let next = orders[select(min(right, right_end - 1u), min(left, left_end - 1u), takes_left)];
                order_left = select(order_left, next, takes_left);
                order_right = select(next, order_right, takes_left);
            }
{% endfor %}
        }
        half = CAPACITY - half;
    }
    workgroupBarrier();
    for (var i = invocation; i < count; i += WORKGROUP_SIZE) {
        let origin = origins[half + i];
{% if with_keys %}
        keys[begin + i] = input[begin + origin];
{% endif %}
{% if payload == "index" %}
        places[begin + i] = origin % call.row_length;
{% elif payload != "none" %}
        places[begin + i] = words[begin + origin];
{% endif %}
    }
}
