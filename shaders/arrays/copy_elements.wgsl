{#- Copy a strided view into rows of a destination. Each invocation puts 32-bit words of the destination together,
    from units of 1, 2 or 4 bytes, and keeps the units of those words that are not copied to.
    in:  source: unit (i0, i1, …) of the view is at first + i0 * stride0 + i1 * stride1 + …
    out: destination: the units of the view in C order, in rows of `run` units, `pitch` units apart
    Values: workgroup_size; words: that an invocation copies; unit: bytes, 1, 2 or 4; rank: axes of the view;
        contiguous: True if run is pitch. -#}
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

// Return the unit of the view with this number in C order.
fn unit_at(number: u32) -> u32 {
    var rest = number;
    var at = call.first;
{% for axis in range(rank - 1, 0, -1) %}
    at += (rest % call.size{{ axis }}) * call.stride{{ axis }};
    rest /= call.size{{ axis }};
{% endfor %}
    at += rest * call.stride0;
    return {{ unit_of("source", "at") }};
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    // Several words, so that several loads are under way. Neighbours take neighbouring words.
    let begin = (workgroup.x + workgroup.y * grid.x) * (WORKGROUP_SIZE * WORDS) + invocation;
    for (var i = 0u; i < WORDS; i++) {
        copy_word(begin + i * WORKGROUP_SIZE);
    }
}

fn copy_word(number: u32) {
    if (number >= call.words) {
        return;
    }
    let word = call.first_word + number;
{% if unit == 4 %}
    let at = word - call.destination_first;
{% if contiguous %}
    destination[word] = unit_at(at);
{% else %}
    let within = at % call.pitch;
    if (within < call.run) {
        destination[word] = unit_at(at / call.pitch * call.run + within);
    }
{% endif %}
{% else %}
    var bits = destination[word];
    for (var i = 0u; i < UNITS; i++) {
        let place = word * UNITS + i;
        if (place < call.destination_first) {
            continue;
        }
        let at = place - call.destination_first;
{% if contiguous %}
        let copied = at;
        if (copied >= call.units) {
            break;
        }
{% else %}
        let within = at % call.pitch;
        let copied = at / call.pitch * call.run + within;
        if (within >= call.run || copied >= call.units) {
            continue;
        }
{% endif %}
        bits = insertBits(bits, unit_at(copied), i * {{ 8 * unit }}u, {{ 8 * unit }}u);
    }
    destination[word] = bits;
{% endif %}
}
