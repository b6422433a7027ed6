{#- Copy a strided view into rows of a destination. Each invocation puts 32-bit words of the destination together,
    from units of 1, 2 or 4 bytes, and keeps the units of those words that are not copied to.
    in:  source: unit (i0, i1, …) of the view is at first + i0 * stride0 + i1 * stride1 + …
    out: destination: the units of the view in C order, in rows of `run` units, `pitch` units apart
    Values: workgroup_size; words: that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the view;
        contiguous: True if there is one row; whole: True if most words have units that are neighbours in the view,
        in order or in reverse. -#}
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

{% if whole %}
{% include "arrays/neighbours.wgsl" %}

{% endif %}
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

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Neighbours take neighbouring words. All loads of an invocation come before its stores, so that they are under way
    // together: a compiler cannot know that the two arrays do not overlap.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * WORDS) + invocation;
{% for i in range(words) %}
    let number{{ i }} = begin + {{ i }}u * WORKGROUP_SIZE;
    let word{{ i }} = {{ "whole_word" if whole else "word_of" }}(min(number{{ i }}, call.words - 1u));
{% endfor %}
{% for i in range(words) %}
    if (number{{ i }} < call.words) {
        store(number{{ i }}, word{{ i }});
    }
{% endfor %}
}

const ALL = 0xffffffffu;

// What a word of the destination becomes.
struct Word {
    bits: u32,
    kept: u32,  // the bits that stay as they are
}

fn store(number: u32, word: Word) {
{% if whole %}
    var own = word;
    if (own.kept == ALL) {
        own = word_of(number);
    }
{% else %}
    let own = word;
{% endif %}
    let at = call.first_word + number;
    if (own.kept == 0u) {
        destination[at] = own.bits;
    } else if (own.kept != ALL) {
        destination[at] = own.bits | (destination[at] & own.kept);
    }
}

// The units of a word that may be copied: the first one, and the units of the view and of its row that are before.
struct Place {
    first: u32,
    copied: u32,
    within: u32,
}

fn place_of(number: u32) -> Place {
    let begin = (call.first_word + number) * UNITS;
    let first = max(begin, call.destination_first) - begin;
    let offset = begin + first - call.destination_first;
{% if contiguous %}
    return Place(first, offset, offset);
{% else %}
    let within = offset % call.pitch;
    return Place(first, offset / call.pitch * call.run + min(within, call.run), within);
{% endif %}
}
{% if whole %}

// Return a word if its units are neighbours in the view, else one with all bits kept.
fn whole_word(number: u32) -> Word {
    let place = place_of(number);
    let at = position_of(min(place.copied, call.units - 1u));
    let is_forward = call.stride{{ rank - 1 }} == 1u;
    let neighbours = neighbours_at(select(at.at - (UNITS - 1u), at.at, is_forward));
    let is_whole = place.first == 0u && place.copied + UNITS <= call.units && {{ "at.index%d" % (rank - 1) if rank > 1 else "place.copied" }} + UNITS <= call.size{{ rank - 1 }}
        && place.within + UNITS <= call.run;
    return Word(select(in_reverse(neighbours), neighbours, is_forward), select(ALL, 0u, is_whole));
}

fn in_reverse(word: u32) -> u32 {
    let halves = (word >> 16u) | (word << 16u);
    return {{ "((halves & 0x00ff00ffu) << 8u) | ((halves >> 8u) & 0x00ff00ffu)" if unit == 1 else "halves" }};
}
{% endif %}

// Return a word, unit by unit. The next position takes a GPU less time by additions than by the remainders of
// `position_of`. All loads are under way together.
fn word_of(number: u32) -> Word {
    let place = place_of(number);
    var copied = place.copied;
{% if not contiguous %}
    var within = place.within;
{% endif %}
    let position0 = position_of(min(copied, call.units - 1u));
{% set units = 4 // unit %}
{% for i in range(units) %}
    let is_unit{{ i }} = {{ "place.first <= %du && " % i if units > 1 }}copied < call.units{{ " && within < call.run" if not contiguous }};
{% if not loop.last %}
    copied += select(0u, 1u, is_unit{{ i }});
    let moves{{ i }} = is_unit{{ i }} && copied < call.units;
    var position{{ i + 1 }} = position{{ i }};
    position{{ i + 1 }}.at += select(0u, call.stride{{ rank - 1 }}, moves{{ i }});
{% for axis in range(rank - 1, 0, -1) %}
{% set one = "select(0u, 1u, %s)" % ("moves%d" % i if loop.first else "ends%d_%d" % (i, axis + 1)) %}
    position{{ i + 1 }}.index{{ axis }} += {{ one }};
    let ends{{ i }}_{{ axis }} = position{{ i + 1 }}.index{{ axis }} == call.size{{ axis }};
    position{{ i + 1 }}.index{{ axis }} = select(position{{ i + 1 }}.index{{ axis }}, 0u, ends{{ i }}_{{ axis }});
    position{{ i + 1 }}.at += select(0u, call.stride{{ axis - 1 }} - call.size{{ axis }} * call.stride{{ axis }}, ends{{ i }}_{{ axis }});
{% endfor %}
{% if not contiguous %}
    within += select(0u, 1u, place.first <= {{ i }}u);
    within = select(within, 0u, within == call.pitch);
{% endif %}
{% endif %}
{% endfor %}
    var word = Word();
{% for i in range(units) %}
    word.bits |= select(0u, {{ unit_of("source", "position%d.at" % i) }}{{ " << %du" % (i * 8 * unit) if i }}, is_unit{{ i }});
    word.kept |= select({{ "0x%xu" % ((2 ** (8 * unit) - 1) * 2 ** (i * 8 * unit)) }}, 0u, is_unit{{ i }});
{% endfor %}
    return word;
}
