{#- Copy a strided view into rows of a destination. Each invocation puts 32-bit words of the destination together,
    from units of 1, 2 or 4 bytes, and keeps the units of those words that are not copied to.
    in:  source: unit (i0, i1, …) of the view is at first + i0 * stride0 + i1 * stride1 + …
    out: destination: the units of the view in C order, in rows of `run` units, `pitch` units apart
    Values: workgroup_size; words: that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the view;
        contiguous: True if there is one row. -#}
{% from "arrays/unit_of.wgsl" import unit_of with context %}
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

// Where a unit of the view is in the source, and its index along each axis but the first.
struct Position {
    at: u32,
{% for axis in range(1, rank) %}
    index{{ axis }}: u32,
{% endfor %}
}

// Return the position of the unit of the view with this number in C order.
fn position_of(number: u32) -> Position {
    var rest = number;
    var at = call.first;
{% for axis in range(rank - 1, 0, -1) %}
    let index{{ axis }} = rest % call.size{{ axis }};
    at += index{{ axis }} * call.stride{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
    at += rest * call.stride0;
    return Position(at{% for axis in range(1, rank) %}, index{{ axis }}{% endfor %});
}
{% if unit < 4 %}

// Return the position of the next unit. Additions take a GPU less time than the remainders of `position_of`.
fn next_position(position: Position) -> Position {
    var next = position;
    next.at += call.stride{{ rank - 1 }};
{% for axis in range(rank - 1, 0, -1) %}
    next.index{{ axis }} += {{ "select(0u, 1u, ends%d)" % (axis + 1) if axis < rank - 1 else "1u" }};
    let ends{{ axis }} = next.index{{ axis }} == call.size{{ axis }};
    next.index{{ axis }} = select(next.index{{ axis }}, 0u, ends{{ axis }});
    next.at += select(0u, call.stride{{ axis - 1 }} - call.size{{ axis }} * call.stride{{ axis }}, ends{{ axis }});
{% endfor %}
    return next;
}
{% endif %}

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
        var bits{{ i }} = word{{ i }}.bits;
{% if unit < 4 %}
        if (word{{ i }}.kept != 0u) {
            bits{{ i }} |= destination[call.first_word + number{{ i }}] & word{{ i }}.kept;
        }
{% endif %}
        destination[call.first_word + number{{ i }}] = bits{{ i }};
    }
{% endfor %}
}

{% if unit == 4 %}
// What a word of the destination becomes.
struct Word {
    bits: u32,
    is_copied: bool,  // false if the word is between two rows
}

fn word_of(number: u32) -> Word {
    let offset = call.first_word + number - call.destination_first;
{% if contiguous %}
    let within = offset;  // units of the destination's row that are before
    let copied = offset;
{% else %}
    let within = offset % call.pitch;
    let copied = offset / call.pitch * call.run + min(within, call.run);
{% endif %}
    return Word(source[position_of(min(copied, call.units - 1u)).at], within < call.run);
}
{% else %}
// What a word of the destination becomes.
struct Word {
    bits: u32,
    kept: u32,  // the bits that stay as they are
}

fn word_of(number: u32) -> Word {
    let begin = (call.first_word + number) * UNITS;
    let start = max(begin, call.destination_first);
{% if contiguous %}
    var copied = start - call.destination_first;  // units that are copied to words before
{% else %}
    let offset = start - call.destination_first;
    var within = offset % call.pitch;  // units of the destination's row that are before
    var copied = offset / call.pitch * call.run + min(within, call.run);
{% endif %}
    var position = position_of(min(copied, call.units - 1u));
    var word = Word();
{% for i in range(4 // unit) %}
{% set bits = 8 * unit %}
    let is_unit{{ i }} = begin + {{ i }}u >= start;
    let is_copied{{ i }} = is_unit{{ i }} && copied < call.units{{ " && within < call.run" if not contiguous }};
    word.bits |= select(0u, {{ unit_of("source", "position.at") }}{{ " << %du" % (i * bits) if i }}, is_copied{{ i }});
    word.kept |= select({{ "0x%xu" % ((2 ** bits - 1) * 2 ** (i * bits)) }}, 0u, is_copied{{ i }});
{% if not loop.last %}
    copied += select(0u, 1u, is_copied{{ i }});
{% if not contiguous %}
    within += select(0u, 1u, is_unit{{ i }});
    within = select(within, 0u, within == call.pitch);
{% endif %}
    if (is_copied{{ i }} && copied < call.units) {
        position = next_position(position);
    }
{% endif %}
{% endfor %}
    return word;
}
{% endif %}
