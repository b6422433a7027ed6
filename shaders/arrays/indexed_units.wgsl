{#- Find the units of 1, 2 or 4 bytes of an array that flat indices select along some of its axes.
    Values: rank: axes of the result; indexed: axes that are indexed; other: True to find the units of another array as
        well. The template that includes this binds `call` and `flat_indices`. -#}
struct Call {
    first: u32,  // the first unit of the array that is indexed
    other_first: u32,  // the first unit of the other array
    units: u32,  // in the result
    unused: u32,
{% for axis in range(rank) %}
    size{{ axis }}: u32,  // of the result
    stride{{ axis }}: u32,  // in the array; may be negative: arithmetic wraps
    index_stride{{ axis }}: u32,
{% if other %}
    other_stride{{ axis }}: u32,
{% endif %}
{% endfor %}
{% for axis in range(indexed) %}
    length{{ axis }}: u32,  // of the indexed axes
    row_stride{{ axis }}: u32,
{% endfor %}
}

// Stands for an index that the axis does not have.
const NO_INDEX = 0xffffffffu;

struct Unit {
    exists: bool,
    at: u32,  // in the array that is indexed
{% if other %}
    other: u32,  // in the other array
{% endif %}
}

// Return where the unit of the result with this number in C order is.
fn unit_of_result(number: u32) -> Unit {
    var rest = number;
    var at = call.first;
    var which = 0u;
{% if other %}
    var other = call.other_first;
{% endif %}
{% for axis in range(rank - 1, -1, -1) %}
{% set index = "rest % call.size" ~ axis if axis else "rest" %}
    let i{{ axis }} = {{ index }};
    at += i{{ axis }} * call.stride{{ axis }};
    which += i{{ axis }} * call.index_stride{{ axis }};
{% if other %}
    other += i{{ axis }} * call.other_stride{{ axis }};
{% endif %}
{% if axis %}
    rest /= call.size{{ axis }};
{% endif %}
{% endfor %}
    let flat_index = flat_indices[which];
    var row = flat_index;
{% for axis in range(indexed - 1, 0, -1) %}
    at += row % call.length{{ axis }} * call.row_stride{{ axis }};
    row /= call.length{{ axis }};
{% endfor %}
    at += row * call.row_stride0;
    return Unit(flat_index != NO_INDEX, at{{ ", other" if other }});
}
