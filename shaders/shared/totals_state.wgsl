{#- Tile totals in plain memory, between the dispatches of three_dispatch: behind the same six words as the posts of
    tile_state.wgsl. -#}
// ----- Tile totals
struct State {
    unused: vec2<u32>,
    width: u32,  // the epoch of a run whose subgroups had another size than planned
    turns: u32,  // the epoch of a run in which a loop of the operator did not end
    unused_too: vec2<u32>,
    totals: array<u32>,
}
@group(0) @binding({{ kernel.state_binding }}) var<storage, read_write> state: State;

const ITEM_WORDS = {{ kernel.item_words }}u;
{% if kernel.subgroups %}

fn report_width() {
    state.width = params.epoch;
}
{% endif %}
