{#- Copy one strided view to another of the same shape, by tiles in workgroup memory: a workgroup reads a tile in the
    order of the source and writes it in the order of the destination, so that neighbours move together in both. A tile
    is a box of up to three axes.
    in:  source: unit (i0, i1, …) of the view is at source_first + i0 * axes[0].source + …
    out: destination: the same unit is at first + i0 * axes[0].stride + …
    An invocation stays in its column of the tile and walks down the rows, so that it computes little for each unit.
    Values: workgroup_size; unit: bytes, 1, 2, 4 or 8; rank: axes, 3 or more; slots: of workgroup memory; layers: True if
        a tile extends along three axes; steps: of the loop that reads a tile that an invocation takes at once, so that
        several loads are under way. -#}
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
    reads: u32,  // rows of blocks that a tile is read in
    write_axes: vec3<u32>,  // the same axes, by the distances in the destination
    writes: u32,  // lines that it is written in
    blocks: array<Divisor, 2>,  // in a row, and rows in a layer
    line: Divisor,  // parts of a line
    lines: Divisor,  // lines in a layer
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

// The part of a tile that an invocation takes: a column of the rows from `row` on, `step` rows apart.
struct Column {
    x: u32,
    row: u32,  // past the end if the invocation has nothing to do
    step: u32,
}

fn column_of(invocation: u32, width: Divisor) -> Column {
    let row = divide(invocation, width);
    let step = divide(WORKGROUP_SIZE, width);
    return Column(invocation - row * width.number, select(row, 0xffffu, row >= step), step);
}

// Return the position of a row along the second and third axis of a tile, given the rows of a layer.
fn position_of_row(row: u32, layer: Divisor) -> vec2<u32> {
{% if layers %}
    let z = divide(row, layer);
    return vec2(row - z * layer.number, z);
{% else %}
    return vec2(row, 0u);
{% endif %}
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
