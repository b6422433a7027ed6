{#- Bounds the loops of an operator that is the user's WGSL: each turn asks `one_turn_too_many`, and leaves the function
    where it is. On CPU adapters all turns of an invocation count together, since llvmpipe leaves every loop once all of
    them have made 65,535; elsewhere each call of `combine` begins anew, until one ran out.
    out: the report: a run that ran out is in error, whatever it stored -#}

const MOST_TURNS = {{ kernel.heuristics.max_loop_iterations }}u;
var<private> turns: u32;

fn begin_turns() {
{% if not kernel.target.is_cpu_adapter %}
    turns = select(0u, turns, turns > MOST_TURNS);
{% endif %}
}

fn one_turn_too_many() -> bool {
    turns += 1u;
    if (turns <= MOST_TURNS) {
        return false;
    }
    turns = MOST_TURNS + 1u;
{% if kernel.posts %}
    atomicStore(&state.turns, params.epoch);
{% else %}
    state.turns = params.epoch;
{% endif %}
    return true;
}
