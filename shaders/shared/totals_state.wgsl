{#- Tile totals in plain memory, between the dispatches of three_dispatch, after the same six words as the posts of
    shared/tile_state.wgsl. -#}
// ----- Tile totals
struct State {
    unused: vec2<u32>,
    subgroup_size: u32,  // the epoch of a run in which subgroups had another size than planned
    loop_limit: u32,  // the epoch of a run in which a loop of the operator did not end
    unused_too: vec2<u32>,
    totals: array<u32>,
}
@group(0) @binding({{ kernel.state_binding }}) var<storage, read_write> state: State;

const ITEM_WORDS = {{ kernel.item_words }}u;
