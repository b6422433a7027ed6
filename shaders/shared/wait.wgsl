{#- A loop that looks for a post until the WGSL expression `arrived` is true, up to a bound. The caller's lines are one
    look, with the number `spin` in its round. Between two rounds, `given_up` ends the loop if the run has timed out; it
    is "" if runs cannot time out, and all looks are then one round. `lookback_seconds` in
    gpuscan/planning/heuristics.py is the bound, and `wait_bounds` in gpuscan/planning/plan.py converts it to rounds. -#}
{% macro wait(arrived, given_up, spins="SPINS_PER_ROUND") %}
{% set polls %}
    for (var spin = 0u; spin < {{ spins if given_up else spins ~ " * params.spin_rounds" }}; spin++) {
        if ({{ arrived }}) {
            break;
        }
{{ caller() -}}
{% if kernel.wait_policy.pauses %}
        if (pause(spin) == 0x70000001u) {
            break;  // never happens, but the compiler cannot know that, and keeps the pause
        }
{% endif %}
    }
{% endset %}
{% if given_up %}
    for (var round = 0u; round < params.spin_rounds; round++) {
        if ({{ arrived }} || {{ given_up }}) {
            break;
        }
{{ (polls | indent(4, true)).rstrip() }}
    }
{% else %}
{{ polls -}}
{% endif %}
{% endmacro %}
