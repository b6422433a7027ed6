{#- Sort short rows, as many in a workgroup as fit, by merges in workgroup memory. Sorted runs of 1, 2, 4, … elements are
    merged in pairs: each element searches the other run of its pair for the number of elements that come before it
    (the ranks of Cole, "Parallel merge sort", 1988). Equal elements of the left run come first, so the sort is stable.
    in:  input: the keys; words: a word for each key, if payload is "words"
    out: keys: sorted; places: the index of each key in its row, or its word
    Values: scalar; descending; workgroup_size; capacity: keys in a workgroup; with_keys: True to store the keys; payload:
        "none", "index" or "words". -#}
struct Call {
    length: u32,  // of all rows together
    row_length: u32,
    rows: u32,  // that a workgroup sorts
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const CAPACITY = {{ capacity }}u;

{% include "sort/keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> input: array<Key>;
{% if with_keys %}
@group(0) @binding(2) var<storage, read_write> keys: array<Key>;
{% endif %}
{% if payload != "none" %}
@group(0) @binding({{ 3 if with_keys else 2 }}) var<storage, read_write> places: array<u32>;
{% endif %}
{% if payload == "words" %}
@group(0) @binding({{ 4 if with_keys else 3 }}) var<storage, read> words: array<u32>;
{% endif %}

// Two halves: each round merges from one half to the other.
var<workgroup> orders: array<Key, {{ 2 * capacity }}>;
var<workgroup> origins: array<u32, {{ 2 * capacity }}>;  // where each key was in the workgroup's part of the input

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    let begin = (workgroup.x + workgroup.y * grid.x) * call.rows * call.row_length;
    if (begin >= call.length) {
        return;
    }
    let count = min(call.length - begin, call.rows * call.row_length);
    for (var i = invocation; i < count; i += WORKGROUP_SIZE) {
        orders[i] = order_of(input[begin + i]);
        origins[i] = i;
    }
    var half = 0u;
    for (var width = 1u; width < call.row_length; width *= 2u) {
        workgroupBarrier();
        for (var i = invocation; i < count; i += WORKGROUP_SIZE) {
            let place = i % call.row_length;
            let row = half + i - place;
            let pair = place - place % (2u * width);
            let in_left = place - pair < width;
            let middle = min(pair + width, call.row_length);
            let order = orders[half + i];
            // Elements of the other run before `low` come before this one, those from `high` on do not.
            let first = select(pair, middle, in_left);
            var low = first;
            var high = select(middle, min(pair + 2u * width, call.row_length), in_left);
            while (low < high) {
                let at = (low + high) / 2u;
                let other = orders[row + at];
                // Of equal elements, those of the left run come first.
                if (select(!precedes(order, other), precedes(other, order), in_left)) {
                    low = at + 1u;
                } else {
                    high = at;
                }
            }
            let merged = i - place + select(place - width, place, in_left) + (low - first);
            orders[CAPACITY - half + merged] = order;
            origins[CAPACITY - half + merged] = origins[half + i];
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
{% elif payload == "words" %}
        places[begin + i] = words[begin + origin];
{% endif %}
    }
}
