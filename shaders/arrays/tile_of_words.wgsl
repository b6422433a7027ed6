{#- Read and write a tile of units of 4 or 8 bytes: one unit after the other, in the order of the source and in the
    order of the destination. The template that includes this is arrays/copy_tiles.wgsl. -#}
fn read_tile(invocation: u32, first: u32, sizes: vec3<u32>) {
    let axes = call.read_axes;
    let steps = vec3(call.axes[axes.x].source, call.axes[axes.y].source, call.axes[axes.z].source);
    let slots = vec3(call.axes[axes.x].slots, call.axes[axes.y].slots, call.axes[axes.z].slots);
    for (var begin = invocation; begin < call.reads; begin += WORKGROUP_SIZE * STEPS) {
        // A position past the end of the view stands for the last one, so that no load waits for a branch.
{% for i in range(steps) %}
        let position{{ i }} = position_in_box(begin + {{ i }}u * WORKGROUP_SIZE, call.blocks[0], call.blocks[1]);
        let way{{ i }} = min(position{{ i }}, sizes - 1u) * steps;
        let unit{{ i }} = source[first + way{{ i }}.x + way{{ i }}.y + way{{ i }}.z];
{% endfor %}
{% for i in range(steps) %}
        if (begin + {{ i }}u * WORKGROUP_SIZE < call.reads) {
            let to = position{{ i }} * slots;
            tile[to.x + to.y + to.z] = unit{{ i }};
        }
{% endfor %}
    }
}

fn write_tile(invocation: u32, first: u32, ends: vec3<u32>) {
    let axes = call.write_axes;
    let steps = vec3(call.axes[axes.x].stride, call.axes[axes.y].stride, call.axes[axes.z].stride);
    let slots = vec3(call.axes[axes.x].slots, call.axes[axes.y].slots, call.axes[axes.z].slots);
    for (var i = invocation; i < call.writes; i += WORKGROUP_SIZE) {
        let position = position_in_box(i, call.line, call.lines);
        if (all(position < ends)) {
            let to = position * steps;
            let slot = position * slots;
            destination[first + to.x + to.y + to.z] = tile[slot.x + slot.y + slot.z];
        }
    }
}
