{#- Add to the length of a run what the next tiles have of it. A compaction of heads of runs knows only how long a run
    is within the tile that it begins in.
    in:  tiles: in word 1 their number, and from word `first` on for each tile the number of runs that begin before it,
         and the elements before its first run
    out: lengths
    Values: workgroup_size -#}
struct Call {
    first: u32,
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> tiles: array<u32>;
@group(0) @binding(2) var<storage, read_write> lengths: array<atomic<u32>>;

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let tile = (workgroup.x + workgroup.y * grid.x) * WORKGROUP_SIZE + invocation;
    if (tile < tiles[1]) {
        let before = tiles[call.first + 2u * tile];
        let more = tiles[call.first + 2u * tile + 1u];
        if (before > 0u && more > 0u) {
            atomicAdd(&lengths[before - 1u], more);
        }
    }
}
