{#- Read and write a tile of units of 1 or 2 bytes. It is read in blocks: as many words as a word has units, each of
    neighbours along the first axis, from positions that are neighbours along the inner axis, which is the one with the
    nearest neighbours in the destination. Blocks are transposed, and kept as words of neighbours along the inner axis.
    The tile is written in lines along the inner axis. Words at both ends of a line are shared with others, so atomic
    operations change only the line's own bits of them. The template that includes this is arrays/copy_tiles.wgsl. -#}
{% include "arrays/neighbours.wgsl" %}
{% set units = 4 // unit %}

const UNITS = {{ units }}u;  // in a word
alias Block = vec{{ units }}<u32>;

// Return the block that has in word i the units i of all words.
fn transpose_block(words: Block) -> Block {
{% if unit == 1 %}
    let even = words & vec4(0x00ff00ffu);
    let odd = (words >> vec4(8u)) & vec4(0x00ff00ffu);
    let a = transpose_halves(even.x | (even.y << 8u), even.z | (even.w << 8u));
    let b = transpose_halves(odd.x | (odd.y << 8u), odd.z | (odd.w << 8u));
    return vec4(a.x, b.x, a.y, b.y);
{% else %}
    return transpose_halves(words.x, words.y);
{% endif %}
}

// Return the low halves of two words as a word, and their high halves.
fn transpose_halves(first: u32, second: u32) -> vec2<u32> {
    return vec2((first & 0xffffu) | (second << 16u), (first >> 16u) | (second & 0xffff0000u));
}

fn read_tile(invocation: u32, first: u32, sizes: vec3<u32>) {
    let axes = call.read_axes;
    let inner_last = call.write_axes.x == axes.z;  // the inner axis is the third one, and not the second one
    let row_slots = call.axes[axes.x].slots;
    let inner = call.axes[call.write_axes.x];
    let other = call.axes[select(axes.z, axes.y, inner_last)];
    let last = sizes - 1u;
    let last_inner = select(last.y, last.z, inner_last);
    let last_other = select(last.z, last.y, inner_last);
    let own = column_of(invocation, call.blocks[0]);
    let column = first + min(own.x, last.x / UNITS) * UNITS;
    for (var row = own.row; row < call.reads; row += own.step * STEPS) {
        // A row past the end of the view stands for the last one, so that no load waits for a branch.
{% for i in range(steps) %}
        let row{{ i }} = row + {{ i }}u * own.step;
        let position{{ i }} = position_of_row(row{{ i }}, call.blocks[1]);
        let x{{ i }} = select(position{{ i }}.x, position{{ i }}.y, inner_last);  // in blocks, along the inner axis
        let y{{ i }} = select(position{{ i }}.y, position{{ i }}.x, inner_last);
        let at{{ i }} = column + min(y{{ i }}, last_other) * other.source;
        let block{{ i }} = transpose_block(Block(
{% for unit_of_block in range(units) %}
            neighbours_at(at{{ i }} + min(x{{ i }} * UNITS + {{ unit_of_block }}u, last_inner) * inner.source),
{% endfor %}
        ));
{% endfor %}
{% for i in range(steps) %}
        if (row{{ i }} < call.reads) {
            let to = own.x * row_slots + x{{ i }} + y{{ i }} * other.slots;
{% for unit_of_block in range(units) %}
            tile[to + {{ unit_of_block }}u * call.blocks[0].number * row_slots] = block{{ i }}[{{ unit_of_block }}];
{% endfor %}
        }
{% endfor %}
    }
}

fn write_tile(invocation: u32, first: u32, ends: vec3<u32>) {
    let axes = call.write_axes;
    let middle = call.axes[axes.y];
    let outer = call.axes[axes.z];
    let near = axes.y == call.read_axes.x;  // the middle axis has the nearest neighbours in the source
    let row_slots = select(outer.slots, middle.slots, near);
    let other_slots = select(middle.slots, outer.slots, near);
    let own = column_of(invocation, call.line);
    for (var line = own.row; line < call.writes; line += own.step) {
        let position = position_of_row(line, call.lines);
        if (all(position < ends.yz)) {
            let row = select(position.y, position.x, near);
            let layer = select(position.x, position.y, near);
            let slot = (row % UNITS * call.blocks[0].number + row / UNITS) * row_slots + layer * other_slots;
            let begin = first + position.x * middle.stride + position.y * outer.stride;
            write_word(own.x, begin, ends.x, slot);
            write_word(own.x + call.line.number, begin, ends.x, slot);
        }
    }
}

// Write a word, by its number, of a line of `units` units: from the destination's unit `first` on, from this slot on.
fn write_word(number: u32, first: u32, units: u32, slot: u32) {
    let before = first % UNITS;  // units of the line's first word that are not of the line
    let begin = max(number * UNITS, before);
    let end = min(number * UNITS + UNITS, before + units);
    if (begin >= end) {
        return;
    }
    let shift = before * UNIT_BITS;
    let bits = (tile[slot + number] << shift) | ((tile[slot + number - 1u] >> 1u) >> (31u - shift));
    let at = first / UNITS + number;
    if (end - begin == UNITS) {
        atomicStore(&destination[at], bits);
    } else {
        let own = insertBits(0u, 0xffffffffu, begin % UNITS * UNIT_BITS, (end - begin) * UNIT_BITS);
        atomicAnd(&destination[at], ~own);
        atomicOr(&destination[at], bits & own);
    }
}
