{#- Looks, again and again, until what is waited for is there: within bounds, and no longer once the run was given up.
    The caller's lines are one look, of number `spin` in its round of so many. -#}
{% macro wait(there, given_up, spins="SPINS_PER_ROUND") %}
    for (var round = 0u; round < params.spin_rounds; round++) {
        if ({{ there }} || {{ given_up }}) {
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
