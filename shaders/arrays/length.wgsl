{#- Compute the parameters and the grid of a plan's dispatches from a length that only the GPU knows.
    in:  the length, and the parameters for the longest array, which the buffers are made for
    out: the parameters and the grid for this length
    Values: tile_size, max_workgroups, workgroups_without_tile. -#}
struct Call {
    length: u32,
    tiles: u32,
    epoch: u32,
    spin_rounds: u32,
    row_length: u32,
    first_row: u32,
    row_offset: u32,
    inner: u32,
    index: u32,  // of the length, in words
    grid: vec3<u32>,
}

const TILE_SIZE = {{ tile_size }}u;
const MAX_WORKGROUPS = {{ max_workgroups }}u;  // along one side of a grid

@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> call: Call;

@compute @workgroup_size(1)
fn main() {
    let length = min(given[call.index], call.length);
    let tiles = max(1u, length / TILE_SIZE + select(0u, 1u, length % TILE_SIZE > 0u));
    let workgroups = tiles + {{ workgroups_without_tile }}u;
    let rows = (workgroups + MAX_WORKGROUPS - 1u) / MAX_WORKGROUPS;
    call.length = length;
    call.tiles = tiles;
    call.row_length = max(1u, length);
    call.grid = vec3<u32>((workgroups + rows - 1u) / rows, rows, 1u);
}
