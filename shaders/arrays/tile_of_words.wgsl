{#- Read and write a tile of units of 4 or 8 bytes: one unit after the other, in the order of the source and in the
    order of the destination. The template that includes this is arrays/copy_tiles.wgsl. -#}
fn read_tile(invocation: u32, first: u32, sizes: vec3<u32>) {
    let axes = call.read_axes;
    let steps = vec2(call.axes[axes.y].source, call.axes[axes.z].source);
    let slots = vec2(call.axes[axes.y].slots, call.axes[axes.z].slots);
    let own = column_of(invocation, call.blocks[0]);
    let column = first + min(own.x, sizes.x - 1u) * call.axes[axes.x].source;
    let slot = own.x * call.axes[axes.x].slots;
    for (var row = own.row; row < call.reads; row += own.step * STEPS) {
        // A row past the end of the view stands for the last one, so that no load waits for a branch.
{% for i in range(steps) %}
        let row{{ i }} = row + {{ i }}u * own.step;
        let position{{ i }} = position_of_row(row{{ i }}, call.blocks[1]);
        let way{{ i }} = min(position{{ i }}, sizes.yz - 1u) * steps;
        let unit{{ i }} = source[column + way{{ i }}.x + way{{ i }}.y];
{% endfor %}
{% for i in range(steps) %}
        if (row{{ i }} < call.reads) {
            let to = position{{ i }} * slots;
            tile[slot + to.x + to.y] = unit{{ i }};
        }
{% endfor %}
    }
}

fn write_tile(invocation: u32, first: u32, ends: vec3<u32>) {
    let axes = call.write_axes;
    let steps = vec2(call.axes[axes.y].stride, call.axes[axes.z].stride);
    let slots = vec2(call.axes[axes.y].slots, call.axes[axes.z].slots);
    let own = column_of(invocation, call.line);
    if (own.x >= ends.x) {
        return;
    }
    let column = first + own.x * call.axes[axes.x].stride;
    let slot = own.x * call.axes[axes.x].slots;
    for (var row = own.row; row < call.writes; row += own.step) {
        let position = position_of_row(row, call.lines);
        if (all(position < ends.yz)) {
            let to = position * steps;
            let from_slot = position * slots;
            destination[column + to.x + to.y] = tile[slot + from_slot.x + from_slot.y];
        }
    }
}
