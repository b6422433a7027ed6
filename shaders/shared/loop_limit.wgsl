{#- Bound the loops of an operator that is the user's WGSL: each iteration asks `one_turn_too_many`, and if so leaves
    the function. On CPU adapters all iterations of an invocation count together, since llvmpipe ends every loop once
    all of them have made 65,535. Elsewhere each call of `combine` starts again, until one runs out.
    out: the report: a run that exceeded the limit is in error, and its results do not count -#}

const MAX_LOOP_ITERATIONS = {{ kernel.heuristics.max_loop_iterations }}u;
var<private> iterations: u32;

fn begin_turns() {
{% if not kernel.target.is_cpu_adapter %}
    iterations = select(0u, iterations, iterations > MAX_LOOP_ITERATIONS);
{% endif %}
}

fn one_turn_too_many() -> bool {
    iterations += 1u;
    if (iterations <= MAX_LOOP_ITERATIONS) {
        return false;
    }
    iterations = MAX_LOOP_ITERATIONS + 1u;
{% if kernel.posts %}
    atomicStore(&state.loop_limit, params.epoch);
{% else %}
    state.loop_limit = params.epoch;
{% endif %}
    return true;
}
