{#- Look again and again until something is posted, within bounds, and no longer once the run has timed out. The
    caller's lines are one look, number `spin` of its round. `given_up` is "" where no run times out: the rounds are one
    then. How long to wait is told by `lookback_seconds` in gpuscan/planning/heuristics.py; `wait_bounds` in plan.py
    makes it rounds. -#}
{% macro wait(arrived, given_up, spins="SPINS_PER_ROUND") %}
{% set polls %}
    for (var spin = 0u; spin < {{ spins if given_up else spins ~ " * params.spin_rounds" }}; spin++) {
        if ({{ arrived }}) {
            break;
        }
{{ caller() -}}
{% if kernel.wait_policy.pauses %}
        if (pause(spin) == 0x70000001u) {
            break;  // never so, but the compiler cannot tell, and keeps the pause
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
