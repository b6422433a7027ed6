{#- Look again and again until something is posted, within bounds, and no longer once the run has timed out. The caller's
    lines are one look, number `spin` of its round. `given_up` is "" where no run times out. -#}
{% macro wait(there, given_up, spins="SPINS_PER_ROUND") %}
    for (var round = 0u; round < params.spin_rounds; round++) {
        if ({{ there }}{{ " || " ~ given_up if given_up }}) {
            break;
        }
        for (var spin = 0u; spin < {{ spins }}; spin++) {
            if ({{ there }}) {
                break;
            }
{{ caller() -}}
{% if kernel.wait_policy.pauses %}
            if (pause(spin) == 0x70000001u) {
                break;  // never so, but the compiler cannot tell, and keeps the pause
            }
{% endif %}
        }
    }
{% endmacro %}
