{#- Copy one strided view to another of the same shape, by tiles in workgroup memory: a workgroup reads a tile in the
    order of the source and writes it in the order of the destination, so that neighbours move together in both. A tile
    is a box of up to three axes.
    in:  source: unit (i0, i1, …) of the view is at source_first + i0 * axes[0].source + …
    out: destination: the same unit is at first + i0 * axes[0].stride + …
    Values: workgroup_size; unit: bytes, 1, 2, 4 or 8; rank: axes, 3 or more; slots: of workgroup memory;
        steps: of the loop that reads a tile that an invocation takes at once, so that several loads are under way. -#}
struct Divisor {
    number: u32,
    factor: u32,  // n / number is n * factor >> shift
    shift: u32,
    unused: u32,
}

struct Axis {
    before: u32,  // tiles from one to the next along the axis
    extent: u32,  // of a tile
    size: u32,
    source: u32,  // units from one element to the next; may be negative: arithmetic wraps
    stride: u32,  // the same in the destination
    slots: u32,  // the same in workgroup memory
    unused: vec2<u32>,
}

struct Call {
    source_first: u32,  // the views' first units
    first: u32,
    tiles: u32,
    cut: u32,  // axes with several tiles; they come first
    read_axes: vec3<u32>,  // of a tile, by the distances of neighbours in the source
    reads: u32,  // blocks that a tile is read in
    write_axes: vec3<u32>,  // the same axes, by the distances in the destination
    writes: u32,  // parts that it is written in
    blocks: array<Divisor, 2>,  // along the first two axes
    line: Divisor,  // parts along the first axis
    lines: Divisor,  // along the second one
    axes: array<Axis, {{ rank }}>,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const STEPS = {{ steps }}u;
{% set slot = "vec2<u32>" if unit == 8 else "u32" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source: array<{{ slot }}>;
@group(0) @binding(2) var<storage, read_write> destination: array<{{ slot if unit >= 4 else "atomic<u32>" }}>;

var<workgroup> tile: array<{{ slot }}, {{ slots }}>;

fn divide(n: u32, by: Divisor) -> u32 {
    return (n * by.factor) >> by.shift;
}

// Return the position in a box with rows of `row` entries and layers of `layer` rows.
fn position_in_box(number: u32, row: Divisor, layer: Divisor) -> vec3<u32> {
    let y = divide(number, row);
    let z = divide(y, layer);
    return vec3(number - y * row.number, y - z * layer.number, z);
}

{% include "arrays/tile_of_units.wgsl" if unit < 4 else "arrays/tile_of_words.wgsl" %}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let number = workgroup.x + workgroup.y * grid.x;
    if (number >= call.tiles) {
        return;
    }
    let read_axes = call.read_axes;
    let write_axes = call.write_axes;
    var source_first = call.source_first;
    var first = call.first;
    // The extents of this tile in both orders.
    var sizes = vec3(call.axes[read_axes.x].extent, call.axes[read_axes.y].extent, call.axes[read_axes.z].extent);
    var ends = vec3(call.axes[write_axes.x].extent, call.axes[write_axes.y].extent, call.axes[write_axes.z].extent);
    var rest = number;
    for (var i = 0u; i < call.cut; i++) {
        let axis = call.axes[i];
        var index = rest;
        if (axis.before > 1u) {
            index = rest / axis.before;
            rest -= index * axis.before;
        }
        let begin = index * axis.extent;
        source_first += begin * axis.source;
        first += begin * axis.stride;
        let size = vec3(min(axis.extent, axis.size - begin));
        sizes = select(sizes, size, vec3(i) == read_axes);
        ends = select(ends, size, vec3(i) == write_axes);
    }
    read_tile(invocation, source_first, sizes);
    workgroupBarrier();
    write_tile(invocation, first, ends);
}
