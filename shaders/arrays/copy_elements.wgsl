{#- Copy a strided view into rows of a destination. Each invocation puts 32-bit words of the destination together,
    from units of 1, 2 or 4 bytes, and keeps the units of those words that are not copied to.
    in:  source: unit (i0, i1, …) of the view is at first + i0 * stride0 + i1 * stride1 + …
    out: destination: the units of the view in C order, in rows of `run` units, `pitch` units apart
    Values: workgroup_size; words: that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the view;
        contiguous: True if there is one row. -#}
struct Call {
    first: u32,  // the view's first unit in the source
    destination_first: u32,  // the first unit to write
    units: u32,  // in the view
    run: u32,
    pitch: u32,
    first_word: u32,  // the destination's words that are written: the first, and how many
    words: u32,
    unused: u32,
{% for axis in range(rank) %}
    size{{ axis }}: u32,
    stride{{ axis }}: u32,  // may be negative: arithmetic wraps
{% endfor %}
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const WORDS = {{ words }}u;  // that an invocation copies
const UNITS = {{ 4 // unit }}u;  // in a word

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<u32>;
@group(0) @binding(2) var<storage, read_write> destination: array<u32>;
{% if unit < 4 %}

{% include "arrays/neighbours.wgsl" %}
{% endif %}
{% set last = rank - 1 %}

struct Position {
    at: u32,  // in the source
    left: u32,  // units from there to the end of the view's last axis
}

// Return the position of the unit of the view with this number in C order.
fn position_of(number: u32) -> Position {
    var rest = number;
    var at = call.first;
{% for axis in range(last, 0, -1) %}
    let index{{ axis }} = rest % call.size{{ axis }};
    at += index{{ axis }} * call.stride{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
    at += rest * call.stride0;
    return Position(at, call.size{{ last }} - {{ "index%d" % last if last else "rest" }});
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Neighbours take neighbouring words. All loads of an invocation come before its stores, so that they are under way
    // together: a compiler cannot know that the two arrays do not overlap.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * WORDS) + invocation;
{% for i in range(words) %}
    let number{{ i }} = begin + {{ i }}u * WORKGROUP_SIZE;
    let word{{ i }} = word_of(min(number{{ i }}, call.words - 1u));
{% endfor %}
{% for i in range(words) %}
    if (number{{ i }} < call.words{{ " && word%d.is_copied" % i if unit == 4 and not contiguous }}) {
        destination[call.first_word + number{{ i }}] = word{{ i }}.bits;
    }
{% endfor %}
}

// What a word of the destination becomes.
struct Word {
    bits: u32,
    is_copied: bool,  // false if the word is between two rows
}

fn word_of(number: u32) -> Word {
    let word = call.first_word + number;
    let begin = max(word * UNITS, call.destination_first);
{% if contiguous %}
    var within = begin - call.destination_first;  // units of the destination's row that are before
    var copied = within;
{% else %}
    var within = (begin - call.destination_first) % call.pitch;
    var copied = (begin - call.destination_first) / call.pitch * call.run + min(within, call.run);
{% endif %}
{% if unit == 4 %}
    return Word(source[position_of(min(copied, call.units - 1u)).at], within < call.run);
{% else %}
    var bits = 0u;
    if (begin % UNITS > 0u || call.run - min(within, call.run) < UNITS) {
        bits = destination[word];
    }
    // Units that are neighbours in the view and in the destination are copied together.
    var to = begin % UNITS;
    while (to < UNITS && copied < call.units) {
{% if not contiguous %}
        if (within >= call.run) {
            to += call.pitch - within;
            within = 0u;
            continue;
        }
{% endif %}
        let position = position_of(copied);
        let count = min(min(UNITS - to, call.run - within), position.left);
        bits = insertBits(bits, units_at(position.at, call.stride{{ last }}, count), to * UNIT_BITS, count * UNIT_BITS);
        to += count;
        within += count;
        copied += count;
    }
    return Word(bits, true);
{% endif %}
}
