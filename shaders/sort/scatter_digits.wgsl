{#- Move each element of a tile to the position that its digit gives: the last of the three dispatches of a step of a
    radix sort, or its single pass, in which the tile learns by look-back where its elements belong
    (sort/look_back.wgsl). Elements with equal digits keep their order. With subgroups, lanes with equal digits find
    each other by ballots (Ashkiani et al., "GPU Multisplit", 2016). The tile is then put in order in workgroup memory,
    so that neighbouring lanes store to neighbouring positions.
    in:  input, keys, temporary: the keys in one of them; words: a word for each key, if payload is "words", or two
             words, if it is "pairs"; a word too, if it is "both"
         in three dispatches: steps; offsets: where the first element of each tile with each digit belongs, in rows of
         (digit values, tiles of a row)
         in a single pass: plan: the steps, and where the elements with each digit begin; state: the tile state
    out: keys or temporary; with a payload, the keys' indices or words in payloads or temporary_payloads; of "both", the
         indices and moved_words, or pairs of them in temporary_payloads
    Values: the values of sort/tile_counters.wgsl; enable_subgroups; items: with subgroups, the most elements of an
        invocation; kernel: how tiles learn where their elements belong in a single pass, or None; with_keys: True to
        store the keys in the last step; payload: "none", "index", "words", "pairs" or "both"; keeps_destinations: with
        subgroups, and in three dispatches: True to store the position of each key. -#}
{% if enable_subgroups %}
enable subgroups;
diagnostic(off, subgroup_uniformity);
{% endif %}
{% set scheduler = kernel.test_build.scheduler if kernel else "" %}
{% include "sort/tile_counters.wgsl" %}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> {{ "plan: Plan" if kernel else "steps: array<Step, DIGITS>" }};
@group(0) @binding(2) var<storage, read> input: array<Given>;
@group(0) @binding(3) var<storage, read_write> keys: array<Key>;
@group(0) @binding(4) var<storage, read_write> temporary: array<Key>;
{% if not kernel %}
@group(0) @binding(5) var<storage, read> offsets: array<u32>;
{% endif %}
alias Payload = {{ "vec2<u32>" if payload in ("pairs", "both") else "u32" }};
{% if payload != "none" %}
@group(0) @binding(6) var<storage, read_write> payloads: array<{{ "u32" if payload == "both" else "Payload" }}>;
@group(0) @binding(7) var<storage, read_write> temporary_payloads: array<Payload>;
{% endif %}
{% if payload in ("words", "pairs", "both") %}
@group(0) @binding(8) var<storage, read> words: array<{{ "u32" if payload == "both" else "Payload" }}>;
{% endif %}
{% if payload == "both" %}
@group(0) @binding(9) var<storage, read_write> moved_words: array<u32>;
{% endif %}

{% if keeps_destinations %}
@group(0) @binding(9) var<storage, read_write> destinations: array<u32>;  // the new position of each key of the input
{% endif %}

{% if payload != "none" %}
// Return what moves along with the key at a position of the input, and at a position of the result.
fn given_payload(at: u32, row_begin: u32) -> Payload {
    return {{ {"index": "at - row_begin", "both": "Payload(at - row_begin, words[at])"}.get(payload, "words[at]") }};
}

fn kept_payload(at: u32) -> Payload {
    return {{ "Payload(payloads[at], moved_words[at])" if payload == "both" else "payloads[at]" }};
}

fn keep_payload(at: u32, moved: Payload) {
{% if payload == "both" %}
    payloads[at] = moved.x;
    moved_words[at] = moved.y;
{% else %}
    payloads[at] = moved;
{% endif %}
}

fn load_payload(step: Step, at: u32, row_begin: u32) -> Payload {
    if (step.is_first == 1u) {
        return given_payload(at, row_begin);
    }
    if (step.source == 1u) {
        return kept_payload(at);
    }
    return temporary_payloads[at];
}
{% endif %}

fn store_key(step: Step, key: Key, position: u32) {
    if (step.destination == 2u) {
        temporary[position] = key;
{% if with_keys %}
    } else {
{% else %}
    } else if (step.is_last == 0u) {
{% endif %}
        keys[position] = key;
    }
}

{% if payload != "none" %}
fn store_payload(step: Step, payload: Payload, position: u32) {
    if (step.destination == 2u) {
        temporary_payloads[position] = payload;
    } else {
        keep_payload(position, payload);
    }
}
{% endif %}
{% if kernel %}
{% include "sort/look_back.wgsl" %}

// Return where the elements of a row with a digit begin.
fn base_of(row: u32, digit: u32) -> u32 {
    return plan.bases[(row * DIGITS + params.step) * RADIX + digit];
}
{% endif %}
{% if subgroups %}
{% include "sort/scatter_by_subgroups.wgsl" %}
{% else %}
{% from "shared/main.wgsl" import main %}
{{ main() }} {
{% include "sort/take_tile.wgsl" %}
{% if scheduler == "random" %}
    idle(LOADS, index, invocation, LONGEST_DELAY);
{% endif %}
    let share = count_digits(tile, step, invocation);
{% if kernel %}
{% if scheduler == "random" %}
    idle(POSTS, index, 0u, LONGEST_POST_DELAY);
{% endif %}
    for (var digit = invocation; digit < RADIX; digit += WORKGROUP_SIZE) {
        var count = 0u;
        for (var group = 0u; group < GROUPS; group++) {
            count += counters[digit * GROUPS + group];
        }
        post_count(index, digit, count);
    }
    if (!learn_before(invocation, tile, step)) {
        return;
    }
{% endif %}
    // Turn each counter into the position for the group's first element with the digit.
    var digit = invocation;
    for (; digit < RADIX; digit += WORKGROUP_SIZE) {
{% if kernel %}
        let base = base_of(tile.row, digit);
        var position = base + before[digit];
{% else %}
        var position = offsets[(tile.row * RADIX + digit) * params.tiles_per_row + tile.number];
{% endif %}
        for (var group = 0u; group < GROUPS; group++) {
            let counter = digit * GROUPS + group;
            let count = counters[counter];
            counters[counter] = position;
            position += count;
        }
{% if kernel %}
        post_sum(index, tile, digit, position - base);
{% endif %}
    }
    workgroupBarrier();
{% if scheduler == "random" %}
    idle(STORES, index, invocation, LONGEST_DELAY);
{% endif %}
    var at = share.begin;
    for (; at < share.end; at++) {
        let key = load_key(step.source, at);
        let counter = digit_of(key, step.mask) * GROUPS + invocation;
        let position = counters[counter];
        counters[counter] = position + 1u;
        store_key(step, key, position);
{% if payload != "none" %}
        store_payload(step, load_payload(step, at, tile.row * params.row_length), position);
{% endif %}
    }
{% if kernel and kernel.target.driver_ends_loops %}
    if ((digit < RADIX) | (at < share.end)) {  // the driver ended a loop
        report_timeout();
    }
{% endif %}
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
{% endif %}
